//! Log and manifest prove what is missing from each other: whatever is damaged, cut, exchanged, removed or
//! zeroed is told, or does no harm. And what only looks like damage beside a writer is not told.
#![allow(clippy::unwrap_used)] // a test

use crate::failing;
use crate::support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use ringdb::engineswap::ErrorKind as IoErrorKind;
use ringdb::engineswap::sim::{Disk, Plan};
use ringdb::{Db, Durability, Error, ErrorKind, Options, SalvageOptions, SystemEnv, WriteBatch, salvage};
use support::{Rng, env_number, seed};

fn options(durability: Durability) -> Options {
    Options::default()
        .with_io("posix")
        .with_memtable_bytes(1 << 20)
        .with_log_segment_bytes(64 << 10)
        .with_cache_bytes(4 << 20)
        .with_background_threads(1)
        .with_durability(durability)
}

/// What each key must be; a key that was deleted is there with `None`.
type Model = BTreeMap<String, Option<Vec<u8>>>;
type Write = (String, Option<Vec<u8>>);

/// Writes a history with flushes, compactions and keyspaces, and then some segments of log.
fn write(db: &Db, rng: &mut Rng) -> (Model, Vec<Write>) {
    let (mut model, mut tail) = (Model::new(), Vec::new());
    for n in 0..200u64 {
        let key = format!("{:03}", rng.below(60));
        let value = (!rng.chance(6)).then(|| vec![n as u8; 1 + rng.below(4000) as usize]);
        match &value {
            Some(v) => db.put(&key, v).unwrap(),
            None => db.delete(&key).unwrap(),
        }
        tail.push((key.clone(), value.clone()));
        model.insert(key, value);
        match n {
            30 | 90 => db.flush().unwrap(),
            60 => db.compact_range(..).unwrap(),
            100 => drop(db.keyspace("kept").unwrap()),
            101 => {
                drop(db.keyspace("gone").unwrap());
                db.drop_keyspace("gone").unwrap();
            }
            110 => db.flush().unwrap(),
            _ => {}
        }
    }
    db.put("999", "last-put!").unwrap();
    tail.push(("999".into(), Some(b"last-put!".to_vec())));
    model.insert("999".into(), Some(b"last-put!".to_vec()));
    (model, tail)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

fn named(dir: &Path, part: &str) -> Vec<PathBuf> {
    files(dir).into_iter().filter(|p| p.file_name().unwrap().to_str().unwrap().contains(part)).collect()
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    // The socket of a store that is open is none of its data.
    for f in files(from).iter().filter(|f| f.is_file()) {
        fs::copy(f, to.join(f.file_name().unwrap())).unwrap();
    }
}

/// The segments with a link of their own, so in use, of those that the store would replay.
fn used_segments(dir: &Path) -> Vec<PathBuf> {
    let used = |p: &PathBuf| fs::read(p).unwrap().get(4096 + 12) == Some(&1);
    named(dir, ".log").into_iter().filter(used).collect()
}

/// The last segment in use: that of the newest frames. (A recycled one may have a link of its former life.)
fn active_segment(dir: &Path) -> PathBuf {
    let holds = |p: &PathBuf| fs::read(p).unwrap().windows(9).any(|w| w == b"last-put!");
    named(dir, ".log").into_iter().find(holds).unwrap()
}

fn answers(db: &Db, model: &Model) -> Result<(), String> {
    let names = db.keyspaces().unwrap();
    if names != ["default", "kept"] && names != ["kept"] {
        return Err(format!("keyspaces {names:?}"));
    }
    for (key, value) in model {
        let got = db.get(key).map_err(|e| format!("error {e}"))?;
        if got.as_deref() != value.as_deref() {
            return Err(format!(
                "{key}: {:?} instead of {:?}",
                got.map(|v| v.len()),
                value.as_ref().map(Vec::len)
            ));
        }
    }
    let there = model.values().flatten().count();
    let found = db.iter().count();
    if found == there { Ok(()) } else { Err(format!("{found} keys instead of {there}")) }
}

/// How a store that was harmed answers: told, or right for one of the models. Then it is opened for writing, put to and
/// opened again, which may not make it worse.
fn told_or_right(dir: &Path, o: &Options, models: &[&Model], what: &str) -> bool {
    let right = |db: &Db| {
        let all: Vec<String> = models.iter().filter_map(|m| answers(db, m).err()).collect();
        // What a damaged table answers is an error, not wrong.
        all.len() < models.len() || all.iter().any(|e| e.contains("error")) || {
            eprintln!("{what}: {all:?}");
            false
        }
    };
    match Db::open_read_only(dir, o.clone()) {
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::Repair, "{what}: {e}");
            assert!(Db::open(dir, o.clone()).is_err(), "{what}: told to readers only");
            return true;
        }
        Ok(db) if db.stats().recovered_damage.is_some() => return true,
        Ok(db) => assert!(right(&db), "{what}: wrong answers without a word"),
    }
    for _ in 0..2 {
        let db = Db::open(dir, o.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(right(&db), "{what}: wrong answers when opened for writing");
        db.put("000", models[0].get("000").cloned().flatten().unwrap_or_default()).unwrap();
        if models[0].get("000").is_none_or(Option::is_none) {
            db.delete("000").unwrap();
        }
        drop(db);
    }
    false
}

/// Does one harm to one or two of these files; false if it changes nothing.
fn harm(targets: &[PathBuf], rng: &mut Rng) -> Option<String> {
    let file = &targets[rng.below(targets.len() as u64) as usize];
    let before = fs::read(file).unwrap();
    let mut bytes = before.clone();
    let n = bytes.len() as u64;
    // Mostly where there is something.
    let used = bytes.iter().rposition(|b| *b != 0).map_or(1, |i| i as u64 + 1);
    let at = if rng.chance(4) { rng.below(n) } else { rng.below(used) } as usize;
    let name = file.file_name().unwrap().to_str().unwrap().to_string();
    let how = rng.below(6);
    let did = match how {
        0 => {
            bytes[at] ^= 1 << rng.below(8);
            format!("flip {name} at {at}")
        }
        1 => {
            bytes.truncate(at);
            format!("cut {name} to {at} of {n}")
        }
        2 | 3 => {
            let end = match how {
                2 => (at + 1 + rng.below(9000) as usize).min(bytes.len()),
                _ => bytes.len(),
            };
            bytes[at..end].fill(0);
            let which = if end as u64 >= used { "the end" } else { "some" };
            format!("zero {which} of {name} from {at} to {end}")
        }
        4 => {
            fs::remove_file(file).unwrap();
            return Some(format!("remove {name}"));
        }
        _ => {
            let other = &targets[rng.below(targets.len() as u64) as usize];
            if other == file || other.extension() != file.extension() {
                return None;
            }
            let theirs = fs::read(other).unwrap();
            fs::write(other, &before).unwrap();
            fs::write(file, &theirs).unwrap();
            let other = other.file_name().unwrap().to_str().unwrap().to_string();
            return Some(format!("exchange {name} and {other}"));
        }
    };
    fs::write(file, &bytes).unwrap();
    (bytes != before).then_some(did)
}

/// Any harm to log and manifest of a `Sync` store that was dropped is told or harmless: up to the last write.
#[test]
fn no_harm_to_a_closed_sync_store_goes_unnoticed() {
    let mut rng = Rng(seed("no_harm_to_a_closed_sync_store_goes_unnoticed"));
    let o = options(Durability::Sync);
    let tmp = tempfile::tempdir().unwrap();
    let (whole, hurt) = (tmp.path().join("whole"), tmp.path().join("hurt"));
    let db = Db::open(&whole, o.clone()).unwrap();
    let (model, _) = write(&db, &mut rng);
    // Closed without a flush: the last writes are in the log alone.
    drop(db);
    assert!(!told_or_right(
        &{
            copy(&whole, &hurt);
            hurt.clone()
        },
        &o,
        &[&model],
        "whole"
    ));
    let cases = env_number("RINGDB_HARMS", 60);
    let mut told = 0;
    for case in 0..cases {
        copy(&whole, &hurt);
        let mut targets = used_segments(&hurt);
        assert!(targets.len() >= 3, "{targets:?}");
        if case % 2 == 0 {
            targets = named(&hurt, "MANIFEST");
        }
        let Some(what) = harm(&targets, &mut rng) else { continue };
        told += u64::from(told_or_right(&hurt, &o, &[&model], &what));
    }
    assert!(told > cases / 5, "{told} of {cases}");
}

/// The same for one that was killed, but for its last write and the last edit of its manifest.
#[test]
fn no_harm_to_a_killed_sync_store_goes_unnoticed_but_to_its_last_group() {
    let mut rng = Rng(seed("no_harm_to_a_killed_sync_store_goes_unnoticed_but_to_its_last_group"));
    let o = options(Durability::Sync);
    let tmp = tempfile::tempdir().unwrap();
    let (whole, hurt) = (tmp.path().join("whole"), tmp.path().join("hurt"));
    let db = Db::open(&whole, o.clone()).unwrap();
    let (model, tail) = write(&db, &mut rng);
    db.wait_idle().unwrap();
    // Every file as it is now is what a kill leaves.
    let killed = tmp.path().join("killed");
    copy(&whole, &killed);
    drop(db);
    let last = active_segment(&killed);
    let last = last.file_name().unwrap().to_str().unwrap().to_string();
    let mut earlier = Model::new();
    tail[..tail.len() - 1].iter().for_each(|(k, v)| drop(earlier.insert(k.clone(), v.clone())));
    let cases = env_number("RINGDB_HARMS", 60);
    let mut told = 0;
    for case in 0..cases {
        copy(&killed, &hurt);
        let mut targets = used_segments(&hurt);
        if case % 3 == 0 {
            targets = named(&hurt, "MANIFEST");
        }
        let Some(what) = harm(&targets, &mut rng) else { continue };
        if what.starts_with(&format!("zero the end of {last}")) {
            // More than the last group, and nothing is left that knows of it.
            continue;
        }
        told += u64::from(told_or_right(&hurt, &o, &[&model, &earlier], &what));
    }
    assert!(told > cases / 5, "{told} of {cases}");
}

/// A log of a few segments, some of which no table holds.
fn store(dir: &Path, durability: Durability) -> Vec<PathBuf> {
    let db = Db::open(dir, options(durability)).unwrap();
    for i in 0..150 {
        db.put(format!("{i:03}"), vec![i as u8; 2000]).unwrap();
        db.wait_prepared().unwrap();
    }
    // Closing a store adds to what it can prove: this must do without.
    let copied = dir.with_extension("copy");
    copy(dir, &copied);
    drop(db);
    copy(&copied, dir);
    used_segments(dir)
}

fn must_be_told(dir: &Path, durability: Durability, words: &str) {
    let o = options(durability);
    let e = Db::open(dir, o.clone()).map(|db| db.iter().count()).unwrap_err();
    assert!(matches!(&e, Error::Corrupt { .. }) && e.to_string().contains(words), "{e}");
    let report = Db::verify_dir(dir, &o).unwrap();
    assert!(report.problems.iter().any(|p| p.detail.contains(words)), "{:?}", report.problems);
    let saved = dir.with_extension("saved");
    let _ = fs::remove_dir_all(&saved);
    let report = salvage(dir, &saved, &SalvageOptions::default().with_io("posix")).unwrap();
    assert!(report.lost.iter().any(|l| l.detail.contains(words)), "{report:?}");
}

#[test]
fn a_last_segment_that_was_cut_off_is_told() {
    for durability in [Durability::Sync, Durability::Process] {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("s");
        let last = store(&dir, durability).pop().unwrap();
        let bytes = fs::read(&last).unwrap();
        for len in [0, 4096, 8192, 20_000, bytes.len() - 1] {
            fs::write(&last, &bytes[..len]).unwrap();
            // A mapped segment's size is in its header.
            if durability == Durability::Sync || len >= 4096 {
                must_be_told(&dir, durability, if len == 0 { "durable" } else { "" });
            }
        }
    }
}

#[test]
fn segments_with_exchanged_names_are_told() {
    for durability in [Durability::Sync, Durability::Process] {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("s");
        let used = store(&dir, durability);
        assert!(used.len() >= 4, "{used:?}");
        for (a, b) in [(0, 1), (1, 2), (used.len() - 2, used.len() - 1)] {
            let aside = dir.join("aside");
            let exchange = || {
                fs::rename(&used[a], &aside).unwrap();
                fs::rename(&used[b], &used[a]).unwrap();
                fs::rename(&aside, &used[b]).unwrap();
            };
            exchange();
            must_be_told(&dir, durability, "");
            exchange();
        }
        assert_eq!(Db::open(&dir, options(durability)).unwrap().iter().count(), 150);
    }
}

#[test]
fn a_sync_store_misses_its_last_segment() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("s");
    let last = store(&dir, Durability::Sync).pop().unwrap();
    fs::remove_file(&last).unwrap();
    must_be_told(&dir, Durability::Sync, "the manifest says");
}

#[test]
fn a_long_hole_behind_a_segment_is_not_read() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("s");
    let last = store(&dir, Durability::Sync).pop().unwrap();
    fs::OpenOptions::new().write(true).open(&last).unwrap().set_len(8 << 30).unwrap();
    let (io, disk) = failing::dying(i64::MAX, IoErrorKind::Io);
    let reads = Arc::new(AtomicU64::new(0));
    let counted = reads.clone();
    disk.before_reads(move || {
        counted.fetch_add(1, SeqCst);
    });
    let db = Db::open_read_only_with_env(&dir, options(Durability::Sync), io, SystemEnv::shared()).unwrap();
    assert!(db.verify().unwrap().is_ok());
    assert_eq!(db.iter().count(), 150);
    let n = reads.load(SeqCst);
    assert!(n < 500, "{n} reads");
}

/// Where the records of a manifest begin, and its end.
fn records(bytes: &[u8]) -> Vec<usize> {
    let mut at = if bytes[12] == 0 { 28 } else { 40 };
    let mut all = vec![];
    while at < bytes.len() {
        all.push(at);
        at += 12 + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    }
    all.push(bytes.len());
    all
}

#[test]
fn a_manifest_that_lost_whole_records_is_told_and_nothing_is_removed() {
    for durability in [Durability::Sync, Durability::Process] {
        let tmp = tempfile::tempdir().unwrap();
        let (whole, dir) = (tmp.path().join("whole"), tmp.path().join("s"));
        let o = options(durability);
        let db = Db::open(&whole, o.clone()).unwrap();
        for round in 0..6 {
            (0..40).for_each(|i| db.put(format!("{round}{i:03}"), vec![i as u8; 3000]).unwrap());
            db.flush().unwrap();
        }
        drop(db.keyspace("made").unwrap());
        db.wait_idle().unwrap();
        copy(&whole, &dir);
        let manifest = named(&dir, "MANIFEST").pop().unwrap();
        let bytes = fs::read(&manifest).unwrap();
        let ends = records(&bytes);
        assert!(ends.len() > 5, "{ends:?}");
        for lost in 1..ends.len() - 1 {
            copy(&whole, &dir);
            fs::write(&manifest, &bytes[..ends[ends.len() - 1 - lost]]).unwrap();
            let before = names(&dir);
            let what = format!("{durability:?}: {lost} records lost");
            let e = Db::open(&dir, o.clone()).map(|db| db.iter().count());
            assert!(matches!(e, Err(Error::Corrupt { .. })), "{what}: {e:?}");
            assert_eq!(names(&dir), before, "{what}");
        }
        drop(db);
    }
}

fn names(dir: &Path) -> Vec<PathBuf> {
    named(dir, ".sst")
}

#[test]
fn tables_are_set_aside_when_a_recovery_is_not_sure_of_itself() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("s");
    store(&dir, Durability::Process);
    // A table of another life, with more writes than the log has: a flush whose log a power cut has taken.
    let other = tmp.path().join("other");
    let db = Db::open(&other, options(Durability::Process)).unwrap();
    (0..900).for_each(|i| db.put(format!("{i:03}"), "v").unwrap());
    db.flush().unwrap();
    drop(db);
    let table = names(&other).pop().unwrap();
    let table = dir.join(table.file_name().unwrap());
    fs::copy(names(&other).pop().unwrap(), &table).unwrap();
    let db = Db::open(&dir, options(Durability::Process)).unwrap();
    assert_eq!(db.iter().count(), 150);
    let aside = table.with_extension("sst.orphan");
    assert!(aside.exists() && !table.exists(), "{:?}", files(&dir));
    let report = db.verify().unwrap();
    assert!(report.is_ok() && report.notes.iter().any(|n| n.contains(".orphan")), "{report:?}");
    drop(db);
    // With damage that was recovered from, every one.
    let used = used_segments(&dir);
    assert!(used.is_empty(), "all is in tables: {used:?}");
    store(&tmp.path().join("t"), Durability::Sync);
    let dir = tmp.path().join("t");
    let last = used_segments(&dir).pop().unwrap();
    fs::remove_file(&last).unwrap();
    let junk = dir.join("000999.sst");
    fs::write(&junk, "junk").unwrap();
    let o = options(Durability::Sync).with_recover_damaged_log(true);
    let db = Db::open(&dir, o).unwrap();
    assert!(db.stats().recovered_damage.is_some() && db.iter().count() > 50);
    assert!(dir.join("000999.sst.orphan").exists() && !junk.exists(), "{:?}", files(&dir));
}

/// A read-only open, between any two of whose reads a writer goes on by up to some segments.
fn opens_beside_a_writer(durability: Durability, opens: u64) {
    let mut rng = Rng(seed("opens_beside_a_writer"));
    let dir = tempfile::tempdir().unwrap();
    let o = options(durability).with_memtable_bytes(256 << 10);
    let db = Arc::new(Db::open(dir.path(), o.clone()).unwrap());
    let written = Arc::new(AtomicU64::new(0));
    let put = {
        let (db, written) = (db.clone(), written.clone());
        move |rng: &mut Rng| {
            let n = written.load(SeqCst) + 1;
            let mut b = WriteBatch::new();
            b.put("number", n.to_string());
            b.put(format!("twin{}", n % 50), vec![b'x'; 1 + rng.below(9000) as usize]);
            b.put("again", n.to_string());
            db.write(b, &Default::default()).unwrap();
            written.store(n, SeqCst);
        }
    };
    put(&mut rng);
    let state = Arc::new(Mutex::new(Rng(rng.next())));
    let (io, disk) = failing::dying(i64::MAX, IoErrorKind::Io);
    let (step_put, step_db) = (put.clone(), db.clone());
    let budget = Arc::new(AtomicU64::new(0));
    let left = budget.clone();
    disk.before_reads(move || {
        let rng = &mut *state.lock().unwrap();
        if left.load(SeqCst) > 0 && rng.chance(3) {
            left.fetch_sub(1, SeqCst);
            // From one write to two segments of them.
            let n = if rng.chance(3) { rng.below(24) } else { 1 };
            (0..n).for_each(|_| step_put(rng));
            if rng.chance(30) {
                step_db.flush().unwrap();
            }
        }
    });
    for i in 0..opens {
        let before = written.load(SeqCst);
        // The writer rests after so many steps, so that each open ends.
        budget.store(rng.below(10), SeqCst);
        let opened = Db::open_read_only_with_env(dir.path(), o.clone(), io.clone(), SystemEnv::shared());
        let reader = opened.unwrap_or_else(|e| panic!("open {i}: {e}"));
        assert_eq!(reader.stats().recovered_damage, None, "open {i}");
        let text = |key| reader.get(key).unwrap().map(|v| String::from_utf8(v.to_vec()).unwrap());
        let (number, again) = (text("number"), text("again"));
        assert_eq!(number, again, "a batch is seen whole");
        assert!(number.unwrap().parse::<u64>().unwrap() >= before, "open {i} goes back");
    }
}

#[test]
fn opens_beside_a_writer_of_a_sync_store_report_no_damage() {
    opens_beside_a_writer(Durability::Sync, env_number("RINGDB_OPENS", 150));
}

#[test]
fn opens_beside_a_writer_of_a_process_store_report_no_damage() {
    opens_beside_a_writer(Durability::Process, env_number("RINGDB_OPENS", 150));
}

/// A writer whose disk fails sooner or later, and readers all the while: what they are told is no damage.
#[test]
fn opens_beside_a_writer_whose_disk_fails_report_no_damage() {
    let mut rng = Rng(seed("opens_beside_a_writer_whose_disk_fails_report_no_damage"));
    for round in 0..env_number("RINGDB_FAULT_ROUNDS", 20) {
        let durability = if round % 2 == 0 { Durability::Sync } else { Durability::Process };
        let disk = Disk::new(rng.next());
        let o = options(durability).with_io("sim").with_memtable_bytes(128 << 10);
        let open = || Db::open_read_only_with_env("/s", o.clone(), disk.io(), SystemEnv::shared());
        let db = Db::open_with_env("/s", o.clone(), disk.io(), SystemEnv::shared()).unwrap();
        db.put("number", "0").unwrap();
        let calls = ["write", "fdatasync", "fsync", "sync_dir", "create", "rename", "allocate", "unlink"];
        let rule = format!("on {} nth {} EIO", rng.pick(&calls), 1 + rng.below(20));
        disk.set_plan(Plan::parse(&rule).unwrap());
        let mut last = 0;
        for n in 1..60u64 {
            let mut b = WriteBatch::new();
            b.put("number", n.to_string());
            b.put(format!("twin{}", n % 20), vec![b'x'; 1 + rng.below(9000) as usize]);
            if db.write(b, &Default::default()).is_ok() {
                last = n;
            }
            if n % 5 == 0 {
                match open() {
                    Ok(reader) => {
                        assert_eq!(reader.stats().recovered_damage, None, "round {round}, write {n}");
                        let Ok(Some(v)) = reader.get("number") else { continue };
                        let got: u64 = std::str::from_utf8(&v).unwrap().parse().unwrap();
                        assert!(got >= last, "round {round}: {got} is older than {last}");
                    }
                    Err(e) => assert!(matches!(e, Error::Io(_)), "round {round}, write {n}: {e}"),
                }
            }
        }
    }
}
