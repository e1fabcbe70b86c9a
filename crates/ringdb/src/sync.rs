//! Locks that do not poison: a panic while one is held is a bug whose message has been printed, and the data
//! behind every lock of the store is valid between statements.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Takes the lock.
#[inline]
pub(crate) fn lock<T: ?Sized>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// Waits to be notified.
pub(crate) fn wait<'a, T>(c: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    c.wait(guard).unwrap_or_else(|e| e.into_inner())
}
