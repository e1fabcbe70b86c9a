//! The whole store in a simulation: its threads in an order, its time, its disk and that disk's faults all from one
//! seed, which is printed and replayed by `RINGDB_SEED=N cargo test -p ringdb --test simulation`.
#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used)]

#[path = "support/executor.rs"]
mod executor;
#[path = "support/linear.rs"]
mod linear;
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use ringdb::engineswap::sim::{CrashOutcome, Disk, Plan};
use ringdb::sim::SimEnv;
use ringdb::{Db, Durability, Env, Options, WriteBatch, WriteOptions};
use support::{Rng, env_number, seed};

const STORE: &str = "/srv/store";
const WRITERS: u64 = 3;

fn options(durability: Durability) -> Options {
    Options::default()
        .with_cache_bytes(2 << 20)
        .with_memtable_bytes(64 << 10)
        .with_background_threads(2)
        .with_durability(durability)
}

/// An acknowledged durable write: the disk's operations by then, the writer, its count.
type Ack = (u64, u64, u64);

fn number(v: &[u8]) -> u64 {
    u64::from_le_bytes(v[..8].try_into().unwrap())
}

/// Waits for a future as threads of a simulation do.
fn block_on<F: Future + Unpin>(env: &SimEnv, mut future: F) -> F::Output {
    loop {
        match executor::poll_once(&mut future) {
            Poll::Ready(output) => return output,
            Poll::Pending => env.sleep(Duration::from_micros(20)),
        }
    }
}

/// Writes a batch in one of the ways that there are: by a call or a future, durable at once or by a sync afterwards.
fn write(
    db: &Db,
    env: &SimEnv,
    rng: &mut Rng,
    batch: WriteBatch,
    durability: Option<Durability>,
) -> ringdb::Result<()> {
    let how = durability.map_or(WriteOptions::default(), |d| WriteOptions::default().durability(d));
    let (by_future, afterwards) = (rng.chance(2), rng.chance(3));
    if durability != Some(Durability::Sync) || !afterwards {
        return match by_future {
            true => block_on(env, db.write_async(batch, &how)),
            false => db.write(batch, &how),
        };
    }
    let level = *rng.pick(&[Durability::None, Durability::Process, Durability::Process, Durability::Process]);
    let how = WriteOptions::default().durability(level);
    if by_future {
        block_on(env, db.write_async(batch, &how))?;
        return block_on(env, db.sync_async());
    }
    db.write(batch, &how)?;
    match rng.chance(2) {
        true => db.sync(),
        false => db.write(WriteBatch::new(), &WriteOptions::default().durability(Durability::Sync)),
    }
}

/// Some threads write batches that count up, with flushes and compactions; ends early if the disk fails. Returns what
/// was acknowledged as durable.
fn life(disk: &Disk, seed: u64, durability: Durability, rounds: u64) -> Vec<Ack> {
    let env = SimEnv::new(seed);
    let acks = Arc::new(Mutex::new(Vec::new()));
    env.run(|| {
        let Ok(db) = Db::open_with_env(STORE, options(durability), disk.io(), env.clone()) else { return };
        let (db, spawner) = (Arc::new(db), env.clone());
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| {
                let (db, disk, acks) = (Arc::clone(&db), disk.clone(), Arc::clone(&acks));
                let env = env.clone();
                let body = move || {
                    let mut rng = Rng(seed ^ w << 40);
                    for n in 1..=rounds {
                        let mut batch = WriteBatch::new();
                        let mut value = n.to_le_bytes().to_vec();
                        value.resize(8 + rng.below(3000) as usize, n as u8);
                        batch.put(format!("{w}/count"), n.to_le_bytes());
                        batch.put(format!("{w}/{:02}", n % 10), &value);
                        batch.delete(format!("{w}/{:02}", (n + 1) % 10));
                        let sync = rng.chance(3);
                        if write(&db, &env, &mut rng, batch, sync.then_some(Durability::Sync)).is_err() {
                            return;
                        }
                        if sync || durability == Durability::Sync {
                            acks.lock().unwrap().push((disk.operations(), w, n));
                        }
                        let done = match rng.below(40) {
                            0 => db.flush(),
                            1 => db.compact_range(..),
                            _ => Ok(()),
                        };
                        if done.is_err() {
                            return;
                        }
                        assert_eq!(number(&db.get(format!("{w}/count")).unwrap().unwrap()), n);
                    }
                };
                spawner.spawn("writer", false, Box::new(body)).unwrap()
            })
            .collect();
        writers.into_iter().for_each(|join| join());
        // It fails if the disk has failed.
        let _ = Arc::into_inner(db).unwrap().close();
    });
    Arc::into_inner(acks).unwrap().into_inner().unwrap()
}

/// Opens what is left of a disk and checks each writer's keys against each other and against what it must have kept.
fn check(disk: &Disk, seed: u64, durability: Durability, needed: &BTreeMap<u64, u64>, what: &str) {
    let env = SimEnv::new(seed);
    env.run(|| {
        let open = || Db::open_with_env(STORE, options(durability), disk.io(), env.clone());
        let db = open().unwrap_or_else(|e| panic!("{what}: {e}"));
        for w in 0..WRITERS {
            let n = db.get(format!("{w}/count")).unwrap().map_or(0, |v| number(&v));
            assert!(n >= needed.get(&w).copied().unwrap_or(0), "{what}: writer {w} has {n} of {needed:?}");
            for k in 0..10 {
                // The newest round not after `n` that put this key, unless the one before has deleted it.
                let last = (1..=n).rev().find(|r| r % 10 == k || (r + 1) % 10 == k).filter(|r| r % 10 == k);
                let got = db.get(format!("{w}/{k:02}")).unwrap().map(|v| number(&v));
                assert_eq!(got, last, "{what}: writer {w} at {n}, key {k}");
            }
        }
        let report = db.verify().unwrap();
        assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
        db.put("later", "x").unwrap();
        db.close().unwrap();
    });
}

/// Stores that live in the same process beside a test, until it drops this: what they do must not show.
struct Neighbours {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbours {
    fn new(seed: u64) -> Neighbours {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut n = seed;
            while !stopped.load(Ordering::Relaxed) {
                n = n.wrapping_add(0x1_0001);
                life(&Disk::new(n), n, Durability::Process, 20);
            }
        });
        Neighbours { stop, thread: Some(thread) }
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let end = self.thread.take().unwrap().join();
        assert!(end.is_ok() || std::thread::panicking());
    }
}

#[test]
fn one_seed_is_one_run() {
    let base = seed("one_seed_is_one_run");
    let _neighbours = [Neighbours::new(base), Neighbours::new(!base)];
    let mut prints = Vec::new();
    for (i, durability) in
        [Durability::Sync, Durability::Process, Durability::Process].into_iter().enumerate()
    {
        let seed = base.wrapping_add(i as u64);
        let run = || {
            let disk = Disk::new(seed);
            let acks = life(&disk, seed, durability, 60);
            (disk.fingerprint(), disk.operations(), acks)
        };
        let (first, second) = (run(), run());
        assert_eq!(first.1, second.1, "seed {seed}, {durability:?}: operations");
        assert!(first == second, "seed {seed}, {durability:?}: another run");
        prints.push(first.0);
    }
    prints.dedup();
    assert_eq!(prints.len(), 3);
}

#[test]
fn power_cuts_keep_what_was_acknowledged() {
    let base = seed("power_cuts_keep_what_was_acknowledged");
    let cuts = env_number("RINGDB_CUTS", 40);
    for (i, durability) in [Durability::Sync, Durability::Process].into_iter().enumerate() {
        let seed = base.wrapping_add(i as u64);
        let disk = Disk::new(seed);
        disk.record(true);
        let acks = life(&disk, seed, durability, 40);
        let mut rng = Rng(seed);
        for _ in 0..cuts {
            let point = disk.point(rng.below(disk.points() as u64) as usize).unwrap();
            let mut needed = BTreeMap::new();
            for (at, w, n) in &acks {
                if *at <= point.operation {
                    needed.insert(*w, (*n).max(needed.get(w).copied().unwrap_or(0)));
                }
            }
            let outcome = match rng.below(10) {
                0 => CrashOutcome::Nothing,
                1 => CrashOutcome::Everything,
                _ => CrashOutcome::Random(rng.next()),
            };
            let what = format!(
                "RINGDB_SEED={base}: {durability:?}, cut in operation {}, a {} of {}, outcome {outcome:?}",
                point.operation,
                point.call.name(),
                point.path.display()
            );
            check(&disk.crash_at(&point, outcome).0, seed, durability, &needed, &what);
        }
    }
}

#[test]
fn faults_by_a_plan_lose_nothing_acknowledged() {
    let base = seed("faults_by_a_plan_lose_nothing_acknowledged");
    for (i, plan) in [
        "on any every 5 EINTR; on read,write every 7 EAGAIN; on read,write every 9 short 512",
        "on fsync,fdatasync,sync_dir nth 6 EIO",
        "on write,allocate after 8 ENOSPC",
        "on write nth 4 torn",
        "on any nth 200 cut",
        "on submit,wait nth 2 ring",
        "on read prob 0.05 EIO; on write every 9 ENOMEM",
    ]
    .into_iter()
    .enumerate()
    {
        for durability in [Durability::Sync, Durability::Process] {
            let seed = base.wrapping_add(i as u64);
            let disk = Disk::new(seed);
            disk.set_plan(Plan::parse(plan).unwrap());
            let acks = life(&disk, seed, durability, 50);
            let hit: u64 = disk.faults_hit().values().sum();
            assert!(hit > 0, "RINGDB_SEED={base}: nothing came of '{plan}' ({durability:?})");
            let mut needed = BTreeMap::new();
            for (_, w, n) in acks {
                needed.insert(w, n);
            }
            let what = format!("RINGDB_SEED={base}: {durability:?}, {plan}");
            check(&disk.crash(seed), seed, durability, &needed, &what);
        }
    }
}

/// A disk that only claims to sync must be found out by the checks of these tests, or they would check nothing.
#[test]
fn lying_syncs_are_found_out() {
    let base = seed("lying_syncs_are_found_out");
    for durability in [Durability::Sync, Durability::Process] {
        let disk = Disk::new(base);
        disk.set_plan(Plan::parse("on write,fsync,fdatasync after 4 lie").unwrap());
        let acks = life(&disk, base, durability, 40);
        let needed: BTreeMap<u64, u64> = acks.into_iter().map(|(_, w, n)| (w, n)).collect();
        let bad = |outcome: u64| {
            let after = disk.crash(outcome);
            let run = || check(&after, base, durability, &needed, "as it should");
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
        };
        let found = (0..20).filter(|o| bad(*o)).count();
        assert!(found > 5, "RINGDB_SEED={base}: {durability:?}, {found} of 20");
    }
}

/// Histories of calls and transactions, each in the order of its seed.
#[test]
fn transactions_are_serializable() {
    let base = seed("transactions_are_serializable");
    let (mut calls, mut committed, mut failed) = (0, 0, 0);
    for i in 0..env_number("RINGDB_HISTORIES", 30) {
        let seed = base.wrapping_add(i);
        let durability = if i.is_multiple_of(2) { Durability::Process } else { Durability::Sync };
        let env = SimEnv::new(seed);
        let disk = Disk::new(seed);
        let histories = Arc::new(Mutex::new(Vec::new()));
        env.run(|| {
            let db = Db::open_with_env(STORE, options(durability), disk.io(), env.clone()).unwrap();
            let store = linear::Recorder::new(db);
            for n in 0..4 {
                let state = store.state();
                let spawn = |body| env.spawn("client", false, body).unwrap() as linear::Wait;
                histories.lock().unwrap().push((state, store.record(seed ^ n << 40, 4, 8, spawn)));
            }
        });
        for (state, history) in histories.lock().unwrap().iter() {
            calls += history.len();
            committed += history.iter().filter(|c| c.what == "transaction").count();
            failed += history.iter().filter(|c| c.what == "a transaction that failed").count();
            if let Err(why) = linear::check(*state, history) {
                panic!("RINGDB_SEED={seed}: {durability:?}: {why}");
            }
        }
    }
    println!("{calls} calls, of them {committed} transactions that were committed and {failed} that failed");
    assert!(committed > 10 && failed > 0);
}

#[test]
fn damage_on_the_medium_is_found() {
    let base = seed("damage_on_the_medium_is_found");
    let disk = Disk::new(base);
    life(&disk, base, Durability::Process, 40);
    let tables: Vec<_> =
        disk.files().into_iter().filter(|p| p.extension().is_some_and(|e| e == "sst")).collect();
    assert!(!tables.is_empty(), "{:?}", disk.files());
    for table in &tables {
        let rotten = disk.clone_now();
        // Many bits, so that some lie where something is.
        assert!(rotten.rot(table, 400, base));
        let env = SimEnv::new(base);
        env.run(|| {
            let o = options(Durability::Process);
            let found = Db::open_with_env(Path::new(STORE), o, rotten.io(), env.clone())
                .map(|db| !db.verify().unwrap().problems.is_empty());
            assert!(
                found.unwrap_or(true),
                "RINGDB_SEED={base}: damage of {} goes unnoticed",
                table.display()
            );
        });
    }
}
