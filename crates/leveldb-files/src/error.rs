//! What can be wrong with a store.

use std::io;
use std::path::{Path, PathBuf};

/// Why a store, or the rest of it, cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory holds no LevelDB store.
    #[error("no LevelDB store in {}: {why}", dir.display())]
    NoStore {
        /// The directory.
        dir: PathBuf,
        /// What is missing, or what it holds instead.
        why: String,
    },
    /// A program has the store open.
    #[error("{} is in use: a program has this LevelDB store open and would change it meanwhile; end that program first",
        .0.display())]
    InUse(PathBuf),
    /// A file is not what LevelDB wrote.
    #[error("{}, byte {offset}: {why}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        why: String,
    },
    /// The store is whole, as far as can be told, but made in a way that this crate does not read.
    #[error("{}: {why}", file.display())]
    Unsupported {
        /// The file that says so.
        file: PathBuf,
        /// What it is.
        why: String,
    },
    /// The system's answer to a call.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The error.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(file: &Path, source: io::Error) -> Error {
        Error::Io { file: file.into(), source }
    }

    pub(crate) fn damaged(file: &Path, offset: u64, why: impl Into<String>) -> Error {
        Error::Damaged { file: file.into(), offset, why: why.into() }
    }

    pub(crate) fn unsupported(file: &Path, why: impl Into<String>) -> Error {
        Error::Unsupported { file: file.into(), why: why.into() }
    }
}
