//! [`Registered`]: an open snapshot, held by the handles of it and by what they are asked.

use std::sync::Arc;

use super::core::Core;
use crate::key::Seq;

/// One open snapshot, given up when dropped.
pub(super) struct Registered {
    core: Arc<Core>,
    pub seq: Seq,
}

impl Registered {
    /// Registers the newest published sequence number.
    pub fn now(core: &Arc<Core>) -> Registered {
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
