//! Changes of one key that depend on its value, on [`Db`] and [`Keyspace`]: transactions of one key, which are run
//! again until nobody has got ahead of them.

use super::Opened;
use crate::commit::{Claim, ReadSet, Single, Verdict, with_single};
use crate::db::Db;
use crate::db::keyspace::Keyspace;
use crate::key::{self, KeyBuf, Kind, check_limits};
use crate::{ReadOptions, Result, Value};

/// What is to become of a key.
enum Change {
    Leave,
    Put(Vec<u8>),
    Delete,
}

impl Keyspace {
    /// Changes a key by what `change` makes of its value at one moment, and returns the value before. See
    /// [`Db::fetch_update`].
    ///
    /// # Errors
    /// As [`Keyspace::get`] and [`Keyspace::put`].
    pub fn fetch_update(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Value>> {
        let (before, _) = self.update(key.as_ref(), |old| match (old, change(old)) {
            (_, Some(new)) => Change::Put(new),
            (Some(_), None) => Change::Delete,
            (None, None) => Change::Leave,
        })?;
        Ok(before)
    }

    /// Sets a key to `new` (`None`: deletes it) if its value is `expected` (`None`: there is none); whether it was. See
    /// [`Db::compare_and_swap`].
    ///
    /// # Errors
    /// As [`Keyspace::get`] and [`Keyspace::put`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let mut swapped = false;
        self.update(key.as_ref(), |old| {
            swapped = old == expected;
            match new {
                _ if !swapped => Change::Leave,
                Some(new) => Change::Put(new.to_vec()),
                None if old.is_none() => Change::Leave,
                None => Change::Delete,
            }
        })?;
        Ok(swapped)
    }

    /// Sets a key that has no value; false, and nothing is changed, if it has one.
    ///
    /// # Errors
    /// As [`Keyspace::get`] and [`Keyspace::put`].
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.compare_and_swap(key, None, Some(value.as_ref()))
    }

    /// Reads a key and changes it before anybody else does. The value before, and whether it was changed.
    fn update(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> Change,
    ) -> Result<(Option<Value>, bool)> {
        let core = self.core();
        let durability = core.options.durability;
        let internal = KeyBuf::new(&self.state().prefix, key);
        let internal = internal.as_slice();
        let reads = ReadSet::new([internal.to_vec()], Vec::new());
        loop {
            let opened = Opened::new(core)?;
            core.health.check_writable()?;
            // What the read sees is at least as new: a write in between only costs another round.
            let basis = core.views.visible();
            let before = self.get_at(key, None, &ReadOptions::default())?;
            let (kind, value) = match change(before.as_deref()) {
                Change::Leave => return Ok((before, false)),
                Change::Put(value) => {
                    check_limits(key, &value)?;
                    core.stored(self.state(), value)?
                }
                Change::Delete => (Kind::Delete, Vec::new()),
            };
            check_limits(key, &value)?;
            self.state().check()?;
            let single = Single { key: internal, hash: key::hash(internal), kind, value: &value };
            let verdict = with_single(single, |write| {
                opened.0.admit(write)?;
                let claim = Claim { reads: &reads, basis, most: usize::MAX };
                opened.0.commits.commit_checked(write, durability, &claim)
            })?;
            match verdict {
                Verdict::Committed => return Ok((before, true)),
                // Until it can be read: a round before that would fail, too.
                Verdict::Conflict { seq, .. } => opened.0.commits.wait_applied(seq)?,
                Verdict::Unknown { settle } => opened.0.commits.wait_applied(settle)?,
            }
        }
    }
}

impl Db {
    /// Changes a key by what `change` makes of its value at one moment, and returns the value before: `change` gets the
    /// value (`None`: there is none) and gives the new one (`None`: the key is deleted). It is called again if somebody
    /// else has written the key meanwhile, so it should do nothing else. As durable as a [`Db::put`].
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("ringdb-update-{}", std::process::id()));
    /// # let db = ringdb::Db::open(&dir, ringdb::Options::default())?;
    /// // A counter that many threads may increment.
    /// let add = |n: u64| {
    ///     move |old: Option<&[u8]>| {
    ///         let old = old.map_or(0, |old| u64::from_be_bytes(old.try_into().expect("8 bytes")));
    ///         Some((old + n).to_be_bytes().to_vec())
    ///     }
    /// };
    /// assert_eq!(db.fetch_update("visits", add(1))?, None);
    /// assert_eq!(db.fetch_update("visits", add(2))?.as_deref(), Some(&1u64.to_be_bytes()[..]));
    ///
    /// assert!(db.compare_and_swap("visits", Some(&3u64.to_be_bytes()), None)?);
    /// assert!(!db.compare_and_swap("visits", Some(&3u64.to_be_bytes()), None)?, "there is none any more");
    /// assert!(db.put_if_absent("leader", "me")?);
    /// assert!(!db.put_if_absent("leader", "you")?);
    /// # drop(db);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::get`] and [`Db::put`].
    pub fn fetch_update(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Value>> {
        self.default.fetch_update(key, change)
    }

    /// Sets a key to `new` (`None`: deletes it) if its value is `expected` (`None`: there is none), at one moment;
    /// whether it was. As durable as a [`Db::put`].
    ///
    /// # Errors
    /// As [`Db::get`] and [`Db::put`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.default.compare_and_swap(key, expected, new)
    }

    /// Sets a key that has no value, at one moment; false, and nothing is changed, if it has one. As durable as a
    /// [`Db::put`].
    ///
    /// # Errors
    /// As [`Db::get`] and [`Db::put`].
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.default.put_if_absent(key, value)
    }
}
