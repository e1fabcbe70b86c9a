//! A Bloom filter in front of the tree: an absent key costs one cache line.

use latchfree::{AtomicWords, prefetch_ref};
use std::sync::atomic::Ordering::Relaxed;

const WORDS: usize = 8;
const PROBES: u32 = 6;

/// Lines of 512 bits; a key has six bits in one line. One writer, any number of readers.
///
/// A key whose insertion happened before the question is never denied.
pub(super) struct Bloom {
    words: AtomicWords,
    lines: u64,
}

impl Bloom {
    /// For a memtable of about `bytes` bytes: a bit for 10 bytes, so 10 bits for a key with its value of 100 bytes.
    pub fn new(bytes: u64) -> Bloom {
        let lines = (bytes / 10 / 512).clamp(64, u32::MAX as u64);
        Bloom { words: AtomicWords::zeroed(lines as usize * WORDS), lines }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    #[inline(always)]
    fn line(&self, hash: u64) -> usize {
        (((hash >> 32) * self.lines) >> 32) as usize * WORDS
    }

    /// Word in the line and its mask, for each probe.
    #[inline(always)]
    fn probes(hash: u64) -> impl Iterator<Item = (usize, u64)> {
        let bits = (hash as u32 as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (0..PROBES).map(move |i| {
            let b = bits >> (64 - 9 * (i + 1));
            ((b >> 6 & 7) as usize, 1u64 << (b & 63))
        })
    }

    /// Adds a key. To be called by the one writer only: two at once could lose bits.
    #[inline]
    pub fn add(&self, hash: u64) {
        let at = self.line(hash);
        let line = &self.words[at..at + WORDS];
        for (w, mask) in Self::probes(hash) {
            let old = line[w].load(Relaxed);
            if old & mask == 0 {
                line[w].store(old | mask, Relaxed);
            }
        }
    }

    #[inline(always)]
    pub fn may_contain(&self, hash: u64) -> bool {
        let at = self.line(hash);
        let line = &self.words[at..at + WORDS];
        Self::probes(hash).fold(true, |all, (w, mask)| all & (line[w].load(Relaxed) & mask != 0))
    }

    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        if let Some(w) = self.words.get(self.line(hash)) {
            prefetch_ref(w);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_added_is_denied_and_little_else_is_not() {
        let n = if cfg!(miri) { 100 } else { 8000 };
        let bloom = Bloom::new(1 << 20);
        let hash = |i: u64| crate::key::hash(&i.to_le_bytes());
        assert!(!bloom.may_contain(hash(1)));
        (0..n).for_each(|i| bloom.add(hash(i)));
        assert!((0..n).all(|i| bloom.may_contain(hash(i))));
        let wrong = (n..13 * n).filter(|&i| bloom.may_contain(hash(i))).count();
        assert!((wrong as u64) < n / 4, "{wrong} of {}", 12 * n);
        bloom.prefetch(u64::MAX);
    }
}
