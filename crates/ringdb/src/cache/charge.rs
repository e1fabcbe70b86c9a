//! [`Charge`]: memory besides the cached blocks, counted in the budget for as long as the charge lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Cache;

/// Who takes memory besides the cached blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Indexes of open tables, and the slots of their blocks.
    Indexes,
    /// Filters of open tables.
    Filters,
    /// Memtables: the active one, those that wait for their flush, and those that iterators still read.
    Memtables,
    /// Buffers of flushes and compactions.
    Background,
    /// Blocks that iterators hold outside of the cache.
    Iterators,
}

pub(super) const OWNERS: usize = Owner::Iterators as usize + 1;

/// So many bytes of somebody's, counted until this is dropped.
pub(crate) struct Charge {
    cache: Arc<Cache>,
    owner: Owner,
    bytes: AtomicU64,
}

impl Charge {
    pub(super) fn new(cache: &Arc<Cache>, owner: Owner, bytes: u64) -> Charge {
        cache.add(owner, bytes);
        Charge { cache: Arc::clone(cache), owner, bytes: AtomicU64::new(bytes) }
    }

    /// Says how many bytes it is now. When they become more, call it before they are allocated: cached blocks make
    /// room. Not to be called with a guard of the epoch.
    pub fn set(&self, bytes: u64) {
        let old = self.bytes.swap(bytes, Relaxed);
        if bytes > old {
            self.cache.add(self.owner, bytes - old);
        } else if bytes < old {
            self.cache.subtract(self.owner, old - bytes);
        }
    }

    /// The same, for numbers that change all the time: a small change is left uncounted.
    pub fn set_roughly(&self, bytes: u64) {
        if self.bytes.load(Relaxed).abs_diff(bytes) >= ROUGHLY || bytes == 0 {
            self.set(bytes);
        }
    }
}

/// What [`Charge::set_roughly`] takes for a small change.
const ROUGHLY: u64 = 128 << 10;

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Charge({:?}, {} bytes)", self.owner, self.bytes.load(Relaxed))
    }
}
