//! No option of an engine's URI is accepted and ignored by `fileperf` and `bench`, that is by files and by the store.
#![allow(clippy::unwrap_used)] // a test

mod common;
#[path = "../../engineswap/tests/options/table.rs"]
mod table;

use std::process::Command;

use common::command;
use table::{Load, Way};

fn disk() -> tempfile::TempDir {
    // Not /tmp, which may be a file system without direct I/O.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn fileperf_honours_or_refuses_every_option() {
    let dir = disk();
    let file = dir.path().join("file");
    let run = |uri: &str, load: Load| -> Command {
        let mut c = command(["fileperf", "--size", "4m", "--bs", "4k"]);
        match load.alone {
            // Reads of fileperf always go through its queue; buffered writes do not.
            true => c.args(["--iodepth", "1", "--rw", "randwrite"]),
            false => c.args(["--iodepth", "32", "--batch", "16"]),
        };
        c.args(["--runtime", "300ms"]);
        c.args(["--warmup", "0", "--filename"]).arg(&file).arg("--io").arg(uri);
        if !load.buffered && !load.alone {
            c.arg("--direct");
        }
        c
    };
    assert!(run("posix", Load { buffered: false, alone: false }).output().unwrap().status.success());
    let refuses = &[
        ("provided_buffers", "this program has none"),
        // A shallower queue would be another measurement than the one that was asked for.
        ("depth", "room for 3 requests"),
    ];
    table::check(&Way { name: "fileperf", dir: dir.path(), refuses, buffered: true, command: &run });
}

#[test]
fn the_store_honours_or_refuses_every_option() {
    let dir = disk();
    let bench = |uri: &str, workload: &str| -> Command {
        let mut c = command([
            "bench",
            "--num",
            "30000",
            "--value-size",
            "400",
            "--cache-bytes",
            "4m",
            "--ops",
            "2000",
        ]);
        c.args(["--workloads", workload, "--batch-size", "64", "--direct-reads", "--io", uri]);
        c.arg("--db").arg(dir.path().join("db"));
        c
    };
    assert!(bench("posix", "readrandom").output().unwrap().status.success());
    let run = |uri: &str, load: Load| -> Command {
        let mut c = bench(uri, if load.alone { "readrandom" } else { "multireadrandom" });
        c.arg("--use-existing-db");
        c
    };
    let refuses = &[
        ("fixed_buffers", "registers none"),
        ("clone_buffers", "registers none"),
        ("provided_buffers", "this program has none"),
    ];
    table::check(&Way { name: "store", dir: dir.path(), refuses, buffered: false, command: &run });
}

/// A disk in memory has nothing to measure for fileperf, and nothing to lose: it is said and not tried.
#[test]
fn fileperf_says_why_it_refuses_the_simulated_disk() {
    common::ringdb(["fileperf", "--io", "sim"])
        .fails(2, &["'sim' is a disk in memory", "valid: auto, posix"]);
    common::ringdb(["fileperf", "--io", "io_uring?iopoll"])
        .fails(2, &["'iopoll' polls for direct", "--direct"]);
}
