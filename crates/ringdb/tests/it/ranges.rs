//! Deleted ranges, from the outside.

use std::collections::BTreeMap;
use std::ops::Bound;

use ringdb::{Compression, Db, Durability, Error, Options, WriteBatch, WriteOptions};

fn small() -> Options {
    Options::default()
        .with_cache_bytes(4 << 20)
        .with_memtable_bytes(256 << 10)
        .with_background_threads(1)
        .with_compression(Compression::None)
        .with_durability(Durability::Process)
}

fn key(i: u64) -> String {
    format!("key:{i:08}")
}

fn fill(db: &Db, from: u64, to: u64) {
    for chunk in (from..to).collect::<Vec<_>>().chunks(500) {
        let mut batch = WriteBatch::new();
        chunk.iter().for_each(|i| batch.put(key(*i), [*i as u8; 100]));
        db.write(batch, &WriteOptions::default()).expect("write");
    }
}

fn keys(db: &Db) -> Vec<String> {
    db.iter().map(|p| String::from_utf8(p.expect("a pair").0.into_vec()).expect("a key")).collect()
}

/// What is there, by every way to read.
fn check(db: &Db, there: &BTreeMap<String, bool>) {
    let expected: Vec<&String> = there.iter().filter(|(_, t)| **t).map(|(k, _)| k).collect();
    assert_eq!(keys(db).iter().collect::<Vec<_>>(), expected);
    let mut back: Vec<_> =
        db.iter().rev().map(|p| String::from_utf8(p.unwrap().0.into_vec()).unwrap()).collect();
    back.reverse();
    assert_eq!(back.iter().collect::<Vec<_>>(), expected);
    let names: Vec<&String> = there.keys().collect();
    for ((name, t), many) in there.iter().zip(db.multi_get(&names).expect("multi_get")) {
        assert_eq!(db.get(name).expect("get").is_some(), *t, "{name}");
        assert_eq!(many.is_some(), *t, "{name}");
    }
}

#[test]
fn ranges_prefixes_and_everything() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small()).expect("open");
    let (users, other) = (db.keyspace("users").expect("users"), db.keyspace("other").expect("other"));
    for k in ["a", "b", "b\0", "c", "d", "\u{ff}"] {
        db.put(k, k).unwrap();
        users.put(k, k).unwrap();
        other.put(k, k).unwrap();
    }
    let snapshot = db.snapshot();
    users.delete_range("b"..="b").unwrap();
    users.delete_range((Bound::Excluded("c"), Bound::Unbounded)).unwrap();
    let left = || -> Vec<String> {
        users.iter().map(|p| String::from_utf8(p.unwrap().0.into_vec()).unwrap()).collect()
    };
    assert_eq!(left(), ["a", "b\0", "c"]);
    users.put("b", "again").unwrap();
    users.delete_prefix("b\0").unwrap();
    assert_eq!(left(), ["a", "b", "c"]);
    // Nothing is covered by an empty range.
    users.delete_range("c".."a").unwrap();
    users.delete_range("c".."c").unwrap();
    assert_eq!(left(), ["a", "b", "c"]);
    users.clear().unwrap();
    assert!(left().is_empty() && users.get("a").unwrap().is_none());
    assert_eq!((db.iter().count(), other.iter().count()), (6, 6), "other keyspaces are as they were");
    assert_eq!(snapshot.keyspace(&users).iter().count(), 6);
    assert_eq!(snapshot.keyspace(&users).iter().rev().count(), 6);
    let mut batch = WriteBatch::new();
    batch.put("b", "before");
    batch.delete_range("b".."d");
    batch.put("c", "after");
    batch.delete_prefix_in(&other, "");
    assert_eq!(batch.len(), 4);
    db.write(batch, &WriteOptions::default()).unwrap();
    assert_eq!(keys(&db), ["a", "c", "d", "\u{ff}"]);
    assert_eq!(other.iter().count(), 0);
    db.clear().unwrap();
    assert!(keys(&db).is_empty());
    let long = vec![0; ringdb::MAX_KEY_BYTES + 1];
    assert!(matches!(db.delete_range(long.clone()..), Err(Error::Invalid(_))));
    let mut batch = WriteBatch::new();
    batch.delete_range(..long);
    assert!(matches!(db.write(batch, &WriteOptions::default()), Err(Error::Invalid(_))));
    db.drop_keyspace("users").unwrap();
    assert!(matches!(users.delete_range(..), Err(Error::KeyspaceDropped(_))));
    drop((snapshot, users, other));
    db.close().unwrap();
    let db = Db::open_read_only(tmp.path(), small()).expect("open");
    assert!(matches!(db.clear(), Err(Error::ReadOnly)));
}

/// Deleted in the memtable, deleted in tables, written again, at every stage of a store's life.
#[test]
fn they_hold_through_flush_compaction_recovery_and_checkpoint() {
    let tmp = tempfile::tempdir().unwrap();
    let (dir, copy) = (tmp.path().join("a"), tmp.path().join("b"));
    let mut db = Db::open(&dir, small()).expect("open");
    let mut there: BTreeMap<String, bool> = (0..6000).map(|i| (key(i), true)).collect();
    fill(&db, 0, 6000);
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    let delete = |db: &Db, there: &mut BTreeMap<String, bool>, from: u64, to: u64| {
        db.delete_range(key(from)..key(to)).unwrap();
        there.extend((from..to).map(|i| (key(i), false)));
    };
    delete(&db, &mut there, 100, 3000);
    fill(&db, 200, 260);
    there.extend((200..260).map(|i| (key(i), true)));
    check(&db, &there);
    let before = there.clone();
    let snapshot = db.snapshot();
    db.flush().unwrap();
    check(&db, &there);
    delete(&db, &mut there, 210, 220);
    delete(&db, &mut there, 5000, 9000);
    db.flush().unwrap();
    check(&db, &there);
    let seen: Vec<_> = snapshot.iter().map(|p| String::from_utf8(p.unwrap().0.into_vec()).unwrap()).collect();
    assert_eq!(
        seen.iter().collect::<Vec<_>>(),
        before.iter().filter(|(_, t)| **t).map(|(k, _)| k).collect::<Vec<_>>()
    );
    db.wait_idle().unwrap();
    check(&db, &there);
    assert_eq!(snapshot.iter().count(), seen.len());
    drop(snapshot);
    db.checkpoint(&copy).unwrap();
    check(&Db::open(&copy, small()).expect("open the copy"), &there);
    for close in [true, false] {
        delete(&db, &mut there, 4000, 4100);
        fill(&db, 4050, 4060);
        there.extend((4050..4060).map(|i| (key(i), true)));
        match close {
            true => db.close().unwrap(),
            false => drop(db),
        }
        db = Db::open(&dir, small()).expect("open");
        check(&db, &there);
    }
    let report = db.verify().unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
    db.compact_range(..).unwrap();
    check(&db, &there);
    db.wait_idle().unwrap();
    check(&db, &there);
    assert_eq!(db.stats().range_tombstones, 0, "nothing is left to hide");
}

#[test]
fn a_put_under_an_older_range_survives_the_last_level() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small()).expect("open");
    fill(&db, 0, 2000);
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    // The snapshot keeps the tombstone alive while what was put after it goes to the last level.
    let snapshot = db.snapshot();
    db.clear().unwrap();
    db.put(key(7), "new").unwrap();
    for _ in 0..3 {
        db.flush().unwrap();
        db.compact_range(..).unwrap();
        assert_eq!(db.get(key(7)).unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(keys(&db), [key(7)]);
        assert_eq!(snapshot.iter().count(), 2000);
        db.put(key(8), "x").unwrap();
        db.delete(key(8)).unwrap();
    }
    assert_eq!(db.stats().range_tombstones, 1);
    drop(snapshot);
    db.wait_idle().unwrap();
    assert_eq!(keys(&db), [key(7)]);
    assert_eq!(db.stats().range_tombstones, 0);
}

#[test]
fn a_transaction_that_has_read_what_a_range_deletes_conflicts() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small()).expect("open");
    fill(&db, 0, 100);
    // What was written lately is known to the commit queue; a large batch makes it forget, and tables are asked.
    for (flush, forget) in [(false, false), (false, true), (true, true)] {
        for (read, deleted, conflicts) in [(5, 0..10, true), (5, 5..6, true), (5, 6..10, false)] {
            let expected = if conflicts { "a conflict" } else { "no conflict" };
            let (one, many) = (db.transaction(), db.transaction());
            one.get(key(read)).unwrap();
            one.put("other", "1").unwrap();
            assert!(many.range(key(read)..key(read + 1)).count() <= 1);
            many.put("another", "1").unwrap();
            db.delete_range(key(deleted.start)..key(deleted.end)).unwrap();
            if forget {
                db.put("large", vec![7; 600 << 10]).unwrap();
            }
            if flush {
                db.flush().unwrap();
            }
            for t in [one, many] {
                let done = t.commit();
                assert_eq!(matches!(done, Err(Error::Conflict { .. })), conflicts, "{expected}: {done:?}");
            }
            fill(&db, 0, 100);
        }
    }
}
