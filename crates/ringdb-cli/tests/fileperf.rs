//! `ringdb fileperf`, run as a user runs it.
#![allow(clippy::unwrap_used)] // a test

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Ran, command, engines, on, ringdb, words};
use tempfile::tempdir;

fn fileperf(dir: &Path, args: &str) -> Ran {
    on(dir, &format!("fileperf --size 2m --runtime 0.2 --warmup 0.01 {args}"))
}

#[test]
fn every_engine_and_mode_gives_a_row() {
    let dir = tempdir().unwrap();
    let io = engines().join(",");
    for (mode, more) in [
        ("randread", ""),
        ("seqread", "--direct"),
        ("randwrite", "--direct=1 --batch 4"),
        ("seqwrite", "--direct=0"),
        ("randrw", "--rwmixread 70 --direct"),
    ] {
        let file = dir.path().join(mode);
        let csv = dir.path().join("rows.csv");
        let line = format!(
            "--io {io} --rw {mode} {more} --numjobs 2 --iodepth 4 --bs 8k --verify --json - --csv {} --filename {}",
            csv.display(),
            file.display()
        );
        let rows = fileperf(dir.path(), &line).ok().json();
        let rows = rows.as_array().unwrap();
        assert_eq!(rows.len(), engines().len());
        for (row, engine) in rows.iter().zip(engines()) {
            assert_eq!(row["io"], engine);
            assert!(row["engine"].as_str().unwrap().starts_with(engine));
            assert_eq!((row["mode"].as_str(), row["numjobs"].as_u64()), (Some(mode), Some(2)));
            assert_eq!((row["iodepth"].as_u64(), row["block_size_bytes"].as_u64()), (Some(4), Some(8192)));
            assert_eq!(row["fixed_buffers"], false);
            assert_eq!(row["short_ios"], 0);
            let n = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} in {row}"));
            assert!(n("rps") > 0.0 && n("cpu_s") > 0.0);
            assert!((n("bw_bytes") - n("ops") * 8192.0 / n("seconds")).abs() < 1.0);
            assert_eq!(row["rps_rounds"].as_array().unwrap().len(), 5);
            let l = &row["latency_us"];
            let at = |p: &str| l[p].as_f64().unwrap();
            assert!(
                0.0 < at("p50")
                    && at("p50") <= at("p95")
                    && at("p95") <= at("p99")
                    && at("p99") <= at("p99_9")
            );
            assert!(at("avg") > 0.0);
        }
        let text = std::fs::read_to_string(&csv).unwrap();
        assert_eq!(text.lines().count(), 1 + rows.len());
        let fields = |l: &str| l.split(',').count();
        assert_eq!(fields(text.lines().next().unwrap()), 33);
        // Kept, and all of it written: no hole was left for reads to fall into.
        let m = file.metadata().unwrap();
        assert!(m.len() == 2 << 20 && m.blocks() * 512 >= 2 << 20, "{} blocks", m.blocks());
    }
}

#[test]
fn a_temporary_file_goes_away_and_a_table_is_printed() {
    let dir = tempdir().unwrap();
    let out = command("fileperf --size 1m --runtime 0.1 --warmup 0 --io posix".split(' '))
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("IOPS") && text.contains("p99.9") && text.contains("posix"), "{text}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_file_that_is_not_whole_is_not_read() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("f");
    let sized = |size: &str, more: &str| {
        let file = file.display();
        let line = format!("fileperf --size {size} --runtime 0.1 --warmup 0 --io posix --filename {file}");
        on(dir.path(), &format!("{line} {more}"))
    };
    let named = |more: &str| sized("2m", more);
    std::fs::File::create(&file).unwrap().set_len(4 << 20).unwrap();
    named("").fails(4, &["only 0 bytes that are written"]);
    // A mode that writes may fill it; then it can be read, but not be overwritten by a check.
    named("--rw randwrite").ok();
    named("").ok();
    named("--verify").fails(4, &["would overwrite"]);
    sized("8m", "").fails(4, &["2097152 bytes that are written"]);
}

#[test]
fn short_reads_are_counted_as_what_they_are() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("f");
    let json = dir.path().join("rows.json");
    std::fs::write(&file, vec![7; 4 << 20]).unwrap();
    let line = format!(
        "fileperf --size 4m --runtime 2.5 --warmup 0 --io posix --iodepth 2 --filename {} --json {}",
        file.display(),
        json.display()
    );
    let child = command(words(dir.path(), &line))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Once the file has been opened by the job it is cut to a half and a bit, under the reader's feet.
    let fds = format!("/proc/{}/fd", child.id());
    let real = file.canonicalize().unwrap();
    let opened = || {
        let fds = std::fs::read_dir(&fds).into_iter().flatten().flatten();
        fds.filter(|f| std::fs::read_link(f.path()).is_ok_and(|l| l == real)).count() > 0
            && std::fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().count() > 1
    };
    let begun = Instant::now();
    while !opened() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never began");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::File::options().write(true).open(&file).unwrap().set_len((2 << 20) + 100).unwrap();
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(4), "{said}");
    assert!(said.contains("requests were short"), "{said}");
    let rows: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let n = |name: &str| rows[0][name].as_f64().unwrap();
    assert!(n("short_ios") > 0.0);
    // Bytes beyond the end were not transferred, so they are in no figure.
    let full = n("ops") * 4096.0;
    let bytes = n("bw_bytes") * n("seconds");
    assert!(bytes - full <= n("short_ios") * 100.0 + 1.0, "{bytes} bytes for {} whole requests", n("ops"));
}

#[test]
fn verify_finds_a_wrong_byte() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("f");
    let line = format!(
        "fileperf --size 1m --runtime 5 --warmup 0 --io posix --verify --filename {}",
        file.display()
    );
    let mut child = command(words(dir.path(), &line)).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    // Spoil it again and again until it is noticed: the file is written first, over what was spoilt too early.
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody noticed");
        if file.metadata().is_ok_and(|m| m.len() == 1 << 20) {
            use std::os::unix::fs::FileExt;
            let f = std::fs::File::options().write(true).open(&file).unwrap();
            for block in 0..256 {
                f.write_all_at(b"wrong", block * 4096 + 1000).unwrap();
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(4), "{said}");
    assert!(said.contains("wrong bytes at offset"), "{said}");
}

#[test]
fn the_matrix_has_every_cell_and_a_picture() {
    let dir = tempdir().unwrap();
    let json = dir.path().join("m.json");
    let ran = on(
        dir.path(),
        &format!(
            "fileperf --matrix --size 4m --runtime 0.05 --warmup 0 --io posix --json {}",
            json.display()
        ),
    );
    let ran = ran.ok();
    assert!(
        ran.err.contains("no rows with registered buffers") && ran.err.contains("fixed_buffers"),
        "{}",
        ran.err
    );
    let rows: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let rows = rows.as_array().unwrap();
    let mut cells: Vec<_> =
        rows.iter().map(|r| (r["mode"].to_string(), r["numjobs"].as_u64(), r["iodepth"].as_u64())).collect();
    cells.sort();
    cells.dedup();
    assert_eq!((rows.len(), cells.len()), (8, 8));
    let svg = std::fs::read_to_string(dir.path().join("m.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    // A bar for each row, and the legend's square.
    assert_eq!(svg.matches(r##"fill="#7F9DB9""##).count(), 8 + 1);
    let registered = on(
        dir.path(),
        &format!(
            "fileperf --matrix --size 4m --runtime 0.05 --warmup 0 --io io_uring --json {}",
            json.display()
        ),
    )
    .code(if engines().contains(&"io_uring") { 0 } else { 1 });
    if registered.code == Some(0) && !registered.err.contains("no rows with registered buffers") {
        let rows: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let compared = |r: &&serde_json::Value| r["against_plain_percent"]["median"].is_number();
        assert_eq!(rows.as_array().unwrap().iter().filter(compared).count(), 8);
        let mut used = 0;
        for row in rows.as_array().unwrap() {
            let uses = row["mode"] == "randread" && row["fixed_buffers"] == true;
            let n = row["registered"].as_u64().unwrap();
            assert!(uses || n == 0, "{row}");
            used += n;
        }
        // Of all rows together: on a busy machine the books of so short a round may be read too late for one.
        assert!(used > 0);
        assert!(registered.text().contains("registered buffers give"));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = tempdir().unwrap();
    for (line, words) in [
        ("--rwmixread 50", &["--rwmixread is for"][..]),
        ("--bs 1000", &["multiple of 512"]),
        ("--iodepth 4 --batch 5", &["--batch 5"]),
        ("--matrix --iodepth 4", &["cannot be used with"]),
        ("--io nonsense", &["unknown engine 'nonsense'", "valid: auto"]),
        ("--io posix --fixed-buffers", &["unknown option 'fixed_buffers' of posix"]),
        ("--io libaio --fixed-files", &["unknown option 'fixed_files' of libaio"]),
        ("--io io_uring?depth=4 --iodepth 8", &["room for 4"]),
        ("--verify --iodepth 512", &["raise --size"]),
        ("--json - --csv -", &["only one of"]),
        ("--io @/nowhere/file", &["/nowhere/file", "No such file"]),
    ] {
        fileperf(dir.path(), line).fails(2, words);
    }
    ringdb(["fileperf", "--filename", dir.path().to_str().unwrap()]).fails(4, &["is a directory"]);
}

#[test]
fn computing_between_submissions_takes_its_time() {
    let dir = tempdir().unwrap();
    let rows = fileperf(dir.path(), "--think-us 2000 --json - --io posix").ok().json();
    assert_eq!(rows[0]["think_us"], 2000);
    // At most one read every two milliseconds.
    let (ops, seconds) = (rows[0]["ops"].as_f64().unwrap(), rows[0]["seconds"].as_f64().unwrap());
    assert!(ops >= 1.0 && ops <= seconds * 500.0 + 5.0, "{ops} in {seconds} s");
}

#[test]
fn the_study_of_options_runs() {
    let dir = tempdir().unwrap();
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/study-options");
    let json = dir.path().join("study.json");
    let study = |only: &str| {
        let mut c = std::process::Command::new(&tool);
        c.args(["--rounds", "1", "--seconds", "0.3", "--size", "4m", "--only", only, "--ringdb"]);
        c.arg(env!("CARGO_BIN_EXE_ringdb")).arg("--dir").arg(dir.path()).arg("--json").arg(&json);
        c.output().unwrap()
    };
    let ran = study("batch,think");
    let err = String::from_utf8_lossy(&ran.stderr);
    if err.contains("--io io_uring") {
        return println!("skipped: no io_uring: {err}");
    }
    assert!(ran.status.success(), "{err}");
    let rows: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 6 + 8);
    assert!(rows.iter().all(|r| r["rounds"][0]["rps"].as_f64().unwrap() > 0.0));
    // One call for 32 requests and one to wait, against one or more for each.
    if let (Some(one), Some(all)) =
        (rows[0]["counts_per_op"]["enters"].as_f64(), rows[5]["counts_per_op"]["enters"].as_f64())
    {
        assert!(one >= 0.9 && all < 0.5, "{one} {all}");
    }
    assert!(!study("no-such-study").status.success());
    assert!(std::fs::read_dir(dir.path()).unwrap().count() == 1, "what it made is removed");
}

/// With nothing to submit the kernel answers ETIME when the time to wait is over.
#[test]
fn a_wait_that_is_bounded_in_time_goes_on() {
    let dir = tempdir().unwrap();
    for more in ["--iodepth 8", "--iodepth 8 --rw randwrite --numjobs 2"] {
        let io = "--direct --io io_uring?reap=4&min_wait_us=50";
        let ran =
            fileperf(dir.path(), &format!("{io} {more} --json - --filename {}/f", dir.path().display()));
        if ran.code != Some(0) && (!engines().contains(&"io_uring") || ran.err.contains("needs Linux")) {
            return eprintln!("skipped: {}", ran.err);
        }
        let rows = ran.ok().json();
        assert!(rows[0]["ops"].as_f64().unwrap() > 0.0, "{rows}");
    }
}
