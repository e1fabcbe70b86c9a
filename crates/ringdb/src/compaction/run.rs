//! Execution of what was picked: moves, deletions, and merges split over several threads.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use super::filtering::Filtering;
use super::fold::{Fold, Met};
use super::helpers::Helpers;
use super::input::{RunScan, split_keys};
use super::memory::Memory;
use super::output::{Outputs, PendingFiles};
use super::pick::{LEVELS, Merge, Pick};
use super::visibility::{Fate, Visibility};
use super::watch::Watch;
use super::{Change, CompactionEnv, Levels, RangeChange};
use crate::compaction_filter::registry::{FilterMap, Filters};
use crate::cursor::Cursor;
use crate::expiry;
use crate::key::{Kind, Seq};
use crate::merge::MergeCursor;
use crate::mutation::{Mutation, broken};
use crate::ranges::RangeState;
use crate::sync::lock;
use crate::table::meta::TableMeta;
use crate::{Error, ErrorKind, Result, purpose};

/// Entries between looks at whether to give up.
const CANCEL_EVERY: u32 = 1024;
/// A part of a merge reads at least so many bytes.
const LEAST_PART_BYTES: u64 = 16 << 20;

/// A flush, or a merge within level 0, gives one table unless it gets larger than this.
pub(crate) const LEVEL0_TABLE_BYTES: u64 = 1 << 30;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobStats {
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Versions read.
    pub entries: u64,
    /// Of the bytes read, those of level 0.
    pub level0_bytes: u64,
    /// Tables written.
    pub tables: u64,
    /// Tables moved without being rewritten.
    pub moved: u64,
}

/// Smallest and largest keys of a level's tables, in key order.
type Ranges = Arc<Vec<(Vec<u8>, Vec<u8>)>>;

/// Where older versions of a key may lie, outside of a merge: asked for ascending keys.
#[derive(Clone, Debug)]
pub(crate) struct Bottom {
    /// Ranges of the tables below the output level, by level, each in key order, with how far keys have come.
    below: Vec<(Ranges, usize)>,
    never: bool,
}

impl Bottom {
    /// Older versions of every key may lie anywhere.
    pub fn never() -> Bottom {
        Bottom { below: vec![], never: true }
    }

    /// For outputs into `level`; older versions than those of a merge lie below it. Within level 0 there may be
    /// older runs too.
    pub fn below<T: AsRef<TableMeta>>(levels: &Levels<T>, level: usize) -> Bottom {
        if level == 0 {
            return Bottom::never();
        }
        let ranges = |tables: &Vec<Arc<T>>| {
            let range = |t: &Arc<T>| {
                let m: &TableMeta = (**t).as_ref();
                (m.smallest.clone(), m.largest.clone())
            };
            (Arc::new(tables.iter().map(range).collect()), 0)
        };
        let deeper = levels.iter().take(LEVELS).skip(level + 1).filter(|l| !l.is_empty());
        Bottom { below: deeper.map(ranges).collect(), never: false }
    }

    /// Whether no older version of `key` lies elsewhere. Keys must come in ascending order.
    #[inline]
    pub fn is(&mut self, key: &[u8]) -> bool {
        if broken(Mutation::DropTombstones) {
            return true;
        }
        if self.never {
            return false;
        }
        self.below.iter_mut().all(|(ranges, at)| {
            while ranges.get(*at).is_some_and(|(_, largest)| largest.as_slice() < key) {
                *at += 1;
            }
            ranges.get(*at).is_none_or(|(smallest, _)| smallest.as_slice() > key)
        })
    }
}

/// Copies what must be kept from `cursor`, up to a key that is not included. Returns the number of versions read.
/// `step` is told how many were read since it was asked before, and says whether to give up.
pub(crate) fn copy_visible<T: CompactionEnv>(
    cursor: &mut impl Cursor,
    to: Option<&[u8]>,
    visibility: &mut Visibility,
    bottom: &mut Bottom,
    out: &mut Outputs<'_, T>,
    step: impl Fn(u64) -> bool,
) -> Result<u64> {
    let mut entries = 0;
    // One time for all: what has expired is written as a tombstone, or goes as one.
    let now = out.now();
    let mut until_look = CANCEL_EVERY;
    let mut fold = Fold::default();
    while cursor.valid() {
        if to.is_some_and(|to| cursor.key() >= to) {
            break;
        }
        let (seq, mut kind) = (cursor.seq(), cursor.kind());
        if kind == Kind::Expiring {
            cursor.load_value()?;
            if expiry::split(cursor.value()).0 <= now {
                if broken(Mutation::DropExpired) {
                    cursor.next()?;
                    continue;
                }
                kind = Kind::Delete;
            }
        }
        let key = cursor.key();
        if fold.is_open() {
            fold.come_to(key, bottom, out)?;
        }
        match visibility.fate(key, seq, kind, |k| bottom.is(k)) {
            Fate::Drop => {}
            Fate::Keep(seq) => {
                cursor.load_value()?;
                fold.stop(out)?;
                let value = if kind == Kind::Delete { &[] } else { cursor.value() };
                match &out.filtering {
                    Some(_) if visibility.is_new_key() => {
                        out.add_passed(cursor.key(), seq, kind, value, visibility.is_lowest())?;
                    }
                    _ => out.add(cursor.key(), seq, kind, value, visibility.is_new_key())?,
                }
            }
            fate => {
                cursor.load_value()?;
                let value = if kind == Kind::Delete { &[] } else { cursor.value() };
                let version = Met { key: cursor.key(), seq, kind, value };
                fold.meet(fate, &version, visibility.is_new_key(), bottom, out)?;
            }
        }
        entries += 1;
        cursor.next()?;
        until_look -= 1;
        if until_look == 0 {
            until_look = CANCEL_EVERY;
            if step(CANCEL_EVERY as u64) {
                return Err(Error::Closed);
            }
        }
    }
    fold.end_of_key(bottom, out)?;
    Ok(entries)
}

/// Makes tables that were written and synced part of the tree. If nothing has happened to the tree they are
/// removed.
pub(crate) fn install<T: CompactionEnv>(
    store: &T,
    mut change: Change<T::Table>,
    level: usize,
    metas: Vec<TableMeta>,
    pending: Vec<PendingFiles>,
) -> Result<()> {
    if !metas.is_empty() && !broken(Mutation::SkipDirectorySync) {
        store.sync_dir()?;
    }
    for meta in metas {
        change.added.push((level, store.open_table(meta)?));
    }
    let result = store.install(change);
    if !result.as_ref().is_err_and(|e| e.kind() == ErrorKind::Retry) {
        pending.into_iter().for_each(PendingFiles::keep);
    }
    result
}

/// Does what was picked from `levels`.
pub(crate) fn run<T: CompactionEnv>(
    store: &Arc<T>,
    pick: &Pick<T::Table>,
    levels: &Levels<T::Table>,
    table_bytes: u64,
    helpers: &dyn Helpers,
    watch: &Arc<Watch>,
) -> Result<JobStats> {
    let removed = pick.inputs().into_iter().map(|(l, t)| (l, Arc::clone(t))).collect();
    match pick {
        Pick::Delete(..) => {
            store.install(Change { removed, ..Change::default() })?;
            Ok(JobStats::default())
        }
        Pick::Move { to, tables, .. } => {
            let added = tables.iter().map(|t| (*to, Arc::clone(t))).collect();
            store.install(Change { removed, added, ..Change::default() })?;
            Ok(JobStats { moved: tables.len() as u64, ..JobStats::default() })
        }
        Pick::Merge(merge) => {
            let merged = merge_tables(store, merge, levels, table_bytes, helpers, watch)?;
            let ranges = RangeChange { applied: merged.applied, ..RangeChange::default() };
            let change = Change { removed, ranges, filtered: merged.filtered, ..Change::default() };
            install(&**store, change, merge.output, merged.metas, merged.pending)?;
            Ok(merged.work)
        }
    }
}

/// What one part of a merge gives: its tables, up to which number range tombstones were applied to them, and whether a
/// filter has removed or changed something.
type Part = Result<(Vec<TableMeta>, PendingFiles, Seq, bool)>;

/// What a merge gives.
struct Merged {
    metas: Vec<TableMeta>,
    pending: Vec<PendingFiles>,
    /// Range tombstones up to this number were applied to all of it.
    applied: Seq,
    filtered: bool,
    work: JobStats,
}

/// A merge in parts of the key range, each done by one thread.
struct MergeParts<T: CompactionEnv> {
    store: Arc<T>,
    inputs: Vec<(usize, Vec<Arc<T::Table>>)>,
    output: usize,
    /// Where parts after the first one begin.
    splits: Vec<Vec<u8>>,
    bottom: Bottom,
    ranges: Arc<RangeState>,
    filters: Option<Arc<FilterMap>>,
    readable: Vec<Seq>,
    table_bytes: u64,
    /// Bytes and entries that a part is expected to have.
    expected: (u64, u64),
    watch: Arc<Watch>,
    failed: AtomicBool,
    /// Versions read.
    entries: AtomicU64,
    results: Mutex<Vec<Option<Part>>>,
}

impl<T: CompactionEnv> MergeParts<T> {
    fn count(&self) -> usize {
        self.splits.len() + 1
    }

    /// Does part `i`, unless another one has failed: then it is not worth doing.
    fn run(&self, i: usize) {
        if self.failed.load(Relaxed) {
            return;
        }
        let part = self.merge(i);
        self.failed.fetch_or(part.is_err(), Relaxed);
        lock(&self.results)[i] = Some(part);
    }

    fn merge(&self, i: usize) -> Part {
        let store = &*self.store;
        let from = i.checked_sub(1).and_then(|i| self.splits.get(i)).map(Vec::as_slice);
        let to = self.splits.get(i).map(Vec::as_slice);
        let mut out =
            Outputs::new(store, self.output, self.table_bytes, self.expected, purpose::COMPACTION_WRITE);
        out.watch = Some(Arc::clone(&self.watch));
        out.filtering = self.filters.clone().map(|map| Filtering::new(map, self.output));
        let mut visibility =
            Visibility::new(self.readable.clone(), store.dropped_keyspaces()).with_ranges(&self.ranges);
        let runs = RunScan::of_inputs(store, &self.inputs, from, to, Memory::of(store.options()));
        let _read_ahead = store.charge(runs.iter().map(RunScan::ahead_bytes).sum());
        let mut cursor = MergeCursor::new(runs);
        match from {
            Some(from) => cursor.seek(from)?,
            None => cursor.seek_to_first()?,
        }
        let mut bottom = self.bottom.clone();
        let n =
            copy_visible(&mut cursor, to, &mut visibility, &mut bottom, &mut out, |n| self.watch.step(n))?;
        self.entries.fetch_add(n, Relaxed);
        let filtering = out.filtering.take();
        let filtered = filtering.is_some_and(|f| f.tell(store.filters()));
        let (metas, pending) = out.finish()?;
        Ok((metas, pending, visibility.applied(), filtered))
    }

    /// What all parts gave, in key order; the first error if one has failed.
    fn take(&self) -> Result<Merged> {
        let (mut metas, mut pending, mut error) = (Vec::new(), Vec::new(), None);
        let (mut applied, mut filtered) = (self.ranges.through, false);
        for part in lock(&self.results).drain(..) {
            match part {
                Some(Ok((m, files, seq, changed))) => {
                    filtered |= changed;
                    metas.extend(m);
                    pending.push(files);
                    applied = applied.min(seq);
                }
                Some(Err(e)) => error = error.or(Some(e)),
                None => {}
            }
        }
        if let Some(e) = error {
            return Err(e);
        }
        if pending.len() < self.count() {
            return Err(Error::Invalid("a part of a compaction ended without a result".into()));
        }
        Ok(Merged { metas, pending, applied, filtered, work: JobStats::default() })
    }
}

/// Merges the inputs, in parts of the key range, on this thread and those that help.
fn merge_tables<T: CompactionEnv>(
    store: &Arc<T>,
    merge: &Merge<T::Table>,
    levels: &Levels<T::Table>,
    table_bytes: u64,
    helpers: &dyn Helpers,
    watch: &Arc<Watch>,
) -> Result<Merged> {
    let bytes = |ts: &[Arc<T::Table>]| ts.iter().map(|t| (**t).as_ref().file_bytes).sum::<u64>();
    let read_bytes: u64 = merge.inputs.iter().map(|(_, ts)| bytes(ts)).sum();
    let all = || merge.inputs.iter().flat_map(|(_, ts)| ts);
    let read_entries = all().map(|t| (**t).as_ref().entries).sum();
    let level0_bytes = match merge.inputs.first() {
        Some((0, runs)) if merge.output > 0 => bytes(runs),
        _ => 0,
    };
    // Runs of level 0 are merged to have fewer tables there: into one, so in one part.
    let (wanted, table_bytes) = match merge.output {
        0 => (1, LEVEL0_TABLE_BYTES),
        _ => {
            let most = read_bytes / LEAST_PART_BYTES.min(table_bytes);
            (most.clamp(1, helpers.threads() as u64) as usize, table_bytes)
        }
    };
    let splits = split_keys(&**store, merge, wanted);
    let count = splits.len() + 1;
    // After the inputs are fixed, and before the views: see [`Visibility`].
    let ranges = store.ranges();
    let parts = Arc::new(MergeParts {
        store: Arc::clone(store),
        inputs: merge.inputs.iter().map(|(l, ts)| (*l, ts.clone())).collect(),
        output: merge.output,
        splits,
        bottom: Bottom::below(levels, merge.output),
        ranges,
        filters: store.filters().and_then(Filters::now),
        readable: store.views(),
        table_bytes,
        expected: (read_bytes / count as u64, read_entries),
        watch: Arc::clone(watch),
        failed: AtomicBool::new(false),
        entries: AtomicU64::new(0),
        results: Mutex::new((0..count).map(|_| None).collect()),
    });
    let job = Arc::clone(&parts);
    helpers.share(count, Arc::new(move |i: usize| job.run(i)));
    let merged = parts.take()?;
    let written_bytes = merged.metas.iter().map(|m| m.file_bytes).sum();
    let entries = parts.entries.load(Relaxed);
    let tables = merged.metas.len() as u64;
    let work = JobStats { read_bytes, written_bytes, entries, level0_bytes, tables, moved: 0 };
    Ok(Merged { work, ..merged })
}
