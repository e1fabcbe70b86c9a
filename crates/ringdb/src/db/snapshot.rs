//! [`Snapshot`]: the handle through which the store is read as it was at one moment.

use std::fmt;
use std::sync::Arc;

use super::core::Core;
use super::iter::Iter;
use super::keyspace::Keyspace;
use crate::key::Seq;
use crate::{KeyRange, ReadOptions, Result, Value};

/// The store as it was at one moment, in every keyspace. Keeps the store open, and the versions that it sees
/// from being compacted away, until dropped.
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

    /// The same view of a keyspace (of the same store; the calls of a foreign keyspace's snapshot fail).
    pub fn keyspace(&self, keyspace: &Keyspace) -> Snapshot {
        let keyspace = Keyspace::new(self.keyspace.handle(), keyspace.state().clone());
        Snapshot { keyspace, seq: self.seq.clone() }
    }

    /// The value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_with(key, &ReadOptions::default())
    }

    /// The value of a key, with options.
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
        self.keyspace.get_at(key.as_ref(), Some(self.seq.seq), options)
    }

    /// The values of many keys, in their order; every block needed is read in flight together. If one of the keys
    /// cannot be read because of damage the call fails: ask for them one by one then.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.multi_get_with(keys, &ReadOptions::default())
    }

    /// The same with options.
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        self.keyspace.multi_get_at(keys, Some(self.seq.seq), options)
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
        self.range(crate::bounds::of_prefix(prefix.as_ref()))
    }

    /// The pairs of a range of keys, with options.
    pub fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter {
        self.keyspace.iter_at(range, Some(self.seq.seq), options)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("sequence", &self.seq.seq).finish_non_exhaustive()
    }
}

/// One open snapshot, given up when dropped.
struct Registered {
    core: Arc<Core>,
    seq: Seq,
}

impl Registered {
    /// Registers the newest published sequence number.
    fn now(core: &Arc<Core>) -> Registered {
        let seq = match core.health.is_inherited() {
            // Of no use: reads fail.
            true => core.views.visible(),
            false => core.views.register_snapshot(),
        };
        Registered { core: core.clone(), seq }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // In a child of the process the list's lock may be held by a thread that is not there.
        if !self.core.health.is_inherited() {
            self.core.views.release_snapshot(self.seq);
        }
    }
}
