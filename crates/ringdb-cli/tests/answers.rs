//! What the command answers to scripts and terminals: exit codes, interruptions, bytes that a terminal would
//! obey, times with units, settings of files, and the manual page.

#![allow(clippy::unwrap_used)] // a test

mod common;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{command, ringdb};

fn db(dir: &tempfile::TempDir) -> String {
    dir.path().join("db").to_str().unwrap().to_string()
}

/// As with grep: 1 says that it is not there, what is above says that there is no answer.
#[test]
fn an_absent_key_and_a_failure_have_different_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    let db = &db(&dir);
    ringdb(["get", "--db", db, "apple"]).fails(4, &["no store in"]);
    ringdb(["put", "--db", db, "apple", "red"]).ok();
    ringdb(["get", "--db", db, "apple"]).ok();
    ringdb(["get", "--db", db, "plum"]).fails(1, &["no key 'plum'"]);
    ringdb(["get", "--db", db, "--io", "nonsense", "apple"]).fails(2, &["valid: auto, posix"]);
    ringdb(["verify", "--db", db]).ok();
    ringdb(["verify", "--db", "/nowhere/at/all"]).fails(4, &["no store in"]);
    let target = dir.path().join("new").to_str().unwrap().to_string();
    ringdb(["salvage", "/nowhere/at/all", &target]).fails(1, &["/nowhere/at/all"]);
}

#[test]
fn compacting_nothing_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let db = &db(&dir);
    ringdb(["put", "--db", db, "apple", "red"]).ok();
    ringdb(["compact", "--db", db, "--prefix", "a", "--from", "b"]).fails(2, &["no key in common", "--from"]);
    ringdb(["compact", "--db", db, "--from", "b", "--to", "a"]).fails(2, &["no key in common"]);
    ringdb(["compact", "--db", db, "--prefix", "a", "--from", "ap"]).ok();
    // For a question the answer is: none.
    assert_eq!(ringdb(["count", "--db", db, "--prefix", "a", "--from", "b"]).ok().text(), "0\n");
}

/// What a command prints to a terminal; None, said aloud, where `script` cannot make one.
fn on_a_terminal(args: &[&str]) -> Option<String> {
    let line = [&[env!("CARGO_BIN_EXE_ringdb")], args].concat().join(" ");
    let out = Command::new("script").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output();
    let Ok(out) = out else {
        println!("skipped: there is no script (Debian: bsdutils)");
        return None;
    };
    assert!(out.status.success(), "{out:?}");
    Some(String::from_utf8(out.stdout).unwrap())
}

#[test]
fn a_terminal_gets_no_control_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let db = &db(&dir);
    ringdb(["put", "--db", db, "key\u{7}", "\u{1b}[2Jgone"]).ok();
    // A pipe gets what is there.
    assert_eq!(ringdb(["scan", "--db", db]).ok().out, b"key\x07\t\x1b[2Jgone\n");
    let Some(seen) = on_a_terminal(&["scan", "--db", db]) else { return };
    assert_eq!(seen.trim_end(), "key\\x07\t\\x1b[2Jgone");
    ringdb(["put", "--db", db, "plain", "\u{1b}[2Jgone"]).ok();
    assert_eq!(on_a_terminal(&["get", "--db", db, "plain"]).unwrap().trim_end(), "\\x1b[2Jgone");
    assert_eq!(on_a_terminal(&["get", "--raw", "--db", db, "plain"]).unwrap(), "\u{1b}[2Jgone");
}

fn loading(db: &str) -> Child {
    let mut c = command(["load", "--db", db]);
    c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a reader sees so many records.
fn wait_for(db: &str, n: u64) {
    while !Path::new(db).join("CURRENT").exists() || count(db) < n {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn count(db: &str) -> u64 {
    let ran = ringdb(["count", "--db", db]);
    if ran.code == Some(0) { ran.text().trim().parse().unwrap() } else { 0 }
}

/// Interrupts a load: its exit code, and how many records it says are loaded.
fn interrupt(mut child: Child) -> (Option<i32>, u64) {
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let code = child.wait().unwrap().code();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    let said = err.split_once("interrupted: ").unwrap_or_else(|| panic!("not said: {err:?}")).1;
    (code, said.split_once(" records").unwrap().0.replace(',', "").parse().unwrap())
}

fn record(n: u64) -> Vec<u8> {
    format!("key{n:08}\tvalue\n").into_bytes()
}

#[test]
fn an_interrupted_load_says_what_was_loaded() {
    // While it reads.
    let dir = tempfile::tempdir().unwrap();
    let db = &db(&dir);
    let mut child = loading(db);
    let mut input = child.stdin.take().unwrap();
    let feed = std::thread::spawn(move || {
        for n in 0.. {
            if input.write_all(&record(n)).is_err() {
                return;
            }
        }
    });
    wait_for(db, 1);
    let (code, said) = interrupt(child);
    feed.join().unwrap();
    assert_eq!((code, count(db)), (Some(130), said));

    // While it waits for more: what was not committed is not counted.
    let dir = tempfile::tempdir().unwrap();
    let db = &self::db(&dir);
    let mut child = loading(db);
    let mut input = child.stdin.take().unwrap();
    (0..1500).for_each(|n| input.write_all(&record(n)).unwrap());
    wait_for(db, 1000);
    assert_eq!(interrupt(child), (Some(130), 1000));
    assert_eq!(count(db), 1000);
}

#[test]
fn times_take_units_as_in_fio() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    let mut args = vec!["fileperf", "--io", "posix", "--size", "64k", "--filename", file.to_str().unwrap()];
    args.extend(["--runtime", "50ms", "--warmup", "1ms"]);
    ringdb(args).ok();
    let bench = |time| ringdb(["bench", "--num", "1000", "--workloads", "readrandom", "--duration", time]);
    bench("20ms").ok();
    bench("20parsecs").fails(2, &["unknown unit 'parsecs'"]);
}

#[test]
fn the_manual_names_the_values_of_options() {
    let dir = tempfile::tempdir().unwrap();
    ringdb(["man", "--dir", dir.path().to_str().unwrap()]).ok();
    let page = |name: &str| {
        let text = std::fs::read_to_string(dir.path().join(name)).unwrap().replace('\\', "");
        let synopsis = text.split_once(".SH SYNOPSIS\n").unwrap().1;
        synopsis.split_once("\n.SH").unwrap().0.to_string()
    };
    assert_eq!(page("ringdb-checkpoint.1"), {
        "ringdb checkpoint --db <DIR> [--io <URI>] [--options <FILE>] [--cache-bytes <BYTES>] [--direct-reads] [--key-file <FILE>] [--verbose] [--json] [--help] <TARGET>"
    });
    let scan = page("ringdb-scan.1");
    assert!(
        scan.contains("--db <DIR>") && scan.contains("[--limit <N>]") && scan.contains("[--json]"),
        "{scan}"
    );
    assert!(page("ringdb-get.1").contains("<KEY>..."), "{}", page("ringdb-get.1"));
    assert!(page("ringdb-load.1").contains("[<FILE>...]"), "{}", page("ringdb-load.1"));
    assert!(page("ringdb.1").contains("<VERB>"), "{}", page("ringdb.1"));
    let text = std::fs::read_to_string(dir.path().join("ringdb.1")).unwrap();
    assert!(text.contains("Exit codes") && text.contains("4 when it failed"), "{text}");
}

/// A file of `--io` has settings for stores: they act in every verb that opens one, and are named where there is none.
#[test]
fn settings_of_a_file_are_not_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("io.conf");
    std::fs::write(&file, "io = 'posix'\ncache_bytes = '5MiB'\nblock_bytes = 16384\n").unwrap();
    let at = format!("@{}", file.display());
    let bench = ["bench", "--num", "1000", "--workloads", "fillseq", "--io", &at];
    let ran = ringdb(bench).ok();
    assert!(ran.text().contains("memory budget 5.0 MiB"), "{}", ran.text());
    let ran = ringdb([&bench[..], &["--cache-bytes", "6m"]].concat()).ok();
    assert!(ran.text().contains("memory budget 6.0 MiB"), "{}", ran.text());
    ringdb(["bench", "--num", "1000", "--io", &format!("{at}x")]).fails(2, &["io.confx"]);

    let data = dir.path().join("f");
    let perf = ["fileperf", "--size", "64k", "--runtime", "50ms", "--warmup", "0", "--io", &at, "--filename"];
    let ran = ringdb([&perf[..], &[data.to_str().unwrap()]].concat()).ok();
    assert!(ran.err.contains("not used here") && ran.err.contains("cache_bytes, block_bytes"), "{}", ran.err);

    std::fs::create_dir(dir.path().join("some")).unwrap();
    std::fs::write(dir.path().join("some/file"), "text").unwrap();
    let root = dir.path().join("some");
    let demo = ["demo", "--seconds", "50ms", "--json", "--io", &at, "--root", root.to_str().unwrap()];
    assert_eq!(ringdb(demo).ok().json()["cache_bytes"], 5 << 20);
}
