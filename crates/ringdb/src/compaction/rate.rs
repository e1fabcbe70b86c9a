//! [`RateLimit`]: how many bytes a second all compactions together may write.
//!
//! A leaky bucket (the virtual scheduling of ITU-T I.371): each write has the moment when it will have passed at the
//! rate, and its writer waits until then. What was not used of the last [`BURST`] may be used at once.

use std::time::Duration;

use crate::sync::{Mutex, lock};

/// So much time's bytes may be written at once after a pause. Short, for the pauses of readers are what it is about.
const BURST: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Debug)]
pub(crate) struct RateLimit {
    bytes_per_second: f64,
    /// When all that was written so far will have passed.
    passed: Mutex<Duration>,
}

impl RateLimit {
    /// `None` for 0: no limit.
    pub fn new(bytes_per_second: u64) -> Option<RateLimit> {
        let rate = RateLimit { bytes_per_second: bytes_per_second as f64, passed: Mutex::default() };
        (bytes_per_second > 0).then_some(rate)
    }

    /// `bytes` more are written at `now`: how long their writer has to wait.
    pub fn wait(&self, now: Duration, bytes: u64) -> Duration {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        let mut passed = lock(&self.passed);
        *passed = (*passed).max(now.saturating_sub(BURST)) + takes;
        passed.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn none_is_no_limit() {
        assert!(RateLimit::new(0).is_none());
    }

    #[test]
    fn writers_wait_for_each_other() {
        let limit = RateLimit::new(1_000_000).unwrap();
        // Two threads at the same moment: the second one's bytes pass after the first one's.
        assert_eq!(limit.wait(1000 * MS, 100_000), 80 * MS);
        assert_eq!(limit.wait(1000 * MS, 100_000), 180 * MS);
        assert_eq!(limit.wait(1100 * MS, 50_000), 130 * MS);
    }

    #[test]
    fn a_pause_saves_little() {
        let limit = RateLimit::new(1_000_000).unwrap();
        assert_eq!(limit.wait(BURST, 20_000), Duration::ZERO);
        // An hour later a second's bytes still take a second, less the burst.
        let later = Duration::from_secs(3600);
        assert_eq!(limit.wait(later, 1_000_000), Duration::from_secs(1) - BURST);
    }
}
