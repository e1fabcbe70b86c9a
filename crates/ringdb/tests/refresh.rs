//! A read-only store that catches up ([`Db::refresh`]) beside a second process that writes, flushes, compacts, deletes
//! ranges, recycles log segments, begins manifests, and is killed (SIGKILL) and started again and again.
//!
//! `RINGDB_REFRESH_ROUNDS` sets how often the writer is killed, for each durability (4 by default).

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ringdb::{Db, Durability, Options, Snapshot, WriteBatch, WriteOptions};
use support::Rng;

/// Step `i` writes `i` to a ring of so many keys, to the two counters, and now and then deletes a range of the ring.
const RING: u64 = 500;
const DELETE_EVERY: u64 = 97;
const DELETED: u64 = 40;

fn options(durability: Durability) -> Options {
    Options::default()
        .with_io("posix")
        .with_durability(durability)
        .with_cache_bytes(4 << 20)
        .with_memtable_bytes(128 << 10)
        .with_log_segment_bytes(64 << 10)
        .with_table_bytes(128 << 10)
        .with_manifest_bytes(8 << 10)
}

fn ring_key(n: u64) -> String {
    format!("ring{:06}", n % RING)
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().expect("a number"))
}

/// Where the range that step `i` deletes begins, if it deletes one. It never holds the key that `i` writes.
fn deleted_at(i: u64) -> Option<u64> {
    i.is_multiple_of(DELETE_EVERY).then_some((i + 7) % RING).filter(|from| from + DELETED < RING)
}

/// What step `i` leaves in each place of the ring, 0 for nothing.
fn ring_at(i: u64) -> Vec<u64> {
    let mut ring = vec![0; RING as usize];
    // Every place has been written in the last round.
    for step in i.saturating_sub(2 * RING).max(1)..=i {
        if let Some(from) = deleted_at(step) {
            ring[from as usize..(from + DELETED) as usize].fill(0);
        }
        ring[(step % RING) as usize] = step;
    }
    ring
}

/// The child: not a test of its own, it does something only when the parent has set the variables.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(dir) = std::env::var("RINGDB_REFRESH_DIR") else { return };
    let sync = std::env::var("RINGDB_REFRESH_SYNC").is_ok();
    let durability = if sync { Durability::Sync } else { Durability::Process };
    let dir = Path::new(&dir);
    let db = Db::open(dir.join("store"), options(durability)).expect("open");
    let mut i = db.get("one").expect("get").map_or(0, |v| number(&v));
    let acks =
        fs::File::options().create(true).write(true).truncate(false).open(dir.join("acks")).expect("acks");
    let filler = vec![7; 300];
    loop {
        i += 1;
        let mut batch = WriteBatch::new();
        let value = [&i.to_le_bytes()[..], &filler].concat();
        if let Some(from) = deleted_at(i) {
            batch.delete_range(ring_key(from)..ring_key(from + DELETED));
        }
        batch.put("one", &value);
        batch.put(ring_key(i), &value);
        batch.put("two", &value);
        db.write(batch, &WriteOptions::default()).expect("write");
        std::os::unix::fs::FileExt::write_all_at(&acks, &i.to_le_bytes(), 0).expect("ack");
        match i % 4000 {
            1000 => db.flush().expect("flush"),
            2000 => db.compact_range(..).expect("compact"),
            3000 => drop(db.keyspace(&format!("space{}", i / 4000)).expect("keyspace")),
            _ => {}
        }
    }
}

fn start(dir: &Path, durability: Durability) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--exact", "child_writes_until_it_is_killed", "--nocapture", "--test-threads=1"]);
    command.env("RINGDB_REFRESH_DIR", dir).stdout(Stdio::null());
    if durability == Durability::Sync {
        command.env("RINGDB_REFRESH_SYNC", "1");
    }
    command.spawn().expect("child")
}

fn acked(dir: &Path) -> u64 {
    fs::read(dir.join("acks")).ok().filter(|b| b.len() == 8).map_or(0, |b| number(&b))
}

/// The step that a snapshot is of; fails if it is not exactly that.
fn step_of(s: &Snapshot) -> u64 {
    let counters = s.multi_get(&["one", "two"]).expect("multi_get");
    let [one, two] = [&counters[0], &counters[1]].map(|v| v.as_deref().map_or(0, number));
    assert_eq!(one, two, "a batch is seen whole");
    one
}

fn check_ring(s: &Snapshot, step: u64) {
    let mut ring = vec![0; RING as usize];
    for pair in s.prefix("ring") {
        let (key, value) = pair.expect("iterate");
        let place: usize = std::str::from_utf8(&key[4..]).expect("digits").parse().expect("digits");
        ring[place] = number(&value);
    }
    assert_eq!(ring, ring_at(step), "as of step {step}");
}

/// A reader beside writers that are killed `rounds` times; how often it has moved on.
fn follow(durability: Durability, rounds: u64) -> u64 {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temp dir");
    let (dir, store) = (dir.path(), dir.path().join("store"));
    let mut rng = Rng(support::seed(&format!("refresh, {durability:?}")));
    Db::open(&store, options(durability)).expect("make").close().expect("close");
    let reader = Db::open_read_only(&store, options(durability)).expect("open read-only");
    let (mut newest, mut moves) = (0, 0);
    let mut old: Vec<(Snapshot, u64)> = Vec::new();
    for _ in 0..rounds {
        let mut child = start(dir, durability);
        let until = Instant::now() + Duration::from_millis(1200 + rng.below(600));
        while Instant::now() < until {
            assert!(child.try_wait().expect("wait").is_none(), "the child ended by itself");
            let least = acked(dir);
            moves += u64::from(reader.refresh().expect("refresh"));
            let s = reader.snapshot();
            let step = step_of(&s);
            assert!(step >= newest && step >= least, "step {step} after {newest}, {least} was acknowledged");
            newest = step;
            check_ring(&s, step);
            old.push((s, step));
            if old.len() > 8 {
                let (s, step) = old.swap_remove(rng.below(8) as usize);
                assert_eq!(step_of(&s), step, "a snapshot stays as it was");
                check_ring(&s, step);
            }
        }
        child.kill().expect("kill");
        child.wait().expect("wait");
        // A process that dies takes nothing with it, and nothing moves any more.
        let least = acked(dir);
        reader.refresh().expect("refresh beside nobody");
        newest = step_of(&reader.snapshot());
        assert!(newest >= least);
        assert!(!reader.refresh().expect("refresh again"), "nothing is new");
    }
    assert_eq!(reader.stats().recovered_damage, None);
    // What the next open for writing finds is what the reader has seen.
    let db = Db::open(&store, options(durability)).expect("open");
    assert_eq!(step_of(&db.snapshot()), newest);
    println!("refresh, {durability:?}: {rounds} rounds, {newest} steps, moved on {moves} times");
    moves
}

fn rounds() -> u64 {
    support::env_number("RINGDB_REFRESH_ROUNDS", 4)
}

#[test]
fn a_reader_follows_writers_that_are_killed() {
    assert!(follow(Durability::Process, rounds()) > 20);
}

#[test]
fn a_reader_follows_writers_that_sync() {
    assert!(follow(Durability::Sync, rounds().div_ceil(2)) > 10);
}
