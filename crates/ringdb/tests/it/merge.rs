//! Merge operators, from the outside.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ringdb::{
    Compression, Db, Error, ErrorKind, Keyspace, KeyspaceOptions, MergeOperator, Options, Snapshot,
    WriteBatch, WriteOptions,
};

use crate::support::{Rng, env_number, seed};

/// A hash of the value and of each operand, in their order, that cannot be known of operands alone.
pub struct Chain;

pub fn chain(value: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
    let start =
        value.map_or(7, |v| v.iter().fold(3, |h: u64, b| h.wrapping_mul(31).wrapping_add(u64::from(*b))));
    let all = operands.iter().fold(start, |h, o| {
        o.iter().fold(h.wrapping_mul(1_000_003) ^ 5, |h, b| h.wrapping_mul(131).wrapping_add(u64::from(*b)))
    });
    all.to_le_bytes().to_vec()
}

impl MergeOperator for Chain {
    fn name(&self) -> &str {
        "chain"
    }
    fn merge(&self, key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        assert!(!operands.is_empty() && key.starts_with(b"k"), "what was promised");
        // One operand after the other: the same whether older ones were merged before or not.
        let first = chain(value, &operands[..1]);
        Ok(operands[1..].iter().fold(first, |value, o| chain(Some(&value), &[o])))
    }
}

fn small() -> Options {
    Options::default()
        .with_cache_bytes(2 << 20)
        .with_memtable_bytes(64 << 10)
        .with_table_bytes(64 << 10)
        .with_background_threads(1)
        .with_compression(Compression::None)
        .register_merge_operator(Chain)
}

fn with(name: &str) -> KeyspaceOptions {
    KeyspaceOptions::default().with_merge_operator(name)
}

fn number(n: u64) -> [u8; 8] {
    n.to_le_bytes()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn merge_in_model(model: &mut Model, operator: &str, key: &[u8], operand: &[u8]) {
    let value = model.get(key).map(Vec::as_slice);
    let value = match (operator, value) {
        ("chain", value) => chain(value, &[operand]),
        (_, Some(value)) => [value, b",", operand].concat(),
        (_, None) => operand.to_vec(),
    };
    model.insert(key.to_vec(), value);
}

/// What reads are tried with.
trait Readable {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    fn ways(&self, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>>;
    fn walk(&self) -> [Vec<(Vec<u8>, Vec<u8>)>; 5];
}

macro_rules! readable {
    ($t:ty) => {
        impl Readable for $t {
            fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
                let value = <$t>::get(self, key).expect("get").map(|v| v.into_vec());
                assert_eq!(self.read_with(key, <[u8]>::to_vec).expect("read_with"), value);
                assert_eq!(self.contains_key(key).expect("contains_key"), value.is_some());
                assert_eq!(
                    crate::executor::block_on(self.get_async(key)).expect("get_async").map(|v| v.into_vec()),
                    value
                );
                value
            }

            fn ways(&self, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
                let many = self.multi_get(keys).expect("multi_get");
                let later = crate::executor::block_on(self.multi_get_async(keys)).expect("multi_get_async");
                assert_eq!(many, later);
                let mut reads = self.reads(16).expect("reads");
                for (i, key) in keys.iter().enumerate().take(16) {
                    reads.submit(i as u64, key).expect("submit");
                }
                while reads.open() > 0 {
                    reads.wait(1).expect("wait");
                    while let Some((i, value)) = reads.poll() {
                        assert_eq!(value.expect("a read"), many[i as usize]);
                    }
                }
                many.into_iter().map(|v| v.map(|v| v.into_vec())).collect()
            }

            fn walk(&self) -> [Vec<(Vec<u8>, Vec<u8>)>; 5] {
                let pair = |p: ringdb::Result<(ringdb::Value, ringdb::Value)>| {
                    let (k, v) = p.expect("a pair");
                    (k.into_vec(), v.into_vec())
                };
                let forward: Vec<_> = self.iter().map(pair).collect();
                let keys: Vec<_> = self.iter().keys().map(|k| k.expect("a key").into_vec()).collect();
                assert!(keys.iter().eq(forward.iter().map(|(k, _)| k)), "keys alone");
                let back: Vec<_> = self.iter().keys().rev().map(|k| k.expect("a key").into_vec()).collect();
                assert!(back.iter().rev().eq(keys.iter()), "keys alone, backward");
                let ends = (
                    self.first().expect("first").map(|p| pair(Ok(p))),
                    self.last().expect("last").map(|p| pair(Ok(p))),
                );
                assert_eq!(ends, (forward.first().cloned(), forward.last().cloned()));
                let mut backward: Vec<_> = self.iter().rev().map(pair).collect();
                backward.reverse();
                // From both ends by turns.
                let (mut both, mut head, mut tail) = (self.iter(), Vec::new(), Vec::new());
                while let Some(p) = both.next() {
                    head.push(pair(p));
                    tail.extend(both.next_back().map(pair));
                }
                head.extend(tail.into_iter().rev());
                let mut cursor = self.cursor();
                let here =
                    |c: &ringdb::Cursor| (c.key().expect("key").to_vec(), c.value().expect("value").to_vec());
                let (mut ahead, mut behind) = (Vec::new(), Vec::new());
                let mut on = cursor.first().expect("first");
                while on {
                    ahead.push(here(&cursor));
                    // There and back again.
                    if cursor.next().expect("next") {
                        assert!(cursor.prev().expect("prev"));
                        assert_eq!(ahead.last(), Some(&here(&cursor)));
                    } else {
                        break;
                    }
                    on = cursor.next().expect("next");
                }
                on = cursor.last().expect("last");
                while on {
                    behind.push(here(&cursor));
                    on = cursor.prev().expect("prev");
                }
                behind.reverse();
                [forward, backward, head, ahead, behind]
            }
        }
    };
}
readable!(Keyspace);
readable!(Snapshot);

fn check(what: &impl Readable, model: &Model, words: &str) {
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    for (key, value) in keys.iter().zip(what.ways(&keys)) {
        assert_eq!(value.as_ref(), model.get(key), "{words}: multi_get of {key:?}");
        assert_eq!(what.get(key).as_ref(), model.get(key), "{words}: get of {key:?}");
    }
    let all: Vec<(Vec<u8>, Vec<u8>)> = model.clone().into_iter().collect();
    for (i, walk) in what.walk().iter().enumerate() {
        assert_eq!(walk, &all, "{words}: walk {i}");
    }
}

const KEYS: u64 = 24;

fn key(i: u64) -> Vec<u8> {
    format!("k{i:02}").into_bytes()
}

/// A batch of all kinds, in which operands meet what the batch itself has written.
fn write_batch(db: &Db, k: &Keyspace, i: u64, operator: &str, model: &mut Model) {
    let mut batch = WriteBatch::new();
    batch.merge_in(k, key(i), "one");
    batch.put_in(k, key(i + 1), "base");
    batch.merge_in(k, key(i + 1), "two");
    batch.delete_in(k, key(i + 2));
    batch.merge_in(k, key(i + 2), "three");
    db.write(batch, &WriteOptions::default()).unwrap();
    merge_in_model(model, operator, &key(i), b"one");
    model.insert(key(i + 1), b"base".to_vec());
    merge_in_model(model, operator, &key(i + 1), b"two");
    model.remove(&key(i + 2));
    merge_in_model(model, operator, &key(i + 2), b"three");
}

/// Random histories of an operator, its keyspace beside another that has one of its own, checked by every way to read.
fn history(operator: &str, r: &mut Rng, steps: u64) {
    let tmp = tempfile::tempdir().unwrap();
    let open = || Db::open(tmp.path(), small()).expect("open");
    let mut db = open();
    let other = db.keyspace_with("other", &with("add")).unwrap();
    let mut k = db.keyspace_with("k", &with(operator)).unwrap();
    other.merge("k", number(5)).unwrap();
    drop(other);
    let mut model = Model::new();
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    for step in 0..steps {
        let i = r.below(KEYS);
        match r.below(40) {
            0..20 => {
                let most = 1 + r.below(60);
                for _ in 0..1 + r.below(most) {
                    let operand = vec![b'a' + r.below(26) as u8; 1 + r.below(40) as usize];
                    k.merge(key(i), &operand).unwrap();
                    merge_in_model(&mut model, operator, &key(i), &operand);
                }
            }
            20..23 => {
                k.put(key(i), [b'P'; 3]).unwrap();
                model.insert(key(i), vec![b'P'; 3]);
            }
            23..25 => {
                k.delete(key(i)).unwrap();
                model.remove(&key(i));
            }
            25..27 => {
                let to = i + r.below(5);
                k.delete_range(key(i)..key(to)).unwrap();
                model.retain(|k, _| *k < key(i) || *k >= key(to));
            }
            27..30 => {
                write_batch(&db, &k, i, operator, &mut model);
            }
            30..33 => db.flush().unwrap(),
            33 => k.compact_range(..).unwrap(),
            34 => k.compact_range(key(i)..).unwrap(),
            35 if snapshots.len() < 3 => snapshots.push((db.snapshot().keyspace(&k), model.clone())),
            36 if !snapshots.is_empty() => {
                drop(snapshots.swap_remove(r.below(snapshots.len() as u64) as usize))
            }
            37 => {
                snapshots.clear();
                drop(k);
                db.close().unwrap();
                db = open();
                k = db.keyspace("k").unwrap();
            }
            _ => {
                check(&k, &model, &format!("step {step}"));
                for (snapshot, model) in &snapshots {
                    check(snapshot, model, &format!("a snapshot at step {step}"));
                }
            }
        }
    }
    drop(snapshots);
    check_at_the_end(db, k, &model);
}

/// The store as it is, compacted, and copied.
fn check_at_the_end(db: Db, k: Keyspace, model: &Model) {
    check(&k, model, "at the end");
    k.compact_range(..).unwrap();
    check(&k, model, "compacted");
    assert!(db.verify().unwrap().problems.is_empty());
    let copy = tempfile::tempdir().unwrap();
    let copy = copy.path().join("copy");
    db.checkpoint(&copy).unwrap();
    drop(k);
    db.close().unwrap();
    let db = Db::open_read_only(&copy, small()).unwrap();
    check(&db.existing_keyspace("k").unwrap().expect("k"), model, "a copy");
}

#[test]
fn random_histories_agree_with_a_model() {
    let seed = seed("random_histories_agree_with_a_model");
    let n = env_number("RINGDB_MERGE_HISTORIES", 6);
    for i in 0..n {
        println!("history {i}");
        let mut r = Rng(seed.wrapping_add(i));
        history(if i % 2 == 0 { "append:," } else { "chain" }, &mut r, 400);
    }
}

#[test]
fn what_cannot_be_merged_is_refused_and_nothing_is_lost() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small()).expect("open");
    db.put("k", "kept").unwrap();
    let e = db.merge("k", "x").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::FixCall);
    assert!(e.to_string().contains("with_merge_operator"), "{e}");
    let mut batch = WriteBatch::new();
    batch.put("k", "lost");
    batch.merge("other", "x");
    assert!(matches!(db.write(batch.clone(), &WriteOptions::default()), Err(Error::Invalid(_))));
    assert!(crate::executor::block_on(db.write_async(batch, &WriteOptions::default())).is_err());
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"kept"[..]));
    let counts = db.keyspace_with("counts", &with("add")).unwrap();
    let e = counts.merge("k", "seven").unwrap_err().to_string();
    assert!(e.contains("'add'") && e.contains("8 bytes"), "{e}");
    assert_eq!(counts.get("k").unwrap(), None);
    // An operator stays; a name that nobody knows is none.
    let e = counts.alter(&with("max")).unwrap_err().to_string();
    assert!(e.contains("'add'") && e.contains("'max'"), "{e}");
    counts.alter(&with("add")).unwrap();
    assert_eq!(counts.options().merge_operator.as_deref(), Some("add"));
    let e = db.keyspace_with("more", &with("nobody's")).unwrap_err().to_string();
    assert!(e.contains("register_merge_operator"), "{e}");
    assert!(db.existing_keyspace("more").unwrap().is_none());
    // What a put has made unmergeable says so when it is read, and heals.
    counts.put("k", "seven").unwrap();
    counts.merge("k", number(1)).unwrap();
    assert!(counts.get("k").unwrap_err().to_string().contains("there are 5"));
    assert!(counts.iter().next().unwrap().is_err());
    db.flush().unwrap();
    counts.compact_range(..).unwrap();
    assert!(counts.get("k").is_err());
    counts.put("k", number(7)).unwrap();
    counts.merge("k", number(1)).unwrap();
    assert_eq!(counts.get("k").unwrap().as_deref(), Some(&number(8)[..]));
    // The store's holds for keyspaces without one.
    let plain = db.keyspace("plain").unwrap();
    db.keyspace("default").unwrap().alter(&with("append")).unwrap();
    plain.merge("k", "a").unwrap();
    assert!(plain.alter(&with("add")).is_err());
}

#[test]
fn a_store_opens_without_its_operators_and_keeps_their_operands() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small()).expect("open");
    let k = db.keyspace_with("k", &with("chain")).unwrap();
    let mut model = Model::new();
    for i in 0..300u64 {
        k.merge(key(i % 3), i.to_be_bytes()).unwrap();
        merge_in_model(&mut model, "chain", &key(i % 3), &i.to_be_bytes());
    }
    drop(k);
    db.close().unwrap();
    let db = Db::open(tmp.path(), Options::default()).expect("open");
    let k = db.keyspace("k").unwrap();
    k.compact_range(..).unwrap();
    for e in [
        k.get(key(0)).unwrap_err(),
        k.multi_get(&[key(1)]).unwrap_err(),
        k.iter().next().unwrap().unwrap_err(),
        k.iter().next_back().unwrap().unwrap_err(),
        k.cursor().first().unwrap_err(),
        k.cursor().last().unwrap_err(),
        k.merge(key(0), "x").unwrap_err(),
    ] {
        assert!(e.to_string().contains("'chain'") && e.kind() == ErrorKind::FixCall, "{e}");
    }
    assert_eq!(k.iter().keys().count(), 3, "keys are there");
    k.put(key(5), "plain").unwrap();
    assert_eq!(k.get(key(5)).unwrap().as_deref(), Some(&b"plain"[..]));
    k.delete(key(5)).unwrap();
    assert!(db.verify().unwrap().problems.is_empty());
    drop(k);
    db.close().unwrap();
    let db = Db::open(tmp.path(), small()).expect("open");
    check(&db.keyspace("k").unwrap(), &model, "with it again");
}

/// Many operands of one key: flushes leave one, and reads are no worse than once through them.
#[test]
fn operands_become_few() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small()).expect("open");
    let k = db.keyspace_with("k", &with("add")).unwrap();
    let n = 200_000;
    for chunk in 0..n / 1000 {
        let mut batch = WriteBatch::new();
        (0..1000).for_each(|_| batch.merge_in(&k, "k", number(chunk)));
        db.write(batch, &WriteOptions::default()).unwrap();
    }
    let sum = (0..n / 1000).map(|c| c * 1000).sum();
    assert_eq!(k.get("k").unwrap().as_deref(), Some(&number(sum)[..]));
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let entries = db.verify().unwrap().entries;
    assert!(entries < 100, "{entries} operands are left of {n}");
    k.compact_range(..).unwrap();
    assert_eq!(db.verify().unwrap().entries, 1);
    assert_eq!(k.get("k").unwrap().as_deref(), Some(&number(sum)[..]));
}

#[test]
fn salvage_keeps_operands_that_it_cannot_merge() {
    let tmp = tempfile::tempdir().unwrap();
    let (dir, out) = (tmp.path().join("a"), tmp.path().join("b"));
    let db = Db::open(&dir, small()).expect("open");
    let chained = db.keyspace_with("chained", &with("chain")).unwrap();
    let counts = db.keyspace_with("counts", &with("add")).unwrap();
    let mut model = Model::new();
    chained.put(key(1), "base").unwrap();
    model.insert(key(1), b"base".to_vec());
    for i in 0..40u64 {
        if i == 20 {
            db.flush().unwrap();
        }
        if i == 30 {
            chained.delete_range(key(2)..key(3)).unwrap();
            model.remove(&key(2));
        }
        chained.merge(key(i % 4), i.to_be_bytes()).unwrap();
        merge_in_model(&mut model, "chain", &key(i % 4), &i.to_be_bytes());
        counts.merge("k", number(i)).unwrap();
    }
    drop((chained, counts));
    db.close().unwrap();
    let report = ringdb::salvage(&dir, &out, &ringdb::SalvageOptions::default()).unwrap();
    assert!(report.is_complete(), "{:?}", report.lost);
    let db = Db::open(&out, small()).unwrap();
    check(&db.keyspace("chained").unwrap(), &model, "salvaged");
    assert_eq!(db.keyspace("counts").unwrap().get("k").unwrap().as_deref(), Some(&number(780)[..]));
    assert!(db.verify().unwrap().problems.is_empty());
}

/// The numbers of ingested entries are not in their tables.
#[test]
fn operands_meet_ingested_pairs() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small()).expect("open");
    let k = db.keyspace_with("k", &with("append:,")).unwrap();
    k.merge(key(0), "before").unwrap();
    let old = db.snapshot().keyspace(&k);
    k.ingest([(key(0), "in"), (key(1), "in")]).unwrap();
    let between = db.snapshot().keyspace(&k);
    k.merge(key(0), "after").unwrap();
    k.merge(key(1), "after").unwrap();
    let model = |pairs: &[(u64, &str)]| -> Model {
        pairs.iter().map(|(i, v)| (key(*i), v.as_bytes().to_vec())).collect()
    };
    for round in ["in memory", "flushed", "compacted"] {
        check(&old, &model(&[(0, "before")]), round);
        check(&between, &model(&[(0, "in"), (1, "in")]), round);
        check(&k, &model(&[(0, "in,after"), (1, "in,after")]), round);
        if round == "flushed" {
            k.compact_range(..).unwrap();
        }
        db.flush().unwrap();
    }
}

/// Beside a damaged block, an operand is not taken for all that there is of its key.
#[test]
fn damage_behind_an_operand_does_not_end_its_key() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let key = |i: u32| format!("k{i:05}");
    let base = "base".repeat(20);
    let tables = || {
        let all = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
        all.filter(|p| p.extension().is_some_and(|e| e == "sst")).collect::<BTreeSet<_>>()
    };
    let db = Db::open(dir.path(), small()).unwrap();
    db.keyspace("default").unwrap().alter(&with("append")).unwrap();
    for i in 0..400 {
        db.put(key(i), &base).unwrap();
    }
    db.compact_range(..).unwrap();
    let before = tables();
    for i in 0..400 {
        db.merge(key(i), "x".repeat(60)).unwrap();
    }
    db.flush().unwrap();
    let new: Vec<_> = tables().difference(&before).cloned().collect();
    db.close().unwrap();
    assert_eq!(new.len(), 1, "{new:?} {before:?}");
    let file = std::fs::File::options().read(true).write(true).open(&new[0]).unwrap();
    // In the second block and a later one.
    for at in [6000, 14000] {
        file.write_all_at(&[0xAA; 8], at).unwrap();
    }
    let want = [base.as_bytes(), &[b'x'; 60]].concat();
    let db = Db::open_read_only(dir.path(), small()).unwrap();
    let (mut right, mut failed) = (0, 0);
    for pair in db.iter() {
        match pair {
            Ok((key, value)) => {
                assert_eq!(value, want, "{key:?} beside damage");
                right += 1;
            }
            Err(e) => {
                assert!(matches!(e, Error::Corrupt { .. }), "{e}");
                failed += 1;
            }
        }
    }
    assert!(right > 0 && failed == 1, "{right} {failed}");
    let mut cursor = db.cursor();
    let mut found = cursor.first();
    while let Ok(true) = found {
        assert_eq!(cursor.value().unwrap(), want, "{:?} beside damage", cursor.key());
        found = cursor.next();
    }
    assert!(found.is_err());
    for pair in db.iter().rev().take_while(|p| p.is_ok()) {
        assert_eq!(pair.unwrap().1, want);
    }
    for i in 0..400 {
        if let Ok(value) = db.get(key(i)) {
            assert_eq!(value.unwrap(), want);
        }
    }
}

/// What a tombstone hid is gone when it lies at the bottom: then it goes, too, whether the operands above can be merged
/// or not. Else it would be worth a compaction for ever.
#[test]
fn a_tombstone_below_operands_goes_although_nobody_here_can_merge_them() {
    let tmp = tempfile::tempdir().unwrap();
    let db = Db::open(tmp.path(), small()).unwrap();
    db.keyspace("default").unwrap().alter(&with("chain")).unwrap();
    let keys: Vec<String> = (0..2000).map(|i| format!("k{i:04}")).collect();
    for round in 0..3 {
        for k in &keys {
            match round {
                0 => db.put(k, [1; 30]).unwrap(),
                1 => db.delete(k).unwrap(),
                _ => db.merge(k, "operand").unwrap(),
            }
        }
    }
    db.close().unwrap();
    let other = Options::default().with_memtable_bytes(64 << 10).with_background_threads(1);
    let db = Arc::new(Db::open(tmp.path(), other).unwrap());
    db.compact_range(..).unwrap();
    let (idle, waits) = (std::sync::mpsc::channel(), db.clone());
    let waiting = std::thread::spawn(move || drop(idle.0.send(waits.wait_idle())));
    idle.1.recv_timeout(Duration::from_secs(60)).expect("compactions come to an end").unwrap();
    waiting.join().unwrap();
    assert_eq!(db.stats().levels.iter().map(|l| l.entries).sum::<u64>(), 2000, "no tombstone is left");
    drop(db);
    let db = Db::open(tmp.path(), small()).unwrap();
    assert_eq!(db.get("k0007").unwrap().map(|v| v.into_vec()), Some(chain(None, &[b"operand"])));
}

/// Cannot merge anything, and counts who asks.
struct Broken(Arc<std::sync::atomic::AtomicU32>);

impl MergeOperator for Broken {
    fn name(&self) -> &str {
        "broken"
    }
    fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>, String> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Err("never".into())
    }
}

#[test]
fn whether_a_key_is_there_asks_no_operator() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Arc::<std::sync::atomic::AtomicU32>::default();
    let db = Db::open(dir.path(), small().register_merge_operator(Broken(asked.clone()))).unwrap();
    let k = db.keyspace_with("k", &with("broken")).unwrap();
    let keys = |at: &Keyspace| at.iter().keys().map(|k| k.unwrap().into_vec()).collect::<Vec<_>>();
    let there = |at: &Keyspace| {
        for key in ["k operand", "k put, operand", "k deleted, operand"] {
            assert!(at.contains_key(key).unwrap(), "{key}");
            assert!(db.snapshot().keyspace(at).contains_key(key).unwrap(), "{key}");
            assert!(db.transaction().contains_key_in(at, key).unwrap(), "{key}");
            assert!(at.get(key).is_err(), "{key}: a read needs the operator");
        }
        for key in ["k absent", "k operand, deleted", "k operand, range"] {
            assert!(!at.contains_key(key).unwrap(), "{key}");
        }
        assert_eq!(keys(at).len(), 3);
    };
    k.put("k put, operand", "v").unwrap();
    k.delete("k deleted, operand").unwrap();
    for key in ["k operand", "k put, operand", "k deleted, operand", "k operand, deleted", "k operand, range"]
    {
        k.merge(key, "o").unwrap();
    }
    k.delete("k operand, deleted").unwrap();
    k.delete_prefix("k operand, r").unwrap();
    there(&k);
    let by_reads = asked.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(by_reads, 3, "only gets ask");
    db.flush().unwrap();
    there(&k);
    db.close().unwrap();

    // Nor need there be one.
    let db = Db::open(dir.path(), small()).unwrap();
    let k = db.existing_keyspace("k").unwrap().unwrap();
    assert!(k.contains_key("k operand").unwrap() && k.get("k operand").is_err());
    assert_eq!(keys(&k).len(), 3);
}
