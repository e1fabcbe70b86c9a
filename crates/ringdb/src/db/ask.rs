//! [`Ask`]: what is asked of a store by a future or a [`Reads`], but for the keys.
//!
//! [`Reads`]: super::reads::Reads

use std::sync::Arc;

use super::core::Core;
use super::keyspaces::KeyspaceState;
use super::registered::Registered;
use crate::ReadOptions;
use crate::key::Seq;

/// See the module.
pub(super) struct Ask {
    pub core: Arc<Core>,
    pub keyspace: Arc<KeyspaceState>,
    pub snapshot: Option<Arc<Registered>>,
    pub options: ReadOptions,
}

impl Ask {
    /// As of which snapshot; `None`: as of now.
    pub fn seq(&self) -> Option<Seq> {
        self.snapshot.as_ref().map(|s| s.seq)
    }
}
