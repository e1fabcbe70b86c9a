//! Every public call, in the small: what it returns, and what it says when it is used wrongly.
#![allow(clippy::unwrap_used)]

use std::ops::Bound;

use ringdb::{
    Compression, Db, Durability, Error, ErrorKind, Options, ReadOptions, Value, WriteBatch, WriteOptions,
};
use tempfile::TempDir;

fn small() -> Options {
    Options::default().with_cache_bytes(8 << 20).with_memtable_bytes(1 << 20).with_background_threads(2)
}

fn fresh() -> (TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db"), small()).unwrap();
    (dir, db)
}

fn pairs(i: impl Iterator<Item = ringdb::Result<(Value, Value)>>) -> Vec<(String, String)> {
    let text = |v: Value| String::from_utf8(v.into_vec()).unwrap();
    i.map(|kv| kv.unwrap()).map(|(k, v)| (text(k), text(v))).collect()
}

fn keys(i: impl Iterator<Item = ringdb::Result<(Value, Value)>>) -> String {
    pairs(i).into_iter().map(|(k, _)| k).collect::<Vec<_>>().join(" ")
}

#[test]
fn put_get_delete() {
    let (_dir, db) = fresh();
    assert_eq!(db.get("k").unwrap(), None);
    db.put("k", "v").unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), b"v");
    db.put("k", "w").unwrap();
    assert_eq!(db.get(b"k").unwrap().unwrap(), b"w");
    db.delete("k").unwrap();
    db.delete("never there").unwrap();
    assert_eq!(db.get("k").unwrap(), None);
    db.flush().unwrap();
    assert_eq!(db.get("k").unwrap(), None);
    assert_eq!(db.get_with("k", &ReadOptions::default().fill_cache(false)).unwrap(), None);
}

#[test]
fn empty_keys_and_values_are_keys_and_values() {
    let (_dir, db) = fresh();
    db.put("", "of the empty key").unwrap();
    db.put("empty", "").unwrap();
    for _ in 0..2 {
        assert_eq!(db.get("").unwrap().unwrap(), b"of the empty key");
        assert_eq!(db.get("empty").unwrap().unwrap(), b"");
        assert_eq!(keys(db.iter()), " empty");
        db.flush().unwrap();
    }
    db.delete("").unwrap();
    assert_eq!(db.get("").unwrap(), None);
    assert_eq!(keys(db.iter()), "empty");
}

#[test]
fn a_batch_is_applied_in_order_and_whole() {
    let (_dir, db) = fresh();
    let users = db.keyspace("users").unwrap();
    let mut b = WriteBatch::new();
    b.put("a", "1");
    b.put("a", "2");
    b.delete("b");
    b.put_in(&users, "a", "user");
    b.put("c", "3");
    b.delete("c");
    assert_eq!(b.len(), 6);
    for d in [Durability::None, Durability::Process, Durability::Sync] {
        db.write(b.clone(), &WriteOptions::default().durability(d)).unwrap();
        assert_eq!(db.get("a").unwrap().unwrap(), b"2");
        assert_eq!(db.get("c").unwrap(), None);
        assert_eq!(users.get("a").unwrap().unwrap(), b"user");
    }
    db.write(WriteBatch::new(), &WriteOptions::default()).unwrap();
    b.clear();
    b.delete_in(&users, "a");
    db.write(b, &WriteOptions::default()).unwrap();
    assert_eq!(users.get("a").unwrap(), None);
}

#[test]
fn multi_get_answers_in_the_order_asked() {
    let (_dir, db) = fresh();
    for i in 0..2000 {
        db.put(format!("key{i:05}"), format!("value{i}")).unwrap();
        if i == 1000 {
            db.flush().unwrap();
        }
    }
    let asked: Vec<String> = (0..3000).rev().step_by(7).map(|i| format!("key{i:05}")).collect();
    let got = db.multi_get(&asked).unwrap();
    assert_eq!(got.len(), asked.len());
    for (k, v) in asked.iter().zip(&got) {
        assert_eq!(v, &db.get(k).unwrap(), "{k}");
    }
    assert_eq!(db.multi_get::<&str>(&[]).unwrap(), vec![]);
    let same = db.multi_get(&["key00001", "key00001"]).unwrap();
    assert_eq!(same[0], same[1]);
}

#[test]
fn ranges_and_prefixes_from_both_ends() {
    let (_dir, db) = fresh();
    for k in ["a", "b", "ba", "bb", "c", "d"] {
        db.put(k, k.to_uppercase()).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(keys(db.iter()), "a b ba bb c d");
        assert_eq!(keys(db.iter().rev()), "d c bb ba b a");
        assert_eq!(keys(db.range("b".."c")), "b ba bb");
        assert_eq!(keys(db.range("b"..="c")), "b ba bb c");
        assert_eq!(keys(db.range("bb"..)), "bb c d");
        assert_eq!(keys(db.range(..="b").rev()), "b a");
        assert_eq!(keys(db.range((Bound::Excluded("b"), Bound::Excluded("bb")))), "ba");
        assert_eq!(keys(db.range("x"..)), "");
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = db.range("c".."a");
        assert_eq!(keys(backwards), "");
        assert_eq!(keys(db.prefix("b")), "b ba bb");
        assert_eq!(keys(db.prefix("b").rev()), "bb ba b");
        assert_eq!(keys(db.prefix("")), "a b ba bb c d");
        let mut both = db.iter();
        assert_eq!(both.next().unwrap().unwrap().0, b"a");
        assert_eq!(both.next_back().unwrap().unwrap().0, b"d");
        assert_eq!(keys(both), "b ba bb c");
        db.flush().unwrap();
    }
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let (_dir, db) = fresh();
    let ks = db.keyspace("ks").unwrap();
    db.put("k", "old").unwrap();
    ks.put("k", "old too").unwrap();
    let snap = db.snapshot();
    assert_eq!(db.stats().snapshots, 1);
    db.put("k", "new").unwrap();
    db.put("l", "new").unwrap();
    ks.delete("k").unwrap();
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    assert_eq!(snap.get("k").unwrap().unwrap(), b"old");
    assert_eq!(snap.multi_get(&["k", "l"]).unwrap(), [Some(Value::from(&b"old"[..])), None]);
    assert_eq!(pairs(snap.iter()), [("k".to_string(), "old".to_string())]);
    assert_eq!(snap.keyspace(&ks).get("k").unwrap().unwrap(), b"old too");
    assert_eq!(ks.get("k").unwrap(), None);
    let again = snap.clone();
    drop(snap);
    assert_eq!(again.get("k").unwrap().unwrap(), b"old");
    drop(again);
    assert_eq!(db.stats().snapshots, 0);
    assert_eq!(db.get("k").unwrap().unwrap(), b"new");
}

#[test]
fn an_iterator_stays_as_it_was() {
    let (_dir, db) = fresh();
    for i in 0..100 {
        db.put(format!("{i:03}"), "old").unwrap();
    }
    let mut it = db.iter();
    assert_eq!(it.next().unwrap().unwrap().0, b"000");
    for i in 0..200 {
        db.put(format!("{i:03}"), "new").unwrap();
    }
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    let rest = pairs(it);
    assert_eq!(rest.len(), 99);
    assert!(rest.iter().all(|(_, v)| v == "old"));
}

#[test]
fn keyspaces_are_made_listed_and_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    assert!(db.keyspaces().unwrap().is_empty());
    assert!(db.existing_keyspace("users").unwrap().is_none());
    let users = db.keyspace("users").unwrap();
    assert_eq!(users.name(), "users");
    let orders = db.keyspace("orders").unwrap();
    users.put("k", "u").unwrap();
    orders.put("k", "o").unwrap();
    db.put("k", "d").unwrap();
    assert_eq!(db.keyspaces().unwrap(), ["orders", "users"]);
    assert_eq!(db.keyspace("users").unwrap().get("k").unwrap().unwrap(), b"u");
    assert_eq!(db.keyspace("default").unwrap().get("k").unwrap().unwrap(), b"d");
    assert_eq!(keys(users.iter()), "k");
    assert_eq!(pairs(orders.prefix("")), [("k".to_string(), "o".to_string())]);

    assert!(db.drop_keyspace("users").unwrap());
    assert!(!db.drop_keyspace("users").unwrap());
    assert!(matches!(users.put("k", "x"), Err(Error::KeyspaceDropped(n)) if n == "users"));
    assert!(matches!(users.get("k"), Err(Error::KeyspaceDropped(_))));
    assert!(matches!(users.iter().next(), Some(Err(Error::KeyspaceDropped(_)))));
    let mut b = WriteBatch::new();
    b.put("untouched", "x");
    b.put_in(&users, "k", "x");
    assert!(matches!(db.write(b, &WriteOptions::default()), Err(Error::KeyspaceDropped(_))));
    assert_eq!(db.get("untouched").unwrap(), None);

    let anew = db.keyspace("users").unwrap();
    assert_eq!(anew.get("k").unwrap(), None);
    anew.put("k", "anew").unwrap();
    db.compact_range(..).unwrap();
    assert!(users.get("k").is_err());
    drop((users, orders, anew, db));

    let db = Db::open(dir.path(), small()).unwrap();
    assert_eq!(db.keyspaces().unwrap(), ["orders", "users"]);
    assert_eq!(db.existing_keyspace("users").unwrap().unwrap().get("k").unwrap().unwrap(), b"anew");
    assert_eq!(pairs(db.iter()), [("k".to_string(), "d".to_string())]);
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn keyspace_names_are_checked() {
    let (_dir, db) = fresh();
    for name in ["", &"x".repeat(256)] {
        let e = db.keyspace(name).unwrap_err();
        assert!(matches!(e, Error::Invalid(_)) && e.to_string().contains("255"), "{e}");
    }
    db.keyspace(&"x".repeat(255)).unwrap();
    db.keyspace("with/slash and ünïcode").unwrap();
    assert!(matches!(db.drop_keyspace("default"), Err(Error::Invalid(_))));
}

#[test]
fn many_keyspaces_keep_their_keys_apart() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    let all: Vec<_> = (0..300).map(|i| db.keyspace(&format!("ks{i}")).unwrap()).collect();
    for (i, ks) in all.iter().enumerate() {
        ks.put("", i.to_string()).unwrap();
        ks.put([0xFF; 9], i.to_string()).unwrap();
    }
    db.flush().unwrap();
    drop((all, db));
    let db = Db::open(dir.path(), small()).unwrap();
    for i in 0..300 {
        let ks = db.existing_keyspace(&format!("ks{i}")).unwrap().unwrap();
        let got: Vec<_> = ks.iter().map(|kv| kv.unwrap()).collect();
        assert_eq!(got.len(), 2, "{i}");
        assert!(got.iter().all(|(_, v)| *v == i.to_string().into_bytes()), "{i}");
        assert_eq!(ks.iter().next_back().unwrap().unwrap().0, [0xFF; 9]);
    }
}

#[test]
fn a_keyspace_of_another_store_is_refused() {
    let ((_a, one), (_b, two)) = (fresh(), fresh());
    let foreign = two.keyspace("ks").unwrap();
    let mut b = WriteBatch::new();
    b.put_in(&foreign, "k", "v");
    let e = one.write(b, &WriteOptions::default()).unwrap_err();
    assert!(e.to_string().contains("another store"), "{e}");
    assert!(one.snapshot().keyspace(&foreign).get("k").is_err());
}

#[test]
fn limits_are_named() {
    let (_dir, db) = fresh();
    let long = vec![b'k'; 64 << 10];
    db.put(&long, "fits").unwrap();
    let mut longer = long.clone();
    longer.push(b'k');
    let e = db.put(&longer, "x").unwrap_err();
    assert!(matches!(e, Error::Invalid(_)) && e.to_string().contains("64 KiB"), "{e}");
    assert_eq!(e.kind(), ErrorKind::FixCall);
    let mut b = WriteBatch::new();
    b.put("ok", "x");
    b.delete(&longer);
    assert!(matches!(db.write(b, &WriteOptions::default()), Err(Error::Invalid(_))));
    assert_eq!(db.get("ok").unwrap(), None);
    assert_eq!(db.get(&longer).unwrap(), None);
    for _ in 0..2 {
        assert_eq!(db.get(&long).unwrap().unwrap(), b"fits");
        assert_eq!(db.iter().count(), 1);
        db.flush().unwrap();
    }
}

#[test]
fn a_value_of_more_than_1_gib_is_refused() {
    let (_dir, db) = fresh();
    // Zeroed memory that is never touched costs nothing.
    let e = db.put("k", vec![0; (1 << 30) + 1]).unwrap_err();
    assert!(matches!(e, Error::Invalid(_)) && e.to_string().contains("1 GiB"), "{e}");
}

#[test]
fn large_values_come_back() {
    for durability in [Durability::Process, Durability::Sync] {
        let dir = tempfile::tempdir().unwrap();
        let options = small().with_durability(durability);
        let db = Db::open(dir.path(), options.clone()).unwrap();
        let value = |n: usize| (0..n).map(|i| ((i as u64 * 2_654_435_761) >> 7) as u8).collect::<Vec<u8>>();
        let sizes = [4000, 4096, 5000, 65_536, 1 << 20, (17 << 20) + 3, 100 << 20];
        for (i, n) in sizes.iter().enumerate() {
            db.put(format!("k{i}"), value(*n)).unwrap();
        }
        let check = |db: &Db| {
            for (i, n) in sizes.iter().enumerate() {
                assert!(db.get(format!("k{i}")).unwrap().unwrap() == value(*n), "{n} bytes");
            }
            let lengths: Vec<usize> = db.iter().map(|kv| kv.unwrap().1.len()).collect();
            assert_eq!(lengths, sizes);
        };
        check(&db);
        drop(db);
        let db = Db::open(dir.path(), options).unwrap();
        check(&db);
        db.flush().unwrap();
        check(&db);
        assert!(db.verify().unwrap().is_ok());
    }
}

#[test]
fn flush_and_compact_show_in_the_stats() {
    let (_dir, db) = fresh();
    for i in 0..1000 {
        db.put(format!("{i:04}"), vec![b'v'; 100]).unwrap();
    }
    let s = db.stats();
    assert!(s.memtable_bytes > 100_000 && s.table_entries == 0 && s.write_batches == 1000, "{s:?}");
    assert_eq!(s.last_sequence, 1000);
    assert!(!s.io.is_empty() && s.log_written_bytes > 100_000 && s.log_bytes > 0);
    db.flush().unwrap();
    let s = db.stats();
    assert_eq!((s.flushes, s.table_entries, s.immutable_memtables), (1, 1000, 0));
    assert!(s.table_bytes > 100_000 && s.flush_written_bytes >= s.table_bytes && s.index_bytes > 0);
    assert_eq!(s.cache_capacity_bytes, 8 << 20);
    db.get("0500").unwrap();
    db.get("0500").unwrap();
    let s = db.stats();
    assert!(s.cache_misses >= 1 && s.cache_hits >= 1 && s.cache_used_bytes > 0, "{s:?}");
    db.delete("0500").unwrap();
    db.compact_range(..).unwrap();
    let s = db.stats();
    assert_eq!(s.table_entries, 999);
    assert_eq!(s.levels.iter().map(|l| l.entries).sum::<u64>(), 999);
    assert!(s.levels.iter().any(|l| l.level == 6 && l.tables >= 1), "{:?}", s.levels);
    assert_eq!(s.stopped, None);
    assert_eq!(db.get("0500").unwrap(), None);
    assert_eq!(db.iter().count(), 999);
}

#[test]
fn compacting_a_range_leaves_the_rest_readable() {
    let (_dir, db) = fresh();
    for round in 0..3 {
        for i in 0..3000 {
            db.put(format!("{i:05}"), format!("{round}-{i}")).unwrap();
        }
        db.flush().unwrap();
    }
    db.compact_range("01000".."02000").unwrap();
    for i in 0..3000 {
        assert_eq!(db.get(format!("{i:05}")).unwrap().unwrap(), format!("2-{i}").into_bytes());
    }
    assert_eq!(db.iter().count(), 3000);
}

#[test]
fn every_compression_and_block_size_reads_back() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        for block in [4096, 16384, 65536] {
            let dir = tempfile::tempdir().unwrap();
            let o = small()
                .with_compression(compression)
                .with_last_level_compression(compression)
                .with_block_bytes(block)
                .with_filter_bits_per_key(if block == 4096 { 0 } else { 10 });
            let db = Db::open(dir.path(), o.clone()).unwrap();
            for i in 0..5000 {
                db.put(format!("key{i:06}"), format!("value {i} {}", "x".repeat(i % 200))).unwrap();
            }
            db.flush().unwrap();
            db.compact_range(..).unwrap();
            drop(db);
            // A store keeps what its tables were written with; other settings may come.
            let db = Db::open(dir.path(), o.with_block_bytes(4096)).unwrap();
            for i in (0..5000).step_by(37) {
                let v = db.get(format!("key{i:06}")).unwrap().unwrap();
                assert_eq!(v, format!("value {i} {}", "x".repeat(i % 200)).into_bytes());
            }
            assert_eq!(db.iter().rev().count(), 5000);
            assert!(db.verify().unwrap().is_ok());
        }
    }
}

#[test]
fn verify_reads_everything() {
    let (_dir, db) = fresh();
    for i in 0..2000 {
        db.put(format!("{i:05}"), [7; 50]).unwrap();
    }
    db.flush().unwrap();
    db.put("in the log", "only").unwrap();
    let r = db.verify().unwrap();
    assert!(r.is_ok(), "{:?}", r.problems);
    assert!(r.files >= 3 && r.entries >= 2000 && r.bytes > 100_000 && r.blocks > 20, "{r:?}");
}

#[test]
fn a_checkpoint_is_a_store_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db"), small()).unwrap();
    let ks = db.keyspace("ks").unwrap();
    for i in 0..1000 {
        db.put(format!("{i:04}"), "before").unwrap();
        ks.put(format!("{i:04}"), "ks").unwrap();
    }
    db.flush().unwrap();
    db.put("in memory", "only").unwrap();
    let to = dir.path().join("copy");
    db.checkpoint(&to).unwrap();
    db.put("0001", "after").unwrap();
    db.compact_range(..).unwrap();
    let e = db.checkpoint(&to).unwrap_err();
    assert!(matches!(e, Error::Invalid(_)) && e.to_string().contains("empty"), "{e}");
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    db.checkpoint(dir.path().join("empty")).unwrap();

    let copy = Db::open(&to, small()).unwrap();
    assert_eq!(copy.get("0001").unwrap().unwrap(), b"before");
    assert_eq!(copy.get("in memory").unwrap().unwrap(), b"only");
    assert_eq!(copy.iter().count(), 1001);
    assert_eq!(copy.existing_keyspace("ks").unwrap().unwrap().iter().count(), 1000);
    copy.put("0002", "in the copy").unwrap();
    copy.compact_range(..).unwrap();
    assert!(copy.verify().unwrap().is_ok());
    assert_eq!(db.get("0002").unwrap().unwrap(), b"before");
    assert!(db.verify().unwrap().is_ok());
    let second = Db::open(dir.path().join("empty"), small()).unwrap();
    assert_eq!(second.get("0001").unwrap().unwrap(), b"after");
}

#[test]
fn a_store_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    let e = Db::open(dir.path(), small()).unwrap_err();
    assert!(matches!(e, Error::Locked(_)), "{e}");
    assert!(e.to_string().contains("open in this process already"), "{e}");
    assert_eq!(e.kind(), ErrorKind::Retry);
    // By any name.
    let link = tempfile::tempdir().unwrap();
    let link = link.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    let e = Db::open(&link, small()).unwrap_err();
    assert!(e.to_string().contains("open in this process already"), "{e}");
    let clone = db.clone();
    drop(db);
    assert!(matches!(Db::open(dir.path(), small()), Err(Error::Locked(_))));
    drop(clone);
    Db::open(dir.path(), small()).unwrap();
}

#[test]
fn closing_ends_every_handle() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    let (clone, ks, snap) = (db.clone(), db.keyspace("ks").unwrap(), db.snapshot());
    db.put("k", "v").unwrap();
    let mut it = db.iter();
    db.close().unwrap();
    assert!(matches!(clone.put("k", "w"), Err(Error::Closed)));
    assert!(matches!(clone.get("k"), Err(Error::Closed)));
    assert!(matches!(ks.delete("k"), Err(Error::Closed)));
    assert!(matches!(snap.get("k"), Err(Error::Closed)));
    assert!(matches!(clone.flush(), Err(Error::Closed)));
    assert!(matches!(clone.iter().next(), Some(Err(Error::Closed))));
    assert!(matches!(clone.keyspace("new"), Err(Error::Closed)));
    assert!(matches!(clone.clone().close(), Err(Error::Closed)));
    // The lock is free, although handles are left; an iterator made before goes on with what it has.
    let db = Db::open(dir.path(), small()).unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), b"v");
    assert_eq!(it.next().unwrap().unwrap().1, b"v");
    assert!(it.next().is_none());
}

#[test]
fn read_only_beside_a_writer_is_a_point_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    let ks = db.keyspace("ks").unwrap();
    for i in 0..1000 {
        db.put(format!("{i:04}"), "table").unwrap();
    }
    db.flush().unwrap();
    for i in 0..100 {
        db.put(format!("{i:04}"), "log").unwrap();
    }
    ks.put("k", "v").unwrap();
    let ro = Db::open_read_only(dir.path(), small()).unwrap();
    let check = || {
        assert_eq!(ro.get("0050").unwrap().unwrap(), b"log");
        assert_eq!(ro.get("0500").unwrap().unwrap(), b"table");
        assert_eq!(ro.iter().count(), 1000);
        assert_eq!(ro.keyspaces().unwrap(), ["ks"]);
        assert_eq!(ro.existing_keyspace("ks").unwrap().unwrap().get("k").unwrap().unwrap(), b"v");
    };
    check();
    for i in 0..2000 {
        db.put(format!("{i:04}"), "later").unwrap();
    }
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    check();
    assert!(matches!(ro.put("k", "v"), Err(Error::ReadOnly)));
    assert!(matches!(ro.flush(), Err(Error::ReadOnly)));
    assert!(matches!(ro.keyspace("new"), Err(Error::ReadOnly)));
    assert!(matches!(ro.drop_keyspace("ks"), Err(Error::ReadOnly)));
    assert!(matches!(ro.compact_range(..), Err(Error::ReadOnly)));
    assert!(matches!(ro.checkpoint(dir.path().join("x")), Err(Error::ReadOnly)));
    drop((ks, db));
    check();
    ro.close().unwrap();
    let db = Db::open(dir.path(), small()).unwrap();
    assert_eq!(db.iter().count(), 2000);
}

#[test]
fn settings_out_of_range_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (o, what) in [
        (small().with_block_bytes(1000), "block_bytes"),
        (small().with_cache_bytes(0), "cache_bytes"),
        (small().with_memtable_bytes(0), "memtable_bytes"),
        (small().with_io("warp-drive"), "warp-drive"),
    ] {
        let e = Db::open(dir.path().join("never"), o).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::FixCall, "{e}");
        assert!(e.to_string().contains(what), "{e}");
    }
    assert!(!dir.path().join("never").exists());
}

#[test]
fn handles_are_send_sync_and_clone() {
    fn check<T: Send + Sync + Clone>() {}
    fn send<T: Send>() {}
    check::<Db>();
    check::<ringdb::Keyspace>();
    check::<ringdb::Snapshot>();
    send::<ringdb::Iter>();
}
