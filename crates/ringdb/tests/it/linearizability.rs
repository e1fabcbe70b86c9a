//! Concurrent puts, deletes, merges, batches across keyspaces, gets, multi-gets, scans, snapshots, updates and
//! transactions, recorded and checked to be linearizable (transactions: strictly serializable), while flushes and
//! compactions go on.
//!
//! `RINGDB_LINEAR_MS` sets the time for each engine and medium (1500 by default), `RINGDB_SEED` the calls.
#![allow(missing_docs)]

use crate::linear;
use crate::support;

use std::time::{Duration, Instant};

use linear::{Call, KEYS, Recorder, check};
use ringdb::{Db, Durability, Options};

fn spawn(f: linear::Body) -> linear::Wait {
    let t = std::thread::spawn(f);
    Box::new(move || t.join().expect("a thread of the history"))
}

fn histories(io: &str, durability: Durability) {
    let time = Duration::from_millis(support::env_number("RINGDB_LINEAR_MS", 1500));
    let seed = support::seed(&format!("linearizability on {io}, {durability:?}"));
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temp dir");
    let options = Options::default()
        .with_io(io)
        .with_durability(durability)
        .with_memtable_bytes(64 << 10)
        .with_cache_bytes(8 << 20)
        .with_background_threads(2);
    let store = Recorder::new(Db::open(dir.path(), options).expect("open"));
    let (until, mut n, mut calls) = (Instant::now() + time, 0, 0);
    let mut state = store.state();
    while Instant::now() < until {
        let history = store.record(seed.wrapping_add(n), 4, 12, spawn);
        calls += history.len();
        if let Err(why) = check(state, &history) {
            panic!("history {n} of seed {seed}: {why}");
        }
        state = store.state();
        n += 1;
    }
    println!(
        "linearizability on {io}, {durability:?}: {n} histories of {calls} calls, {} flushes",
        store.db.stats().flushes
    );
    assert!(n > 0);
}

#[test]
fn histories_on_a_process_store() {
    support::engines().into_iter().for_each(|io| histories(io, Durability::Process));
}

#[test]
fn histories_on_a_sync_store() {
    support::engines().into_iter().for_each(|io| histories(io, Durability::Sync));
}

/// Transactions that have read what another has overwritten: each pair is in no order, though each alone is.
#[test]
fn the_check_rejects_what_snapshot_isolation_allows() {
    let none = [0; KEYS];
    let both = |a: Call, b: Call| check(none, &[a, b]);
    // Write skew.
    both(call(&[(0, 0), (1, 0)], &[(0, 1)], 0, 9), call(&[(0, 0), (1, 0)], &[(1, 1)], 1, 8))
        .expect_err("skew");
    // A lost update.
    both(call(&[(0, 0)], &[(0, 1)], 0, 9), call(&[(0, 0)], &[(0, 2)], 1, 8)).expect_err("a lost update");
    both(call(&[(0, 0)], &[(0, 1)], 0, 9), call(&[(0, 1)], &[(0, 2)], 1, 8)).expect("one after the other");
}

fn call(reads: &[(usize, u32)], writes: &[(usize, u32)], begin: u64, end: u64) -> Call {
    Call { reads: reads.to_vec(), writes: writes.to_vec(), add: 0, begin, end, what: "made up" }
}

#[test]
fn the_check_accepts_what_overlaps_and_rejects_what_cannot_be() {
    let none = [0; KEYS];
    // A read that overlaps a write may see it or not.
    for seen in [0, 7] {
        check(none, &[call(&[], &[(0, 7)], 0, 3), call(&[(0, seen)], &[], 1, 2)]).expect("both are in order");
    }
    let rejected: &[(&str, Vec<Call>)] = &[
        ("a stale read", vec![call(&[], &[(0, 7)], 0, 1), call(&[(0, 0)], &[], 2, 3)]),
        ("a value that nobody wrote", vec![call(&[], &[(0, 7)], 0, 3), call(&[(0, 8)], &[], 1, 2)]),
        ("half a batch", vec![call(&[], &[(0, 7), (1, 7)], 0, 3), call(&[(0, 7), (1, 0)], &[], 1, 2)]),
        (
            "two readers who see two writes in different orders",
            vec![
                call(&[], &[(0, 1)], 0, 9),
                call(&[], &[(1, 1)], 0, 9),
                call(&[(0, 1), (1, 0)], &[], 1, 8),
                call(&[(0, 0), (1, 1)], &[], 1, 8),
            ],
        ),
        (
            "a value that comes back",
            vec![
                call(&[], &[(0, 1)], 0, 1),
                call(&[], &[(0, 2)], 2, 9),
                call(&[(0, 2)], &[], 3, 4),
                call(&[(0, 1)], &[], 5, 6),
            ],
        ),
    ];
    for (what, calls) in rejected {
        check(none, calls).expect_err(what);
    }
}

#[test]
fn a_doctored_history_is_rejected() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temp dir");
    let store = Recorder::new(Db::open(dir.path(), Options::default()).expect("open"));
    let history = store.record(support::seed("doctored"), 4, 20, spawn);
    check([0; KEYS], &history).expect("as it was");
    // Each read that saw a value, changed to one that was never written.
    let mut tried = 0;
    for i in 0..history.len() {
        let mut h = history.clone();
        let Some(read) = h[i].reads.first_mut() else { continue };
        read.1 += 100_000;
        check([0; KEYS], &h).expect_err("a value out of nowhere");
        tried += 1;
    }
    assert!(tried > 5);
}
