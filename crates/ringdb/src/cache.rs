//! [`Cache`]: one memory budget for data blocks and everything else that a store keeps in memory.
//!
//! Data blocks live in the frames of one arena; each table has its own array of slots, so that a hit is one
//! load and no hashing. A block larger than a frame lives in [`LargeBlocks`]. All others, the [`Owner`]s, hold a
//! [`Charge`], and what they take is taken from the blocks: a charge that grows evicts before it returns, so that
//! memory is given back before it is taken. A floor of frames stays, so that reading goes on when the rest has
//! eaten the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use engineswap::mem::AlignedBuf;
use latchfree::epoch::Collector;
use latchfree::{FrameArena, FreeFrame, SlotArray};

use crate::sync::{Mutex, lock};

mod charge;
mod large;

use charge::OWNERS;
pub(crate) use charge::{Charge, Owner};
pub(crate) use large::LargeBlocks;

/// Frames that are never given up to the others.
const FLOOR_FRAMES: usize = 64;
/// Of the misses in a full cache, one in so many brings its block in. A power of two.
const ADMITTED: u64 = 8;
/// Blocks that a reactor or a multi-get has in hand at a time.
const IN_HAND: usize = 256;
/// Counters are kept apart for this many threads.
const STRIPES: usize = 16;

/// The budget and the memory of cached blocks.
pub(crate) struct Cache {
    arena: Arc<FrameArena>,
    frame_bytes: usize,
    capacity: u64,
    large: LargeBlocks,
    /// What each [`Owner`] takes.
    owned: [AtomicU64; OWNERS],
    /// Serialises recomputing the limit, so that the last one sees every change.
    limit: Mutex<()>,
    frame_limit: AtomicUsize,
    stripes: Box<[Stripe]>,
}

/// One thread's counters (or several threads', when there are more than stripes).
#[derive(Default)]
#[repr(align(64))]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
    filter_negatives: AtomicU64,
}

/// What the cache holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheStats {
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub index_bytes: u64,
    pub filter_bytes: u64,
    pub memtable_bytes: u64,
    pub background_bytes: u64,
    pub iterator_bytes: u64,
    pub hits: u64,
    pub misses: u64,
    pub filter_negatives: u64,
}

impl Cache {
    /// A cache whose blocks and all that is charged to it take `capacity` bytes together, with frames of
    /// `frame_bytes` (the size of a data block).
    pub fn new(capacity: u64, frame_bytes: usize) -> Arc<Cache> {
        let max_frames =
            (capacity / frame_bytes as u64).clamp(FLOOR_FRAMES as u64, u32::MAX as u64 / 2) as usize;
        Arc::new(Cache {
            arena: FrameArena::new(frame_bytes, max_frames),
            frame_bytes,
            capacity,
            large: LargeBlocks::new(),
            owned: Default::default(),
            limit: Mutex::new(()),
            frame_limit: AtomicUsize::new(max_frames),
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
        })
    }

    /// Bytes of a frame.
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// How many frames blocks may take at this moment.
    pub fn frame_limit(&self) -> usize {
        self.frame_limit.load(Relaxed)
    }

    /// Whose guards the blocks and views of the store are read under.
    pub fn collector(&self) -> &Collector {
        self.arena.collector()
    }

    /// Slots for a table of `blocks` blocks.
    pub fn slots(&self, blocks: usize) -> SlotArray {
        SlotArray::new(&self.arena, blocks)
    }

    /// A frame to fill, by evicting if it must; `None` when every frame is in somebody's hands.
    pub fn frame(&self) -> Option<FreeFrame> {
        self.arena.alloc_or_evict()
    }

    /// Whether a block that was missed and can be had again at little cost should be cached: as long as there is room
    /// always, then one in [`ADMITTED`], so that hot blocks get in after some misses and the others do not make work
    /// and push them out. (Random admission; what it needs to know of a block is a number to draw by.)
    pub fn admits(&self, block: u32) -> bool {
        !self.arena.is_full(IN_HAND) || self.draws(block)
    }

    /// The same of a block larger than a frame.
    pub fn admits_large(&self, block: u32, bytes: u64) -> bool {
        self.large.bytes() + bytes <= self.block_budget() / 2 || self.draws(block)
    }

    fn draws(&self, block: u32) -> bool {
        // Not each n-th miss: a loop over as many blocks would bring the same one each time. And by the block too,
        // since what is missed together is counted at once.
        let missed = self.stripe().misses.load(Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let draw = missed.wrapping_add(u64::from(block).wrapping_mul(0xD1B5_4A32_D192_ED03));
        draw >> (64 - ADMITTED.ilog2()) == 0
    }

    /// The cache of blocks larger than a frame.
    pub fn large(&self) -> &LargeBlocks {
        &self.large
    }

    /// Keeps a block larger than a frame, if it is not too large for the budget.
    pub fn keep_large(&self, file_id: u64, block: u32, bytes: &Arc<AlignedBuf>) {
        let budget = self.block_budget();
        if bytes.len() as u64 > budget / 4 {
            return;
        }
        self.large.insert(file_id, block, Arc::clone(bytes), budget / 2);
        self.recompute();
    }

    /// Counts a table's index and filter in.
    pub fn table_opened(&self, index_bytes: u64, filter_bytes: u64) {
        self.owned[Owner::Filters as usize].fetch_add(filter_bytes, Relaxed);
        self.add(Owner::Indexes, index_bytes);
    }

    /// Counts a table's index and filter out, and forgets its large blocks.
    pub fn table_closed(&self, file_id: u64, index_bytes: u64, filter_bytes: u64) {
        self.large.forget_file(file_id);
        self.owned[Owner::Filters as usize].fetch_sub(filter_bytes, Relaxed);
        self.subtract(Owner::Indexes, index_bytes);
    }

    /// Counts `bytes` of somebody's in, which are about to be allocated: blocks make room.
    pub fn charge(self: &Arc<Self>, owner: Owner, bytes: u64) -> Charge {
        Charge::new(self, owner, bytes)
    }

    fn add(&self, owner: Owner, bytes: u64) {
        self.owned[owner as usize].fetch_add(bytes, Relaxed);
        self.recompute();
    }

    fn subtract(&self, owner: Owner, bytes: u64) {
        self.owned[owner as usize].fetch_sub(bytes, Relaxed);
        self.recompute();
    }

    fn owned_by(&self, owner: Owner) -> u64 {
        self.owned[owner as usize].load(Relaxed)
    }

    /// How many bytes an iterator may read ahead outside of the cache: all of them together a sixteenth.
    pub fn read_ahead_bytes(&self) -> u64 {
        (self.capacity / 16).saturating_sub(self.owned_by(Owner::Iterators))
    }

    fn block_budget(&self) -> u64 {
        let others = self.owned.iter().map(|o| o.load(Relaxed)).fold(0, u64::saturating_add);
        self.capacity.saturating_sub(others).max((FLOOR_FRAMES * self.frame_bytes) as u64)
    }

    fn recompute(&self) {
        {
            let _one_at_a_time = lock(&self.limit);
            let budget = self.block_budget();
            // What the others take, they take from both kinds of blocks.
            self.large.shrink(budget / 2);
            let bytes = budget.saturating_sub(self.large.bytes());
            let frames = ((bytes / self.frame_bytes as u64) as usize).max(FLOOR_FRAMES);
            self.frame_limit.store(frames, Relaxed);
            self.arena.set_limit(frames);
        }
        // Without the lock: what is dropped with the blocks may be charged too.
        self.arena.shrink();
    }

    #[inline]
    fn stripe(&self) -> &Stripe {
        &self.stripes[stripe_of_thread() % STRIPES]
    }

    /// Counts block reads served from memory.
    #[inline]
    pub fn count_hits(&self, n: u64) {
        self.stripe().hits.fetch_add(n, Relaxed);
    }

    /// Counts block reads that went to the disk.
    #[inline]
    pub fn count_misses(&self, n: u64) {
        self.stripe().misses.fetch_add(n, Relaxed);
    }

    /// Counts block reads served from memory, and table probes that a filter answered.
    #[inline]
    pub fn count_probes(&self, hits: u64, filter_negatives: u64) {
        let stripe = self.stripe();
        if hits > 0 {
            stripe.hits.fetch_add(hits, Relaxed);
        }
        if filter_negatives > 0 {
            stripe.filter_negatives.fetch_add(filter_negatives, Relaxed);
        }
    }

    /// Sizes and counters.
    pub fn stats(&self) -> CacheStats {
        let sum = |f: fn(&Stripe) -> &AtomicU64| self.stripes.iter().map(|s| f(s).load(Relaxed)).sum();
        CacheStats {
            capacity_bytes: self.capacity,
            used_bytes: self.arena.in_use() as u64 * self.frame_bytes as u64 + self.large.bytes(),
            index_bytes: self.owned_by(Owner::Indexes),
            filter_bytes: self.owned_by(Owner::Filters),
            memtable_bytes: self.owned_by(Owner::Memtables),
            background_bytes: self.owned_by(Owner::Background),
            iterator_bytes: self.owned_by(Owner::Iterators),
            hits: sum(|s| &s.hits),
            misses: sum(|s| &s.misses),
            filter_negatives: sum(|s| &s.filter_negatives),
        }
    }
}

/// A small number of the calling thread's own.
#[inline]
fn stripe_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Relaxed);
    }
    MINE.with(|m| *m)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_moves_between_frames_and_the_rest() {
        let cache = Cache::new(4 << 20, 4096);
        assert_eq!(cache.frame_limit(), 1024);
        cache.table_opened(1 << 20, 0);
        assert_eq!(cache.frame_limit(), 768);
        let memtables = cache.charge(Owner::Memtables, 1 << 20);
        assert_eq!(cache.frame_limit(), 512);
        cache.keep_large(1, 2, &Arc::new(AlignedBuf::zeroed(256 << 10)));
        assert_eq!(cache.frame_limit(), 448);
        // The floor holds whatever the others take.
        memtables.set(64 << 20);
        assert_eq!(cache.frame_limit(), FLOOR_FRAMES);
        drop(memtables);
        cache.table_closed(1, 1 << 20, 0);
        assert_eq!(cache.frame_limit(), 1024);
        assert_eq!(cache.stats().index_bytes, 0);
    }

    #[test]
    fn a_full_cache_admits_few_and_none_for_ever_out() {
        let cache = Cache::new(4 << 20, 4096);
        let slots = cache.slots(1024);
        let full = cache.frame_limit() - 256;
        for i in 0..full {
            assert!(cache.admits(i as u32), "{i} of {full} frames");
            slots.publish(i, cache.frame().unwrap()).unwrap();
        }
        // A loop over as many blocks as one in so many are let in: each gets its turn.
        let mut admitted = [0; ADMITTED as usize];
        for i in 0..8000 {
            cache.count_misses(1);
            admitted[i % ADMITTED as usize] += u32::from(cache.admits(0));
        }
        let all: u32 = admitted.iter().sum();
        assert!((900..1100).contains(&all) && admitted.iter().all(|n| *n > 80), "{admitted:?}");
    }

    #[test]
    fn large_blocks_are_admitted_while_there_is_room_and_then_few() {
        let cache = Cache::new(4 << 20, 4096);
        let block = Arc::new(AlignedBuf::zeroed(8192));
        let mut kept = 0;
        while cache.large().bytes() + 8192 <= cache.block_budget() / 2 {
            assert!(cache.admits_large(kept, 8192), "after {kept}");
            cache.keep_large(1, kept, &block);
            kept += 1;
        }
        assert!(kept > 50, "{kept}");
        let admitted = (0..8000).filter(|_| {
            cache.count_misses(1);
            cache.admits_large(0, 8192)
        });
        let admitted = admitted.count();
        assert!((900..1100).contains(&admitted), "{admitted}");
    }

    #[test]
    fn blocks_that_are_missed_together_are_admitted_as_seldom() {
        let cache = Cache::new(16 << 20, 4096);
        let slots = cache.slots(20_000);
        for i in 0..4096 {
            slots.publish(i, cache.frame().unwrap()).unwrap();
        }
        // As many as a reactor or a multi-get has in hand.
        let mut numbers = 5000..;
        for together in [16, 64, 256] {
            let mut admitted = Vec::new();
            for _ in 0..4000 / together {
                cache.count_misses(together);
                let frames: Vec<_> = (0..together).map(|_| cache.frame().unwrap()).collect();
                let mut n = 0;
                for (frame, i) in frames.into_iter().zip(&mut numbers) {
                    if cache.admits(i as u32) {
                        slots.publish(i, frame).unwrap();
                        n += 1;
                    }
                }
                admitted.push(n);
            }
            let all: usize = admitted.iter().sum();
            assert!((300..700).contains(&all), "{all} of 4,000, {together} together");
            assert!(admitted.iter().all(|n| n * 3 < together as usize), "{together} together: {admitted:?}");
        }
    }

    #[test]
    fn large_blocks_make_room_too() {
        let cache = Cache::new(16 << 20, 4096);
        for i in 0..8 {
            cache.keep_large(1, i, &Arc::new(AlignedBuf::zeroed(1 << 20)));
        }
        assert_eq!((cache.large().bytes(), cache.frame_limit()), (8 << 20, 2048));
        let memtables = cache.charge(Owner::Memtables, 0);
        for mib in [8, 12, 15, 40] {
            memtables.set(mib << 20);
            let left = (16u64 << 20).saturating_sub(mib << 20).max((FLOOR_FRAMES * 4096) as u64);
            assert!(cache.large().bytes() <= left / 2, "{} of {left}", cache.large().bytes());
            assert!(cache.large().bytes() + cache.frame_limit() as u64 * 4096 <= left);
        }
    }

    #[test]
    fn blocks_make_room_before_a_charge_returns() {
        let cache = Cache::new(4 << 20, 4096);
        let slots = cache.slots(1024);
        for i in 0..1000 {
            slots.publish(i, cache.frame().unwrap()).unwrap();
        }
        let others: Vec<Charge> =
            (1..=3).map(|_| cache.charge(Owner::Background, 1 << 20)).inspect(|_| settle(&cache)).collect();
        assert_eq!(cache.frame_limit(), 256);
        assert_eq!(cache.stats().background_bytes, 3 << 20);
        drop(others);
        assert_eq!((cache.frame_limit(), cache.stats().background_bytes), (1024, 0));
    }

    /// The frames in use are no more than the limit, once no other test's guard holds up what was evicted.
    fn settle(cache: &Cache) {
        let most = cache.frame_limit();
        for _ in 0..10_000 {
            if cache.arena.in_use() <= most {
                return;
            }
            cache.collector().collect();
            std::thread::yield_now();
        }
        panic!("{} frames in use, {most} allowed", cache.arena.in_use());
    }

    #[test]
    fn counters_of_threads_add_up() {
        let cache = Cache::new(1 << 20, 4096);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| (0..1000).for_each(|_| cache.count_hits(2)));
            }
        });
        cache.count_misses(5);
        cache.count_probes(0, 7);
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.filter_negatives), (6000, 5, 7));
    }
}
