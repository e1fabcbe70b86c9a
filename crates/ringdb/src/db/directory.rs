//! What a directory holds before a store in it is opened: nothing, an unfinished store, a store, something else.

use std::path::Path;

use engineswap::{FileLock, Io};

use crate::files::{self, FileKind};
use crate::{Error, Result};

/// What is in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// There is no such directory.
    Nothing,
    /// An empty directory, or what a crash leaves while a store is made: no manifest is in force.
    Unfinished(Vec<FileKind>),
    /// A store, with its own files.
    Store(Vec<FileKind>),
}

/// Names that do not make a directory somebody else's: what mkfs leaves in a new file system.
const IGNORED: [&str; 1] = ["lost+found"];

/// Looks at a directory; an error if what it holds is not a store's. Changes nothing.
pub(super) fn look(io: &Io, dir: &Path) -> Result<Found> {
    let no_store = |detail: String| Error::NoStore { path: dir.to_path_buf(), detail };
    match io.metadata(dir)? {
        None => return Ok(Found::Nothing),
        Some(m) if !m.is_dir => return Err(no_store("it is not a directory".into())),
        Some(_) => {}
    }
    let entries = io.read_dir(dir)?;
    let own: Vec<FileKind> =
        entries.iter().filter(|e| !e.is_dir).filter_map(|e| files::parse(&e.name)).collect();
    if own.contains(&FileKind::Current) {
        return Ok(Found::Store(own));
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
    Ok(Found::Unfinished(own))
}

/// Keeps other processes, and other opens of this one, out.
pub(super) fn lock(io: &Io, dir: &Path) -> Result<FileLock> {
    io.lock_file(&FileKind::Lock.path(dir)).map_err(|e| match e.kind() {
        engineswap::ErrorKind::Locked => Error::Locked(dir.to_path_buf()),
        engineswap::ErrorKind::PermissionDenied => {
            Error::Io(e.detail("the store cannot be opened for writing here; open it read-only"))
        }
        _ => e.into(),
    })
}

/// Makes a directory and its missing parents, durably.
pub(crate) fn make_dir(io: &Io, dir: &Path) -> Result<()> {
    io.create_dir_all(dir)?;
    sync_name(io, dir)
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
        assert_eq!(look(&io, &dir.join("none")).unwrap(), Found::Nothing);
        assert_eq!(look(&io, dir).unwrap(), Found::Unfinished(vec![]));
        std::fs::create_dir(dir.join("lost+found")).unwrap();
        touch("LOCK");
        touch("MANIFEST-000001");
        assert!(matches!(look(&io, dir).unwrap(), Found::Unfinished(own) if own.len() == 2));
        touch("000002.log");
        assert!(matches!(look(&io, dir), Err(Error::Corrupt { .. })));
        touch("mail");
        assert!(matches!(look(&io, dir), Err(Error::NoStore { .. })));
        touch("CURRENT");
        assert!(matches!(look(&io, dir).unwrap(), Found::Store(own) if own.len() == 4));
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
