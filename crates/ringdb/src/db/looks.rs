//! Reads that ask for less than a pair, or for more than one keyspace: on [`Db`], [`Keyspace`] and [`Snapshot`].

use std::sync::Arc;

use super::estimate::Estimate;
use super::iter::internal_bounds;
use super::keyspace::Keyspace;
use super::multi_get::Asked;
use super::registered::Registered;
use super::seek::Cursor;
use super::snapshot::Snapshot;
use super::{Db, Iter};
use crate::bounds::Bounds;
use crate::key::Prefix;
use crate::{KeyRange, ReadOptions, Result, Value};

/// Keys of several keyspaces.
struct OfMany<'a, K>(&'a [(&'a Keyspace, K)]);

impl<K: AsRef<[u8]>> Asked for OfMany<'_, K> {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn at(&self, i: usize) -> (&Prefix, &[u8]) {
        let (keyspace, key) = &self.0[i];
        (&keyspace.state().prefix, key.as_ref())
    }
}

/// A keyspace, now or as a snapshot sees it.
#[derive(Clone, Copy)]
struct Place<'a>(&'a Keyspace, Option<&'a Arc<Registered>>);

impl Place<'_> {
    fn contains(self, key: &[u8]) -> Result<bool> {
        let seq = self.1.map(|s| s.seq);
        self.0.views(seq)?.contains(&self.0.state().prefix, key, seq)
    }

    fn read_with<R>(self, key: &[u8], f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let seq = self.1.map(|s| s.seq);
        let options = ReadOptions::default();
        self.0.views(seq)?.read_with(&self.0.state().prefix, key, seq, &options, f)
    }

    fn multi_get<K: AsRef<[u8]>>(self, keys: &[(&Keyspace, K)]) -> Result<Vec<Option<Value>>> {
        let seq = self.1.map(|s| s.seq);
        let core = self.0.core();
        for (keyspace, _) in keys {
            keyspace.state().check_store(core.keyspaces.store())?;
            keyspace.state().check()?;
        }
        core.check_open()?;
        core.views.multi_get(&OfMany(keys), seq, &ReadOptions::default())
    }

    fn cursor(self, options: &ReadOptions) -> Cursor {
        let seq = self.1.map(|s| s.seq);
        match options.without_deadline().and_then(|()| self.0.views(seq)) {
            Ok(views) => views.cursor(&self.0.state().prefix, seq, options),
            Err(e) => Cursor::failed(e),
        }
    }
}

fn first(mut pairs: Iter) -> Result<Option<(Value, Value)>> {
    pairs.next().transpose()
}

fn last(mut pairs: Iter) -> Result<Option<(Value, Value)>> {
    pairs.next_back().transpose()
}

macro_rules! looks {
    ($($of:ty),*) => {$(
        impl $of {
            /// Whether there is a value of the key; it is not copied, and no merge operator is asked: a key with an
            /// operand is there.
            ///
            /// # Errors
            /// As [`Db::get`], but for those of a merge operator.
            pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                self.place().contains(key.as_ref())
            }

            /// What `f` makes of the value of a key, without copying it: `f` gets the bytes where the store has them.
            /// `None` if there is no value; `f` is not called then. What it looks at stays in memory until `f`
            /// returns.
            ///
            /// # Errors
            /// As [`Db::get`].
            pub fn read_with<R>(&self, key: impl AsRef<[u8]>, f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
                self.place().read_with(key.as_ref(), f)
            }

            /// The first pair.
            ///
            /// # Errors
            /// What reading fails with: an I/O error, damage, a closed store.
            pub fn first(&self) -> Result<Option<(Value, Value)>> {
                first(self.iter())
            }

            /// The last pair.
            ///
            /// # Errors
            /// What reading fails with: an I/O error, damage, a closed store.
            pub fn last(&self) -> Result<Option<(Value, Value)>> {
                last(self.iter())
            }

            /// The values of keys of several keyspaces, in their order, all as of one moment; every block needed is
            /// read in flight together.
            ///
            /// # Errors
            /// As [`Db::multi_get`]; [`crate::Error::Invalid`] for a keyspace of another store.
            pub fn multi_get_in<K: AsRef<[u8]>>(&self, keys: &[(&Keyspace, K)]) -> Result<Vec<Option<Value>>> {
                self.place().multi_get(keys)
            }

            /// A place among the pairs that can be sought again and again, with borrowed keys and values.
            pub fn cursor(&self) -> Cursor {
                self.cursor_with(&ReadOptions::default())
            }

            /// The same with options. A deadline is refused: every move of the cursor fails then.
            pub fn cursor_with(&self, options: &ReadOptions) -> Cursor {
                self.place().cursor(options)
            }
        }
    )*};
}

looks!(Db, Keyspace, Snapshot);

impl Db {
    fn place(&self) -> Place<'_> {
        Place(&self.default, None)
    }

    /// About how many pairs there are in the default keyspace; see [`Keyspace::approximate_len`].
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("ringdb-looks-{}", std::process::id()));
    /// # let db = ringdb::Db::open(&dir, ringdb::Options::default())?;
    /// let stock = db.keyspace("stock")?;
    /// db.put("apple", "red")?;
    /// db.put("pear", "green")?;
    /// stock.put("pear", "12")?;
    /// assert!(db.contains_key("apple")?);
    /// assert_eq!(db.read_with("pear", |colour| colour.len())?, Some(5));
    /// assert_eq!(db.first()?.expect("a pair").0, b"apple");
    /// assert_eq!(db.last()?.expect("a pair").0, b"pear");
    /// let both = db.multi_get_in(&[(&stock, "pear"), (&stock, "apple")])?;
    /// assert_eq!((both[0].as_deref(), &both[1]), (Some(&b"12"[..]), &None));
    /// assert_eq!(db.approximate_len()?, 2);
    /// assert!(db.approximate_size("a".."b")? < db.approximate_size(..)?);
    /// # drop((stock, db));
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Closed`].
    pub fn approximate_len(&self) -> Result<u64> {
        self.default.approximate_len()
    }

    /// About how many bytes a range of the default keyspace takes; see [`Keyspace::approximate_size`].
    ///
    /// # Errors
    /// [`crate::Error::Closed`].
    pub fn approximate_size(&self, range: impl KeyRange) -> Result<u64> {
        self.default.approximate_size(range)
    }
}

impl Keyspace {
    fn place(&self) -> Place<'_> {
        Place(self, None)
    }

    /// About how many pairs there are, told from what is in memory. A pair that was overwritten counts once for each
    /// version until compactions have removed the old ones, and what a memtable deletes counts until it is flushed.
    /// What has expired counts until a compaction has met it.
    ///
    /// # Errors
    /// [`crate::Error::Closed`], [`crate::Error::KeyspaceDropped`].
    pub fn approximate_len(&self) -> Result<u64> {
        Ok(self.estimate(..)?.pairs.max(0.0).round() as u64)
    }

    /// About how many bytes the pairs of a range take, in tables (as stored, to within a block of each) and in
    /// memtables, told from what is in memory.
    ///
    /// # Errors
    /// [`crate::Error::Closed`], [`crate::Error::KeyspaceDropped`].
    pub fn approximate_size(&self, range: impl KeyRange) -> Result<u64> {
        Ok(self.estimate(range)?.bytes.max(0.0).round() as u64)
    }

    fn estimate(&self, range: impl KeyRange) -> Result<Estimate> {
        let views = self.views(None)?;
        let (lower, upper) = internal_bounds(&self.state().prefix, range.bounds());
        Ok(Estimate::of(&views.newest(), &Bounds { lower, upper }))
    }
}

impl Snapshot {
    fn place(&self) -> Place<'_> {
        let (keyspace, seq) = self.parts();
        Place(keyspace, Some(seq))
    }
}
