//! Sources that must not wait; see [`crate::table::cursor`]'s `supply`.

use std::sync::Arc;

use super::{LevelCursor, Source, meets};
use crate::Result;
use crate::table::cursor::{Lacks, SeekTo};
use crate::table::fetch::Block;

impl Source {
    /// Begins to seek the first version at or after `key` in sources that from now on do not read.
    pub fn plan_without_reads(sources: &mut [Source], key: &[u8]) {
        sources.iter_mut().filter_map(Source::tables_cursor).for_each(|cursor| cursor.never_read());
        Source::plan_all(sources, SeekTo::AtOrAfter(key));
    }

    /// Begins to seek the first version at or after `key`, of a source that does not read.
    pub fn plan_seek(&mut self, key: &[u8]) {
        Source::plan_all(std::slice::from_mut(self), SeekTo::AtOrAfter(key));
    }

    /// What [`Source::seek_supplied`] lacks.
    pub fn lacks_for_seek(&mut self, key: &[u8]) -> Option<Lacks> {
        match self {
            Source::Memtable(_) => None,
            Source::Table(c) => c.lacks_for_seek(key),
            Source::Level(c) => c.lacks_for_seek(key),
        }
    }

    /// Ends the seek, for which nothing is lacking.
    pub fn seek_supplied(&mut self, key: &[u8]) -> Result<()> {
        self.seek_planned(SeekTo::AtOrAfter(key))
    }

    /// What the step to the following version lacks.
    #[inline]
    pub fn lacks(&mut self) -> Option<Lacks> {
        match self {
            Source::Memtable(_) => None,
            Source::Table(c) => c.lacks(),
            Source::Level(c) => c.lacks(),
        }
    }

    /// Takes blocks that it lacked.
    pub fn supply(&mut self, lacked: &Lacks, blocks: Vec<Result<Block>>) {
        if self.tables_cursor().is_none_or(|cursor| cursor.wants_again(&blocks)) {
            return;
        }
        match self {
            Source::Memtable(_) => {}
            Source::Table(c) => c.supply(lacked.first, blocks),
            Source::Level(c) if Arc::ptr_eq(c.cursor.table(), &lacked.table) => {
                c.cursor.supply(lacked.first, blocks);
            }
            Source::Level(c) => c.supplied = Some(blocks),
        }
    }
}

impl LevelCursor {
    fn lacks_for_seek(&mut self, key: &[u8]) -> Option<Lacks> {
        if !self.entered {
            return None;
        }
        let lacks = self.cursor.lacks_for_seek(key);
        if lacks.is_none() && self.cursor.seek_ends_behind(key) { self.lacks_table() } else { lacks }
    }

    #[inline]
    fn lacks(&mut self) -> Option<Lacks> {
        let lacks = self.cursor.lacks();
        if lacks.is_none() && self.cursor.steps_behind() { self.lacks_table() } else { lacks }
    }

    /// What it lacks to enter the next table.
    fn lacks_table(&mut self) -> Option<Lacks> {
        let table = self.map.level(self.level).tables().get(self.at + 1)?;
        if self.supplied.is_some() || !meets(&self.bounds, table) {
            return None;
        }
        if let Some(block) = table.cached_block(0) {
            self.supplied = Some(vec![Ok(block)]);
            return None;
        }
        Some(self.cursor.lacks_first_of(table))
    }
}
