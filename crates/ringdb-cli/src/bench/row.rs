//! Results: one row per run, as JSON and as a table.

use serde::Serialize;

use super::source::Source;
use crate::out::{human_bytes, table};

/// The result of a run of one workload on one engine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// db_bench's name of the workload.
    pub workload: String,
    /// The engine's URI as it was given.
    pub io: String,
    /// The engine that this turned out to be.
    pub engine: String,
    /// Client threads.
    pub threads: usize,
    /// Keys in one call.
    pub batch_size: usize,
    /// Operations done: keys written, read or deleted; seeks; rows of a scan.
    pub ops: u64,
    /// Wall time.
    pub seconds: f64,
    /// Operations per second, all threads together.
    pub ops_per_s: f64,
    /// Latency of a call in microseconds, from its intended start with `--open-loop`: the median.
    pub p50_us: f64,
    /// The 95th percentile.
    pub p95_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Bytes read from the device for this process.
    pub device_read_bytes: u64,
    /// Bytes written to the device for this process.
    pub device_write_bytes: u64,
    /// Reads in flight on average over the wall time, as the engine counts them; a read counts until it is reaped.
    pub in_flight_avg: f64,
    /// CPU seconds of the process.
    pub cpu_s: f64,
    /// Operations in a queue of the engine on average, over the time in which it was not empty.
    pub queue_depth_avg: f64,
    /// Read requests that the device served.
    pub device_reads: Option<u64>,
    /// Write requests that the device served.
    pub device_writes: Option<u64>,
    /// Requests in the device's queue on average over the wall time.
    pub device_in_flight_avg: Option<f64>,
    /// Where what was read came from; `None` if the workload reads nothing.
    pub reads_from: Option<Source>,
    /// Bytes of files that gets and scans asked for: what the store's own cache did not have.
    pub file_read_bytes: u64,
    /// Whether tables were read past the page cache.
    pub direct_reads: bool,
    /// Keys found, of those asked for; `None` if nothing was asked for.
    pub found: Option<u64>,
    /// Operations of the writer beside the readers, in `readwhilewriting`.
    pub background_ops: u64,
    /// Which of the interleaved rounds, from 1.
    pub round: u32,
    /// Keys in the key space.
    pub num: u64,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Memory budget of the store.
    pub cache_bytes: u64,
    /// Durability of the store.
    pub durability: String,
    /// Compression of the store.
    pub compression: String,
    /// Operations asked for a second, in `--open-loop`.
    pub open_loop_rate: Option<f64>,
    /// Of the random numbers.
    pub seed: u64,
    /// Tasks that were the clients, if threads were not.
    pub async_tasks: Option<u32>,
}

fn micros(x: f64) -> String {
    match x {
        x if x < 10.0 => format!("{x:.2}"),
        x if x < 1000.0 => format!("{x:.1}"),
        x => format!("{x:.0}"),
    }
}

fn rate(x: f64) -> String {
    crate::out::human_count(x.round() as u64)
}

/// One line per run.
pub fn runs_table(rows: &[Row]) -> String {
    let header = [
        "workload",
        "io",
        "threads",
        "batch",
        "ops",
        "ops/s",
        "p50 us",
        "p95 us",
        "p99 us",
        "p99.9 us",
        "max us",
        "dev read",
        "dev write",
        "reads from",
        "in flight",
        "cpu s",
        "found",
    ];
    let cells = |r: &Row| {
        vec![
            r.workload.clone(),
            r.io.clone(),
            r.threads.to_string(),
            r.batch_size.to_string(),
            r.ops.to_string(),
            rate(r.ops_per_s),
            micros(r.p50_us),
            micros(r.p95_us),
            micros(r.p99_us),
            micros(r.p999_us),
            micros(r.max_us),
            human_bytes(r.device_read_bytes),
            human_bytes(r.device_write_bytes),
            r.reads_from.map_or("-", Source::name).into(),
            format!("{:.1}", r.in_flight_avg),
            format!("{:.2}", r.cpu_s),
            r.found.map_or("-".into(), |n| n.to_string()),
        ]
    };
    table(&header, &rows.iter().map(cells).collect::<Vec<_>>(), 2)
}

/// One line per workload: the median rate on each engine, and its ratio to the first engine's.
pub fn side_by_side(rows: &[Row]) -> String {
    let mut workloads: Vec<&str> = Vec::new();
    let mut engines: Vec<&str> = Vec::new();
    for r in rows {
        if !workloads.contains(&r.workload.as_str()) {
            workloads.push(&r.workload);
        }
        if !engines.contains(&r.io.as_str()) {
            engines.push(&r.io);
        }
    }
    let median = |workload: &str, io: &str| {
        let mut v: Vec<f64> =
            rows.iter().filter(|r| r.workload == workload && r.io == io).map(|r| r.ops_per_s).collect();
        v.sort_by(f64::total_cmp);
        let half = v.len() / 2;
        match v.len() {
            0 => None,
            n if n % 2 == 1 => Some(v[half]),
            _ => Some((v[half - 1] + v[half]) / 2.0),
        }
    };
    let mut header = vec!["ops/s (median)".to_string()];
    for (i, io) in engines.iter().enumerate() {
        header.push((*io).to_string());
        if i > 0 {
            header.push("ratio".into());
        }
    }
    let lines: Vec<Vec<String>> = workloads
        .iter()
        .map(|w| {
            let base = engines.first().and_then(|io| median(w, io));
            let mut line = vec![(*w).to_string()];
            for (i, io) in engines.iter().enumerate() {
                let m = median(w, io);
                line.push(m.map_or("-".into(), rate));
                if i > 0 {
                    line.push(match (m, base) {
                        (Some(m), Some(b)) if b > 0.0 => format!("{:.2}", m / b),
                        _ => "-".into(),
                    });
                }
            }
            line
        })
        .collect();
    table(&header.iter().map(String::as_str).collect::<Vec<_>>(), &lines, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_compared_with_the_first_engine() {
        let row = |io: &str, ops_per_s: f64| Row {
            workload: "readrandom".into(),
            io: io.into(),
            ops_per_s,
            ..Row::default()
        };
        let rows = [row("posix", 100.0), row("io_uring", 250.0), row("posix", 200.0), row("posix", 120.0)];
        let t = side_by_side(&rows);
        let last = t.lines().nth(1).unwrap();
        assert_eq!(last.split_whitespace().collect::<Vec<_>>(), ["readrandom", "120", "250", "2.08"]);
    }
}
