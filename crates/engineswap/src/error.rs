//! I/O errors that say what was tried, where, and what the kernel answered.

use std::fmt;
use std::path::{Path, PathBuf};

/// Result of an I/O call.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure it was, for callers that act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The path does not exist.
    NotFound,
    /// The path exists already.
    AlreadyExists,
    /// Permission denied, or a read-only file system.
    PermissionDenied,
    /// No space, quota or file size left.
    NoSpace,
    /// The process or the machine has run out of descriptors, buffers or memory for now: the same call may succeed
    /// later.
    Exhausted,
    /// The two paths are on different file systems.
    CrossesFileSystems,
    /// Another process holds the lock.
    Locked,
    /// The file ended before the bytes asked for.
    UnexpectedEof,
    /// The engine or an option of it cannot be had here.
    Unsupported,
    /// A URI or an argument is wrong.
    InvalidInput,
    /// An earlier operation of an ordered chain failed, so this one was not done; or its caller took it back.
    Canceled,
    /// The operation did not end within its time limit and was taken back.
    TimedOut,
    /// A sync of this directory, or an earlier one of this file, failed; its state is unknown for good.
    SyncFailed,
    /// Anything else that the kernel reports.
    Io,
}

/// An I/O failure. One pointer: results are moved several times for each operation, and failures are rare.
#[derive(Clone)]
pub struct Error(Box<Failure>);

#[derive(Clone, Debug)]
struct Failure {
    kind: ErrorKind,
    op: &'static str,
    path: Option<PathBuf>,
    range: Option<(u64, u64)>,
    errno: Option<i32>,
    detail: Option<String>,
}

impl Error {
    /// From an errno of the kernel.
    pub fn from_errno(op: &'static str, errno: i32) -> Error {
        let kind = match errno {
            libc::ENOENT => ErrorKind::NotFound,
            libc::EEXIST | libc::ENOTEMPTY => ErrorKind::AlreadyExists,
            libc::EACCES | libc::EPERM | libc::EROFS => ErrorKind::PermissionDenied,
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => ErrorKind::NoSpace,
            libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS | libc::EAGAIN => ErrorKind::Exhausted,
            libc::EXDEV => ErrorKind::CrossesFileSystems,
            libc::ECANCELED => ErrorKind::Canceled,
            libc::ENOSYS | libc::EOPNOTSUPP => ErrorKind::Unsupported,
            _ => ErrorKind::Io,
        };
        Error(Box::new(Failure { kind, op, path: None, range: None, errno: Some(errno), detail: None }))
    }

    /// From the calling thread's last `errno`.
    pub fn last_os(op: &'static str) -> Error {
        Error::from_errno(op, std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// From an error of the standard library.
    pub fn from_std(op: &'static str, e: &std::io::Error) -> Error {
        match e.raw_os_error() {
            Some(n) => Error::from_errno(op, n),
            None => Error::new(ErrorKind::Io, op, e.to_string()),
        }
    }

    /// With a kind and a detail, no errno.
    pub fn new(kind: ErrorKind, op: &'static str, detail: impl Into<String>) -> Error {
        let detail = Some(detail.into());
        Error(Box::new(Failure { kind, op, path: None, range: None, errno: None, detail }))
    }

    /// Adds the path.
    pub fn at(mut self, path: &Path) -> Error {
        self.0.path = Some(path.to_path_buf());
        self
    }

    /// Adds the byte range (offset and length).
    pub fn range(mut self, offset: u64, len: u64) -> Error {
        self.0.range = Some((offset, len));
        self
    }

    /// Adds or replaces the detail, for example the remedy.
    pub fn detail(mut self, detail: impl Into<String>) -> Error {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds to the detail.
    pub fn more(self, more: &str) -> Error {
        let detail = match &self.0.detail {
            Some(d) => format!("{d}; {more}"),
            None => more.to_string(),
        };
        self.detail(detail)
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The same error under another kind.
    pub fn with_kind(mut self, kind: ErrorKind) -> Error {
        self.0.kind = kind;
        self
    }

    /// The kernel's errno, where there was one.
    pub fn errno(&self) -> Option<i32> {
        self.0.errno
    }

    /// The path, where known.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { kind, op, path, range, errno, detail } = &*self.0;
        let mut f = f.debug_struct("Error");
        f.field("kind", kind).field("op", op).field("path", path);
        f.field("range", range).field("errno", errno).field("detail", detail).finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.op)?;
        if let Some(p) = &self.0.path {
            write!(f, " {}", p.display())?;
        }
        if let Some((o, l)) = self.0.range {
            write!(f, " at offset {o}, length {l}")?;
        }
        if let Some(n) = self.0.errno {
            write!(f, ": {}", std::io::Error::from_raw_os_error(n))?;
        }
        if let Some(d) = &self.0.detail {
            write!(f, ": {d}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

const _: () = assert!(size_of::<Result<u64>>() == 16, "a result costs each operation this much");
