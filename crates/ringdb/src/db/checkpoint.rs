//! Checkpoints: a copy of the store by hard links, or byte by byte where they cannot be had (another file system).
//!
//! Memtables are flushed first, so the copy needs no log. Tables are never changed, so a second name is a copy. The
//! tables of one moment are kept from being deleted while they are linked by holding their version; writers and
//! compactions go on meanwhile. CURRENT comes last: before that, the directory is not a store.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engineswap::mem::AlignedBuf;
use engineswap::{Direct, ErrorKind, OpenHow};

use super::core::Core;
use super::directory::{make_dir, sync_name};
use crate::files::FileKind;
use crate::log::LogPos;
use crate::manifest::ManifestFile;
use crate::purpose::CHECKPOINT;
use crate::store_dir::StoreDir;
use crate::{Error, Result};

/// Bytes copied at a time.
const COPY_BYTES: u64 = 1 << 20;

impl Core {
    /// See [`crate::Db::checkpoint`].
    pub fn checkpoint(&self, to: &Path) -> Result<()> {
        self.check_open()?;
        let versions = &self.write_side()?.versions;
        let made = self.empty_directory(to)?;
        self.flush()?;
        let (mut state, _tables) = versions.current();
        // The copy has no log.
        (state.log_number, state.log_durable) = (0, LogPos::default());
        // From here on it is another store.
        state.store_id = 0;
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
            files.push(kind.path(to));
            self.link_or_copy(&kind.path(&self.dir), &kind.path(to))?;
        }
        let home = StoreDir::open(&self.io, to)?;
        home.sync()?;
        let next = Arc::new(AtomicU64::new(state.next_file_number));
        let manifest = FileKind::Manifest(state.next_file_number).path(to);
        files.extend([manifest, FileKind::CurrentTmp.path(to), FileKind::Current.path(to)]);
        ManifestFile::create(&self.io, &home, state, Arc::new(move || next.fetch_add(1, Relaxed)))?;
        sync_name(&self.io, to)
    }
    /// A second name for a table, or a copy of it that is durable but for its name.
    fn link_or_copy(&self, from: &Path, to: &Path) -> Result<()> {
        match self.io.hard_link(from, to) {
            // Another file system, one without hard links, or too many of them.
            Err(e) if matches!(e.kind(), ErrorKind::CrossesFileSystems | ErrorKind::Unsupported) => {}
            linked => return Ok(linked?),
        }
        let source = self.io.open(from, &OpenHow::read().direct(Direct::Prefer))?;
        let copy = self.io.open(to, &OpenHow::create_new().direct(Direct::Prefer))?;
        let len = source.len()?;
        let mut buf = AlignedBuf::zeroed(COPY_BYTES as usize);
        let mut at = 0;
        while at < len {
            self.check_open()?;
            let part = &mut buf[..COPY_BYTES.min(len - at) as usize];
            source.read_exact_at(part, at, CHECKPOINT)?;
            copy.write_all_at(part, at, CHECKPOINT)?;
            at += part.len() as u64;
        }
        Ok(copy.sync_all(CHECKPOINT)?)
    }
}
