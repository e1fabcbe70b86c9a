//! Opening what an earlier run left behind: dropped without close, half-created, damaged, foreign, read-only.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ringdb::{Db, Durability, Error, ErrorKind, Options, WriteBatch, WriteOptions};

fn small() -> Options {
    Options::default().with_cache_bytes(4 << 20).with_memtable_bytes(256 << 10).with_background_threads(2)
}

/// Both media of the log, and with them both ways to read tables.
fn media() -> [Options; 2] {
    [Durability::Process, Durability::Sync]
        .map(|d| small().with_durability(d).with_direct_reads(d == Durability::Sync))
}

fn open_err(path: &Path, o: Options) -> Error {
    Db::open(path, o).map(|_| ()).unwrap_err()
}

fn names(dir: &Path) -> Vec<String> {
    let mut v: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    v.sort();
    v
}

fn files(dir: &Path, suffix: &str) -> Vec<std::path::PathBuf> {
    names(dir).into_iter().filter(|n| n.ends_with(suffix)).map(|n| dir.join(n)).collect()
}

#[test]
fn a_store_dropped_without_close_is_whole() {
    for o in media() {
        let dir = tempfile::tempdir().unwrap();
        let mut expected = std::collections::BTreeMap::new();
        for round in 0..8u32 {
            let db = Db::open(dir.path(), o.clone()).unwrap();
            assert_eq!(db.iter().count(), expected.len(), "round {round}");
            for i in 0..300u32 {
                let (k, v) = (format!("{:05}", (i * 7919 + round) % 1000), format!("{round}-{i}"));
                if i % 10 == 9 {
                    db.delete(&k).unwrap();
                    expected.remove(&k);
                } else {
                    db.put(&k, &v).unwrap();
                    expected.insert(k, v);
                }
            }
            if round == 3 {
                db.flush().unwrap();
            }
        }
        let db = Db::open(dir.path(), o).unwrap();
        let got: Vec<(Vec<u8>, Vec<u8>)> =
            db.iter().map(|kv| kv.unwrap()).map(|(k, v)| (k.into_vec(), v.into_vec())).collect();
        let want: Vec<(Vec<u8>, Vec<u8>)> =
            expected.into_iter().map(|(k, v)| (k.into_bytes(), v.into_bytes())).collect();
        assert_eq!(got, want);
        assert!(db.verify().unwrap().is_ok());
    }
}

#[test]
fn a_log_longer_than_the_memtable_is_replayed_in_pieces() {
    for o in media() {
        let dir = tempfile::tempdir().unwrap();
        let big = o.clone().with_cache_bytes(64 << 20).with_memtable_bytes(16 << 20);
        let db = Db::open(dir.path(), big).unwrap();
        let mut b = WriteBatch::new();
        for i in 0..20_000 {
            b.put(format!("{i:06}"), vec![b'v'; 100]);
            if b.len() == 100 {
                db.write(std::mem::take(&mut b), &WriteOptions::default()).unwrap();
            }
        }
        assert_eq!(db.stats().flushes, 0);
        drop(db);
        let db = Db::open(dir.path(), o).unwrap();
        assert_eq!(db.iter().count(), 20_000);
        assert!(db.stats().levels.iter().map(|l| l.tables).sum::<u64>() >= 2, "{:?}", db.stats().levels);
        assert_eq!(db.stats().last_sequence, 20_000);
    }
}

#[test]
fn the_log_does_not_grow_with_every_reopening() {
    for o in media() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..10 {
            let db = Db::open(dir.path(), o.clone()).unwrap();
            db.put(format!("{i}"), "v").unwrap();
        }
        assert!(files(dir.path(), ".log").len() <= 6, "{:?}", names(dir.path()));
        let db = Db::open(dir.path(), o).unwrap();
        assert_eq!(db.iter().count(), 10);
    }
}

#[test]
fn an_idle_and_a_closed_store_keep_no_spare_segments() {
    std::thread::scope(|s| media().into_iter().for_each(|o| _ = s.spawn(|| goes_idle_and_is_closed(o))));
}

fn goes_idle_and_is_closed(o: Options) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), o.clone()).unwrap();
    let fill = |round: u32| {
        for first in (0..20_000u32).step_by(500) {
            let mut batch = WriteBatch::new();
            for i in first..first + 500 {
                batch.put(format!("{round}-{i:05}"), [7; 80]);
            }
            db.write(batch, &WriteOptions::default()).unwrap();
        }
    };
    let segments = || files(dir.path(), ".log").len();
    let mut rounds = 0;
    // The last one, and two that are ready to be next: those that wait for a new number are more.
    while segments() <= 3 {
        fill(rounds);
        db.flush().unwrap();
        db.wait_idle().unwrap();
        rounds += 1;
        assert!(rounds < 100, "{:?}", names(dir.path()));
    }
    let start = Instant::now();
    while segments() > 3 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", names(dir.path()));
        std::thread::sleep(Duration::from_millis(100));
    }
    fill(rounds);
    db.close().unwrap();
    // No more than the memtables that were not flushed.
    let logs = files(dir.path(), ".log");
    let bytes: u64 = logs.iter().map(|f| fs::metadata(f).unwrap().len()).sum();
    assert!(bytes <= 4 << 20, "{bytes} bytes in {logs:?}");
    let db = Db::open(dir.path(), o).unwrap();
    assert_eq!(db.iter().count() as u32, 20_000 * (rounds + 1));
}

#[test]
fn unlogged_writes_neither_hide_nor_bring_back_logged_ones() {
    for o in media() {
        let dir = tempfile::tempdir().unwrap();
        let unlogged = WriteOptions::default().durability(Durability::None);
        let one = |k: &str, v: Option<&str>| {
            let mut b = WriteBatch::new();
            match v {
                Some(v) => b.put(k, v),
                None => b.delete(k),
            }
            b
        };
        {
            let db = Db::open(dir.path(), o.clone()).unwrap();
            db.put("a", "logged").unwrap();
            db.write(one("b", Some("flushed")), &unlogged).unwrap();
            db.put("c", "flushed").unwrap();
            db.flush().unwrap();
            db.write(one("c", None), &unlogged).unwrap();
            db.flush().unwrap();
            db.write(one("lost", Some("x")), &unlogged).unwrap();
            db.put("d", "logged").unwrap();
            db.write(one("d", Some("lost")), &unlogged).unwrap();
            assert_eq!(db.get("d").unwrap().unwrap(), b"lost");
        }
        let db = Db::open(dir.path(), o.clone()).unwrap();
        let get = |k: &str| db.get(k).unwrap().map(|v| String::from_utf8(v.into_vec()).unwrap());
        assert_eq!(get("a").as_deref(), Some("logged"));
        assert_eq!(get("b").as_deref(), Some("flushed"));
        assert_eq!(get("c"), None);
        assert_eq!(get("d").as_deref(), Some("logged"));
        assert_eq!(get("lost"), None);
        // Closing flushes, so it keeps unlogged writes.
        db.write(one("kept", Some("by close")), &unlogged).unwrap();
        db.close().unwrap();
        let db = Db::open(dir.path(), o).unwrap();
        assert_eq!(db.get("kept").unwrap().unwrap(), b"by close");
    }
}

#[test]
fn keyspaces_survive_without_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = Db::open(dir.path(), small()).unwrap();
        let (a, b) = (db.keyspace("a").unwrap(), db.keyspace("b").unwrap());
        a.put("k", "a").unwrap();
        b.put("k", "b").unwrap();
        db.drop_keyspace("a").unwrap();
        db.keyspace("a").unwrap().put("l", "again").unwrap();
    }
    let db = Db::open(dir.path(), small()).unwrap();
    let a = db.existing_keyspace("a").unwrap().unwrap();
    assert_eq!((a.get("k").unwrap(), a.get("l").unwrap().unwrap()), (None, "again".as_bytes().into()));
    assert_eq!(db.existing_keyspace("b").unwrap().unwrap().get("k").unwrap().unwrap(), b"b");
}

#[test]
fn a_missing_store_is_made_or_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/c");
    let e = open_err(&path, small().with_create_if_missing(false));
    assert!(matches!(e, Error::NoStore { .. }), "{e}");
    assert_eq!(e.kind(), ErrorKind::FixCall);
    assert!(!dir.path().join("a").exists());
    let e = Db::open_read_only(&path, small()).unwrap_err();
    assert!(matches!(e, Error::NoStore { .. }), "{e}");
    assert!(!dir.path().join("a").exists());
    Db::open(&path, small()).unwrap().put("k", "v").unwrap();
    Db::open(&path, small().with_create_if_missing(false)).unwrap();

    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert!(matches!(open_err(&empty, small().with_create_if_missing(false)), Error::NoStore { .. }));
    assert!(names(&empty).is_empty());
    Db::open(&empty, small()).unwrap();
}

#[test]
fn a_foreign_directory_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("letter.txt"), "dear").unwrap();
    for e in [open_err(dir.path(), small()), Db::open_read_only(dir.path(), small()).unwrap_err()] {
        assert!(matches!(e, Error::NoStore { .. }) && e.to_string().contains("letter.txt"), "{e}");
    }
    assert_eq!(names(dir.path()), ["letter.txt"]);
    let file = dir.path().join("letter.txt");
    let e = open_err(&file, small());
    assert!(matches!(e, Error::NoStore { .. }) && e.to_string().contains("not a directory"), "{e}");
}

#[test]
fn unknown_names_and_live_files_stay_and_orphans_go() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = Db::open(dir.path(), small()).unwrap();
        db.put("k", "v").unwrap();
        db.close().unwrap();
    }
    let live = files(dir.path(), ".sst");
    for name in
        ["NOTES", "000099.sst.bak", "99.sst", "000077.sst", "000078.log", "MANIFEST-000079", "CURRENT.tmp"]
    {
        fs::write(dir.path().join(name), "junk").unwrap();
    }
    let db = Db::open(dir.path(), small()).unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), b"v");
    let left = names(dir.path());
    for name in ["NOTES", "000099.sst.bak", "99.sst"] {
        assert!(left.iter().any(|n| n == name), "{name}: {left:?}");
    }
    for name in ["000077.sst", "MANIFEST-000079", "CURRENT.tmp"] {
        assert!(left.iter().all(|n| n != name), "{name}: {left:?}");
    }
    assert!(live.iter().all(|p| p.exists()));
    db.put("l", "w").unwrap();
    db.close().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    assert_eq!(db.iter().count(), 2);
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn a_half_created_store_is_made_again() {
    for left in [&["LOCK"][..], &["LOCK", "MANIFEST-000001"], &["LOCK", "MANIFEST-000001", "CURRENT.tmp"]] {
        let dir = tempfile::tempdir().unwrap();
        for name in left {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let db = Db::open(dir.path(), small()).unwrap();
        db.put("k", "v").unwrap();
        drop(db);
        assert_eq!(Db::open(dir.path(), small()).unwrap().get("k").unwrap().unwrap(), b"v");
    }
}

#[test]
fn a_store_without_its_current_is_not_taken_for_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = Db::open(dir.path(), small()).unwrap();
        db.put("k", "v").unwrap();
        db.close().unwrap();
    }
    fs::remove_file(dir.path().join("CURRENT")).unwrap();
    let before = names(dir.path());
    let e = open_err(dir.path(), small());
    assert!(matches!(e, Error::Corrupt { .. }) && e.to_string().contains("CURRENT"), "{e}");
    assert_eq!(e.kind(), ErrorKind::Repair);
    assert_eq!(names(dir.path()), before);
}

#[test]
fn damage_is_named_never_believed() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = Db::open(dir.path(), small()).unwrap();
        for i in 0..2000 {
            db.put(format!("{i:05}"), [b'v'; 50]).unwrap();
        }
        db.close().unwrap();
    }
    let table = files(dir.path(), ".sst").pop().unwrap();
    let good = fs::read(&table).unwrap();
    let mut bad = good.clone();
    bad[5000] ^= 1;
    fs::write(&table, &bad).unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    let e = db.iter().find_map(|kv| kv.err()).expect("the scan meets the damaged block");
    assert!(matches!(e, Error::Corrupt { .. }) && e.to_string().contains(".sst"), "{e}");
    let r = db.verify().unwrap();
    assert!(!r.is_ok());
    assert!(r.problems.iter().any(|p| p.file.contains(".sst") && p.offset == Some(4096)), "{:?}", r.problems);
    drop(db);

    // The footer.
    let mut bad = good.clone();
    let n = bad.len();
    bad[n - 10] ^= 1;
    fs::write(&table, &bad).unwrap();
    let name = table.file_name().unwrap().to_str().unwrap();
    let fails = || {
        // Such a table keeps nobody from opening the store; what is in it is an error, not absent.
        let db = Db::open(dir.path(), small()).unwrap();
        let e = db.get("00500").unwrap_err();
        assert!(e.kind() == ErrorKind::Repair && e.to_string().contains(name), "{e}");
        assert_eq!(db.get("zzz").unwrap(), None, "outside of its range");
        let damaged = db.stats().damaged_tables;
        assert!(
            damaged.len() == 1 && damaged[0].file.ends_with(name) && damaged[0].unreadable,
            "{damaged:?}"
        );
    };
    fails();
    // Cut short, and gone.
    fs::write(&table, &good[..n / 2]).unwrap();
    fails();
    fs::remove_file(&table).unwrap();
    fails();
    fs::write(&table, &good).unwrap();
    assert_eq!(Db::open(dir.path(), small()).unwrap().iter().count(), 2000);
}

#[test]
fn a_damaged_store_is_verified_without_being_opened() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    let mut made = Vec::new();
    for part in 0..3 {
        for i in 0..2000 {
            db.put(format!("{part}/{i:05}"), [b'v'; 50]).unwrap();
        }
        db.flush().unwrap();
    }
    db.close().unwrap();
    let whole = Db::verify_dir(dir.path(), &small()).unwrap();
    assert!(whole.is_ok() && whole.entries == 6000, "{whole:?}");
    // Two blocks of one table, and the footer of another.
    made.extend(files(dir.path(), ".sst"));
    let (first, last) = (&made[0], &made[made.len() - 1]);
    assert_ne!(first, last);
    let mut bytes = fs::read(first).unwrap();
    for at in [5000, 13000] {
        bytes[at] ^= 1;
    }
    fs::write(first, &bytes).unwrap();
    let mut bytes = fs::read(last).unwrap();
    let n = bytes.len();
    bytes[n - 10] ^= 1;
    fs::write(last, &bytes).unwrap();
    let check = |report: &ringdb::VerifyReport, what: &str| {
        let named = |path: &Path, offset| {
            let name = path.file_name().unwrap().to_str().unwrap();
            report
                .problems
                .iter()
                .any(|p| p.file.ends_with(name) && (offset == 0 || p.offset == Some(offset)))
        };
        assert!(named(first, 4096) && named(first, 12288) && named(last, 0), "{what}: {:?}", report.problems);
        assert!(report.entries > 3000, "{what}: the whole blocks are counted: {}", report.entries);
    };
    check(&Db::verify_dir(dir.path(), &small()).unwrap(), "with a manifest");
    // Without a manifest each table is checked against itself.
    fs::write(dir.path().join("CURRENT"), "nonsense").unwrap();
    let report = Db::verify_dir(dir.path(), &small()).unwrap();
    check(&report, "without a manifest");
    assert!(report.problems.iter().any(|p| p.file.ends_with("CURRENT")), "{:?}", report.problems);
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(Db::verify_dir(empty.path(), &small()), Err(Error::NoStore { .. })));
}

#[test]
fn a_hole_in_an_unsynced_log_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    for i in 0..1000 {
        db.put(format!("{i:05}"), [b'v'; 50]).unwrap();
    }
    drop(db);
    let whole = Db::open_read_only(dir.path(), small()).unwrap();
    assert!(whole.verify().unwrap().is_ok() && whole.stats().recovered_damage.is_none());
    let log = files(dir.path(), ".log").remove(0);
    let mut bytes = fs::read(&log).unwrap();
    bytes[20_000] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let name = log.file_name().unwrap().to_str().unwrap();
    let db = Db::open_read_only(dir.path(), small()).unwrap();
    let report = db.verify().unwrap();
    let p = &report.problems[0];
    assert!(p.file.ends_with(name) && p.offset.is_some_and(|o| (19_800..=20_000).contains(&o)), "{p:?}");
    // A prefix is kept, and what is missing is said at open too.
    let db = Db::open(dir.path(), small()).unwrap();
    let n = db.iter().count();
    assert!((100..900).contains(&n), "{n}");
    let told = db.stats().recovered_damage.unwrap();
    assert!(told.contains(name) && told.contains("frames follow"), "{told}");
    drop(db);
    let db = Db::open(dir.path(), small()).unwrap();
    assert!(db.stats().recovered_damage.is_none() && db.verify().unwrap().is_ok());
    assert_eq!(db.iter().count(), n);
}

#[test]
fn a_small_store_has_one_segment() {
    for o in media() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), o).unwrap();
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        assert_eq!(files(dir.path(), ".log").len(), 1, "{:?}", names(dir.path()));
    }
}

#[test]
fn a_damaged_manifest_is_named() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = Db::open(dir.path(), small()).unwrap();
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        db.keyspace("ks").unwrap();
        db.close().unwrap();
    }
    let manifest = names(dir.path()).into_iter().find(|n| n.starts_with("MANIFEST")).unwrap();
    let path = dir.path().join(&manifest);
    let good = fs::read(&path).unwrap();
    let mut bad = good.clone();
    bad[20] ^= 0xFF;
    fs::write(&path, &bad).unwrap();
    let before = names(dir.path());
    let e = open_err(dir.path(), small());
    assert!(e.to_string().contains("MANIFEST"), "{e}");
    fs::write(&path, b"").unwrap();
    assert_eq!(open_err(dir.path(), small()).kind(), ErrorKind::Repair);
    fs::remove_file(&path).unwrap();
    assert!(open_err(dir.path(), small()).to_string().contains("MANIFEST"));
    fs::write(&path, &good).unwrap();
    fs::write(dir.path().join("CURRENT"), "nonsense\n").unwrap();
    assert_eq!(open_err(dir.path(), small()).kind(), ErrorKind::Repair);
    fs::write(dir.path().join("CURRENT"), manifest + "\n").unwrap();
    assert_eq!(names(dir.path()), before);
    assert_eq!(Db::open(dir.path(), small()).unwrap().get("k").unwrap().unwrap(), b"v");
}

#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    Db::open(dir.path(), small()).unwrap().close().unwrap();
    let manifest = names(dir.path()).into_iter().find(|n| n.starts_with("MANIFEST")).unwrap();
    let path = dir.path().join(&manifest);
    let mut bytes = fs::read(&path).unwrap();
    bytes[8..12].copy_from_slice(&4u32.to_le_bytes());
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..24]) as u32;
    bytes[24..28].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let before = names(dir.path());
    for e in [open_err(dir.path(), small()), Db::open_read_only(dir.path(), small()).unwrap_err()] {
        assert!(
            matches!(&e, Error::NewerFormat { found: 4, newest: 3, path } if path.ends_with(&manifest)),
            "{e}"
        );
        assert!(e.to_string().contains("use a newer ringdb"));
    }
    assert_eq!(names(dir.path()), before);
}

/// Whether a file that nobody may write really cannot be written by this process (root can).
fn permissions_bind(dir: &Path) -> bool {
    let probe = dir.join("probe");
    fs::create_dir(&probe).unwrap();
    let mut p = fs::metadata(&probe).unwrap().permissions();
    p.set_readonly(true);
    fs::set_permissions(&probe, p).unwrap();
    fs::write(probe.join("x"), "").is_err()
}

#[test]
fn a_read_only_directory_opens_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    {
        let db = Db::open(&path, small()).unwrap();
        db.put("flushed", "v").unwrap();
        db.flush().unwrap();
        db.put("logged", "v").unwrap();
    }
    let before: Vec<(String, Vec<u8>)> =
        names(&path).into_iter().map(|n| (n.clone(), fs::read(path.join(n)).unwrap())).collect();
    let binds = permissions_bind(dir.path());
    let set = |readonly: bool| {
        let mut p = fs::metadata(&path).unwrap().permissions();
        p.set_readonly(readonly);
        fs::set_permissions(&path, p).unwrap();
    };
    set(true);
    let ro = Db::open_read_only(&path, small()).unwrap();
    assert_eq!(ro.iter().count(), 2);
    assert!(ro.verify().unwrap().is_ok());
    drop(ro);
    if binds {
        let e = open_err(&path, small());
        assert_eq!(e.kind(), ErrorKind::FixCall, "{e}");
    } else {
        println!("SKIPPED the writing half: this user writes to read-only directories");
    }
    set(false);
    let after: Vec<(String, Vec<u8>)> =
        names(&path).into_iter().map(|n| (n.clone(), fs::read(path.join(n)).unwrap())).collect();
    assert!(before == after, "opening read-only has changed the directory");
    assert_eq!(Db::open(&path, small()).unwrap().iter().count(), 2);
}

/// Mounts a small tmpfs, if this user may.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(bytes: u64) -> Option<Tmpfs> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let out = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(dir.path())
            .output()
            .ok()?;
        out.status.success().then_some(Tmpfs(dir))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    for o in media() {
        let Some(fs) = Tmpfs::mount(80 << 20) else {
            println!("SKIPPED: this user cannot mount a tmpfs");
            return;
        };
        let path = fs.0.path().join("db");
        let mut acked = 0u32;
        {
            let db = Db::open(&path, o.clone()).unwrap();
            let error = loop {
                match db.put(format!("{acked:08}"), vec![b'v'; 10_000]) {
                    Ok(()) => acked += 1,
                    Err(e) => break e,
                }
                assert!(acked < 20_000, "80 MiB took 200 MB");
            };
            println!("full after {acked} puts: {error}");
            assert!(matches!(error.kind(), ErrorKind::Retry | ErrorKind::Stop), "{error}");
            assert!(acked > 500);
            assert_eq!(db.get("00000000").unwrap().unwrap().len(), 10_000);
            let last = format!("{:08}", acked - 1);
            assert_eq!(db.get(&last).unwrap().unwrap().len(), 10_000);
        }
        // What was acknowledged is there, even while there is no space; then the store can be mended.
        let ro = Db::open_read_only(&path, o.clone()).unwrap();
        assert!(ro.iter().count() >= acked as usize);
        drop(ro);
        let opts = "remount,size=400m";
        let out = std::process::Command::new("mount").args(["-o", opts]).arg(fs.0.path()).output().unwrap();
        assert!(out.status.success());
        let db = Db::open(&path, o).unwrap();
        for i in 0..acked {
            assert!(db.get(format!("{i:08}")).unwrap().is_some(), "{i} of {acked}");
        }
        db.put("after", "all").unwrap();
        db.close().unwrap();
    }
}

#[test]
fn read_only_opens_beside_a_busy_writer() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
    for durability in [Durability::Sync, Durability::Process] {
        let dir = tempfile::tempdir().unwrap();
        let o = Options::default().with_cache_bytes(2 << 20).with_memtable_bytes(256 << 10);
        let db = Db::open(dir.path(), o.clone().with_durability(durability)).unwrap();
        let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|s| {
            s.spawn(|| {
                for n in 1.. {
                    if stop.load(SeqCst) {
                        break;
                    }
                    let mut b = WriteBatch::new();
                    b.put("number", n.to_string());
                    b.put(format!("twin{}", n % 50), vec![b'x'; 1 + n as usize % 3000]);
                    b.put("again", n.to_string());
                    db.write(b, &WriteOptions::default().durability(Durability::Sync)).unwrap();
                    acknowledged.store(n, SeqCst);
                }
            });
            for _ in 0..30 {
                let before = acknowledged.load(SeqCst);
                let opened = Db::open_read_only(dir.path(), o.clone());
                if opened.is_err() {
                    stop.store(true, SeqCst);
                }
                let reader = opened.unwrap();
                let number = reader.get("number").unwrap().map(|v| String::from_utf8(v.to_vec()).unwrap());
                let again = reader.get("again").unwrap().map(|v| String::from_utf8(v.to_vec()).unwrap());
                let n: u64 = number.clone().map_or(0, |n| n.parse().unwrap());
                if number != again || n < before {
                    stop.store(true, SeqCst);
                }
                assert_eq!(number, again, "a batch is seen whole");
                assert!(n >= before, "{n} is older than {before}, acknowledged before the store was opened");
            }
            stop.store(true, SeqCst);
        });
    }
}
