//! Keyspaces: named sets of keys, each under a prefix of its own in the one tree.
//!
//! A keyspace is made and dropped by one durable edit of the manifest. Ids are never used twice, so what is left
//! of a dropped keyspace in logs and tables belongs to nobody; compactions leave it out.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::key::Prefix;
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
