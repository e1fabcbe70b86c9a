//! [`Odds`]: whether it is worth while to ask the page cache for a block before the reactor is asked.
//!
//! A try that finds the block saves the way through another thread. One in vain costs a system call, and begins the
//! device's read alone instead of together with others. So tries go on as long as enough of the last ones found
//! something; afterwards one in a while tells when it is worth while again.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A share of one.
const ALL: u32 = 1 << 10;
/// Tries are worth while from this share of hits on.
const ENOUGH: u32 = ALL / 2;
/// The newest try's part of the share.
const NEWEST: u32 = 16;
/// While they are not worth while, one in so many is made.
const ONE_IN: u32 = 32;

/// See the module. Threads that tell at the same time may overwrite each other: it is an estimate.
pub(super) struct Odds {
    /// Of the last tries, those that found something; the older, the less they count.
    share: AtomicU32,
    skipped: AtomicU32,
    hits: AtomicU64,
}

impl Odds {
    /// Of a store that was not read yet.
    pub fn new() -> Odds {
        Odds { share: AtomicU32::new(ALL), skipped: AtomicU32::new(0), hits: AtomicU64::new(0) }
    }

    /// Whether to try.
    pub fn worth_a_try(&self) -> bool {
        self.share.load(Relaxed) >= ENOUGH || self.skipped.fetch_add(1, Relaxed).is_multiple_of(ONE_IN)
    }

    /// Takes down how a try ended.
    pub fn tell(&self, hit: bool) {
        let share = self.share.load(Relaxed);
        let new = if hit { share + (ALL - share).div_ceil(NEWEST) } else { share - share.div_ceil(NEWEST) };
        if new != share {
            self.share.store(new, Relaxed);
        }
        if hit {
            self.hits.fetch_add(1, Relaxed);
        }
    }

    /// Tries that found something.
    pub fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries of so many chances that are taken, when `hit` says how each would end.
    fn tries(odds: &Odds, chances: u32, hit: impl Fn(u32) -> bool) -> u32 {
        let mut tried = 0;
        for n in 0..chances {
            if odds.worth_a_try() {
                tried += 1;
                odds.tell(hit(n));
            }
        }
        tried
    }

    #[test]
    fn it_tries_where_that_pays_and_notices_when_that_changes() {
        let odds = Odds::new();
        assert_eq!(tries(&odds, 1000, |_| true), 1000);
        let few = tries(&odds, 100_000, |_| false);
        assert!((100_000 / ONE_IN..100_000 / ONE_IN + 100).contains(&few), "{few}");
        // Back again, after a few of the rare tries.
        tries(&odds, 100 * ONE_IN, |_| true);
        assert_eq!(tries(&odds, 1000, |_| true), 1000);
        assert!(tries(&odds, 10_000, |n| n % 10 > 0) > 9000);
        assert!(tries(&odds, 10_000, |n| n % 10 == 0) < 1000);
        assert!(odds.hits() > 12_000);
    }
}
