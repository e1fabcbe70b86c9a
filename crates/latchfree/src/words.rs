//! [`AtomicWords`]: zeroed atomic words on huge pages.

use engineswap::mem::Pages;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;

/// A fixed array of atomic words, zero at first, 64-byte aligned, on huge pages where the kernel gives them.
/// Memory is taken from the kernel as it is first touched.
pub struct AtomicWords {
    pages: Pages,
    len: usize,
}

impl AtomicWords {
    /// `len` words of value zero.
    pub fn zeroed(len: usize) -> AtomicWords {
        let Some(bytes) = len.checked_mul(8) else { panic!("{len} words") };
        AtomicWords { pages: Pages::reserve(bytes), len }
    }
}

impl Deref for AtomicWords {
    type Target = [AtomicU64];
    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `pages` holds at least `len` words, initialised, page-aligned; every bit pattern is an
        // AtomicU64; all access to them, ever, is through this slice of atomics.
        unsafe { std::slice::from_raw_parts(self.pages.base().as_ptr().cast(), self.len) }
    }
}

impl std::fmt::Debug for AtomicWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AtomicWords({})", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn words_start_at_zero_and_keep_what_is_stored() {
        for n in [0, 1, 511, 512, 300_000] {
            let n = if cfg!(miri) { n.min(600) } else { n };
            let w = AtomicWords::zeroed(n);
            assert_eq!(w.len(), n);
            assert!(w.iter().all(|x| x.load(Ordering::Relaxed) == 0));
            if let Some(last) = w.last() {
                last.store(7, Ordering::Relaxed);
                assert_eq!(w[n - 1].load(Ordering::Relaxed), 7);
            }
        }
    }
}
