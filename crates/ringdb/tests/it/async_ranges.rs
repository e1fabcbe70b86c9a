//! Streams of ranges on every engine: they give what an iterator gives, with executors of others and one of our own, do
//! not block a task, end when they are given up, closed or too late, and report damage where they get to it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::Stream;

use crate::async_reads::{KEYS, check, filled, key};
use crate::executor::{Counted, block_on, join_all};
use crate::failing;
use crate::support::{self, Rng, seed};

use ringdb::{Db, Error, Options, RangeStream, ReadOptions, SystemEnv};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn temp() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

async fn collect(mut stream: RangeStream) -> ringdb::Result<Pairs> {
    let mut all = Vec::new();
    while let Some(pair) = stream.next().await {
        let (key, value) = pair?;
        all.push((key.to_vec(), value.to_vec()));
    }
    // It has ended, and stays so.
    assert!(stream.next().await.is_none());
    Ok(all)
}

fn iterate(iter: ringdb::Iter) -> ringdb::Result<Pairs> {
    iter.map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

fn poll_once(stream: &mut RangeStream) -> Poll<Option<ringdb::Result<(ringdb::Value, ringdb::Value)>>> {
    Pin::new(stream).poll_next(&mut Context::from_waker(Waker::noop()))
}

/// Random writes and deletions: some in memory, the others in many tables on several levels.
fn layered(
    dir: &std::path::Path,
    engine: &str,
    direct: bool,
    rng: &mut Rng,
) -> (Db, BTreeMap<Vec<u8>, Vec<u8>>) {
    let options = Options::default()
        .with_io(engine)
        .with_cache_bytes(1 << 20)
        .with_memtable_bytes(64 << 10)
        .with_direct_reads(direct);
    let db = Db::open(dir, options).unwrap();
    let mut model = BTreeMap::new();
    for n in 0..8000 {
        let key = rng.key();
        if rng.chance(4) {
            db.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = rng.value();
            db.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        if n == 3000 {
            db.compact_range(..).unwrap();
        }
    }
    (db, model)
}

type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn some_range(rng: &mut Rng) -> Ends {
    let mut end = || match rng.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Excluded(rng.key()),
        _ => Bound::Included(rng.key()),
    };
    (end(), end())
}

#[test]
fn streams_give_what_iterators_give_with_every_executor_on_every_engine() {
    let mut rng = Rng(seed("async_ranges"));
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    for engine in support::engines() {
        for direct in [false, true] {
            let dir = temp();
            let (db, model) = layered(dir.path(), engine, direct, &mut rng);
            let all = block_on(collect(db.range_async(..))).unwrap();
            assert!(all.iter().map(|(k, v)| (k, v)).eq(&model), "{engine}");
            let ranges: Vec<Ends> = (0..60).map(|_| some_range(&mut rng)).collect();
            let fill = |i: usize| ReadOptions::default().fill_cache(!i.is_multiple_of(3));
            let stream = |(i, ends): (usize, &Ends)| collect(db.range_async_with(ends.clone(), &fill(i)));
            let expect: Vec<Pairs> =
                ranges.iter().map(|ends| iterate(db.range(ends.clone())).unwrap()).collect();
            let streams = || ranges.iter().enumerate().map(stream);

            let joined = join_all(streams());
            let tasks: Vec<_> = streams().map(|stream| tokio.spawn(stream)).collect();
            let spawned = tasks.into_iter().map(|task| tokio.block_on(task).unwrap());
            let tasks: Vec<_> = streams().map(smol::spawn).collect();
            let smoled = tasks.into_iter().map(smol::block_on);
            for got in [joined, spawned.collect(), smoled.collect()] {
                let got: Vec<Pairs> = got.into_iter().map(Result::unwrap).collect();
                assert!(got == expect, "{engine}, direct {direct}");
            }
            let s = db.stats();
            assert!(s.async_reads > 1000 && s.async_submissions < s.async_reads / 2, "{engine}: {s:?}");
            db.close().unwrap();
        }
    }
}

#[test]
fn a_stream_sees_one_moment_whatever_happens_then() {
    let dir = temp();
    let db = filled(dir.path(), "auto", true);
    let other = db.keyspace("other").unwrap();
    other.put("a", "old").unwrap();
    let before = iterate(db.iter()).unwrap();
    let (snapshot, mut stream) = (db.snapshot(), db.range_async(..));
    let (late, early) = (other.range_async(..), snapshot.keyspace(&other).prefix_async("a"));
    let mut got = Vec::new();
    for i in 0..KEYS {
        if i % 5 == 0 {
            db.put(key(i), "new").unwrap();
        }
        if i == 1000 {
            other.put("a", "new").unwrap();
            db.compact_range(..).unwrap();
        }
        got.extend(block_on(stream.next()).map(|pair| pair.unwrap()));
    }
    assert!(block_on(stream.next()).is_none());
    assert!(got.iter().map(|(k, v)| (&**k, &**v)).eq(before.iter().map(|(k, v)| (&**k, &**v))));
    assert!(block_on(collect(snapshot.range_async(key(0)..))).unwrap() == before);
    let value = |pairs: ringdb::Result<Pairs>| pairs.unwrap().pop().map(|(_, value)| value);
    assert_eq!(value(block_on(collect(late))).as_deref(), Some(&b"old"[..]));
    assert_eq!(value(block_on(collect(early))).as_deref(), Some(&b"old"[..]));
    assert_eq!(value(block_on(collect(other.range_async(..)))).as_deref(), Some(&b"new"[..]));
    db.drop_keyspace("other").unwrap();
    assert!(matches!(block_on(collect(other.range_async(..))), Err(Error::KeyspaceDropped(_))));
}

/// Whatever hangs goes on, also if the test has failed.
struct Release(Arc<failing::Dying>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.hold_reads(None);
    }
}

/// A store whose reads hang at these bytes of the table with the first keys.
fn stuck(dir: &std::path::Path, bytes: std::ops::Range<u64>) -> (Db, Arc<failing::Dying>, String) {
    drop(filled(dir, "posix", true));
    let (io, disk) = failing::dying(i64::MAX, ringdb::engineswap::ErrorKind::Io);
    disk.give_shared_queues(true);
    let options = Options::default().with_cache_bytes(1 << 20).with_direct_reads(true);
    let db = Db::open_with_env(dir, options, io, SystemEnv::shared()).unwrap();
    let names = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let first = names.filter(|name| name.ends_with(".sst")).min().unwrap();
    disk.hold_reads(Some((&first, bytes)));
    (db, disk, first)
}

#[test]
fn a_read_that_hangs_holds_up_its_stream_and_nobody_else() {
    let dir = temp();
    let (db, disk, _) = stuck(dir.path(), 0..24_000);
    let _release = Release(Arc::clone(&disk));
    let mut streams: Vec<_> = (0..5).map(|_| db.range_async(..)).collect();
    assert!(streams.iter_mut().all(|stream| poll_once(stream).is_pending()));
    disk.wait_for_held(5);
    let limited = ReadOptions::default().with_deadline(Duration::from_millis(30));
    let mut late = db.range_async_with(.., &limited);
    assert!(matches!(block_on(late.next()), Some(Err(Error::TimedOut))));
    assert!(block_on(late.next()).is_none());
    check(9000, block_on(db.get_async(key(9000))));
    let rest =
        block_on(collect(db.range_async_with(key(5000).., &limited.with_deadline(Duration::from_secs(900)))));
    assert_eq!(rest.unwrap().len(), (5000..KEYS).filter(|i| i % 7 != 3).count());
    assert!(streams.iter_mut().all(|stream| poll_once(stream).is_pending()));
    // Given up: the others go on.
    streams.drain(..2);
    disk.hold_reads(None);
    for got in join_all(streams.into_iter().map(collect)) {
        assert_eq!(got.unwrap().len(), (0..KEYS).filter(|i| i % 7 != 3).count());
    }
    db.close().unwrap();
}

#[test]
fn closing_ends_streams_before_a_read_that_hangs_is_back() {
    let dir = temp();
    let (db, disk, _) = stuck(dir.path(), 0..24_000);
    let _release = Release(Arc::clone(&disk));
    let (mut waits, mut unpolled, mut on) =
        (db.range_async(..), db.range_async(..), db.range_async(key(9000)..));
    assert!(poll_once(&mut waits).is_pending());
    assert!(matches!(block_on(on.next()), Some(Ok(_))));
    disk.wait_for_held(1);
    let clone = db.clone();
    let closing = std::thread::spawn(move || db.close());
    assert!(matches!(block_on(waits.next()), Some(Err(Error::Closed))));
    assert!(matches!(block_on(unpolled.next()), Some(Err(Error::Closed))));
    assert!(matches!(block_on(collect(on)), Err(Error::Closed)));
    assert!(matches!(block_on(collect(clone.range_async(..))), Err(Error::Closed)));
    assert!(!closing.is_finished());
    disk.hold_reads(None);
    closing.join().unwrap().unwrap();
}

#[test]
fn an_error_comes_where_an_iterator_has_it() {
    let dir = temp();
    let (db, disk, first) = stuck(dir.path(), 0..0);
    for bytes in [0..4096, 60_000..200_000] {
        disk.fail_reads(Some((&first, bytes)));
        let (mut blocking, mut stream) = (db.iter(), db.range_async(..));
        loop {
            match (blocking.next(), block_on(stream.next())) {
                (Some(Ok(a)), Some(Ok(b))) => assert_eq!(a, b),
                (Some(Err(a)), Some(Err(b))) => break assert_eq!(a.to_string(), b.to_string()),
                (a, b) => panic!("{a:?}, {b:?}"),
            }
        }
        assert!(blocking.next().is_none() && block_on(stream.next()).is_none());
    }
    disk.fail_reads(None);
    assert!(block_on(collect(db.range_async(..))).unwrap() == iterate(db.iter()).unwrap());
}

#[test]
fn a_damaged_block_and_an_unreadable_table() {
    for whole in [false, true] {
        let dir = temp();
        drop(filled(dir.path(), "auto", false));
        let tables = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
        let mut tables: Vec<_> = tables.filter(|p| p.extension().is_some_and(|e| e == "sst")).collect();
        tables.sort();
        let mut bytes = std::fs::read(&tables[1]).unwrap();
        if whole {
            bytes.clear();
        } else {
            bytes[5 * 4096 + 1000] ^= 4;
        }
        std::fs::write(&tables[1], bytes).unwrap();
        let db = Db::open(dir.path(), Options::default().with_cache_bytes(1 << 20)).unwrap();
        let mut failed = 0;
        for from in (0..KEYS).step_by(100) {
            let range = key(from)..key(from + 150);
            match (iterate(db.range(range.clone())), block_on(collect(db.range_async(range)))) {
                (Ok(a), Ok(b)) => assert!(a == b),
                (Err(a), Err(b)) => {
                    assert_eq!(a.to_string(), b.to_string());
                    failed += 1;
                }
                (a, b) => panic!("{from}: {} {}", a.is_ok(), b.is_ok()),
            }
        }
        assert!(failed > 0, "{whole}");
    }
}

#[test]
fn streams_that_are_dropped_leave_nothing_behind() {
    for engine in support::engines() {
        let dir = temp();
        let db = filled(dir.path(), engine, true);
        let counted = Arc::new(Counted::default());
        let waker = Waker::from(Arc::clone(&counted));
        let mut rng = Rng(seed("dropped_streams"));
        for _ in 0..5000 {
            let mut stream = db
                .snapshot()
                .range_async_with(key(rng.below(KEYS)).., &ReadOptions::default().fill_cache(rng.chance(2)));
            for _ in 0..rng.below(300) {
                if Pin::new(&mut stream).poll_next(&mut Context::from_waker(&waker)).is_pending() {
                    break;
                }
            }
        }
        // Those that nobody waits for do not get in the way of others.
        check(1, block_on(db.get_async(key(1))));
        let stats = db.stats();
        assert_eq!((stats.snapshots, stats.iterator_memory_bytes), (0, 0), "{engine}");
        drop(waker);
        db.close().unwrap();
        assert_eq!(Arc::strong_count(&counted), 1, "{engine}");
    }
}

#[test]
fn a_poll_ends_though_there_is_nothing_to_be_had() {
    let dir = temp();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    for i in 0..KEYS {
        db.put(key(i), "x").unwrap();
        db.delete(key(i)).unwrap();
    }
    db.put("z", "last").unwrap();
    let counted = Arc::new(Counted::default());
    let waker = Waker::from(Arc::clone(&counted));
    let mut stream = db.range_async(..);
    while Pin::new(&mut stream).poll_next(&mut Context::from_waker(&waker)).is_pending() {}
    // Each has called for the next.
    let polls = counted.calls();
    assert!((5..50).contains(&polls), "{polls}");
    assert!(poll_once(&mut stream).map(|end| end.is_none()).is_ready());
}

#[test]
fn an_engine_without_queues_reads_in_the_reactor() {
    let dir = temp();
    let (db, disk, _) = stuck(dir.path(), 0..0);
    disk.give_shared_queues(false);
    assert!(block_on(collect(db.range_async(..))).unwrap() == iterate(db.iter()).unwrap());
    let without = ReadOptions::default().fill_cache(false);
    assert!(block_on(collect(db.range_async_with(.., &without))).unwrap() == iterate(db.iter()).unwrap());
}
