//! A child process writes and is killed (SIGKILL) at random moments, again and again on one store: every
//! acknowledged write must be there, no batch half there.
//!
//! `RINGDB_KILL_ROUNDS` sets the rounds for each engine (50 by default).

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringdb::{Db, Durability, Options, WriteBatch, WriteOptions};
use support::Rng;

const WRITERS: u64 = 3;
/// Keys of a writer's batch; the batch with number `n` gives each of them the value `n` and a payload.
const BATCH: u64 = 4;

fn options(io: &str, durability: Durability) -> Options {
    Options::default()
        .with_io(io)
        .with_durability(durability)
        .with_memtable_bytes(64 << 10)
        .with_cache_bytes(8 << 20)
        .with_background_threads(2)
}

fn key(writer: u64, i: u64) -> String {
    format!("writer{writer}/fixed{i}")
}

fn log_key(writer: u64, n: u64) -> String {
    format!("writer{writer}/log{n:012}")
}

/// The value says its number, then bytes that follow from it.
fn value(writer: u64, n: u64) -> Vec<u8> {
    let mut v = n.to_le_bytes().to_vec();
    let mut rng = Rng(n ^ (writer << 56));
    let len = if rng.chance(100) { 9000 } else { 20 + rng.below(1000) };
    v.extend((0..len).map(|_| rng.next() as u8));
    v
}

/// The child: each writer commits batches for ever and prints each number once it is acknowledged.
/// Not a test of its own: it does something only when the parent has set the variables.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(dir) = std::env::var("RINGDB_KILL_DIR") else { return };
    let io = std::env::var("RINGDB_KILL_IO").expect("engine");
    let sync = std::env::var("RINGDB_KILL_SYNC").is_ok();
    let durability = if sync { Durability::Sync } else { Durability::Process };
    let db = Db::open(&dir, options(&io, durability)).expect("open");
    let side = db.keyspace("side").expect("keyspace");
    std::thread::scope(|s| {
        for w in 0..WRITERS {
            let (db, side) = (db.clone(), side.clone());
            s.spawn(move || {
                let last = last_number(&db, w);
                for n in last + 1.. {
                    let v = value(w, n);
                    let mut b = WriteBatch::new();
                    for i in 0..BATCH {
                        b.put(key(w, i), &v);
                    }
                    b.put(log_key(w, n), n.to_le_bytes());
                    b.put_in(&side, key(w, 0), &v);
                    if n > 500 {
                        b.delete(log_key(w, n - 500));
                    }
                    let mut o = WriteOptions::default();
                    if n.is_multiple_of(64) {
                        o = o.durability(Durability::Sync);
                    }
                    db.write(b, &o).expect("write");
                    // One write call a line, straight to the pipe: acknowledged before it is printed.
                    use std::io::Write;
                    let line = format!("ack {w} {n}\n");
                    std::io::stdout().write_all(line.as_bytes()).expect("print");
                    std::io::stdout().flush().expect("print");
                }
            });
        }
    });
}

fn last_number(db: &Db, w: u64) -> u64 {
    db.get(key(w, 0)).expect("get").map_or(0, |v| u64::from_le_bytes(v[..8].try_into().expect("number")))
}

/// Everything acknowledged is there, batches are whole, and what was deleted stays deleted.
fn check(db: &Db, acked: &[u64]) {
    let side = db.keyspace("side").expect("keyspace");
    for w in 0..WRITERS {
        let n = last_number(db, w);
        assert!(n >= acked[w as usize], "writer {w}: {n} found, {} acknowledged", acked[w as usize]);
        if n == 0 {
            continue;
        }
        let want = value(w, n);
        for i in 0..BATCH {
            assert_eq!(
                db.get(key(w, i)).expect("get").as_deref(),
                Some(&want[..]),
                "writer {w} batch {n} key {i}"
            );
        }
        assert_eq!(side.get(key(w, 0)).expect("get").as_deref(), Some(&want[..]), "the other keyspace");
        let log: Vec<u64> = db
            .prefix(format!("writer{w}/log"))
            .map(|kv| u64::from_le_bytes(kv.expect("pair").1[..8].try_into().expect("number")))
            .collect();
        let first = n.saturating_sub(499).max(1);
        assert_eq!(log, (first..=n).collect::<Vec<_>>(), "writer {w}: the last 500 batches, each once");
    }
}

fn rounds_on(io: &str, durability: Durability, rounds: u64) {
    if !support::engines().contains(&io) {
        return;
    }
    let mut rng = Rng(support::seed(&format!("kill on {io}, {durability:?}")));
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temp dir");
    let mut acked = vec![0; WRITERS as usize];
    for round in 0..rounds {
        kill_one(dir.path(), io, durability, Duration::from_nanos(rng.below(150_000_000)), &mut acked);
        let db = Db::open(dir.path(), options(io, durability))
            .unwrap_or_else(|e| panic!("round {round}: reopen after kill: {e}"));
        check(&db, &acked);
        if round % 10 == 9 {
            let report = db.verify().expect("verify");
            assert!(report.is_ok(), "round {round}: {:?}", report.problems);
        }
    }
    println!("kill on {io}, {durability:?}: {rounds} rounds, batches acknowledged by each writer: {acked:?}");
    assert!(rounds < 10 || acked.iter().all(|&n| n > 0), "no writer got anything done: {acked:?}");
}

fn kill_one(dir: &Path, io: &str, durability: Durability, after: Duration, acked: &mut [u64]) {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--exact", "child_writes_until_it_is_killed", "--nocapture", "--test-threads=1"]);
    command.env("RINGDB_KILL_DIR", dir).env("RINGDB_KILL_IO", io);
    if durability == Durability::Sync {
        command.env("RINGDB_KILL_SYNC", "1");
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("child");
    let out = child.stdout.take().expect("stdout");
    let (first_ack, acked_once) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut seen = vec![0u64; WRITERS as usize];
        for line in BufReader::new(out).lines() {
            let Ok(line) = line else { break };
            let mut words = line.split(' ');
            // A line that the kill cut short has no number or a shorter one: both are smaller than the truth.
            if let (Some("ack"), Some(w), Some(n)) = (words.next(), words.next(), words.next())
                && let (Ok(w), Ok(n)) = (w.parse::<usize>(), n.parse::<u64>())
                && w < seen.len()
            {
                seen[w] = seen[w].max(n);
                // Nobody listens any more after the first.
                let _ = first_ack.send(());
            }
        }
        seen
    });
    // One round in four is killed while opening and recovering, the others while writing, flushing, compacting.
    if !after.as_nanos().is_multiple_of(4) {
        let _ = acked_once.recv_timeout(Duration::from_secs(20));
    }
    std::thread::sleep(after);
    if let Some(status) = child.try_wait().expect("wait") {
        panic!("the child ended by itself: {status}");
    }
    child.kill().expect("kill");
    child.wait().expect("wait");
    for (a, n) in acked.iter_mut().zip(reader.join().expect("reader")) {
        *a = n.max(*a);
    }
}

fn rounds() -> u64 {
    support::env_number("RINGDB_KILL_ROUNDS", 50)
}

#[test]
fn posix_loses_nothing() {
    rounds_on("posix", Durability::Process, rounds());
}

#[test]
fn libaio_loses_nothing() {
    rounds_on("libaio", Durability::Process, rounds());
}

#[test]
fn io_uring_loses_nothing() {
    rounds_on("io_uring", Durability::Process, rounds());
}

#[test]
fn sync_stores_lose_nothing() {
    for io in ["posix", "libaio", "io_uring"] {
        rounds_on(io, Durability::Sync, rounds().div_ceil(2));
    }
}
