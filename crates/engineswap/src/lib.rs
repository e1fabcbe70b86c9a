//! Storage I/O whose engine is chosen at run time by a URI.
//!
//! An [`Io`] is opened from a URI such as `auto`, `posix` or `io_uring?depth=128`. It opens [`File`]s,
//! does directory operations, and hands out [`Queue`]s through which a thread keeps many operations in
//! flight. Whatever the engine, the contract is the same:
//!
//! - a submitted operation owns its buffer and its file until its completion is taken, even if the caller
//!   goes away;
//! - short reads and writes are continued, EINTR and EAGAIN are retried;
//! - an error is the kernel's result, with the operation, path, offset and length;
//! - completions are reaped in bulk; callers take them afterwards.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "engineswap runs on Linux only: its engines are io_uring, libaio and Linux's own system calls"
);

mod buf;
pub mod engine;
mod error;
mod file;
mod how;
mod info;
mod io;
mod kind;
mod map;
pub mod mem;
mod mutation;
mod op;
mod open;
mod os;
pub mod probes;
mod process;
#[cfg(any(test, feature = "sim"))]
mod random;
mod shared;
#[cfg(feature = "sim")]
pub mod sim;
mod stats;
pub mod uri;

pub use buf::{Buf, Piece};
pub use error::{Error, ErrorKind, Result};
pub use file::{File, FileLock};
pub use how::{Advice, Direct, OpenHow};
pub use info::{Alignment, DirEntry, EngineInfo, Metadata};
pub use io::{Dir, Io, Queue, Registration};
pub use kind::{OpKind, Purpose};
pub use map::{MapRange, MappedFile};
#[cfg(feature = "mutations")]
pub use mutation::ignore_short_writes;
pub use op::{Done, Op};
pub use open::open_engine;
pub use process::Process;
pub use shared::SharedQueue;
pub use stats::{IoStats, OpClass, OpStats};
pub use uri::{Config, Uses};

/// Lowers the scheduling priority of the calling thread (nice 10), for background work. Best effort.
pub fn lower_thread_priority() {
    // SAFETY: plain system calls without pointers; on Linux PRIO_PROCESS with a thread id acts on that thread.
    unsafe {
        let tid = libc::syscall(libc::SYS_gettid) as libc::id_t;
        libc::setpriority(libc::PRIO_PROCESS, tid, 10);
    }
}
