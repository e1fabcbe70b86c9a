//! [`Recent`]: the keys that were written lately, for transactions to be checked against.
//!
//! Kept only while transactions are open and a little longer (who opens one opens another). A key is recorded when its
//! write has its number and cannot be refused any more, so that frames on their way to the device count. What is kept
//! is bounded: of two chunks the older one is given up when the younger is full.

use super::reads::{Claim, Verdict};
use crate::key::Seq;
use crate::mutation::{Mutation, broken};

/// Bytes of a chunk, and of the largest write that is recorded.
const CHUNK_BYTES: usize = 512 << 10;
/// Writes that are recorded after the last transaction has ended.
const LINGER: u32 = 4096;

/// See the module.
#[derive(Default)]
pub(super) struct Recent {
    /// Transactions.
    open: usize,
    on: bool,
    /// Writes since there was one.
    idle: u32,
    older: Chunk,
    newer: Chunk,
}

/// What was written in a stretch of numbers.
#[derive(Default)]
struct Chunk {
    /// The first number of the stretch.
    from: Seq,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    seq: Seq,
    hash: u64,
    /// Where the key ends in the chunk's bytes, and the end of the range behind it; equal for a single key.
    key_end: u32,
    end: u32,
}

impl Chunk {
    fn reset(&mut self, from: Seq) {
        self.from = from;
        self.bytes.clear();
        self.entries.clear();
    }

    fn has_room(&self) -> bool {
        self.bytes.len() + self.entries.len() * size_of::<Entry>() < CHUNK_BYTES
    }

    /// The entries above a number, newest first, each with its key and the end of its range.
    fn above(&self, basis: Seq) -> impl Iterator<Item = (&Entry, &[u8], &[u8])> {
        let first = self.entries.partition_point(|e| e.seq <= basis);
        (first..self.entries.len()).rev().map(|i| {
            let start = i.checked_sub(1).map_or(0, |before| self.entries[before].end as usize);
            let e = &self.entries[i];
            let (key, end) = self.bytes[start..e.end as usize].split_at(e.key_end as usize - start);
            (e, key, end)
        })
    }

    fn count_above(&self, basis: Seq) -> usize {
        self.entries.len() - self.entries.partition_point(|e| e.seq <= basis)
    }
}

impl Recent {
    /// Whether writes are to be recorded.
    #[inline]
    pub fn on(&self) -> bool {
        self.on
    }

    /// A transaction begins; the next write has the number `next`.
    pub fn opened(&mut self, next: Seq) {
        self.open += 1;
        self.idle = 0;
        if !self.on {
            self.on = true;
            self.forget(next);
        }
    }

    /// A transaction has ended.
    pub fn closed(&mut self) {
        assert!(self.open > 0, "what ends has begun");
        self.open -= 1;
    }

    fn forget(&mut self, next: Seq) {
        self.older.reset(next);
        self.newer.reset(next);
    }

    /// A write of these bytes is about to be recorded, from the number `first` on and before `next`; false if it is too
    /// large: nothing up to there is known then.
    pub fn begin(&mut self, first: Seq, next: Seq, bytes: u64) -> bool {
        if self.open == 0 {
            self.idle += 1;
            if self.idle > LINGER {
                *self = Recent::default();
                return false;
            }
        }
        if bytes > CHUNK_BYTES as u64 {
            self.forget(next);
            return false;
        }
        if !self.newer.has_room() {
            std::mem::swap(&mut self.older, &mut self.newer);
            self.newer.reset(first);
        }
        true
    }

    /// Records a key, or with an end that is not empty the range up to there.
    pub fn record(&mut self, seq: Seq, hash: u64, key: &[u8], end: &[u8]) {
        let c = &mut self.newer;
        c.bytes.extend_from_slice(key);
        let key_end = c.bytes.len() as u32;
        c.bytes.extend_from_slice(end);
        c.entries.push(Entry { seq, hash, key_end, end: c.bytes.len() as u32 });
    }

    /// Whether a claim holds: [`Verdict::Committed`] if so. A conflict is the newest: who waits for it has seen all.
    pub fn judge(&self, claim: &Claim<'_>) -> Verdict {
        if broken(Mutation::SkipValidation) {
            return Verdict::Committed;
        }
        assert!(self.open > 0, "a claim is of an open transaction");
        let Claim { reads, basis, most } = *claim;
        if basis + 1 < self.older.from {
            return Verdict::Unknown { settle: self.older.from - 1 };
        }
        if self.older.count_above(basis) + self.newer.count_above(basis) > most {
            return Verdict::Unknown { settle: 0 };
        }
        let written = self.newer.above(basis).chain(self.older.above(basis));
        for (entry, key, end) in written {
            let read = if end.is_empty() { reads.has_key(key, entry.hash) } else { reads.meets(key, end) };
            if read {
                return Verdict::Conflict { key: key.to_vec(), seq: entry.seq };
            }
        }
        Verdict::Committed
    }
}

#[cfg(test)]
mod tests {
    use super::super::reads::ReadSet;
    use super::*;
    use crate::key;

    fn write(r: &mut Recent, seq: Seq, key: &str, end: &str) {
        if r.begin(seq, seq + 1, (key.len() + end.len()) as u64) {
            r.record(seq, key::hash(key.as_bytes()), key.as_bytes(), end.as_bytes());
        }
    }

    fn judge(r: &Recent, key: &str, basis: Seq) -> Verdict {
        let reads = ReadSet::new([key.as_bytes().to_vec()], vec![]);
        r.judge(&Claim { reads: &reads, basis, most: usize::MAX })
    }

    #[test]
    fn what_was_written_since_is_a_conflict() {
        let mut r = Recent::default();
        r.opened(5);
        write(&mut r, 5, "a", "");
        write(&mut r, 6, "b", "d");
        let at = |key: &str, seq| Verdict::Conflict { key: key.into(), seq };
        assert_eq!(judge(&r, "a", 4), at("a", 5));
        assert_eq!(judge(&r, "a", 5), Verdict::Committed);
        assert_eq!(judge(&r, "c", 5), at("b", 6));
        assert_eq!(judge(&r, "c", 6), Verdict::Committed);
        assert_eq!((judge(&r, "d", 4), judge(&r, "e", 4)), (Verdict::Committed, Verdict::Committed));
        // Before it was switched on: what was on its way then is not known.
        assert_eq!(judge(&r, "e", 3), Verdict::Unknown { settle: 4 });
        let reads = ReadSet::new([], vec![(b"c".to_vec(), None)]);
        let judged = r.judge(&Claim { reads: &reads, basis: 4, most: 2 });
        assert_eq!(judged, at("b", 6));
        assert_eq!(r.judge(&Claim { reads: &reads, basis: 4, most: 1 }), Verdict::Unknown { settle: 0 });
    }

    #[test]
    fn it_is_bounded_and_says_what_it_has_forgotten() {
        let mut r = Recent::default();
        r.opened(1);
        let long = "x".repeat(1000);
        for seq in 1..5000 {
            write(&mut r, seq, &format!("{long}{seq}"), "");
            assert!(r.older.bytes.len() + r.newer.bytes.len() <= 2 * CHUNK_BYTES + 2000);
        }
        assert!(r.older.from > 1000);
        let known = r.older.from;
        assert_eq!(judge(&r, "a", known - 2), Verdict::Unknown { settle: known - 1 });
        assert_eq!(judge(&r, "a", known - 1), Verdict::Committed);
        for seq in known..5000 {
            let key = format!("{long}{seq}");
            let conflict = Verdict::Conflict { key: key.clone().into(), seq };
            assert_eq!((judge(&r, &key, seq - 1), judge(&r, &key, seq)), (conflict, Verdict::Committed));
        }
        assert!(!r.begin(5000, 5100, CHUNK_BYTES as u64 + 1), "too large");
        assert_eq!(judge(&r, "a", 5098), Verdict::Unknown { settle: 5099 });
        assert_eq!(judge(&r, "a", 5099), Verdict::Committed);
    }

    #[test]
    fn it_ends_some_time_after_the_last_transaction() {
        let mut r = Recent::default();
        r.opened(1);
        r.closed();
        assert!(r.on());
        for seq in 1..=Seq::from(LINGER) {
            write(&mut r, seq, "a", "");
            assert!(r.on());
        }
        r.opened(4097);
        assert_eq!(
            judge(&r, "a", 3),
            Verdict::Conflict { key: "a".into(), seq: 4096 },
            "it goes on where it was"
        );
        r.closed();
        for seq in 4097..=4096 + Seq::from(LINGER) {
            write(&mut r, seq, "a", "");
        }
        write(&mut r, 10_000, "a", "");
        assert!(!r.on() && r.newer.entries.is_empty());
        r.opened(10_001);
        assert_eq!(judge(&r, "b", 9999), Verdict::Unknown { settle: 10_000 });
    }
}
