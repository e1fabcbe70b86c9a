//! Transactions: what they see, what makes them fail, and what is left of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::support::{self, Rng, seed};

use ringdb::{
    Db, Durability, Error, ErrorKind, Keyspace, Options, Transaction, Value, WriteBatch, WriteOptions,
};

fn small(durability: Durability) -> Options {
    let o = Options::default().with_io("sim").with_memtable_bytes(64 << 10).with_cache_bytes(1 << 20);
    o.with_durability(durability)
}

fn open() -> Db {
    Db::open("/store", small(Durability::Process)).unwrap()
}

fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |v| u64::from_be_bytes(v.try_into().unwrap()))
}

fn conflict(result: ringdb::Result<()>, key: &str) {
    let e = result.expect_err("a conflict");
    assert!(matches!(e, Error::Conflict { .. }) && e.kind() == ErrorKind::Retry, "{e}");
    assert!(e.to_string().contains(key), "{e}");
}

#[test]
fn it_reads_its_own_writes_and_nobody_else_does_before_the_commit() {
    let db = open();
    let stock = db.keyspace("stock").unwrap();
    db.put("a", "1").unwrap();
    db.put("b", "2").unwrap();
    let tx = db.transaction();
    tx.put("b", "two").unwrap();
    tx.put("c", "3").unwrap();
    tx.delete("a").unwrap();
    tx.put_in(&stock, "a", "9").unwrap();
    assert_eq!(tx.get("a").unwrap(), None);
    assert_eq!(tx.get("b").unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!(tx.get_in(&stock, "a").unwrap().as_deref(), Some(&b"9"[..]));
    assert!(
        tx.contains_key("c").unwrap() && !tx.contains_key("a").unwrap() && !tx.contains_key("x").unwrap()
    );
    let all = tx.multi_get(&["a", "b", "c", "d"]).unwrap();
    assert_eq!(all.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, true, false]);
    assert!(db.get("c").unwrap().is_none() && stock.get("a").unwrap().is_none());
    tx.commit().unwrap();
    assert!(db.get("a").unwrap().is_none());
    assert_eq!(db.get("c").unwrap().as_deref(), Some(&b"3"[..]));
    assert_eq!(stock.get("a").unwrap().as_deref(), Some(&b"9"[..]));
    // Dropped: nothing has happened.
    let tx = db.transaction();
    tx.put("gone", "x").unwrap();
    drop(tx);
    let tx = db.transaction();
    tx.delete("b").unwrap();
    tx.rollback();
    assert!(db.get("gone").unwrap().is_none() && db.get("b").unwrap().is_some());
}

/// What a transaction does first, what is written then, and the key of the conflict if there is one.
type Case<'a> = (&'a str, &'a dyn Fn(&Transaction), &'a dyn Fn(), Option<&'a str>);

/// A store with keys k0 to k9.
fn ten_keys() -> Db {
    let db = open();
    for i in 0..10 {
        db.put(format!("k{i}"), "old").unwrap();
    }
    db
}

/// Runs each case: at once; when the memtable that tells of the write was flushed and little is kept of what was
/// written last; and when only that.
fn check(db: &Db, cases: &[Case<'_>]) {
    let noise = db.keyspace("noise").unwrap();
    for (what, act, write, expected) in cases {
        for after in 0..3 {
            let tx = db.transaction();
            tx.put("result", *what).unwrap();
            act(&tx);
            write();
            if after == 1 {
                db.compact_range(..).unwrap();
            }
            if after > 0 {
                for i in 0..600 {
                    noise.put(format!("noise{i:04}"), vec![0; 2000]).unwrap();
                }
            }
            let done = tx.commit();
            match expected {
                Some(key) => conflict(done, key),
                None => done.unwrap_or_else(|e| panic!("{what}: {e}")),
            }
            let committed = db.get("result").unwrap().is_some_and(|v| v == what.as_bytes());
            assert_eq!(committed, expected.is_none(), "{what}");
        }
    }
}

#[test]
fn a_key_that_was_read_and_written_meanwhile_is_a_conflict() {
    let db = ten_keys();
    let other = db.keyspace("other").unwrap();
    let put = |key: &str| db.put(key, "new").unwrap();
    let read_own = |tx: &Transaction| {
        tx.put("k6", "mine").unwrap();
        tx.get("k6").unwrap();
    };
    check(
        &db,
        &[
            ("a key", &|tx| drop(tx.get("k1").unwrap()), &|| put("k1"), Some("k1")),
            (
                "the same value",
                &|tx| drop(tx.get("k2").unwrap()),
                &|| db.put("k2", "old").unwrap(),
                Some("k2"),
            ),
            ("a deletion", &|tx| drop(tx.get("k3").unwrap()), &|| db.delete("k3").unwrap(), Some("k3")),
            ("an absent key", &|tx| drop(tx.get("new").unwrap()), &|| put("new"), Some("new")),
            ("another key", &|tx| drop(tx.get("k4").unwrap()), &|| put("k5"), None),
            ("another keyspace", &|tx| drop(tx.get("k4").unwrap()), &|| other.put("k4", "x").unwrap(), None),
            ("a blind write", &|tx| tx.put("k6", "mine").unwrap(), &|| put("k6"), None),
            ("its own write, read", &read_own, &|| put("k6"), None),
            ("presence", &|tx| assert!(tx.contains_key("k7").unwrap()), &|| put("k7"), Some("k7")),
            ("many keys", &|tx| drop(tx.multi_get(&["k7", "k8"]).unwrap()), &|| put("k8"), Some("k8")),
        ],
    );
}

#[test]
fn what_was_written_where_an_iterator_has_been_is_a_conflict() {
    let db = ten_keys();
    let put = |key: &str| db.put(key, "new").unwrap();
    check(
        &db,
        &[
            ("a range", &|tx| assert!(tx.range("k1".."k4").count() > 0), &|| put("k22"), Some("k22")),
            ("behind a range", &|tx| assert!(tx.range("k1".."k4").count() > 0), &|| put("k4"), None),
            ("what was gone through", &|tx| drop(tx.range("k4"..).next()), &|| put("k4"), Some("k4")),
            ("what was not", &|tx| drop(tx.range("k4"..).next()), &|| put("k5"), None),
            ("from the back", &|tx| drop(tx.range(..).next_back()), &|| put("zzz"), Some("zzz")),
            ("not from the back", &|tx| drop(tx.range(.."new").next_back()), &|| put("k8"), None),
            ("an iterator unused", &|tx| drop(tx.range(..)), &|| put("k8"), None),
            ("a prefix", &|tx| assert!(tx.prefix("k").count() > 0), &|| put("kk"), Some("kk")),
            ("a pop", &|tx| drop(tx.pop_first().unwrap()), &|| put("a"), Some("\"a\"")),
        ],
    );
}

#[test]
fn a_write_is_a_conflict_in_whatever_way_it_comes() {
    let db = ten_keys();
    let read = |tx: &Transaction| drop(tx.get("k9").unwrap());
    let batch = || {
        let mut batch = WriteBatch::new();
        batch.put("x1", "");
        batch.delete("k9");
        batch
    };
    let unlogged = WriteOptions::default().durability(Durability::None);
    let durable = WriteOptions::default().durability(Durability::Sync);
    check(
        &db,
        &[
            ("by a batch", &read, &|| db.write(batch(), &unlogged).unwrap(), Some("k9")),
            ("durably", &read, &|| db.write(batch(), &durable).unwrap(), Some("k9")),
            (
                "by a future",
                &read,
                &|| crate::executor::block_on(db.write_async(batch(), &durable)).unwrap(),
                Some("k9"),
            ),
            ("by an update", &read, &|| drop(db.fetch_update("k9", |_| Some(vec![1]))), Some("k9")),
            (
                "by a transaction",
                &read,
                &|| {
                    let tx = db.transaction();
                    tx.put("k9", "theirs").unwrap();
                    tx.commit().unwrap();
                },
                Some("k9"),
            ),
        ],
    );
}

#[test]
fn a_transaction_that_writes_nothing_cannot_fail() {
    let db = open();
    db.put("a", "1").unwrap();
    let tx = db.transaction();
    assert_eq!(tx.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    db.put("a", "2").unwrap();
    assert_eq!(tx.get("a").unwrap().as_deref(), Some(&b"1"[..]), "it sees one moment");
    tx.commit().unwrap();
}

/// Two doctors are on call; each goes if the other stays. Under snapshot isolation both go.
#[test]
fn no_write_skew() {
    let db = open();
    for by_range in [false, true] {
        db.put("call/ada", "on").unwrap();
        db.put("call/bob", "on").unwrap();
        let on_call = |tx: &Transaction| match by_range {
            true => tx.prefix("call/").count(),
            false => tx.multi_get(&["call/ada", "call/bob"]).unwrap().iter().flatten().count(),
        };
        let (ada, bob) = (db.transaction(), db.transaction());
        assert_eq!((on_call(&ada), on_call(&bob)), (2, 2));
        ada.delete("call/ada").unwrap();
        bob.delete("call/bob").unwrap();
        ada.commit().unwrap();
        conflict(bob.commit(), "call/ada");
        assert_eq!(db.prefix("call/").count(), 1);
    }
}

/// Both count the bookings of a room and add one. Under snapshot isolation both get the last place.
#[test]
fn no_phantoms() {
    let db = open();
    let room = db.keyspace("room").unwrap();
    let book = |tx: &Transaction, who: &str| {
        assert_eq!(tx.range_in(&room, "1/".."2/").count(), 0);
        tx.put_in(&room, format!("1/{who}"), "").unwrap();
    };
    let (ada, bob) = (db.transaction(), db.transaction());
    book(&ada, "ada");
    book(&bob, "bob");
    bob.commit().unwrap();
    conflict(ada.commit(), "1/bob");
    assert_eq!(room.iter().count(), 1);
}

#[test]
fn four_threads_count_to_forty_thousand() {
    for durability in [Durability::Process, Durability::Sync] {
        // A real device takes longer for each.
        let each = if durability == Durability::Sync { 500 } else { 10_000 };
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let db = Db::open(dir.path(), Options::default().with_durability(durability)).unwrap();
        let calls = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..each {
                        let add = |old: Option<&[u8]>| {
                            calls.fetch_add(1, Relaxed);
                            Some((number(old) + 1).to_be_bytes().to_vec())
                        };
                        db.fetch_update("counter", add).unwrap();
                    }
                });
            }
        });
        assert_eq!(number(db.get("counter").unwrap().as_deref()), 4 * each);
        assert!(calls.load(Relaxed) >= 4 * each);
        drop(db);
        let db = Db::open(dir.path(), Options::default()).unwrap();
        assert_eq!(number(db.get("counter").unwrap().as_deref()), 4 * each);
    }
}

#[test]
fn transfers_keep_the_sum_beside_plain_writers_and_flushes() {
    for io in support::engines() {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let options = Options::default().with_io(io).with_memtable_bytes(64 << 10).with_cache_bytes(1 << 20);
        let db = Db::open(dir.path(), options.with_durability(Durability::Process)).unwrap();
        let sum = |db: &Db| -> u64 { db.prefix("account/").map(|pair| number(Some(&pair.unwrap().1))).sum() };
        for i in 0..8 {
            db.put(format!("account/{i}"), 100u64.to_be_bytes()).unwrap();
        }
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let db = &db;
                scope.spawn(move || {
                    let mut rng = Rng(seed("transfers") + thread);
                    let mut done = 0;
                    while done < 300 {
                        let tx = db.transaction();
                        let (from, to) = (rng.below(8), rng.below(8));
                        let (a, b) = (format!("account/{from}"), format!("account/{to}"));
                        let x = number(tx.get(&a).unwrap().as_deref());
                        if x == 0 || a == b {
                            continue;
                        }
                        tx.put(&a, (x - 1).to_be_bytes()).unwrap();
                        let y = number(tx.get(&b).unwrap().as_deref());
                        tx.put(&b, (y + 1).to_be_bytes()).unwrap();
                        match tx.commit() {
                            Ok(()) => done += 1,
                            Err(e) => assert_eq!(e.kind(), ErrorKind::Retry, "{e}"),
                        }
                    }
                });
            }
            scope.spawn(|| {
                for i in 0..300 {
                    db.put(format!("noise/{i}"), vec![0; 4000]).unwrap();
                    assert_eq!(sum(&db), 800);
                }
            });
        });
        assert_eq!(sum(&db), 800);
    }
}

#[test]
fn compare_and_swap_and_put_if_absent() {
    let db = open();
    let k = db.keyspace("k").unwrap();
    assert!(!k.compare_and_swap("a", Some(b"x"), Some(b"y")).unwrap());
    assert!(k.compare_and_swap("a", None, Some(b"x")).unwrap());
    assert!(!k.put_if_absent("a", "z").unwrap());
    assert!(k.compare_and_swap("a", Some(b"x"), Some(b"")).unwrap());
    assert_eq!(k.get("a").unwrap().as_deref(), Some(&b""[..]));
    assert!(!k.compare_and_swap("a", None, Some(b"y")).unwrap(), "empty is not absent");
    assert!(k.compare_and_swap("a", Some(b""), None).unwrap());
    assert!(k.compare_and_swap("a", None, None).unwrap() && k.get("a").unwrap().is_none());
    assert!(k.put_if_absent("a", "z").unwrap());
    assert_eq!(k.fetch_update("a", |old| old.map(|_| vec![7])).unwrap().as_deref(), Some(&b"z"[..]));
    assert_eq!(k.fetch_update("a", |_| None).unwrap().as_deref(), Some(&[7][..]));
    assert!(k.get("a").unwrap().is_none() && db.get("a").unwrap().is_none());
    assert_eq!(k.fetch_update("a", |_| None).unwrap(), None);
    let e = db.put_if_absent(vec![0; 70_000], "").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::FixCall);
}

/// Ranges, pops, `retain` and `extract_if` against a map, with a snapshot's pairs under the transaction's own.
#[test]
fn ranges_and_pops_see_what_a_map_has() {
    let mut rng = Rng(seed("transaction ranges"));
    let db = open();
    let k = db.keyspace("k").unwrap();
    let mut map: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let key = |rng: &mut Rng| format!("{:02}", rng.below(60)).into_bytes();
    for round in 0..60 {
        let tx = db.transaction();
        for _ in 0..rng.below(60) {
            step(&mut rng, &tx, &k, &mut map, &key);
        }
        if round % 5 == 4 {
            drop(tx);
            map = pairs(k.iter()).into_iter().collect();
        } else {
            tx.commit().unwrap();
        }
        assert_eq!(pairs(k.iter()), map.clone().into_iter().collect::<Vec<_>>(), "round {round}");
    }
}

fn pairs(i: impl Iterator<Item = ringdb::Result<(Value, Value)>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    i.map(|pair| pair.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

fn step(
    rng: &mut Rng,
    tx: &Transaction,
    k: &Keyspace,
    map: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    key: &impl Fn(&mut Rng) -> Vec<u8>,
) {
    let owned = |pair: Option<(Value, Value)>| pair.map(|(k, v)| (k.to_vec(), v.to_vec()));
    let (a, b) = (key(rng), key(rng));
    let within = |k: &[u8]| a.as_slice() <= k && k < b.as_slice();
    match rng.below(10) {
        0..3 => {
            tx.put_in(k, &a, &b).unwrap();
            map.insert(a, b);
        }
        3 => {
            tx.delete_in(k, &a).unwrap();
            map.remove(&a);
        }
        4 => assert_eq!(owned(tx.pop_first_in(k).unwrap()), map.pop_first()),
        5 => assert_eq!(owned(tx.pop_last_in(k).unwrap()), map.pop_last()),
        6 => {
            tx.retain_in(k, a.clone()..b.clone(), |_, v| v[0].is_multiple_of(2)).unwrap();
            map.retain(|k, v| !within(k) || v[0].is_multiple_of(2));
        }
        7 => {
            let most = rng.below(4) as usize;
            let taken =
                pairs(tx.extract_if_in(k, a.clone()..b.clone(), |_, v| v[0] % 3 == 1).rev().take(most));
            let expected: Vec<_> =
                map.iter().rev().filter(|(k, v)| within(k) && v[0] % 3 == 1).take(most).collect();
            assert!(taken.iter().map(|(k, v)| (k, v)).eq(expected));
            taken.iter().for_each(|(k, _)| drop(map.remove(k)));
        }
        _ => {
            // From both ends, with writes ahead of them.
            let mut range = tx.range_in(k, a.clone()..b.clone());
            let mut left: BTreeMap<_, _> =
                map.iter().filter(|(k, _)| within(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
            loop {
                let front = rng.chance(2);
                let next = if front { range.next() } else { range.next_back() };
                let expected = if front { left.pop_first() } else { left.pop_last() };
                assert_eq!(next.transpose().unwrap().map(|(k, v)| (k.to_vec(), v.to_vec())), expected);
                let Some((at, _)) = expected else { break };
                let new = key(rng);
                if rng.chance(3) && within(&new) && (new > at) == front && left.first_key_value().is_some() {
                    let ends =
                        (left.first_key_value().unwrap().0.clone(), left.last_key_value().unwrap().0.clone());
                    if ends.0 <= new && new <= ends.1 {
                        tx.put_in(k, &new, "1ahead").unwrap();
                        map.insert(new.clone(), b"1ahead".to_vec());
                        left.insert(new, b"1ahead".to_vec());
                    }
                }
            }
        }
    }
}

#[test]
fn wrong_calls_are_told_and_handles_that_are_gone() {
    let db = open();
    let (foreign, gone) = (open().keyspace("k").unwrap(), db.keyspace("gone").unwrap());
    let tx = db.transaction();
    assert!(tx.get_in(&foreign, "a").unwrap_err().to_string().contains("another store"));
    assert!(tx.put_in(&foreign, "a", "").unwrap_err().to_string().contains("another store"));
    assert!(tx.range_in(&foreign, ..).next().unwrap().unwrap_err().to_string().contains("another store"));
    assert!(tx.put(vec![0; 70_000], "").unwrap_err().to_string().contains("65536"));
    tx.put_in(&gone, "a", "1").unwrap();
    db.drop_keyspace("gone").unwrap();
    assert!(matches!(tx.get_in(&gone, "a"), Err(Error::KeyspaceDropped(_))));
    assert!(matches!(tx.commit(), Err(Error::KeyspaceDropped(_))));
    let tx = db.transaction();
    tx.put("a", "1").unwrap();
    let deadline = WriteOptions::default().with_deadline(std::time::Duration::from_secs(1));
    assert_eq!(tx.commit_with(&deadline).unwrap_err().kind(), ErrorKind::FixCall);
    let (early, clone) = (db.transaction(), db.clone());
    early.put("a", "1").unwrap();
    db.close().unwrap();
    assert!(matches!(early.get("b"), Err(Error::Closed)));
    assert!(matches!(early.commit(), Err(Error::Closed)));
    let late = clone.transaction();
    late.put("a", "1").unwrap();
    assert!(matches!(late.commit(), Err(Error::Closed)));
    assert!(matches!(clone.fetch_update("a", |_| None), Err(Error::Closed)));
    // Of a store that is read only, they read.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    db.put("a", "1").unwrap();
    let reader = Db::open_read_only(dir.path(), Options::default()).unwrap();
    let tx = reader.transaction();
    assert!(tx.get("a").unwrap().is_some());
    tx.put("a", "2").unwrap();
    assert!(matches!(tx.commit(), Err(Error::ReadOnly)));
}
