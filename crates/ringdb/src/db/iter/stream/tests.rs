use std::task::Waker;

use super::*;
use crate::cache::Owner;
use crate::db::block_on::block_on;
use crate::db::sim_life::{self, KEYS, Model, Reader};
use crate::{Db, Options};

/// Reads a range from key `from` on by a stream; half of them are given up after a while.
fn read_range(db: &Db, model: &Model, from: u64, n: u64) -> Result<()> {
    let options = ReadOptions::default().fill_cache(!n.is_multiple_of(3));
    let mut stream = db.range_async_with(from.to_be_bytes().., &options);
    let most = if n.is_multiple_of(2) { 1000 } else { 30 };
    let mut expect = model.range(from..).take(most);
    for _ in 0..most {
        let Some((key, value)) = expect.next() else { break };
        let got = block_on(Box::pin(stream.next())).transpose()?;
        let (k, v) = got.expect("a pair");
        assert!(*k == key.to_be_bytes()[..] && *v == value[..]);
    }
    if most > 30 {
        assert!(block_on(Box::pin(stream.next())).transpose()?.is_none());
        return Ok(());
    }
    // Waited for by nobody.
    let _ = Pin::new(&mut stream).poll_next(&mut Context::from_waker(Waker::noop()));
    Ok(())
}

fn read(r: &Reader) {
    for i in 0..6 {
        let n = r.seed.wrapping_mul(31) + r.number * 7 + i;
        if let Err(e) = read_range(&r.db, &r.model, KEYS.start + n * 97 % 650, n) {
            r.failed(&e);
        }
    }
}

/// Flushes and compactions by keys before the others, in their tables sooner or later. The faults may stop it.
fn write(db: &Db) {
    for i in 0..200u64 {
        let _ = db.put((i % 50).to_be_bytes(), sim_life::value(i));
    }
}

fn life(seed: u64, faults: &str) -> (u64, u64) {
    sim_life::life(seed, faults, read, write)
}

#[test]
fn simulated_streams_give_what_was_written_whatever_the_order() {
    sim_life::whatever_the_order(40, life);
}

#[test]
fn simulated_streams_tell_of_failures_and_nobody_hangs() {
    sim_life::with_faults(8, life);
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
