//! The socket of a store that is open: there from open to close, and never in anybody's way.
#![cfg(feature = "socket")]
#![allow(clippy::unwrap_used)] // tests

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringdb::socket::{Error, Remote, Request};
use ringdb::{Db, Options};
use tempfile::tempdir;

fn options() -> Options {
    Options::default().with_io("posix").with_cache_bytes(4 << 20).with_background_threads(1)
}

fn open(dir: &Path) -> Db {
    Db::open(dir, options()).unwrap()
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
}

fn ask(dir: &Path, request: &Request) -> Result<String, Error> {
    Remote::connect(dir)?.expect("somebody has it open").ask(request, |_, _| {})
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_store_is_served_from_open_to_close_if_its_options_say_so() {
    let tmp = tempdir().unwrap();
    // One path is longer than an address has room for.
    for dir in [tmp.path().join("db"), tmp.path().join("x".repeat(200)).join("db")] {
        let socket = dir.join("SOCKET");
        let db = open(&dir);
        assert!(is_socket(&socket) && !dir.join("SOCKET.new").exists());
        assert_eq!(db.stats().socket, "on");
        db.put("k", "v").unwrap();
        assert!(ask(&dir, &Request::Stats).unwrap().contains(r#""write_batches":1"#));
        ask(&dir, &Request::Flush).unwrap();
        assert_eq!(db.stats().flushes, 1);
        // A reader beside it has none, and does not take it away.
        let reader = Db::open_read_only(&dir, options()).unwrap();
        assert_eq!(reader.stats().socket, "off");
        drop(reader);
        assert!(is_socket(&socket));
        db.close().unwrap();
        assert!(!socket.exists() && Remote::connect(&dir).unwrap().is_none());
        // Dropped instead of closed; by a handle that is not a `Db`.
        let keyspace = open(&dir).keyspace("other").unwrap();
        assert!(is_socket(&socket));
        drop(keyspace);
        assert!(!socket.exists());
        let db = Db::open(&dir, options().with_socket(false)).unwrap();
        assert_eq!(db.stats().socket, "off");
        assert!(!socket.exists());
        drop(db);
        // The directory is the simulated disk's: nothing appears on the real one.
        #[cfg(feature = "sim")]
        {
            let db = Db::open(&dir, Options::default().with_io("sim")).unwrap();
            assert!(db.stats().socket == "off" && !socket.exists());
        }
    }
}

#[test]
fn what_was_left_is_replaced_and_what_is_somebody_elses_is_not() {
    let tmp = tempdir().unwrap();
    let (dir, socket) = (tmp.path().join("db"), tmp.path().join("db/SOCKET"));
    drop(open(&dir));
    // Left by a process that was killed, at two moments.
    drop(UnixListener::bind(&socket).unwrap());
    fs::create_dir(dir.join("SOCKET.new")).unwrap();
    drop(UnixListener::bind(dir.join("SOCKET.new/s")).unwrap());
    assert!(Remote::connect(&dir).unwrap().is_none());
    let db = open(&dir);
    assert!(ask(&dir, &Request::Stats).is_ok() && !dir.join("SOCKET.new").exists());
    // One that another process has put there meanwhile is not removed.
    fs::remove_file(&socket).unwrap();
    let other = UnixListener::bind(&socket).unwrap();
    drop(db);
    assert!(is_socket(&socket));
    drop(other);
    fs::remove_file(&socket).unwrap();
    // A file of that name stays, and the store opens all the same.
    fs::write(&socket, "mine").unwrap();
    let db = open(&dir);
    let said = db.stats().socket;
    assert!(said.starts_with("off: ") && said.contains("is no socket"), "{said}");
    db.put("k", "v").unwrap();
    db.close().unwrap();
    assert_eq!(fs::read(&socket).unwrap(), b"mine");
    fs::remove_file(&socket).unwrap();
    // So does a directory with something in it where the socket is made.
    fs::create_dir(dir.join("SOCKET.new")).unwrap();
    fs::write(dir.join("SOCKET.new/mine"), "").unwrap();
    let db = open(&dir);
    assert!(db.stats().socket.contains("exists"), "{}", db.stats().socket);
    drop(db);
    Db::destroy(&dir, &options()).unwrap();
    assert_eq!(names(&dir), ["SOCKET.new"]);
}

#[test]
fn a_store_that_was_killed_is_removed_with_its_socket() {
    let tmp = tempdir().unwrap();
    let dir = tmp.path().join("db");
    for cut_short in [false, true] {
        drop(open(&dir));
        drop(UnixListener::bind(dir.join("SOCKET")).unwrap());
        fs::create_dir(dir.join("SOCKET.new")).unwrap();
        drop(UnixListener::bind(dir.join("SOCKET.new/s")).unwrap());
        if cut_short {
            // What a removal that was killed leaves is no store, but one can be made there.
            names(&dir).iter().filter(|n| !n.starts_with("SOCKET")).for_each(|n| {
                fs::remove_file(dir.join(n)).unwrap();
            });
            drop(open(&dir));
            drop(UnixListener::bind(dir.join("SOCKET")).unwrap());
        }
        Db::destroy(&dir, &options()).unwrap();
        assert!(!dir.exists());
    }
    drop(open(&dir));
    fs::write(dir.join("SOCKET"), "mine").unwrap();
    Db::destroy(&dir, &options()).unwrap();
    assert_eq!(names(&dir), ["SOCKET"]);
}

#[test]
fn who_may_write_in_the_directory_may_use_the_socket() {
    let tmp = tempdir().unwrap();
    for (dir_mode, mode) in [(0o755, 0o600), (0o700, 0o600), (0o775, 0o660), (0o777, 0o666), (0o1777, 0o660)]
    {
        let dir = tmp.path().join(format!("{dir_mode:o}"));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(dir_mode)).unwrap();
        let _db = open(&dir);
        let is = fs::metadata(dir.join("SOCKET")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(is, mode, "{dir_mode:o}: {is:o}");
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Not a test of its own: others' stores would be counted. It does something only for a parent.
#[test]
fn child_opens_many() {
    let Ok(dir) = std::env::var("RINGDB_SOCKET_MANY") else { return };
    let dir = Path::new(&dir);
    drop(open(&dir.join("first")));
    let before = (descriptors(), threads());
    for i in 0..1000 {
        let db = open(&dir.join(format!("{}", i % 4)));
        let silent = (i % 10 == 0).then(|| UnixStream::connect(dir.join(format!("{}/SOCKET", i % 4))));
        drop(db);
        drop(silent);
    }
    assert_eq!((descriptors(), threads()), before);
    // Many at once.
    let (mut without, mut with) = (vec![], vec![]);
    (0..40).for_each(|i| {
        without.push(Db::open(dir.join(format!("w{i}")), options().with_socket(false)).unwrap());
    });
    let each = descriptors() - before.0;
    (0..40).for_each(|i| with.push(open(&dir.join(format!("s{i}")))));
    assert_eq!(descriptors() - before.0 - each, each + 40);
    assert!(with.iter().all(|db| db.stats().socket == "on"));
    drop((with, without));
    assert_eq!((descriptors(), threads()), before);
    // Too few for the socket: the store opens, and says so.
    let mut held: Vec<File> = vec![];
    while let Ok(f) = File::open("/dev/null") {
        held.push(f);
    }
    let mut said = vec![];
    for _ in 0..60 {
        held.pop();
        if let Ok(db) = Db::open(dir.join("short"), options()) {
            said.push(db.stats().socket);
        }
    }
    assert!(said.first().unwrap().contains("Too many open files"), "{said:?}");
    assert_eq!(said.last().unwrap(), "on", "{said:?}");
}

#[test]
fn a_thousand_opens_leave_nothing_and_a_shortage_of_descriptors_stops_none() {
    // Without a disk, whose syncs would take all the time.
    let tmp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempdir()).unwrap();
    let out = Command::new("sh")
        .args(["-c", "ulimit -n 700 && exec \"$0\" --exact child_opens_many --nocapture --test-threads=1"])
        .arg(std::env::current_exe().unwrap())
        .env("RINGDB_SOCKET_MANY", tmp.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// Not a test of its own either: a process that dies of SIGPIPE, as programs in C do.
#[test]
fn child_has_the_usual_signals() {
    let Ok(dir) = std::env::var("RINGDB_SOCKET_SIGPIPE") else { return };
    // SAFETY: the default action of a signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let db = open(Path::new(&dir));
    println!("\nready");
    let _ = std::io::stdin().read_to_end(&mut vec![]);
    db.close().unwrap();
}

#[test]
fn a_client_that_hangs_up_does_not_end_the_process() {
    let tmp = tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_has_the_usual_signals", "--nocapture", "--test-threads=1"])
        .env("RINGDB_SOCKET_SIGPIPE", tmp.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    assert!(stdout.by_ref().lines().any(|l| l.unwrap() == "ready"));
    for i in 0..50 {
        let mut s = UnixStream::connect(tmp.path().join("SOCKET")).unwrap();
        if i % 2 == 0 {
            let mut request = b"ringdbSK\x01\0\0\0\x0e\0\0\0".to_vec();
            request.extend(br#"{"do":"stats"}"#);
            s.write_all(&request).unwrap();
        }
        drop(s);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(ask(tmp.path(), &Request::Stats).is_ok());
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_end_waits_for_nobody() {
    let tmp = tempdir().unwrap();
    let dir = tmp.path();
    let db = open(dir);
    for i in 0..40_000u32 {
        db.put(i.wrapping_mul(2_654_435_761).to_be_bytes(), [i as u8; 100]).unwrap();
    }
    // Some say nothing, one has something done, another copies; the last handle goes.
    let silent: Vec<UnixStream> = (0..4).map(|_| UnixStream::connect(dir.join("SOCKET")).unwrap()).collect();
    let compact = Arc::new(Request::Compact { keyspace: None, from: None, to: None });
    std::thread::scope(|s| {
        let asked = [
            s.spawn(|| ask(dir, &compact)),
            s.spawn(|| ask(dir, &Request::Flush)),
            s.spawn(|| ask(dir, &Request::Backup { to: b"/proc/nowhere".to_vec(), keep: None })),
        ];
        std::thread::sleep(Duration::from_millis(5));
        let began = Instant::now();
        drop(db);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        asked.into_iter().for_each(|a| drop(a.join().unwrap()));
    });
    drop(silent);
    let db = open(dir);
    assert_eq!(db.iter().count(), 40_000);
    // A request that comes when it is closed finds nobody.
    let remote = Remote::connect(dir).unwrap().unwrap();
    db.close().unwrap();
    assert!(remote.ask(&Request::Flush, |_, _| {}).is_err());
    // Wrong requests are told.
    let _db = open(dir);
    let e = ask(dir, &Request::Checkpoint { to: b"relative".to_vec() }).unwrap_err();
    assert!(matches!(&e, Error::Usage(m) if m.contains("not an absolute path")), "{e}");
    let none = Request::Compact { keyspace: Some("none".into()), from: None, to: None };
    assert!(matches!(ask(dir, &none), Err(Error::Usage(m)) if m.contains("no keyspace 'none'")));
}
