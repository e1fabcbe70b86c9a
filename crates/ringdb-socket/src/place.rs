//! Where the socket is: a name in the store's directory, whatever the directory's path is.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The socket's name in the directory of the store.
pub const NAME: &str = "SOCKET";
/// A directory of its owner only, in which it is made.
pub const MAKING: &str = "SOCKET.new";
/// Its name there.
pub const NEW: &str = "s";

/// The address of a socket has room for 108 bytes, the last of them 0.
const LONGEST: usize = 100;

/// Calls `f` with a path of `name` in `dir` that fits an address.
fn reach<T>(dir: &Path, name: &str, f: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let path = dir.join(name);
    if path.as_os_str().as_bytes().len() <= LONGEST {
        return f(&path);
    }
    let dir = File::open(dir)?;
    f(&PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd())))
}

/// A socket that listens.
pub(crate) struct Place {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Place {
    /// Makes the socket in the directory of a store that nobody else has open, in the place of one that was left.
    /// Nobody can connect before only those may who should.
    pub fn listen(dir: &Path) -> io::Result<(Place, UnixListener)> {
        let (path, making) = (dir.join(NAME), dir.join(MAKING));
        if fs::symlink_metadata(&path).is_ok_and(|m| !m.file_type().is_socket()) {
            let what = format!("{} is there, and is no socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        let made = making.join(NEW);
        // What a killed process has left.
        if fs::symlink_metadata(&making).is_ok() {
            let _ = fs::remove_file(&made);
            let _ = fs::remove_dir(&making);
        }
        DirBuilder::new().mode(0o700).create(&making)?;
        let listening = || {
            let new = format!("{MAKING}/{NEW}");
            let listener = reach(dir, &new, |p| UnixListener::bind(p))?;
            let m = fs::symlink_metadata(&made)?;
            let mode = mode(&fs::metadata(dir)?, m.gid());
            fs::set_permissions(&made, Permissions::from_mode(mode))?;
            fs::rename(&made, &path)?;
            Ok((Place { path: path.clone(), identity: (m.dev(), m.ino()) }, listener))
        };
        let listening: io::Result<_> = listening();
        if listening.is_err() {
            let _ = fs::remove_file(&made);
        }
        let _ = fs::remove_dir(&making);
        listening
    }

    /// Removes it, if it is still the same: another process may have the store by now.
    pub fn remove(&self) {
        let same = |m: fs::Metadata| (m.dev(), m.ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(same) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Who may write in the directory may use the socket, which has the group `group`.
fn mode(dir: &fs::Metadata, group: u32) -> u32 {
    let sticky = dir.mode() & 0o1000 != 0;
    let of_group = if dir.mode() & 0o020 != 0 && dir.gid() == group { 0o060 } else { 0 };
    let of_others = if dir.mode() & 0o002 != 0 && !sticky { 0o006 } else { 0 };
    0o600 | of_group | of_others
}

/// A connection to who serves the store in `dir`; `None` if nobody does.
pub(crate) fn connect(dir: &Path) -> io::Result<Option<UnixStream>> {
    match reach(dir, NAME, |p| UnixStream::connect(p)) {
        Ok(stream) => Ok(Some(stream)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(e) => Err(e),
    }
}
