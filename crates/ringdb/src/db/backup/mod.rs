//! Backups: generations of a store in a directory of their own, on any file system, that share the tables which they
//! have in common.
//!
//! Tables never change, so a table that a complete generation has is not copied again. It is the same if its identity
//! is ([`crate::table::copy::identity`]): a number alone says little, since copies of a store go on numbering where it
//! was. Each copied block is checked on its way, and the hash of all bytes is kept, by which restoring and verifying
//! check them again. A generation becomes one with its CURRENT, which comes last; it stops being one when that is
//! removed, which comes first. So a crash leaves whole generations, and remains that the next backup removes.

mod place;
mod restore;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use self::place::{Contents, Place, Stored};
use super::core::Core;
use super::directory::{make_dir, real_path};
use crate::files::FileKind;
use crate::log::LogPos;
use crate::manifest::ManifestState;
use crate::purpose::BACKUP;
use crate::store_dir::StoreDir;
use crate::table::TableMeta;
use crate::table::copy::{copy_table, identity};
use crate::{Error, Progress, Result};
pub use restore::{Backups, Generation, RestoreReport};

/// How to make a backup.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct BackupOptions {
    /// How many generations stay, with the new one; older ones are removed when it is complete. Default: all of them.
    pub keep: Option<u32>,
    /// Is told how many bytes of tables are in the backup, and of how many.
    pub progress: Option<Progress>,
}

impl BackupOptions {
    /// Sets how many generations stay, at least 1.
    #[must_use]
    pub fn with_keep(mut self, generations: u32) -> Self {
        self.keep = Some(generations);
        self
    }

    /// Sets what is told how far it is.
    #[must_use]
    pub fn with_progress(mut self, progress: Progress) -> Self {
        self.progress = Some(progress);
        self
    }
}

impl std::fmt::Debug for BackupOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BackupOptions {{ keep: {:?}, .. }}", self.keep)
    }
}

/// What a backup did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BackupReport {
    /// The number of the new generation.
    pub generation: u64,
    /// Its tables and their bytes.
    pub tables: u64,
    /// See `tables`.
    pub bytes: u64,
    /// Those of them that were copied; a former generation had the others.
    pub copied_tables: u64,
    /// Bytes of the tables that were copied.
    pub copied_bytes: u64,
    /// Generations that were removed.
    pub removed: Vec<u64>,
}

/// A backup under way.
struct Work<'a> {
    core: &'a Core,
    options: &'a BackupOptions,
    place: Place,
    /// The tables of former generations.
    known: BTreeMap<u128, Stored>,
    /// What was made, to be removed should it fail.
    made: Vec<PathBuf>,
    report: BackupReport,
    /// Bytes that are in the backup.
    done: u64,
}

impl Core {
    /// See [`crate::Db::backup_with`].
    pub fn backup(&self, to: &Path, options: &BackupOptions) -> Result<BackupReport> {
        self.check_open()?;
        let versions = &self.write_side()?.versions;
        if options.keep == Some(0) {
            return Err(Error::Invalid("a backup keeps at least 1 generation: its own".into()));
        }
        if real_path(&self.io, to).starts_with(real_path(&self.io, &self.dir)) {
            return Err(Error::Invalid("a backup must lie outside of the store's directory".into()));
        }
        let place = Place::over(&self.io, to)?;
        make_dir(&self.io, to)?;
        let _held = self.io.lock_file(&place.lock_path()).map_err(|e| match e.kind() {
            engineswap::ErrorKind::Locked => Error::Locked(real_path(&self.io, to)),
            _ => e.into(),
        })?;
        let former = place.prepare()?;
        self.flush()?;
        // The version keeps its tables' files.
        let (mut state, _version) = versions.current();
        if former.iter().any(|(_, c)| c.store_id != state.store_id) {
            let to = to.display();
            return Err(Error::Invalid(format!(
                "{to} holds backups of another store; give each store its own"
            )));
        }
        // The copy has no log.
        (state.log_number, state.log_durable) = (0, LogPos::default());
        let known =
            former.iter().flat_map(|(_, c)| c.tables.iter().map(|t| (t.identity, t.clone()))).collect();
        let generation = former.last().map_or(0, |(n, _)| *n) + 1;
        let report = BackupReport { generation, ..BackupReport::default() };
        let mut work = Work { core: self, options, place, known, made: Vec::new(), report, done: 0 };
        if let Err(e) = work.make(state) {
            work.undo();
            return Err(e);
        }
        work.remove_old()?;
        Ok(work.report)
    }
}

impl Work<'_> {
    fn make(&mut self, state: ManifestState) -> Result<()> {
        self.report.tables = state.tables.len() as u64;
        self.report.bytes = state.tables.values().map(|(_, m)| m.file_bytes).sum();
        let mut contents = Contents { store_id: state.store_id, tables: Vec::new() };
        for (_, meta) in state.tables.values() {
            contents.tables.push(self.table(meta)?);
        }
        StoreDir::open(&self.place.io, &self.place.tables())?.sync()?;
        self.place.complete(self.report.generation, &contents, state)
    }

    /// Sees to it that a table is in the backup.
    fn table(&mut self, meta: &TableMeta) -> Result<Stored> {
        let from = FileKind::Table(meta.file_id).path(&self.core.dir);
        let core = self.core;
        let identity = identity(&core.io, &from, meta, BACKUP, &mut |_| core.check_open())?;
        if let Some(t) = self.known.get(&identity).cloned() {
            let there = self.place.io.metadata(&self.place.table(&t))?.is_some_and(|m| m.len == t.bytes);
            if there && (t.file_id, t.bytes) == (meta.file_id, meta.file_bytes) {
                self.done += t.bytes;
                self.tell();
                return Ok(t);
            }
        }
        let mut stored = Stored { file_id: meta.file_id, bytes: meta.file_bytes, identity, hash: 0 };
        let to = self.place.table(&stored);
        if self.place.io.metadata(&to)?.is_some() {
            // Cut short by somebody else: the generations that have it are mended by this copy.
            self.place.io.remove_file(&to)?;
        }
        self.made.push(to.clone());
        let (options, total) = (self.options, self.report.bytes);
        let done = &mut self.done;
        stored.hash = copy_table(&core.io, &from, &to, meta, BACKUP, &mut |bytes| {
            *done += bytes;
            options.progress.iter().for_each(|p| p(*done, total));
            core.check_open()
        })?;
        self.report.copied_tables += 1;
        self.report.copied_bytes += meta.file_bytes;
        Ok(stored)
    }

    fn tell(&self) {
        self.options.progress.iter().for_each(|p| p(self.done, self.report.bytes));
    }

    /// Removes what there is of a generation that could not be made. What cannot be removed now, the next backup
    /// removes: it has no CURRENT, unless that was put in place and could not be synced.
    fn undo(&self) {
        let (io, generation) = (&self.place.io, self.report.generation);
        let gone = match io.metadata(&self.place.generation(generation)) {
            Ok(None) => true,
            _ => self.place.remove(generation).is_ok(),
        };
        if gone {
            self.made.iter().for_each(|f| drop(io.remove_file(f)));
        }
    }

    /// Removes generations beyond those that are to stay, and tables that only they have.
    fn remove_old(&mut self) -> Result<()> {
        let Some(keep) = self.options.keep else { return Ok(()) };
        let numbers = self.place.numbers()?;
        let old = numbers.len().saturating_sub(keep as usize);
        for (number, _) in &numbers[..old] {
            self.place.remove(*number)?;
            self.report.removed.push(*number);
        }
        if old > 0 {
            self.place.sweep()?;
        }
        Ok(())
    }
}
