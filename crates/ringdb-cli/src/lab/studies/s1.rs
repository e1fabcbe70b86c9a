//! System 1: RocksDB on an engine that is swapped, one request per call.

use crate::error::Result;
use crate::lab::program::{Lab, StoreRow};
use crate::lab::ratio::{Claim, Ratio, Verdict, judge};
use crate::lab::study::{Entry, Findings, How, needs, rate, strings};

pub const ALL: &[Entry] = &[
    Entry {
        id: "s1-e1",
        title: "the engines under mixgraph",
        asks: "Do the engines differ under a realistic load? RocksDB's mixgraph (83 % gets, 14 % puts, 3 % scans), keys of \
               48 bytes, direct I/O, 8 threads, each request alone through the engine's queue and waited for.",
        original: "65,467 ops/s with posix, 62,590 libaio, 44,013 io_uring, 30,748 io_uring with SQPOLL, on 8 CPUs for \
                   the program. Concludes that io_uring is slower than posix, and polling makes it worse. One run.",
        how: How::Here(mixgraph),
    },
    needs("s1-e2", "share of CPU time in appends to the log", "perf and flame graphs: not repeated yet"),
    needs(
        "s1-e3",
        "stages of one append",
        "kernel probes for all of its stages (a guest); a part by USDT: not repeated yet",
    ),
];

const SIDES: [(&str, &str); 7] = [
    ("posix", "posix"),
    ("libaio, as published", "libaio?queue_always"),
    ("io_uring, as published", "io_uring?queue_always"),
    ("io_uring with SQPOLL, as published", "io_uring?queue_always&sqpoll"),
    ("libaio, as we run it", "libaio"),
    ("io_uring, as we run it", "io_uring"),
    ("io_uring with SQPOLL, as we run it", "io_uring?sqpoll"),
];

fn mixgraph(lab: &Lab) -> Result<Findings> {
    let sides: Vec<(&str, &[&str])> = SIDES.iter().map(|(_, uri)| (*uri, &[] as &[&str])).collect();
    let keys = ["--num", "300000", "--key-size", "48", "--cache-bytes", "8MiB"];
    let args = ["--workloads", "mixgraph", "--ops", "60000", "--direct-reads", "--threads", "2"];
    let rows = lab.bench(&sides, &keys, &[&args[..], &keys].concat())?;
    let of =
        |side: usize| -> Vec<&StoreRow> { rows[side].iter().filter(|r| r.workload == "mixgraph").collect() };
    let rates = |side: usize| of(side).iter().map(|r| r.ops_per_s).collect::<Vec<f64>>();
    let to_posix = |side: usize| Ratio::of(&rates(side), &rates(0));
    let median = |mut v: Vec<f64>| {
        v.sort_by(f64::total_cmp);
        v.get(v.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let row = |side: usize| {
        let reads: u64 = of(side).iter().map(|r| r.device_read_bytes).sum();
        let ops: u64 = of(side).iter().map(|r| r.ops).sum();
        vec![
            SIDES[side].0.into(),
            rate(median(rates(side))),
            to_posix(side).to_string(),
            format!("{:.0}", median(of(side).iter().map(|r| r.p99_us).collect())),
            rate(reads as f64 / ops.max(1) as f64),
        ]
    };
    // Both sides through their queues, the log's appends included; then both as we run them.
    let (published, ours) = (Ratio::of(&rates(2), &rates(1)), Ratio::of(&rates(5), &rates(4)));
    let as_published = judge(&published, Claim::Less);
    // Slower for being alone in the ring, not for being io_uring.
    let otherwise = judge(&ours, Claim::Less) != Verdict::Holds;
    Ok(Findings {
        setup: "ringdb's store and its mixgraph with the study's parameters: 300,000 keys of 48 bytes, 60,000 operations, two \
                threads, direct reads, cache 8 MiB, a fresh store that has settled for each run. As published: `queue_always`, every read \
                and append a request of its own, waited for. As we run it: lone operations are plain calls, batches overlap."
            .into(),
        header: strings(&["engine", "ops/s", "to posix", "p99 us", "bytes from the device an operation"]),
        rows: (0..SIDES.len()).map(row).collect(),
        verdict: as_published.unless_artefact(otherwise),
        because: format!(
            "io_uring to libaio: {published} with every request alone in its queue, as published (0.70 there); {ours} as we \
             run it. A buffered append through a ring goes to a worker and back, through libaio it is done within the \
             submission. The posix row is no such baseline: this store's appends are stores to a mapping there. SQPOLL to \
             posix: {} and {}.",
            to_posix(3),
            to_posix(6)
        ),
    })
}
