//! [`Record`]: a thread's place in a collector.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::sync::atomic::AtomicU64;

/// Scans that find a record idle, one after the other, before it is left out of them.
pub(super) const PARKED: u64 = if cfg!(any(shuttle, miri)) { 1 } else { 8 };
/// The first epoch. Smaller values of [`Record::lower`] say that the thread is not pinned.
pub(super) const FIRST: u64 = PARKED + 1;

/// What scans see of a thread. Belongs to one thread at a time.
#[repr(align(128))]
pub(super) struct Record {
    /// The epoch seen when pinned. When not pinned, how many scans have seen that; `PARKED`: scans leave it out.
    pub lower: AtomicU64,
    /// The epoch when the last value was loaded; has a meaning only while pinned.
    pub upper: AtomicU64,
    /// The cells are touched only by the thread that it belongs to, and passed on under the collector's lock.
    pub guards: Cell<usize>,
    /// Give the record back when the last guard goes (the thread's local storage is gone).
    pub orphan: Cell<bool>,
    pub unpins: Cell<usize>,
}

// SAFETY: the cells are touched only by the one thread that has taken the record, under the collector's lock, until it
// gives the record back under the same lock; the rest is atomic.
unsafe impl Sync for Record {}

/// A record of a [`Shared`](super::Shared), which frees it.
#[derive(Clone, Copy)]
pub(super) struct RecordPtr(NonNull<Record>);

// SAFETY: the address of something that is Sync and that the owner of the collector frees.
unsafe impl Send for RecordPtr {}

impl RecordPtr {
    pub fn new() -> RecordPtr {
        let record = Record {
            lower: AtomicU64::new(PARKED),
            upper: AtomicU64::new(0),
            guards: Cell::new(0),
            orphan: Cell::new(false),
            unpins: Cell::new(0),
        };
        RecordPtr(NonNull::from(Box::leak(Box::new(record))))
    }

    pub fn of(record: &Record) -> RecordPtr {
        RecordPtr(NonNull::from(record))
    }

    /// # Safety
    /// The record has not been freed, and is not for `'a`: its collector lives.
    pub unsafe fn get<'a>(self) -> &'a Record {
        // SAFETY: the caller's promise; nobody has a mutable reference to a record.
        unsafe { self.0.as_ref() }
    }

    /// # Safety
    /// It is made by `new`, freed once, and nobody uses the record any more.
    pub unsafe fn free(self) {
        // SAFETY: from a leaked box, and the caller's promise.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
