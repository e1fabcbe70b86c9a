//! [`BufArena`]: aligned buffers of one size in one mapping, fit to be registered with an engine.

use std::sync::{Arc, Mutex, PoisonError};

use super::pages::Pages;
use super::{AlignedBuf, Region};

/// Equal buffers in one mapping: on huge pages of the system's pool if it has enough, else on what the kernel gives.
pub struct BufArena {
    pages: Pages,
    buf_bytes: usize,
    free: Mutex<Vec<u32>>,
}

impl BufArena {
    /// `count` buffers of `buf_bytes` bytes, rounded up to a multiple of 4096.
    pub fn new(buf_bytes: usize, count: usize) -> Arc<BufArena> {
        let size = buf_bytes.max(1).checked_next_multiple_of(AlignedBuf::ALIGN);
        let sizes = size.and_then(|s| Some((s, s.checked_mul(count)?))).filter(|_| count < u32::MAX as usize);
        let Some((buf_bytes, bytes)) = sizes else { panic!("{count} buffers of {buf_bytes} bytes") };
        Arc::new(BufArena {
            pages: Pages::from_pool(bytes).unwrap_or_else(|| Pages::reserve(bytes)),
            buf_bytes,
            free: Mutex::new((0..count as u32).rev().collect()),
        })
    }

    /// A buffer, if one is left; its contents are arbitrary. It comes back when it is dropped.
    pub fn alloc(self: &Arc<Self>) -> Option<AlignedBuf> {
        let i = self.list().pop()?;
        // SAFETY: below `count`, so the address lies in the mapping.
        let ptr = unsafe { self.pages.base().add(i as usize * self.buf_bytes) };
        // SAFETY: the buffer was in the free list, so nobody else has it; the arena lives as long as it does.
        Some(unsafe { AlignedBuf::of_arena(ptr, self.buf_bytes, Arc::clone(self)) })
    }

    /// Takes back a buffer of this arena that nobody uses any more.
    pub(super) fn give_back(&self, ptr: *const u8) {
        let i = (ptr as usize - self.pages.base().as_ptr() as usize) / self.buf_bytes;
        self.list().push(i as u32);
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its memory, to be registered ([`crate::Io::register_buffers`]), which backs all of it at once.
    pub fn region(self: &Arc<Self>) -> Region {
        // SAFETY: the arena owns its pages and never gives any of them back before its end.
        unsafe { Region::new(self.pages.base(), self.pages.len(), Arc::clone(self) as _) }
    }
}

impl std::fmt::Debug for BufArena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufArena(buffers of {} bytes)", self.buf_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_apart_and_come_back() {
        let arena = BufArena::new(5000, 3);
        let mut all: Vec<_> = (0..3).map(|_| arena.alloc().unwrap()).collect();
        assert!(arena.alloc().is_none());
        for (i, b) in all.iter_mut().enumerate() {
            assert_eq!((b.len(), b.as_ptr() as usize % 4096), (8192, 0));
            b.fill(i as u8 + 1);
        }
        for (i, b) in all.iter().enumerate() {
            assert!(b.iter().all(|x| *x == i as u8 + 1));
        }
        let address = all[1].as_ptr();
        drop(all.remove(1));
        assert_eq!(arena.alloc().unwrap().as_ptr(), address);
        // A buffer keeps its memory when the arena's own handle is gone.
        let region = arena.region();
        assert!(region.bytes() >= 3 * 8192);
        drop((arena, region));
        all[0][0] = 9;
        assert_eq!((all[0][0], all[1][0]), (9, 3));
    }
}
