//! The sequence numbers that open snapshots see, for compaction to respect.

use std::collections::BTreeMap;

use crate::key::Seq;
use crate::sync::{Mutex, lock};

/// All open snapshots of a store.
///
/// A snapshot is taken of the newest published sequence number under the list's lock. A compaction asks for the
/// list after its inputs are fixed: they hold only published versions, so a snapshot registered later sees at
/// least the newest version of every key in them.
#[derive(Default)]
pub(crate) struct Snapshots {
    live: Mutex<BTreeMap<Seq, usize>>,
}

impl Snapshots {
    /// Registers the number that `visible` gives.
    pub fn register(&self, visible: impl FnOnce() -> Seq) -> Seq {
        let mut live = lock(&self.live);
        let seq = visible();
        *live.entry(seq).or_default() += 1;
        seq
    }

    /// Gives up what was registered; true if nobody else has the same number.
    pub fn release(&self, seq: Seq) -> bool {
        let mut live = lock(&self.live);
        let n = live.get_mut(&seq).expect("it was registered");
        *n -= 1;
        let last = *n == 0;
        if last {
            live.remove(&seq);
        }
        last
    }

    /// The sequence numbers that must stay readable, ascending, each once.
    pub fn live(&self) -> Vec<Seq> {
        lock(&self.live).keys().copied().collect()
    }

    /// Calls `f` with the same; no snapshot is opened or given up meanwhile.
    pub fn with_live(&self, f: impl FnOnce(&mut dyn Iterator<Item = Seq>)) {
        f(&mut lock(&self.live).keys().copied());
    }

    /// Whether there is one of this number.
    pub fn has(&self, seq: Seq) -> bool {
        lock(&self.live).contains_key(&seq)
    }

    /// How many snapshots are open.
    pub fn count(&self) -> u64 {
        lock(&self.live).values().map(|&n| n as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_stays_until_its_last_snapshot_goes() {
        let s = Snapshots::default();
        assert_eq!((s.register(|| 7), s.register(|| 7)), (7, 7));
        assert_eq!(s.register(|| 9), 9);
        assert_eq!((s.live(), s.count()), (vec![7, 9], 3));
        assert!(!s.release(7));
        assert_eq!(s.live(), [7, 9]);
        assert!(s.release(7));
        assert_eq!((s.live(), s.count()), (vec![9], 1));
    }
}
