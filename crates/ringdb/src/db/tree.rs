//! [`LsmTree`]: the memtables and tables of a store, and what readers see of them.

use std::collections::VecDeque;
use std::sync::Arc;

use super::view::{View, Views};
use crate::cache::{Cache, Charge, Owner};
use crate::expiry::Clock;
use crate::key::Seq;
use crate::manifest::Version;
use crate::memtable::Memtable;
use crate::operator::registry::Operators;
use crate::stats::Stats;
use crate::sync::{Mutex, lock};
use crate::table::Table;

/// The memtables and tables of a store. Changed in two places: a full memtable is replaced by
/// [`LsmTree::begin_memtable`], everything else goes through the manifest (`VersionSet::install`). Each change
/// publishes a view.
pub(crate) struct LsmTree {
    state: Mutex<TreeState>,
    views: Arc<Views>,
    memtable_limit: u64,
    /// For the version's range tombstones.
    ranges_charge: Charge,
}

/// What the published view is made of, and what a flush has to know.
pub(super) struct TreeState {
    pub active: Arc<Memtable>,
    /// Everything in the active memtable, and all that is not applied yet, lies in log segments from here on.
    pub active_segment: u64,
    /// Oldest first.
    pub immutables: VecDeque<Immutable>,
    pub version: Arc<Version<Table>>,
    pub operators: Arc<Operators>,
    /// By which values expire.
    pub clock: Clock,
    /// Flushes and the bytes that they wrote, counted when they become visible.
    flushes: u64,
    flush_written_bytes: u64,
}

/// A memtable that waits to be flushed.
pub(super) struct Immutable {
    pub mem: Arc<Memtable>,
    /// The newest sequence number in it (or of the time when it was switched).
    pub last_seq: Seq,
    /// The first log segment that it needs.
    pub segment: u64,
}

/// What takes the place of the active memtable.
pub(crate) struct Fresh<'a> {
    pub active: &'a Arc<Memtable>,
    /// What comes lies in log segments from here on.
    pub segment: u64,
    /// The newest number in memtables or tables.
    pub last_seq: Seq,
}

/// What is true of the log once the oldest memtables are in tables.
pub(super) struct Flushed {
    /// Every write up to here is in tables.
    pub seq: Seq,
    /// The first log segment that is still needed.
    pub segment: u64,
}

impl TreeState {
    pub fn new(
        active: Arc<Memtable>,
        active_segment: u64,
        immutables: VecDeque<Immutable>,
        version: Version<Table>,
    ) -> TreeState {
        let version = Arc::new(version);
        let (operators, clock) = (Arc::default(), Clock::default());
        TreeState {
            active,
            active_segment,
            immutables,
            version,
            operators,
            clock,
            flushes: 0,
            flush_written_bytes: 0,
        }
    }

    /// Of a store that is only read: `memtables` are oldest first, each with its newest sequence number.
    pub fn of_reader(memtables: &[(Arc<Memtable>, Seq)], version: Version<Table>) -> TreeState {
        let (active, immutables) = split(memtables);
        TreeState::new(active, 0, immutables, version)
    }

    /// As readers see it.
    pub fn view(&self) -> View {
        let view = View::new(self.active.clone(), self.immutables_newest_first(), self.version.clone());
        view.with_operators(&self.operators).with_clock(&self.clock)
    }

    /// How many memtables wait to be flushed; one that a large value has filled counts as often as it is larger than
    /// others.
    fn waiting(&self, memtable_limit: u64) -> usize {
        let bytes: u64 = self.immutables.iter().map(|i| i.mem.bytes()).sum();
        self.immutables.len().max((bytes / memtable_limit.max(1)) as usize)
    }

    /// The active memtable waits to be flushed from now on, if there is something in it.
    fn replace_active(&mut self, fresh: &Fresh<'_>) {
        assert!(fresh.segment >= self.active_segment, "a younger memtable needs no older segment of the log");
        assert!(
            self.immutables.back().is_none_or(|i| i.last_seq <= fresh.last_seq),
            "memtables wait in the order of their sequence numbers"
        );
        let mem = std::mem::replace(&mut self.active, fresh.active.clone());
        let segment = std::mem::replace(&mut self.active_segment, fresh.segment);
        if !mem.is_empty() {
            self.immutables.push_back(Immutable { mem, last_seq: fresh.last_seq, segment });
        }
    }

    fn immutables_newest_first(&self) -> Vec<Arc<Memtable>> {
        self.immutables.iter().rev().map(|i| i.mem.clone()).collect()
    }
}

/// The newest memtable, and the others.
fn split(memtables: &[(Arc<Memtable>, Seq)]) -> (Arc<Memtable>, VecDeque<Immutable>) {
    let Some(((active, _), older)) = memtables.split_last() else {
        return (Memtable::new(0).0, VecDeque::new());
    };
    let immutable = |(mem, last_seq): &(Arc<Memtable>, Seq)| {
        let (mem, last_seq) = (mem.clone(), *last_seq);
        Immutable { mem, last_seq, segment: 0 }
    };
    (active.clone(), older.iter().map(immutable).collect())
}

impl LsmTree {
    /// A tree of which `views` shows what [`TreeState::view`] is. Memtables are switched at about `memtable_limit`
    /// bytes.
    pub(super) fn new(
        state: TreeState,
        views: Arc<Views>,
        memtable_limit: u64,
        cache: &Arc<Cache>,
    ) -> Arc<LsmTree> {
        let ranges_charge = cache.charge(Owner::Indexes, state.version.ranges().set.bytes());
        Arc::new(LsmTree { state: Mutex::new(state), views, memtable_limit, ranges_charge })
    }

    /// The tables now.
    pub fn version(&self) -> Arc<Version<Table>> {
        lock(&self.state).version.clone()
    }

    /// The immutable memtables now, oldest first.
    pub fn immutables(&self) -> Vec<Arc<Memtable>> {
        lock(&self.state).immutables.iter().map(|i| i.mem.clone()).collect()
    }

    /// How many there are; one that is larger than usual counts as several.
    pub fn immutable_count(&self) -> usize {
        lock(&self.state).waiting(self.memtable_limit)
    }

    /// Whether everything in immutable memtables up to a number is in tables.
    pub fn is_flushed(&self, through: Seq) -> bool {
        lock(&self.state).immutables.iter().all(|i| i.last_seq > through)
    }

    /// Puts `active` in the place of the active memtable, which waits to be flushed from now on: it holds everything up
    /// to `last_seq`. What comes lies in log segments from `segment` on. Returns how many memtables wait. Under the
    /// commit queue's lock.
    pub fn begin_memtable(&self, active: &Arc<Memtable>, segment: u64, last_seq: Seq) -> usize {
        let mut t = lock(&self.state);
        t.replace_active(&Fresh { active, segment, last_seq });
        let view = self.views.newest().with_memtables(t.active.clone(), t.immutables_newest_first());
        self.views.publish(view);
        t.waiting(self.memtable_limit)
    }

    /// The tables now, and what will be true of the log when the `flushed` oldest memtables are in tables.
    pub(super) fn before_edit(&self, flushed: usize) -> (Arc<Version<Table>>, Option<Flushed>) {
        let t = lock(&self.state);
        assert!(flushed <= t.immutables.len(), "a flush is of memtables that are there");
        let segment = t.immutables.get(flushed).map_or(t.active_segment, |i| i.segment);
        let last = flushed.checked_sub(1).and_then(|n| t.immutables.get(n));
        (t.version.clone(), last.map(|i| Flushed { seq: i.last_seq, segment }))
    }

    /// Makes an edit visible that is durable: `next`, made from `before`, instead of it, with the `flushed` oldest
    /// memtables in tables of so many bytes; in the same view, a `fresh` memtable in the place of the active one. If
    /// what snapshots see has `changed` those that are open keep the view before. Under the manifest's lock. Returns
    /// those memtables, to be freed without it.
    pub(super) fn apply(
        &self,
        before: &Arc<Version<Table>>,
        next: Version<Table>,
        flushed: usize,
        flushed_bytes: u64,
        fresh: Option<&Fresh<'_>>,
        changed: bool,
    ) -> Vec<Immutable> {
        self.ranges_charge.set(next.ranges().set.bytes());
        let mut t = lock(&self.state);
        assert!(
            Arc::ptr_eq(&t.version, before),
            "versions change one after the other, under the manifest's lock"
        );
        t.version = Arc::new(next);
        if flushed > 0 {
            t.flushes += 1;
            t.flush_written_bytes += flushed_bytes;
        }
        let gone = t.immutables.drain(..flushed).collect();
        if let Some(fresh) = fresh {
            t.replace_active(fresh);
        }
        match changed {
            true => self.views.publish_changed(t.view()),
            false => self.views.publish(t.view()),
        }
        gone
    }

    /// What a store that others write to has come to, up to `seq`: these memtables, as [`TreeState::of_reader`] takes
    /// them, over `version` (`None`: over the same tables).
    pub(super) fn move_on(
        &self,
        memtables: &[(Arc<Memtable>, Seq)],
        version: Option<Version<Table>>,
        seq: Seq,
    ) {
        let mut t = lock(&self.state);
        let same_memtables = t.immutables.len() + 1 == memtables.len()
            && memtables.last().is_some_and(|(newest, _)| Arc::ptr_eq(newest, &t.active));
        let view = match version {
            None if same_memtables => None,
            None => {
                (t.active, t.immutables) = split(memtables);
                Some(self.views.newest().with_memtables(t.active.clone(), t.immutables_newest_first()))
            }
            Some(version) => {
                self.ranges_charge.set(version.ranges().set.bytes());
                (t.active, t.immutables) = split(memtables);
                t.version = Arc::new(version);
                Some(t.view())
            }
        };
        self.views.move_on(view, seq);
    }

    /// Adds what the tree knows of itself.
    pub fn add_stats(&self, s: &mut Stats) {
        let t = lock(&self.state);
        s.immutable_memtables = t.immutables.len() as u64;
        s.memtable_bytes = t.immutables.iter().map(|i| i.mem.bytes()).sum::<u64>() + t.active.bytes();
        s.flushes = t.flushes;
        s.flush_written_bytes = t.flush_written_bytes;
        s.range_tombstones = t.version.ranges().set.len() as u64;
    }
}
