//! [`Watch`]: how far a compaction is, told to whoever asks; and whether it is to wait, or to give up.

use std::sync::Arc;
use std::time::Duration;

use super::pick::Pick;
use super::rate::RateLimit;
use crate::env::Env;
use crate::stats::RunningCompaction;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use crate::table::meta::TableMeta;
use crate::{Error, Result};

/// Waits shorter than this are saved up: a sleep costs about as much.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// Between looks at whether the store closes.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// See the module.
pub(crate) struct Watch {
    /// The store closes: give up.
    closing: Arc<AtomicBool>,
    /// Entries read so far.
    read: AtomicU64,
    what: RunningCompaction,
    began: Duration,
    env: Arc<dyn Env>,
    limit: Option<Arc<RateLimit>>,
}

impl Watch {
    /// Over what was picked, which begins now, and may write as fast as `limit` lets it.
    pub fn over<T: AsRef<TableMeta>>(
        pick: &Pick<T>,
        closing: &Arc<AtomicBool>,
        env: &Arc<dyn Env>,
        limit: Option<&Arc<RateLimit>>,
    ) -> Arc<Watch> {
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
        Arc::new(Watch {
            closing: Arc::clone(closing),
            read: AtomicU64::new(0),
            what,
            began: env.now(),
            env: Arc::clone(env),
            limit: limit.cloned(),
        })
    }

    /// So many more bytes were written: waits until the limit lets more pass. Fails if it is to give up.
    pub fn wrote(&self, bytes: u64) -> Result<()> {
        let Some(limit) = &self.limit else { return Ok(()) };
        let mut left = limit.wait(self.env.now(), bytes);
        while left >= LEAST_WAIT {
            if self.closing.load(Relaxed) {
                return Err(Error::Closed);
            }
            let nap = left.min(LOOK_EVERY);
            self.env.sleep(nap);
            left -= nap;
        }
        Ok(())
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
