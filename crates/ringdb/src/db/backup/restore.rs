//! [`Backups`]: what was backed up, verified and made stores of again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engineswap::{FileLock, Io};
use serde::Serialize;

use super::super::directory::{make_dir, real_path, sync_name};
use super::place::{Contents, Place, Stored};
use crate::files::FileKind;
use crate::manifest::{ManifestFile, ManifestState};
use crate::purpose::BACKUP;
use crate::stats::{VerifyOptions, VerifyProblem, VerifyReport};
use crate::store_dir::StoreDir;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::table::copy::{check_known, copy_known};
use crate::{Error, Progress, Result};

/// The backups in a directory, made by [`crate::Db::backup`]. No backup is made there as long as this is held, unless
/// the directory cannot be written.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
/// # let backups = tempfile::tempdir().expect("a temporary directory");
/// # let backups = backups.path();
/// db.put("apple", "red")?;
/// db.backup(backups)?;
/// for generation in ringdb::Backups::open(backups)?.generations() {
///     println!("{}: {} bytes", generation.number, generation.bytes);
/// }
/// # Ok::<(), ringdb::Error>(())
/// ```
pub struct Backups {
    place: Place,
    generations: BTreeMap<u64, Result<Contents>>,
    _held: Option<FileLock>,
}

/// One backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Generation {
    /// Its number; they count from 1, the newest is the largest.
    pub number: u64,
    /// How many tables it has.
    pub tables: u64,
    /// How many bytes they have; other generations may have them too.
    pub bytes: u64,
}

/// What a restoration did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The generation that the store was made of.
    pub generation: u64,
    /// Tables that were copied.
    pub tables: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl std::fmt::Debug for Backups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backups").field("path", &self.place.root).finish_non_exhaustive()
    }
}

impl Backups {
    /// Looks at a directory of backups.
    ///
    /// # Errors
    /// [`Error::Locked`] while a backup is made there; [`Error::Invalid`] if there is none.
    pub fn open(dir: impl AsRef<Path>) -> Result<Backups> {
        Backups::open_with_io(dir, crate::db::engine("auto")?)
    }

    /// The same with an I/O engine of the caller's.
    ///
    /// # Errors
    /// As [`Backups::open`].
    pub fn open_with_io(dir: impl AsRef<Path>, io: Io) -> Result<Backups> {
        let dir = dir.as_ref();
        let place = Place::over(&io, dir)?;
        let held = match io.metadata(&place.lock_path()) {
            Ok(Some(_)) => match io.lock_file(&place.lock_path()) {
                Err(e) if e.kind() == engineswap::ErrorKind::Locked => {
                    return Err(Error::Locked(real_path(&io, dir)));
                }
                // Nobody writes to what cannot be written.
                held => held.ok(),
            },
            _ => None,
        };
        let whole = place.numbers()?.into_iter().filter(|(_, whole)| *whole);
        let generations: BTreeMap<_, _> = whole.map(|(n, _)| (n, place.contents(n))).collect();
        if generations.is_empty() {
            return Err(Error::Invalid(format!("there is no complete backup in {}", dir.display())));
        }
        Ok(Backups { place, generations, _held: held })
    }

    /// All backups, oldest first. Of one whose list cannot be read only the number is known.
    pub fn generations(&self) -> Vec<Generation> {
        let all = self.generations.iter();
        all.map(|(number, contents)| {
            let tables = contents.as_ref().map_or(&[][..], |c| &c.tables);
            let bytes = tables.iter().map(|t| t.bytes).sum();
            Generation { number: *number, tables: tables.len() as u64, bytes }
        })
        .collect()
    }

    /// Reads every byte of all generations and compares it with what was written. What is wrong is in the report: its
    /// `files` are tables and generations, `bytes` those of tables, `entries` those of the newest generation.
    ///
    /// # Errors
    /// If the check could not be made.
    pub fn verify(&self, options: &VerifyOptions) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let mut tables: BTreeMap<String, (&Stored, Vec<u64>)> = BTreeMap::new();
        for (number, contents) in &self.generations {
            report.files += 1;
            let state = contents.as_ref().map_err(Error::clone).and_then(|c| self.place.state(*number, c));
            match state {
                // Nothing is wrong with the backup.
                Err(e @ Error::Key { .. }) => return Err(e),
                Ok(state) => report.entries = state.tables.values().map(|(_, m)| m.entries).sum(),
                Err(e) => problem(&mut report, "backup", &self.place.generation(*number), e),
            }
            for t in contents.iter().flat_map(|c| &c.tables) {
                tables.entry(t.name()).or_insert((t, Vec::new())).1.push(*number);
            }
        }
        report.table_bytes = tables.values().map(|(t, _)| t.bytes).sum();
        let (mut done, total) = (0, report.table_bytes);
        for (t, generations) in tables.values() {
            report.files += 1;
            report.bytes += t.bytes;
            let mut passed = |bytes| {
                done += bytes;
                options.progress.iter().for_each(|p| p(done, total));
                Ok(())
            };
            let path = self.place.table(t);
            if let Err(e) = check_known(&self.place.io, &path, (t.bytes, t.hash), BACKUP, &mut passed) {
                problem(&mut report, "table", &path, e);
                if let Some(p) = report.problems.last_mut() {
                    let generations: Vec<String> = generations.iter().map(u64::to_string).collect();
                    p.detail += &format!("; generations that need it: {}", generations.join(", "));
                }
                report.damaged_bytes += t.bytes;
            }
        }
        Ok(report)
    }

    /// Makes a new store in the directory `to`, which must not exist or be empty, of a generation: the newest if
    /// `number` is `None`. Every byte is compared with what was backed up. `progress` is told how many bytes of tables
    /// have been copied, and of how many.
    ///
    /// The store goes on where the backup was made, and may be backed up to the same place.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if anything of that generation is damaged; other generations may be whole. Nothing is left in
    /// `to` then.
    pub fn restore(
        &self,
        number: Option<u64>,
        to: impl AsRef<Path>,
        progress: Option<&Progress>,
    ) -> Result<RestoreReport> {
        let (io, to) = (&self.place.io, to.as_ref());
        let newest = self.generations.keys().next_back().copied().unwrap_or(0);
        let number = number.unwrap_or(newest);
        let Some(contents) = self.generations.get(&number) else {
            let there: Vec<String> = self.generations.keys().map(u64::to_string).collect();
            return Err(Error::Invalid(format!(
                "there is no backup {number}; there are {}",
                there.join(", ")
            )));
        };
        let contents = contents.as_ref().map_err(Error::clone)?;
        let state = self.place.state(number, contents)?;
        let made = match io.metadata(to)? {
            None => true,
            Some(m) if m.is_dir && io.read_dir(to)?.is_empty() => false,
            Some(_) => {
                let to = to.display();
                return Err(Error::Invalid(format!(
                    "a backup is restored to a new or empty directory; {to} is neither"
                )));
            }
        };
        make_dir(io, to)?;
        let mut files = Vec::new();
        let copied = self.copy(to, contents, state, progress, &mut files);
        if copied.is_err() {
            // CURRENT first: without it, it is no store, whatever cannot be removed.
            files.iter().rev().for_each(|f| drop(io.remove_file(f)));
            if made {
                let _ = io.remove_dir(to);
            }
        }
        copied.map(|bytes| RestoreReport { generation: number, tables: contents.tables.len() as u64, bytes })
    }

    fn copy(
        &self,
        to: &Path,
        contents: &Contents,
        state: ManifestState,
        progress: Option<&Progress>,
        files: &mut Vec<PathBuf>,
    ) -> Result<u64> {
        let io = &self.place.io;
        let (mut done, total) = (0, contents.tables.iter().map(|t| t.bytes).sum());
        for t in &contents.tables {
            let path = FileKind::Table(t.file_id).path(to);
            files.push(path.clone());
            copy_known(io, &self.place.table(t), &path, (t.bytes, t.hash), BACKUP, &mut |bytes| {
                done += bytes;
                progress.iter().for_each(|p| p(done, total));
                Ok(())
            })?;
        }
        let home = StoreDir::open(io, to)?;
        home.sync()?;
        let next = Arc::new(AtomicU64::new(state.next_file_number));
        let manifest = FileKind::Manifest(state.next_file_number).path(to);
        files.extend([manifest, FileKind::CurrentTmp.path(to), FileKind::Current.path(to)]);
        ManifestFile::create(io, &home, state, Arc::new(move || next.fetch_add(1, Relaxed)))?;
        sync_name(io, to)?;
        Ok(total)
    }
}

fn problem(report: &mut VerifyReport, kind: &str, path: &Path, e: Error) {
    let (file, offset, detail) = match e {
        Error::Corrupt { path, offset, detail } => (path, offset, detail),
        Error::Io(e) if e.kind() == engineswap::ErrorKind::NotFound => {
            (path.into(), None, "it is missing".into())
        }
        e => (path.into(), None, e.to_string()),
    };
    let file = file.display().to_string();
    report.problems.push(VerifyProblem {
        file,
        offset,
        detail,
        kind: kind.into(),
        ..VerifyProblem::default()
    });
}
