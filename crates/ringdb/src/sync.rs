//! Locks that do not poison: a panic while one is held is a bug whose message has been printed, and the data
//! behind every lock of the store is valid between statements.
//!
//! Under `--cfg shuttle` these are Shuttle's, which runs the store's threads one at a time in an order that it chooses
//! and can repeat (tests/shuttle.rs, `make shuttle`). So the store takes its locks, and the atomics that threads meet
//! at, from here. In other builds the threads of a simulation ([`crate::sim`]) take their turns here; to everyone else
//! that costs the load of one word that never changes.

use std::time::Duration;

#[cfg(shuttle)]
use shuttle::thread::current;
#[cfg(not(shuttle))]
use std::thread::current;

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(shuttle)]
pub(crate) use shuttle::thread::ThreadId;
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(shuttle))]
pub(crate) use std::thread::ThreadId;

#[cfg(all(not(shuttle), feature = "sim"))]
use crate::sim;

/// In a build without simulations no thread is one of a simulation's.
#[cfg(all(not(shuttle), not(feature = "sim")))]
mod sim {
    use super::{Mutex, MutexGuard};
    use std::time::Duration;

    pub(super) const fn any() -> bool {
        false
    }
    pub(super) const fn is_task() -> bool {
        false
    }
    pub(super) fn notify(_place: usize) {}
    pub(super) fn wait(_place: usize, _most: Option<Duration>) {}
    pub(super) fn lock<T: ?Sized>(_m: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        None
    }
}

/// A condition variable.
#[cfg(not(shuttle))]
#[derive(Default)]
pub(crate) struct Condvar(std::sync::Condvar);

#[cfg(not(shuttle))]
impl Condvar {
    pub fn new() -> Condvar {
        Condvar::default()
    }

    fn place(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    pub fn notify_one(&self) {
        // In a simulation, who comes first is drawn anyway.
        self.0.notify_one();
        if sim::any() {
            sim::notify(self.place());
        }
    }

    #[inline]
    pub fn notify_all(&self) {
        self.0.notify_all();
        if sim::any() {
            sim::notify(self.place());
        }
    }
}

/// The calling thread.
pub(crate) fn this_thread() -> ThreadId {
    current().id()
}

/// Takes the lock.
#[inline]
pub(crate) fn lock<T: ?Sized>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(not(shuttle))]
    if sim::any()
        && let Some(guard) = sim::lock(m)
    {
        return guard;
    }
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// Waits to be notified.
#[cfg(not(shuttle))]
pub(crate) fn wait<'a, T>(c: &Condvar, guard: MutexGuard<'a, T>, m: &'a Mutex<T>) -> MutexGuard<'a, T> {
    if sim::any() && sim::is_task() {
        drop(guard);
        sim::wait(c.place(), None);
        return lock(m);
    }
    c.0.wait(guard).unwrap_or_else(|e| e.into_inner())
}

/// Waits to be notified.
#[cfg(shuttle)]
pub(crate) fn wait<'a, T>(c: &Condvar, guard: MutexGuard<'a, T>, _: &'a Mutex<T>) -> MutexGuard<'a, T> {
    c.wait(guard).unwrap_or_else(|e| e.into_inner())
}

/// Waits to be notified, at most so long, and gives the lock up.
pub(crate) fn wait_briefly<T>(c: &Condvar, guard: MutexGuard<'_, T>, most: Duration) {
    #[cfg(not(shuttle))]
    {
        if sim::any() && sim::is_task() {
            drop(guard);
            return sim::wait(c.place(), Some(most));
        }
        drop(c.0.wait_timeout(guard, most));
    }
    #[cfg(shuttle)]
    drop(c.wait_timeout(guard, most));
}
