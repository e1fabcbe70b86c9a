//! Results: a row for each engine and cell, over all of its rounds; as JSON, CSV and a table.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::job::histogram;
use super::run::{Sample, Spec};
use crate::error::{Failure, Result};
use crate::out::{human_bytes, human_count, table};

/// Latencies in microseconds, of whole requests, from submission to the moment that they were reaped.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Latency {
    /// The mean.
    pub avg: f64,
    /// The median.
    pub p50: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
}

impl Latency {
    /// Of nanoseconds.
    pub fn of(h: &Histogram<u64>) -> Latency {
        let p = |q: f64| h.value_at_quantile(q) as f64 / 1e3;
        Latency {
            avg: h.mean() / 1e3,
            p50: p(0.5),
            p95: p(0.95),
            p99: p(0.99),
            p99_9: p(0.999),
            max: h.max() as f64 / 1e3,
        }
    }
}

/// A difference in percent: the median of the rounds, and its spread.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub struct Difference {
    /// The median of the rounds' differences.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Difference {
    /// Of `a` over `b`, round by round.
    pub fn between(a: &[f64], b: &[f64]) -> Difference {
        let each: Vec<f64> = a.iter().zip(b).map(|(a, b)| (a / b - 1.0) * 100.0).collect();
        let (min, median, max) = spread(&each);
        Difference { median, min, max }
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:+.1} % ({:+.1} to {:+.1})", self.median, self.min, self.max)
    }
}

/// Smallest, median, largest.
pub fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    let at = |i: usize| v.get(i).copied().unwrap_or(0.0);
    let n = v.len();
    let median =
        if n.is_multiple_of(2) { (at((n / 2).saturating_sub(1)) + at(n / 2)) / 2.0 } else { at(n / 2) };
    (at(0), median, at(n.saturating_sub(1)))
}

/// One engine in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The engine's URI as it was given.
    pub io: String,
    /// The engine that this turned out to be.
    pub engine: String,
    /// Threads.
    pub numjobs: u32,
    /// Requests in flight of each.
    pub iodepth: u32,
    /// Bytes of a request.
    pub block_size_bytes: u64,
    /// What was done.
    pub mode: &'static str,
    /// Reads among the requests, in percent.
    pub read_percent: u8,
    /// Whether buffers were registered.
    pub fixed_buffers: bool,
    /// Whether files were registered.
    pub fixed_files: bool,
    /// Whether the page cache was bypassed.
    pub direct: bool,
    /// Requests submitted and awaited together.
    pub batch: u32,
    /// Microseconds that a job computed before each submission.
    pub think_us: u64,
    /// Bytes of the file that were used.
    pub size_bytes: u64,
    /// Whole requests per second: the median of the rounds.
    pub rps: f64,
    /// Whole requests per second in each round.
    pub rps_rounds: Vec<f64>,
    /// Bytes per second, those of short requests included: the mean of the rounds.
    pub bw_bytes: f64,
    /// Whole requests, all rounds together.
    pub ops: u64,
    /// Requests that transferred less than asked for (they count in bw_bytes, not in rps).
    pub short_ios: u64,
    /// Seconds measured, all rounds together.
    pub seconds: f64,
    /// CPU seconds of the process in that time, kernel workers included.
    pub cpu_s: f64,
    /// CPU time per whole request in microseconds.
    pub cpu_us_per_op: f64,
    /// Times that a thread waited.
    pub voluntary_switches: u64,
    /// Times that a thread was displaced.
    pub involuntary_switches: u64,
    /// The engine's system calls that submitted or waited (0 on posix, whose every request is one).
    pub submit_calls: u64,
    /// Requests known to be handed to kernel workers.
    pub punted: u64,
    /// Requests whose buffer was registered with the kernel; writes through the page cache never are.
    pub registered: u64,
    /// Latencies.
    pub latency_us: Latency,
    /// Against the same cell without registered buffers, in percent of the requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against_plain_percent: Option<Difference>,
}

impl Row {
    /// From the rounds of a cell.
    pub fn new(
        io: &str,
        engine: &str,
        fixed: (bool, bool),
        spec: &Spec<'_>,
        rounds: &[Sample],
    ) -> Result<Row> {
        let mut latency = histogram()?;
        for r in rounds {
            latency.add(&r.latency).map_err(|e| Failure::Failed(e.to_string()))?;
        }
        let sum = |f: fn(&Sample) -> u64| rounds.iter().map(f).sum::<u64>();
        let sum_f = |f: fn(&Sample) -> f64| rounds.iter().map(f).sum::<f64>();
        let rps_rounds: Vec<f64> = rounds.iter().map(Sample::rps).collect();
        let (ops, seconds, cpu_s) = (sum(|r| r.ops), sum_f(|r| r.seconds), sum_f(|r| r.cpu_s));
        let read_percent = match spec.mode.writes() {
            false => 100,
            true if spec.mode == super::args::Mode::Randrw => spec.read_percent,
            true => 0,
        };
        Ok(Row {
            io: io.into(),
            engine: engine.into(),
            numjobs: spec.jobs,
            iodepth: spec.depth,
            block_size_bytes: spec.bs,
            mode: spec.mode.name(),
            read_percent,
            fixed_buffers: fixed.0,
            fixed_files: fixed.1,
            direct: spec.direct,
            batch: spec.batch.min(spec.depth),
            think_us: spec.think.as_micros() as u64,
            size_bytes: spec.size,
            rps: spread(&rps_rounds).1,
            rps_rounds,
            bw_bytes: sum(|r| r.bytes) as f64 / seconds,
            ops,
            short_ios: sum(|r| r.short),
            seconds,
            cpu_s,
            cpu_us_per_op: cpu_s * 1e6 / ops.max(1) as f64,
            voluntary_switches: sum(|r| r.voluntary),
            involuntary_switches: sum(|r| r.involuntary),
            submit_calls: sum(|r| r.enters),
            punted: sum(|r| r.punted),
            registered: sum(|r| r.registered),
            latency_us: Latency::of(&latency),
            against_plain_percent: None,
        })
    }
}

fn micros(x: f64) -> String {
    if x < 100.0 { format!("{x:.1}") } else { format!("{x:.0}") }
}

/// The rows as a table.
pub fn rows_table(rows: &[Row]) -> String {
    let mut header = vec!["io", "mode", "jobs", "depth", "fixed", "IOPS", "min", "max", "MiB/s"];
    header.extend(["avg us", "p50", "p95", "p99", "p99.9", "CPU us/op", "switches/op", "short"]);
    let compared = rows.iter().any(|r| r.against_plain_percent.is_some());
    if compared {
        header.push("registered buffers give");
    }
    let line = |r: &Row| {
        let (min, median, max) = spread(&r.rps_rounds);
        let count = |x: f64| human_count(x as u64);
        let fixed = match (r.fixed_buffers, r.fixed_files) {
            (false, false) => "-",
            (true, false) => "buffers",
            (false, true) => "files",
            (true, true) => "both",
        };
        let l = &r.latency_us;
        let switches = (r.voluntary_switches + r.involuntary_switches) as f64 / r.ops.max(1) as f64;
        let mut cells =
            vec![r.io.clone(), r.mode.into(), r.numjobs.to_string(), r.iodepth.to_string(), fixed.into()];
        cells.extend([count(median), count(min), count(max), format!("{:.1}", r.bw_bytes / 1048576.0)]);
        cells.extend([l.avg, l.p50, l.p95, l.p99, l.p99_9].map(micros));
        cells.extend([format!("{:.2}", r.cpu_us_per_op), format!("{switches:.2}"), human_count(r.short_ios)]);
        if compared {
            cells.push(r.against_plain_percent.map_or(String::new(), |d| d.to_string()));
        }
        cells
    };
    let lines: Vec<Vec<String>> = rows.iter().map(line).collect();
    let mut s = String::new();
    if let Some(r) = rows.first() {
        let how = if r.direct { "direct" } else { "through the page cache" };
        let rounds = r.rps_rounds.len();
        s = format!(
            "requests of {}, {how}, {} of the file; {rounds} rounds of {:.1} s, in turn\n",
            human_bytes(r.block_size_bytes),
            human_bytes(r.size_bytes),
            r.seconds / rounds.max(1) as f64
        );
    }
    s + &table(&header, &lines, 2)
}

/// The columns of [`rows_csv`].
const COLUMNS: [&str; 33] = [
    "io",
    "engine",
    "numjobs",
    "iodepth",
    "block_size_bytes",
    "mode",
    "read_percent",
    "fixed_buffers",
    "fixed_files",
    "direct",
    "batch",
    "size_bytes",
    "rps",
    "rps_min",
    "rps_max",
    "bw_bytes",
    "ops",
    "short_ios",
    "seconds",
    "cpu_s",
    "cpu_us_per_op",
    "voluntary_switches",
    "involuntary_switches",
    "submit_calls",
    "punted",
    "registered",
    "avg_us",
    "p50_us",
    "p95_us",
    "p99_us",
    "p99_9_us",
    "max_us",
    "against_plain_percent",
];

/// The rows as CSV with a header line.
pub fn rows_csv(rows: &[Row]) -> Result<Vec<u8>> {
    let mut w = csv::Writer::from_writer(Vec::new());
    let failed = |e: csv::Error| Failure::Failed(e.to_string());
    w.write_record(COLUMNS).map_err(failed)?;
    for r in rows {
        let (min, median, max) = spread(&r.rps_rounds);
        let l = &r.latency_us;
        w.serialize((
            (
                &r.io,
                &r.engine,
                r.numjobs,
                r.iodepth,
                r.block_size_bytes,
                r.mode,
                r.read_percent,
                r.fixed_buffers,
            ),
            (
                r.fixed_files,
                r.direct,
                r.batch,
                r.size_bytes,
                median,
                min,
                max,
                r.bw_bytes,
                r.ops,
                r.short_ios,
            ),
            (
                r.seconds,
                r.cpu_s,
                r.cpu_us_per_op,
                r.voluntary_switches,
                r.involuntary_switches,
                r.submit_calls,
            ),
            (
                r.punted,
                r.registered,
                l.avg,
                l.p50,
                l.p95,
                l.p99,
                l.p99_9,
                l.max,
                r.against_plain_percent.map(|d| d.median),
            ),
        ))
        .map_err(failed)?;
    }
    w.into_inner().map_err(|e| Failure::Failed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_and_differences() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), (1.0, 2.0, 3.0));
        assert_eq!(spread(&[4.0, 1.0]), (1.0, 2.5, 4.0));
        let d = Difference::between(&[110.0, 90.0, 100.0], &[100.0, 100.0, 100.0]);
        assert_eq!(d.to_string(), "+0.0 % (-10.0 to +10.0)");
    }

    #[test]
    fn latencies_are_microseconds() {
        let mut h = histogram().unwrap();
        for n in 1..=1000u64 {
            h.record(n * 1000).unwrap();
        }
        let l = Latency::of(&h);
        for (have, want) in [(l.p50, 500.0), (l.p95, 950.0), (l.p99, 990.0), (l.p99_9, 999.0), (l.avg, 500.5)]
        {
            assert!((have - want).abs() / want < 0.01, "{have} for {want}");
        }
    }
}
