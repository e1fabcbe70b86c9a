//! Asynchronous writes and syncs: on every engine and both media of the log, shared, in order, given up, closed under
//! their tasks, refused.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::async_reads::{Owner, Panics};
use crate::executor::{block_on, join_all, poll_once};
use crate::support;

use ringdb::engineswap::sim::{Disk, Plan};
use ringdb::{Db, Durability, Error, Options, WriteBatch, WriteFuture, WriteOptions};

const LEVELS: [Durability; 3] = [Durability::None, Durability::Process, Durability::Sync];

fn options(engine: &str, durability: Durability) -> Options {
    Options::default().with_io(engine).with_durability(durability)
}

fn batch(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key, value);
    batch
}

fn level(durability: Durability) -> WriteOptions {
    WriteOptions::default().durability(durability)
}

fn temp() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn every_executor_writes_on_every_engine_at_every_level() {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    for engine in support::engines() {
        for store in LEVELS {
            let dir = temp();
            let db = Db::open(dir.path(), options(engine, store)).unwrap();
            let write =
                |n: usize| db.write_async(batch(format!("{n:04}"), [n as u8; 50]), &level(LEVELS[n % 3]));
            join_all((0..300).map(write)).into_iter().for_each(|done| done.unwrap());
            let tasks: Vec<_> = (300..600).map(|n| tokio.spawn(write(n))).collect();
            tasks.into_iter().for_each(|task| tokio.block_on(task).unwrap().unwrap());
            let tasks: Vec<_> = (600..900).map(|n| smol::spawn(write(n))).collect();
            tasks.into_iter().for_each(|task| smol::block_on(task).unwrap());
            let default = db.write_async(batch("default", "x"), &WriteOptions::default());
            block_on(default).unwrap();
            assert_eq!(db.iter().count(), 901);
            tokio.block_on(tokio.spawn(db.sync_async())).unwrap().unwrap();
            smol::block_on(smol::spawn(db.sync_async())).unwrap();
            block_on(db.sync_async()).unwrap();
            drop(db);
            let db = Db::open(dir.path(), options(engine, store)).unwrap();
            for n in 0..900 {
                assert_eq!(
                    db.get(format!("{n:04}")).unwrap().as_deref(),
                    Some(&[n as u8; 50][..]),
                    "{engine}, {store:?}"
                );
            }
        }
    }
}

#[test]
fn those_that_wait_share_frames() {
    for store in [Durability::Process, Durability::Sync] {
        let dir = temp();
        let db = Db::open(dir.path(), options("auto", store)).unwrap();
        let before = db.stats();
        let writes =
            (0..2000u32).map(|n| db.write_async(batch(n.to_be_bytes(), "x"), &level(Durability::Sync)));
        join_all(writes).into_iter().for_each(|done| done.unwrap());
        let now = db.stats();
        assert_eq!(now.write_batches - before.write_batches, 2000);
        let (groups, syncs) = (now.write_groups - before.write_groups, now.log_syncs - before.log_syncs);
        assert!(groups <= 500 && syncs <= 1000, "{store:?}: {groups} groups, {syncs} syncs");
    }
}

#[test]
fn the_order_is_that_of_the_first_polls() {
    for store in LEVELS {
        let dir = temp();
        let db = Db::open(dir.path(), options("auto", store)).unwrap();
        for round in 0..20 {
            let write = |n: usize| {
                db.write_async(batch("key", format!("{round}-{n}")), &level(LEVELS[(n + round) % 3]))
            };
            let mut writes: Vec<WriteFuture> = (0..50).map(write).collect();
            // Polled in this order, waited for in another.
            let waiting: Vec<bool> = writes.iter_mut().map(|w| poll_once(w).is_pending()).collect();
            let left = writes.into_iter().zip(waiting).filter_map(|(w, waits)| waits.then_some(w)).rev();
            join_all(left).into_iter().for_each(|done| done.unwrap());
            assert_eq!(
                db.get("key").unwrap().as_deref(),
                Some(format!("{round}-49").as_bytes()),
                "{store:?}"
            );
        }
    }
}

#[test]
fn an_unsynced_write_to_a_mapped_log_is_done_by_its_first_poll() {
    let dir = temp();
    let db = Db::open(dir.path(), options("auto", Durability::Process)).unwrap();
    for n in 0..100u32 {
        let mut write = db.write_async(batch(n.to_be_bytes(), "x"), &WriteOptions::default());
        assert!(matches!(poll_once(&mut write), Poll::Ready(Ok(()))));
        assert!(matches!(poll_once(&mut write), Poll::Ready(Err(Error::Invalid(_)))));
    }
    assert_eq!(db.iter().count(), 100);
}

#[test]
fn closing_answers_everybody_and_keeps_what_was_acknowledged() {
    for engine in support::engines() {
        for store in [Durability::Process, Durability::Sync] {
            let dir = temp();
            let db = Db::open(dir.path(), options(engine, store)).unwrap();
            let mut writes = Vec::new();
            for n in 0..3000u32 {
                let mut write = db.write_async(batch(n.to_be_bytes(), [7; 500]), &level(Durability::Sync));
                let _ = poll_once(&mut write);
                writes.push(write);
            }
            let late = db.sync_async();
            db.close().unwrap();
            let mut acknowledged = Vec::new();
            for (n, done) in (0u32..).zip(join_all(writes)) {
                match done {
                    Ok(()) => acknowledged.push(n),
                    // It was ready at its first poll, or never came to it.
                    Err(Error::Closed) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            assert!(matches!(block_on(late), Err(Error::Closed)));
            let db = Db::open(dir.path(), options(engine, store)).unwrap();
            for n in acknowledged {
                assert!(db.get(n.to_be_bytes()).unwrap().is_some(), "{engine}, {store:?}: {n}");
            }
        }
    }
}

#[test]
fn what_is_dropped_was_written_or_not_and_holds_nobody_up() {
    let dir = temp();
    let db = Db::open(dir.path(), options("auto", Durability::Sync)).unwrap();
    for n in 0..20_000u32 {
        let mut write = db.write_async(batch(n.to_be_bytes(), "x"), &WriteOptions::default());
        assert!(Pin::new(&mut write).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    block_on(db.write_async(batch("last", "x"), &WriteOptions::default())).unwrap();
    assert!(db.get("last").unwrap().is_some());
    assert!(db.stats().write_batches < 20_000, "what nobody waits for is not begun");
}

#[test]
fn refusals_are_those_of_a_blocking_write() {
    let dir = temp();
    let db = Db::open(dir.path(), options("auto", Durability::Process)).unwrap();
    let ks = db.keyspace("ks").unwrap();
    let mut dropped = WriteBatch::new();
    dropped.put_in(&ks, "k", "v");
    db.drop_keyspace("ks").unwrap();
    let write =
        |db: &Db, b: &WriteBatch| block_on(db.write_async(b.clone(), &level(Durability::Sync))).unwrap_err();
    assert!(matches!(write(&db, &dropped), Error::KeyspaceDropped(_)));
    assert!(matches!(write(&db, &batch(vec![0; 70_000], "")), Error::Invalid(_)));
    // Nothing to write, and nothing to make durable.
    LEVELS.iter().for_each(|d| block_on(db.write_async(WriteBatch::new(), &level(*d))).unwrap());
    db.put("k", "v").unwrap();
    drop(db);
    let db = Db::open_read_only(dir.path(), Options::default()).unwrap();
    assert!(matches!(write(&db, &batch("k", "w")), Error::ReadOnly));
    assert!(
        matches!(block_on(db.sync_async()), Err(Error::ReadOnly))
            && matches!(db.sync(), Err(Error::ReadOnly))
    );
}

#[test]
fn a_full_disk_and_a_dying_one() {
    for store in [Durability::Process, Durability::Sync] {
        for (plan, stops) in
            [("on create,allocate,write,map ENOSPC", false), ("on write,fsync,fdatasync EIO", true)]
        {
            let disk = Disk::new(1);
            let options = options("sim", store).with_log_segment_bytes(64 << 10);
            let db = Db::open_with_env("/db", options, disk.io(), ringdb::SystemEnv::shared()).unwrap();
            disk.set_plan(Plan::parse(plan).unwrap());
            let write =
                |n: u32| db.write_async(batch(n.to_be_bytes(), vec![1; 3000]), &level(Durability::Sync));
            let failed = (0..200).find_map(|n| block_on(write(n)).err()).expect("it fails");
            let blocking = db.write(batch("k", "v"), &level(Durability::Sync));
            if stops {
                assert!(matches!(failed, Error::Stopped(_)), "{store:?}, {plan}: {failed}");
                // Everybody who waits is told.
                let all = join_all((0..300).map(write));
                assert!(all.iter().all(|done| matches!(done, Err(Error::Stopped(_)))), "{all:?}");
                assert!(matches!(blocking, Err(Error::Stopped(_))));
                assert!(matches!(block_on(write(1000)), Err(Error::Stopped(_))));
                assert!(matches!(block_on(db.sync_async()), Err(Error::Stopped(_))));
                assert!(matches!(db.sync(), Err(Error::Stopped(_))));
            } else {
                // It goes on when there is space again, or has stopped: as for a blocking write.
                disk.set_plan(Plan::none());
                let now = block_on(write(1000));
                assert_eq!(now.is_ok(), db.stats().stopped.is_none(), "{store:?}, {plan}: {failed}, {now:?}");
            }
        }
    }
}

#[test]
fn a_device_that_dies_under_many_writes_answers_all() {
    for store in [Durability::Process, Durability::Sync] {
        let disk = Disk::new(1);
        let options = options("sim", store).with_log_segment_bytes(64 << 10);
        let db = Db::open_with_env("/db", options, disk.io(), ringdb::SystemEnv::shared()).unwrap();
        let write = |n: u32| db.write_async(batch(n.to_be_bytes(), vec![1; 3000]), &level(Durability::Sync));
        // In lots, so that some are through before it dies.
        let mut done = Vec::new();
        for lot in 0..50 {
            if lot == 10 {
                disk.set_plan(Plan::parse("on write,fsync,fdatasync after 5 EIO").unwrap());
            }
            done.extend(join_all((lot * 20..lot * 20 + 20).map(write)));
        }
        let through = done.iter().take_while(|done| done.is_ok()).count();
        assert!((200..1000).contains(&through), "{store:?}: {through}, {:?}", done.get(through));
        assert!(done[through..].iter().all(|done| matches!(done, Err(Error::Stopped(_)))), "{store:?}");
        drop(db);
        let left = disk.crash(1);
        let db =
            Db::open_with_env("/db", Options::default(), left.io(), ringdb::SystemEnv::shared()).unwrap();
        for n in 0..through as u32 {
            assert!(db.get(n.to_be_bytes()).unwrap().is_some(), "{store:?}: {n} of {through}");
        }
    }
}

#[test]
fn a_waker_that_panics_harms_no_other_writer() {
    let waker = Waker::from(Arc::new(Panics));
    let soon = level(Durability::Sync).with_deadline(Duration::ZERO);
    for store in LEVELS {
        let dir = temp();
        let db = Db::open(dir.path(), options("auto", store)).unwrap();
        let mut left: Vec<(u32, WriteFuture)> = Vec::new();
        for n in 0..60u32 {
            // In turn by the committer, and by the reactor when the time is over.
            let how = if n % 2 == 0 { level(Durability::Sync) } else { soon };
            let mut write = db.write_async(batch(n.to_be_bytes(), "x"), &how);
            if Pin::new(&mut write).poll(&mut Context::from_waker(&waker)).is_pending() {
                left.push((n, write));
            }
            block_on(db.write_async(batch("other", n.to_be_bytes()), &level(Durability::Sync))).unwrap();
        }
        assert!(left.len() > 50, "{store:?}: {} waited", left.len());
        for (n, write) in left {
            match block_on(write) {
                Ok(()) => assert!(db.get(n.to_be_bytes()).unwrap().is_some(), "{store:?}: {n}"),
                Err(e) => assert!(n % 2 == 1 && matches!(e, Error::TimedOut), "{store:?}: {e}"),
            }
        }
        block_on(db.sync_async()).unwrap();
        db.close().unwrap();
    }
}

#[test]
fn the_store_may_end_in_a_waker_of_a_write() {
    for engine in support::engines() {
        for store in [Durability::Process, Durability::Sync] {
            let dir = temp();
            let db = Db::open(dir.path(), options(engine, store)).unwrap();
            let write = |n: u32| db.write_async(batch(n.to_be_bytes(), [7; 500]), &level(Durability::Sync));
            let mut writes: Vec<_> = (0..300).map(write).collect();
            let owner = Arc::new(Owner(Mutex::new(Some(db))));
            let waker = Waker::from(Arc::clone(&owner));
            let mut waits =
                |w: &mut WriteFuture| Pin::new(w).poll(&mut Context::from_waker(&waker)).is_pending();
            let waiting: Vec<bool> = writes.iter_mut().map(&mut waits).collect();
            let start = Instant::now();
            while owner.0.lock().unwrap().is_some() {
                assert!(start.elapsed().as_secs() < 100, "nobody was woken");
                std::thread::yield_now();
            }
            let done = writes.into_iter().zip(waiting).map(|(w, waits)| waits.then(|| block_on(w)));
            let done: Vec<_> = done.collect();
            let open = || loop {
                match Db::open(dir.path(), options(engine, store)) {
                    // Its lock is given up as soon as the waker is through.
                    Err(Error::Locked(_)) if start.elapsed().as_secs() < 100 => std::thread::yield_now(),
                    db => return db.unwrap(),
                }
            };
            let db = open();
            for (n, done) in (0u32..).zip(done) {
                match done {
                    Some(Ok(())) => {
                        assert!(db.get(n.to_be_bytes()).unwrap().is_some(), "{engine}, {store:?}: {n}")
                    }
                    Some(Err(Error::Closed)) | None => {}
                    Some(Err(e)) => panic!("{engine}, {store:?}: {e}"),
                }
            }
        }
    }
}
