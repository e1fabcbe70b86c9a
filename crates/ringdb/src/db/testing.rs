//! A small tree of memtables and tables with a model of what it holds, for the tests of reads.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use engineswap::Io;

use super::view::{View, Views};
use crate::cache::Cache;
use crate::key::{self, Kind, Prefix, Seq};
use crate::manifest::{Version, VersionEdit};
use crate::memtable::Memtable;
use crate::options::Compression;
use crate::table::meta::TableMeta;
use crate::table::reader::Table;
use crate::table::reads::Reads;
use crate::table::writer::{TableOptions, TableWriter};

/// A random number generator (xorshift64*), so that a failing seed can be run again.
pub(crate) struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
}

/// What to build.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub seed: u64,
    /// Different keys.
    pub keys: u64,
    pub cache_bytes: u64,
    pub compression: Compression,
    pub filter_bits: u32,
    /// One value in so many is larger than a block; 0: none.
    pub large_every: u64,
    /// Tables of level 0.
    pub level0: usize,
    /// Also 40 versions of a single key in one table.
    pub many_versions: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            seed: 1,
            keys: 2000,
            cache_bytes: 16 << 20,
            compression: Compression::None,
            filter_bits: 10,
            large_every: 0,
            level0: 3,
            many_versions: true,
        }
    }
}

type Versions = BTreeMap<Vec<u8>, Vec<(Seq, Option<Vec<u8>>)>>;

/// A tree and its model.
pub(crate) struct Fixture {
    pub dir: tempfile::TempDir,
    pub cache: Arc<Cache>,
    pub views: Views,
    pub prefix: Prefix,
    /// User key to its versions, oldest first.
    pub model: Versions,
    pub last_seq: Seq,
    pub rng: Rng,
}

impl Fixture {
    pub fn new(plan: Plan) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let io = Io::from_uri("auto").unwrap();
        let cache = Cache::new(plan.cache_bytes, 4096);
        let prefix = Prefix::new(3);
        let mut build = Build { plan, rng: Rng::new(plan.seed), model: Versions::new(), seq: 0, file_id: 0 };
        let mut levels: Vec<Vec<Arc<Table>>> = vec![Vec::new(); 7];
        // Oldest first: the last level has every key, the others some.
        for (level, one_in, tables) in [(6, 1, 5), (4, 3, 3), (1, 9, 2)] {
            let stage = build.stage(one_in, level == 6);
            let n = stage.len();
            for part in 0..tables {
                let part: Versions = stage
                    .iter()
                    .skip(n * part / tables)
                    .take(n * (part + 1) / tables - n * part / tables)
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                levels[level].push(build.table(&dir, &io, &cache, &prefix, &part));
            }
        }
        for _ in 0..plan.level0 {
            let stage = build.stage(15, false);
            levels[0].insert(0, build.table(&dir, &io, &cache, &prefix, &stage));
        }
        let immutables: Vec<_> = (0..2).map(|_| memtable(&prefix, &build.stage(20, false))).collect();
        let active = memtable(&prefix, &build.stage(20, false));
        let immutables = immutables.into_iter().rev().collect();
        let view = View::new(active, immutables, version(&levels));
        Fixture {
            dir,
            views: Views::new(cache.collector(), view, build.seq),
            cache,
            prefix,
            model: build.model,
            last_seq: build.seq,
            rng: build.rng,
        }
    }

    /// What a read of a user key at `seq` should find.
    pub fn expect(&self, key: &[u8], seq: Seq) -> Option<&[u8]> {
        let versions = self.model.get(key)?;
        versions.iter().rev().find(|(s, _)| *s <= seq)?.1.as_deref()
    }

    /// All pairs at `seq`.
    pub fn expect_all(&self, seq: Seq) -> Vec<(Vec<u8>, Vec<u8>)> {
        let pair = |key: &Vec<u8>| Some((key.clone(), self.expect(key, seq)?.to_vec()));
        self.model.keys().filter_map(pair).collect()
    }

    /// A random user key; most are in the model.
    pub fn some_key(&mut self) -> Vec<u8> {
        let mut key = user_key(self.rng.below(self.model.len() as u64 * 11 / 10));
        if self.rng.below(10) == 0 {
            key.push(self.rng.below(3) as u8);
        }
        key
    }

    /// A random sequence number, often the last.
    pub fn some_seq(&mut self) -> Seq {
        if self.rng.below(2) == 0 { self.last_seq } else { self.rng.below(self.last_seq + 1) }
    }

    /// The tables' files.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> =
            std::fs::read_dir(self.dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        files
    }
}

struct Build {
    plan: Plan,
    rng: Rng,
    model: Versions,
    seq: Seq,
    file_id: u64,
}

impl Build {
    /// Random writes of one key in `one_in`, newer than all before; recorded in the model.
    fn stage(&mut self, one_in: u64, oldest: bool) -> Versions {
        let mut stage = Versions::new();
        let mut order: Vec<u64> = (0..self.plan.keys).filter(|_| self.rng.below(one_in) == 0).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.rng.below(i as u64 + 1) as usize);
        }
        if self.plan.many_versions && oldest {
            order.extend(std::iter::repeat_n(7, 40));
        }
        for i in order {
            for _ in 0..1 + self.rng.below(8) / 7 {
                self.seq += 1 + self.rng.below(3);
                let value = (self.rng.below(6) > 0).then(|| self.value());
                let version = (self.seq, value);
                stage.entry(user_key(i)).or_default().push(version.clone());
                self.model.entry(user_key(i)).or_default().push(version);
            }
        }
        stage
    }

    fn value(&mut self) -> Vec<u8> {
        let large = self.plan.large_every > 0 && self.rng.below(self.plan.large_every) == 0;
        let len = if large { 5000 + self.rng.below(20_000) } else { self.rng.below(300) };
        let byte = self.rng.next() as u8;
        let mut v = vec![byte; len as usize];
        for b in v.iter_mut().step_by(3) {
            *b = self.rng.next() as u8;
        }
        v
    }

    fn table(
        &mut self,
        dir: &tempfile::TempDir,
        io: &Io,
        cache: &Arc<Cache>,
        prefix: &Prefix,
        versions: &Versions,
    ) -> Arc<Table> {
        self.file_id += 1;
        let path = dir.path().join(format!("{:06}.sst", self.file_id));
        let meta = write_table(io, &path, self.file_id, self.plan, prefix, versions);
        Table::open(io, cache, &path, meta, Reads::PageCache).unwrap()
    }
}

/// How the tables of tests are written.
pub(crate) fn table_options(compression: Compression, filter_bits: u32) -> TableOptions {
    TableOptions {
        block_bytes: 4096,
        compression,
        filter_bits_per_key: filter_bits,
        expected_bytes: 1 << 20,
        buffer_bytes: u64::MAX,
        most_keys: None,
        most_hashes: usize::MAX,
        reads: Reads::PageCache,
        seal: None,
        purpose: crate::purpose::FLUSH,
    }
}

fn write_table(
    io: &Io,
    path: &std::path::Path,
    file_id: u64,
    plan: Plan,
    prefix: &Prefix,
    versions: &Versions,
) -> TableMeta {
    let options = table_options(plan.compression, plan.filter_bits);
    let mut writer = TableWriter::create(io, path, file_id, options).unwrap();
    for (key, versions) in versions {
        let key = [prefix.as_slice(), key].concat();
        for (seq, value) in versions.iter().rev() {
            let kind = if value.is_some() { Kind::Put } else { Kind::Delete };
            writer.add(&key, *seq, kind, value.as_deref().unwrap_or_default()).unwrap();
        }
    }
    writer.finish().unwrap()
}

fn memtable(prefix: &Prefix, versions: &Versions) -> Arc<Memtable> {
    let (memtable, mut writer) = Memtable::new(1 << 20);
    for (key, versions) in versions {
        let key = [prefix.as_slice(), key].concat();
        for (seq, value) in versions {
            let kind = if value.is_some() { Kind::Put } else { Kind::Delete };
            writer.insert(&key, key::hash(&key), *seq, kind, value.as_deref().unwrap_or_default());
        }
    }
    memtable
}

/// The `i`th user key: in order of `i` within a length, of several lengths.
pub(crate) fn user_key(i: u64) -> Vec<u8> {
    match i % 5 {
        0 => format!("user:{:08}:a-rather-long-tail-that-is-shared", i).into_bytes(),
        1 => format!("k{:016}", i).into_bytes(),
        2 => i.to_be_bytes()[5..].to_vec(),
        3 => [&i.to_be_bytes()[4..], &[0]].concat(),
        _ => format!("user:{:08}", i).into_bytes(),
    }
}

/// A version of these tables: level 0 newest first, the others in key order.
pub(crate) fn version(levels: &[Vec<Arc<Table>>]) -> Arc<Version<Table>> {
    let numbered = || (0..).zip(levels).flat_map(|(level, tables)| tables.iter().map(move |t| (level, t)));
    let edit = VersionEdit {
        added: numbered().map(|(level, t)| (level, t.meta().clone())).collect(),
        ..VersionEdit::default()
    };
    let open = |_, meta: &TableMeta| {
        let table = numbered().find(|(_, t)| t.meta() == meta).map(|(_, t)| Arc::clone(t));
        Ok(table.expect("it is one of these"))
    };
    Arc::new(Version::empty().apply(&edit, open).expect("the levels are well formed"))
}
