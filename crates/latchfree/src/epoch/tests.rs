use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc;

use super::*;

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

/// A collector, a published value 1, and a count of values that were dropped.
fn published() -> (Collector, Published<Counted>, Arc<AtomicUsize>) {
    let (c, drops) = (Collector::new(), Arc::new(AtomicUsize::new(0)));
    let p = Published::new(&c, Counted::new(&drops, 1));
    (c, p, drops)
}

#[test]
fn a_guard_keeps_the_old_value_and_its_end_drops_it() {
    let (c, p, drops) = published();
    let outer = c.pin();
    let inner = p.pin();
    let old = p.load(&outer);
    p.store(Counted::new(&drops, 2));
    assert_eq!((old.1, p.load(&inner).1), (1, 2));
    drop(inner);
    c.collect();
    assert_eq!((drops.load(SeqCst), c.waiting()), (0, 1));
    assert_eq!((old.1, old.2), (1, !1));
    drop(outer);
    assert_eq!((drops.load(SeqCst), c.waiting()), (1, 0));
    drop(p);
    assert_eq!(drops.load(SeqCst), 2);
}

#[test]
fn another_threads_guard_holds_a_drop_up_and_its_unpin_does_it() {
    let (_, p, drops) = published();
    let (pinned_tx, pinned) = mpsc::channel();
    let (go, go_rx) = mpsc::channel::<()>();
    std::thread::scope(|s| {
        let (p, drops) = (&p, &drops);
        let t = s.spawn(move || {
            let g = p.pin();
            let v = p.load(&g);
            pinned_tx.send(()).unwrap();
            go_rx.recv().unwrap();
            assert_eq!(v.2, !1);
            assert_eq!(drops.load(SeqCst), 0);
        });
        pinned.recv().unwrap();
        p.store(Counted::new(drops, 2));
        p.collector().collect();
        assert_eq!(drops.load(SeqCst), 0);
        go.send(()).unwrap();
        t.join().unwrap();
        assert_eq!(drops.load(SeqCst), 1);
    });
}

#[test]
fn a_stuck_reader_holds_up_what_it_can_see_and_nothing_newer() {
    let (_, p, drops) = published();
    let (_, other, _) = published();
    let g = p.pin();
    let first = p.load(&g);
    for n in 2..20 {
        p.store(Counted::new(&drops, n));
        other.store(Counted::new(&drops, 0));
    }
    // The first, and the one that took its place before the epoch moved on.
    assert_eq!((first.1, p.collector().waiting()), (1, 2));
    let second = p.load(&g);
    for n in 20..40 {
        p.store(Counted::new(&drops, n));
    }
    assert_eq!((first.2, second.2, p.collector().waiting()), (!1, !19, 4));
    drop(g);
    assert_eq!(p.collector().waiting(), 0);
}

#[test]
fn a_guard_holds_up_its_own_collector_only() {
    let ((_, a, of_a), (_, b, of_b)) = (published(), published());
    let g = a.pin();
    a.store(Counted::new(&of_a, 2));
    b.store(Counted::new(&of_b, 2));
    assert_eq!((of_a.load(SeqCst), of_b.load(SeqCst)), (0, 1));
    assert!(!b.collector().is(a.collector()) && a.collector().is(&a.collector().clone()));
    drop(g);
    assert_eq!(of_a.load(SeqCst), 1);
}

#[test]
#[should_panic(expected = "a guard of another collector")]
fn a_guard_of_another_collector_is_refused() {
    let ((a, ..), (_, p, _)) = (published(), published());
    let g = a.pin();
    p.load(&g);
}

#[test]
fn collectors_that_come_and_go_are_told_apart() {
    let (_, kept, kept_drops) = published();
    for n in 1..20 {
        let (c, p, drops) = published();
        for _ in 0..3 {
            let (g, h) = (p.pin(), kept.pin());
            p.store(Counted::new(&drops, 3));
            assert!(p.load(&g).1 == 3 && kept.load(&h).1 == n);
        }
        drop(c);
        drop(p);
        assert_eq!(drops.load(SeqCst), 4);
        kept.store(Counted::new(&kept_drops, n + 1));
    }
}

#[test]
fn idle_threads_are_left_out_of_scans_until_they_pin_again() {
    let (c, p, drops) = published();
    let threads = if cfg!(miri) { 3 } else { 50 };
    let (ready_tx, ready) = mpsc::channel();
    std::thread::scope(|s| {
        let mut wake = Vec::new();
        for _ in 0..threads {
            let (go, go_rx) = mpsc::channel::<mpsc::Receiver<()>>();
            let (p, ready_tx) = (&p, ready_tx.clone());
            s.spawn(move || {
                drop(p.pin());
                ready_tx.send(()).unwrap();
                let wait = go_rx.recv().unwrap();
                let g = p.pin();
                let v = p.load(&g);
                ready_tx.send(()).unwrap();
                let _ = wait.recv();
                assert_eq!(v.2, !v.1);
            });
            wake.push(go);
        }
        for _ in 0..threads {
            ready.recv().unwrap();
        }
        assert_eq!(c.0.active(), threads);
        for n in 0..PARKED {
            assert_eq!(c.0.active(), threads, "after {n} scans");
            p.store(Counted::new(&drops, n));
        }
        assert_eq!((c.0.active(), c.waiting()), (0, 0));
        // One comes back: it holds up what it reads.
        let (end, wait) = mpsc::channel();
        wake.pop().unwrap().send(wait).unwrap();
        ready.recv().unwrap();
        assert_eq!(c.0.active(), 1);
        p.store(Counted::new(&drops, 99));
        assert_eq!(c.waiting(), 1);
        wake.into_iter().for_each(|w| w.send(mpsc::channel().1).unwrap());
        drop(end);
    });
}

#[test]
fn frames_are_looked_after_once_for_many_active_threads() {
    let (c, p, drops) = published();
    let threads = if cfg!(miri) { 2 } else { 3 * garbage::SHARE };
    let (scans, gate) = (AtomicUsize::new(0), std::sync::Barrier::new(threads + 1));
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                drop(p.pin());
                gate.wait();
                gate.wait();
            });
        }
        gate.wait();
        assert_eq!(c.0.active(), threads);
        for _ in 0..30 {
            c.retire_frames(Box::new(Counted::new(&drops, 0)));
            if c.waiting() == 0 {
                scans.fetch_add(1, Relaxed);
            }
        }
        gate.wait();
    });
    let once_in = threads.div_ceil(garbage::SHARE);
    // After some scans the threads are left out, and each retirement is looked after.
    let rare = PARKED as usize * once_in;
    let wanted = if rare <= 30 { PARKED as usize + (30 - rare) } else { 30 / once_in };
    assert_eq!((scans.into_inner(), drops.load(SeqCst)), (wanted, 30));
}

#[test]
fn records_of_ended_threads_are_used_again() {
    let (c, p, drops) = published();
    for n in 0..20 {
        std::thread::scope(|s| s.spawn(|| assert_eq!(p.load(&p.pin()).1, n.max(1))).join().unwrap());
        p.store(Counted::new(&drops, n + 1));
    }
    assert_eq!(c.0.records(), 1);
}

/// Values that hold their own collector, as a store's tables do through their slots.
#[test]
fn what_waits_ends_with_its_place() {
    struct Holder(Collector, Arc<AtomicUsize>);
    impl Drop for Holder {
        fn drop(&mut self) {
            self.1.fetch_add(1, SeqCst);
        }
    }
    let (c, drops) = (Collector::new(), Arc::new(AtomicUsize::new(0)));
    let value = || Arc::new(Holder(c.clone(), drops.clone()));
    let p = Published::new(&c, value());
    // A guard that never ends.
    std::mem::forget(c.pin());
    p.store(value());
    assert_eq!((drops.load(SeqCst), c.waiting()), (0, 1));
    assert!(p.load(&c.pin()).0.is(&c));
    drop(p);
    assert_eq!((drops.load(SeqCst), c.waiting()), (2, 0));
    assert_eq!(Arc::strong_count(&c.0), 1);
}

#[test]
fn destructors_may_retire_and_pin() {
    struct Nest(Arc<Published<Counted>>, Arc<AtomicUsize>);
    impl Drop for Nest {
        fn drop(&mut self) {
            let _g = self.0.pin();
            self.0.store(Counted::new(&self.1, 9));
        }
    }
    for same in [true, false] {
        let (c, inner, drops) = published();
        let inner = Arc::new(inner);
        let c = if same { c } else { Collector::new() };
        let p = Published::new(&c, Arc::new(Nest(inner.clone(), drops.clone())));
        p.store(Arc::new(Nest(inner.clone(), drops.clone())));
        assert_eq!(drops.load(SeqCst), 1);
        drop(p);
        c.collect();
        assert_eq!(drops.load(SeqCst), 2);
        assert_eq!(inner.get().1, 9);
    }
}

#[test]
fn guards_in_thread_local_destructors_work() {
    struct Last(Cell<Option<Arc<Published<Counted>>>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let p = self.0.take().unwrap();
            let (g, h) = (p.pin(), p.pin());
            assert_eq!(p.load(&g).2, !p.load(&h).1);
        }
    }
    thread_local!(static LAST: Last = const { Last(Cell::new(None)) });
    let (c, p, drops) = published();
    let p = Arc::new(p);
    for before in [true, false] {
        let p = p.clone();
        std::thread::spawn(move || {
            if before {
                drop(p.pin());
            }
            LAST.with(|l| l.0.set(Some(p.clone())));
            drop(p.pin());
        })
        .join()
        .unwrap();
    }
    p.store(Counted::new(&drops, 2));
    assert_eq!((drops.load(SeqCst), c.waiting()), (1, 0));
}

#[test]
fn readers_never_see_a_dropped_value() {
    let rounds = if cfg!(miri) { 40 } else { 20_000 };
    let (c, p, drops) = published();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let mut last = 0;
                while !stop.load(Relaxed) {
                    let g = p.pin();
                    let (a, b) = (p.load(&g), p.load(&g));
                    assert!(a.2 == !a.1 && b.2 == !b.1 && a.1 >= last && b.1 >= a.1);
                    last = b.1;
                }
            });
        }
        for i in 2..=rounds {
            p.store(Counted::new(&drops, i));
        }
        stop.store(true, Relaxed);
    });
    c.collect();
    assert_eq!(drops.load(SeqCst), rounds as usize - 1);
}
