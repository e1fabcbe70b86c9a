//! The number that a file has in the tables of its engine, given back when the file is closed.

use std::sync::Arc;

/// An engine that gives numbers to files.
pub(crate) trait SlotOwner: Send + Sync {
    /// The file that has this number is being closed; its descriptor is still open.
    fn release(&self, number: u32, id: u64);
}

/// A file's number. The numbers of closed files are given to others, their ids never.
pub(crate) struct FileSlot {
    owner: Arc<dyn SlotOwner>,
    pub(crate) number: u32,
    pub(crate) id: u64,
}

impl FileSlot {
    pub(crate) fn new(owner: Arc<dyn SlotOwner>, number: u32, id: u64) -> FileSlot {
        FileSlot { owner, number, id }
    }

    /// Whether this engine gave it.
    pub(crate) fn is_of<T: SlotOwner>(&self, owner: &Arc<T>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.owner), Arc::as_ptr(owner))
    }
}

impl Drop for FileSlot {
    fn drop(&mut self) {
        self.owner.release(self.number, self.id);
    }
}
