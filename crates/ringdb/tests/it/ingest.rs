//! Ingesting sorted pairs: where they go, who sees them from when on, and what is left of those that fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use ringdb::{Backups, Db, Durability, Error, ErrorKind, Options, VerifyOptions, WriteBatch, WriteOptions};

use crate::support::{Rng, env_number, seed};

fn small(durability: Durability) -> Options {
    Options::default()
        .with_cache_bytes(2 << 20)
        .with_memtable_bytes(64 << 10)
        .with_table_bytes(64 << 10)
        .with_background_threads(1)
        .with_durability(durability)
}

fn key(i: u64) -> String {
    format!("key:{i:06}")
}

fn tables(db: &Db) -> Vec<u64> {
    let mut tables = vec![0; 7];
    db.stats().levels.iter().for_each(|l| tables[l.level as usize] = l.tables);
    tables
}

fn files(dir: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|n| n.ends_with(".sst") || n.contains("orphan"));
    names.sort();
    names
}

#[test]
fn they_go_as_deep_as_nothing_older_lies() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small(Durability::Process)).unwrap();
    assert_eq!(db.ingest((0..5000).map(|i| (key(2 * i), [1; 100]))).unwrap(), 5000);
    let t = tables(&db);
    assert!(t[..6].iter().all(|n| *n == 0) && t[6] > 3, "{t:?}");
    assert_eq!((db.stats().compactions, db.stats().flushes), (0, 0));
    // Beside them, and over them.
    db.ingest((0..100).map(|i| (format!("l{i:03}"), "2"))).unwrap();
    assert_eq!(tables(&db)[6], t[6] + 1);
    db.ingest((100..200).map(|i| (key(i), "3"))).unwrap();
    let t = tables(&db);
    assert_eq!((t[6], t[5]), (t[6], 1), "{t:?}");
    for i in 0..300 {
        let expected = match i {
            100..200 => Some(&b"3"[..]),
            i if i % 2 == 0 => Some(&[1; 100][..]),
            _ => None,
        };
        assert_eq!(db.get(key(i)).unwrap().as_deref(), expected, "{i}");
    }
    // Over what a memtable holds, which is flushed first.
    db.put(key(150), "4").unwrap();
    db.delete(key(151)).unwrap();
    db.ingest([(key(150), "5"), (key(151), "5")]).unwrap();
    let t = tables(&db);
    assert!(t[0] == 2 || t[..5].iter().sum::<u64>() > 0, "{t:?}");
    db.put(key(151), "6").unwrap();
    let read = |i| db.get(key(i)).unwrap().map(|v| v.to_vec());
    assert_eq!((read(150), read(151)), (Some(b"5".to_vec()), Some(b"6".to_vec())));
    db.compact_range(..).unwrap();
    assert_eq!((read(150), read(151), read(152)), (Some(b"5".to_vec()), Some(b"6".to_vec()), read(199)));
    // Not rewritten since.
    db.ingest((0..10).map(|i| (format!("m{i}"), "7"))).unwrap();
    assert!(db.verify().unwrap().is_ok());
    let copies = tempfile::tempdir().unwrap();
    let copy = |name: &str| copies.path().join(name);
    db.backup(copy("backups")).unwrap();
    db.checkpoint(copy("checkpoint")).unwrap();
    Backups::open(copy("backups")).unwrap().restore(None, copy("restored"), None).unwrap();
    drop(db);
    for dir in [tmp.path().to_path_buf(), copy("checkpoint"), copy("restored")] {
        let db = Db::open(dir, small(Durability::Process)).unwrap();
        assert_eq!(db.iter().count(), 5000 + 100 + 50 + 10);
        assert_eq!(db.get("m3").unwrap().as_deref(), Some(&b"7"[..]));
        assert!(db.verify().unwrap().is_ok());
    }
}

#[test]
fn snapshots_do_not_see_them_and_older_deletions_do_not_hide_them() {
    let db = Db::open("/store", small(Durability::Process).with_io("sim")).unwrap();
    db.put("b", "old").unwrap();
    db.delete_range("a".."c").unwrap();
    let before = db.snapshot();
    let iter = db.iter();
    db.ingest([("a", "1"), ("b", "2")]).unwrap();
    db.delete_range("b".."z").unwrap();
    let between = db.snapshot();
    db.ingest([("b", "3"), ("c", "4")]).unwrap();
    let check = || {
        assert_eq!((before.iter().count(), between.iter().count()), (0, 1));
        assert_eq!((before.get("a").unwrap(), between.get("b").unwrap()), (None, None));
        assert_eq!(between.get("a").unwrap().as_deref(), Some(&b"1"[..]));
        let now = db.multi_get(&["a", "b", "c"]).unwrap();
        let now: Vec<_> = now.iter().map(|v| v.as_deref().map(|v| v[0])).collect();
        assert_eq!(now, [Some(b'1'), Some(b'3'), Some(b'4')]);
        assert_eq!(db.iter().rev().count(), 3);
    };
    check();
    db.flush().unwrap();
    check();
    db.compact_range(..).unwrap();
    check();
    assert_eq!(iter.count(), 0);
    drop((before, between));
    db.compact_range(..).unwrap();
    db.wait_idle().unwrap();
    assert_eq!(db.iter().count(), 3);
}

#[test]
fn what_is_wrong_leaves_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small(Durability::Process)).unwrap();
    let space = db.keyspace("space").unwrap();
    db.ingest([("m", "1")]).unwrap();
    let there = files(tmp.path());
    assert_eq!(there.len(), 1);
    let many = || (0..3000).map(|i| (key(i), vec![7; 50]));
    let wrong: [(&str, Vec<u8>); 3] = [
        ("out of order", b"a".to_vec()),
        ("a duplicate", key(2999).into()),
        ("too long", vec![b'z'; 70_000]),
    ];
    for (what, last) in wrong {
        let pairs = many().map(|(k, v)| (k.into_bytes(), v)).chain([(last, vec![])]);
        let e = db.ingest(pairs).expect_err(what);
        assert!(matches!(e, Error::Invalid(_)) && e.kind() == ErrorKind::FixCall, "{what}: {e}");
    }
    let e = db.ingest([("b", ""), ("b", "")]).unwrap_err().to_string();
    assert!(e.contains("ascending order") && e.contains("'b' comes after 'b'"), "{e}");
    // An error that was not looked at is told again.
    let mut ingester = db.ingester().unwrap();
    ingester.add("x", "1").unwrap();
    assert!(ingester.add("w", "2").is_err() && ingester.add("y", "3").is_err());
    assert!(ingester.finish().is_err());
    let mut dropped = space.ingester().unwrap();
    many().for_each(|(k, v)| dropped.add(k, v).unwrap());
    assert!(files(tmp.path()).len() > 1);
    drop(dropped);
    let mut late = space.ingester().unwrap();
    late.add("k", "v").unwrap();
    db.drop_keyspace("space").unwrap();
    assert!(matches!(late.finish(), Err(Error::KeyspaceDropped(_))));
    assert!(matches!(space.ingester().map(drop), Err(Error::KeyspaceDropped(_))));
    assert_eq!((files(tmp.path()), db.iter().count()), (there.clone(), 1));
    assert_eq!(db.ingest(Vec::<(&str, &str)>::new()).unwrap(), 0);
    db.close().unwrap();
    let reader = Db::open_read_only(tmp.path(), small(Durability::Process)).unwrap();
    assert!(matches!(reader.ingest([("a", "b")]), Err(Error::ReadOnly)));
    assert_eq!(files(tmp.path()), there);
}

#[test]
fn files_that_a_dead_process_leaves_are_removed() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small(Durability::Process)).unwrap();
    db.put("a", "1").unwrap();
    let mut ingester = db.ingester().unwrap();
    (0..5000).for_each(|i| ingester.add(key(i), [1; 100]).unwrap());
    let copy = tempfile::tempdir().unwrap();
    let left = files(tmp.path()).len();
    assert!(left > 3, "{left}");
    for e in std::fs::read_dir(tmp.path()).unwrap() {
        let e = e.unwrap();
        if e.file_type().unwrap().is_file() {
            std::fs::copy(e.path(), copy.path().join(e.file_name())).unwrap();
        }
    }
    let other = Db::open(copy.path(), small(Durability::Process)).unwrap();
    other.wait_idle().unwrap();
    assert!(files(copy.path()).len() <= 1, "{:?}", files(copy.path()));
    assert_eq!(other.iter().count(), 1);
    ingester.finish().unwrap();
    assert_eq!(db.iter().count(), 5001);
}

#[test]
fn transactions_that_have_read_there_fail() {
    for durability in [Durability::Process, Durability::Sync] {
        let db = Db::open("/store", small(durability).with_io("sim")).unwrap();
        db.put("b", "1").unwrap();
        let begin = |read: &str| {
            let tx = db.transaction();
            tx.get(read).unwrap();
            tx.put("z", "1").unwrap();
            tx
        };
        let (hit, absent, beside, range) = (begin("b"), begin("c"), begin("y"), db.transaction());
        assert_eq!(range.range("a".."bb").count(), 1);
        range.put("z", "2").unwrap();
        db.ingest([("b", "2"), ("d", "2")]).unwrap();
        for tx in [hit, absent, range] {
            let e = tx.commit().unwrap_err();
            assert!(matches!(e, Error::Conflict { .. }), "{e}");
        }
        beside.commit().unwrap();
        // Long ago, so that tables are asked.
        let (hit, beside) = (begin("b"), begin("y"));
        db.ingest([("b", "3"), ("d", "2")]).unwrap();
        for i in 0..2000 {
            db.put(key(i), [1; 600]).unwrap();
        }
        assert!(matches!(hit.commit().unwrap_err(), Error::Conflict { .. }));
        beside.commit().unwrap();
        // One that begins afterwards sees it.
        let tx = begin("b");
        assert_eq!(tx.get("b").unwrap().as_deref(), Some(&b"3"[..]));
        tx.commit().unwrap();
    }
}

type Model = BTreeMap<String, Vec<u8>>;

fn compare(model: &Model, what: &str, pairs: ringdb::Iter) {
    let mut expected = model.iter();
    for pair in pairs {
        let (k, v) = pair.unwrap();
        let (ek, ev) = expected.next().unwrap_or_else(|| panic!("{what}: {k:?} should not be there"));
        assert!(k[..] == *ek.as_bytes() && v[..] == ev[..], "{what}: {ek}, found {k:?}");
    }
    assert!(expected.next().is_none(), "{what}: keys are missing");
}

fn turn(db: &Db, rng: &mut Rng, model: &mut Model, n: u64) {
    let value = |rng: &mut Rng| vec![n as u8; rng.below(200) as usize];
    let at = rng.below(600);
    match rng.below(100) {
        0..35 => {
            let v = value(rng);
            db.put(key(at), &v).unwrap();
            model.insert(key(at), v);
        }
        35..45 => {
            db.delete(key(at)).unwrap();
            model.remove(&key(at));
        }
        45..50 => {
            let to = at + rng.below(60);
            db.delete_range(key(at)..key(to)).unwrap();
            model.retain(|k, _| !(key(at)..key(to)).contains(k));
        }
        50..80 => {
            let (mut i, mut pairs) = (at, Vec::new());
            for _ in 0..1 + rng.below(60) {
                pairs.push((key(i), value(rng)));
                i += 1 + rng.below(3);
            }
            assert_eq!(db.ingest(pairs.clone()).unwrap(), pairs.len() as u64);
            model.extend(pairs);
        }
        80..85 => {
            let (mut batch, v) = (WriteBatch::new(), value(rng));
            batch.put(key(at), &v);
            let none = WriteOptions::default().durability(Durability::None);
            db.write(batch, &none).unwrap();
            model.insert(key(at), v);
        }
        85..92 => db.flush().unwrap(),
        92..96 => db.compact_range(key(at)..key(at + 100)).unwrap(),
        96..98 => db.wait_idle().unwrap(),
        _ => assert!(db.verify_with(&VerifyOptions::default()).unwrap().is_ok()),
    }
}

#[test]
fn any_order_of_calls_reads_as_a_sorted_map() {
    let seed = seed("any_order_of_calls_reads_as_a_sorted_map");
    let turns = env_number("RINGDB_TURNS", 250);
    for (round, durability) in [Durability::Process, Durability::Sync].into_iter().enumerate() {
        let tmp = tempfile::tempdir().unwrap();
        let mut rng = Rng(seed + round as u64);
        let mut db = Db::open(tmp.path(), small(durability)).unwrap();
        let (mut model, mut snapshots) = (Model::new(), Vec::new());
        for n in 0..turns {
            turn(&db, &mut rng, &mut model, n);
            match rng.below(40) {
                0 => snapshots.push((db.snapshot(), model.clone())),
                1 if snapshots.len() > 2 => drop(snapshots.swap_remove(0)),
                2 => {
                    for (snapshot, then) in &snapshots {
                        compare(then, "a snapshot", snapshot.iter());
                    }
                }
                3..6 => {
                    compare(&model, "now", db.iter());
                    for _ in 0..50 {
                        let k = key(rng.below(700));
                        let found = db.get(&k).unwrap().map(|v| v.to_vec());
                        assert_eq!(found.as_ref(), model.get(&k), "{k} in turn {n}");
                    }
                }
                6 if rng.chance(4) => {
                    snapshots.clear();
                    // What is not closed, the log has, but for what was not to be logged.
                    db.flush().unwrap();
                    drop(db);
                    db = Db::open(tmp.path(), small(durability)).unwrap();
                }
                _ => {}
            }
        }
        compare(&model, "the end", db.iter());
    }
}

/// Whoever sees what was written after an ingest sees the ingest; a scan sees all of one or nothing. Also while the
/// ranges are written to, so that memtables have to be flushed in between.
#[test]
fn beside_writers_and_readers_it_is_one_write() {
    for (io, durability) in [("posix", Durability::Process), ("auto", Durability::Sync)] {
        let tmp = tempfile::tempdir().unwrap();
        let db = Db::open(tmp.path(), small(durability).with_io(io)).unwrap();
        let (done, over, scans) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
        let rounds = env_number("RINGDB_ROUNDS", 25);
        std::thread::scope(|s| {
            for w in 0..2 {
                let (db, over, done) = (&db, &over, &done);
                s.spawn(move || {
                    for i in 0.. {
                        if over.load(SeqCst) {
                            break;
                        }
                        // Of the last ingest that has ended; and something between its keys.
                        let round = done.load(SeqCst);
                        db.put(format!("z{w}"), round.to_be_bytes()).unwrap();
                        if w == 0 && round % 3 == 0 {
                            db.put(format!("key:{:06}x", i % 200), "between").unwrap();
                        }
                    }
                });
            }
            for _ in 0..2 {
                let (db, over, scans) = (&db, &over, &scans);
                s.spawn(move || {
                    while !over.load(SeqCst) {
                        let (mut rounds, mut marks) = (Vec::new(), Vec::new());
                        for pair in db.iter() {
                            let (k, v) = pair.unwrap();
                            match v.len() {
                                8 if k[0] == b'z' => {
                                    marks.push(u64::from_be_bytes(v[..].try_into().unwrap()))
                                }
                                8 => rounds.push(u64::from_be_bytes(v[..].try_into().unwrap())),
                                _ => {}
                            }
                        }
                        rounds.dedup();
                        assert!(rounds.len() <= 1, "parts of several ingests: {rounds:?}");
                        let seen = rounds.first().copied().unwrap_or(0);
                        assert!(marks.iter().all(|m| *m <= seen), "{marks:?} came after {seen}");
                        scans.fetch_add(1, SeqCst);
                    }
                });
            }
            for round in 1..=rounds {
                db.ingest((0..300).map(|i| (key(i), round.to_be_bytes()))).unwrap();
                done.store(round, SeqCst);
            }
            over.store(true, SeqCst);
        });
        println!("{} scans beside {rounds} ingests", scans.load(SeqCst));
        assert!(db.verify().unwrap().is_ok());
    }
}
