//! [`Handle`]: what [`crate::Db`], its keyspaces and its snapshots hold in common, and whose end closes the store.

use std::sync::Arc;

use super::core::Core;
use crate::Result;
use crate::env::Join;
use crate::events::check_outside;
use crate::sync::{Mutex, lock};

/// What the last handle's drop ends. Background threads and iterators know the [`Core`] only.
pub(super) struct Handle {
    core: Arc<Core>,
    threads: Mutex<Vec<Join>>,
}

impl Handle {
    /// Starts the background threads of a store that was opened.
    pub fn start(core: Arc<Core>) -> Result<Arc<Handle>> {
        let handle = Handle { core, threads: Mutex::new(Vec::new()) };
        handle.core.start_threads(&mut lock(&handle.threads))?;
        #[cfg(feature = "socket")]
        handle.core.begin_serving();
        Ok(Arc::new(handle))
    }

    #[inline]
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Ends the background threads and closes the store. Not in a listener, whose thread it might be: then the store
    /// stays open.
    pub fn shut_down(&self) -> Result<()> {
        check_outside()?;
        let threads = std::mem::take(&mut *lock(&self.threads));
        self.core.shut_down(threads)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.core.health.is_inherited() {
            // All of it is the parent's: to drop it here would give up its lock and wait for its threads.
            std::mem::forget(self.core.clone());
            if let Ok(threads) = self.threads.get_mut() {
                std::mem::forget(std::mem::take(threads));
            }
            return;
        }
        // An error here has nobody to go to; `Db::close` is the call that tells.
        let _ = self.shut_down();
    }
}
