//! What a run has cost, and a row of a table for several.

use std::time::Duration;

/// One run.
pub struct Row {
    per_second: f64,
    cpu_us: f64,
    device: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
}

/// The process's clock and counters.
pub struct Mark {
    at: std::time::Instant,
    cpu: Duration,
    read_bytes: u64,
}

impl Mark {
    /// Now.
    pub fn now() -> Mark {
        Mark { at: std::time::Instant::now(), cpu: cpu_time(), read_bytes: read_bytes() }
    }

    /// What so many operations have cost since, of which these are the latencies in nanoseconds.
    pub fn row(&self, mut latencies: Vec<u64>) -> Row {
        let (seconds, cpu) = (self.at.elapsed().as_secs_f64(), cpu_time() - self.cpu);
        let ops = latencies.len().max(1) as f64;
        let mut us = |quantile: f64| {
            let last = latencies.len().saturating_sub(1);
            if latencies.is_empty() {
                return f64::NAN;
            }
            *latencies.select_nth_unstable((last as f64 * quantile) as usize).1 as f64 / 1e3
        };
        Row {
            per_second: ops / seconds,
            cpu_us: cpu.as_secs_f64() * 1e6 / ops,
            device: (read_bytes() - self.read_bytes) as f64 / 4096.0 / ops,
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
        }
    }
}

fn cpu_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec.try_into().unwrap_or(0), t.tv_nsec.try_into().unwrap_or(0))
}

/// Bytes that the device has read for this process.
fn read_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    io.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok()).unwrap_or(0)
}

/// Prints a row of a Markdown table: medians, of the rates with the lowest and the highest.
pub fn print(medium: &str, tasks: usize, form: &str, rows: &[Row]) {
    let column = |of: fn(&Row) -> f64| {
        let mut all: Vec<f64> = rows.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let median = |of| column(of)[rows.len() / 2];
    let rates = column(|row| row.per_second);
    let (lowest, rate, highest) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
    println!(
        "| {medium} | {tasks} | {form} | {rate:.0} ({lowest:.0} to {highest:.0}) | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} |",
        median(|row| row.cpu_us),
        median(|row| row.device),
        median(|row| row.p50_us),
        median(|row| row.p99_us),
        median(|row| row.p999_us),
    );
}
