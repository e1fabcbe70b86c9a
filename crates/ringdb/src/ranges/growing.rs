//! [`Growing`]: the range tombstones of a memtable. One writer adds, any number of readers look meanwhile.
//!
//! Tombstones lie in a few [`RangeSet`]s, each much larger than the next, which are merged as they grow: so that
//! adding one costs little on average, however many there are, and looking has few places to look at. The sets are
//! replaced as one, so a reader sees all of them at one moment.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, OnceLock};

use latchfree::epoch::{Collector, Published};

use super::{RangeSet, RangeTombstone, Ranges};
use crate::key::Seq;

/// A set is at least so many times as large as the next.
const RATIO: usize = 16;

/// The range tombstones of a memtable.
pub(crate) struct Growing {
    /// The newest one's sequence number; 0: there is none.
    newest: AtomicU64,
    sets: OnceLock<Published<Ranges>>,
    bytes: AtomicU64,
}

/// The only one that adds to its [`Growing`].
#[derive(Debug, Default)]
pub(crate) struct GrowingWriter {
    /// Newest first.
    sets: Ranges,
}

impl Growing {
    pub fn new() -> Growing {
        Growing { newest: AtomicU64::new(0), sets: OnceLock::new(), bytes: AtomicU64::new(0) }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.newest.load(Acquire) == 0
    }

    /// Bytes of memory that they take, about.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Acquire)
    }

    /// The newest tombstone of sequence number `upto` or lower that covers `key`; 0 if there is none.
    pub fn newest(&self, key: &[u8], upto: Seq) -> Seq {
        let Some(sets) = self.sets.get() else { return 0 };
        sets.load(&sets.pin()).newest(key, upto)
    }

    /// What is there now.
    pub fn get(&self) -> Arc<Ranges> {
        self.sets.get().map(Published::get).unwrap_or_default()
    }

    /// Adds one that is newer than all before. Whoever sees its sequence number published sees it.
    pub fn add(&self, writer: &mut GrowingWriter, collector: &Collector, t: RangeTombstone) {
        let seq = t.seq;
        debug_assert!(seq > self.newest.load(Acquire), "the sequence numbers of a memtable rise");
        let sets = Arc::new(writer.add(t));
        self.bytes.store(sets.bytes(), Release);
        match self.sets.get() {
            Some(published) => published.store(sets),
            None => drop(self.sets.set(Published::new(collector, sets))),
        }
        self.newest.store(seq, Release);
    }
}

impl GrowingWriter {
    pub(super) fn add(&mut self, t: RangeTombstone) -> Ranges {
        let old = std::mem::take(&mut self.sets.sets);
        let (mut merged, mut rest) = (vec![t], old.as_slice());
        while let Some((next, older)) = rest.split_first()
            && next.len() < RATIO * merged.len()
        {
            merged.extend_from_slice(next.all());
            rest = older;
        }
        self.sets.sets.push(Arc::new(RangeSet::new(merged)));
        self.sets.sets.extend_from_slice(rest);
        self.sets.clone()
    }
}
