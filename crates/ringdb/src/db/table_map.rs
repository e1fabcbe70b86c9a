//! [`TableMap`]: which tables of a version may hold a key, found by the first bytes of their ranges' ends.

use std::sync::Arc;

use crate::coding::same_bytes;
use crate::cursor::key_head;
use crate::manifest::Version;
use crate::table::meta::TableMeta;
use crate::table::reader::Table;

/// The tables of a version, laid out for finding those that may hold a key.
pub(crate) struct TableMap {
    /// All of them, newest first: level 0, then the levels in key order. A table's number is its place here.
    tables: Vec<Arc<Table>>,
    /// Level 0, whose ranges overlap.
    zero: Overlapping,
    /// The other levels that have tables, newest first.
    levels: Vec<Sorted>,
}

/// Tables whose ranges overlap.
struct Overlapping {
    skip: Common,
    /// Heads of the tables' smallest and largest keys.
    ranges: Vec<(u64, u64)>,
}

/// Tables in key order whose ranges are disjoint.
struct Sorted {
    skip: Common,
    /// Heads of the tables' largest keys.
    heads: Vec<u64>,
    /// The number of the first one.
    first: usize,
}

/// A level of tables in key order whose ranges are disjoint.
#[derive(Clone, Copy)]
pub(crate) struct Level<'m> {
    sorted: &'m Sorted,
    tables: &'m [Arc<Table>],
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
        let mut map =
            TableMap { tables: zero.to_vec(), zero: Overlapping { skip, ranges }, levels: Vec::new() };
        for tables in levels.iter().skip(1).filter(|tables| !tables.is_empty()) {
            let skip = Common::of(tables.iter().map(|t| t.meta()));
            let heads = tables.iter().map(|t| skip.head(&t.meta().largest)).collect();
            map.levels.push(Sorted { skip, heads, first: map.tables.len() });
            map.tables.extend_from_slice(tables);
        }
        map
    }

    /// A table by its number.
    #[inline]
    pub fn table(&self, number: u32) -> &Arc<Table> {
        &self.tables[number as usize]
    }

    /// Level 0, newest first.
    pub fn level0(&self) -> &[Arc<Table>] {
        &self.tables[..self.zero.ranges.len()]
    }

    /// How many other levels have tables.
    pub fn level_count(&self) -> usize {
        self.levels.len()
    }

    /// One of the other levels that have tables, newest first.
    #[inline]
    pub fn level(&self, i: usize) -> Level<'_> {
        let sorted = &self.levels[i];
        Level { sorted, tables: &self.tables[sorted.first..sorted.first + sorted.heads.len()] }
    }

    /// Whether level 0 is newest first, and the other levels are in key order and disjoint.
    pub fn is_in_order(&self) -> bool {
        let level0 = self.level0().windows(2).all(|w| w[0].meta().max_seq >= w[1].meta().max_seq);
        let disjoint = |w: &[Arc<Table>]| w[0].meta().largest < w[1].meta().smallest;
        level0 && (0..self.level_count()).all(|i| self.level(i).tables().windows(2).all(disjoint))
    }

    /// All tables.
    #[cfg(test)]
    pub fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }
}

impl<'m> Level<'m> {
    /// The tables in key order.
    #[inline]
    pub fn tables(&self) -> &'m [Arc<Table>] {
        self.tables
    }

    /// The place among them of the first table whose largest key is at or after `key`.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        self.sorted.find(key, |i| &self.tables[i])
    }
}

impl Sorted {
    #[inline]
    fn find<'m>(&self, key: &[u8], table: impl Fn(usize) -> &'m Arc<Table>) -> Option<usize> {
        let head = match self.skip.locate(key) {
            Side::Within(head) => head,
            Side::Before => return Some(0),
            Side::After => return None,
        };
        let mut i = self.heads.partition_point(|&h| h < head);
        while let Some(&h) = self.heads.get(i) {
            if h > head || table(i).meta().largest.as_slice() >= key {
                return Some(i);
            }
            i += 1;
        }
        None
    }
}

/// The tables that may hold a key by their ranges, newest first: where a walk over them stands. Plain data, so that a
/// read that waits for the disk can keep it; all calls are for the same map and key.
#[derive(Clone, Copy)]
struct Candidates {
    /// Of the key, behind what all keys of level 0 begin with.
    head: u64,
    zero: u32,
    level: u32,
}

impl Candidates {
    #[inline]
    fn new(map: &TableMap, key: &[u8]) -> Candidates {
        match map.zero.skip.locate(key) {
            Side::Within(head) => Candidates { head, zero: 0, level: 0 },
            _ => Candidates { head: 0, zero: map.zero.ranges.len() as u32, level: 0 },
        }
    }

    /// The number of the next one.
    #[inline]
    fn next(&mut self, map: &TableMap, key: &[u8]) -> Option<u32> {
        while let Some(&(low, high)) = map.zero.ranges.get(self.zero as usize) {
            self.zero += 1;
            if low <= self.head && self.head <= high {
                return Some(self.zero - 1);
            }
        }
        while let Some(sorted) = map.levels.get(self.level as usize) {
            self.level += 1;
            if let Some(i) = sorted.find(key, |i| &map.tables[sorted.first + i]) {
                return Some((sorted.first + i) as u32);
            }
        }
        None
    }
}

/// Tables whose filters are loaded together.
const AHEAD: usize = 16;
/// Behind the last table.
const NONE: u32 = u32::MAX;

/// [`Candidates`], with the filters' lines on their way into the CPU's cache some tables ahead.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    rest: Candidates,
    tables: [u32; AHEAD],
    at: usize,
}

impl Ahead {
    #[inline]
    pub fn new(map: &TableMap, key: &[u8], hash: u64) -> Ahead {
        let mut ahead = Ahead { rest: Candidates::new(map, key), tables: [NONE; AHEAD], at: 0 };
        ahead.load(map, key, hash);
        ahead
    }

    #[inline]
    fn load(&mut self, map: &TableMap, key: &[u8], hash: u64) {
        self.at = 0;
        for number in &mut self.tables {
            let Some(next) = self.rest.next(map, key) else {
                *number = NONE;
                break;
            };
            *number = next;
            map.table(next).filter().prefetch(hash);
        }
    }

    /// The number of the next table that may hold the key by its range.
    #[inline]
    pub fn next(&mut self, map: &TableMap, key: &[u8], hash: u64) -> Option<u32> {
        if self.at == AHEAD {
            self.load(map, key, hash);
        }
        let number = self.tables[self.at];
        if number == NONE {
            return None;
        }
        self.at += 1;
        Some(number)
    }
}
