//! Epoch reclamation for the whole process: readers pay one uncontended exchange, no lock and no shared counter.
//!
//! A reader [`pin`]s; while its [`Guard`] lives, nothing that it could have loaded is dropped. A writer replaces a
//! pointer and retires the old one, which is dropped as soon as every guard that existed at that moment is gone:
//! by the writer itself, by the next one that retires, or by the reader whose guard was the last in the way.
//!
//! So destructors of published things run on threads that retire or unpin: they must not take a lock that
//! somebody holds while doing either.
//!
//! ## Why it is sound
//! `EPOCH` grows by one with each retirement. A reader copies it into its own `local` word, then loads
//! pointers; a retirer unlinks, then takes `tag = EPOCH + 1` by an atomic increment, and the thing is dropped only
//! after a scan of all `local` words has found each of them idle or at least `tag`. All of these accesses, the
//! pointers' included, are SeqCst, so they have one total order. Take a reader and a scan that has read the reader's
//! word:
//! - it read a value stored before this pin: then the scan's load precedes the pin's store in the total order, the
//!   unlinking precedes the reader's loads of the pointer, and the reader cannot get the old thing;
//! - it read this pin's value `e < tag`: the thing is kept;
//! - it read this pin's value `e >= tag`: the reader has loaded a value of `EPOCH` that the retirer's increment or a
//!   later one wrote; the unlinking happened before its loads, and it cannot get the old thing;
//! - it read something stored at the end of this pin or later: these are release stores, so all that the reader
//!   did under this pin happened before the drop.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, TryLockError};

use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use crate::sync::{Mutex, MutexGuard, per_thread, shared};

shared! {
    /// Number of retirements so far, plus one.
    static EPOCH: AtomicU64 = AtomicU64::new(1);
    /// Tag of the oldest thing not yet dropped; 0 if there is none. Read by every unpin.
    static OLDEST: AtomicU64 = AtomicU64::new(0);
    /// All records ever made, newest first. Records are reused, never freed.
    static RECORDS: AtomicPtr<Record> = AtomicPtr::new(std::ptr::null_mut());
    /// Things to drop, tags ascending.
    static GARBAGE: Mutex<VecDeque<(u64, Garbage)>> = Mutex::new(VecDeque::new());
}

type Garbage = Box<dyn Any + Send>;

/// A thread's place in the list that scans walk.
#[repr(align(128))]
struct Record {
    /// The epoch seen when pinned; 0 when not pinned.
    local: AtomicU64,
    /// Owned by some thread.
    taken: AtomicBool,
    next: AtomicPtr<Record>,
    /// The cells below are touched only by the thread that has set `taken`.
    guards: Cell<usize>,
    /// Give the record back when the last guard goes (the thread's local storage is gone).
    orphan: Cell<bool>,
    unpins: Cell<u32>,
}

// SAFETY: the cells are touched only by the thread that won `taken` (by an acquire exchange) and gives it back by a
// release store; the rest is atomic.
unsafe impl Sync for Record {}

per_thread! {
    static LOCAL: Cell<Option<&'static Record>> = const { Cell::new(None) };
    static CLEANUP: Cleanup = const { Cleanup(Cell::new(None)) };
    static COLLECTING: Cell<bool> = const { Cell::new(false) };
}

// The cells have no destructor, so that they can be had while the thread ends; under Shuttle they cannot.

#[inline]
fn local() -> Option<&'static Record> {
    LOCAL.try_with(Cell::get).unwrap_or_default()
}

fn set_local(record: Option<&'static Record>) {
    let _ = LOCAL.try_with(|l| l.set(record));
}

fn collecting() -> bool {
    COLLECTING.try_with(Cell::get).unwrap_or_default()
}

fn set_collecting(yes: bool) {
    let _ = COLLECTING.try_with(|c| c.set(yes));
}

/// Gives the thread's record back when the thread ends.
struct Cleanup(Cell<Option<&'static Record>>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Some(r) = self.0.take() {
            set_local(None);
            r.orphan.set(true);
            if r.guards.get() == 0 {
                r.give_back();
            }
        }
    }
}

impl Record {
    fn take() -> &'static Record {
        let mut p = RECORDS.load(Acquire);
        // SAFETY: records are leaked boxes, published by the release exchange below.
        while let Some(r) = unsafe { p.as_ref() } {
            if !r.taken.load(Relaxed) && r.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok() {
                return r;
            }
            p = r.next.load(Relaxed);
        }
        let r: &'static Record = Box::leak(Box::new(Record {
            local: AtomicU64::new(0),
            taken: AtomicBool::new(true),
            next: AtomicPtr::new(std::ptr::null_mut()),
            guards: Cell::new(0),
            orphan: Cell::new(false),
            unpins: Cell::new(0),
        }));
        let mut head = RECORDS.load(SeqCst);
        loop {
            r.next.store(head, Relaxed);
            // SeqCst, so that a scan that misses the record precedes the pin in the total order.
            match RECORDS.compare_exchange(head, std::ptr::from_ref(r).cast_mut(), SeqCst, SeqCst) {
                Ok(_) => return r,
                Err(now) => head = now,
            }
        }
    }

    fn give_back(&self) {
        self.orphan.set(false);
        self.taken.store(false, Release);
    }
}

/// While it lives, nothing that was loaded under it is dropped. Keep it short: it holds up every drop in the process.
#[must_use]
pub struct Guard {
    record: &'static Record,
    /// Not Send: the record belongs to the thread.
    _not_send: PhantomData<*mut ()>,
}

/// Pins the calling thread. May be nested; the outermost guard counts.
#[inline]
pub fn pin() -> Guard {
    let record = match local() {
        Some(r) => r,
        None => first_pin(),
    };
    let n = record.guards.get();
    record.guards.set(n + 1);
    if n == 0 {
        // An exchange rather than a store: cheaper than a store and a fence on x86-64.
        record.local.swap(EPOCH.load(SeqCst), SeqCst);
    }
    Guard { record, _not_send: PhantomData }
}

#[cold]
fn first_pin() -> &'static Record {
    let r = Record::take();
    if CLEANUP.try_with(|c| c.0.set(Some(r))).is_ok() {
        set_local(Some(r));
    } else {
        // The thread is ending: a record for this guard alone.
        r.orphan.set(true);
    }
    r
}

/// Whether the calling thread holds a guard: then nothing that it retires is dropped before it lets go.
pub fn is_pinned() -> bool {
    local().is_some_and(|r| r.guards.get() > 0)
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        let r = self.record;
        let n = r.guards.get() - 1;
        r.guards.set(n);
        if n == 0 {
            unpin(r);
        }
    }
}

#[inline]
fn unpin(r: &'static Record) {
    let was = r.local.load(Relaxed);
    r.local.store(0, Release);
    let oldest = OLDEST.load(Relaxed);
    if r.orphan.get() {
        r.give_back();
    }
    if oldest != 0 {
        unpin_with_garbage(r, was < oldest);
    }
}

/// Drops what waited for this guard. A guard that was not in the way looks now and then: the one that was may have
/// read `OLDEST` just before it was set.
#[cold]
fn unpin_with_garbage(r: &'static Record, in_the_way: bool) {
    // An orphan's record may be another thread's by now; `LOCAL` says whether it is still ours.
    let due = in_the_way
        || local().is_none_or(|l| {
            debug_assert!(std::ptr::eq(l, r) || l.guards.get() == 0);
            let n = l.unpins.get().wrapping_add(1);
            l.unpins.set(n);
            n % 64 == 0
        });
    if due {
        match GARBAGE.try_lock() {
            Ok(g) => collect_locked(g),
            Err(TryLockError::Poisoned(g)) => collect_locked(g.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }
}

/// Drops `garbage` when no guard that exists now is left. It has been unlinked by a SeqCst access.
pub(super) fn retire(garbage: Garbage) {
    let mut queue = GARBAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let tag = EPOCH.fetch_add(1, SeqCst) + 1;
    queue.push_back((tag, garbage));
    if queue.len() == 1 {
        OLDEST.store(tag, Relaxed);
    }
    collect_locked(queue);
}

/// Drops what no guard holds up any more. Retiring and unpinning do this by themselves.
pub fn collect() {
    collect_locked(GARBAGE.lock().unwrap_or_else(PoisonError::into_inner));
}

fn collect_locked(mut queue: MutexGuard<'_, VecDeque<(u64, Garbage)>>) {
    // A destructor may retire or unpin: the outer call goes on until nothing is left.
    if collecting() {
        return;
    }
    struct Flag;
    impl Drop for Flag {
        fn drop(&mut self) {
            set_collecting(false);
        }
    }
    set_collecting(true);
    let _flag = Flag;
    loop {
        let free_below = oldest_pin();
        let n = queue.partition_point(|(tag, _)| *tag <= free_below);
        let dead: Vec<_> = queue.drain(..n).collect();
        OLDEST.store(queue.front().map_or(0, |(tag, _)| *tag), Relaxed);
        drop(queue);
        if dead.is_empty() {
            return;
        }
        drop(dead);
        queue = GARBAGE.lock().unwrap_or_else(PoisonError::into_inner);
    }
}

/// The smallest epoch that a thread is pinned at; the greatest number if none is.
fn oldest_pin() -> u64 {
    let mut oldest = u64::MAX;
    let mut p = RECORDS.load(SeqCst);
    // SAFETY: records are leaked boxes, published by a release exchange.
    while let Some(r) = unsafe { p.as_ref() } {
        match r.local.load(SeqCst) {
            0 => {}
            e => oldest = oldest.min(e),
        }
        p = r.next.load(Relaxed);
    }
    oldest
}

/// A shared value that can be replaced while it is read.
pub struct Published<T: Send + Sync + 'static> {
    ptr: AtomicPtr<Arc<T>>,
    _owns: PhantomData<Arc<T>>,
}

impl<T: Send + Sync + 'static> Published<T> {
    /// Publishes `value`.
    pub fn new(value: Arc<T>) -> Published<T> {
        Published { ptr: AtomicPtr::new(Box::into_raw(Box::new(value))), _owns: PhantomData }
    }

    /// The present value, without touching its reference count.
    #[inline]
    pub fn load<'g>(&'g self, _guard: &'g Guard) -> &'g Arc<T> {
        // SAFETY: `ptr` is always a live box: `store` retires the old one after unlinking it by a SeqCst exchange,
        // and the guard keeps it from being dropped (see the module's argument). The reference also borrows `self`,
        // so Published is not dropped meanwhile.
        unsafe { &*self.ptr.load(SeqCst) }
    }

    /// The present value, counted.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(self.load(&pin()))
    }

    /// Replaces the value. The old one is let go when no guard can see it.
    pub fn store(&self, value: Arc<T>) {
        let old = self.ptr.swap(Box::into_raw(Box::new(value)), SeqCst);
        // SAFETY: `old` came from Box::into_raw, and the exchange gave it to us alone.
        retire(unsafe { Box::from_raw(old) });
    }
}

impl<T: Send + Sync + 'static> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: from Box::into_raw; exclusive access, and loads borrow `self`, so nobody sees it any more.
        drop(unsafe { Box::from_raw(*self.ptr.get_mut()) });
    }
}

impl<T: Send + Sync + std::fmt::Debug + 'static> std::fmt::Debug for Published<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Published").field(self.load(&pin())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    struct Counted(Arc<AtomicUsize>, u64, u64);
    impl Counted {
        fn new(drops: &Arc<AtomicUsize>, n: u64) -> Arc<Counted> {
            Arc::new(Counted(drops.clone(), n, !n))
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.2 = self.1;
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// Waits for pins of tests that run beside this one.
    fn eventually(f: impl Fn() -> bool) {
        while !f() {
            collect();
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_guard_keeps_the_old_value_and_its_end_drops_it() {
        let drops = Arc::new(AtomicUsize::new(0));
        let p = Published::new(Counted::new(&drops, 1));
        let outer = pin();
        let inner = pin();
        let old = p.load(&outer);
        p.store(Counted::new(&drops, 2));
        assert_eq!((old.1, p.load(&inner).1), (1, 2));
        drop(inner);
        collect();
        assert_eq!(drops.load(SeqCst), 0);
        assert!(is_pinned());
        drop(outer);
        assert!(!is_pinned());
        eventually(|| drops.load(SeqCst) == 1);
        drop(p);
        assert_eq!(drops.load(SeqCst), 2);
    }

    #[test]
    fn another_threads_guard_holds_a_drop_up_and_its_unpin_does_it() {
        let drops = Arc::new(AtomicUsize::new(0));
        let p = Arc::new(Published::new(Counted::new(&drops, 1)));
        let (pinned_tx, pinned) = mpsc::channel();
        let (go, go_rx) = mpsc::channel::<()>();
        let (p2, d2) = (p.clone(), drops.clone());
        let t = std::thread::spawn(move || {
            let g = pin();
            let v = p2.load(&g);
            pinned_tx.send(()).unwrap();
            go_rx.recv().unwrap();
            assert_eq!(v.2, !1);
            assert_eq!(d2.load(SeqCst), 0);
        });
        pinned.recv().unwrap();
        p.store(Counted::new(&drops, 2));
        collect();
        assert_eq!(drops.load(SeqCst), 0);
        go.send(()).unwrap();
        t.join().unwrap();
        eventually(|| drops.load(SeqCst) == 1);
    }

    #[test]
    fn destructors_may_retire_and_pin() {
        struct Nest(Arc<Published<Counted>>, Arc<AtomicUsize>);
        impl Drop for Nest {
            fn drop(&mut self) {
                let _g = pin();
                self.0.store(Counted::new(&self.1, 9));
            }
        }
        let drops = Arc::new(AtomicUsize::new(0));
        let inner = Arc::new(Published::new(Counted::new(&drops, 1)));
        let p = Published::new(Arc::new(Nest(inner.clone(), drops.clone())));
        p.store(Arc::new(Nest(inner.clone(), drops.clone())));
        eventually(|| drops.load(SeqCst) == 1);
        drop(p);
        eventually(|| drops.load(SeqCst) == 2);
        assert_eq!(inner.get().1, 9);
    }

    #[test]
    fn guards_in_thread_local_destructors_work() {
        struct Last(Cell<Option<Arc<Published<Counted>>>>);
        impl Drop for Last {
            fn drop(&mut self) {
                let p = self.0.take().unwrap();
                let g = pin();
                assert_eq!(p.load(&g).2, !p.load(&g).1);
            }
        }
        thread_local!(static LAST: Last = const { Last(Cell::new(None)) });
        let drops = Arc::new(AtomicUsize::new(0));
        let p = Arc::new(Published::new(Counted::new(&drops, 1)));
        for before in [true, false] {
            let p = p.clone();
            std::thread::spawn(move || {
                if before {
                    drop(pin());
                }
                LAST.with(|l| l.0.set(Some(p)));
                drop(pin());
            })
            .join()
            .unwrap();
        }
        p.store(Counted::new(&drops, 2));
        eventually(|| drops.load(SeqCst) == 1);
    }

    #[test]
    fn readers_never_see_a_dropped_value() {
        let rounds = if cfg!(miri) { 40 } else { 20_000 };
        let drops = Arc::new(AtomicUsize::new(0));
        let p = Published::new(Counted::new(&drops, 0));
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    let mut last = 0;
                    while !stop.load(Relaxed) {
                        let g = pin();
                        let (a, b) = (p.load(&g), p.load(&g));
                        assert!(a.2 == !a.1 && b.2 == !b.1 && a.1 >= last && b.1 >= a.1);
                        last = b.1;
                    }
                });
            }
            for i in 1..=rounds {
                p.store(Counted::new(&drops, i));
            }
            stop.store(true, Relaxed);
        });
        eventually(|| drops.load(SeqCst) == rounds as usize);
    }
}
