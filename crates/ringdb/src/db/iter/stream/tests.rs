use std::collections::BTreeMap;
use std::task::Waker;

use engineswap::sim::{Disk, Plan};

use super::*;
use crate::cache::Owner;
use crate::db::block_on::block_on;
use crate::sim::SimEnv;
use crate::{Db, Env, Options};

type Model = BTreeMap<[u8; 8], Vec<u8>>;

/// Reads a range from key `from` on by a stream; half of them are given up after a while.
fn read(db: &Db, model: &Model, from: u64, n: u64) -> Result<()> {
    let options = ReadOptions::default().fill_cache(!n.is_multiple_of(3));
    let mut stream = db.range_async_with(from.to_be_bytes().., &options);
    let most = if n.is_multiple_of(2) { 1000 } else { 30 };
    let mut expect = model.range(from.to_be_bytes()..).take(most);
    for _ in 0..most {
        let Some((key, value)) = expect.next() else { break };
        let got = block_on(Box::pin(stream.next())).transpose()?;
        let (k, v) = got.expect("a pair");
        assert!(*k == key[..] && *v == value[..]);
    }
    if most > 30 {
        assert!(block_on(Box::pin(stream.next())).transpose()?.is_none());
        return Ok(());
    }
    // Waited for by nobody.
    let _ = Pin::new(&mut stream).poll_next(&mut Context::from_waker(Waker::noop()));
    Ok(())
}

/// One seed: a store with more than its cache holds, tasks that scan it, a writer of other keys with flushes and
/// compactions, a close while they read; what fails fails because of the `faults`.
fn life(seed: u64, faults: &str) -> (u64, u64) {
    let (env, disk) = (SimEnv::new(seed), Disk::new(seed));
    let options = Options::default()
        .with_cache_bytes(1 << 20)
        .with_memtable_bytes(64 << 10)
        .with_background_threads(2)
        .with_direct_reads(seed.is_multiple_of(2));
    env.run(|| {
        let db = Db::open_with_env("/db", options, disk.io(), env.clone()).unwrap();
        let value = |i: u64| vec![i as u8; 500 + i as usize % 700];
        let model: Model = (0..600).map(|i| (u64::to_be_bytes(1000 + i), value(i))).collect();
        model.iter().for_each(|(k, v)| db.put(k, v).unwrap());
        db.flush().unwrap();
        disk.set_plan(Plan::parse(faults).unwrap());
        let model = Arc::new(model);
        let reader = |r: u64| {
            let (db, model, faults) = (db.clone(), Arc::clone(&model), !faults.is_empty());
            let body = move || {
                for i in 0..6 {
                    let n = seed.wrapping_mul(31) + r * 7 + i;
                    match read(&db, &model, 1000 + n * 97 % 650, n) {
                        Ok(()) => {}
                        Err(e) => assert!(matches!(e, Error::Closed) || faults, "seed {seed}: {e}"),
                    }
                }
            };
            env.spawn("reader", false, Box::new(body)).unwrap()
        };
        let readers: Vec<_> = (0..4).map(reader).collect();
        for i in 0..200u64 {
            // Before the others, in their tables sooner or later. The faults may stop it.
            let _ = db.put((i % 50).to_be_bytes(), value(i));
        }
        if seed.is_multiple_of(3) {
            let _ = db.clone().close();
        }
        readers.into_iter().for_each(|join| join());
        let stats = db.stats();
        let _ = db.close();
        (disk.fingerprint(), stats.async_reads)
    })
}

#[test]
fn simulated_streams_give_what_was_written_whatever_the_order() {
    let first = std::env::var("RINGDB_SEED").ok().map_or(1, |s| s.parse().unwrap());
    let mut reads = 0;
    for seed in first..first + 40 {
        reads += life(seed, "").1;
    }
    assert!(reads > 1000, "{reads}");
    assert_eq!(life(first, ""), life(first, ""), "one seed is one run");
}

#[test]
fn simulated_streams_tell_of_failures_and_nobody_hangs() {
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
        for seed in 0..8 {
            life(seed * 5 + n as u64, faults);
        }
    }
}

#[test]
fn a_poll_ends_though_the_page_cache_has_block_after_block() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default().with_cache_bytes(1 << 20)).unwrap();
    let before = db.snapshot();
    (0..40_000u64).for_each(|i| db.put(i.to_be_bytes(), "x").unwrap());
    db.flush().unwrap();
    // Others have read ahead all that iterators may: this one reads block by block.
    let _others = db.core().cache.charge(Owner::Iterators, 1 << 20);
    let mut stream = before.range_async_with(.., &ReadOptions::default().fill_cache(false));
    let mut polls = 1;
    while Pin::new(&mut stream).poll_next(&mut Context::from_waker(Waker::noop())).is_pending() {
        polls += 1;
    }
    assert!(polls >= 40_000 / STEPS, "{polls}");
}
