//! The locks and atomics that threads meet at in [`crate::mem`]; Shuttle's under `--cfg shuttle`, which runs threads one
//! at a time in an order that it chooses and can repeat (tests/shuttle.rs).

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

/// Statics with one value in the process, or in the order that is being tried.
#[cfg(not(shuttle))]
macro_rules! shared {
    ($($(#[$attr:meta])* static $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$attr])* static $name: $type = $value;)*
    };
}

#[cfg(shuttle)]
macro_rules! shared {
    ($($(#[$attr:meta])* static $name:ident: $type:ty = $value:expr;)*) => {
        shuttle::lazy_static! { $($(#[$attr])* static ref $name: $type = $value;)* }
    };
}

#[cfg(shuttle)]
pub(crate) use shuttle::thread_local as per_thread;
#[cfg(not(shuttle))]
pub(crate) use std::thread_local as per_thread;

pub(crate) use shared;
