//! Flush: the oldest immutable memtables become tables of level 0.

use crate::sync::atomic::AtomicBool;

use super::output::Outputs;
use super::run::{Bottom, LEVEL0_TABLE_BYTES, Work, copy_visible, install};
use super::visibility::Visibility;
use super::{Change, Tree};
use crate::Result;
use crate::cursor::Cursor;
use crate::merge::MergeCursor;
use crate::purpose;

/// Memtables that one flush merges at most.
const MOST_MEMTABLES: usize = 4;

/// Flushes the oldest immutable memtables, if there are any, and installs the result.
pub(crate) fn flush<T: Tree>(tree: &T, cancel: &AtomicBool) -> Result<Option<Work>> {
    let mut frozen = tree.immutables();
    frozen.truncate(MOST_MEMTABLES);
    if frozen.is_empty() {
        return Ok(None);
    }
    let flushed = frozen.len();
    let bytes = frozen.iter().map(|f| f.bytes).sum();
    // After the memtables are fixed: see [`Tree::views`].
    let mut visibility = Visibility::new(tree.views(), tree.dropped_keyspaces());
    let mut out = Outputs::new(tree, 0, LEVEL0_TABLE_BYTES, bytes, purpose::FLUSH);
    let mut cursors: Vec<T::MemCursor> = frozen.into_iter().map(|f| f.cursor).collect();
    let mut work = Work { read_bytes: bytes, ..Work::default() };
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
    let (metas, made) = out.finish()?;
    work.written_bytes = metas.iter().map(|m| m.file_bytes).sum();
    install(tree, Change { flushed, removed: vec![], added: vec![] }, 0, metas, vec![made])?;
    Ok(Some(work))
}
