//! Memory of an arena that this crate does not know, lent to an operation and given back when it is dropped.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// An owner of memory that [`ArenaBuf`]s are made of.
pub trait Arena: Any + Send + Sync {
    /// Takes back the memory of one of its [`ArenaBuf`]s.
    ///
    /// # Safety
    /// `ptr` is the address of an [`ArenaBuf`] that was made with this arena; nobody uses the memory any more, and it
    /// is taken back once.
    unsafe fn take_back(&self, ptr: NonNull<u8>);
}

/// A piece of an arena's memory that nobody else uses. Its address does not change.
pub struct ArenaBuf {
    ptr: NonNull<u8>,
    len: usize,
    arena: Arc<dyn Arena>,
}

// SAFETY: the memory is this value's alone (the promise of `new`), as a Box<[u8]>'s is; the arena is Send and Sync.
unsafe impl Send for ArenaBuf {}
// SAFETY: as above; `&ArenaBuf` gives only `&[u8]`.
unsafe impl Sync for ArenaBuf {}

impl ArenaBuf {
    /// The `len` bytes at `ptr`, which go back by [`Arena::take_back`].
    ///
    /// # Safety
    /// They are initialised, at most `isize::MAX`, belong to `arena`, stay where they are as long as it lives, and
    /// nobody else uses them until they are taken back.
    pub unsafe fn new(ptr: NonNull<u8>, len: usize, arena: Arc<dyn Arena>) -> ArenaBuf {
        ArenaBuf { ptr, len, arena }
    }

    /// The arena, to find out which one it is.
    pub fn arena(&self) -> &dyn Arena {
        &*self.arena
    }

    /// Takes it apart without giving the memory back: that is the caller's to see to.
    pub fn into_parts(self) -> (NonNull<u8>, usize, Arc<dyn Arena>) {
        let me = ManuallyDrop::new(self);
        // SAFETY: `me` is not dropped and not used again, so the Arc moves out exactly once.
        (me.ptr, me.len, unsafe { std::ptr::read(&me.arena) })
    }
}

impl Drop for ArenaBuf {
    fn drop(&mut self) {
        // SAFETY: made with this arena; `self` was the only user, and is dropped once.
        unsafe { self.arena.take_back(self.ptr) }
    }
}

impl Deref for ArenaBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: initialised memory of this length that is this value's alone (the promise of `new`).
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for ArenaBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for ArenaBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ArenaBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// Leaked boxes, counted.
    #[derive(Default)]
    struct Boxes(AtomicU32);

    impl Arena for Boxes {
        unsafe fn take_back(&self, ptr: NonNull<u8>) {
            self.0.fetch_sub(1, Relaxed);
            // SAFETY: leaked by `lend`, which made it 8 bytes long; taken back once.
            drop(unsafe { Box::from_raw(ptr.cast::<[u8; 8]>().as_ptr()) });
        }
    }

    fn lend(boxes: &Arc<Boxes>) -> ArenaBuf {
        boxes.0.fetch_add(1, Relaxed);
        let ptr = NonNull::from(Box::leak(Box::new([0u8; 8]))).cast();
        // SAFETY: 8 leaked bytes that nobody else knows of.
        unsafe { ArenaBuf::new(ptr, 8, Arc::clone(boxes) as _) }
    }

    #[test]
    fn memory_goes_back_once() {
        let boxes = Arc::new(Boxes::default());
        let (mut a, b) = (lend(&boxes), lend(&boxes));
        a[7] = 9;
        assert_eq!((a.len(), a[7], b[7], boxes.0.load(Relaxed)), (8, 9, 0, 2));
        assert!((a.arena() as &dyn Any).is::<Boxes>());
        drop(b);
        assert_eq!(boxes.0.load(Relaxed), 1);
        let (ptr, len, arena) = a.into_parts();
        assert_eq!(boxes.0.load(Relaxed), 1);
        // SAFETY: as it was taken apart.
        drop(unsafe { ArenaBuf::new(ptr, len, arena) });
        assert_eq!((boxes.0.load(Relaxed), Arc::strong_count(&boxes)), (0, 1));
    }
}
