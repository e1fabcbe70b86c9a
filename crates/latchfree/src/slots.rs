//! [`SlotArray`]: from block number to cached frame in one load.

use std::sync::{Arc, PoisonError};

use crate::clock::{LINE, Line, REFERENCED, frame_of};
use crate::epoch::{Collector, Guard};
use crate::frames::{FrameArena, FreeFrame, PinnedFrame};
use crate::prefetch::hint;
use crate::sync::atomic::{AtomicU32, Ordering::*};

/// Apart, so that the check costs a load as little as that of the line's bound did.
#[cold]
#[inline(never)]
fn past_the_end(i: usize, len: usize) -> ! {
    panic!("slot {i} of {len}")
}

/// One slot per block of a file: empty, or a frame that holds the block. Dropping it lets its frames go.
pub struct SlotArray {
    arena: Arc<FrameArena>,
    /// The arena keeps a weak reference, for the hand.
    lines: Arc<[Line]>,
    len: usize,
}

impl SlotArray {
    /// `len` empty slots for frames of `arena`.
    pub fn new(arena: &Arc<FrameArena>, len: usize) -> SlotArray {
        let lines: Arc<[Line]> =
            (0..len.div_ceil(LINE)).map(|_| Line(std::array::from_fn(|_| AtomicU32::new(0)))).collect();
        let mut clock = arena.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.watch(&lines);
        drop(clock);
        SlotArray { arena: Arc::clone(arena), lines, len }
    }

    /// Number of slots.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The collector whose guards are needed.
    #[inline]
    pub fn collector(&self) -> &Collector {
        self.arena.collector()
    }

    /// The arena of the frames.
    pub fn arena(&self) -> &Arc<FrameArena> {
        &self.arena
    }

    #[inline(always)]
    fn slot(&self, i: usize) -> &AtomicU32 {
        // Not left to the line's bound: the last line may have more slots in memory than the array has.
        if i >= self.len {
            past_the_end(i, self.len);
        }
        // SAFETY: `new` made `len.div_ceil(LINE)` lines and neither ever changes, so i < len lies in one of them.
        let line = unsafe { self.lines.get_unchecked(i / LINE) };
        &line.0[i % LINE]
    }

    #[inline(always)]
    fn frame(&self, i: usize) -> Option<u32> {
        let slot = self.slot(i);
        // SeqCst, as the epoch's argument wants it.
        let word = slot.load(SeqCst);
        let id = frame_of(word)?;
        if word & REFERENCED == 0 {
            // Only if the slot still holds the same frame; losing the mark is harmless.
            let _ = slot.compare_exchange(word, word | REFERENCED, Relaxed, Relaxed);
        }
        Some(id)
    }

    /// The frame in slot `i`, if there is one, and marks it used. Panics if there is no slot `i`, or if the guard is
    /// not one of the arena's collector.
    #[inline]
    pub fn load<'g>(&'g self, i: usize, guard: &'g Guard<'_>) -> Option<&'g [u8]> {
        guard.check(self.arena.collector());
        let id = self.frame(i)?;
        // SAFETY: the slot published the frame, so it is initialised and shared, and the SeqCst load synchronised
        // with the publisher's exchange: its bytes are seen. The slot's count is let go, if the hand unlinks
        // it, after the guard's end (the epoch's argument), and by our own Drop not while `self` is borrowed: until
        // then the frame stays shared, and nobody writes to it.
        Some(unsafe { std::slice::from_raw_parts(self.arena.address(id).as_ptr(), self.arena.frame_bytes()) })
    }

    /// Whether slot `i` holds a frame, without marking it used.
    pub fn contains(&self, i: usize) -> bool {
        self.slot(i).load(Relaxed) != 0
    }

    /// The frame in slot `i`, counted, so that it may be kept without a guard. Panics as [`SlotArray::load`] does.
    #[inline]
    pub fn pin(&self, i: usize, guard: &Guard<'_>) -> Option<PinnedFrame> {
        guard.check(self.arena.collector());
        // Found under a guard, so the slot's own count is still there (see `load`).
        self.frame(i).map(|id| PinnedFrame::of_slot(&self.arena, id))
    }

    /// Puts `frame` into slot `i`; gives it back if the slot is taken. Panics if the frame is of another arena.
    pub fn publish(&self, i: usize, frame: FreeFrame) -> Result<(), FreeFrame> {
        assert!(frame.belongs_to(&self.arena), "a frame of another arena");
        let word = (frame.id() + 1) << 1;
        // SeqCst (a release): the frame's bytes are written before readers find it.
        match self.slot(i).compare_exchange(0, word, SeqCst, Relaxed) {
            Ok(_) => {
                // The frame's count of 1 is the slot's now; the reference to the arena is dropped.
                let _ = frame.into_parts();
                Ok(())
            }
            Err(_) => Err(frame),
        }
    }

    /// Like [`SlotArray::publish`], and pins the frame.
    pub fn publish_pinned(&self, i: usize, frame: FreeFrame) -> Result<PinnedFrame, FreeFrame> {
        // Counted before it is published: afterwards it may be unlinked at any moment.
        let pinned = frame.share();
        match self.publish(i, frame) {
            Ok(()) => Ok(pinned),
            // Not published: exclusive again once the pin is dropped, and it is dropped here.
            Err(frame) => {
                drop(pinned);
                Err(frame)
            }
        }
    }

    /// Empties slot `i`. The frame is let go after the grace.
    pub fn remove(&self, i: usize) {
        if let Some(id) = frame_of(self.slot(i).swap(0, SeqCst)) {
            self.arena.retire(vec![id]);
        }
    }

    /// Hints that slot `i` is about to be read.
    #[inline(always)]
    pub fn prefetch(&self, i: usize) {
        if let Some(line) = self.lines.get(i / LINE) {
            hint(std::ptr::from_ref(line).cast());
        }
    }

    /// Hints that the frame in slot `i`, if there is one, is about to be pinned. Reads the slot.
    #[inline(always)]
    pub fn prefetch_pin(&self, i: usize) {
        if let Some(id) = frame_of(self.slot(i).load(Relaxed)) {
            self.arena.prefetch_count(id);
        }
    }

    /// Hints that the line at `offset` of the frame in slot `i`, if there is one, is about to be read. Reads the slot.
    #[inline(always)]
    pub fn prefetch_frame(&self, i: usize, offset: usize) {
        if let Some(id) = frame_of(self.slot(i).load(Relaxed)) {
            hint(self.arena.address(id).as_ptr().wrapping_add(offset));
        }
    }
}

impl Drop for SlotArray {
    fn drop(&mut self) {
        let mut clock = self.arena.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.forget(&self.lines);
        drop(clock);
        for line in self.lines.iter() {
            for slot in &line.0 {
                // An exchange: the hand may be emptying the same slot. No grace is needed: whoever loaded from a
                // slot borrows `self`, and pins are counted.
                if let Some(id) = frame_of(slot.swap(0, SeqCst)) {
                    self.arena.let_go(id);
                }
            }
        }
    }
}

impl std::fmt::Debug for SlotArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SlotArray({} slots)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::AssertUnwindSafe;
    use std::sync::atomic::AtomicBool;

    fn filled(arena: &Arc<FrameArena>, byte: u8) -> FreeFrame {
        let mut f = arena.alloc().unwrap();
        f.fill(byte);
        f
    }

    /// Waits until `n` frames are in use: tests beside this one may hold up the grace.
    fn settle(arena: &Arc<FrameArena>, n: usize) {
        while arena.in_use() != n {
            arena.collector().collect();
            std::thread::yield_now();
        }
    }

    #[test]
    fn frames_come_and_go() {
        let arena = FrameArena::new(512, 3);
        let mut a = arena.alloc().unwrap();
        let at = a.as_ptr();
        assert!(a.len() == 512 && at.align_offset(512) == 0);
        a[511] = 9;
        let p = a.share();
        drop(a);
        let q = p.clone();
        drop(p);
        assert!(q[511] == 9 && q.as_ptr() == at);
        let (b, _c) = (arena.alloc().unwrap(), arena.alloc().unwrap());
        assert!(arena.alloc().is_none() && arena.alloc_or_evict().is_none());
        drop(b);
        arena.set_limit(2);
        assert!(arena.alloc().is_none() && arena.limit() == 2);
        drop(q);
        assert!(arena.alloc().is_some());
        arena.set_limit(99);
        assert_eq!((arena.in_use(), arena.limit()), (1, 3));
    }

    #[test]
    fn slots_publish_pin_and_refuse() {
        let arena = FrameArena::new(512, 8);
        let slots = SlotArray::new(&arena, 20);
        assert!(slots.len() == 20 && !slots.is_empty() && slots.load(19, &arena.collector().pin()).is_none());
        slots.publish(19, filled(&arena, 7)).unwrap();
        let back = slots.publish(19, filled(&arena, 8)).unwrap_err();
        assert_eq!(back[0], 8);
        let back = slots.publish_pinned(19, back).unwrap_err();
        drop(back);
        let pinned = slots.publish_pinned(3, filled(&arena, 3)).unwrap();
        {
            let g = arena.collector().pin();
            assert_eq!(slots.load(19, &g).unwrap(), [7; 512]);
            assert_eq!(slots.pin(3, &g).unwrap()[..], [3; 512]);
            slots.remove(19);
            assert!(slots.load(19, &g).is_none() && !slots.contains(19));
            // Past the end: also within the last line, of which there are 16 in memory.
            for past in [20, 31, 32, usize::MAX] {
                let calls: [&dyn Fn(); 5] = [
                    &|| _ = slots.load(past, &g),
                    &|| _ = slots.pin(past, &g),
                    &|| _ = slots.publish(past, filled(&arena, 1)),
                    &|| _ = slots.contains(past),
                    &|| slots.remove(past),
                ];
                assert!(
                    calls.iter().all(|f| std::panic::catch_unwind(AssertUnwindSafe(f)).is_err()),
                    "{past}"
                );
            }
        }
        settle(&arena, 1);
        slots.prefetch(3);
        slots.prefetch(1 << 40);
        slots.prefetch_frame(3, 64);
        slots.prefetch_pin(3);
        slots.prefetch_pin(4);
        drop(slots);
        assert_eq!(pinned[..], [3; 512]);
        assert_eq!(arena.in_use(), 1);
        drop(pinned);
        assert_eq!(arena.in_use(), 0);
    }

    #[test]
    #[should_panic(expected = "another arena")]
    fn a_foreign_frame_is_refused() {
        let (a, b) = (FrameArena::new(512, 1), FrameArena::new(512, 1));
        let _ = SlotArray::new(&a, 1).publish_pinned(0, b.alloc().unwrap());
    }

    #[test]
    fn the_hand_spares_what_is_used_and_what_is_pinned_stays() {
        let arena = FrameArena::new(512, 64);
        let (one, two) = (SlotArray::new(&arena, 40), SlotArray::new(&arena, 24));
        let gone = SlotArray::new(&arena, 5);
        for i in 0..64u8 {
            let (s, at) = if i < 40 { (&one, i) } else { (&two, i - 40) };
            s.publish(at as usize, filled(&arena, i)).unwrap();
        }
        drop(gone);
        settle(&arena, 64);
        let kept = two.pin(23, &arena.collector().pin()).unwrap();
        for i in (0..40).step_by(2) {
            one.load(i, &arena.collector().pin());
        }
        // 20 marked in one, 1 in two: 43 without a mark.
        // The hand empties whole lines of 16.
        assert_eq!(arena.evict(30), 8 + 8 + 4 + 16);
        assert_eq!(arena.evict(1), 7);
        assert!((0..40).all(|i| one.contains(i) == (i % 2 == 0)));
        settle(&arena, 21);
        assert_eq!(arena.evict(100), 21);
        settle(&arena, 1);
        assert_eq!(kept[..], [63; 512]);
        drop(kept);
        assert_eq!(arena.in_use(), 0);
        assert_eq!(arena.evict(1), 0);
    }

    #[test]
    fn a_guard_keeps_an_evicted_frame_as_it_is() {
        let arena = FrameArena::new(512, 1);
        let slots = SlotArray::new(&arena, 1);
        slots.publish(0, filled(&arena, 5)).unwrap();
        let g = arena.collector().pin();
        let seen = slots.load(0, &g).unwrap();
        assert_eq!(arena.evict(1), 1);
        assert!(arena.alloc().is_none());
        assert_eq!(seen, [5; 512]);
        drop(g);
        settle(&arena, 0);
        assert!(arena.alloc().is_some());
    }

    #[test]
    fn readers_see_whole_blocks_while_frames_are_evicted() {
        let (blocks, rounds, frame) = if cfg!(miri) { (20, 30, 512) } else { (200, 60_000, 4096) };
        let arena = FrameArena::new(frame, blocks / 2);
        let slots = SlotArray::new(&arena, blocks);
        let stop = AtomicBool::new(false);
        let whole = |i: usize, b: &[u8]| assert!(b.len() == frame && b.iter().all(|&x| x == i as u8));
        std::thread::scope(|s| {
            for t in 0..3 {
                let (slots, stop, arena) = (&slots, &stop, &arena);
                s.spawn(move || {
                    let mut held = std::collections::VecDeque::new();
                    let mut i = t;
                    while !stop.load(Relaxed) {
                        i = (i * 7 + 1 + t) % blocks;
                        let g = arena.collector().pin();
                        if let Some(b) = slots.load(i, &g) {
                            whole(i, b);
                        }
                        if t == 0 {
                            held.extend(slots.pin(i, &g).map(|p| (i, p)));
                        }
                        drop(g);
                        if held.len() > 3 {
                            let (i, p) = held.pop_front().unwrap();
                            whole(i, &p);
                        }
                    }
                });
            }
            let mut filled = 0;
            for r in 0..rounds {
                let i = r * 13 % blocks;
                if slots.contains(i) {
                    continue;
                }
                // None when readers are preempted under their guards.
                let Some(mut f) = arena.alloc_or_evict() else { continue };
                f.fill(i as u8);
                slots.publish(i, f).unwrap();
                filled += 1;
            }
            stop.store(true, Relaxed);
            assert!(filled >= blocks / 2);
        });
        let other = SlotArray::new(&arena, 3);
        drop(slots);
        settle(&arena, 0);
        drop(other);
    }
}
