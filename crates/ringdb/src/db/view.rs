//! [`View`]: the memtables and tables that a read sees, as one immutable value.
//!
//! A view is published whole ([`engineswap::mem::Published`]); a read loads it under an epoch guard and, if it
//! has to wait for the disk, keeps it by its `Arc`. Together with a sequence number it is a state of the store:
//! load the view first, the sequence number after it (a version that the number needs might have been compacted
//! away in a newer view).

use std::sync::Arc;

use crate::coding::same_bytes;
use crate::cursor::key_head;
use crate::manifest::Version;
use crate::memtable::Memtable;
use crate::table::meta::TableMeta;
use crate::table::reader::Table;

/// What a read looks at, newest first: the active memtable, the immutable ones, the levels.
pub(crate) struct View {
    pub active: Arc<Memtable>,
    /// Newest first.
    pub immutables: Vec<Arc<Memtable>>,
    pub version: Arc<Version<Table>>,
    map: Arc<TableMap>,
}

impl View {
    /// A view; `immutables` are newest first.
    pub fn new(active: Arc<Memtable>, immutables: Vec<Arc<Memtable>>, version: Arc<Version<Table>>) -> View {
        let map = Arc::new(TableMap::new(&version));
        View { active, immutables, version, map }
    }

    /// The same tables under other memtables.
    pub fn with_memtables(&self, active: Arc<Memtable>, immutables: Vec<Arc<Memtable>>) -> View {
        View { active, immutables, version: Arc::clone(&self.version), map: Arc::clone(&self.map) }
    }

    /// The memtables, newest first.
    #[inline]
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.immutables)
    }

    /// How to find the tables that may hold a key.
    #[inline]
    pub fn tables(&self) -> &Arc<TableMap> {
        &self.map
    }
}

/// The tables of a version, laid out for finding those that may hold a key.
pub(crate) struct TableMap {
    /// Level 0, newest first.
    overlapping: Overlapping,
    /// The other levels that have tables, newest first.
    levels: Vec<Level>,
}

/// Tables whose ranges overlap.
struct Overlapping {
    skip: Common,
    ranges: Vec<(u64, u64)>,
    tables: Vec<Arc<Table>>,
}

/// Tables in key order whose ranges are disjoint.
pub(crate) struct Level {
    skip: Common,
    /// Heads of the tables' largest keys.
    heads: Vec<u64>,
    tables: Vec<Arc<Table>>,
}

/// The bytes that all keys of some tables begin with, so that heads are taken behind them.
struct Common(Vec<u8>);

enum Side {
    Before,
    Within(u64),
    After,
}

impl Common {
    fn of<'a>(mut metas: impl Iterator<Item = &'a TableMeta>) -> Common {
        let Some(first) = metas.next() else { return Common(Vec::new()) };
        let mut common = first.smallest.as_slice();
        let mut cut = |key: &[u8]| {
            let n = common.iter().zip(key).take_while(|(a, b)| a == b).count();
            common = &common[..n];
        };
        cut(&first.largest);
        for m in metas {
            cut(&m.smallest);
            cut(&m.largest);
        }
        Common(common.to_vec())
    }

    fn head(&self, key: &[u8]) -> u64 {
        key_head(key, self.0.len())
    }

    /// Where a key lies relative to all keys that have these bytes, and its head if among them.
    #[inline]
    fn locate(&self, key: &[u8]) -> Side {
        let n = self.0.len();
        match key.get(..n) {
            Some(start) if same_bytes(start, &self.0) => Side::Within(key_head(key, n)),
            _ if key < self.0.as_slice() => Side::Before,
            _ => Side::After,
        }
    }
}

impl TableMap {
    /// Of a version's levels.
    pub fn new(version: &Version<Table>) -> TableMap {
        let levels = version.levels();
        let zero = levels.first().map(Vec::as_slice).unwrap_or_default();
        let skip = Common::of(zero.iter().map(|t| t.meta()));
        let ranges =
            zero.iter().map(|t| (skip.head(&t.meta().smallest), skip.head(&t.meta().largest))).collect();
        let overlapping = Overlapping { skip, ranges, tables: zero.to_vec() };
        let sorted = levels.iter().skip(1).filter(|tables| !tables.is_empty());
        TableMap { overlapping, levels: sorted.map(|tables| Level::new(tables.clone())).collect() }
    }

    /// The tables that may hold `key`, newest first.
    #[inline]
    pub fn candidates<'m, 'k>(&'m self, key: &'k [u8]) -> Candidates<'m, 'k> {
        let zero = &self.overlapping;
        let head = match zero.skip.locate(key) {
            Side::Within(head) if !zero.tables.is_empty() => Some(head),
            _ => None,
        };
        let zero = if head.is_some() { 0 } else { zero.tables.len() };
        Candidates { map: self, key, head: head.unwrap_or(0), zero, level: 0 }
    }

    /// Level 0, newest first.
    pub fn level0(&self) -> &[Arc<Table>] {
        &self.overlapping.tables
    }

    /// The other levels that have tables, newest first.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }
}

impl Level {
    fn new(tables: Vec<Arc<Table>>) -> Level {
        let skip = Common::of(tables.iter().map(|t| t.meta()));
        let heads = tables.iter().map(|t| skip.head(&t.meta().largest)).collect();
        Level { skip, heads, tables }
    }

    /// The tables in key order.
    pub fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// The number of the first table whose largest key is at or after `key`.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let head = match self.skip.locate(key) {
            Side::Within(head) => head,
            Side::Before => return Some(0),
            Side::After => return None,
        };
        let mut i = self.heads.partition_point(|&h| h < head);
        while i < self.heads.len() && self.heads[i] == head && self.tables[i].meta().largest.as_slice() < key
        {
            i += 1;
        }
        (i < self.tables.len()).then_some(i)
    }
}

/// See [`TableMap::candidates`].
pub(crate) struct Candidates<'m, 'k> {
    map: &'m TableMap,
    key: &'k [u8],
    head: u64,
    zero: usize,
    level: usize,
}

impl<'m> Iterator for Candidates<'m, '_> {
    type Item = &'m Arc<Table>;

    #[inline]
    fn next(&mut self) -> Option<&'m Arc<Table>> {
        let zero = &self.map.overlapping;
        while let Some(&(low, high)) = zero.ranges.get(self.zero) {
            self.zero += 1;
            if low <= self.head && self.head <= high {
                return zero.tables.get(self.zero - 1);
            }
        }
        while let Some(level) = self.map.levels.get(self.level) {
            self.level += 1;
            if let Some(i) = level.find(self.key) {
                return level.tables.get(i);
            }
        }
        None
    }
}

/// Tables whose filters are loaded together.
const AHEAD: usize = 16;

/// [`Candidates`], with the filters' lines on their way into the CPU's cache some tables ahead.
pub(crate) struct Ahead<'m, 'k> {
    rest: Candidates<'m, 'k>,
    hash: u64,
    tables: [Option<&'m Arc<Table>>; AHEAD],
    at: usize,
}

impl<'m, 'k> Ahead<'m, 'k> {
    #[inline]
    pub fn new(map: &'m TableMap, key: &'k [u8], hash: u64) -> Ahead<'m, 'k> {
        let mut ahead = Ahead { rest: map.candidates(key), hash, tables: [None; AHEAD], at: 0 };
        ahead.load();
        ahead
    }

    #[inline]
    fn load(&mut self) {
        self.at = 0;
        for t in &mut self.tables {
            *t = self.rest.next();
            match t {
                Some(t) => t.filter().prefetch(self.hash),
                None => break,
            }
        }
    }

    /// The next table that may hold the key by its range.
    #[inline]
    pub fn next(&mut self) -> Option<&'m Arc<Table>> {
        if self.at == AHEAD {
            self.load();
        }
        let table = self.tables[self.at]?;
        self.at += 1;
        Some(table)
    }
}
