//! [`VersionSet`]: the manifest of a store open for writing, and the one way to change its tables: durable in the
//! manifest first, visible after, and only then are log segments given up and files removed.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use engineswap::Io;

use super::health::Health;
use super::tree::{Fresh, LsmTree};
use super::view::Views;
use crate::compaction::Change;
use crate::key::Seq;
use crate::log::{Log, LogPos};
use crate::manifest::{ManifestFile, ManifestState, Version, VersionEdit};
use crate::mutation::{Mutation, broken};
use crate::ranges::{RangeEdit, RangeTombstone};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::table::{Table, TableMeta};
use crate::{Error, Result};

/// See the module.
pub(crate) struct VersionSet {
    /// Held while waiting for the disk. No reader needs it, and no writer but those that make or drop keyspaces.
    manifest: Mutex<ManifestFile>,
    tree: Arc<LsmTree>,
    views: Arc<Views>,
    log: Arc<Log>,
    health: Arc<Health>,
    next_file: Arc<AtomicU64>,
    io: Io,
}

impl VersionSet {
    pub fn new(
        manifest: ManifestFile,
        tree: Arc<LsmTree>,
        views: Arc<Views>,
        log: Arc<Log>,
        health: Arc<Health>,
        next_file: Arc<AtomicU64>,
        io: Io,
    ) -> VersionSet {
        VersionSet { manifest: Mutex::new(manifest), tree, views, log, health, next_file, io }
    }

    /// Keeps edits from being made as long as it is held.
    pub fn lock(&self) -> MutexGuard<'_, ManifestFile> {
        lock(&self.manifest)
    }

    /// A file number that was never given out before.
    pub fn new_file_number(&self) -> u64 {
        self.next_file.fetch_add(1, Relaxed)
    }

    /// What the manifest says and the tables that it names, which stay as long as they are held.
    pub fn current(&self) -> (ManifestState, Arc<Version<Table>>) {
        // Nobody installs a change while the manifest is held, so that these two agree.
        let manifest = self.lock();
        let mut state = manifest.state().clone();
        state.next_file_number = state.next_file_number.max(self.next_file.load(Relaxed));
        (state, self.tree.version())
    }

    /// Appends an edit to the manifest. A failure that leaves unknown what is on disk stops the store.
    pub fn append(&self, manifest: &mut ManifestFile, edit: &VersionEdit) -> Result<()> {
        manifest.append(edit).map_err(|e| self.health.latch().fail(e))
    }

    /// See [`ManifestFile::seal`].
    pub fn seal(&self, manifest: &mut ManifestFile) -> Result<()> {
        manifest.seal().map_err(|e| self.health.latch().fail(e))
    }

    /// Both: for an edit that nothing else bears witness to.
    pub fn append_sealed(&self, manifest: &mut ManifestFile, edit: &VersionEdit) -> Result<()> {
        self.append(manifest, edit)?;
        self.seal(manifest)
    }

    /// Has the manifest say how far the log is durable, so that the loss of a segment or of its end is noticed.
    pub fn note_log(&self) -> Result<()> {
        let mut manifest = self.lock();
        match self.news_of_log(&manifest, None) {
            None => Ok(()),
            log_durable => self.append(&mut manifest, &VersionEdit { log_durable, ..VersionEdit::default() }),
        }
    }

    /// The same when no more will be written, and has the manifest say how long it is itself.
    pub fn note_end(&self) -> Result<()> {
        self.note_log()?;
        self.seal(&mut self.lock())
    }

    /// From here on the log begins with `segment`: everything before is in tables.
    pub fn begin_log_at(&self, segment: u64) -> Result<()> {
        let mut manifest = self.lock();
        if manifest.state().log_number < segment {
            let log_durable = Some(self.log.vouched(Some(segment)));
            let edit = VersionEdit { log_number: Some(segment), log_durable, ..VersionEdit::default() };
            self.append(&mut manifest, &edit)?;
        }
        // The log before it goes now: a manifest that has forgotten this must not be believed.
        self.seal(&mut manifest)
    }

    /// What the manifest does not say yet of how far the log is durable, now or once it begins with segment `first`.
    fn news_of_log(&self, manifest: &ManifestFile, first: Option<u64>) -> Option<LogPos> {
        let vouched = self.log.vouched(first);
        (vouched > manifest.state().log_durable).then_some(vouched)
    }

    /// Makes a change of the tree durable, then visible; then tables that go are marked obsolete and log segments that
    /// flushed memtables needed are given up. See [`crate::compaction::CompactionEnv::install`].
    pub fn install(&self, change: &Change<Table>) -> Result<()> {
        self.install_under(self.lock(), change, None)
    }

    /// The same with tables that `place` gives, with their levels, to the version that they come to; and with a `fresh`
    /// memtable in the view that shows them. If it gives none, nothing happens, and the answer is false.
    pub(super) fn ingest(
        &self,
        fresh: &Fresh<'_>,
        place: impl FnOnce(&Version<Table>) -> Result<Option<Vec<(usize, Arc<Table>)>>>,
    ) -> Result<bool> {
        let manifest = self.lock();
        let Some(added) = place(&self.tree.version())? else { return Ok(false) };
        let change = Change { added, ..Change::default() };
        self.install_under(manifest, &change, Some(fresh)).map(|()| true)
    }

    fn install_under(
        &self,
        mut manifest: MutexGuard<'_, ManifestFile>,
        change: &Change<Table>,
        fresh: Option<&Fresh<'_>>,
    ) -> Result<()> {
        // Changes come from here only, so the version stays as it is until the edit is applied to it.
        let (version, flushed) = self.tree.before_edit(change.flushed);
        let log_number = flushed.as_ref().map(|f| f.segment);
        let mut edit = VersionEdit {
            log_number,
            log_durable: self.news_of_log(&manifest, log_number),
            flushed_seq: flushed.as_ref().map(|f| f.seq),
            last_seq: Some(self.views.visible()),
            next_file_number: Some(self.next_file.load(Relaxed)),
            removed: change.removed.iter().map(|(l, t)| (*l as u32, t.meta().file_id)).collect(),
            added: change.added.iter().map(|(l, t)| (*l as u32, t.meta().clone())).collect(),
            ranges: range_edit(&version, change),
            ..VersionEdit::default()
        };
        let open = |_: u32, meta: &TableMeta| {
            let added = change.added.iter().find(|(_, t)| t.meta().file_id == meta.file_id);
            added.map(|(_, t)| t.clone()).ok_or_else(|| Error::Invalid("an added table is not open".into()))
        };
        let mut next = version.apply(&edit, open)?;
        let dead = next.dead_ranges();
        if !dead.is_empty() {
            edit.ranges.added.retain(|t| !dead.contains(&t.seq));
            let listed = |seq: &Seq| version.ranges().live.tombstones.contains_key(seq);
            edit.ranges.removed.extend(dead.into_iter().filter(listed));
            next = version.apply(&edit, open)?;
        }
        let stays = |id| change.added.iter().any(|(_, a)| a.meta().file_id == id);
        let gone = || change.removed.iter().map(|(_, t)| t).filter(|t| !stays(t.meta().file_id));
        if broken(Mutation::UnlinkBeforeManifest) {
            gone().for_each(|t| drop(self.io.remove_file(t.path())));
        }
        if broken(Mutation::ReleaseLogEarly)
            && let Some(first) = log_number
        {
            self.log.release(first);
            let _ = self.log.prepare();
        }
        self.append(&mut manifest, &edit)?;
        // No log has what is ingested. The edit is durable, whatever becomes of these words, unless the store stops.
        if fresh.is_some() && self.seal(&mut manifest).is_err() {
            self.health.check_writable()?;
        }

        let written = change.added.iter().map(|(_, a)| a.meta().file_bytes).sum();
        let flushed = self.tree.apply(&version, next, change.flushed, written, fresh, change.filtered);
        gone().for_each(|t| t.mark_obsolete());
        if let Some(first) = log_number {
            let durable = manifest.state().log_number;
            assert!(durable >= first, "a segment is given up when the manifest says that it is not needed");
        }
        drop(manifest);
        drop(flushed);
        if let Some(first) = log_number {
            self.log.release(first);
        }
        Ok(())
    }
}

/// What a change means for the list of range tombstones, but for those that no table needs after it.
fn range_edit(version: &Version<Table>, change: &Change<Table>) -> RangeEdit {
    let ranges = &change.ranges;
    let live = &version.ranges().live.tombstones;
    let cleared = |t: &&Arc<Table>| {
        let m = t.meta();
        // A table that moves stays as it is; of others it is worth a word only if something will ask for it.
        let new = !change.removed.iter().any(|(_, r)| Arc::ptr_eq(r, t));
        let asks = |t: &RangeTombstone| {
            m.min_seq < t.seq && t.seq <= ranges.applied && t.overlaps(&m.smallest, &m.largest)
        };
        new && live.values().chain(&ranges.added).any(asks)
    };
    let tables = change.added.iter().map(|(_, t)| t);
    RangeEdit {
        removed: ranges.superseded.iter().copied().filter(|seq| live.contains_key(seq)).collect(),
        added: ranges.added.clone(),
        cleared: tables.filter(cleared).map(|t| (t.meta().file_id, ranges.applied)).collect(),
    }
}
