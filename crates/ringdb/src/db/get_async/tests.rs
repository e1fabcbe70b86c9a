use std::task::Waker;

use super::*;
use crate::db::block_on::block_on;
use crate::db::sim_life::{self, KEYS, Reader};
use crate::{Db, Options};

/// Waits for gets, gives some up, and reads many keys at once.
fn read(r: &Reader) {
    let check = |i: u64, got: Option<Value>| {
        assert_eq!(got.as_deref(), r.model.get(&i).map(Vec::as_slice), "seed {}", r.seed);
    };
    let mut n = r.seed ^ r.number << 32;
    for _ in 0..40 {
        n = n.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(7);
        let i = KEYS.start + (n >> 33) % 700;
        if n >> 60 == 0 {
            // Given up half-way.
            let mut future = r.db.get_async(i.to_be_bytes());
            let _ = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
        } else if n >> 60 < 4 {
            let keys: Vec<_> = (i..i + 20).map(u64::to_be_bytes).collect();
            match block_on(r.db.multi_get_async(&keys)) {
                Err(e) => r.failed(&e),
                Ok(all) => (i..).zip(all).for_each(|(i, got)| check(i, got)),
            }
        } else {
            match block_on(r.db.get_async(i.to_be_bytes())) {
                Err(e) => r.failed(&e),
                Ok(got) => check(i, got),
            }
        }
    }
}

fn life(seed: u64, faults: &str) -> (u64, u64) {
    sim_life::life(seed, faults, read, |_| {})
}

#[test]
fn simulated_readers_get_what_was_written_whatever_the_order() {
    sim_life::whatever_the_order(60, life);
}

#[test]
fn simulated_readers_learn_of_failures_and_nobody_hangs() {
    sim_life::with_faults(12, life);
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
