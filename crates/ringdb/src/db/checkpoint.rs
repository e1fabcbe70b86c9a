//! Checkpoints: a copy of the store by hard links.
//!
//! Memtables are flushed first, so the copy needs no log. Tables are never changed, so a second name is a copy. The
//! tables of one moment are kept from being deleted while they are linked by holding their version; writers and
//! compactions go on meanwhile. CURRENT comes last: before that, the directory is not a store.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Core;
use super::directory::{make_dir, sync_name};
use crate::files::FileKind;
use crate::manifest::ManifestFile;
use crate::sync::lock;
use crate::{Error, Result};

impl Core {
    /// See [`crate::Db::checkpoint`].
    pub fn checkpoint(&self, to: &Path) -> Result<()> {
        self.check_open()?;
        let Some(manifest) = &self.manifest else { return Err(Error::ReadOnly) };
        let made = self.empty_directory(to)?;
        self.flush()?;
        let (mut state, _tables) = {
            // Nobody installs a change while the manifest is held, so that these two agree.
            let manifest = lock(manifest);
            (manifest.state().clone(), lock(&self.tree).version.clone())
        };
        state.next_file_number = state.next_file_number.max(self.next_file.load(Relaxed));
        let mut files = Vec::new();
        let result = self.link_all(to, state, &mut files);
        if result.is_err() {
            // CURRENT first: without it, it is no store, whatever cannot be removed.
            files.iter().rev().for_each(|f| drop(self.io.remove_file(f)));
            if made {
                let _ = self.io.remove_dir(to);
            }
        }
        result
    }

    /// Makes the directory, or checks that it is empty; true if it was made.
    fn empty_directory(&self, to: &Path) -> Result<bool> {
        match self.io.metadata(to)? {
            None => {
                make_dir(&self.io, to)?;
                Ok(true)
            }
            Some(m) if m.is_dir && self.io.read_dir(to)?.is_empty() => Ok(false),
            Some(_) => {
                let to = to.display();
                Err(Error::Invalid(format!("a checkpoint goes to a new or empty directory; {to} is neither")))
            }
        }
    }

    fn link_all(
        &self,
        to: &Path,
        state: crate::manifest::ManifestState,
        files: &mut Vec<PathBuf>,
    ) -> Result<()> {
        for id in state.tables.keys() {
            let kind = FileKind::Table(*id);
            self.io.hard_link(&kind.path(&self.dir), &kind.path(to))?;
            files.push(kind.path(to));
        }
        self.io.sync_dir(to)?;
        let next = Arc::new(AtomicU64::new(state.next_file_number));
        let manifest = FileKind::Manifest(state.next_file_number).path(to);
        files.extend([manifest, FileKind::CurrentTmp.path(to), FileKind::Current.path(to)]);
        ManifestFile::create(&self.io, to, state, Arc::new(move || next.fetch_add(1, Relaxed)))?;
        sync_name(&self.io, to)
    }
}
