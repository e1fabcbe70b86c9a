//! What a store says of itself.

use serde::Serialize;

/// Counters and sizes of an open store. Counters start at 0 when it is opened.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// The I/O engine in use.
    pub io: String,
    /// Why that engine.
    pub io_reasons: Vec<String>,
    /// Levels with at least one table, and level 0.
    pub levels: Vec<LevelStats>,
    /// Entries in tables (versions and tombstones included).
    pub table_entries: u64,
    /// Bytes of tables.
    pub table_bytes: u64,
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
    /// Bytes of cached blocks.
    pub cache_used_bytes: u64,
    /// Bytes of resident indexes.
    pub index_bytes: u64,
    /// Bytes of resident filters.
    pub filter_bytes: u64,
    /// Block reads served by the cache.
    pub cache_hits: u64,
    /// Block reads that went to the disk.
    pub cache_misses: u64,
    /// Table probes that a filter answered with "absent".
    pub filter_negatives: u64,
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
    /// Bytes read by compactions.
    pub compaction_read_bytes: u64,
    /// Bytes written by compactions.
    pub compaction_written_bytes: u64,
    /// Microseconds that writers were delayed by backpressure.
    pub write_delay_us: u64,
    /// Writes that were delayed.
    pub write_delays: u64,
    /// Why writers are delayed at this moment; `None` when they are not.
    pub write_delay_reason: Option<String>,
    /// What the log has lost, found when the store was opened: damage, with `recover_damaged_log`; or where it
    /// breaks off although frames that were never synced follow, which a power cut leaves, or damage.
    pub recovered_damage: Option<String>,
    /// Why the store has stopped writing; `None` when it has not.
    pub stopped: Option<String>,
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
    /// What is wrong; empty if all is well.
    pub problems: Vec<VerifyProblem>,
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
}
