//! The faults, and what must come of each.

/// How the operations must end. Whatever is wanted, no read may be wrong and every successful write must be there.
#[derive(Clone, Copy, Debug)]
pub enum Want {
    /// All succeed.
    Ok,
    /// Some fail with this errno, the others succeed; or are canceled or refused in consequence.
    Some(i32),
    /// All whose name begins so fail with this errno, all others succeed, or are canceled or refused in consequence.
    All(&'static str, i32),
    /// One of this name ends so.
    Says(&'static str, &'static str),
}

pub struct Case {
    pub engine: &'static str,
    /// `CALL:ANSWER[:when=WHEN]`; `when=+N` counts from the end of the engine's opening.
    pub faults: &'static [&'static str],
    /// Only calls on the test's file.
    pub on_file: bool,
    pub work: &'static str,
    pub want: Want,
}

impl Case {
    pub fn name(&self) -> String {
        format!("{} {} [{}]", self.engine, self.work, self.faults.join(" "))
    }
}

use Want::{All, Ok, Says, Some};
use libc::{EBADF, EDQUOT, EIO, EMFILE, ENOMEM, ENOSPC};

type Row = (&'static [&'static str], &'static str, Want);

/// Plain calls on the file: every engine makes them, posix for everything.
const PLAIN: &[Row] = &[
    (&["pread64:error=EINTR:when=1+2"], "read", Ok),
    (&["pread64:error=EAGAIN:when=1+2"], "read", Ok),
    (&["pread64:error=EIO:when=3"], "read", Some(EIO)),
    (&["pread64:error=EIO"], "read", Some(EIO)),
    (&["pread64:retval=4096:when=1+2"], "read", Ok),
    (&["pread64:retval=0:when=2"], "read", Says("read", "short 0")),
    (&["pwrite64:error=EINTR:when=1+2"], "write", Ok),
    (&["pwrite64:error=EAGAIN:when=1+2"], "write", Ok),
    (&["pwrite64:error=ENOSPC:when=2"], "write", Some(ENOSPC)),
    (&["pwrite64:error=EDQUOT"], "write", Some(EDQUOT)),
    (&["pwrite64:error=EIO:when=1+3"], "write", Some(EIO)),
    (&["pwrite64:retval=4096:when=1+2"], "write", Ok),
    (&["pwrite64:retval=0:when=1"], "write", Some(EIO)),
    (&["pwritev2:error=EINTR:when=1+2"], "durable", Ok),
    (&["pwritev2:error=EOPNOTSUPP"], "durable", Ok),
    (&["pwritev2:retval=4096:when=1+2"], "durable", Ok),
    (&["pwritev2:error=EIO:when=1"], "durable", Some(EIO)),
    (&["pwritev2:error=EIO:when=1"], "durable", Says("sync", "SyncFailed")),
    (&["pwritev2:error=ENOSPC:when=2"], "durable", Some(ENOSPC)),
    (&["fdatasync:error=EINTR:when=1+2"], "durable", Ok),
    (&["fdatasync:error=EIO:when=1"], "durable", Some(EIO)),
    // The kernel would report success the second time.
    (&["fdatasync:error=EIO:when=1"], "durable", Says("fsync", "SyncFailed")),
    (&["fsync:error=EIO:when=1"], "durable", Says("fsync", "err 5 ")),
    (&["fallocate:error=EINTR:when=1+2"], "space", Ok),
    (&["fallocate:error=EOPNOTSUPP"], "space", Ok),
    (&["fallocate:error=ENOSPC"], "space", All("allocate", ENOSPC)),
    (&["ftruncate:error=EINTR:when=1+2"], "space", Ok),
    (&["ftruncate:error=EIO"], "space", All("truncate", EIO)),
    (&["preadv:error=EINTR:when=1+2"], "vectored_reads", Ok),
    (&["preadv:error=EAGAIN:when=1+2"], "vectored_reads", Ok),
    (&["preadv:retval=4096:when=1+2"], "vectored_reads", Ok),
    (&["preadv:retval=0:when=2"], "vectored_reads", Says("read", "short 0")),
    (&["preadv:error=EIO:when=3"], "vectored_reads", Some(EIO)),
    (&["pwritev:error=EINTR:when=1+2"], "vectored_writes", Ok),
    (&["pwritev:retval=4096:when=1+2"], "vectored_writes", Ok),
    (&["pwritev:retval=0:when=1"], "vectored_writes", Some(EIO)),
    (&["pwritev:error=ENOSPC:when=2"], "vectored_writes", Some(ENOSPC)),
    (&["pwritev2:retval=4096:when=1+2"], "vectored_durable", Ok),
    (&["pwritev2:error=EOPNOTSUPP"], "vectored_durable", Ok),
    (&["pwritev2:error=EIO:when=1"], "vectored_durable", Some(EIO)),
    // Transfers that do not stay in the page cache; where there are none, they are done as ever.
    (&["preadv2:error=EOPNOTSUPP"], "streamed", Ok),
    (&["preadv2:error=EINTR:when=1+2"], "streamed", Ok),
    (&["preadv2:retval=4096:when=1"], "streamed", Ok),
    (&["preadv2:error=EIO:when=2"], "streamed", Some(EIO)),
    (&["pwritev2:error=EOPNOTSUPP"], "streamed_write", Ok),
    (&["pwritev2:retval=4096:when=1+2"], "streamed_write", Ok),
    (&["pwritev2:error=ENOSPC:when=2"], "streamed_write", Some(ENOSPC)),
    (&["openat:error=EMFILE:when=1"], "read", All("open", EMFILE)),
    (&["openat:error=EINTR:when=1"], "read", Ok),
];

/// What posix alone does by plain calls.
const POSIX: &[Row] = &[
    (&["pread64:error=EAGAIN"], "read", Some(libc::EAGAIN)),
    (&["pread64:error=EINTR"], "read", Some(libc::EINTR)),
    // What is said of a read that must not wait is not believed: a thread reads.
    (&["preadv2:error=EAGAIN"], "cached", Ok),
    (&["preadv2:error=EOPNOTSUPP"], "cached", Ok),
    (&["preadv2:error=EIO"], "cached", Ok),
    (&["preadv2:retval=4096:when=1+3"], "cached", Ok),
    (&["preadv2:retval=0"], "cached", Ok),
    (&["preadv2:error=EAGAIN", "pread64:error=EIO:when=2"], "cached", Some(EIO)),
    (&["fdatasync:error=EIO"], "durable", Says("batch_sync", "err 5 ")),
];

/// Calls that are not on the file.
const LIBAIO: &[Row] = &[
    (&["io_setup:error=EAGAIN"], "open", Says("engine", "aio-max-nr")),
    (&["io_setup:error=ENOSYS"], "open", Says("engine", "Unsupported")),
    (&["io_setup:error=EAGAIN:when=+1+"], "read", Ok),
    // Older kernels: what opening tries in turn is refused.
    (&["io_submit:error=EINVAL:when=1"], "reasons", Says("engine", "fdatasync of native AIO do not work")),
    (&["io_submit:error=EINVAL:when=1"], "durable", Ok),
    (&["io_submit:error=EINVAL:when=3"], "reasons", Says("engine", "(RWF_DSYNC) of native AIO do not work")),
    (&["io_submit:error=EINVAL:when=3"], "durable", Ok),
    (
        &["io_submit:error=EINVAL:when=4"],
        "reasons",
        Says("engine", "vectored transfers of native AIO do not work"),
    ),
    (&["io_submit:error=EINVAL:when=6"], "open", Says("engine", "Unsupported")),
    (&["io_setup:error=EAGAIN:when=+1+"], "queue", Says("queue", "Unsupported")),
    (&["io_submit:error=EINTR:when=1+2"], "read", Ok),
    (&["io_submit:error=EINTR:when=+1+2"], "write", Ok),
    (&["io_submit:error=EINTR:when=+1+"], "write", All("batch", libc::EINTR)),
    (&["io_submit:error=EAGAIN:when=+1+2"], "read", Ok),
    (&["io_submit:error=EAGAIN:when=+1+2"], "write", Ok),
    (&["io_submit:error=EAGAIN:when=+1+2"], "durable", Ok),
    (&["io_submit:error=EAGAIN:when=+1+2"], "queue", Ok),
    (&["io_submit:error=EAGAIN:when=+1+"], "read", Ok),
    (&["io_submit:error=EAGAIN:when=+1+"], "write", Ok),
    (&["io_submit:error=EAGAIN:when=+2+"], "durable", Ok),
    (&["io_submit:error=EAGAIN:when=+3+"], "queue", Ok),
    (&["io_submit:error=ENOSYS:when=+1+"], "read", Ok),
    (&["io_submit:error=EIO:when=+1"], "read", Some(EIO)),
    (&["io_submit:error=EIO:when=+1+"], "read", All("batch", EIO)),
    (&["io_submit:error=EIO:when=+1+"], "write", All("batch", EIO)),
    (&["io_submit:error=ENOSPC:when=+1+"], "write", All("batch", ENOSPC)),
    (&["io_submit:error=EIO:when=+1+"], "durable", Says("batch_sync", "SyncFailed")),
    (&["io_submit:error=EIO:when=+1+"], "queue", All("batch", EIO)),
    (&["io_submit:error=EBADF:when=+2"], "queue", Some(EBADF)),
    (&["io_getevents:error=EINTR:when=1+2"], "read", Ok),
    (&["io_getevents:error=EINTR:when=+1+2"], "write", Ok),
    (&["io_getevents:error=EINTR:when=+1+2"], "durable", Ok),
    (&["io_getevents:error=EINTR:when=+1+2"], "queue", Ok),
    (&["io_getevents:error=EINTR:when=+1+"], "read", All("batch", libc::EINTR)),
    (&["io_getevents:error=EIO:when=+1+"], "read", All("batch", EIO)),
    (&["io_getevents:error=EIO:when=+1+"], "durable", Says("batch_dwrite", "err 5 ")),
    (&["io_getevents:error=EIO:when=+1+"], "queue", Says("wait", "err 5 ")),
    (&["io_getevents:error=EFAULT:when=+2"], "queue", Says("wait", "err 14 ")),
];

const IO_URING: &[Row] = &[
    (&["io_uring_setup:error=EPERM"], "open", Says("engine", "Unsupported")),
    (&["io_uring_setup:error=ENOSYS"], "open", Says("engine", "Linux 5.6")),
    (&["io_uring_setup:error=ENOMEM"], "open", Says("engine", "RLIMIT_MEMLOCK")),
    (&["io_uring_setup:error=EMFILE"], "open", Says("engine", "RLIMIT_NOFILE")),
    // The newest flag is dropped, and all goes on without it.
    (&["io_uring_setup:error=EINVAL:when=1"], "read", Ok),
    (&["io_uring_setup:error=EMFILE:when=+1+"], "read", Ok),
    (&["io_uring_setup:error=ENOMEM:when=+1+"], "durable", Ok),
    (&["io_uring_setup:error=ENOMEM:when=+1+"], "queue", All("queue", ENOMEM)),
    (&["io_uring_enter:error=EPERM"], "open", Says("engine", "Unsupported")),
    (&["io_uring_enter:error=EINTR:when=1+2"], "read", Ok),
    (&["io_uring_enter:error=EINTR:when=+1+2"], "write", Ok),
    (&["io_uring_enter:error=EINTR:when=+1+2"], "durable", Ok),
    (&["io_uring_enter:error=EINTR:when=+1+2"], "queue", Ok),
    (&["io_uring_enter:error=EAGAIN:when=+1+2"], "read", Ok),
    (&["io_uring_enter:error=EAGAIN:when=+1+2"], "durable", Ok),
    (&["io_uring_enter:error=EBUSY:when=+1+2"], "write", Ok),
    (&["io_uring_enter:error=EBUSY:when=+1+2"], "queue", Ok),
    // Nothing is taken any more: plain calls do it all.
    (&["io_uring_enter:error=EAGAIN:when=+1+"], "read", Ok),
    (&["io_uring_enter:error=EAGAIN:when=+1+"], "write", Ok),
    (&["io_uring_enter:error=EAGAIN:when=+1+"], "durable", Ok),
    (&["io_uring_enter:error=EINTR:when=+1+"], "read", All("batch", libc::EINTR)),
    (&["io_uring_enter:error=EIO:when=+1"], "read", All("batch", EIO)),
    (&["io_uring_enter:error=EIO:when=+1+"], "read", All("batch", EIO)),
    (&["io_uring_enter:error=EIO:when=+1+"], "write", All("batch", EIO)),
    (&["io_uring_enter:error=EIO:when=+1+"], "durable", Says("batch_sync", "err 5 ")),
    // A kernel that has no tables of files or buffers, and knows no number of rings.
    (&["io_uring_register:error=EINVAL"], "read", Ok),
    (&["io_uring_register:error=EINVAL:when=+1+"], "vectored_reads", Ok),
    (&["io_uring_enter:error=EIO:when=+2+"], "queue", Says("wait", "err 5 ")),
    (&["io_uring_enter:error=ENXIO:when=+3+"], "queue", Says("wait", "err 6 ")),
];

/// `auto` goes on with what works, and says why.
const AUTO: &[(&[&str], Want)] = &[
    (
        &["io_uring_setup:error=EPERM"],
        Says("engine", "libaio io_uring: io_uring_setup: Operation not permitted"),
    ),
    (&["io_uring_setup:error=ENOSYS", "io_setup:error=ENOSYS"], Says("engine", "posix io_uring:")),
    (&["io_uring_enter:error=EPERM", "io_submit:error=EINVAL"], Says("engine", "posix io_uring:")),
];

pub fn all() -> Vec<Case> {
    let mut out = Vec::new();
    for engine in ["posix", "libaio", "io_uring"] {
        let own = match engine {
            "posix" => &[],
            "libaio" => LIBAIO,
            _ => IO_URING,
        };
        let posix = if engine == "posix" { POSIX } else { &[] };
        for (rows, on_file) in [(PLAIN, true), (posix, true), (own, false)] {
            for &(faults, work, want) in rows {
                out.push(Case { engine, faults, on_file, work, want });
            }
        }
    }
    for &(faults, want) in AUTO {
        out.push(Case { engine: "io_uring", faults, on_file: false, work: "auto", want });
    }
    out
}
