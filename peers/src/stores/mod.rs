//! The stores behind one trait: 16-byte keys, settings as alike as they have them.

use std::error::Error;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use crate::scenario::Scenario;

mod fjall;
mod lmdb;
mod ringdb;
mod rocksdb;

pub type Key = [u8; 16];
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A get that a task waits for.
pub type Found = Pin<Box<dyn Future<Output = Result<Option<usize>>> + Send>>;

/// Memtables of all that have them.
pub const MEMTABLE_BYTES: u64 = 64 << 20;
/// Filters of all that have them.
pub const FILTER_BITS: u32 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Ringdb,
    Rocksdb,
    /// io_uring, hyper clock cache, hash index in blocks, recycled logs, pipelined writes
    RocksdbTuned,
    Fjall,
    Lmdb,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ringdb => "ringdb",
            Kind::Rocksdb => "rocksdb",
            Kind::RocksdbTuned => "rocksdb-tuned",
            Kind::Fjall => "fjall",
            Kind::Lmdb => "lmdb",
        }
    }

    /// Whether it can do what the scenario is about.
    pub fn fits(self, scenario: &Scenario) -> bool {
        !scenario.direct || !matches!(self, Kind::Fjall | Kind::Lmdb)
    }

    pub fn open(self, dir: &Path, scenario: &Scenario) -> Result<Arc<dyn Store>> {
        Ok(match self {
            Kind::Ringdb => Arc::new(ringdb::open(dir, scenario)?),
            Kind::Rocksdb => Arc::new(rocksdb::open(dir, scenario, false)?),
            Kind::RocksdbTuned => Arc::new(rocksdb::open(dir, scenario, true)?),
            Kind::Fjall => Arc::new(fjall::open(dir, scenario)?),
            Kind::Lmdb => Arc::new(lmdb::open(dir, scenario)?),
        })
    }
}

/// A store, used by many threads at once. What is read is looked at: every call returns lengths of what it saw.
pub trait Store: Send + Sync {
    fn put(&self, key: &Key, value: &[u8], sync: bool) -> Result<()>;
    /// All or nothing.
    fn put_all(&self, pairs: &[(Key, &[u8])], sync: bool) -> Result<()>;
    fn get(&self, key: &Key) -> Result<Option<usize>>;
    /// The same for a task, if the store can do it without blocking one.
    fn get_future(&self, _key: &Key) -> Option<Found> {
        None
    }
    /// How many were found.
    fn multi_get(&self, keys: &[Key]) -> Result<usize>;
    /// Rows from `from` on, at most `rows`.
    fn scan(&self, from: Option<&Key>, rows: usize) -> Result<usize>;
    /// Until flushes and compactions have come to rest.
    fn settle(&self) -> Result<()>;
}

/// Looks at a value as a caller would: its length and two of its bytes.
#[inline]
pub fn look(value: &[u8]) -> usize {
    std::hint::black_box((value.first(), value.last()));
    value.len()
}
