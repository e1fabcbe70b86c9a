//! [`Watch`]: how far a compaction is, told to whoever asks; and whether it is to give up.

use std::sync::Arc;
use std::time::Duration;

use super::pick::Pick;
use crate::stats::RunningCompaction;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use crate::table::meta::TableMeta;

/// See the module.
#[derive(Default)]
pub(crate) struct Watch {
    /// The store closes: give up.
    closing: Arc<AtomicBool>,
    /// Entries read so far.
    read: AtomicU64,
    what: RunningCompaction,
    began: Duration,
}

impl Watch {
    /// Over what was picked, which begins at `now`.
    pub fn over<T: AsRef<TableMeta>>(pick: &Pick<T>, closing: &Arc<AtomicBool>, now: Duration) -> Arc<Watch> {
        let inputs = pick.inputs();
        let sum = |f: fn(&TableMeta) -> u64| inputs.iter().map(|(_, t)| f((***t).as_ref())).sum();
        let level = inputs.iter().map(|(l, _)| *l as u32).min().unwrap_or(0);
        let what = RunningCompaction {
            reason: pick.reason().name(),
            level,
            output: pick.output().map_or(level, |l| l as u32),
            tables: inputs.len() as u64,
            bytes: sum(|m| m.file_bytes),
            entries: sum(|m| m.entries),
            ..RunningCompaction::default()
        };
        Arc::new(Watch { closing: Arc::clone(closing), read: AtomicU64::new(0), what, began: now })
    }

    /// So many more entries were read; true if it is to give up.
    pub fn step(&self, entries: u64) -> bool {
        self.read.fetch_add(entries, Relaxed);
        self.closing.load(Relaxed)
    }

    /// What it is, and how far.
    pub fn tell(&self, now: Duration) -> RunningCompaction {
        let done = self.read.load(Relaxed).min(self.what.entries);
        RunningCompaction {
            entries_done: done,
            running_us: now.saturating_sub(self.began).as_micros() as u64,
            ..self.what.clone()
        }
    }
}
