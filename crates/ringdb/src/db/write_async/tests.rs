use std::task::Waker;

use super::*;
use crate::{Db, Options, WriteOptions};

#[test]
fn a_slowed_write_waits_in_the_future() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut write = |n: u8| {
        let mut batch = WriteBatch::new();
        batch.put([n], "x");
        let mut write = db.write_async(batch, &WriteOptions::default());
        let pending = Pin::new(&mut write).poll(&mut context).is_pending();
        (pending, write)
    };
    assert!(!write(1).0);
    let scheduler = &db.core().write_side().unwrap().scheduler;
    // As if so many memtables waited to be flushed: the strongest slowing, in which blocking writers wait. It ends when
    // the background threads look for themselves, so it may take some tries to meet it.
    let slowed = (0..100_000).find_map(|_| {
        scheduler.memtable_frozen(100);
        let (pending, write) = write(2);
        pending.then_some(write)
    });
    assert!(slowed.is_some(), "the executor's thread would have waited");
    let start = std::time::Instant::now();
    while db.get([2]).unwrap().is_none() {
        assert!(start.elapsed().as_secs() < 100, "a slowed write is never done");
    }
}
