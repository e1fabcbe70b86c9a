//! A safety rule that tests break on purpose: short writes are continued. Only with the feature `mutations`; without it
//! the question is answered "no" at compile time.

#[cfg(feature = "mutations")]
mod on {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    static IGNORED: AtomicBool = AtomicBool::new(false);

    /// Has short writes pass for whole ones in this process from now on, or no more. For tests that show that this is
    /// noticed.
    pub fn ignore_short_writes(yes: bool) {
        IGNORED.store(yes, Relaxed);
    }

    pub(crate) fn short_writes_pass() -> bool {
        IGNORED.load(Relaxed)
    }
}

#[cfg(feature = "mutations")]
pub use on::ignore_short_writes;
#[cfg(feature = "mutations")]
pub(crate) use on::short_writes_pass;

/// Whether the rule is broken.
#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub(crate) const fn short_writes_pass() -> bool {
    false
}
