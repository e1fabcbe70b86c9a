//! The tree of memtables and tables, and the one way to change it: durable in the manifest first, visible after.

use crate::sync::atomic::Ordering::{Acquire, Relaxed};
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use engineswap::Io;

use super::Core;
use super::view::View;
use crate::compaction::{Change, Frozen, Levels, Tree};
use crate::files::FileKind;
use crate::key::Seq;
use crate::manifest::{ManifestFile, Version, VersionEdit};
use crate::memtable::{MemCursor, Memtable};
use crate::mutation::{Mutation, broken};
use crate::sync::lock;
use crate::table::{Table, TableMeta, TableParts};
use crate::{Error, Options, Result};

/// What the published view is made of, and what a flush has to know.
pub(crate) struct TreeState {
    pub active: Arc<Memtable>,
    /// Everything in the active memtable, and all that is not applied yet, lies in log segments from here on.
    pub active_segment: u64,
    /// Oldest first.
    pub immutables: VecDeque<Immutable>,
    pub version: Arc<Version<Table>>,
    /// Flushes and the bytes that they wrote, counted when they become visible.
    pub flushes: u64,
    pub flush_written_bytes: u64,
}

/// A memtable that waits to be flushed.
pub(crate) struct Immutable {
    pub mem: Arc<Memtable>,
    /// The newest sequence number in it (or of the time when it was switched).
    pub last_seq: Seq,
    /// The first log segment that it needs.
    pub segment: u64,
}

impl TreeState {
    /// As readers see it.
    pub fn view(&self) -> View {
        View::new(self.active.clone(), self.immutables_newest_first(), self.version.clone())
    }

    fn immutables_newest_first(&self) -> Vec<Arc<Memtable>> {
        self.immutables.iter().rev().map(|i| i.mem.clone()).collect()
    }
}

impl Core {
    /// Puts `active` in the place of the active memtable, which waits to be flushed from now on. Under the
    /// writer's lock.
    pub(super) fn begin_memtable(&self, active: &Arc<Memtable>, segment: u64, last_seq: Seq) {
        let mut t = lock(&self.tree);
        let mem = std::mem::replace(&mut t.active, active.clone());
        let segment = std::mem::replace(&mut t.active_segment, segment);
        t.immutables.push_back(Immutable { mem, last_seq, segment });
        let view = self.view.get().with_memtables(t.active.clone(), t.immutables_newest_first());
        self.view.store(Arc::new(view));
        self.count_memtables(&t);
        let count = t.immutables.len();
        drop(t);
        self.background.memtable_frozen(count);
    }

    /// Tells the cache's budget what the memtables take: the active one as much as it may become.
    pub(super) fn count_memtables(&self, t: &TreeState) {
        let waiting: u64 = t.immutables.iter().map(|i| i.mem.bytes()).sum();
        self.cache.set_memtable_bytes(waiting + self.options.memtable_limit());
    }

    /// Appends an edit to the manifest. A failure leaves unknown what is on disk, so it stops the store.
    pub(super) fn append_edit(&self, manifest: &mut ManifestFile, edit: &VersionEdit) -> Result<()> {
        manifest.append(edit).map_err(|e| self.health.stop(&e))
    }
}

impl Tree for Core {
    type Table = Table;
    type MemCursor = MemCursor;

    fn io(&self) -> &Io {
        &self.io
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn levels(&self) -> Levels<Table> {
        lock(&self.tree).version.levels().to_vec()
    }

    fn immutables(&self) -> Vec<Frozen<MemCursor>> {
        let t = lock(&self.tree);
        t.immutables.iter().map(|i| Frozen { cursor: i.mem.cursor(), bytes: i.mem.bytes() }).collect()
    }

    fn immutable_count(&self) -> usize {
        lock(&self.tree).immutables.len()
    }

    fn views(&self) -> Vec<Seq> {
        let mut views = vec![self.visible.load(Acquire)];
        views.extend(self.snapshots.live());
        views
    }

    fn dropped_keyspaces(&self) -> Vec<u32> {
        lock(&self.keyspaces).dropped()
    }

    fn new_file_number(&self) -> u64 {
        self.next_file.fetch_add(1, Relaxed)
    }

    fn table_parts(&self, table: &Table) -> Arc<TableParts> {
        table.parts().clone()
    }

    fn open_table(&self, meta: TableMeta) -> Result<Arc<Table>> {
        let path = FileKind::Table(meta.file_id).path(&self.dir);
        Table::open(&self.io, &self.cache, &path, meta)
    }

    fn install(&self, change: Change<Table>) -> Result<()> {
        let Some(manifest) = &self.manifest else { return Err(Error::ReadOnly) };
        let mut manifest = lock(manifest);
        // Changes come from here only, so the version stays as it is until the edit is applied to it.
        let (version, log_number, flushed_seq) = {
            let t = lock(&self.tree);
            let next = t.immutables.get(change.flushed).map_or(t.active_segment, |i| i.segment);
            let last = change.flushed.checked_sub(1).and_then(|n| t.immutables.get(n)).map(|i| i.last_seq);
            (t.version.clone(), last.map(|_| next), last)
        };
        let edit = VersionEdit {
            log_number,
            flushed_seq,
            last_seq: Some(self.visible.load(Acquire)),
            next_file_number: Some(self.next_file.load(Relaxed)),
            removed: change.removed.iter().map(|(l, t)| (*l as u32, t.meta().file_id)).collect(),
            added: change.added.iter().map(|(l, t)| (*l as u32, t.meta().clone())).collect(),
            ..VersionEdit::default()
        };
        let next = version.apply(&edit, |_, meta| {
            let added = change.added.iter().find(|(_, t)| t.meta().file_id == meta.file_id);
            added.map(|(_, t)| t.clone()).ok_or_else(|| Error::Invalid("an added table is not open".into()))
        })?;
        if broken(Mutation::UnlinkBeforeManifest) {
            for (_, table) in &change.removed {
                if !change.added.iter().any(|(_, a)| a.meta().file_id == table.meta().file_id) {
                    let _ = self.io.remove_file(table.path());
                }
            }
        }
        if broken(Mutation::ReleaseLogEarly)
            && let (Some(writes), Some(first)) = (&self.writes, log_number)
        {
            writes.log.release(first);
            let _ = writes.log.prepare();
        }
        self.append_edit(&mut manifest, &edit)?;

        let mut t = lock(&self.tree);
        t.version = Arc::new(next);
        if change.flushed > 0 {
            t.flushes += 1;
            t.flush_written_bytes += change.added.iter().map(|(_, a)| a.meta().file_bytes).sum::<u64>();
        }
        let flushed: Vec<Immutable> = t.immutables.drain(..change.flushed).collect();
        self.view.store(Arc::new(t.view()));
        self.count_memtables(&t);
        drop(t);
        for (_, table) in &change.removed {
            if !change.added.iter().any(|(_, a)| a.meta().file_id == table.meta().file_id) {
                table.mark_obsolete();
            }
        }
        drop(manifest);
        drop(flushed);
        if let (Some(writes), Some(first)) = (&self.writes, log_number) {
            writes.log.release(first);
        }
        self.background.wake();
        Ok(())
    }

    fn left_alone(&self) -> BTreeSet<u64> {
        self.tables_left_alone()
    }

    fn leave_alone(&self, why: &Error) -> bool {
        self.leave_alone(why)
    }

    fn stop_writing(&self, why: &Error) {
        self.health.stop(why);
        self.background.wake();
    }
}
