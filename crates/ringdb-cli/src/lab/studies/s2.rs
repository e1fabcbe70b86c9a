//! System 2, flags of completion: COOP_TASKRUN.

use crate::error::Result;
use crate::lab::program::Lab;
use crate::lab::ratio::Claim;
use crate::lab::study::{Entry, Findings, How, compared, needs, pairs};

const INTERRUPTS: &str = "an NVMe drive whose interrupts are on another core, kernel probes: a guest";

pub const ALL: &[Entry] = &[
    Entry {
        id: "s2-e1",
        title: "COOP_TASKRUN on one core",
        asks: "Does IORING_SETUP_COOP_TASKRUN matter where submission and interrupt share a core? Random direct reads of \
               512 bytes, 4 jobs on core 0, depth 1 to 64.",
        original: "212.8 and 215.3 k IOPS at depth 4, 208.2 and 208.5 at 16, 215.8 and 211.7 at 64, default and COOP: no \
                   difference.",
        how: How::Here(coop),
    },
    needs("s2-e2", "COOP_TASKRUN on more cores", "four drives and four cores"),
    needs("s2-e3", "the same beside busy loops", "four drives and four cores"),
    needs("s2-e4", "what COOP_TASKRUN changes: kicks and interrupts", INTERRUPTS),
    needs("s2-e5", "the interrupt on another core", INTERRUPTS),
    needs("s2-e6", "whether that pays", INTERRUPTS),
    needs("s2-e7", "why only from depth 4 on", INTERRUPTS),
    needs("s2-e8", "interrupts that hit user mode", INTERRUPTS),
    Entry {
        id: "s2-e9",
        title: "COOP_TASKRUN with think time",
        asks: "Does COOP's gain grow with the CPU work between requests? 16 jobs at depth 64 on a core without the drive's \
               interrupt, 0 to 4,096 cycles of thinking.",
        original: "+14.7 % without thinking, 12.7 % at 64 cycles, 6.2 at 256, 0.9 at 4,096: the gain is largest without \
                   thinking, where an interrupt on another core would have to kick the submitter.",
        how: How::Here(think),
    },
    needs("s2-e10", "where to run, relative to the interrupt", "two NUMA nodes and SMT"),
    needs("s2-e11", "completions reaped on another thread", INTERRUPTS),
    needs("s2-e12", "kicks at depth without interrupts", INTERRUPTS),
    needs(
        "s2-e13",
        "a ping-pong of two threads",
        "a program of two rings that answer each other: not repeated yet",
    ),
    needs("s2-e14", "where task work runs", INTERRUPTS),
    needs(
        "s2-e15",
        "where COOP_TASKRUN hurts: another thread waits",
        "a submitter that makes no calls: not repeated yet",
    ),
];

const DEFAULT: &str = "io_uring?single_issuer=off&defer_taskrun=off&coop_taskrun=off";
const COOP: &str = "io_uring?single_issuer=off&defer_taskrun=off&coop_taskrun";
const READS: [&str; 5] = ["--direct", "--rw", "randread", "--size", "256MiB"];

fn coop(lab: &Lab) -> Result<Findings> {
    let depths: [(&str, &[&str]); 3] = [
        ("depth 1", &["--iodepth", "1"]),
        ("depth 16", &["--iodepth", "16"]),
        ("depth 64", &["--iodepth", "64"]),
    ];
    let found = pairs(lab, Some("0"), [COOP, DEFAULT], &READS, &depths)?;
    let setup = "`fileperf`, one job on CPU 0, random direct reads of 4 KiB of a file of 256 MiB; SINGLE_ISSUER and \
                 DEFER_TASKRUN, which came after the study, are off on both sides.";
    Ok(compared(setup, ["COOP", "default"], &found, "depth 16", Claim::Same))
}

fn think(lab: &Lab) -> Result<Findings> {
    let loads: [(&str, &[&str]); 4] = [
        ("0 us", &["--think-us", "0"]),
        ("2 us", &["--think-us", "2"]),
        ("8 us", &["--think-us", "8"]),
        ("32 us", &["--think-us", "32"]),
    ];
    let args: Vec<&str> = READS.iter().copied().chain(["--iodepth", "64"]).collect();
    let found = pairs(lab, None, [COOP, DEFAULT], &args, &loads)?;
    let setup = "`fileperf`, one job, depth 64, random direct reads of 4 KiB, thinking before each submission. Whether this \
                 disk completes on another CPU is the kernel's and the hypervisor's to choose.";
    Ok(compared(setup, ["COOP", "default"], &found, "0 us", Claim::More))
}
