//! Opening a store: for writing, with recovery of whatever the last run left, and read-only beside a writer.
//!
//! For writing, in this order: look at the directory and lock it; read the manifest, open its tables, replay the
//! log into memtables (nothing has been changed so far; damage of the manifest and the log is an error, a table that
//! cannot be read fails those who need it, see [`super::quarantine`]); begin a new manifest, a new log; flush
//! what was replayed and record that the old segments are not needed; remove them and other orphans. A crash
//! anywhere leaves either the old state or the new one.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engineswap::Io;

use super::compact::StoreCompactionEnv;
use super::core::Core;
use super::directory::{DirState, StoreLock, lock as lock_dir, look, make_dir, sync_name};
use super::health::Health;
use super::keyspaces::{Keyspaces, settings_map};
use super::locks::Locks;
use super::odds::Odds;
use super::quarantine::Quarantine;
use super::reactor::Reactor;
use super::recover::{Recovered, recover};
use super::refresh::Follower;
use super::remember::{frame_bytes, resolve};
use super::served::Served;
use super::tree::{Immutable, LsmTree, TreeState};
use super::version_set::VersionSet;
use super::view::Views;
use super::write::{ActiveWriter, StoreCommitEnv, WriteSide};
use crate::cache::Cache;
use crate::compaction::scheduler::{Scheduler, Settings};
use crate::events::{Event, Events};
use crate::expiry::Clock;
use crate::files::{DAMAGED, FileKind, ORPHAN};
use crate::insight::Latencies;
use crate::key::Seq;
use crate::log::{Log, LogOptions, LogWriter, Lost, Medium, NextNumber};
use crate::manifest::{ManifestFile, ManifestState};
use crate::memtable::{MemWriter, Memtable};
use crate::seal::ring::{for_writing, with_keys};
use crate::store_dir::StoreDir;
use crate::sync::Mutex;
use crate::table::{Reads, TableParts};
use crate::{Durability, Env, Error, Options, Result};

/// Numbers the stores that this process opens.
/// Not one of `crate::sync`: it outlives the orders that Shuttle tries.
static STORES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

/// How often a read-only open tries again when the writer changes the store under it.
const READ_ONLY_TRIES: u32 = 50;
/// How often in a row it must meet the same damage to believe it.
const SAME_DAMAGE: u32 = 2;
/// And the same error of the system.
const SAME_ERROR: u32 = 4;

impl Core {
    /// See [`crate::Db::open`].
    pub fn open(dir: &Path, options: Options, io: Io, env: Arc<dyn Env>) -> Result<Arc<Core>> {
        let start = env.now();
        let io = with_keys(&io, options.keys());
        // Before anything is made: there may be no key to write with.
        for_writing(&io)?;
        let no_store = |detail: &str| Error::NoStore { path: dir.to_path_buf(), detail: detail.into() };
        match look(&io, dir)? {
            DirState::Nothing if !options.create_if_missing => {
                return Err(no_store("there is no such directory"));
            }
            DirState::Nothing => make_dir(&io, dir)?,
            DirState::Unfinished(_) if !options.create_if_missing => return Err(no_store("it is empty")),
            // Whoever made it may not have made its name durable.
            DirState::Unfinished(_) => sync_name(&io, dir)?,
            DirState::Store(_) => {}
        }
        let held = lock_dir(&io, dir)?;
        // Somebody may have been here between the look and the lock.
        let (mut state, own) = match look(&io, dir)? {
            DirState::Store(own) => match ManifestFile::load(&io, dir)? {
                Some(loaded) => (loaded.state, own),
                None => return Err(no_store("its CURRENT vanished while it was opened")),
            },
            DirState::Unfinished(own) if options.create_if_missing => (ManifestState::default(), own),
            _ => return Err(no_store("it vanished while it was opened")),
        };
        let (options, remembered) = resolve(&io, dir, options, &state, false)?;
        state.settings.insert(0, remembered);
        let frame_bytes = frame_bytes(&state, &settings_map(&state));
        let recovered = recover(&io, dir, &options, frame_bytes, &state, &segments(&own))?;
        let replayed = (recovered.frames, recovered.memtables.iter().map(|(mem, _)| mem.bytes()).sum());
        let core = take_over(dir, options, io, env, state, own, recovered, held)?;
        core.tell_opened(start, replayed);
        Ok(core)
    }

    /// See [`crate::Db::open_read_only`].
    pub fn open_read_only(dir: &Path, options: Options, io: Io, env: Arc<dyn Env>) -> Result<Arc<Core>> {
        let io = with_keys(&io, options.keys());
        let start = env.now();
        let core = until_believed(dir, &*env, || try_read_only(dir, options.clone(), &io, &env))?;
        core.tell_opened(start, (0, 0));
        Ok(core)
    }

    fn tell_opened(&self, start: Duration, (replayed_frames, replayed_bytes): (u64, u64)) {
        self.events.tell(|| Event::Opened {
            directory: self.dir.clone(),
            read_only: self.write_side.is_none(),
            tables: self.tree.version().tables().count() as u64,
            replayed_frames,
            replayed_bytes,
            lost: crate::sync::lock(&self.recovered_damage).clone(),
            took: self.env.now().saturating_sub(start),
        });
    }
}

/// Tries until an answer of `attempt` is to be believed that reads beside a writer: one with damage that was passed
/// over, or an error, is believed when it comes again; `None`, when the writer was too fast, proves nothing.
pub(super) fn until_believed<T>(
    dir: &Path,
    env: &dyn Env,
    mut attempt: impl FnMut() -> Result<Option<(T, Option<Lost>)>>,
) -> Result<T> {
    // What the writer is writing or replacing can look like any damage, but not like the same twice: a place that
    // something behind it called durable can be read by the next time, or has been given up.
    let (mut met, mut times) = (None, 0);
    for tries in 1..=READ_ONLY_TRIES {
        let outcome = match attempt() {
            Ok(Some((value, None))) => return Ok(value),
            Ok(Some((value, Some(lost)))) => Some(((lost.path, Some(lost.offset)), SAME_DAMAGE, Ok(value))),
            Ok(None) => None,
            Err(Error::Corrupt { path, offset, detail }) => {
                let e = Error::Corrupt { path: path.clone(), offset, detail };
                Some(((path, offset), SAME_DAMAGE, Err(e)))
            }
            Err(Error::Io(e)) => {
                let path = e.path().unwrap_or(dir).to_path_buf();
                Some(((path, None), SAME_ERROR, Err(Error::Io(e))))
            }
            Err(e) => return Err(e),
        };
        // That the writer was too fast proves nothing, neither for nor against.
        if let Some((place, enough, outcome)) = outcome {
            times = if met.as_ref() == Some(&place) { times + 1 } else { 1 };
            met = Some(place);
            if times >= enough {
                return outcome;
            }
        }
        env.sleep(Duration::from_millis(tries as u64));
    }
    let detail = "the store changes faster than it can be read beside its writer; try again";
    Err(Error::corrupt(dir, None, detail))
}

/// The files of a store that is there.
pub(super) fn files_of(io: &Io, dir: &Path) -> Result<Vec<FileKind>> {
    let no_store = |detail: &str| Error::NoStore { path: dir.to_path_buf(), detail: detail.into() };
    match look(io, dir)? {
        DirState::Store(own) => Ok(own),
        DirState::Nothing => Err(no_store("there is no such directory")),
        DirState::Unfinished(_) => Err(no_store("it is empty")),
    }
}

/// Reads the store as it is now; `None` if the writer has given up log segments meanwhile, so that what was read
/// may not fit together. With damage that was passed over, if there is some.
fn try_read_only(
    dir: &Path,
    options: Options,
    io: &Io,
    env: &Arc<dyn Env>,
) -> Result<Option<(Arc<Core>, Option<Lost>)>> {
    let own = files_of(io, dir)?;
    let Some(loaded) = ManifestFile::load(io, dir)? else { return Ok(None) };
    // Segments come into being all the time; list them after the manifest was read, so that none is missed.
    let own = match look(io, dir)? {
        DirState::Store(now) => now,
        _ => own,
    };
    let given = options.clone();
    let mut state = loaded.state.clone();
    let recovered = resolve(io, dir, options.clone(), &state, true).and_then(|(options, remembered)| {
        state.settings.insert(0, remembered);
        let frame_bytes = frame_bytes(&state, &settings_map(&state));
        Ok((recover(io, dir, &options, frame_bytes, &state, &segments(&own))?, options))
    });
    // A segment is reused only after an edit that says so. What was ingested meanwhile is in no log, but what was
    // written after it may be.
    match ManifestFile::load(io, dir)? {
        Some(now) if now.state.log_number == state.log_number && !state.lacks_ingest_of(&now.state) => {
            // A table that cannot be read may just have been compacted away.
            let unreadable = |r: &Recovered| r.version.tables().any(|(_, t)| t.why_unreadable().is_some());
            if now.state.tables != state.tables && recovered.as_ref().is_ok_and(|(r, _)| unreadable(r)) {
                return Ok(None);
            }
        }
        _ => return Ok(None),
    }
    let (recovered, options) = recovered?;
    let tree = TreeState::of_reader(&recovered.memtables, recovered.version);
    let damage = recovered.lost.or(recovered.broken);
    let keyspaces = Keyspaces::new(STORES.fetch_add(1, Relaxed), &state, &options);
    let log = (recovered.memtables, recovered.tail, recovered.last_seq);
    let core = Core::new(
        (io.clone(), env.clone()),
        dir,
        options,
        Health::new(Arc::default()),
        tree,
        recovered.cache,
        recovered.last_seq,
        keyspaces,
        damage.as_ref(),
        Some(Follower::new(given, loaded, log)),
    );
    Ok(Some((Arc::new(core), damage)))
}

/// Makes what was recovered the state of a running store.
#[allow(clippy::too_many_arguments)]
fn take_over(
    dir: &Path,
    options: Options,
    io: Io,
    env: Arc<dyn Env>,
    mut state: ManifestState,
    own: Vec<FileKind>,
    recovered: Recovered,
    held: StoreLock,
) -> Result<Arc<Core>> {
    // Numbers are given out without an edit, so files may be ahead of the manifest.
    let used = own.iter().filter_map(|k| k.number()).max().unwrap_or(0);
    state.next_file_number = state.next_file_number.max(used + 1);
    state.last_seq = recovered.last_seq;
    if state.store_id == 0 {
        state.store_id = env.random().max(1);
    }
    forget_purged(&mut state, &recovered);
    if state.tables.is_empty() && recovered.memtables.is_empty() {
        // What an unfinished creation left has names that are wanted again.
        for k in own.iter().filter(|k| matches!(k, FileKind::CurrentTmp)) {
            io.remove_file(&k.path(dir))?;
        }
    }
    let files = NewFiles::begin(dir, &options, &io, &state)?;
    let first_segment = files.log_writer.segment();
    let Recovered { cache, version, memtables, last_seq, lost, broken, .. } = recovered;
    let damage = lost.as_ref().or(broken.as_ref());
    let (active, mem_writer) = Memtable::charged(options.memtable_limit(), &cache);
    let immutables: VecDeque<Immutable> = memtables
        .into_iter()
        .map(|(mem, last_seq)| Immutable { mem, last_seq, segment: state.log_number })
        .collect();
    let tree = TreeState::new(active.clone(), first_segment, immutables, version);
    let health = Health::new(files.home.latch().clone());
    let keyspaces = Keyspaces::new(STORES.fetch_add(1, Relaxed), &state, &options);
    let mut core = Core::new((io, env), dir, options, health, tree, cache, last_seq, keyspaces, damage, None);
    let write_side = write_side(&core, files, (active, mem_writer), last_seq, held);
    write_side.flush_recovered()?;
    write_side.versions.begin_log_at(first_segment)?;
    core.write_side = Some(write_side);
    core.remove_orphans(&own, lost.as_ref(), damage.is_some())?;
    Ok(Arc::new(core))
}

/// What a store that is opened for writing begins.
struct NewFiles {
    home: Arc<StoreDir>,
    manifest: ManifestFile,
    log: Arc<Log>,
    log_writer: LogWriter,
    next_file: Arc<AtomicU64>,
}

impl NewFiles {
    fn begin(dir: &Path, options: &Options, io: &Io, state: &ManifestState) -> Result<NewFiles> {
        let next_file = Arc::new(AtomicU64::new(state.next_file_number));
        let counter = next_file.clone();
        let next_number: NextNumber = Arc::new(move || counter.fetch_add(1, Relaxed));
        let home = StoreDir::open(io, dir)?;
        let mut manifest = ManifestFile::create(io, &home, state.clone(), next_number.clone())?;
        manifest.rewrite_at(options.manifest_bytes);
        let medium = match options.durability {
            Durability::Sync => Medium::Direct,
            _ => Medium::Mapped,
        };
        let segment_bytes = options.segment_bytes(LogOptions::default().segment_bytes);
        let log_options = LogOptions { medium, segment_bytes, ..LogOptions::default() };
        let (log, log_writer) = Log::create(io, &home, log_options, next_number)?;
        Ok(NewFiles { home, manifest, log, log_writer, next_file })
    }
}

/// What a store needs to be written to, over what it is read through.
fn write_side(
    core: &Core,
    files: NewFiles,
    active: (Arc<Memtable>, MemWriter),
    last_seq: Seq,
    held: StoreLock,
) -> Arc<WriteSide> {
    let (tree, views, health) = (&core.tree, &core.views, &core.health);
    let memtable_limit = core.options.memtable_limit();
    let segment_bytes = core.options.segment_bytes(LogOptions::default().segment_bytes);
    let commit_env = StoreCommitEnv {
        health: health.clone(),
        log: files.log.clone(),
        tree: tree.clone(),
        views: views.clone(),
        scheduler: Scheduler::new(
            core.env.clone(),
            Settings::new(&core.options),
            core.latencies.clone(),
            core.events.clone(),
        ),
        log_keeper: Arc::default(),
        cache: core.cache.clone(),
        memtable_limit,
        max_segments: (4 * memtable_limit / segment_bytes).max(4),
    };
    let writer = ActiveWriter::new(files.log_writer, active, files.log.segment_bytes());
    let versions = VersionSet::new(
        files.manifest,
        tree.clone(),
        views.clone(),
        files.log,
        health.clone(),
        files.next_file,
        core.io.clone(),
    );
    let compaction_env = StoreCompactionEnv {
        io: core.io.clone(),
        dir: core.dir.clone(),
        home: files.home,
        options: core.options.clone(),
        cache: core.cache.clone(),
        tree: tree.clone(),
        versions: Arc::new(versions),
        views: views.clone(),
        keyspaces: core.keyspaces.clone(),
        quarantine: core.quarantine.clone(),
        health: health.clone(),
    };
    WriteSide::new(commit_env, writer, last_seq, compaction_env, held)
}

impl Core {
    /// A store to be read.
    #[allow(clippy::too_many_arguments)]
    fn new(
        (io, env): (Io, Arc<dyn Env>),
        dir: &Path,
        options: Options,
        health: Arc<Health>,
        mut tree: TreeState,
        cache: Arc<Cache>,
        last_seq: Seq,
        keyspaces: Keyspaces,
        damage: Option<&Lost>,
        follower: Option<Follower>,
    ) -> Core {
        tree.operators = Arc::clone(keyspaces.operators());
        tree.clock = Clock::of(&env);
        let make = if follower.is_some() { Views::of_reader } else { Views::new };
        let latencies = Arc::new(Latencies::new(&env, options.time_one_in));
        let events = Events::new(options.listeners().clone());
        let views = Arc::new(make(cache.collector(), tree.view(), last_seq).timed(&latencies));
        let tree = LsmTree::new(tree, views.clone(), options.memtable_limit(), &cache);
        Core {
            quarantine: Quarantine::new(tree.clone(), env.clone()),
            reactor: Reactor::new(&io, &env),
            odds: Odds::new(),
            committer: Default::default(),
            io,
            env,
            dir: dir.to_path_buf(),
            options,
            health,
            tree,
            views,
            cache,
            keyspaces: Arc::new(keyspaces),
            write_side: None,
            follower: follower.map(Mutex::new),
            recovered_damage: Mutex::new(damage.map(describe)),
            served: Served::default(),
            locks: Locks::default(),
            latencies,
            events,
        }
    }

    /// Removes the store's own files that were there before and that nothing refers to any more. Damaged log
    /// segments are kept under another name; so are tables if anything about the recovery was `doubtful`.
    fn remove_orphans(&self, own: &[FileKind], lost: Option<&Lost>, doubtful: bool) -> Result<()> {
        let Some(w) = &self.write_side else { return Ok(()) };
        let manifest = w.versions.lock();
        let (state, current) = (manifest.state(), manifest.number());
        let damaged_from = lost.and_then(|l| {
            let name = l.path.file_name()?.to_str()?;
            crate::files::parse(name)?.number()
        });
        let unreadable = self.tree.version().tables().any(|(_, t)| t.why_unreadable().is_some());
        let doubtful = doubtful || unreadable;
        for kind in own {
            let gone = match kind {
                FileKind::Lock | FileKind::Current => false,
                FileKind::CurrentTmp => true,
                FileKind::Manifest(n) => *n != current,
                FileKind::Table(n) => !state.tables.contains_key(n),
                FileKind::Log(n) => *n < state.log_number,
            };
            let path = kind.path(&self.dir);
            if !gone || self.io.metadata(&path)?.is_none() {
                continue;
            }
            match kind {
                FileKind::Log(n) if damaged_from.is_some_and(|from| *n >= from) => {
                    self.set_aside(&path, DAMAGED)?;
                }
                // What looks superfluous may be what is missing elsewhere.
                FileKind::Table(n) if doubtful || self.is_newer(*n, &path, state.last_seq) => {
                    self.set_aside(&path, ORPHAN)?;
                }
                _ => self.io.remove_file(&path)?,
            }
        }
        Ok(())
    }

    fn set_aside(&self, path: &Path, suffix: &str) -> Result<()> {
        let mut aside = path.as_os_str().to_owned();
        aside.push(suffix);
        Ok(self.io.rename(path, Path::new(&aside))?)
    }

    /// Whether a table that nothing names holds writes that neither the manifest nor the log knows: a flush of what a
    /// power cut has taken from a log that was not synced, or the proof that a manifest has forgotten it.
    fn is_newer(&self, number: u64, path: &Path, last_seq: u64) -> bool {
        let parts = TableParts::load(&self.io, path, number, Reads::Direct, crate::purpose::RECOVERY);
        match parts {
            // Perhaps: nobody can look now.
            Err(Error::Key { .. }) => true,
            parts => parts.is_ok_and(|p| p.properties.meta.max_seq > last_seq),
        }
    }
}

/// Forgets dropped keyspaces of which no table holds an entry; there are no memtables but those of the log, whose
/// entries a flush leaves out.
fn forget_purged(state: &mut ManifestState, recovered: &Recovered) {
    if !recovered.memtables.is_empty() {
        return;
    }
    let holds = |id: u32| {
        let (from, to) = crate::key::bounds_of(id);
        state.tables.values().any(|(_, m)| m.largest.as_slice() >= from.as_slice() && m.smallest < to)
    };
    let gone: Vec<u32> = state.dropped.iter().copied().filter(|&id| !holds(id)).collect();
    for id in gone {
        state.dropped.remove(&id);
    }
}

pub(super) fn segments(own: &[FileKind]) -> Vec<u64> {
    own.iter().filter_map(|k| if let FileKind::Log(n) = k { Some(*n) } else { None }).collect()
}

pub(super) fn describe(lost: &Lost) -> String {
    format!("{} at offset {}: {}", lost.path.display(), lost.offset, lost.detail)
}
