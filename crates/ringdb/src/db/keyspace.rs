//! [`Keyspace`]: the handle through which one keyspace is read and written; and how keyspaces are made and dropped.

use std::fmt;
use std::sync::Arc;

use super::ask::Ask;
use super::block_on::block_on;
use super::core::Core;
use super::get_async::{GetFuture, MultiGetFuture};
use super::handle::Handle;
use super::ingest::Ingester;
use super::iter::{Iter, RangeStream};
use super::keyspaces::KeyspaceState;
use super::multi_get::OfOne;
use super::reads::{MultiGetStream, Reads};
use super::registered::Registered;
use super::view::Views;
use crate::key::{Kind, Seq};
use crate::{KeyRange, KeyspaceOptions, ReadOptions, Result, Value};

/// A named set of keys in a store, with the same calls as [`crate::Db`]. Keeps the store open.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
/// let stock = db.keyspace("stock")?;
/// db.put("apple", "red")?;
/// stock.put("apple", "12")?;
/// assert_eq!(stock.get("apple")?.as_deref(), Some(&b"12"[..]));
/// assert_eq!(db.keyspaces()?, ["stock"]);
/// # Ok::<(), ringdb::Error>(())
/// ```
#[derive(Clone)]
pub struct Keyspace {
    handle: Arc<Handle>,
    state: Arc<KeyspaceState>,
}

impl Keyspace {
    pub(super) fn new(handle: &Arc<Handle>, state: Arc<KeyspaceState>) -> Keyspace {
        Keyspace { handle: Arc::clone(handle), state }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The settings in force for its tables, all of them given: its own, and those of the store where it has none.
    pub fn options(&self) -> KeyspaceOptions {
        self.core().keyspaces.options_of(self.state.id)
    }

    /// Changes settings of its tables; those that are not given stay as they are. Durable when this returns. Tables
    /// that are written from now on have them; those that are there keep theirs until a compaction rewrites them.
    ///
    /// The settings of the keyspace "default" are those of the store: a change holds for all keyspaces that have no
    /// setting of their own.
    ///
    /// # Errors
    /// Of kind [`crate::ErrorKind::FixCall`]: a setting that cannot be, or a store that was opened read-only.
    pub fn alter(&self, options: &KeyspaceOptions) -> Result<()> {
        self.core().alter(&self.state, options)
    }

    /// Sets a key.
    ///
    /// # Errors
    /// As [`crate::Db::put`]; [`crate::Error::KeyspaceDropped`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.core().commit_one(&self.state, Kind::Put, key.as_ref(), value.as_ref())
    }

    /// Deletes a key; it need not be there.
    ///
    /// # Errors
    /// As [`Keyspace::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.core().commit_one(&self.state, Kind::Delete, key.as_ref(), b"")
    }

    /// Merges an operand into the value of a key, without reading it: the keyspace's merge operator makes one of both
    /// when the key is read, or compacted. The key need not be there.
    ///
    /// As cheap as a put. Reads merge the operands that they meet; flushes and compactions make few of many, or a
    /// value.
    /// A key that exists only of operands counts as there, in [`Keyspace::contains_key`] and iterators too. What is
    /// merged has no time to live: when the value below expires ([`Keyspace::put_with_ttl`]), it is merged into
    /// nothing.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the keyspace has no operator ([`KeyspaceOptions::with_merge_operator`]), this open
    /// does not know it ([`crate::Options::register_merge_operator`]), it refuses the operand (`add` takes 8 bytes), or
    /// all puts of the keyspace get a time to live ([`KeyspaceOptions::time_to_live`]); otherwise as [`Keyspace::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// let visits = db.keyspace_with("visits", &ringdb::KeyspaceOptions::default().with_merge_operator("add"))?;
    /// visits.merge("index.html", 1u64.to_le_bytes())?;
    /// visits.merge("index.html", 41u64.to_le_bytes())?;
    /// let count = visits.get("index.html")?.expect("a count");
    /// assert_eq!(u64::from_le_bytes(count.as_slice().try_into().expect("8 bytes")), 42);
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.core().merge_one(&self.state, key.as_ref(), operand.as_ref())
    }

    /// Deletes the keys of a range: at the same cost however many there are, and atomically.
    ///
    /// The range is written as one tombstone, which every read respects at once. Compactions then remove what it covers
    /// and give the space back, without anybody writing more; tables that lie in the range whole are dropped unread.
    /// Snapshots go on seeing what they saw. An empty range deletes nothing.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Invalid`] if an end of the range is longer than a key can be; otherwise as [`Keyspace::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// let orders = db.keyspace("orders")?;
    /// orders.put("2026/1", "tea")?;
    /// orders.put("2027/1", "cake")?;
    /// orders.delete_range(.."2027")?;
    /// assert_eq!(orders.iter().count(), 1);
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn delete_range(&self, range: impl KeyRange) -> Result<()> {
        self.core().delete_range(&self.state, range.bounds())
    }

    /// Deletes the keys that begin with `prefix`; see [`Keyspace::delete_range`].
    ///
    /// # Errors
    ///
    /// As [`Keyspace::delete_range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// let orders = db.keyspace("orders")?;
    /// orders.put("2026/1", "tea")?;
    /// orders.delete_prefix("2026/")?;
    /// assert_eq!(orders.iter().count(), 0);
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_range(crate::bounds::of_prefix(prefix.as_ref()))
    }

    /// Deletes all keys of the keyspace, which stays; see [`Keyspace::delete_range`], and
    /// [`crate::Db::drop_keyspace`] to be rid of it altogether.
    ///
    /// # Errors
    ///
    /// As [`Keyspace::put`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// let orders = db.keyspace("orders")?;
    /// orders.put("2026/1", "tea")?;
    /// orders.clear()?;
    /// assert_eq!(orders.iter().count(), 0);
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn clear(&self) -> Result<()> {
        self.delete_range(..)
    }

    /// Begins to ingest sorted pairs: they become tables of the deepest level that takes them, past log, memtable and
    /// compactions.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`], [`crate::Error::KeyspaceDropped`], or why the store does not take writes.
    pub fn ingester(&self) -> Result<Ingester<'_>> {
        Ingester::new(self.core(), &self.state)
    }

    /// Ingests pairs in ascending order of their keys: all of them at once, or none. Returns how many there were. See
    /// [`Ingester`] for pairs that cannot be had from an iterator.
    ///
    /// # Errors
    /// As [`Ingester::add`] and [`Ingester::finish`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// let squares = db.keyspace("squares")?;
    /// squares.ingest((0..1000_u32).map(|i| (i.to_be_bytes(), (i * i).to_string())))?;
    /// assert_eq!(squares.get(12_u32.to_be_bytes())?.as_deref(), Some(&b"144"[..]));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        let mut ingester = self.ingester()?;
        for (key, value) in pairs {
            ingester.add(key, value)?;
        }
        ingester.finish()
    }

    /// Compacts the tables that hold a range of keys, down to the last level; flushes first.
    ///
    /// # Errors
    /// As [`crate::Db::flush`]; [`crate::Error::KeyspaceDropped`].
    pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
        self.core().compact_range(&self.state, range.bounds())
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`crate::Db::get`]; [`crate::Error::KeyspaceDropped`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_with(key, &ReadOptions::default())
    }

    /// The value of a key, with options.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; [`crate::Error::TimedOut`] past the deadline.
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
        self.get_at(key.as_ref(), None, options)
    }

    /// The value of a key as of a snapshot, or now.
    #[inline]
    pub(super) fn get_at(
        &self,
        key: &[u8],
        snapshot: Option<&Arc<Registered>>,
        options: &ReadOptions,
    ) -> Result<Option<Value>> {
        if options.deadline.is_some() {
            return block_on(GetFuture::new(self.ask(snapshot, options), key));
        }
        let snapshot = snapshot.map(|s| s.seq);
        self.views(snapshot)?.get(&self.state.prefix, key, snapshot, options)
    }

    /// The values of many keys, in their order, all as of one moment; every block needed is read in flight
    /// together. If one of the keys cannot be read because of damage the call fails: ask for them one by one
    /// then.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.multi_get_with(keys, &ReadOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Keyspace::get_with`].
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        self.multi_get_at(keys, None, options)
    }

    /// The values of many keys as of a snapshot, or now.
    pub(super) fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        snapshot: Option<&Arc<Registered>>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        if options.deadline.is_some() {
            return block_on(MultiGetFuture::new(self.ask(snapshot, options), keys));
        }
        let snapshot = snapshot.map(|s| s.seq);
        self.views(snapshot)?.multi_get(&OfOne(&self.state.prefix, keys), snapshot, options)
    }

    /// The value of a key, for a task that must not block; see [`crate::Db::get_async`].
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> GetFuture {
        self.get_async_with(key, &ReadOptions::default())
    }

    /// The same with options.
    pub fn get_async_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> GetFuture {
        GetFuture::new(self.ask(None, options), key.as_ref())
    }

    /// The values of many keys, in their order, all as of one moment (that of the first poll), for a task that must not
    /// block; see [`crate::Db::get_async`].
    pub fn multi_get_async<K: AsRef<[u8]>>(&self, keys: &[K]) -> MultiGetFuture {
        self.multi_get_async_with(keys, &ReadOptions::default())
    }

    /// The same with options.
    pub fn multi_get_async_with<K: AsRef<[u8]>>(&self, keys: &[K], options: &ReadOptions) -> MultiGetFuture {
        MultiGetFuture::new(self.ask(None, options), keys)
    }

    /// A completion interface for at most `depth` reads at a time; see [`Reads`].
    ///
    /// # Errors
    /// [`crate::Error::Closed`].
    pub fn reads(&self, depth: usize) -> Result<Reads> {
        self.reads_with(depth, &ReadOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// [`crate::Error::Closed`]; [`crate::Error::Invalid`] for a deadline.
    pub fn reads_with(&self, depth: usize, options: &ReadOptions) -> Result<Reads> {
        Reads::new(self.ask(None, options), depth)
    }

    /// The values of many keys, in the order in which they come, with `window` reads under way as long as there are
    /// keys. Each is read as of when its read begins; see also [`crate::Snapshot::multi_get_stream`].
    ///
    /// # Errors
    /// [`crate::Error::Closed`]. What a key's read fails with comes with the key.
    pub fn multi_get_stream<I>(&self, keys: I, window: usize) -> Result<MultiGetStream<I::IntoIter>>
    where
        I: IntoIterator<Item: AsRef<[u8]>>,
    {
        Ok(MultiGetStream::new(keys.into_iter(), self.reads(window)?))
    }

    /// A question for a future.
    pub(super) fn ask(&self, snapshot: Option<&Arc<Registered>>, options: &ReadOptions) -> Ask {
        let (core, keyspace) = (Arc::clone(self.core()), Arc::clone(&self.state));
        let snapshot = snapshot.cloned();
        Ask { core, keyspace, snapshot, options: *options }
    }

    /// All pairs, as of now. Damage is an error where the iterator gets to it.
    pub fn iter(&self) -> Iter {
        self.range(..)
    }

    /// The pairs of a range of keys, as of now.
    pub fn range(&self, range: impl KeyRange) -> Iter {
        self.range_with(range, &ReadOptions::default())
    }

    /// The pairs whose key begins with `prefix`, as of now.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.prefix_with(prefix, &ReadOptions::default())
    }

    /// The same with options.
    pub fn prefix_with(&self, prefix: impl AsRef<[u8]>, options: &ReadOptions) -> Iter {
        self.range_with(crate::bounds::of_prefix(prefix.as_ref()), options)
    }

    /// The pairs of a range of keys, as of now, with options.
    pub fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter {
        self.iter_at(range, None, options)
    }

    /// The pairs of a range of keys, as of now, for a task that must not block; see [`crate::Db::range_async`].
    pub fn range_async(&self, range: impl KeyRange) -> RangeStream {
        self.range_async_with(range, &ReadOptions::default())
    }

    /// The same with options.
    pub fn range_async_with(&self, range: impl KeyRange, options: &ReadOptions) -> RangeStream {
        self.stream_at(range, None, options)
    }

    /// The pairs whose key begins with `prefix`, as of now, for a task that must not block; see
    /// [`crate::Db::range_async`].
    pub fn prefix_async(&self, prefix: impl AsRef<[u8]>) -> RangeStream {
        self.range_async(crate::bounds::of_prefix(prefix.as_ref()))
    }

    /// The pairs of a range of keys as of a snapshot, or now, for a task that must not block.
    pub(super) fn stream_at(
        &self,
        range: impl KeyRange,
        snapshot: Option<Seq>,
        options: &ReadOptions,
    ) -> RangeStream {
        let iter = match self.views(snapshot) {
            Ok(views) => views.iter(&self.state.prefix, range.bounds(), snapshot, options),
            Err(e) => Iter::failed(e),
        };
        RangeStream::new(self.core(), iter, options)
    }

    /// The pairs of a range of keys as of a snapshot, or now.
    pub(super) fn iter_at(&self, range: impl KeyRange, snapshot: Option<Seq>, options: &ReadOptions) -> Iter {
        match options.without_deadline().and_then(|()| self.views(snapshot)) {
            Ok(views) => views.iter(&self.state.prefix, range.bounds(), snapshot, options),
            Err(e) => Iter::failed(e),
        }
    }

    /// What is read, if the store is open and has the keyspace.
    #[inline]
    pub(super) fn views(&self, snapshot: Option<Seq>) -> Result<&Views> {
        self.core().views_of(&self.state, snapshot)
    }

    #[inline]
    pub(super) fn core(&self) -> &Arc<Core> {
        self.handle.core()
    }

    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    #[inline]
    pub(super) fn state(&self) -> &Arc<KeyspaceState> {
        &self.state
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.state.name).finish_non_exhaustive()
    }
}

impl Core {
    /// What a keyspace is read from, if the store is open and has it.
    #[inline]
    pub fn views_of(&self, keyspace: &KeyspaceState, snapshot: Option<Seq>) -> Result<&Views> {
        self.check_open()?;
        if snapshot.is_some() {
            keyspace.check_store(self.keyspaces.store())?;
        }
        keyspace.check()?;
        Ok(&self.views)
    }

    /// The keyspace of that name, made if missing.
    pub fn keyspace(&self, name: &str) -> Result<Arc<KeyspaceState>> {
        self.keyspace_with(name, &KeyspaceOptions::default())
    }

    /// The keyspace of that name, made or altered to have these settings.
    pub fn keyspace_with(&self, name: &str, options: &KeyspaceOptions) -> Result<Arc<KeyspaceState>> {
        options.validate()?;
        if let Some(found) = self.existing_keyspace(name)? {
            self.alter(&found, options)?;
            return Ok(found);
        }
        let versions = &self.write_side()?.versions;
        let mut manifest = versions.lock();
        // Somebody may have made it meanwhile; from here on nobody can.
        if let Some(found) = self.existing_keyspace(name)? {
            drop(manifest);
            self.alter(&found, options)?;
            return Ok(found);
        }
        self.health.check_writable()?;
        self.keyspaces.create(name, options, |edit| versions.append_sealed(&mut manifest, edit))
    }

    /// Gives a keyspace these settings, if it has others.
    pub fn alter(&self, keyspace: &KeyspaceState, options: &KeyspaceOptions) -> Result<()> {
        options.validate()?;
        self.check_open()?;
        keyspace.check()?;
        if self.keyspaces.has(keyspace.id, options) {
            return Ok(());
        }
        let versions = &self.write_side()?.versions;
        let mut manifest = versions.lock();
        keyspace.check()?;
        self.health.check_writable()?;
        self.keyspaces.alter(keyspace.id, options, |edit| versions.append_sealed(&mut manifest, edit))
    }

    /// The keyspace of that name, if there is one.
    pub fn existing_keyspace(&self, name: &str) -> Result<Option<Arc<KeyspaceState>>> {
        self.check_open()?;
        self.keyspaces.get(name)
    }

    /// Drops the keyspace of that name; false if there is none.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.check_open()?;
        self.keyspaces.check_droppable(name)?;
        let w = self.write_side()?;
        let mut manifest = w.versions.lock();
        self.health.check_writable()?;
        let dropped =
            self.keyspaces.drop_named(name, |edit| w.versions.append_sealed(&mut manifest, edit))?;
        drop(manifest);
        if dropped {
            // There is something to reclaim.
            w.scheduler.wake();
        }
        Ok(dropped)
    }
}
