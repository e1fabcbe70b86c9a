//! `put_with_ttl` of a store and a keyspace.

use std::time::Duration;

use super::keyspace::Keyspace;
use crate::{Db, Result};

impl Db {
    /// Sets a key for some time: from then on it counts as deleted, in every kind of read at once, and compactions give
    /// the space back, without anybody reading.
    ///
    /// The time is counted by the wall clock, in milliseconds, from the put on; the moment of its end is stored
    /// with the value. What was put before under the key does not come back. Snapshots, transactions and cursors
    /// see the store as of a moment, but not as of a time: what has expired is gone from them, too; an iterator
    /// goes by the time at which it meets the first value that expires. Expiring is no write: no transaction
    /// conflicts with it. If the clock is set back, what has not been compacted yet is there again until its time.
    /// A keyspace may give all its puts a time ([`crate::KeyspaceOptions::time_to_live`]); this one goes before it,
    /// also if it is longer. What is merged into the value does not expire: see [`Keyspace::merge`].
    ///
    /// # Errors
    /// As [`Db::put`]; [`crate::Error::Invalid`] for a time of zero.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// use std::time::Duration;
    ///
    /// db.put_with_ttl("code:alice", "815 224", Duration::from_millis(20))?;
    /// std::thread::sleep(Duration::from_millis(30));
    /// assert_eq!(db.get("code:alice")?, None);
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn put_with_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Result<()> {
        self.default.put_with_ttl(key, value, ttl)
    }
}

impl Keyspace {
    /// Sets a key for some time. See [`crate::Db::put_with_ttl`].
    ///
    /// # Errors
    /// As [`crate::Db::put_with_ttl`]; [`crate::Error::KeyspaceDropped`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
    /// let sessions = db.keyspace("sessions")?;
    /// sessions.put_with_ttl("7f3a", "alice", std::time::Duration::from_secs(3600))?;
    /// assert_eq!(sessions.get("7f3a")?.as_deref(), Some(&b"alice"[..]));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn put_with_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Result<()> {
        self.core().put_with_ttl(self.state(), key.as_ref(), value.as_ref(), ttl)
    }
}
