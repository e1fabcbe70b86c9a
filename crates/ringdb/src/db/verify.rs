//! Verification: every byte of every table, the log and the manifest is read and checked.

use std::path::Path;
use std::sync::Arc;

use engineswap::Io;

use super::core::Core;
use super::directory::{DirState, look};
use super::verify_table::verify_table;
use crate::files::{self, DAMAGED, FileKind, ORPHAN};
use crate::log::payload::decode;
use crate::log::{ReplayFrom, replay};
use crate::manifest::{ManifestFile, ManifestState};
use crate::stats::{VerifyOptions, VerifyProblem, VerifyReport};
use crate::table::meta::TableMeta;
use crate::table::remains::Remains;
use crate::{Error, Progress, Result, key, purpose};

/// How often the log is looked at again when it changes while it is read.
const LOG_TRIES: u32 = 20;
/// Bytes between calls of the progress.
const PROGRESS_EVERY: u64 = 1 << 20;

/// A verification under way.
pub(super) struct Check {
    pub report: VerifyReport,
    progress: Option<Progress>,
    total: u64,
    told: u64,
}

impl Check {
    fn new(options: &VerifyOptions, metas: &mut dyn Iterator<Item = &TableMeta>) -> Check {
        let total = metas.map(|m| m.file_bytes).sum();
        let report = VerifyReport { table_bytes: total, ..VerifyReport::default() };
        Check { report, progress: options.progress.clone(), total, told: 0 }
    }

    /// So many bytes more of tables have been read.
    pub fn read(&mut self, bytes: u64) {
        self.report.bytes += bytes;
        if let Some(progress) =
            self.progress.as_ref().filter(|_| self.report.bytes >= self.told + PROGRESS_EVERY)
        {
            self.told = self.report.bytes;
            progress(self.told.min(self.total), self.total);
        }
    }

    /// These bytes as a share of all tables.
    pub fn share(&self, bytes: u64) -> Option<f64> {
        (self.total > 0).then(|| bytes as f64 / self.total as f64)
    }
}

impl VerifyReport {
    fn problem(&mut self, kind: &str, path: &Path, offset: Option<u64>, detail: impl Into<String>) {
        let (file, kind, detail) = (path.display().to_string(), kind.into(), detail.into());
        self.problems.push(VerifyProblem { file, offset, detail, kind, ..VerifyProblem::default() });
    }

    fn error(&mut self, kind: &str, path: &Path, e: Error) {
        match e {
            Error::Corrupt { path, offset, detail } => self.problem(kind, &path, offset, detail),
            e => self.problem(kind, path, None, e.to_string()),
        }
    }
}

impl Core {
    /// See [`crate::Db::verify`].
    pub fn verify(&self, options: &VerifyOptions) -> Result<VerifyReport> {
        self.check_open()?;
        let mut report = VerifyReport::default();
        // Holding the version keeps its tables' files, unless somebody else's compactions remove them.
        let (state, version) = self.verify_manifest(&mut report)?;
        let mut check = Check::new(options, &mut version.tables().map(|(_, t)| t.meta()));
        check.report = VerifyReport { table_bytes: check.report.table_bytes, ..report };
        let mut replaced = 0;
        for (level, table) in version.tables() {
            let meta = table.meta();
            if self.write_side.is_none() && self.was_replaced(meta)? {
                replaced += 1;
                continue;
            }
            let before = self.write_side.is_none().then(|| check.report.clone());
            check.describes(&self.dir, level, meta, &state);
            verify_table(&self.io, &self.dir, level, meta, &mut check)?;
            if let Some(before) = before.filter(|b| b.problems.len() < check.report.problems.len())
                && self.was_replaced(meta)?
            {
                // The writer removed it in between.
                check.report = before;
                replaced += 1;
            }
        }
        let mut report = check.report;
        if replaced > 0 {
            let what = "tables were replaced by the writer meanwhile and not looked at";
            report.notes.push(format!("{replaced} {what}"));
        }
        for id in state.tables.keys() {
            if !version.tables().any(|(_, t)| t.meta().file_id == *id) {
                let path = FileKind::Table(*id).path(&self.dir);
                let detail = "the manifest on disk names this table, the open store does not";
                report.problem("manifest", &path, None, detail);
            }
        }
        self.verify_log(&mut report)?;
        note_strangers(&self.io, &self.dir, &mut report)?;
        Ok(report)
    }

    /// Whether a writer has removed a table that this store, opened read-only, still has open.
    fn was_replaced(&self, meta: &TableMeta) -> Result<bool> {
        if self.io.metadata(&FileKind::Table(meta.file_id).path(&self.dir))?.is_some() {
            return Ok(false);
        }
        let now = match ManifestFile::load(&self.io, &self.dir) {
            Err(e @ Error::Key { .. }) => return Err(e),
            now => now,
        };
        Ok(matches!(now, Ok(Some(now)) if !now.state.tables.contains_key(&meta.file_id)))
    }

    /// Reads the manifest back and compares it with what the store works with.
    fn verify_manifest(
        &self,
        report: &mut VerifyReport,
    ) -> Result<(ManifestState, Arc<crate::manifest::Version<crate::table::Table>>)> {
        let path = FileKind::Current.path(&self.dir);
        // No edit is appended meanwhile.
        let held = self.write_side.as_ref().map(|w| w.versions.lock());
        let loaded = ManifestFile::load(&self.io, &self.dir);
        let version = self.tree.version();
        let in_memory = || ManifestState {
            tables: version.tables().map(|(l, t)| (t.meta().file_id, (l as u32, t.meta().clone()))).collect(),
            ..ManifestState::default()
        };
        let state = match (loaded, &held) {
            (Err(e @ Error::Key { .. }), _) => return Err(e),
            (Ok(Some(on_disk)), Some(held)) => {
                let path = FileKind::Manifest(on_disk.number).path(&self.dir);
                report.files += 2;
                report.bytes += held.len();
                if on_disk.state != *held.state() {
                    report.problem("manifest", &path, None, "it does not say what was written to it");
                }
                if let Some(at) = on_disk.torn_at {
                    report.problem("manifest", &path, Some(at), "its last record is cut off");
                }
                on_disk.state
            }
            // Read-only: the writer may have gone on since.
            (Ok(Some(on_disk)), None) => {
                report.files += 2;
                let manifest = FileKind::Manifest(on_disk.number).path(&self.dir);
                report.bytes += self.io.metadata(&manifest)?.map_or(0, |m| m.len);
                in_memory()
            }
            (Ok(None), _) => {
                report.problem("manifest", &path, None, "it is missing");
                in_memory()
            }
            (Err(e), _) => {
                report.error("manifest", &path, e);
                in_memory()
            }
        };
        Ok((state, version))
    }

    /// Reads the log as a recovery would.
    fn verify_log(&self, report: &mut VerifyReport) -> Result<()> {
        let mut before = None;
        for tries in 1..=LOG_TRIES {
            // Damage found here may be a segment that was recycled, or a frame that was written, in between; it is
            // there the next time if it is true.
            let found = read_log(&self.io, &self.dir)?;
            let places: Vec<_> = found.problems.iter().map(|p| (p.file.clone(), p.offset)).collect();
            if places.is_empty() || before.as_ref() == Some(&places) {
                report.files += found.files;
                report.bytes += found.bytes;
                report.entries += found.entries;
                report.problems.extend(found.problems);
                return Ok(());
            }
            before = Some(places);
            self.env.sleep(std::time::Duration::from_millis(u64::from(tries)));
        }
        report.notes.push("the log changes faster than it can be read: it was not looked at".into());
        Ok(())
    }
}

/// See [`crate::Db::verify_dir`].
pub(crate) fn verify_dir(io: &Io, dir: &Path, options: &VerifyOptions) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let no_store = |detail: &str| Error::NoStore { path: dir.to_path_buf(), detail: detail.into() };
    let own = match look(io, dir) {
        Ok(DirState::Store(own)) => own,
        Ok(DirState::Nothing) => return Err(no_store("there is no such directory")),
        Ok(DirState::Unfinished(_)) => return Err(no_store("it is empty")),
        Err(e @ Error::Corrupt { .. }) => {
            report.error("manifest", dir, e);
            let entries = io.read_dir(dir)?;
            entries.iter().filter_map(|e| files::parse(&e.name)).collect()
        }
        Err(e) => return Err(e),
    };
    let state = match ManifestFile::load(io, dir) {
        Ok(Some(loaded)) => {
            let path = FileKind::Manifest(loaded.number).path(dir);
            report.files += 2;
            report.bytes += io.metadata(&path)?.map_or(0, |m| m.len);
            loaded.state
        }
        // Nothing is wrong with the store.
        Err(e @ Error::Key { .. }) => return Err(e),
        loaded => {
            if let Err(e) = loaded {
                report.error("manifest", &FileKind::Current.path(dir), e);
            }
            unnamed_tables(io, dir, &own, &mut report)?
        }
    };
    let mut check = Check::new(options, &mut state.tables.values().map(|(_, m)| m));
    check.report = VerifyReport { table_bytes: check.report.table_bytes, ..report };
    for (level, meta) in state.tables.values() {
        verify_table(io, dir, *level as usize, meta, &mut check)?;
    }
    check.order_in_levels(dir, &state);
    let mut report = check.report;
    let log = read_log(io, dir)?;
    report.files += log.files;
    report.bytes += log.bytes;
    report.entries += log.entries;
    report.problems.extend(log.problems);
    note_strangers(io, dir, &mut report)?;
    Ok(report)
}

/// Without a manifest, which tables are in force is not known: each is checked against itself. They may overlap.
fn unnamed_tables(io: &Io, dir: &Path, own: &[FileKind], report: &mut VerifyReport) -> Result<ManifestState> {
    let mut state = ManifestState::default();
    for id in own.iter().filter_map(|k| if let FileKind::Table(n) = k { Some(*n) } else { None }) {
        let path = FileKind::Table(id).path(dir);
        match Remains::load(io, &path, id, None, purpose::VERIFY) {
            Ok(Remains { properties: Some(p), file_id, .. }) if file_id == id => {
                state.tables.insert(id, (0, p.meta));
            }
            Ok(remains) => {
                report.files += 1;
                let other = (remains.file_id != id).then(|| format!("it is table {}", remains.file_id));
                let what = remains.problems.into_iter().chain(other).collect::<Vec<_>>().join("; ");
                report.problem("table", &path, None, what);
            }
            Err(e @ Error::Key { .. }) => return Err(e),
            Err(e) => {
                report.files += 1;
                report.error("table", &path, e);
            }
        }
    }
    Ok(state)
}

/// Files that look like the store's but are not part of it.
fn note_strangers(io: &Io, dir: &Path, report: &mut VerifyReport) -> Result<()> {
    let entries = io.read_dir(dir)?;
    let Ok(Some(now)) = ManifestFile::load(io, dir) else { return Ok(()) };
    for e in &entries {
        let stranger = match files::parse(&e.name) {
            Some(FileKind::Table(n)) => !now.state.tables.contains_key(&n),
            Some(FileKind::Manifest(n)) => n != now.number,
            _ => false,
        };
        let aside = [ORPHAN, DAMAGED].iter().find_map(|s| files::parse(e.name.strip_suffix(s)?));
        if aside.is_some() {
            let what = "set aside by a recovery that was not sure of itself; not part of the store";
            report.notes.push(format!("{}: {what}", dir.join(&e.name).display()));
        }
        if stranger {
            let what = "not part of the store: it is just being written, or left over";
            report.notes.push(format!("{}: {what}", dir.join(&e.name).display()));
        }
    }
    Ok(())
}

impl Check {
    /// Whether the manifest on disk describes a table as the open store has it.
    fn describes(&mut self, dir: &Path, level: usize, meta: &TableMeta, state: &ManifestState) {
        let path = FileKind::Table(meta.file_id).path(dir);
        let detail = match state.tables.get(&meta.file_id) {
            Some((l, m)) if *l as usize == level && m == meta => return,
            Some((l, _)) => {
                format!("the manifest describes it differently (level {l}; open in level {level})")
            }
            None => "the manifest on disk does not name this table".into(),
        };
        self.report.problem("manifest", &path, None, detail);
    }

    /// Above level 0 tables must not overlap.
    fn order_in_levels(&mut self, dir: &Path, state: &ManifestState) {
        let mut tables: Vec<&(u32, TableMeta)> =
            state.tables.values().filter(|(level, _)| *level > 0).collect();
        tables.sort_by(|(a, x), (b, y)| (a, &x.smallest).cmp(&(b, &y.smallest)));
        for pair in tables.windows(2) {
            let [(a, x), (b, y)] = pair else { continue };
            if a == b && x.largest >= y.smallest {
                let (file_id, path) = (x.file_id, FileKind::Table(y.file_id).path(dir));
                self.report.problems.push(VerifyProblem {
                    file: path.display().to_string(),
                    detail: format!("it overlaps table {file_id} of the same level"),
                    kind: "order".into(),
                    level: Some(*b),
                    from: Some(key::printable(&y.smallest)),
                    to: Some(key::printable(&x.largest)),
                    ..VerifyProblem::default()
                });
            }
        }
    }
}

fn read_log(io: &Io, dir: &Path) -> Result<VerifyReport> {
    let mut found = VerifyReport::default();
    let state = match ManifestFile::load(io, dir) {
        Ok(Some(loaded)) => loaded.state,
        Err(e @ Error::Key { .. }) => return Err(e),
        // Told by the manifest's own check.
        _ => return Ok(found),
    };
    let DirState::Store(own) = look(io, dir)? else { return Ok(found) };
    let segments: Vec<u64> = own
        .iter()
        .filter_map(|k| if let FileKind::Log(n) = k { Some(*n) } else { None })
        .filter(|n| *n >= state.log_number)
        .collect();
    let from = ReplayFrom {
        first_segment: state.log_number,
        flushed_seq: state.flushed_seq,
        recover_damaged: false,
        durable: state.log_durable,
    };
    let (mut entries, mut bytes) = (0, 0);
    let mut problems = Vec::new();
    let result = replay(io, dir, &segments, &from, &mut |first, payload| {
        bytes += payload.len() as u64;
        for op in decode(payload) {
            entries += 1;
            if let Err(e) = op {
                problems.push(format!("the log frame of sequence number {first}: {e}"));
            }
        }
        Ok(())
    });
    found.files += segments.len() as u64;
    found.entries += entries;
    found.bytes += bytes;
    problems.into_iter().for_each(|p| found.problem("log", dir, None, p));
    match result {
        Ok(end) => {
            end.broken.into_iter().for_each(|l| found.problem("log", &l.path, Some(l.offset), l.detail))
        }
        Err(e @ Error::Key { .. }) => return Err(e),
        Err(e) => found.error("log", dir, e),
    }
    Ok(found)
}
