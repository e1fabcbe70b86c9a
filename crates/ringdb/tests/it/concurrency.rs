//! Many writers, readers, iterators and snapshots while tiny memtables are flushed and compacted.
#![allow(clippy::unwrap_used)]

use crate::support;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use ringdb::{Db, Durability, Options, WriteBatch, WriteOptions};
use support::Rng;

fn tiny() -> Options {
    Options::default().with_cache_bytes(2 << 20).with_memtable_bytes(64 << 10).with_background_threads(3)
}

/// Both media of the log, and with them both ways to read tables.
fn media() -> [Options; 2] {
    [Durability::Process, Durability::Sync]
        .map(|d| tiny().with_durability(d).with_direct_reads(d == Durability::Sync))
}

/// Each writer owns some keys and raises a counter in all of them by one batch; whoever reads must find the same
/// counter in all keys of a writer, and never a lower one than before.
#[test]
fn readers_see_whole_batches_and_never_go_back() {
    const WRITERS: usize = 4;
    const KEYS: usize = 8;
    for o in media() {
        let rounds = if o.durability == Durability::Sync { 150 } else { 1500 };
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), o).unwrap();
        let ks = db.keyspace("ks").unwrap();
        let key = |w: usize, k: usize| format!("w{w}-{k:02}-{}", "x".repeat(40));
        let written: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        let done = AtomicBool::new(false);
        let write = |w: usize| {
            for round in 1..=rounds as u64 {
                let mut b = WriteBatch::new();
                for k in 0..KEYS {
                    let v = format!("{round:08}{}", "v".repeat(100));
                    if k % 2 == 0 { b.put(key(w, k), v) } else { b.put_in(&ks, key(w, k), v) }
                }
                let d = [None, Some(Durability::Sync)][usize::from(round % 64 == 0)];
                let mut options = WriteOptions::default();
                options.durability = d;
                db.write(b, &options).unwrap();
                written[w].store(round, SeqCst);
            }
        };
        let number = |v: &[u8]| std::str::from_utf8(&v[..8]).unwrap().parse::<u64>().unwrap();
        let read = |seed: u64| {
            let mut rng = Rng(seed);
            let mut last = [0u64; WRITERS];
            let mut reads = 0u64;
            while !done.load(SeqCst) || reads < 50 {
                reads += 1;
                let w = rng.below(WRITERS as u64) as usize;
                let at_least = written[w].load(SeqCst);
                let even: Vec<String> = (0..KEYS).step_by(2).map(|k| key(w, k)).collect();
                let odd: Vec<String> = (1..KEYS).step_by(2).map(|k| key(w, k)).collect();
                let values: Vec<Option<u64>> = match rng.below(4) {
                    0 => {
                        let got = db.get(&even[0]).unwrap();
                        vec![got.map(|v| number(&v))]
                    }
                    1 => db.multi_get(&even).unwrap().iter().map(|v| v.as_ref().map(|v| number(v))).collect(),
                    2 => {
                        let snap = db.snapshot();
                        let a = snap.multi_get(&even).unwrap();
                        let b = snap.keyspace(&ks).multi_get(&odd).unwrap();
                        a.iter().chain(&b).map(|v| v.as_ref().map(|v| number(v))).collect()
                    }
                    _ => {
                        let prefix = format!("w{w}-");
                        let it = db.prefix(&prefix);
                        let values: Vec<_> = match rng.below(2) {
                            0 => it.map(|kv| Some(number(&kv.unwrap().1))).collect(),
                            _ => it.rev().map(|kv| Some(number(&kv.unwrap().1))).collect(),
                        };
                        assert!(values.is_empty() || values.len() == KEYS / 2);
                        values
                    }
                };
                let first = values.first().copied().flatten().unwrap_or(0);
                assert!(values.iter().all(|v| v.unwrap_or(0) == first), "half a batch: {values:?}");
                assert!(first >= at_least, "writer {w}: {first} after {at_least} was acknowledged");
                assert!(first >= last[w], "writer {w}: {first} after {}", last[w]);
                last[w] = first;
            }
        };
        thread::scope(|s| {
            let writers: Vec<_> = (0..WRITERS).map(|w| s.spawn(move || write(w))).collect();
            let readers: Vec<_> = (0..3).map(|i| s.spawn(move || read(i))).collect();
            let compactor = s.spawn(|| {
                while !done.load(SeqCst) {
                    db.flush().unwrap();
                    db.compact_range(..).unwrap();
                    db.stats();
                    thread::yield_now();
                }
            });
            let results: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
            done.store(true, SeqCst);
            let rest: Vec<_> = readers.into_iter().chain([compactor]).map(|t| t.join()).collect();
            assert!(results.into_iter().chain(rest).all(|r| r.is_ok()), "a thread has panicked");
        });
        let stats = db.stats();
        assert!(stats.flushes > 2 && stats.compactions + stats.trivial_moves > 0, "{stats:?}");
        assert!(db.verify().unwrap().is_ok());
        drop((ks, db));
    }
}

#[test]
fn concurrent_writers_lose_nothing() {
    const WRITERS: u64 = 8;
    for o in media() {
        let each = if o.durability == Durability::Sync { 200 } else { 3000 };
        let dir = tempfile::tempdir().unwrap();
        {
            let db = Db::open(dir.path(), o.clone()).unwrap();
            thread::scope(|s| {
                for w in 0..WRITERS {
                    let db = &db;
                    s.spawn(move || {
                        for i in 0..each {
                            db.put(format!("{w}-{i:06}"), format!("{w}{i}")).unwrap();
                            if i % 100 == 0 {
                                db.delete(format!("{w}-{i:06}")).unwrap();
                            }
                        }
                    });
                }
            });
            assert_eq!(db.stats().last_sequence, WRITERS * (each + each / 100));
        }
        let db = Db::open(dir.path(), o).unwrap();
        for w in 0..WRITERS {
            for i in 0..each {
                let got = db.get(format!("{w}-{i:06}")).unwrap();
                if i % 100 == 0 {
                    assert_eq!(got, None);
                } else {
                    assert_eq!(got.unwrap(), format!("{w}{i}").into_bytes());
                }
            }
        }
    }
}

#[test]
fn one_name_makes_one_keyspace() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), tiny()).unwrap();
    let barrier = Barrier::new(8);
    thread::scope(|s| {
        for t in 0..8 {
            let (db, barrier) = (&db, &barrier);
            s.spawn(move || {
                barrier.wait();
                let ks = db.keyspace("the one").unwrap();
                ks.put(format!("{t}"), "v").unwrap();
            });
        }
    });
    assert_eq!(db.keyspaces().unwrap(), ["the one"]);
    assert_eq!(db.keyspace("the one").unwrap().iter().count(), 8);
}

#[test]
fn keyspaces_come_and_go_beside_writers() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), tiny()).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        let writer = s.spawn(|| {
            for i in 0..5000u32 {
                db.put(format!("{i:06}"), vec![b'v'; 100]).unwrap();
                // Whatever becomes of the keyspace, the write succeeds or says that it was dropped.
                match db.keyspace("passing").and_then(|ks| ks.put(format!("{i}"), "x")) {
                    Ok(()) | Err(ringdb::Error::KeyspaceDropped(_)) => {}
                    Err(e) => panic!("{e}"),
                }
            }
        });
        let dropper = s.spawn(|| {
            while !done.load(SeqCst) {
                db.drop_keyspace("passing").unwrap();
                thread::yield_now();
            }
        });
        let w = writer.join();
        done.store(true, SeqCst);
        dropper.join().unwrap();
        w.unwrap();
    });
    db.drop_keyspace("passing").unwrap();
    db.compact_range(..).unwrap();
    assert_eq!(db.iter().count(), 5000);
    assert_eq!(db.stats().table_entries, 5000);
    assert_eq!(db.keyspace("passing").unwrap().iter().count(), 0);
}

#[test]
fn checkpoints_beside_writers_are_prefixes() {
    let dir = tempfile::tempdir().unwrap();
    for o in media() {
        let base = dir.path().join(format!("{:?}", o.durability));
        let db = Db::open(base.join("db"), o.clone()).unwrap();
        let done = AtomicBool::new(false);
        let acked = AtomicU64::new(0);
        thread::scope(|s| {
            let (db, done, acked) = (&db, &done, &acked);
            s.spawn(move || {
                let mut i = 0u64;
                while !done.load(SeqCst) {
                    db.put(format!("{i:08}"), vec![b'v'; 200]).unwrap();
                    i += 1;
                    acked.store(i, SeqCst);
                }
            });
            let run = || {
                for n in 0..5 {
                    while acked.load(SeqCst) < (n + 1) * 100 {
                        thread::yield_now();
                    }
                    let to = base.join(format!("copy{n}"));
                    let before = acked.load(SeqCst);
                    db.checkpoint(&to).unwrap();
                    let copy = Db::open(&to, o.clone()).unwrap();
                    let keys: Vec<_> = copy.iter().map(|kv| kv.unwrap().0.into_vec()).collect();
                    assert!(keys.len() as u64 >= before);
                    let want: Vec<_> = (0..keys.len()).map(|i| format!("{i:08}").into_bytes()).collect();
                    assert!(keys == want, "not a prefix");
                    assert!(copy.verify().unwrap().is_ok());
                }
            };
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            done.store(true, SeqCst);
            result.unwrap();
        });
    }
}

#[test]
fn read_only_opens_beside_a_busy_writer() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), tiny()).unwrap();
    let done = AtomicBool::new(false);
    let acked = AtomicU64::new(0);
    thread::scope(|s| {
        s.spawn(|| {
            let mut i = 0u64;
            while !done.load(SeqCst) && i < 200_000 {
                db.put(format!("{i:08}"), vec![b'v'; 100]).unwrap();
                i += 1;
                acked.store(i, SeqCst);
                if i.is_multiple_of(500) {
                    thread::sleep(std::time::Duration::from_millis(1));
                }
            }
        });
        let run = || {
            for _ in 0..10 {
                let before = acked.load(SeqCst);
                let ro = Db::open_read_only(dir.path(), tiny()).unwrap();
                let n = ro.iter().inspect(|kv| assert!(kv.is_ok())).count() as u64;
                assert!(n >= before, "{n} keys, {before} were acknowledged before");
                for i in (0..n).step_by(97) {
                    assert!(ro.get(format!("{i:08}")).unwrap().is_some());
                }
                assert_eq!(ro.get(format!("{n:08}")).unwrap(), None);
            }
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        done.store(true, SeqCst);
        result.unwrap();
    });
}
