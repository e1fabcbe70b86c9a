//! The nanoseconds that docs/decisions/0038-epoch.md quotes: a reader's pin, load and unpin; a replacement while other
//! threads have pinned once and sleep. `make benches`.
#![allow(missing_docs)] // a bench

use std::sync::{Arc, Barrier};

use divan::{Bencher, black_box};
use latchfree::epoch::{Collector, Published};

fn main() {
    divan::main();
}

#[divan::bench]
fn get(bencher: Bencher) {
    let value = Published::new(&Collector::new(), Arc::new(1u64));
    bencher.bench_local(|| {
        let guard = value.pin();
        black_box(**value.load(&guard))
    });
}

#[divan::bench(args = [1, 16, 2000])]
fn replace(bencher: Bencher, idle: usize) {
    let value = Published::new(&Collector::new(), Arc::new(0u64));
    let (pinned, end) = (Barrier::new(idle + 1), Barrier::new(idle + 1));
    std::thread::scope(|s| {
        for _ in 0..idle {
            let sleeper = || {
                black_box(**value.load(&value.pin()));
                pinned.wait();
                end.wait();
            };
            std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(s, sleeper).expect("a thread");
        }
        pinned.wait();
        bencher.bench_local(|| value.store(Arc::new(black_box(1))));
        end.wait();
    });
    value.collector().collect();
    assert_eq!(value.collector().waiting(), 0, "what was replaced is dropped");
}
