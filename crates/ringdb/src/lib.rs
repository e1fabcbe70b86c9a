//! An embedded, ordered, persistent key-value store for Linux that keeps a fast SSD busy.
#![forbid(unsafe_code)]

mod batch;
mod bounds;
#[allow(dead_code)]
mod cache;
#[allow(dead_code)]
mod coding;
#[allow(dead_code)]
mod compaction;
#[allow(dead_code)]
mod cursor;
mod db;
mod env;
mod error;
#[allow(dead_code)]
mod files;
#[allow(dead_code)]
mod key;
#[allow(dead_code)]
mod log;
#[allow(dead_code)]
mod manifest;
#[allow(dead_code)]
mod memtable;
#[allow(dead_code)]
mod merge;
mod options;
#[allow(dead_code)]
mod purpose;
mod stats;
mod sync;
#[allow(dead_code, unused_imports)]
mod table;
mod value;

pub use batch::WriteBatch;
pub use bounds::KeyRange;
pub use db::{Db, Iter, Keyspace, Snapshot};
pub use engineswap;
pub use env::{Env, SystemEnv};
pub use error::{Error, ErrorKind, Result};
pub use key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use options::{Compression, Durability, Options, ReadOptions, WriteOptions};
pub use stats::{LevelStats, Stats, VerifyProblem, VerifyReport};
pub use value::Value;
