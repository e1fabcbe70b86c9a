//! What a salvage reports.

use serde::Serialize;

/// What [`crate::salvage`] recovered and what it could not.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct SalvageReport {
    /// How much of the manifest could be read, in words.
    pub manifest: String,
    /// Whether all of the manifest was read. Otherwise every table file that was found is taken, in the order of
    /// the writes' sequence numbers, so that what had been deleted or overwritten may show again.
    pub manifest_whole: bool,
    /// Tables of the store: as the manifest has them, or as they were found.
    pub tables: u64,
    /// Tables that are not whole, or not there.
    pub tables_damaged: u64,
    /// Blocks that were read.
    pub blocks: u64,
    /// Entries (versions and tombstones) that were read from tables and the log.
    pub entries: u64,
    /// Bytes of tables and log segments that were read.
    pub bytes: u64,
    /// Frames of the log that were taken.
    pub log_frames: u64,
    /// Whole frames that follow a gap in the log and were not taken ([`crate::SalvageOptions::frames_after_gaps`]).
    pub log_frames_after_gaps: u64,
    /// Keys in the new store.
    pub keys: u64,
    /// Bytes of its tables.
    pub written_bytes: u64,
    /// The names of its keyspaces, the default one left out.
    pub keyspaces: Vec<String>,
    /// What was lost; empty if all was recovered.
    pub lost: Vec<SalvageLoss>,
    /// Losses that are not listed because there are too many.
    pub lost_unlisted: u64,
    /// Bytes of blocks and files that were lost, as far as known.
    pub lost_bytes: u64,
    /// Entries that were lost, as far as known.
    pub lost_entries: u64,
    /// What else is worth knowing: misnamed files, parts that were not needed.
    pub notes: Vec<String>,
}

impl SalvageReport {
    /// Whether all was recovered.
    pub fn is_complete(&self) -> bool {
        self.lost.is_empty() && self.lost_unlisted == 0
    }
}

/// Something that could not be recovered.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct SalvageLoss {
    /// The file.
    pub file: String,
    /// What is wrong.
    pub detail: String,
    /// The table's level, if known.
    pub level: Option<u32>,
    /// The first block of those that were lost, and how many.
    pub first_block: Option<u32>,
    /// Blocks; `None` if that is not known.
    pub blocks: Option<u64>,
    /// Where in the file.
    pub offset: Option<u64>,
    /// Bytes on disk.
    pub bytes: u64,
    /// Entries, versions and tombstones included, if known.
    pub entries: Option<u64>,
    /// Keys were lost from this one on (the last before the gap that was recovered, or the table's first), printable:
    /// `\xNN` for bytes that are not; after the keyspace's number and `:` if it is not the default one.
    pub from: Option<String>,
    /// Up to this one.
    pub to: Option<String>,
    /// Whether older data lies in that range elsewhere, so that a key in it may be out of date, or be there although
    /// it had been deleted.
    pub may_be_out_of_date: bool,
}
