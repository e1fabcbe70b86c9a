//! Background work: the scheduler's threads, which flush and compact, and one that prepares log segments.

use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::ops::Bound;
use std::sync::Arc;

use super::Core;
use super::keyspace::KeyspaceState;
use crate::compaction::flush::flush;
use crate::compaction::pick::targets;
use crate::compaction::scheduler::{Scheduler, Settings};
use crate::env::Join;
use crate::key::{self, KeyBuf};
use crate::stats::Stats;
use crate::sync::{Condvar, Mutex, lock, wait};
use crate::table::Table;
use crate::{Env, Options, Result};

/// What background threads of a store share. Without a scheduler in a store opened read-only.
pub(crate) struct Background {
    settings: Settings,
    scheduler: Option<Arc<Scheduler>>,
    preparer: Mutex<Preparer>,
    changed: Condvar,
}

/// The thread that prepares log segments.
#[derive(Default)]
struct Preparer {
    wanted: bool,
    busy: bool,
    closing: bool,
}

impl Background {
    pub fn new(options: &Options, env: &Arc<dyn Env>, read_only: bool) -> Background {
        let settings = Settings::new(options);
        let scheduler = (!read_only).then(|| Scheduler::new(env.clone(), settings.clone()));
        Background { settings, scheduler, preparer: Mutex::default(), changed: Condvar::new() }
    }

    /// See [`Scheduler::admit`].
    #[inline]
    pub fn admit(&self, bytes: u64) -> Result<()> {
        self.scheduler.as_ref().map_or(Ok(()), |s| s.admit(bytes))
    }

    /// There are `count` immutable memtables now. May be called under locks.
    pub fn memtable_frozen(&self, count: usize) {
        if let Some(s) = &self.scheduler {
            s.memtable_frozen(count);
        }
    }

    /// Tables, keyspaces or snapshots have changed. May be called under locks.
    pub fn wake(&self) {
        if let Some(s) = &self.scheduler {
            s.wake();
        }
    }

    /// Has log segments prepared.
    pub fn prepare_log(&self) {
        lock(&self.preparer).wanted = true;
        self.changed.notify_all();
    }

    /// Waits until the log segments that were wanted are prepared, or could not be.
    pub fn wait_prepared(&self) {
        let mut p = lock(&self.preparer);
        while (p.wanted || p.busy) && !p.closing {
            p = wait(&self.changed, p, &self.preparer);
        }
    }

    /// Adds what the scheduler counts.
    pub fn add_stats(&self, s: &mut Stats) {
        let Some(scheduler) = &self.scheduler else { return };
        let c = &scheduler.counters;
        s.compactions = c.compactions.load(Relaxed);
        s.trivial_moves = c.trivial_moves.load(Relaxed);
        s.compaction_read_bytes = c.compaction_read_bytes.load(Relaxed);
        s.compaction_written_bytes = c.compaction_written_bytes.load(Relaxed);
        s.write_delays = c.write_delays.load(Relaxed);
        s.write_delay_us = c.write_delay_us.load(Relaxed);
        s.write_delay_reason = scheduler.reason();
        (s.background_errors, s.background_error) = scheduler.background_errors();
    }

    /// The target size of each level.
    pub fn level_targets(&self, levels: &[Vec<Arc<Table>>]) -> Vec<u64> {
        targets(levels, &self.settings.shape).bytes.to_vec()
    }
}

impl Core {
    /// Starts the threads of a store opened for writing.
    pub fn start_threads(self: &Arc<Core>, threads: &mut Vec<Join>) -> Result<()> {
        let Some(scheduler) = &self.background.scheduler else { return Ok(()) };
        scheduler.start(self, threads)?;
        let core = self.clone();
        let join = self.env.spawn("ringdb-log", true, Box::new(move || core.prepare_loop()));
        threads.push(join.map_err(|e| engineswap::Error::from_std("start a background thread", &e))?);
        Ok(())
    }

    fn prepare_loop(&self) {
        let b = &self.background;
        let mut p = lock(&b.preparer);
        while !p.closing {
            if !std::mem::take(&mut p.wanted) {
                p = wait(&b.changed, p, &b.preparer);
                continue;
            }
            p.busy = true;
            drop(p);
            if let Some(w) = &self.writes {
                // The writer meets a failure that lasts, and can tell somebody.
                let _ = w.log.prepare();
            }
            p = lock(&b.preparer);
            p.busy = false;
            b.changed.notify_all();
        }
    }

    /// Flushes what was replayed, before any thread runs.
    pub(super) fn flush_recovered(&self) -> Result<()> {
        let never = AtomicBool::new(false);
        while flush(self, &never)?.is_some() {}
        Ok(())
    }

    /// See [`crate::Db::flush`].
    pub fn flush(&self) -> Result<()> {
        let through = self.freeze()?;
        let Some(scheduler) = &self.background.scheduler else { return Ok(()) };
        scheduler.wait_for(|| lock(&self.tree).immutables.iter().all(|i| i.last_seq > through))
    }

    /// Waits for the thread that prepares log segments.
    pub fn wait_prepared(&self) -> Result<()> {
        self.writes()?;
        self.check_open()?;
        self.background.wait_prepared();
        Ok(())
    }

    /// See [`crate::Db::wait_idle`].
    pub fn wait_idle(&self) -> Result<()> {
        self.wait_prepared()?;
        self.background.scheduler.as_ref().map_or(Ok(()), |s| s.wait_idle(self))
    }

    /// See [`crate::Db::compact_range`].
    pub fn compact_range(&self, keyspace: &KeyspaceState, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<()> {
        self.writes()?;
        self.health.check_writable()?;
        keyspace.check()?;
        self.flush()?;
        let seq = self.visible.load(crate::sync::atomic::Ordering::Acquire);
        let internal = |k: &[u8]| KeyBuf::new(&keyspace.prefix, k).as_slice().to_vec();
        let (first, after) = key::bounds_of(keyspace.id);
        let from = match range.0 {
            Bound::Included(k) | Bound::Excluded(k) => internal(k),
            Bound::Unbounded => first,
        };
        // Ends included: a key too much does no harm.
        let to = match range.1 {
            Bound::Included(k) | Bound::Excluded(k) => internal(k),
            Bound::Unbounded => after,
        };
        match &self.background.scheduler {
            Some(s) if from <= to => {
                s.compact_range(&from, Some(&to), seq)?;
                // Everything else is done.
                let last_too = matches!(range.1, Bound::Included(_));
                self.damage_within(&from, &to, last_too).map_or(Ok(()), Err)
            }
            _ => Ok(()),
        }
    }

    /// Ends the threads and gives up the lock. Nothing is flushed. Every call fails from then on.
    pub fn shut_down(&self, threads: Vec<Join>) -> Result<()> {
        if !self.health.close() {
            return Ok(());
        }
        if let Some(w) = &self.writes {
            w.wait_for_leaders();
        }
        // Whoever makes or drops a keyspace has finished once the manifest is free.
        drop(self.manifest.as_ref().map(lock));
        if let Some(s) = &self.background.scheduler {
            s.close();
        }
        lock(&self.background.preparer).closing = true;
        self.background.changed.notify_all();
        for join in threads {
            join();
        }
        drop(lock(&self.lock).take());
        match (&self.writes, self.health.stopped()) {
            (Some(_), Some(why)) => Err(crate::Error::Stopped(why.into())),
            _ => Ok(()),
        }
    }
}
