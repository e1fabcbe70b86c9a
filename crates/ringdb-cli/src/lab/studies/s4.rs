//! System 4: registered buffers.

use std::path::Path;

use crate::cleanup::TempDir;
use crate::error::Result;
use crate::lab::program::{FileRow, Lab};
use crate::lab::ratio::{Claim, Ratio, judge};
use crate::lab::study::{Entry, Findings, How, rate, strings};

pub const ALL: &[Entry] = &[
    Entry {
        id: "s4-e1",
        title: "registered buffers, writes",
        asks: "What do registered buffers gain? Random writes of 4 KiB to a file of 1 GiB on tmpfs, jobs x depth.",
        original: "+4.3 % at 1x1, +5.7 at 1x16, +25.1 at 16x1, +29.2 at 16x16. One run each; plain transfers were vectored, \
                   registered ones not, so part of the gain is the opcode.",
        how: How::Here(writes),
    },
    Entry {
        id: "s4-e2",
        title: "registered buffers, reads",
        asks: "The same with reads.",
        original: "+1.7 % at 1x1, +1.8 at 1x16, +1.8 at 16x1, +10.9 at 16x16.",
        how: How::Here(reads),
    },
];

fn writes(lab: &Lab) -> Result<Findings> {
    matrix(lab, "randwrite")
}

fn reads(lab: &Lab) -> Result<Findings> {
    matrix(lab, "randread")
}

fn matrix(lab: &Lab, mode: &str) -> Result<Findings> {
    let memory = TempDir::new_in(Path::new("/dev/shm"), "ringdb-lab-")?;
    let in_memory = memory.path().join("file").display().to_string();
    // Every request on both sides is one of the ring: READ and READ_FIXED, WRITE and WRITE_FIXED.
    let engine = "io_uring?queue_always";
    let mut rows = Vec::new();
    let mut judged = Ratio::of(&[], &[]);
    for (place, file, args) in [
        ("tmpfs", in_memory, ["--size", "256MiB"].as_slice()),
        ("disk, direct", lab.path("file"), &["--size", "256MiB", "--direct"]),
    ] {
        let all = lab.matrix(&file, engine, args)?;
        let cells: Vec<&FileRow> = all.iter().filter(|r| r.mode == mode && !r.fixed_buffers).collect();
        for plain in cells {
            let same = |r: &&FileRow| {
                r.fixed_buffers
                    && (&r.mode, r.numjobs, r.iodepth) == (&plain.mode, plain.numjobs, plain.iodepth)
            };
            let Some(fixed) = all.iter().find(same) else { continue };
            let ratio = Ratio::of(&fixed.rps_rounds, &plain.rps_rounds);
            if place == "tmpfs" && (plain.numjobs, plain.iodepth) == (16, 16) {
                judged = ratio.clone();
            }
            rows.push(vec![
                place.into(),
                format!("{}x{}", plain.numjobs, plain.iodepth),
                rate(plain.rps),
                rate(fixed.rps),
                ratio.to_string(),
                format!("{:.1}, {:.1}", plain.latency_us.p50, fixed.latency_us.p50),
                format!("{:.1}, {:.1}", plain.latency_us.p99, fixed.latency_us.p99),
                format!("{:.2}, {:.2}", plain.cpu_us_per_op, fixed.cpu_us_per_op),
                format!("{:.2}", fixed.registered as f64 / fixed.ops.max(1) as f64),
            ]);
        }
    }
    Ok(Findings {
        setup: "`fileperf --matrix` on `io_uring?queue_always`: every request is one of the ring, plain or registered, never \
                vectored. 256 MiB that are written first; tmpfs, and the disk directly. 16 jobs on so few CPUs are more than \
                they can run."
            .into(),
        header: strings(&["file", "jobs x depth", "plain", "registered", "ratio", "p50 us", "p99 us", "CPU us each", "registered requests"]),
        rows,
        verdict: judge(&judged, Claim::More),
        because: format!("Registered to plain on tmpfs, 16x16: {judged}."),
    })
}
