//! Nodes of the tree: arrays of atomic words under a version, in pools that only grow.
//!
//! A node's words: version | count, skip | next leaf + 1 | 5 words of prefix | 64 heads | 64 positions | 64 children
//! (inner nodes only). Entry i is a key: eight bytes of it after the node's common prefix of `skip` bytes (its head)
//! and the position of a record that has it in full. In an inner node entry i is the smallest key that child i may
//! hold; entry 0 has no key.
//!
//! Only the writer changes nodes. It makes the version odd before and even after; a reader takes an even version,
//! reads, and believes what it has read if the version is still the same. All words are atomic, so what it reads
//! meanwhile may be nonsense, but nothing worse.

use super::record::Record;
use crate::cursor::key_head;
use latchfree::{AppendArena, AtomicWords, prefetch_ref};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};

/// Entries of a node.
pub(super) const FANOUT: usize = 64;
/// Longest common prefix that a node can skip: five words, so that its header is one cache line.
const MAX_SKIP: usize = 40;
const HEADER: usize = 8;
/// Words of a leaf and of an inner node.
pub(super) const LEAF_WORDS: usize = HEADER + 2 * FANOUT;
pub(super) const INNER_WORDS: usize = HEADER + 3 * FANOUT;
/// Nodes of a pool's first slab; each further one has twice as many.
const FIRST: usize = 32;
/// The kernel backs large slabs by pages of so many bytes.
const PAGE: u64 = 2 << 20;

/// What was read does not fit together: the writer is at work. Start again.
#[derive(Debug)]
pub(super) struct Torn;

/// Nodes of one size, numbered from 0. They never move and live as long as the pool.
pub(super) struct Pool {
    slabs: [OnceLock<AtomicWords>; 24],
    words: usize,
    len: AtomicU32,
}

impl Pool {
    pub fn new(words: usize) -> Pool {
        Pool { slabs: std::array::from_fn(|_| OnceLock::new()), words, len: AtomicU32::new(0) }
    }

    /// Bytes of the nodes in use.
    pub fn bytes(&self) -> u64 {
        self.len.load(Relaxed) as u64 * self.words as u64 * 8
    }

    /// Bytes of memory that the nodes take, as whole pages of the kernel.
    pub fn reserved(&self) -> u64 {
        let Some(last) = self.len.load(Relaxed).checked_sub(1) else { return 0 };
        let (slab, at) = Self::place(last);
        let bytes = |nodes: usize| (nodes * self.words * 8) as u64;
        let before = FIRST * ((1 << slab) - 1);
        bytes(before) + bytes(at + 1).next_multiple_of(PAGE).min(bytes(FIRST << slab))
    }

    /// A new node, all zero. Only for the writer.
    pub fn add(&self) -> u32 {
        let id = self.len.load(Relaxed);
        let (slab, _) = Self::place(id);
        let Some(cell) = self.slabs.get(slab) else { panic!("a memtable of {id} nodes") };
        cell.get_or_init(|| AtomicWords::zeroed((FIRST << slab) * self.words));
        self.len.store(id + 1, Relaxed);
        id
    }

    #[inline(always)]
    fn place(id: u32) -> (usize, usize) {
        let n = id as usize + FIRST;
        let slab = (n.ilog2() - FIRST.ilog2()) as usize;
        (slab, n - (FIRST << slab))
    }

    /// Node `id`; torn if there is none (yet).
    #[inline(always)]
    pub fn node(&self, id: u32) -> Result<Node<'_>, Torn> {
        let (slab, at) = Self::place(id);
        let words = self.slabs.get(slab).and_then(|s| s.get()).ok_or(Torn)?;
        let words = words.get(at * self.words..(at + 1) * self.words).ok_or(Torn)?;
        let (header, words) = words.split_first_chunk().ok_or(Torn)?;
        let (heads, words) = words.split_first_chunk().ok_or(Torn)?;
        let (records, children) = words.split_first_chunk().ok_or(Torn)?;
        Ok(Node { header, heads, records, children })
    }
}

/// A node, leaf or inner.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    header: &'a [AtomicU64; HEADER],
    heads: &'a [AtomicU64; FANOUT],
    records: &'a [AtomicU64; FANOUT],
    /// Empty in a leaf.
    children: &'a [AtomicU64],
}

impl<'a> Node<'a> {
    /// Hints that the node is about to be searched.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch_ref(&self.header[0]);
        for i in 0..FANOUT / 8 {
            prefetch_ref(&self.heads[i * 8]);
        }
        if self.children.is_empty() {
            // A leaf is not in the cache as a rule, and its positions are asked for right after its heads.
            for i in 0..FANOUT / 8 {
                prefetch_ref(&self.records[i * 8]);
            }
        }
    }

    /// An even version, to be given to [`Node::validate`].
    #[inline(always)]
    pub fn version(&self) -> u64 {
        let mut tries = 0u32;
        loop {
            let v = self.header[0].load(Acquire);
            if v & 1 == 0 {
                return v;
            }
            // The writer is in the middle of some dozens of instructions, unless it has lost its processor.
            tries += 1;
            if tries.is_multiple_of(64) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    /// Whether all that was read since [`Node::version`] gave `version` belongs together.
    #[inline(always)]
    pub fn validate(&self, version: u64) -> bool {
        fence(Acquire);
        self.header[0].load(Relaxed) == version
    }

    /// Runs `change` under an odd version. Only for the writer.
    #[inline(always)]
    pub fn write<T>(&self, change: impl FnOnce() -> T) -> T {
        let v = self.header[0].load(Relaxed);
        self.header[0].store(v + 1, Relaxed);
        fence(Release);
        let r = change();
        self.header[0].store(v + 2, Release);
        r
    }

    #[inline(always)]
    fn meta(&self) -> (usize, usize) {
        let m = self.header[1].load(Relaxed);
        ((m as u32 as usize).min(FANOUT), ((m >> 32) as usize).min(MAX_SKIP))
    }

    /// Number of entries.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.meta().0
    }

    pub fn is_full(&self) -> bool {
        self.len() == FANOUT
    }

    /// The leaf to the right.
    pub fn next(&self) -> Option<u32> {
        (self.header[2].load(Relaxed) as u32).checked_sub(1)
    }

    pub fn set_next(&self, leaf: Option<u32>) {
        self.header[2].store(leaf.map_or(0, |id| id as u64 + 1), Relaxed);
    }

    /// Position of entry i's record.
    #[inline(always)]
    pub fn record(&self, i: usize) -> u64 {
        // Acquire, with the release in `set_record`: who sees a position finds the record published in the arena.
        self.records[i & (FANOUT - 1)].load(Acquire)
    }

    #[inline(always)]
    pub fn set_record(&self, i: usize, pos: u64) {
        self.records[i & (FANOUT - 1)].store(pos, Release);
    }

    #[inline(always)]
    pub fn child(&self, i: usize) -> u32 {
        self.children.get(i).map_or(0, |c| c.load(Relaxed)) as u32
    }

    /// The first entry that has a key.
    #[inline(always)]
    fn low(&self) -> usize {
        usize::from(!self.children.is_empty())
    }

    #[inline(always)]
    fn head(&self, i: usize) -> u64 {
        self.heads[i & (FANOUT - 1)].load(Relaxed)
    }

    /// Where `key` is or belongs: the first entry that is not smaller, and its record if it is equal.
    #[inline]
    pub fn find(&self, key: &[u8], arena: &AppendArena) -> Result<(usize, Option<u64>), Torn> {
        let (len, skip) = self.meta();
        let low = self.low();
        if len <= low {
            return Ok((low, None));
        }
        match self.compare_prefix(key, skip) {
            std::cmp::Ordering::Less => return Ok((low, None)),
            std::cmp::Ordering::Greater => return Ok((len, None)),
            std::cmp::Ordering::Equal => {}
        }
        let head = key_head(key, skip);
        let (mut at, mut size) = (low, len - low);
        while size > 1 {
            let half = size / 2;
            // No branch: the processor cannot guess it.
            at = if self.head(at + half) < head { at + half } else { at };
            size -= half;
        }
        at += usize::from(self.head(at) < head);
        if at == len || self.head(at) != head {
            return Ok((at, None));
        }
        // Equal heads decide nothing: full keys do.
        let mut end = at + 1;
        while end < len && self.head(end) == head {
            end += 1;
        }
        while at < end {
            let mid = (at + end) / 2;
            let pos = self.record(mid);
            let r = Record::at(arena, pos).ok_or(Torn)?;
            match r.key.cmp(key) {
                std::cmp::Ordering::Less => at = mid + 1,
                std::cmp::Ordering::Equal => return Ok((mid, Some(pos))),
                std::cmp::Ordering::Greater => end = mid,
            }
        }
        Ok((at, None))
    }

    /// How `key` stands to the prefix that all entries share: less or greater if to every entry.
    #[inline(always)]
    fn compare_prefix(&self, key: &[u8], skip: usize) -> std::cmp::Ordering {
        for at in (0..skip).step_by(8) {
            let mine = self.header[3 + at / 8].load(Relaxed);
            let mask = if skip - at >= 8 { u64::MAX } else { !(u64::MAX >> ((skip - at) * 8)) };
            match (key_head(key, at) & mask).cmp(&mine) {
                std::cmp::Ordering::Equal => {}
                other => return other,
            }
        }
        // Zero padding has made a key that ends within the prefix look equal; it sorts before.
        if key.len() < skip { std::cmp::Ordering::Less } else { std::cmp::Ordering::Equal }
    }

    // From here on: only for the writer, within `write` or while nobody else knows the node.

    fn set_meta(&self, len: usize, skip: usize) {
        self.header[1].store(len as u64 | (skip as u64) << 32, Relaxed);
    }

    /// The only entry of an inner node, with the child.
    pub fn set_first_child(&self, child: u32) {
        self.set_entry(0, 0, 0, Some(child));
        self.set_meta(1, 0);
    }

    #[inline(always)]
    fn set_entry(&self, i: usize, head: u64, record: u64, child: Option<u32>) {
        self.heads[i].store(head, Relaxed);
        self.set_record(i, record);
        if let (Some(id), Some(c)) = (child, self.children.get(i)) {
            c.store(id as u64, Relaxed);
        }
    }

    /// Inserts an entry before entry `at`. There is room.
    pub fn insert(&self, at: usize, key: &[u8], record: u64, child: Option<u32>, arena: &AppendArena) {
        let (len, mut skip) = self.meta();
        if self.compare_prefix(key, skip) != std::cmp::Ordering::Equal {
            let common = Record::at(arena, self.record(self.low())).map_or(0, |r| common(r.key, key));
            skip = common.min(skip);
            self.rehead(skip, arena);
        }
        for i in (at..len).rev() {
            self.heads[i + 1].store(self.head(i), Relaxed);
            self.set_record(i + 1, self.record(i));
        }
        if child.is_some() {
            for i in (at..len).rev() {
                self.children[i + 1].store(self.children[i].load(Relaxed), Relaxed);
            }
        }
        let head = key_head(key, skip);
        self.set_entry(at, head, record, child);
        self.set_meta(len + 1, skip);
        let tie = at > self.low() && self.head(at - 1) == head || at < len && self.head(at + 1) == head;
        if tie {
            self.lengthen_skip(arena);
        }
    }

    /// Moves the entries from `at` on to `right`, which is new, and leaves the others.
    pub fn split_to(&self, right: &Node<'_>, at: usize, arena: &AppendArena) {
        let (len, skip) = self.meta();
        for i in at..len {
            let child = (!self.children.is_empty()).then(|| self.child(i));
            right.set_entry(i - at, self.head(i), self.record(i), child);
        }
        for i in 3..HEADER {
            right.header[i].store(self.header[i].load(Relaxed), Relaxed);
        }
        right.set_meta(len - at, skip);
        self.set_meta(at, skip);
        for node in [self, right] {
            let (first, last) = (node.head(node.low()), node.head(node.len() - 1));
            // Half of the head, or more, no longer tells entries apart.
            if (first ^ last) >> 32 == 0 {
                node.lengthen_skip(arena);
            }
        }
    }

    /// Skips all that the entries have in common, if that is more than now.
    #[cold]
    fn lengthen_skip(&self, arena: &AppendArena) {
        let (len, skip) = self.meta();
        let low = self.low();
        if len < low + 2 || skip == MAX_SKIP || (self.head(low) ^ self.head(len - 1)) >> 56 != 0 {
            return;
        }
        let (first, last) = (self.record(low), self.record(len - 1));
        if let (Some(a), Some(b)) = (Record::at(arena, first), Record::at(arena, last)) {
            let common = common(a.key, b.key).min(MAX_SKIP);
            if common > skip {
                self.rehead(common, arena);
            }
        }
    }

    /// Computes prefix and heads anew, for keys known to have their first `skip` bytes in common.
    fn rehead(&self, skip: usize, arena: &AppendArena) {
        let (len, low) = (self.len(), self.low());
        for i in low..len {
            super::record::prefetch(arena, self.record(i));
        }
        for i in low..len {
            if let Some(r) = Record::at(arena, self.record(i)) {
                self.heads[i].store(key_head(r.key, skip), Relaxed);
                if i == low {
                    for w in 0..HEADER - 3 {
                        let prefix = r.key.get(..skip).unwrap_or(r.key);
                        self.header[3 + w].store(key_head(prefix, w * 8), Relaxed);
                    }
                }
            }
        }
        self.set_meta(len, skip);
    }
}

/// Bytes that two keys have in common at the start.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
