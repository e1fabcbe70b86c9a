//! [`StopLatch`]: the first failure that leaves in doubt what is on disk. From then on a store writes nothing until it
//! is opened again.
//!
//! A store has one, which its directory, its log, its manifest and its callers share: whoever fails first, nobody
//! writes any more.

use std::sync::OnceLock;

use crate::mutation::{Mutation, broken};
use crate::{Error, ErrorKind, Result};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct StopLatch {
    reason: OnceLock<String>,
}

impl StopLatch {
    /// Fails once writing has stopped.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.reason.get() {
            None => Ok(()),
            Some(why) => Err(Error::Stopped(why.clone())),
        }
    }

    /// Why writing has stopped.
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Stops writing for good; the first reason stays. Returns the error for the caller whose write failed.
    #[cold]
    pub fn stop(&self, why: impl ToString) -> Error {
        let why = why.to_string();
        if broken(Mutation::GoOnAfterFailure) {
            return Error::Stopped(why);
        }
        Error::Stopped(self.reason.get_or_init(|| why).clone())
    }

    /// What becomes of an error of the log or the manifest: one that has left everything as it was is given back, to be
    /// tried again; any other stops writing.
    #[cold]
    pub fn fail(&self, e: Error) -> Error {
        match e {
            e if e.kind() == ErrorKind::Retry && self.check().is_ok() => e,
            Error::Stopped(why) => self.stop(why),
            e => self.stop(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays() {
        let latch = StopLatch::default();
        latch.check().unwrap();
        assert!(matches!(latch.stop("the first"), Error::Stopped(why) if why == "the first"));
        assert!(matches!(latch.stop("the second"), Error::Stopped(why) if why == "the first"));
        assert!(matches!(latch.check(), Err(Error::Stopped(why)) if why == "the first"));
        assert_eq!(latch.reason(), Some("the first"));
    }

    #[test]
    fn passing_trouble_stops_nothing_until_something_has() {
        let latch = StopLatch::default();
        let full = || Error::Io(engineswap::Error::new(engineswap::ErrorKind::NoSpace, "write", "full"));
        assert_eq!(latch.fail(full()).kind(), ErrorKind::Retry);
        latch.check().unwrap();
        assert!(
            matches!(latch.fail(Error::Stopped("the log".into())), Error::Stopped(why) if why == "the log")
        );
        assert!(matches!(latch.fail(full()), Error::Stopped(why) if why == "the log"));
    }
}
