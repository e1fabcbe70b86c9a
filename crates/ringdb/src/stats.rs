//! What a store says of itself.

use std::sync::Arc;

use serde::Serialize;

use crate::options::KeyspaceOptions;

/// Is told how many bytes have been read, and of how many.
pub type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Counters and sizes of an open store. Counters start at 0 when it is opened.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
/// db.put("apple", "red")?;
/// let stats = db.stats();
/// println!("{}: {} of {} bytes of memory", stats.io, stats.memory_bytes, stats.cache_capacity_bytes);
/// assert!(stats.stopped.is_none() && stats.damaged_tables.is_empty());
/// # Ok::<(), ringdb::Error>(())
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// The I/O engine in use.
    pub io: String,
    /// Why that engine.
    pub io_reasons: Vec<String>,
    /// Whether the store is served by the socket in its directory: "on", "off", or "off: " and why.
    pub socket: String,
    /// The number of the key that this open encrypts with; `None` if it does not, or only reads.
    pub encryption_key: Option<u32>,
    /// How many tables need each encryption key, by its number; 0: those that are not encrypted.
    pub tables_by_key: Vec<(u32, u64)>,
    /// The settings in force for the tables of each keyspace, the default one's, which are the store's, first.
    pub settings: Vec<KeyspaceSettings>,
    /// Levels with at least one table, and level 0.
    pub levels: Vec<LevelStats>,
    /// Entries in tables (versions and tombstones included).
    pub table_entries: u64,
    /// Bytes of tables.
    pub table_bytes: u64,
    /// Deleted ranges ([`crate::Db::delete_range`]) of which tables may hold keys. Those in memtables are not counted.
    pub range_tombstones: u64,
    /// Bytes of the active and immutable memtables.
    pub memtable_bytes: u64,
    /// Immutable memtables waiting to be flushed.
    pub immutable_memtables: u64,
    /// Bytes of log segments, free ones included.
    pub log_bytes: u64,
    /// The newest sequence number.
    pub last_sequence: u64,
    /// Open snapshots.
    pub snapshots: u64,
    /// The memory budget in bytes.
    pub cache_capacity_bytes: u64,
    /// Bytes that count against it: those of cached blocks, indexes, filters, memtables, background work, iterators.
    pub memory_bytes: u64,
    /// Bytes of memory that memtables take: also of those that are flushed but still read by iterators.
    pub memtable_memory_bytes: u64,
    /// Bytes of the buffers of flushes and compactions.
    pub background_memory_bytes: u64,
    /// Bytes of blocks that iterators hold outside of the cache.
    pub iterator_memory_bytes: u64,
    /// Bytes of log segments that are mapped into memory, besides the budget.
    pub log_mapped_bytes: u64,
    /// Bytes of cached blocks.
    pub cache_used_bytes: u64,
    /// Bytes of resident indexes, and of the slots of the blocks that they name.
    pub index_bytes: u64,
    /// Bytes of resident filters.
    pub filter_bytes: u64,
    /// Block reads served by the cache.
    pub cache_hits: u64,
    /// Block reads that went to the disk.
    pub cache_misses: u64,
    /// Table probes that a filter answered with "absent".
    pub filter_negatives: u64,
    /// Blocks read for asynchronous reads.
    pub async_reads: u64,
    /// Asynchronous reads that found the block that they need on its way.
    pub async_joined: u64,
    /// Submissions in which the blocks of asynchronous reads were read.
    pub async_submissions: u64,
    /// Blocks of asynchronous reads that the first poll found in the page cache, and read itself.
    pub async_page_cache_reads: u64,
    /// Commit groups written to the log.
    pub write_groups: u64,
    /// Batches committed.
    pub write_batches: u64,
    /// Bytes of frames appended to the log.
    pub log_written_bytes: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Memtables flushed.
    pub flushes: u64,
    /// Bytes written by flushes.
    pub flush_written_bytes: u64,
    /// Compactions done.
    pub compactions: u64,
    /// Tables moved to the next level without being rewritten.
    pub trivial_moves: u64,
    /// Why compactions, moves and removals of tables were done, and how many for each reason.
    pub compaction_reasons: Vec<(&'static str, u64)>,
    /// Compactions that are running.
    pub running_compactions: Vec<RunningCompaction>,
    /// Whether a flush is running.
    pub flush_running: bool,
    /// Bytes read by compactions.
    pub compaction_read_bytes: u64,
    /// Bytes written by compactions.
    pub compaction_written_bytes: u64,
    /// Entries that were passed to compaction filters, each as often as it was.
    pub compaction_filter_seen: u64,
    /// Entries that compaction filters have removed.
    pub compaction_filter_removed: u64,
    /// Entries whose value compaction filters have changed.
    pub compaction_filter_changed: u64,
    /// Microseconds that writers were delayed by backpressure.
    pub write_delay_us: u64,
    /// Writes that were delayed.
    pub write_delays: u64,
    /// Why writers are delayed at this moment; `None` when they are not.
    pub write_delay_reason: Option<String>,
    /// What the log has lost, found when the store was opened: damage, with `recover_damaged_log`; or where it
    /// breaks off although frames that were never synced follow, which a power cut leaves, or damage.
    pub recovered_damage: Option<String>,
    /// Tables that cannot be read, wholly or in part, as far as that is known: reads of keys that need them fail,
    /// compactions leave them alone.
    pub damaged_tables: Vec<DamagedTable>,
    /// The last failure of a compaction that did not stop the store: because of a damaged table, or of a compaction
    /// filter (entries that it did not decide on were kept).
    pub background_error: Option<String>,
    /// Such failures.
    pub background_errors: u64,
    /// Calls of event listeners that have panicked.
    pub listener_panics: u64,
    /// Why the store has stopped writing; `None` when it has not.
    pub stopped: Option<String>,
    /// How long operations took, one entry for each kind that was timed: `get`, `multi_get`, `write` (one that does
    /// not wait for the device), `sync_write` (one that does), `seek` (of iterators and cursors; further steps are not
    /// timed), `flush`, `compaction` (one that read tables), `stall` (the wait of a delayed write). Blocking calls
    /// only. Of the first five but `sync_write`, one in [`crate::Options::time_one_in`] is timed.
    pub latencies: Vec<OperationLatency>,
}

/// How long one kind of operation took, since the store was opened. Percentiles are right to 3 %, upwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OperationLatency {
    /// Which: see [`Stats::latencies`].
    pub operation: &'static str,
    /// How many. Where one in so many is timed, it counts for as many: so this is an estimate.
    pub count: u64,
    /// Nanoseconds, in sum; likewise.
    pub total_ns: u64,
    /// Nanoseconds that half of them did not exceed.
    pub p50_ns: u64,
    /// That 90 % did not.
    pub p90_ns: u64,
    /// That 99 % did not.
    pub p99_ns: u64,
    /// That 99.9 % did not.
    pub p999_ns: u64,
    /// That none did, of those that were timed.
    pub max_ns: u64,
}

/// The settings in force for the tables of a keyspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyspaceSettings {
    /// The keyspace; "default" for the one of [`crate::Db`]'s own calls.
    pub keyspace: String,
    /// All of them given.
    #[serde(flatten)]
    pub options: KeyspaceOptions,
}

/// A compaction that is running.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunningCompaction {
    /// Why it was picked: a name as in [`Stats::compaction_reasons`].
    pub reason: &'static str,
    /// The first level that it takes tables from.
    pub level: u32,
    /// The level that gets its tables.
    pub output: u32,
    /// Tables that it takes.
    pub tables: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Entries of these.
    pub entries: u64,
    /// Entries that it has read so far, to about 1024 for each thread.
    pub entries_done: u64,
    /// Microseconds since it began.
    pub running_us: u64,
}

/// One level of the tree.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct LevelStats {
    /// 0 is the newest.
    pub level: u32,
    /// Tables.
    pub tables: u64,
    /// Bytes.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Target size in bytes; 0 for level 0.
    pub target_bytes: u64,
}

/// A table of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TableInfo {
    /// The number in its file's name.
    pub number: u64,
    /// Its level; 0 is the newest.
    pub level: u32,
    /// Bytes of the file.
    pub bytes: u64,
    /// Entries, versions and tombstones included.
    pub entries: u64,
    /// The first key, printable: `\xNN` for bytes that are not; after the keyspace's number and `:` if it is not
    /// the default one.
    pub from: String,
    /// The last key, likewise.
    pub to: String,
    /// The number of the key that it is encrypted with.
    pub encryption_key: Option<u32>,
}

/// A table that cannot be read, wholly or in part.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct DamagedTable {
    /// Its file.
    pub file: String,
    /// Its level.
    pub level: u32,
    /// Bytes of the file, as it should be.
    pub bytes: u64,
    /// Entries, versions and tombstones included.
    pub entries: u64,
    /// The first key, printable: `\xNN` for bytes that are not; after the keyspace's number and `:` if it is not
    /// the default one.
    pub from: String,
    /// The last key, likewise.
    pub to: String,
    /// Whether all of it is: every read within its range that is not answered by something newer fails. Otherwise
    /// a compaction has met a bad block in it.
    pub unreadable: bool,
    /// Why.
    pub reason: String,
}

/// What [`crate::Db::verify`] found.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Blocks read and checked.
    pub blocks: u64,
    /// Entries read and checked for order.
    pub entries: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes of all tables, as they should be.
    pub table_bytes: u64,
    /// Blocks of tables that cannot be read or believed, those of unreadable tables left out.
    pub damaged_blocks: u64,
    /// Bytes of those, and of unreadable tables.
    pub damaged_bytes: u64,
    /// Entries in those, as far as known.
    pub damaged_entries: u64,
    /// What is wrong; empty if all is well.
    pub problems: Vec<VerifyProblem>,
    /// What is unusual but harms nothing: files that the manifest does not name.
    pub notes: Vec<String>,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Something wrong on disk.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct VerifyProblem {
    /// The file.
    pub file: String,
    /// Where in it, if known.
    pub offset: Option<u64>,
    /// What is wrong.
    pub detail: String,
    /// What it is: `block`, `table` (all of it), `index` (it disagrees with the blocks), `filter`, `counts`, `order`,
    /// `manifest` or `log`.
    pub kind: String,
    /// The table's level.
    pub level: Option<u32>,
    /// The number of the block in its table.
    pub block: Option<u32>,
    /// Bytes that cannot be read because of it.
    pub bytes: Option<u64>,
    /// Entries that cannot be read because of it, if known.
    pub entries: Option<u64>,
    /// Keys from this one on are affected, printable: `\xNN` for bytes that are not; after the keyspace's number and
    /// `:` if it is not the default one. A bound: the key itself may be whole.
    pub from: Option<String>,
    /// Up to this one.
    pub to: Option<String>,
    /// Bytes affected as a share of all tables.
    pub share: Option<f64>,
}

/// How to verify.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
/// use std::sync::Arc;
///
/// let progress = Arc::new(|done: u64, of: u64| eprintln!("{done} of {of} bytes"));
/// let report = db.verify_with(&ringdb::VerifyOptions::default().with_progress(progress))?;
/// assert!(report.is_ok());
/// # Ok::<(), ringdb::Error>(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Is told how many bytes have been read, and of how many, about every MiB.
    pub progress: Option<Progress>,
}

impl VerifyOptions {
    /// Sets what is told how far it is.
    #[must_use]
    pub fn with_progress(mut self, progress: Progress) -> Self {
        self.progress = Some(progress);
        self
    }
}

impl std::fmt::Debug for VerifyOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifyOptions").field("progress", &self.progress.is_some()).finish()
    }
}
