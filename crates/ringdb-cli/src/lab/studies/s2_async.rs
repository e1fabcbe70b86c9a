//! System 2: forced async, contended files, registered files.

use crate::error::{Failure, Result};
use crate::lab::program::Lab;
use crate::lab::ratio::{Claim, Verdict};
use crate::lab::study::{Entry, Findings, How, compared, needs, pairs, rate, strings};

pub const ALL: &[Entry] = &[
    Entry {
        id: "s2-e16",
        title: "IOSQE_ASYNC on one core",
        asks: "Reads that are forced to kernel workers, the job pinned to one core.",
        original: "103.5 k IOPS against 181.5 at depth 4, 106.1 against 183.9 at 8, 104.8 against 186 at 64: 40 % less.",
        how: How::Here(pinned),
    },
    Entry {
        id: "s2-e17",
        title: "IOSQE_ASYNC on all cores",
        asks: "The same, free to run on 20 cores.",
        original: "53.9 k IOPS against 74.7 at depth 1, 190.1 against 218 at 4, 308.8 against 222.3 at 8: more from depth 8 \
                   on. Concludes that workers cost CPU, and help where cores are idle.",
        how: How::Here(free),
    },
    Entry {
        id: "s2-e18",
        title: "workers made and requests handed to them",
        asks: "How many workers are made, and how many requests do they handle? Depth 64.",
        original: "None without IOSQE_ASYNC; 64 workers and all 29,360,383 requests with it on one core. Workers are \
                   reused.",
        how: How::Here(workers),
    },
    Entry {
        id: "s2-e19",
        title: "two writers of one file",
        asks: "Does IOSQE_ASYNC help where two jobs contend for a file's lock? ext4, random direct writes of 512 bytes.",
        original: "54.1 k IOPS forced against 54.3 at depth 4, 54.6 and 53.4 at 16: no difference; no conclusion drawn.",
        how: How::Here(writers),
    },
    Entry {
        id: "s2-e20",
        title: "EAGAIN of contended writes",
        asks: "What becomes of an inline attempt where two jobs write to one file? Depth 64, writes of 512 bytes.",
        original: "3,051,615 successes and 3,051,615 EAGAIN: each attempt fails first and goes to a worker. Laid to the \
                   file's lock. A write of 512 bytes is smaller than ext4's block, which alone may need the lock.",
        how: How::Here(eagain),
    },
    Entry {
        id: "s2-e21",
        title: "a reader beside a writer of the same file",
        asks: "Reads of a file that another job writes to at depth 64; ext4, direct.",
        original: "Forced 26.6, 249.3, 265.9 k IOPS at depth 1, 16, 64, default 26.3, 217.8, 214.9: up to 24 % more at \
                   depth.",
        how: How::Here(reader),
    },
    needs("s2-e22", "the kiocb's NOWAIT flag", "kernel probes: a guest"),
    Entry {
        id: "s2-e23",
        title: "fget with registered files",
        asks: "How often does the kernel look a descriptor up?",
        original: "12,321,840 times with plain files, 731 with registered ones.",
        how: How::Here(fget),
    },
    Entry {
        id: "s2-e24",
        title: "what registered files gain",
        asks: "One job on core 0, direct reads, raw drive and ext4.",
        original: "Raw up to +2.6 %; ext4 165.2 against 158.9 k IOPS at depth 4, 168.1 against 164.7 at 32, 166.8 against \
                   165.6 at 64: inconclusive.",
        how: How::Here(registered_files),
    },
    needs(
        "s2-e25",
        "the same with a shared file table",
        "a job with a second thread in the file table: not repeated yet",
    ),
];

const PLAIN: &str = "io_uring";
const FORCED: &str = "io_uring?force_async";
const READS: [&str; 5] = ["--direct", "--rw", "randread", "--size", "256MiB"];
const DEPTHS: [(&str, &[&str]); 3] = [
    ("depth 1", &["--iodepth", "1"]),
    ("depth 16", &["--iodepth", "16"]),
    ("depth 64", &["--iodepth", "64"]),
];
const TO_WORKERS: &str = "tracepoint:io_uring:io_uring_queue_async_work";
const WORKERS: &str = "tracepoint:task:task_rename && strncmp(args->newcomm, \"iou-wrk\", 7) == 0";

fn pinned(lab: &Lab) -> Result<Findings> {
    let found = pairs(lab, Some("0"), [FORCED, PLAIN], &READS, &DEPTHS)?;
    let setup =
        "`fileperf`, one job, random direct reads of 4 KiB of a file; the job and its workers on CPU 0.";
    Ok(compared(setup, ["forced", "default"], &found, "depth 16", Claim::Less))
}

fn free(lab: &Lab) -> Result<Findings> {
    let found = pairs(lab, None, [FORCED, PLAIN], &READS, &DEPTHS)?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let setup = format!("The same on all {cpus} CPUs; the study had 20.");
    Ok(compared(&setup, ["forced", "default"], &found, "depth 16", Claim::More))
}

/// What was counted, or why it could not be.
fn counted(
    lab: &Lab,
    cpus: Option<&str>,
    engine: &str,
    args: &[&str],
    probes: &[(&str, &str)],
) -> Result<Vec<u64>> {
    let counts = lab.counts(cpus, engine, args, probes).map_err(Failure::Failed)?;
    let of = |name: &str| counts.get(name).copied().unwrap_or(0);
    Ok(std::iter::once(of("requests")).chain(probes.iter().map(|(name, _)| of(name))).collect())
}

/// The share of requests of which something was counted.
fn share(n: u64, requests: u64) -> f64 {
    n as f64 / requests.max(1) as f64
}

fn workers(lab: &Lab) -> Result<Findings> {
    let args: Vec<&str> = READS.iter().copied().chain(["--iodepth", "64"]).collect();
    let probes = [("handed", TO_WORKERS), ("made", WORKERS)];
    let mut rows = Vec::new();
    let (mut plain, mut forced) = (f64::NAN, f64::NAN);
    for (name, engine, cpus) in [
        ("one CPU", PLAIN, Some("0")),
        ("one CPU, forced", FORCED, Some("0")),
        ("all CPUs", PLAIN, None),
        ("all CPUs, forced", FORCED, None),
    ] {
        let n = counted(lab, cpus, engine, &args, &probes)?;
        match engine {
            FORCED => forced = share(n[1], n[0]),
            _ => plain = share(n[1], n[0]),
        }
        rows.push(vec![name.into(), rate(n[0] as f64), rate(n[1] as f64), rate(n[2] as f64)]);
    }
    let holds = plain < 0.01 && forced > 0.9;
    Ok(Findings {
        setup: "`fileperf` at depth 64 for a second, random direct reads; counts by the tracepoints io_uring_queue_async_work \
                and task_rename of its process."
            .into(),
        header: strings(&["", "requests", "handed to workers", "workers made"]),
        rows,
        verdict: if holds { Verdict::Holds } else { Verdict::DoesNotHoldHere },
        because: format!("Handed to workers for each request: {plain:.3} by default, {forced:.3} forced."),
    })
}

fn writers(lab: &Lab) -> Result<Findings> {
    let args = ["--direct", "--rw", "randwrite", "--size", "256MiB", "--numjobs", "2"];
    let found = pairs(lab, None, [FORCED, PLAIN], &args, &DEPTHS)?;
    let setup = "`fileperf`, two jobs, random direct writes of 4 KiB to one file that has all its blocks.";
    Ok(compared(setup, ["forced", "default"], &found, "depth 16", Claim::Same))
}

fn eagain(lab: &Lab) -> Result<Findings> {
    let mut rows = Vec::new();
    let mut shares = Vec::new();
    for (name, bs, jobs) in [
        ("512 bytes, two writers", "512", "2"),
        ("512 bytes, one writer", "512", "1"),
        ("4 KiB, two writers", "4k", "2"),
        ("4 KiB, one writer", "4k", "1"),
    ] {
        let args = [
            "--direct",
            "--rw",
            "randwrite",
            "--size",
            "256MiB",
            "--iodepth",
            "64",
            "--bs",
            bs,
            "--numjobs",
            jobs,
        ];
        let n = counted(lab, None, PLAIN, &args, &[("handed", TO_WORKERS)])?;
        shares.push(share(n[1], n[0]));
        rows.push(vec![
            name.into(),
            rate(n[0] as f64),
            rate(n[1] as f64),
            format!("{:.3}", share(n[1], n[0])),
        ]);
    }
    let (lock, small) = (shares[2] > 0.5 && shares[3] < 0.1, shares[0] > 0.5);
    let verdict = match (small || lock, lock) {
        (_, true) => Verdict::Holds,
        (true, false) => Verdict::Artefact,
        (false, false) => Verdict::DoesNotHoldHere,
    };
    Ok(Findings {
        setup: "`fileperf` at depth 64 for a second; requests that an inline attempt could not do, by the tracepoint \
                io_uring_queue_async_work. The study's size and ext4's block, one writer and two."
            .into(),
        header: strings(&["random direct writes", "requests", "handed to workers", "for each"]),
        rows,
        verdict,
        because: format!(
            "Handed to workers for each request: {:.2} and {:.2} of 512 bytes (two writers and one), {:.2} and {:.2} of 4 KiB.",
            shares[0], shares[1], shares[2], shares[3]
        ),
    })
}

fn reader(lab: &Lab) -> Result<Findings> {
    // The file is made before it is written to.
    lab.fileperf(None, &[PLAIN], &["--rw", "randread", "--direct", "--size", "256MiB"])?;
    let writer =
        lab.beside(PLAIN, &["--direct", "--rw", "randwrite", "--size", "256MiB", "--iodepth", "64"])?;
    let found = pairs(lab, None, [FORCED, PLAIN], &READS, &DEPTHS)?;
    drop(writer);
    let setup = "`fileperf` reads a file, directly and at random, to which another one writes at depth 64.";
    Ok(compared(setup, ["forced", "default"], &found, "depth 64", Claim::More))
}

const UNREGISTERED: &str = "io_uring?single_issuer&defer_taskrun";
const REGISTERED: &str = "io_uring?single_issuer&defer_taskrun&fixed_files";

fn fget(lab: &Lab) -> Result<Findings> {
    let args: Vec<&str> = READS.iter().copied().chain(["--iodepth", "16"]).collect();
    let probe = [("looked_up", "tracepoint:io_uring:io_uring_file_get")];
    let mut shares = Vec::new();
    let mut rows = Vec::new();
    for (name, engine) in [("plain", UNREGISTERED), ("registered", REGISTERED)] {
        let n = counted(lab, None, engine, &args, &probe)?;
        shares.push(share(n[1], n[0]));
        rows.push(vec![name.into(), rate(n[0] as f64), rate(n[1] as f64)]);
    }
    let holds = shares[0] > 0.9 && shares[1] < 0.01;
    Ok(Findings {
        setup: "`fileperf` at depth 16 for a second; the tracepoint io_uring_file_get, which a registered file does not reach."
            .into(),
        header: strings(&["files", "requests", "looked up"]),
        rows,
        verdict: if holds { Verdict::Holds } else { Verdict::DoesNotHoldHere },
        because: format!("Looked up for each request: {:.3} plain, {:.3} registered.", shares[0], shares[1]),
    })
}

fn registered_files(lab: &Lab) -> Result<Findings> {
    let found = pairs(lab, Some("0"), [REGISTERED, UNREGISTERED], &READS, &DEPTHS)?;
    let setup = "`fileperf`, one job on CPU 0, random direct reads of 4 KiB of a file; SINGLE_ISSUER and DEFER_TASKRUN on both \
                 sides.";
    Ok(compared(setup, ["registered", "plain"], &found, "depth 16", Claim::Same))
}
