//! Verbs on a store that another process has open, by its socket.
#![allow(clippy::unwrap_used)] // a test

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use common::{command, on};
use ringdb::socket::{Remote, Request};
use ringdb::{Db, Options};
use tempfile::tempdir;

/// The process that has the store open: not a test of its own, it does something only for a parent. It lives until its
/// standard input ends.
#[test]
fn child_serves_a_store() {
    let Ok(dir) = std::env::var("RINGDB_SOCKET_DIR") else { return };
    let on = std::env::var("RINGDB_SOCKET_OFF").is_err();
    let db = Db::open(&dir, Options::default().with_io("posix").with_socket(on)).unwrap();
    (0..1000).for_each(|i| db.put(format!("key{i:04}"), [7; 100]).unwrap());
    println!("\nready");
    let _ = std::io::stdin().read_to_end(&mut vec![]);
    db.close().unwrap();
}

struct Owner {
    child: Child,
    /// Kept: what a child prints at its end has to go somewhere.
    _stdout: BufReader<ChildStdout>,
    stdin: Option<ChildStdin>,
}

impl Owner {
    fn start(dir: &Path, off: bool) -> Owner {
        let mut c = Command::new(std::env::current_exe().unwrap());
        c.args(["--exact", "child_serves_a_store", "--nocapture", "--test-threads=1"]);
        c.env("RINGDB_SOCKET_DIR", dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        if off {
            c.env("RINGDB_SOCKET_OFF", "1");
        }
        let mut child = c.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        assert!(stdout.by_ref().lines().any(|l| l.unwrap() == "ready"));
        Owner { stdin: child.stdin.take(), child, _stdout: stdout }
    }

    fn end(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

/// A store's directory whose path is longer than an address of a socket may be.
fn long(dir: &Path) -> PathBuf {
    dir.join("x".repeat(150)).join("store")
}

#[test]
fn verbs_go_by_the_socket_of_the_process_that_has_the_store() {
    let tmp = tempdir().unwrap();
    for db in [tmp.path().join("db"), long(tmp.path())] {
        let db = &db;
        let owner = Owner::start(db, false);
        let mode = fs::metadata(db.join("SOCKET")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let stats = on(db, "stats --db DB --json").ok().json();
        // A reader's counters are 0.
        assert_eq!((&stats["via"], &stats["write_batches"]), (&"socket".into(), &1000.into()));
        assert!(on(db, "stats --db DB").ok().text().starts_with("of                   the process"));
        assert_eq!(on(db, "flush --db DB --json").ok().json()["via"], "socket");
        assert_eq!(on(db, "stats --db DB --json").ok().json()["table_entries"], 1000);
        let compacted = on(db, "compact --db DB --json --from key0100").ok().json();
        assert_eq!(compacted["via"], "socket");
        assert!(compacted["table_bytes_after"].as_u64().unwrap() > 0);
        on(db, "compact --db DB --keyspace none").fails(2, &["no keyspace 'none'"]);
        // Relative paths are those of the command.
        let here = tmp.path().join("here");
        fs::create_dir_all(&here).unwrap();
        let relative = |line: &str| command(common::words(db, line)).current_dir(&here).output().unwrap();
        let made = relative("checkpoint --db DB copy --json");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        assert_eq!(on(&here.join("copy"), "count --db DB").ok().text(), "1000\n");
        on(db, &format!("checkpoint --db DB {}/copy", here.display())).fails(2, &["new or empty directory"]);
        let made = relative("backup --db DB backups --json");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let report: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
        assert_eq!((&report["via"], &report["generation"]), (&"socket".into(), &1.into()));
        let again = on(db, &format!("backup --db DB {}/backups --keep 1", here.display())).ok();
        assert!(again.text().contains("generation 1 is removed"), "{}", again.text());
        // What is not upkeep is refused as ever.
        on(db, "put --db DB a b").fails(4, &["is open in another process"]);
        fs::remove_dir_all(&here).unwrap();
        owner.end();
        assert!(!db.join("SOCKET").exists());
        assert!(on(db, "stats --db DB --json").ok().json().get("via").is_none());
        assert!(on(db, "flush --db DB --json").ok().json().get("via").is_none());
    }
}

#[test]
fn without_a_socket_the_error_says_what_would_help() {
    let tmp = tempdir().unwrap();
    let db = &tmp.path().join("db");
    let owner = Owner::start(db, true);
    for line in ["flush --db DB", "compact --db DB", "checkpoint --db DB /tmp/nowhere"] {
        on(db, line).fails(4, &["is open in another process", "socket = false", "Stats::socket"]);
    }
    on(db, "stats --db DB").ok();
    owner.end();
}

#[test]
fn a_socket_that_a_killed_process_has_left_is_replaced() {
    let tmp = tempdir().unwrap();
    let db = &tmp.path().join("db");
    for _ in 0..3 {
        let owner = Owner::start(db, false);
        assert_eq!(on(db, "stats --db DB --json").ok().json()["via"], "socket");
        owner.kill();
        assert!(fs::symlink_metadata(db.join("SOCKET")).unwrap().file_type().is_socket());
        assert!(on(db, "stats --db DB --json").ok().json().get("via").is_none());
        on(db, "verify --db DB").ok();
    }
    assert_eq!(on(db, "count --db DB").ok().text(), "1000\n");
}

#[test]
fn whoever_misbehaves_stops_nobody_else() {
    let tmp = tempdir().unwrap();
    let db = &tmp.path().join("db");
    let owner = Owner::start(db, false);
    let before = owner.descriptors();
    let connect = || UnixStream::connect(db.join("SOCKET")).unwrap();
    // Another version, garbage, a frame that is too long: each is told, and hung up on.
    let mut newer = b"ringdbSK".to_vec();
    newer.extend([9, 0, 0, 0, 0, 0, 0, 0]);
    let mut huge = b"ringdbSK".to_vec();
    huge.extend([1, 0, 0, 0, 255, 255, 255, 255]);
    for (bytes, words) in
        [(newer, "speaks version 9"), (vec![b'x'; 16], "no frame"), (huge, "longer than it may be")]
    {
        let mut s = connect();
        s.write_all(&bytes).unwrap();
        let mut said = Vec::new();
        let _ = s.read_to_end(&mut said);
        assert!(String::from_utf8_lossy(&said).contains(words), "{}", String::from_utf8_lossy(&said));
    }
    // Some that say nothing, or half of a request, and do not go; others are served beside them.
    let mut slow: Vec<UnixStream> = (0..6).map(|_| connect()).collect();
    slow.iter_mut().for_each(|s| s.write_all(b"ringdbSK\x01\0").unwrap());
    assert_eq!(on(db, "stats --db DB --json").ok().json()["via"], "socket");
    // A hundred at once.
    std::thread::scope(|s| {
        for _ in 0..100 {
            s.spawn(|| {
                let remote = Remote::connect(db).unwrap().unwrap();
                assert!(remote.ask(&Request::Stats, |_, _| {}).unwrap().contains(r#""io":""#));
            });
        }
        for _ in 0..50 {
            assert!(owner.descriptors() <= before + 12, "{} descriptors", owner.descriptors());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    // Many of them stay: the others are told that it is busy, and are served when those have been given up.
    slow.extend((0..20).map(|_| connect()));
    assert_eq!(on(db, "stats --db DB --json").ok().json()["via"], "socket");
    // They do not keep it from ending either.
    slow.extend((0..4).map(|_| connect()));
    owner.end();
}
