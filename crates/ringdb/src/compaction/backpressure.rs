//! [`Pacer`]: slows writers smoothly when flushes or compactions fall behind.
//!
//! Each kind of debt has a soft limit, where slowing begins, and a hard limit. The pressure is the largest share of
//! the way between them that some debt has gone. Writers get a rate: what the background work has lately been able
//! to drain, times a factor that falls from 2 at pressure 0 over 1 at one half to 1/8 at 1 and beyond. So the
//! debt settles where the writers are as fast as the background work; it never becomes a stop.
//!
//! Pure: the caller brings the time and sleeps, outside of every lock.

use std::time::Duration;

/// Work that waits for the background threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debt {
    /// Immutable memtables.
    pub immutables: u64,
    /// Tables (runs) of level 0.
    pub level0: u64,
    /// Bytes that compactions must move to bring every level to its target.
    pub pending_bytes: u64,
}

/// Where slowing begins and where it is strongest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Debt without slowing.
    pub soft: Debt,
    /// Debt with the strongest slowing.
    pub hard: Debt,
}

/// Writers are never slowed below this, in bytes a second.
const LEAST_RATE: f64 = 1024.0 * 1024.0;
/// What is assumed of the background work before anything was measured.
const FIRST_RATE: f64 = 64.0 * 1024.0 * 1024.0;
/// Delays shorter than this are saved up: a sleep costs about as much.
const LEAST_DELAY: Duration = Duration::from_micros(300);
/// One write is never delayed for longer.
const MOST_DELAY: Duration = Duration::from_millis(50);
/// Weight of the newest measurement of the drain rate.
const GAIN: f64 = 0.3;

/// Gives each write its delay.
#[derive(Debug)]
pub(crate) struct Pacer {
    limits: Limits,
    debt: Debt,
    pressure: f64,
    /// Bytes of writes that the background work drains in a second.
    drain: f64,
    /// Bytes drained since `measured_at`.
    drained: u64,
    measured_at: Duration,
    /// When the bytes admitted so far will have passed at the rate of then.
    paid_until: Duration,
}

impl Pacer {
    /// Without pressure.
    pub fn new(limits: Limits) -> Pacer {
        Pacer {
            limits,
            debt: Debt::default(),
            pressure: 0.0,
            drain: FIRST_RATE,
            drained: 0,
            measured_at: Duration::ZERO,
            paid_until: Duration::ZERO,
        }
    }

    /// The debt has changed.
    pub fn observe(&mut self, debt: Debt) {
        self.debt = debt;
        self.pressure = self.shares().into_iter().map(|(p, _)| p).fold(0.0, f64::max);
    }

    /// What was observed last.
    pub fn debt(&self) -> Debt {
        self.debt
    }

    /// A flush has drained `bytes` of writes. Counted only under pressure: else the writers set the pace, not
    /// the background work.
    pub fn drained(&mut self, now: Duration, bytes: u64) {
        let busy = self.pressure > 0.0;
        let seconds = now.saturating_sub(self.measured_at).as_secs_f64();
        if !busy || self.measured_at.is_zero() {
            self.drained = 0;
            self.measured_at = now;
            return;
        }
        self.drained += bytes;
        if seconds >= 0.1 {
            self.drain += GAIN * (self.drained as f64 / seconds - self.drain);
            self.drained = 0;
            self.measured_at = now;
        }
    }

    /// Whether writes must ask for their delay.
    pub fn slowing(&self) -> bool {
        self.pressure > 0.0
    }

    /// Bytes a second that writers may write; `None` without pressure.
    pub fn rate(&self) -> Option<f64> {
        // Two straight lines on a logarithmic scale: 2 at 0, 1 at 1/2, 1/8 at 1.
        let p = self.pressure.min(1.0);
        let factor = if p < 0.5 { 2f64.powf(1.0 - 2.0 * p) } else { 8f64.powf(1.0 - 2.0 * p) };
        self.slowing().then(|| (self.drain * factor).max(LEAST_RATE))
    }

    /// How long the writer of `bytes` must wait before it writes.
    pub fn delay(&mut self, now: Duration, bytes: u64) -> Duration {
        let Some(rate) = self.rate() else {
            self.paid_until = Duration::ZERO;
            return Duration::ZERO;
        };
        let wait = self.paid_until.saturating_sub(now);
        let cost = Duration::from_secs_f64((bytes as f64 / rate).min(3600.0));
        if wait < LEAST_DELAY {
            self.paid_until = self.paid_until.max(now) + cost;
            return Duration::ZERO;
        }
        // What exceeds the longest delay is forgiven, so that no one pays for another's huge write.
        let wait = wait.min(MOST_DELAY);
        self.paid_until = now + wait + cost;
        wait
    }

    /// Why writers are slowed; `None` when they are not.
    pub fn reason(&self) -> Option<String> {
        let rate = self.rate()?;
        let worst = self.shares().into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(format!("{}; writes are slowed to {:.0} MiB/s", worst.1, rate / (1 << 20) as f64))
    }

    fn shares(&self) -> [(f64, String); 3] {
        let share = |get: fn(&Debt) -> u64| {
            let (is, soft, hard) = (get(&self.debt), get(&self.limits.soft), get(&self.limits.hard));
            is.saturating_sub(soft) as f64 / hard.saturating_sub(soft).max(1) as f64
        };
        let d = &self.debt;
        [
            (share(|d| d.immutables), format!("{} memtables wait to be flushed", d.immutables)),
            (share(|d| d.level0), format!("level 0 has {} tables", d.level0)),
            (share(|d| d.pending_bytes), format!("compaction is behind by {} MiB", d.pending_bytes >> 20)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer() -> Pacer {
        Pacer::new(Limits {
            soft: Debt { immutables: 2, level0: 8, pending_bytes: 1 << 30 },
            hard: Debt { immutables: 6, level0: 24, pending_bytes: 4 << 30 },
        })
    }

    /// Time that a writer of `n` blocks of 4 KiB takes when it does nothing but wait.
    fn time_of(p: &mut Pacer, start: Duration, n: u32) -> Duration {
        let mut now = start;
        for _ in 0..n {
            now += p.delay(now, 4096);
        }
        now - start
    }

    #[test]
    fn no_delay_below_the_soft_limits() {
        let mut p = pacer();
        p.observe(Debt { immutables: 2, level0: 8, pending_bytes: 1 << 30 });
        assert!(!p.slowing());
        assert_eq!(time_of(&mut p, Duration::from_secs(1), 100_000), Duration::ZERO);
        assert_eq!(p.reason(), None);
    }

    #[test]
    fn delays_grow_with_the_debt_and_stay_bounded() {
        let mut last = Duration::ZERO;
        for level0 in [9, 12, 16, 20, 24] {
            let mut p = pacer();
            p.observe(Debt { level0, ..Debt::default() });
            let t = time_of(&mut p, Duration::from_secs(1), 10_000);
            assert!(t > last, "{level0}: {t:?} after {last:?}");
            last = t;
        }
        let mut p = pacer();
        p.observe(Debt { level0: 1000, ..Debt::default() });
        // 40 MiB at an eighth of 64 MiB/s.
        let t = time_of(&mut p, Duration::from_secs(1), 10_000);
        assert!(t >= last && t < Duration::from_secs(6), "{t:?}");
        for _ in 0..100 {
            assert!(p.delay(Duration::from_secs(9), 1 << 30) <= MOST_DELAY);
        }
    }

    #[test]
    fn the_rate_follows_what_is_drained() {
        let mut p = pacer();
        p.observe(Debt { level0: 16, ..Debt::default() });
        for i in 1..60u32 {
            p.drained(Duration::from_millis(200) * i, 40 << 20);
        }
        let rate = p.rate().expect("slowed");
        let expected = (200 << 20) as f64;
        assert!((rate / expected - 1.0).abs() < 0.05, "{rate}");
        assert!(p.reason().expect("slowed").starts_with("level 0 has 16 tables; writes are slowed to"));
        for i in 60..200u32 {
            p.drained(Duration::from_millis(200) * i, 0);
        }
        assert_eq!(p.rate(), Some(LEAST_RATE));
    }

    #[test]
    fn relief_ends_the_delays_at_once() {
        let mut p = pacer();
        p.observe(Debt { immutables: 6, ..Debt::default() });
        let now = Duration::from_secs(3);
        assert!(time_of(&mut p, now, 1000) > Duration::ZERO);
        p.observe(Debt::default());
        assert_eq!(p.delay(now, 1 << 20), Duration::ZERO);
        p.observe(Debt { immutables: 6, ..Debt::default() });
        assert_eq!(p.delay(now, 4096), Duration::ZERO);
    }
}
