//! [`Table`]: an open table: its resident parts, its file, and the slots of its cached blocks.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engineswap::mem::{SlotArray, epoch::Guard, prefetch};
use engineswap::{File, Io};

use super::block::{BlockView, EntryRef, Find};
use super::fetch::Block;
use super::filter::Filter;
use super::index::Index;
use super::meta::TableMeta;
use super::parts::TableParts;
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::key::Seq;
use crate::purpose;

/// An open table. Its file is open as long as this lives, and is deleted with it once marked obsolete.
pub(crate) struct Table {
    io: Io,
    parts: Arc<TableParts>,
    slots: SlotArray,
    cache: Arc<Cache>,
    obsolete: AtomicBool,
}

/// What the cache says about a key.
pub(crate) enum Cached<'g> {
    /// The newest version that may be seen.
    Found(EntryRef<'g>),
    /// The table has none.
    Absent,
    /// This block has to be read to know.
    Missing(u32),
}

impl Table {
    /// Opens the table at `path`, whose description the manifest has: `meta`.
    pub fn open(io: &Io, cache: &Arc<Cache>, path: &Path, meta: TableMeta) -> Result<Arc<Table>> {
        let parts = TableParts::load(io, path, meta.file_id, purpose::TABLE_OPEN)?;
        if parts.properties.meta != meta {
            return Err(Error::corrupt(path, None, "the table is not the one that the manifest describes"));
        }
        Ok(Table::over(io, cache, parts))
    }

    /// Stands in for a table that could not be opened because of `why`: whatever has to look for a key within its
    /// range fails with that error.
    pub fn unreadable(io: &Io, cache: &Arc<Cache>, path: &Path, meta: TableMeta, why: Error) -> Arc<Table> {
        let block_bytes = cache.frame_bytes() as u32;
        Table::over(io, cache, TableParts::unreadable(path, meta, block_bytes, why))
    }

    fn over(io: &Io, cache: &Arc<Cache>, parts: TableParts) -> Arc<Table> {
        cache.table_opened(parts.index.bytes(), parts.filter.bytes());
        Arc::new(Table {
            io: io.clone(),
            slots: cache.slots(parts.index.blocks() as usize),
            parts: Arc::new(parts),
            cache: Arc::clone(cache),
            obsolete: AtomicBool::new(false),
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

    pub fn path(&self) -> &Path {
        &self.parts.path
    }

    pub fn io(&self) -> &Io {
        &self.io
    }

    pub(super) fn file(&self) -> Result<&File> {
        self.parts.file()
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

    #[inline]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Has the file deleted when the last reader lets go of the table.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Relaxed);
    }

    /// Looks for the newest version of `key` at or before `seq` in cached blocks, from block `number` on (the
    /// one that [`Index::find_block`] names). Adds the blocks found in the cache to `hits`.
    #[inline]
    pub fn find_cached<'g>(
        &'g self,
        mut number: u32,
        key: &[u8],
        seq: Seq,
        guard: &'g Guard,
        hits: &mut u64,
    ) -> Cached<'g> {
        loop {
            let Some(bytes) = self.slots.load(number as usize, guard) else { return Cached::Missing(number) };
            // The heads lie behind the header; the search would wait for one line after the other.
            for line in 1..4 {
                prefetch(bytes, 64 * line);
            }
            *hits += 1;
            match BlockView::trusted(bytes).find(key, seq) {
                Find::Found(entry) => return Cached::Found(entry),
                Find::Next if number + 1 < self.parts.index.blocks() => number += 1,
                _ => return Cached::Absent,
            }
        }
    }

    /// The same, from blocks that the caller has at hand (`local`), the cache, or else the disk. `f` sees the
    /// version.
    pub fn find_reading<'l, R>(
        &self,
        mut number: u32,
        key: &[u8],
        seq: Seq,
        fill_cache: bool,
        local: impl Fn(u32) -> Option<&'l Result<Block>>,
        f: impl Fn(EntryRef<'_>) -> R,
    ) -> Result<Option<R>> {
        if let Some(why) = self.why_unreadable() {
            // Who asks knows the range by the first bytes of its ends only.
            let meta = self.meta();
            let inside = meta.smallest.as_slice() <= key && key <= meta.largest.as_slice();
            return if inside { Err(why.clone()) } else { Ok(None) };
        }
        loop {
            let next = number + 1 < self.parts.index.blocks();
            let search = |block: &Block| match BlockView::trusted(block.bytes()).find(key, seq) {
                Find::Found(entry) => ControlFlow::Break(Some(f(entry))),
                Find::Next if next => ControlFlow::Continue(()),
                _ => ControlFlow::Break(None),
            };
            let answer = if let Some(block) = local(number) {
                search(block.as_ref().map_err(Error::clone)?)
            } else if let Some(block) = self.cached_block(number) {
                search(&block)
            } else {
                let block = self.read_block(number, fill_cache, purpose::USER_READ)?;
                let answer = search(&block);
                if fill_cache {
                    self.keep(number, block);
                }
                answer
            };
            match answer {
                ControlFlow::Break(answer) => return Ok(answer),
                ControlFlow::Continue(()) => number += 1,
            }
        }
    }
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
        self.cache.table_closed(self.meta().file_id, self.parts.index.bytes(), self.parts.filter.bytes());
        if self.obsolete.load(Ordering::Relaxed) {
            // The file is not in the manifest any more; what is left of it is removed at the next opening.
            let _ = self.io.remove_file(self.path());
        }
    }
}
