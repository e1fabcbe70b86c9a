//! No option of an engine's URI is accepted and ignored by RocksDB with the plugin: each acts or is refused with the
//! reason, which must reach the user through RocksDB's own messages.

#![allow(clippy::unwrap_used)] // a test

#[path = "../../../crates/engineswap/tests/options/table.rs"]
mod table;

use std::path::Path;
use std::process::Command;

use rocksdb_plugin_tests::{good, place, plugin, run, text, tool, under, uri};
use table::{Load, Way};

/// db_bench on a database; with its tables read directly or not.
fn db_bench(plugin: &Path, exe: &Path, dir: &Path, uri: &str, buffered: bool, benchmarks: &str) -> Command {
    let mut c = under(plugin, exe);
    c.arg(format!("--fs_uri={uri}")).arg(format!("--db={}", dir.join("db").display()));
    c.arg(format!("--benchmarks={benchmarks}")).arg("--multiread_batched").args([
        "--num=20000",
        "--reads=2000",
        "--batch_size=64",
        "--value_size=400",
        "--compression_type=none",
        "--seed=1",
        "--cache_size=65536",
    ]);
    if !benchmarks.starts_with("fillrandom") {
        c.arg("--use_existing_db");
    }
    if !buffered {
        c.args(["--use_direct_reads", "--use_direct_io_for_flush_and_compaction"]);
    }
    c
}

#[test]
fn rocksdb_honours_or_refuses_every_option() {
    let (Some(plugin), Some(exe)) = (plugin(), tool("db_bench")) else { return };
    let dir = place();
    good(&mut db_bench(plugin, &exe, dir.path(), &uri("posix"), false, "fillrandom,compact"));
    let run = |engine: &str, load: Load| {
        let benchmark = if load.alone { "readrandom" } else { "multireadrandom" };
        db_bench(plugin, &exe, dir.path(), &uri(engine), load.buffered, benchmark)
    };
    let refuses = &[
        ("fixed_buffers", "registers none"),
        ("clone_buffers", "registers none"),
        ("provided_buffers", "this program has none"),
        ("reap", "would do nothing here"),
        ("min_wait_us", "would do nothing here"),
    ];
    table::check(&Way { name: "RocksDB", dir: dir.path(), refuses, buffered: true, command: &run });
}

#[test]
fn refusals_say_why() {
    let (Some(plugin), Some(exe)) = (plugin(), tool("db_bench")) else { return };
    for (engine, buffered, parts) in [
        (
            "sim",
            true,
            &["'sim' has no files that RocksDB could find", "valid: auto, posix, libaio, io_uring"][..],
        ),
        ("nonsense", true, &["unknown engine 'nonsense'; valid: auto, posix, libaio, io_uring"]),
        ("io_uring?wal=io_uring(iopoll)", true, &["'iopoll' polls for direct transfers", "logs"]),
        // RocksDB's own words for it would be that direct I/O is not supported.
        ("io_uring?iopoll", false, &["iopoll: "]),
        ("io_uring?iopoll", true, &["set use_direct_reads"]),
    ] {
        let dir = place();
        let benchmarks = "fillrandom,flush,readrandom";
        let out = run(&mut db_bench(plugin, &exe, dir.path(), &uri(engine), buffered, benchmarks));
        let text = text(&out);
        if engine == "io_uring?iopoll" && !buffered && out.status.success() {
            // This device has polling queues.
            continue;
        }
        assert!(parts.iter().all(|p| text.contains(p)), "{engine}: {text}");
        assert!(!text.contains(", sim"), "{engine}: {text}");
    }
}
