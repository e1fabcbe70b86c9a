//! Exports: what a range holds, in tables that any store takes; checked, and whole after every crash and fault.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringdb::engineswap::sim::{CrashOutcome, Disk, Plan};
use ringdb::{Db, Error, Exported, Options, SystemEnv};

fn small() -> Options {
    Options::default().with_cache_bytes(2 << 20).with_memtable_bytes(64 << 10).with_background_threads(1)
}

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn pairs(iter: ringdb::Iter) -> Pairs {
    iter.map(|kv| kv.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

fn fill(db: &Db, from: u32, to: u32, value: &str) {
    for i in from..to {
        db.put(format!("{i:05}"), format!("{value}{i}{}", "x".repeat(300))).unwrap();
    }
}

/// What a reader of the export gets; it says before how many that is.
fn exported(dir: &Path) -> ringdb::Result<Pairs> {
    let mut from = Exported::open(dir)?;
    let mut got = Pairs::new();
    while let Some((k, v)) = from.next_pair()? {
        assert!(got.last_key_value().is_none_or(|(last, _)| last.as_slice() < k));
        got.insert(k.into(), v.into());
    }
    assert_eq!((got.len() as u64, from.bytes_read()), (from.pairs(), from.bytes()));
    assert!(from.next_pair()?.is_none());
    Ok(got)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn ranges_of_keyspaces_and_snapshots_come_back() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |name: &str| tmp.path().join(name);
    // Tables of 64 KiB, so that there are many.
    let db = Db::open(at("db"), small().with_table_bytes(64 << 10)).unwrap();
    let users = db.keyspace("users").unwrap();
    fill(&db, 0, 2000, "one");
    db.flush().unwrap();
    fill(&db, 100, 200, "two");
    db.delete_range("00300".."00400").unwrap();
    (500..600).for_each(|i| db.delete(format!("{i:05}")).unwrap());
    db.put("", "the empty key").unwrap();
    db.put("large", vec![7; 3 << 20]).unwrap();
    users.put("ann", "1").unwrap();
    let before = db.snapshot();
    fill(&db, 0, 10, "after the snapshot");
    users.put("ann", "2").unwrap();
    let report = db.export_range(.., at("all")).unwrap();
    assert_eq!((report.pairs, report.tables > 5), (1802, true), "{report:?}");
    assert_eq!(files(&at("all")).len() as u64, report.tables + 1);
    for (name, range) in [("some", "00100".."00700"), ("none", "x".."y"), ("large", "l".."m")] {
        let was = pairs(before.range(range.clone()));
        assert_eq!(before.export_range(range, at(name)).unwrap().pairs, was.len() as u64, "{name}");
        assert_eq!(exported(&at(name)).unwrap(), was, "{name}");
    }
    before.keyspace(&users).export_range(.., at("ann before")).unwrap();
    users.export_range(.., at("ann now")).unwrap();
    // Into another store, another keyspace, beside what is there and in place of older values.
    let other = Db::open(at("other"), small()).unwrap();
    fill(&other, 0, 50, "old");
    other.put("stays", "here").unwrap();
    assert_eq!(other.import_tables(at("all")).unwrap(), 1802);
    let mut both = pairs(db.iter());
    both.insert(b"stays".into(), b"here".into());
    assert_eq!(pairs(other.iter()), both);
    let copy = other.keyspace("copy").unwrap();
    assert_eq!(copy.import_tables(at("some")).unwrap(), 400);
    assert_eq!(pairs(copy.iter()), pairs(before.range("00100".."00700")));
    assert_eq!(copy.import_tables(at("none")).unwrap(), 0);
    copy.import_tables(at("ann before")).unwrap();
    assert_eq!(copy.get("ann").unwrap().as_deref(), Some(&b"1"[..]));
    copy.import_tables(at("ann now")).unwrap();
    assert_eq!(copy.get("ann").unwrap().as_deref(), Some(&b"2"[..]));
    assert!(other.verify().unwrap().is_ok());
    // A store that is only read exports, too, and takes nothing.
    other.close().unwrap();
    let reader = Db::open_read_only(at("other"), small()).unwrap();
    reader.export_range("00100".."00200", at("by a reader")).unwrap();
    assert_eq!(exported(&at("by a reader")).unwrap().len(), 100);
    assert!(matches!(reader.import_tables(at("some")), Err(Error::ReadOnly)));
}

#[test]
fn an_export_goes_only_where_nothing_is() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path().join("db"), small()).unwrap();
    db.put("a", "b").unwrap();
    let taken = tmp.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    db.export_range(.., &taken).unwrap();
    for dir in [&taken, &tmp.path().join("db"), &taken.join("TABLES")] {
        let e = db.export_range(.., dir).unwrap_err();
        assert!(matches!(&e, Error::Invalid(m) if m.contains("new or empty directory")), "{e}");
    }
    assert_eq!(exported(&taken).unwrap().len(), 1);
    for (dir, why) in
        [("no", "no such directory"), ("db", "TABLES is missing"), ("db/LOCK", "not a directory")]
    {
        let e = db.import_tables(tmp.path().join(dir)).unwrap_err();
        assert!(matches!(&e, Error::Invalid(m) if m.contains(why)), "{dir}: {e}");
    }
}

#[test]
fn what_is_damaged_or_another_table_is_not_imported() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |name: &str| tmp.path().join(name);
    let db = Db::open(at("db"), small().with_table_bytes(64 << 10)).unwrap();
    fill(&db, 0, 1000, "v");
    db.export_range(.., at("e")).unwrap();
    let whole = pairs(db.iter());
    let target = Db::open(at("target"), small()).unwrap();
    target.put("stays", "here").unwrap();
    let nothing = |what: &str| {
        let e = target.import_tables(at("e")).expect_err(what);
        assert_eq!(pairs(target.iter()).len(), 1, "{what}: {e}");
        e
    };
    let all = files(&at("e"));
    assert!(all.len() > 3);
    let (mut errors, mut same) = (0, 0);
    for file in [&all[0], &all[all.len() - 2], &all[all.len() - 1]] {
        let good = std::fs::read(file).unwrap();
        let step = (good.len() / 400).max(1);
        for offset in (0..good.len()).step_by(step).chain(good.len().saturating_sub(200)..good.len()) {
            let mut bad = good.clone();
            bad[offset] ^= 0x40;
            std::fs::write(file, &bad).unwrap();
            match exported(&at("e")) {
                Err(e) => {
                    assert!(matches!(e, Error::Corrupt { .. } | Error::NewerFormat { .. }), "{offset}: {e}");
                    errors += 1;
                }
                Ok(got) => {
                    assert!(got == whole, "{}: byte {offset}", file.display());
                    assert_eq!(good[offset], 0, "{}: byte {offset} is more than padding", file.display());
                    same += 1;
                }
            }
        }
        for len in [0, 10, good.len() / 2, good.len() - 1] {
            std::fs::write(file, &good[..len]).unwrap();
            assert!(matches!(nothing("cut off"), Error::Corrupt { .. }), "{len}");
        }
        std::fs::remove_file(file).unwrap();
        let e = nothing("missing").to_string();
        assert!(e.contains("missing"), "{e}");
        std::fs::write(file, &good).unwrap();
    }
    assert!(errors > 4 * same, "{errors} errors, {same} without meaning");
    // The same range, exported again after a change: the tables of one, the list of the other.
    db.put("00001", "changed").unwrap();
    db.export_range(.., at("later")).unwrap();
    std::fs::copy(at("later/000001.sst"), at("e/000001.sst")).unwrap();
    assert!(matches!(nothing("another table"), Error::Corrupt { .. }));
    // A list of a later build.
    let mut list = std::fs::read(at("later/TABLES")).unwrap();
    list[8] = 9;
    std::fs::write(at("later/TABLES"), &list).unwrap();
    assert!(matches!(target.import_tables(at("later")), Err(Error::NewerFormat { found: 9, .. })));
}

const EXPORT: &str = "/mnt/export";

fn on(disk: &Disk, path: &str) -> Db {
    Db::open_with_env(path, small().with_table_bytes(64 << 10), disk.io(), SystemEnv::shared()).unwrap()
}

/// A disk with a store that exports to several tables.
fn store(seed: u64) -> (Disk, Db) {
    let disk = Disk::new(seed);
    let db = on(&disk, "/srv/db");
    fill(&db, 0, 500, "v");
    db.wait_idle().unwrap();
    (disk, db)
}

/// What is there of the export: all of it, or nothing that an import takes. Whether it is all.
fn is_whole(disk: &Disk, had: &Pairs, what: &str) -> bool {
    let disk = &disk.clone_now();
    let db = on(disk, "/tmp/new");
    match db.import_tables(EXPORT) {
        Ok(_) => assert!(pairs(db.iter()) == *had, "{what}"),
        Err(Error::Invalid(_)) => {
            assert!(db.iter().next().is_none(), "{what}");
            return false;
        }
        Err(e) => panic!("{what}: {e}"),
    }
    true
}

#[test]
fn a_power_cut_anywhere_in_an_export_leaves_it_whole_or_none() {
    let (disk, db) = store(1);
    let had = pairs(db.iter());
    disk.record(true);
    assert!(db.export_range(.., EXPORT).unwrap().tables > 2);
    assert!(disk.points() > 15);
    let mut whole = [0, 0];
    for at in 0..=disk.points() {
        for outcome in [CrashOutcome::Nothing, CrashOutcome::Everything, CrashOutcome::Random(at as u64)] {
            let left = match disk.point(at) {
                Some(p) => disk.crash_at(&p, outcome).0,
                None => disk.crash(outcome),
            };
            let what = format!("cut {at}, {outcome:?}");
            let there = is_whole(&left, &had, &what);
            assert!(there || at < disk.points(), "{what}: an export that was acknowledged");
            whole[usize::from(there)] += 1;
        }
    }
    assert!(whole[0] > 20 && whole[1] > 2, "{whole:?}");
}

#[test]
fn an_export_that_fails_anywhere_leaves_nothing() {
    for error in ["EIO", "ENOSPC"] {
        for nth in 1.. {
            let (disk, db) = store(2);
            let had = pairs(db.iter());
            let changes = "create,write,fsync,fdatasync,sync_dir,rename,mkdir,truncate,allocate";
            disk.set_plan(Plan::parse(&format!("on {changes} /mnt/* nth {nth} {error}")).unwrap());
            let result = db.export_range(.., EXPORT);
            let hit = !disk.faults_hit().is_empty();
            disk.set_plan(Plan::none());
            let what = format!("{error} in change {nth}: {result:?}");
            assert_eq!(is_whole(&disk, &had, &what), result.is_ok(), "{what}");
            assert_eq!(db.stats().stopped, None, "the store goes on");
            if !hit {
                result.unwrap();
                assert!(nth > 12, "{what}");
                break;
            }
            if result.is_err() {
                let left: Vec<_> =
                    disk.files().into_iter().filter(|f| f.starts_with("/mnt/export/")).collect();
                assert!(left.is_empty(), "{what}: {left:?}");
                db.export_range(.., EXPORT).unwrap_or_else(|e| panic!("{what}, then {e}"));
                assert!(is_whole(&disk, &had, &what));
            }
        }
    }
}
