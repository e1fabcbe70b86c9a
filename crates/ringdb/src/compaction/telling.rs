//! What the scheduler tells listeners of its work. Each of these is called without any lock.

use std::time::Duration;

use super::CompactionEnv;
use super::run::JobStats;
use super::scheduler::Scheduler;
use crate::Result;
use crate::events::Event;
use crate::stats::RunningCompaction;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::lock;

impl Scheduler {
    /// A flush that began at `start` has ended.
    pub(super) fn tell_flush(&self, result: &Result<Option<JobStats>>, start: Duration) {
        self.events.tell(|| {
            let work = result.as_ref().ok().and_then(Option::as_ref);
            Event::FlushEnded {
                memtable_bytes: work.map_or(0, |w| w.read_bytes),
                tables: work.map_or(0, |w| w.tables),
                written_bytes: work.map_or(0, |w| w.written_bytes),
                took: self.since(start),
                error: result.as_ref().err().map(ToString::to_string),
            }
        });
    }

    /// A compaction begins.
    pub(super) fn tell_began(&self, what: &RunningCompaction) {
        let &RunningCompaction { reason, level, output, tables, bytes, .. } = what;
        self.events.tell(|| Event::CompactionBegan { reason, level, output, tables, bytes });
    }

    /// It has ended.
    pub(super) fn tell_ended(&self, what: &RunningCompaction, result: &Result<JobStats>, start: Duration) {
        self.events.tell(|| Event::CompactionEnded {
            reason: what.reason,
            level: what.level,
            output: what.output,
            moved_tables: result.as_ref().map_or(0, |w| w.moved),
            read_bytes: result.as_ref().map_or(0, |w| w.read_bytes),
            written_bytes: result.as_ref().map_or(0, |w| w.written_bytes),
            took: self.since(start),
            error: result.as_ref().err().map(ToString::to_string),
        });
    }

    /// A writer is slowed.
    pub(super) fn tell_stall(&self, now: Duration) {
        if !self.events.any() || lock(&self.told_stall).is_some() {
            return;
        }
        let reason = lock(&self.pacer).reason();
        if lock(&self.told_stall).replace(now).is_none() {
            let reason = reason.unwrap_or_else(|| "memory is full of memtables".into());
            self.events.tell(|| Event::StallBegan { reason });
        }
    }

    /// What the end of a job comes to, and whether writers are slowed no more.
    pub(super) fn tell_news<T: CompactionEnv>(&self, store: &T, news: Option<Event>) {
        if let Some(event) = news {
            self.events.tell(|| event);
        }
        self.tell_stop(store);
        if !self.events.any() || self.slowing() {
            return;
        }
        // Not held while they are told: a listener may write, and be slowed.
        let began = lock(&self.told_stall).take();
        if let Some(start) = began {
            self.events.tell(|| Event::StallEnded { took: self.since(start) });
        }
    }

    /// Whether writing has stopped, once.
    pub(crate) fn tell_stop<T: CompactionEnv>(&self, store: &T) {
        if !self.events.any() || self.told_stop.load(Relaxed) {
            return;
        }
        if let Some(reason) = store.stopped()
            && !self.told_stop.swap(true, Relaxed)
        {
            self.events.tell(|| Event::Stopped { reason });
        }
    }

    fn since(&self, start: Duration) -> Duration {
        self.env.now().saturating_sub(start)
    }
}
