//! Opening a store: for writing, with recovery of whatever the last run left, and read-only beside a writer.
//!
//! For writing, in this order: look at the directory and lock it; read the manifest, open its tables, replay the
//! log into memtables (nothing has been changed so far; damage of the manifest and the log is an error, a table that
//! cannot be read fails those who need it, see [`super::damage`]); begin a new manifest, a new log; flush what was replayed and record that the old segments are not needed; remove them and other
//! orphans. A crash anywhere leaves either the old state or the new one.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engineswap::mem::epoch::Published;
use engineswap::{FileLock, Io};

use super::background::Background;
use super::core::Core;
use super::damage::Damage;
use super::directory::{Found, lock as lock_dir, look, make_dir, sync_name};
use super::health::Health;
use super::keyspace::{DEFAULT, KeyspaceState, Keyspaces};
use super::recover::{Recovered, recover};
use super::snapshot::Snapshots;
use super::tree::{Immutable, TreeState};
use super::write::Writes;
use crate::files::FileKind;
use crate::log::{Log, LogOptions, Lost, Medium, NextNumber};
use crate::manifest::{ManifestFile, ManifestState, VersionEdit};
use crate::memtable::Memtable;
use crate::sync::{Mutex, lock};
use crate::{Durability, Env, Error, Options, Result};

/// Numbers the stores that this process opens.
/// Not one of `crate::sync`: it outlives the orders that Shuttle tries.
static STORES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

/// How often a read-only open tries again when the writer changes the store under it.
const READ_ONLY_TRIES: u32 = 50;

impl Core {
    /// See [`crate::Db::open`].
    pub fn open(dir: &Path, mut options: Options, io: Io, env: Arc<dyn Env>) -> Result<Arc<Core>> {
        let no_store = |detail: &str| Error::NoStore { path: dir.to_path_buf(), detail: detail.into() };
        match look(&io, dir)? {
            Found::Nothing if !options.create_if_missing => {
                return Err(no_store("there is no such directory"));
            }
            Found::Nothing => make_dir(&io, dir)?,
            Found::Unfinished(_) if !options.create_if_missing => return Err(no_store("it is empty")),
            // Whoever made it may not have made its name durable.
            Found::Unfinished(_) => sync_name(&io, dir)?,
            Found::Store(_) => {}
        }
        let held = lock_dir(&io, dir)?;
        // Somebody may have been here between the look and the lock.
        let (state, own) = match look(&io, dir)? {
            Found::Store(own) => match ManifestFile::load(&io, dir)? {
                Some(loaded) => (loaded.state, own),
                None => return Err(no_store("its CURRENT vanished while it was opened")),
            },
            Found::Unfinished(own) if options.create_if_missing => (ManifestState::default(), own),
            _ => return Err(no_store("it vanished while it was opened")),
        };
        let recovered = recover(&io, dir, &mut options, &state, &segments(&own))?;
        take_over(dir, options, io, env, state, own, recovered, held)
    }

    /// See [`crate::Db::open_read_only`].
    pub fn open_read_only(dir: &Path, options: Options, io: Io, env: Arc<dyn Env>) -> Result<Arc<Core>> {
        let mut tries = 0;
        loop {
            tries += 1;
            let again = match try_read_only(dir, options.clone(), &io, &env) {
                Ok(Some(core)) => return Ok(core),
                Ok(None) => None,
                // What the writer is just replacing can look like anything.
                Err(e @ (Error::Corrupt { .. } | Error::Io(_))) => Some(e),
                Err(e) => return Err(e),
            };
            if tries >= if again.is_some() { 5 } else { READ_ONLY_TRIES } {
                return Err(again.unwrap_or_else(|| {
                    Error::corrupt(
                        dir,
                        None,
                        "the store changes faster than it can be opened read-only; try again",
                    )
                }));
            }
            env.sleep(Duration::from_millis(tries as u64));
        }
    }
}

/// Reads the store as it is now; `None` if the writer has given up log segments meanwhile, so that what was read
/// may not fit together.
fn try_read_only(dir: &Path, mut options: Options, io: &Io, env: &Arc<dyn Env>) -> Result<Option<Arc<Core>>> {
    let no_store = |detail: &str| Error::NoStore { path: dir.to_path_buf(), detail: detail.into() };
    let own = match look(io, dir)? {
        Found::Store(own) => own,
        Found::Nothing => return Err(no_store("there is no such directory")),
        Found::Unfinished(_) => return Err(no_store("it is empty")),
    };
    let Some(loaded) = ManifestFile::load(io, dir)? else { return Ok(None) };
    // Segments come into being all the time; list them after the manifest was read, so that none is missed.
    let own = match look(io, dir)? {
        Found::Store(now) => now,
        _ => own,
    };
    let state = loaded.state;
    let recovered = recover(io, dir, &mut options, &state, &segments(&own));
    // A segment is reused only after an edit that says so.
    match ManifestFile::load(io, dir)? {
        Some(now) if now.state.log_number == state.log_number => {
            // A table that cannot be read may just have been compacted away.
            let unreadable = |r: &Recovered| r.version.tables().any(|(_, t)| t.why_unreadable().is_some());
            if now.state.tables != state.tables && recovered.as_ref().is_ok_and(unreadable) {
                return Ok(None);
            }
        }
        _ => return Ok(None),
    }
    let recovered = recovered?;
    let store = STORES.fetch_add(1, Relaxed);
    let (mut immutables, mut active) = (VecDeque::new(), Memtable::new(0).0);
    for (mem, last_seq) in recovered.memtables {
        let older = std::mem::replace(&mut active, mem);
        if !older.is_empty() {
            immutables.push_back(Immutable { mem: older, last_seq, segment: 0 });
        }
    }
    let tree = TreeState {
        active,
        active_segment: 0,
        immutables,
        version: Arc::new(recovered.version),
        flushes: 0,
        flush_written_bytes: 0,
    };
    Ok(Some(Arc::new(Core {
        io: io.clone(),
        env: env.clone(),
        dir: dir.to_path_buf(),
        background: Background::new(&options, env, true),
        damage: Damage::default(),
        options,
        read_only: true,
        store,
        default_keyspace: Arc::new(KeyspaceState::new(store, 0, DEFAULT)),
        health: Health::default(),
        visible: AtomicU64::new(recovered.last_seq),
        view: Published::new(Arc::new(tree.view())),
        cache: recovered.cache,
        snapshots: Snapshots::default(),
        writes: None,
        manifest: None,
        keyspaces: Mutex::new(Keyspaces::new(store, &state)),
        tree: Mutex::new(tree),
        next_file: Arc::new(AtomicU64::new(state.next_file_number)),
        recovered_damage: recovered.lost.as_ref().or(recovered.broken.as_ref()).map(describe),
        lock: Mutex::new(None),
    })))
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
    held: FileLock,
) -> Result<Arc<Core>> {
    // Numbers are given out without an edit, so files may be ahead of the manifest.
    let used = own.iter().filter_map(|k| k.number()).max().unwrap_or(0);
    state.next_file_number = state.next_file_number.max(used + 1);
    state.last_seq = recovered.last_seq;
    forget_purged(&mut state, &recovered);
    if state.tables.is_empty() && recovered.memtables.is_empty() {
        // What an unfinished creation left has names that are wanted again.
        for k in own.iter().filter(|k| matches!(k, FileKind::CurrentTmp)) {
            io.remove_file(&k.path(dir))?;
        }
    }
    let next_file = Arc::new(AtomicU64::new(state.next_file_number));
    let counter = next_file.clone();
    let next_number: NextNumber = Arc::new(move || counter.fetch_add(1, Relaxed));
    let mut manifest = ManifestFile::create(&io, dir, state.clone(), next_number.clone())?;
    manifest.rewrite_at(options.manifest_bytes);
    let medium = match options.durability {
        Durability::Sync => Medium::Direct,
        _ => Medium::Mapped,
    };
    let limit = options.memtable_limit();
    let segment_bytes = options.segment_bytes(LogOptions::default().segment_bytes);
    let log_options = LogOptions { medium, segment_bytes, ..LogOptions::default() };
    let (log, log_writer) = Log::create(&io, dir, log_options, next_number)?;
    let first_segment = log_writer.segment();

    let (active, mem_writer) = Memtable::new(limit);
    let immutables: VecDeque<Immutable> = recovered
        .memtables
        .into_iter()
        .map(|(mem, last_seq)| Immutable { mem, last_seq, segment: state.log_number })
        .collect();
    let tree = TreeState {
        active: active.clone(),
        active_segment: first_segment,
        immutables,
        version: Arc::new(recovered.version),
        flushes: 0,
        flush_written_bytes: 0,
    };
    let store = STORES.fetch_add(1, Relaxed);
    let max_segments = (4 * limit / log_options.segment_bytes).max(4);
    let writes =
        Writes::new((log, log_writer), (active, mem_writer), recovered.last_seq, limit, max_segments);
    let core = Arc::new(Core {
        background: Background::new(&options, &env, false),
        damage: Damage::default(),
        io,
        env,
        dir: dir.to_path_buf(),
        options,
        read_only: false,
        store,
        default_keyspace: Arc::new(KeyspaceState::new(store, 0, DEFAULT)),
        health: Health::default(),
        visible: AtomicU64::new(recovered.last_seq),
        view: Published::new(Arc::new(tree.view())),
        cache: recovered.cache,
        snapshots: Snapshots::default(),
        writes: Some(writes),
        manifest: Some(Mutex::new(manifest)),
        keyspaces: Mutex::new(Keyspaces::new(store, &state)),
        tree: Mutex::new(tree),
        next_file,
        recovered_damage: recovered.lost.as_ref().or(recovered.broken.as_ref()).map(describe),
        lock: Mutex::new(Some(held)),
    });
    core.count_memtables(&lock(&core.tree));
    core.flush_recovered()?;
    core.begin_log_at(first_segment)?;
    core.remove_orphans(&own, recovered.lost.as_ref())?;
    Ok(core)
}

impl Core {
    /// From here on the log begins with `segment`: everything before is in tables.
    fn begin_log_at(&self, segment: u64) -> Result<()> {
        let Some(manifest) = &self.manifest else { return Ok(()) };
        let mut manifest = lock(manifest);
        if manifest.state().log_number >= segment {
            return Ok(());
        }
        let edit = VersionEdit { log_number: Some(segment), ..VersionEdit::default() };
        self.append_edit(&mut manifest, &edit)
    }

    /// Removes the store's own files that were there before and that nothing refers to any more. Damaged log
    /// segments are kept under another name.
    fn remove_orphans(&self, own: &[FileKind], lost: Option<&Lost>) -> Result<()> {
        let Some(manifest) = &self.manifest else { return Ok(()) };
        let manifest = lock(manifest);
        let (state, current) = (manifest.state(), manifest.number());
        let damaged_from = lost.and_then(|l| {
            let name = l.path.file_name()?.to_str()?;
            crate::files::parse(name)?.number()
        });
        let unreadable = lock(&self.tree).version.tables().any(|(_, t)| t.why_unreadable().is_some());
        for kind in own {
            let gone = match kind {
                FileKind::Lock | FileKind::Current => false,
                FileKind::CurrentTmp => true,
                FileKind::Manifest(n) => *n != current,
                // What looks superfluous may be what is missing elsewhere.
                FileKind::Table(n) => !state.tables.contains_key(n) && !unreadable,
                FileKind::Log(n) => *n < state.log_number,
            };
            let path = kind.path(&self.dir);
            if !gone || self.io.metadata(&path)?.is_none() {
                continue;
            }
            match kind {
                FileKind::Log(n) if damaged_from.is_some_and(|from| *n >= from) => {
                    let mut aside = path.clone().into_os_string();
                    aside.push(".damaged");
                    self.io.rename(&path, Path::new(&aside))?;
                }
                _ => self.io.remove_file(&path)?,
            }
        }
        Ok(())
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

fn segments(own: &[FileKind]) -> Vec<u64> {
    own.iter().filter_map(|k| if let FileKind::Log(n) = k { Some(*n) } else { None }).collect()
}

fn describe(lost: &Lost) -> String {
    format!("{} at offset {}: {}", lost.path.display(), lost.offset, lost.detail)
}
