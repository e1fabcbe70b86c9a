//! Values that expire, from the outside, by a clock that the tests set.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ringdb::engineswap::Io;
use ringdb::{
    Db, Env, Error, Join, KeyspaceOptions, Options, ReadOptions, Result, SalvageOptions, Snapshot, SystemEnv,
    Value, WriteBatch, WriteOptions,
};

use crate::executor::block_on;
use crate::merge;
use crate::support::{Rng, env_number, seed};

/// The machine, but for the wall clock.
pub struct Clock {
    env: Arc<dyn Env>,
    millis: AtomicU64,
}

impl Clock {
    fn new() -> Arc<Clock> {
        Arc::new(Clock { env: SystemEnv::shared(), millis: AtomicU64::new(1_000_000) })
    }

    fn pass(&self, d: Duration) {
        self.millis.fetch_add(d.as_millis() as u64, SeqCst);
    }

    fn set_back(&self, d: Duration) {
        self.millis.fetch_sub(d.as_millis() as u64, SeqCst);
    }
}

impl Env for Clock {
    fn now(&self) -> Duration {
        self.env.now()
    }
    fn sleep(&self, d: Duration) {
        self.env.sleep(d);
    }
    fn spawn(&self, name: &str, background: bool, f: Box<dyn FnOnce() + Send>) -> std::io::Result<Join> {
        self.env.spawn(name, background, f)
    }
    fn random(&self) -> u64 {
        self.env.random()
    }
    fn wall_clock(&self) -> Duration {
        Duration::from_millis(self.millis.load(SeqCst))
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn small() -> Options {
    Options::default().with_cache_bytes(4 << 20).with_memtable_bytes(256 << 10).with_background_threads(1)
}

fn open(dir: &Path, clock: &Arc<Clock>) -> Db {
    Db::open_with_env(dir, small(), Io::from_uri("auto").unwrap(), clock.clone()).expect("open")
}

/// The keys that every kind of read shows, of these.
fn seen(db: &Db, keys: &[&str]) -> Vec<String> {
    let found: Vec<bool> = keys.iter().map(|k| db.get(k).expect("get").is_some()).collect();
    let is = |other: Vec<bool>, what: &str| assert_eq!(found, other, "{what}");
    is(keys.iter().map(|k| db.contains_key(k).expect("contains_key")).collect(), "contains_key");
    is(keys.iter().map(|k| db.read_with(k, |_| ()).expect("read_with").is_some()).collect(), "read_with");
    is(db.multi_get(keys).expect("multi_get").iter().map(Option::is_some).collect(), "multi_get");
    is(keys.iter().map(|k| block_on(db.get_async(k)).expect("get_async").is_some()).collect(), "get_async");
    let many = block_on(db.multi_get_async(keys)).expect("multi_get_async");
    is(many.iter().map(Option::is_some).collect(), "multi_get_async");
    let snapshot = db.snapshot();
    is(keys.iter().map(|k| snapshot.get(k).expect("get").is_some()).collect(), "snapshot");
    let tx = db.transaction();
    is(keys.iter().map(|k| tx.get(k).expect("get").is_some()).collect(), "transaction");
    let name = |k: Value| String::from_utf8(k.into_vec()).expect("a key");
    let pairs: Vec<String> = db.iter().map(|p| name(p.expect("a pair").0)).collect();
    let mut back: Vec<String> = db.iter().rev().map(|p| name(p.expect("a pair").0)).collect();
    back.reverse();
    assert_eq!(pairs, back);
    assert_eq!(pairs, db.iter().keys().map(|k| name(k.expect("a key"))).collect::<Vec<_>>());
    let (mut cursor, mut by_cursor, mut by_prev) = (db.cursor(), Vec::new(), Vec::new());
    let mut there = cursor.first().expect("first");
    while there {
        assert_eq!(
            cursor.value().map(<[u8]>::to_vec),
            db.get(cursor.key().unwrap()).unwrap().map(Value::into_vec)
        );
        by_cursor.push(String::from_utf8(cursor.key().unwrap().to_vec()).unwrap());
        there = cursor.next().expect("next");
    }
    there = cursor.last().expect("last");
    while there {
        assert_eq!(
            cursor.value().map(<[u8]>::to_vec),
            db.get(cursor.key().unwrap()).unwrap().map(Value::into_vec)
        );
        by_prev.push(String::from_utf8(cursor.key().unwrap().to_vec()).unwrap());
        there = cursor.prev().expect("prev");
    }
    by_prev.reverse();
    assert_eq!((&pairs, &pairs), (&by_cursor, &by_prev));
    assert_eq!(db.first().expect("first").map(|p| name(p.0)).as_ref(), pairs.first());
    assert_eq!(db.last().expect("last").map(|p| name(p.0)).as_ref(), pairs.last());
    let by_tx: Vec<String> = tx.range(..).map(|p| name(p.expect("a pair").0)).collect();
    assert_eq!(pairs, by_tx);
    let asked: Vec<String> =
        keys.iter().zip(found).filter(|(_, is)| *is).map(|(k, _)| k.to_string()).collect();
    assert_eq!(pairs, asked, "all keys are asked for");
    pairs
}

#[test]
fn what_has_expired_is_gone_from_every_read_and_hides_what_is_older() {
    let (tmp, clock) = (tempfile::tempdir().unwrap(), Clock::new());
    let db = open(tmp.path(), &clock);
    let keys = ["a", "b", "c", "d"];
    db.put("a", "older").unwrap();
    db.put("d", "older").unwrap();
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    db.put_with_ttl("a", "a while", SECOND).unwrap();
    db.put_with_ttl("b", "longer", 2 * SECOND).unwrap();
    db.put("c", "for ever").unwrap();
    let snapshot = db.snapshot();
    let check = |db: &Db, expected: &[&str]| assert_eq!(seen(db, &keys), expected);
    // In the memtable, in level 0, at the end; each with the clock where it was.
    for stage in 0..3 {
        check(&db, &["a", "b", "c", "d"]);
        assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"a while"[..]));
        clock.pass(SECOND);
        check(&db, &["b", "c", "d"]);
        assert_eq!(snapshot.get("a").unwrap(), None);
        clock.pass(SECOND);
        check(&db, &["c", "d"]);
        clock.set_back(2 * SECOND);
        match stage {
            0 => db.flush().unwrap(),
            1 => db.compact_range(..).unwrap(),
            _ => {}
        }
    }
    clock.pass(2 * SECOND);
    drop(snapshot);
    db.compact_range(..).unwrap();
    check(&db, &["c", "d"]);
    assert!(db.verify().unwrap().is_ok());
    db.close().unwrap();
    clock.set_back(2 * SECOND);
    // What has been compacted does not come back, whatever the clock says; nor does what it hid.
    let db = open(tmp.path(), &clock);
    check(&db, &["c", "d"]);
}

#[test]
fn an_expired_version_hides_older_ones_through_every_compaction() {
    let (tmp, clock) = (tempfile::tempdir().unwrap(), Clock::new());
    let db = open(tmp.path(), &clock);
    for round in 0..6 {
        for i in 0..50 {
            let key = format!("{i:02}");
            match (i + round) % 3 {
                0 => db.put(&key, "for ever").unwrap(),
                1 => db.put_with_ttl(&key, [0; 300], SECOND).unwrap(),
                _ => db.delete(&key).unwrap(),
            }
        }
        let held = (round % 2 == 0).then(|| db.snapshot());
        clock.pass(SECOND);
        for compacted in [false, true] {
            if compacted {
                db.flush().unwrap();
                db.wait_idle().unwrap();
            }
            if compacted && round % 3 == 0 {
                db.compact_range(..).unwrap();
            }
            for i in 0..50 {
                let there = db.get(format!("{i:02}")).unwrap().is_some();
                assert_eq!(there, (i + round) % 3 == 0, "key {i} in round {round}");
            }
            assert_eq!(db.iter().count(), (0..50).filter(|i| (i + round) % 3 == 0).count());
        }
        drop(held);
    }
}

/// The space comes back while nobody reads or writes, whatever lies below.
#[test]
fn space_comes_back_without_anybody_reading() {
    for compacted in [false, true] {
        let (tmp, clock) = (tempfile::tempdir().unwrap(), Clock::new());
        let db = open(tmp.path(), &clock);
        let sessions = KeyspaceOptions::default().with_time_to_live(60 * SECOND);
        let sessions = db.keyspace_with("sessions", &sessions).unwrap();
        db.put("stays", "here").unwrap();
        for i in 0..20_000 {
            sessions.put(format!("{:08}", i * 7919 % 100_000), [1; 100]).unwrap();
        }
        db.flush().unwrap();
        if compacted {
            db.compact_range(..).unwrap();
            sessions.compact_range(..).unwrap();
        }
        db.wait_idle().unwrap();
        let bytes = || db.stats().levels.iter().map(|l| l.bytes).sum::<u64>();
        let before = bytes();
        assert!(before > 2 << 20, "{before}");
        clock.pass(61 * SECOND);
        let start = Instant::now();
        while bytes() > 64 << 10 {
            assert!(start.elapsed() < 30 * SECOND, "{} bytes of {before} are left", bytes());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(db.get("stays").unwrap().as_deref(), Some(&b"here"[..]));
        assert_eq!(sessions.iter().count(), 0);
        assert!(db.verify().unwrap().is_ok());
    }
}

#[test]
fn tables_that_have_expired_whole_are_dropped_unread() {
    let (tmp, clock) = (tempfile::tempdir().unwrap(), Clock::new());
    let db = open(tmp.path(), &clock);
    for i in 0..5000 {
        db.put_with_ttl(format!("{i:08}"), [1; 100], 60 * SECOND).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let read = db.stats().compaction_read_bytes;
    clock.pass(61 * SECOND);
    db.wait_idle().unwrap();
    assert_eq!(db.stats().levels.iter().map(|l| l.tables).sum::<u64>(), 0);
    assert_eq!(db.stats().compaction_read_bytes, read);
}

#[test]
fn a_keyspace_gives_its_time_to_what_is_put_from_then_on() -> Result<()> {
    let (tmp, clock) = (tempfile::tempdir().unwrap(), Clock::new());
    let db = open(tmp.path(), &clock);
    let k = db.keyspace_with("k", &KeyspaceOptions::default().with_time_to_live(SECOND))?;
    k.put("put", "1")?;
    k.put_with_ttl("own", "1", 3 * SECOND)?;
    k.put_with_ttl("for ever", "1", Duration::MAX)?;
    let mut batch = WriteBatch::new();
    batch.put_in(&k, "batch", "1");
    batch.put_with_ttl_in(&k, "batch/own", "1", 3 * SECOND);
    batch.put("default", "1");
    db.write_ref(&batch, &WriteOptions::default())?;
    let mut batch = WriteBatch::new();
    batch.put_in(&k, "future", "1");
    block_on(db.write_async(batch, &WriteOptions::default()))?;
    let tx = db.transaction();
    tx.put_in(&k, "transaction", "1")?;
    tx.commit()?;
    assert!(k.put_if_absent("absent", "1")?);
    k.fetch_update("update", |_| Some(b"1".to_vec()))?;
    let keys = |k: &ringdb::Keyspace| -> Vec<String> {
        k.iter().map(|p| String::from_utf8(p.unwrap().0.into_vec()).unwrap()).collect()
    };
    assert_eq!(keys(&k).len(), 9);
    k.alter(&KeyspaceOptions::default().with_time_to_live(Duration::ZERO))?;
    k.put("later", "1")?;
    clock.pass(SECOND);
    assert_eq!(keys(&k), ["batch/own", "for ever", "later", "own"]);
    // A lease that is over is free.
    assert!(k.put_if_absent("absent", "2")?);
    clock.pass(2 * SECOND);
    assert_eq!(keys(&k), ["absent", "for ever", "later"]);
    assert_eq!(db.get("default")?.as_deref(), Some(&b"1"[..]));
    // The store's own holds for those that have none.
    db.keyspace("default")?.alter(&KeyspaceOptions::default().with_time_to_live(5 * SECOND))?;
    let other = db.keyspace("other")?;
    other.put("k", "v")?;
    assert_eq!(db.options().time_to_live, 5 * SECOND);
    drop((k, other));
    db.close()?;
    let db = open(tmp.path(), &clock);
    let stats = db.stats();
    let lives: Vec<_> = stats.settings.iter().map(|s| (&s.keyspace[..], s.options.time_to_live)).collect();
    assert_eq!(
        lives,
        [("default", Some(5 * SECOND)), ("k", Some(Duration::ZERO)), ("other", Some(5 * SECOND))]
    );
    let other = db.keyspace("other")?;
    assert!(other.contains_key("k")?);
    clock.pass(5 * SECOND);
    assert!(!other.contains_key("k")?);
    Ok(())
}

#[test]
fn mistakes_are_refused() {
    let (tmp, clock) = (tempfile::tempdir().unwrap(), Clock::new());
    let db = open(tmp.path(), &clock);
    assert!(matches!(db.put_with_ttl("k", "v", Duration::ZERO), Err(Error::Invalid(_))));
    let mut batch = WriteBatch::new();
    batch.put("a", "1");
    batch.put_with_ttl("k", "v", Duration::ZERO);
    assert!(matches!(db.write(batch, &WriteOptions::default()), Err(Error::Invalid(_))));
    assert_eq!(db.get("a").unwrap(), None, "nothing of it was written");
    let odd = KeyspaceOptions::default().with_time_to_live(Duration::from_nanos(1));
    assert!(matches!(db.keyspace_with("k", &odd), Err(Error::Invalid(_))));
    assert!(Options::default().with_time_to_live(Duration::MAX).time_to_live == Duration::MAX);
    let dir = tmp.path().join("other");
    assert!(Db::open(&dir, Options::default().with_time_to_live(Duration::MAX)).is_err());
}

/// An iterator goes by one time, a transaction by the time of each read; expiring is no conflict, being put again is.
#[test]
fn readers_beside_the_clock() -> Result<()> {
    let (tmp, clock) = (tempfile::tempdir().unwrap(), Clock::new());
    let db = open(tmp.path(), &clock);
    for i in 0..10 {
        db.put_with_ttl([i], [i; 10], SECOND)?;
    }
    let mut iter = db.iter();
    assert!(iter.next().is_some() && iter.next_back().is_some());
    let tx = db.transaction();
    assert!(tx.get([5])?.is_some());
    let losing = db.transaction();
    assert!(losing.get([6])?.is_some());
    clock.pass(SECOND);
    assert_eq!(iter.count(), 8);
    assert_eq!(db.range_with(.., &ReadOptions::default()).count(), 0);
    assert_eq!(tx.get([5])?, None);
    db.flush()?;
    db.compact_range(..)?;
    tx.put("done", "1")?;
    tx.commit()?;
    db.put([6], "again")?;
    db.flush()?;
    db.compact_range(..)?;
    losing.put("lost", "1")?;
    assert!(matches!(losing.commit(), Err(Error::Conflict { .. })));
    Ok(())
}

#[test]
fn salvaged_checkpointed_and_backed_up_values_expire() -> Result<()> {
    let (tmp, clock) = (tempfile::tempdir().unwrap(), Clock::new());
    let db = open(&tmp.path().join("a"), &clock);
    db.put_with_ttl("short", "1", SECOND)?;
    // Longer than a block.
    db.put_with_ttl("long", vec![7; 100_000], 5 * SECOND)?;
    db.put_with_ttl("huge", vec![8; 3 << 20], 5 * SECOND)?;
    db.checkpoint(tmp.path().join("b"))?;
    db.put_with_ttl("log", "1", 5 * SECOND)?;
    db.sync()?;
    drop(db);
    ringdb::salvage(tmp.path().join("a"), tmp.path().join("c"), &SalvageOptions::default())?;
    for (name, n) in [("b", 3), ("c", 4), ("a", 4)] {
        let db = open(&tmp.path().join(name), &clock);
        assert_eq!(db.iter().count(), n, "{name}");
        assert_eq!(db.get("huge")?.map(|v| v.len()), Some(3 << 20));
        db.compact_range(..)?;
        assert_eq!(db.get("huge")?.map(|v| v.len()), Some(3 << 20));
        assert_eq!(db.get("long")?.as_deref(), Some(&[7; 100_000][..]));
        let mut cursor = db.cursor();
        assert!(cursor.seek("huge")? && cursor.value() == Some(&vec![8; 3 << 20][..]));
        clock.pass(SECOND);
        assert_eq!(db.get("short")?, None);
        clock.set_back(SECOND);
        assert!(db.verify()?.is_ok());
    }
    clock.pass(5 * SECOND);
    let db = open(&tmp.path().join("a"), &clock);
    assert_eq!(db.iter().count(), 0);
    Ok(())
}

/// What a key has in the model: what was put with the time at which it expires, and the operands merged since.
#[derive(Clone, Default)]
struct Held {
    put: Option<(Vec<u8>, u64)>,
    operands: Vec<Vec<u8>>,
}

type Model = BTreeMap<Vec<u8>, Held>;

/// As of a time, by an operator whose result depends on every step, or one that joins by commas.
fn content(model: &Model, chained: bool, now: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let value = |held: &Held| {
        let put = held.put.as_ref().filter(|(_, at)| *at > now).map(|(value, _)| value.clone());
        held.operands.iter().fold(put, |value, operand| {
            let joined = match &value {
                Some(value) => [value, &b","[..], operand].concat(),
                None => operand.clone(),
            };
            Some(if chained { merge::chain(value.as_deref(), &[operand]) } else { joined })
        })
    };
    model.iter().filter_map(|(k, held)| Some((k.clone(), value(held)?))).collect()
}

fn compare(db: &Db, snapshot: Option<&Snapshot>, expected: &[(Vec<u8>, Vec<u8>)]) {
    let pair = |p: Result<(Value, Value)>| p.map(|(k, v)| (k.into_vec(), v.into_vec())).expect("a pair");
    let of = || snapshot.map_or_else(|| db.iter(), |s| s.iter());
    assert_eq!(of().map(pair).collect::<Vec<_>>(), expected);
    let mut back: Vec<_> = of().rev().map(pair).collect();
    back.reverse();
    assert_eq!(back, expected);
    assert!(of().keys().map(|k| k.expect("a key").into_vec()).eq(expected.iter().map(|p| p.0.clone())));
    let mut cursor = snapshot.map_or_else(|| db.cursor(), |s| s.cursor());
    let mut there = cursor.last().expect("last");
    for (k, v) in expected.iter().rev() {
        assert!(there && cursor.key() == Some(k) && cursor.value() == Some(v));
        there = cursor.prev().expect("prev");
    }
    there = cursor.first().expect("first");
    for (k, v) in expected {
        assert!(there && cursor.key() == Some(k) && cursor.value() == Some(v));
        there = cursor.next().expect("next");
    }
    let keys: Vec<Vec<u8>> = (0..30).map(|i| format!("k{i:02}").into_bytes()).collect();
    let all = db.multi_get(&keys).expect("multi_get");
    for (i, k) in keys.iter().enumerate() {
        let is = expected.iter().find(|(key, _)| key == k).map(|(_, v)| v.as_slice());
        let got = snapshot.map_or_else(|| db.get(k), |s| s.get(k)).expect("get");
        assert_eq!(got.as_deref(), is);
        if snapshot.is_none() {
            assert_eq!(all[i].as_deref(), is);
            assert_eq!(block_on(db.get_async(k)).expect("get_async").as_deref(), is);
        }
    }
}

/// Whenever flushes and compactions are: a value that has expired is nothing to what is merged into it, before and
/// after; until then it is part of the result.
#[test]
fn what_is_merged_into_a_value_outlives_it() {
    for round in 0..env_number("RINGDB_TTL_MERGES", 6) {
        let (tmp, clock, mut rng) = (tempfile::tempdir().unwrap(), Clock::new(), Rng(seed("ttl") ^ round));
        let name = ["chain", "append:,"][round as usize % 2];
        let options = small().with_memtable_bytes(64 << 10).register_merge_operator(merge::Chain);
        let mut db =
            Db::open_with_env(tmp.path(), options.clone(), Io::from_uri("auto").unwrap(), clock.clone())
                .unwrap();
        db.keyspace("default").unwrap().alter(&KeyspaceOptions::default().with_merge_operator(name)).unwrap();
        let (mut model, mut held) = (Model::new(), None::<(Snapshot, Model)>);
        for step in 0..400 {
            let key = format!("k{:02}", rng.below(30)).into_bytes();
            let value = format!("{step}").repeat(1 + rng.below(40) as usize).into_bytes();
            match rng.below(100) {
                0..30 => {
                    let life = 1 + rng.below(40);
                    db.put_with_ttl(&key, &value, Duration::from_millis(life)).unwrap();
                    let at = clock.wall_clock().as_millis() as u64 + life;
                    model.insert(key, Held { put: Some((value, at)), operands: vec![] });
                }
                30..65 => {
                    db.merge(&key, &value).unwrap();
                    model.entry(key).or_default().operands.push(value);
                }
                65..70 => {
                    db.put(&key, &value).unwrap();
                    model.insert(key, Held { put: Some((value, u64::MAX)), operands: vec![] });
                }
                70..73 => {
                    db.delete(&key).unwrap();
                    model.remove(&key);
                }
                73..75 => {
                    db.delete_range(key.clone()..b"k15".to_vec()).unwrap();
                    model.retain(|k, _| !(key.as_slice()..&b"k15"[..]).contains(&k.as_slice()));
                }
                75..83 => db.flush().unwrap(),
                83..86 => db.compact_range(..).unwrap(),
                86..88 => held = rng.chance(3).then(|| (db.snapshot(), model.clone())),
                88..89 => {
                    held = None;
                    db.close().unwrap();
                    let io = Io::from_uri("auto").unwrap();
                    db = Db::open_with_env(tmp.path(), options.clone(), io, clock.clone()).unwrap();
                }
                _ => clock.pass(Duration::from_millis(1 + rng.below(20))),
            }
            if rng.chance(4) {
                let now = clock.wall_clock().as_millis() as u64;
                compare(&db, None, &content(&model, name == "chain", now));
                if let Some((snapshot, model)) = &held {
                    compare(&db, Some(snapshot), &content(model, name == "chain", now));
                }
            }
        }
        assert!(db.verify().unwrap().is_ok());
    }
}

#[test]
fn a_salvage_keeps_what_expires_apart_from_what_is_merged_into_it() -> Result<()> {
    for name in ["chain", "append:,"] {
        let (tmp, clock) = (tempfile::tempdir().unwrap(), Clock::new());
        let (from, to) = (tmp.path().join("a"), tmp.path().join("b"));
        let open = |dir: &Path| {
            let options = small().register_merge_operator(merge::Chain);
            Db::open_with_env(dir, options, Io::from_uri("auto").unwrap(), clock.clone())
        };
        let db = open(&from)?;
        db.keyspace("default")?.alter(&KeyspaceOptions::default().with_merge_operator(name))?;
        let mut model = Model::new();
        for (i, operands) in [0, 1, 3].into_iter().enumerate() {
            let (key, value) = (format!("k{i:02}").into_bytes(), b"put".to_vec());
            db.put_with_ttl(&key, &value, SECOND)?;
            let operands: Vec<Vec<u8>> = (0..operands).map(|i| format!("o{i}").into_bytes()).collect();
            operands.iter().try_for_each(|o| db.merge(&key, o))?;
            let put = Some((value, clock.wall_clock().as_millis() as u64 + 1000));
            model.insert(key, Held { put, operands });
            if i == 1 {
                db.flush()?;
            }
        }
        db.sync()?;
        drop(db);
        ringdb::salvage(&from, &to, &SalvageOptions::default())?;
        let db = open(&to)?;
        for _ in 0..2 {
            let now = clock.wall_clock().as_millis() as u64;
            compare(&db, None, &content(&model, name == "chain", now));
            clock.pass(SECOND);
        }
        assert_eq!(db.iter().count(), 2);
    }
    Ok(())
}

#[test]
fn nothing_is_merged_where_puts_get_a_time() -> Result<()> {
    let (tmp, clock) = (tempfile::tempdir().unwrap(), Clock::new());
    let db = open(tmp.path(), &clock);
    let both = KeyspaceOptions::default().with_time_to_live(SECOND).with_merge_operator("append:,");
    let k = db.keyspace_with("k", &both)?;
    k.put("key", "1")?;
    let refused = |e: Result<()>| {
        let e = e.expect_err("it would never expire").to_string();
        assert!(e.contains("1000 ms") && e.contains("fetch_update"), "{e}");
    };
    refused(k.merge("key", "2"));
    let mut batch = WriteBatch::new();
    batch.put_in(&k, "other", "1");
    batch.merge_in(&k, "key", "2");
    refused(db.write_ref(&batch, &WriteOptions::default()));
    refused(block_on(db.write_async(batch, &WriteOptions::default())));
    assert_eq!(k.get("other")?, None, "nothing of it was written");
    k.alter(&KeyspaceOptions::default().with_time_to_live(Duration::ZERO))?;
    k.merge("key", "2")?;
    assert_eq!(k.get("key")?.as_deref(), Some(&b"1,2"[..]));
    // The store's own time holds for those that have none.
    db.keyspace("default")?.alter(&KeyspaceOptions::default().with_time_to_live(SECOND))?;
    k.merge("key", "3")?;
    let other = db.keyspace_with("other", &KeyspaceOptions::default().with_merge_operator("append:,"))?;
    refused(other.merge("key", "2"));
    clock.pass(SECOND);
    assert_eq!(k.get("key")?.as_deref(), Some(&b"2,3"[..]));
    Ok(())
}
