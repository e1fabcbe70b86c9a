//! Backups: incremental, checked, whole after every crash and fault, and never of another table than they say.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringdb::engineswap::sim::{CrashOutcome, Disk, Plan};
use ringdb::{BackupOptions, Backups, Db, Error, ErrorKind, Options, SystemEnv, VerifyOptions};

fn small() -> Options {
    Options::default().with_cache_bytes(2 << 20).with_memtable_bytes(64 << 10).with_background_threads(1)
}

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn pairs(db: &Db) -> Pairs {
    db.iter().map(|kv| kv.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

fn fill(db: &Db, from: u32, to: u32, value: &str) {
    for i in from..to {
        db.put(format!("{i:05}"), format!("{value}{}", "x".repeat(300))).unwrap();
    }
    db.flush().unwrap();
}

fn restored(backups: &Path, generation: Option<u64>, to: &Path) -> Pairs {
    Backups::open(backups).unwrap().restore(generation, to, None).unwrap();
    let db = Db::open(to, small()).unwrap();
    assert!(db.verify().unwrap().is_ok());
    pairs(&db)
}

fn is_whole(backups: &Path) -> bool {
    Backups::open(backups).unwrap().verify(&VerifyOptions::default()).unwrap().is_ok()
}

fn tables_in(backups: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(backups.join("tables")).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn backups_are_incremental_and_each_is_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (backups, path) = (dir.path().join("b"), dir.path().join("db"));
    let db = Db::open(&path, small()).unwrap();
    let ks = db.keyspace("ks").unwrap();
    fill(&db, 0, 500, "one");
    ks.put("in", "the keyspace").unwrap();
    db.compact_range(..).unwrap();
    db.put("in memory", "only").unwrap();
    let first = db.backup(&backups).unwrap();
    assert_eq!((first.generation, first.copied_bytes, &first.removed[..]), (1, first.bytes, &[][..]));
    let was = pairs(&db);
    fill(&db, 1000, 1010, "two");
    let told = std::sync::Arc::new(std::sync::Mutex::new((0, 0)));
    let tell = told.clone();
    let options = BackupOptions::default()
        .with_progress(std::sync::Arc::new(move |a, b| *tell.lock().unwrap() = (a, b)));
    let second = db.backup_with(&backups, &options).unwrap();
    assert!(second.copied_tables < second.tables && second.copied_bytes < second.bytes, "{second:?}");
    assert_eq!(*told.lock().unwrap(), (second.bytes, second.bytes));
    let again = db.backup(&backups).unwrap();
    assert_eq!((again.generation, again.copied_tables, again.tables), (3, 0, second.tables));
    assert!(is_whole(&backups));
    let found = Backups::open(&backups).unwrap().generations();
    assert_eq!(found.last().map(|g| (g.number, g.bytes)), Some((3, second.bytes)));

    assert_eq!(restored(&backups, Some(1), &dir.path().join("r1")), was);
    assert_eq!(restored(&backups, None, &dir.path().join("r3")), pairs(&db));
    let r = Db::open(dir.path().join("r1"), small()).unwrap();
    assert_eq!(&*r.existing_keyspace("ks").unwrap().unwrap().get("in").unwrap().unwrap(), b"the keyspace");
    drop(r);

    // Generations go, and the tables that only they have.
    db.compact_range(..).unwrap();
    fill(&db, 0, 500, "three");
    db.compact_range(..).unwrap();
    let last = db.backup_with(&backups, &BackupOptions::default().with_keep(1)).unwrap();
    assert_eq!((last.generation, &last.removed[..]), (4, &[1, 2, 3][..]));
    assert_eq!(tables_in(&backups).len() as u64, last.tables);
    assert_eq!(restored(&backups, None, &dir.path().join("r4")), pairs(&db));
    assert!(is_whole(&backups));
}

/// A store that is restored goes on numbering where the backup was: its tables have numbers of others.
#[test]
fn a_table_of_the_same_number_is_not_taken_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let (backups, path) = (dir.path().join("b"), dir.path().join("db"));
    let db = Db::open(&path, small()).unwrap();
    fill(&db, 0, 10, "base");
    db.backup(&backups).unwrap();
    let twin_path = dir.path().join("twin");
    Backups::open(&backups).unwrap().restore(None, &twin_path, None).unwrap();
    let twin = Db::open(&twin_path, small()).unwrap();
    for i in 0..20 {
        fill(&db, 0, 10, &format!("dbdb{i:04}"));
        fill(&twin, 0, 10, &format!("twin{i:04}"));
        db.wait_idle().unwrap();
        twin.wait_idle().unwrap();
        let (a, b) = (db.backup(&backups).unwrap(), twin.backup(&backups).unwrap());
        for (g, db) in [(a.generation, &db), (b.generation, &twin)] {
            let to = dir.path().join(format!("r{g}"));
            assert_eq!(restored(&backups, Some(g), &to), pairs(db), "{g}");
            std::fs::remove_dir_all(to).unwrap();
        }
    }
    let names = tables_in(&backups).into_iter().map(|t| t.file_name().unwrap().to_str().unwrap().to_string());
    let mut numbers: Vec<String> = names.map(|n| n.split('-').next().unwrap().to_string()).collect();
    let all = numbers.len();
    numbers.dedup();
    assert!(numbers.len() < all, "no two tables have had the same number");
    assert!(is_whole(&backups));
}

#[test]
fn what_is_no_place_for_a_backup_is_refused_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let (backups, path) = (dir.path().join("b"), dir.path().join("db"));
    let db = Db::open(&path, small()).unwrap();
    fill(&db, 0, 10, "v");
    let refused = |r: Result<ringdb::BackupReport, Error>, words: &str| {
        let e = r.unwrap_err();
        assert!(e.kind() == ErrorKind::FixCall && e.to_string().contains(words), "{e}");
    };
    refused(db.backup_with(&backups, &BackupOptions::default().with_keep(0)), "at least 1");
    refused(db.backup(path.join("in")), "outside");
    refused(db.backup(&path), "outside");
    let full = dir.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("mail"), "x").unwrap();
    refused(db.backup(&full), "mail");
    refused(db.backup(full.join("mail")), "not a directory");
    let e = Backups::open(&backups).unwrap_err();
    assert!(e.to_string().contains("no complete backup"), "{e}");
    db.backup(&backups).unwrap();
    let other = Db::open(dir.path().join("other"), small()).unwrap();
    other.put("k", "v").unwrap();
    refused(other.backup(&backups), "another store");
    // So is a copy, which goes its own way.
    db.checkpoint(dir.path().join("copy")).unwrap();
    refused(Db::open(dir.path().join("copy"), small()).unwrap().backup(&backups), "another store");
    let held = Backups::open(&backups).unwrap();
    assert!(matches!(db.backup(&backups), Err(Error::Locked(_))));
    let e = held.restore(None, &path, None).unwrap_err();
    assert!(e.to_string().contains("new or empty"), "{e}");
    let e = held.restore(Some(7), dir.path().join("r"), None).unwrap_err();
    assert!(e.to_string().contains("no backup 7; there are 1"), "{e}");
    drop((held, db));
    let ro = Db::open_read_only(&path, small()).unwrap();
    assert!(matches!(ro.backup(&backups), Err(Error::ReadOnly)));
}

#[test]
fn damage_is_found_and_does_not_spread() {
    let dir = tempfile::tempdir().unwrap();
    let (backups, path) = (dir.path().join("b"), dir.path().join("db"));
    let db = Db::open(&path, small()).unwrap();
    fill(&db, 0, 100, "v");
    db.backup(&backups).unwrap();
    let was = pairs(&db);
    // A byte of a backup's table.
    let table = tables_in(&backups).remove(0);
    let good = std::fs::read(&table).unwrap();
    for at in [10, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&table, &bad).unwrap();
        let report = Backups::open(&backups).unwrap().verify(&VerifyOptions::default()).unwrap();
        assert_eq!(report.problems.len(), 1);
        assert!(report.problems[0].detail.contains("generations that need it: 1"), "{:?}", report.problems);
        let to = dir.path().join("r");
        let e = Backups::open(&backups).unwrap().restore(None, &to, None).unwrap_err();
        assert!(matches!(e, Error::Corrupt { .. }) && !to.exists(), "{e}");
    }
    // One that is cut short or gone is copied again, and mends the former generation.
    for cut in [Some(4096), None] {
        match cut {
            Some(n) => std::fs::write(&table, &good[..n]).unwrap(),
            None => std::fs::remove_file(&table).unwrap(),
        }
        assert!(!is_whole(&backups));
        assert_eq!(db.backup(&backups).unwrap().copied_tables, 1);
        assert!(is_whole(&backups));
    }
    // The lists.
    for file in ["TABLES", "CURRENT"] {
        let list = backups.join("generations/000001").join(file);
        let good = std::fs::read(&list).unwrap();
        let mut bad = good.clone();
        bad[14] ^= 1;
        std::fs::write(&list, &bad).unwrap();
        let found = Backups::open(&backups).unwrap();
        assert!(!found.verify(&VerifyOptions::default()).unwrap().is_ok());
        assert!(matches!(found.restore(Some(1), dir.path().join("r"), None), Err(Error::Corrupt { .. })));
        found.restore(Some(2), dir.path().join("r"), None).unwrap();
        std::fs::remove_dir_all(dir.path().join("r")).unwrap();
        std::fs::write(&list, &good).unwrap();
    }
    // A damaged table of the store is not backed up.
    drop(db);
    let mut all = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path());
    let own = all.find(|p| p.extension().is_some_and(|e| e == "sst")).unwrap();
    let whole = std::fs::read(&own).unwrap();
    let mut bad = whole.clone();
    bad[5000] ^= 1;
    std::fs::write(&own, &bad).unwrap();
    let db = Db::open(&path, small()).unwrap();
    let elsewhere = dir.path().join("elsewhere");
    assert!(matches!(db.backup(&elsewhere), Err(Error::Corrupt { .. })));
    assert!(Backups::open(&elsewhere).unwrap_err().to_string().contains("no complete backup"));
    assert_eq!(restored(&backups, None, &dir.path().join("r")), was);
}

fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    let step = |c: u32| (c >> 1) ^ if c & 1 == 1 { 0x82F6_3B78 } else { 0 };
    !bytes.iter().fold(!seed, |crc, b| (0..8).fold(crc ^ u32::from(*b), |c, _| step(c)))
}

/// Tables of earlier builds have no digest in their footers: they are compared as a whole.
#[test]
fn tables_of_an_earlier_build_are_known_again() {
    let dir = tempfile::tempdir().unwrap();
    let (backups, path) = (dir.path().join("b"), dir.path().join("db"));
    let db = Db::open(&path, small()).unwrap();
    fill(&db, 0, 10, "v");
    db.close().unwrap();
    let mut all = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path());
    let table = all.find(|p| p.extension().is_some_and(|e| e == "sst")).unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    let footer = bytes.len() - 128;
    bytes[footer + 76..footer + 92].fill(0);
    let sum = crc32c(0, &bytes[footer..footer + 116]);
    bytes[footer + 116..footer + 120].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&table, &bytes).unwrap();
    let db = Db::open(&path, small()).unwrap();
    assert_eq!(db.backup(&backups).unwrap().copied_tables, 1);
    assert_eq!(db.backup(&backups).unwrap().copied_tables, 0);
    assert!(is_whole(&backups));
    // The same number and length, other bytes.
    drop(db);
    let value_at = bytes.windows(4).position(|w| w == b"vxxx").unwrap();
    bytes[value_at] = b'w';
    let number: u32 = table.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let sum = crc32c(number.wrapping_mul(0x9E37_79B1), &bytes[4..4096]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&table, &bytes).unwrap();
    let db = Db::open(&path, small()).unwrap();
    assert_eq!(db.backup(&backups).unwrap().copied_tables, 1);
    assert_eq!(restored(&backups, None, &dir.path().join("r")), pairs(&db));
}

const STORE: &str = "/srv/db";
const BACKUPS: &str = "/mnt/backups";

fn on(disk: &Disk, path: &str) -> Db {
    Db::open_with_env(path, small(), disk.io(), SystemEnv::shared()).unwrap()
}

/// A disk with a store that was backed up twice, and what the backups hold.
fn two_backups(seed: u64) -> (Disk, Db, Vec<Pairs>) {
    let disk = Disk::new(seed);
    let db = on(&disk, STORE);
    let mut had = Vec::new();
    for i in 0..2 {
        fill(&db, 40 * i, 40 * i + 60, &format!("{i}"));
        db.wait_idle().unwrap();
        db.backup(BACKUPS).unwrap();
        had.push(pairs(&db));
    }
    fill(&db, 50, 90, "later");
    db.wait_idle().unwrap();
    had.push(pairs(&db));
    (disk, db, had)
}

/// Whatever generations are there are whole and hold what they should; returns the newest one's number.
fn check(disk: &Disk, had: &[Pairs], what: &str) -> u64 {
    let disk = &disk.clone_now();
    let backups = Backups::open_with_io(BACKUPS, disk.io()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let report = backups.verify(&VerifyOptions::default()).unwrap();
    assert!(report.is_ok(), "{what}: {:?}", report.problems);
    let mut newest = 0;
    for g in backups.generations() {
        let to = format!("/tmp/r{}", g.number);
        backups.restore(Some(g.number), &to, None).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(pairs(&on(disk, &to)) == had[g.number as usize - 1], "{what}: generation {}", g.number);
        newest = g.number;
    }
    newest
}

#[test]
fn a_power_cut_anywhere_in_a_backup_leaves_whole_generations() {
    let mut newest_seen = std::collections::BTreeSet::new();
    for keep in [None, Some(1), Some(2)] {
        let (disk, db, had) = two_backups(1);
        disk.record(true);
        let mut options = BackupOptions::default();
        options.keep = keep;
        let report = db.backup_with(BACKUPS, &options).unwrap();
        assert_eq!(report.removed.len(), keep.map_or(0, |k| 3 - k as usize));
        assert!(disk.points() > 30);
        for at in 0..=disk.points() {
            let outcomes = [CrashOutcome::Nothing, CrashOutcome::Everything, CrashOutcome::Random(at as u64)];
            for outcome in outcomes {
                let left = match disk.point(at) {
                    Some(p) => disk.crash_at(&p, outcome).0,
                    None => disk.crash(outcome),
                };
                let what = format!("keep {keep:?}, cut {at}, {outcome:?}");
                let newest = check(&left, &had, &what);
                newest_seen.insert(newest);
                assert!(newest >= if at == disk.points() { 3 } else { 2 }, "{what}");
                // The next one works, and removes what was left.
                if at % 4 == 0 {
                    let db = on(&left, STORE);
                    let next = db.backup_with(BACKUPS, &BackupOptions::default().with_keep(1)).unwrap();
                    assert_eq!(next.generation, newest + 1, "{what}");
                    let tables = left.files().iter().filter(|f| f.starts_with("/mnt/backups/tables")).count();
                    assert_eq!(tables as u64, next.tables, "{what}");
                }
            }
        }
    }
    assert_eq!(newest_seen.into_iter().collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a_backup_that_fails_anywhere_leaves_whole_generations() {
    for error in ["EIO", "ENOSPC"] {
        for nth in 1.. {
            let (disk, db, had) = two_backups(2);
            let changes = "create,write,fsync,fdatasync,sync_dir,rename,unlink,mkdir,rmdir,truncate,allocate";
            disk.set_plan(Plan::parse(&format!("on {changes} /mnt/* nth {nth} {error}")).unwrap());
            let result = db.backup_with(BACKUPS, &BackupOptions::default().with_keep(2));
            let hit = !disk.faults_hit().is_empty();
            disk.set_plan(Plan::none());
            let what = format!("{error} in change {nth}: {result:?}");
            if !hit {
                result.unwrap();
                assert!(nth > 15, "{what}");
                break;
            }
            if let Err(e) = &result {
                assert!(matches!(e.kind(), ErrorKind::Stop | ErrorKind::Retry), "{what}");
            }
            let newest = check(&disk, &had, &what);
            assert!(newest == 3 || result.is_err(), "{what}");
            assert_eq!(db.stats().stopped, None, "the store goes on");
            let next = db.backup(BACKUPS).unwrap();
            assert_eq!(next.generation, newest + 1, "{what}");
            let had = [&had[..], &[had[2].clone()]].concat();
            let left = disk.crash(CrashOutcome::Nothing);
            assert_eq!(check(&left, &had, &what), next.generation, "{what}");
        }
    }
}
