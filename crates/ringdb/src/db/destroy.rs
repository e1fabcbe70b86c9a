//! [`crate::Db::destroy`]: the end of a store.

use std::path::Path;

use engineswap::Io;

use super::directory::{lock, sync_name};
use super::{Db, engine};
use crate::files::{self, DAMAGED, FileKind, ORPHAN, SOCKET, SOCKET_MAKING, SOCKET_NEW};
use crate::manifest::ManifestFile;
use crate::{Error, Options, Result};

impl Db {
    /// Removes the store in the directory `path`: its files, and the directory if nothing else is in it. What the store
    /// has not made stays. Of `options` only the engine is used. No such directory, or none of a store's files in it,
    /// is no error. If it ends early, by a crash too, what is left is no store, and the same call removes it.
    ///
    /// ```
    /// use ringdb::{Db, Options};
    ///
    /// # fn main() -> ringdb::Result<()> {
    /// # let tmp = tempfile::tempdir().expect("a temporary directory");
    /// # let dir = tmp.path().join("store");
    /// Db::open(&dir, Options::default())?.close()?;
    /// Db::destroy(&dir, &Options::default())?;
    /// assert!(!dir.exists());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Locked`] if it is open; [`crate::Error::NoStore`] if the files are of another database, or
    /// `path` is no directory: nothing is removed then.
    pub fn destroy(path: impl AsRef<Path>, options: &Options) -> Result<()> {
        destroy(&engine(&options.io)?, path.as_ref())
    }
}

/// Removes a store's files. CURRENT goes first and durably, for without it there is no store; LOCK goes last.
fn destroy(io: &Io, dir: &Path) -> Result<()> {
    let no_store = |detail: &str| Error::NoStore { path: dir.to_path_buf(), detail: detail.into() };
    match io.metadata(dir)? {
        None => return Ok(()),
        Some(m) if !m.is_dir => return Err(no_store("it is not a directory")),
        Some(_) => {}
    }
    if ManifestFile::is_foreign(io, dir)? {
        return Err(no_store(
            "its manifest is another database's; what is there has to be removed by other means",
        ));
    }
    // Names like a segment's are common. Every store has had a lock.
    if io.metadata(&FileKind::Lock.path(dir))?.is_none() {
        return Ok(());
    }
    let held = lock(io, dir)?;
    let current = FileKind::Current.path(dir);
    if io.metadata(&current)?.is_some() {
        io.remove_file(&current)?;
        io.sync_dir(dir)?;
    }
    let mut foreign = 0;
    for entry in io.read_dir(dir)? {
        let name = entry.name.as_str();
        let aside = [ORPHAN, DAMAGED].iter().find_map(|end| name.strip_suffix(end));
        match files::parse(aside.unwrap_or(name)).filter(|_| !entry.is_dir) {
            Some(FileKind::Lock) if aside.is_none() => {}
            Some(_) => io.remove_file(&dir.join(name))?,
            None if remove_socket(io, &dir.join(name), name, entry.is_dir)? => {}
            None => foreign += 1,
        }
    }
    // It tells the next call that there is something to remove.
    io.sync_dir(dir)?;
    io.remove_file(&FileKind::Lock.path(dir))?;
    drop(held);
    if foreign > 0 {
        return Ok(io.sync_dir(dir)?);
    }
    match io.remove_dir(dir) {
        // Somebody has begun something new.
        Err(_) if !io.read_dir(dir).is_ok_and(|left| left.is_empty()) => Ok(()),
        removed => {
            removed?;
            // The parent's entry.
            sync_name(io, dir)
        }
    }
}

/// Removes a socket that a killed process has left, whole or in the making; false if this is something else.
fn remove_socket(io: &Io, path: &Path, name: &str, is_dir: bool) -> Result<bool> {
    let is_socket = |path: &Path| Ok::<_, Error>(io.metadata(path)?.is_some_and(|m| m.is_socket));
    match name {
        SOCKET if is_socket(path)? => io.remove_file(path)?,
        SOCKET_MAKING if is_dir => {
            let inside = path.join(SOCKET_NEW);
            if is_socket(&inside)? {
                io.remove_file(&inside)?;
            }
            // Not if something else is in it.
            return Ok(io.remove_dir(path).is_ok());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use engineswap::sim::Disk;

    use super::*;
    use crate::SystemEnv;

    fn open(disk: &Disk, create: bool) -> Result<Db> {
        let options = Options::default().with_cache_bytes(1 << 20).with_create_if_missing(create);
        Db::open_with_env("/srv/store", options, disk.io(), SystemEnv::shared())
    }

    #[test]
    fn a_power_cut_leaves_a_whole_store_or_none_and_the_next_call_ends_it() {
        let disk = Disk::new(1);
        let db = open(&disk, true).unwrap();
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        db.put("l", "w").unwrap();
        db.close().unwrap();
        disk.record(true);
        destroy(&disk.io(), Path::new("/srv/store")).unwrap();
        let (mut whole, mut none) = (0, 0);
        for point in (0..disk.points()).filter_map(|i| disk.point(i)) {
            for outcome in 0..4u64 {
                let left = disk.crash_at(&point, outcome).0;
                match open(&left, false) {
                    Ok(db) => {
                        assert_eq!(
                            db.iter().map(|p| p.unwrap().0.to_vec()).collect::<Vec<_>>(),
                            [b"k", b"l"]
                        );
                        db.close().unwrap();
                        whole += 1;
                    }
                    Err(_) => none += 1,
                }
                destroy(&left.io(), Path::new("/srv/store")).unwrap();
                assert!(open(&left, true).unwrap().first().unwrap().is_none());
            }
        }
        assert!(whole > 0 && none > 0, "{whole} {none}");
    }
}
