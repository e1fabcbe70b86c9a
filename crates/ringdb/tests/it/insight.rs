//! What a store tells of itself while it runs.

use ringdb::{Db, Durability, OperationLatency, Options, WriteBatch, WriteOptions};
use tempfile::tempdir;

fn of(db: &Db, operation: &str) -> Option<OperationLatency> {
    db.stats().latencies.into_iter().find(|l| l.operation == operation)
}

fn count(db: &Db, operation: &str) -> u64 {
    of(db, operation).map_or(0, |l| l.count)
}

fn options() -> Options {
    Options::default().with_io("posix")
}

/// Ten of each kind of call, and a flush and a compaction.
fn work(db: &Db) {
    for i in 0..10 {
        db.put(format!("k{i}"), "v").unwrap();
        let mut batch = WriteBatch::new();
        batch.put("b", "v");
        batch.put("c", "v");
        db.write(batch, &WriteOptions::default().durability(Durability::Sync)).unwrap();
    }
    for _ in 0..2 {
        db.put("k0", "w").unwrap();
        db.flush().unwrap();
    }
    db.compact_range(..).unwrap();
    let snapshot = db.snapshot();
    for _ in 0..5 {
        assert!(db.get("k3").unwrap().is_some());
        assert!(snapshot.get("k3").unwrap().is_some());
        assert_eq!(db.multi_get(&["k1", "nothing"]).unwrap().len(), 2);
    }
    // A seek at each end; steps are not timed.
    let mut iter = db.iter();
    assert!(iter.next().is_some() && iter.next_back().is_some());
    assert_eq!(iter.count(), 10);
    let mut cursor = db.cursor();
    assert!(cursor.seek("k2").unwrap() && cursor.next().unwrap() && cursor.prev().unwrap());
    assert!(cursor.first().unwrap() && cursor.last().unwrap() && !cursor.next().unwrap());
}

#[test]
fn each_call_is_timed_if_one_in_one_is() {
    let dir = tempdir().unwrap();
    let db = Db::open(dir.path(), options().with_time_one_in(1)).unwrap();
    work(&db);
    assert_eq!(count(&db, "write"), 12);
    assert_eq!(count(&db, "sync_write"), 10);
    assert_eq!((count(&db, "get"), count(&db, "multi_get")), (10, 5));
    assert_eq!(count(&db, "seek"), 2 + 3);
    assert_eq!((count(&db, "flush"), count(&db, "compaction"), count(&db, "stall")), (2, 1, 0));
    for l in db.stats().latencies {
        let ordered = [l.p50_ns, l.p90_ns, l.p99_ns, l.p999_ns, l.max_ns];
        assert!(l.p50_ns > 0 && ordered.is_sorted(), "{l:?}");
        assert!(l.total_ns <= l.count * l.max_ns && l.max_ns <= l.total_ns * 33 / 32 + 1, "{l:?}");
    }
}

#[test]
fn what_waits_for_the_device_is_timed_if_nothing_else_is() {
    let dir = tempdir().unwrap();
    let db = Db::open(dir.path(), options().with_time_one_in(0)).unwrap();
    work(&db);
    let timed: Vec<_> = db.stats().latencies.iter().map(|l| l.operation).collect();
    assert_eq!(timed, ["sync_write", "flush", "compaction"]);
    db.close().unwrap();
    // Every logged write to a store of this durability waits.
    let db = Db::open(dir.path(), options().with_time_one_in(0).with_durability(Durability::Sync)).unwrap();
    let process = WriteOptions::default().durability(Durability::Process);
    let none = WriteOptions::default().durability(Durability::None);
    for (durability, writes) in [(process, 1), (none, 1)] {
        let mut batch = WriteBatch::new();
        batch.put("k", "v");
        db.write(batch, &durability).unwrap();
        assert_eq!(count(&db, "sync_write"), writes);
    }
}

#[test]
fn by_default_one_call_in_64_counts_for_as_many() {
    let dir = tempdir().unwrap();
    let db = Db::open(dir.path(), options()).unwrap();
    (0..50_000).for_each(|i| db.put(format!("k{i}"), "v").unwrap());
    (0..50_000).for_each(|i| assert!(db.get(format!("k{i}")).unwrap().is_some()));
    for operation in ["write", "get"] {
        let n = count(&db, operation);
        assert!(n.is_multiple_of(64) && (35_000..65_000).contains(&n), "{operation}: {n}");
    }
}

/// What a parser that is not ours makes of the metrics.
fn parsed(db: &Db) -> prometheus_parse::Scrape {
    let text = db.metrics().prometheus();
    prometheus_parse::Scrape::parse(text.lines().map(|l| Ok(l.to_string()))).unwrap()
}

#[test]
fn metrics_are_what_prometheus_reads() {
    let tmp = tempdir().unwrap();
    // Braces, commas and quotes are not for this parser; see the unit test of the text.
    let dir = tmp.path().join("a path");
    let db = Db::open(&dir, options().with_time_one_in(1)).unwrap();
    let odd = db.keyspace("key space").unwrap();
    odd.put("k", vec![1; 1000]).unwrap();
    work(&db);
    (0..2000).for_each(|i| db.put(format!("more{i}"), [7; 100]).unwrap());
    db.flush().unwrap();
    let text = db.metrics().prometheus();
    let scrape = parsed(&db);
    let lines = text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()).count();
    // A histogram is one sample of the parser's, and a summary too.
    let buckets = text.lines().filter(|l| l.contains("_bucket{")).count();
    let sums = text.lines().filter(|l| l.contains("_sum{") || l.contains("_count{")).count();
    let quantiles = text.lines().filter(|l| l.contains(",quantile=")).count();
    let whole: Vec<_> = scrape
        .samples
        .iter()
        .filter(|s| !s.metric.ends_with("_sum") && !s.metric.ends_with("_count"))
        .collect();
    let (histograms, summaries) = (8, quantiles / 3);
    assert_eq!(whole.len(), lines - buckets - sums - quantiles + histograms + summaries);
    for s in &scrape.samples {
        assert_eq!(s.labels.get("store").unwrap(), dir.to_str().unwrap(), "{s:?}");
        assert!(s.metric.starts_with("ringdb_"), "{s:?}");
    }
    for s in &whole {
        let kind = match &s.value {
            prometheus_parse::Value::Counter(_) => "counter",
            prometheus_parse::Value::Gauge(_) => "gauge",
            prometheus_parse::Value::Histogram(_) => "histogram",
            prometheus_parse::Value::Summary(_) => "summary",
            prometheus_parse::Value::Untyped(_) => panic!("without a type: {s:?}"),
        };
        assert_eq!(kind == "counter", s.metric.ends_with("_total"), "{s:?}");
        assert!(scrape.docs.contains_key(&s.metric), "without a help: {s:?}");
        let base = s.metric.trim_end_matches("_total");
        assert!(!["_us", "_ns", "_ms", "_kb", "_mib"].iter().any(|unit| base.ends_with(unit)), "{base}");
    }
    let of = |metric: &str, label: &str, is: &str| {
        let found = whole.iter().find(|s| s.metric == metric && s.labels.get(label) == Some(is));
        found.unwrap_or_else(|| panic!("no {metric} of {is}")).value.clone()
    };
    let prometheus_parse::Value::Histogram(gets) = of("ringdb_operation_seconds", "operation", "get") else {
        panic!()
    };
    assert!(gets.is_sorted_by(|a, b| a.less_than < b.less_than && a.count <= b.count), "{gets:?}");
    assert_eq!(gets.last().map(|b| (b.less_than, b.count)), Some((f64::INFINITY, 10.0)));
    let prometheus_parse::Value::Gauge(bytes) = of("ringdb_keyspace_bytes", "keyspace", "key space") else {
        panic!()
    };
    assert!((500.0..10_000.0).contains(&bytes), "{bytes}");
    let prometheus_parse::Value::Gauge(keys) = of("ringdb_keyspace_keys", "keyspace", "default") else {
        panic!()
    };
    assert!((1500.0..2500.0).contains(&keys), "{keys}");
    let prometheus_parse::Value::Counter(manual) = of("ringdb_compactions_total", "reason", "manual") else {
        panic!()
    };
    assert_eq!(manual, 1.0);
    let prometheus_parse::Value::Counter(log) = of("ringdb_io_bytes_total", "purpose", "flush") else {
        panic!()
    };
    assert!(log > 0.0);
}

#[test]
fn open_metrics_say_the_same() {
    let dir = tempdir().unwrap();
    let db = Db::open(dir.path(), options()).unwrap();
    work(&db);
    db.close().unwrap();
    let db = Db::open_read_only(dir.path(), options()).unwrap();
    let metrics = db.metrics();
    let (one, other) = (metrics.prometheus(), metrics.open_metrics());
    let samples =
        |text: &str| text.lines().filter(|l| !l.starts_with('#')).map(String::from).collect::<Vec<_>>();
    assert_eq!(samples(&one), samples(&other));
    assert!(other.ends_with("# EOF\n") && !one.contains("EOF"));
    // The family of a counter is its name without what the sample ends with.
    for line in other.lines().filter(|l| l.ends_with(" counter")) {
        let name = line.split(' ').nth(2).unwrap();
        assert!(!name.ends_with("_total") && other.contains(&format!("\n{name}_total{{")), "{line}");
    }
}

/// Every metric that the dashboard asks for is there, and so is every label that it groups by.
#[test]
fn the_dashboard_asks_for_what_there_is() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../extras/grafana/ringdb.json");
    let dashboard: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let dir = tempdir().unwrap();
    let db = Db::open(dir.path(), options()).unwrap();
    work(&db);
    let metrics = db.metrics().prometheus();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|p| p["targets"].as_array().unwrap());
    let mut asked: Vec<&str> = targets.map(|t| t["expr"].as_str().unwrap()).collect();
    asked.extend(
        dashboard["templating"]["list"].as_array().unwrap().iter().filter_map(|v| v["query"].as_str()),
    );
    let mut seen = 0;
    for query in asked {
        let words = || query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words().filter(|w| w.starts_with("ringdb_")) {
            let sample = metrics.lines().find(|l| l.starts_with(&format!("{name}{{")));
            let sample = sample.unwrap_or_else(|| panic!("there is no {name}: {query}"));
            let by = query.split(" by (").skip(1).flat_map(|b| b.split(')').next().unwrap().split(", "));
            for label in by {
                assert!(sample.contains(&format!(",{label}=\"")), "no {label} in {sample}: {query}");
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}
