//! The log's frames, in order, as far as nothing is missing between them; and those behind a gap if asked for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::ledger::Ledger;
use super::output::Output;
use super::{Input, Job, Loss, Shared};
use crate::cursor::Cursor;
use crate::files::FileKind;
use crate::key::{self, Kind, Seq};
use crate::log::payload::decode;
use crate::log::{LogPos, Lost, ReplayFrom, frames_behind_gap, number_in_header, replay};
use crate::manifest::ManifestState;
use crate::memtable::{MemWriter, Memtable};
use crate::ranges::RangeTombstone;
use crate::settings::SettingsMap;
use crate::sync::lock;
use crate::table::{Reads, TableParts, TableScan};
use crate::{Error, Result, purpose};

/// Bytes of frames in memory; more are written to tables for the time being.
const MEMTABLE_BYTES: u64 = 64 << 20;

/// What the log gave.
pub(super) struct Frames {
    pub cursors: Vec<Input>,
    /// Tables to be removed at the end.
    pub spilled: Vec<PathBuf>,
    pub last_seq: Seq,
    pub ranges: BTreeMap<Seq, RangeTombstone>,
}

/// Reads the segments; what is lost goes to the ledger.
pub(super) fn read(
    job: &Job<'_>,
    shared: &Arc<Shared>,
    segments: &[u64],
    (state, whole): (&ManifestState, bool),
    settings: &Arc<SettingsMap>,
) -> Result<Frames> {
    let mut sink = Sink::new(job, settings);
    // What is in tables is skipped if it is there for sure. Frames are a whole end of the history, so taking them
    // twice brings nothing old back.
    let tables_whole = whole && shared.sources.iter().all(|s| !s.missing);
    let from = ReplayFrom {
        first_segment: if whole { state.log_number } else { segments.first().copied().unwrap_or(0) },
        flushed_seq: if tables_whole { state.flushed_seq } else { 0 },
        recover_damaged: true,
        durable: if whole { state.log_durable } else { LogPos::default() },
    };
    let wanted: Vec<u64> = segments.iter().copied().filter(|n| *n >= from.first_segment).collect();
    let (mut frames, mut bytes, mut newest) = (0, 0, from.flushed_seq);
    let end = replay(job.io, job.src, &wanted, &from, &mut |first, payload| {
        frames += 1;
        bytes += payload.len() as u64;
        newest = first;
        sink.frame(first, payload)
    });
    let lost = match end {
        Ok(end) => {
            newest = newest.max(end.last_first_seq);
            end.lost.or(end.broken)
        }
        Err(e @ Error::NewerFormat { .. }) => return Err(e),
        // Of the new store, which is written meanwhile.
        Err(e) if of_new_store(&e, job) => return Err(e),
        Err(e) => Some(lost_by(e, job)),
    };
    misnamed(job, shared, &wanted, from.first_segment);
    if whole && !tables_whole && frames > 0 {
        ends_early(job, shared, sink.last_seq, state.flushed_seq);
    }
    let mut behind = 0;
    let mut taken = 0;
    let take = job.options.frames_after_gaps;
    frames_behind_gap(job.io, job.src, &wanted, newest, &mut |first, payload| {
        behind += 1;
        // What was written to tables may be missing here: then there is no gap.
        let follows = tables_whole && first == newest.max(sink.last_seq) + 1;
        if take || follows {
            taken += 1;
            bytes += payload.len() as u64;
            sink.frame(first, payload)?;
        }
        Ok(())
    })?;
    let mut ledger = lock(&shared.ledger);
    ledger.read(bytes);
    ledger.report.log_frames = frames + taken;
    ledger.report.log_frames_after_gaps = behind - taken;
    ledger.report.entries += sink.entries;
    if segments.is_empty() {
        ledger.report.notes.push("there is no segment of a log".into());
    }
    report_end(&mut ledger, lost, behind, take);
    drop(ledger);
    sink.finish()
}

/// Where an error has ended the log.
fn lost_by(e: Error, job: &Job<'_>) -> Lost {
    if let Error::Corrupt { path, offset, detail } = e {
        return Lost { path, offset: offset.unwrap_or(0), detail };
    }
    let path = match &e {
        Error::Io(e) => e.path().map(PathBuf::from),
        _ => None,
    };
    Lost { path: path.unwrap_or_else(|| job.src.into()), offset: 0, detail: e.to_string() }
}

/// Reports the segments that are under the name of another one: a file that was on its way to become this segment has
/// the number of one that was given up.
fn misnamed(job: &Job<'_>, shared: &Shared, segments: &[u64], first: u64) {
    for &n in segments {
        let path = FileKind::Log(n).path(job.src);
        if let Some(real) = number_in_header(job.io, &path).filter(|real| *real != n && *real >= first) {
            let detail =
                format!("it is segment {real} of the log, under a wrong name: its frames were left out");
            lock(&shared.ledger).lost(Loss { path, detail, ..Loss::default() });
        }
    }
}

/// Reports a log that ends before what tables hold: then it is no end of the history. What deleted or replaced its
/// entries may be gone from tables too.
fn ends_early(job: &Job<'_>, shared: &Shared, last: Seq, flushed: Seq) {
    if last < flushed {
        let detail = format!(
            "the log ends at sequence number {last}, before what tables hold ({flushed}): its frames may bring old data back"
        );
        lock(&shared.ledger).lost(Loss { path: job.src.into(), detail, ..Loss::default() });
    }
}

/// Reports what ended the log, and what became of the whole frames behind that.
fn report_end(ledger: &mut Ledger, lost: Option<Lost>, behind: u64, take: bool) {
    let what = if take { "taken" } else { "left out" };
    match lost {
        None if behind == 0 => {}
        None => {
            // Writes that were under way together when the machine died: none of them was acknowledged.
            let note = format!("{behind} frames behind the end of the log, never acknowledged, were {what}");
            ledger.report.notes.push(note);
        }
        Some(lost) => {
            let more = match behind {
                0 => String::new(),
                n => format!("; {n} whole frames behind it were {what}"),
            };
            let detail = format!("{}{more}", lost.detail);
            ledger.lost(Loss { path: lost.path, offset: Some(lost.offset), detail, ..Loss::default() });
        }
    }
}

/// Whether an error is about a file of the new store.
fn of_new_store(e: &Error, job: &Job<'_>) -> bool {
    let path = match e {
        Error::Io(e) => e.path(),
        Error::Corrupt { path, .. } => Some(path.as_path()),
        _ => None,
    };
    path.is_none_or(|p| p.starts_with(&job.files.dir))
}

/// Where frames go.
struct Sink<'a, 'j> {
    job: &'a Job<'j>,
    settings: &'a Arc<SettingsMap>,
    open: Option<(Arc<Memtable>, MemWriter)>,
    done: Vec<Input>,
    spilled: Vec<PathBuf>,
    ranges: BTreeMap<Seq, RangeTombstone>,
    last_seq: Seq,
    entries: u64,
}

impl<'a, 'j> Sink<'a, 'j> {
    fn new(job: &'a Job<'j>, settings: &'a Arc<SettingsMap>) -> Sink<'a, 'j> {
        let (done, spilled, ranges) = Default::default();
        Sink { job, settings, open: None, done, spilled, ranges, last_seq: 0, entries: 0 }
    }

    fn frame(&mut self, first: Seq, payload: &[u8]) -> Result<()> {
        if self.open.as_ref().is_some_and(|(m, _)| m.bytes() >= MEMTABLE_BYTES) {
            self.spill()?;
        }
        let (_, writer) = self.open.get_or_insert_with(|| Memtable::new(MEMTABLE_BYTES));
        // A batch is taken whole or not at all.
        if first > key::SEQ_MAX - payload.len() as u64 || decode(payload).any(|op| op.is_err()) {
            return Ok(());
        }
        for (seq, op) in (first..).zip(decode(payload).flatten()) {
            op.insert_into(writer, seq);
            self.last_seq = self.last_seq.max(seq);
            self.entries += 1;
        }
        Ok(())
    }

    /// Writes the memtable to a table.
    fn spill(&mut self) -> Result<()> {
        let Some((mem, _)) = self.open.take() else { return Ok(()) };
        self.take_ranges(&mem);
        let mut cursor = mem.cursor();
        cursor.seek_to_first()?;
        let mut out = Output::new(self.job.files, self.settings.clone());
        let mut last: Vec<u8> = Vec::new();
        let (mut any, mut operand) = (false, false);
        while cursor.valid() {
            let new_key = !any || last != cursor.key();
            // Older versions are wanted below operands only.
            if new_key || operand {
                out.add(cursor.key(), cursor.seq(), cursor.kind(), cursor.value(), new_key)?;
                last.clear();
                last.extend_from_slice(cursor.key());
                any = true;
                operand = cursor.kind() == Kind::Merge;
            }
            cursor.next()?;
        }
        let io = self.job.io;
        for meta in out.finish()? {
            let path = FileKind::Table(meta.file_id).path(&self.job.files.dir);
            let parts =
                Arc::new(TableParts::load(io, &path, meta.file_id, Reads::Direct, purpose::RECOVERY)?);
            self.done.push(Box::new(TableScan::new(io, &parts, None, purpose::RECOVERY)?));
            self.spilled.push(path);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Frames> {
        if let Some((mem, _)) = self.open.take() {
            self.take_ranges(&mem);
            self.done.push(Box::new(mem.cursor()));
        }
        let Sink { done, spilled, ranges, last_seq, .. } = self;
        Ok(Frames { cursors: done, spilled, last_seq, ranges })
    }

    fn take_ranges(&mut self, mem: &Memtable) {
        self.ranges.extend(mem.ranges().all().map(|t| (t.seq, t.clone())));
    }
}
