//! Flush and compaction: memtables become tables of level 0, tables move down the levels.
//!
//! - [`scheduler`]: the background threads; flushes go before compactions. It reaches the store through
//!   [`CompactionEnv`].
//! - [`flush`]: memtables into tables.
//! - [`pick`]: what to compact next, pure functions on the tables' descriptions.
//! - [`run`]: merges, split over several threads.
//! - [`filtering`]: what compaction filters remove and change.
//! - [`fold`]: operands of merge operators become fewer, or values.
//! - [`visibility`]: which versions are kept.
//! - [`watch`]: how far a compaction is; `telling`: events; `rate`: how fast compactions may write.
//! - [`backpressure`]: how writers are slowed when all this falls behind.
//!
//! Order on disk: a table's data is synced, then the directory, then the manifest's edit is appended and synced,
//! then the view is switched; only then are inputs marked obsolete, to be deleted with their last reader.

pub(crate) mod backpressure;
mod filtering;
pub(crate) mod flush;
mod fold;
pub(crate) mod helpers;
mod input;
mod memory;
pub(crate) mod output;
pub(crate) mod pick;
mod rate;
pub(crate) mod run;
pub(crate) mod scheduler;
mod telling;
pub(crate) mod visibility;
pub(crate) mod watch;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use engineswap::Io;

pub(crate) use self::memory::Memory;
use crate::cache::Charge;
use crate::compaction_filter::registry::Filters;
use crate::cursor::Cursor;
use crate::key::Seq;
use crate::operator::registry::Operator;
use crate::ranges::{RangeState, RangeTombstone};
use crate::settings::SettingsMap;
use crate::table::TableParts;
use crate::table::meta::TableMeta;
use crate::{Error, Options, Result};

/// The tables of each level: level 0 newest first, the others in key order.
pub(crate) type Levels<T> = Vec<Vec<Arc<T>>>;

/// An immutable memtable as a flush needs it.
pub(crate) struct Frozen<C> {
    /// Over its versions, without a position.
    pub cursor: C,
    /// Bytes of memory.
    pub bytes: u64,
    /// How many versions.
    pub entries: u64,
    /// Its range tombstones.
    pub ranges: Vec<RangeTombstone>,
}

/// A change of the tree, to be made durable and visible as one.
pub(crate) struct Change<T> {
    /// So many of the oldest immutable memtables are in `added` and go.
    pub flushed: usize,
    /// Tables that go, with their levels.
    pub removed: Vec<(usize, Arc<T>)>,
    /// Tables that come, with their levels. A table in both lists moves.
    pub added: Vec<(usize, Arc<T>)>,
    pub ranges: RangeChange,
    /// A compaction filter has removed or changed what snapshots see: those that are open must not notice.
    pub filtered: bool,
}

impl<T> Default for Change<T> {
    fn default() -> Self {
        Change {
            flushed: 0,
            removed: Vec::new(),
            added: Vec::new(),
            ranges: RangeChange::default(),
            filtered: false,
        }
    }
}

/// What a change means for the range tombstones. Those that no table needs after it go too, unasked.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeChange {
    /// Of the flushed memtables, those that tables may need.
    pub added: Vec<RangeTombstone>,
    /// Of the version, those that others have made superfluous.
    pub superseded: Vec<Seq>,
    /// All up to this number have been applied to the tables that come.
    pub applied: Seq,
}

/// The store, as the background threads need it.
pub(crate) trait CompactionEnv: Send + Sync + 'static {
    /// An open table.
    type Table: AsRef<TableMeta> + Send + Sync + 'static;
    /// A cursor over a memtable.
    type MemCursor: Cursor + Send + 'static;

    /// Through which files are made and read.
    fn io(&self) -> &Io;
    /// The store's directory.
    fn dir(&self) -> &Path;
    /// Makes the names in it durable. An error is final.
    fn sync_dir(&self) -> Result<()> {
        Ok(self.io().sync_dir(self.dir())?)
    }
    /// The store's settings.
    fn options(&self) -> &Options;
    /// How tables of each keyspace are written from now on.
    fn table_settings(&self) -> Arc<SettingsMap>;
    /// The tables now.
    fn levels(&self) -> Levels<Self::Table>;
    /// The immutable memtables now, oldest first. Only [`CompactionEnv::install`] removes any.
    fn immutables(&self) -> Vec<Frozen<Self::MemCursor>>;
    /// How many there are; one that is larger than usual may count as several.
    fn immutable_count(&self) -> usize;
    /// The range tombstones that the tables now need.
    fn ranges(&self) -> Arc<RangeState>;
    /// The sequence numbers that must stay readable: the newest published one, loaded first, then those of the
    /// open snapshots (in this order: a snapshot taken in between must not be missed). In any order, not empty.
    fn views(&self) -> Vec<Seq>;
    /// Milliseconds since the Unix epoch: by this time values expire.
    fn wall_clock(&self) -> u64;
    /// Why writing has stopped, if it has.
    fn stopped(&self) -> Option<String> {
        None
    }
    /// Ids of dropped keyspaces whose entries may still be in tables.
    fn dropped_keyspaces(&self) -> Vec<u32>;
    /// The merge operator for an internal key.
    fn operator(&self, _internal: &[u8]) -> Option<Operator> {
        None
    }
    /// The compaction filters of the keyspaces, if any can have one.
    fn filters(&self) -> Option<&Filters> {
        None
    }
    /// A file number that was never given out before.
    fn new_file_number(&self) -> u64;
    /// What stays in memory of a table: its file, index and filter.
    fn table_parts(&self, table: &Self::Table) -> Arc<TableParts>;
    /// Opens a table that was written and synced (the file's name follows from its id).
    fn open_table(&self, meta: TableMeta) -> Result<Arc<Self::Table>>;
    /// Counts memory that a job takes in the store's budget, if it has one.
    fn charge(&self, _bytes: u64) -> Option<Charge> {
        None
    }
    /// Makes the change durable in the manifest (level 0 stays sorted newest first, by `max_seq`), then switches
    /// the view, then marks the removed tables that do not stay obsolete, and releases log segments that flushed
    /// memtables needed. Tables of a flush raise the manifest's flushed sequence number. The directory has been
    /// synced before. An error of kind `Retry` means that nothing has happened.
    fn install(&self, change: Change<Self::Table>) -> Result<()>;
    /// Tables that cannot be read, wholly or in part, and are left where they are: none is picked.
    fn quarantined(&self) -> BTreeSet<u64> {
        BTreeSet::new()
    }
    /// A compaction has failed. True if that is because of a table of the tree, which is left alone from now on.
    fn quarantine(&self, _why: &Error) -> bool {
        false
    }
    /// A background failure that cannot be retried: writing stops, with this reason.
    fn stop_writing(&self, why: &Error);
}

#[cfg(test)]
mod tests;
