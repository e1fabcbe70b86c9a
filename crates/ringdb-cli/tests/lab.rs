//! `ringdb lab`: published experiments, repeated.
#![allow(clippy::unwrap_used)] // a test

mod common;

use common::ringdb;
use serde_json::Value;

fn disk() -> tempfile::TempDir {
    // Not /tmp, which may be a file system without direct I/O.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn the_list_says_what_runs_here_and_what_the_rest_needs() {
    let list = ringdb(["lab", "list", "--json"]).ok().json();
    let all = list.as_array().unwrap();
    assert_eq!(all.len(), 48);
    let of = |id: &str| all.iter().find(|e| e["id"] == id).unwrap();
    assert_eq!((of("s1-e1")["here"].as_bool(), of("s1-e1")["needs"].as_str()), (Some(true), Some("")));
    assert!(of("s2-e10")["needs"].as_str().unwrap().contains("NUMA"));
    let text = ringdb(["lab", "list"]).ok();
    assert!(text.text().contains("s2-e16") && text.text().contains("runs here"));
}

#[test]
fn what_does_not_run_here_is_refused_with_the_reason() {
    ringdb(["lab", "run"]).fails(2, &["<ID>"]);
    ringdb(["lab", "run", "s9-e9"]).fails(2, &["no experiment 's9-e9'", "lab list"]);
    ringdb(["lab", "run", "s2-e10"]).fails(2, &["s2-e10 needs two NUMA nodes"]);
    ringdb(["lab", "run", "s2-e24", "--seconds", "0"]).fails(2, &["from 0.1"]);
    ringdb(["lab", "run", "s2-e24", "--dir", "/nowhere/at/all"]).fails(4, &["/nowhere/at/all"]);
}

/// The figures of a record.
fn experiment(record: &Value) -> &Value {
    &record["experiments"][0]
}

#[test]
fn an_experiment_leaves_a_page_and_a_record_of_both_sides() {
    if engineswap::Io::from_uri("io_uring").is_err() {
        return println!("SKIPPED: no io_uring here");
    }
    let dir = disk();
    let page = dir.path().join("page.md");
    let at = dir.path().to_str().unwrap();
    let run = [
        "lab",
        "run",
        "s2-e24",
        "--seconds",
        "0.2",
        "--dir",
        at,
        "--json",
        "-",
        "--page",
        page.to_str().unwrap(),
    ];
    let record = ringdb(run).ok().json();
    let one = experiment(&record);
    assert_eq!(one["id"], "s2-e24");
    assert!(one["original"].as_str().unwrap().contains("+2.6 %"));
    let found = &one["found"];
    assert_eq!(found["rows"].as_array().unwrap().len(), 3, "{one}");
    let verdicts = ["holds", "does_not_hold_here", "inside_the_spread", "artefact"];
    assert!(verdicts.iter().any(|v| found["verdict"] == *v), "{found}");
    assert!(one["commands"][0].as_str().unwrap().contains("fixed_files"), "{one}");
    let text = std::fs::read_to_string(&page).unwrap();
    for part in [
        "# Published studies",
        "[s2-e24](#s2-e24-what-registered-files-gain)",
        "+2.6 %",
        "| depth 16 |",
        "**Verdict: ",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // What it made is gone.
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["page.md"]);
}

#[test]
fn a_store_is_measured_on_both_sides_of_a_claim() {
    if engineswap::Io::from_uri("io_uring").is_err() {
        return println!("SKIPPED: no io_uring here");
    }
    let dir = disk();
    let run = ["lab", "run", "s3-e3", "--rounds", "1", "--dir", dir.path().to_str().unwrap(), "--json", "-"];
    let record = ringdb(run).ok().json();
    let one = experiment(&record);
    let commands = one["commands"].as_array().unwrap();
    assert_eq!(commands.len(), 2, "{one}");
    assert!(
        commands[0].as_str().unwrap().contains("queue_always")
            && !commands[1].to_string().contains("queue_always")
    );
    assert_eq!(one["found"]["rows"].as_array().unwrap().len(), 2);
}

/// The processes that were started with an argument like this.
fn running_with(part: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok());
    lines.map(|l| String::from_utf8_lossy(&l).replace('\0', " ")).filter(|l| l.contains(part)).collect()
}

#[test]
fn the_rounds_are_those_that_were_asked_for() {
    if engineswap::Io::from_uri("io_uring").is_err() {
        return println!("SKIPPED: no io_uring here");
    }
    let dir = disk();
    let at = dir.path().to_str().unwrap();
    let run = ["lab", "run", "s2-e24", "--rounds", "2", "--seconds", "0.2", "--dir", at, "--json", "-"];
    let record = ringdb(run).ok().json();
    let command = experiment(&record)["commands"][0].to_string();
    assert!(command.contains("--rounds 2"), "{command}");
}

#[test]
fn a_signal_ends_what_was_begun_and_leaves_nothing() {
    if engineswap::Io::from_uri("io_uring").is_err() {
        return println!("SKIPPED: no io_uring here");
    }
    let dir = disk();
    let at = dir.path().to_str().unwrap().to_owned();
    // A writer that would run for an hour beside readers.
    let mut lab = common::command(["lab", "run", "s2-e21", "--seconds", "20", "--dir", &at])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let until = |what: &dyn Fn() -> bool| {
        let ends = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !what() {
            assert!(std::time::Instant::now() < ends, "{:?}", running_with(&at));
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    let children = || running_with(&format!("fileperf --filename {at}"));
    until(&|| children().iter().any(|line| line.contains("randwrite")));
    let pid = rustix::process::Pid::from_raw(lab.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(!lab.wait().unwrap().success());
    until(&|| children().is_empty());
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
