//! [`Source`]: what an iterator merges: a memtable, a table of level 0, or a whole level of disjoint tables.

mod skip;
mod supply;

use std::sync::Arc;

use super::table_map::TableMap;
use super::view::View;
use crate::bounds::Bounds;
use crate::cursor::{Cursor, ReverseCursor};
use crate::error::Result;
use crate::key::{Kind, Seq};
use crate::memtable::MemCursor;
use crate::purpose;
use crate::table::cursor::{SeekTo, TableCursor};
use crate::table::fetch::{Block, read_together};
use crate::table::reader::Table;

/// Whether a table may hold keys within the bounds.
fn meets(bounds: &Bounds, table: &Table) -> bool {
    bounds.overlap(&table.meta().smallest, &table.meta().largest)
}

/// A sorted source of versions. Boxed one by one: allocators are fastest at small pieces.
pub(crate) enum Source {
    Memtable(Box<MemCursor>),
    Table(Box<TableCursor>),
    Level(Box<LevelCursor>),
}

impl Source {
    /// All sources of a view that may hold keys within `bounds`, newest first.
    pub fn all(view: &View, bounds: &Arc<Bounds>, fill_cache: bool) -> Vec<Source> {
        let map = view.tables();
        let mut all = Vec::with_capacity(1 + view.immutables.len() + map.level0().len() + map.level_count());
        all.extend(
            view.memtables().filter(|m| !m.is_empty()).map(|m| Source::Memtable(Box::new(m.cursor()))),
        );
        for table in map.level0() {
            if meets(bounds, table) {
                all.push(Source::Table(Box::new(TableCursor::new(table, bounds, fill_cache))));
            }
        }
        for level in 0..map.level_count() {
            let cursor = LevelCursor::new(map, level, bounds, fill_cache);
            all.extend(cursor.map(|c| Source::Level(Box::new(c))));
        }
        all
    }

    /// Begins to seek `place`; see [`TableCursor::start`].
    #[inline]
    fn start(&mut self, place: SeekTo<'_>) {
        match self {
            Source::Memtable(_) => {}
            Source::Table(c) => c.start(place),
            Source::Level(c) => c.start(place),
        }
    }

    #[inline]
    fn tables_cursor(&mut self) -> Option<&mut TableCursor> {
        match self {
            Source::Memtable(_) => None,
            Source::Table(c) => Some(c),
            Source::Level(c) => Some(&mut c.cursor),
        }
    }

    /// Begins to seek `place` in all sources side by side: each knows the block in which to look.
    fn plan_all(sources: &mut [Source], place: SeekTo<'_>) {
        for s in sources.iter_mut() {
            s.start(place);
        }
        let mut on = true;
        while std::mem::take(&mut on) {
            for cursor in sources.iter_mut().filter_map(Source::tables_cursor) {
                on |= cursor.step(place);
            }
        }
        for cursor in sources.iter_mut().filter_map(Source::tables_cursor) {
            cursor.touch();
        }
    }

    /// Seeks `place` in all sources side by side. The blocks that are not cached are read together.
    pub fn seek_all(sources: &mut [Source], place: SeekTo<'_>, fill_cache: bool) -> Result<()> {
        Source::plan_all(sources, place);
        let mut missing = Vec::new();
        for (i, s) in sources.iter_mut().enumerate() {
            let Some(cursor) = s.tables_cursor() else { continue };
            if let Some(block) = cursor.take_cached() {
                missing.push((i, Arc::clone(cursor.table()), block));
            }
        }
        if missing.len() > 1 {
            let wanted: Vec<_> = missing.iter().map(|(_, table, block)| (&**table, *block)).collect();
            // What fails here is tried again, and then reported, by the source's own seek.
            let blocks = read_together(&wanted, fill_cache, purpose::SCAN_READ);
            for ((i, _, number), block) in missing.iter().zip(blocks) {
                if let (Ok(block), Some(cursor)) = (block, sources[*i].tables_cursor()) {
                    cursor.provide(*number, block);
                }
            }
        }
        sources.iter_mut().try_for_each(|s| s.seek_planned(place))
    }

    /// Seeks the place that was planned.
    fn seek_planned(&mut self, place: SeekTo<'_>) -> Result<()> {
        match (self, place) {
            (Source::Memtable(c), SeekTo::AtOrAfter(key)) => c.seek(key),
            (Source::Memtable(c), SeekTo::Before(key)) => c.seek_before(key),
            (Source::Memtable(c), SeekTo::Last) => c.seek_to_last(),
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
    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, c => c.next())
    }
}

impl ReverseCursor for Source {
    fn seek_to_last(&mut self) -> Result<()> {
        each!(self, c => c.seek_to_last())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        each!(self, c => c.seek_before(key))
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
    /// Whether `cursor` is in the table where to look for the place being sought.
    entered: bool,
    cursor: TableCursor,
    /// The first blocks of the next table, if it lacked them.
    supplied: Option<Vec<Result<Block>>>,
}

impl LevelCursor {
    /// `None` if no table of the level meets the bounds.
    fn new(map: &Arc<TableMap>, level: usize, bounds: &Arc<Bounds>, fill_cache: bool) -> Option<LevelCursor> {
        let at = map.level(level).find(&bounds.lower)?;
        let table = &map.level(level).tables()[at];
        if bounds.end_before(&table.meta().smallest) {
            return None;
        }
        let cursor = TableCursor::new(table, bounds, fill_cache);
        Some(LevelCursor {
            map: Arc::clone(map),
            level,
            bounds: Arc::clone(bounds),
            at,
            entered: true,
            cursor,
            supplied: None,
        })
    }

    fn tables(&self) -> &[Arc<Table>] {
        self.map.level(self.level).tables()
    }

    /// Enters the table in which to look for `place` first, if there is one, and begins to seek there.
    fn start(&mut self, place: SeekTo<'_>) {
        let level = self.map.level(self.level);
        let last = level.tables().len() - 1;
        let at = match place {
            SeekTo::AtOrAfter(key) => level.find(key),
            SeekTo::Before(key) => {
                // The keys before it may all lie in earlier tables.
                let at = level.find(key).unwrap_or(last);
                let before = at > 0 && level.tables()[at].meta().smallest.as_slice() >= key;
                Some(if before { at - 1 } else { at })
            }
            SeekTo::Last => Some(last),
        };
        self.entered = at.is_some();
        match at {
            Some(at) => {
                self.go_to(at);
                self.cursor.start(place);
            }
            None => self.cursor.clear(),
        }
    }

    fn go_to(&mut self, at: usize) {
        if at != self.at {
            let table = Arc::clone(&self.tables()[at]);
            let (first, second) = (self.at.min(at), self.at.max(at));
            debug_assert!(
                self.tables()[first].meta().largest < self.tables()[second].meta().smallest,
                "a level's tables are disjoint and in key order"
            );
            self.at = at;
            self.cursor.go_to(&table);
        }
    }

    fn seek_planned(&mut self, place: SeekTo<'_>) -> Result<()> {
        if !self.entered {
            return Ok(());
        }
        self.cursor.seek_planned(place)?;
        match place {
            SeekTo::AtOrAfter(_) => self.forward_if_over(),
            _ => self.backward_if_over(),
        }
    }

    /// Behind the end of a table: to the start of the next one.
    #[inline]
    fn forward_if_over(&mut self) -> Result<()> {
        while !self.cursor.valid() {
            match self.tables().get(self.at + 1) {
                Some(table) if meets(&self.bounds, table) => {}
                _ => break,
            }
            self.go_to(self.at + 1);
            if let Some(blocks) = self.supplied.take() {
                self.cursor.supply(0, blocks);
            }
            self.cursor.seek_to_first()?;
        }
        Ok(())
    }

    /// Before the start of a table: to the end of the one before.
    #[inline]
    fn backward_if_over(&mut self) -> Result<()> {
        while !self.cursor.valid() && self.at > 0 && meets(&self.bounds, &self.tables()[self.at - 1]) {
            self.go_to(self.at - 1);
            self.cursor.seek_to_last()?;
        }
        Ok(())
    }

    fn seek_place(&mut self, place: SeekTo<'_>) -> Result<()> {
        self.start(place);
        while self.cursor.step(place) {}
        self.cursor.take_cached();
        self.seek_planned(place)
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
        self.seek_place(SeekTo::AtOrAfter(key))
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.seek_place(SeekTo::AtOrAfter(&[]))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        self.cursor.next()?;
        self.forward_if_over()
    }
}

impl ReverseCursor for LevelCursor {
    fn seek_to_last(&mut self) -> Result<()> {
        self.seek_place(SeekTo::Last)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.seek_place(SeekTo::Before(key))
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.cursor.prev()?;
        self.backward_if_over()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{Fixture, Plan};
    use crate::manifest::Version;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a level's tables are disjoint and in key order")]
    fn a_step_to_a_table_out_of_order_is_noticed() {
        let f = Fixture::new(Plan::default());
        let mut levels = f.views.newest().version.levels().to_vec();
        let last = levels.pop().expect("a last level");
        let swapped = vec![vec![], vec![last[1].clone(), last[0].clone()]];
        let map = Arc::new(TableMap::new(&Version::unchecked(swapped)));
        let bounds = Arc::new(Bounds { lower: vec![], upper: None });
        let mut cursor = LevelCursor::new(&map, 0, &bounds, true).expect("tables");
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            cursor.next().unwrap();
        }
    }
}
