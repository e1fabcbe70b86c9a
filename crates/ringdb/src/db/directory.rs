//! What a directory holds before a store in it is opened: nothing, an unfinished store, a store, something else.

use std::path::{Path, PathBuf};

use engineswap::{FileLock, Io};

use crate::files::{self, FileKind, SOCKET, SOCKET_MAKING};
use crate::open_stores::OpenStore;
use crate::{Error, Result};

/// What is in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DirState {
    /// There is no such directory.
    Nothing,
    /// An empty directory, or what a crash leaves while a store is made: no manifest is in force.
    Unfinished(Vec<FileKind>),
    /// A store, with its own files.
    Store(Vec<FileKind>),
}

/// Names that do not make a directory somebody else's: what mkfs leaves in a new file system, and what a store that was
/// killed, then removed in part, leaves.
const IGNORED: [&str; 3] = ["lost+found", SOCKET, SOCKET_MAKING];

/// Looks at a directory; an error if what it holds is not a store's. Changes nothing.
pub(super) fn look(io: &Io, dir: &Path) -> Result<DirState> {
    let no_store = |detail: String| Error::NoStore { path: dir.to_path_buf(), detail };
    match io.metadata(dir)? {
        None => return Ok(DirState::Nothing),
        Some(m) if !m.is_dir => return Err(no_store("it is not a directory".into())),
        Some(_) => {}
    }
    let entries = io.read_dir(dir)?;
    let own: Vec<FileKind> =
        entries.iter().filter(|e| !e.is_dir).filter_map(|e| files::parse(&e.name)).collect();
    if own.contains(&FileKind::Current) {
        return Ok(DirState::Store(own));
    }
    let mut foreign: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
    foreign.retain(|n| files::parse(n).is_none() && !IGNORED.contains(n));
    foreign.sort_unstable();
    if let Some(first) = foreign.first() {
        return Err(no_store(format!("it holds something else ({first}, {} in all)", foreign.len())));
    }
    // Tables and segments come only after CURRENT has.
    if own.iter().any(|k| matches!(k, FileKind::Table(_) | FileKind::Log(_))) {
        let detail = "it is missing, but tables or log segments are there";
        return Err(Error::corrupt(&FileKind::Current.path(dir), None, detail));
    }
    Ok(DirState::Unfinished(own))
}

/// The name of a directory by which the same store is known, whatever leads to it.
pub(crate) fn real_path(io: &Io, dir: &Path) -> PathBuf {
    io.real_path(dir).unwrap_or_else(|_| dir.to_path_buf())
}

/// Keeps other processes, and other opens of this one, out until it is dropped.
pub(crate) struct StoreLock {
    _open: OpenStore,
    _file: FileLock,
}

/// Takes the lock of the store in a directory.
pub(super) fn lock(io: &Io, dir: &Path) -> Result<StoreLock> {
    let real = real_path(io, dir);
    let file = io.lock_file(&FileKind::Lock.path(dir)).map_err(|e| match e.kind() {
        engineswap::ErrorKind::Locked => Error::Locked(real.clone()),
        engineswap::ErrorKind::PermissionDenied => {
            Error::Io(e.detail("the store cannot be opened for writing here; open it read-only"))
        }
        _ => e.into(),
    })?;
    Ok(StoreLock { _open: OpenStore::new(real), _file: file })
}

/// Makes a directory and its missing parents, durably. If that fails nothing stays: names whose sync has failed may
/// never become durable, so another try has to make them anew.
pub(crate) fn make_dir(io: &Io, dir: &Path) -> Result<()> {
    let mut missing = Vec::new();
    for d in dir.ancestors().filter(|d| !d.as_os_str().is_empty()) {
        if io.metadata(d)?.is_some() {
            break;
        }
        missing.push(d);
    }
    let made = io.create_dir_all(dir).map_err(Error::from).and_then(|()| sync_name(io, dir));
    if made.is_err() {
        // The first error is the one to report.
        missing.into_iter().for_each(|d| drop(io.remove_dir(d)));
    }
    made
}

/// Makes the names of a directory and of its parents durable, as far as theirs may be opened. All of them: who made
/// them may have failed before that.
pub(crate) fn sync_name(io: &Io, dir: &Path) -> Result<()> {
    for d in dir.ancestors().filter(|d| !d.as_os_str().is_empty()) {
        match io.sync_dir(parent(d)) {
            Err(e) if d != dir && e.kind() == engineswap::ErrorKind::Unsupported => {}
            Err(e) if e.kind() == engineswap::ErrorKind::PermissionDenied => {}
            r => r?,
        }
    }
    Ok(())
}

fn parent(dir: &Path) -> &Path {
    dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(match dir.has_root() {
        true => dir,
        false => Path::new("."),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_told_apart() {
        let io = Io::from_uri("posix").unwrap();
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path();
        let touch = |n: &str| std::fs::write(dir.join(n), "").unwrap();
        assert_eq!(look(&io, &dir.join("none")).unwrap(), DirState::Nothing);
        assert_eq!(look(&io, dir).unwrap(), DirState::Unfinished(vec![]));
        std::fs::create_dir(dir.join("lost+found")).unwrap();
        touch("LOCK");
        touch("MANIFEST-000001");
        assert!(matches!(look(&io, dir).unwrap(), DirState::Unfinished(own) if own.len() == 2));
        touch("000002.log");
        assert!(matches!(look(&io, dir), Err(Error::Corrupt { .. })));
        touch("mail");
        assert!(matches!(look(&io, dir), Err(Error::NoStore { .. })));
        touch("CURRENT");
        assert!(matches!(look(&io, dir).unwrap(), DirState::Store(own) if own.len() == 4));
        assert!(matches!(look(&io, &dir.join("mail")), Err(Error::NoStore { .. })));
    }

    #[test]
    fn a_directory_is_locked_once() {
        let io = Io::from_uri("posix").unwrap();
        let tmp = tempfile::tempdir().unwrap();
        let held = lock(&io, tmp.path()).unwrap();
        assert!(matches!(lock(&io, tmp.path()), Err(Error::Locked(_))));
        drop(held);
        lock(&io, tmp.path()).unwrap();
    }
}
