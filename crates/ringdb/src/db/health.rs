//! Whether the store is open, closed, or has stopped writing, and why.

use crate::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;

use engineswap::Process;

use crate::stop::StopLatch;
use crate::{Error, Result};

/// The state that every call looks at first.
pub(crate) struct Health {
    /// Which opened the store.
    process: Process,
    closed: AtomicBool,
    latch: Arc<StopLatch>,
}

impl Health {
    /// Of a store that is open in this process, until `latch` stops it.
    pub fn new(latch: Arc<StopLatch>) -> Arc<Health> {
        Arc::new(Health { process: Process::this(), closed: AtomicBool::new(false), latch })
    }

    /// Whether this is a child, by fork(), of the process that opened the store. It has the mapped log, the
    /// lock and the files, but no background threads, and a mutex that another thread held at the fork stays
    /// locked: nothing may be touched here.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        !self.process.is_this()
    }

    /// Fails in such a child, before any lock is taken.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        if self.is_inherited() { Err(inherited()) } else { Ok(()) }
    }

    /// Fails once the store is closed, and in a child of its process.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        self.check_process()?;
        if self.closed.load(Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Fails once the store is closed or has stopped writing.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.latch.check()
    }

    /// What stops writing.
    pub fn latch(&self) -> &StopLatch {
        &self.latch
    }

    /// Closes; false if it was closed before.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, SeqCst)
    }
}

#[cold]
fn inherited() -> Error {
    Error::Invalid(
        "the store was opened before fork() and is the parent's; open it in the child when the parent has closed it, or \
         read-only"
            .into(),
    )
}
