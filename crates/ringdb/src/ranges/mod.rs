//! Range tombstones: every key from one to another was deleted, by one write.
//!
//! A range tombstone lies beside the keys, not among them: in the memtable that it was written to ([`Growing`]), and
//! once that is flushed in the one list of the version, which the manifest keeps ([`Live`]). Tables know nothing of
//! it. Both are looked up in [`RangeSet`]s, immutable and indexed. A version of a key is hidden from a reader if a
//! tombstone that the reader sees covers the key and is newer than the version.
//!
//! Newer tombstones lie in newer places, as writes do: those of the active memtable are newer than all of the
//! immutable ones, and those of the version are the oldest. [`Ranges`] are a reader's sets in this order.
//!
//! Compactions drop what a tombstone of the version hides from everybody ([`Sweep`]). A tombstone leaves the list when
//! no table holds an older version that it covers. As long as it is there, no newer version of a covered key may take
//! the sequence number 0.

mod growing;
mod live;
mod set;
mod sweep;

use std::sync::Arc;

use crate::coding::{Reader, put_bytes, put_varint};
use crate::key::{self, MAX_KEY_BYTES, SEQ_MAX, Seq};

pub(crate) use growing::{Growing, GrowingWriter};
pub(crate) use live::{Live, RangeEdit, RangeState};
pub(crate) use set::{Cover, RangeSet, Ranges};
pub(crate) use sweep::{Sweep, needed};

/// Longest end of a range: one byte behind the longest internal key.
const MAX_END_BYTES: usize = MAX_KEY_BYTES + 6;

/// The deletion of all internal keys from `start` on and before `end`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RangeTombstone {
    pub start: Arc<[u8]>,
    pub end: Arc<[u8]>,
    pub seq: Seq,
}

impl RangeTombstone {
    pub fn new(start: &[u8], end: &[u8], seq: Seq) -> RangeTombstone {
        RangeTombstone { start: start.into(), end: end.into(), seq }
    }

    /// Whether it may cover a key from `smallest` to `largest`.
    pub fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        *self.start <= *largest && *smallest < *self.end
    }

    /// Whether it covers a key.
    #[cfg(test)]
    pub fn covers(&self, key: &[u8]) -> bool {
        *self.start <= *key && *key < *self.end
    }

    /// Appends the encoding that [`RangeTombstone::decode`] reads.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.seq);
        put_bytes(out, &self.start);
        put_bytes(out, &self.end);
    }

    /// Takes one from `r`. `None` if it is cut off or says what no tombstone can.
    pub fn decode(r: &mut Reader<'_>) -> Option<RangeTombstone> {
        let seq = r.varint()?;
        let (start, end) = (r.bytes()?, r.bytes()?);
        (is_range(start, end) && 0 < seq && seq <= SEQ_MAX).then(|| RangeTombstone::new(start, end, seq))
    }
}

impl std::fmt::Debug for RangeTombstone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (start, end) = (key::printable(&self.start), key::printable(&self.end));
        write!(f, "{start}..{end}@{}", self.seq)
    }
}

/// Whether these can be the ends of a deleted range: of internal keys, not empty, within the limits.
pub(crate) fn is_range(start: &[u8], end: &[u8]) -> bool {
    start < end
        && key::split(start).is_some()
        && key::split(end).is_some()
        && end.len().max(start.len()) <= MAX_END_BYTES
}

#[cfg(test)]
mod tests;
