use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Waker;
use std::time::Duration;

use super::*;
use crate::commit::Place;
use crate::db::block_on::block_on;
use crate::db::write::{ActiveWriter, StoreCommitEnv};
use crate::key::Seq;
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

/// An ingest that has the queue's lock until it is told to go on.
struct Slow(Sender<()>, Receiver<()>);

impl Place<StoreCommitEnv> for Slow {
    fn flush(&mut self, _: Seq) -> Result<()> {
        unreachable!("nothing has to be flushed");
    }

    fn install(&mut self, _: &StoreCommitEnv, _: &mut ActiveWriter, _: Seq, _: bool) -> Result<bool> {
        self.0.send(()).unwrap();
        self.1.recv().unwrap();
        Ok(true)
    }
}

#[test]
fn a_write_beside_an_ingest_waits_in_the_future() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let ((begun, has_begun), (go, may_go)) = (channel(), channel());
    let (polled, answer) = channel();
    let mut batch = WriteBatch::new();
    batch.put("k", "v");
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let side = db.core().write_side().unwrap();
            side.commits.place((b"\0a", b"\0b"), &mut Slow(begun, may_go)).unwrap();
        });
        has_begun.recv().unwrap();
        let write = threads.spawn(|| {
            let mut write = db.write_async(batch, &WriteOptions::default());
            let first = Pin::new(&mut write).poll(&mut Context::from_waker(Waker::noop()));
            polled.send(first.is_pending()).unwrap();
            block_on(write)
        });
        let first = answer.recv_timeout(Duration::from_secs(20));
        go.send(()).unwrap();
        assert_eq!(first, Ok(true), "the executor's thread has waited");
        write.join().unwrap().unwrap();
    });
    assert!(db.get("k").unwrap().is_some());
}
