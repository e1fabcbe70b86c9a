//! A child process writes and is killed (SIGKILL) at random moments, again and again on one store: every
//! acknowledged write must be there, no batch half there.
//!
//! `RINGDB_KILL_ROUNDS` sets the rounds for each engine (50 by default).

mod support;
#[path = "support/writers.rs"]
mod writers;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringdb::{Db, Durability};
use support::Rng;
use writers::{Acks, Floor, check, options, write_for_ever};

/// The child: writes for ever. Not a test of its own: it does something only when the parent has set the variables.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(dir) = std::env::var("RINGDB_KILL_DIR") else { return };
    let io = std::env::var("RINGDB_KILL_IO").expect("engine");
    let sync = std::env::var("RINGDB_KILL_SYNC").is_ok();
    let durability = if sync { Durability::Sync } else { Durability::Process };
    panic!("{}", write_for_ever(Path::new(&dir), &io, durability));
}

fn rounds_on(io: &str, durability: Durability, rounds: u64) {
    if !support::engines().contains(&io) {
        return;
    }
    let mut rng = Rng(support::seed(&format!("kill on {io}, {durability:?}")));
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temp dir");
    let mut acked = Floor::default();
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

fn kill_one(dir: &Path, io: &str, durability: Durability, after: Duration, acked: &mut Floor) {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--exact", "child_writes_until_it_is_killed", "--nocapture", "--test-threads=1"]);
    command.env("RINGDB_KILL_DIR", dir).env("RINGDB_KILL_IO", io);
    if durability == Durability::Sync {
        command.env("RINGDB_KILL_SYNC", "1");
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("child");
    let acks = Acks::of(child.stdout.take().expect("stdout"));
    // One round in four is killed while opening and recovering, the others while writing, flushing, compacting.
    if !after.as_nanos().is_multiple_of(4) {
        acks.first(Duration::from_secs(20));
    }
    std::thread::sleep(after);
    if let Some(status) = child.try_wait().expect("wait") {
        panic!("the child ended by itself: {status}");
    }
    child.kill().expect("kill");
    child.wait().expect("wait");
    for (a, n) in acked.iter_mut().zip(acks.last().0) {
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
