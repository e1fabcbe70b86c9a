//! Directory operations.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::info::{DirEntry, Metadata};
use crate::{Error, ErrorKind, Result};

fn at<'a>(op: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> Error + 'a {
    move |e| Error::from_std(op, &e).at(path)
}

pub(crate) fn metadata(path: &Path) -> Result<Option<Metadata>> {
    match std::fs::metadata(path) {
        Ok(m) => {
            Ok(Some(Metadata { len: m.len(), is_dir: m.is_dir(), is_socket: m.file_type().is_socket() }))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(at("stat", path)(e)),
    }
}

pub(crate) fn read_dir(path: &Path) -> Result<Vec<DirEntry>> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(path).map_err(at("read directory", path))? {
        let entry = entry.map_err(at("read directory", path))?;
        let is_dir = entry.file_type().map_err(at("read directory", path))?.is_dir();
        out.push(DirEntry { name: entry.file_name().to_string_lossy().into_owned(), is_dir });
    }
    Ok(out)
}

pub(crate) fn create_dir_all(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(at("create directory", path))
}

pub(crate) fn remove_file(path: &Path) -> Result<()> {
    std::fs::remove_file(path).map_err(at("unlink", path))
}

pub(crate) fn remove_dir(path: &Path) -> Result<()> {
    std::fs::remove_dir(path).map_err(at("remove directory", path))
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|e| at("rename", from)(e).detail(format!("to {}", to.display())))
}

pub(crate) fn hard_link(from: &Path, to: &Path) -> Result<()> {
    std::fs::hard_link(from, to).map_err(|e| at("link", from)(e).detail(format!("to {}", to.display())))
}

pub(crate) fn real_path(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).map_err(at("real path", path))
}

/// A directory to be synced by [`sync_open_dir`].
pub(crate) fn open_dir(path: &Path) -> Result<OwnedFd> {
    Ok(std::fs::File::open(path).map_err(at("open directory", path))?.into())
}

pub(crate) fn sync_dir(path: &Path) -> Result<()> {
    sync_open_dir(&open_dir(path)?, path)
}

pub(crate) fn sync_open_dir(dir: &OwnedFd, path: &Path) -> Result<()> {
    loop {
        // SAFETY: a plain system call on a descriptor that `dir` keeps open.
        if unsafe { libc::fsync(dir.as_raw_fd()) } == 0 {
            return Ok(());
        }
        let e = std::io::Error::last_os_error();
        match e.raw_os_error() {
            Some(libc::EINTR) => {}
            // The file system has no fsync of directories at all (some FUSE and network ones): nothing more
            // can be done there, and the call would fail always.
            Some(libc::EINVAL) => return Ok(()),
            // Whatever the reason: the kernel may take for written what is not.
            _ => return Err(at("fsync directory", path)(e).with_kind(ErrorKind::SyncFailed)),
        }
    }
}
