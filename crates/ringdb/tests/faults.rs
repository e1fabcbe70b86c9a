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
