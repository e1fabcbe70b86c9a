//! What an I/O operation is for: the tags by which engineswap keeps the store's statistics.

use engineswap::Purpose;

/// Frames and headers of the write-ahead log, and its syncs.
pub(crate) const LOG: Purpose = Purpose(1);
/// Zero-filling and recycling log segments ahead of need.
pub(crate) const LOG_PREPARE: Purpose = Purpose(2);
/// The manifest and CURRENT.
pub(crate) const MANIFEST: Purpose = Purpose(3);
/// Tables written from memtables.
pub(crate) const FLUSH: Purpose = Purpose(4);
/// Tables read by compactions.
pub(crate) const COMPACTION_READ: Purpose = Purpose(5);
/// Tables written by compactions.
pub(crate) const COMPACTION_WRITE: Purpose = Purpose(6);
/// Data blocks read for a caller (get, multi_get).
pub(crate) const USER_READ: Purpose = Purpose(7);
/// Data blocks read for iterators, read-ahead included.
pub(crate) const SCAN_READ: Purpose = Purpose(8);
/// Index, filter, properties and footer read when a table is opened.
pub(crate) const TABLE_OPEN: Purpose = Purpose(9);
/// Log and manifest read when the store is opened.
pub(crate) const RECOVERY: Purpose = Purpose(10);
/// Everything read by `verify`.
pub(crate) const VERIFY: Purpose = Purpose(11);
/// Files written by `checkpoint`.
pub(crate) const CHECKPOINT: Purpose = Purpose(12);
/// Files read and written by backups, their restoring and their verification.
pub(crate) const BACKUP: Purpose = Purpose(13);

/// The purposes of the store's I/O, with the names under which to show what [`engineswap`] counts by purpose.
pub const NAMES: [(Purpose, &str); 13] = [
    (LOG, "log"),
    (LOG_PREPARE, "log-prepare"),
    (MANIFEST, "manifest"),
    (FLUSH, "flush"),
    (COMPACTION_READ, "compaction-read"),
    (COMPACTION_WRITE, "compaction-write"),
    (USER_READ, "user-read"),
    (SCAN_READ, "scan-read"),
    (TABLE_OPEN, "table-open"),
    (RECOVERY, "recovery"),
    (VERIFY, "verify"),
    (CHECKPOINT, "checkpoint"),
    (BACKUP, "backup"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_are_distinct_and_counted() {
        let tags: std::collections::BTreeSet<u8> = NAMES.iter().map(|(p, _)| p.0).collect();
        assert_eq!(tags.len(), NAMES.len());
        assert!(tags.iter().all(|&t| (t as usize) < Purpose::COUNT));
    }
}
