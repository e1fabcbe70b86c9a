//! Faults under a database with synced writes: what RocksDB is told, and what is there afterwards.
//!
//! - The kernel's errors, injected by strace into the plain system calls and into those that submit and wait.
//! - Short and interrupted transfers, by a shared object that cuts them.
//! - The process killed at any time: ENGINESWAP_KILL_ROUNDS (default 3) rounds on each engine, buffered and direct.
//!
//! In all of them every acknowledged write is found again after RocksDB's own recovery.

#![allow(clippy::unwrap_used)] // a test

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rocksdb_plugin_tests::{
    ENGINES, good, have, place, plugin, run, short_transfers, store, text, under, uri,
};

/// Reopens without faults, and checks what was acknowledged. Says how many keys there are.
fn check(plugin: &Path, store: &Path, engine: &str, db: &Path, flags: &str, what: &str) -> u64 {
    let text = good(under(plugin, store).args(["check", &uri(engine)]).arg(db).arg(flags));
    let n = text.lines().find_map(|l| l.strip_prefix("checked ")?.parse().ok());
    n.unwrap_or_else(|| panic!("{what}: {text}"))
}

/// One run of writes with a fault from the `after`th call on; what it printed.
fn with_fault(engine: &str, flags: &str, calls: &str, fault: &str) -> Option<String> {
    let (plugin, store) = (plugin()?, store()?);
    let dir = place();
    let db = dir.path().join("db");
    // A store that works, and something in it.
    let first = good(under(plugin, store).args(["write", &uri(engine)]).arg(&db).args(["60", flags]));
    if first.contains("skipped") {
        println!("{engine}: {first}");
        return None;
    }
    let what = format!("{engine} {flags} {calls}:{fault}");
    let mut c = Command::new("strace");
    c.args(["-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
    c.args(["-e", &format!("inject={calls}:{fault}"), "-E", &format!("LD_PRELOAD={}", plugin.display())]);
    c.env_remove("ENGINESWAP").arg(store).args(["write", &uri(engine)]).arg(&db).args(["400", flags]);
    let out = run(&mut c);
    let printed = text(&out);
    assert!(out.status.success() && printed.contains("status "), "{what}: {}\n{printed}", out.status);
    let found = check(plugin, store, engine, &db, flags, &what);
    assert!(found >= 60, "{what}: {found} keys");
    // With another engine too, and writes go on.
    good(under(plugin, store).args(["write", &uri("posix")]).arg(&db).args(["50", flags]));
    assert!(check(plugin, store, "posix", &db, flags, &what) >= found + 50, "{what}");
    Some(printed)
}

/// The line `status CODE SUBCODE TEXT` of a run that had to fail.
fn failed_with<'a>(printed: &'a str, what: &str) -> (&'a str, &'a str) {
    let line = printed.lines().find_map(|l| l.strip_prefix("status ")).unwrap();
    let (code, rest) = line.split_once(' ').unwrap();
    assert_ne!(code, "0", "{what}: the fault was not noticed: {printed}");
    (code, rest)
}

fn strace_works() -> bool {
    have("strace", &["-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=write", "true"])
}

const WRITES: &str = "pwrite64,pwritev,pwritev2,writev,io_submit";

/// Every write from some time on fails: the database must stop with the kernel's reason.
#[test]
fn writes_that_fail_for_good() {
    if !strace_works() {
        return;
    }
    // Status::kIOError is 5; kNoSpace is its subcode 4.
    for (engine, error, code, part) in [
        ("posix", "EIO", "5", "nput/output error"),
        ("posix", "ENOSPC", "5", "4 "),
        ("libaio", "EIO", "5", "nput/output error"),
        ("io_uring", "ENOSPC", "5", "4 "),
    ] {
        let what = format!("{engine} {error}");
        let Some(printed) = with_fault(engine, "-", WRITES, &format!("error={error}:when=30+")) else {
            continue;
        };
        let (got, rest) = failed_with(&printed, &what);
        assert!(got == code && rest.contains(part), "{what}: {printed}");
    }
}

/// A sync that fails once: never is the write acknowledged that it was for, nor a later one on the same file.
#[test]
fn syncs_that_fail() {
    if !strace_works() {
        return;
    }
    for engine in ENGINES {
        let Some(printed) = with_fault(engine, "-", "fdatasync,fsync", "error=EIO:when=20") else { continue };
        let (code, _) = failed_with(&printed, engine);
        assert_eq!(code, "5", "{engine}: {printed}");
    }
    // "Not supported" is a failure too: RocksDB would take that status for a file system that needs no syncs.
    if let Some(printed) = with_fault("posix", "-", "fdatasync,fsync", "error=EOPNOTSUPP:when=20+") {
        let (code, _) = failed_with(&printed, "EOPNOTSUPP");
        assert_eq!(code, "5", "{printed}");
    }
    for (engine, flags) in [("io_uring", "d"), ("posix", "m")] {
        let Some(printed) = with_fault(engine, flags, "fdatasync,fsync", "error=ENOSPC:when=25+") else {
            continue;
        };
        failed_with(&printed, engine);
    }
}

/// Single faults at many places: in the log, a table, the manifest, or the information log. Whether RocksDB stops or
/// goes on is its decision; nothing acknowledged may be lost.
#[test]
fn single_faults_anywhere() {
    if !strace_works() {
        return;
    }
    let cases = [
        ("posix", "d", WRITES, "error=EIO:when=7"),
        ("posix", "-", WRITES, "error=ENOSPC:when=90+37"),
        ("libaio", "d", "io_submit", "error=EIO:when=3"),
        ("libaio", "d", "io_getevents,io_pgetevents", "error=EINTR:when=2+3"),
        ("io_uring", "d", "io_uring_enter", "error=EINTR:when=2+3"),
        ("io_uring", "d", "io_uring_enter", "error=EAGAIN:when=3+4"),
        ("io_uring", "d", "openat", "error=EMFILE:when=40+9"),
        ("io_uring", "d", "fallocate", "error=EOPNOTSUPP:when=1+"),
        ("io_uring", "-", "sync_file_range", "error=EIO:when=2+5"),
        ("posix", "-", "renameat,renameat2,rename", "error=EIO:when=2+"),
        ("posix", "-", "fdatasync,fsync", "error=EINTR:when=3+2"),
    ];
    for (engine, flags, calls, fault) in cases {
        with_fault(engine, flags, calls, fault);
    }
}

/// Interruptions are not errors: everything is written.
#[test]
fn interruptions_are_retried() {
    if !strace_works() {
        return;
    }
    for (engine, calls) in
        [("posix", WRITES), ("libaio", "pwrite64,io_getevents"), ("io_uring", "pwrite64,io_uring_enter")]
    {
        let Some(printed) = with_fault(engine, "d", calls, "error=EINTR:when=2+2") else { continue };
        assert!(printed.contains("status 0 0 OK"), "{engine}: {printed}");
    }
}

/// Short transfers are continued: everything is written and read.
#[test]
fn short_transfers_are_continued() {
    let (Some(plugin), Some(store), Some(short)) = (plugin(), store(), short_transfers()) else { return };
    for engine in ENGINES {
        for flags in ["-", "d"] {
            let dir = place();
            let db = dir.path().join("db");
            let mut preload = short.as_os_str().to_owned();
            preload.push(":");
            preload.push(plugin);
            for command in [&["write"][..], &["check"]] {
                let mut c = under(plugin, store);
                c.env("LD_PRELOAD", &preload).args(command).arg(uri(engine)).arg(&db);
                if command == ["write"] {
                    c.arg("300");
                }
                let text = good(c.arg(flags));
                let fine = ["status 0 0 OK", "checked 300", "skipped"].iter().any(|p| text.contains(p));
                assert!(fine, "{engine} {flags}: {text}");
            }
            check(plugin, store, engine, &db, flags, engine);
        }
    }
}

#[test]
fn killed_at_any_time() {
    let (Some(plugin), Some(store)) = (plugin(), store()) else { return };
    let rounds = std::env::var("ENGINESWAP_KILL_ROUNDS").map_or(3, |r| r.parse().unwrap());
    for (i, engine) in ENGINES.into_iter().enumerate() {
        for flags in ["-", "d", "rp"] {
            let dir = place();
            let db = dir.path().join("db");
            let mut last = 0;
            for round in 0..rounds {
                let mut c = under(plugin, store);
                c.args(["write", &uri(engine)]).arg(&db).args(["1000000", flags]);
                let mut child = c.stdout(Stdio::null()).stdin(Stdio::null()).spawn().unwrap();
                // Different places of a run, the first ones while it opens.
                std::thread::sleep(Duration::from_millis(40 + (round * 97 + i as u64 * 31) % 260));
                child.kill().unwrap();
                child.wait().unwrap();
                let reader = ENGINES[(i + round as usize) % ENGINES.len()];
                let now =
                    check(plugin, store, reader, &db, flags, &format!("{engine} {flags}, round {round}"));
                assert!(now >= last, "{engine}: {last} then {now}");
                last = now;
            }
            println!("{engine} {flags}: {last} keys after {rounds} kills");
        }
    }
}
