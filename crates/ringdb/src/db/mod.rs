//! [`Db`]: the store; [`Keyspace`] and [`Snapshot`] are handles to parts of it.
//!
//! All of them hold a counted [`Handle`] to one [`Core`]. Background threads and iterators know the core only, so that
//! dropping the last `Db`, `Keyspace` or `Snapshot` ends the store. The core's parts, one a file:
//! opening and recovery (`open`, `recover`), commits (`write`), reads (`view`, `lookup`, `get`, `multi_get`, `iter`),
//! the tree (`tree`) and its manifest (`version_set`), background threads (`background`), and the calls that look at
//! all of it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::{
    Env, KeyRange, KeyspaceOptions, Options, ReadOptions, Result, Stats, Value, VerifyOptions, VerifyReport,
    WriteOptions,
};

mod ask;
mod background;
mod backup;
mod batch;
mod block_on;
mod checkpoint;
mod committer;
mod compact;
mod core;
mod cover;
mod delete_range;
mod destroy;
mod directory;
mod encryption;
mod estimate;
mod expiring;
mod export;
mod format;
mod get;
mod get_async;
mod handle;
mod health;
mod held;
mod inbox;
mod ingest;
mod iter;
mod keyspace;
mod keyspaces;
mod locks;
mod log_keeper;
mod looks;
mod lookup;
mod metrics;
mod multi_get;
mod odds;
mod open;
mod quarantine;
mod reactor;
mod reads;
mod recover;
mod refresh;
mod registered;
mod remember;
mod resolve;
mod seek;
#[cfg(feature = "socket")]
mod serve;
mod served;
#[cfg(test)]
mod sim_life;
mod snapshot;
mod snapshots;
mod source;
mod stats;
mod table_map;
#[cfg(test)]
mod testing;
mod transaction;
mod tree;
mod ttl;
mod verify;
mod verify_table;
mod version_set;
mod view;
mod write;
mod write_async;

use self::block_on::block_on;
pub(crate) use self::core::Core;
use self::handle::Handle;
pub use backup::{BackupOptions, BackupReport, Backups, Generation, RestoreReport};
pub use batch::WriteBatch;
pub(crate) use directory::{make_dir, real_path, sync_name};
pub use export::{ExportReport, Exported};
pub use format::{FileFormat, FormatReport};
pub use get_async::{GetFuture, MultiGetFuture};
pub use ingest::Ingester;
pub use iter::{Iter, Keys, RangeStream};
pub use keyspace::Keyspace;
pub use metrics::Metrics;
pub use reads::{MultiGetStream, Reads};
pub use seek::Cursor;
pub use snapshot::Snapshot;
pub use transaction::{ExtractIf, Transaction, TransactionRange};
pub use write_async::WriteFuture;

/// An open store. Cheap to clone, shared by all threads. Closed when the last clone, keyspace and snapshot of
/// it is dropped; what the log holds survives that without a flush.
#[derive(Clone)]
pub struct Db {
    /// The default keyspace, through whose handle the store is reached.
    default: Keyspace,
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("path", &self.core().dir).finish_non_exhaustive()
    }
}

/// The engine of a store: it registers no memory and has no pools, so options for these are refused.
pub(crate) fn engine(uri: &str) -> Result<engineswap::Io> {
    Ok(engineswap::Io::from_uri_for(uri, engineswap::Uses::default())?)
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
    ///
    /// # Errors
    /// Of kind [`crate::ErrorKind::FixCall`]: a setting that cannot be, an engine that does not work here,
    /// [`crate::Error::NewerFormat`], [`crate::Error::NoStore`] if none is to be made. [`crate::Error::Corrupt`] if the
    /// manifest or the log is damaged. What the system refuses is of kind [`crate::ErrorKind::Retry`].
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        options.validate()?;
        let io = engine(&options.io)?;
        Db::open_with_env(path, options, io, crate::SystemEnv::shared())
    }

    /// Opens with an I/O engine, a clock, threads and randomness of the caller's: for simulators and tests.
    /// `options.io` is not looked at.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_with_env(
        path: impl AsRef<Path>,
        options: Options,
        io: engineswap::Io,
        env: Arc<dyn Env>,
    ) -> Result<Db> {
        options.validate()?;
        Core::open(path.as_ref(), options, io, env).and_then(Db::start)
    }

    /// Which versions of the format the store in the directory `path`, and each of its files, has. Reads headers only
    /// and writes nothing; works beside a running writer. Of `options` only the engine is used.
    ///
    /// ```
    /// use ringdb::{Db, Options};
    ///
    /// # fn main() -> ringdb::Result<()> {
    /// # let tmp = tempfile::tempdir().expect("a temporary directory");
    /// # let dir = tmp.path().join("store");
    /// Db::open(&dir, Options::default())?.close()?;
    /// let format = Db::format(&dir, &Options::default())?;
    /// assert!(!format.is_old() && format.version == format.newest);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::NewerFormat`] if this build cannot read the store; [`crate::Error::NoStore`] if there is none;
    /// [`crate::Error::Corrupt`] if its manifest is damaged.
    pub fn format(path: impl AsRef<Path>, options: &Options) -> Result<FormatReport> {
        format::report(&options.open_io()?, path.as_ref())
    }

    /// Opens for reading only: beside a running writer, as of now; what the writer does later is seen after
    /// [`Db::refresh`]. Writes nothing at all, so the directory may be read-only.
    ///
    /// # Errors
    /// As [`Db::open`], but [`crate::Error::Locked`]; [`crate::Error::NoStore`] if there is none.
    /// [`crate::Error::Corrupt`] also if a writer changes the store again and again while it is opened: try again.
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        options.validate()?;
        let io = engine(&options.io)?;
        Db::open_read_only_with_env(path, options, io, crate::SystemEnv::shared())
    }

    /// The same with an I/O engine and a clock of the caller's, as [`Db::open_with_env`].
    ///
    /// # Errors
    /// As [`Db::open_read_only`].
    pub fn open_read_only_with_env(
        path: impl AsRef<Path>,
        options: Options,
        io: engineswap::Io,
        env: Arc<dyn Env>,
    ) -> Result<Db> {
        options.validate()?;
        Core::open_read_only(path.as_ref(), options, io, env).and_then(Db::start)
    }

    /// Catches up with the writer, in a store that was opened read-only: what was written, flushed or compacted, which
    /// keyspaces were made or dropped, before this call, is seen after it. True if there was anything new.
    ///
    /// The new state is a whole one, as of one moment, and never older than what was seen before. Snapshots, iterators
    /// and reads under way go on seeing theirs, for which their tables stay open, also those that the writer has
    /// removed. Writes with [`crate::Durability::None`] are seen when they are flushed. It costs little when nothing
    /// has changed, the reading of the new part of the log when something was written, and that of the log behind the
    /// tables after a flush or an ingest. Nothing calls it by itself: call it before a read that has to be of now, or
    /// every so often. In a store opened for writing there is nothing to catch up with: false.
    ///
    /// ```
    /// # let tmp = tempfile::tempdir().expect("a temporary directory");
    /// # let dir = tmp.path();
    /// use ringdb::{Db, Options};
    ///
    /// let writer = Db::open(dir, Options::default())?; // mostly in another process
    /// let reader = Db::open_read_only(dir, Options::default())?;
    /// writer.put("k", "v")?;
    /// assert!(reader.get("k")?.is_none());
    /// assert!(reader.refresh()?);
    /// assert_eq!(reader.get("k")?.as_deref(), Some(&b"v"[..]));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::NoStore`] if the store was removed, or another one or an older state is in its place;
    /// [`crate::Error::Corrupt`] and [`crate::Error::Io`] as for [`Db::open_read_only`];
    /// [`crate::Error::NewerFormat`] if a newer ringdb has opened it for writing. What was seen before goes on being
    /// seen then, and another call tries again.
    pub fn refresh(&self) -> Result<bool> {
        self.core().refresh()
    }

    fn start(core: Arc<Core>) -> Result<Db> {
        let default = core.keyspaces.default_one().clone();
        Ok(Db { default: Keyspace::new(&Handle::start(core)?, default) })
    }

    /// A keyspace by name, made if missing. The name is 1 to 255 bytes of UTF-8; "default" is the keyspace that
    /// `Db`'s own calls use.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the name cannot be; [`crate::Error::ReadOnly`] if there is none of that name in a
    /// store opened read-only; otherwise as [`Db::put`].
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        Ok(Keyspace::new(self.default.handle(), self.core().keyspace(name)?))
    }

    /// A keyspace by name with settings of its own, made with them if missing. One that is there is altered, as by
    /// [`Keyspace::alter`].
    ///
    /// # Errors
    /// Of kind [`crate::ErrorKind::FixCall`]: a name or a setting that cannot be, or a store that was opened read-only
    /// and has no such keyspace with these settings.
    pub fn keyspace_with(&self, name: &str, options: &KeyspaceOptions) -> Result<Keyspace> {
        Ok(Keyspace::new(self.default.handle(), self.core().keyspace_with(name, options)?))
    }

    /// The settings in force: what was given when the store was opened, and what the store remembers.
    pub fn options(&self) -> Options {
        let core = self.core();
        let store = core.keyspaces.options_of(0).time_to_live.unwrap_or_default();
        core.keyspaces.store_settings().put_into(core.options.clone()).with_time_to_live(store)
    }

    /// A keyspace by name if there is one.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the name cannot be; [`crate::Error::Closed`].
    pub fn existing_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        let state = self.core().existing_keyspace(name)?;
        Ok(state.map(|state| Keyspace::new(self.default.handle(), state)))
    }

    /// The names of all keyspaces but the default one, sorted.
    ///
    /// # Errors
    /// [`crate::Error::Closed`].
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        self.core().check_open()?;
        Ok(self.core().keyspaces.names())
    }

    /// Drops a keyspace with all its keys; false if there is none of that name. Handles to it fail with
    /// [`crate::Error::KeyspaceDropped`] from then on; a new keyspace may take the name at once.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if it is the default one, or the name cannot be; otherwise as [`Db::put`].
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.core().drop_keyspace(name)
    }

    /// Commits a batch: all of it or nothing, in every keyspace that it writes to. An empty batch with
    /// [`crate::Durability::Sync`] is a [`Db::sync`].
    ///
    /// # Errors
    /// As [`Db::put`]; also [`crate::Error::Invalid`] for a keyspace of another store, and
    /// [`crate::Error::KeyspaceDropped`]. Nothing of the batch is written then.
    pub fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        self.write_ref(&batch, options)
    }

    /// The same with a batch that is kept: to be written again, or cleared, which keeps its memory, and filled anew.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn write_ref(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()> {
        if options.deadline.is_some() {
            return block_on(self.write_async(batch.clone(), options));
        }
        let core = self.core();
        core.write_side()?;
        core.health.check_writable()?;
        batch.check(&core.keyspaces)?;
        core.commit_batch(&core.stamped(&batch.ops, batch.expires)?, batch.count, options)
    }

    /// The same for a task that must not block: ready when the batch is as durable as asked.
    ///
    /// Futures write in the order of their first polls; those that wait at the same time share frames of the log and
    /// its syncs. Slowed writers (backpressure) wait in the future. One that is dropped after its first poll may have
    /// written or not. An unsynced write of a `Process` or `None` store is done by the first poll, unless others wait.
    pub fn write_async(&self, batch: WriteBatch, options: &WriteOptions) -> WriteFuture {
        WriteFuture::new(self.core(), batch, options)
    }

    /// Makes everything durable that was written before the call, whatever its [`crate::Durability`]: by a sync of the
    /// log; by a flush, if there is something that was not logged. What futures of [`Db::write_async`] write counts
    /// when they are ready.
    ///
    /// # Errors
    /// [`crate::Error::Stopped`] if the device fails: what was written since the last sync may be lost. A store that
    /// was opened read-only has nothing to sync: [`crate::Error::ReadOnly`].
    pub fn sync(&self) -> Result<()> {
        self.core().write_side()?.sync()
    }

    /// The same for a task that must not block; also for writes of other futures that were polled before it.
    pub fn sync_async(&self) -> WriteFuture {
        let sync = WriteOptions::default().durability(crate::Durability::Sync);
        WriteFuture::new(self.core(), WriteBatch::new(), &sync)
    }

    /// A view of the store as it is now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::now(&self.default)
    }

    /// Writes all memtables to tables: everything written before the call is durable after it, whatever its
    /// [`crate::Durability`].
    ///
    /// # Errors
    /// [`crate::Error::Stopped`] if the device fails; of kind [`crate::ErrorKind::Retry`] if there is no room for a
    /// table; [`crate::Error::ReadOnly`]; [`crate::Error::Closed`].
    pub fn flush(&self) -> Result<()> {
        self.core().flush()
    }

    /// Waits until there is nothing left to flush or compact, and no log segment to prepare: for measurements, or
    /// before a checkpoint that should be small. With writers beside it, it may wait for long. The active memtable
    /// stays as it is.
    ///
    /// # Errors
    /// As [`Db::flush`].
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
    ///
    /// # Errors
    /// [`crate::Error::Closed`]; of the I/O layer, if a file cannot be looked at. Damage is no error.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(&VerifyOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Db::verify`].
    pub fn verify_with(&self, options: &VerifyOptions) -> Result<VerifyReport> {
        self.core().verify(options)
    }

    /// The same for a store that is too damaged to be opened, or need not be: everything in its directory that
    /// can be read is checked, and each file that cannot is named. Writes nothing. Meant for a store that
    /// nobody has open: beside a writer, what it changes meanwhile looks like damage.
    ///
    /// # Errors
    /// [`crate::Error::NoStore`] if there is none; of the I/O layer, if a file cannot be looked at. Damage is no error.
    pub fn verify_dir(path: impl AsRef<Path>, options: &Options) -> Result<VerifyReport> {
        Db::verify_dir_with(path, options, &VerifyOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Db::verify_dir`].
    pub fn verify_dir_with(
        path: impl AsRef<Path>,
        options: &Options,
        verify: &VerifyOptions,
    ) -> Result<VerifyReport> {
        options.validate()?;
        let io = options.open_io()?;
        verify::verify_dir(&io, path.as_ref(), verify)
    }

    /// Makes a copy of the store in a new directory, durable when the call returns: by hard links, which is fast, or
    /// table by table on another file system. It holds everything written before the call. The directory must be
    /// empty or not exist.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the directory is neither new nor empty; otherwise as [`Db::flush`]. What had been
    /// made of the copy is removed then.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.core().checkpoint(dir.as_ref())
    }

    /// Adds a backup of everything written before the call to the directory `dir`, on any file system, made if missing:
    /// one more generation, durable when the call returns. Tables that a former generation has are not copied again;
    /// every block of the others is checked on its way. A crash in the middle leaves the former generations whole.
    ///
    /// [`Backups`] verifies them and makes stores of them again. Each store needs a directory of its own.
    ///
    /// ```
    /// # let tmp = tempfile::tempdir().expect("a temporary directory");
    /// # let (dir, backups, restored) = (tmp.path().join("a"), tmp.path().join("b"), tmp.path().join("c"));
    /// use ringdb::{BackupOptions, Backups, Db, Options, VerifyOptions};
    ///
    /// let db = Db::open(&dir, Options::default())?;
    /// db.put("apple", "red")?;
    /// db.backup(&backups)?;
    /// db.put("apple", "green")?;
    /// // Two generations stay from now on.
    /// let report = db.backup_with(&backups, &BackupOptions::default().with_keep(2))?;
    /// assert_eq!((report.generation, report.copied_tables), (2, 1));
    ///
    /// let backups = Backups::open(&backups)?;
    /// assert!(backups.verify(&VerifyOptions::default())?.is_ok());
    /// backups.restore(Some(1), &restored, None)?;
    /// let db = Db::open(&restored, Options::default())?;
    /// assert_eq!(db.get("apple")?.as_deref(), Some(&b"red"[..]));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if a table, or the list of a former generation, is damaged; [`crate::Error::Invalid`]
    /// if the directory holds something else, or backups of another store; [`crate::Error::Locked`] while another
    /// backup is made there. The store goes on.
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<BackupReport> {
        self.backup_with(dir, &BackupOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// See [`Db::backup`]. If only the removal of old generations fails, the new one is there all the same.
    pub fn backup_with(&self, dir: impl AsRef<Path>, options: &BackupOptions) -> Result<BackupReport> {
        self.core().backup(dir.as_ref(), options)
    }

    /// Flushes, waits for background work and closes; errors that `drop` would swallow are returned. Other
    /// handles of the store fail with [`crate::Error::Closed`] from then on.
    ///
    /// # Errors
    /// As [`Db::flush`]. The store is closed all the same; what the log holds is there at the next open.
    pub fn close(self) -> Result<()> {
        self.core().check_open()?;
        let flushed = if self.core().write_side.is_none() { Ok(()) } else { self.core().flush() };
        flushed.and(self.default.handle().shut_down())
    }

    /// Sets a key.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if key or value is too long; [`crate::Error::Stopped`] once writing has failed;
    /// [`crate::Error::ReadOnly`]; [`crate::Error::Closed`]. Of kind [`crate::ErrorKind::Retry`] while the system
    /// refuses space, descriptors or memory.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }

    /// Deletes a key; it need not be there.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete(key)
    }

    /// Begins to ingest sorted pairs into the default keyspace; see [`Keyspace::ingester`].
    ///
    /// # Errors
    /// As [`Keyspace::ingester`].
    pub fn ingester(&self) -> Result<Ingester<'_>> {
        self.default.ingester()
    }

    /// Ingests sorted pairs into the default keyspace; see [`Keyspace::ingest`].
    ///
    /// # Errors
    /// As [`Keyspace::ingest`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// db.ingest([("apple", "red"), ("banana", "yellow")])?;
    /// assert_eq!(db.get("banana")?.as_deref(), Some(&b"yellow"[..]));
    /// assert!(db.ingest([("b", "1"), ("a", "2")]).is_err(), "out of order");
    /// assert_eq!(db.get("b")?, None);
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        self.default.ingest(pairs)
    }

    /// Merges an operand into the value of a key of the default keyspace; see [`Keyspace::merge`].
    ///
    /// The default keyspace gets its merge operator as any other: by [`Keyspace::alter`]. It holds for all keyspaces
    /// that have none of their own.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::merge`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// db.keyspace("default")?.alter(&ringdb::KeyspaceOptions::default().with_merge_operator("append: "))?;
    /// db.merge("log", "opened")?;
    /// db.merge("log", "read")?;
    /// assert_eq!(db.get("log")?.as_deref(), Some(&b"opened read"[..]));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.default.merge(key, operand)
    }

    /// Deletes the keys of a range: at the same cost however many there are, and atomically.
    ///
    /// The range is written as one tombstone, which every read respects at once. Compactions then remove what it covers
    /// and give the space back, without anybody writing more; tables that lie in the range whole are dropped unread.
    /// Snapshots go on seeing what they saw. An empty range deletes nothing.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Invalid`] if an end of the range is longer than a key can be; otherwise as [`Db::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// for day in ["2026-01-30", "2026-01-31", "2026-02-01"] {
    ///     db.put(day, "log")?;
    /// }
    /// db.delete_range("2026-01-01".."2026-02-01")?;
    /// assert_eq!(db.iter().count(), 1);
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        self.default.delete_range(range)
    }

    /// Deletes the keys that begin with `prefix`; see [`Db::delete_range`].
    ///
    /// # Errors
    ///
    /// As [`Db::delete_range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// db.put("user:7:name", "Ada")?;
    /// db.put("user:8:name", "Alan")?;
    /// db.delete_prefix("user:7:")?;
    /// assert_eq!(db.iter().count(), 1);
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.default.delete_prefix(prefix)
    }

    /// Deletes all keys of the default keyspace; see [`Db::delete_range`].
    ///
    /// # Errors
    ///
    /// As [`Db::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// db.put("k", "v")?;
    /// db.clear()?;
    /// assert!(db.iter().next().is_none());
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn clear(&self) -> Result<()> {
        self.default.clear()
    }

    /// Compacts the tables that hold a range of keys, down to the last level; flushes first.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        self.default.compact_range(range)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] if a block is damaged that nothing newer answers for; of the I/O layer, if it cannot
    /// be read; [`crate::Error::Closed`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default.get(key)
    }

    /// The value of a key, with options.
    ///
    /// # Errors
    /// As [`Db::get`]; [`crate::Error::TimedOut`] past the deadline.
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
        self.default.get_with(key, options)
    }

    /// The values of many keys, in their order, all as of one moment; every block needed is read in flight
    /// together. If one of the keys cannot be read because of damage the call fails: ask for them one by one
    /// then.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.default.multi_get(keys)
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Db::get_with`].
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        self.default.multi_get_with(keys, options)
    }

    /// The value of a key, for a task that must not block.
    ///
    /// The future is `Send`, owns what it needs, and works with any executor. Its first poll answers from memory if it
    /// can. What has to be read is read together with what other tasks miss, a block that several miss once. It may be
    /// dropped at any time. It does not keep the store open: closed meanwhile, it is ready with
    /// [`crate::Error::Closed`].
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> GetFuture {
        self.default.get_async(key)
    }

    /// The same with options.
    pub fn get_async_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> GetFuture {
        self.default.get_async_with(key, options)
    }

    /// The values of many keys, in their order, all as of one moment (that of the first poll), for a task that must not
    /// block; see [`Db::get_async`].
    pub fn multi_get_async<K: AsRef<[u8]>>(&self, keys: &[K]) -> MultiGetFuture {
        self.default.multi_get_async(keys)
    }

    /// The same with options.
    pub fn multi_get_async_with<K: AsRef<[u8]>>(&self, keys: &[K], options: &ReadOptions) -> MultiGetFuture {
        self.default.multi_get_async_with(keys, options)
    }

    /// A completion interface for at most `depth` reads at a time; see [`Reads`].
    ///
    /// # Errors
    /// [`crate::Error::Closed`].
    pub fn reads(&self, depth: usize) -> Result<Reads> {
        self.default.reads(depth)
    }

    /// The same with options.
    ///
    /// # Errors
    /// [`crate::Error::Closed`]; [`crate::Error::Invalid`] for a deadline.
    pub fn reads_with(&self, depth: usize, options: &ReadOptions) -> Result<Reads> {
        self.default.reads_with(depth, options)
    }

    /// The values of many keys, in the order in which they come, with `window` reads under way as long as there are
    /// keys: nothing is idle between two batches. Each is read as of when its read begins; by
    /// [`Snapshot::multi_get_stream`], as of one moment.
    ///
    /// # Errors
    /// [`crate::Error::Closed`]. What a key's read fails with comes with the key.
    pub fn multi_get_stream<I>(&self, keys: I, window: usize) -> Result<MultiGetStream<I::IntoIter>>
    where
        I: IntoIterator<Item: AsRef<[u8]>>,
    {
        self.default.multi_get_stream(keys, window)
    }

    /// All pairs, as of now. Damage is an error where the iterator gets to it.
    pub fn iter(&self) -> Iter {
        self.default.iter()
    }

    /// The pairs of a range of keys, as of now.
    pub fn range(&self, range: impl KeyRange) -> Iter {
        self.default.range(range)
    }

    /// The pairs whose key begins with `prefix`, as of now.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.default.prefix(prefix)
    }

    /// The same with options.
    pub fn prefix_with(&self, prefix: impl AsRef<[u8]>, options: &ReadOptions) -> Iter {
        self.default.prefix_with(prefix, options)
    }

    /// The pairs of a range of keys, as of now, with options.
    pub fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter {
        self.default.range_with(range, options)
    }

    /// The pairs of a range of keys, as of now, for a task that must not block: a stream of the `futures` crates, or by
    /// [`RangeStream::next`].
    ///
    /// It is `Send`, owns its bounds, and works with any executor. A poll answers from memory; what has to be read is
    /// read by the store's reactor, ahead of the scan as of an iterator, and only when the stream is polled. It may be
    /// dropped at any time. Damage is an error where the stream gets to it. It does not keep the store open: closed
    /// meanwhile, it ends with [`crate::Error::Closed`] when something has to be read. A deadline is for each pair,
    /// from the poll on that first has to wait for it.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("ringdb-stream-{}", std::process::id()));
    /// # let db = ringdb::Db::open(&dir, ringdb::Options::default())?;
    /// # smol::block_on(async {
    /// db.put("apple", "red")?;
    /// db.put("plum", "blue")?;
    /// let mut pairs = db.range_async("b"..);
    /// while let Some(pair) = pairs.next().await {
    ///     let (key, value) = pair?;
    ///     assert_eq!((&*key, &*value), (&b"plum"[..], &b"blue"[..]));
    /// }
    /// # ringdb::Result::Ok(())
    /// # })?;
    /// # drop(db);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn range_async(&self, range: impl KeyRange) -> RangeStream {
        self.default.range_async(range)
    }

    /// The same with options.
    pub fn range_async_with(&self, range: impl KeyRange, options: &ReadOptions) -> RangeStream {
        self.default.range_async_with(range, options)
    }

    /// The pairs whose key begins with `prefix`, as of now, for a task that must not block; see [`Db::range_async`].
    pub fn prefix_async(&self, prefix: impl AsRef<[u8]>) -> RangeStream {
        self.default.prefix_async(prefix)
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.default.core()
    }
}
