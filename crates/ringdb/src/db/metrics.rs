//! [`Metrics`]: the statistics as text for Prometheus.

use std::time::Duration;

use engineswap::{IoStats, OpClass};

use super::Db;
use super::core::Core;
use super::estimate::Estimate;
use super::iter::internal_bounds;
use crate::KeyRange;
use crate::bounds::Bounds;
use crate::compaction::pick::Reason;
use crate::insight::{Cumulative, Kind, Text};
use crate::key::Prefix;
use crate::purpose::NAMES;
use crate::stats::{LevelStats, Stats};

/// What a store counts, at one moment, as text for Prometheus and whoever else reads its formats: [`Stats`], what the
/// I/O engine counts, and how much each keyspace holds. Each sample has the store's directory as its label `store`.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
/// db.put("apple", "red")?;
/// let metrics = db.metrics();
/// assert!(metrics.prometheus().contains("# TYPE ringdb_write_batches_total counter"));
/// assert!(metrics.open_metrics().ends_with("# EOF\n"));
/// # Ok::<(), ringdb::Error>(())
/// ```
#[derive(Debug)]
pub struct Metrics {
    store: String,
    stats: Stats,
    io: IoStats,
    latencies: Vec<Cumulative>,
    keyspaces: Vec<(String, Estimate)>,
}

/// The name of gauges, what they say, and how to get at the value.
type Family<T, V> = (&'static str, &'static str, fn(&T) -> V);

impl Db {
    /// What the store counts, as text for Prometheus. Nothing is read from the disk.
    pub fn metrics(&self) -> Metrics {
        self.core().metrics()
    }
}

impl Core {
    /// See [`Db::metrics`].
    pub fn metrics(&self) -> Metrics {
        let stats = self.stats();
        let view = self.views.newest();
        let size = |prefix: &Prefix| {
            let (lower, upper) = internal_bounds(prefix, KeyRange::bounds(&..));
            Estimate::of(&view, &Bounds { lower, upper })
        };
        let mut keyspaces = Vec::new();
        for settings in &stats.settings {
            // One that was dropped meanwhile is not told of.
            let own = self.keyspaces.get(&settings.keyspace).ok().flatten();
            let default = self.keyspaces.default_one();
            let state = if settings.keyspace == default.name { Some(default.clone()) } else { own };
            keyspaces.extend(state.map(|k| (k.name.clone(), size(&k.prefix))));
        }
        Metrics {
            store: self.dir.to_string_lossy().into_owned(),
            stats,
            io: self.io.stats(),
            latencies: self.latencies.cumulative(),
            keyspaces,
        }
    }
}

impl Metrics {
    /// The media type of [`Metrics::prometheus`].
    pub const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
    /// The media type of [`Metrics::open_metrics`].
    pub const OPEN_METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// In the text format of Prometheus, version 0.0.4.
    #[must_use]
    pub fn prometheus(&self) -> String {
        self.text(false)
    }

    /// In OpenMetrics 1.0.
    #[must_use]
    pub fn open_metrics(&self) -> String {
        self.text(true)
    }

    fn text(&self, open: bool) -> String {
        let mut out = Text::new(open, &self.store);
        out.family("ringdb_build", Kind::Info, "The version of ringdb, and the I/O engine in use.");
        out.sample(&[("version", env!("CARGO_PKG_VERSION")), ("io", &self.stats.io)], 1);
        self.operations(&mut out);
        self.counters(&mut out);
        self.gauges(&mut out);
        self.memory(&mut out);
        self.levels(&mut out);
        self.keyspaces(&mut out);
        self.compactions(&mut out);
        self.io(&mut out);
        out.end()
    }

    fn operations(&self, out: &mut Text) {
        let help = "How long operations took. Of get, multi_get, seek and write a sample is timed, and counts for as \
                    many as it stands for.";
        out.family("ringdb_operation_seconds", Kind::Histogram, help);
        self.latencies.iter().for_each(|l| out.histogram("operation", l));
    }

    fn counters(&self, out: &mut Text) {
        let s = &self.stats;
        for (name, help, value) in [
            ("ringdb_write_batches", "Batches committed.", s.write_batches),
            ("ringdb_write_groups", "Groups of batches written to the log.", s.write_groups),
            ("ringdb_write_delays", "Writes that were delayed.", s.write_delays),
            ("ringdb_log_written_bytes", "Bytes appended to the log.", s.log_written_bytes),
            ("ringdb_log_syncs", "Syncs of the log.", s.log_syncs),
            ("ringdb_cache_hits", "Block reads served by the cache.", s.cache_hits),
            ("ringdb_cache_misses", "Block reads that the cache could not serve.", s.cache_misses),
            (
                "ringdb_filter_negatives",
                "Looks into tables that a filter made superfluous.",
                s.filter_negatives,
            ),
            ("ringdb_async_reads", "Blocks read for asynchronous reads.", s.async_reads),
            ("ringdb_async_joined", "Asynchronous reads that found their block on its way.", s.async_joined),
            ("ringdb_async_submissions", "Submissions of such blocks.", s.async_submissions),
            (
                "ringdb_async_page_cache_reads",
                "Blocks that asynchronous reads found in the page cache at once.",
                s.async_page_cache_reads,
            ),
            ("ringdb_flushes", "Flushes.", s.flushes),
            ("ringdb_flush_written_bytes", "Bytes written by flushes.", s.flush_written_bytes),
            ("ringdb_trivial_moves", "Tables moved to the next level as they are.", s.trivial_moves),
            ("ringdb_compaction_read_bytes", "Bytes read by compactions.", s.compaction_read_bytes),
            ("ringdb_compaction_written_bytes", "Bytes written by compactions.", s.compaction_written_bytes),
            (
                "ringdb_compaction_filter_seen",
                "Entries that were passed to compaction filters.",
                s.compaction_filter_seen,
            ),
            (
                "ringdb_compaction_filter_removed",
                "Entries that compaction filters removed.",
                s.compaction_filter_removed,
            ),
            (
                "ringdb_compaction_filter_changed",
                "Entries whose value compaction filters changed.",
                s.compaction_filter_changed,
            ),
            (
                "ringdb_background_errors",
                "Failures of compactions that did not stop writing.",
                s.background_errors,
            ),
        ] {
            out.one(name, Kind::Counter, help, value);
        }
        let delayed = Duration::from_micros(s.write_delay_us).as_secs_f64();
        out.one("ringdb_write_delay_seconds", Kind::Counter, "Time that writes were delayed.", delayed);
    }

    fn gauges(&self, out: &mut Text) {
        let s = &self.stats;
        for (name, help, value) in [
            ("ringdb_last_sequence", "The newest sequence number.", s.last_sequence),
            ("ringdb_table_bytes", "Bytes of tables.", s.table_bytes),
            ("ringdb_table_entries", "Entries in tables, versions and tombstones included.", s.table_entries),
            ("ringdb_range_tombstones", "Deleted ranges of which tables may hold keys.", s.range_tombstones),
            ("ringdb_log_bytes", "Bytes of log segments, free ones included.", s.log_bytes),
            ("ringdb_log_mapped_bytes", "Bytes of log segments mapped into memory.", s.log_mapped_bytes),
            ("ringdb_immutable_memtables", "Memtables that wait to be flushed.", s.immutable_memtables),
            ("ringdb_snapshots", "Open snapshots.", s.snapshots),
            (
                "ringdb_damaged_tables",
                "Tables that cannot be read, in whole or in part.",
                s.damaged_tables.len() as u64,
            ),
            (
                "ringdb_writes_slowed",
                "1 while writes are slowed, or background work fails.",
                s.write_delay_reason.is_some().into(),
            ),
            ("ringdb_stopped", "1 once writing has stopped.", s.stopped.is_some().into()),
            (
                "ringdb_log_damaged",
                "1 if the log has lost something, found when the store was opened.",
                s.recovered_damage.is_some().into(),
            ),
            ("ringdb_flush_running", "1 while a flush runs.", s.flush_running.into()),
            ("ringdb_compactions_running", "Compactions that run.", s.running_compactions.len() as u64),
        ] {
            out.one(name, Kind::Gauge, help, value);
        }
        out.one(
            "ringdb_open_seconds",
            Kind::Gauge,
            "Time since the store was opened.",
            self.io.elapsed().as_secs_f64(),
        );
    }

    fn memory(&self, out: &mut Text) {
        let s = &self.stats;
        out.one("ringdb_memory_budget_bytes", Kind::Gauge, "The memory budget.", s.cache_capacity_bytes);
        out.family(
            "ringdb_memory_bytes",
            Kind::Gauge,
            "Bytes that count against the memory budget, by owner.",
        );
        for (owner, bytes) in [
            ("blocks", s.cache_used_bytes),
            ("indexes", s.index_bytes),
            ("filters", s.filter_bytes),
            ("memtables", s.memtable_memory_bytes),
            ("background", s.background_memory_bytes),
            ("iterators", s.iterator_memory_bytes),
        ] {
            out.sample(&[("owner", owner)], bytes);
        }
    }

    fn levels(&self, out: &mut Text) {
        let families: [Family<LevelStats, u64>; 4] = [
            ("ringdb_level_tables", "Tables of a level.", |l| l.tables),
            ("ringdb_level_bytes", "Bytes of a level.", |l| l.bytes),
            ("ringdb_level_entries", "Entries of a level.", |l| l.entries),
            ("ringdb_level_target_bytes", "Bytes that a level should have; 0 for level 0.", |l| {
                l.target_bytes
            }),
        ];
        for (name, help, value) in families {
            out.family(name, Kind::Gauge, help);
            for l in &self.stats.levels {
                out.sample(&[("level", &l.level.to_string())], value(l));
            }
        }
    }

    fn keyspaces(&self, out: &mut Text) {
        let families: [Family<Estimate, f64>; 2] = [
            ("ringdb_keyspace_bytes", "About how many bytes of tables and memtables a keyspace has.", |e| {
                e.bytes
            }),
            ("ringdb_keyspace_keys", "About how many keys a keyspace has.", |e| e.pairs),
        ];
        for (name, help, value) in families {
            out.family(name, Kind::Gauge, help);
            for (keyspace, size) in &self.keyspaces {
                out.sample(&[("keyspace", keyspace)], value(size).max(0.0).round());
            }
        }
    }

    fn compactions(&self, out: &mut Text) {
        let help = "Compactions, and moves and removals of tables, by reason.";
        out.family("ringdb_compactions", Kind::Counter, help);
        for reason in Reason::ALL {
            let done = self.stats.compaction_reasons.iter().find(|(name, _)| *name == reason.name());
            out.sample(&[("reason", reason.name())], done.map_or(0, |(_, n)| *n));
        }
    }

    fn io(&self, out: &mut Text) {
        let all =
            NAMES.iter().flat_map(|(p, name)| OpClass::ALL.map(|c| (*name, c.name(), self.io.of(c, *p))));
        let used: Vec<_> = all.filter(|(.., s)| s.ops > 0).collect();
        out.family("ringdb_io_bytes", Kind::Counter, "Bytes transferred by the I/O engine, by purpose.");
        for (purpose, class, s) in &used {
            out.sample(&[("purpose", purpose), ("class", class)], s.bytes);
        }
        out.family("ringdb_io_errors", Kind::Counter, "Operations of the I/O engine that failed.");
        for (purpose, class, s) in &used {
            out.sample(&[("purpose", purpose), ("class", class)], s.errors);
        }
        let help =
            "How long operations of the I/O engine took, since it was opened; quantiles to about 20 %.";
        out.family("ringdb_io_seconds", Kind::Summary, help);
        for (purpose, class, s) in &used {
            let labels = [("purpose", *purpose), ("class", *class)];
            for (p, quantile) in [(0.5, "0.5"), (0.99, "0.99"), (0.999, "0.999")] {
                let labels = [labels[0], labels[1], ("quantile", quantile)];
                out.sample(&labels, s.percentile(p).as_secs_f64());
            }
            out.sum_and_count(&labels, s.time().as_secs_f64(), s.ops);
        }
    }
}
