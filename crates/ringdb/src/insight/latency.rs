//! [`Latencies`]: how long operations take, in histograms that threads share without locks.
//!
//! What waits for the device is timed always. Of what memory may answer alone, where reading the clock twice costs a
//! tenth of the operation, one in so many is timed and counts for as many: chosen at random, so that no pattern of
//! calls falls in step with it ([decision 57](../../../../docs/decisions/0057-latencies.md)).

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use histogram::{AtomicHistogram, Histogram};

use crate::env::Env;
use crate::stats::OperationLatency;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets have the width of a 32nd of their value: percentiles are right to 3 %.
const GROUPING_POWER: u8 = 5;
/// What takes longer than 2^44 ns, almost five hours, counts as that.
const MAX_POWER: u8 = 44;
const MAX_NANOS: u64 = (1 << MAX_POWER) - 1;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A blocking get.
    Get,
    /// A blocking get of several keys, as one.
    MultiGet,
    /// A write that does not wait for the device.
    Write,
    /// A write that does.
    SyncWrite,
    /// The first step of an iterator's end; a cursor's seek.
    Seek,
    Flush,
    /// A compaction that read tables.
    Compaction,
    /// The wait of a write that was delayed.
    Stall,
}

impl Operation {
    pub const ALL: [Operation; 8] = [
        Operation::Get,
        Operation::MultiGet,
        Operation::Write,
        Operation::SyncWrite,
        Operation::Seek,
        Operation::Flush,
        Operation::Compaction,
        Operation::Stall,
    ];

    /// Powers of two of nanoseconds that its latencies are told by in metrics: from 256 ns to 17 s for calls, from 1 ms
    /// to 18 minutes in the background.
    fn bounds(self) -> std::ops::RangeInclusive<u32> {
        if matches!(self, Operation::Flush | Operation::Compaction) { 20..=40 } else { 8..=34 }
    }

    /// Its name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Get => "get",
            Operation::MultiGet => "multi_get",
            Operation::Write => "write",
            Operation::SyncWrite => "sync_write",
            Operation::Seek => "seek",
            Operation::Flush => "flush",
            Operation::Compaction => "compaction",
            Operation::Stall => "stall",
        }
    }
}

/// See the module.
pub(crate) struct Latencies {
    env: Arc<dyn Env>,
    /// One in so many of what memory may answer is timed; 0: none.
    every: u32,
    /// A random number of 32 bits below this one means that it is the one; 0: none is.
    below: u64,
    kept: [Kept; Operation::ALL.len()],
}

/// Of one kind of operation.
struct Kept {
    /// Of nanoseconds, less one: so a bucket's upper bound belongs to it.
    counts: AtomicHistogram,
    nanos: AtomicU64,
}

impl Latencies {
    /// One in `every` is timed (0: none) of what memory may answer. Where the time is not the machine's own, what the
    /// callers do is not timed at all: a look at a simulated clock moves it.
    pub fn new(env: &Arc<dyn Env>, every: u32) -> Latencies {
        let every = if env.is_system() { every } else { 0 };
        let below = (1u64 << 32).checked_div(every.into()).unwrap_or(0);
        Latencies { env: Arc::clone(env), every, below, kept: std::array::from_fn(|_| Kept::new()) }
    }

    /// Which time nothing.
    pub fn off() -> Arc<Latencies> {
        Arc::new(Latencies::new(&crate::SystemEnv::shared(), 0))
    }

    /// Does `f`, which memory may answer, and times it if it is the one in so many.
    #[inline]
    pub fn sample<R>(&self, what: Operation, f: impl FnOnce() -> R) -> R {
        if self.is_due() { self.sampled(what, f) } else { f() }
    }

    /// Does `f`, which is the one in so many, and times it.
    #[cold]
    #[inline(never)]
    pub fn sampled<R>(&self, what: Operation, f: impl FnOnce() -> R) -> R {
        self.time(what, self.every, f)
    }

    /// Whether to call [`Latencies::sampled`] instead of doing what memory may answer.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.below != 0 && u64::from(random()) < self.below
    }

    /// Does `f`, which waits for the device, and times it.
    #[inline(never)]
    pub fn always<R>(&self, what: Operation, f: impl FnOnce() -> R) -> R {
        if self.env.is_system() { self.time(what, 1, f) } else { f() }
    }

    fn time<R>(&self, what: Operation, weight: u32, f: impl FnOnce() -> R) -> R {
        let start = self.env.now();
        let r = f();
        self.record(what, self.env.now().saturating_sub(start), weight);
        r
    }

    /// Such an operation has taken so long, and counts for `weight`.
    pub fn record(&self, what: Operation, took: Duration, weight: u32) {
        let kept = &self.kept[what as usize];
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).min(MAX_NANOS);
        // In range: so it cannot fail.
        let _ = kept.counts.add(nanos.saturating_sub(1), weight.into());
        kept.nanos.fetch_add(nanos.saturating_mul(weight.into()), Relaxed);
    }

    /// What was timed, operation by operation; those that were not are left out.
    pub fn tell(&self) -> Vec<OperationLatency> {
        Operation::ALL.into_iter().filter_map(|what| self.kept[what as usize].tell(what)).collect()
    }

    /// All operations, for metrics.
    pub fn cumulative(&self) -> Vec<Cumulative> {
        Operation::ALL.into_iter().map(|what| self.kept[what as usize].cumulative(what)).collect()
    }
}

/// A kind of operation, for metrics.
#[derive(Debug)]
pub(crate) struct Cumulative {
    pub operation: &'static str,
    /// How many took at most so many nanoseconds, which ascend.
    pub up_to: Vec<(u64, u64)>,
    pub count: u64,
    pub total_ns: u64,
}

impl Kept {
    fn cumulative(&self, what: Operation) -> Cumulative {
        let counts = self.counts.load();
        let mut buckets = counts.into_iter().peekable();
        let mut count = 0;
        let mut up_to = Vec::new();
        for power in what.bounds() {
            // Powers of two are bounds of buckets.
            while let Some(b) = buckets.next_if(|b| b.end() < 1 << power) {
                count += b.count();
            }
            up_to.push((1 << power, count));
        }
        count += buckets.map(|b| b.count()).sum::<u64>();
        Cumulative { operation: what.name(), up_to, count, total_ns: self.nanos.load(Relaxed) }
    }

    fn new() -> Kept {
        let counts = AtomicHistogram::new(GROUPING_POWER, MAX_POWER);
        Kept { counts: counts.expect("powers that a histogram can have"), nanos: AtomicU64::new(0) }
    }

    fn tell(&self, what: Operation) -> Option<OperationLatency> {
        let counts = self.counts.load();
        let buckets = || counts.into_iter().filter(|b| b.count() > 0);
        let count: u64 = buckets().map(|b| b.count()).sum();
        (count > 0).then(|| OperationLatency {
            operation: what.name(),
            count,
            total_ns: self.nanos.load(Relaxed),
            p50_ns: percentile(&counts, count, 0.5),
            p90_ns: percentile(&counts, count, 0.9),
            p99_ns: percentile(&counts, count, 0.99),
            p999_ns: percentile(&counts, count, 0.999),
            max_ns: buckets().last().map_or(0, |b| b.end() + 1),
        })
    }
}

/// The upper bound of the bucket that a share `p` of the operations did not exceed.
fn percentile(counts: &Histogram, count: u64, p: f64) -> u64 {
    let want = ((count as f64 * p).ceil() as u64).max(1);
    let mut seen = 0;
    let mut reached = counts.into_iter().filter(|b| {
        seen += b.count();
        seen >= want
    });
    reached.next().map_or(0, |b| b.end() + 1)
}

thread_local! {
    /// Of the thread's generator; 0 before its first number.
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// Where a thread's generator begins: each somewhere else, or threads that end after a few calls would all draw the
/// same, and none of them, or each, would be timed.
#[cold]
fn first_state() -> u64 {
    // Not the store's atomics: it orders nothing, and Shuttle's do not outlive a run.
    static THREADS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    (THREADS.fetch_add(1, Relaxed) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// A random number of the calling thread's: the upper half of a linear congruential generator (Knuth's MMIX).
#[inline]
fn random() -> u32 {
    STATE.with(|state| {
        let now = if state.get() == 0 { first_state() } else { state.get() };
        let next = now.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.set(next);
        (next >> 32) as u32
    })
}

/// Times the seeks of an iterator or cursor, of which one in so many is timed.
#[derive(Default)]
pub(crate) struct Seeks(Option<Arc<Latencies>>);

impl Seeks {
    pub fn new(latencies: &Arc<Latencies>) -> Seeks {
        Seeks(Some(Arc::clone(latencies)))
    }

    /// When a seek begins, if it is timed; for [`Seeks::end`].
    #[inline]
    pub fn begin(&self) -> Option<Duration> {
        self.0.as_ref().filter(|l| l.is_due()).map(|l| l.env.now())
    }

    /// What began then has ended.
    #[inline]
    pub fn end(&self, began: Option<Duration>) {
        if let (Some(l), Some(began)) = (&self.0, began) {
            l.record(Operation::Seek, l.env.now().saturating_sub(began), l.every);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemEnv;

    fn of(l: &Latencies, name: &str) -> Option<OperationLatency> {
        l.tell().into_iter().find(|o| o.operation == name)
    }

    #[test]
    fn percentiles_are_right_to_three_percent() {
        let l = Latencies::new(&SystemEnv::shared(), 0);
        for micros in 1..=10_000 {
            l.record(Operation::Flush, Duration::from_micros(micros), 1);
        }
        let flush = of(&l, "flush").expect("it was timed");
        assert_eq!((flush.count, flush.total_ns), (10_000, 50_005_000_000));
        for (is, should) in [
            (flush.p50_ns, 5_000_000),
            (flush.p90_ns, 9_000_000),
            (flush.p99_ns, 9_900_000),
            (flush.p999_ns, 9_990_000),
            (flush.max_ns, 10_000_000),
        ] {
            assert!(is >= should && is as f64 <= should as f64 * 1.032, "{is} for {should}");
        }
        assert!(of(&l, "get").is_none());
    }

    #[test]
    fn the_shortest_and_the_longest_have_their_place() {
        let l = Latencies::new(&SystemEnv::shared(), 0);
        l.record(Operation::Stall, Duration::ZERO, 1);
        l.record(Operation::Stall, Duration::from_nanos(1), 1);
        assert_eq!(of(&l, "stall").map(|s| (s.count, s.p50_ns, s.max_ns)), Some((2, 1, 1)));
        l.record(Operation::Stall, Duration::MAX, u32::MAX);
        assert_eq!(of(&l, "stall").map(|s| s.max_ns), Some(1 << MAX_POWER));
    }

    #[test]
    fn bounds_belong_to_what_is_below_them() {
        let l = Latencies::new(&SystemEnv::shared(), 0);
        for nanos in [0, 255, 256, 257, 512, 1 << 33, (1 << 34) + 1] {
            l.record(Operation::Get, Duration::from_nanos(nanos), 1);
        }
        let get = l.cumulative().swap_remove(0);
        assert_eq!((get.operation, get.count), ("get", 7));
        let of = |nanos| get.up_to.iter().find(|(n, _)| *n == nanos).map(|(_, count)| *count);
        assert_eq!((of(256), of(512), of(1024)), (Some(3), Some(5), Some(5)));
        assert_eq!((of(1 << 33), of(1 << 34), get.up_to.len()), (Some(6), Some(6), 27));
        assert_eq!(l.cumulative()[Operation::Flush as usize].up_to[0], (1 << 20, 0));
    }

    #[test]
    fn who_is_sampled_counts_for_as_many() {
        let l = Latencies::new(&SystemEnv::shared(), 16);
        for _ in 0..100_000 {
            l.sample(Operation::Get, || ());
        }
        let count = of(&l, "get").expect("some were timed").count;
        assert!(count.is_multiple_of(16) && (90_000..110_000).contains(&count), "{count}");
    }

    #[test]
    fn threads_of_a_few_calls_are_sampled_too() {
        let l = Latencies::new(&SystemEnv::shared(), 16);
        for _ in 0..800 {
            std::thread::scope(|s| _ = s.spawn(|| (0..4).for_each(|_| l.sample(Operation::Get, || ()))));
        }
        let count = of(&l, "get").expect("some were timed").count;
        assert!((2000..4600).contains(&count), "{count} of 3200");
    }

    #[test]
    fn none_or_all() {
        for (every, count) in [(0, None), (1, Some(1000))] {
            let l = Latencies::new(&SystemEnv::shared(), every);
            for _ in 0..1000 {
                l.sample(Operation::Write, || ());
            }
            assert_eq!(of(&l, "write").map(|w| w.count), count);
            let seeks = Seeks::new(&Arc::new(l));
            seeks.end(seeks.begin());
            let timed = seeks.0.as_ref().and_then(|l| of(l, "seek"));
            assert_eq!(timed.map(|s| s.count), (every > 0).then_some(1));
        }
        assert!(Seeks::default().begin().is_none());
        let l = Latencies::new(&SystemEnv::shared(), 0);
        l.always(Operation::SyncWrite, || ());
        assert_eq!(of(&l, "sync_write").map(|w| w.count), Some(1));
    }
}
