//! The static probes of engineswap fire under RocksDB: bpftrace counts what db_bench submits and completes.
//!
//! Skipped, with the reason, where there is no bpftrace or it may not attach.

#![allow(clippy::unwrap_used)] // a test

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rocksdb_plugin_tests::{ENGINES, good, place, plugin, skipped, tool, under, uri};

fn bpftrace_works() -> bool {
    let out = Command::new("bpftrace")
        .args(["-e", "BEGIN { printf(\"works\"); exit() }"])
        .stdin(Stdio::null())
        .output();
    let works = out.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("works"));
    if !works {
        skipped("bpftrace may not trace here");
    }
    works
}

/// What bpftrace counted while `during` ran: `submit[engine, operation]` and the same of `complete`.
fn counted(plugin: &Path, dir: &Path, during: impl FnOnce()) -> BTreeMap<String, u64> {
    let script = format!(
        "BEGIN {{ printf(\"begun\\n\"); }}
         usdt:{0}:engineswap:submit {{ @submit[str(arg0), str(arg1)] = count(); }}
         usdt:{0}:engineswap:complete {{ @complete[str(arg0), str(arg1)] = count(); }}",
        plugin.display()
    );
    let out = dir.join("out");
    let file = File::create(&out).unwrap();
    let mut tracer = Command::new("bpftrace")
        .args(["-e", &script])
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while !std::fs::read_to_string(&out).unwrap().contains("begun") {
        let early = tracer.try_wait().unwrap();
        if early.is_some() || Instant::now() > end {
            tracer.kill().unwrap();
            panic!("bpftrace does not attach: {}", std::fs::read_to_string(&out).unwrap());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    during();
    // It prints its counts when it is interrupted.
    good(Command::new("kill").args(["-INT", &tracer.id().to_string()]));
    while tracer.try_wait().unwrap().is_none() {
        if Instant::now() > end + Duration::from_secs(60) {
            tracer.kill().unwrap();
            panic!("bpftrace does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = std::fs::read_to_string(&out).unwrap();
    let counts = text.lines().filter_map(|l| {
        let (name, n) = l.strip_prefix('@')?.rsplit_once(": ")?;
        Some((name.to_owned(), n.parse().ok()?))
    });
    counts.collect()
}

#[test]
fn every_submission_is_completed_under_db_bench() {
    let (Some(plugin), Some(db_bench)) = (plugin(), tool("db_bench")) else { return };
    if !bpftrace_works() {
        return;
    }
    let dir = place();
    // A file of its own, so that nobody else's operations are counted.
    let own = dir.path().join("libengineswap_rocksdb.so");
    std::fs::copy(plugin, &own).unwrap();
    let counts = counted(&own, dir.path(), || {
        for engine in ENGINES {
            let mut c = under(&own, &db_bench);
            c.arg(format!("--fs_uri={}", uri(engine)))
                .arg(format!("--db={}", dir.path().join(engine).display()));
            c.args(["--num=5000", "--benchmarks=fillrandom,compact,multireadrandom", "--multiread_batched"]);
            c.args(["--batch_size=16", "--use_direct_reads", "--use_direct_io_for_flush_and_compaction"]);
            good(c.args(["--compression_type=none", "--cache_size=65536", "--seed=1"]));
        }
    });
    for engine in ENGINES {
        let of =
            |probe: &str, op: &str| counts.get(&format!("{probe}[{engine}, {op}]")).copied().unwrap_or(0);
        for op in ["read", "write", "fdatasync", "open"] {
            let (submitted, completed) = (of("submit", op), of("complete", op));
            println!("{engine} {op}: {submitted} submitted, {completed} completed");
            // bpftrace may lose one of two events that meet on a processor, and does not say so.
            let lost = submitted.abs_diff(completed);
            assert!(submitted > 0 && lost * 50 <= submitted + 50, "{engine} {op}: {counts:?}");
        }
        assert!(of("submit", "read") > 1000, "{engine}: {counts:?}");
    }
}
