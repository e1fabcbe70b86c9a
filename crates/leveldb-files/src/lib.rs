//! Reads the files of a [LevelDB](https://github.com/google/leveldb) store: all its pairs in the order of their keys,
//! with overwritten and deleted ones left out as LevelDB does. Nothing is changed, and LevelDB's library is not
//! needed.
//!
//! All checksums, lengths and orders are checked: what does not fit is an [`Error`] that names file and offset. Memory
//! is bounded by the sizes of the files: a block and a window for each run of tables, and what the logs hold.
//!
//! ```no_run
//! let store = leveldb_files::Store::open("/data/old")?;
//! let mut pairs = store.into_pairs()?;
//! while let Some((key, value)) = pairs.next_pair()? {
//!     println!("{} has {} bytes", key.escape_ascii(), value.len());
//! }
//! # Ok::<(), leveldb_files::Error>(())
//! ```
//!
//! What is where: `manifest.rs` says which tables and logs make the store, `journal.rs` reads their records (manifest
//! and logs have the same framing), `table.rs` and `block.rs` a table's entries, `run.rs` tables in a row, `merge.rs`
//! merges them with what the logs hold (`memory.rs`).
#![forbid(unsafe_code)]

mod block;
mod bytes;
mod error;
mod files;
mod journal;
mod key;
mod manifest;
mod memory;
mod merge;
mod run;
mod store;
mod table;

pub use error::Error;
pub use merge::Pairs;
pub use store::{Store, TornTail};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
