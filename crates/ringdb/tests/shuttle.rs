//! The whole store under Shuttle: its threads and those of the test run one at a time, switched at every lock,
//! condition and shared atomic in an order that a seed gives, thousands of orders a minute. A deadlock, a missed
//! wake-up (no timed wait ever ends by itself here) or a history that is not linearizable fails, with what repeats it.
//!
//! `make shuttle`, which is `RUSTFLAGS="--cfg shuttle" cargo test -p ringdb --test shuttle`. Environment:
//! `RINGDB_SHUTTLE_ROUNDS` (orders for each test, 100 by default), `RINGDB_SHUTTLE_SEED` (one order, again).
#![cfg(shuttle)]
#![allow(missing_docs)]

#[path = "support/executor.rs"]
mod executor;
#[path = "support/linear.rs"]
mod linear;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use executor::{block_on, join_all, poll_once};
use linear::{KEYS, Recorder, check};
use ringdb::engineswap::Io;
use ringdb::{
    CompactionFilter, Db, Durability, Env, FilterContext, FilterDecision, KeyspaceOptions, Options,
    WriteBatch, WriteOptions,
};
use shuttle::rand::Rng as _;

/// Time that passes when it is asked for; Shuttle's threads and random numbers.
struct ShuttleEnv(AtomicU64);

impl Env for ShuttleEnv {
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.fetch_add(1, SeqCst))
    }

    fn sleep(&self, d: Duration) {
        self.0.fetch_add(d.as_micros() as u64, SeqCst);
        shuttle::thread::yield_now();
    }

    fn spawn(
        &self,
        name: &str,
        _background: bool,
        f: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<Box<dyn FnOnce() + Send>> {
        let t = shuttle::thread::Builder::new().name(name.into()).spawn(f)?;
        Ok(Box::new(move || t.join().expect("a thread of the store")))
    }

    fn random(&self) -> u64 {
        shuttle::rand::thread_rng().r#gen()
    }
}

fn spawn(f: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce()> {
    let t = shuttle::thread::spawn(f);
    Box::new(move || t.join().expect("a thread of the history"))
}

fn options(durability: Durability) -> Options {
    Options::default()
        .with_durability(durability)
        .with_memtable_bytes(64 << 10)
        .with_cache_bytes(8 << 20)
        .with_background_threads(2)
        // The page cache would answer asynchronous reads at once.
        .with_direct_reads(true)
}

fn open(dir: &std::path::Path, durability: Durability) -> Db {
    let io = Io::from_uri("posix").expect("posix");
    Db::open_with_env(dir, options(durability), io, Arc::new(ShuttleEnv(AtomicU64::new(0)))).expect("open")
}

/// Runs `f` in many orders of its threads; random ones and ones with few switches at unlikely places (PCT, Burckhardt
/// and others 2010) in turn.
fn orders(name: &str, f: fn(&std::path::Path)) {
    let base =
        if std::path::Path::new("/dev/shm").is_dir() { "/dev/shm" } else { env!("CARGO_TARGET_TMPDIR") };
    let run = move || {
        let dir = tempfile::tempdir_in(base).expect("temp dir");
        f(dir.path());
    };
    let config = || {
        let mut c = shuttle::Config::new();
        c.stack_size = 1 << 20;
        c.max_steps = shuttle::MaxSteps::FailAfter(3_000_000);
        c
    };
    if let Ok(seed) = std::env::var("RINGDB_SHUTTLE_SEED") {
        let seed = seed.parse().expect("RINGDB_SHUTTLE_SEED is a number");
        let random = shuttle::scheduler::RandomScheduler::new_from_seed(seed, 1);
        shuttle::Runner::new(random, config()).run(run);
        return;
    }
    let rounds = support::env_number("RINGDB_SHUTTLE_ROUNDS", 100);
    let first = support::seed(name);
    for n in 0..rounds {
        let seed = first.wrapping_add(n);
        let again = Again(seed, n % 4 == 3);
        if again.1 {
            let pct = shuttle::scheduler::PctScheduler::new_from_seed(seed, 3, 1);
            shuttle::Runner::new(pct, config()).run(run);
        } else {
            let random = shuttle::scheduler::RandomScheduler::new_from_seed(seed, 1);
            shuttle::Runner::new(random, config()).run(run);
        }
        std::mem::forget(again);
    }
    println!("shuttle {name}: {rounds} orders");
}

/// Says how to repeat an order, if dropped by a panic.
struct Again(u64, bool);

impl Drop for Again {
    fn drop(&mut self) {
        match self.1 {
            false => eprintln!("again by RINGDB_SHUTTLE_SEED={}", self.0),
            true => eprintln!("again by RINGDB_SEED={} with RINGDB_SHUTTLE_ROUNDS=4", self.0 - 3),
        }
    }
}

/// Puts, batches, reads and snapshots of three threads beside flushes and compactions.
fn history(dir: &std::path::Path, durability: Durability) {
    let store = Recorder::new(open(dir, durability));
    let seed = shuttle::rand::thread_rng().r#gen();
    let maintenance = {
        let db = store.db.clone();
        spawn(Box::new(move || {
            db.flush().expect("flush");
            db.compact_range(..).expect("compact");
        }))
    };
    let calls = store.record(seed, 3, 6, spawn);
    maintenance();
    if let Err(why) = check([0; KEYS], &calls) {
        panic!("not linearizable: {why}");
    }
    let state = store.state();
    let Recorder { db, .. } = store;
    db.close().expect("close");
    // What the log and the tables say is the same.
    let store = Recorder::new(open(dir, durability));
    assert_eq!(store.state(), state, "after opening it again");
    store.db.close().expect("close");
}

#[test]
fn mapped_log() {
    orders("mapped_log", |dir| history(dir, Durability::Process));
}

#[test]
fn direct_log() {
    orders("direct_log", |dir| history(dir, Durability::Sync));
}

/// Many writers at once, so that groups form and hand on; memtables and segments change under them.
fn writers(dir: &std::path::Path, durability: Durability) {
    let db = open(dir, durability);
    let threads: Vec<_> = (0..5u8)
        .map(|w| {
            let db = db.clone();
            spawn(Box::new(move || {
                for n in 0..4u8 {
                    let mut b = WriteBatch::new();
                    b.put([w, n], vec![n; 6000]);
                    b.put([w, 255], [n]);
                    let o = WriteOptions::default();
                    let o = if n == 2 { o.durability(Durability::Sync) } else { o };
                    db.write(b, &o).expect("write");
                    assert_eq!(db.get([w, 255]).expect("get").as_deref(), Some(&[n][..]), "own write");
                }
            }))
        })
        .collect();
    threads.into_iter().for_each(|t| t());
    assert_eq!(db.iter().count(), 5 * 5);
    db.close().expect("close");
    let db = open(dir, durability);
    let mut pairs = 0;
    for kv in db.iter() {
        kv.expect("pair");
        pairs += 1;
    }
    assert_eq!(pairs, 5 * 5);
    assert!(db.verify().expect("verify").is_ok());
    db.close().expect("close");
}

#[test]
fn writers_of_a_mapped_log() {
    orders("writers_of_a_mapped_log", |dir| writers(dir, Durability::Process));
}

#[test]
fn writers_of_a_direct_log() {
    orders("writers_of_a_direct_log", |dir| writers(dir, Durability::Sync));
}

/// Counts up two keys under locks: one call for both, or one for each, where one of two may have to begin again.
fn lockers(dir: &std::path::Path) {
    let db = open(dir, Durability::Process);
    let count = |n: Option<ringdb::Value>| n.map_or(0, |n| u64::from_be_bytes(n[..].try_into().expect("8")));
    let threads: Vec<_> = (0..3usize)
        .map(|t| {
            let db = db.clone();
            spawn(Box::new(move || {
                for n in 0..3 {
                    let keys = if (t + n) % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
                    loop {
                        let mut tx = db.transaction();
                        // No time passes: only a circle ends the wait.
                        let locked = match (t + n) % 3 {
                            0 => tx.lock(&keys),
                            _ => tx.lock(&keys[..1]).and_then(|()| tx.lock(&keys[1..])),
                        };
                        match locked {
                            Err(ringdb::Error::KeyLocked { deadlock: true, .. }) => continue,
                            other => other.expect("the locks"),
                        }
                        for key in keys {
                            let n = count(tx.get(key).expect("get"));
                            tx.put(key, (n + 1).to_be_bytes()).expect("put");
                        }
                        break tx.commit().expect("no conflict");
                    }
                }
            }))
        })
        .collect();
    threads.into_iter().for_each(|t| t());
    assert_eq!(["a", "b"].map(|key| count(db.get(key).expect("get"))), [9, 9]);
    db.close().expect("close");
}

#[test]
fn transactions_that_lock() {
    orders("transactions_that_lock", lockers);
}

/// Removes all values that begin with `x`.
struct Marked;

impl CompactionFilter for Marked {
    fn name(&self) -> &str {
        "marked"
    }
    fn filter(&self, _: &FilterContext, _: &[u8], value: &[u8]) -> FilterDecision {
        if value.starts_with(b"x") { FilterDecision::Remove } else { FilterDecision::Keep }
    }
}

/// What a snapshot shows at first it shows until its end, beside compactions that remove some of it.
fn filtered(dir: &std::path::Path) {
    let (io, env) = (Io::from_uri("posix").expect("posix"), Arc::new(ShuttleEnv(AtomicU64::new(0))));
    let options = options(Durability::Process).register_compaction_filter(Marked);
    let db = Db::open_with_env(dir, options, io, env).expect("open");
    let all = KeyspaceOptions::default().with_compaction_filter("marked");
    db.keyspace("default").and_then(|k| k.alter(&all)).expect("alter");
    let mut threads = vec![{
        let db = db.clone();
        spawn(Box::new(move || {
            for n in 0..3u8 {
                for key in 0..3u8 {
                    db.put([key], [if key == n { b'k' } else { b'x' }, n]).expect("put");
                }
                db.compact_range(..).expect("compact");
            }
        }))
    }];
    for t in 0..2u8 {
        let db = db.clone();
        threads.push(spawn(Box::new(move || {
            for n in 0..4u8 {
                let (snapshot, key) = (db.snapshot(), [(n + t) % 3]);
                let one = snapshot.get(key).expect("get");
                let pairs = || snapshot.iter().map(|p| p.expect("a pair")).collect::<Vec<_>>();
                let all = pairs();
                let held = all.iter().find(|(k, _)| k[..] == key).map(|(_, v)| v[..].to_vec());
                assert_eq!(one.as_deref(), held.as_deref());
                assert_eq!(pairs(), all);
                let tx = db.transaction();
                let many = tx.multi_get(&[[0u8], [1], [2]]).expect("multi_get");
                for (key, value) in (0..3u8).zip(many) {
                    assert_eq!(tx.get([key]).expect("get"), value);
                }
                assert_eq!(snapshot.get(key).expect("get"), one);
            }
        })));
    }
    threads.into_iter().for_each(|t| t());
    db.compact_range(..).expect("compact");
    assert_eq!(db.iter().keys().map(|k| k.expect("a key")[0]).collect::<Vec<_>>(), [2]);
    assert_eq!(db.stats().snapshots, 0);
    db.close().expect("close");
}

#[test]
fn snapshots_beside_a_compaction_filter() {
    orders("snapshots_beside_a_compaction_filter", filtered);
}

/// Closing while others write, read and wait: everyone ends, with success or with `Closed`.
#[test]
fn closing_in_the_middle() {
    orders("closing_in_the_middle", |dir| {
        for durability in [Durability::Process, Durability::Sync] {
            let db = open(&dir.join(format!("{durability:?}")), durability);
            let threads: Vec<_> = (0..3u8)
                .map(|w| {
                    let db = db.clone();
                    spawn(Box::new(move || {
                        for n in 0..3u8 {
                            let r = match w {
                                0 => db.flush(),
                                1 => db.put([n], [n]).and_then(|()| db.get([n]).map(drop)),
                                _ => db.put([w, n], vec![n; 20_000]).and_then(|()| db.wait_idle()),
                            };
                            match r {
                                Ok(()) | Err(ringdb::Error::Closed) => {}
                                Err(e) => panic!("{e}"),
                            }
                        }
                    }))
                })
                .collect();
            db.close().expect("close");
            threads.into_iter().for_each(|t| t());
        }
    });
}

/// Tasks of several threads read, give up and are closed under; each learns how its read ends.
fn readers(dir: &std::path::Path, close: bool) {
    let db = open(dir, Durability::Process);
    for n in 0..40u8 {
        db.put([n], vec![n; 3000]).expect("put");
    }
    db.flush().expect("flush");
    let threads: Vec<_> = (0..3u8)
        .map(|t| {
            let db = db.clone();
            spawn(Box::new(move || {
                let check = |n: u8, got: ringdb::Result<Option<ringdb::Value>>| match got {
                    Ok(got) => assert_eq!(got.as_deref(), (n < 40).then(|| vec![n; 3000]).as_deref()),
                    Err(ringdb::Error::Closed) if close => {}
                    Err(e) => panic!("{e}"),
                };
                check(t, block_on(db.get_async([t])));
                drop(poll_once(&mut db.get_async([20 + t])));
                let keys: Vec<u8> = (0..6).map(|i| 3 * i + t).collect();
                let all = join_all(keys.iter().map(|n| db.get_async([*n])));
                keys.into_iter().zip(all).for_each(|(n, got)| check(n, got));
                let mut stream = db.range_async([10 * t]..=[10 * t + 9]);
                for n in 10 * t..10 * t + 10 {
                    match block_on(stream.next()) {
                        Some(Ok((key, value))) => {
                            assert_eq!(*key, [n]);
                            check(n, Ok(Some(value)));
                        }
                        Some(Err(ringdb::Error::Closed)) if close => break,
                        other => panic!("{n}: {other:?}"),
                    }
                }
                match block_on(db.multi_get_async(&[[t + 30], [t + 10], [t + 40]])) {
                    Ok(all) => {
                        [t + 30, t + 10, t + 40].into_iter().zip(all).for_each(|(n, got)| check(n, Ok(got)))
                    }
                    Err(e) => check(0, Err(e)),
                }
            }))
        })
        .collect();
    if close {
        let _ = db.clone().close();
    }
    threads.into_iter().for_each(|t| t());
    let _ = db.close();
}

#[test]
fn asynchronous_readers() {
    orders("asynchronous_readers", |dir| readers(dir, false));
}

#[test]
fn asynchronous_readers_of_a_store_that_closes() {
    orders("asynchronous_readers_of_a_store_that_closes", |dir| readers(dir, true));
}

/// Tasks of several threads write and sync, give up and are closed under; what was acknowledged is there.
fn async_writers(dir: &std::path::Path, durability: Durability, close: bool) {
    let db = open(dir, durability);
    let threads: Vec<_> = (0..3u8)
        .map(|t| {
            let db = db.clone();
            spawn(Box::new(move || {
                let write = |n: u8| {
                    let mut b = WriteBatch::new();
                    b.put([t, n], vec![n; 5000]);
                    let level = [Durability::Sync, Durability::Process][usize::from(n) % 2];
                    db.write_async(b, &WriteOptions::default().durability(level))
                };
                let done = |r: ringdb::Result<()>| match r {
                    Err(ringdb::Error::Closed) if close => {}
                    r => r.expect("write"),
                };
                drop(poll_once(&mut write(100)));
                join_all((0..4).map(write)).into_iter().for_each(done);
                done(block_on(db.sync_async()));
                done(db.sync());
                done(block_on(write(4)));
            }))
        })
        .collect();
    if close {
        let _ = db.clone().close();
    }
    threads.into_iter().for_each(|t| t());
    let _ = db.close();
    if !close {
        let db = open(dir, durability);
        for key in (0..3u8).flat_map(|t| (0..5u8).map(move |n| [t, n])) {
            assert_eq!(db.get(key).expect("get").as_deref(), Some(&vec![key[1]; 5000][..]));
        }
        db.close().expect("close");
    }
}

#[test]
fn asynchronous_writers() {
    orders("asynchronous_writers", |dir| {
        async_writers(&dir.join("mapped"), Durability::Process, false);
        async_writers(&dir.join("direct"), Durability::Sync, false);
    });
}

#[test]
fn asynchronous_writers_of_a_store_that_closes() {
    orders("asynchronous_writers_of_a_store_that_closes", |dir| {
        async_writers(&dir.join("mapped"), Durability::Process, true);
        async_writers(&dir.join("direct"), Durability::Sync, true);
    });
}
