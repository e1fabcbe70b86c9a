//! [`Shared`]: what a collector is behind its handles: the epoch, the records of its threads, and what waits.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{PoisonError, TryLockError};

use super::local::Collecting;
use super::record::{FIRST, PARKED, Record, RecordPtr};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use crate::sync::{Mutex, MutexGuard};

/// Records that are looked at for each retirement of frames, on average.
pub(super) const SHARE: usize = 32;
/// A guard that was in nobody's way looks after what waits once in so many times, or in as many as there are records.
const UNPINS: usize = 64;

pub(super) type Garbage = Box<dyn Any + Send>;

#[repr(align(128))]
pub(super) struct Shared {
    /// Number of retirements so far, plus `FIRST`.
    pub epoch: AtomicU64,
    /// Tag of the oldest thing not yet dropped; 0 if there is none. Read by every unpin.
    pub oldest: AtomicU64,
    /// Records that scans look at.
    active: AtomicUsize,
    queue: Apart<Mutex<Queue>>,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Apart<T>(T);

struct Queue {
    /// All records, to be freed.
    records: Vec<RecordPtr>,
    /// Those that no thread has. They may be active still.
    free: Vec<RecordPtr>,
    /// Those that scans look at: all but the parked ones, and one that is just being put back.
    active: Vec<RecordPtr>,
    /// Tags ascending.
    frames: VecDeque<(u64, Garbage)>,
    /// Tags ascending.
    values: Vec<RetiredValue>,
    /// Retirements of frames since the last scan.
    since_scan: usize,
    /// Kept for its memory: `lower` and `upper` of the pinned records.
    pins: Vec<(u64, u64)>,
    owners: u64,
}

struct RetiredValue {
    birth: u64,
    tag: u64,
    owner: u64,
    value: Garbage,
}

impl Shared {
    pub fn new() -> Shared {
        let queue = Queue {
            records: Vec::new(),
            free: Vec::new(),
            active: Vec::new(),
            frames: VecDeque::new(),
            values: Vec::new(),
            since_scan: 0,
            pins: Vec::new(),
            owners: 0,
        };
        Shared {
            epoch: AtomicU64::new(FIRST),
            oldest: AtomicU64::new(0),
            active: AtomicUsize::new(0),
            queue: Apart(Mutex::new(queue)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A record for the calling thread; it is not active.
    pub fn take_record(&self) -> &Record {
        let mut q = self.lock();
        let record = q.free.pop().unwrap_or_else(|| {
            let new = RecordPtr::new();
            q.records.push(new);
            new
        });
        // SAFETY: one of ours, which are freed when `self` is dropped.
        unsafe { record.get() }
    }

    /// The record is another thread's from here on. It is not pinned.
    pub fn give_back(&self, record: &Record) {
        record.orphan.set(false);
        record.unpins.set(0);
        self.lock().free.push(RecordPtr::of(record));
    }

    /// Lets scans see a record again that was parked, and has been pinned since.
    #[cold]
    pub fn put_back(&self, record: &Record) {
        let mut q = self.lock();
        q.active.push(RecordPtr::of(record));
        self.active.store(q.active.len(), Relaxed);
    }

    /// A number that tells published places apart.
    pub fn owner(&self) -> u64 {
        let mut q = self.lock();
        q.owners += 1;
        q.owners
    }

    #[cfg(test)]
    pub fn active(&self) -> usize {
        self.lock().active.len()
    }

    #[cfg(test)]
    pub fn records(&self) -> usize {
        self.lock().records.len()
    }

    pub fn waiting(&self) -> usize {
        let q = self.lock();
        q.frames.len() + q.values.len()
    }

    /// Drops `frames` when no guard that exists now is left. They have been unlinked by SeqCst accesses.
    pub fn retire_frames(&self, frames: Garbage) {
        let mut q = self.lock();
        let tag = self.epoch.fetch_add(1, SeqCst) + 1;
        q.frames.push_back((tag, frames));
        q.since_scan += 1;
        self.oldest.store(q.oldest(), Relaxed);
        if q.since_scan * SHARE >= q.active.len() {
            self.collect_locked(q);
        }
    }

    /// Drops `value` when no guard that could see it is left. It has been unlinked by a SeqCst access.
    pub fn retire_value(&self, value: Garbage, birth: u64, owner: u64) {
        let mut q = self.lock();
        let tag = self.epoch.fetch_add(1, SeqCst) + 1;
        q.values.push(RetiredValue { birth, tag, owner, value });
        self.oldest.store(q.oldest(), Relaxed);
        self.collect_locked(q);
    }

    /// Drops what an owner has retired. Nobody can have loaded it any more.
    pub fn drop_values_of(&self, owner: u64) {
        let mut q = self.lock();
        let gone: Vec<RetiredValue> = q.values.extract_if(.., |v| v.owner == owner).collect();
        self.oldest.store(q.oldest(), Relaxed);
        drop(q);
        drop(gone);
    }

    pub fn collect(&self) {
        self.collect_locked(self.lock());
    }

    fn collect_locked<'a>(&'a self, mut q: MutexGuard<'a, Queue>) {
        // A destructor may retire or unpin: the outer call goes on until nothing is left.
        let Some(_collecting) = Collecting::begin(self) else { return };
        loop {
            let dead = q.take_dead();
            self.oldest.store(q.oldest(), Relaxed);
            self.active.store(q.active.len(), Relaxed);
            drop(q);
            if dead.is_empty() {
                return;
            }
            drop(dead);
            q = self.lock();
        }
    }

    /// After the end of a record's last guard: drops what waited for it. A guard that was not in the way looks now and
    /// then: the one that was may have read `oldest` just before it was set.
    #[cold]
    pub fn unpinned(&self, record: &Record, in_the_way: bool) {
        let n = record.unpins.get() + 1;
        let due = in_the_way || record.orphan.get() || n >= UNPINS.max(self.active.load(Relaxed));
        record.unpins.set(if due { 0 } else { n });
        if record.orphan.get() {
            self.give_back(record);
        }
        if due {
            match self.queue.0.try_lock() {
                Ok(q) => self.collect_locked(q),
                Err(TryLockError::Poisoned(q)) => self.collect_locked(q.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
        }
    }
}

impl Queue {
    /// Tag of the oldest thing that waits; 0 if there is none.
    fn oldest(&self) -> u64 {
        let frames = self.frames.front().map(|(tag, _)| *tag);
        let values = self.values.first().map(|v| v.tag);
        frames.into_iter().chain(values).min().unwrap_or(0)
    }

    /// Takes what no guard holds up.
    fn take_dead(&mut self) -> Vec<Garbage> {
        if self.frames.is_empty() && self.values.is_empty() {
            return Vec::new();
        }
        self.scan();
        let lowest = self.pins.iter().map(|(lower, _)| *lower).min().unwrap_or(u64::MAX);
        let n = self.frames.partition_point(|(tag, _)| *tag <= lowest);
        let mut dead: Vec<Garbage> = self.frames.drain(..n).map(|(_, g)| g).collect();
        let pins = &self.pins;
        let seen = |v: &RetiredValue| pins.iter().any(|&(lower, upper)| lower < v.tag && v.birth <= upper);
        dead.extend(self.values.extract_if(.., |v| !seen(v)).map(|v| v.value));
        dead
    }

    /// Reads the active records into `pins`, and parks those that have been idle for long.
    fn scan(&mut self) {
        self.since_scan = 0;
        self.pins.clear();
        let pins = &mut self.pins;
        self.active.retain(|record| {
            // SAFETY: records are freed after their queue.
            let record = unsafe { record.get() };
            match record.lower.load(SeqCst) {
                // If the exchange fails the thread has pinned since: what the load has shown is enough.
                n if n < PARKED => {
                    let parked = record.lower.compare_exchange(n, n + 1, SeqCst, Relaxed).is_ok();
                    !(parked && n + 1 == PARKED)
                }
                lower => {
                    pins.push((lower, record.upper.load(SeqCst)));
                    true
                }
            }
        });
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        for record in self.records.drain(..) {
            // SAFETY: made by `new`, once in the list. Guards borrow a handle of the collector, so there are none, and
            // threads look at a record only while they have a handle.
            unsafe { record.free() }
        }
    }
}
