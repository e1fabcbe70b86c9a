//! [`View`]: what there is to see, from two looks at a running store.

use serde::Serialize;
use serde_json::Value;

/// What the store did between two looks, and how it is at the second one.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct View {
    /// The store's directory, as its process names it.
    pub directory: String,
    /// The process that has it open.
    pub process: u64,
    /// Seconds since it was opened.
    pub open_seconds: f64,
    /// Seconds between the looks.
    pub seconds: f64,
    /// What happens in a second.
    pub rates: Rates,
    /// I/O by what it is for and what it is.
    pub io: Vec<Io>,
    /// The statistics, as `ringdb stats --json` has them.
    pub stats: Value,
}

/// Each in a second.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct Rates {
    pub write_batches: f64,
    pub write_groups: f64,
    pub log_bytes: f64,
    pub log_syncs: f64,
    pub cache_hits: f64,
    pub cache_misses: f64,
    pub filter_negatives: f64,
    pub async_reads: f64,
    pub flushes: f64,
    pub flush_bytes: f64,
    pub compactions: f64,
    pub compaction_read_bytes: f64,
    pub compaction_written_bytes: f64,
    pub write_delays: f64,
    /// Seconds that writers were delayed, all together.
    pub write_delay: f64,
}

/// One kind of I/O.
#[derive(Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct Io {
    pub purpose: String,
    pub class: String,
    /// In a second.
    pub ops: f64,
    /// In a second.
    pub bytes: f64,
    /// Mean microseconds of those between the looks; none if there were none.
    pub mean_us: Option<f64>,
    /// Microseconds that 99 of 100 did not exceed since the store was opened.
    pub p99_us: u64,
    /// How many were in flight, on average.
    pub in_flight: f64,
    /// Failures since the store was opened.
    pub errors: u64,
}

/// A number by its path in an answer; 0 if another version does not say it.
pub fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_default()
}

impl View {
    /// From two looks, `seconds` apart.
    pub fn new(before: &Value, now: &Value, seconds: f64) -> View {
        let seconds = seconds.max(1e-3);
        let rate = |a: u64, b: u64| b.saturating_sub(a) as f64 / seconds;
        let s = |name: &str| rate(number(&before["stats"], name), number(&now["stats"], name));
        let rates = Rates {
            write_batches: s("write_batches"),
            write_groups: s("write_groups"),
            log_bytes: s("log_written_bytes"),
            log_syncs: s("log_syncs"),
            cache_hits: s("cache_hits"),
            cache_misses: s("cache_misses"),
            filter_negatives: s("filter_negatives"),
            async_reads: s("async_reads"),
            flushes: s("flushes"),
            flush_bytes: s("flush_written_bytes"),
            compactions: s("compactions"),
            compaction_read_bytes: s("compaction_read_bytes"),
            compaction_written_bytes: s("compaction_written_bytes"),
            write_delays: s("write_delays"),
            write_delay: s("write_delay_us") / 1e6,
        };
        let io = list(&now["io"]).map(|o| {
            let former =
                list(&before["io"]).find(|f| f["purpose"] == o["purpose"] && f["class"] == o["class"]);
            let former = former.unwrap_or(&Value::Null);
            let per_second = |name: &str| rate(number(former, name), number(o, name));
            let (ops, time) = (per_second("ops"), per_second("time_us"));
            Io {
                purpose: text(o, "purpose"),
                class: text(o, "class"),
                ops,
                bytes: per_second("bytes"),
                mean_us: (ops > 0.0).then(|| time / ops),
                p99_us: number(o, "p99_us"),
                in_flight: time / 1e6,
                errors: number(o, "errors"),
            }
        });
        View {
            directory: text(now, "directory"),
            process: number(now, "process"),
            open_seconds: number(now, "open_us") as f64 / 1e6,
            seconds,
            rates,
            io: io.collect(),
            stats: now["stats"].clone(),
        }
    }
}

/// The elements of a list; none if there is no list.
pub fn list(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

/// A text by its name.
pub fn text(of: &Value, name: &str) -> String {
    of[name].as_str().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_are_differences_by_time_and_survive_another_version() {
        let look = |n: u64| {
            json!({
                "process": 7, "directory": "/d", "open_us": 5_000_000,
                "stats": {"write_batches": n * 100, "write_delay_us": n * 500_000},
                "io": [{"purpose": "log", "class": "write", "ops": n * 10, "bytes": n * 4096, "errors": 0,
                    "time_us": n * 1000, "p99_us": 200}],
            })
        };
        let v = View::new(&look(1), &look(3), 2.0);
        assert_eq!((v.rates.write_batches, v.rates.write_delay, v.open_seconds), (100.0, 0.5, 5.0));
        let io = &v.io[0];
        assert_eq!((io.ops, io.bytes, io.mean_us, io.in_flight), (10.0, 4096.0, Some(100.0), 0.001));
        // The store was opened anew, or is of another version.
        let v = View::new(&look(3), &look(1), 1.0);
        assert_eq!((v.rates.write_batches, v.io[0].mean_us), (0.0, None));
        let v = View::new(&json!({}), &json!({"io": [{}], "stats": 3}), 0.0);
        assert!(v.rates.write_batches == 0.0 && v.io.len() == 1);
    }
}
