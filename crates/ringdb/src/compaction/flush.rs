//! Flush: the oldest immutable memtables become tables of level 0.

use crate::sync::atomic::AtomicBool;

use super::output::Outputs;
use super::run::{Bottom, JobStats, LEVEL0_TABLE_BYTES, copy_visible, install};
use super::visibility::Visibility;
use super::{Change, CompactionEnv};
use crate::Result;
use crate::cursor::Cursor;
use crate::merge::MergeCursor;
use crate::purpose;

/// Memtables that one flush merges at most.
const MOST_MEMTABLES: usize = 4;

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
    // After the memtables are fixed: see [`CompactionEnv::views`].
    let mut visibility = Visibility::new(store.views(), store.dropped_keyspaces());
    let mut out = Outputs::new(store, 0, LEVEL0_TABLE_BYTES, (bytes, entries), purpose::FLUSH);
    let mut cursors: Vec<T::MemCursor> = frozen.into_iter().map(|f| f.cursor).collect();
    let mut work = JobStats { read_bytes: bytes, ..JobStats::default() };
    let none = &mut Bottom::never();
    match cursors.as_mut_slice() {
        [one] => {
            one.seek_to_first()?;
            work.entries = copy_visible(one, None, &mut visibility, none, &mut out, cancel)?;
        }
        _ => {
            let mut merge = MergeCursor::new(cursors);
            merge.seek_to_first()?;
            work.entries = copy_visible(&mut merge, None, &mut visibility, none, &mut out, cancel)?;
        }
    }
    let (metas, pending) = out.finish()?;
    work.written_bytes = metas.iter().map(|m| m.file_bytes).sum();
    install(store, Change { flushed, removed: vec![], added: vec![] }, 0, metas, vec![pending])?;
    Ok(Some(work))
}
