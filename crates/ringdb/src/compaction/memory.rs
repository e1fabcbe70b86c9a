//! [`Memory`]: what one job may take for its buffers, a share of the store's budget.

use crate::Options;
use crate::table::read_ahead::Ahead;

/// All jobs together take about this share of the budget for what they read, and as much for what they write.
const SHARE: u64 = 16;
/// What a job has at least, and what it needs at most, for either.
const LEAST: u64 = 1 << 20;
const MOST: u64 = 8 << 20;

/// The buffers of one job: a flush, or a part of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    each: u64,
    hashes: usize,
}

/// Hashes of keys take at most this share of the budget for each table being written.
const HASHES_SHARE: u64 = 32;

impl Memory {
    /// From the store's settings: every thread that compacts may be at work, and the one that flushes.
    pub fn of(options: &Options) -> Memory {
        let jobs = options.threads() as u64 + 1;
        let hashes = (options.cache_bytes / HASHES_SHARE).clamp(LEAST, MOST) / 8;
        Memory { each: (options.cache_bytes / SHARE / jobs).clamp(LEAST, MOST), hashes: hashes as usize }
    }

    /// How a merge of so many runs reads ahead in each.
    pub fn ahead(&self, runs: usize) -> Ahead {
        Ahead::of_bytes(self.each / runs.max(1) as u64)
    }

    /// Of how many keys of a table being written hashes may be held.
    pub fn hashes(&self) -> usize {
        self.hashes
    }

    /// Bytes of tables being written at once.
    pub fn write_bytes(&self) -> u64 {
        self.each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_share_a_part_of_the_budget() {
        let of = |mib: u64, threads| {
            Memory::of(&Options::default().with_cache_bytes(mib << 20).with_background_threads(threads))
        };
        assert_eq!(of(512, 3).each, 8 << 20);
        assert_eq!(of(256, 3).each, 4 << 20);
        assert_eq!((of(32, 2).each, of(1 << 20, 2).each), (LEAST, MOST));
        assert_eq!((of(1, 2).hashes(), of(256, 2).hashes()), (128 << 10, 1 << 20));
        for runs in [1, 2, 5, 30, 1000] {
            for mib in [32, 256, 4096] {
                let (memory, ahead) = (of(mib, 2), of(mib, 2).ahead(runs));
                let least = runs as u64 * Ahead::of_bytes(0).bytes();
                assert!(
                    ahead.bytes() * runs as u64 <= memory.each.max(least),
                    "{runs} runs, {mib} MiB: {ahead:?}"
                );
            }
        }
    }
}
