//! The locks and atomics that threads meet at; Shuttle's under `--cfg shuttle`, which runs threads one
//! at a time in an order that it chooses and can repeat (tests/shuttle.rs).

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(shuttle)]
pub(crate) use shuttle::thread_local as per_thread;
#[cfg(not(shuttle))]
pub(crate) use std::thread_local as per_thread;
