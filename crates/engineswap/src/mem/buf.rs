//! A buffer aligned for O_DIRECT, on the heap or in an arena.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use super::BufArena;

/// A buffer whose address and capacity are multiples of 4096.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
    /// Where it goes when it is dropped; the heap if nowhere else.
    home: Option<Arc<BufArena>>,
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
        let layout = Self::layout(len);
        // SAFETY: the layout has a size above zero.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(layout) };
        AlignedBuf { ptr, len, home: None }
    }

    /// A buffer of an arena.
    ///
    /// # Safety
    /// `len` initialised bytes of `home`'s memory, aligned, that are this buffer's alone until they are given back.
    pub(super) unsafe fn of_arena(ptr: NonNull<u8>, len: usize, home: Arc<BufArena>) -> AlignedBuf {
        AlignedBuf { ptr, len, home: Some(home) }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, Self::ALIGN).unwrap_or_else(|_| panic!("a buffer of {len} bytes"))
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            return home.give_back(self.ptr.as_ptr());
        }
        // SAFETY: no arena's, so allocated in `zeroed` with the same layout, freed once.
        unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.len)) }
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
        for (len, want) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)] {
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
