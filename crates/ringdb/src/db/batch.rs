//! [`WriteBatch`]: writes that happen together or not at all.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::delete_range;
use super::keyspace::Keyspace;
use super::keyspaces::{KeyspaceState, Keyspaces};
use super::ttl;
use crate::bounds;
use crate::expiry;
use crate::key::{self, Kind, MAX_BATCH_BYTES, MAX_KEY_BYTES, Prefix, check_limits};
use crate::log::payload::{self, Op};
use crate::{Error, KeyRange, Result};

/// Writes that happen together or not at all, in any keyspaces of one store, in the order they were added.
///
/// A key or value that is too long (64 KiB and 1 GiB) makes the commit fail with [`Error::Invalid`]; nothing of
/// the batch is written then.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
/// let stock = db.keyspace("stock")?;
/// let mut batch = ringdb::WriteBatch::new();
/// batch.put("pear", "green");
/// batch.put_in(&stock, "pear", "12");
/// batch.delete("apple");
/// db.write(batch, &ringdb::WriteOptions::default())?;
/// assert!(db.contains_key("pear")? && stock.contains_key("pear")?);
/// # Ok::<(), ringdb::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    /// The payload of the log that it becomes.
    pub(super) ops: Vec<u8>,
    pub(super) count: u32,
    /// The keyspaces written to, each once, the default one left out.
    keyspaces: Vec<Arc<KeyspaceState>>,
    /// The first thing wrong with the batch, told at commit.
    invalid: Option<String>,
    /// There are operands, for which keyspaces need an operator.
    merges: bool,
    /// There are puts that expire, so long after the commit.
    pub(super) expires: bool,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets a key of the default keyspace.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.add(&Prefix::new(0), Kind::Put, key.as_ref(), value.as_ref());
    }

    /// Sets a key of the default keyspace for some time; see [`crate::Db::put_with_ttl`]. The time begins when the
    /// batch is committed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// use std::time::Duration;
    ///
    /// let mut batch = ringdb::WriteBatch::new();
    /// batch.put("user:7", "alice");
    /// batch.put_with_ttl("session:7f3a", "user:7", Duration::from_secs(3600));
    /// db.write(batch, &ringdb::WriteOptions::default())?;
    /// assert_eq!(db.get("session:7f3a")?.as_deref(), Some(&b"user:7"[..]));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn put_with_ttl(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) {
        self.add_expiring(&Prefix::new(0), key.as_ref(), value.as_ref(), ttl);
    }

    /// Sets a key of a keyspace for some time; see [`WriteBatch::put_with_ttl`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// use std::time::Duration;
    ///
    /// let sessions = db.keyspace("sessions")?;
    /// let mut batch = ringdb::WriteBatch::new();
    /// batch.put_with_ttl_in(&sessions, "7f3a", "alice", Duration::from_secs(3600));
    /// db.write(batch, &ringdb::WriteOptions::default())?;
    /// assert!(sessions.contains_key("7f3a")?);
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn put_with_ttl_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) {
        self.touch(keyspace);
        self.add_expiring(&keyspace.state().prefix, key.as_ref(), value.as_ref(), ttl);
    }

    /// Deletes a key of the default keyspace.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        self.add(&Prefix::new(0), Kind::Delete, key.as_ref(), b"");
    }

    /// Sets a key of a keyspace.
    pub fn put_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.touch(keyspace);
        self.add(&keyspace.state().prefix, Kind::Put, key.as_ref(), value.as_ref());
    }

    /// Deletes a key of a keyspace.
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.touch(keyspace);
        self.add(&keyspace.state().prefix, Kind::Delete, key.as_ref(), b"");
    }

    /// Merges an operand into a key of the default keyspace; see [`crate::Keyspace::merge`]. An operand that its
    /// operator refuses, or a keyspace without one, makes the commit fail with [`Error::Invalid`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// db.keyspace("default")?.alter(&ringdb::KeyspaceOptions::default().with_merge_operator("max"))?;
    /// let mut batch = ringdb::WriteBatch::new();
    /// batch.merge("seen", "2026-11-21");
    /// batch.merge("seen", "2026-11-20");
    /// db.write(batch, &ringdb::WriteOptions::default())?;
    /// assert_eq!(db.get("seen")?.as_deref(), Some(&b"2026-11-21"[..]));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        self.merges = true;
        self.add(&Prefix::new(0), Kind::Merge, key.as_ref(), operand.as_ref());
    }

    /// Merges an operand into a key of a keyspace; see [`WriteBatch::merge`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// let counts = db.keyspace_with("counts", &ringdb::KeyspaceOptions::default().with_merge_operator("add"))?;
    /// let mut batch = ringdb::WriteBatch::new();
    /// for word in ["to", "be", "or", "not", "to", "be"] {
    ///     batch.merge_in(&counts, word, 1u64.to_le_bytes());
    /// }
    /// db.write(batch, &ringdb::WriteOptions::default())?;
    /// assert_eq!(counts.get("be")?.as_deref(), Some(&2u64.to_le_bytes()[..]));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn merge_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        self.touch(keyspace);
        self.merges = true;
        self.add(&keyspace.state().prefix, Kind::Merge, key.as_ref(), operand.as_ref());
    }

    /// Deletes the keys of a range of the default keyspace: those that are there and those that the batch has put
    /// before. What it puts afterwards stays. An empty range adds nothing. See [`crate::Db::delete_range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// # db.put("config:old", "1")?;
    /// // Replaces all of it at once.
    /// let mut batch = ringdb::WriteBatch::new();
    /// batch.delete_range("config:".."config;");
    /// batch.put("config:new", "2");
    /// db.write(batch, &ringdb::WriteOptions::default())?;
    /// assert_eq!(db.iter().count(), 1);
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn delete_range(&mut self, range: impl KeyRange) {
        self.add_range(0, range.bounds());
    }

    /// Deletes the keys of the default keyspace that begin with `prefix`; see [`WriteBatch::delete_range`].
    ///
    /// ```
    /// let mut batch = ringdb::WriteBatch::new();
    /// batch.delete_prefix("user:7:");
    /// assert_eq!(batch.len(), 1);
    /// ```
    pub fn delete_prefix(&mut self, prefix: impl AsRef<[u8]>) {
        self.delete_range(bounds::of_prefix(prefix.as_ref()));
    }

    /// Deletes the keys of a range of a keyspace, all of them with `..`; see [`WriteBatch::delete_range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// let orders = db.keyspace("orders")?;
    /// orders.put("2026/1", "tea")?;
    /// let mut batch = ringdb::WriteBatch::new();
    /// batch.delete_range_in(&orders, ..);
    /// db.write(batch, &ringdb::WriteOptions::default())?;
    /// assert_eq!(orders.iter().count(), 0);
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn delete_range_in(&mut self, keyspace: &Keyspace, range: impl KeyRange) {
        self.touch(keyspace);
        self.add_range(keyspace.state().id, range.bounds());
    }

    /// Deletes the keys of a keyspace that begin with `prefix`; see [`WriteBatch::delete_range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// let orders = db.keyspace("orders")?;
    /// let mut batch = ringdb::WriteBatch::new();
    /// batch.delete_prefix_in(&orders, "2026/");
    /// db.write(batch, &ringdb::WriteOptions::default())?;
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn delete_prefix_in(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) {
        self.delete_range_in(keyspace, bounds::of_prefix(prefix.as_ref()));
    }

    /// Number of writes.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forgets the writes, keeps the memory. (To delete all keys of a keyspace, use [`WriteBatch::delete_range_in`].)
    pub fn clear(&mut self) {
        self.ops.clear();
        self.count = 0;
        self.keyspaces.clear();
        self.invalid = None;
        self.merges = false;
        self.expires = false;
    }

    /// Bytes of keys and values, with their framing.
    pub fn size_bytes(&self) -> usize {
        self.ops.len()
    }

    fn touch(&mut self, keyspace: &Keyspace) {
        let state = keyspace.state();
        if !self.keyspaces.iter().any(|k| Arc::ptr_eq(k, state)) {
            self.keyspaces.push(state.clone());
        }
    }

    fn add(&mut self, prefix: &Prefix, kind: Kind, key: &[u8], value: &[u8]) {
        match check_limits(key, value).and_then(|()| self.check_room(key.len() + value.len())) {
            Ok(()) => {
                payload::encode(&mut self.ops, prefix, kind, key, value);
                self.count += 1;
            }
            Err(e) => self.refuse(&e),
        }
    }

    fn add_expiring(&mut self, prefix: &Prefix, key: &[u8], value: &[u8], life: Duration) {
        match ttl::check(key, value, life) {
            Ok(()) => {
                let stored = expiry::stamp(expiry::after(0, life), value);
                self.expires = true;
                self.add(prefix, Kind::Expiring, key, &stored);
            }
            Err(e) => self.refuse(&e),
        }
    }

    fn add_range(&mut self, id: u32, range: (Bound<&[u8]>, Bound<&[u8]>)) {
        let room = self.check_room(2 * MAX_KEY_BYTES);
        match room.and_then(|()| delete_range::encode(&mut self.ops, id, range)) {
            Ok(added) => self.count += u32::from(added),
            Err(e) => self.refuse(&e),
        }
    }

    fn check_room(&self, bytes: usize) -> Result<()> {
        let room = MAX_BATCH_BYTES - self.ops.len().min(MAX_BATCH_BYTES);
        if bytes + 32 > room || self.count == u32::MAX {
            return Err(Error::Invalid(format!("a batch holds at most {MAX_BATCH_BYTES} bytes")));
        }
        Ok(())
    }

    fn refuse(&mut self, e: &Error) {
        self.invalid.get_or_insert_with(|| e.to_string());
    }

    /// Whether the batch can be committed to the store with these keyspaces.
    pub(super) fn check(&self, keyspaces: &Keyspaces) -> Result<()> {
        self.check_store(keyspaces.store())?;
        if self.merges { self.check_operands(keyspaces) } else { Ok(()) }
    }

    #[cold]
    fn check_operands(&self, keyspaces: &Keyspaces) -> Result<()> {
        let (operators, lives) = (keyspaces.operators(), keyspaces.lives());
        let operands = payload::decode(&self.ops).filter_map(|op| match op {
            Ok(Op::Version { kind: Kind::Merge, key, value }) => Some((key, value)),
            _ => None,
        });
        for (key, operand) in operands {
            if let (Some(lives), Some((id, _))) = (&lives, key::split(key)) {
                ttl::check_merge(lives.of(id))?;
            }
            operators.check(key, operand)?;
        }
        Ok(())
    }

    fn check_store(&self, store: u64) -> Result<()> {
        if let Some(why) = &self.invalid {
            return Err(Error::Invalid(why.clone()));
        }
        for k in &self.keyspaces {
            k.check_store(store)?;
            k.check()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::payload::decode;

    #[test]
    fn operations_come_back_in_order() {
        let mut b = WriteBatch::new();
        b.put("", "");
        b.put("k", vec![7; 300]);
        b.delete("k");
        assert_eq!(b.len(), 3);
        let ops: Vec<Op> = decode(&b.ops).collect::<std::result::Result<_, _>>().unwrap();
        assert_eq!(ops[0], Op::Version { kind: Kind::Put, key: b"\0", value: b"" });
        assert_eq!(ops[1], Op::Version { kind: Kind::Put, key: b"\0k", value: &[7; 300] });
        assert_eq!(ops[2], Op::Version { kind: Kind::Delete, key: b"\0k", value: b"" });
        for cut in 1..b.ops.len() {
            let n = decode(&b.ops[..cut]).filter(|o| o.is_ok()).count();
            assert!(n < 3, "cut at {cut}");
        }
        b.clear();
        assert!(b.is_empty() && b.size_bytes() == 0);
    }

    #[test]
    fn too_long_a_key_fails_the_commit() {
        let mut b = WriteBatch::new();
        b.put(vec![0; MAX_KEY_BYTES], "fits");
        assert!(b.check_store(1).is_ok());
        b.put(vec![0; MAX_KEY_BYTES + 1], "does not");
        assert!(b.check_store(1).unwrap_err().to_string().contains("65536"));
        b.clear();
        assert!(b.check_store(1).is_ok());
    }
}
