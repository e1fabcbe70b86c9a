//! Lives of a store on the simulated disk: tasks that read by futures, for the tests of these.

use std::collections::BTreeMap;
use std::sync::Arc;

use engineswap::sim::{Disk, Plan};

use crate::sim::SimEnv;
use crate::{Db, Env, Error, Options};

/// The pairs that nobody changes; keys are encoded big-endian.
pub(super) type Model = BTreeMap<u64, Vec<u8>>;

/// The first key of the [`Model`], and how many follow it.
pub(super) const KEYS: std::ops::Range<u64> = 1000..1600;

/// One that reads while the store lives.
pub(super) struct Reader {
    pub db: Db,
    pub model: Arc<Model>,
    pub seed: u64,
    /// Its number among the readers.
    pub number: u64,
    faults: bool,
}

impl Reader {
    /// An operation has failed: because of the faults, or because the store was closed.
    pub fn failed(&self, e: &Error) {
        assert!(matches!(e, Error::Closed) || self.faults, "seed {}: {e}", self.seed);
    }
}

/// What a key's value is.
pub(super) fn value(i: u64) -> Vec<u8> {
    vec![i as u8; 500 + i as usize % 700]
}

/// One seed: a store with more than its cache holds, readers at work, what is done `meanwhile`, and a close while they
/// read; what fails fails because of the `faults`. Returns the fingerprint of the disk's life, and the reads for
/// futures.
pub(super) fn life(seed: u64, faults: &str, read: fn(&Reader), meanwhile: fn(&Db)) -> (u64, u64) {
    let (env, disk) = (SimEnv::new(seed), Disk::new(seed));
    let options = Options::default()
        .with_cache_bytes(1 << 20)
        .with_memtable_bytes(64 << 10)
        .with_background_threads(2)
        .with_direct_reads(seed.is_multiple_of(2));
    env.run(|| {
        let db = Db::open_with_env("/db", options, disk.io(), env.clone()).unwrap();
        let model: Model = KEYS.map(|i| (i, value(i))).collect();
        model.iter().for_each(|(i, v)| db.put(i.to_be_bytes(), v).unwrap());
        db.flush().unwrap();
        disk.set_plan(Plan::parse(faults).unwrap());
        let model = Arc::new(model);
        let reader = |number: u64| {
            let (db, model) = (db.clone(), Arc::clone(&model));
            let reader = Reader { db, model, seed, number, faults: !faults.is_empty() };
            env.spawn("reader", false, Box::new(move || read(&reader))).unwrap()
        };
        let readers: Vec<_> = (0..4).map(reader).collect();
        meanwhile(&db);
        if seed.is_multiple_of(3) {
            // While they read.
            let _ = db.clone().close();
        }
        let early = db.stats();
        readers.into_iter().for_each(|join| join());
        let stats = db.stats();
        let _ = db.close();
        assert!(early.async_reads <= stats.async_reads);
        (disk.fingerprint(), stats.async_reads)
    })
}

/// So many seeds without faults: much is read, and one seed is one run.
pub(super) fn whatever_the_order(seeds: u64, life: impl Fn(u64, &str) -> (u64, u64)) {
    let first = std::env::var("RINGDB_SEED").ok().map_or(1, |s| s.parse().unwrap());
    let mut reads = 0;
    for seed in first..first + seeds {
        reads += life(seed, "").1;
    }
    assert!(reads > 1000, "{reads}");
    assert_eq!(life(first, ""), life(first, ""), "one seed is one run");
}

/// So many seeds of each kind of fault: who reads learns of it, and nobody hangs.
pub(super) fn with_faults(seeds: u64, life: impl Fn(u64, &str) -> (u64, u64)) {
    for (n, faults) in [
        "on read prob 0.1 EIO",
        "on wait prob 0.05 ring",
        "on submit prob 0.05 ring",
        "on read prob 0.2 short 512",
        "on any prob 0.02 EINTR",
    ]
    .into_iter()
    .enumerate()
    {
        for seed in 0..seeds {
            life(seed * 5 + n as u64, faults);
        }
    }
}
