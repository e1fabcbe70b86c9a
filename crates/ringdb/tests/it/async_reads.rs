//! Asynchronous reads on every engine: with executors of others and one of our own, given up, closed under their tasks,
//! with wakers that panic.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::executor::{Counted, block_on, join_all, poll_once};
use crate::failing;
use crate::support::{self, Rng, seed};

use ringdb::{Db, Error, GetFuture, Options, ReadOptions};

pub const KEYS: u64 = 20_000;

pub fn key(i: u64) -> String {
    format!("key{i:06}")
}

fn value(i: u64) -> Vec<u8> {
    // Some larger than a block.
    let len = if i.is_multiple_of(500) { 20_000 } else { 100 + i % 50 };
    (0..len).map(|n| (i * 7 + n) as u8).collect()
}

/// A store of tables many times as large as its cache.
pub fn filled(dir: &std::path::Path, engine: &str, direct: bool) -> Db {
    let options = Options::default().with_io(engine).with_cache_bytes(1 << 20).with_direct_reads(direct);
    let db = Db::open(dir, options).unwrap();
    for i in (0..KEYS).filter(|i| i % 7 != 3) {
        db.put(key(i), value(i)).unwrap();
    }
    db.compact_range(..).unwrap();
    db
}

fn expect(i: u64) -> Option<Vec<u8>> {
    (i < KEYS && i % 7 != 3).then(|| value(i))
}

pub fn check(i: u64, got: ringdb::Result<Option<ringdb::Value>>) {
    assert_eq!(got.unwrap().as_deref(), expect(i).as_deref(), "{}", key(i));
}

#[test]
fn every_executor_reads_what_a_get_reads_on_every_engine() {
    let mut rng = Rng(seed("async_reads"));
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    for engine in support::engines() {
        for direct in [false, true] {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let db = filled(dir.path(), engine, direct);
            let some: Vec<u64> = (0..1500).map(|_| rng.below(KEYS + 10)).collect();
            some[..100].iter().for_each(|i| check(*i, block_on(db.get_async(key(*i)))));
            let all = join_all(some.iter().map(|i| db.get_async(key(*i))));
            some.iter().zip(all).for_each(|(i, got)| check(*i, got));

            let spawned: Vec<_> = some.iter().map(|i| (*i, tokio.spawn(db.get_async(key(*i))))).collect();
            for (i, task) in spawned {
                check(i, tokio.block_on(task).unwrap());
            }
            let spawned: Vec<_> = some.iter().map(|i| (*i, smol::spawn(db.get_async(key(*i))))).collect();
            for (i, task) in spawned {
                check(i, smol::block_on(task));
            }
            let keys: Vec<String> = some.iter().map(|i| key(*i)).collect();
            let all = block_on(db.multi_get_async(&keys)).unwrap();
            assert_eq!(all.len(), some.len());
            some.iter().zip(all).for_each(|(i, got)| check(*i, Ok(got)));
            let (few, other) = (&keys[..300], &keys[300..600]);
            let task = tokio.spawn(db.multi_get_async(few));
            let all = smol::block_on(smol::spawn(db.multi_get_async(other))).unwrap();
            some[300..600].iter().zip(all).for_each(|(i, got)| check(*i, Ok(got)));
            some[..300]
                .iter()
                .zip(tokio.block_on(task).unwrap().unwrap())
                .for_each(|(i, got)| check(*i, Ok(got)));
            let stats = db.stats();
            let read = stats.async_reads + if direct { 0 } else { stats.async_page_cache_reads };
            assert!(read > 1000 && stats.async_submissions <= stats.async_reads, "{stats:?}");
            db.close().unwrap();
        }
    }
}

#[test]
fn more_keys_than_are_looked_up_at_once() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let db = filled(dir.path(), "auto", false);
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    let all = block_on(db.multi_get_async(&keys)).unwrap();
    (0..KEYS).zip(all).for_each(|(i, got)| check(i, Ok(got)));
    assert!(block_on(db.multi_get_async::<&str>(&[])).unwrap().is_empty());
}

#[test]
fn a_block_that_many_miss_is_read_once_and_many_blocks_in_one_submission() {
    for engine in support::engines() {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        drop(filled(dir.path(), engine, false));
        let db = Db::open(dir.path(), Options::default().with_io(engine)).unwrap();
        // A compaction may have been left over, and would take the blocks out of the cache.
        db.wait_idle().unwrap();
        let reads = || (db.stats().async_reads, db.stats().async_submissions, db.stats().async_joined);
        let neighbours: Vec<_> = (1000..1016).map(key).collect();
        block_on(db.multi_get_async(&neighbours)).unwrap();
        let (blocks, submissions, joined) = reads();
        assert!(blocks <= 2 && submissions == 1 && joined >= 12, "{engine}: {:?}", reads());
        // In memory now: no thread, no read.
        block_on(db.multi_get_async(&neighbours)).unwrap();
        assert_eq!(reads(), (blocks, submissions, joined), "{engine}");
        let apart: Vec<_> = (0..64).map(|i| key(i * 200 + 1)).collect();
        block_on(db.multi_get_async(&apart)).unwrap();
        let now = reads();
        assert!(now.0 - blocks >= 50 && now.1 - submissions == 1, "{engine}: {now:?}");
        // Tasks of one key each: whatever comes while the thread is at work goes together.
        let got = join_all((0..64).map(|_| db.get_async(key(15_000))));
        got.into_iter().for_each(|got| check(15_000, got));
        assert_eq!(reads().0, now.0 + 1, "{engine}: {:?}", reads());
    }
}

#[test]
fn what_memory_has_is_answered_by_the_first_poll() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    drop(filled(dir.path(), "auto", false));
    let db = Db::open(dir.path(), Options::default().with_direct_reads(true)).unwrap();
    db.wait_idle().unwrap();
    db.put("new", "x").unwrap();
    let ready = |poll: Poll<ringdb::Result<Option<ringdb::Value>>>| match poll {
        Poll::Ready(got) => got.unwrap(),
        Poll::Pending => panic!("it waits"),
    };
    assert_eq!(ready(poll_once(&mut db.get_async("new"))).as_deref(), Some(&b"x"[..]));
    assert_eq!(ready(poll_once(&mut db.get_async("never"))), None);
    for i in [1, 1000] {
        let mut first = db.get_async(key(i));
        assert!(poll_once(&mut first).is_pending());
        check(i, block_on(first));
        check(i, Ok(ready(poll_once(&mut db.get_async(key(i))))));
    }
    let mut again = db.get_async("new");
    ready(poll_once(&mut again));
    let Poll::Ready(Err(e)) = poll_once(&mut again) else { panic!("an error") };
    assert_eq!(e.kind(), ringdb::ErrorKind::FixCall, "{e}");
}

#[test]
fn what_the_page_cache_has_is_answered_by_the_first_poll() {
    for engine in support::engines() {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let db = filled(dir.path(), engine, false);
        // Other tests may have it forget.
        (0..KEYS).for_each(|i| check(i, db.get(key(i))));
        let (mut ready, some) = (0, (0..KEYS).step_by(13));
        for i in some.clone() {
            let mut future = db.get_async(key(i));
            match poll_once(&mut future) {
                Poll::Ready(got) => {
                    check(i, got);
                    ready += 1;
                }
                Poll::Pending => check(i, block_on(future)),
            }
        }
        let (stats, all) = (db.stats(), some.count());
        // Some are large.
        assert!(
            ready > all * 9 / 10 && stats.async_page_cache_reads > 100,
            "{engine}: {ready} of {all}, {stats:?}"
        );
    }
}

#[test]
fn keyspaces_and_snapshots() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let db = filled(dir.path(), "auto", false);
    let ks = db.keyspace("other").unwrap();
    ks.put(key(8), "old").unwrap();
    let snapshot = db.snapshot();
    let late = snapshot.keyspace(&ks).get_async(key(8));
    drop(snapshot);
    ks.put(key(8), "new").unwrap();
    db.put(key(8), "newer").unwrap();
    db.compact_range(..).unwrap();
    assert_eq!(db.stats().snapshots, 1, "the future keeps what it will read");
    assert_eq!(block_on(late).unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(db.stats().snapshots, 0);
    assert_eq!(block_on(ks.get_async(key(8))).unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(block_on(db.get_async(key(8))).unwrap().as_deref(), Some(&b"newer"[..]));
    assert_eq!(block_on(ks.multi_get_async(&[key(8), key(9)])).unwrap()[1], None);
    let (one, many) = (ks.get_async(key(8)), ks.multi_get_async(&[key(8)]));
    db.drop_keyspace("other").unwrap();
    assert!(matches!(block_on(one), Err(Error::KeyspaceDropped(_))));
    assert!(matches!(block_on(many), Err(Error::KeyspaceDropped(_))));
}

#[test]
fn a_read_that_leaves_the_cache_alone() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    drop(filled(dir.path(), "auto", false));
    let db = Db::open(dir.path(), Options::default()).unwrap();
    db.wait_idle().unwrap();
    let before = db.stats().cache_used_bytes;
    let keys: Vec<_> = (0..500).map(key).collect();
    let options = ReadOptions::default().fill_cache(false);
    let got = block_on(db.multi_get_async_with(&keys, &options)).unwrap();
    (0..).zip(got).for_each(|(i, got)| check(i, Ok(got)));
    check(9000, block_on(db.get_async_with(key(9000), &options)));
    assert_eq!(db.stats().cache_used_bytes, before);
}

#[test]
fn futures_that_are_dropped_leave_nothing_behind() {
    for engine in support::engines() {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let db = filled(dir.path(), engine, true);
        let counted = Arc::new(Counted::default());
        let waker = Waker::from(Arc::clone(&counted));
        let mut rng = Rng(seed("dropped"));
        let mut kept = Vec::new();
        for n in 0..100_000 {
            let i = rng.below(KEYS);
            let mut future = db.snapshot().get_async(key(i));
            if let Poll::Ready(got) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
                check(i, got);
            } else if n % 100 == 0 {
                kept.push((i, future));
            }
        }
        let reads = db.stats().async_reads;
        assert!(reads < 90_000, "{engine}: {reads} reads: those that nobody waits for are not begun");
        for (i, future) in kept {
            check(i, block_on(future));
        }
        assert_eq!(db.stats().snapshots, 0, "{engine}");
        // What was in flight for nobody ends, and lets go.
        let last = db.stats().async_reads;
        check(1, block_on(db.get_async(key(1))));
        drop(waker);
        assert_eq!(Arc::strong_count(&counted), 1, "{engine}: {last} reads");
        db.close().unwrap();
    }
}

#[test]
fn closing_answers_everybody() {
    for engine in support::engines() {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let db = filled(dir.path(), engine, true);
        let mut rng = Rng(seed("closing"));
        let mut futures: Vec<(u64, GetFuture)> = Vec::new();
        for _ in 0..3000 {
            let i = rng.below(KEYS);
            let mut future = db.get_async(key(i));
            if poll_once(&mut future).is_pending() {
                futures.push((i, future));
            }
        }
        let unpolled = db.get_async(key(1));
        let clone = db.clone();
        db.close().unwrap();
        let (numbers, futures): (Vec<u64>, Vec<GetFuture>) = futures.into_iter().unzip();
        for (i, got) in numbers.into_iter().zip(join_all(futures)) {
            match got {
                Err(Error::Closed) => {}
                got => check(i, got),
            }
        }
        assert!(matches!(block_on(unpolled), Err(Error::Closed)));
        assert!(matches!(block_on(clone.get_async(key(1))), Err(Error::Closed)));
    }
}

/// A waker of which each wake panics.
pub struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics: this is part of a test");
    }
}

#[test]
fn a_waker_that_panics_harms_nobody_else() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let db = filled(dir.path(), "auto", true);
    let waker = Waker::from(Arc::new(Panics));
    for i in [1, 2000, 4000] {
        let mut future = db.get_async(key(i));
        if Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending() {
            check(i + 1000, block_on(db.get_async(key(i + 1000))));
            check(i, block_on(future));
        }
    }
    db.close().unwrap();
}

/// A waker that holds the store.
pub struct Owner(pub Mutex<Option<Db>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {
        // Not with the lock held: closing may wake others that have this waker.
        let db = self.0.lock().unwrap().take();
        drop(db);
    }
}

#[test]
fn the_store_may_end_in_a_waker() {
    for engine in support::engines() {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let db = filled(dir.path(), engine, true);
        let mut futures: Vec<_> = (0..50).map(|i| db.get_async(key(i * 350))).collect();
        let owner = Arc::new(Owner(Mutex::new(Some(db))));
        let waker = Waker::from(Arc::clone(&owner));
        let mut context = Context::from_waker(&waker);
        let mut waits = |f: &mut GetFuture| Pin::new(f).poll(&mut context).is_pending();
        assert!(futures.iter_mut().map(&mut waits).filter(|waits| *waits).count() > 10);
        let start = std::time::Instant::now();
        while owner.0.lock().unwrap().is_some() {
            assert!(start.elapsed().as_secs() < 100, "nobody was woken");
            std::thread::yield_now();
        }
        for result in join_all(futures) {
            assert!(matches!(result, Ok(Some(_)) | Err(Error::Closed)), "{result:?}");
        }
        // Its lock is given up as soon as the waker is through.
        while let Err(e) = Db::open(dir.path(), Options::default()) {
            assert!(matches!(e, Error::Locked(_)) && start.elapsed().as_secs() < 100, "{e}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn damage_is_reported_where_it_is_needed() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    drop(filled(dir.path(), "auto", false));
    let tables = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
    let path = tables.filter(|p| p.extension().is_some_and(|e| e == "sst")).min().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5 * 4096 + 1000] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    let db = Db::open(dir.path(), Options::default().with_cache_bytes(1 << 20)).unwrap();
    let mut damaged = 0;
    for (i, got) in (0..KEYS).zip(join_all((0..KEYS).map(|i| db.get_async(key(i))))) {
        let blocking = db.get(key(i));
        match (got, blocking) {
            (Err(Error::Corrupt { offset: a, .. }), Err(Error::Corrupt { offset: b, .. })) if a == b => {
                damaged += 1
            }
            (got, Ok(_)) => check(i, got),
            (got, blocking) => panic!("{}: {got:?}, {blocking:?}", key(i)),
        }
    }
    assert!(damaged > 5 && damaged < 100, "{damaged} damaged");
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    assert!(matches!(block_on(db.multi_get_async(&keys)), Err(Error::Corrupt { .. })));
}

#[test]
fn an_engine_without_queues_and_reads_that_fail() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    drop(filled(dir.path(), "posix", false));
    let (io, disk) = failing::dying(i64::MAX, ringdb::engineswap::ErrorKind::Io);
    let options = Options::default().with_cache_bytes(1 << 20);
    let db = Db::open_with_env(dir.path(), options, io, ringdb::SystemEnv::shared()).unwrap();
    let some = || (0..KEYS).step_by(17);
    some().zip(join_all(some().map(|i| db.get_async(key(i))))).for_each(|(i, got)| check(i, got));
    disk.fail_reads(Some((".sst", 100_000..200_000)));
    let mut failed = 0;
    for (i, got) in some().zip(join_all(some().map(|i| db.get_async(key(i))))) {
        match got {
            Err(Error::Io(e)) => {
                assert_eq!(e.kind(), ringdb::engineswap::ErrorKind::Io, "{e}");
                failed += 1;
            }
            got => check(i, got),
        }
    }
    assert!(failed > 20, "{failed}");
    disk.fail_reads(None);
    some().zip(join_all(some().map(|i| db.get_async(key(i))))).for_each(|(i, got)| check(i, got));
}

/// Where the first keys of a table lie, and none of those from number 2000 on.
const BEGINNING: std::ops::Range<u64> = 0..24_000;

/// The name of the table with the first keys.
fn first_table(dir: &std::path::Path) -> String {
    let names = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".sst")).min().unwrap()
}

/// A store of which each read at the beginning of the first table hangs, with polled futures of a key that lies there.
/// With queues that threads share, or without any.
fn hanging(dir: &std::path::Path, queues: bool) -> (Db, Arc<failing::Dying>, Vec<(u64, GetFuture)>) {
    drop(filled(dir, "posix", false));
    let (io, disk) = failing::dying(i64::MAX, ringdb::engineswap::ErrorKind::Io);
    let options = Options::default().with_cache_bytes(1 << 20);
    let db = Db::open_with_env(dir, options, io, ringdb::SystemEnv::shared()).unwrap();
    // No queue is to be had at first; that passes.
    check(KEYS - 1, block_on(db.get_async(key(KEYS - 1))));
    disk.give_shared_queues(queues);
    disk.hold_reads(Some((&first_table(dir), BEGINNING)));
    let mut first: Vec<_> = (0..12).map(|_| (5, db.get_async(key(5)))).collect();
    assert!(first.iter_mut().all(|(_, future)| poll_once(future).is_pending()));
    disk.wait_for_held(1);
    (db, disk, first)
}

#[test]
fn a_read_that_hangs_holds_up_no_other() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (db, disk, mut first) = hanging(dir.path(), true);
    for i in (2000..KEYS).step_by(1000) {
        check(i, block_on(db.get_async(key(i))));
    }
    let keys: Vec<_> = (0..1000).map(|i| key(5000 + 7 * i)).collect();
    let all = block_on(db.multi_get_async(&keys)).unwrap();
    (5000..).step_by(7).zip(all).for_each(|(i, got)| check(i, Ok(got)));
    assert!(first.iter_mut().all(|(_, future)| poll_once(future).is_pending()));
    // Given up: the read goes on for the others.
    first.drain(..3);
    disk.hold_reads(None);
    first.into_iter().for_each(|(i, future)| check(i, block_on(future)));
}

#[test]
fn a_failing_read_fails_for_all_who_wait_for_it() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (db, disk, first) = hanging(dir.path(), true);
    let both = [key(5), key(9001)];
    let mut also = db.multi_get_async(&both);
    assert!(poll_once(&mut also).is_pending());
    disk.fail_reads(Some((&first_table(dir.path()), BEGINNING)));
    disk.hold_reads(None);
    let eio = |e: &Error| matches!(e, Error::Io(e) if e.kind() == ringdb::engineswap::ErrorKind::Io);
    assert!(block_on(also).is_err_and(|e| eio(&e)));
    for (_, future) in first {
        assert!(block_on(future).is_err_and(|e| eio(&e)));
    }
    // One read for all; posix tries without waiting first.
    assert!(disk.failed_reads() <= 2, "{}", disk.failed_reads());
    disk.fail_reads(None);
    check(5, block_on(db.get_async(key(5))));
}

#[test]
fn closing_answers_before_a_read_that_hangs_is_back() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (db, disk, first) = hanging(dir.path(), true);
    let closing = std::thread::spawn(move || db.close());
    for (_, future) in first {
        assert!(matches!(block_on(future), Err(Error::Closed)));
    }
    // Its buffer is the device's until then.
    assert!(!closing.is_finished());
    disk.hold_reads(None);
    closing.join().unwrap().unwrap();
}

#[test]
fn without_queues_answers_do_not_wait_for_all_reads() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (db, disk, first) = hanging(dir.path(), false);
    // Far more than are read in one go, behind the first.
    let mut more: Vec<_> = (1000..KEYS).map(|i| (i, db.get_async(key(i)))).collect();
    more.retain_mut(|(_, future)| poll_once(future).is_pending());
    assert!(more.len() > 1000, "{}", more.len());
    let last = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let last = last.filter(|name| name.ends_with(".sst")).max().unwrap();
    disk.hold_reads(Some((&last, 0..u64::MAX)));
    first.into_iter().for_each(|(i, future)| check(i, block_on(future)));
    disk.wait_for_held(1);
    // One of the last hangs: those in front of it are answered.
    more.drain(..100).for_each(|(i, future)| check(i, block_on(future)));
    disk.hold_reads(None);
    more.into_iter().for_each(|(i, future)| check(i, block_on(future)));
}
