//! [`Snapshot`]: the handle through which the store is read as it was at one moment.

use std::fmt;
use std::sync::Arc;

use super::get_async::{GetFuture, MultiGetFuture};
use super::iter::{Iter, RangeStream};
use super::keyspace::Keyspace;
use super::reads::{MultiGetStream, Reads};
use super::registered::Registered;
use crate::{KeyRange, ReadOptions, Result, Value};

/// The store as it was at one moment, in every keyspace. Keeps the store open, and the versions that it sees
/// from being compacted away, until dropped.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
/// let stock = db.keyspace("stock")?;
/// stock.put("apple", "12")?;
/// let before = db.snapshot();
/// stock.put("apple", "11")?;
/// assert_eq!(before.keyspace(&stock).get("apple")?.as_deref(), Some(&b"12"[..]));
/// # Ok::<(), ringdb::Error>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    keyspace: Keyspace,
    seq: Arc<Registered>,
}

impl Snapshot {
    /// Of a keyspace as it is now.
    pub(super) fn now(keyspace: &Keyspace) -> Snapshot {
        Snapshot { keyspace: keyspace.clone(), seq: Arc::new(Registered::now(keyspace.core())) }
    }

    /// What it is a snapshot of, and as of when.
    pub(super) fn parts(&self) -> (&Keyspace, &Arc<Registered>) {
        (&self.keyspace, &self.seq)
    }

    /// The same view of a keyspace (of the same store; the calls of a foreign keyspace's snapshot fail).
    pub fn keyspace(&self, keyspace: &Keyspace) -> Snapshot {
        let keyspace = Keyspace::new(self.keyspace.handle(), keyspace.state().clone());
        Snapshot { keyspace, seq: self.seq.clone() }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As [`crate::Db::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_with(key, &ReadOptions::default())
    }

    /// The value of a key, with options.
    ///
    /// # Errors
    /// As [`crate::Db::get_with`].
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
        self.keyspace.get_at(key.as_ref(), Some(&self.seq), options)
    }

    /// The values of many keys, in their order; every block needed is read in flight together. If one of the keys
    /// cannot be read because of damage the call fails: ask for them one by one then.
    ///
    /// # Errors
    /// As [`crate::Db::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.multi_get_with(keys, &ReadOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`crate::Db::get_with`].
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        self.keyspace.multi_get_at(keys, Some(&self.seq), options)
    }

    /// The value of a key, for a task that must not block; see [`crate::Db::get_async`]. The future keeps what the
    /// snapshot sees from being compacted away, as the snapshot does.
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> GetFuture {
        self.get_async_with(key, &ReadOptions::default())
    }

    /// The same with options.
    pub fn get_async_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> GetFuture {
        GetFuture::new(self.keyspace.ask(Some(&self.seq), options), key.as_ref())
    }

    /// The values of many keys, in their order, for a task that must not block; see [`crate::Db::get_async`].
    pub fn multi_get_async<K: AsRef<[u8]>>(&self, keys: &[K]) -> MultiGetFuture {
        self.multi_get_async_with(keys, &ReadOptions::default())
    }

    /// The same with options.
    pub fn multi_get_async_with<K: AsRef<[u8]>>(&self, keys: &[K], options: &ReadOptions) -> MultiGetFuture {
        MultiGetFuture::new(self.keyspace.ask(Some(&self.seq), options), keys)
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
        Reads::new(self.keyspace.ask(Some(&self.seq), options), depth)
    }

    /// The values of many keys, in the order in which they come, with `window` reads under way as long as there are
    /// keys.
    ///
    /// # Errors
    /// [`crate::Error::Closed`]. What a key's read fails with comes with the key.
    pub fn multi_get_stream<I>(&self, keys: I, window: usize) -> Result<MultiGetStream<I::IntoIter>>
    where
        I: IntoIterator<Item: AsRef<[u8]>>,
    {
        Ok(MultiGetStream::new(keys.into_iter(), self.reads(window)?))
    }

    /// All pairs. Damage is an error where the iterator gets to it.
    pub fn iter(&self) -> Iter {
        self.range(..)
    }

    /// The pairs of a range of keys.
    pub fn range(&self, range: impl KeyRange) -> Iter {
        self.range_with(range, &ReadOptions::default())
    }

    /// The pairs whose key begins with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.prefix_with(prefix, &ReadOptions::default())
    }

    /// The same with options.
    pub fn prefix_with(&self, prefix: impl AsRef<[u8]>, options: &ReadOptions) -> Iter {
        self.range_with(crate::bounds::of_prefix(prefix.as_ref()), options)
    }

    /// The pairs of a range of keys, with options.
    pub fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter {
        self.keyspace.iter_at(range, Some(self.seq.seq), options)
    }

    /// The pairs of a range of keys, for a task that must not block; see [`crate::Db::range_async`].
    pub fn range_async(&self, range: impl KeyRange) -> RangeStream {
        self.range_async_with(range, &ReadOptions::default())
    }

    /// The same with options.
    pub fn range_async_with(&self, range: impl KeyRange, options: &ReadOptions) -> RangeStream {
        self.keyspace.stream_at(range, Some(self.seq.seq), options)
    }

    /// The pairs whose key begins with `prefix`, for a task that must not block; see [`crate::Db::range_async`].
    pub fn prefix_async(&self, prefix: impl AsRef<[u8]>) -> RangeStream {
        self.range_async(crate::bounds::of_prefix(prefix.as_ref()))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("sequence", &self.seq.seq).finish_non_exhaustive()
    }
}
