//! Epochs, published values, and the slots and frames of a cache under Shuttle: many orders of the threads that use
//! them, each repeatable by its seed.
//!
//! `make shuttle`. Environment: `RINGDB_SHUTTLE_ROUNDS` (tens of orders for each test, 200 by default),
//! `SHUTTLE_RANDOM_SEED` (the seed of the orders).
#![cfg(shuttle)]
#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use latchfree::epoch::{Collector, Published};
use latchfree::{FrameArena, SlotArray};
use shuttle::thread;

/// Half of the orders at random, half with few switches at unlikely places (PCT).
fn orders(f: impl Fn() + Send + Sync + Copy + 'static) {
    let rounds = std::env::var("RINGDB_SHUTTLE_ROUNDS").map_or(200, |s| s.parse().unwrap()) * 10;
    shuttle::check_random(f, rounds);
    shuttle::check_pct(f, rounds, 3);
}

/// Says whether it is alive; what it says of itself must fit.
struct Value {
    n: usize,
    not: usize,
    dropped: Arc<[AtomicBool]>,
}

impl Value {
    fn new(n: usize, dropped: &Arc<[AtomicBool]>) -> Arc<Value> {
        Arc::new(Value { n, not: !n, dropped: dropped.clone() })
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        assert!(!self.dropped[self.n].swap(true, SeqCst), "dropped twice");
        self.not = self.n;
    }
}

#[test]
fn what_is_published_lives_as_long_as_its_readers() {
    orders(|| {
        const VALUES: usize = 5;
        let dropped: Arc<[AtomicBool]> = (0..VALUES).map(|_| AtomicBool::new(false)).collect();
        let published = Arc::new(Published::new(&Collector::new(), Value::new(0, &dropped)));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (published, dropped) = (published.clone(), dropped.clone());
                thread::spawn(move || {
                    let mut last = 0;
                    for _ in 0..4 {
                        let guard = published.pin();
                        let v = published.load(&guard);
                        thread::yield_now();
                        assert_eq!(v.n, !v.not, "read after its end");
                        assert!(!dropped[v.n].load(SeqCst), "dropped under a guard");
                        assert!(v.n >= last, "an older value again");
                        last = v.n;
                    }
                })
            })
            .collect();
        for n in 1..VALUES {
            published.store(Value::new(n, &dropped));
        }
        readers.into_iter().for_each(|t| t.join().unwrap());
        // Nobody holds a guard any more.
        published.collector().collect();
        assert_eq!(published.collector().waiting(), 0, "something waits for nobody");
        drop(published);
        assert!(dropped.iter().all(|d| d.load(SeqCst)), "something was never dropped");
    });
}

#[test]
fn slots_hold_what_was_published_in_them() {
    orders(|| {
        const BLOCKS: usize = 6;
        let arena = FrameArena::new(512, 4);
        let slots = Arc::new(SlotArray::new(&arena, BLOCKS));
        let misses = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..3usize)
            .map(|t| {
                let (arena, slots, misses) = (arena.clone(), slots.clone(), misses.clone());
                thread::spawn(move || {
                    let mut kept = None;
                    for i in 0..5 {
                        let block = (t * 3 + i * 5) % BLOCKS;
                        let wanted = [block as u8 + 1; 512];
                        let guard = slots.collector().pin();
                        if let Some(bytes) = slots.load(block, &guard) {
                            assert_eq!(*bytes, wanted, "another block's bytes");
                            thread::yield_now();
                            assert_eq!(*bytes, wanted, "changed under a guard");
                            if let Some(p) = slots.pin(block, &guard) {
                                kept = Some((p, wanted));
                            }
                            continue;
                        }
                        drop(guard);
                        misses.fetch_add(1, SeqCst);
                        // Whoever keeps a frame holds it against eviction: three at most of four.
                        let Some(mut frame) = arena.alloc_or_evict() else { continue };
                        frame.copy_from_slice(&wanted);
                        drop(slots.publish_pinned(block, frame));
                        if let Some((p, wanted)) = &kept {
                            assert_eq!(**p, *wanted, "a pinned frame changed");
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert!(misses.load(SeqCst) > 0);
        drop(slots);
        arena.collector().collect();
        assert_eq!(arena.in_use(), 0, "frames were lost");
    });
}
