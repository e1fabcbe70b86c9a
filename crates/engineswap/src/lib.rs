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

mod buf;
pub mod engine;
mod error;
mod file;
mod io;
pub mod mem;
mod mutation;
mod op;
pub mod probes;
mod shared;
mod stats;
mod sync;
pub mod uri;

pub use buf::{Buf, Piece};
pub use engine::sim;
pub use error::{Error, ErrorKind, Result};
pub use file::{Advice, Alignment, Direct, File, FileInfo, FileLock, MappedFile, OpenHow};
pub use io::{DirEntry, EngineInfo, Io, Metadata, Queue, Registration};
#[cfg(feature = "mutations")]
pub use mutation::ignore_short_writes;
pub use op::{Done, Op, OpKind, Purpose};
pub use shared::SharedQueue;
pub use stats::{IoStats, OpClass, OpStats};
pub use uri::Config;

/// Lowers the scheduling priority of the calling thread (nice 10), for background work. Best effort.
pub fn lower_thread_priority() {
    // SAFETY: plain system calls without pointers; on Linux PRIO_PROCESS with a thread id acts on that thread.
    unsafe {
        let tid = libc::syscall(libc::SYS_gettid) as libc::id_t;
        libc::setpriority(libc::PRIO_PROCESS, tid, 10);
    }
}
