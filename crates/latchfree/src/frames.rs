//! [`FrameArena`]: equal frames of memory for a cache, and the two ways to hold one outside of a slot.
//!
//! A frame is in one of three states, told by its count of holders:
//! - free: count 0, in a free list of the arena;
//! - exclusive: count 1, held by one [`FreeFrame`], which may write;
//! - shared: count of [`PinnedFrame`]s, plus one for the slot that publishes it. Nobody writes.
//!
//! It goes from exclusive to shared once, and from shared to free when the count falls to 0. A slot's own count is
//! let go only after the epoch's grace, so a reader under a guard that has found a frame in a slot reads a shared
//! frame, and may count itself in. Frame numbers never leave this module's siblings.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, Weak};

use engineswap::mem::{Arena, ArenaBuf, HUGE, Pages, Region};
use engineswap::{Buf, Piece};

use crate::clock::Clock;
use crate::epoch::Collector;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*, fence};
use crate::sync::{Mutex, MutexGuard};

/// Most frames of an arena: numbers fit a slot with its marks.
const MAX_FRAMES: usize = (1 << 31) - 2;
/// Frames kept free by [`FrameArena::alloc_or_evict`], so that the grace of evicted ones passes unnoticed.
const RESERVE: usize = 64;
/// Frames freed under one hold of the lists' lock.
const FREED_TOGETHER: usize = 128;
/// Above so many huge pages their use is given up for all of an arena at once: each mapping that differs from its
/// neighbours counts against a limit of the process (65,530 by default).
const MOST_PARTS: usize = 4096;

/// Equal frames of memory, reserved once, backed by the kernel as they are first used, limited by a number that can
/// change.
pub struct FrameArena {
    pages: Pages,
    frame_bytes: usize,
    counts: Box<[AtomicU32]>,
    lists: Mutex<Lists>,
    /// Frames that are not free. Written under `lists`.
    in_use: AtomicUsize,
    limit: AtomicUsize,
    /// Frames unlinked and in their grace: they are in use, but evicted already.
    retiring: AtomicUsize,
    /// Somebody is in [`FrameArena::shrink`], and how often that was asked for.
    shrinking: AtomicBool,
    shrinks: AtomicUsize,
    /// [`Region`]s handed out. While there are any, no frame's memory goes back to the kernel: an engine may have
    /// it registered, and would go on using pages that are no longer mapped here. Written under `lists`.
    fixed: AtomicUsize,
    pub(super) clock: Mutex<Clock>,
    collector: Collector,
}

#[derive(Default)]
struct Lists {
    /// Free, backed by memory.
    warm: Vec<u32>,
    /// Free, given back to the kernel.
    cold: Vec<u32>,
    /// Frames from here on have never been used.
    fresh: u32,
    /// Huge pages of which something was given back; empty before the first one.
    parts: Vec<bool>,
}

impl FrameArena {
    /// Reserves `max_frames` frames of `frame_bytes` bytes, which must be a multiple of 512. The limit is `max_frames`.
    pub fn new(frame_bytes: usize, max_frames: usize) -> Arc<FrameArena> {
        FrameArena::with_collector(frame_bytes, max_frames, &Collector::new())
    }

    /// The same, for slots that are read under guards of `collector`.
    pub fn with_collector(frame_bytes: usize, max_frames: usize, collector: &Collector) -> Arc<FrameArena> {
        assert!(frame_bytes > 0 && frame_bytes.is_multiple_of(512), "frames of {frame_bytes} bytes");
        let max_frames = max_frames.min(MAX_FRAMES);
        let Some(bytes) = frame_bytes.checked_mul(max_frames) else {
            panic!("{max_frames} frames of {frame_bytes} bytes")
        };
        Arc::new(FrameArena {
            pages: Pages::reserve(bytes),
            frame_bytes,
            counts: (0..max_frames).map(|_| AtomicU32::new(0)).collect(),
            lists: Mutex::default(),
            in_use: AtomicUsize::new(0),
            limit: AtomicUsize::new(max_frames),
            retiring: AtomicUsize::new(0),
            shrinking: AtomicBool::new(false),
            shrinks: AtomicUsize::new(0),
            fixed: AtomicUsize::new(0),
            clock: Mutex::default(),
            collector: collector.clone(),
        })
    }

    /// The collector whose guards slots are read under.
    #[inline]
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    /// Bytes of a frame.
    #[inline]
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Frames held by somebody: free frames in hand, published and pinned ones, and evicted ones in their grace.
    pub fn in_use(&self) -> usize {
        self.in_use.load(Relaxed)
    }

    /// How many frames may be in use.
    pub fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// Sets how many frames may be in use, at most the reservation. If more are, nothing is allocated until enough have
    /// been evicted (see [`FrameArena::evict`] and [`FrameArena::shrink`]); memory above the limit goes back to the
    /// kernel.
    pub fn set_limit(&self, frames: usize) {
        let mut lists = self.lists();
        self.limit.store(frames.min(self.counts.len()), Relaxed);
        let over = (lists.warm.len() + self.in_use()).saturating_sub(self.limit());
        let at = lists.warm.len() - over.min(lists.warm.len());
        let mut gone = lists.warm.split_off(at);
        self.discard(&mut lists, &mut gone);
        lists.cold.append(&mut gone);
    }

    /// Evicts until no more frames are in use than the limit allows, as far as they are not pinned or in hand; their
    /// memory goes back to the kernel after the grace. To be called without a guard, and without a lock that a
    /// destructor of something retired might take.
    pub fn shrink(self: &Arc<Self>) {
        self.shrinks.fetch_add(1, SeqCst);
        // One at a time, or both would evict the same surplus. Whoever is at it looks again before it leaves: also
        // one further up this thread's stack.
        while !self.shrinking.swap(true, SeqCst) {
            let seen = self.shrinks.load(SeqCst);
            loop {
                let leaving = self.retiring.load(Relaxed);
                let over = self.in_use().saturating_sub(leaving).saturating_sub(self.limit());
                if over == 0 || self.evict(over.min(4096)) == 0 {
                    break;
                }
            }
            self.collector.collect();
            self.shrinking.store(false, SeqCst);
            if self.shrinks.load(SeqCst) == seen {
                return;
            }
        }
    }

    /// A free frame, if fewer than the limit are in use. Its contents are arbitrary.
    pub fn alloc(self: &Arc<Self>) -> Option<FreeFrame> {
        let mut lists = self.lists();
        if self.in_use() >= self.limit() {
            return None;
        }
        let id = match lists.warm.pop().or_else(|| lists.cold.pop()) {
            Some(id) => id,
            None => {
                let id = lists.fresh;
                lists.fresh += 1;
                id
            }
        };
        self.in_use.store(self.in_use() + 1, Relaxed);
        drop(lists);
        // Acquire: pairs with the release of the frame's last holder.
        let was = self.counts[id as usize].swap(1, Acquire);
        debug_assert_eq!(was, 0);
        Some(FreeFrame { arena: Arc::clone(self), id })
    }

    /// A free frame, evicting published ones if need be. `None` if all are pinned or held, or if evicted ones are
    /// still held up by other threads' guards. To be called without a guard: it would hold up the evicted frames.
    pub fn alloc_or_evict(self: &Arc<Self>) -> Option<FreeFrame> {
        for _ in 0..8 {
            let (limit, in_use) = (self.limit(), self.in_use());
            let reserve = RESERVE.min(limit / 8);
            let mut evicted = 0;
            if in_use + reserve >= limit {
                // Up to the double reserve, so that there is not a sweep for each frame.
                evicted = self.evict((in_use + 2 * reserve.max(1) - limit).min(4096));
            }
            if let Some(frame) = self.alloc() {
                return Some(frame);
            }
            self.collector.collect();
            if evicted == 0 {
                // All are pinned or in hand: to wait would be to wait for their holders.
                break;
            }
            std::thread::yield_now();
        }
        self.alloc()
    }

    /// Whether a frame that is published now will soon cost another its place, where up to `in_hand` frames at a time
    /// are allocated and freed again: what they leave free is no room.
    pub fn is_full(&self, in_hand: usize) -> bool {
        let limit = self.limit();
        self.in_use() + 2 * RESERVE.min(limit / 8) + in_hand.min(limit / 8) >= limit
    }

    /// Unlinks up to `frames` published frames that have not been used lately. They are free after the grace, if they
    /// are not pinned. Returns how many.
    pub fn evict(self: &Arc<Self>, frames: usize) -> usize {
        let ids = self.clock.lock().unwrap_or_else(PoisonError::into_inner).sweep(frames);
        let n = ids.len();
        if n > 0 {
            self.retire(ids);
        }
        n
    }

    /// Lets the counts of slots go that no longer publish these frames (SeqCst), after the grace.
    pub(super) fn retire(self: &Arc<Self>, ids: Vec<u32>) {
        self.retiring.fetch_add(ids.len(), Relaxed);
        self.collector.retire_frames(Box::new(Unlinked { arena: Arc::downgrade(self), ids }));
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its memory, to be registered ([`engineswap::Io::register_buffers`]), which backs all of the reservation at once.
    /// While it lives, frames above the limit are not given back to the kernel.
    pub fn region(self: &Arc<Self>) -> Region {
        let lists = self.lists();
        self.fixed.store(self.fixed.load(Relaxed) + 1, Relaxed);
        drop(lists);
        // SAFETY: `Fixed` holds the arena, which owns the pages, and while it lives none of them is given back.
        unsafe {
            Region::new(self.pages.base(), self.pages.len(), Arc::new(Fixed { arena: Arc::clone(self) }))
        }
    }

    /// Gives the memory of frames back to the kernel, in as few calls as their numbers allow. Callers own the frames:
    /// they are in no list, and their counts are 0.
    fn discard(&self, lists: &mut Lists, ids: &mut [u32]) {
        if self.fixed.load(Relaxed) > 0 {
            return;
        }
        ids.sort_unstable();
        for run in ids.chunk_by(|a, b| a + 1 == *b) {
            let (offset, len) = (run[0] as usize * self.frame_bytes, run.len() * self.frame_bytes);
            self.forbid_huge(lists, offset, len);
            // SAFETY: the caller owns these frames, which lie side by side, so nobody has a reference into them.
            unsafe { self.pages.discard(offset, len) }
        }
    }

    /// What is given back frame by frame would come back as a whole, were it made a huge page again.
    fn forbid_huge(&self, lists: &mut Lists, offset: usize, len: usize) {
        let parts = self.pages.len().div_ceil(HUGE);
        if lists.parts.is_empty() {
            lists.parts.resize(parts, parts > MOST_PARTS);
            if parts > MOST_PARTS {
                self.pages.forbid_huge(0, self.pages.len());
            }
        }
        for part in offset / HUGE..=(offset + len - 1) / HUGE {
            if !std::mem::replace(&mut lists.parts[part], true) {
                self.pages.forbid_huge(part * HUGE, HUGE);
            }
        }
    }

    /// Address of a frame.
    #[inline(always)]
    pub(super) fn address(&self, id: u32) -> NonNull<u8> {
        debug_assert!((id as usize) < self.counts.len());
        // SAFETY: numbers of frames are below `counts.len()`, so the address lies in the reservation.
        unsafe { self.pages.base().add(id as usize * self.frame_bytes) }
    }

    /// The number of the frame at an address.
    fn number(&self, ptr: NonNull<u8>) -> u32 {
        ((ptr.as_ptr() as usize - self.pages.base().as_ptr() as usize) / self.frame_bytes) as u32
    }

    /// Hints that a frame's count is about to be changed.
    #[inline(always)]
    pub(super) fn prefetch_count(&self, id: u32) {
        if let Some(count) = self.counts.get(id as usize) {
            crate::prefetch_ref(count);
        }
    }

    /// Counts one more holder of a shared frame, which its caller knows to have one.
    fn hold(&self, id: u32) {
        let was = self.counts[id as usize].fetch_add(1, Relaxed);
        debug_assert_ne!(was, 0);
        if was > u32::MAX / 2 {
            // Only by forgetting two billion pins: better to stop than to wrap around and free a frame in use.
            std::process::abort();
        }
    }

    /// One holder less; the last one frees the frame.
    pub(super) fn let_go(&self, id: u32) {
        if self.counts[id as usize].fetch_sub(1, Release) == 1 {
            fence(Acquire);
            self.free(&[id]);
        }
    }

    /// Takes back frames whose counts have fallen to 0.
    fn free(&self, ids: &[u32]) {
        for ids in ids.chunks(FREED_TOGETHER) {
            let mut lists = self.lists();
            let in_use = self.in_use() - ids.len();
            self.in_use.store(in_use, Relaxed);
            let room = self.limit().saturating_sub(in_use + lists.warm.len());
            let (warm, cold) = ids.split_at(room.min(ids.len()));
            lists.warm.extend_from_slice(warm);
            if !cold.is_empty() {
                let mut cold = cold.to_vec();
                self.discard(&mut lists, &mut cold);
                lists.cold.append(&mut cold);
            }
        }
    }
}

impl std::fmt::Debug for FrameArena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FrameArena({} of {} frames of {} bytes)", self.in_use(), self.limit(), self.frame_bytes)
    }
}

/// Frames unlinked from their slots, whose counts are let go after the grace. Not if the arena is gone by then: whoever
/// reads its frames holds it. A counted reference would be held by what it holds, the collector.
struct Unlinked {
    arena: Weak<FrameArena>,
    ids: Vec<u32>,
}

impl Drop for Unlinked {
    fn drop(&mut self) {
        let Some(arena) = self.arena.upgrade() else { return };
        let unlinked = self.ids.len();
        self.ids.retain(|&id| arena.counts[id as usize].fetch_sub(1, Release) == 1);
        fence(Acquire);
        arena.free(&self.ids);
        arena.retiring.fetch_sub(unlinked, Relaxed);
    }
}

/// Keeps the frames' memory where it is.
struct Fixed {
    arena: Arc<FrameArena>,
}

impl Drop for Fixed {
    fn drop(&mut self) {
        let _lists = self.arena.lists();
        self.arena.fixed.store(self.arena.fixed.load(Relaxed) - 1, Relaxed);
    }
}

/// A frame that nobody else sees, to be filled. Its address does not change; it goes back to its arena when dropped.
pub struct FreeFrame {
    arena: Arc<FrameArena>,
    id: u32,
}

impl FreeFrame {
    /// Takes the frame apart without letting it go: its count of 1 is the caller's.
    pub(super) fn into_parts(self) -> (Arc<FrameArena>, u32) {
        let f = std::mem::ManuallyDrop::new(self);
        // SAFETY: `f` is not dropped and not used again, so the Arc moves out exactly once.
        (unsafe { std::ptr::read(&f.arena) }, f.id)
    }

    pub(super) fn belongs_to(&self, arena: &Arc<FrameArena>) -> bool {
        Arc::ptr_eq(&self.arena, arena)
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Another holder; from here on the frame must not be written through `self`.
    pub(super) fn share(&self) -> PinnedFrame {
        self.arena.hold(self.id);
        PinnedFrame { arena: Arc::clone(&self.arena), id: self.id }
    }
}

impl Deref for FreeFrame {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame is initialised memory of this length that the arena gave to `self` alone.
        unsafe { std::slice::from_raw_parts(self.arena.address(self.id).as_ptr(), self.arena.frame_bytes) }
    }
}

impl DerefMut for FreeFrame {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, borrowed mutably.
        unsafe {
            std::slice::from_raw_parts_mut(self.arena.address(self.id).as_ptr(), self.arena.frame_bytes)
        }
    }
}

impl Drop for FreeFrame {
    fn drop(&mut self) {
        self.arena.let_go(self.id);
    }
}

impl std::fmt::Debug for FreeFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FreeFrame({} bytes)", self.arena.frame_bytes)
    }
}

impl Arena for FrameArena {
    unsafe fn take_back(&self, ptr: NonNull<u8>) {
        self.let_go(self.number(ptr));
    }
}

/// So a frame travels in operations; it comes back by `FreeFrame::try_from`.
impl From<FreeFrame> for ArenaBuf {
    fn from(frame: FreeFrame) -> ArenaBuf {
        let (arena, id) = frame.into_parts();
        let (ptr, len) = (arena.address(id), arena.frame_bytes);
        // SAFETY: the frame is initialised memory of this length, and its count of 1, which makes it the caller's
        // alone, goes with it.
        unsafe { ArenaBuf::new(ptr, len, arena) }
    }
}

impl From<FreeFrame> for Buf {
    fn from(frame: FreeFrame) -> Buf {
        Buf::Arena(frame.into())
    }
}

impl From<FreeFrame> for Piece {
    fn from(frame: FreeFrame) -> Piece {
        Piece::Arena(frame.into())
    }
}

/// Gives back what is not of a [`FrameArena`].
impl TryFrom<ArenaBuf> for FreeFrame {
    type Error = ArenaBuf;
    fn try_from(buf: ArenaBuf) -> Result<FreeFrame, ArenaBuf> {
        if !(buf.arena() as &dyn Any).is::<FrameArena>() {
            return Err(buf);
        }
        let (ptr, _, arena) = buf.into_parts();
        let arena: Arc<dyn Any + Send + Sync> = arena;
        let Ok(arena) = arena.downcast::<FrameArena>() else { unreachable!("it was one") };
        // The only buffers of an arena of frames are made of a `FreeFrame`, whose count of 1 is this one's again.
        let id = arena.number(ptr);
        Ok(FreeFrame { arena, id })
    }
}

/// A frame that stays as it is while this lives, whether or not its slot still publishes it.
pub struct PinnedFrame {
    arena: Arc<FrameArena>,
    id: u32,
}

impl PinnedFrame {
    /// Counts a holder of the frame that a slot of `arena` was seen to publish under a live guard.
    pub(super) fn of_slot(arena: &Arc<FrameArena>, id: u32) -> PinnedFrame {
        arena.hold(id);
        PinnedFrame { arena: Arc::clone(arena), id }
    }
}

impl Clone for PinnedFrame {
    fn clone(&self) -> PinnedFrame {
        self.arena.hold(self.id);
        PinnedFrame { arena: Arc::clone(&self.arena), id: self.id }
    }
}

impl Deref for PinnedFrame {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame is initialised memory of this length; `self` is counted, so it stays shared, and nobody
        // writes to a shared frame.
        unsafe { std::slice::from_raw_parts(self.arena.address(self.id).as_ptr(), self.arena.frame_bytes) }
    }
}

impl Drop for PinnedFrame {
    fn drop(&mut self) {
        self.arena.let_go(self.id);
    }
}

impl std::fmt::Debug for PinnedFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedFrame({} bytes)", self.arena.frame_bytes)
    }
}
