//! Verification: every byte of every table, the log and the manifest is read and checked.

use std::path::Path;
use std::sync::Arc;

use super::Core;
use super::directory::{Found, look};
use crate::cursor::Cursor;
use crate::files::FileKind;
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
            self.verify_table(level, table.meta(), &state, &mut report);
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

    fn verify_table(&self, level: usize, meta: &TableMeta, state: &ManifestState, report: &mut VerifyReport) {
        let path = FileKind::Table(meta.file_id).path(&self.dir);
        report.files += 1;
        match state.tables.get(&meta.file_id) {
            Some((l, m)) if *l as usize == level && m == meta => {}
            Some((l, _)) => {
                let detail =
                    format!("the manifest describes it differently (level {l}; open in level {level})");
                report.problem(&path, None, detail);
            }
            None => report.problem(&path, None, "the manifest on disk does not name this table"),
        }
        // Everything is read from the disk anew, what is resident too.
        let parts = match TableParts::load(&self.io, &path, meta.file_id, purpose::VERIFY) {
            Ok(p) => Arc::new(p),
            Err(e) => return report.error(&path, e),
        };
        if parts.properties.meta != *meta {
            report.problem(&path, None, "its properties are not what the manifest says");
        }
        let before = report.problems.len();
        if let Err(e) = scan_table(&self.io, &parts, meta, &path, report) {
            report.error(&path, e);
        }
        report.bytes += meta.file_bytes;
        if report.problems.len() > before + PROBLEMS_A_TABLE {
            let more = report.problems.len() - before - PROBLEMS_A_TABLE;
            report.problems.truncate(before + PROBLEMS_A_TABLE);
            report.problem(&path, None, format!("{more} more problems"));
        }
    }

    /// Reads the log as a recovery would.
    fn verify_log(&self, report: &mut VerifyReport) -> Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            // Damage found here may be a segment that was recycled, or a frame that was written, in between.
            let found = self.read_log()?;
            let again = !found.problems.is_empty() && tries < LOG_TRIES && self.writes.is_some();
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

    fn read_log(&self) -> Result<VerifyReport> {
        let mut found = VerifyReport::default();
        let state = match ManifestFile::load(&self.io, &self.dir) {
            Ok(Some(loaded)) => loaded.state,
            // Told by the manifest's own check.
            _ => return Ok(found),
        };
        let Found::Store(own) = look(&self.io, &self.dir)? else { return Ok(found) };
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
        let result = replay(&self.io, &self.dir, &segments, &from, &mut |first, payload| {
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
        problems.into_iter().for_each(|p| found.problem(&self.dir, None, p));
        if let Err(e) = result {
            found.error(&self.dir, e);
        }
        Ok(found)
    }
}

/// Reads a table from end to end: checksums and structure by the scan; order, the filter, and the description here.
fn scan_table(
    io: &engineswap::Io,
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
    while result.is_ok() && scan.valid() {
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
    let whole = result.is_ok() && !scan.valid();
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
