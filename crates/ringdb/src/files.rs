//! The names of a store's files.
//!
//! One counter numbers tables, log segments and manifests, so a number is never used for two files. A name is
//! the store's own only in its canonical form: six digits, more when needed.

use std::path::{Path, PathBuf};

pub(crate) const LOCK: &str = "LOCK";
pub(crate) const CURRENT: &str = "CURRENT";
/// CURRENT before it is renamed into place.
pub(crate) const CURRENT_TMP: &str = "CURRENT.tmp";

/// The socket by which an open store is reached.
pub(crate) const SOCKET: &str = "SOCKET";
/// A directory of its owner only, in which it is made under another name.
pub(crate) const SOCKET_MAKING: &str = "SOCKET.new";
pub(crate) const SOCKET_NEW: &str = "s";

/// What a recovery appends to the names of tables that nothing refers to, when it is not sure of itself.
pub(crate) const ORPHAN: &str = ".orphan";
/// And to the names of damaged log segments.
pub(crate) const DAMAGED: &str = ".damaged";

/// No store has given out larger numbers: a file that has one is not its own, and counting on would overflow.
pub(crate) const MAX_NUMBER: u64 = 1 << 61;

/// What a file of a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileKind {
    Lock,
    Current,
    /// Left by a crash between writing and renaming.
    CurrentTmp,
    Manifest(u64),
    Table(u64),
    Log(u64),
}

/// What the name says; `None` if it is not one that the store gives.
pub(crate) fn parse(name: &str) -> Option<FileKind> {
    let kind = match name {
        LOCK => FileKind::Lock,
        CURRENT => FileKind::Current,
        CURRENT_TMP => FileKind::CurrentTmp,
        _ => {
            if let Some(n) = name.strip_prefix("MANIFEST-") {
                FileKind::Manifest(n.parse().ok()?)
            } else if let Some(n) = name.strip_suffix(".sst") {
                FileKind::Table(n.parse().ok()?)
            } else {
                FileKind::Log(name.strip_suffix(".log")?.parse().ok()?)
            }
        }
    };
    (kind.name() == name && kind.number().is_none_or(|n| n <= MAX_NUMBER)).then_some(kind)
}

impl FileKind {
    /// The file's name.
    pub fn name(self) -> String {
        match self {
            FileKind::Lock => LOCK.into(),
            FileKind::Current => CURRENT.into(),
            FileKind::CurrentTmp => CURRENT_TMP.into(),
            FileKind::Manifest(n) => format!("MANIFEST-{n:06}"),
            FileKind::Table(n) => format!("{n:06}.sst"),
            FileKind::Log(n) => format!("{n:06}.log"),
        }
    }

    /// Its path in the store's directory.
    pub fn path(self, dir: &Path) -> PathBuf {
        dir.join(self.name())
    }

    /// Its number, for the kinds that have one.
    pub fn number(self) -> Option<u64> {
        match self {
            FileKind::Manifest(n) | FileKind::Table(n) | FileKind::Log(n) => Some(n),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_names_are_the_stores_own() {
        for k in [
            FileKind::Lock,
            FileKind::Current,
            FileKind::CurrentTmp,
            FileKind::Manifest(1),
            FileKind::Table(999_999),
            FileKind::Table(1_000_000),
            FileKind::Log(MAX_NUMBER),
        ] {
            assert_eq!(parse(&k.name()), Some(k));
        }
        for name in [
            "18446744073709551615.log",
            "1.sst",
            "0000001.sst",
            "+00001.log",
            "000001.sst.bak",
            "x.log",
            "MANIFEST-",
            "lock",
            ".log",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
