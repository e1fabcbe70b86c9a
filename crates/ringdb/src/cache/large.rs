//! [`LargeBlocks`]: cached blocks that do not fit a frame, by file and block number, second chance (CLOCK).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use engineswap::mem::AlignedBuf;

const SHARDS: usize = 16;

type Key = (u64, u32);

/// Blocks larger than a frame. Each was checked before it came here.
pub(crate) struct LargeBlocks {
    shards: [Mutex<Shard>; SHARDS],
    bytes: AtomicU64,
}

#[derive(Default)]
struct Shard {
    blocks: HashMap<Key, Held>,
    /// Each key of `blocks` once, in the order of the clock's hand.
    hand: VecDeque<Key>,
}

struct Held {
    bytes: Arc<AlignedBuf>,
    referenced: bool,
}

impl LargeBlocks {
    pub fn new() -> LargeBlocks {
        LargeBlocks { shards: Default::default(), bytes: AtomicU64::new(0) }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    fn shard_of(key: Key) -> usize {
        let h = (key.0.rotate_left(32) ^ key.1 as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (h >> 60) as usize % SHARDS
    }

    fn lock(&self, i: usize) -> MutexGuard<'_, Shard> {
        // A panic elsewhere cannot leave a shard half changed in a way that matters: it is only a cache.
        self.shards[i % SHARDS].lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The block if it is here.
    pub fn get(&self, file_id: u64, block: u32) -> Option<Arc<AlignedBuf>> {
        let key = (file_id, block);
        let mut shard = self.lock(Self::shard_of(key));
        let held = shard.blocks.get_mut(&key)?;
        held.referenced = true;
        Some(Arc::clone(&held.bytes))
    }

    /// Keeps a block, then evicts until all together take at most `limit` bytes.
    pub fn insert(&self, file_id: u64, block: u32, bytes: Arc<AlignedBuf>, limit: u64) {
        let key = (file_id, block);
        let home = Self::shard_of(key);
        {
            let mut shard = self.lock(home);
            let len = bytes.len() as u64;
            if shard.blocks.contains_key(&key) {
                return;
            }
            shard.blocks.insert(key, Held { bytes, referenced: false });
            shard.hand.push_back(key);
            self.bytes.fetch_add(len, Relaxed);
        }
        // The newcomer's own shard last: it would be the first to go from a shard of one.
        self.shrink_from(home + 1, limit);
    }

    /// Evicts until all together take at most `limit` bytes.
    pub fn shrink(&self, limit: u64) {
        self.shrink_from(0, limit);
    }

    fn shrink_from(&self, shard: usize, limit: u64) {
        // The second round finds what the first one only took the mark from.
        for i in shard..shard + 2 * SHARDS {
            if self.bytes() <= limit {
                break;
            }
            let mut shard = self.lock(i);
            while self.bytes() > limit && shard.evict(&self.bytes) {}
        }
    }

    /// Drops the blocks of a file.
    pub fn forget_file(&self, file_id: u64) {
        if self.bytes() == 0 {
            return;
        }
        for i in 0..SHARDS {
            let mut shard = self.lock(i);
            let shard = &mut *shard;
            shard.blocks.retain(|key, held| {
                let keep = key.0 != file_id;
                if !keep {
                    self.bytes.fetch_sub(held.bytes.len() as u64, Relaxed);
                }
                keep
            });
            shard.hand.retain(|key| key.0 != file_id);
        }
    }
}

impl Shard {
    /// Evicts the first block without a mark and takes the marks before it; false if all had one.
    fn evict(&mut self, total: &AtomicU64) -> bool {
        for _ in 0..self.hand.len() {
            let Some(key) = self.hand.pop_front() else { break };
            let Some(held) = self.blocks.get_mut(&key) else { continue };
            if std::mem::take(&mut held.referenced) {
                self.hand.push_back(key);
                continue;
            }
            if let Some(held) = self.blocks.remove(&key) {
                total.fetch_sub(held.bytes.len() as u64, Relaxed);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(n: usize) -> Arc<AlignedBuf> {
        Arc::new(AlignedBuf::zeroed(n))
    }

    #[test]
    fn stays_within_the_limit_and_keeps_what_is_used() {
        let large = LargeBlocks::new();
        large.insert(1, 0, block(8192), 10 * 8192);
        for i in 1..200 {
            assert!(large.get(1, 0).is_some(), "referenced all the time, gone before {i}");
            large.insert(1, i, block(8192), 10 * 8192);
            assert!(large.bytes() <= 10 * 8192);
        }
        large.insert(2, 7, block(4096), 10 * 8192);
        large.forget_file(1);
        assert_eq!(large.bytes(), 4096);
        assert!(large.get(1, 0).is_none() && large.get(2, 7).is_some());
        // The same block twice counts once.
        large.insert(2, 7, block(4096), 10 * 8192);
        assert_eq!(large.bytes(), 4096);
    }
}
