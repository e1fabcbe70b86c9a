//! Operations of a queue that have ended well and are not in its engine's counters yet. The counters are shared, so
//! each addition is a locked instruction: a reap adds its completions up here and makes one addition of many.

use std::sync::atomic::Ordering::Relaxed;

use super::{OpClass, Stats, bucket};
use crate::kind::Purpose;

#[derive(Default)]
pub(crate) struct Tally {
    /// Operations of a queue, and the sum of the times that they were in flight.
    ops: u64,
    nanos: u64,
    /// The last operations of one kind and purpose.
    cell: usize,
    bytes: u64,
    cell_nanos: u64,
    /// The last of these, of one bucket.
    bucket: usize,
    in_bucket: u64,
}

impl Tally {
    /// An operation of a queue has been done by a plain call, which has counted it.
    #[inline]
    pub(crate) fn queued(&mut self, nanos: u64) {
        self.ops += 1;
        self.nanos += nanos;
    }

    /// An operation of a queue has ended well.
    #[inline]
    pub(crate) fn record(&mut self, to: &Stats, class: OpClass, purpose: Purpose, bytes: u64, nanos: u64) {
        self.queued(nanos);
        let (cell, bucket) = (Stats::cell_of(class, purpose), bucket(nanos));
        if self.in_bucket > 0 && (cell, bucket) != (self.cell, self.bucket) {
            self.end(to, cell != self.cell);
        }
        (self.cell, self.bucket) = (cell, bucket);
        self.in_bucket += 1;
        self.bytes += bytes;
        self.cell_nanos += nanos;
    }

    /// Puts all of it into the counters.
    #[inline]
    pub(crate) fn count(&mut self, to: &Stats) {
        if self.in_bucket > 0 {
            self.end(to, true);
        }
        if self.ops > 0 {
            to.queued(std::mem::take(&mut self.ops), std::mem::take(&mut self.nanos));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ops == 0
    }

    /// Counts those of one bucket, and the sums of their kind if another comes.
    fn end(&mut self, to: &Stats, kind: bool) {
        let cell = to.cell(self.cell);
        cell.buckets[self.bucket].fetch_add(std::mem::take(&mut self.in_bucket), Relaxed);
        if kind {
            cell.bytes.fetch_add(std::mem::take(&mut self.bytes), Relaxed);
            cell.nanos.fetch_add(std::mem::take(&mut self.cell_nanos), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the order and the groups, the counters come out as if each had been counted alone.
    #[test]
    fn a_tally_loses_nothing() {
        let (one, many) = (Stats::new(c"one"), Stats::new(c"many"));
        let mut tally = Tally::default();
        for i in 0..500u64 {
            let class = if i % 7 < 5 { OpClass::Read } else { OpClass::Sync };
            let (purpose, bytes, nanos) = (Purpose((i % 11 / 6) as u8), i % 3 * 512, (i / 4 % 5) * 1000);
            one.record(class, purpose, bytes, true, nanos);
            one.queued(1, nanos);
            tally.record(&many, class, purpose, bytes, nanos);
            if i % 13 == 0 {
                tally.queued(77);
                one.queued(1, 77);
            }
            if i % 29 == 0 {
                tally.count(&many);
                assert!(tally.is_empty());
            }
        }
        tally.count(&many);
        let (one, many) = (one.snapshot(), many.snapshot());
        assert_eq!(one.cells, many.cells);
        assert_eq!((one.queue_ops, one.queue_time), (many.queue_ops, many.queue_time));
        assert_eq!(many.queue_ops, 500 + 39);
    }
}
