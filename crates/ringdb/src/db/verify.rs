//! Verification: every byte of every table, the log and the manifest is read and checked.

use std::path::Path;
use std::sync::Arc;

use engineswap::Io;

use super::Core;
use super::directory::{Found, look};
use crate::cursor::Cursor;
use crate::files::{self, FileKind};
use crate::key::{self, Kind};
use crate::log::{ReplayFrom, replay};
use crate::manifest::{ManifestFile, ManifestState};
use crate::stats::{VerifyProblem, VerifyReport};
use crate::sync::lock;
use crate::table::meta::TableMeta;
use crate::table::parts::TableParts;
use crate::table::scan::TableScan;
use crate::{Error, Result, batch, purpose};

/// How often the log is looked at again when it changes while it is read.
const LOG_TRIES: u32 = 20;
/// Problems of one table that are listed; a damaged disk may have millions.
const PROBLEMS_A_TABLE: usize = 20;

impl VerifyReport {
    fn problem(&mut self, path: &Path, offset: Option<u64>, detail: impl Into<String>) {
        let file = path.display().to_string();
        self.problems.push(VerifyProblem { file, offset, detail: detail.into() });
    }

    fn error(&mut self, path: &Path, e: Error) {
        match e {
            Error::Corrupt { path, offset, detail } => self.problem(&path, offset, detail),
            e => self.problem(path, None, e.to_string()),
        }
    }
}

impl Core {
    /// See [`crate::Db::verify`].
    pub fn verify(&self) -> Result<VerifyReport> {
        self.check_open()?;
        let mut report = VerifyReport::default();
        // Holding the version keeps its tables' files.
        let (state, version) = self.verify_manifest(&mut report)?;
        for (level, table) in version.tables() {
            verify_table(&self.io, &self.dir, level, table.meta(), &state, &mut report);
        }
        for id in state.tables.keys() {
            if !version.tables().any(|(_, t)| t.meta().file_id == *id) {
                let path = FileKind::Table(*id).path(&self.dir);
                report.problem(&path, None, "the manifest on disk names this table, the open store does not");
            }
        }
        self.verify_log(&mut report)?;
        Ok(report)
    }

    /// Reads the manifest back and compares it with what the store works with.
    fn verify_manifest(
        &self,
        report: &mut VerifyReport,
    ) -> Result<(ManifestState, Arc<crate::manifest::Version<crate::table::Table>>)> {
        let path = FileKind::Current.path(&self.dir);
        // No edit is appended meanwhile.
        let held = self.manifest.as_ref().map(lock);
        let loaded = ManifestFile::load(&self.io, &self.dir);
        let version = lock(&self.tree).version.clone();
        let in_memory = || ManifestState {
            tables: version.tables().map(|(l, t)| (t.meta().file_id, (l as u32, t.meta().clone()))).collect(),
            ..ManifestState::default()
        };
        let state = match (loaded, &held) {
            (Ok(Some(on_disk)), Some(held)) => {
                let path = FileKind::Manifest(on_disk.number).path(&self.dir);
                report.files += 2;
                report.bytes += held.len();
                if on_disk.state != *held.state() {
                    report.problem(&path, None, "it does not say what was written to it");
                }
                if let Some(at) = on_disk.torn_at {
                    report.problem(&path, Some(at), "its last record is cut off");
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
                report.problem(&path, None, "it is missing");
                in_memory()
            }
            (Err(e), _) => {
                report.error(&path, e);
                in_memory()
            }
        };
        Ok((state, version))
    }

    /// Reads the log as a recovery would.
    fn verify_log(&self, report: &mut VerifyReport) -> Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            // Damage found here may be a segment that was recycled, or a frame that was written, in between.
            let found = read_log(&self.io, &self.dir)?;
            let again = !found.problems.is_empty() && tries < LOG_TRIES;
            if !again {
                report.files += found.files;
                report.bytes += found.bytes;
                report.entries += found.entries;
                report.problems.extend(found.problems);
                return Ok(());
            }
            self.env.sleep(std::time::Duration::from_millis(u64::from(tries)));
        }
    }
}

/// See [`crate::Db::verify_dir`].
pub(crate) fn verify_dir(io: &Io, dir: &Path) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let no_store = |detail: &str| Error::NoStore { path: dir.to_path_buf(), detail: detail.into() };
    let own = match look(io, dir) {
        Ok(Found::Store(own)) => own,
        Ok(Found::Nothing) => return Err(no_store("there is no such directory")),
        Ok(Found::Unfinished(_)) => return Err(no_store("it is empty")),
        Err(e @ Error::Corrupt { .. }) => {
            report.error(dir, e);
            let entries = io.read_dir(dir)?;
            entries.iter().filter_map(|e| files::parse(&e.name)).collect()
        }
        Err(e) => return Err(e),
    };
    match ManifestFile::load(io, dir) {
        Ok(Some(loaded)) => {
            let path = FileKind::Manifest(loaded.number).path(dir);
            report.files += 2;
            report.bytes += io.metadata(&path)?.map_or(0, |m| m.len);
            for (level, meta) in loaded.state.tables.values() {
                verify_table(io, dir, *level as usize, meta, &loaded.state, &mut report);
            }
        }
        loaded => {
            if let Err(e) = loaded {
                report.error(&FileKind::Current.path(dir), e);
            }
            // Which tables are in force is not known: each is checked against itself.
            let tables = own.iter().filter_map(|k| if let FileKind::Table(n) = k { Some(*n) } else { None });
            for id in tables {
                let path = FileKind::Table(id).path(dir);
                let mut state = ManifestState::default();
                match TableParts::load(io, &path, id, purpose::VERIFY) {
                    Ok(parts) => {
                        let meta = parts.properties.meta;
                        state.tables.insert(id, (0, meta.clone()));
                        verify_table(io, dir, 0, &meta, &state, &mut report);
                    }
                    Err(e) => {
                        report.files += 1;
                        report.error(&path, e);
                    }
                }
            }
        }
    }
    let log = read_log(io, dir)?;
    report.files += log.files;
    report.bytes += log.bytes;
    report.entries += log.entries;
    report.problems.extend(log.problems);
    Ok(report)
}

/// Reads a table's file anew, what is resident too, and compares it with what the manifest says of it.
fn verify_table(
    io: &Io,
    dir: &Path,
    level: usize,
    meta: &TableMeta,
    state: &ManifestState,
    report: &mut VerifyReport,
) {
    let path = FileKind::Table(meta.file_id).path(dir);
    report.files += 1;
    match state.tables.get(&meta.file_id) {
        Some((l, m)) if *l as usize == level && m == meta => {}
        Some((l, _)) => {
            let detail = format!("the manifest describes it differently (level {l}; open in level {level})");
            report.problem(&path, None, detail);
        }
        None => report.problem(&path, None, "the manifest on disk does not name this table"),
    }
    let parts = match TableParts::load(io, &path, meta.file_id, purpose::VERIFY) {
        Ok(p) => Arc::new(p),
        Err(e) => return report.error(&path, e),
    };
    if parts.properties.meta != *meta {
        report.problem(&path, None, "its properties are not what the manifest says");
    }
    let before = report.problems.len();
    if let Err(e) = scan_table(io, &parts, meta, &path, report) {
        report.error(&path, e);
    }
    report.bytes += meta.file_bytes;
    if report.problems.len() > before + PROBLEMS_A_TABLE {
        let more = report.problems.len() - before - PROBLEMS_A_TABLE;
        report.problems.truncate(before + PROBLEMS_A_TABLE);
        report.problem(&path, None, format!("{more} more problems"));
    }
}

fn read_log(io: &Io, dir: &Path) -> Result<VerifyReport> {
    let mut found = VerifyReport::default();
    let state = match ManifestFile::load(io, dir) {
        Ok(Some(loaded)) => loaded.state,
        // Told by the manifest's own check.
        _ => return Ok(found),
    };
    let Found::Store(own) = look(io, dir)? else { return Ok(found) };
    let segments: Vec<u64> = own
        .iter()
        .filter_map(|k| if let FileKind::Log(n) = k { Some(*n) } else { None })
        .filter(|n| *n >= state.log_number)
        .collect();
    let from = ReplayFrom {
        first_segment: state.log_number,
        flushed_seq: state.flushed_seq,
        recover_damaged: false,
    };
    let (mut entries, mut bytes) = (0, 0);
    let mut problems = Vec::new();
    let result = replay(io, dir, &segments, &from, &mut |first, payload| {
        bytes += payload.len() as u64;
        for op in batch::decode(payload) {
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
    problems.into_iter().for_each(|p| found.problem(dir, None, p));
    match result {
        Ok(end) => end.broken.into_iter().for_each(|l| found.problem(&l.path, Some(l.offset), l.detail)),
        Err(e) => found.error(dir, e),
    }
    Ok(found)
}

/// Reads a table from end to end: checksums and structure by the scan; order, the filter, and the description here.
fn scan_table(
    io: &Io,
    parts: &Arc<TableParts>,
    meta: &TableMeta,
    path: &Path,
    report: &mut VerifyReport,
) -> Result<()> {
    let mut scan = TableScan::new(io, parts, None, purpose::VERIFY)?;
    let (mut entries, mut tombstones) = (0u64, 0u64);
    let (mut min_seq, mut max_seq) = (u64::MAX, 0);
    let mut last: Option<(Vec<u8>, u64)> = None;
    let mut wrong = Vec::new();
    let mut result = scan.seek_to_first();
    let mut damaged = 0;
    loop {
        // One bad block is not the end: the others are looked at too.
        match result {
            Err(e @ Error::Corrupt { .. }) if damaged < PROBLEMS_A_TABLE => {
                damaged += 1;
                report.error(path, e);
                result = scan.skip_block();
                continue;
            }
            Ok(()) if scan.valid() => {}
            _ => break,
        }
        let (k, seq) = (scan.key(), scan.seq());
        if let Some((last_key, last_seq)) = &last
            && (last_key.as_slice(), std::cmp::Reverse(*last_seq)) >= (k, std::cmp::Reverse(seq))
        {
            wrong.push(format!("entry {entries} is out of order"));
        }
        if !parts.filter.may_contain(key::hash(k)) {
            wrong.push(format!("the filter denies the key of entry {entries}"));
        }
        if key::split(k).is_none() {
            wrong.push(format!("the key of entry {entries} has no keyspace"));
        }
        match &mut last {
            Some((key, s)) => {
                key.clear();
                key.extend_from_slice(k);
                *s = seq;
            }
            None => {
                if k != meta.smallest.as_slice() {
                    wrong.push("its first key is not what the manifest says".into());
                }
                last = Some((k.to_vec(), seq));
            }
        }
        entries += 1;
        tombstones += u64::from(scan.kind() == Kind::Delete);
        min_seq = min_seq.min(seq);
        max_seq = max_seq.max(seq);
        result = scan.next();
        if wrong.len() > PROBLEMS_A_TABLE {
            break;
        }
    }
    report.blocks += scan.blocks_read();
    report.entries += entries;
    let whole = damaged == 0 && result.is_ok() && !scan.valid();
    if whole {
        let is = (entries, tombstones, min_seq, max_seq);
        let said = (meta.entries, meta.tombstones, meta.min_seq, meta.max_seq);
        if is != said {
            wrong.push(format!(
                "it holds {is:?} (entries, tombstones, smallest and largest sequence number), not {said:?}"
            ));
        }
        if last.is_none_or(|(k, _)| k != meta.largest) {
            wrong.push("its last key is not what the manifest says".into());
        }
    }
    wrong.into_iter().for_each(|w| report.problem(path, None, w));
    result
}
