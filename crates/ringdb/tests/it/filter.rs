//! Compaction filters, from the outside.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use ringdb::{
    CompactionFilter, Db, Error, FilterContext, FilterDecision, Keyspace, KeyspaceOptions, Options, Snapshot,
};

use crate::executor::block_on;
use crate::support::{Rng, env_number, seed};

/// What values say of themselves, by their first byte: `x` is removed, `c` becomes `C`, `!` panics, `?` fails, all else
/// stays.
#[derive(Clone, Default)]
struct Marked(Arc<AtomicU64>);

impl CompactionFilter for Marked {
    fn name(&self) -> &str {
        "marked"
    }
    fn filter(&self, context: &FilterContext, _key: &[u8], value: &[u8]) -> FilterDecision {
        assert_eq!(context.last_level, context.level == 6);
        self.0.fetch_add(1, SeqCst);
        match value.split_first() {
            Some((b'x', _)) => FilterDecision::Remove,
            Some((b'c', rest)) => FilterDecision::Change([b"C", rest].concat()),
            Some((b'!', _)) => panic!("a filter that panics"),
            Some((b'?', _)) => FilterDecision::Fail("who knows".into()),
            _ => FilterDecision::Keep,
        }
    }
}

fn small() -> Options {
    Options::default().with_cache_bytes(4 << 20).with_memtable_bytes(64 << 10).with_table_bytes(64 << 10)
}

fn open(dir: &Path) -> Db {
    Db::open(dir, small().register_compaction_filter(Marked::default())).expect("open")
}

fn marked() -> KeyspaceOptions {
    KeyspaceOptions::default().with_compaction_filter("marked")
}

fn filtered(db: &Db) -> Keyspace {
    db.keyspace_with("filtered", &marked()).expect("keyspace")
}

fn value(k: &Keyspace, key: &str) -> Option<String> {
    k.get(key).expect("get").map(|v| String::from_utf8(v.into_vec()).expect("text"))
}

fn files(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).expect("list").map(|e| e.expect("an entry").file_name());
    names.filter(|n| n.to_string_lossy().ends_with(".sst")).count()
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn content(pairs: impl Iterator<Item = ringdb::Result<(ringdb::Value, ringdb::Value)>>) -> Content {
    pairs.map(|p| p.expect("a pair")).map(|(k, v)| (k.into_vec(), v.into_vec())).collect()
}

#[test]
fn compactions_remove_and_change_what_the_filter_says_in_its_keyspace() {
    let tmp = tempfile::tempdir().unwrap();
    let db = open(tmp.path());
    let (k, other) = (filtered(&db), db.keyspace("other").unwrap());
    for keyspace in [&k, &other] {
        for (key, value) in [("a", "keep"), ("b", "x old"), ("c", "change"), ("d", "")] {
            keyspace.put(key, value).unwrap();
        }
    }
    db.put("b", "x old").unwrap();
    db.flush().unwrap();
    assert_eq!(value(&k, "b").as_deref(), Some("x old"), "a flush asks nobody");
    k.compact_range(..).unwrap();
    assert_eq!(db.stats().compaction_filter_seen, 4);
    let _ = (other.compact_range(..).unwrap(), db.compact_range(..).unwrap());
    let of = |keyspace: &Keyspace| ["a", "b", "c", "d"].map(|key| value(keyspace, key));
    let is = ["keep", "", "Change", ""].map(String::from).map(Some);
    assert_eq!(of(&k), [is[0].clone(), None, is[2].clone(), is[3].clone()]);
    assert_eq!(k.iter().count(), 3);
    assert_eq!(k.options().compaction_filter.as_deref(), Some("marked"));
    assert_eq!(
        (value(&other, "b").as_deref(), value(&other, "c").as_deref()),
        (Some("x old"), Some("change"))
    );
    assert!(db.contains_key("b").unwrap());
    let stats = db.stats();
    assert_eq!((stats.compaction_filter_removed, stats.compaction_filter_changed), (1, 1));
    let metrics = db.metrics().prometheus();
    for (what, n) in [("seen", stats.compaction_filter_seen), ("removed", 1), ("changed", 1)] {
        let sample = format!("ringdb_compaction_filter_{what}");
        assert!(
            metrics.lines().any(|l| l.starts_with(&sample) && l.ends_with(&format!(" {n}"))),
            "{metrics}"
        );
    }
    assert_eq!((stats.background_errors, stats.background_error), (0, None));
    assert!(db.verify().unwrap().is_ok());
    // Nothing is left of it on the disk.
    assert_eq!(stats.table_entries, 3 + 4 + 1);

    drop((k, other));
    db.close().unwrap();
    let db = open(tmp.path());
    let k = db.keyspace("filtered").unwrap();
    assert_eq!(k.options().compaction_filter.as_deref(), Some("marked"), "remembered");
    assert_eq!((value(&k, "b"), value(&k, "c").as_deref()), (None, Some("Change")));
}

#[test]
fn a_compaction_of_a_range_passes_every_entry_of_it_wherever_it_lies() {
    let tmp = tempfile::tempdir().unwrap();
    let calls = Marked::default();
    let db = Db::open(tmp.path(), small().register_compaction_filter(calls.clone())).unwrap();
    let k = db.keyspace("filtered").unwrap();
    for i in 0..4000 {
        k.put(format!("{i:05}"), format!("{} {i:0100}", ["x", "keep"][i % 2])).unwrap();
    }
    // In the last level, before there is a filter.
    k.compact_range(..).unwrap();
    assert_eq!((k.iter().count(), calls.0.load(SeqCst)), (4000, 0));
    k.alter(&marked()).unwrap();
    k.compact_range("01000".."02000").unwrap();
    let left = |from: &str, to: &str| k.range(from..to).count();
    assert_eq!(left("01000", "02000"), 500);
    k.compact_range(..).unwrap();
    assert_eq!((left("", "9"), db.stats().compaction_filter_removed), (2000, 2000));
    let asked = calls.0.load(SeqCst);
    assert!(asked >= 4000, "{asked}");
    // Again: it has to be asked again, of what is there.
    k.compact_range(..).unwrap();
    assert_eq!(calls.0.load(SeqCst), asked + 2000);
    // Not where there is none any more.
    k.alter(&KeyspaceOptions::default().with_compaction_filter("")).unwrap();
    assert_eq!(k.options().compaction_filter, None);
    k.put("00000", "x again").unwrap();
    k.compact_range(..).unwrap();
    assert_eq!((value(&k, "00000").as_deref(), calls.0.load(SeqCst)), (Some("x again"), asked + 2000));
    // All keyspaces that do not say otherwise have that of the default one.
    db.keyspace("default").unwrap().alter(&marked()).unwrap();
    let new = db.keyspace("new").unwrap();
    assert_eq!(new.options().compaction_filter.as_deref(), Some("marked"));
    for keyspace in [&k, &new] {
        keyspace.put("00000", "x").unwrap();
        keyspace.compact_range(..).unwrap();
    }
    assert_eq!((value(&k, "00000").as_deref(), value(&new, "00000")), (Some("x"), None));
}

#[test]
fn a_transaction_that_locks_does_not_see_a_change_of_what_it_has_read() {
    let tmp = tempfile::tempdir().unwrap();
    let db = open(tmp.path());
    let k = filtered(&db);
    k.put("a", "x old").unwrap();
    db.flush().unwrap();
    let (mut has_read, mut has_not) = (db.transaction(), db.transaction());
    assert!(has_read.get_in(&k, "a").unwrap().is_some());
    k.compact_range(..).unwrap();
    // Nothing has been written: now is still then.
    has_read.lock(&["y"]).unwrap();
    assert!(has_read.get_in(&k, "a").unwrap().is_some());
    db.put("something", "else").unwrap();
    assert!(matches!(has_read.lock(&["z"]), Err(Error::Conflict { .. })));
    assert!(has_read.get_in(&k, "a").unwrap().is_some(), "it has not gone on");
    has_not.lock(&["z"]).unwrap();
    assert!(has_not.get_in(&k, "a").unwrap().is_none(), "it has");
    has_not.put("z", "1").unwrap();
    has_not.commit().unwrap();
}

#[test]
fn nobody_who_was_there_before_sees_a_change() {
    let tmp = tempfile::tempdir().unwrap();
    let db = open(tmp.path());
    let k = filtered(&db);
    for i in 0..2000u32 {
        k.put(format!("{i:04}"), format!("{} {i:050}", ["x", "c", "keep"][i as usize % 3])).unwrap();
    }
    db.flush().unwrap();
    let before = content(k.iter());
    let (snapshot, tx, mut cursor, mut iter) = (db.snapshot(), db.transaction(), k.cursor(), k.iter());
    let first = iter.next().expect("a pair").expect("a pair");
    assert!(cursor.seek("0000").unwrap());
    k.compact_range(..).unwrap();
    let after = content(k.iter());
    assert_eq!(after.len(), 2000 - 667);
    assert!(after.values().all(|v| v.starts_with(b"C") || v.starts_with(b"keep")));

    let of = snapshot.keyspace(&k);
    let same = |when: &str| {
        assert_eq!(content(of.iter()), before, "{when}");
        assert_eq!(content(tx.range_in(&k, ..)), before, "{when}");
        let keys: Vec<&Vec<u8>> = before.keys().step_by(7).collect();
        for ((key, one), many) in
            keys.iter().zip(of.multi_get(&keys).unwrap()).map(|(k, v)| ((k, &before[*k]), v))
        {
            assert_eq!(many.as_deref(), Some(&one[..]), "{when}");
            assert_eq!(of.get(key).unwrap().as_deref(), Some(&one[..]), "{when}");
            assert_eq!(block_on(of.get_async(key)).unwrap().as_deref(), Some(&one[..]), "{when}");
            assert_eq!(of.read_with(key, |v| v.to_vec()).unwrap().as_ref(), Some(one), "{when}");
            assert_eq!(tx.get_in(&k, key).unwrap().as_deref(), Some(&one[..]), "{when}");
        }
        let (mut c, mut n) = (of.cursor(), 0);
        let mut there = c.first().unwrap();
        while there {
            assert_eq!(before.get(c.key().unwrap()).map(Vec::as_slice), c.value(), "{when}");
            n += 1;
            there = c.next().unwrap();
        }
        assert_eq!(n, before.len(), "{when}");
    };
    same("after the compaction");
    // Whoever was on their way goes on.
    let mut all = vec![(first.0.into_vec(), first.1.into_vec())];
    all.extend(content(iter));
    assert_eq!(all.into_iter().collect::<Content>(), before);
    let (mut n, mut there) = (0, true);
    while there {
        (n, there) = (n + 1, cursor.next().unwrap());
    }
    assert_eq!(n, before.len());

    // Also after more of everything.
    for i in 0..2000u32 {
        k.put(format!("{i:04}"), format!("keep {i}")).unwrap();
    }
    k.compact_range(..).unwrap();
    same("after another one");
    assert_eq!(content(db.snapshot().keyspace(&k).iter()).len(), 2000);
    let held = files(tmp.path());
    drop((snapshot, of, tx, cursor));
    db.wait_idle().unwrap();
    assert!(files(tmp.path()) < held, "{held} tables were held for the snapshot, and go with it");
    assert_eq!(db.stats().snapshots, 0);
}

#[test]
fn older_versions_do_not_come_back() {
    let tmp = tempfile::tempdir().unwrap();
    let db = open(tmp.path());
    let k = filtered(&db);
    let key = |i: u32| format!("{:05}", i * 7919 % 20_000);
    for round in 0..6 {
        for i in 0..20_000 {
            let mark = if round == 5 && i % 2 == 0 { "x" } else { "keep" };
            k.put(key(i), format!("{mark} {round} {i:060}")).unwrap();
        }
        // By itself: through all levels.
        if round % 2 == 1 {
            db.wait_idle().unwrap();
        }
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let newest = |pairs: Content| {
        for (k, v) in &pairs {
            assert!(v.starts_with(b"x 5") || v.starts_with(b"keep 5"), "{k:?} has an old value again");
        }
        pairs.len()
    };
    assert!(newest(content(k.iter())) < 20_000, "some have been removed");
    assert!(db.stats().compaction_filter_removed > 0);
    k.compact_range(..).unwrap();
    assert_eq!(newest(content(k.iter())), 10_000);
    assert!(db.verify().unwrap().is_ok());
    assert_eq!(db.stats().table_entries, 10_000, "tombstones go");
}

#[test]
fn a_removal_is_no_write_and_hides_none() {
    let tmp = tempfile::tempdir().unwrap();
    let db = open(tmp.path());
    let k = filtered(&db);
    k.put("a", "x").unwrap();
    db.flush().unwrap();
    // What it has read is removed: as if it had come before.
    let tx = db.transaction();
    assert!(tx.get_in(&k, "a").unwrap().is_some());
    k.compact_range(..).unwrap();
    assert_eq!(value(&k, "a"), None);
    assert!(tx.get_in(&k, "a").unwrap().is_some());
    tx.put_in(&k, "b", "keep").unwrap();
    tx.commit().unwrap();
    // What was written since is removed: it was written all the same.
    let tx = db.transaction();
    assert_eq!(tx.get_in(&k, "a").unwrap(), None);
    k.put("a", "x").unwrap();
    // More than the record of what was written lately holds: tables are asked.
    for i in 0..40_000 {
        db.put(format!("{i}"), [7; 40]).unwrap();
    }
    k.compact_range(..).unwrap();
    assert_eq!(value(&k, "a"), None);
    tx.put_in(&k, "b", "other").unwrap();
    assert!(matches!(tx.commit(), Err(Error::Conflict { .. })));
    assert!(k.put_if_absent("a", "keep").unwrap());
}

#[test]
fn what_expires_and_what_is_merged_is_passed_as_reads_show_it() {
    let tmp = tempfile::tempdir().unwrap();
    let db = open(tmp.path());
    let k = db.keyspace_with("filtered", &marked().with_merge_operator("append")).unwrap();
    let hour = Duration::from_secs(3600);
    k.put_with_ttl("expires", "change", hour).unwrap();
    k.put_with_ttl("goes", "x", hour).unwrap();
    k.put("b", "keep").unwrap();
    k.put("c", "x").unwrap();
    k.compact_range(.."b").unwrap();
    db.flush().unwrap();
    // The result of a merge is passed, not what it is made of.
    k.put("a", "x").unwrap();
    k.merge("b", " more").unwrap();
    k.merge("n", "x").unwrap();
    k.merge("n", " more").unwrap();
    k.merge("m", "ch").unwrap();
    k.merge("m", "ange").unwrap();
    k.put("p", "x").unwrap();
    k.delete_range("p".."q").unwrap();
    let snapshot = db.snapshot();
    k.compact_range(..).unwrap();
    let of = |keys: [&str; 4]| keys.map(|key| value(&k, key));
    let some = |s: &str| Some(s.to_string());
    assert_eq!(of(["expires", "goes", "a", "b"]), [some("Change"), None, None, some("keep more")]);
    assert_eq!(of(["c", "n", "m", "p"]), [None, None, some("Change"), None]);
    assert_eq!(snapshot.keyspace(&k).get("n").unwrap().as_deref(), Some(&b"x more"[..]));
    // It still expires: it takes room for the time, and its table says so.
    k.put("expires", "keep").unwrap();
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn a_filter_that_panics_removes_nothing_and_is_told_of() {
    let tmp = tempfile::tempdir().unwrap();
    let db = open(tmp.path());
    let k = filtered(&db);
    for (key, value) in [("a", "x"), ("b", "!"), ("c", "x")] {
        k.put(key, value).unwrap();
    }
    k.compact_range(..).unwrap();
    assert_eq!(["a", "b", "c"].map(|key| value(&k, key).is_some()), [false, true, true]);
    let stats = db.stats();
    assert_eq!((stats.background_errors, stats.stopped), (1, None));
    let why = stats.background_error.expect("why");
    assert!(why.contains("'marked' fails for key \"1:b\": it has panicked"), "{why}");
    // The store goes on, and the next compaction passes all again.
    k.put("b", "keep").unwrap();
    k.compact_range(..).unwrap();
    assert_eq!(["a", "b", "c"].map(|key| value(&k, key).is_some()), [false, true, false]);
    assert_eq!(db.stats().background_errors, 1);
}

#[test]
fn a_filter_that_cannot_say_removes_nothing_and_its_reason_is_told() {
    let tmp = tempfile::tempdir().unwrap();
    let db = open(tmp.path());
    let k = filtered(&db);
    for (key, value) in [("a", "x"), ("b", "?"), ("c", "x")] {
        k.put(key, value).unwrap();
    }
    k.compact_range(..).unwrap();
    assert_eq!(["a", "b", "c"].map(|key| value(&k, key).is_some()), [false, true, true]);
    let stats = db.stats();
    assert_eq!((stats.background_errors, stats.stopped, stats.compaction_filter_seen), (1, None, 2));
    let why = stats.background_error.expect("why");
    assert!(why.contains("'marked' fails for key \"1:b\": who knows"), "{why}");
}

#[test]
fn a_store_opens_without_its_filters_and_keeps_all_entries() {
    let tmp = tempfile::tempdir().unwrap();
    let db = open(tmp.path());
    filtered(&db).put("a", "x").unwrap();
    db.close().unwrap();
    let db = Db::open(tmp.path(), small()).unwrap();
    let k = db.keyspace("filtered").unwrap();
    k.compact_range(..).unwrap();
    assert_eq!(value(&k, "a").as_deref(), Some("x"));
    assert_eq!(k.options().compaction_filter.as_deref(), Some("marked"), "the name stays");
    // One that is not known cannot be given; all else may be changed.
    let e = k.alter(&KeyspaceOptions::default().with_compaction_filter("unknown")).unwrap_err();
    assert!(
        e.to_string().contains("'unknown' is not known here") && e.to_string().contains("register"),
        "{e}"
    );
    assert!(db.keyspace_with("new", &KeyspaceOptions::default().with_compaction_filter("unknown")).is_err());
    assert!(db.existing_keyspace("new").unwrap().is_none());
    k.alter(&KeyspaceOptions::default().with_filter_bits_per_key(3)).unwrap();
    drop(k);
    db.close().unwrap();
    let k = filtered(&open(tmp.path()));
    k.compact_range(..).unwrap();
    assert_eq!(value(&k, "a"), None);

    struct Nameless(String);
    impl CompactionFilter for Nameless {
        fn name(&self) -> &str {
            &self.0
        }
        fn filter(&self, _: &FilterContext, _: &[u8], _: &[u8]) -> FilterDecision {
            FilterDecision::Keep
        }
    }
    for name in [String::new(), "n".repeat(256)] {
        let other = tempfile::tempdir().unwrap();
        let options = Options::default().register_compaction_filter(Nameless(name));
        assert!(matches!(Db::open(other.path(), options), Err(Error::Invalid(_))));
    }
}

/// What a reader may find of a key: its value, or also nothing if it is marked and the newest.
fn may_be(newest: Option<&Vec<u8>>, found: Option<&Vec<u8>>) -> bool {
    found == newest || (found.is_none() && newest.is_some_and(|v| v.starts_with(b"x")))
}

/// A snapshot and all that it has shown.
struct Held(Snapshot, Content);

impl Held {
    fn check(&self, r: &mut Rng) {
        if r.chance(3) {
            assert_eq!(content(self.0.iter()), self.1, "a snapshot has changed");
        }
        let key = key(r.below(60));
        assert_eq!(self.0.get(&key).unwrap().as_deref(), self.1.get(&key).map(Vec::as_slice));
    }
}

fn key(i: u64) -> Vec<u8> {
    format!("key {i:03}").into_bytes()
}

fn history(r: &mut Rng, steps: u64) {
    let tmp = tempfile::tempdir().unwrap();
    let mut db = open(tmp.path());
    let mut k = filtered(&db);
    let (mut newest, mut held) = (Content::new(), Vec::<Held>::new());
    for step in 0..steps {
        match r.below(100) {
            0..55 => {
                let (key, mark) = (key(r.below(60)), ["x", "keep"][r.below(2) as usize]);
                let value = format!("{mark} {step} {}", "v".repeat(r.below(2000) as usize)).into_bytes();
                k.put(&key, &value).unwrap();
                newest.insert(key, value);
            }
            55..65 => {
                let key = key(r.below(60));
                k.delete(&key).unwrap();
                newest.remove(&key);
            }
            65..68 => {
                let (from, to) = (r.below(60), r.below(10));
                let (from, to) = (key(from), key(from + to));
                k.delete_range(from.clone()..to.clone()).unwrap();
                newest.retain(|k, _| *k < from || *k >= to);
            }
            68..76 => db.flush().unwrap(),
            76..80 => {
                k.compact_range(key(r.below(30))..key(30 + r.below(30))).unwrap();
            }
            80..82 => {
                k.compact_range(..).unwrap();
                newest.retain(|_, v| !v.starts_with(b"x"));
                assert_eq!(content(k.iter()), newest);
            }
            82..90 => {
                let snapshot = db.snapshot().keyspace(&k);
                let shown = content(snapshot.iter());
                held.push(Held(snapshot, shown));
            }
            90..94 if !held.is_empty() => drop(held.swap_remove(r.below(held.len() as u64) as usize)),
            94 => {
                held.clear();
                drop(k);
                db.close().unwrap();
                db = open(tmp.path());
                k = filtered(&db);
            }
            _ => {
                let all = content(k.iter());
                for key in (0..60).map(key) {
                    assert!(may_be(newest.get(&key), all.get(&key)), "{key:?}: {:?}", all.get(&key));
                }
            }
        }
        held.iter().for_each(|h| h.check(r));
    }
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn random_histories_lose_only_what_is_marked_and_snapshots_stay() {
    let seed = seed("filter");
    for i in 0..env_number("RINGDB_FILTER_HISTORIES", 6) {
        println!("history {i}");
        history(&mut Rng(seed.wrapping_add(i)), 300);
    }
}

#[test]
fn snapshots_that_come_and_go_beside_compactions_never_change() {
    let tmp = tempfile::tempdir().unwrap();
    let db = open(tmp.path());
    let k = filtered(&db);
    let (over, snapshots) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        let reader = || {
            let key = |i: u64| key(i % 60);
            while !over.load(SeqCst) {
                let snapshot = db.snapshot().keyspace(&k);
                let n = snapshots.fetch_add(1, SeqCst);
                // Whatever is read first, by another way each time.
                let before = match n % 2 {
                    0 => content(snapshot.iter()),
                    _ => (0..60)
                        .map(key)
                        .filter_map(|k| Some((k.clone(), snapshot.get(&k).unwrap()?.into_vec())))
                        .collect(),
                };
                for round in 0..4 {
                    assert_eq!(content(snapshot.iter()), before, "snapshot {n}, round {round}");
                    let tx = db.transaction();
                    let one = tx.get_in(&k, key(n)).unwrap();
                    std::thread::yield_now();
                    assert_eq!(tx.get_in(&k, key(n)).unwrap(), one);
                    assert_eq!(
                        snapshot.get(key(n)).unwrap().as_deref(),
                        before.get(&key(n)).map(Vec::as_slice)
                    );
                }
            }
        };
        let readers = [s.spawn(reader), s.spawn(reader)];
        for round in 0..env_number("RINGDB_FILTER_ROUNDS", 60) {
            for i in 0..60 {
                k.put(key(i), format!("{} {round} {i}", ["x", "c", "keep"][(i % 3) as usize])).unwrap();
            }
            k.compact_range(..).unwrap();
            if readers.iter().any(|r| r.is_finished()) {
                break;
            }
        }
        over.store(true, SeqCst);
    });
    assert!(db.stats().compaction_filter_removed > 0 && snapshots.load(SeqCst) > 0);
    assert_eq!(db.stats().snapshots, 0);
}
