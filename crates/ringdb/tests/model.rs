//! Long random sequences of every public operation, against a BTreeMap, on every engine.
//!
//! `RINGDB_SEED` replays a run, `RINGDB_MODEL_OPS` makes it longer.

mod support;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use ringdb::{Compression, Db, Durability, Iter, Keyspace, Options, Snapshot, WriteBatch, WriteOptions};
use support::Rng;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
/// Keyspace name to its pairs; the default keyspace is "".
type Model = BTreeMap<String, Map>;

const NAMES: [&str; 4] = ["", "users", "orders", "x"];

struct Held {
    snapshot: Snapshot,
    model: Model,
    keyspaces: BTreeMap<String, Keyspace>,
}

struct HeldIter {
    iter: Iter,
    rest: Vec<(Vec<u8>, Vec<u8>)>,
}

struct World {
    dir: PathBuf,
    options: Options,
    db: Option<Db>,
    keyspaces: BTreeMap<String, Keyspace>,
    model: Model,
    held: Vec<Held>,
    iters: Vec<HeldIter>,
    rng: Rng,
    checkpoints: u32,
}

/// A reader of one keyspace, now or at a snapshot: the calls are the same, the types are not.
enum Reader<'a> {
    Db(&'a Db),
    Keyspace(&'a Keyspace),
    Snapshot(Snapshot),
}

macro_rules! on {
    ($r:expr, $x:ident => $call:expr) => {
        match $r {
            Reader::Db($x) => $call,
            Reader::Keyspace($x) => $call,
            Reader::Snapshot($x) => $call,
        }
    };
}

fn pairs(i: impl Iterator<Item = ringdb::Result<(ringdb::Value, ringdb::Value)>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    i.map(|kv| kv.map(|(k, v)| (k.into_vec(), v.into_vec())).expect("a pair")).collect()
}

fn owned(m: &[(&Vec<u8>, &Vec<u8>)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    m.iter().map(|(k, v)| ((*k).clone(), (*v).clone())).collect()
}

/// The model's pairs within bounds; an inverted range is empty.
fn within<'m>(map: &'m Map, lo: &Bound<Vec<u8>>, hi: &Bound<Vec<u8>>) -> Vec<(&'m Vec<u8>, &'m Vec<u8>)> {
    map.iter()
        .filter(|(k, _)| match lo {
            Bound::Included(b) => *k >= b,
            Bound::Excluded(b) => *k > b,
            Bound::Unbounded => true,
        })
        .filter(|(k, _)| match hi {
            Bound::Included(b) => *k <= b,
            Bound::Excluded(b) => *k < b,
            Bound::Unbounded => true,
        })
        .collect()
}

fn check_reads(rng: &mut Rng, reader: &Reader<'_>, map: &Map) {
    let known: Vec<&Vec<u8>> = map.keys().collect();
    let some_key = |rng: &mut Rng| {
        if known.is_empty() || rng.chance(3) { rng.key() } else { (*rng.pick(&known)).clone() }
    };
    for _ in 0..4 {
        let k = some_key(rng);
        let got = on!(reader, r => r.get(&k)).expect("get");
        assert_eq!(got.as_deref(), map.get(&k).map(|v| &v[..]), "get {:?}", k.escape_ascii().to_string());
    }
    let keys: Vec<Vec<u8>> = (0..rng.below(80)).map(|_| some_key(rng)).collect();
    let got = on!(reader, r => r.multi_get(&keys)).expect("multi_get");
    assert_eq!(got.len(), keys.len());
    for (k, v) in keys.iter().zip(&got) {
        assert_eq!(v.as_deref(), map.get(k).map(|v| &v[..]), "multi_get {:?}", k.escape_ascii().to_string());
    }
    let bound = |rng: &mut Rng| match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(some_key(rng)),
        _ => Bound::Excluded(some_key(rng)),
    };
    let (lo, hi) = (bound(rng), bound(rng));
    let want = within(map, &lo, &hi);
    let limit = if rng.chance(4) { usize::MAX } else { rng.below(60) as usize };
    let range = || on!(reader, r => r.range((lo.clone(), hi.clone())));
    match rng.below(3) {
        0 => {
            assert_eq!(pairs(range().take(limit)), owned(&want[..want.len().min(limit)]), "{lo:?}..{hi:?}");
        }
        1 => {
            let back: Vec<_> = want.iter().rev().take(limit).copied().collect();
            assert_eq!(pairs(range().rev().take(limit)), owned(&back), "{lo:?}..{hi:?} reversed");
        }
        _ => {
            // From both ends by turns: every pair once, in order, and then nothing.
            let (mut front, mut back) = (vec![], vec![]);
            let mut i = range();
            loop {
                let forward = rng.chance(2);
                let Some(kv) = (if forward { i.next() } else { i.next_back() }) else { break };
                let (k, v) = kv.expect("a pair");
                let side = if forward { &mut front } else { &mut back };
                side.push((k.into_vec(), v.into_vec()));
            }
            assert!(i.next().is_none() && i.next_back().is_none());
            front.extend(back.into_iter().rev());
            assert_eq!(front, owned(&want), "{lo:?}..{hi:?} from both ends");
        }
    }
    let p = if rng.chance(3) { vec![255; rng.below(3) as usize] } else { some_key(rng) };
    let p = &p[..p.len().min(rng.below(12) as usize)];
    let want: Vec<_> = map.iter().filter(|(k, _)| k.starts_with(p)).collect();
    assert_eq!(
        pairs(on!(reader, r => r.prefix(p))),
        owned(&want),
        "prefix {:?}",
        p.escape_ascii().to_string()
    );
}

impl World {
    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn open(&mut self) {
        let db = Db::open(&self.dir, self.options.clone()).expect("open");
        let mut names = db.keyspaces().expect("keyspaces");
        names.sort();
        let want: Vec<String> = self.model.keys().filter(|n| !n.is_empty()).cloned().collect();
        assert_eq!(names, want);
        self.keyspaces = want.iter().map(|n| (n.clone(), db.keyspace(n).expect("keyspace"))).collect();
        self.db = Some(db);
        self.check_all();
    }

    /// Every pair of every keyspace.
    fn check_all(&self) {
        for (name, map) in &self.model {
            let got = match name.as_str() {
                "" => pairs(self.db().iter()),
                n => pairs(self.keyspaces[n].iter()),
            };
            assert_eq!(got, map.clone().into_iter().collect::<Vec<_>>(), "keyspace '{name}'");
        }
    }

    fn pick_keyspace(&mut self) -> String {
        let names: Vec<String> = self.model.keys().cloned().collect();
        self.rng.pick(&names).clone()
    }

    fn write_options(&mut self) -> WriteOptions {
        match self.rng.below(8) {
            0 => WriteOptions::default().durability(Durability::Sync),
            1 => WriteOptions::default().durability(Durability::Process),
            _ => WriteOptions::default(),
        }
    }

    fn step(&mut self) {
        match self.rng.below(1000) {
            0..550 => {
                let (ks, k, v) = (self.pick_keyspace(), self.rng.key(), self.rng.value());
                match ks.as_str() {
                    "" => self.db().put(&k, &v).expect("put"),
                    n => self.keyspaces[n].put(&k, &v).expect("put"),
                }
                self.model.get_mut(&ks).expect("keyspace").insert(k, v);
            }
            550..650 => {
                let ks = self.pick_keyspace();
                let known: Vec<Vec<u8>> = self.model[&ks].keys().cloned().collect();
                let k = if known.is_empty() || self.rng.chance(4) {
                    self.rng.key()
                } else {
                    self.rng.pick(&known).clone()
                };
                match ks.as_str() {
                    "" => self.db().delete(&k).expect("delete"),
                    n => self.keyspaces[n].delete(&k).expect("delete"),
                }
                self.model.get_mut(&ks).expect("keyspace").remove(&k);
            }
            650..780 => {
                let mut batch = WriteBatch::new();
                for _ in 0..self.rng.below(30) {
                    let (ks, k) = (self.pick_keyspace(), self.rng.key());
                    let put = !self.rng.chance(4);
                    let v = self.rng.value();
                    match (ks.as_str(), put) {
                        ("", true) => batch.put(&k, &v),
                        ("", false) => batch.delete(&k),
                        (n, true) => batch.put_in(&self.keyspaces[n], &k, &v),
                        (n, false) => batch.delete_in(&self.keyspaces[n], &k),
                    }
                    let map = self.model.get_mut(&ks).expect("keyspace");
                    if put {
                        map.insert(k, v);
                    } else {
                        map.remove(&k);
                    }
                }
                let options = self.write_options();
                self.db().write(batch, &options).expect("write");
            }
            780..880 => {
                let ks = self.pick_keyspace();
                let db = self.db.clone().expect("open");
                let reader = match ks.as_str() {
                    "" => Reader::Db(&db),
                    n => Reader::Keyspace(&self.keyspaces[n]),
                };
                check_reads(&mut self.rng, &reader, &self.model[&ks]);
            }
            880..920 => {
                let Some(i) = (!self.held.is_empty()).then(|| self.rng.below(self.held.len() as u64)) else {
                    return;
                };
                let held = &self.held[i as usize];
                for (name, map) in &held.model {
                    let s = match name.as_str() {
                        "" => held.snapshot.clone(),
                        n => held.snapshot.keyspace(&held.keyspaces[n]),
                    };
                    check_reads(&mut self.rng, &Reader::Snapshot(s), map);
                }
            }
            920..940 if self.held.len() < 4 => {
                let snapshot = self.db().snapshot();
                self.held.push(Held {
                    snapshot,
                    model: self.model.clone(),
                    keyspaces: self.keyspaces.clone(),
                });
            }
            940..950 if !self.held.is_empty() => {
                let i = self.rng.below(self.held.len() as u64) as usize;
                self.held.swap_remove(i);
            }
            950..960 if self.iters.len() < 3 => {
                // An iterator sees the store as it was when it was made, whatever happens meanwhile.
                let ks = self.pick_keyspace();
                let iter = match ks.as_str() {
                    "" => self.db().iter(),
                    n => self.keyspaces[n].iter(),
                };
                self.iters.push(HeldIter { iter, rest: self.model[&ks].clone().into_iter().collect() });
            }
            960..975 if !self.iters.is_empty() => {
                let i = self.rng.below(self.iters.len() as u64) as usize;
                let n = self.rng.below(200) as usize;
                let h = &mut self.iters[i];
                let n = n.min(h.rest.len());
                let want: Vec<_> = h.rest.drain(..n).collect();
                assert_eq!(pairs(h.iter.by_ref().take(n)), want, "a held iterator");
                if h.rest.is_empty() {
                    assert!(h.iter.next().is_none());
                    self.iters.swap_remove(i);
                }
            }
            975..981 => self.db().flush().expect("flush"),
            981..984 => {
                let (a, b) = (self.rng.key(), self.rng.key());
                let (lo, hi) = if a <= b { (a, b) } else { (b, a) };
                match self.rng.below(3) {
                    0 => self.db().compact_range(..).expect("compact"),
                    1 => self.db().compact_range(lo..=hi).expect("compact"),
                    _ => match self.pick_keyspace().as_str() {
                        "" => self.db().compact_range(lo..).expect("compact"),
                        n => self.keyspaces[n].compact_range(..).expect("compact"),
                    },
                }
            }
            984..988 => {
                let name = *self.rng.pick(&NAMES[1..]);
                let ks = self.db().keyspace(name).expect("keyspace");
                assert_eq!(ks.name(), name);
                self.keyspaces.insert(name.into(), ks);
                self.model.entry(name.into()).or_default();
            }
            988..990 => {
                let name = *self.rng.pick(&NAMES[1..]);
                let there = self.db().drop_keyspace(name).expect("drop keyspace");
                assert_eq!(there, self.model.remove(name).is_some());
                if let Some(ks) = self.keyspaces.remove(name) {
                    assert!(ks.put("k", "v").is_err(), "a write to a dropped keyspace");
                }
                // What a snapshot shows of a keyspace that was dropped since is not promised.
                for h in &mut self.held {
                    h.model.remove(name);
                }
                self.iters.clear();
            }
            990..992 => {
                let r = self.db().verify().expect("verify");
                assert!(r.is_ok(), "{:?}", r.problems);
            }
            992..994 => {
                self.checkpoints += 1;
                let dir = self.dir.with_extension(format!("checkpoint{}", self.checkpoints));
                self.db().checkpoint(&dir).expect("checkpoint");
                let copy = Db::open(&dir, self.options.clone()).expect("open checkpoint");
                for (name, map) in &self.model {
                    let got = match name.as_str() {
                        "" => pairs(copy.iter()),
                        n => pairs(copy.keyspace(n).expect("keyspace").iter()),
                    };
                    assert_eq!(
                        got,
                        map.clone().into_iter().collect::<Vec<_>>(),
                        "checkpoint, keyspace '{name}'"
                    );
                }
                drop(copy);
                std::fs::remove_dir_all(&dir).expect("remove checkpoint");
            }
            994..998 => {
                self.held.clear();
                self.iters.clear();
                self.keyspaces.clear();
                let db = self.db.take().expect("open");
                if self.rng.chance(2) {
                    db.close().expect("close");
                } else {
                    drop(db);
                }
                self.options = settings(&mut self.rng, &self.options.io);
                self.open();
            }
            _ => {
                let copy = Db::open_read_only(&self.dir, self.options.clone()).expect("open read-only");
                assert_eq!(pairs(copy.iter()), self.model[""].clone().into_iter().collect::<Vec<_>>());
                assert!(copy.put("k", "v").is_err());
            }
        }
    }
}

/// Small settings that bring flushes and compactions within a few thousand writes.
fn settings(rng: &mut Rng, io: &str) -> Options {
    let compression = *rng.pick(&[Compression::None, Compression::Lz4, Compression::Zstd]);
    Options::default()
        .with_io(io)
        .with_memtable_bytes(*rng.pick(&[64 << 10, 256 << 10, 1 << 20]))
        .with_cache_bytes(*rng.pick(&[1 << 20, 4 << 20, 64 << 20]))
        .with_block_bytes(*rng.pick(&[4096, 4096, 16384]))
        .with_compression(compression)
        .with_last_level_compression(*rng.pick(&[Compression::None, compression]))
        .with_filter_bits_per_key(*rng.pick(&[10, 10, 0, 4]))
        .with_background_threads(1 + rng.below(3) as usize)
        .with_durability(*rng.pick(&[Durability::Process, Durability::Process, Durability::Sync]))
}

fn run(io: &str, seed: u64, ops: u64, dir: &Path) {
    let mut rng = Rng(seed);
    let options = settings(&mut rng, io);
    let model = Model::from([(String::new(), Map::new())]);
    let mut w = World {
        dir: dir.join("db"),
        options,
        db: None,
        keyspaces: BTreeMap::new(),
        model,
        held: vec![],
        iters: vec![],
        rng,
        checkpoints: 0,
    };
    w.open();
    for _ in 0..ops {
        w.step();
    }
    w.check_all();
}

fn model_on(io: &str) {
    if !support::engines().contains(&io) {
        return;
    }
    let seed = support::seed(&format!("model on {io}"));
    let ops = support::env_number("RINGDB_MODEL_OPS", 6000);
    for round in 0..3 {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temp dir");
        run(io, seed.wrapping_add(round), ops, dir.path());
    }
}

#[test]
fn posix_matches_the_model() {
    model_on("posix");
}

#[test]
fn libaio_matches_the_model() {
    model_on("libaio");
}

#[test]
fn io_uring_matches_the_model() {
    model_on("io_uring");
}
