//! [`salvage`]: everything that can be read of a damaged store, in a new one.
//!
//! All sources are merged by key and sequence number and the newest version of each key is written, into tables of the
//! last level: tables as far as their blocks can be read ([`table`]), frames of the log as far as their checksums hold
//! ([`log`]). Nothing is believed without its checksum, so nothing is made up; what may come out wrong is an older
//! version where a newer one is lost, and the report says where ([`ledger`]). The source is only read.
//!
//! Memory is bounded by one table's index and one block for each table that overlaps others at the same key, and one
//! memtable of the log's frames at a time: more are written to tables of the new store for the time being.

mod find;
mod ledger;
mod log;
mod operands;
mod output;
mod report;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engineswap::Io;

use crate::cursor::Cursor;
use crate::db::{make_dir, real_path, sync_name};
use crate::files::FileKind;
use crate::key::{self, Kind, Seq};
use crate::manifest::{ManifestFile, ManifestState};
use crate::merge::MergeCursor;
use crate::options::{Compression, KeyspaceOptions};
use crate::ranges::{RangeSet, RangeTombstone, Sweep};
use crate::seal::provider::Provider;
use crate::seal::ring::with_keys;
use crate::settings::{SettingsMap, TableSettings};
use crate::store_dir::StoreDir;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sync::{Mutex, lock};
use crate::table::TableMeta;
use crate::table::compress::Encoding;
use crate::{Error, Options, Progress, Result};
use find::{Inventory, Source, find};
use ledger::{Ledger, Loss};
use output::Output;
pub use report::{SalvageLoss, SalvageReport};
use table::Run;

/// How to salvage.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct SalvageOptions {
    /// The I/O engine's URI; empty for `auto`.
    pub io: String,
    /// Take whole frames of the log that follow a gap too. What the gap held is missing then, but what came after is
    /// there: batches are still whole, their order has a hole. Default false: they are counted only.
    pub frames_after_gaps: bool,
    /// Called about every MiB.
    pub progress: Option<Progress>,
    /// Who gives encryption keys.
    keys: Provider,
}

impl SalvageOptions {
    /// Sets who gives the keys of an encrypted store. What is written is encrypted with the current one.
    #[cfg(feature = "encryption")]
    #[must_use]
    pub fn with_encryption(mut self, keys: impl crate::KeyProvider) -> Self {
        self.keys = Provider(Some(Arc::new(keys)));
        self
    }

    /// Sets the I/O engine's URI.
    #[must_use]
    pub fn with_io(mut self, uri: impl Into<String>) -> Self {
        self.io = uri.into();
        self
    }

    /// Sets whether frames of the log that follow a gap are taken too.
    #[must_use]
    pub fn with_frames_after_gaps(mut self, yes: bool) -> Self {
        self.frames_after_gaps = yes;
        self
    }

    /// Sets what is told how far it is.
    #[must_use]
    pub fn with_progress(mut self, progress: Progress) -> Self {
        self.progress = Some(progress);
        self
    }
}

impl std::fmt::Debug for SalvageOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SalvageOptions { io, frames_after_gaps, .. } = self;
        write!(f, "SalvageOptions {{ io: {io:?}, frames_after_gaps: {frames_after_gaps}, .. }}")
    }
}

/// What the readers of all sources share.
struct Shared {
    io: Io,
    sources: Vec<Source>,
    block_bytes: Option<u32>,
    ledger: Mutex<Ledger>,
}

/// Recovers all that can be read of the store in `src` into a new store in `dst`, which must not exist or be empty, and
/// says what was lost. `src` is never changed; nobody may have it open for writing meanwhile ([`Error::Locked`]).
///
/// It works whatever is damaged or missing: CURRENT and the manifest (then every table that is found is taken),
/// tables (every block that has its checksum), segments of the log (every frame up to a gap). Names of keyspaces come
/// from the manifest; a keyspace whose name is lost is called `keyspace-N`. Block size and compression stay as they
/// were. The new store has no deleted entries and passes [`crate::Db::verify`].
///
/// # Errors
/// An error means that there is no new store: what had been written of it is removed. [`Error::Invalid`] if `dst` is
/// not empty or lies in `src`; [`Error::Locked`]; [`Error::NoStore`] if there is nothing to recover; of the I/O layer.
///
/// ```
/// # let tmp = tempfile::tempdir().expect("a temporary directory");
/// # let (src, dst) = (tmp.path().join("a"), tmp.path().join("b"));
/// # let db = ringdb::Db::open(&src, ringdb::Options::default())?;
/// # db.put("k", "v")?;
/// # db.close()?;
/// # std::fs::remove_file(src.join("CURRENT")).expect("there");
/// let report = ringdb::salvage(&src, &dst, &ringdb::SalvageOptions::default())?;
/// for lost in &report.lost {
///     println!("{}: {} (keys from {:?} to {:?})", lost.file, lost.detail, lost.from, lost.to);
/// }
/// let db = ringdb::Db::open(&dst, ringdb::Options::default())?;
/// # assert_eq!(db.get("k")?.as_deref(), Some(&b"v"[..]));
/// # Ok::<(), ringdb::Error>(())
/// ```
pub fn salvage(
    src: impl AsRef<Path>,
    dst: impl AsRef<Path>,
    options: &SalvageOptions,
) -> Result<SalvageReport> {
    let (src, dst) = (src.as_ref(), dst.as_ref());
    let uri = if options.io.is_empty() { "auto" } else { &options.io };
    let io = crate::db::engine(uri)?;
    salvage_with(&io, src, dst, options)
}

/// The same through an engine of the caller's.
pub(crate) fn salvage_with(
    io: &Io,
    src: &Path,
    dst: &Path,
    options: &SalvageOptions,
) -> Result<SalvageReport> {
    let io = &with_keys(io, &options.keys);
    if dst.starts_with(src) {
        let (src, dst) = (src.display(), dst.display());
        return Err(Error::Invalid(format!(
            "the new store {dst} must lie outside of {src}, which is not changed"
        )));
    }
    // Before anything is looked at: a writer may be about to end.
    let _held = match io.metadata(&FileKind::Lock.path(src)) {
        // What is no directory is told below.
        Err(_) | Ok(None) => None,
        Ok(Some(_)) => match io.lock_file(&FileKind::Lock.path(src)) {
            Ok(held) => Some(held),
            Err(e) if e.kind() == engineswap::ErrorKind::Locked => {
                return Err(Error::Locked(real_path(io, src)));
            }
            // A file system that is mounted read-only has no writer.
            Err(_) => None,
        },
    };
    let found = find(io, src)?;
    let made = match io.metadata(dst)? {
        None => {
            make_dir(io, dst)?;
            true
        }
        Some(m) if m.is_dir && io.read_dir(dst)?.is_empty() => false,
        Some(_) => {
            let dst = dst.display();
            return Err(Error::Invalid(format!(
                "a salvage goes to a new or empty directory; {dst} is neither"
            )));
        }
    };
    let files =
        Files { io: io.clone(), made: Mutex::new(Vec::new()), next: AtomicU64::new(1), dir: dst.into() };
    let result = Job { io, src, options, files: &files }.run(found);
    if result.is_err() {
        files.remove_all();
        if made {
            let _ = io.remove_dir(dst);
        }
    }
    result
}

/// Files of the new store.
struct Files {
    io: Io,
    dir: PathBuf,
    made: Mutex<Vec<PathBuf>>,
    next: AtomicU64,
}

impl Files {
    /// The number and path of a new table.
    fn table(&self) -> (u64, PathBuf) {
        let id = self.next.fetch_add(1, Relaxed);
        let path = FileKind::Table(id).path(&self.dir);
        lock(&self.made).push(path.clone());
        (id, path)
    }

    fn remove_all(&self) {
        // CURRENT first: without it, it is no store.
        for path in lock(&self.made).iter().rev() {
            let _ = self.io.remove_file(path);
        }
    }
}

/// One of what is merged.
type Input = Box<dyn Cursor>;

struct Job<'a> {
    io: &'a Io,
    src: &'a Path,
    options: &'a SalvageOptions,
    files: &'a Files,
}

impl Job<'_> {
    fn run(&self, found: Inventory) -> Result<SalvageReport> {
        let Inventory { state, whole, manifest, sources, segments, block_bytes, encoding, notes } = found;
        let total = sources.iter().map(|s| s.bytes).sum();
        let mut ledger = Ledger::new(self.options.progress.clone(), total);
        ledger.report.manifest = manifest;
        ledger.report.manifest_whole = whole;
        ledger.report.tables = sources.len() as u64;
        ledger.report.notes = notes;
        let writer = Arc::new(settings(&state, block_bytes, encoding));
        let shared =
            Arc::new(Shared { io: self.io.clone(), sources, block_bytes, ledger: Mutex::new(ledger) });
        let frames = log::read(self, &shared, &segments, (&state, whole), &writer)?;
        let mut inputs = frames.cursors;
        let runs = runs(&shared.sources);
        inputs.extend(runs.into_iter().map(|tables| Box::new(Run::new(&shared, tables)) as Input));
        let mut ranges = frames.ranges;
        if whole {
            ranges.extend(state.ranges.tombstones.clone());
        } else {
            // Those of another time may be older than what has taken the number 0 since.
            let note = "the list of range deletions is lost: what they had removed since they were flushed may be back";
            lock(&shared.ledger).report.notes.push(note.into());
        }
        let Merged { tables, ids, max_seq, operands } = self.merge(inputs, ranges, &state, writer)?;
        if operands > 0 && (!whole || shared.sources.iter().any(|s| s.missing)) {
            let note = format!(
                "of {operands} keys operands were merged: some may be missing, or merged twice, since not all is there"
            );
            lock(&shared.ledger).report.notes.push(note);
        }
        let mut files = lock(&self.files.made);
        let spilled: Vec<PathBuf> = frames.spilled;
        files.retain(|f| !spilled.contains(f));
        drop(files);
        spilled.iter().try_for_each(|f| self.io.remove_file(f))?;

        let state =
            new_state(state, tables, &ids, max_seq.max(frames.last_seq), self.files.next.load(Relaxed));
        let shared =
            Arc::into_inner(shared).ok_or_else(|| Error::Invalid("a source is still read".into()))?;
        let mut ledger = std::mem::take(&mut *lock(&shared.ledger));
        let r = &mut ledger.report;
        r.keyspaces = state.keyspaces.values().cloned().collect();
        r.keys = state.tables.values().map(|(_, m)| m.entries).sum();
        r.written_bytes = state.tables.values().map(|(_, m)| m.file_bytes).sum();
        self.make_store(state)?;
        Ok(ledger.finish(&shared.sources))
    }

    /// Writes the newest version of each key, unless a range tombstone hides it, with what it is merged into if it is
    /// an operand.
    fn merge(
        &self,
        inputs: Vec<Input>,
        ranges: BTreeMap<Seq, RangeTombstone>,
        state: &ManifestState,
        settings: Arc<SettingsMap>,
    ) -> Result<Merged> {
        let mut ranges = Sweep::new(&Arc::new(RangeSet::new(ranges.into_values().collect())));
        let mut merge = MergeCursor::new(inputs);
        merge.seek_to_first()?;
        let mut out = Output::new(self.files, settings);
        let (mut ids, mut max_seq, mut operands) = (Vec::new(), 0, 0);
        let mut last: Option<Vec<u8>> = None;
        while merge.valid() {
            max_seq = max_seq.max(merge.seq());
            let key = merge.key();
            if last.as_deref() != Some(key) {
                let id = key::split(key).map(|(id, _)| id).filter(|id| !state.dropped.contains(id));
                let cover = ranges.covering(key).last().copied().unwrap_or(0);
                last = Some(key.to_vec());
                if let (Some(id), true) = (id, merge.kind().has_value() && merge.seq() >= cover) {
                    if ids.last() != Some(&id) {
                        ids.push(id);
                    }
                    if merge.kind() == Kind::Merge {
                        operands += 1;
                        operands::copy(&mut merge, cover, operands::operator(state, id), &mut out)?;
                        continue;
                    }
                    out.add(key, 0, merge.kind(), merge.value(), true)?;
                }
            }
            merge.next()?;
        }
        Ok(Merged { tables: out.finish()?, ids, max_seq, operands })
    }

    /// Makes the tables that were written a store: they are durable, their names become so here, CURRENT comes last.
    fn make_store(&self, state: ManifestState) -> Result<()> {
        let dir = &self.files.dir;
        let home = StoreDir::open(self.io, dir)?;
        home.sync()?;
        let next = Arc::new(AtomicU64::new(state.next_file_number));
        let manifest = FileKind::Manifest(state.next_file_number).path(dir);
        lock(&self.files.made).extend([
            manifest,
            FileKind::CurrentTmp.path(dir),
            FileKind::Current.path(dir),
        ]);
        ManifestFile::create(self.io, &home, state, Arc::new(move || next.fetch_add(1, Relaxed)))?;
        sync_name(self.io, dir)
    }
}

/// What was written.
struct Merged {
    tables: Vec<TableMeta>,
    /// Of the keyspaces met.
    ids: Vec<u32>,
    /// The largest number met.
    max_seq: Seq,
    /// Keys whose newest version was an operand.
    operands: u64,
}

/// Sources in as few runs as can be: those of a run ascend and are disjoint. One whose range is not known is a run.
fn runs(sources: &[Source]) -> Vec<Vec<usize>> {
    let mut known: Vec<(usize, &TableMeta)> =
        sources.iter().enumerate().filter_map(|(i, s)| Some((i, s.meta.as_ref()?))).collect();
    known.sort_by(|(_, a), (_, b)| a.smallest.cmp(&b.smallest));
    let mut runs: Vec<(Vec<usize>, &[u8])> = Vec::new();
    for (i, m) in known {
        match runs.iter_mut().find(|(_, end)| *end < m.smallest.as_slice()) {
            Some((run, end)) => {
                run.push(i);
                *end = &m.largest;
            }
            None => runs.push((vec![i], &m.largest)),
        }
    }
    let unknown = sources.iter().enumerate().filter(|(_, s)| s.meta.is_none()).map(|(i, _)| vec![i]);
    runs.into_iter().map(|(run, _)| run).chain(unknown).collect()
}

/// How the new store's tables are written: as the manifest remembers, where it does; else as the tables were that could
/// be read.
fn settings(state: &ManifestState, block_bytes: Option<u32>, encoding: Option<Encoding>) -> SettingsMap {
    let mut told = KeyspaceOptions::default();
    told.block_bytes = block_bytes;
    told.compression = encoding.map(Compression::from);
    told.last_level_compression = told.compression;
    let found = TableSettings::of_store(&Options::default()).with(&told);
    let own = |id: u32| state.settings.get(&id).map(|s| &s.known);
    let store = own(0).map_or(found, |own| found.with(own));
    let others = state.keyspaces.keys().map(|id| (*id, own(*id).map_or(store, |own| store.with(own))));
    SettingsMap::new(store, others)
}

/// The manifest of the new store.
fn new_state(
    old: ManifestState,
    tables: Vec<TableMeta>,
    ids: &[u32],
    max_seq: Seq,
    next_file_number: u64,
) -> ManifestState {
    let mut keyspaces = old.keyspaces;
    for &id in ids.iter().filter(|id| **id != 0) {
        if !keyspaces.contains_key(&id) {
            let mut name = format!("keyspace-{id}");
            while keyspaces.values().any(|n| *n == name) {
                name.push('\'');
            }
            keyspaces.insert(id, name);
        }
    }
    // Ids are never used twice, and of the dropped ones nothing is left.
    let highest = keyspaces.keys().chain(&old.dropped).max().map_or(1, |id| id.saturating_add(1));
    let last_seq = old.last_seq.max(max_seq);
    ManifestState {
        log_number: 0,
        store_id: 0,
        log_durable: Default::default(),
        next_file_number,
        last_seq,
        flushed_seq: last_seq,
        last_ingested: old.last_ingested,
        next_keyspace_id: old.next_keyspace_id.max(highest),
        settings: old.settings,
        keyspaces,
        dropped: Default::default(),
        tables: tables.into_iter().map(|m| (m.file_id, (output::LEVEL, m))).collect(),
        // They have been applied.
        ranges: Default::default(),
    }
}
