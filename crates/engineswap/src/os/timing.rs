//! How lone operations are timed: each, except for short transfers through the page cache, which take less than a
//! microsecond, so that reading the clock twice would be a tenth of them. Of these one in eight is timed; the others
//! are counted with the time of the last that was, so that numbers of operations and bytes stay exact and latencies are
//! right in distribution.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::os_file::OsFile;
use crate::Result;
use crate::kind::Purpose;
use crate::stats::OpClass;

/// One in so many short transfers is timed.
const ONE_IN: u32 = 8;
/// Transfers of more bytes are always timed.
const SHORT: u64 = 16 << 10;

/// A file's count of short transfers, and how long the last ones took that were timed: reads and writes.
#[derive(Default)]
pub(super) struct Sampler {
    count: AtomicU32,
    last: [AtomicU64; 2],
}

impl OsFile {
    /// Does and counts an operation.
    pub(super) fn timed<T>(
        &self,
        class: OpClass,
        purpose: Purpose,
        bytes: impl FnOnce(&T) -> u64,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let start = self.stats.now();
        let out = call();
        let took = self.stats.now().saturating_sub(start);
        self.stats.record(class, purpose, out.as_ref().map_or(0, bytes), out.is_ok(), took);
        out
    }

    /// Does and counts a transfer of `len` bytes.
    #[inline]
    pub(super) fn timed_transfer<T>(
        &self,
        class: OpClass,
        purpose: Purpose,
        len: u64,
        bytes: impl FnOnce(&T) -> u64,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if len > SHORT || self.alignment.offset > 1 {
            return self.timed(class, purpose, bytes, call);
        }
        let sampler = &self.sampler;
        let last = &sampler.last[usize::from(matches!(class, OpClass::Write))];
        // Not one atomic step: two threads may count one transfer as one, which changes when the next is timed.
        let n = sampler.count.load(Relaxed);
        sampler.count.store(n.wrapping_add(1), Relaxed);
        let known = last.load(Relaxed);
        if n.is_multiple_of(ONE_IN) || known == 0 {
            let start = self.stats.now();
            let out = call();
            let took = self.stats.now().saturating_sub(start);
            last.store(took, Relaxed);
            self.stats.record(class, purpose, out.as_ref().map_or(0, bytes), out.is_ok(), took);
            return out;
        }
        let out = call();
        self.stats.record(class, purpose, out.as_ref().map_or(0, bytes), out.is_ok(), known);
        out
    }
}

#[cfg(test)]
mod tests {
    use crate::{Io, OpenHow, Purpose};

    #[test]
    fn short_transfers_are_all_counted_and_some_are_timed() {
        let dir = tempfile::tempdir().unwrap();
        let io = Io::from_uri("posix").unwrap();
        let f = io.open(&dir.path().join("f"), &OpenHow::read_write()).unwrap();
        for i in 0..100 {
            f.write_all_at(b"sixteen bytes...", i * 16, Purpose(2)).unwrap();
            f.read_at(&mut [0; 16], i * 16, Purpose(2)).unwrap();
        }
        let stats = io.stats();
        for class in [crate::OpClass::Write, crate::OpClass::Read] {
            let s = stats.of(class, Purpose(2));
            assert_eq!((s.ops, s.bytes, s.errors), (100, 1600, 0));
            assert!(!s.time().is_zero());
        }
    }
}
