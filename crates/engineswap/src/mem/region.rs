//! [`Region`]: memory that may be registered with an engine.

use std::ptr::NonNull;
use std::sync::Arc;

/// All of an arena's memory, kept while this lives. It gives no access: it only says where the memory is.
#[derive(Clone)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    _hold: Arc<dyn Send + Sync>,
}

// SAFETY: an address that is never dereferenced here, and an owner that is Send and Sync.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// An arena's memory.
    ///
    /// # Safety
    /// `hold` keeps the `len` bytes at `base` mapped and backed by the same pages. They may be used otherwise.
    pub unsafe fn new(base: NonNull<u8>, len: usize, hold: Arc<dyn Send + Sync>) -> Region {
        Region { base, len, _hold: hold }
    }

    /// Memory that somebody else owns; `None` if there is none, or no such range of addresses.
    ///
    /// # Safety
    /// As long as a registration of the region lasts, and a clone of the region lives, the `len` bytes at `base` are
    /// mapped and backed by the same pages: they are neither freed nor mapped anew. They may be used otherwise.
    pub unsafe fn foreign(base: *mut u8, len: usize) -> Option<Region> {
        let fits = len > 0 && len <= isize::MAX as usize && (base as usize).checked_add(len).is_some();
        // SAFETY: the caller sees to what nothing has to be held for.
        Some(unsafe { Region::new(NonNull::new(base).filter(|_| fits)?, len, Arc::new(())) })
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.len
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes)", self.len)
    }
}
