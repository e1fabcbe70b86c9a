//! Group sync of the mapped medium: one caller syncs for everyone who waits.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::frame::FIRST_FRAME;
use super::segment::Segment;
use super::{Log, LogPos};
use crate::error::{Error, Result};
use crate::mutation::{Mutation, broken};
use crate::purpose::LOG;
use crate::sync::{Condvar, Mutex, lock, wait};

/// Who waits for what, and what is durable.
#[derive(Default)]
pub(super) struct Syncer {
    state: Mutex<State>,
    done: Condvar,
    /// Counts changes of `state.durable`, so that the writer looks only when there is news.
    news: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Every frame that ends here or before is on the device.
    durable: LogPos,
    /// The newest position that somebody waits for.
    wanted: LogPos,
    /// Whether somebody is syncing.
    leader: bool,
}

impl Syncer {
    /// What is durable, if that has changed since `seen`.
    #[inline]
    pub fn durable_since(&self, seen: &mut u64) -> Option<LogPos> {
        let news = self.news.load(Ordering::Acquire);
        if news == *seen {
            return None;
        }
        *seen = news;
        Some(lock(&self.state).durable)
    }

    pub fn durable(&self) -> LogPos {
        lock(&self.state).durable
    }

    pub fn set_durable(&self, pos: LogPos) {
        let mut s = lock(&self.state);
        s.durable = s.durable.max(pos);
        self.news.fetch_add(1, Ordering::Release);
    }
}

impl Log {
    /// Waits until the frame that ends at `pos`, and with it every frame before, is on the device. Callers of
    /// the same moment share one fdatasync. Call it without the writer's lock. A failure stops the log.
    pub fn sync_to(&self, pos: LogPos) -> Result<()> {
        let mut s = lock(&self.sync.state);
        s.wanted = s.wanted.max(pos);
        loop {
            if s.durable >= pos {
                return Ok(());
            }
            self.latch.check()?;
            if !s.leader {
                break;
            }
            s = wait(&self.sync.done, s, &self.sync.state);
        }
        s.leader = true;
        // Everyone who waits by now has appended before, so this sync covers them all.
        let (from, target) = (s.durable, s.wanted);
        drop(s);
        let result = self.sync_segments(from, target);
        let mut s = lock(&self.sync.state);
        s.leader = false;
        match &result {
            Ok(()) => {
                s.durable = s.durable.max(target);
                self.sync.news.fetch_add(1, Ordering::Release);
            }
            Err(e) => drop(self.latch.stop(format!("the log could not be synced: {e}"))),
        }
        self.sync.done.notify_all();
        result
    }

    /// Makes everything appended to the segments from `from` to `target` durable, oldest first.
    fn sync_segments(&self, from: LogPos, target: LogPos) -> Result<()> {
        let dirty: Vec<Arc<Segment>> = lock(&self.live)
            .iter()
            .filter(|s| (from.segment..=target.segment).contains(&s.number))
            .cloned()
            .collect();
        for s in &dirty {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            let synced = s.file.sync_data(LOG).map_err(|e| Error::from(e.at(&s.path)));
            if !broken(Mutation::IgnoreFailedSync) {
                synced?;
            }
        }
        self.name_segments(&dirty)
    }

    /// What a recovery may hold the log to: every frame that ends here or before is on the device, and the file of
    /// that segment with its name. At least the beginning of segment `first` if its name is durable and nothing before
    /// it is needed any more.
    pub fn vouched(&self, first: Option<u64>) -> LogPos {
        let live = lock(&self.live);
        if broken(Mutation::VouchEarly)
            && let Some(active) = live.back()
        {
            return LogPos { segment: active.number, offset: FIRST_FRAME + 8 };
        }
        let begins = live.iter().find(|s| Some(s.number) == first && s.is_named());
        let begin = begins.map(|s| LogPos { segment: s.number, offset: FIRST_FRAME });
        drop(live);
        self.sync.durable().max(begin.unwrap_or_default())
    }

    /// Whether the frame that ends at `pos`, which is durable, is the first of its segment to be so: then the manifest
    /// should say it. True once for each segment.
    #[inline]
    pub fn should_note(&self, pos: LogPos) -> bool {
        pos.segment > self.noted.load(Ordering::Relaxed)
            && pos.segment > self.noted.fetch_max(pos.segment, Ordering::Relaxed)
    }

    /// Makes the names of segments durable, if they are not.
    pub(super) fn name_segments(&self, segments: &[Arc<Segment>]) -> Result<()> {
        if segments.iter().any(|s| !s.is_named()) {
            self.dir.sync()?;
            segments.iter().for_each(|s| s.set_named());
        }
        Ok(())
    }
}
