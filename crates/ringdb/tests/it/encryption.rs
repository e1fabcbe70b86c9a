//! Encryption at rest: nothing of what a store was told can be read on its disk, all of it comes back with the key,
//! without the key nothing does, and keys can be changed.

use crate::support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ringdb::{
    Backups, Compression, Db, EncryptionKey, Error, ErrorKind, Exported, KeyspaceOptions, Options,
    SalvageOptions, StaticKeys, VerifyOptions, WriteBatch, salvage,
};

fn key(n: u8) -> EncryptionKey {
    EncryptionKey::new([n; 32])
}

/// Keys 1 to `newest`, of which the last is the current one.
fn keys(newest: u8) -> StaticKeys {
    let first = StaticKeys::new(1, key(1)).unwrap();
    (2..=newest).fold(first, |keys, n| keys.with(n.into(), key(n)).unwrap())
}

fn plain() -> Options {
    Options::default()
        .with_cache_bytes(4 << 20)
        .with_memtable_bytes(64 << 10)
        .with_table_bytes(64 << 10)
        .with_background_threads(2)
}

fn small(newest: u8) -> Options {
    plain().with_encryption(keys(newest))
}

fn value(i: u32) -> String {
    // Every 97th is large.
    let times = if i.is_multiple_of(97) { 9000 } else { 1 + i % 40 };
    "hush value ".repeat(times as usize)
}

fn fill(db: &Db, from: u32, to: u32) {
    for i in from..to {
        db.put(format!("hush key {i:05}"), value(i)).unwrap();
    }
}

fn check(db: &Db, from: u32, to: u32) {
    let keys: Vec<String> = (from..to).map(|i| format!("hush key {i:05}")).collect();
    let all = db.multi_get(&keys).unwrap();
    for (i, got) in (from..to).zip(&all) {
        assert!(got.as_deref() == Some(value(i).as_bytes()), "{i}");
        assert!(db.get(&keys[(i - from) as usize]).unwrap().as_deref() == Some(value(i).as_bytes()), "{i}");
    }
    let pairs: BTreeMap<_, _> =
        db.iter().map(|kv| kv.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    assert_eq!(pairs.len(), keys.len());
    assert_eq!(db.iter().rev().filter(Result::is_ok).count(), keys.len());
    assert!(pairs.into_iter().eq((from..to).zip(keys).map(|(i, k)| (k.into_bytes(), value(i).into_bytes()))));
    let report = db.verify().unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
}

/// The files below a directory in which a word can be read.
fn telling(dir: &Path, word: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            t if t.is_dir() => found.extend(telling(&entry.path(), word)),
            t if t.is_file() => {
                // The store may have removed it meanwhile.
                let bytes = fs::read(entry.path()).unwrap_or_default();
                if bytes.windows(word.len()).any(|w| w == word) {
                    found.push(entry.file_name().to_string_lossy().into_owned());
                }
            }
            _ => {}
        }
    }
    found
}

/// Which keys the tables need; `None` for those that are not encrypted.
fn needed(db: &Db) -> Vec<Option<u32>> {
    let mut keys: Vec<_> = db.tables().iter().map(|t| t.encryption_key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[test]
fn everything_comes_back_and_nothing_can_be_read_on_the_disk() {
    for engine in support::engines() {
        for (compression, durability) in
            [(Compression::None, ringdb::Durability::Process), (Compression::Zstd, ringdb::Durability::Sync)]
        {
            let dir = tempfile::tempdir().unwrap();
            let options = || {
                small(1)
                    .with_io(engine)
                    .with_last_level_compression(compression)
                    .with_compression(compression)
                    .with_durability(durability)
                    .with_direct_reads(durability == ringdb::Durability::Sync)
            };
            let db = Db::open(dir.path(), options()).unwrap();
            assert_eq!(db.stats().encryption_key, Some(1));
            let hidden = db.keyspace("hush keyspace").unwrap();
            hidden.put("hush", "hush").unwrap();
            fill(&db, 0, 800);
            db.compact_range(..).unwrap();
            fill(&db, 800, 1000);
            db.flush().unwrap();
            fill(&db, 1000, 1100);
            check(&db, 0, 1100);
            assert_eq!(needed(&db), [Some(1)]);
            assert_eq!(telling(dir.path(), b"hush"), Vec::<String>::new(), "{engine}");
            // As after a kill: with a log to replay.
            drop((hidden, db));
            assert_eq!(telling(dir.path(), b"hush"), Vec::<String>::new(), "{engine}");
            let beside = Db::open_read_only(dir.path(), options()).unwrap();
            check(&beside, 0, 1100);
            drop(beside);
            assert!(Db::verify_dir(dir.path(), &options()).unwrap().is_ok());
            let db = Db::open(dir.path(), options()).unwrap();
            check(&db, 0, 1100);
            assert_eq!(
                db.existing_keyspace("hush keyspace").unwrap().unwrap().get("hush").unwrap().unwrap(),
                b"hush"
            );
            db.close().unwrap();
            assert_eq!(telling(dir.path(), b"hush"), Vec::<String>::new(), "{engine}");
        }
    }
}

#[test]
fn without_the_key_nothing_is_read_and_nothing_is_changed() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = &tmp.path().join("db");
    let db = Db::open(dir, small(1)).unwrap();
    fill(&db, 0, 300);
    db.flush().unwrap();
    fill(&db, 300, 310);
    drop(db);
    let before = contents(dir);
    let other = StaticKeys::new(1, key(9)).unwrap();
    let second = StaticKeys::new(2, key(2)).unwrap();
    for (options, what) in [
        (plain(), "no keys were given"),
        (plain().with_encryption(other), "does not decrypt with key 1"),
        (plain().with_encryption(second), "not among the keys"),
    ] {
        let e = Db::open(dir, options.clone()).unwrap_err();
        assert!(matches!(e, Error::Key { key: 1, .. }), "{e}");
        assert!(e.to_string().contains(what), "{e}");
        assert_eq!(e.kind(), ErrorKind::FixCall);
        let e = Db::open_read_only(dir, options.clone()).unwrap_err();
        assert!(matches!(e, Error::Key { key: 1, .. }), "{e}");
        assert!(matches!(Db::format(dir, &options), Err(Error::Key { .. })));
        assert!(matches!(Db::verify_dir(dir, &options), Err(Error::Key { .. })));
    }
    let to = tmp.path().join("salvaged");
    let e = salvage(dir, &to, &SalvageOptions::default()).unwrap_err();
    assert!(matches!(e, Error::Key { .. }), "{e}");
    assert!(!to.exists());
    assert!(contents(dir) == before, "a refused opening has changed something");
    check(&Db::open(dir, small(1)).unwrap(), 0, 310);
}

/// All files but those that every opening touches.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(dir).unwrap().map(Result::unwrap).filter(|e| e.file_type().unwrap().is_file());
    files.map(|e| (e.file_name().to_string_lossy().into_owned(), fs::read(e.path()).unwrap())).collect()
}

#[test]
fn a_plain_store_becomes_an_encrypted_one_and_keys_are_changed() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), plain()).unwrap();
    let own = KeyspaceOptions::default().with_last_level_compression(Compression::Lz4);
    let other = db.keyspace_with("other", &own).unwrap();
    other.put("hush", "hush").unwrap();
    fill(&db, 0, 600);
    db.compact_range(..).unwrap();
    fill(&db, 600, 700);
    assert_eq!((db.stats().encryption_key, needed(&db)), (None, vec![None]));
    assert!(!telling(dir.path(), b"hush").is_empty());
    drop((other, db));
    assert_eq!(Db::format(dir.path(), &plain()).unwrap().version, 2);
    assert!(!Db::format(dir.path(), &plain()).unwrap().is_old());
    assert!(Db::format(dir.path(), &small(1)).unwrap().is_old());

    for newest in 1..=3 {
        let db = Db::open(dir.path(), small(newest)).unwrap();
        fill(&db, 700, 700 + u32::from(newest));
        db.flush().unwrap();
        assert!(needed(&db).len() == 2, "{:?}", needed(&db));
        db.rewrite().unwrap();
        assert_eq!(needed(&db), [Some(newest.into())]);
        check(&db, 0, 700 + u32::from(newest));
        assert_eq!(db.keyspace("other").unwrap().get("hush").unwrap().unwrap(), b"hush");
        db.close().unwrap();
        assert_eq!(telling(dir.path(), b"hush"), Vec::<String>::new());
        assert_eq!(Db::format(dir.path(), &small(newest)).unwrap().version, 3);
    }
    // Of the former keys nothing is needed any more.
    let last = StaticKeys::new(3, key(3)).unwrap();
    let db = Db::open(dir.path(), plain().with_encryption(last)).unwrap();
    check(&db, 0, 703);
    drop(db);
    // A key that some tables still need and nobody has: the opening fails, and names it.
    let db = Db::open(dir.path(), small(4)).unwrap();
    fill(&db, 703, 710);
    db.close().unwrap();
    let fourth = StaticKeys::new(4, key(4)).unwrap();
    let e = Db::open(dir.path(), plain().with_encryption(fourth)).unwrap_err();
    assert!(matches!(&e, Error::Key { key: 3, path, .. } if path.extension().unwrap() == "sst"), "{e}");
    check(&Db::open(dir.path(), small(4)).unwrap(), 0, 710);
}

#[test]
fn copies_of_all_kinds_are_encrypted_too() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |name: &str| tmp.path().join(name);
    let db = Db::open(at("db"), small(2)).unwrap();
    fill(&db, 0, 500);
    db.checkpoint(at("checkpoint")).unwrap();
    db.backup(at("backups")).unwrap();
    fill(&db, 500, 600);
    db.backup(at("backups")).unwrap();
    db.export_range(.., at("export")).unwrap();
    db.close().unwrap();
    assert_eq!(telling(tmp.path(), b"hush"), Vec::<String>::new());

    check(&Db::open(at("checkpoint"), small(2)).unwrap(), 0, 500);
    let backups = Backups::open_with_io(at("backups"), small(2).open_io().unwrap()).unwrap();
    assert!(backups.verify(&VerifyOptions::default()).unwrap().is_ok());
    backups.restore(None, at("restored"), None).unwrap();
    check(&Db::open(at("restored"), small(2)).unwrap(), 0, 600);
    drop(backups);
    let without = Backups::open(at("backups")).unwrap();
    assert!(matches!(without.verify(&VerifyOptions::default()), Err(Error::Key { key: 2, .. })));
    assert!(matches!(without.restore(None, at("refused"), None), Err(Error::Key { .. })));

    assert!(matches!(Exported::open(at("export")), Err(Error::Key { key: 2, .. })));
    let exported = Exported::open_with_io(at("export"), small(2).open_io().unwrap()).unwrap();
    assert_eq!(exported.pairs(), 600);
    let into = Db::open(at("into"), small(3)).unwrap();
    assert_eq!(into.import_tables(at("export")).unwrap(), 600);
    check(&into, 0, 600);
    assert_eq!(needed(&into), [Some(3)]);
    into.ingest((600..900).map(|i| (format!("hush key {i:05}"), value(i)))).unwrap();
    check(&into, 0, 900);
    let mut batch = WriteBatch::new();
    batch.put("hush key 00900", value(900));
    into.write(batch, &ringdb::WriteOptions::default()).unwrap();
    check(&into, 0, 901);
    into.close().unwrap();
    assert_eq!(telling(tmp.path(), b"hush"), Vec::<String>::new());
}

#[test]
fn what_is_left_of_a_damaged_store_is_salvaged_with_the_key() {
    let tmp = tempfile::tempdir().unwrap();
    let (dir, to) = (tmp.path().join("db"), tmp.path().join("salvaged"));
    let db = Db::open(&dir, small(1)).unwrap();
    fill(&db, 0, 400);
    db.compact_range(..).unwrap();
    fill(&db, 400, 440);
    drop(db);
    // No manifest; a log whose first frame is damaged: its header says what it is encrypted with, too.
    for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("MANIFEST") || name == "CURRENT" {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let e = salvage(&dir, &to, &SalvageOptions::default()).unwrap_err();
    assert!(matches!(e, Error::Key { key: 1, .. }) && !to.exists(), "{e}");
    let report = salvage(&dir, &to, &SalvageOptions::default().with_encryption(keys(2))).unwrap();
    assert!(report.lost.is_empty(), "{:?}", report.lost);
    assert_eq!(telling(&to, b"hush"), Vec::<String>::new());
    let db = Db::open(&to, small(2)).unwrap();
    check(&db, 0, 440);
    assert_eq!(needed(&db), [Some(2)]);
}

#[test]
fn every_altered_place_is_noticed() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("db");
    let db = Db::open(&dir, small(1)).unwrap();
    fill(&db, 1, 60);
    db.flush().unwrap();
    fill(&db, 60, 90);
    drop(db);
    let files: Vec<_> = contents(&dir).into_iter().filter(|(name, _)| name != "CURRENT").collect();
    let mut noticed = 0;
    for (name, bytes) in &files {
        for at in (0..bytes.len().min(20_000)).step_by(613) {
            let mut altered = bytes.clone();
            altered[at] ^= 0x10;
            fs::write(dir.join(name), &altered).unwrap();
            let read = || -> ringdb::Result<()> {
                let db = Db::open_read_only(&dir, small(1))?;
                for i in 1..90 {
                    // A torn tail of the log is no damage where nothing was durable.
                    if let Some(got) = db.get(format!("hush key {i:05}"))? {
                        assert!(got == value(i).as_bytes(), "{name} byte {at}: {i} is something else");
                    }
                }
                Ok(())
            };
            noticed += usize::from(read().is_err());
            fs::write(dir.join(name), bytes).unwrap();
        }
    }
    assert!(noticed > 10, "{noticed}");
    check(&Db::open(&dir, small(1)).unwrap(), 1, 90);
}

#[test]
fn readers_beside_a_writer_follow_it_through_a_change_of_keys() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small(1)).unwrap();
    fill(&db, 0, 50);
    let reader = Db::open_read_only(dir.path(), small(2)).unwrap();
    check(&reader, 0, 50);
    fill(&db, 50, 400);
    db.flush().unwrap();
    fill(&db, 400, 420);
    assert!(reader.refresh().unwrap());
    check(&reader, 0, 420);
    db.close().unwrap();
    let db = Db::open(dir.path(), small(2)).unwrap();
    fill(&db, 420, 430);
    db.rewrite().unwrap();
    fill(&db, 430, 440);
    assert!(reader.refresh().unwrap());
    check(&reader, 0, 440);
    assert!(needed(&reader).contains(&Some(2)), "{:?}", needed(&reader));
}

/// The salts of the stamps in the footers of a store's tables.
fn salts(dir: &Path) -> Vec<Vec<u8>> {
    let tables = contents(dir).into_iter().filter(|(name, _)| name.ends_with(".sst"));
    let mut salts: Vec<_> = tables.map(|(_, b)| b[b.len() - 32..b.len() - 16].to_vec()).collect();
    salts.sort();
    salts.dedup();
    salts
}

#[test]
fn each_opening_has_a_salt_of_its_own_also_with_an_engine_that_came_with_keys() {
    let tmp = tempfile::tempdir().unwrap();
    let io = small(1).open_io().unwrap();
    let mut all = Vec::new();
    for name in ["a", "b", "a"] {
        let dir = tmp.path().join(name);
        let env = ringdb::SystemEnv::shared();
        let db = Db::open_with_env(&dir, plain(), io.clone(), env).unwrap();
        fill(&db, 0, 20);
        db.rewrite().unwrap();
        db.close().unwrap();
        assert_eq!(salts(&dir).len(), 1);
        all.extend(salts(&dir));
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 3);
}

#[test]
fn plain_frames_in_an_encrypted_segment_are_damage() {
    let tmp = tempfile::tempdir().unwrap();
    let (dir, other) = (tmp.path().join("db"), tmp.path().join("other"));
    for (dir, options) in [(&dir, small(1)), (&other, plain())] {
        let db = Db::open(dir, options).unwrap();
        db.put("k", "v").unwrap();
        drop(db);
    }
    let log = |dir: &Path| {
        let (name, bytes) = contents(dir).into_iter().find(|(name, _)| name.ends_with(".log")).unwrap();
        (dir.join(name), bytes)
    };
    // The frame of the plain store, where the sealed one has its own: both are the first behind the link. Segments of
    // the same number, so that its checksum holds there.
    let ((path, mut sealed), (plain_path, from)) = (log(&dir), log(&other));
    assert_eq!(path.file_name(), plain_path.file_name());
    let (link, frame) = (4096 + 72, 4096 + 56);
    assert_eq!((sealed[link + 12], from[frame + 12]), (3, 2), "kinds of frames");
    // Moved by 16 bytes it needs another checksum of its place.
    let mut moved = from[frame..frame + 64].to_vec();
    let number: u64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let mut place = number.to_le_bytes().to_vec();
    place.extend((link as u64).to_le_bytes());
    place.extend(&moved[4..32]);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &place) as u32;
    moved[..4].copy_from_slice(&crc.to_le_bytes());
    sealed[link..link + 64].copy_from_slice(&moved);
    fs::write(&path, &sealed).unwrap();
    let e = Db::open(&dir, small(1)).unwrap_err();
    assert!(matches!(&e, Error::Corrupt { detail, .. } if detail.contains("not encrypted")), "{e}");
}
