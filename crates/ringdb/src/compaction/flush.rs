//! Flush: the oldest immutable memtables become tables of level 0.

use std::sync::Arc;

use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::output::Outputs;
use super::run::{Bottom, JobStats, LEVEL0_TABLE_BYTES, copy_visible, install};
use super::visibility::Visibility;
use super::{Change, CompactionEnv, RangeChange};
use crate::Result;
use crate::cursor::Cursor;
use crate::key::Seq;
use crate::merge::MergeCursor;
use crate::mutation::{Mutation, broken};
use crate::purpose;
use crate::ranges::{RangeSet, RangeState, RangeTombstone, needed};

/// Memtables that one flush merges at most.
const MOST_MEMTABLES: usize = 4;

/// Which range tombstones come with a flush, and which of the list's they make superfluous.
fn range_change(listed: &RangeState, flushed: Vec<RangeTombstone>, mut views: Vec<Seq>) -> RangeChange {
    if flushed.is_empty() || broken(Mutation::ForgetRangesAtFlush) {
        return RangeChange::default();
    }
    views.sort_unstable();
    views.dedup();
    let all: Vec<RangeTombstone> = listed.set.all().iter().chain(&flushed).cloned().collect();
    let needed = needed(&all, &views);
    RangeChange {
        added: flushed.into_iter().filter(|t| needed.contains(&t.seq)).collect(),
        superseded: listed.set.all().iter().map(|t| t.seq).filter(|seq| !needed.contains(seq)).collect(),
        applied: 0,
    }
}

/// Flushes the oldest immutable memtables, if there are any, and installs the result.
pub(crate) fn flush<T: CompactionEnv>(store: &T, cancel: &AtomicBool) -> Result<Option<JobStats>> {
    let mut frozen = store.immutables();
    frozen.truncate(MOST_MEMTABLES);
    if frozen.is_empty() {
        return Ok(None);
    }
    let flushed = frozen.len();
    let bytes = frozen.iter().map(|f| f.bytes).sum();
    let entries = frozen.iter().map(|f| f.entries).sum();
    let flushed_ranges: Vec<RangeTombstone> = frozen.iter().flat_map(|f| f.ranges.clone()).collect();
    let listed = store.ranges();
    // After the memtables and the list are fixed: see [`CompactionEnv::views`].
    let views = store.views();
    // Of those before, all that matters to newer versions is that they are there.
    let through = flushed_ranges.iter().map(|t| t.seq).max().unwrap_or(0).max(listed.through);
    let mut visibility = Visibility::new(views.clone(), store.dropped_keyspaces())
        .with_range_set(&Arc::new(RangeSet::new(flushed_ranges.clone())), through);
    let mut out = Outputs::new(store, 0, LEVEL0_TABLE_BYTES, (bytes, entries), purpose::FLUSH);
    let mut cursors: Vec<T::MemCursor> = frozen.into_iter().map(|f| f.cursor).collect();
    let mut work = JobStats { read_bytes: bytes, ..JobStats::default() };
    let none = &mut Bottom::never();
    let stop = |_| cancel.load(Relaxed);
    match cursors.as_mut_slice() {
        [one] => {
            one.seek_to_first()?;
            work.entries = copy_visible(one, None, &mut visibility, none, &mut out, stop)?;
        }
        _ => {
            let mut merge = MergeCursor::new(cursors);
            merge.seek_to_first()?;
            work.entries = copy_visible(&mut merge, None, &mut visibility, none, &mut out, stop)?;
        }
    }
    let (metas, pending) = out.finish()?;
    work.tables = metas.len() as u64;
    work.written_bytes = metas.iter().map(|m| m.file_bytes).sum();
    let ranges =
        RangeChange { applied: visibility.applied(), ..range_change(&listed, flushed_ranges, views) };
    install(store, Change { flushed, ranges, ..Change::default() }, 0, metas, vec![pending])?;
    Ok(Some(work))
}
