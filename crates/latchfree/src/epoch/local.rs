//! The calling thread's records: one for each collector that it has pinned.

use std::cell::{Cell, RefCell};
use std::ptr::{eq, null};
use std::sync::{Arc, Weak};

use super::garbage::Shared;
use super::record::Record;
use crate::sync::per_thread;

per_thread! {
    /// The collector that was pinned last, and the record there: a pair that `MINE` has, too. Without a destructor, so
    /// that it can be had while the thread ends (under Shuttle it cannot).
    static LAST: Cell<(*const Shared, *const Record)> = const { Cell::new((null(), null())) };
    static MINE: Mine = const { Mine(RefCell::new(Vec::new())) };
    /// The collector whose garbage the thread is dropping.
    static COLLECTING: Cell<*const Shared> = const { Cell::new(null()) };
}

/// A reference that keeps the collector's address from being used again, so that `LAST` and `record` tell collectors
/// apart by their addresses.
struct Entry {
    shared: Weak<Shared>,
    record: *const Record,
}

/// Gives the thread's records back when the thread ends.
struct Mine(RefCell<Vec<Entry>>);

/// The calling thread's record.
#[inline]
pub(super) fn record(shared: &Arc<Shared>) -> &Record {
    let (last, record) = LAST.try_with(Cell::get).unwrap_or((null(), null()));
    if !eq(last, Arc::as_ptr(shared)) {
        return look_up(shared);
    }
    // SAFETY: `LAST` is a pair of `MINE`, whose weak reference keeps the address from being another collector's: so the
    // record is one of `shared`, which frees its records when it is dropped, and is borrowed.
    unsafe { &*record }
}

#[cold]
fn look_up(shared: &Arc<Shared>) -> &Record {
    let found = MINE.try_with(|m| m.find(shared).unwrap_or_else(|| m.add(shared)));
    let Ok(found) = found else {
        // The thread is ending: a record for this guard alone.
        let record = shared.take_record();
        record.orphan.set(true);
        return record;
    };
    let _ = LAST.try_with(|l| l.set((Arc::as_ptr(shared), found)));
    // SAFETY: as in `record`.
    unsafe { &*found }
}

impl Mine {
    fn find(&self, shared: &Arc<Shared>) -> Option<*const Record> {
        let all = self.0.borrow();
        all.iter().find(|e| eq(e.shared.as_ptr(), Arc::as_ptr(shared))).map(|e| e.record)
    }

    fn add(&self, shared: &Arc<Shared>) -> *const Record {
        let mut all = self.0.borrow_mut();
        forget_last();
        all.retain(|e| e.shared.strong_count() > 0);
        let record = std::ptr::from_ref(shared.take_record());
        all.push(Entry { shared: Arc::downgrade(shared), record });
        record
    }
}

fn forget_last() {
    let _ = LAST.try_with(|l| l.set((null(), null())));
}

impl Drop for Mine {
    fn drop(&mut self) {
        forget_last();
        for e in self.0.take() {
            // Records of a collector that is gone are gone with it.
            let Some(shared) = e.shared.upgrade() else { continue };
            // SAFETY: as in `record`.
            let record = unsafe { &*e.record };
            record.orphan.set(true);
            if record.guards.get() == 0 {
                shared.give_back(record);
            }
        }
    }
}

/// While it lives, the calling thread is dropping a collector's garbage.
pub(super) struct Collecting {
    outer: *const Shared,
}

impl Collecting {
    /// `None` if it is already, further out.
    pub fn begin(shared: &Shared) -> Option<Collecting> {
        let outer = COLLECTING.try_with(Cell::get).unwrap_or(null());
        if eq(outer, shared) {
            return None;
        }
        let _ = COLLECTING.try_with(|c| c.set(shared));
        Some(Collecting { outer })
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        let _ = COLLECTING.try_with(|c| c.set(self.outer));
    }
}
