//! An embedded, ordered, persistent key-value store for Linux that keeps a fast SSD busy.
//!
//! ringdb is a log-structured merge tree. What it is good at is overlap: the reads of one [`Db::multi_get`] are in
//! flight together, durable commits run in a pipeline, iterators read ahead, flushes and compactions keep several
//! requests at the device. Its I/O goes through [`engineswap`], whose engine (io_uring, libaio, posix) is chosen
//! when a store is opened: [`Options::io`].
//!
//! ```
//! use ringdb::{Db, Durability, Options, WriteBatch, WriteOptions};
//!
//! # fn main() -> ringdb::Result<()> {
//! # let tmp = tempfile::tempdir().expect("a temporary directory");
//! # let dir = tmp.path().join("store");
//! let db = Db::open(&dir, Options::default())?;
//! db.put("apple", "red")?;
//! assert_eq!(db.get("apple")?.as_deref(), Some(&b"red"[..]));
//!
//! // A batch happens together or not at all, in any keyspaces.
//! let stock = db.keyspace("stock")?;
//! let mut batch = WriteBatch::new();
//! batch.put("pear", "green");
//! batch.put_in(&stock, "pear", "12");
//! db.write(batch, &WriteOptions::default().durability(Durability::Sync))?;
//!
//! // Many keys at once: every block that has to be read is in flight together.
//! let colours = db.multi_get(&["apple", "plum", "pear"])?;
//! assert_eq!(colours.iter().flatten().count(), 2);
//!
//! // Iterators and snapshots see the store as it was when they were made; iterators run both ways.
//! let before = db.snapshot();
//! db.delete("apple")?;
//! for pair in db.range("a".."z").rev() {
//!     let (key, value) = pair?;
//!     assert_eq!((&key[..], &value[..]), (&b"pear"[..], &b"green"[..]));
//! }
//! assert!(before.get("apple")?.is_some());
//! # drop((stock, before));
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Durability
//!
//! | level | a write survives | what a power cut may take |
//! |---|---|---|
//! | [`Durability::Sync`] | everything, once its call has returned | nothing that was acknowledged |
//! | [`Durability::Process`] (default) | the death of the process | the newest writes; never an older one while a newer one survives, never an acknowledged `Sync` |
//! | [`Durability::None`] | nothing, until [`Db::flush`], [`Db::sync`], [`Db::close`] or a full memtable | everything since |
//!
//! The level is set for a store ([`Options::durability`]) and for a write ([`WriteOptions::durability`]). The
//! store's own level also decides how the log is written: a `Sync` store writes each group of commits directly
//! to the device, so every logged write to it is durable. Writes of different levels keep one order: a write that
//! was not logged is lost alone, and never brings an older value back over a newer one that was logged.
//!
//! What the system only refuses (space, descriptors, memory) is an error of kind [`ErrorKind::Retry`], and
//! the store goes on when the shortage ends. If writing or syncing fails, the store stops writing
//! ([`Error::Stopped`]), goes on reading, and has to be reopened: what a failed sync has left on the disk
//! cannot be known.
//!
//! # Limits
//!
//! Keys have at most [`MAX_KEY_BYTES`], values at most [`MAX_VALUE_BYTES`]; both may be empty. One process at a
//! time has a store open for writing; any number may read beside it ([`Db::open_read_only`]).
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

#[cfg(not(target_os = "linux"))]
compile_error!("ringdb runs on Linux only: its I/O layer, engineswap, is made of Linux's interfaces");

mod bounds;
mod cache;
mod coding;
mod commit;
mod compaction;
mod compaction_filter;
mod cursor;
mod db;
mod env;
mod error;
mod events;
mod expiry;
mod files;
mod format_version;
#[cfg(feature = "fuzzing")]
mod fuzz_input;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod insight;
mod key;
mod log;
mod manifest;
mod memtable;
mod merge;
#[cfg(feature = "mutations")]
pub mod mutation;
#[cfg(not(feature = "mutations"))]
mod mutation;
mod open_stores;
mod operator;
mod options;
mod purpose;
mod ranges;
mod salvage;
mod seal;
mod settings;
#[cfg(all(not(shuttle), feature = "sim"))]
pub mod sim;
#[cfg(feature = "socket")]
pub mod socket;
mod stats;
mod stop;
mod store_dir;
mod sync;
mod table;
mod value;

pub use bounds::KeyRange;
pub use compaction_filter::{CompactionFilter, FilterContext, FilterDecision};
pub use db::{
    BackupOptions, BackupReport, Backups, Cursor, Db, ExportReport, Exported, ExtractIf, FileFormat,
    FormatReport, Generation, GetFuture, Ingester, Iter, Keys, Keyspace, Metrics, MultiGetFuture,
    MultiGetStream, RangeStream, Reads, RestoreReport, Snapshot, Transaction, TransactionRange, WriteBatch,
    WriteFuture,
};
pub use engineswap;
pub use env::{Env, Join, SystemEnv};
pub use error::{Error, ErrorKind, Result};
#[cfg(feature = "tracing")]
pub use events::TracingListener;
pub use events::{Event, EventListener};
pub use key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use operator::MergeOperator;
pub use options::{Compression, Durability, KeyspaceOptions, Options, ReadOptions, WriteOptions};
pub use purpose::NAMES as IO_PURPOSES;
pub use salvage::{SalvageLoss, SalvageOptions, SalvageReport, salvage};
#[cfg(feature = "encryption")]
pub use seal::{
    provider::{EncryptionKey, KeyError, KeyProvider},
    static_keys::StaticKeys,
};
pub use stats::{
    DamagedTable, KeyspaceSettings, LevelStats, OperationLatency, Progress, RunningCompaction, Stats,
    TableInfo, VerifyOptions, VerifyProblem, VerifyReport,
};
pub use value::Value;

/// The program of the crate's README, run as a doc test. (That of the repository is one of the guide's.)
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
