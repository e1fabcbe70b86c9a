//! [`Db`]: the store, and the handles that share its calls: [`Keyspace`] and [`Snapshot`].
//!
//! A [`Db`] is a counted handle to one [`Core`]. Background threads and iterators know the core only, so that
//! dropping the last `Db`, `Keyspace` or `Snapshot` ends the store. The core's parts, one a file:
//! opening and recovery (`open`), commits (`write`), reads (`view`, `get`, `multi_get`, `iter`), the tree and its
//! manifest (`tree`), flush and compaction threads (`background`), and the calls that look at all of it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::env::Join;
use crate::key::{Kind, Prefix, Seq};
use crate::sync::{Mutex, lock};
use crate::{
    Env, KeyRange, Options, ReadOptions, Result, Stats, Value, VerifyOptions, VerifyReport, WriteBatch,
    WriteOptions,
};

mod background;
mod checkpoint;
mod core;
mod damage;
mod directory;
mod get;
mod health;
mod iter;
mod keyspace;
mod multi_get;
mod open;
mod recover;
mod snapshot;
mod source;
mod stats;
#[cfg(test)]
mod testing;
mod tree;
mod verify;
mod verify_table;
mod view;
mod write;

pub(crate) use self::core::Core;
pub(crate) use directory::{make_dir, sync_name};
pub use iter::Iter;
pub(crate) use keyspace::KeyspaceState;
pub(crate) use snapshot::Registered;
pub(crate) use source::Bounds;

/// An open store. Cheap to clone, shared by all threads. Closed when the last clone, keyspace and snapshot of
/// it is dropped; what the log holds survives that without a flush.
#[derive(Clone)]
pub struct Db {
    handle: Arc<Handle>,
}

/// What the last handle's drop ends.
struct Handle {
    core: Arc<Core>,
    threads: Mutex<Vec<Join>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // An error here has nobody to go to; `Db::close` is the call that tells.
        let _ = self.core.shut_down(std::mem::take(&mut *lock(&self.threads)));
    }
}

/// A named set of keys in a store, with the same calls as [`Db`]. Keeps the store open.
#[derive(Clone)]
pub struct Keyspace {
    db: Db,
    state: Arc<KeyspaceState>,
}

/// The store as it was at one moment, in every keyspace. Keeps the store open, and the versions that it sees
/// from being compacted away, until dropped.
#[derive(Clone)]
pub struct Snapshot {
    db: Db,
    state: Arc<KeyspaceState>,
    seq: Arc<Registered>,
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("path", &self.handle.core.dir).finish_non_exhaustive()
    }
}
impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.state.name).finish_non_exhaustive()
    }
}
impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("sequence", &self.seq.seq()).finish_non_exhaustive()
    }
}

impl Db {
    /// Opens the store in the directory `path`, made if missing.
    ///
    /// A table that is damaged or missing does not keep a store from opening: reads of keys in its range fail, unless
    /// something newer answers them, and all others are served; see [`Stats::damaged_tables`] and
    /// [`crate::salvage`]. A damaged manifest or log does.
    ///
    /// One process has a store open for writing at a time: [`crate::Error::Locked`] otherwise, also for a second
    /// `open` in the same process (clone the `Db` instead).
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        options.validate()?;
        let io = engineswap::Io::from_uri(&options.io)?;
        Db::open_with_env(path, options, io, crate::SystemEnv::shared())
    }

    /// Opens with an I/O engine, a clock, threads and randomness of the caller's: for simulators and tests.
    /// `options.io` is not looked at.
    pub fn open_with_env(
        path: impl AsRef<Path>,
        options: Options,
        io: engineswap::Io,
        env: Arc<dyn Env>,
    ) -> Result<Db> {
        options.validate()?;
        Core::open(path.as_ref(), options, io, env).and_then(Db::start)
    }

    /// Opens for reading only: beside a running writer, as of now; what the writer does later is not seen.
    /// Writes nothing at all, so the directory may be read-only.
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        options.validate()?;
        let io = engineswap::Io::from_uri(&options.io)?;
        Core::open_read_only(path.as_ref(), options, io, crate::SystemEnv::shared()).and_then(Db::start)
    }

    fn start(core: Arc<Core>) -> Result<Db> {
        let db = Db { handle: Arc::new(Handle { core, threads: Mutex::new(Vec::new()) }) };
        db.core().start_threads(&mut lock(&db.handle.threads))?;
        Ok(db)
    }

    /// A keyspace by name, made if missing. The name is 1 to 255 bytes of UTF-8; "default" is the keyspace that
    /// `Db`'s own calls use.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let state = self.core().keyspace(name)?;
        Ok(Keyspace { db: self.clone(), state })
    }

    /// A keyspace by name if there is one.
    pub fn existing_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        let state = self.core().existing_keyspace(name)?;
        Ok(state.map(|state| Keyspace { db: self.clone(), state }))
    }

    /// The names of all keyspaces but the default one, sorted.
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        self.core().keyspace_names()
    }

    /// Drops a keyspace with all its keys; false if there is none of that name. Handles to it fail with
    /// [`crate::Error::KeyspaceDropped`] from then on; a new keyspace may take the name at once.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.core().drop_keyspace(name)
    }

    /// Commits a batch: all of it or nothing, in every keyspace that it writes to.
    pub fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        self.core().commit_batch(&batch, options)
    }

    /// A view of the store as it is now.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.core().default_keyspace.clone();
        Snapshot { db: self.clone(), state, seq: Arc::new(Registered::now(self.core())) }
    }

    /// Writes all memtables to tables: everything written before the call is durable after it, whatever its
    /// [`crate::Durability`].
    pub fn flush(&self) -> Result<()> {
        self.core().flush()
    }

    /// Waits until there is nothing left to flush or compact, and no log segment to prepare: for measurements, or
    /// before a checkpoint that should be small. With writers beside it, it may wait for long. The active memtable
    /// stays as it is.
    pub fn wait_idle(&self) -> Result<()> {
        self.core().wait_idle()
    }

    /// Waits only until no log segment is left to prepare. For simulators, which let background work happen in an
    /// order of theirs.
    #[doc(hidden)]
    pub fn wait_prepared(&self) -> Result<()> {
        self.core().wait_prepared()
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        self.core().stats()
    }

    /// The I/O engine in use, with its own counters.
    pub fn io(&self) -> &engineswap::Io {
        &self.core().io
    }

    /// Reads every byte and checks every checksum, order and reference. What is wrong is in the report; an error
    /// means that the check could not be made.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(&VerifyOptions::default())
    }

    /// The same with options.
    pub fn verify_with(&self, options: &VerifyOptions) -> Result<VerifyReport> {
        self.core().verify(options)
    }

    /// The same for a store that is too damaged to be opened, or need not be: everything in its directory that
    /// can be read is checked, and each file that cannot is named. Writes nothing. Meant for a store that
    /// nobody has open: beside a writer, what it changes meanwhile looks like damage.
    pub fn verify_dir(path: impl AsRef<Path>, options: &Options) -> Result<VerifyReport> {
        Db::verify_dir_with(path, options, &VerifyOptions::default())
    }

    /// The same with options.
    pub fn verify_dir_with(
        path: impl AsRef<Path>,
        options: &Options,
        verify: &VerifyOptions,
    ) -> Result<VerifyReport> {
        options.validate()?;
        let io = engineswap::Io::from_uri(&options.io)?;
        verify::verify_dir(&io, path.as_ref(), verify)
    }

    /// Makes a copy of the store in a new directory of the same file system, by hard links: fast, and durable
    /// when the call returns. It holds everything written before the call. The directory must not exist or be
    /// empty.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.core().checkpoint(dir.as_ref())
    }

    /// Flushes, waits for background work and closes; errors that `drop` would swallow are returned. Other
    /// handles of the store fail with [`crate::Error::Closed`] from then on.
    pub fn close(self) -> Result<()> {
        self.core().check_open()?;
        let flushed = if self.core().read_only { Ok(()) } else { self.core().flush() };
        let threads = std::mem::take(&mut *lock(&self.handle.threads));
        flushed.and(self.core().shut_down(threads))
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }

    fn read_at(&self) -> Result<(&Arc<Core>, Prefix, Option<Seq>)> {
        self.core().check_open()?;
        Ok((self.core(), self.core().default_keyspace.prefix, None))
    }

    fn write_to(&self) -> (&Arc<Core>, &Arc<KeyspaceState>) {
        (self.core(), &self.core().default_keyspace)
    }
}

impl Keyspace {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    pub(crate) fn state(&self) -> &Arc<KeyspaceState> {
        &self.state
    }

    fn read_at(&self) -> Result<(&Arc<Core>, Prefix, Option<Seq>)> {
        self.db.core().check_open()?;
        self.state.check()?;
        Ok((self.db.core(), self.state.prefix, None))
    }

    fn write_to(&self) -> (&Arc<Core>, &Arc<KeyspaceState>) {
        (self.db.core(), &self.state)
    }
}

impl Snapshot {
    /// The same view of a keyspace (of the same store; the calls of a foreign keyspace's snapshot fail).
    pub fn keyspace(&self, keyspace: &Keyspace) -> Snapshot {
        Snapshot { db: self.db.clone(), state: keyspace.state.clone(), seq: self.seq.clone() }
    }

    fn read_at(&self) -> Result<(&Arc<Core>, Prefix, Option<Seq>)> {
        let core = self.db.core();
        core.check_open()?;
        self.state.check_store(core.store)?;
        self.state.check()?;
        Ok((core, self.state.prefix, Some(self.seq.seq())))
    }
}

macro_rules! writes {
    () => {
        /// Sets a key.
        pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
            let (core, keyspace) = self.write_to();
            core.commit_one(keyspace, Kind::Put, key.as_ref(), value.as_ref())
        }
        /// Deletes a key; it need not be there.
        pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
            let (core, keyspace) = self.write_to();
            core.commit_one(keyspace, Kind::Delete, key.as_ref(), b"")
        }
        /// Compacts the tables that hold a range of keys, down to the last level; flushes first.
        pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
            let (core, keyspace) = self.write_to();
            core.compact_range(keyspace, range.bounds())
        }
    };
}
macro_rules! reads {
    () => {
        /// The value of a key.
        pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
            self.get_with(key, &ReadOptions::default())
        }
        /// The value of a key, with options.
        pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
            let (core, prefix, seq) = self.read_at()?;
            core.get_at(&prefix, key.as_ref(), seq, options)
        }
        /// The values of many keys, in their order, all as of one moment; every block needed is read in flight
        /// together. If one of the keys cannot be read because of damage the call fails: ask for them one by one
        /// then.
        pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
            self.multi_get_with(keys, &ReadOptions::default())
        }
        /// The same with options.
        pub fn multi_get_with<K: AsRef<[u8]>>(
            &self,
            keys: &[K],
            options: &ReadOptions,
        ) -> Result<Vec<Option<Value>>> {
            let (core, prefix, seq) = self.read_at()?;
            core.multi_get_at(&prefix, keys, seq, options)
        }
        /// All pairs, as of now. Damage is an error where the iterator gets to it.
        pub fn iter(&self) -> Iter {
            self.range_with(.., &ReadOptions::default())
        }
        /// The pairs of a range of keys, as of now.
        pub fn range(&self, range: impl KeyRange) -> Iter {
            self.range_with(range, &ReadOptions::default())
        }
        /// The pairs whose key begins with `prefix`, as of now.
        pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
            let (from, to) = crate::bounds::of_prefix(prefix.as_ref());
            self.range_with((from, to), &ReadOptions::default())
        }
        /// The pairs of a range of keys, as of now, with options.
        pub fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter {
            match self.read_at() {
                Ok((core, prefix, seq)) => Iter::new(core, prefix, range.bounds(), seq, options),
                Err(e) => Iter::failed(e),
            }
        }
    };
}
impl Db {
    writes!();
    reads!();
}
impl Keyspace {
    writes!();
    reads!();
}
impl Snapshot {
    reads!();
}
