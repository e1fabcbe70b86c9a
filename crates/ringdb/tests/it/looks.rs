//! Reads that ask for less than a pair, cursors, and estimates.

use std::collections::BTreeMap;

use crate::support::{Rng, seed};

use ringdb::{Db, Error, Options, Value};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn small() -> Options {
    Options::default().with_io("sim").with_memtable_bytes(64 << 10).with_cache_bytes(1 << 20)
}

fn at(cursor: &ringdb::Cursor) -> Option<(&[u8], &[u8])> {
    Some((cursor.key()?, cursor.value()?))
}

fn of(pair: Option<(&Vec<u8>, &Vec<u8>)>) -> Option<(Vec<u8>, Vec<u8>)> {
    pair.map(|(k, v)| (k.clone(), v.clone()))
}

/// A store with versions in memtables and on several levels, and what it holds.
fn filled(rng: &mut Rng) -> (Db, Map) {
    let db = Db::open("/store", small()).unwrap();
    let mut map = Map::new();
    for i in 0..6000 {
        let key = format!("{:03}", rng.below(900)).into_bytes();
        if rng.chance(3) {
            db.delete(&key).unwrap();
            map.remove(&key);
        } else {
            let value = vec![i as u8; rng.below(60) as usize];
            db.put(&key, &value).unwrap();
            map.insert(key, value);
        }
        if i == 3000 {
            db.compact_range(..).unwrap();
        }
    }
    (db, map)
}

#[test]
fn a_cursor_goes_wherever_it_is_sent() {
    let mut rng = Rng(seed("cursor"));
    let (db, map) = filled(&mut rng);
    // Neighbours by their bytes, in keyspaces of their own.
    let other = db.keyspace("other").unwrap();
    other.put("500", "other").unwrap();
    let mut cursor = db.cursor();
    assert!(!cursor.valid() && !cursor.next().unwrap() && !cursor.prev().unwrap());
    let mut here: Option<(Vec<u8>, Vec<u8>)> = None;
    for step in 0..20_000 {
        let key = format!("{:03}", rng.below(1000)).into_bytes();
        let moved = match rng.below(8) {
            0 => {
                here = of(map.range(key.clone()..).next());
                cursor.seek(&key)
            }
            1 => {
                here = of(map.range(..=key.clone()).next_back());
                cursor.seek_for_prev(&key)
            }
            2 if rng.chance(8) => {
                here = of(map.iter().next());
                cursor.first()
            }
            3 if rng.chance(8) => {
                here = of(map.iter().next_back());
                cursor.last()
            }
            n if n % 2 == 0 => {
                let from = here.take();
                here = from.and_then(|(k, _)| {
                    of(map.range((std::ops::Bound::Excluded(k), std::ops::Bound::Unbounded)).next())
                });
                cursor.next()
            }
            _ => {
                let from = here.take();
                here = from.and_then(|(k, _)| of(map.range(..k).next_back()));
                cursor.prev()
            }
        };
        assert_eq!(moved.unwrap(), here.is_some(), "step {step}");
        let expected = here.as_ref().map(|(k, v)| (k.as_slice(), v.as_slice()));
        assert_eq!(at(&cursor), expected, "step {step}");
    }
    let mut of_other = other.cursor();
    assert!(
        of_other.last().unwrap() && at(&of_other) == Some((b"500", b"other")) && !of_other.next().unwrap()
    );
}

#[test]
fn a_cursor_keeps_to_its_moment_and_a_late_one_fails() {
    let mut rng = Rng(seed("cursor moment"));
    let (db, map) = filled(&mut rng);
    let mut cursor = db.cursor();
    let keyspace = db.keyspace("gone").unwrap();
    for key in map.keys() {
        db.put(key, "new").unwrap();
    }
    db.compact_range(..).unwrap();
    assert!(cursor.first().unwrap());
    for (k, v) in &map {
        assert_eq!(at(&cursor), Some((k.as_slice(), v.as_slice())));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
    db.drop_keyspace("gone").unwrap();
    let e = keyspace.cursor().first().unwrap_err();
    assert!(matches!(e, Error::KeyspaceDropped(_)), "{e}");
    let snapshot = db.snapshot();
    let clone = db.clone();
    db.close().unwrap();
    assert!(matches!(clone.cursor().last(), Err(Error::Closed)));
    assert!(matches!(snapshot.contains_key("a"), Err(Error::Closed)));
    assert!(matches!(
        clone.multi_get_in(&[(&keyspace, "a")]),
        Err(Error::Closed | Error::KeyspaceDropped(_))
    ));
    assert!(matches!(clone.approximate_len(), Err(Error::Closed)));
}

#[test]
fn borrowed_reads_answer_as_get_does() {
    let mut rng = Rng(seed("borrowed"));
    let (db, _) = filled(&mut rng);
    // Larger than a frame of the cache.
    db.put("large", vec![9; 300_000]).unwrap();
    db.flush().unwrap();
    let then = db.snapshot();
    db.delete("large").unwrap();
    assert!(!db.contains_key("large").unwrap());
    assert_eq!(then.read_with("large", |v| (v.len(), v[299_999])).unwrap(), Some((300_000, 9)));
    for i in 0..1000 {
        let key = format!("{i:03}");
        let expected = db.get(&key).unwrap();
        assert_eq!(db.read_with(&key, |v| Value::from(v)).unwrap(), expected);
        assert_eq!(db.contains_key(&key).unwrap(), expected.is_some());
    }
    // What it is given may be used to call the store.
    let key = db.first().unwrap().unwrap().0;
    let seen = db.read_with(&key, |v| {
        db.put(&key, [v, b"+"].concat()).unwrap();
        db.flush().unwrap();
        db.get(&key).unwrap().unwrap().len() - v.len()
    });
    assert_eq!(seen.unwrap(), Some(1));
}

#[test]
fn one_call_reads_several_keyspaces_of_one_store() {
    let db = Db::open("/store", small()).unwrap();
    let (a, b) = (db.keyspace("a").unwrap(), db.keyspace("b").unwrap());
    for i in 0..5000 {
        a.put(format!("{i:05}"), format!("a{i}")).unwrap();
        b.put(format!("{i:05}"), format!("b{i}")).unwrap();
    }
    let then = db.snapshot();
    b.put("00000", "changed").unwrap();
    let keys: Vec<_> = (0..5001).map(|i| (if i % 2 == 0 { &a } else { &b }, format!("{i:05}"))).collect();
    for got in [db.multi_get_in(&keys).unwrap(), then.multi_get_in(&keys).unwrap()] {
        for (i, got) in got.iter().enumerate() {
            let expected = format!("{}{i}", if i % 2 == 0 { "a" } else { "b" });
            assert_eq!(got.as_deref(), (i < 5000).then_some(expected.as_bytes()), "{i}");
        }
    }
    assert_eq!(then.multi_get_in(&[(&b, "00000")]).unwrap()[0].as_deref(), Some(&b"b0"[..]));
    let foreign = Db::open("/store", small()).unwrap();
    let e = foreign.multi_get_in(&[(&a, "00000")]).unwrap_err();
    assert!(e.to_string().contains("another store"), "{e}");
}

#[test]
fn estimates_are_near() {
    let db = Db::open("/store", small()).unwrap();
    let other = db.keyspace("other").unwrap();
    let near = |estimate: u64, exact: u64, most: u64| {
        assert!(estimate.abs_diff(exact) <= most, "{estimate} instead of {exact}, to within {most}");
    };
    assert_eq!((db.approximate_len().unwrap(), db.approximate_size(..).unwrap()), (0, 0));
    for i in 0..20_000 {
        db.put(format!("{i:05}"), [7; 100]).unwrap();
        if i % 4 == 0 {
            other.put(format!("{i:05}"), [7; 100]).unwrap();
        }
        if [5, 700, 9000, 19_999].contains(&i) {
            // Of few pairs, most are in memtables, whether flushed by now or not: told by nodes that are taken to be
            // equally full.
            let most = 1 + i / if i < 1000 { 8 } else { 20 };
            near(db.approximate_len().unwrap(), i + 1, most);
            near(other.approximate_len().unwrap(), i / 4 + 1, most);
        }
    }
    let all = db.approximate_size(..).unwrap();
    near(all, 20_000 * 110, 20_000 * 30);
    near(db.approximate_size("05000".."10000").unwrap(), all / 4, all / 20);
    assert_eq!(db.approximate_size("a".."b").unwrap(), 0);
    db.compact_range(..).unwrap();
    near(db.approximate_len().unwrap(), 20_000, 1000);
    for i in 0..10_000 {
        db.delete(format!("{i:05}")).unwrap();
    }
    db.flush().unwrap();
    near(db.approximate_len().unwrap(), 10_000, 1000);
    db.compact_range(..).unwrap();
    near(db.approximate_len().unwrap(), 10_000, 500);
    near(db.approximate_size(.."10000").unwrap(), 0, 10_000);
}
