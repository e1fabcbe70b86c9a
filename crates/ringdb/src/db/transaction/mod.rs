//! [`Transaction`]: reads and writes that happen at one moment, or not at all.
//!
//! It reads a snapshot with its own writes over it (`overlay`), and remembers what it has read (`Tracked`). Its commit
//! is a batch with a claim: nothing of what it has read was written since its snapshot. The commit queue judges that
//! under the lock at which the batch takes its place in the order of all writes, so that the place in that order is
//! where the transaction happens. What the queue has forgotten is looked for in memtables and tables, without the lock
//! (`validate`).

mod locking;
mod own;
mod range;
mod take;
mod update;
mod validate;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Db;
use super::keyspace::Keyspace;
use super::keyspaces::KeyspaceState;
use super::locks::HeldKeys;
use super::registered::Registered;
use super::write::WriteSide;
use crate::commit::{ReadSet, Write};
use crate::key::{MAX_BATCH_BYTES, Prefix, check_limits};
use crate::sync::{Mutex, lock};
use crate::{Error, ReadOptions, Result, Value, WriteOptions};

use own::Own;
pub use range::TransactionRange;
pub use take::ExtractIf;

/// Reads and writes in any keyspaces of a store that happen at one moment, or not at all: serializable.
///
/// It sees the store as it was when it began, and its own writes. [`Transaction::commit`] succeeds only if nothing that
/// it has read (keys that were asked for, absent ones too, and the parts of ranges that iterators went through) has
/// been written since by anybody, in whatever way; else it fails with [`Error::Conflict`], of kind
/// [`crate::ErrorKind::Retry`], nothing is written, and running it again reads what is there then. Writes of keys that
/// were not read never conflict, merges ([`Transaction::merge`]) neither. So committed transactions, and all other
/// writes and snapshots, are as if each had happened alone, in the order of their commits; a transaction that has begun
/// after a commit has returned sees it. One that writes nothing cannot fail: it is a snapshot.
///
/// Nobody is blocked: until its commit a transaction holds no lock, but those that it takes by [`Transaction::lock`]
/// for keys that many write. Dropped without a commit, it has done nothing. It keeps the store open, and the versions
/// that it sees from being compacted away; what it has read and written is in memory until it ends.
///
/// Calls take `&self`: pairs may be written while a range is gone through, which sees what lies ahead of it.
///
/// ```
/// use ringdb::{Db, ErrorKind, Options};
///
/// # let dir = std::env::temp_dir().join(format!("ringdb-transaction-{}", std::process::id()));
/// let db = Db::open(&dir, Options::default())?;
/// db.put("alice", 70u64.to_be_bytes())?;
/// db.put("bob", 20u64.to_be_bytes())?;
/// let amount = |value: Option<ringdb::Value>| {
///     value.map_or(0, |v| u64::from_be_bytes(v[..].try_into().expect("8 bytes")))
/// };
/// loop {
///     let tx = db.transaction();
///     let (alice, bob) = (amount(tx.get("alice")?), amount(tx.get("bob")?));
///     tx.put("alice", (alice - 50).to_be_bytes())?;
///     tx.put("bob", (bob + 50).to_be_bytes())?;
///     match tx.commit() {
///         Err(e) if e.kind() == ErrorKind::Retry => continue,
///         done => break done?,
///     }
/// }
/// assert_eq!((amount(db.get("alice")?), amount(db.get("bob")?)), (20, 70));
/// # drop(db);
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok::<(), ringdb::Error>(())
/// ```
///
/// # Durability
/// A committed transaction is one batch: whole or not there after a crash, as durable as [`Transaction::commit_with`]
/// asks for, and never there without what was logged before it, which includes all logged writes that it has read. Only
/// what was written with [`crate::Durability::None`] may be lost alone, also if a transaction has read it: keep that
/// level away from keys that transactions read.
pub struct Transaction {
    keyspace: Keyspace,
    /// The moment that it sees.
    moment: Arc<Registered>,
    tracked: Mutex<Tracked>,
    /// Has what is written be recorded. `None` if the store cannot be written.
    opened: Option<Opened>,
    locked: Option<HeldKeys>,
    lock_wait: Duration,
}

/// What it has done so far. Keys are internal keys.
#[derive(Default)]
struct Tracked {
    writes: BTreeMap<Vec<u8>, Own>,
    /// Bytes of the batch that they become, about.
    bytes: usize,
    keys: BTreeSet<Vec<u8>>,
    /// Ranges that were gone through: from the first on and before the second.
    ranges: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The keyspaces written to, each once.
    keyspaces: Vec<Arc<KeyspaceState>>,
    /// How far pops have emptied keyspaces, by their prefixes.
    emptied: BTreeMap<Vec<u8>, take::Emptied>,
}

/// An open transaction, as the commit queue knows it.
struct Opened(Arc<WriteSide>, Arc<super::core::Core>);

impl Opened {
    fn new(core: &Arc<super::core::Core>) -> Result<Opened> {
        let store = Arc::clone(core.write_side()?);
        store.commits.open_transaction();
        Ok(Opened(store, Arc::clone(core)))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // In a child of the process the queue's lock may be held by a thread that is not there.
        if !self.1.health.is_inherited() {
            self.0.commits.close_transaction();
        }
    }
}

impl Db {
    /// Begins a transaction: it sees the store as it is now. See [`Transaction`].
    pub fn transaction(&self) -> Transaction {
        let core = self.core();
        // Before the snapshot: what is newer than that is recorded.
        let opened = Opened::new(core).ok();
        Transaction {
            keyspace: self.default.clone(),
            moment: Arc::new(Registered::now(core)),
            tracked: Mutex::new(Tracked::default()),
            opened,
            locked: None,
            lock_wait: locking::LOCK_WAIT,
        }
    }
}

impl Tracked {
    fn write(&mut self, key: Vec<u8>, value: Option<&[u8]>) -> Result<()> {
        self.take_room(key.len() + value.map_or(0, <[u8]>::len))?;
        self.writes.insert(key, Own::set(value));
        Ok(())
    }

    /// Counts the bytes of a key and what is written of it.
    fn take_room(&mut self, bytes: usize) -> Result<()> {
        let bytes = bytes + 32;
        if bytes > MAX_BATCH_BYTES - self.bytes.min(MAX_BATCH_BYTES) {
            return Err(too_much());
        }
        self.bytes += bytes;
        Ok(())
    }

    fn touch(&mut self, keyspace: &Arc<KeyspaceState>) {
        if !self.keyspaces.iter().any(|k| Arc::ptr_eq(k, keyspace)) {
            self.keyspaces.push(Arc::clone(keyspace));
        }
    }
}

fn too_much() -> Error {
    Error::Invalid(format!("a transaction writes at most {MAX_BATCH_BYTES} bytes"))
}

fn internal(prefix: &Prefix, key: &[u8]) -> Vec<u8> {
    [prefix.as_slice(), key].concat()
}

impl Transaction {
    /// The value of a key of the default keyspace, as this transaction sees it.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_in(&self.keyspace, key)
    }

    /// The value of a key of a keyspace, as this transaction sees it.
    ///
    /// # Errors
    /// As [`Db::get`]; [`Error::Invalid`] for a keyspace of another store.
    pub fn get_in(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        let stored = || keyspace.get_at(key, Some(&self.moment), &ReadOptions::default());
        match self.look(keyspace, key, Own::needs_store)? {
            None => stored(),
            Some(own) => {
                let stored = if own.needs_store() { stored()? } else { None };
                own.value(&internal(&keyspace.state().prefix, key), stored)
            }
        }
    }

    /// Whether there is a value of a key of the default keyspace; it is not copied.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.contains_key_in(&self.keyspace, key)
    }

    /// Whether there is a value of a key of a keyspace; it is not copied.
    ///
    /// # Errors
    /// As [`Transaction::get_in`].
    pub fn contains_key_in(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        if let Some(own) = self.look(keyspace, key, |_| false)? {
            // A key with an operand is there.
            return Ok(own.is_there());
        }
        let seq = Some(self.moment.seq);
        keyspace.views(seq)?.contains(&keyspace.state().prefix, key, seq)
    }

    /// The values of keys of the default keyspace, in their order; every block needed is read in flight together.
    ///
    /// # Errors
    /// As [`Db::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.multi_get_in(&self.keyspace, keys)
    }

    /// The values of keys of a keyspace, in their order; every block needed is read in flight together.
    ///
    /// # Errors
    /// As [`Db::multi_get`]; [`Error::Invalid`] for a keyspace of another store.
    pub fn multi_get_in<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<Value>>> {
        let mut out = Vec::with_capacity(keys.len());
        let prefix = &keyspace.state().prefix;
        let mut missing: Vec<(usize, &[u8], Option<Own>)> = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            let key = key.as_ref();
            match self.look(keyspace, key, Own::needs_store)? {
                Some(own) if !own.needs_store() => out.push(own.value(&internal(prefix, key), None)?),
                own => {
                    missing.push((i, key, own));
                    out.push(None);
                }
            }
        }
        let asked: Vec<&[u8]> = missing.iter().map(|(_, key, _)| *key).collect();
        let found = keyspace.multi_get_at(&asked, Some(&self.moment), &ReadOptions::default())?;
        for ((i, key, own), stored) in missing.into_iter().zip(found) {
            out[i] = match own {
                None => stored,
                Some(own) => own.value(&internal(prefix, key), stored)?,
            };
        }
        Ok(out)
    }

    /// What the transaction itself has written of a key. If nothing, or `reads` says so, the key counts as read.
    fn look(&self, keyspace: &Keyspace, key: &[u8], reads: impl Fn(&Own) -> bool) -> Result<Option<Own>> {
        self.check(keyspace)?;
        let key = internal(&keyspace.state().prefix, key);
        let mut tracked = lock(&self.tracked);
        let own = tracked.writes.get(&key).cloned();
        if own.as_ref().is_none_or(reads) && !tracked.keys.contains(&key) {
            tracked.keys.insert(key);
        }
        Ok(own)
    }

    /// Fails for another store's keyspace, and one that was dropped.
    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        keyspace.state().check_store(self.keyspace.core().keyspaces.store())?;
        keyspace.state().check()
    }

    /// Sets a key of the default keyspace, at the commit.
    ///
    /// # Errors
    /// [`Error::Invalid`] if key or value, or all writes together, are too long.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_in(&self.keyspace, key, value)
    }

    /// Sets a key of a keyspace, at the commit.
    ///
    /// # Errors
    /// [`Error::Invalid`] if key or value, or all writes together, are too long, and for a keyspace of another store.
    pub fn put_in(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(keyspace, key.as_ref(), Some(value.as_ref()))
    }

    /// Deletes a key of the default keyspace, at the commit; it need not be there.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_in(&self.keyspace, key)
    }

    /// Deletes a key of a keyspace, at the commit; it need not be there.
    ///
    /// # Errors
    /// As [`Transaction::put_in`].
    pub fn delete_in(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(keyspace, key.as_ref(), None)
    }

    fn write(&self, keyspace: &Keyspace, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_limits(key, value.unwrap_or_default())?;
        self.check(keyspace)?;
        let prefix = &keyspace.state().prefix;
        let mut tracked = lock(&self.tracked);
        tracked.write(internal(prefix, key), value)?;
        tracked.touch(keyspace.state());
        if value.is_some() {
            tracked.refill(prefix.as_slice(), key);
        }
        Ok(())
    }

    /// Commits at the store's durability: all writes happen, at one moment at which all that was read is as it was
    /// read, or none.
    ///
    /// # Errors
    /// [`Error::Conflict`], of kind [`crate::ErrorKind::Retry`]: something that was read has been written since; what
    /// did can be read when this returns, so running the transaction again gets ahead. All other errors are those of
    /// [`Db::write`].
    pub fn commit(self) -> Result<()> {
        self.commit_with(&WriteOptions::default())
    }

    /// The same with options. There are no deadlines for transactions: [`Error::Invalid`].
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_with(self, options: &WriteOptions) -> Result<()> {
        if options.deadline.is_some() {
            return Err(Error::Invalid("a transaction's commit has no deadline: leave it out".into()));
        }
        let core = self.keyspace.core();
        core.check_open()?;
        let mut tracked = std::mem::take(&mut *lock(&self.tracked));
        if tracked.writes.is_empty() {
            return Ok(());
        }
        let Some(Opened(store, _)) = &self.opened else {
            return Err(core.write_side().err().unwrap_or(Error::Closed));
        };
        core.health.check_writable()?;
        tracked.keyspaces.iter().try_for_each(|k| k.check())?;
        let durability = options.durability.unwrap_or(core.options.durability);
        let (mut ops, mut count) = (Vec::with_capacity(tracked.bytes), 0);
        let lives = core.keyspaces.lives();
        for (key, own) in &mut tracked.writes {
            if let Some(lives) = &lives {
                own.check_lives(lives, key)?;
            }
            count += own.encode(&mut ops, key);
            // Operands that became one may be longer than they were.
            if ops.len() > MAX_BATCH_BYTES {
                return Err(too_much());
            }
        }
        let ops = core.stamped(&ops, false)?;
        let write = Write { parts: &[&ops], count, batches: 1, single: None };
        let reads = ReadSet::new(tracked.keys, tracked.ranges);
        store.admit(&write)?;
        validate::commit(store, &core.views, &write, durability, (&reads, self.moment.seq))
    }

    /// Ends the transaction; nothing of it is written. The same as dropping it.
    pub fn rollback(self) {}
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tracked = lock(&self.tracked);
        f.debug_struct("Transaction")
            .field("sequence", &self.moment.seq)
            .field("writes", &tracked.writes.len())
            .field("reads", &(tracked.keys.len() + tracked.ranges.len()))
            .finish_non_exhaustive()
    }
}
