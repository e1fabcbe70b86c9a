//! `lock` of a transaction: keys that no other one locks until it has ended.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Transaction, internal, validate};
use crate::Result;
use crate::commit::ReadSet;
use crate::db::keyspace::Keyspace;
use crate::db::locks::HeldKeys;
use crate::db::registered::Registered;
use crate::key::check_limits;
use crate::sync::lock;

/// How long a call waits for keys that others have locked.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(5);

impl Transaction {
    /// Locks keys of the default keyspace until this transaction has ended, by its commit, its rollback or its end of
    /// life: no other transaction locks one of them meanwhile. Waits for those who have.
    ///
    /// Then the transaction goes on from now: what it reads from here on, of all keys, is what is there when the keys
    /// are locked. So if all who write a key lock it first, none of them conflicts on it, however many they are.
    /// Locks keep nobody else off: plain writes, `fetch_update` and transactions that do not lock write the keys as
    /// ever, and what this one has read is still checked at its commit.
    ///
    /// Best called first. If something has been read before, it must not have been written since, or the call fails
    /// with [`crate::Error::Conflict`]: the commit would have. So it does if a compaction filter may have changed what
    /// was read, which new reads would show. Keys of one call are locked in their order, so two calls for the same
    /// keys never wait for each other. With several calls two transactions may: the one that would close the circle
    /// fails at once, [`crate::Error::KeyLocked`] with `deadlock`. Of a key that is locked longer than the call waits
    /// (five seconds, or [`Transaction::set_lock_wait`]) the same error says so. All of these are of kind
    /// [`crate::ErrorKind::Retry`], and the call has locked nothing; drop the transaction, with all that it has
    /// locked, and run it again. A thread that locks a key in two transactions of its own waits for itself.
    ///
    /// Keys need not be there. A key that is locked is not read yet.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// let count = |n: Option<ringdb::Value>| n.map_or(0, |n| u64::from_be_bytes(n[..].try_into().expect("8 bytes")));
    /// std::thread::scope(|s| {
    ///     for _ in 0..4 {
    ///         s.spawn(|| -> ringdb::Result<()> {
    ///             for _ in 0..100 {
    ///                 let mut tx = db.transaction();
    ///                 tx.lock(&["visits"])?;
    ///                 let n = count(tx.get("visits")?);
    ///                 tx.put("visits", (n + 1).to_be_bytes())?;
    ///                 tx.commit()?; // never a conflict
    ///             }
    ///             Ok(())
    ///         });
    ///     }
    /// });
    /// assert_eq!(count(db.get("visits")?), 400);
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::KeyLocked`] and [`crate::Error::Conflict`], see above; [`crate::Error::Invalid`] for what can
    /// be no key; [`crate::Error::ReadOnly`]; [`crate::Error::Closed`].
    pub fn lock<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Result<()> {
        let keyspace = self.keyspace.clone();
        self.lock_in(&keyspace, keys)
    }

    /// Locks keys of a keyspace; see [`Transaction::lock`].
    ///
    /// # Errors
    /// As there; [`crate::Error::Invalid`] for a keyspace of another store; [`crate::Error::KeyspaceDropped`].
    pub fn lock_in<K: AsRef<[u8]>>(&mut self, keyspace: &Keyspace, keys: &[K]) -> Result<()> {
        self.check(keyspace)?;
        let core = self.keyspace.core();
        core.check_open()?;
        core.write_side()?;
        let prefix = &keyspace.state().prefix;
        let mut wanted = BTreeSet::new();
        for key in keys {
            check_limits(key.as_ref(), &[])?;
            wanted.insert(internal(prefix, key.as_ref()));
        }
        let new = self.locked.get_or_insert_with(|| HeldKeys::new(core)).add(wanted, self.lock_wait)?;
        let gone_on = self.go_on_from_now();
        if let (Err(_), Some(held)) = (&gone_on, &mut self.locked) {
            held.give_up(&new);
        }
        gone_on
    }

    /// Sets how long each call of `lock` waits at most: five seconds if nobody says otherwise; zero: not at all.
    pub fn set_lock_wait(&mut self, wait: Duration) {
        self.lock_wait = wait;
    }

    /// Sees the store as it is now, if all that was read before is as it was read.
    fn go_on_from_now(&mut self) -> Result<()> {
        let core = self.keyspace.core();
        // Before the question: what comes later is for the commit to find.
        let now = Registered::now(core);
        let mut tracked = lock(&self.tracked);
        let (keys, ranges) = (std::mem::take(&mut tracked.keys), std::mem::take(&mut tracked.ranges));
        let reads = ReadSet::new(keys.iter().cloned(), ranges.clone());
        (tracked.keys, tracked.ranges) = (keys, ranges);
        drop(tracked);
        if !reads.is_empty() {
            validate::check_now(&core.views, &reads, self.moment.seq, now.seq)?;
        }
        self.moment = Arc::new(now);
        Ok(())
    }
}
