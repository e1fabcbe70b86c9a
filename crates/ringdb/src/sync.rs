//! Locks that do not poison: a panic while one is held is a bug whose message has been printed, and the data
//! behind every lock of the store is valid between statements.
//!
//! Under `--cfg shuttle` these are Shuttle's, which runs the store's threads one at a time in an order that it chooses
//! and can repeat (tests/shuttle.rs, `make shuttle`). So the store takes its locks, and the atomics that threads meet
//! at, from here.

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};

/// Takes the lock.
#[inline]
pub(crate) fn lock<T: ?Sized>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// Waits to be notified.
pub(crate) fn wait<'a, T>(c: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    c.wait(guard).unwrap_or_else(|e| e.into_inner())
}
