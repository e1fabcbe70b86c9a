//! Keyspaces: named sets of keys, each under a prefix of its own in the one tree.
//!
//! A keyspace is made and dropped by one durable edit of the manifest. Ids are never used twice, so what is left
//! of a dropped keyspace in logs and tables belongs to nobody; compactions leave it out.

use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Core;
use crate::key::Prefix;
use crate::manifest::{ManifestState, VersionEdit};
use crate::sync::lock;
use crate::{Error, Result};

/// The name of the keyspace that [`crate::Db`]'s own calls use.
pub(crate) const DEFAULT: &str = "default";
const MAX_NAME_BYTES: usize = 255;

/// What every handle of a keyspace shares.
#[derive(Debug)]
pub(crate) struct KeyspaceState {
    /// Which open store it belongs to.
    pub store: u64,
    pub id: u32,
    pub name: String,
    pub prefix: Prefix,
    dropped: AtomicBool,
}

impl KeyspaceState {
    pub fn new(store: u64, id: u32, name: &str) -> KeyspaceState {
        let dropped = AtomicBool::new(false);
        KeyspaceState { store, id, name: name.into(), prefix: Prefix::new(id), dropped }
    }

    /// Fails once the keyspace is dropped.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.dropped.load(Relaxed) { Err(Error::KeyspaceDropped(self.name.clone())) } else { Ok(()) }
    }

    /// Fails for another store's keyspace.
    pub fn check_store(&self, store: u64) -> Result<()> {
        if self.store == store {
            return Ok(());
        }
        Err(Error::Invalid(format!("keyspace '{}' belongs to another store", self.name)))
    }

    pub fn mark_dropped(&self) {
        self.dropped.store(true, Relaxed);
    }
}

/// Whether a name can be a keyspace's.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(Error::Invalid(format!(
            "a keyspace's name has 1 to {MAX_NAME_BYTES} bytes; this one has {}",
            name.len()
        )));
    }
    Ok(())
}

/// The live keyspaces but the default one, by name.
#[derive(Default)]
pub(crate) struct Keyspaces {
    by_name: BTreeMap<String, Arc<KeyspaceState>>,
    /// Ids are below this.
    next_id: u32,
    /// Ids of dropped ones that may have entries left.
    dropped: BTreeSet<u32>,
}

impl Keyspaces {
    /// As the manifest has them.
    pub fn new(store: u64, state: &ManifestState) -> Keyspaces {
        let by_name = state.keyspaces.iter();
        let by_name = by_name
            .map(|(&id, name)| (name.clone(), Arc::new(KeyspaceState::new(store, id, name))))
            .collect();
        Keyspaces { by_name, next_id: state.next_keyspace_id.max(1), dropped: state.dropped.clone() }
    }

    /// The ids of dropped ones that may have entries left.
    pub fn dropped(&self) -> Vec<u32> {
        self.dropped.iter().copied().collect()
    }
}

impl Core {
    /// The keyspace of that name, made if missing.
    pub fn keyspace(&self, name: &str) -> Result<Arc<KeyspaceState>> {
        if let Some(found) = self.existing_keyspace(name)? {
            return Ok(found);
        }
        let Some(manifest) = &self.manifest else { return Err(Error::ReadOnly) };
        let mut manifest = lock(manifest);
        // Somebody may have made it meanwhile; from here on nobody can.
        if let Some(found) = self.existing_keyspace(name)? {
            return Ok(found);
        }
        self.health.check_writable()?;
        let id = lock(&self.keyspaces).next_id;
        if id == u32::MAX {
            return Err(Error::Invalid("the store has used up all ids of keyspaces".into()));
        }
        let edit = VersionEdit { created_keyspaces: vec![(id, name.into())], ..VersionEdit::default() };
        self.append_edit(&mut manifest, &edit)?;
        let state = Arc::new(KeyspaceState::new(self.store, id, name));
        let mut all = lock(&self.keyspaces);
        all.next_id = id + 1;
        all.by_name.insert(name.into(), state.clone());
        Ok(state)
    }

    /// The keyspace of that name, if there is one.
    pub fn existing_keyspace(&self, name: &str) -> Result<Option<Arc<KeyspaceState>>> {
        self.check_open()?;
        check_name(name)?;
        if name == DEFAULT {
            return Ok(Some(self.default_keyspace.clone()));
        }
        Ok(lock(&self.keyspaces).by_name.get(name).cloned())
    }

    /// The names of all but the default one.
    pub fn keyspace_names(&self) -> Result<Vec<String>> {
        self.check_open()?;
        Ok(lock(&self.keyspaces).by_name.keys().cloned().collect())
    }

    /// Drops the keyspace of that name; false if there is none.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.check_open()?;
        check_name(name)?;
        if name == DEFAULT {
            return Err(Error::Invalid("the default keyspace cannot be dropped".into()));
        }
        let Some(manifest) = &self.manifest else { return Err(Error::ReadOnly) };
        let mut manifest = lock(manifest);
        self.health.check_writable()?;
        let Some(state) = lock(&self.keyspaces).by_name.get(name).cloned() else { return Ok(false) };
        let edit = VersionEdit { dropped_keyspaces: vec![state.id], ..VersionEdit::default() };
        self.append_edit(&mut manifest, &edit)?;
        state.mark_dropped();
        let mut all = lock(&self.keyspaces);
        all.by_name.remove(name);
        all.dropped.insert(state.id);
        drop((all, manifest));
        self.background.wake();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_255_bytes() {
        assert!(check_name("").is_err());
        assert!(check_name("a").is_ok() && check_name(&"é".repeat(127)).is_ok());
        assert!(check_name(&"é".repeat(128)).is_err());
    }
}
