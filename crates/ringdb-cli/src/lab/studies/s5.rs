//! System 5: an LSM store on a ring, 1,000 keys.

use crate::error::{Result, failed};
use crate::lab::program::{Lab, StoreRow};
use crate::lab::ratio::{Claim, Ratio, Verdict, judge};
use crate::lab::study::{Entry, Findings, How, needs, rate, strings};

pub const ALL: &[Entry] = &[
    needs("s5-e1", "the store beside RocksDB, cached", "RocksDB (`make bench-peers`, scenario cached)"),
    Entry {
        id: "s5-e2",
        title: "a block cache against the page cache",
        asks: "1,000 gets of 1,000 keys (110 KB), one after the other, from a store's block cache or with none, from the page \
               cache.",
        original: "RocksDB 1.26 M gets/s with a cache of 8 MB, 379 k/s without one: the page cache alone is 4 times slower \
                   (3.3 by its own figures).",
        how: How::Here(page_cache),
    },
    Entry {
        id: "s5-e3",
        title: "random reads of the drive, alone",
        asks: "1,000 random gets without a cache, directly, one at a time: io_uring with polling against RocksDB's pread.",
        original: "35.5 k gets/s against 28.6 k: 24 % faster.",
        how: How::Here(alone),
    },
];

fn side(rows: &[StoreRow]) -> Vec<&StoreRow> {
    rows.iter().filter(|r| r.workload == "readrandom").collect()
}

fn rates(rows: &[StoreRow]) -> Vec<f64> {
    side(rows).iter().map(|r| r.ops_per_s).collect()
}

fn row(name: &str, rows: &[StoreRow]) -> Vec<String> {
    let mut all = rates(rows);
    all.sort_by(f64::total_cmp);
    let bytes: u64 = side(rows).iter().map(|r| r.device_read_bytes).sum();
    let ops: u64 = side(rows).iter().map(|r| r.ops).sum();
    let median = all.get(all.len() / 2).copied().unwrap_or(f64::NAN);
    vec![name.into(), rate(median), rate(bytes as f64 / ops.max(1) as f64)]
}

fn page_cache(lab: &Lab) -> Result<Findings> {
    let args = ["--workloads", "readrandom", "--key-size", "12", "--ops", "400000"];
    let cached: &[&str] = &["--num", "400000", "--cache-bytes", "256MiB"];
    let small: &[&str] = &["--num", "400000", "--cache-bytes", "4MiB"];
    let tiny: &[&str] = &["--num", "1000", "--cache-bytes", "4MiB"];
    let sides = [("auto", cached), ("auto", small), ("auto", tiny)];
    let found = lab.bench(&sides, &["--key-size", "12"], &args)?;
    let ratio = Ratio::of(&rates(&found[0]), &rates(&found[1]));
    Ok(Findings {
        setup: "ringdb, keys of 12 bytes, values of 100: 400,000 of them with a cache of 256 MiB, which holds all, and with one \
                of 4 MiB, so that most gets are answered by the page cache; and the study's 1,000 keys, which are in \
                any cache."
            .into(),
        header: strings(&["", "gets/s", "bytes from the device a get"]),
        rows: vec![
            row("400,000 keys, cache of 256 MiB", &found[0]),
            row("400,000 keys, cache of 4 MiB", &found[1]),
            row("1,000 keys, cache of 4 MiB", &found[2]),
        ],
        verdict: if judge(&ratio, Claim::More) == Verdict::Holds && ratio.median < 2.0 {
            Verdict::DoesNotHoldHere
        } else {
            judge(&ratio, Claim::More)
        },
        because: format!(
            "The cache to the page cache: {ratio}, where 3.3 to 4 were claimed. The study's 110 KB fit into the first \
             memtable and into every cache, so they say nothing of either."
        ),
    })
}

fn alone(lab: &Lab) -> Result<Findings> {
    let keys = ["--num", "400000", "--cache-bytes", "4MiB"];
    let args = ["--workloads", "readrandom", "--ops", "20000", "--direct-reads"];
    let none: &[&str] = &[];
    let sides = [("io_uring?queue_always", none), ("posix", none)];
    let found = lab.bench(&sides, &keys, &[&args[..], &keys].concat())?;
    let bytes = |rows: &[StoreRow]| -> Vec<f64> {
        side(rows).iter().map(|r| r.device_read_bytes as f64 / r.ops as f64).collect()
    };
    let same = Ratio::of(&bytes(&found[0]), &bytes(&found[1]));
    if !(0.8..1.25).contains(&same.median) {
        return failed(format!("the sides did not read the same: bytes of the device a get {same}"));
    }
    let ratio = Ratio::of(&rates(&found[0]), &rates(&found[1]));
    Ok(Findings {
        setup: "ringdb, 400,000 keys of 16 + 100 bytes, direct reads, cache 4 MiB, one get at a time: each read a request of a \
                ring (`queue_always`), or a pread. Without polling, which needs a drive with polling queues."
            .into(),
        header: strings(&["engine", "gets/s", "bytes from the device a get"]),
        rows: vec![row("io_uring, alone in the ring", &found[0]), row("posix", &found[1])],
        verdict: judge(&ratio, Claim::More),
        because: format!("io_uring to pread, one at a time: {ratio}."),
    })
}
