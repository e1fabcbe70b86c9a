//! [`Source`]: what an iterator merges: a memtable, a table of level 0, or a whole level of disjoint tables.

use std::sync::Arc;

use super::view::{TableMap, View};
use crate::cursor::Cursor;
use crate::error::Result;
use crate::key::{Kind, Seq};
use crate::memtable::MemCursor;
use crate::table::cursor::{Place, TableCursor};
use crate::table::fetch::Block;
use crate::table::reader::Table;

/// The internal keys that an iterator may return.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// The first.
    pub lower: Vec<u8>,
    /// Before this; `None`: no end.
    pub upper: Option<Vec<u8>>,
}

impl Bounds {
    fn begin_after(&self, key: &[u8]) -> bool {
        self.lower.as_slice() > key
    }

    fn end_before(&self, key: &[u8]) -> bool {
        self.upper.as_ref().is_some_and(|upper| upper.as_slice() <= key)
    }

    /// Whether a table may hold keys within the bounds.
    fn meet(&self, table: &Table) -> bool {
        let meta = table.meta();
        !self.begin_after(&meta.largest) && !self.end_before(&meta.smallest)
    }
}

/// A sorted source of versions.
pub(crate) enum Source {
    Memtable(MemCursor),
    Table(TableCursor),
    Level(LevelCursor),
}

impl Source {
    /// All sources of a view that may hold keys within `bounds`, newest first.
    pub fn all(view: &View, bounds: &Arc<Bounds>, fill_cache: bool) -> Vec<Source> {
        let map = view.tables();
        let mut all = Vec::with_capacity(1 + view.immutables.len() + map.level0().len() + map.levels().len());
        all.extend(view.memtables().filter(|m| !m.is_empty()).map(|m| Source::Memtable(m.cursor())));
        for table in map.level0() {
            if bounds.meet(table) {
                all.push(Source::Table(TableCursor::new(table, bounds, fill_cache)));
            }
        }
        for level in 0..map.levels().len() {
            all.extend(LevelCursor::new(map, level, bounds, fill_cache).map(Source::Level));
        }
        all
    }

    /// Finds the block that seeking `place` needs first, touches it if it is cached, returns it if it is not.
    pub fn plan(&mut self, place: Place<'_>) -> Option<(Arc<Table>, u32)> {
        match self {
            Source::Memtable(_) => None,
            Source::Table(c) => c.plan(place).map(|block| (Arc::clone(c.table()), block)),
            Source::Level(c) => c.plan(place),
        }
    }

    /// Takes a block that [`Source::plan`] asked for.
    pub fn provide(&mut self, number: u32, block: Block) {
        match self {
            Source::Memtable(_) => {}
            Source::Table(c) => c.provide(number, block),
            Source::Level(c) => c.cursor.provide(number, block),
        }
    }

    /// Seeks the place that was planned.
    pub fn seek_planned(&mut self, place: Place<'_>) -> Result<()> {
        match (self, place) {
            (Source::Memtable(c), Place::AtOrAfter(key)) => c.seek(key),
            (Source::Memtable(c), Place::Before(key)) => c.seek_before(key),
            (Source::Memtable(c), Place::Last) => c.seek_to_last(),
            (Source::Table(c), _) => c.seek_planned(place),
            (Source::Level(c), _) => c.seek_planned(place),
        }
    }
}

macro_rules! each {
    ($self:expr, $c:ident => $e:expr) => {
        match $self {
            Source::Memtable($c) => $e,
            Source::Table($c) => $e,
            Source::Level($c) => $e,
        }
    };
}

impl Cursor for Source {
    #[inline]
    fn valid(&self) -> bool {
        each!(self, c => c.valid())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        each!(self, c => c.key())
    }
    #[inline]
    fn seq(&self) -> Seq {
        each!(self, c => c.seq())
    }
    #[inline]
    fn kind(&self) -> Kind {
        each!(self, c => c.kind())
    }
    #[inline]
    fn value(&self) -> &[u8] {
        each!(self, c => c.value())
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        each!(self, c => c.seek(key))
    }
    fn seek_to_first(&mut self) -> Result<()> {
        each!(self, c => c.seek_to_first())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        each!(self, c => c.seek_to_last())
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        each!(self, c => c.seek_before(key))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, c => c.next())
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        each!(self, c => c.prev())
    }
}

/// A level's tables one after the other. It does not leave the tables that meet the bounds.
pub(crate) struct LevelCursor {
    map: Arc<TableMap>,
    level: usize,
    bounds: Arc<Bounds>,
    /// The table that `cursor` is in.
    at: usize,
    cursor: TableCursor,
}

impl LevelCursor {
    /// `None` if no table of the level meets the bounds.
    fn new(map: &Arc<TableMap>, level: usize, bounds: &Arc<Bounds>, fill_cache: bool) -> Option<LevelCursor> {
        let at = map.levels()[level].find(&bounds.lower)?;
        let table = &map.levels()[level].tables()[at];
        if bounds.end_before(&table.meta().smallest) {
            return None;
        }
        let cursor = TableCursor::new(table, bounds, fill_cache);
        Some(LevelCursor { map: Arc::clone(map), level, bounds: Arc::clone(bounds), at, cursor })
    }

    fn tables(&self) -> &[Arc<Table>] {
        self.map.levels()[self.level].tables()
    }

    /// Enters the table in which to look for `place` first; false if there is none.
    fn enter(&mut self, place: Place<'_>) -> bool {
        let level = &self.map.levels()[self.level];
        let last = level.tables().len() - 1;
        let at = match place {
            Place::AtOrAfter(key) => match level.find(key) {
                Some(at) => at,
                None => {
                    self.cursor.clear();
                    return false;
                }
            },
            Place::Before(key) => {
                // The keys before it may all lie in earlier tables.
                let at = level.find(key).unwrap_or(last);
                if at > 0 && level.tables()[at].meta().smallest.as_slice() >= key { at - 1 } else { at }
            }
            Place::Last => last,
        };
        self.go_to(at);
        true
    }

    fn go_to(&mut self, at: usize) {
        if at != self.at {
            self.at = at;
            let table = Arc::clone(&self.tables()[at]);
            self.cursor.go_to(&table);
        }
    }

    fn plan(&mut self, place: Place<'_>) -> Option<(Arc<Table>, u32)> {
        if !self.enter(place) {
            return None;
        }
        self.cursor.plan(place).map(|block| (Arc::clone(self.cursor.table()), block))
    }

    fn seek_planned(&mut self, place: Place<'_>) -> Result<()> {
        if !self.enter(place) {
            return Ok(());
        }
        self.cursor.seek_planned(place)?;
        match place {
            Place::AtOrAfter(_) => self.forward_if_over(),
            _ => self.backward_if_over(),
        }
    }

    /// Behind the end of a table: to the start of the next one.
    #[inline]
    fn forward_if_over(&mut self) -> Result<()> {
        while !self.cursor.valid() {
            match self.tables().get(self.at + 1) {
                Some(table) if self.bounds.meet(table) => {}
                _ => break,
            }
            self.go_to(self.at + 1);
            self.cursor.seek_to_first()?;
        }
        Ok(())
    }

    /// Before the start of a table: to the end of the one before.
    #[inline]
    fn backward_if_over(&mut self) -> Result<()> {
        while !self.cursor.valid() && self.at > 0 && self.bounds.meet(&self.tables()[self.at - 1]) {
            self.go_to(self.at - 1);
            self.cursor.seek_to_last()?;
        }
        Ok(())
    }

    fn seek_place(&mut self, place: Place<'_>) -> Result<()> {
        if self.enter(place) {
            self.cursor.plan(place);
            self.seek_planned(place)?;
        }
        Ok(())
    }
}

impl Cursor for LevelCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.valid()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.key()
    }
    #[inline]
    fn seq(&self) -> Seq {
        self.cursor.seq()
    }
    #[inline]
    fn kind(&self) -> Kind {
        self.cursor.kind()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.value()
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.seek_place(Place::AtOrAfter(key))
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.seek_place(Place::AtOrAfter(&[]))
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.seek_place(Place::Last)
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.seek_place(Place::Before(key))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        self.cursor.next()?;
        self.forward_if_over()
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.cursor.prev()?;
        self.backward_if_over()
    }
}
