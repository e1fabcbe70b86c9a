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

/// A queue whose head is deleted key by key: what is left is found by reading little, also before anybody flushes.
#[test]
fn the_head_of_a_queue_behind_many_deletions_is_found_at_once() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small().with_memtable_bytes(64 << 20).with_cache_bytes(256 << 20))
        .expect("open");
    let (n, left) = (150_000u64, 100);
    fill(&db, 0, n);
    for chunk in (0..n - left).collect::<Vec<_>>().chunks(500) {
        let mut batch = WriteBatch::new();
        chunk.iter().for_each(|i| batch.delete(key(*i)));
        db.write(batch, &WriteOptions::default()).expect("write");
    }
    // The active memtable has no long row of tombstones, wherever the rest is.
    db.wait_idle().unwrap();
    let s = db.stats();
    // Without the rule there is none; a flush that comes late takes several memtables at once.
    assert!(s.flushes >= 1, "no flush");
    assert!(s.memtable_bytes < (33 << 10) * 120, "{} bytes are in memtables", s.memtable_bytes);
    assert!(s.table_entries < 40_000, "{} entries are in tables", s.table_entries);
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let s = db.stats();
    assert_eq!(s.table_entries, left, "nothing but what is left");
    assert_eq!(db.iter().next().unwrap().unwrap().0.to_vec(), key(n - left).into_bytes());
    let after = db.stats();
    let blocks = after.cache_hits + after.cache_misses - s.cache_hits - s.cache_misses;
    assert!(blocks <= 2, "{blocks} blocks for the first key");
    assert_eq!(db.iter().count() as u64, left);
}

/// Space comes back without anybody writing more, and without reading what is deleted whole.
#[test]
fn a_cleared_store_gives_its_space_back_unread() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small()).expect("open");
    fill(&db, 0, 30_000);
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    let before = db.stats();
    assert!(before.table_bytes > 3 << 20 && before.range_tombstones == 0);
    db.clear().unwrap();
    db.put("one", "more").unwrap();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let s = db.stats();
    assert_eq!(s.compaction_read_bytes, before.compaction_read_bytes, "{:?}", s.compaction_reasons);
    assert!(s.compaction_reasons.iter().any(|(name, _)| *name == "range tombstones"));
    assert_eq!((s.table_entries, s.range_tombstones), (1, 0));
    assert_eq!(keys(&db), ["one"]);
}

/// What lies under a range is not stepped through: forwards, backwards, and by a stream.
#[test]
fn iterators_seek_past_deleted_ranges() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small()).expect("open");
    fill(&db, 0, 30_000);
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    // A snapshot keeps compactions from removing anything.
    let snapshot = db.snapshot();
    db.delete_range(key(10)..key(29_990)).unwrap();
    for flushed in [false, true] {
        if flushed {
            db.flush().unwrap();
            db.wait_idle().unwrap();
        }
        for way in ["forwards", "backwards", "stream", "cursor"] {
            let before = db.stats();
            let found = match way {
                "forwards" => db.iter().count(),
                "backwards" => db.iter().rev().count(),
                "cursor" => {
                    let mut cursor = db.cursor();
                    let mut n = usize::from(cursor.first().unwrap());
                    while cursor.next().unwrap() {
                        n += 1;
                    }
                    n
                }
                _ => {
                    let mut stream = db.range_async(..);
                    let mut n = 0;
                    while crate::executor::block_on(stream.next()).is_some() {
                        n += 1;
                    }
                    n
                }
            };
            assert_eq!(found, 20, "{way}");
            let s = db.stats();
            let blocks = s.cache_hits + s.cache_misses - before.cache_hits - before.cache_misses;
            let blocks = blocks + s.async_reads - before.async_reads;
            assert!(blocks < 40, "{blocks} blocks {way}, of about 850");
        }
    }
    assert_eq!(snapshot.iter().count(), 30_000);
}

#[test]
fn a_salvage_applies_deleted_ranges_or_says_that_it_cannot() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("a");
    let db = Db::open(&dir, small()).expect("open");
    fill(&db, 0, 2000);
    db.flush().unwrap();
    let snapshot = db.snapshot();
    db.delete_range(key(0)..key(500)).unwrap();
    db.flush().unwrap();
    db.delete_range(key(1500)..key(2000)).unwrap();
    db.put(key(1600), "again").unwrap();
    assert_eq!(db.stats().range_tombstones, 1, "one is in the manifest, one in the log");
    drop((snapshot, db));
    let report = ringdb::salvage(&dir, tmp.path().join("b"), &ringdb::SalvageOptions::default()).unwrap();
    assert!(report.is_complete() && report.manifest_whole, "{report:?}");
    let saved = Db::open(tmp.path().join("b"), small()).expect("open");
    assert_eq!(saved.iter().count(), 1001);
    assert_eq!(saved.get(key(1600)).unwrap().as_deref(), Some(&b"again"[..]));
    for f in std::fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path()) {
        if f.file_name().unwrap().to_str().unwrap().starts_with("MANIFEST") {
            std::fs::remove_file(f).unwrap();
        }
    }
    let report = ringdb::salvage(&dir, tmp.path().join("c"), &ringdb::SalvageOptions::default()).unwrap();
    assert!(report.notes.iter().any(|n| n.contains("range deletions")), "{:?}", report.notes);
}
