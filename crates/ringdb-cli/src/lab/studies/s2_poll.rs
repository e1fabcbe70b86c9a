//! System 2: SQPOLL, and RocksDB with its options.

use crate::error::{Failure, Result};
use crate::lab::program::{FileRow, Lab};
use crate::lab::ratio::{Claim, Ratio, Verdict, judge};
use crate::lab::study::{Entry, Findings, How, first, needs, rate, strings};

pub const ALL: &[Entry] = &[
    needs("s2-e26", "own fio engine against fio's, with SQPOLL", "fio and its plugin (`make compare-fio`)"),
    Entry {
        id: "s2-e27",
        title: "a thread and its poller against two threads",
        asks: "The same two cores: one thread with SQPOLL, or two threads that submit for themselves; each thread at depth 1 \
               to 128.",
        original: "86.1 against 132.0 k IOPS at depth 1, 269.6 against 406.9 at 4, 423.4 against 427.0 at 64; mean latency \
                   150.8 against 299.1 us at 64. Concludes about half the latency from depth 64 on. It compares 64 requests \
                   in flight with 128.",
        how: How::Here(threads),
    },
    Entry {
        id: "s2-e28",
        title: "calls of io_uring_enter with SQPOLL",
        asks: "How many calls and kernel threads, at depth 64?",
        original: "12,855,461 calls and no thread, against 7 calls and one thread.",
        how: How::Here(calls),
    },
    Entry {
        id: "s2-e29",
        title: "SQPOLL with think time",
        asks: "A thread with its poller and two threads at depth 64, thinking 0 to 512 cycles before each request.",
        original: "423 against 421 k IOPS at 1 cycle, 422 against 327 at 64, 183 against 200 at 256: SQPOLL is flat until the \
                   thread, not the poller, is the bottleneck.",
        how: How::Here(think),
    },
    needs(
        "s2-e30",
        "RocksDB's multireadrandom with each option",
        "RocksDB and its plugin (`make plugin`): not repeated yet",
    ),
    needs("s2-e31", "its block requests", "RocksDB and its plugin (`make plugin`): not repeated yet"),
    needs("s2-a1", "busy loops on the other cores", "four cores and an NVMe drive"),
    needs(
        "s2-a2",
        "busy loops on fio's own cores",
        "an NVMe drive whose interrupts are on another core: a guest",
    ),
    needs("s2-a3", "SQPOLL with IOPOLL", "polling queues: a guest with an emulated drive"),
    needs("s2-a4", "RocksDB with values of 1 MB", "RocksDB and its plugin (`make plugin`): not repeated yet"),
    needs("s2-a5", "kicks by depth", "kernel probes: a guest"),
];

const POLLED: &str = "io_uring?sqpoll&sqpoll_share=off&sqpoll_idle_ms=1000";
const READS: [&str; 5] = ["--direct", "--rw", "randread", "--size", "256MiB"];

fn two_cpus() -> Result<()> {
    match std::thread::available_parallelism().map_or(1, usize::from) {
        0 | 1 => Err(Failure::Failed("a poller and a thread need two CPUs".into())),
        _ => Ok(()),
    }
}

fn rates(rows: &[FileRow]) -> Vec<f64> {
    rows.iter().map(|r| r.rps).collect()
}

fn means(rows: &[FileRow]) -> Vec<f64> {
    rows.iter().map(|r| r.latency_us.avg).collect()
}

fn threads(lab: &Lab) -> Result<Findings> {
    two_cpus()?;
    let mut rows = Vec::new();
    let mut latencies = Vec::new();
    for (in_flight, polled, each) in [
        ("1 against 2", "1", "1"),
        ("16 against 32", "16", "16"),
        ("64 against 128, as published", "64", "64"),
        ("64 against 64", "64", "32"),
        ("128 against 128", "128", "64"),
    ] {
        let sides: [(&str, &[&str]); 2] =
            [(POLLED, &["--iodepth", polled]), ("io_uring", &["--iodepth", each, "--numjobs", "2"])];
        let found = lab.in_turn(&sides, &READS)?;
        let latency = Ratio::of(&means(&found[0]), &means(&found[1]));
        let (a, b) = (first(&found[0])?, first(&found[1])?);
        rows.push(vec![
            in_flight.into(),
            rate(a.rps),
            rate(b.rps),
            Ratio::of(&rates(&found[0]), &rates(&found[1])).to_string(),
            format!("{:.0}, {:.0}", a.latency_us.avg, b.latency_us.avg),
            latency.to_string(),
            format!("{:.2}, {:.2}", a.cpu_us_per_op, b.cpu_us_per_op),
        ]);
        latencies.push(latency);
    }
    let same = judge(&latencies[3], Claim::Less) != Verdict::Holds;
    Ok(Findings {
        setup: "`fileperf`, random direct reads of 4 KiB; one job with a poller of its own against two jobs without. The \
                study's row has twice as many requests in flight on one side; the last two have as many on both."
            .into(),
        header: strings(&["in flight", "SQPOLL", "two threads", "ratio", "mean us", "ratio", "CPU us each"]),
        rows,
        verdict: judge(&latencies[2], Claim::Less).unless_artefact(same),
        because: format!(
            "Mean latency, SQPOLL to two threads: {} as published, {} with 64 in flight on both sides.",
            latencies[2], latencies[3]
        ),
    })
}

fn calls(lab: &Lab) -> Result<Findings> {
    let args: Vec<&str> = READS.iter().copied().chain(["--iodepth", "64"]).collect();
    let probes = [
        ("calls", "tracepoint:syscalls:sys_enter_io_uring_enter"),
        ("threads", "tracepoint:task:task_rename && strncmp(args->newcomm, \"iou-sqp\", 7) == 0"),
    ];
    let mut rows = Vec::new();
    let mut each = Vec::new();
    for (name, engine) in [("default", "io_uring"), ("SQPOLL", POLLED)] {
        let counts = lab.counts(None, engine, &args, &probes).map_err(Failure::Failed)?;
        let of = |name: &str| counts.get(name).copied().unwrap_or(0);
        each.push(of("calls") as f64 / of("requests").max(1) as f64);
        rows.push(
            [name.to_string()]
                .into_iter()
                .chain(["requests", "calls", "threads"].map(|n| rate(of(n) as f64)))
                .collect(),
        );
    }
    // A job that has nothing to do waits by a call, too.
    let holds = each[1] < each[0] / 2.0;
    Ok(Findings {
        setup: "`fileperf` at depth 64 for a second, counted by tracepoints of its process. It waits by a call when nothing \
                has come, where fio's engine looks again and again."
            .into(),
        header: strings(&["", "requests", "calls of io_uring_enter", "pollers made"]),
        rows,
        verdict: if holds { Verdict::Holds } else { Verdict::DoesNotHoldHere },
        because: format!("Calls for each request: {:.3} by default, {:.3} with SQPOLL.", each[0], each[1]),
    })
}

fn think(lab: &Lab) -> Result<Findings> {
    two_cpus()?;
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    for think in ["0", "1", "4", "16"] {
        let sides: [(&str, &[&str]); 2] = [
            (POLLED, &["--iodepth", "64", "--think-us", think]),
            ("io_uring", &["--iodepth", "64", "--numjobs", "2", "--think-us", think]),
        ];
        let found = lab.in_turn(&sides, &READS)?;
        let ratio = Ratio::of(&rates(&found[0]), &rates(&found[1]));
        let cells = [rate(first(&found[0])?.rps), rate(first(&found[1])?.rps), ratio.to_string()];
        rows.push([format!("{think} us")].into_iter().chain(cells).collect());
        ratios.push(ratio);
    }
    Ok(Findings {
        setup: "`fileperf`, random direct reads of 4 KiB at depth 64; one job with a poller of its own against two jobs, each \
                thinking before its submissions."
            .into(),
        header: strings(&["think", "SQPOLL", "two threads", "ratio"]),
        rows,
        verdict: judge(&ratios[1], Claim::More),
        because: format!("SQPOLL to two threads: {} without thinking, {} with 1 us, {} with 16.", ratios[0], ratios[1], ratios[3]),
    })
}
