//! [`SlotArray`]: from block number to cached frame in one load, and the CLOCK hand that empties slots.

use super::epoch::Guard;
use super::frames::{FrameArena, FreeFrame, PinnedFrame};
use super::prefetch::hint;
use std::sync::{Arc, PoisonError, Weak};

use crate::sync::atomic::{AtomicU32, Ordering::*};

/// Slots of a cache line.
const LINE: usize = 16;
/// The frame has been used since the hand last passed.
const REFERENCED: u32 = 1;

/// 16 slots: 0 if empty, else (frame number + 1) * 2, plus [`REFERENCED`].
#[repr(align(64))]
struct Line([AtomicU32; LINE]);

fn frame_of(slot: u32) -> Option<u32> {
    (slot >> 1).checked_sub(1)
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
        clock.arrays.push(Arc::downgrade(&lines));
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

    /// The arena of the frames.
    pub fn arena(&self) -> &Arc<FrameArena> {
        &self.arena
    }

    #[inline(always)]
    fn slot(&self, i: usize) -> &AtomicU32 {
        &self.lines[i / LINE].0[i % LINE]
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

    /// The frame in slot `i`, if there is one, and marks it used. Panics if there is no slot `i`.
    #[inline]
    pub fn load<'g>(&'g self, i: usize, _guard: &'g Guard) -> Option<&'g [u8]> {
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

    /// The frame in slot `i`, counted, so that it may be kept without a guard.
    #[inline]
    pub fn pin(&self, i: usize, _guard: &Guard) -> Option<PinnedFrame> {
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

/// The CLOCK hand over all arrays of an arena.
#[derive(Default)]
pub(super) struct Clock {
    arrays: Vec<Weak<[Line]>>,
    /// Where the hand stands: array, and line in it.
    array: usize,
    line: usize,
}

impl Clock {
    fn forget(&mut self, lines: &Arc<[Line]>) {
        let me = Arc::as_ptr(lines).cast::<Line>();
        if let Some(at) = self.arrays.iter().position(|w| std::ptr::eq(w.as_ptr().cast::<Line>(), me)) {
            self.arrays.remove(at);
            if at < self.array {
                self.array -= 1;
            } else if at == self.array {
                self.line = 0;
            }
        }
    }

    /// Moves the hand until it has unlinked `want` frames or gone round twice: a marked slot loses its mark, another one
    /// its frame. Returns the frames, whose slots' counts the caller now has to let go after the grace.
    pub fn sweep(&mut self, want: usize) -> Vec<u32> {
        let mut out = Vec::with_capacity(want.min(1024));
        // Passes over whole arrays; the one that the hand starts in counts when it is left.
        let mut arrays_left = 2 * self.arrays.len() + 1;
        while out.len() < want && arrays_left > 0 {
            if self.array >= self.arrays.len() {
                self.array = 0;
            }
            let lines = self.arrays.get(self.array).and_then(Weak::upgrade);
            let lines = lines.as_deref().unwrap_or(&[]);
            while out.len() < want && self.line < lines.len() {
                for slot in &lines[self.line].0 {
                    let word = slot.load(Relaxed);
                    let Some(id) = frame_of(word) else { continue };
                    if word & REFERENCED != 0 {
                        let _ = slot.compare_exchange(word, word & !REFERENCED, Relaxed, Relaxed);
                    } else if slot.compare_exchange(word, 0, SeqCst, Relaxed).is_ok() {
                        out.push(id);
                    }
                }
                self.line += 1;
            }
            if self.line >= lines.len() {
                self.line = 0;
                self.array += 1;
                arrays_left -= 1;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::epoch::{collect, pin};
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn filled(arena: &Arc<FrameArena>, byte: u8) -> FreeFrame {
        let mut f = arena.alloc().unwrap();
        f.fill(byte);
        f
    }

    /// Waits until `n` frames are in use: tests beside this one may hold up the grace.
    fn settle(arena: &Arc<FrameArena>, n: usize) {
        while arena.in_use() != n {
            collect();
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
        let p = a.into_pinned();
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
        assert!(slots.len() == 20 && !slots.is_empty() && slots.load(19, &pin()).is_none());
        slots.publish(19, filled(&arena, 7)).unwrap();
        let back = slots.publish(19, filled(&arena, 8)).unwrap_err();
        assert_eq!(back[0], 8);
        let back = slots.publish_pinned(19, back).unwrap_err();
        drop(back);
        let pinned = slots.publish_pinned(3, filled(&arena, 3)).unwrap();
        {
            let g = pin();
            assert_eq!(slots.load(19, &g).unwrap(), [7; 512]);
            assert_eq!(slots.pin(3, &g).unwrap()[..], [3; 512]);
            slots.remove(19);
            assert!(slots.load(19, &g).is_none() && !slots.contains(19));
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
        let kept = two.pin(23, &pin()).unwrap();
        for i in (0..40).step_by(2) {
            one.load(i, &pin());
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
        let g = pin();
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
                let (slots, stop) = (&slots, &stop);
                s.spawn(move || {
                    let mut held = std::collections::VecDeque::new();
                    let mut i = t;
                    while !stop.load(Relaxed) {
                        i = (i * 7 + 1 + t) % blocks;
                        let g = pin();
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
