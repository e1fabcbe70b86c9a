//! Counters and latency histograms per operation and purpose: always on, cheap, and never exact to the
//! instant (a snapshot reads the counters one after the other).
//!
//! Counters are striped by thread; a stripe's cell for an operation and purpose is made at its first use.
//! Latencies go into buckets of a quarter of an octave, so that a percentile is right to about 20 %.

mod tally;

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub(crate) use self::tally::Tally;
use crate::kind::{OpKind, Purpose};

const STRIPES: usize = 16;
const BUCKETS: usize = 160;

/// The kinds of operation that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpClass {
    /// Reads.
    Read,
    /// Writes, durable ones included.
    Write,
    /// fsync and fdatasync.
    Sync,
    /// sync_file_range.
    SyncRange,
    /// fallocate.
    Allocate,
}

impl OpClass {
    /// How many there are.
    pub const COUNT: usize = 5;
    /// All of them.
    pub const ALL: [OpClass; OpClass::COUNT] =
        [OpClass::Read, OpClass::Write, OpClass::Sync, OpClass::SyncRange, OpClass::Allocate];

    pub(crate) fn of(kind: OpKind) -> OpClass {
        match kind {
            OpKind::Read => OpClass::Read,
            OpKind::Write { .. } => OpClass::Write,
            OpKind::SyncAll | OpKind::SyncData => OpClass::Sync,
            OpKind::SyncRange | OpKind::StartWriteBack { .. } => OpClass::SyncRange,
            OpKind::Allocate => OpClass::Allocate,
        }
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            OpClass::Read => "read",
            OpClass::Write => "write",
            OpClass::Sync => "sync",
            OpClass::SyncRange => "sync_range",
            OpClass::Allocate => "allocate",
        }
    }
}

struct Cell {
    bytes: AtomicU64,
    errors: AtomicU64,
    nanos: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Cell {
    fn new() -> Box<Cell> {
        Box::new(Cell {
            bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        })
    }
}

/// What is counted beside operations; see the fields of [`IoStats`].
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    QueueOps,
    QueueNanos,
    QueueBusyNanos,
    SubmitCalls,
    Punted,
    Inline,
    Fallbacks,
    Fixed,
    FixedFiles,
    Chosen,
    Bounced,
}

const COUNTERS: usize = Counter::Bounced as usize + 1;

#[repr(align(128))]
struct Stripe {
    cells: [OnceLock<Box<Cell>>; OpClass::COUNT * Purpose::COUNT],
    counters: [AtomicU64; COUNTERS],
}

impl Stripe {
    fn new() -> Stripe {
        Stripe {
            cells: [const { OnceLock::new() }; OpClass::COUNT * Purpose::COUNT],
            counters: [const { AtomicU64::new(0) }; COUNTERS],
        }
    }
}

/// The live counters of one engine.
pub(crate) struct Stats {
    /// The engine's name, for the probes.
    engine: &'static CStr,
    start: Instant,
    stripes: Box<[Stripe]>,
}

fn stripe_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Relaxed) % STRIPES;
    }
    MINE.try_with(|s| *s).unwrap_or(0)
}

fn bucket(nanos: u64) -> usize {
    if nanos < 4 {
        return nanos as usize;
    }
    let exp = 63 - nanos.leading_zeros() as usize;
    let quarter = (nanos >> (exp - 2)) as usize & 3;
    ((exp - 1) * 4 + quarter).min(BUCKETS - 1)
}

/// The middle of a bucket.
fn bucket_value(i: usize) -> u64 {
    if i < 4 {
        return i as u64;
    }
    let exp = i / 4 + 1;
    let low = (4 + (i as u64 & 3)) << (exp - 2);
    low + (1u64 << (exp - 2)) / 2
}

impl Stats {
    pub(crate) fn new(engine: &'static CStr) -> Stats {
        Stats { engine, start: Instant::now(), stripes: (0..STRIPES).map(|_| Stripe::new()).collect() }
    }

    pub(crate) fn engine(&self) -> &'static CStr {
        self.engine
    }

    /// Nanoseconds since the engine was opened.
    pub(crate) fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn stripe(&self) -> &Stripe {
        &self.stripes[stripe_of_thread()]
    }

    fn cell_of(class: OpClass, purpose: Purpose) -> usize {
        class as usize * Purpose::COUNT + (purpose.0 as usize).min(Purpose::COUNT - 1)
    }

    fn cell(&self, of: usize) -> &Cell {
        self.stripe().cells[of].get_or_init(Cell::new)
    }

    /// Counts one finished operation.
    pub(crate) fn record(&self, class: OpClass, purpose: Purpose, bytes: u64, ok: bool, nanos: u64) {
        let cell = self.cell(Stats::cell_of(class, purpose));
        cell.buckets[bucket(nanos)].fetch_add(1, Relaxed);
        cell.nanos.fetch_add(nanos, Relaxed);
        if ok {
            cell.bytes.fetch_add(bytes, Relaxed);
        } else {
            cell.errors.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn add(&self, counter: Counter, n: u64) {
        self.stripe().counters[counter as usize].fetch_add(n, Relaxed);
    }

    /// Counts `ops` operations of a queue that were in flight for `nanos` in sum.
    pub(crate) fn queued(&self, ops: u64, nanos: u64) {
        let s = self.stripe();
        s.counters[Counter::QueueOps as usize].fetch_add(ops, Relaxed);
        s.counters[Counter::QueueNanos as usize].fetch_add(nanos, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> IoStats {
        let at = self.start.elapsed();
        let (mut cells, mut counts) = (no_cells(), [0; COUNTERS]);
        for s in self.stripes.iter() {
            for (o, cell) in cells.iter_mut().zip(&s.cells) {
                let Some(cell) = cell.get() else { continue };
                o.bytes += cell.bytes.load(Relaxed);
                o.errors += cell.errors.load(Relaxed);
                o.nanos += cell.nanos.load(Relaxed);
                o.add_buckets(cell.buckets.iter().map(|b| b.load(Relaxed)));
            }
            for (sum, n) in counts.iter_mut().zip(&s.counters) {
                *sum += n.load(Relaxed);
            }
        }
        IoStats::new(cells, at, at, counts)
    }
}

/// What is known of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpStats {
    /// Operations finished, failed ones included.
    pub ops: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    nanos: u64,
    buckets: Vec<u64>,
}

impl OpStats {
    /// The sum of the operations' latencies: the time integral of how many were in flight. Of lone transfers of up to
    /// 16 KiB through the page cache one in eight is timed.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// The mean latency; zero without operations.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.nanos.checked_div(self.ops).unwrap_or(0))
    }

    /// The latency that a share `p` (0 to 1) of the operations did not exceed, to about 20 %.
    pub fn percentile(&self, p: f64) -> Duration {
        let want = ((self.ops as f64 * p.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        for (i, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= want {
                return Duration::from_nanos(bucket_value(i));
            }
        }
        Duration::ZERO
    }

    fn add_buckets(&mut self, b: impl Iterator<Item = u64>) {
        self.buckets.resize(BUCKETS, 0);
        for (mine, n) in self.buckets.iter_mut().zip(b) {
            *mine += n;
            self.ops += n;
        }
    }

    fn add(&mut self, o: &OpStats) {
        self.bytes += o.bytes;
        self.errors += o.errors;
        self.nanos += o.nanos;
        self.add_buckets(o.buckets.iter().copied());
    }

    fn since(&self, earlier: &OpStats) -> OpStats {
        let mut out = OpStats {
            ops: 0,
            bytes: self.bytes.saturating_sub(earlier.bytes),
            errors: self.errors.saturating_sub(earlier.errors),
            nanos: self.nanos.saturating_sub(earlier.nanos),
            buckets: Vec::new(),
        };
        let old = earlier.buckets.iter().copied().chain(std::iter::repeat(0));
        out.add_buckets(self.buckets.iter().zip(old).map(|(a, b)| a.saturating_sub(b)));
        out
    }
}

/// A snapshot of an engine's counters; [`IoStats::since`] gives what happened between two of them.
#[derive(Clone, Debug)]
pub struct IoStats {
    cells: Vec<OpStats>,
    at: Duration,
    elapsed: Duration,
    /// Operations that went through a queue (lone operations are plain system calls).
    pub queue_ops: u64,
    /// The sum of the times that these were in flight, from their submission until they were reaped.
    pub queue_time: Duration,
    /// The sum over queues of the time that at least one of its operations was in flight.
    pub queue_busy: Duration,
    /// System calls that submitted or waited (0 on posix).
    pub submit_calls: u64,
    /// Operations known to be handed to a worker thread of the kernel.
    pub punted: u64,
    /// Operations of a queue that were done as plain system calls at submission (buffered writes, unaligned
    /// direct transfers).
    pub inline: u64,
    /// Batches done one by one because a thread could not have a queue of its own (out of memory or
    /// descriptors).
    pub fallbacks: u64,
    /// Requests that went to registered buffers.
    pub fixed: u64,
    /// Requests on registered files.
    pub fixed_files: u64,
    /// Requests for which the kernel was to choose a buffer of a pool.
    pub chosen: u64,
    /// Direct reads and writes that went through a bounce buffer because they were not aligned.
    pub bounced: u64,
}

fn no_cells() -> Vec<OpStats> {
    vec![OpStats::default(); OpClass::COUNT * Purpose::COUNT]
}

impl Default for IoStats {
    fn default() -> IoStats {
        IoStats::new(no_cells(), Duration::ZERO, Duration::ZERO, [0; COUNTERS])
    }
}

impl IoStats {
    fn new(cells: Vec<OpStats>, at: Duration, elapsed: Duration, counts: [u64; COUNTERS]) -> IoStats {
        // In the order of `Counter`, as in `counts`.
        let [queue_ops, queue_nanos, busy_nanos, submit_calls, counts @ ..] = counts;
        let [punted, inline, fallbacks, fixed, fixed_files, chosen, bounced] = counts;
        let (queue_time, queue_busy) = (Duration::from_nanos(queue_nanos), Duration::from_nanos(busy_nanos));
        IoStats {
            cells,
            at,
            elapsed,
            queue_ops,
            queue_time,
            queue_busy,
            submit_calls,
            punted,
            inline,
            fallbacks,
            fixed,
            fixed_files,
            chosen,
            bounced,
        }
    }

    fn counts(&self) -> [u64; COUNTERS] {
        [
            self.queue_ops,
            self.queue_time.as_nanos() as u64,
            self.queue_busy.as_nanos() as u64,
            self.submit_calls,
            self.punted,
            self.inline,
            self.fallbacks,
            self.fixed,
            self.fixed_files,
            self.chosen,
            self.bounced,
        ]
    }

    /// The time that these counters cover: since the engine was opened, or since the earlier snapshot.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// One kind of operation for one purpose.
    pub fn of(&self, class: OpClass, purpose: Purpose) -> &OpStats {
        &self.cells[Stats::cell_of(class, purpose)]
    }

    /// One kind of operation for all purposes.
    pub fn total(&self, class: OpClass) -> OpStats {
        let mut out = OpStats::default();
        for c in &self.cells[class as usize * Purpose::COUNT..][..Purpose::COUNT] {
            if c.ops > 0 {
                out.add(c);
            }
        }
        out
    }

    /// All reads.
    pub fn reads(&self) -> OpStats {
        self.total(OpClass::Read)
    }

    /// All writes.
    pub fn writes(&self) -> OpStats {
        self.total(OpClass::Write)
    }

    /// All fsyncs and fdatasyncs.
    pub fn syncs(&self) -> OpStats {
        self.total(OpClass::Sync)
    }

    /// Reads in flight, averaged over the elapsed time (a read reaped in bulk counts until it is reaped).
    pub fn average_reads_in_flight(&self) -> f64 {
        ratio(self.reads().time(), self.elapsed)
    }

    /// Operations in flight in a queue, averaged over the time that the queue was not empty.
    pub fn average_queue_depth(&self) -> f64 {
        ratio(self.queue_time, self.queue_busy)
    }

    /// What happened between `earlier` and this snapshot of the same engine.
    pub fn since(&self, earlier: &IoStats) -> IoStats {
        let cells = self.cells.iter().zip(&earlier.cells).map(|(a, b)| a.since(b)).collect();
        let mut counts = self.counts();
        for (n, before) in counts.iter_mut().zip(earlier.counts()) {
            *n = n.saturating_sub(before);
        }
        IoStats::new(cells, self.at, self.at.saturating_sub(earlier.at), counts)
    }
}

fn ratio(a: Duration, b: Duration) -> f64 {
    if b.is_zero() { 0.0 } else { a.as_nanos() as f64 / b.as_nanos() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_ordered_and_hold_their_values() {
        let mut last = 0;
        for n in (0..1u64 << 14).chain((14..45).flat_map(|e| [(1u64 << e) - 1, 1 << e, (1 << e) + 7])) {
            let b = bucket(n);
            assert!(b >= last, "{n} falls into {b}, before {last}");
            last = b;
            if b < BUCKETS - 1 && n >= 4 {
                let (mid, n) = (bucket_value(b) as f64, n as f64);
                assert!((mid - n).abs() / n <= 0.25, "bucket of {n} says {mid}");
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_and_differences() {
        let s = Stats::new(c"test");
        for _ in 0..90 {
            s.record(OpClass::Read, Purpose(1), 4096, true, 10_000);
        }
        let before = s.snapshot();
        for _ in 0..10 {
            s.record(OpClass::Read, Purpose(200), 4096, true, 1_000_000);
        }
        s.record(OpClass::Write, Purpose(0), 1, false, 5);
        let all = s.snapshot();
        let r = all.reads();
        assert_eq!((r.ops, r.bytes, r.errors), (100, 409_600, 0));
        let us = |p: f64| r.percentile(p).as_micros();
        assert!((8..=12).contains(&us(0.5)), "{}", us(0.5));
        assert!((800..=1200).contains(&us(0.95)), "{}", us(0.95));
        assert_eq!(all.of(OpClass::Read, Purpose(15)).ops, 10);
        let diff = all.since(&before);
        assert_eq!(diff.reads().ops, 10);
        assert_eq!(diff.reads().time(), Duration::from_millis(10));
        assert_eq!((diff.writes().ops, diff.writes().errors, diff.writes().bytes), (1, 1, 0));
        assert_eq!(diff.reads().percentile(0.01), diff.reads().percentile(0.99));
    }
}
