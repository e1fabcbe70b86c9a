//! A buffer aligned for O_DIRECT: on the heap, mapped by itself, or in an arena.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use super::BufArena;
use super::pages::Pages;

/// Buffers from this size on have a mapping of their own, so that their memory goes back to the kernel with them. Heaps
/// keep what was freed: glibc's, once it has seen a large piece freed, in one arena for each of many threads.
const MAPPED_FROM: usize = 128 << 10;

/// A buffer whose address and capacity are multiples of 4096.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
    home: Home,
}

/// Where a buffer's memory goes when it is dropped.
enum Home {
    Heap,
    /// Unmapped with the buffer, whose memory it is.
    Mapped(#[allow(dead_code)] Pages),
    Arena(Arc<BufArena>),
}

// SAFETY: the buffer is owned memory without interior sharing; moving or sharing it between threads is like
// moving or sharing a Box<[u8]>.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; `&AlignedBuf` gives only `&[u8]`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Alignment of address and length in bytes.
    pub const ALIGN: usize = 4096;

    /// A zeroed buffer of `len` bytes, rounded up to a multiple of 4096 (and at least that).
    pub fn zeroed(len: usize) -> AlignedBuf {
        // Not the plain one, which wraps around to 0 in a release build.
        let Some(len) = len.max(1).checked_next_multiple_of(Self::ALIGN) else {
            panic!("a buffer of {len} bytes")
        };
        if len >= MAPPED_FROM {
            let pages = Pages::reserve(len);
            return AlignedBuf { ptr: pages.base(), len, home: Home::Mapped(pages) };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout has a size above zero.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(layout) };
        AlignedBuf { ptr, len, home: Home::Heap }
    }

    /// A buffer of an arena.
    ///
    /// # Safety
    /// `len` initialised bytes of `home`'s memory, aligned, that are this buffer's alone until they are given back.
    pub(super) unsafe fn of_arena(ptr: NonNull<u8>, len: usize, home: Arc<BufArena>) -> AlignedBuf {
        AlignedBuf { ptr, len, home: Home::Arena(home) }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, Self::ALIGN).unwrap_or_else(|_| panic!("a buffer of {len} bytes"))
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        match &self.home {
            // SAFETY: allocated in `zeroed` with the same layout, freed once.
            Home::Heap => unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.len)) },
            // The pages are dropped after this.
            Home::Mapped(_) => {}
            Home::Arena(home) => home.give_back(self.ptr.as_ptr()),
        }
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes owned by self.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` initialised bytes owned by self, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_aligned_and_rounded_up() {
        for (len, want) in [
            (0, 4096),
            (1, 4096),
            (4096, 4096),
            (4097, 8192),
            (MAPPED_FROM - 1, MAPPED_FROM),
            (3 << 20, 3 << 20),
        ] {
            let mut b = AlignedBuf::zeroed(len);
            assert!(b.len() == want && b.as_ptr().align_offset(4096) == 0 && b.iter().all(|x| *x == 0));
            b[want - 1] = 7;
            assert_eq!(b[want - 1], 7);
        }
    }

    #[test]
    fn impossible_lengths_panic() {
        for len in [usize::MAX, usize::MAX - 4094, isize::MAX as usize] {
            assert!(std::panic::catch_unwind(|| AlignedBuf::zeroed(len)).is_err(), "{len}");
        }
    }
}
