//! What a read-only open believes: beside a writer anything may look damaged once, and nothing twice at one place.
#![allow(clippy::unwrap_used)] // a test

use crate::failing;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringdb::engineswap::{ErrorKind as IoErrorKind, Io};
use ringdb::{Db, Durability, Env, Error, Join, Options, Result, SystemEnv};

type Happen = Box<dyn FnMut(u64) + Send>;

/// Calls something between two tries of an open, which sleeps there, with the number of tries so far.
struct BetweenTries {
    env: Arc<dyn Env>,
    tries: AtomicU64,
    happen: Mutex<Happen>,
}

impl Env for BetweenTries {
    fn now(&self) -> Duration {
        self.env.now()
    }
    fn sleep(&self, _: Duration) {
        let tries = self.tries.fetch_add(1, SeqCst) + 1;
        (self.happen.lock().unwrap())(tries);
    }
    fn spawn(&self, name: &str, background: bool, f: Box<dyn FnOnce() + Send>) -> std::io::Result<Join> {
        self.env.spawn(name, background, f)
    }
    fn random(&self) -> u64 {
        self.env.random()
    }
}

fn options() -> Options {
    Options::default()
        .with_io("posix")
        .with_memtable_bytes(1 << 20)
        .with_log_segment_bytes(64 << 10)
        .with_cache_bytes(4 << 20)
        .with_background_threads(1)
        .with_durability(Durability::Sync)
}

/// Opens read-only; also how many tries it took.
fn open(dir: &Path, o: Options, io: Io, happen: impl FnMut(u64) + Send + 'static) -> (Result<Db>, u64) {
    let happen = Mutex::new(Box::new(happen) as Happen);
    let env = Arc::new(BetweenTries { env: SystemEnv::shared(), tries: AtomicU64::new(0), happen });
    let opened = Db::open_read_only_with_env(dir, o, io, env.clone());
    (opened, env.tries.load(SeqCst) + 1)
}

fn fill(db: &Db, base: u8) {
    (1..=10).for_each(|n| db.put([n], [base + n; 2000]).unwrap());
}

/// A store with ten values in its log, `[n; 2000]` each.
fn store() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options()).unwrap();
    fill(&db, 0);
    (dir, db)
}

/// Flips a bit in the frame of a value of the log; once more, and it is whole again.
fn flip(dir: &Path, n: u8) {
    let logs = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let logs = logs.filter(|p| p.extension().is_some_and(|e| e == "log"));
    let find = |p: PathBuf| {
        let bytes = fs::read(&p).unwrap();
        let at = bytes.windows(1000).position(|w| w == [n; 1000])?;
        Some((p, bytes, at))
    };
    let (path, mut bytes, at) = logs.filter_map(find).next().unwrap();
    // Behind the thousand bytes that it is found by.
    bytes[at + 1500] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Opens with these frames damaged, one in each try, 0 for none.
fn open_with_damage(recover: bool, of_tries: &'static [u8]) -> (Result<Db>, u64) {
    let (dir, _writer) = store();
    let at = dir.path().to_path_buf();
    let flip_of = move |at: &Path, tries: u64| {
        of_tries.get(tries as usize).filter(|n| **n > 0).into_iter().for_each(|n| flip(at, *n));
    };
    flip_of(&at, 0);
    let o = options().with_recover_damaged_log(recover);
    open(dir.path(), o, Io::from_uri("posix").unwrap(), move |tries| {
        flip_of(&at, tries - 1);
        flip_of(&at, tries);
    })
}

#[test]
fn damage_that_is_met_once_at_a_place_is_none() {
    for recover in [false, true] {
        for of_tries in [&[3, 0][..], &[3, 5, 0], &[3, 5, 3, 5, 7, 3, 0], &[9, 8, 7, 6, 5, 4, 3, 2, 0]] {
            let (db, tries) = open_with_damage(recover, of_tries);
            let db = db.unwrap_or_else(|e| panic!("{of_tries:?}: {e}"));
            assert_eq!(db.stats().recovered_damage, None, "{of_tries:?}");
            assert_eq!(db.iter().count(), 10);
            assert_eq!(tries, of_tries.len() as u64);
        }
    }
}

#[test]
fn damage_that_is_met_twice_in_a_row_at_a_place_is_told() {
    for of_tries in [&[3, 3, 0][..], &[5, 3, 3, 0], &[3, 5, 3, 3, 0]] {
        let (db, tries) = open_with_damage(false, of_tries);
        let e = db.unwrap_err();
        assert!(matches!(e, Error::Corrupt { offset: Some(_), .. }), "{of_tries:?}: {e}");
        assert_eq!(tries, of_tries.len() as u64 - 1);
        let (db, tries) = open_with_damage(true, of_tries);
        let db = db.unwrap();
        assert!(db.stats().recovered_damage.is_some(), "{of_tries:?}");
        assert_eq!(db.iter().count(), 2, "what precedes it");
        assert_eq!(tries, of_tries.len() as u64 - 1);
    }
}

/// A writer that releases log segments during each of the first tries makes no later damage believed sooner.
#[test]
fn tries_that_the_writer_was_too_fast_for_prove_nothing() {
    const FAST: u64 = 6;
    let (dir, db) = store();
    let (io, disk) = failing::dying(i64::MAX, IoErrorKind::Io);
    let steps = Arc::new(AtomicU64::new(0));
    let counted = steps.clone();
    disk.before_reads(move || {
        counted.fetch_add(1, SeqCst);
    });
    let (quiet, tries) = open(dir.path(), options(), io.clone(), |_| {});
    assert_eq!((quiet.unwrap().iter().count(), tries), (10, 1));
    // The manifest is read first and last: in the middle it is the log.
    let middle = steps.swap(0, SeqCst) / 2;
    let (counted, flushed, writer) = (steps.clone(), Arc::new(AtomicU64::new(0)), db.clone());
    let flushes = flushed.clone();
    disk.before_reads(move || {
        if counted.fetch_add(1, SeqCst) == middle && flushes.load(SeqCst) < FAST {
            let round = flushes.fetch_add(1, SeqCst) + 1;
            // More than a segment, so that a flush releases one.
            (0..3).for_each(|_| fill(&writer, 200));
            writer.flush().unwrap();
            fill(&writer, 20 * round as u8);
        }
    });
    let at = dir.path().to_path_buf();
    let (opened, tries) = open(dir.path(), options(), io, move |tries| {
        steps.store(0, SeqCst);
        if (FAST..=FAST + 1).contains(&tries) {
            flip(&at, 20 * FAST as u8 + 3);
        }
    });
    let reader = opened.unwrap();
    assert_eq!(reader.stats().recovered_damage, None);
    assert_eq!(reader.iter().count(), 10);
    assert_eq!((flushed.load(SeqCst), tries), (FAST, FAST + 2));
}
