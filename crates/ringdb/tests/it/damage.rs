//! Damaged files: what is read is right or an error, never wrong; what is whole is served, verified and salvaged.
#![allow(clippy::unwrap_used)] // a test

use crate::failing;
use crate::support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringdb::engineswap::ErrorKind as IoErrorKind;
use ringdb::{Compression, Db, Error, ErrorKind, Keyspace, Options, SalvageOptions, SystemEnv, salvage};
use support::{Rng, seed};

const KEYSPACES: [&str; 3] = ["default", "users", "blobs"];
type Key = (usize, Vec<u8>);

/// Every value that a key has had, oldest first.
#[derive(Default)]
struct Model {
    history: BTreeMap<Key, Vec<Option<Vec<u8>>>>,
}

impl Model {
    fn newest(&self, key: &Key) -> Option<&Vec<u8>> {
        self.history.get(key)?.last()?.as_ref()
    }

    fn ever(&self, key: &Key, value: Option<&[u8]>) -> bool {
        value.is_none()
            || self.history.get(key).is_some_and(|h| h.iter().flatten().any(|v| Some(v.as_slice()) == value))
    }
}

fn options(compression: Compression) -> Options {
    Options::default()
        .with_io("posix")
        .with_memtable_bytes(64 << 10)
        .with_cache_bytes(8 << 20)
        .with_background_threads(1)
        .with_compression(if compression == Compression::None { compression } else { Compression::Lz4 })
        .with_last_level_compression(compression)
}

fn spaces(db: &Db) -> Vec<Keyspace> {
    KEYSPACES.iter().map(|k| db.keyspace(k).unwrap()).collect()
}

/// A store with tables in several levels, tombstones, large values, and writes that are only in the log.
fn build(dir: &Path, compression: Compression, rng: &mut Rng) -> Model {
    let mut model = Model::default();
    let db = Db::open(dir, options(compression)).unwrap();
    let spaces = spaces(&db);
    let mut write = |n: u64, rng: &mut Rng| {
        for _ in 0..n {
            let space = rng.below(3) as usize;
            let key = format!("key{:05}", rng.below(1500)).into_bytes();
            let value = match rng.below(40) {
                0..=4 => None,
                5 => Some(vec![rng.next() as u8; 30_000]),
                _ => {
                    let (a, b) = (rng.next(), rng.next());
                    Some(
                        (0..14)
                            .map(|i| format!("{:016x}", a.rotate_left(i) ^ b.wrapping_mul(u64::from(i) | 1)))
                            .collect::<String>()
                            .into_bytes(),
                    )
                }
            };
            match &value {
                Some(v) => spaces[space].put(&key, v).unwrap(),
                None => spaces[space].delete(&key).unwrap(),
            }
            model.history.entry((space, key)).or_default().push(value);
        }
    };
    write(4000, rng);
    spaces.iter().for_each(|s| s.compact_range(..).unwrap());
    write(1200, rng);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    write(300, rng);
    db.flush().unwrap();
    write(100, rng);
    drop((spaces, db));
    model
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).filter(|p| !p.ends_with("LOCK")).collect();
    all.sort();
    all
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for f in files(from) {
        fs::copy(&f, to.join(name(&f))).unwrap();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Flip,
    Truncate,
    ZeroPage,
    Remove,
    Swap,
    Append,
}

const HARMS: [Harm; 6] = [Harm::Flip, Harm::Truncate, Harm::ZeroPage, Harm::Remove, Harm::Swap, Harm::Append];

/// False if that would change nothing.
fn do_harm(file: &Path, other: Option<&Path>, harm: Harm, rng: &mut Rng) -> bool {
    let mut bytes = fs::read(file).unwrap();
    let before = bytes.clone();
    let n = bytes.len() as u64;
    match harm {
        Harm::Flip => {
            for _ in 0..1 + rng.below(3) {
                bytes[rng.below(n) as usize] ^= 1 << rng.below(8);
            }
        }
        Harm::Truncate => bytes.truncate(rng.below(n) as usize),
        Harm::ZeroPage => {
            let at = (rng.below(n) / 4096 * 4096) as usize;
            let end = (at + 4096).min(bytes.len());
            bytes[at..end].fill(0);
        }
        Harm::Remove => {
            fs::remove_file(file).unwrap();
            return true;
        }
        Harm::Swap => {
            let Some(other) = other else { return false };
            let theirs = fs::read(other).unwrap();
            fs::write(other, &bytes).unwrap();
            bytes = theirs;
        }
        Harm::Append => bytes.extend((0..1 + rng.below(9000)).map(|i| (i * 7) as u8)),
    }
    fs::write(file, &bytes).unwrap();
    bytes != before
}

/// Reads everything in every way and compares it with the model; `strict` if only the newest value is right. Returns
/// the keys that cannot be read.
fn check_reads(db: &Db, model: &Model, strict: bool, what: &str) -> usize {
    let spaces: Vec<Option<Keyspace>> = KEYSPACES.iter().map(|k| db.existing_keyspace(k).unwrap()).collect();
    assert!(!strict || spaces.iter().all(Option::is_some), "{what}");
    let right = |key: &Key, value: Option<&[u8]>| match strict {
        true => model.newest(key).map(Vec::as_slice) == value,
        false => model.ever(key, value),
    };
    let mut failed = 0;
    let keys: Vec<&Key> = model.history.keys().collect();
    let mut known: BTreeMap<&Key, bool> = BTreeMap::new();
    for key in &keys {
        let Some(space) = &spaces[key.0] else { continue };
        match space.get(&key.1) {
            Ok(v) => {
                assert!(right(key, v.as_deref()), "{what}: get {key:?} gives {:?}", v.map(|v| v.len()));
                known.insert(key, v.is_some());
            }
            Err(e) => {
                assert!(matches!(e, Error::Corrupt { .. } | Error::Io(_)), "{what}: {e}");
                failed += 1;
            }
        }
    }
    for group in keys.chunks(50) {
        for (i, space) in spaces.iter().enumerate() {
            let Some(space) = space else { continue };
            let group: Vec<&Key> = group.iter().filter(|k| k.0 == i).copied().collect();
            let asked: Vec<&[u8]> = group.iter().map(|k| k.1.as_slice()).collect();
            match space.multi_get(&asked) {
                Ok(values) => {
                    for (key, v) in group.iter().zip(values) {
                        assert!(right(key, v.as_deref()), "{what}: multi_get {key:?}");
                        assert!(
                            known.contains_key(*key),
                            "{what}: get fails for {key:?}, multi_get does not"
                        );
                    }
                }
                Err(_) => {
                    let all_known = group.iter().all(|k| known.contains_key(*k));
                    assert!(!all_known, "{what}: multi_get fails though each get does not");
                }
            }
        }
    }
    // Whole scans, both ways.
    for (i, space) in spaces.iter().enumerate() {
        let Some(space) = space else { continue };
        let present: Vec<&Key> =
            keys.iter().filter(|k| k.0 == i && known.get(**k).copied().unwrap_or(true)).copied().collect();
        for back in [false, true] {
            check_scan(space, i, back, &present, &right, what);
        }
    }
    failed
}

/// Scans keyspace `i`, which has the keys `present`: right up to the error, and every key up to there.
fn check_scan(
    space: &Keyspace,
    i: usize,
    back: bool,
    present: &[&Key],
    right: &dyn Fn(&Key, Option<&[u8]>) -> bool,
    what: &str,
) {
    let mut seen = Vec::new();
    let mut whole = true;
    let mut take = |pair: ringdb::Result<(ringdb::Value, ringdb::Value)>| match pair {
        Ok((k, v)) => {
            let key = (i, k.to_vec());
            assert!(right(&key, Some(&v)), "{what}: scan of {key:?}, back {back}");
            seen.push(key);
        }
        Err(_) => whole = false,
    };
    if back {
        space.iter().rev().for_each(&mut take)
    } else {
        space.iter().for_each(&mut take)
    }
    let want: Vec<&Key> = if back { present.iter().rev().copied().collect() } else { present.to_vec() };
    assert!(!whole || seen.len() == want.len(), "{what}: {} of {} scanned", seen.len(), want.len());
    assert!(seen.iter().zip(want).all(|(a, b)| a == b), "{what}: the scan leaves keys out");
}

/// What a salvage must keep and may not make up.
fn check_salvage(src: &Path, model: &Model, served: Option<(usize, bool)>, told: bool, what: &str) {
    let before: Vec<(PathBuf, Vec<u8>)> =
        files(src).into_iter().map(|f| (f.clone(), fs::read(f).unwrap())).collect();
    let tmp = tempfile::tempdir().unwrap();
    let dst = tmp.path().join("new");
    let report = salvage(src, &dst, &SalvageOptions::default().with_io("posix")).unwrap();
    for (f, bytes) in before {
        assert!(fs::read(&f).unwrap() == bytes, "{what}: the source has changed: {}", f.display());
    }
    let db = Db::open(&dst, options(Compression::None)).unwrap();
    let verified = db.verify().unwrap();
    assert!(verified.is_ok(), "{what}: {:?}", verified.problems);
    let names = db.keyspaces().unwrap();
    let mut wrong = 0;
    let mut kept = 0;
    for (i, space) in KEYSPACES.iter().enumerate() {
        let by_number = format!("keyspace-{i}");
        let called =
            [*space, &by_number].into_iter().find(|n| *n == "default" || names.iter().any(|m| m == n));
        let Some(called) = called else { continue };
        let space = db.keyspace(called).unwrap();
        for pair in space.iter() {
            let (k, v) = pair.unwrap();
            let key = (i, k.to_vec());
            assert!(model.ever(&key, Some(&v)), "{what}: made up {key:?}");
            kept += 1;
            wrong += u64::from(model.newest(&key).map(Vec::as_slice) != Some(&*v));
        }
    }
    let alive = model.history.values().filter(|h| h.last().unwrap().is_some()).count() as u64;
    if told && report.is_complete() && report.manifest_whole {
        assert_eq!((wrong, kept), (0, alive), "{what}: complete, but it is not: {report:?}");
    }
    if let Some((unserved, true)) = served {
        // What the store can serve is recovered, and more: single blocks of tables that it cannot open.
        let unserved = unserved as u64;
        assert!(kept + unserved >= alive, "{what}: {kept} of {alive}, {unserved} not served: {report:?}");
        if wrong > 0 {
            assert!(
                report.lost.iter().any(|l| l.may_be_out_of_date),
                "{what}: {wrong} out of date: {report:?}"
            );
        }
    }
}

fn harm_every_file(compression: Compression) {
    let mut rng = Rng(seed("damage"));
    let tmp = tempfile::tempdir().unwrap();
    let (whole, hurt) = (tmp.path().join("whole"), tmp.path().join("hurt"));
    let model = build(&whole, compression, &mut rng);
    let all = files(&whole);
    let tables = all.iter().filter(|f| name(f).ends_with(".sst")).count();
    assert!(tables >= 2 && all.iter().any(|f| name(f).ends_with(".log")), "{all:?}");
    {
        let db = Db::open_read_only(&whole, options(compression)).unwrap();
        assert_eq!(check_reads(&db, &model, true, "whole"), 0);
        assert!(db.stats().levels.iter().filter(|l| l.tables > 0).count() >= 2, "{:?}", db.stats().levels);
        check_salvage(&whole, &model, Some((0, true)), true, "whole");
    }
    for file in &all {
        for harm in HARMS {
            let what = format!("{harm:?} {}", name(file));
            copy(&whole, &hurt);
            let kind = name(file).rsplit('.').next().unwrap();
            let mut others = all.iter().filter(|f| *f != file && name(f).ends_with(kind));
            let other = others.next().map(|f| hurt.join(name(f)));
            if !do_harm(&hurt.join(name(file)), other.as_deref(), harm, &mut rng) {
                continue;
            }
            let is_table = kind == "sst";
            // Of a log that was not synced, and of a manifest's end, a loss cannot always be told from a power cut.
            let strict = is_table;
            let mut served = None;
            let how = options(compression).with_direct_reads(rng.chance(2));
            match Db::open_read_only(&hurt, how.clone()) {
                Ok(db) => {
                    served = Some((check_reads(&db, &model, strict, &what), strict));
                    let verified = db.verify().unwrap();
                    let told = verified.problems.iter().any(|p| p.file.ends_with(name(file)));
                    if is_table {
                        let padding = harm == Harm::Flip && served == Some((0, true)) && verified.is_ok();
                        assert!(told || padding, "{what}: {:?}", verified.problems);
                    }
                }
                Err(e) => {
                    assert!(!is_table, "{what}: {e}");
                    assert_eq!(e.kind(), ErrorKind::Repair, "{what}: {e}");
                    let verified = Db::verify_dir(&hurt, &how);
                    assert!(verified.is_ok_and(|v| !v.is_ok()), "{what}");
                }
            }
            check_salvage(&hurt, &model, served, is_table || kind == "CURRENT", &what);
        }
    }
}

#[test]
fn harm_to_any_file_of_a_plain_store_gives_errors_not_wrong_answers() {
    harm_every_file(Compression::None);
}

#[test]
fn harm_to_any_file_of_a_store_with_lz4_gives_errors_not_wrong_answers() {
    harm_every_file(Compression::Lz4);
}

#[test]
fn harm_to_any_file_of_a_store_with_zstandard_gives_errors_not_wrong_answers() {
    harm_every_file(Compression::Zstd);
}

/// A store whose last level has several tables of the keys 00000 to 39999, and nothing else; options and tables.
fn in_last_level(dir: &Path) -> (Options, Vec<PathBuf>) {
    let o = options(Compression::None);
    let db = Db::open(dir, o.clone()).unwrap();
    // Not in order: tables that overlap nothing would be moved as they are, and be small.
    for i in (0..40_000u64).map(|i| i * 7919 % 40_000) {
        db.put(format!("{i:05}"), format!("old{i:05}").repeat(12)).unwrap();
    }
    db.compact_range(..).unwrap();
    db.close().unwrap();
    let tables: Vec<PathBuf> = files(dir).into_iter().filter(|f| name(f).ends_with(".sst")).collect();
    assert!(tables.len() >= 3, "{tables:?}");
    (o, tables)
}

fn range_of(db: &Db, table: &Path) -> (u32, u32) {
    let all = db.stats().damaged_tables;
    let t = all.iter().find(|t| t.file.ends_with(name(table))).unwrap_or_else(|| panic!("{all:?}"));
    (t.from.parse().unwrap(), t.to.parse().unwrap())
}

#[test]
fn a_store_with_a_bad_table_is_written_to_and_compacted_around_it() {
    let tmp = tempfile::tempdir().unwrap();
    let (o, tables) = in_last_level(tmp.path());
    let table = &tables[1];
    let good = fs::read(table).unwrap();
    let mut bad = good.clone();
    let n = bad.len();
    bad[n - 100] ^= 1;
    fs::write(table, &bad).unwrap();

    let db = Db::open(tmp.path(), o.clone()).unwrap();
    let (from, to) = range_of(&db, table);
    assert!(from > 0 && to < 39_999 && from + 1000 < to, "{from} {to}");
    let snapshot = db.snapshot();
    assert!(snapshot.get(format!("{from:05}")).is_err() && snapshot.get("00000").unwrap().is_some());
    // New values for every third key, in the bad table's range too: those are right.
    for round in 0..3 {
        for i in (0..40_000).step_by(3) {
            db.put(format!("{i:05}"), format!("new{round}{i:05}").repeat(6)).unwrap();
        }
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let e = db.compact_range(..).unwrap_err();
    assert!(e.to_string().contains(name(table)), "{e}");
    // What does not overlap it has gone down.
    db.compact_range(..format!("{from:05}").as_str()).unwrap();
    db.compact_range(format!("{:05}", to + 1).as_str()..).unwrap();
    let s = db.stats();
    assert!(s.stopped.is_none() && s.write_delay_reason.is_none(), "{s:?}");
    let upper: u64 = s.levels.iter().filter(|l| l.level < 6).map(|l| l.entries).sum();
    assert!(upper > 0 && upper <= 3 * u64::from(to - from + 2), "only what lies over it: {:?}", s.levels);
    let check = |db: &Db, whole: bool| {
        for i in (0..40_000u32).step_by(7).chain([from - 1, from, to, to + 1]) {
            let got = db.get(format!("{i:05}"));
            if i % 3 == 0 {
                assert_eq!(got.unwrap().unwrap(), format!("new2{i:05}").repeat(6).as_bytes());
            } else if !whole && (from..=to).contains(&i) {
                assert!(got.unwrap_err().to_string().contains(name(table)));
            } else {
                assert_eq!(got.unwrap().unwrap(), format!("old{i:05}").repeat(12).as_bytes());
            }
        }
        let (f, t) = (format!("{from:05}"), format!("{:05}", to + 1));
        let count = |pairs: ringdb::Iter| pairs.map(|p| p.map(|_| 1)).sum::<ringdb::Result<u32>>();
        assert_eq!(count(db.range(..f.as_str())).unwrap(), from);
        assert_eq!(count(db.range(t.as_str()..)).unwrap(), 39_999 - to);
        let mut all = db.iter();
        let before = all.by_ref().take_while(Result::is_ok).count() as u32;
        assert_eq!(before, if whole { 40_000 } else { from }, "up to the damage");
        assert!(all.next().is_none(), "the error comes once");
        let behind = db.iter().rev().take_while(Result::is_ok).count() as u32;
        assert_eq!(behind, if whole { 40_000 } else { 39_999 - to });
    };
    check(&db, false);
    db.close().unwrap();
    assert!(fs::read(table).unwrap() == bad, "a damaged file is left as it is");

    // Mended from a copy, it is as if nothing had been.
    fs::write(table, &good).unwrap();
    let db = Db::open(tmp.path(), o).unwrap();
    assert!(db.stats().damaged_tables.is_empty());
    check(&db, true);
    db.compact_range(..).unwrap();
    check(&db, true);
    assert!(db.verify().unwrap().is_ok());
    assert!(!table.exists(), "it was compacted like any other");
}

#[test]
fn a_bad_block_fails_its_keys_and_a_compaction_that_meets_it_stops_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let (o, tables) = in_last_level(tmp.path());
    let table = &tables[1];
    let mut bytes = fs::read(table).unwrap();
    bytes[10 * 4096 + 50] ^= 4;
    fs::write(table, &bytes).unwrap();
    let db = Db::open(tmp.path(), o.clone()).unwrap();
    assert!(db.stats().damaged_tables.is_empty());
    let failing = (0..40_000).filter(|i| db.get(format!("{i:05}")).is_err()).count();
    assert!((10..60).contains(&failing), "one block's keys: {failing}");
    for i in (0..40_000).step_by(2) {
        db.delete(format!("{i:05}")).unwrap();
    }
    db.flush().unwrap();
    let e = db.compact_range(..).unwrap_err();
    assert!(e.to_string().contains(name(table)), "{e}");
    db.wait_idle().unwrap();
    let s = db.stats();
    assert!(s.stopped.is_none(), "{s:?}");
    assert!(
        (1..=2).contains(&s.background_errors),
        "{} failures: it must not try at once again",
        s.background_errors
    );
    assert!(s.background_error.unwrap().contains(name(table)));
    assert_eq!(s.damaged_tables.len(), 1);
    assert!(!s.damaged_tables[0].unreadable);
    db.put("still", "writable").unwrap();
    db.flush().unwrap();
    for i in 0..40_000 {
        match db.get(format!("{i:05}")) {
            Ok(v) => assert_eq!(v.is_some(), i % 2 == 1, "{i}"),
            Err(_) => assert_eq!(i % 2, 1, "{i} was deleted since"),
        }
    }
    let r = db.verify().unwrap();
    let p = &r.problems[0];
    assert_eq!((p.kind.as_str(), p.block, p.offset, p.bytes), ("block", Some(10), Some(40_960), Some(4096)));
    assert!(p.level.is_some() && p.share.is_some_and(|s| s > 0.0 && s < 0.01), "{p:?}");
    assert_eq!(p.entries, Some(failing as u64));
    assert_eq!((r.damaged_blocks, r.damaged_bytes, r.damaged_entries), (1, 4096, failing as u64));
    let (from, to) = (p.from.clone().unwrap(), p.to.clone().unwrap());
    assert!(from < to && to.len() == 5, "{from} {to}");
    db.close().unwrap();
    assert!(fs::read(table).unwrap() == bytes, "a damaged file is left as it is");
}

#[test]
fn a_failing_disk_under_one_table_fails_its_keys_only() {
    let tmp = tempfile::tempdir().unwrap();
    let (o, tables) = in_last_level(tmp.path());
    let table = name(&tables[1]);
    let (io, disk) = failing::dying(i64::MAX, IoErrorKind::Io);
    let open = || Db::open_with_env(tmp.path(), o.clone(), io.clone(), SystemEnv::shared());
    // It cannot even be opened.
    disk.fail_reads(Some((table, 0..u64::MAX)));
    let db = open().unwrap();
    let (from, to) = range_of(&db, &tables[1]);
    let e = db.get(format!("{from:05}")).unwrap_err();
    assert!(matches!(e, Error::Io(_)) && e.to_string().contains(table), "{e}");
    assert!(db.get(format!("{:05}", to + 1)).unwrap().is_some());
    assert!(db.multi_get(&["00000", "39999"]).unwrap().iter().all(Option::is_some));
    assert!(db.multi_get(&["00000".to_string(), format!("{to:05}")]).is_err());
    db.put(format!("{from:05}"), "new").unwrap();
    assert_eq!(db.get(format!("{from:05}")).unwrap().unwrap(), b"new", "something newer answers");
    db.close().unwrap();
    // Some of it can be read.
    disk.fail_reads(Some((table, 40_960..49_152)));
    let db = open().unwrap();
    let damaged = db.stats().damaged_tables;
    assert!(damaged.is_empty(), "{damaged:?}");
    let bad = (0..40_000).filter(|i| db.get(format!("{i:05}")).is_err()).count();
    assert!((10..120).contains(&bad), "{bad}");
    let before = disk.failed_reads();
    let r = db.verify().unwrap();
    assert!(r.problems.len() == 2 && r.problems.iter().all(|p| p.kind == "block"), "{:?}", r.problems);
    let asked = disk.failed_reads() - before;
    assert!(asked <= 5, "a disk that takes seconds to fail was asked {asked} times");
    disk.fail_reads(None);
    assert!(db.iter().all(|p| p.is_ok()) && db.verify().unwrap().is_ok());
}

#[test]
fn a_salvage_of_many_damaged_blocks_keeps_every_other_key() {
    let mut rng = Rng(seed("damaged blocks"));
    let tmp = tempfile::tempdir().unwrap();
    let src = tmp.path().join("src");
    let (o, tables) = in_last_level(&src);
    for (i, table) in tables.iter().enumerate() {
        let mut bytes = fs::read(table).unwrap();
        let pages = bytes.len() as u64 / 4096;
        for _ in 0..3 {
            let at = rng.below(pages * 9 / 10) * 4096;
            bytes[at as usize + 77] ^= 1;
        }
        // One with a good index, one without a footer, one with a bad index.
        let n = bytes.len();
        match i % 3 {
            0 => {}
            1 => bytes[n - 128..].fill(0),
            _ => bytes[n - 8192] ^= 1,
        }
        fs::write(table, &bytes).unwrap();
    }
    let start = Instant::now();
    let dst = tmp.path().join("dst");
    let report = salvage(&src, &dst, &SalvageOptions::default()).unwrap();
    assert!(start.elapsed() < Duration::from_secs(50), "{:?}", start.elapsed());
    let db = Db::open(&dst, o).unwrap();
    let missing: Vec<u32> = (0..40_000).filter(|i| db.get(format!("{i:05}")).unwrap().is_none()).collect();
    assert!(db.iter().all(|p| {
        p.is_ok_and(|(k, v)| *v == *format!("old{}", std::str::from_utf8(&k).unwrap()).repeat(12).as_bytes())
    }));
    assert_eq!(report.keys, 40_000 - missing.len() as u64);
    assert_eq!(report.lost_entries, missing.len() as u64, "{report:?}");
    assert!(!missing.is_empty() && missing.len() < 60 * 3 * tables.len(), "{}", missing.len());
    // Each lost key is in a range that the report names.
    for i in missing {
        let key = format!("{i:05}");
        let named = report
            .lost
            .iter()
            .any(|l| l.from.as_ref().is_none_or(|f| *f <= key) && l.to.as_ref().is_none_or(|t| key <= *t));
        assert!(named, "{key}: {:?}", report.lost);
    }
    assert!(report.lost.iter().all(|l| !l.may_be_out_of_date), "there is nothing older: {:?}", report.lost);
}

#[test]
fn a_salvage_finds_what_lies_behind_a_long_gap_in_a_table_without_an_index() {
    let tmp = tempfile::tempdir().unwrap();
    let (src, dst) = (tmp.path().join("src"), tmp.path().join("dst"));
    let o = options(Compression::None)
        .with_memtable_bytes(48 << 20)
        .with_cache_bytes(192 << 20)
        .with_block_bytes(64 << 10);
    let db = Db::open(&src, o.clone()).unwrap();
    let value = |i: u32| vec![i as u8; 8 << 10];
    for i in 0..3000u32 {
        db.put(format!("{i:05}"), value(i)).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let table = files(&src).into_iter().find(|f| name(f).ends_with(".sst")).unwrap();
    let mut bytes = fs::read(&table).unwrap();
    let n = bytes.len();
    assert!(n > 22 << 20, "{n}");
    bytes[1 << 20..20 << 20].fill(0);
    bytes[n - 128..].fill(0);
    fs::write(&table, &bytes).unwrap();
    let report = salvage(&src, &dst, &SalvageOptions::default()).unwrap();
    assert!(report.keys > 300, "{report:?}");
    let db = Db::open(&dst, o).unwrap();
    for i in [0, 2999] {
        assert_eq!(db.get(format!("{i:05}")).unwrap().as_deref(), Some(&value(i)[..]), "{report:?}");
    }
}

#[test]
fn a_salvage_finds_compressed_blocks_behind_a_damaged_first_one_without_a_footer() {
    let tmp = tempfile::tempdir().unwrap();
    let (src, dst) = (tmp.path().join("src"), tmp.path().join("dst"));
    let o = options(Compression::Lz4).with_memtable_bytes(2 << 20);
    let db = Db::open(&src, o.clone()).unwrap();
    (0..4000).for_each(|i| db.put(format!("{i:05}"), format!("value {i} ").repeat(5)).unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    let table = files(&src).into_iter().find(|f| name(f).ends_with(".sst")).unwrap();
    let mut bytes = fs::read(&table).unwrap();
    let n = bytes.len();
    bytes[60] ^= 1;
    bytes[n - 128..].fill(0);
    fs::write(&table, &bytes).unwrap();
    let report = salvage(&src, &dst, &SalvageOptions::default()).unwrap();
    assert!(report.keys > 3000, "{report:?}");
}

#[test]
fn a_salvage_does_not_believe_that_an_older_manifest_names_all_tables() {
    let tmp = tempfile::tempdir().unwrap();
    let (src, dst) = (tmp.path().join("src"), tmp.path().join("dst"));
    let manifest =
        |dir: &Path| files(dir).into_iter().filter(|f| name(f).starts_with("MANIFEST")).max().unwrap();
    let mut older = None;
    for half in 0..2 {
        let db = Db::open(&src, options(Compression::None)).unwrap();
        let users = db.keyspace("users").unwrap();
        (0..100).for_each(|i| users.put(format!("{half}{i:05}"), "v").unwrap());
        db.flush().unwrap();
        drop((users, db));
        let now = manifest(&src);
        older.get_or_insert_with(|| (now.clone(), fs::read(&now).unwrap()));
    }
    let (path, bytes) = older.unwrap();
    let newest = manifest(&src);
    assert!(path < newest);
    fs::write(&path, bytes).unwrap();
    fs::write(&newest, &fs::read(&newest).unwrap()[..20]).unwrap();
    let report = salvage(&src, &dst, &SalvageOptions::default()).unwrap();
    assert_eq!((report.keys, report.manifest_whole), (200, false), "{report:?}");
    assert_eq!(report.keyspaces, ["users"]);
}

#[test]
fn a_salvage_does_not_take_another_stores_table_of_the_same_number() {
    let tmp = tempfile::tempdir().unwrap();
    let (src, other, dst) = (tmp.path().join("src"), tmp.path().join("other"), tmp.path().join("dst"));
    for (dir, value, keys) in [(&src, "mine", 100), (&other, "theirs", 90)] {
        let db = Db::open(dir, options(Compression::None)).unwrap();
        (0..keys).for_each(|i| db.put(format!("{i:05}"), value).unwrap());
        db.flush().unwrap();
        db.put("later", value).unwrap();
        drop(db);
    }
    let tables: Vec<PathBuf> = files(&src).into_iter().filter(|f| name(f).ends_with(".sst")).collect();
    for t in &tables {
        fs::copy(other.join(name(t)), t).unwrap();
    }
    let report = salvage(&src, &dst, &SalvageOptions::default()).unwrap();
    assert_eq!((report.lost.len(), report.tables_damaged), (tables.len(), tables.len() as u64), "{report:?}");
    let db = Db::open(&dst, options(Compression::None)).unwrap();
    assert!(db.iter().all(|p| *p.unwrap().1 == *b"mine"), "{report:?}");
    assert!(db.get("later").unwrap().is_some());
}

#[test]
fn a_log_that_ends_before_what_tables_hold_is_told_when_it_stands_in_for_them() {
    let tmp = tempfile::tempdir().unwrap();
    let (src, dst) = (tmp.path().join("src"), tmp.path().join("dst"));
    let db = Db::open(&src, options(Compression::None).with_memtable_bytes(1 << 20)).unwrap();
    for i in 0..400 {
        db.put(format!("{i:05}"), [b'v'; 20]).unwrap();
    }
    db.delete("00050").unwrap();
    db.flush().unwrap();
    db.put("later", "v").unwrap();
    drop(db);
    for f in files(&src) {
        if name(&f).ends_with(".sst") {
            fs::remove_file(&f).unwrap();
        } else if name(&f).ends_with(".log") {
            let bytes = fs::read(&f).unwrap();
            fs::write(&f, &bytes[..20_000.min(bytes.len())]).unwrap();
        }
    }
    let report = salvage(&src, &dst, &SalvageOptions::default()).unwrap();
    let db = Db::open(&dst, options(Compression::None)).unwrap();
    if db.get("00050").unwrap().is_some() {
        let told = report.lost.iter().any(|l| l.detail.contains("old data") && l.may_be_out_of_date);
        assert!(told, "{report:?}");
    } else {
        panic!("the log does not bring it back: {report:?}");
    }
}

#[test]
fn a_salvage_without_a_manifest_takes_every_table_and_names_keyspaces_by_number() {
    let mut rng = Rng(seed("no manifest"));
    let tmp = tempfile::tempdir().unwrap();
    let (src, dst) = (tmp.path().join("src"), tmp.path().join("dst"));
    let model = build(&src, Compression::Lz4, &mut rng);
    for f in files(&src).iter().filter(|f| name(f).starts_with("MANIFEST") || name(f) == "CURRENT") {
        fs::remove_file(f).unwrap();
    }
    // Foreign files do no harm.
    fs::write(src.join("000999.sst"), b"not a table").unwrap();
    fs::write(src.join("notes.txt"), b"not of the store").unwrap();
    let report = salvage(&src, &dst, &SalvageOptions::default()).unwrap();
    assert!(!report.manifest_whole, "{report:?}");
    assert_eq!(report.keyspaces, ["keyspace-1", "keyspace-2"]);
    assert!(report.lost.iter().all(|l| l.file.ends_with("000999.sst")), "{:?}", report.lost);
    let db = Db::open(&dst, options(Compression::None)).unwrap();
    for (i, called) in ["default", "keyspace-1", "keyspace-2"].iter().enumerate() {
        let space = db.keyspace(called).unwrap();
        for (key, history) in model.history.iter().filter(|(k, _)| k.0 == i) {
            assert_eq!(space.get(&key.1).unwrap().as_deref(), history.last().unwrap().as_deref());
        }
    }
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn frames_behind_a_gap_in_the_log_are_counted_and_taken_if_asked_for() {
    let tmp = tempfile::tempdir().unwrap();
    let src = tmp.path().join("src");
    let db = Db::open(&src, options(Compression::None).with_memtable_bytes(1 << 20)).unwrap();
    for i in 0..1000 {
        db.put(format!("{i:05}"), [b'v'; 20]).unwrap();
    }
    drop(db);
    let log = files(&src).into_iter().find(|f| name(f).ends_with(".log")).unwrap();
    let mut bytes = fs::read(&log).unwrap();
    bytes[20_000] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let mut keys = Vec::new();
    for take in [false, true] {
        let dst = tmp.path().join(format!("dst{take}"));
        let report = salvage(&src, &dst, &SalvageOptions::default().with_frames_after_gaps(take)).unwrap();
        assert_eq!(report.log_frames + report.log_frames_after_gaps, 999, "{report:?}");
        assert!(report.lost.len() == 1 && report.lost[0].file.ends_with(name(&log)), "{report:?}");
        assert_eq!(report.keys, report.log_frames);
        keys.push(report.keys);
    }
    assert!(keys[0] < 500 && keys[1] == 999, "{keys:?}");
}

#[test]
fn a_salvage_refuses_what_it_should() {
    let tmp = tempfile::tempdir().unwrap();
    let (src, dst) = (tmp.path().join("src"), tmp.path().join("dst"));
    let o = SalvageOptions::default();
    assert!(matches!(salvage(&src, &dst, &o), Err(Error::NoStore { .. })));
    fs::create_dir(&src).unwrap();
    fs::write(src.join("mail"), "").unwrap();
    assert!(matches!(salvage(&src, &dst, &o), Err(Error::NoStore { .. })));
    assert!(!dst.exists());
    fs::remove_file(src.join("mail")).unwrap();
    let db = Db::open(&src, options(Compression::None)).unwrap();
    db.put("k", "v").unwrap();
    // By any name.
    let link = tmp.path().join("link");
    std::os::unix::fs::symlink(&src, &link).unwrap();
    for name in [&src, &link] {
        let e = salvage(name, &dst, &o).unwrap_err();
        assert!(matches!(e, Error::Locked(_)) && e.to_string().contains("in this process already"), "{e}");
    }
    db.close().unwrap();
    assert!(matches!(salvage(&src, src.join("inside"), &o), Err(Error::Invalid(_))));
    fs::create_dir(&dst).unwrap();
    fs::write(dst.join("something"), "").unwrap();
    assert!(matches!(salvage(&src, &dst, &o), Err(Error::Invalid(_))));
    fs::remove_file(dst.join("something")).unwrap();
    assert_eq!(salvage(&src, &dst, &o).unwrap().keys, 1);
}
