//! [`CheckedBlocks`]: which blocks of a table have had their structure checked since it was opened.
//!
//! A block that falls out of the cache comes back from the page cache, often many times a second. Its checksum is taken
//! each time; its structure, which costs twice as much, only if the checksum is not the one that passed before.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The checksum of each block whose structure was found right; 0 for none yet.
pub(super) struct CheckedBlocks(Box<[AtomicU32]>);

impl CheckedBlocks {
    /// For a table of `blocks` blocks, none checked.
    pub fn new(blocks: u32) -> CheckedBlocks {
        CheckedBlocks((0..blocks).map(|_| AtomicU32::new(0)).collect())
    }

    /// Bytes of memory for a table of `blocks` blocks.
    pub fn bytes(blocks: u32) -> u64 {
        u64::from(blocks) * 4
    }

    /// Whether a block with this checksum, which was compared with its bytes, has passed.
    #[inline]
    pub fn has(&self, block: u32, checksum: u32) -> bool {
        checksum != 0 && self.0[block as usize].load(Relaxed) == checksum
    }

    /// A block with this checksum has passed.
    #[inline]
    pub fn add(&self, block: u32, checksum: u32) {
        self.0[block as usize].store(checksum, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_passed_with_its_own_checksum_only() {
        let checked = CheckedBlocks::new(3);
        assert!(!checked.has(1, 7) && !checked.has(1, 0));
        checked.add(1, 7);
        assert!(checked.has(1, 7) && !checked.has(1, 8) && !checked.has(0, 7) && !checked.has(2, 7));
        // What cannot be told from "none yet" is checked each time.
        checked.add(2, 0);
        assert!(!checked.has(2, 0));
        checked.add(1, 8);
        assert!(checked.has(1, 8) && !checked.has(1, 7));
        assert_eq!(CheckedBlocks::bytes(3), 12);
    }
}
