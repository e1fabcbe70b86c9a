//! The memtable: the newest writes, sorted, in memory.
//!
//! One [`MemWriter`] inserts; any number of readers search and scan meanwhile without waiting for it. Keys and
//! values lie in an append-only arena, one B+tree finds the newest version of each key, versions of a key are
//! linked from newer to older, and a Bloom filter answers for most absent keys. Nothing is freed before the
//! whole memtable is. Its memory is charged to the budget before it is taken.
//!
//! A reader sees every version whose insertion happened before its call. Of those inserted meanwhile it may see
//! any; it asks for a sequence number that it knows to be complete.

mod bloom;
mod btree;
mod cursor;
mod node;
mod record;
#[cfg(test)]
mod tests;

use crate::cache::{Cache, Charge, Owner};
use crate::key::{Kind, Seq};
use crate::ranges::{Growing, GrowingWriter, RangeTombstone, Ranges};
use bloom::Bloom;
use btree::{BTree, LastInsert};
pub(crate) use cursor::MemCursor;
use latchfree::epoch::Collector;
use latchfree::{AppendArena, ArenaWriter};
use record::Record;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The arena of a memtable of the expected size has about so many chunks.
const CHUNKS: u64 = 16;
const LEAST_CHUNK: u64 = 64 << 10;
/// What an entry takes besides its key and value, about: the record's header, and its share of a node.
const ENTRY_BYTES: usize = 56;
/// Tombstones in a row that a scan steps over in about a millisecond.
const LONG_ROW: u32 = 32 << 10;
/// What a range tombstone takes besides its keys, about.
const RANGE_BYTES: usize = 200;

/// The newest writes, sorted.
pub(crate) struct Memtable {
    bloom: Bloom,
    tree: BTree,
    arena: Arc<AppendArena>,
    entries: AtomicU64,
    /// The sequence number of the newest version.
    newest: AtomicU64,
    ranges: Growing,
    /// Under whose guards range tombstones are read.
    collector: Collector,
    /// Dropped last: it counts what is freed with the others.
    charge: Option<Charge>,
}

/// Tombstones in a row, as a queue leaves them whose head is deleted: a scan from its head steps over all of them.
/// Those of keys in random order lie between others and slow no scan down.
#[derive(Debug, Default)]
struct Row {
    last: Vec<u8>,
    /// How many were added in ascending order; one that was not counts against it.
    length: u32,
}

impl Row {
    fn add(&mut self, key: &[u8]) {
        self.length =
            if key > self.last.as_slice() { self.length + 1 } else { self.length.saturating_sub(8) };
        self.last.clear();
        self.last.extend_from_slice(key);
    }
}

/// The only one that can insert into its memtable.
pub(crate) struct MemWriter {
    memtable: Arc<Memtable>,
    arena: ArenaWriter,
    last: LastInsert,
    ranges: GrowingWriter,
    row: Row,
    /// Bytes that may be inserted before the charge has to be looked at.
    paid: usize,
}

/// A version that [`Memtable::get`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemEntry<'a> {
    pub seq: Seq,
    pub kind: Kind,
    /// Empty for a tombstone.
    pub value: &'a [u8],
}

impl Memtable {
    /// An empty memtable, meant to be replaced at about `expected_bytes`, and its writer. Counted in no budget.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(expected_bytes: u64) -> (Arc<Memtable>, MemWriter) {
        Memtable::with_charge(expected_bytes, None, Collector::new())
    }

    /// The same, counted in the budget of `cache`.
    pub fn charged(expected_bytes: u64, cache: &Arc<Cache>) -> (Arc<Memtable>, MemWriter) {
        let charge = cache.charge(Owner::Memtables, 0);
        Memtable::with_charge(expected_bytes, Some(charge), cache.collector().clone())
    }

    fn with_charge(
        expected_bytes: u64,
        charge: Option<Charge>,
        collector: Collector,
    ) -> (Arc<Memtable>, MemWriter) {
        let (arena, writer) = AppendArena::with_chunks((expected_bytes / CHUNKS).max(LEAST_CHUNK) as usize);
        let bloom = Bloom::new(expected_bytes);
        let memtable = Arc::new(Memtable {
            bloom,
            tree: BTree::new(),
            arena,
            entries: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            ranges: Growing::new(),
            collector,
            charge,
        });
        let (arena, last, ranges) = (writer, LastInsert::default(), GrowingWriter::default());
        (Arc::clone(&memtable), MemWriter { memtable, arena, last, ranges, row: Row::default(), paid: 0 })
    }

    /// The newest version of an internal key with a sequence number of at most `seq`; `hash` is `key::hash(key)`.
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64, seq: Seq) -> Option<MemEntry<'_>> {
        if !self.bloom.may_contain(hash) {
            return None;
        }
        let mut pos = self.tree.get(key, &self.arena)?;
        loop {
            let r = Record::at(&self.arena, pos)?;
            if r.seq <= seq {
                return Some(MemEntry { seq: r.seq, kind: r.kind, value: r.value });
            }
            if r.prev == 0 {
                return None;
            }
            pos = r.prev;
        }
    }

    /// The same and all that are older, newest first.
    pub fn versions(&self, key: &[u8], hash: u64, seq: Seq) -> impl Iterator<Item = MemEntry<'_>> {
        let newest = if self.bloom.may_contain(hash) { self.tree.get(key, &self.arena) } else { None };
        let at = |pos: Option<u64>| Record::at(&self.arena, pos.filter(|pos| *pos != 0)?);
        std::iter::successors(at(newest), move |r| at(Some(r.prev)))
            .filter(move |r| r.seq <= seq)
            .map(|r| MemEntry { seq: r.seq, kind: r.kind, value: r.value })
    }

    /// Hints that the key with this hash is about to be asked for.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.bloom.prefetch(hash);
    }

    /// About which share of the keys lies before `key`, from 0 to 1.
    pub fn share_before(&self, key: &[u8]) -> f64 {
        self.tree.share_before(key, &self.arena)
    }

    /// Bytes of records, tree nodes and range tombstones in use.
    pub fn bytes(&self) -> u64 {
        self.arena.bytes() + self.tree.bytes() + self.ranges.bytes()
    }

    /// Bytes of memory that it takes.
    pub fn reserved(&self) -> u64 {
        self.arena.reserved() + self.tree.reserved() + self.bloom.bytes() + self.ranges.bytes()
    }

    /// Number of versions.
    pub fn entries(&self) -> u64 {
        self.entries.load(Relaxed)
    }

    /// Whether nothing was inserted, neither versions nor range tombstones.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0 && !self.has_ranges()
    }

    /// The sequence number of the newest version; those inserted meanwhile may be newer.
    pub fn newest_version(&self) -> Seq {
        self.newest.load(Relaxed)
    }

    /// Whether there are range tombstones.
    #[inline]
    pub fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// The newest range tombstone of sequence number `upto` or lower that covers an internal key; 0 if there is none.
    #[inline]
    pub fn newest_range(&self, key: &[u8], upto: Seq) -> Seq {
        if self.ranges.is_empty() { 0 } else { self.ranges.newest(key, upto) }
    }

    /// The range tombstones that are there now.
    pub fn ranges(&self) -> Arc<Ranges> {
        self.ranges.get()
    }

    /// A cursor over all versions, those inserted meanwhile partly included.
    pub fn cursor(self: &Arc<Self>) -> MemCursor {
        MemCursor::new(Arc::clone(self))
    }
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memtable({} entries, {} bytes)", self.entries(), self.bytes())
    }
}

impl MemWriter {
    /// The memtable that this inserts into.
    #[cfg(test)]
    pub fn memtable(&self) -> &Arc<Memtable> {
        &self.memtable
    }

    /// Inserts a version of an internal key; `hash` is `key::hash(key)`. The sequence numbers of one key come in
    /// increasing order.
    pub fn insert(&mut self, key: &[u8], hash: u64, seq: Seq, kind: Kind, value: &[u8]) {
        self.pay(key.len() + value.len() + ENTRY_BYTES);
        if kind == Kind::Delete {
            self.row.add(key);
        }
        let m = &*self.memtable;
        // Before the tree: a key that is in the tree must not be denied.
        m.bloom.add(hash);
        let Ok((place, prev)) = m.tree.find_place(key, &m.arena) else { unreachable!("the only writer") };
        debug_assert!(prev.and_then(|p| Record::at(&m.arena, p)).is_none_or(|r| r.seq < seq && r.key == key));
        let pos = Record::append(&mut self.arena, prev.unwrap_or(0), seq, kind, key, value);
        if prev.is_some() {
            m.tree.replace(&place, pos);
        } else if m.tree.insert(place, key, pos, &mut self.last, &m.arena).is_err() {
            unreachable!("the only writer");
        }
        m.entries.store(m.entries() + 1, Relaxed);
        m.newest.store(seq, Relaxed);
    }

    /// Whether so many tombstones lie in a row that scans over them are slow: a flush is due, from where compactions
    /// remove them.
    #[inline]
    pub fn has_long_row(&self) -> bool {
        self.row.length >= LONG_ROW
    }

    /// Adds a range tombstone, newer than all that was inserted.
    pub fn delete_range(&mut self, start: &[u8], end: &[u8], seq: Seq) {
        // What its neighbours take grows with it while sets are merged.
        self.pay(2 * (start.len() + end.len() + RANGE_BYTES));
        let m = &*self.memtable;
        m.ranges.add(&mut self.ranges, &m.collector, RangeTombstone::new(start, end, seq));
    }

    /// Charges memory for `bytes` that are about to be inserted, together with that for the next ones.
    #[inline]
    fn pay(&mut self, bytes: usize) {
        match self.paid.checked_sub(bytes) {
            Some(left) => self.paid = left,
            None => self.pay_ahead(bytes),
        }
    }

    #[cold]
    fn pay_ahead(&mut self, bytes: usize) {
        let m = &self.memtable;
        let ahead = m.arena.chunk_bytes();
        if let Some(charge) = &m.charge {
            charge.set(m.reserved() + (bytes + ahead) as u64);
        }
        self.paid = ahead;
    }
}

impl std::fmt::Debug for MemWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemWriter({:?})", self.memtable)
    }
}
