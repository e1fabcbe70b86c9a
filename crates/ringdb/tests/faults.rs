//! A disk that dies at any of the store's operations: calls fail with a clear error, nothing hangs, reads go on,
//! and a later opening finds everything that was acknowledged.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use ringdb::engineswap::Io;
use ringdb::engineswap::sim::{CrashOutcome, Disk, Plan};
use ringdb::{Db, Durability, Env, Error, ErrorKind, Options, SystemEnv, WriteBatch, WriteOptions};

fn options(d: Durability) -> Options {
    Options::default()
        .with_cache_bytes(2 << 20)
        .with_memtable_bytes(64 << 10)
        .with_background_threads(1)
        .with_direct_reads(d == Durability::Sync)
        .with_durability(d)
}

/// A run of some writes, flushes and keyspaces, until the first failure; returns what was acknowledged.
fn run(dir: &Path, io: Io, o: &Options) -> (Vec<String>, Option<Error>) {
    let mut acked = Vec::new();
    let mut failed = None;
    let db = match Db::open_with_env(dir, o.clone(), io, SystemEnv::shared()) {
        Ok(db) => db,
        Err(e) => return (acked, Some(e)),
    };
    for i in 0..60 {
        let key = format!("{i:04}");
        let result = match i % 20 {
            7 => db.keyspace(&format!("ks{i}")).and_then(|ks| ks.put(&key, &key)),
            11 => db.flush(),
            13 => db.compact_range(..),
            _ => {
                let mut b = WriteBatch::new();
                b.put(&key, vec![b'v'; 3000]);
                b.put(format!("{key}-twin"), &key);
                let d = if i % 5 == 0 { Durability::Sync } else { o.durability };
                db.write(b, &WriteOptions::default().durability(d))
            }
        };
        match result {
            Ok(()) => acked.push(key),
            Err(e) => {
                failed = Some(e);
                break;
            }
        }
    }
    if let Some(Error::Stopped(_)) = failed {
        // Stopped is for good, and for writing only.
        assert!(matches!(db.put("more", "x"), Err(Error::Stopped(_))));
        assert!(db.stats().stopped.is_some());
    }
    check(&db, &acked);
    if failed.is_none() {
        failed = db.close().err();
    }
    (acked, failed)
}

fn check(db: &Db, acked: &[String]) {
    for key in acked {
        let i: u32 = key.parse().unwrap();
        match i % 20 {
            7 => {
                let ks = db.existing_keyspace(&format!("ks{i}")).unwrap().expect("an acknowledged keyspace");
                assert_eq!(ks.get(key).unwrap().unwrap(), key.as_bytes());
            }
            11 | 13 => {}
            _ => {
                assert_eq!(db.get(key).unwrap().expect("an acknowledged write").len(), 3000, "{key}");
                assert_eq!(db.get(format!("{key}-twin")).unwrap().unwrap(), key.as_bytes());
            }
        }
    }
}

/// `error` is what every change of the disk ends with, from the n-th on.
fn dies_everywhere(d: Durability, error: &str) {
    let o = options(d);
    let mut after = 0;
    let mut failures = 0;
    loop {
        let path = Path::new("/srv/db");
        let disk = Disk::new(after);
        let changes =
            "create,write,fsync,fdatasync,sync_dir,rename,unlink,link,mkdir,rmdir,truncate,allocate,map";
        disk.set_plan(Plan::parse(&format!("on {changes} after {after} {error}")).unwrap());
        let (acked, failed) = run(path, disk.io(), &o);
        if let Some(e) = &failed {
            failures += 1;
            let sane = matches!(e.kind(), ErrorKind::Stop | ErrorKind::Retry);
            assert!(sane, "after {after} changes: {e}");
        }
        let hit = !disk.faults_hit().is_empty();
        // Whatever state the disk was left in, it opens when it is healthy again.
        disk.set_plan(Plan::none());
        let db = Db::open_with_env(path, o.clone(), disk.io(), SystemEnv::shared())
            .unwrap_or_else(|e| panic!("after {after} changes: {e}"));
        check(&db, &acked);
        for kv in db.iter() {
            let (k, _) = kv.unwrap();
            let twin = String::from_utf8(k.into_vec()).unwrap();
            let other = twin.strip_suffix("-twin").map_or(format!("{twin}-twin"), str::to_string);
            assert!(db.get(&other).unwrap().is_some(), "after {after} changes: {twin} without {other}");
        }
        let report = db.verify().unwrap();
        assert!(report.is_ok(), "after {after} changes: {:?}", report.problems);
        db.put("works", "again").unwrap();
        db.close().unwrap();
        if failed.is_none() && !hit {
            break;
        }
        after += if after < 40 { 1 } else { 1 + after / 16 };
    }
    assert!(failures > 20, "only {failures} runs have failed");
}

#[test]
fn a_disk_that_dies_loses_nothing_acknowledged() {
    dies_everywhere(Durability::Process, "EIO");
}

#[test]
fn a_disk_that_dies_under_a_sync_store_loses_nothing_acknowledged() {
    dies_everywhere(Durability::Sync, "EIO");
}

#[test]
fn a_disk_that_is_full_loses_nothing_acknowledged() {
    dies_everywhere(Durability::Process, "ENOSPC");
}

/// A store in a full disk's directory with many parents, none of which was there.
fn deep() -> (Disk, &'static Path) {
    (Disk::new(1), Path::new("/srv/a/b/store"))
}

/// Found by the crash campaign: a second try found the parents there and did not make their names durable.
#[test]
fn a_second_try_makes_the_names_of_all_parents_durable() {
    for nth in 1..=4 {
        let (disk, path) = deep();
        let open = |disk: &Disk, path: &Path| {
            Db::open_with_env(path, options(Durability::Sync), disk.io(), SystemEnv::shared())
        };
        disk.set_plan(Plan::parse(&format!("on mkdir,sync_dir nth {nth} EIO")).unwrap());
        open(&disk, path).unwrap_err();
        let db = open(&disk, path).unwrap();
        db.put("k", "v").unwrap();
        let left = disk.crash(CrashOutcome::Nothing);
        assert_eq!(open(&left, path).unwrap().get("k").unwrap().as_deref(), Some(&b"v"[..]), "{nth}");

        let copy = Path::new("/srv/copies/of/today");
        disk.set_plan(Plan::parse(&format!("on mkdir,sync_dir nth {nth} EIO")).unwrap());
        db.checkpoint(copy).unwrap_err();
        if disk.files().iter().any(|f| f.starts_with(copy)) {
            continue;
        }
        db.checkpoint(copy).unwrap();
        let left = disk.crash(CrashOutcome::Nothing);
        assert_eq!(open(&left, copy).unwrap().get("k").unwrap().as_deref(), Some(&b"v"[..]), "{nth}");
    }
}

/// Found by the crash campaign: the error of a compaction that was not wanted any more was given to every later
/// flush and compaction.
#[test]
fn a_compaction_that_found_the_disk_full_is_forgotten_when_there_is_room() {
    let disk = Disk::new(1);
    let path = Path::new("/srv/db");
    let o = options(Durability::Process);
    let db = Db::open_with_env(path, o, disk.io(), SystemEnv::shared()).unwrap();
    for i in 0..2 {
        (0..40).for_each(|k| db.put(format!("{k:03}"), vec![i; 700]).unwrap());
        db.flush().unwrap();
    }
    db.wait_idle().unwrap();
    disk.set_plan(Plan::parse("on write *.sst ENOSPC").unwrap());
    assert_eq!(db.compact_range(..).unwrap_err().kind(), ErrorKind::Retry);
    disk.set_plan(Plan::none());
    db.put("more", "x").unwrap();
    // As long as the first delay before another try, and longer.
    std::thread::sleep(Duration::from_millis(300));
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    assert_eq!(db.stats().write_delay_reason, None);
    db.close().unwrap();
}

/// Passes everything on, but its clock stands still: what waits for a delay to pass waits for ever.
struct Standing(Arc<dyn Env>);

impl Env for Standing {
    fn now(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn sleep(&self, d: Duration) {
        self.0.sleep(d);
    }
    fn spawn(
        &self,
        name: &str,
        background: bool,
        f: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<ringdb::Join> {
        self.0.spawn(name, background, f)
    }
    fn random(&self) -> u64 {
        self.0.random()
    }
}

#[test]
fn the_passing_trouble_of_a_compaction_does_not_fail_a_flush() {
    let disk = Disk::new(1);
    let env = Arc::new(Standing(SystemEnv::shared()));
    let db = Db::open_with_env(Path::new("/srv/db"), options(Durability::Process), disk.io(), env).unwrap();
    for i in 0..2 {
        (0..40).for_each(|k| db.put(format!("{k:03}"), vec![i; 700]).unwrap());
        db.flush().unwrap();
    }
    disk.set_plan(Plan::parse("on write *.sst ENOSPC").unwrap());
    assert_eq!(db.compact_range(..).unwrap_err().kind(), ErrorKind::Retry);
    disk.set_plan(Plan::none());
    db.put("more", "x").unwrap();
    db.flush().unwrap();
}

/// Each kind of shortage comes while the store is at work, lasts for a while, and passes.
#[test]
fn a_store_goes_on_by_itself_when_a_shortage_ends() {
    let shortages = [
        "on open,create EMFILE",
        "on open,create ENFILE",
        "on open,create,map,allocate ENOMEM",
        "on submit ENOMEM",
        "on create,allocate ENOSPC",
        "on write MANIFEST* ENOSPC",
        "on write MANIFEST* full 100",
        "on write MANIFEST* ENOMEM",
    ];
    for (d, shortage) in
        [Durability::Process, Durability::Sync].into_iter().flat_map(|d| shortages.map(|s| (d, s)))
    {
        let what = format!("{d:?}, {shortage}");
        let disk = Disk::new(7);
        let path = Path::new("/srv/db");
        let db = Db::open_with_env(path, options(d), disk.io(), SystemEnv::shared()).unwrap();
        let shortage = Plan::parse(shortage).unwrap();
        let plenty = Plan::parse("on any nth 1 full 1000m").unwrap();
        // So much that memtables, log segments and compactions are needed. The shortage comes again and again.
        for i in 0..120 {
            if i % 30 == 0 {
                disk.set_plan(shortage.clone());
            }
            let mut tries = 0;
            while let Err(e) = db.put(format!("{i:04}"), vec![b'v'; 3000]) {
                assert_eq!(e.kind(), ErrorKind::Retry, "{what}: {e}");
                tries += 1;
                assert!(tries < 1000, "{what}: {e}");
                if tries == 3 {
                    disk.set_plan(plenty.clone());
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        disk.set_plan(plenty);
        let mut tries = 0;
        while let Err(e) = db.flush().and_then(|()| db.wait_idle()) {
            assert_eq!(e.kind(), ErrorKind::Retry, "{what}: {e}");
            tries += 1;
            assert!(tries < 1000, "{what}: {e}");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(db.stats().stopped, None, "{what}");
        assert!(!disk.faults_hit().is_empty(), "{what}");
        assert_eq!(db.iter().collect::<Result<Vec<_>, _>>().unwrap().len(), 120, "{what}");
        assert!(db.verify().unwrap().is_ok(), "{what}");
        drop(db);
        let left = disk.crash(CrashOutcome::Nothing);
        let db = Db::open_with_env(path, options(d), left.io(), SystemEnv::shared()).unwrap();
        assert_eq!(
            db.iter().collect::<Result<Vec<_>, _>>().unwrap().len(),
            120,
            "{what}: after a flush and a power cut"
        );
    }
}

/// The child of the next test, which does nothing without it.
#[test]
fn child_that_runs_out_of_descriptors() {
    let Ok(dir) = std::env::var("RINGDB_FEW_DESCRIPTORS") else { return };
    let sync = std::env::var("RINGDB_FEW_DESCRIPTORS_SYNC").is_ok();
    let d = if sync { Durability::Sync } else { Durability::Process };
    let db = Db::open(dir, options(d)).unwrap();
    let (mut said, mut changes, mut after) = ("", 0, 0);
    for i in 0u64.. {
        let now = match db
            .put(format!("{i:08}"), vec![b'v'; 3000])
            .and_then(|()| if i.is_multiple_of(64) { db.flush() } else { Ok(()) })
        {
            Ok(()) => "going",
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Retry, "{e}");
                std::thread::sleep(Duration::from_millis(5));
                "refused"
            }
        };
        if now != said {
            println!("{now}");
            (said, changes) = (now, changes + 1);
        }
        after += u32::from(changes >= 3 && now == "going");
        if after > 100 {
            break;
        }
    }
    assert_eq!(db.stats().stopped, None);
    while let Err(e) = db.flush() {
        assert_eq!(e.kind(), ErrorKind::Retry, "{e}");
        std::thread::sleep(Duration::from_millis(50));
    }
    db.close().unwrap();
    println!("closed");
}

/// A process at its limit of descriptors refuses writes, and goes on when the limit is raised.
#[test]
fn a_limit_of_descriptors_that_is_raised_again_stops_nothing() {
    use std::io::BufRead;
    use std::process::{Command, Stdio};
    for sync in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child_that_runs_out_of_descriptors", "--nocapture", "--test-threads=1"]);
        command.env("RINGDB_FEW_DESCRIPTORS", dir.path()).stdout(Stdio::piped());
        if sync {
            command.env("RINGDB_FEW_DESCRIPTORS_SYNC", "1");
        }
        let mut child = command.spawn().unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map(|l| l.unwrap());
        let mut wait_for =
            |word: &str| assert!(lines.any(|l| l.ends_with(word)), "the child never said {word}");
        let pid = child.id().to_string();
        let limit = |n: &str| {
            let done =
                Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={n}:")]).status().unwrap();
            assert!(done.success());
        };
        wait_for("going");
        limit("3");
        wait_for("refused");
        limit("512");
        wait_for("going");
        wait_for("closed");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_checkpoint_on_another_file_system_is_a_durable_copy() {
    let disk = Disk::new(1);
    let db =
        Db::open_with_env(Path::new("/srv/db"), options(Durability::Process), disk.io(), SystemEnv::shared());
    let db = db.unwrap();
    for i in 0..3 {
        (0..400).for_each(|k| db.put(format!("{i}{k:03}"), vec![i; 4000]).unwrap());
        db.flush().unwrap();
    }
    let copy = Path::new("/mnt/copy");
    // A copy that fails leaves nothing behind.
    disk.set_plan(Plan::parse("on link EXDEV; on write /mnt/* nth 3 ENOSPC").unwrap());
    assert_eq!(db.checkpoint(copy).unwrap_err().kind(), ErrorKind::Retry);
    assert!(!disk.files().iter().any(|f| f.starts_with(copy)), "{:?}", disk.files());
    disk.set_plan(Plan::parse("on link EXDEV").unwrap());
    db.checkpoint(copy).unwrap();
    assert!(disk.faults_hit()["link EXDEV"] > 0);
    db.put("later", "x").unwrap();
    let left = disk.crash(CrashOutcome::Nothing);
    let o = options(Durability::Process);
    let copied = Db::open_with_env(copy, o, left.io(), SystemEnv::shared()).unwrap();
    assert_eq!(copied.iter().collect::<Result<Vec<_>, _>>().unwrap().len(), 1200);
    assert!(copied.verify().unwrap().is_ok());
    assert!(db.verify().unwrap().is_ok());
}

/// Counts threads that were started and joined.
struct Counting {
    inner: Arc<dyn Env>,
    running: Arc<AtomicUsize>,
    started: AtomicUsize,
}

impl Env for Counting {
    fn now(&self) -> Duration {
        self.inner.now()
    }
    fn sleep(&self, d: Duration) {
        self.inner.sleep(d);
    }
    fn spawn(
        &self,
        name: &str,
        background: bool,
        f: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<ringdb::Join> {
        self.running.fetch_add(1, SeqCst);
        self.started.fetch_add(1, SeqCst);
        let running = self.running.clone();
        self.inner.spawn(
            name,
            background,
            Box::new(move || {
                f();
                running.fetch_sub(1, SeqCst);
            }),
        )
    }
    fn random(&self) -> u64 {
        self.inner.random()
    }
}

#[test]
fn every_thread_ends_with_the_store() {
    for close in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let running = Arc::new(AtomicUsize::new(0));
        let env = Arc::new(Counting {
            inner: SystemEnv::shared(),
            running: running.clone(),
            started: AtomicUsize::new(0),
        });
        let io = Io::from_uri("auto").unwrap();
        let db = Db::open_with_env(dir.path(), options(Durability::Process), io, env.clone()).unwrap();
        assert!(env.started.load(SeqCst) >= 2);
        for i in 0..3000u32 {
            db.put(format!("{:06}", i.wrapping_mul(2_654_435_761) % 100_000), vec![b'v'; 100]).unwrap();
        }
        let snapshot = db.snapshot();
        let it = db.iter();
        if close {
            db.close().unwrap();
            assert_eq!(running.load(SeqCst), 0);
        } else {
            drop(db);
            assert!(running.load(SeqCst) > 0, "a snapshot keeps the store open");
            drop(snapshot);
            assert_eq!(running.load(SeqCst), 0);
        }
        let before: Vec<_> = it.map(|kv| kv.unwrap()).collect();
        let db = Db::open(dir.path(), options(Durability::Process)).unwrap();
        assert!(before == db.iter().map(|kv| kv.unwrap()).collect::<Vec<_>>());
    }
}
