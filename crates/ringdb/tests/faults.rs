//! A disk that dies at any of the store's operations: calls fail with a clear error, nothing hangs, reads go on,
//! and a later opening finds everything that was acknowledged.
#![allow(clippy::unwrap_used)]

#[path = "support/failing.rs"]
mod failing;
mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use failing::dying;
use ringdb::engineswap::{self, Io};
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

fn dies_everywhere(d: Durability, kind: engineswap::ErrorKind) {
    let o = options(d);
    let mut after = 0;
    let mut failures = 0;
    loop {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let (io, state) = dying(after, kind);
        let (acked, failed) = run(&path, io, &o);
        if let Some(e) = &failed {
            failures += 1;
            let sane = matches!(e.kind(), ErrorKind::Stop | ErrorKind::Retry);
            assert!(sane, "after {after} changes: {e}");
        }
        // Whatever state the disk was left in, it opens on a healthy one.
        let db = Db::open(&path, o.clone()).unwrap_or_else(|e| panic!("after {after} changes: {e}"));
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
        if failed.is_none() && state.left() > 0 {
            break;
        }
        after += if after < 40 { 1 } else { 1 + after / 16 };
    }
    assert!(failures > 20, "only {failures} runs have failed");
}

#[test]
fn a_disk_that_dies_loses_nothing_acknowledged() {
    dies_everywhere(Durability::Process, engineswap::ErrorKind::Io);
}

#[test]
fn a_disk_that_dies_under_a_sync_store_loses_nothing_acknowledged() {
    dies_everywhere(Durability::Sync, engineswap::ErrorKind::Io);
}

#[test]
fn a_disk_that_is_full_loses_nothing_acknowledged() {
    dies_everywhere(Durability::Process, engineswap::ErrorKind::NoSpace);
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
