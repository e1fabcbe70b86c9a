//! System 3: RocksDB's log and tables through a ring.

use crate::error::Result;
use crate::lab::program::Lab;
use crate::lab::ratio::{Claim, Ratio, judge};
use crate::lab::study::{Entry, Findings, How, needs, rate, strings};

pub const ALL: &[Entry] = &[
    needs("s3-e1", "TiKV's point reads", "TiKV"),
    Entry {
        id: "s3-e2",
        title: "a durable log through a ring",
        asks: "fillrandom with a sync for each write, the log's writes and syncs through a ring against plain calls.",
        original: "10,343 ops/s (96.7 us) with the ring, 10,010 (99.9 us) stock: +3.3 %. Single runs.",
        how: How::Here(durable),
    },
    Entry {
        id: "s3-e3",
        title: "a log without syncs through a ring",
        asks: "fillrandom without syncs, the log's writes through a ring against plain calls.",
        original: "466,612 ops/s with the ring, 452,624 stock: +3.1 %. Single runs.",
        how: How::Here(unsynced),
    },
    needs(
        "s3-e4",
        "compaction with asynchronous writes and range syncs",
        "a second way to write tables: not repeated yet",
    ),
];

const RING: &str = "io_uring?queue_always";

fn fill(lab: &Lab, args: &[&str], setup: &str) -> Result<Findings> {
    let none: &[&str] = &[];
    let found = lab.bench(&[(RING, none), ("io_uring", none)], &[], args)?;
    let rates: Vec<Vec<f64>> = found.iter().map(|rows| rows.iter().map(|r| r.ops_per_s).collect()).collect();
    let ratio = Ratio::of(&rates[0], &rates[1]);
    let median = |side: usize, of: &dyn Fn(&crate::lab::program::StoreRow) -> f64| {
        let mut v: Vec<f64> = found[side].iter().map(of).collect();
        v.sort_by(f64::total_cmp);
        v.get(v.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let row = |side: usize, name: &str| {
        vec![name.into(), rate(median(side, &|r| r.ops_per_s)), format!("{:.1}", median(side, &|r| r.p99_us))]
    };
    Ok(Findings {
        setup: setup.into(),
        header: strings(&["log", "puts/s", "p99 us"]),
        rows: vec![row(0, "through the ring"), row(1, "as we run it")],
        verdict: judge(&ratio, Claim::More),
        because: format!("The ring to ours: {ratio}."),
    })
}

fn durable(lab: &Lab) -> Result<Findings> {
    let args = ["--workloads", "fillsync", "--num", "1000000", "--ops", "10000"];
    let setup = "ringdb's fillsync, one client, 16 + 100 bytes: a direct write of whole pages with RWF_DSYNC for each put, as \
                 a request of a ring (`queue_always`) or as a plain call.";
    fill(lab, &args, setup)
}

fn unsynced(lab: &Lab) -> Result<Findings> {
    let args = ["--workloads", "fillrandom", "--num", "300000"];
    let setup = "ringdb's fillrandom, one client, 16 + 100 bytes: a write of each frame as a request of a ring \
                 (`queue_always`), against what we do, which is no call at all but a copy into a mapping of the log.";
    fill(lab, &args, setup)
}
