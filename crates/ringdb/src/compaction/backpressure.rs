//! [`Pacer`]: slows writers smoothly when flushes or compactions fall behind.
//!
//! Each kind of debt has a soft limit, where slowing begins, and a hard limit. The pressure is the largest share of
//! the way between them that some debt has gone. Writers get a rate: what that kind of background work has lately
//! been able to do, times a factor that falls from 2 at pressure 0 over 1 at one half to 1/8 at 1 and beyond. So the
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
const FIRST_RATE: f64 = 256.0 * 1024.0 * 1024.0;
/// Delays shorter than this are saved up: a sleep costs about as much.
const LEAST_DELAY: Duration = Duration::from_micros(300);
/// One write is never delayed for longer.
const MOST_DELAY: Duration = Duration::from_millis(50);
/// Weight of the newest measurement of a rate.
const GAIN: f64 = 0.3;

/// Gives each write its delay.
#[derive(Debug)]
pub(crate) struct Pacer {
    limits: Limits,
    debt: Debt,
    pressure: f64,
    /// Bytes of memtables that a second of flushing takes.
    flush_rate: f64,
    /// Bytes of level 0 that a second of compacting it takes.
    compaction_rate: f64,
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
            flush_rate: FIRST_RATE,
            compaction_rate: FIRST_RATE,
            paid_until: Duration::ZERO,
        }
    }

    /// The debt has changed.
    pub fn observe(&mut self, debt: Debt) {
        self.debt = debt;
        self.pressure = self.worst().0;
    }

    /// What was observed last.
    pub fn debt(&self) -> Debt {
        self.debt
    }

    /// A flush of so many bytes of memtables took so long.
    pub fn flushed(&mut self, bytes: u64, took: Duration) {
        measure(&mut self.flush_rate, bytes, took);
    }

    /// A compaction took so many bytes from level 0 in such a time.
    pub fn compacted(&mut self, bytes: u64, took: Duration) {
        measure(&mut self.compaction_rate, bytes, took);
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
        let background =
            if self.worst().1 == Kind::Immutables { self.flush_rate } else { self.compaction_rate };
        self.slowing().then(|| (background * factor).max(LEAST_RATE))
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
        let (rate, d) = (self.rate()?, &self.debt);
        let what = match self.worst().1 {
            Kind::Immutables => format!("{} memtables wait to be flushed", d.immutables),
            Kind::Level0 => format!("level 0 has {} tables", d.level0),
            Kind::Pending => format!("compaction is behind by {} MiB", d.pending_bytes >> 20),
        };
        Some(format!("{what}; writes are slowed to {:.0} MiB/s", rate / (1 << 20) as f64))
    }

    /// The largest share of the way from soft to hard, and of which debt.
    fn worst(&self) -> (f64, Kind) {
        let share = |kind: Kind, get: fn(&Debt) -> u64| {
            let (is, soft, hard) = (get(&self.debt), get(&self.limits.soft), get(&self.limits.hard));
            (is.saturating_sub(soft) as f64 / hard.saturating_sub(soft).max(1) as f64, kind)
        };
        let all = [share(Kind::Level0, |d| d.level0), share(Kind::Pending, |d| d.pending_bytes)];
        let first = share(Kind::Immutables, |d| d.immutables);
        all.into_iter().fold(first, |worst, s| if s.0 > worst.0 { s } else { worst })
    }
}

/// The kinds of debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Immutables,
    Level0,
    Pending,
}

fn measure(rate: &mut f64, bytes: u64, took: Duration) {
    if bytes > 0 && !took.is_zero() {
        *rate += GAIN * (bytes as f64 / took.as_secs_f64() - *rate);
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
        // 40 MiB at an eighth of 256 MiB/s.
        let t = time_of(&mut p, Duration::from_secs(1), 10_000);
        assert!(t >= last && t < Duration::from_millis(1500), "{t:?}");
        for _ in 0..100 {
            assert!(p.delay(Duration::from_secs(9), 1 << 30) <= MOST_DELAY);
        }
    }

    #[test]
    fn the_rate_follows_the_work_that_is_behind() {
        let mut p = pacer();
        p.observe(Debt { level0: 16, immutables: 3, ..Debt::default() });
        for _ in 0..30 {
            p.flushed(10 << 20, Duration::from_secs(1));
            p.compacted(40 << 20, Duration::from_millis(200));
        }
        let rate = |p: &Pacer| p.rate().expect("slowed") / (1 << 20) as f64;
        assert!((rate(&p) / 200.0 - 1.0).abs() < 0.01, "{}", rate(&p));
        assert_eq!(p.reason().as_deref(), Some("level 0 has 16 tables; writes are slowed to 200 MiB/s"));
        p.observe(Debt { level0: 9, immutables: 4, ..Debt::default() });
        assert!((rate(&p) / 10.0 - 1.0).abs() < 0.01, "{}", rate(&p));
        p.flushed(0, Duration::from_secs(1));
        p.flushed(1, Duration::ZERO);
        assert!((rate(&p) / 10.0 - 1.0).abs() < 0.01, "{}", rate(&p));
        for _ in 0..60 {
            p.flushed(1, Duration::from_secs(1));
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
