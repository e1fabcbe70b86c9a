//! [`Table`]: an open table: its resident parts, its file, and the slots of its cached blocks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engineswap::{File, Io, Process};
use latchfree::SlotArray;

use super::checked::CheckedBlocks;
use super::filter::Filter;
use super::index::Index;
use super::meta::TableMeta;
use super::parts::TableParts;
use super::reads::Reads;
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::key::Seq;
use crate::purpose;

/// An open table. Its file is open as long as this lives, and is deleted with it once marked obsolete.
pub(crate) struct Table {
    io: Io,
    parts: Arc<TableParts>,
    slots: SlotArray,
    /// See [`TableMeta::given`]. A copy: whoever has found an entry has the slots at hand, but not the description.
    given: Seq,
    checked: CheckedBlocks,
    cache: Arc<Cache>,
    obsolete: AtomicBool,
    /// Which opened it.
    process: Process,
}

impl Table {
    /// Opens the table at `path`, whose description the manifest has: `meta`.
    pub fn open(
        io: &Io,
        cache: &Arc<Cache>,
        path: &Path,
        meta: TableMeta,
        reads: Reads,
    ) -> Result<Arc<Table>> {
        let parts = TableParts::load_as(io, path, &meta, reads, purpose::TABLE_OPEN)?;
        Ok(Table::over(io, cache, parts))
    }

    /// Over the parts of a table that was written to be ingested, whose entries get the number `seq`.
    pub fn ingested(io: &Io, cache: &Arc<Cache>, mut parts: TableParts, seq: Seq) -> Arc<Table> {
        parts.properties.meta = parts.properties.meta.with_given(seq);
        Table::over(io, cache, parts)
    }

    /// Stands in for a table that could not be opened because of `why`: whatever has to look for a key within its
    /// range fails with that error.
    pub fn unreadable(io: &Io, cache: &Arc<Cache>, path: &Path, meta: TableMeta, why: Error) -> Arc<Table> {
        let block_bytes = cache.frame_bytes() as u32;
        Table::over(io, cache, TableParts::unreadable(path, meta, block_bytes, why))
    }

    fn over(io: &Io, cache: &Arc<Cache>, parts: TableParts) -> Arc<Table> {
        cache.table_opened(index_bytes(&parts), parts.filter.bytes());
        Arc::new(Table {
            io: io.clone(),
            slots: cache.slots(parts.index.blocks() as usize),
            given: parts.given(),
            checked: CheckedBlocks::new(parts.index.blocks()),
            parts: Arc::new(parts),
            cache: Arc::clone(cache),
            obsolete: AtomicBool::new(false),
            process: Process::this(),
        })
    }

    /// What stays in memory of it, shared with scans.
    pub fn parts(&self) -> &Arc<TableParts> {
        &self.parts
    }

    /// What the manifest knows of it.
    #[inline]
    pub fn meta(&self) -> &TableMeta {
        &self.parts.properties.meta
    }

    /// What is added to the sequence numbers in its blocks.
    #[inline]
    pub fn given(&self) -> Seq {
        self.given
    }

    pub fn path(&self) -> &Path {
        &self.parts.path
    }

    pub fn io(&self) -> &Io {
        &self.io
    }

    pub(super) fn file(&self) -> Result<&File> {
        self.parts.file()
    }

    /// Whether its file is read past the page cache.
    #[inline]
    pub(super) fn reads_direct(&self) -> bool {
        self.parts.reads_direct()
    }

    /// Why the table cannot be read, if it could not be opened.
    #[inline]
    pub fn why_unreadable(&self) -> Option<&Error> {
        self.parts.why_unreadable()
    }

    #[inline]
    pub fn index(&self) -> &Index {
        &self.parts.index
    }

    #[inline]
    pub fn filter(&self) -> &Filter {
        &self.parts.filter
    }

    #[inline]
    pub fn slots(&self) -> &SlotArray {
        &self.slots
    }

    /// Whose structure was checked since the table was opened.
    #[inline]
    pub(super) fn checked(&self) -> &CheckedBlocks {
        &self.checked
    }

    #[inline]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Has the file deleted when the last reader lets go of the table.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Relaxed);
    }

    /// Of a table that could not be opened, why a key within its range cannot be read.
    #[cold]
    pub fn why_not_read(&self, key: &[u8]) -> Option<&Error> {
        // Who asks knows the range by the first bytes of its ends only.
        let meta = self.meta();
        let inside = meta.smallest.as_slice() <= key && key <= meta.largest.as_slice();
        self.why_unreadable().filter(|_| inside)
    }
}

/// Bytes of the index and of what is kept for each of its blocks.
fn index_bytes(parts: &TableParts) -> u64 {
    let blocks = parts.index.blocks();
    parts.index.bytes() + (u64::from(blocks) * 4).next_multiple_of(64) + CheckedBlocks::bytes(blocks)
}

impl AsRef<TableMeta> for Table {
    fn as_ref(&self) -> &TableMeta {
        &self.parts.properties.meta
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({})", self.parts.path.display())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // In a child, by fork(), of the process whose table it is.
            return;
        }
        self.cache.table_closed(self.meta().file_id, index_bytes(&self.parts), self.parts.filter.bytes());
        if self.obsolete.load(Ordering::Relaxed) {
            // The file is not in the manifest any more; what is left of it is removed at the next opening.
            let _ = self.io.remove_file(self.path());
        }
    }
}
