use std::collections::BTreeMap;
use std::task::Waker;

use engineswap::sim::{Disk, Plan};

use super::*;
use crate::db::block_on::block_on;
use crate::sim::SimEnv;
use crate::{Db, Env, Error, Options};

fn options(direct_reads: bool) -> Options {
    Options::default()
        .with_cache_bytes(1 << 20)
        .with_memtable_bytes(64 << 10)
        .with_background_threads(2)
        .with_direct_reads(direct_reads)
}

/// One seed: a store with more than its cache holds, readers that wait, give up and read many keys, a writer with
/// flushes, a close while they read; what fails fails because of the `faults`.
fn life(seed: u64, faults: &str) -> (u64, u64) {
    let (env, disk) = (SimEnv::new(seed), Disk::new(seed));
    let options = options(seed.is_multiple_of(2));
    let value = |i: u64| vec![i as u8; 500 + i as usize % 700];
    env.run(|| {
        let db = Db::open_with_env("/db", options, disk.io(), env.clone()).unwrap();
        let model: BTreeMap<u64, Vec<u8>> = (0..600).map(|i| (i, value(i))).collect();
        model.iter().for_each(|(i, v)| db.put(i.to_be_bytes(), v).unwrap());
        db.flush().unwrap();
        disk.set_plan(Plan::parse(faults).unwrap());
        let model = Arc::new(model);
        let readers: Vec<_> = (0..4u64)
            .map(|r| {
                let (db, model, faults) = (db.clone(), Arc::clone(&model), !faults.is_empty());
                let body = move || {
                    let failed = |e: Error| {
                        assert!(matches!(e, Error::Closed) || faults, "seed {seed}: {e}");
                    };
                    let mut n = seed ^ r << 32;
                    for _ in 0..40 {
                        n = n.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(7);
                        let i = (n >> 33) % 700;
                        if n >> 60 == 0 {
                            // Given up half-way.
                            let mut future = db.get_async(i.to_be_bytes());
                            let _ = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
                        } else if n >> 60 < 4 {
                            let keys: Vec<_> = (i..i + 20).map(u64::to_be_bytes).collect();
                            match block_on(db.multi_get_async(&keys)) {
                                Err(e) => failed(e),
                                Ok(all) => (i..).zip(all).for_each(|(i, got)| {
                                    assert_eq!(
                                        got.as_deref(),
                                        model.get(&i).map(Vec::as_slice),
                                        "seed {seed}"
                                    );
                                }),
                            }
                        } else {
                            match block_on(db.get_async(i.to_be_bytes())) {
                                Err(e) => failed(e),
                                Ok(got) => {
                                    assert_eq!(
                                        got.as_deref(),
                                        model.get(&i).map(Vec::as_slice),
                                        "seed {seed}"
                                    );
                                }
                            }
                        }
                    }
                };
                env.spawn("reader", false, Box::new(body)).unwrap()
            })
            .collect();
        if seed.is_multiple_of(3) {
            // While they read.
            let _ = db.clone().close();
        }
        let early = db.stats();
        readers.into_iter().for_each(|join| join());
        let stats = db.stats();
        let _ = db.close();
        assert!(early.async_reads <= stats.async_reads);
        (disk.fingerprint(), stats.async_reads)
    })
}

#[test]
fn simulated_readers_get_what_was_written_whatever_the_order() {
    let first = std::env::var("RINGDB_SEED").ok().map_or(1, |s| s.parse().unwrap());
    let mut reads = 0;
    for seed in first..first + 60 {
        reads += life(seed, "").1;
    }
    assert!(reads > 1000, "{reads}");
    assert_eq!(life(first, ""), life(first, ""), "one seed is one run");
}

#[test]
fn simulated_readers_learn_of_failures_and_nobody_hangs() {
    for (n, faults) in [
        "on read prob 0.1 EIO",
        "on wait prob 0.05 ring",
        "on submit prob 0.05 ring",
        "on read prob 0.2 short 512",
        "on any prob 0.02 EINTR",
    ]
    .into_iter()
    .enumerate()
    {
        for seed in 0..12 {
            life(seed * 5 + n as u64, faults);
        }
    }
}

#[test]
fn blocks_that_the_page_cache_is_not_asked_for_say_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default().with_cache_bytes(1 << 20)).unwrap();
    let value = vec![7; 300 << 10];
    (0..20u64).for_each(|i| db.put(i.to_be_bytes(), &value).unwrap());
    db.flush().unwrap();
    for i in 0..100 {
        assert!(block_on(db.get_async((i % 20u64).to_be_bytes())).unwrap().unwrap() == value);
    }
    assert!(db.stats().async_reads > 50, "{:?}", db.stats());
    assert!((0..100).all(|_| db.core().odds.worth_a_try()));
}
