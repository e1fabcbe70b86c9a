//! The sequence numbers that open snapshots see, for compaction to respect.

use crate::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Core;
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
    fn register(&self, visible: &AtomicU64) -> Seq {
        let mut live = lock(&self.live);
        let seq = visible.load(Acquire);
        *live.entry(seq).or_default() += 1;
        seq
    }

    fn release(&self, seq: Seq) {
        let mut live = lock(&self.live);
        if let Some(n) = live.get_mut(&seq) {
            *n -= 1;
            if *n == 0 {
                live.remove(&seq);
            }
        }
    }

    /// The sequence numbers that must stay readable, ascending, each once.
    pub fn live(&self) -> Vec<Seq> {
        lock(&self.live).keys().copied().collect()
    }

    /// How many snapshots are open.
    pub fn count(&self) -> u64 {
        lock(&self.live).values().map(|&n| n as u64).sum()
    }
}

/// One open snapshot, given up when dropped.
pub(crate) struct Registered {
    core: Arc<Core>,
    seq: Seq,
}

impl Registered {
    /// Registers the newest published sequence number.
    pub fn now(core: &Arc<Core>) -> Registered {
        Registered { core: core.clone(), seq: core.snapshots.register(&core.visible) }
    }

    pub fn seq(&self) -> Seq {
        self.seq
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.core.snapshots.release(self.seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_stays_until_its_last_snapshot_goes() {
        let (s, visible) = (Snapshots::default(), AtomicU64::new(7));
        assert_eq!((s.register(&visible), s.register(&visible)), (7, 7));
        visible.store(9, crate::sync::atomic::Ordering::Release);
        assert_eq!(s.register(&visible), 9);
        assert_eq!((s.live(), s.count()), (vec![7, 9], 3));
        s.release(7);
        assert_eq!(s.live(), [7, 9]);
        s.release(7);
        assert_eq!((s.live(), s.count()), (vec![9], 1));
    }
}
