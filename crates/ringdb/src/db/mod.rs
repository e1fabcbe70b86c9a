//! [`Db`]: the store (placeholder bodies; the real modules replace them).
#![allow(unused_variables, clippy::unimplemented)]

use std::path::Path;

use crate::{KeyRange, Options, ReadOptions, Result, Stats, Value, VerifyReport, WriteBatch, WriteOptions};

/// An open store. Cheap to clone, shared by all threads. Closed when the last clone is dropped.
#[derive(Clone)]
pub struct Db {}

/// A named set of keys in a store, with the same calls as [`Db`].
#[derive(Clone, Debug)]
pub struct Keyspace {}

/// The store as it was at one moment, in every keyspace.
#[derive(Clone)]
pub struct Snapshot {}

/// Key-value pairs in key order, from both ends.
pub struct Iter {}

impl Iterator for Iter {
    type Item = Result<(Value, Value)>;
    fn next(&mut self) -> Option<Self::Item> {
        unimplemented!()
    }
}
impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        unimplemented!()
    }
}

impl Db {
    /// Opens the store in the directory `path`, made if missing.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        unimplemented!()
    }
    /// Opens for reading only: beside a running writer, as of now.
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        unimplemented!()
    }
    /// A keyspace by name, made if missing.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        unimplemented!()
    }
    /// A keyspace by name if there is one.
    pub fn existing_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        unimplemented!()
    }
    /// The names of all keyspaces but the default one.
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        unimplemented!()
    }
    /// Drops a keyspace with all its keys; false if there is none of that name.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        unimplemented!()
    }
    /// Commits a batch.
    pub fn write(&self, batch: WriteBatch, options: &WriteOptions) -> Result<()> {
        unimplemented!()
    }
    /// A view of the store as it is now.
    pub fn snapshot(&self) -> Snapshot {
        unimplemented!()
    }
    /// Writes all memtables to tables.
    pub fn flush(&self) -> Result<()> {
        unimplemented!()
    }
    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        unimplemented!()
    }
    /// Reads every byte and checks every checksum, order and reference.
    pub fn verify(&self) -> Result<VerifyReport> {
        unimplemented!()
    }
    /// Makes a copy of the store, by hard links, in a new directory of the same file system.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        unimplemented!()
    }
    /// Flushes, waits for background work and closes; errors that `drop` would swallow are returned.
    pub fn close(self) -> Result<()> {
        unimplemented!()
    }
}

macro_rules! writes {
    () => {
        /// Sets a key.
        pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
            unimplemented!()
        }
        /// Deletes a key.
        pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
            unimplemented!()
        }
        /// Compacts the tables that hold a range of keys, down to the last level.
        pub fn compact_range(&self, range: impl KeyRange) -> Result<()> {
            unimplemented!()
        }
    };
}
macro_rules! reads {
    () => {
        /// The value of a key.
        pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
            unimplemented!()
        }
        /// The value of a key, with options.
        pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
            unimplemented!()
        }
        /// The values of many keys, in their order; every block needed is read in flight together.
        pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
            unimplemented!()
        }
        /// The same with options.
        pub fn multi_get_with<K: AsRef<[u8]>>(
            &self,
            keys: &[K],
            options: &ReadOptions,
        ) -> Result<Vec<Option<Value>>> {
            unimplemented!()
        }
        /// All pairs.
        pub fn iter(&self) -> Iter {
            unimplemented!()
        }
        /// The pairs of a range of keys.
        pub fn range(&self, range: impl KeyRange) -> Iter {
            unimplemented!()
        }
        /// The pairs whose key begins with `prefix`.
        pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
            unimplemented!()
        }
        /// The pairs of a range of keys, with options.
        pub fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter {
            unimplemented!()
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
    /// Its name.
    pub fn name(&self) -> &str {
        unimplemented!()
    }
}
impl Snapshot {
    reads!();
    /// The same view of a keyspace.
    pub fn keyspace(&self, keyspace: &Keyspace) -> Snapshot {
        unimplemented!()
    }
}
