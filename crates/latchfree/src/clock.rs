//! [`Clock`]: the hand that goes over the slots of a cache and empties those that have not been used lately.

use std::sync::{Arc, Weak};

use crate::sync::atomic::{AtomicU32, Ordering::*};

/// Slots of a cache line.
pub(super) const LINE: usize = 16;
/// The frame has been used since the hand last passed.
pub(super) const REFERENCED: u32 = 1;

/// 16 slots: 0 if empty, else (frame number + 1) * 2, plus [`REFERENCED`].
#[repr(align(64))]
pub(super) struct Line(pub [AtomicU32; LINE]);

pub(super) fn frame_of(slot: u32) -> Option<u32> {
    (slot >> 1).checked_sub(1)
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
    /// The hand goes over these slots, too.
    pub fn watch(&mut self, lines: &Arc<[Line]>) {
        self.arrays.push(Arc::downgrade(lines));
    }

    /// It does no more.
    pub fn forget(&mut self, lines: &Arc<[Line]>) {
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

    /// Moves the hand until it has unlinked `want` frames or gone round twice: a marked slot loses its mark, another
    /// one its frame. Returns the frames, whose slots' counts the caller now has to let go after the grace.
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
