//! [`StoreDir`]: the store's directory. Its first failed sync is final, as that of a file is.
//!
//! A kernel may take names for written after it has failed to write them, so a later sync that succeeds says nothing of
//! them. Whoever needs a name to be durable therefore comes here, and syncs follow one another: none that began before
//! another had failed is believed. The directory is held open, so that no sync fails for want of a descriptor.

use std::path::Path;
use std::sync::Arc;

use engineswap::{Dir, ErrorKind, Io};

use crate::mutation::{Mutation, broken};
use crate::stop::StopLatch;
use crate::sync::{Mutex, lock};
use crate::{Error, Result};

/// See the module.
pub(crate) struct StoreDir {
    dir: Dir,
    latch: Arc<StopLatch>,
    /// Held for a sync.
    syncing: Mutex<()>,
}

impl StoreDir {
    /// Opens a directory that exists.
    pub fn open(io: &Io, path: &Path) -> Result<Arc<StoreDir>> {
        Ok(Arc::new(StoreDir { dir: io.open_dir(path)?, latch: Arc::default(), syncing: Mutex::new(()) }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// What stops the store that lies in it.
    pub fn latch(&self) -> &Arc<StopLatch> {
        &self.latch
    }

    /// Makes all its names durable. An error stops the store; nothing is synced once that has happened.
    pub fn sync(&self) -> Result<()> {
        let _one = lock(&self.syncing);
        self.latch.check()?;
        if broken(Mutation::SkipEveryDirectorySync) {
            return Ok(());
        }
        self.dir.sync().map_err(|e| {
            if !broken(Mutation::ForgetFailedDirectorySync) {
                self.latch.stop(format!("the store's directory could not be synced: {e}"));
            }
            Error::Io(e.with_kind(ErrorKind::SyncFailed))
        })
    }
}
