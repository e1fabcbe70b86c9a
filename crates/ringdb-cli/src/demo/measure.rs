//! Reading the records back and counting what it takes.

use std::path::Path;
use std::time::Duration;

use engineswap::IoStats;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use ringdb::{Db, Value};
use serde::Serialize;

use super::BATCH;
use super::index::{Entry, digest};
use crate::bench::drive::{Plan, Worker, drive};
use crate::bench::keys::below;
use crate::bench::meter::Meter;
use crate::error::{Failure, Result, failed};
use crate::out;

/// How records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// `get`, one key after the other.
    Get,
    /// `multi_get` of [`BATCH`] keys.
    MultiGet,
    /// All records of a directory.
    Prefix,
}

impl How {
    /// All ways.
    pub const ALL: [How; 3] = [How::Get, How::MultiGet, How::Prefix];

    fn name(self) -> String {
        match self {
            How::Get => "get, one by one".into(),
            How::MultiGet => format!("multi_get of {BATCH}"),
            How::Prefix => "prefix scan".into(),
        }
    }
}

/// The result of one way on one engine.
#[derive(Serialize)]
pub struct Row {
    /// The engine's URI.
    pub io: String,
    /// The way.
    pub how: How,
    /// Records read and checked.
    pub records: u64,
    /// Time.
    pub seconds: f64,
    /// Records a second.
    pub records_per_s: f64,
    /// Median latency of a call.
    pub p50_us: f64,
    /// Its 99th percentile.
    pub p99_us: f64,
    /// Reads in flight on average over the time.
    pub in_flight_avg: f64,
    /// Read requests of the engine.
    pub reads: u64,
    /// Bytes read from the device.
    pub device_read_bytes: u64,
    /// CPU time for one record.
    pub cpu_us_per_record: f64,
    #[serde(skip)]
    latencies: Option<Histogram<u64>>,
    #[serde(skip)]
    in_flight_time: Duration,
    #[serde(skip)]
    cpu_s: f64,
}

impl Row {
    /// Nothing measured yet.
    pub fn new(io: &str, how: How) -> Row {
        Row {
            io: io.into(),
            how,
            records: 0,
            seconds: 0.0,
            records_per_s: 0.0,
            p50_us: 0.0,
            p99_us: 0.0,
            in_flight_avg: 0.0,
            reads: 0,
            device_read_bytes: 0,
            cpu_us_per_record: 0.0,
            latencies: None,
            in_flight_time: Duration::ZERO,
            cpu_s: 0.0,
        }
    }

    /// Works out the averages.
    pub fn finish(&mut self) {
        let seconds = self.seconds.max(1e-9);
        self.records_per_s = self.records as f64 / seconds;
        self.in_flight_avg = self.in_flight_time.as_secs_f64() / seconds;
        self.cpu_us_per_record = self.cpu_s * 1e6 / self.records.max(1) as f64;
        if let Some(h) = &self.latencies {
            self.p50_us = h.value_at_quantile(0.5) as f64 / 1e3;
            self.p99_us = h.value_at_quantile(0.99) as f64 / 1e3;
        }
    }
}

/// Reads for a time and adds what it took to `row`.
pub fn measure(
    db: &Db,
    dir: &Path,
    entries: &[Entry],
    how: How,
    time: Duration,
    round: u32,
    row: &mut Row,
) -> Result<()> {
    let bar = out::count_bar(None);
    bar.set_message(format!("{} on {}", how.name(), row.io));
    let reader = Reader {
        db,
        entries,
        how,
        // The same keys on each engine.
        rng: SmallRng::seed_from_u64(u64::from(round) + 1),
        keys: Vec::new(),
    };
    let plan = Plan { threads: 1, ops: None, duration: Some(time), rate: None, sample: 1 };
    let meter = Meter::new(dir);
    let before: IoStats = db.io().stats();
    let mark = meter.mark();
    let (outcome, _) = drive(&plan, vec![reader], &ProgressBar::clone(&bar))?;
    let cost = meter.since(&mark);
    let io = db.io().stats().since(&before);
    bar.finish_and_clear();
    row.records += outcome.ops;
    row.seconds += outcome.seconds;
    row.reads += io.reads().ops;
    row.in_flight_time += io.reads().time();
    row.device_read_bytes += cost.read_bytes;
    row.cpu_s += cost.cpu_s;
    match &mut row.latencies {
        Some(h) => h.add(&outcome.latencies).map_err(|e| Failure::Failed(e.to_string()))?,
        None => row.latencies = Some(outcome.latencies),
    }
    Ok(())
}

struct Reader<'a> {
    db: &'a Db,
    entries: &'a [Entry],
    how: How,
    rng: SmallRng,
    keys: Vec<&'a Entry>,
}

impl<'a> Reader<'a> {
    fn entry(&mut self) -> &'a Entry {
        &self.entries[below(&mut self.rng, self.entries.len() as u64) as usize]
    }

    /// Reads the first records of a random file's directory.
    fn prefix(&mut self) -> Result<u64> {
        let path = &self.entry().key;
        let end = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
        let prefix = &path[..end];
        let first = self.entries.partition_point(|e| e.key.as_slice() < prefix);
        let expected = self.entries[first..].iter().take_while(|e| e.key.starts_with(prefix)).take(BATCH);
        let mut rows = self.db.prefix(prefix);
        let mut n = 0;
        for e in expected {
            let Some(pair) = rows.next() else {
                return failed(format!("a scan misses {}", e.key.escape_ascii()));
            };
            let (key, value) = pair?;
            if key != e.key {
                let (key, wanted) = (key.escape_ascii(), e.key.escape_ascii());
                return failed(format!("a scan gave {key} where {wanted} comes next"));
            }
            check(e, Some(&value))?;
            n += 1;
        }
        Ok(n)
    }
}

fn check(entry: &Entry, value: Option<&Value>) -> Result<()> {
    match value {
        Some(v) if digest(v) == entry.digest => Ok(()),
        Some(_) => failed(format!("the record of {} is not what was loaded", entry.key.escape_ascii())),
        None => failed(format!("the record of {} is missing", entry.key.escape_ascii())),
    }
}

impl Worker for Reader<'_> {
    fn step(&mut self, _most: u64) -> Result<u64> {
        match self.how {
            How::Get => {
                let e = self.entry();
                check(e, self.db.get(&e.key)?.as_ref())?;
                Ok(1)
            }
            How::MultiGet => {
                self.keys.clear();
                for _ in 0..BATCH {
                    let e = self.entry();
                    self.keys.push(e);
                }
                let keys: Vec<&[u8]> = self.keys.iter().map(|e| e.key.as_slice()).collect();
                let values = self.db.multi_get(&keys)?;
                for (e, v) in self.keys.iter().zip(&values) {
                    check(e, v.as_ref())?;
                }
                Ok(values.len() as u64)
            }
            How::Prefix => self.prefix(),
        }
    }
}

/// The table.
pub fn table(rows: &[Row]) -> String {
    let header = [
        "read by",
        "engine",
        "records/s",
        "call p50 us",
        "call p99 us",
        "in flight",
        "reads",
        "read",
        "cpu us/record",
    ];
    let cells = |r: &Row| {
        vec![
            r.how.name(),
            r.io.clone(),
            out::human_count(r.records_per_s as u64),
            format!("{:.0}", r.p50_us),
            format!("{:.0}", r.p99_us),
            format!("{:.1}", r.in_flight_avg),
            out::human_count(r.reads),
            out::human_bytes(r.device_read_bytes),
            format!("{:.1}", r.cpu_us_per_record),
        ]
    };
    out::table(&header, &rows.iter().map(cells).collect::<Vec<_>>(), 2)
}

/// What overlap gives, a line for each engine.
pub fn conclusion(rows: &[Row]) -> String {
    let of = |io: &str, how: How| rows.iter().find(|r| r.io == io && r.how == how);
    let mut text = String::new();
    for row in rows.iter().filter(|r| r.how == How::Get && r.records_per_s > 0.0) {
        if let Some(batch) = of(&row.io, How::MultiGet) {
            text += &format!(
                "{}: one multi_get of {BATCH} reads {:.1} times as many records a second as one get after the other\n",
                row.io,
                batch.records_per_s / row.records_per_s
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_conclusion_come_from_the_rows() {
        let row = |io: &str, how, records| Row { records, seconds: 2.0, ..Row::new(io, how) };
        let mut rows = vec![row("posix", How::Get, 20_000), row("posix", How::MultiGet, 50_000)];
        rows.iter_mut().for_each(Row::finish);
        assert!(table(&rows).contains("25,000"));
        assert!(conclusion(&rows).contains("2.5 times"), "{}", conclusion(&rows));
    }

    #[test]
    fn a_wrong_record_is_noticed() {
        let e = Entry { key: b"/a".to_vec(), digest: digest(b"right") };
        assert!(check(&e, Some(&Value::copy_from(b"right"))).is_ok());
        assert!(check(&e, Some(&Value::copy_from(b"wrong"))).is_err());
        assert!(check(&e, None).is_err());
    }
}
