//! Group sync of the mapped medium: one caller syncs for everyone who waits.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

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

    pub fn set_durable(&self, pos: LogPos) {
        let mut s = lock(&self.state);
        s.durable = s.durable.max(pos);
        self.news.fetch_add(1, Ordering::Release);
    }

    pub fn wake_all(&self) {
        let _state = lock(&self.state);
        self.done.notify_all();
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
            self.poison.check()?;
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
            Err(e) => self.poison.set(format!("the log could not be synced: {e}")),
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

    /// Makes the names of segments durable, if they are not.
    pub(super) fn name_segments(&self, segments: &[Arc<Segment>]) -> Result<()> {
        if segments.iter().any(|s| !s.is_named()) {
            self.io.sync_dir(&self.dir)?;
            segments.iter().for_each(|s| s.set_named());
        }
        Ok(())
    }
}
