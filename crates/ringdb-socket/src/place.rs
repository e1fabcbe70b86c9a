//! Where the socket is: a name in the store's directory, whatever the directory's path is.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The socket's name in the directory of the store.
const NAME: &str = "SOCKET";
/// A directory of its owner only, in which it is made.
const MAKING: &str = "SOCKET.new";
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
    /// Nobody can connect before only its owner may.
    pub fn listen(dir: &Path) -> io::Result<(Place, UnixListener)> {
        let (path, making) = (dir.join(NAME), dir.join(MAKING));
        match fs::symlink_metadata(&path) {
            Ok(m) if !m.file_type().is_socket() => {
                let what = format!("{} is there, and is no socket", path.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
            }
            _ => {}
        }
        let made = making.join("s");
        // What a killed process has left.
        let _ = fs::remove_file(&made);
        let _ = fs::remove_dir(&making);
        DirBuilder::new().mode(0o700).create(&making)?;
        let listening = || {
            let listener = reach(dir, &format!("{MAKING}/s"), |p| UnixListener::bind(p))?;
            fs::set_permissions(&made, Permissions::from_mode(0o600))?;
            let m = fs::symlink_metadata(&made)?;
            fs::rename(&made, &path)?;
            Ok((Place { path: path.clone(), identity: (m.dev(), m.ino()) }, listener))
        };
        let listening = listening();
        let _ = fs::remove_file(&made);
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

/// A connection to who serves the store in `dir`; `None` if nobody does.
pub(crate) fn connect(dir: &Path) -> io::Result<Option<UnixStream>> {
    match reach(dir, NAME, |p| UnixStream::connect(p)) {
        Ok(stream) => Ok(Some(stream)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(e) => Err(e),
    }
}
