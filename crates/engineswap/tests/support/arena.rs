//! An arena of pages of which engineswap knows nothing, to be lent to operations.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use engineswap::mem::{Arena, ArenaBuf, Pages, Region};

/// Pages of 4096 bytes, each of which is with one [`ArenaBuf`] or here.
pub struct PageArena {
    pages: Pages,
    free: Mutex<Vec<usize>>,
}

const PAGE: usize = 4096;

impl PageArena {
    pub fn new(count: usize) -> Arc<PageArena> {
        Arc::new(PageArena { pages: Pages::reserve(count * PAGE), free: Mutex::new((0..count).collect()) })
    }

    pub fn alloc(self: &Arc<Self>) -> Option<ArenaBuf> {
        let at = self.free.lock().unwrap().pop()?;
        // SAFETY: one of the pages, that nobody else has; the arena keeps it where it is.
        Some(unsafe { ArenaBuf::new(self.pages.base().add(at * PAGE), PAGE, Arc::clone(self) as _) })
    }

    pub fn region(self: &Arc<Self>) -> Region {
        // SAFETY: the arena owns its pages and gives none of them back before its end.
        unsafe { Region::new(self.pages.base(), self.pages.len(), Arc::clone(self) as _) }
    }
}

impl Arena for PageArena {
    unsafe fn take_back(&self, ptr: NonNull<u8>) {
        let at = (ptr.as_ptr() as usize - self.pages.base().as_ptr() as usize) / PAGE;
        let mut free = self.free.lock().unwrap();
        assert!(!free.contains(&at), "a page came back twice");
        free.push(at);
    }
}
