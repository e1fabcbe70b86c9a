//! The loop around every workload: threads, an end by count or by time, pacing, latencies.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::ProgressBar;

use crate::error::{Failure, Result, failed};

/// One client thread's work.
pub trait Worker: Send {
    /// Makes one call of the store for at most `most` operations. Gives the number done, 0 when nothing is left.
    fn step(&mut self, most: u64) -> Result<u64>;

    /// Whether a step's time is shared among its operations (rows of a scan) instead of being the latency of
    /// one call.
    fn shares_time(&self) -> bool {
        false
    }
}

/// How to run workers.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Client threads.
    pub threads: usize,
    /// Operations of all threads together.
    pub ops: Option<u64>,
    /// An end by time.
    pub duration: Option<Duration>,
    /// Operations a second that are started whatever the store does.
    pub rate: Option<f64>,
    /// One call of so many is timed.
    pub sample: u32,
}

/// What came of it.
pub struct Outcome {
    /// Operations done.
    pub ops: u64,
    /// Wall time, from the start of the first thread to the end of the last.
    pub seconds: f64,
    /// Latencies in nanoseconds.
    pub latencies: Histogram<u64>,
}

/// Latencies up to an hour, to three digits.
pub fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).map_err(|e| Failure::Failed(e.to_string()))
}

/// Runs one worker per thread until its share of the operations is done, the time is up, nothing is left, or one
/// fails. The workers come back for what they have counted.
pub fn drive<W: Worker>(plan: &Plan, mut workers: Vec<W>, bar: &ProgressBar) -> Result<(Outcome, Vec<W>)> {
    let n = workers.len() as u64;
    let share = |i: u64| plan.ops.map_or(u64::MAX, |ops| ops / n + u64::from(i < ops % n));
    let barrier = Barrier::new(workers.len());
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let mut results = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .enumerate()
            .map(|(i, w)| {
                let client = Client { plan, index: i, share: share(i as u64), stop: &stop, done: &done, bar };
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let r = client.run(w);
                    if r.is_err() {
                        client.stop.store(true, Relaxed);
                    }
                    r
                })
            })
            .collect();
        results.extend(threads.into_iter().map(|t| t.join()));
    });
    let mut out = Outcome { ops: 0, seconds: 0.0, latencies: histogram()? };
    let mut wall: Option<(Instant, Instant)> = None;
    for r in results {
        let Ok(r) = r else { return failed("a client thread panicked") };
        let (ops, (began, ended), latencies) = r?;
        out.ops += ops;
        wall = Some(wall.map_or((began, ended), |(b, e)| (b.min(began), e.max(ended))));
        out.latencies.add(&latencies).map_err(|e| Failure::Failed(e.to_string()))?;
    }
    out.seconds = wall.map_or(0.0, |(b, e)| (e - b).as_secs_f64());
    Ok((out, workers))
}

struct Client<'a> {
    plan: &'a Plan,
    index: usize,
    share: u64,
    stop: &'a AtomicBool,
    done: &'a AtomicU64,
    bar: &'a ProgressBar,
}

impl Client<'_> {
    fn run<W: Worker>(&self, worker: &mut W) -> Result<(u64, (Instant, Instant), Histogram<u64>)> {
        let mut latencies = histogram()?;
        let shares_time = worker.shares_time();
        // Time between the starts of two operations of this thread; the threads' starts lie between each other.
        let gap = self.plan.rate.map(|r| Duration::from_secs_f64(self.plan.threads as f64 / r));
        let start = Instant::now();
        let deadline = self.plan.duration.map(|d| start + d);
        let mut last = start;
        let mut drawn = start;
        let mut reported = 0;
        let (mut ops, mut calls) = (0u64, 0u64);
        while ops < self.share && !self.stop.load(Relaxed) {
            let timed = calls.is_multiple_of(u64::from(self.plan.sample));
            if let Some(gap) = gap {
                let first = gap.mul_f64(self.index as f64 / self.plan.threads as f64);
                last = start + first + gap.mul_f64(ops as f64);
                if deadline.is_some_and(|d| last >= d) {
                    break;
                }
                wait_until(last);
            } else if timed && self.plan.sample > 1 {
                last = Instant::now();
            }
            let n = worker.step(self.share - ops)?;
            if n == 0 {
                break;
            }
            ops += n;
            calls += 1;
            if !timed {
                continue;
            }
            // One clock reading per call: the end of a call is the start of the next.
            let now = Instant::now();
            let nanos = now.saturating_duration_since(last).as_nanos() as u64;
            if shares_time {
                latencies.saturating_record_n((nanos / n).max(1), n);
            } else {
                latencies.saturating_record(nanos.max(1));
            }
            last = now;
            if deadline.is_some_and(|d| now >= d) {
                break;
            }
            if now - drawn > Duration::from_millis(100) {
                drawn = now;
                self.done.fetch_add(ops - reported, Relaxed);
                reported = ops;
                if self.index == 0 {
                    self.bar.set_position(self.done.load(Relaxed));
                }
            }
        }
        Ok((ops, (start, Instant::now()), latencies))
    }
}

/// Sleeps for most of the time and spins for the rest: sleeping alone would be late by the timer's slack.
fn wait_until(at: Instant) {
    const SLACK: Duration = Duration::from_micros(150);
    loop {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > SLACK {
            std::thread::sleep(left - SLACK);
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counter {
        left: u64,
        steps: u64,
        fails: bool,
    }

    impl Worker for Counter {
        fn step(&mut self, most: u64) -> Result<u64> {
            if self.fails && self.steps == 3 {
                return failed("as asked");
            }
            self.steps += 1;
            let n = most.min(4).min(self.left);
            self.left -= n;
            Ok(n)
        }
    }

    fn counters(n: usize, left: u64, fails: bool) -> Vec<Counter> {
        (0..n).map(|i| Counter { left, steps: 0, fails: fails && i == 0 }).collect()
    }

    fn plan(threads: usize, ops: Option<u64>) -> Plan {
        Plan { threads, ops, duration: None, rate: None, sample: 1 }
    }

    #[test]
    fn operations_are_shared_out_exactly() {
        let bar = ProgressBar::hidden();
        for (threads, ops) in [(1, 10), (3, 10), (4, 3)] {
            let (out, w) = drive(&plan(threads, Some(ops)), counters(threads, 1000, false), &bar).unwrap();
            assert_eq!(out.ops, ops);
            assert_eq!(out.latencies.len(), w.iter().map(|w| w.steps).sum::<u64>());
        }
        let (out, _) = drive(&plan(2, None), counters(2, 7, false), &bar).unwrap();
        assert_eq!(out.ops, 14);
    }

    #[test]
    fn a_failure_ends_the_run() {
        let r = drive(&plan(3, None), counters(3, u64::MAX, true), &ProgressBar::hidden());
        assert!(matches!(r, Err(Failure::Failed(m)) if m == "as asked"));
    }

    #[test]
    fn pacing_and_time_limits_hold() {
        let bar = ProgressBar::hidden();
        let p = Plan { rate: Some(1000.0), ..plan(2, Some(40)) };
        let (out, _) = drive(&p, counters(2, 1000, false), &bar).unwrap();
        assert!(out.seconds >= 0.015, "{}", out.seconds);
        let p = Plan { duration: Some(Duration::from_millis(20)), ..plan(1, None) };
        let (out, _) = drive(&p, counters(1, u64::MAX, false), &bar).unwrap();
        assert!(out.seconds >= 0.02 && out.ops > 0);
        let p = Plan { sample: 10, ..plan(1, Some(400)) };
        let (out, _) = drive(&p, counters(1, 1000, false), &bar).unwrap();
        assert_eq!(out.latencies.len(), 10);
    }
}
