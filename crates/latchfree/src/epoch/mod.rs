//! Epoch reclamation: readers pay one uncontended exchange, no lock and no shared counter.
//!
//! A [`Collector`] belongs to one store. A reader [pins](Collector::pin) it; while its [`Guard`] lives, nothing that it
//! could have loaded is dropped. A writer replaces a pointer and retires the old one, which is dropped as soon as every
//! guard that could see it is gone: by the writer itself, by the next one that retires, or by the reader whose guard
//! was the last in the way. So destructors of published things run on threads that retire or unpin: they must not take
//! a lock that somebody holds while doing either.
//!
//! ## What a stuck reader holds up
//! A guard of a thread that the scheduler has stopped holds up, of each [`Published`], two values for each time that it
//! has loaded: the one that was there, and the one that took its place. Values that come and go later are dropped
//! beside it. It holds up all frames that are evicted meanwhile, which are at most those of their arena.
//!
//! ## What it costs
//! Retiring looks at the records of threads that have pinned lately: a record that was found idle `PARKED` times is
//! left out until its thread pins again, which puts it back under a lock. Frames, which are retired often, are looked
//! after once for every `SHARE` such records.
//!
//! ## Why it is sound
//! `epoch` grows by one with each retirement. A reader copies it into its record, as `lower` and `upper`, then loads
//! pointers. A retirer unlinks, then takes `tag = epoch + 1` by an atomic increment. A value knows its `birth`, the
//! epoch before it was published (0 for a frame). After a scan of all records, it is dropped unless one of them is
//! pinned with `lower < tag` and `birth <= upper`. All of these accesses, the pointers' included, are SeqCst, so they
//! have one total order. Take a reader and a scan that has read the reader's `lower`:
//! - it read a value stored before this pin: then the scan's load precedes the pin's store in the total order, the
//!   unlinking precedes the reader's loads of the pointer, and the reader cannot get the old thing;
//! - it read this pin's value `lower < tag`: the thing is kept, but for the last case;
//! - it read this pin's value `lower >= tag`: the reader has loaded a value of `epoch` that the retirer's increment or
//!   a later one wrote; the unlinking happened before its loads, and it cannot get the old thing;
//! - it read something stored at the end of this pin or later: these are release stores, so all that the reader
//!   did under this pin happened before the drop;
//! - it read this pin's `lower`, and an `upper < birth`: a reader uses what it has loaded only if `epoch`, read after
//!   the pointer, still equals its `upper`; then `birth <= upper`, as `birth` was read from `epoch` before the pointer
//!   was stored. Otherwise it raises `upper` and loads again. So if it uses the value, it has raised `upper` after the
//!   scan's load of it, and loaded the pointer after that: too late to get what was unlinked before the scan.
//!
//! A record that the scan left out had the value `PARKED` when it was taken off the list, under the lock that scans
//! hold. Its thread's next pin finds that value and puts the record back under the same lock before it loads anything:
//! a scan that missed it, and the unlinking of what that scan dropped, happened before.

mod garbage;
mod local;
mod published;
mod record;

use std::marker::PhantomData;
use std::sync::Arc;

use self::garbage::{Garbage, Shared};
use self::record::{PARKED, Record};
use crate::sync::atomic::Ordering::*;

pub use self::published::Published;

#[cfg(doc)]
use self::garbage::SHARE;

/// What drops things when no reader can see them any more. Clones are the same collector.
#[derive(Clone)]
pub struct Collector(Arc<Shared>);

impl Collector {
    /// A collector that nothing has been given to.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Collector {
        Collector(Arc::new(Shared::new()))
    }

    /// Pins the calling thread. May be nested; the outermost guard counts.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        let record = local::record(&self.0);
        let n = record.guards.get();
        record.guards.set(n + 1);
        if n == 0 {
            let now = self.0.epoch.load(SeqCst);
            // Published by the exchange.
            record.upper.store(now, Relaxed);
            // An exchange rather than a store: cheaper than a store and a fence on x86-64.
            if record.lower.swap(now, SeqCst) == PARKED {
                self.0.put_back(record);
            }
        }
        Guard { shared: &self.0, record, _not_send: PhantomData }
    }

    /// Drops what no guard holds up any more. Retiring and unpinning do this by themselves.
    pub fn collect(&self) {
        self.0.collect();
    }

    /// Things that have been retired and not dropped.
    pub fn waiting(&self) -> usize {
        self.0.waiting()
    }

    /// Lets frames go that have been unlinked by SeqCst accesses.
    pub(super) fn retire_frames(&self, frames: Garbage) {
        self.0.retire_frames(frames);
    }

    /// Whether two handles are of one collector.
    pub fn is(&self, other: &Collector) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collector({} waiting)", self.waiting())
    }
}

/// While it lives, nothing that was loaded under it is dropped. Keep it short: it holds up what others retire.
#[must_use]
pub struct Guard<'c> {
    shared: &'c Shared,
    record: &'c Record,
    /// Not Send: the record belongs to the thread.
    _not_send: PhantomData<*mut ()>,
}

impl Guard<'_> {
    /// Panics if the guard is not one of `collector`: it would protect nothing there.
    #[inline(always)]
    pub(super) fn check(&self, collector: &Collector) {
        assert!(std::ptr::eq(self.shared, Arc::as_ptr(&collector.0)), "a guard of another collector");
    }

    /// Whether all that has been published until now is covered. If not, it is from here on, and what was loaded before
    /// has to be loaded again.
    #[inline(always)]
    fn covers_now(&self) -> bool {
        let now = self.shared.epoch.load(SeqCst);
        if self.record.upper.load(Relaxed) == now {
            return true;
        }
        // Only this thread writes it.
        self.record.upper.store(now, SeqCst);
        false
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        let n = self.record.guards.get() - 1;
        self.record.guards.set(n);
        if n == 0 {
            let was = self.record.lower.load(Relaxed);
            self.record.lower.store(0, Release);
            let oldest = self.shared.oldest.load(Relaxed);
            if oldest != 0 || self.record.orphan.get() {
                self.shared.unpinned(self.record, was < oldest);
            }
        }
    }
}

impl std::fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}

#[cfg(test)]
mod tests;
