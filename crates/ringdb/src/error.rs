//! Errors, grouped by what the caller does next.

use std::path::PathBuf;

use crate::format_version::FormatVersion;

/// Result of a store's call.
pub type Result<T> = std::result::Result<T, Error>;

/// What the caller can do about an error.
///
/// ```
/// use ringdb::{Db, ErrorKind, Options};
///
/// # let tmp = tempfile::tempdir().expect("a temporary directory");
/// # let dir = tmp.path().join("none");
/// let missing = Db::open(&dir, Options::default().with_create_if_missing(false)).expect_err("no store");
/// match missing.kind() {
///     ErrorKind::Retry => println!("again later: {missing}"),
///     ErrorKind::Repair => println!("see `ringdb verify`: {missing}"),
///     ErrorKind::FixCall => println!("wrong call: {missing}"),
///     _ => println!("{missing}"),
/// }
/// assert_eq!(missing.kind(), ErrorKind::FixCall);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Passing trouble (the lock is held; no space, descriptors or memory): mend the cause and call again. Or a
    /// transaction that another write has got ahead of: run it again.
    Retry,
    /// The store has stopped writing, or the I/O layer fails: reopen after the cause is mended.
    Stop,
    /// Bytes on disk are wrong: see `ringdb verify`.
    Repair,
    /// There is no room now: take what is there, then call again.
    WouldBlock,
    /// The call's deadline has passed; a write may have happened.
    TimedOut,
    /// The call is wrong: an argument, a path, an option.
    FixCall,
}

/// Why a call failed. [`Error::kind`] says what to do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The I/O layer reports a failure.
    #[error("{0}")]
    Io(#[from] engineswap::Error),
    /// Bytes on disk are not what was written.
    #[error("corrupt data in {}{}: {detail}", path.display(), offset.map(|o| format!(" at offset {o}")).unwrap_or_default())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: Option<u64>,
        /// What is wrong.
        detail: String,
    },
    /// The store has stopped accepting writes after an I/O failure.
    #[error("the store has stopped writing: {0}; reads go on; reopen it when the cause is mended")]
    Stopped(String),
    /// Another process has the store open, or this one has already.
    #[error("{} is open in {}", .0.display(), crate::open_stores::holder(.0))]
    Locked(PathBuf),
    /// There is no store, and none was to be created.
    #[error("no store in {}: {detail}", path.display())]
    NoStore {
        /// The directory.
        path: PathBuf,
        /// What is there instead.
        detail: String,
    },
    /// The store was written by a newer version of this library.
    #[error("{} has format version {found}; this version of ringdb reads up to {newest}: use a newer ringdb", path.display())]
    NewerFormat {
        /// The file that says so.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest known here.
        newest: u32,
    },
    /// A file is encrypted with a key that is not to be had, or is another one than was given.
    #[error("{} is encrypted with key {key}: {detail}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The number of the key.
        key: u32,
        /// What is wrong.
        detail: String,
    },
    /// A wrong argument.
    #[error("{0}")]
    Invalid(String),
    /// Writing to a store opened read-only.
    #[error("the store was opened read-only")]
    ReadOnly,
    /// The keyspace was dropped.
    #[error("keyspace '{0}' was dropped")]
    KeyspaceDropped(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The call has not ended within its deadline.
    #[error("the deadline has passed")]
    TimedOut,
    /// What a transaction has read was written by somebody else before it was committed. Nothing of it was written:
    /// begin it again, it will read what is there now.
    #[error(
        "a transaction has read what was written meanwhile ({key}): nothing of it was committed; run it again"
    )]
    Conflict {
        /// The key, or the first of several, for people.
        key: String,
    },
    /// Another transaction has locked a key ([`crate::Transaction::lock`]), and has not given it up in time. Nothing
    /// of this one was written: drop it, and begin it again.
    #[error(
        "key \"{key}\" is locked by another transaction{}: drop this one, and run it again",
        if *deadlock { ", which waits for a key of this one (a deadlock)" } else { "" }
    )]
    KeyLocked {
        /// The key, for people.
        key: String,
        /// Whether waiting would never have ended: the others wait for a key that this transaction has locked.
        deadlock: bool,
    },
    /// As many reads are open as a [`crate::Reads`] may have.
    #[error("as many reads are open as there may be: take answers first")]
    WouldBlock,
}

impl Error {
    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Io(e) => match e.kind() {
                engineswap::ErrorKind::NoSpace
                | engineswap::ErrorKind::Exhausted
                | engineswap::ErrorKind::Locked => ErrorKind::Retry,
                engineswap::ErrorKind::UnexpectedEof => ErrorKind::Repair,
                engineswap::ErrorKind::NotFound
                | engineswap::ErrorKind::AlreadyExists
                | engineswap::ErrorKind::PermissionDenied
                | engineswap::ErrorKind::Unsupported
                | engineswap::ErrorKind::CrossesFileSystems
                | engineswap::ErrorKind::InvalidInput => ErrorKind::FixCall,
                _ => ErrorKind::Stop,
            },
            Error::Corrupt { .. } => ErrorKind::Repair,
            Error::Stopped(_) | Error::Closed => ErrorKind::Stop,
            Error::Locked(_) | Error::Conflict { .. } | Error::KeyLocked { .. } => ErrorKind::Retry,
            Error::WouldBlock => ErrorKind::WouldBlock,
            Error::TimedOut => ErrorKind::TimedOut,
            _ => ErrorKind::FixCall,
        }
    }

    pub(crate) fn newer_format(path: &std::path::Path, found: u32) -> Error {
        Error::NewerFormat { path: path.to_path_buf(), found, newest: FormatVersion::NEWEST.number() }
    }

    pub(crate) fn corrupt(path: &std::path::Path, offset: Option<u64>, detail: impl Into<String>) -> Error {
        Error::Corrupt { path: path.to_path_buf(), offset, detail: detail.into() }
    }
}
