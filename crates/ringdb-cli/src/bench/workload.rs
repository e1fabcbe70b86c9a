//! The names of the workloads and what each does to the store.

use clap::ValueEnum;

/// A workload, by db_bench's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Write all keys in order
    Fillseq,
    /// Write keys at random
    Fillrandom,
    /// Write keys at random over those that are there
    Overwrite,
    /// Write keys at random, each on the device before the next
    Fillsync,
    /// Get keys at random
    Readrandom,
    /// Get keys that are not there
    Readmissing,
    /// Get keys at random, a batch in one call
    Multireadrandom,
    /// Seek to keys at random and read --seek-nexts further rows
    Seekrandom,
    /// Read all rows in order
    Readseq,
    /// Read all rows in reverse order
    Readreverse,
    /// Get keys at random while one more thread writes
    Readwhilewriting,
    /// Delete keys at random
    Deleterandom,
    /// Gets, puts and scans as in a social graph
    Mixgraph,
    /// Half reads, half updates
    YcsbA,
    /// 95 % reads, 5 % updates
    YcsbB,
    /// Reads
    YcsbC,
    /// 95 % reads of the newest, 5 % inserts
    YcsbD,
    /// 95 % scans of up to 100 rows, 5 % inserts
    YcsbE,
    /// Half reads, half read-modify-writes
    YcsbF,
    /// Flush the memtables
    Flush,
    /// Compact the whole store
    Compact,
    /// Wait until background work is done
    Waitforcompaction,
}

impl Workload {
    /// Its name.
    pub fn name(self) -> String {
        self.to_possible_value().map(|v| v.get_name().to_string()).unwrap_or_default()
    }

    /// Whether it starts with a fresh store.
    pub fn is_fresh(self) -> bool {
        matches!(self, Workload::Fillseq | Workload::Fillrandom | Workload::Fillsync)
    }

    /// Whether it writes (in a way that a read-only store refuses).
    pub fn writes(self) -> bool {
        use Workload::*;
        self.is_fresh()
            || matches!(self, Overwrite | Readwhilewriting | Deleterandom | Mixgraph | YcsbA | YcsbB | YcsbD)
            || matches!(self, YcsbE | YcsbF | Flush | Compact)
    }
}
