//! Whether the store is open, closed, or has stopped writing, and why.

use crate::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::OnceLock;

use crate::mutation::{Mutation, broken};
use crate::{Error, Result};

/// The state that every call looks at first.
#[derive(Default)]
pub(crate) struct Health {
    closed: AtomicBool,
    stopped: OnceLock<String>,
}

impl Health {
    /// Fails once the store is closed.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Fails once the store is closed or has stopped writing.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        match self.stopped.get() {
            None => Ok(()),
            Some(why) => Err(Error::Stopped(why.clone())),
        }
    }

    /// Stops writing for good; the first reason stays. Returns the error for the caller whose write failed.
    pub fn stop(&self, why: &Error) -> Error {
        let why = match why {
            Error::Stopped(w) => w.clone(),
            e => e.to_string(),
        };
        if broken(Mutation::GoOnAfterFailure) {
            return Error::Stopped(why);
        }
        Error::Stopped(self.stopped.get_or_init(|| why).clone())
    }

    /// Why writing has stopped.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// Closes; false if it was closed before.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, SeqCst)
    }
}
