//! Merges in transactions: what they see of them, what makes them fail, and what is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringdb::{Db, Error, ErrorKind, Keyspace, KeyspaceOptions, MergeOperator, Options, Transaction};

use crate::support::{Rng, seed};

/// Refuses to merge into what begins with a sign of exclamation, and operands that are empty.
struct Picky;

impl MergeOperator for Picky {
    fn name(&self) -> &str {
        "picky"
    }
    fn merge(&self, key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        assert!(key.starts_with(b"k"), "the user's key");
        match value {
            Some([b'!', ..]) => Err("not into this".into()),
            value => Ok([value.unwrap_or_default(), &operands.concat()].concat()),
        }
    }
    fn check(&self, operand: &[u8]) -> Result<(), String> {
        if operand.is_empty() { Err("nothing in it".into()) } else { Ok(()) }
    }
}

fn open() -> Db {
    let options = Options::default()
        .with_io("sim")
        .with_memtable_bytes(64 << 10)
        .with_table_bytes(64 << 10)
        .with_cache_bytes(1 << 20)
        .register_merge_operator(Picky);
    Db::open("/store", options).unwrap()
}

fn with(db: &Db, name: &str, operator: &str) -> Keyspace {
    db.keyspace_with(name, &KeyspaceOptions::default().with_merge_operator(operator)).unwrap()
}

fn number(n: u64) -> [u8; 8] {
    n.to_le_bytes()
}

fn conflicts(tx: Transaction) {
    let e = tx.commit().expect_err("a conflict");
    assert!(matches!(e, Error::Conflict { .. }) && e.kind() == ErrorKind::Retry, "{e}");
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn merge(model: &mut Model, key: &[u8], operand: &[u8]) {
    let value = model.get(key).map_or_else(|| operand.to_vec(), |v| [v, &b","[..], operand].concat());
    model.insert(key.to_vec(), value);
}

fn key(rng: &mut Rng) -> Vec<u8> {
    format!("k{:02}", rng.below(24)).into_bytes()
}

/// What a transaction, or a store, shows in every way.
fn compare(tx: &Transaction, k: &Keyspace, model: &Model, rng: &mut Rng) {
    let keys: Vec<Vec<u8>> = (0..24).map(|i| format!("k{i:02}").into_bytes()).collect();
    let expect: Vec<Option<&[u8]>> = keys.iter().map(|key| model.get(key).map(Vec::as_slice)).collect();
    match rng.below(5) {
        0 => {
            let all = tx.multi_get_in(k, &keys).unwrap();
            assert_eq!(all.iter().map(|v| v.as_deref()).collect::<Vec<_>>(), expect);
        }
        1 => {
            for (key, expect) in keys.iter().zip(&expect) {
                assert_eq!(tx.get_in(k, key).unwrap().as_deref(), *expect);
            }
        }
        2 => {
            for (key, expect) in keys.iter().zip(&expect) {
                assert_eq!(tx.contains_key_in(k, key).unwrap(), expect.is_some());
            }
        }
        way => {
            let pairs = tx.range_in(k, ..);
            let mut pairs: Vec<_> = if way == 3 { pairs.collect() } else { pairs.rev().collect() };
            if way == 4 {
                pairs.reverse();
            }
            let pairs: Vec<_> = pairs.into_iter().map(Result::unwrap).collect();
            assert!(
                pairs.iter().map(|(k, v)| (&k[..], &v[..])).eq(model.iter().map(|(k, v)| (&k[..], &v[..])))
            );
        }
    }
}

#[test]
fn transactions_show_what_a_map_does_and_leave_it() {
    let mut rng = Rng(seed("merges in transactions"));
    let db = open();
    let k = with(&db, "list", "append:,");
    let mut model = Model::new();
    for round in 0..400u32 {
        // What is below: puts, operands, deleted ranges; in memtables or tables.
        for _ in 0..rng.below(4) {
            let key = key(&mut rng);
            match rng.below(4) {
                0 => {
                    k.put(&key, "stored").unwrap();
                    model.insert(key, b"stored".to_vec());
                }
                1 => {
                    let end = [&key[..], b"~"].concat();
                    k.delete_range(key.clone()..end.clone()).unwrap();
                    model.retain(|x, _| *x < key || *x >= end);
                }
                _ => {
                    k.merge(&key, "m").unwrap();
                    merge(&mut model, &key, b"m");
                }
            }
        }
        match rng.below(12) {
            0 => db.flush().unwrap(),
            1 => k.compact_range(..).unwrap(),
            _ => {}
        }
        let tx = db.transaction();
        let mut own = model.clone();
        for i in 0..rng.below(60) {
            let key = key(&mut rng);
            match rng.below(9) {
                0 => {
                    tx.put_in(&k, &key, "put").unwrap();
                    own.insert(key, b"put".to_vec());
                }
                1 => {
                    tx.delete_in(&k, &key).unwrap();
                    own.remove(&key);
                }
                2 => compare(&tx, &k, &own, &mut rng),
                3 if i % 4 == 0 => {
                    let popped = tx.pop_first_in(&k).unwrap().map(|(k, v)| (k.into_vec(), v.into_vec()));
                    assert_eq!(popped, own.pop_first());
                }
                _ => {
                    let operand = format!("{round}.{i}");
                    // Enough of one key that operands are merged among themselves.
                    for _ in 0..if rng.chance(20) { 80 } else { 1 } {
                        tx.merge_in(&k, &key, &operand).unwrap();
                        merge(&mut own, &key, operand.as_bytes());
                    }
                }
            }
        }
        compare(&tx, &k, &own, &mut rng);
        if rng.chance(5) {
            tx.rollback();
        } else {
            tx.commit().unwrap();
            model = own;
        }
        let now = db.transaction();
        (0..3).for_each(|_| compare(&now, &k, &model, &mut rng));
    }
}

#[test]
fn blind_merges_of_one_key_never_conflict_and_none_is_lost() {
    let db = open();
    let counts = with(&db, "counts", "add");
    let threads: Vec<_> = (0..4u64)
        .map(|t| {
            let (db, counts) = (db.clone(), counts.clone());
            std::thread::spawn(move || {
                for i in 0..2000u64 {
                    let tx = db.transaction();
                    tx.merge_in(&counts, "visits", number(1)).unwrap();
                    tx.put(format!("{t}/{}", i % 50), number(i)).unwrap();
                    assert!(
                        tx.contains_key_in(&counts, "visits").unwrap(),
                        "that is no read: it is there anyhow"
                    );
                    tx.commit().unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(counts.get("visits").unwrap().as_deref(), Some(&number(8000)[..]));
}

#[test]
fn who_has_read_the_key_conflicts_with_a_merge_and_who_has_set_it_does_not() {
    let db = open();
    let counts = with(&db, "counts", "add");
    counts.put("k", number(5)).unwrap();
    let value = || u64::from_le_bytes(counts.get("k").unwrap().unwrap()[..].try_into().unwrap());
    let reads: [&dyn Fn(&Transaction); 4] = [
        &|tx| drop(tx.get_in(&counts, "k").unwrap()),
        &|tx| drop(tx.multi_get_in(&counts, &["k"]).unwrap()),
        &|tx| assert_eq!(tx.range_in(&counts, ..).count(), 1),
        &|tx| assert_eq!(tx.range_in(&counts, ..).rev().count(), 1),
    ];
    for read in reads {
        for merges_first in [false, true] {
            for theirs in 0..2 {
                let tx = db.transaction();
                if merges_first {
                    tx.merge_in(&counts, "k", number(1)).unwrap();
                }
                read(&tx);
                tx.merge_in(&counts, "k", number(1)).unwrap();
                let (before, other) = (value(), db.transaction());
                match theirs {
                    0 => counts.merge("k", number(10)).unwrap(),
                    _ => {
                        other.merge_in(&counts, "k", number(10)).unwrap();
                        other.commit().unwrap();
                    }
                }
                conflicts(tx);
                assert_eq!(value(), before + 10);
            }
        }
    }
    // On its own put or deletion the store's value does not matter.
    for deleted in [false, true] {
        let tx = db.transaction();
        match deleted {
            true => tx.delete_in(&counts, "k").unwrap(),
            false => tx.put_in(&counts, "k", number(100)).unwrap(),
        }
        tx.merge_in(&counts, "k", number(7)).unwrap();
        let own = if deleted { 7 } else { 107 };
        assert_eq!(tx.get_in(&counts, "k").unwrap().as_deref(), Some(&number(own)[..]));
        counts.merge("k", number(1)).unwrap();
        tx.commit().unwrap();
        assert_eq!(value(), own);
    }
    // A put after operands leaves nothing of them.
    let tx = db.transaction();
    tx.merge_in(&counts, "k", number(9)).unwrap();
    tx.put_in(&counts, "k", number(1)).unwrap();
    tx.commit().unwrap();
    assert_eq!(value(), 1);
}

#[test]
fn what_cannot_be_merged_is_said_at_once_and_nothing_of_it_is_kept() {
    let db = open();
    let other = Db::open("/other", Options::default().with_io("sim")).unwrap();
    let theirs = with(&other, "theirs", "add");
    let (plain, counts, picky) =
        (db.keyspace("plain").unwrap(), with(&db, "counts", "add"), with(&db, "picky", "picky"));
    let gone = with(&db, "gone", "add");
    db.drop_keyspace("gone").unwrap();
    let tx = db.transaction();
    let invalid = |done: ringdb::Result<()>, what: &str| {
        let e = done.expect_err(what);
        assert!(matches!(e, Error::Invalid(_)) && e.to_string().contains(what), "{e}");
    };
    invalid(tx.merge("k", "1"), "with_merge_operator");
    invalid(tx.merge_in(&plain, "k", "1"), "with_merge_operator");
    invalid(tx.merge_in(&counts, "k", "1"), "8 bytes");
    invalid(tx.merge_in(&picky, "k", ""), "nothing in it");
    invalid(tx.merge_in(&theirs, "k", number(1)), "another store");
    invalid(tx.merge_in(&counts, vec![0; 70_000], number(1)), "65536");
    let e = tx.merge_in(&gone, "k", number(1)).expect_err("dropped");
    assert!(matches!(e, Error::KeyspaceDropped { .. }), "{e}");
    // Where puts begin to live for some time meanwhile, it is said at the commit.
    tx.merge_in(&counts, "k", number(1)).unwrap();
    counts.alter(&KeyspaceOptions::default().with_time_to_live(Duration::from_secs(60))).unwrap();
    invalid(tx.merge_in(&counts, "k", number(1)), "time to live");
    invalid(tx.commit(), "time to live");
    assert!(db.iter().next().is_none() && counts.iter().next().is_none());

    // What fails when it is merged fails reads of the key, in the transaction as after it; nothing else.
    picky.put("k1", "!").unwrap();
    let tx = db.transaction();
    tx.merge_in(&picky, "k1", "x").unwrap();
    tx.merge_in(&picky, "k2", "x").unwrap();
    let fails = |e: Error| assert!(e.to_string().contains("not into this"), "{e}");
    fails(tx.get_in(&picky, "k1").unwrap_err());
    fails(tx.multi_get_in(&picky, &["k2", "k1"]).unwrap_err());
    let mut range = tx.range_in(&picky, ..);
    fails(range.next().unwrap().unwrap_err());
    assert!(range.next().is_none());
    assert_eq!(tx.get_in(&picky, "k2").unwrap().as_deref(), Some(&b"x"[..]));
    tx.commit().unwrap();
    fails(picky.get("k1").unwrap_err());
    assert_eq!(picky.get("k2").unwrap().as_deref(), Some(&b"x"[..]));
}

/// An operand that the transaction gave is merged into what expires as one of `merge` is: into nothing, afterwards.
#[test]
fn operands_over_what_expires_stay() {
    let db = open();
    let k = with(&db, "list", "append");
    k.put_with_ttl("k", "old", Duration::from_millis(30)).unwrap();
    let tx = db.transaction();
    tx.merge_in(&k, "k", "new").unwrap();
    tx.commit().unwrap();
    std::thread::sleep(Duration::from_millis(40));
    assert_eq!(k.get("k").unwrap().as_deref(), Some(&b"new"[..]));
}

#[test]
fn operands_survive_a_reopening_whole_transactions_only() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let operator: Arc<str> = "append:,".into();
    for round in 0..6u32 {
        let db = Db::open(dir.path(), Options::default()).unwrap();
        let (left, right) = (with(&db, "left", &operator), with(&db, "right", &operator));
        let both = [left.get("k").unwrap(), right.get("k").unwrap()];
        let all = (0..round).map(|r| format!("{r},{r}")).collect::<Vec<_>>().join(",");
        for side in both {
            assert_eq!(side.map_or(String::new(), |v| String::from_utf8(v.into_vec()).unwrap()), all);
        }
        let tx = db.transaction();
        for side in [&left, &right] {
            tx.merge_in(side, "k", round.to_string()).unwrap();
            tx.merge_in(side, "k", round.to_string()).unwrap();
        }
        tx.commit().unwrap();
        if round % 2 == 0 {
            db.flush().unwrap();
        }
    }
}
