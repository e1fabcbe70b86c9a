//! [`View`]: the memtables and tables that a read sees, as one immutable value; [`Views`]: the newest of them, what
//! of it may be seen, and the open snapshots.
//!
//! A view is published whole ([`latchfree::epoch::Published`]); a read loads it under an epoch guard and, if it
//! has to wait for the disk, keeps it by its `Arc`. Together with a sequence number it is a state of the store:
//! load the view first, the sequence number after it (a version that the number needs might have been compacted
//! away in a newer view).

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::collections::BTreeMap;
use std::sync::Arc;

use latchfree::epoch::{Collector, Guard, Published};

use super::snapshots::Snapshots;
use super::table_map::TableMap;
use crate::expiry::Clock;
use crate::insight::Latencies;
use crate::key::Seq;
use crate::manifest::Version;
use crate::memtable::Memtable;
use crate::operator::registry::{Operator, Operators};
use crate::ranges::Ranges;
use crate::sync::{Mutex, lock};
use crate::table::reader::Table;

/// What a read looks at, newest first: the active memtable, the immutable ones, the levels.
pub(crate) struct View {
    pub active: Arc<Memtable>,
    /// Newest first.
    pub immutables: Vec<Arc<Memtable>>,
    pub version: Arc<Version<Table>>,
    map: Arc<TableMap>,
    /// Range tombstones of the immutable memtables and the version.
    ranges: Ranges,
    /// Of the keyspaces, as they are at any time.
    operators: Arc<Operators>,
    /// By which values expire.
    clock: Clock,
}

impl View {
    /// A view; `immutables` are newest first.
    pub fn new(active: Arc<Memtable>, immutables: Vec<Arc<Memtable>>, version: Arc<Version<Table>>) -> View {
        let map = Arc::new(TableMap::new(&version));
        debug_assert!(
            map.is_in_order(),
            "level 0 is newest first, other levels are disjoint and in key order"
        );
        let ranges = ranges_of(&immutables, &version);
        let (operators, clock) = (Arc::default(), Clock::default());
        View { active, immutables, version, map, ranges, operators, clock }
    }

    /// The same with the merge operators of the store.
    pub fn with_operators(self, operators: &Arc<Operators>) -> View {
        View { operators: Arc::clone(operators), ..self }
    }

    /// The merge operator for an internal key.
    pub fn operator(&self, internal: &[u8]) -> Option<Operator> {
        self.operators.of_key(internal)
    }

    /// The same by another clock.
    pub fn with_clock(self, clock: &Clock) -> View {
        View { clock: clock.clone(), ..self }
    }

    /// By which values expire.
    #[inline]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The same tables under other memtables.
    pub fn with_memtables(&self, active: Arc<Memtable>, immutables: Vec<Arc<Memtable>>) -> View {
        let (version, map) = (Arc::clone(&self.version), Arc::clone(&self.map));
        let ranges = ranges_of(&immutables, &version);
        let (operators, clock) = (Arc::clone(&self.operators), self.clock.clone());
        View { active, immutables, version, map, ranges, operators, clock }
    }

    /// The memtables, newest first.
    #[inline]
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.immutables)
    }

    /// How to find the tables that may hold a key.
    #[inline]
    pub fn tables(&self) -> &Arc<TableMap> {
        &self.map
    }

    /// Whether there are range tombstones.
    #[inline]
    pub fn has_ranges(&self) -> bool {
        self.active.has_ranges() || !self.ranges.is_empty()
    }

    /// The newest range tombstone of sequence number `upto`, which was loaded after the view, or lower that covers an
    /// internal key; 0 if there is none. Versions of the key that are older are hidden as of `upto`.
    pub fn newest_range(&self, key: &[u8], upto: Seq) -> Seq {
        match self.active.newest_range(key, upto) {
            0 => self.ranges.newest(key, upto),
            // It is newer than all that are not active.
            newest => newest,
        }
    }

    /// The range tombstones: all that are visible as of a number that was loaded after the view and before the call.
    pub fn ranges(&self) -> Ranges {
        let mut ranges = Ranges::clone(&self.active.ranges());
        ranges.extend(&self.ranges);
        ranges
    }
}

/// The range tombstones of all but the active memtable, to which nothing is added any more. `immutables` are newest
/// first.
fn ranges_of(immutables: &[Arc<Memtable>], version: &Version<Table>) -> Ranges {
    let mut ranges = Ranges::default();
    for m in immutables.iter().filter(|m| m.has_ranges()) {
        ranges.extend(&m.ranges());
    }
    ranges.push(&version.ranges().set);
    ranges
}

/// The store as its readers see it. Only those who change the tree publish views, under its lock, and only commits
/// raise the visible number, under the writer's.
pub(crate) struct Views {
    newest: Published<View>,
    /// The newest sequence number whose writes, and all before them, are in the memtables of the newest view.
    visible: AtomicU64,
    snapshots: Snapshots,
    /// The views that open snapshots see, by their numbers, where newer views lack what they see: when a compaction
    /// filter has changed it ([`Views::publish_changed`]), and in a store that was opened read-only, whose view goes on
    /// with [`Views::move_on`].
    kept: Mutex<BTreeMap<Seq, Arc<View>>>,
    /// Whether there may be any.
    keeps: AtomicBool,
    /// Others write to the store: every snapshot keeps its view.
    of_reader: bool,
    /// How long reads take.
    latencies: Arc<Latencies>,
}

impl Views {
    /// Of a store that was recovered up to `visible`.
    pub fn new(collector: &Collector, view: View, visible: Seq) -> Views {
        Views {
            newest: Published::new(collector, Arc::new(view)),
            visible: AtomicU64::new(visible),
            snapshots: Snapshots::default(),
            kept: Mutex::default(),
            keeps: AtomicBool::new(false),
            of_reader: false,
            latencies: Latencies::off(),
        }
    }

    /// The same, whose reads are timed.
    pub fn timed(self, latencies: &Arc<Latencies>) -> Views {
        Views { latencies: Arc::clone(latencies), ..self }
    }

    /// How long reads take.
    #[inline]
    pub fn latencies(&self) -> &Arc<Latencies> {
        &self.latencies
    }

    /// The same, of a store that others write to.
    pub fn of_reader(collector: &Collector, view: View, visible: Seq) -> Views {
        Views { keeps: AtomicBool::new(true), of_reader: true, ..Views::new(collector, view, visible) }
    }

    /// Pins the calling thread, for [`Views::load`].
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        self.newest.pin()
    }

    /// The newest view, as long as the guard lives. Load the sequence number after it.
    #[inline]
    pub fn load<'g>(&'g self, guard: &'g Guard<'_>) -> &'g Arc<View> {
        self.newest.load(guard)
    }

    /// The newest view, kept.
    pub fn newest(&self) -> Arc<View> {
        self.newest.get()
    }

    /// What reads see as of now. Load the view first, then this.
    #[inline]
    pub fn visible(&self) -> Seq {
        self.visible.load(Acquire)
    }

    /// What is visible now, and a view that has all of it, maybe more. For who looks for everything that was written: a
    /// view that is loaded first lacks what went to a memtable begun in between.
    pub fn visible_within(&self) -> (Seq, Arc<View>) {
        let visible = self.visible();
        (visible, self.newest())
    }

    /// Makes `view` the newest. Under the tree's lock.
    pub fn publish(&self, view: View) {
        self.check_memtables(&view);
        self.newest.store(Arc::new(view));
    }

    /// The same of a view in which what snapshots see has changed: all that are open go on with the one before.
    pub fn publish_changed(&self, view: View) {
        self.check_memtables(&view);
        let before = self.newest();
        let mut kept = lock(&self.kept);
        self.snapshots.with_live(|live| {
            for seq in live {
                kept.entry(seq).or_insert_with(|| Arc::clone(&before));
            }
            self.keeps.store(!kept.is_empty() || self.of_reader, Release);
            // Whoever finds this one finds those that are kept, too; a snapshot that comes from here on sees this one.
            self.newest.store(Arc::new(view));
        });
    }

    fn check_memtables(&self, view: &View) {
        let mut memtables = view.immutables.iter();
        assert!(
            memtables.all(|m| !Arc::ptr_eq(m, &view.active)),
            "the active memtable is none that waits for its flush"
        );
        assert!(
            keeps_order(&self.newest.get(), view),
            "memtables stay newest first: a new one comes to the front, the oldest leave"
        );
    }

    /// Lets readers see all writes up to `seq`, which are in the memtables. Under the writer's lock.
    #[inline]
    pub fn make_visible(&self, seq: Seq) {
        assert!(seq >= self.visible.load(Relaxed), "what was visible stays so");
        self.visible.store(seq, Release);
    }

    /// Goes on to `view` (`None`: to what has come to the memtables of the newest) as of `seq`, in a store that others
    /// write to.
    pub fn move_on(&self, view: Option<View>, seq: Seq) {
        let _no_snapshot = lock(&self.kept);
        // The number first: the old view has no less than it had, and whoever sees the new one sees its number.
        self.make_visible(seq);
        if let Some(view) = view {
            self.newest.store(Arc::new(view));
        }
    }

    /// What a snapshot (`None`: a read as of now) sees.
    #[inline]
    pub fn as_of(&self, snapshot: Option<Seq>) -> (Arc<View>, Seq) {
        // In this order: see `kept`.
        let newest = self.newest();
        let view = self.kept(snapshot).unwrap_or(newest);
        (view, snapshot.unwrap_or_else(|| self.visible()))
    }

    /// The view that is kept for a snapshot, if it is not to read the newest one, which has to be loaded before this
    /// question: the next may have another answer.
    #[inline]
    pub fn kept(&self, snapshot: Option<Seq>) -> Option<Arc<View>> {
        let seq = snapshot?;
        if !self.keeps.load(Acquire) {
            return None;
        }
        lock(&self.kept).get(&seq).cloned()
    }

    /// Keeps what is visible now from being compacted away, until [`Views::release_snapshot`].
    pub fn register_snapshot(&self) -> Seq {
        if !self.of_reader {
            return self.snapshots.register(|| self.visible());
        }
        let mut kept = lock(&self.kept);
        let seq = self.snapshots.register(|| self.visible());
        kept.entry(seq).or_insert_with(|| self.newest());
        seq
    }

    /// Gives up what [`Views::register_snapshot`] gave.
    pub fn release_snapshot(&self, seq: Seq) {
        let last = self.snapshots.release(seq);
        // In this order: a view is kept, and that is said, before the snapshot can be given up, or not at all.
        if !last || !self.keeps.load(Acquire) {
            return;
        }
        let mut kept = lock(&self.kept);
        // A snapshot of this number may have come meanwhile.
        let gone = (!self.snapshots.has(seq)).then(|| kept.remove(&seq)).flatten();
        self.keeps.store(!kept.is_empty() || self.of_reader, Release);
        // Its tables are closed without the lock.
        drop(kept);
        drop(gone);
    }

    /// How many snapshots are open.
    pub fn snapshot_count(&self) -> u64 {
        self.snapshots.count()
    }

    /// The sequence numbers that must stay readable: the visible one, loaded first, then those of the open snapshots.
    pub fn readable(&self) -> Vec<Seq> {
        let mut readable = vec![self.visible()];
        readable.extend(self.snapshots.live());
        readable
    }
}

/// Whether the memtables of `next` are those of `before` without some of the oldest, behind at most one new one, which
/// may have taken the place of an empty one.
fn keeps_order(before: &View, next: &View) -> bool {
    let new = usize::from(!Arc::ptr_eq(&before.active, &next.active));
    let waits = next.immutables.first().is_some_and(|m| Arc::ptr_eq(m, &before.active));
    let replaced = new == 1 && before.active.is_empty() && !waits;
    let mut old = before.memtables().skip(usize::from(replaced));
    next.memtables().skip(new).all(|m| old.next().is_some_and(|o| Arc::ptr_eq(m, o)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::testing::{Fixture, Plan};

    fn fixture() -> (Fixture, Arc<View>) {
        let f = Fixture::new(Plan::default());
        let view = f.views.newest();
        (f, view)
    }

    #[test]
    fn memtables_come_to_the_front_and_leave_from_the_back() {
        let (f, view) = fixture();
        let (active, waiting) = (view.active.clone(), view.immutables.clone());
        let fresh = Memtable::new(1 << 20).0;
        f.views.publish(view.with_memtables(fresh.clone(), [&[active.clone()][..], &waiting].concat()));
        f.views.publish(view.with_memtables(fresh.clone(), vec![active]));
        f.views.publish(view.with_memtables(fresh, vec![]));
    }

    #[test]
    fn what_is_visible_is_within_the_view_beside_it() {
        use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
        let (f, view) = fixture();
        let (first, over) = (f.views.visible() + 1, AtomicBool::new(false));
        std::thread::scope(|s| {
            let reader = || {
                while !over.load(Relaxed) {
                    let (visible, view) = f.views.visible_within();
                    let newest = view.memtables().map(|m| m.newest_version()).max();
                    assert!(visible < first || newest >= Some(visible), "{newest:?} up to {visible}");
                }
            };
            let readers = [s.spawn(reader), s.spawn(reader), s.spawn(reader)];
            for seq in first..first + 3000 {
                // Each write into a memtable of its own, as the commit queue does it.
                let (active, mut writer) = Memtable::new(1 << 10);
                let before = f.views.newest();
                f.views.publish(view.with_memtables(Arc::clone(&active), vec![Arc::clone(&before.active)]));
                writer.insert(b"\0k", crate::key::hash(b"\0k"), seq, crate::key::Kind::Put, b"");
                f.views.make_visible(seq);
                if readers.iter().any(|r| r.is_finished()) {
                    break;
                }
            }
            over.store(true, Relaxed);
        });
    }

    #[test]
    #[should_panic(expected = "memtables stay newest first")]
    fn memtables_out_of_order_are_not_published() {
        let (f, view) = fixture();
        let oldest_first = view.immutables.iter().rev().cloned().collect();
        f.views.publish(view.with_memtables(view.active.clone(), oldest_first));
    }

    #[test]
    #[should_panic(expected = "memtables stay newest first")]
    fn a_memtable_that_is_not_the_oldest_does_not_leave() {
        let (f, view) = fixture();
        f.views.publish(view.with_memtables(view.active.clone(), view.immutables[1..].to_vec()));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "disjoint and in key order")]
    fn a_level_out_of_order_is_noticed() {
        let (_f, view) = fixture();
        let mut levels = view.version.levels().to_vec();
        levels[6].swap(0, 1);
        View::new(view.active.clone(), vec![], Arc::new(Version::unchecked(levels)));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "level 0 is newest first")]
    fn a_level_0_out_of_order_is_noticed() {
        let (_f, view) = fixture();
        let mut levels = view.version.levels().to_vec();
        levels[0].reverse();
        View::new(view.active.clone(), vec![], Arc::new(Version::unchecked(levels)));
    }
}
