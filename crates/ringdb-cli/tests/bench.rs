//! The benchmark and the demo, small: every workload on every engine, the results' form, the checks.
#![allow(clippy::unwrap_used)] // a test

mod common;

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{command, engines, on, ringdb};
use serde_json::Value;
use tempfile::tempdir;

const WORKLOADS: &str = "fillseq,readseq,readreverse,readrandom,readmissing,multireadrandom,seekrandom,overwrite,\
     readwhilewriting,mixgraph,readrandom,ycsb-a,ycsb-b,ycsb-c,ycsb-d,ycsb-e,ycsb-f,readseq,deleterandom,readrandom,\
     multireadrandom,flush,compact,waitforcompaction,readseq,readreverse,fillrandom,readrandom,seekrandom,fillsync";

#[track_caller]
fn check_row(row: &Value) {
    for name in ["workload", "io"] {
        assert!(row[name].is_string(), "{name}: {row}");
    }
    for name in ["threads", "batch_size", "ops", "device_read_bytes", "device_write_bytes"] {
        assert!(row[name].is_u64(), "{name}: {row}");
    }
    let n = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
    for name in ["seconds", "ops_per_s", "p50_us", "max_us"] {
        assert!(n(name) > 0.0, "{name}: {row}");
    }
    assert!(n("in_flight_avg") >= 0.0 && n("cpu_s") >= 0.0);
    let order = ["p50_us", "p95_us", "p99_us", "p999_us"].map(n);
    assert!(order.is_sorted(), "{row}");
}

fn every_workload_on(engine: &str) {
    if !engines().contains(&engine) {
        return;
    }
    let line = format!(
        "bench --workloads {WORKLOADS} --num 2000 --io {engine} --threads 2 --seek-nexts 10 --memtable-bytes 64k \
         --cache-bytes 1m --json -"
    );
    let dir = tempdir().unwrap();
    let out = command(line.split_whitespace()).env("TMPDIR", dir.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&out.stdout).unwrap();
    let asked: Vec<&str> = WORKLOADS.split(',').map(str::trim).collect();
    assert_eq!(rows.iter().map(|r| r["workload"].as_str().unwrap()).collect::<Vec<_>>(), asked);
    for row in &rows {
        check_row(row);
        assert_eq!(row["io"], engine);
        assert!(row["engine"].as_str().unwrap().starts_with(engine), "{row}");
        let ops = row["ops"].as_u64().unwrap();
        match row["workload"].as_str().unwrap() {
            "readseq" | "readreverse" => assert!(ops > 0 && ops.is_multiple_of(2), "{row}"),
            "fillsync" => assert_eq!((ops, row["durability"].as_str()), (2, Some("sync"))),
            "flush" | "compact" | "waitforcompaction" => assert_eq!(ops, 1),
            "readmissing" => assert_eq!((ops, row["found"].as_u64()), (2000, Some(0))),
            "multireadrandom" => assert_eq!((ops, row["batch_size"].as_u64()), (2000, Some(64))),
            _ => assert_eq!(ops, 2000, "{row}"),
        }
    }
    assert_eq!(rows[3]["found"], 2000, "all keys are there after fillseq");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the temporary store is gone");
}

#[test]
fn every_workload_on_posix() {
    every_workload_on("posix");
}

#[test]
fn every_workload_on_libaio() {
    every_workload_on("libaio");
}

#[test]
fn every_workload_on_io_uring() {
    every_workload_on("io_uring");
}

#[test]
fn engines_are_compared_side_by_side_in_rounds() {
    let dir = tempdir().unwrap();
    let engines = engines();
    let json = dir.path().join("rows.json");
    let line = format!(
        "bench --db DB --workloads fillrandom,multireadrandom --num 3000 --rounds 2 --io {} --batch-size 32 --json {}",
        engines.join(","),
        json.display()
    );
    let ran = on(&dir.path().join("db"), &line).ok();
    assert!(ran.text().contains("ops/s (median)") && ran.text().contains("p99.9 us"), "{}", ran.text());
    let rows: Vec<Value> = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(rows.len(), 2 * 2 * engines.len());
    rows.iter().for_each(check_row);
    let of = |w: &str, e: &str| rows.iter().filter(|r| r["workload"] == w && r["io"] == e).count();
    for e in &engines {
        assert_eq!((of("fillrandom", e), of("multireadrandom", e)), (2, 2));
    }
    let found: BTreeSet<u64> = rows.iter().filter_map(|r| r["found"].as_u64()).collect();
    assert!(found.len() <= 2, "each engine reads the same keys in a round: {found:?}");
}

#[test]
fn an_existing_store_is_read_again_and_never_overwritten() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    on(db, "bench --db DB --workloads fillseq --num 1000 --ops 600").ok();
    let again =
        on(db, "bench --db DB --use-existing-db --num 1000 --workloads readrandom,readseq --json -").ok();
    let rows = again.json();
    let found = rows[0]["found"].as_u64().unwrap();
    assert!((400..800).contains(&found), "600 of 1000 keys are there: {found}");
    assert_eq!(rows[1]["ops"], 600);
    let several = format!(
        "bench --db DB --use-existing-db --num 1000 --workloads readrandom --io {} --json -",
        engines().join(",")
    );
    assert_eq!(on(db, &several).ok().json().as_array().unwrap().len(), engines().len());

    on(db, "bench --db DB --workloads fillseq --num 10").fails(2, &["is not empty", "--use-existing-db"]);
    on(db, "bench --db DB --use-existing-db --workloads fillseq").fails(2, &["fresh store"]);
    let refused = format!("bench --db DB --use-existing-db --workloads overwrite --io {}", "posix,posix");
    on(db, &refused).fails(2, &["must only read"]);
    assert_eq!(on(db, "count --db DB").ok().text(), "600\n");
    // A store of other keys, or of other values, is not taken for one that the bench wrote.
    on(db, "put --db DB foreign v").ok();
    on(db, "bench --db DB --use-existing-db --num 1000 --workloads readseq")
        .fails(4, &["no bench", "foreign"]);
    on(db, "del --db DB foreign").ok();
    on(db, "put --db DB --hex 00000000000000073030303030303030 ff").ok();
    on(db, "bench --db DB --use-existing-db --num 1000 --workloads readrandom").fails(4, &["no bench"]);
}

#[test]
fn a_missing_store_is_loaded_first() {
    let dir = tempdir().unwrap();
    let ran = on(&dir.path().join("db"), "bench --db DB --workloads readrandom --num 500 --json -").ok();
    assert_eq!(ran.json()[0]["found"], 500);
    assert!(ran.err.contains("loading 500 keys first"), "{}", ran.err);
}

#[test]
fn open_loop_duration_and_odd_sizes() {
    let dir = tempdir().unwrap();
    let ran = on(
        &dir.path().join("a"),
        "bench --db DB --workloads fillseq,readrandom --num 300 --open-loop 2000 --key-size 5 --value-size 3 --json -",
    )
    .ok();
    let rows = ran.json();
    assert_eq!(rows[1]["found"], 300);
    assert!(rows[1]["seconds"].as_f64().unwrap() >= 0.14, "{rows}");
    assert_eq!(rows[0]["open_loop_rate"], 2000.0);
    let ran = on(
        &dir.path().join("b"),
        "bench --db DB --workloads fillrandom,mixgraph,ycsb-c --num 300 --duration 0.2 --value-size 9000 --compression lz4 \
         --batch-size 3 --sample 4 --sine-mix-rate --distribution uniform --json -",
    )
    .ok();
    for row in ran.json().as_array().unwrap() {
        check_row(row);
        assert!(row["ops"].as_u64().unwrap() > 0, "{row}");
    }
    on(&dir.path().join("c"), "bench --db DB --key-size 1 --num 1000").fails(2, &["too few"]);
    on(&dir.path().join("c"), "bench --db DB --workloads nosuch").fails(2, &["nosuch", "readrandom"]);
    on(&dir.path().join("c"), "bench --db DB --io nosuch").fails(2, &["nosuch"]);
    on(&dir.path().join("c"), "bench --db DB --open-loop 0").fails(2, &["positive"]);
    assert!(!dir.path().join("c").exists());
}

#[test]
fn the_demo_shows_a_table_and_leaves_nothing_behind() {
    let dir = tempdir().unwrap();
    let root = dir.path().join("root");
    for i in 0..400 {
        let sub = root.join(format!("dir{}", i % 7));
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::write(sub.join(format!("file{i}")), format!("{i}").repeat(i)).unwrap();
    }
    let temp = dir.path().join("temp");
    std::fs::create_dir(&temp).unwrap();
    let line = format!("demo --root {} --seconds 0.1 --io {}", root.display(), engines().join(","));
    let run = |line: String| command(line.split_whitespace()).env("TMPDIR", &temp).output().unwrap();
    let out = run(line.clone());
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(
        text.contains("400 files") && text.contains("multi_get of 64") && text.contains("times"),
        "{text}"
    );
    let out = run(line + " --json");
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["files"], 400);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3 * engines().len());
    assert!(rows.iter().all(|r| r["records"].as_u64().unwrap() > 0), "{report}");
    assert_eq!(std::fs::read_dir(&temp).unwrap().count(), 0);
    ringdb(["demo", "--root", "/nowhere/at/all"]).fails(4, &["/nowhere/at/all"]);
    ringdb(["demo", "--seconds", "0"]).fails(2, &["--seconds"]);
}

#[test]
fn a_signal_leaves_nothing_behind() {
    let dir = tempdir().unwrap();
    let entries = || std::fs::read_dir(dir.path()).unwrap().count();
    for signal in ["-INT", "-TERM"] {
        let mut child = command(["bench", "--workloads", "fillrandom", "--num", "100000000"])
            .env("TMPDIR", dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let waiting = |what: &str| assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        // Until the store is being written.
        while !std::fs::read_dir(dir.path())
            .unwrap()
            .any(|d| d.unwrap().path().join("store/CURRENT").exists())
        {
            waiting("the store does not appear");
            std::thread::sleep(Duration::from_millis(10));
        }
        let sent =
            std::process::Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let status = child.wait().unwrap();
        assert!(status.code().is_none(), "ended by the signal, as a shell expects: {status}");
        assert_eq!(entries(), 0, "{signal}");
    }
}

#[test]
fn rows_say_where_their_reads_came_from() {
    // Not in /tmp, which may be in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let db = &dir.path().join("db");
    on(db, "bench --db DB --workloads fillseq,compact --num 60000 --json -").ok();
    let read = |more: &str, workload: &str| {
        let line = format!(
            "bench --db DB --use-existing-db --num 60000 --ops 3000 --workloads {workload} --json - {more}"
        );
        on(db, &line).ok().json()[0].clone()
    };
    // The keys are walked over first, so the page cache has them.
    let small = read("--cache-bytes 1MiB", "readrandom");
    assert_eq!(small["reads_from"], "page_cache", "{small}");
    assert!(small["file_read_bytes"].as_u64().unwrap() > 1 << 20, "{small}");
    assert_eq!(small["direct_reads"], false);
    let direct = read("--cache-bytes 1MiB --direct-reads", "readrandom");
    if direct["device_read_bytes"] == 0 {
        return println!("SKIPPED: no direct I/O, or no device, here");
    }
    assert_eq!(
        (&direct["reads_from"], &direct["direct_reads"]),
        (&"device".into(), &true.into()),
        "{direct}"
    );
    let twice = on(
        db,
        "bench --db DB --use-existing-db --num 60000 --workloads readseq,readseq,flush --cache-bytes 64MiB --json -",
    );
    let rows = twice.ok().json();
    assert_eq!(rows[1]["reads_from"], "store", "{rows}");
    assert!(rows[2]["reads_from"].is_null(), "{rows}");
    // The table says it, and why engines do not differ.
    let line = "bench --db DB --use-existing-db --num 60000 --ops 2000 --workloads readrandom --cache-bytes 1MiB --io";
    let text = on(db, &format!("{line} posix,posix?threads=2")).ok();
    for part in ["reads from", "page cache", "--direct-reads", "pread"] {
        assert!(text.text().contains(part), "{part}: {}", text.text());
    }
}

#[test]
fn a_terminal_sees_how_far_the_bench_is() {
    let dir = tempdir().unwrap();
    let bench = format!(
        "{} bench --db {} --workloads fillrandom --duration 1 --num 100000",
        env!("CARGO_BIN_EXE_ringdb"),
        dir.path().join("db").display()
    );
    // script(1) runs a command on a terminal.
    let Ok(out) = std::process::Command::new("script").args(["-qec", &bench, "/dev/null"]).output() else {
        return println!("SKIPPED: there is no script(1)");
    };
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("fillrandom on auto"), "{text}");
    let quiet = command(bench.replace("/db ", "/db2 ").split_whitespace().skip(1)).output().unwrap();
    assert!(quiet.stderr.is_empty(), "{}", String::from_utf8_lossy(&quiet.stderr));
}

#[test]
fn tasks_are_clients_on_every_engine() {
    for engine in engines() {
        let line = format!(
            "bench --workloads fillseq,fillsync,overwrite,readrandom,readmissing --num 3000 --io {engine} --threads 2 \
             --memtable-bytes 64k --cache-bytes 1m --json -"
        );
        let refused = command(format!("{line} --async-tasks 100").split_whitespace()).output().unwrap();
        assert!(!refused.status.success());
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(text.contains("fillseq has no form for --async-tasks"), "{text}");
        let line = line.replace("fillseq,", "fillrandom,");
        // Fewer tasks than threads.
        let one = command(format!("{line} --async-tasks 1").split_whitespace()).output().unwrap();
        let rows: Vec<Value> = serde_json::from_slice(&one.stdout).unwrap();
        assert_eq!(rows[3]["ops"], 3000);
        let out = command(format!("{line} --async-tasks 100").split_whitespace()).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let rows: Vec<Value> = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(rows.len(), 5);
        for row in &rows {
            check_row(row);
            assert_eq!(row["async_tasks"], 100);
            let ops = if row["workload"] == "fillsync" { 3 } else { 3000 };
            assert_eq!(row["ops"], ops, "{row}");
        }
        assert!(rows[3]["found"].as_u64().unwrap() > 1500 && rows[4]["found"] == 0, "{rows:?}");
    }
}
