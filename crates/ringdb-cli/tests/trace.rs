//! `ringdb trace`: the stages of requests, and flame graphs.
//!
//! Needs bpftrace, root, tracefs and a kernel with BTF; each test says what is missing, and is skipped then.
#![allow(clippy::unwrap_used)] // a test

mod common;

use common::{command, ringdb};
use serde_json::Value;

/// What `trace` says is missing here.
fn missing() -> Option<String> {
    let dir = disk();
    let file = dir.path().join("f");
    let run = ["trace", "--seconds", "20", "--", "ringdb", "fileperf", "--rw", "randread", "--size", "1MiB"];
    let more = ["--runtime", "50ms", "--warmup", "0", "--filename", file.to_str().unwrap()];
    let out = command(run.into_iter().chain(more)).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let known =
        ["needs root", "bpftrace cannot be run", "does not describe its types", "there are no tracepoints"];
    known.iter().any(|k| said.contains(k)).then_some(said)
}

fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

macro_rules! or_skip {
    () => {
        if let Some(why) = missing() {
            return println!("SKIPPED: {why}");
        }
        if engineswap::Io::from_uri("io_uring").is_err() {
            return println!("SKIPPED: no io_uring here");
        }
    };
}

/// `fileperf` under `trace`, on a file in this directory.
fn traced(dir: &std::path::Path, options: &[&str], load: &[&str]) -> Value {
    let file = dir.join("f");
    let mut args = vec!["trace", "--json", "-"];
    args.extend(options);
    args.extend(["--", "ringdb", "fileperf", "--size", "8MiB", "--runtime", "300ms", "--warmup", "0"]);
    args.extend(["--filename", file.to_str().unwrap()]);
    args.extend(load);
    ringdb(args).ok().json()
}

fn stage(times: &Value, name: &str) -> f64 {
    times["stages_us"][name].as_f64().unwrap()
}

/// The stages are the whole that the kernel counted, up to what is said to be missing.
fn adds_up(engine: &Value) {
    let requests = engine["requests"].as_u64().unwrap();
    assert!(requests > 50, "{engine}");
    let sum: f64 = engine["stages_us"].as_object().unwrap().values().map(|v| v.as_f64().unwrap()).sum();
    let mean = engine["mean_us"].as_f64().unwrap();
    assert!((sum - mean).abs() < 0.01 * mean, "{engine}");
    if engine["lost_events"] == 0 {
        let to_whole = engine["sum_to_whole"].as_f64().unwrap();
        assert!((to_whole - 1.0).abs() < 0.001, "{engine}");
        assert!(engine["seen"].as_u64().unwrap() - requests <= requests / 100, "{engine}");
    }
    assert!(engine["astray"].as_u64().unwrap() <= requests / 20, "{engine}");
}

#[test]
fn a_buffered_append_of_a_ring_is_told_to_be_handed_to_a_worker_and_a_plain_one_is_not() {
    or_skip!();
    let dir = disk();
    let engines = ["--engines", "posix,io_uring?queue_always"];
    let record = traced(dir.path(), &engines, &["--rw", "seqwrite", "--iodepth", "1"]);
    let (plain, ring) = (&record["engines"][0], &record["engines"][1]);
    for engine in [plain, ring] {
        adds_up(engine);
        assert!(stage(engine, "file system") > 0.0, "{engine}");
    }
    assert_eq!((plain["punted"].as_u64(), stage(plain, "hand-over to a worker")), (Some(0), 0.0));
    assert!(plain["says"].as_str().unwrap().contains("no request was handed to a worker"));
    // All but those of the first moments, and a page that needed no waiting.
    assert!(ring["punted"].as_f64().unwrap() > 0.9 * ring["requests"].as_f64().unwrap(), "{ring}");
    assert!(stage(ring, "hand-over to a worker") > 0.0 && stage(ring, "worker") > 0.0, "{ring}");
    let says = ring["says"].as_str().unwrap();
    assert!(says.contains("were handed to workers (io_uring_queue_async_work)"), "{says}");
}

#[test]
fn direct_reads_are_mostly_the_device_on_every_engine() {
    or_skip!();
    let dir = disk();
    let engines = ["--engines", "posix,libaio?queue_always,io_uring?queue_always"];
    let record = traced(dir.path(), &engines, &["--rw", "randread", "--direct", "--iodepth", "1"]);
    for engine in record["engines"].as_array().unwrap() {
        adds_up(engine);
        assert!(stage(engine, "device") > 0.2 * engine["mean_us"].as_f64().unwrap(), "{engine}");
        assert_eq!(engine["punted"], 0, "{engine}");
    }
}

#[test]
fn a_picture_and_a_sample_are_made() {
    or_skip!();
    let dir = disk();
    let out = dir.path().join("out");
    let options = ["--out", out.to_str().unwrap(), "--one-in", "4", "--engines", "posix"];
    let record = traced(dir.path(), &options, &["--rw", "randread", "--direct"]);
    adds_up(&record["engines"][0]);
    let svg = std::fs::read_to_string(out.join("stages.svg")).unwrap();
    assert!(svg.contains("posix: ") && svg.contains("hand-over to a worker"), "{svg}");
}

#[test]
fn a_running_process_is_attached_to_and_goes_on() {
    or_skip!();
    let dir = disk();
    let file = dir.path().join("f");
    let mut load = command([
        "fileperf",
        "--size",
        "8MiB",
        "--rw",
        "randread",
        "--direct",
        "--runtime",
        "60s",
        "--filename",
    ])
    .arg(&file)
    .stdout(std::process::Stdio::null())
    .spawn()
    .unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while std::fs::metadata(&file).is_ok_and(|m| m.len() < 8 << 20) || !file.exists() {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let pid = load.id().to_string();
    let record = ringdb(["trace", "--pid", &pid, "--seconds", "2", "--json", "-"]).ok().json();
    assert!(load.try_wait().unwrap().is_none(), "it was ended");
    load.kill().unwrap();
    load.wait().unwrap();
    assert!(record["engines"][0]["requests"].as_u64().unwrap() > 50, "{record}");
}

#[test]
fn waits_are_a_flame_graph_with_the_operation_in_hand_and_two_engines_give_a_difference() {
    or_skip!();
    let dir = disk();
    let (out, file) = (dir.path().join("out"), dir.path().join("f"));
    let run = [
        "trace",
        "--flame",
        "off-cpu",
        "--engines",
        "posix,io_uring?queue_always",
        "--out",
        out.to_str().unwrap(),
        "--",
    ];
    let load = [
        "ringdb",
        "fileperf",
        "--size",
        "8MiB",
        "--rw",
        "randread",
        "--direct",
        "--runtime",
        "300ms",
        "--filename",
    ];
    let made = ringdb(run.into_iter().chain(load).chain([file.to_str().unwrap()])).ok();
    for name in [
        "off-cpu-posix.svg",
        "off-cpu-io_uring-queue_always.svg",
        "off-cpu-io_uring-queue_always-difference.svg",
    ] {
        assert!(made.text().contains(name), "{}", made.text());
        assert!(std::fs::read_to_string(out.join(name)).unwrap().contains("<svg"), "{name}");
    }
    let folded = std::fs::read_to_string(out.join("off-cpu-posix.folded")).unwrap();
    assert!(folded.contains(";engineswap read;"), "{folded}");
    assert!(folded.contains(";io_schedule;") || folded.contains("__schedule"), "{folded}");
}

#[test]
fn samples_of_the_cpu_are_a_flame_graph() {
    or_skip!();
    if std::process::Command::new("perf").arg("--version").output().is_err() {
        return println!("SKIPPED: there is no perf here");
    }
    let dir = disk();
    let out = dir.path().join("out");
    let run = [
        "trace",
        "--flame",
        "on-cpu",
        "--out",
        out.to_str().unwrap(),
        "--",
        "ringdb",
        "bench",
        "--workloads",
    ];
    ringdb(run.into_iter().chain([
        "fillrandom",
        "--num",
        "600000",
        "--db",
        dir.path().join("db").to_str().unwrap(),
    ]))
    .ok();
    let folded = std::fs::read_to_string(out.join("on-cpu.folded")).unwrap();
    assert!(folded.contains("ringdb::"), "{folded}");
    assert!(std::fs::read_to_string(out.join("on-cpu.svg")).unwrap().contains("<svg"));
}

#[test]
fn what_cannot_be_traced_is_refused_with_the_reason() {
    ringdb(["trace"]).fails(2, &["COMMAND"]);
    ringdb(["trace", "--", "/bin/true"]).fails(2, &["/bin/true", "has no probes", "--probes"]);
    ringdb(["trace", "--", "no-such-program-here"]).fails(2, &["no program 'no-such-program-here'"]);
    ringdb(["trace", "--engines", "posix", "--", "/bin/true"]).fails(2, &["{engine}"]);
    ringdb(["trace", "--flame", "on-cpu", "--", "ringdb", "bench"]).fails(2, &["--out"]);
    ringdb(["trace", "--pid", "4000000000"]).fails(4, &["process 4000000000"]);
    // Without bpftrace.
    let out = command(["trace", "--", "ringdb", "doctor"]).env("PATH", "/nowhere").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(4), "{said}");
    assert!(said.contains("needs root") || said.contains("bpftrace cannot be run"), "{said}");
}

#[test]
fn a_program_that_fails_fails_the_trace_and_one_without_end_is_ended() {
    or_skip!();
    ringdb(["trace", "--", "ringdb", "fileperf", "--filename", "/no/such/dir/f"])
        .fails(4, &["the program ended with"]);
    let dir = disk();
    let file = dir.path().join("f");
    let run = [
        "trace",
        "--seconds",
        "1",
        "--",
        "ringdb",
        "fileperf",
        "--runtime",
        "1h",
        "--size",
        "4MiB",
        "--filename",
    ];
    let out = command(run.into_iter().chain([file.to_str().unwrap()])).output().unwrap();
    assert!(out.status.success() && String::from_utf8_lossy(&out.stderr).contains("the time is up"));
}

/// The processes that were started with an argument like this.
fn running_with(part: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok());
    lines.map(|l| String::from_utf8_lossy(&l).replace('\0', " ")).filter(|l| l.contains(part)).collect()
}

#[test]
fn a_signal_ends_the_program_that_is_traced() {
    or_skip!();
    let dir = disk();
    let file = dir.path().join("signalled").to_str().unwrap().to_owned();
    let load =
        ["trace", "--", "ringdb", "fileperf", "--runtime", "1h", "--size", "4MiB", "--filename", &file];
    let mut trace = command(load).spawn().unwrap();
    let program = || running_with(&format!("fileperf --runtime 1h --size 4MiB --filename {file}"));
    let until = |what: &dyn Fn() -> bool| {
        let ends = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !what() {
            assert!(std::time::Instant::now() < ends, "{:?}", program());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    until(&|| std::path::Path::new(&file).exists());
    let pid = rustix::process::Pid::from_raw(trace.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(!trace.wait().unwrap().success());
    until(&|| program().is_empty());
}
