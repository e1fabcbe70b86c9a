//! `ringdb doctor`, run as a user runs it, and where the kernel refuses things.
#![allow(clippy::unwrap_used)] // a test

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Ran, engines, on, ringdb};
use serde_json::Value;
use tempfile::tempdir;

fn entries(dir: &Path) -> Vec<String> {
    let mut v: Vec<String> =
        dir.read_dir().unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    v.sort();
    v
}

fn feature<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report["features"].as_array().unwrap();
    all.iter().find(|f| f["name"] == name).unwrap_or_else(|| panic!("{name} is not in {report}"))
}

/// The command under another, such as `setpriv`; `None`, with a word of why, if that one is not there or not allowed.
fn under(wrapper: &[&str], args: &[&str]) -> Option<Ran> {
    let mut all: Vec<&str> = wrapper[1..].to_vec();
    all.push(env!("CARGO_BIN_EXE_ringdb"));
    all.extend(args);
    let done = Command::new(wrapper[0]).args(all).env_remove("ENGINESWAP").stdin(Stdio::null()).output();
    match done {
        Ok(o) if !matches!(o.status.code(), Some(125..=127)) => Some(Ran {
            code: o.status.code(),
            out: o.stdout,
            err: String::from_utf8_lossy(&o.stderr).into_owned(),
        }),
        Ok(o) => {
            eprintln!("skipped, {} failed: {}", wrapper[0], String::from_utf8_lossy(&o.stderr));
            None
        }
        Err(e) => {
            eprintln!("skipped, no {}: {e}", wrapper[0]);
            None
        }
    }
}

#[test]
fn it_reports_recommends_and_leaves_nothing() {
    let dir = tempdir().unwrap();
    let db = dir.path().join("db");
    on(&db, "put --db DB apple red").ok();
    let before = entries(&db);
    let file = dir.path().join("engine");
    let json = on(&db, &format!("doctor --db DB --json --write {}", file.display())).ok().json();
    assert_eq!(entries(&db), before, "it left something behind");

    let system = &json["system"];
    assert!(system["kernel"].as_str().unwrap().contains('.') && system["cores"].as_u64().unwrap() > 0);
    assert!(system["file_system"].is_string());
    assert_eq!(feature(&json, "posix")["works"], true);
    for engine in engines() {
        assert_eq!(feature(&json, engine)["works"], true);
        let depths = json["reads"].as_array().unwrap().iter().filter(|r| r["io"] == engine);
        let depths: Vec<u64> = depths.map(|r| r["iodepth"].as_u64().unwrap()).collect();
        assert_eq!(depths, [1, 4, 16, 32], "{engine}");
    }
    for name in ["O_DIRECT", "STATX_DIOALIGN", "RWF_DSYNC", "RWF_NOWAIT", "huge pages", "io_uring?iopoll"] {
        assert!(!feature(&json, name)["detail"].as_str().unwrap().is_empty());
    }
    assert!(json["commits"].as_array().unwrap().len() >= 6);
    assert_eq!(json["writes"].as_array().unwrap().len(), 4);
    assert!(!json["auto"]["reasons"].as_array().unwrap().is_empty());
    let advice = &json["recommended"];
    assert!(!advice["reasons"].as_array().unwrap().is_empty());
    assert!(advice["settings"].as_array().unwrap().iter().all(|s| s["reason"].as_str().unwrap().len() > 10));

    // What it wrote works on every verb that takes an engine.
    let at = format!("@{}", file.display());
    let said = std::fs::read_to_string(&file).unwrap();
    assert!(said.contains(&format!("io = {:?}", advice["io"].as_str().unwrap())), "{said}");
    let text = on(&db, &format!("get --db DB --options {} apple", file.display())).ok();
    assert_eq!(text.text(), "red\n");
    assert_eq!(on(&db, &format!("get --db DB --io {at} apple")).ok().text(), "red\n");
    let stats = on(&db, &format!("stats --db DB --io {at} --json")).ok().json().to_string();
    let engine = advice["io"].as_str().unwrap().split('?').next().unwrap();
    assert!(stats.contains(engine), "{stats}");
    let rows =
        ringdb(["fileperf", "--io", &at, "--size", "1m", "--runtime", "0.1", "--json", "-"]).ok().json();
    assert_eq!(rows[0]["io"], advice["io"]);
    ringdb(["bench", "--io", &at, "--num", "1000", "--workloads", "fillseq"]).ok();
}

#[test]
fn text_for_people_and_wrong_usage() {
    let dir = tempdir().unwrap();
    let d = dir.path().to_str().unwrap();
    let text = ringdb(["doctor", "--dir", d]).ok();
    for word in ["kernel", "auto takes", "Durable commits", "Sequential writes", "Recommended", "io = "] {
        assert!(text.text().contains(word), "'{word}' is not in {}", text.text());
    }
    assert!(entries(dir.path()).is_empty());
    ringdb(["doctor"]).fails(2, &["--db", "--dir"]);
    ringdb(["doctor", "--db", d]).fails(4, &["no store in"]);
    ringdb(["doctor", "--dir", "/nowhere/at/all"]).fails(4, &["/nowhere/at/all"]);
}

fn launcher(dir: &Path) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/seccomp.c");
    let out = dir.join("seccomp");
    match Command::new("cc").arg("-o").arg(&out).arg(source).status() {
        Ok(s) if s.success() => Some(out),
        other => {
            eprintln!("skipped, the C compiler cannot build the launcher: {other:?}");
            None
        }
    }
}

#[test]
fn where_seccomp_refuses_rings_auto_goes_on_and_says_why() {
    let dir = tempdir().unwrap();
    let Some(launcher) = launcher(dir.path()) else { return };
    let db = dir.path().join("db");
    let (launcher, db) = (launcher.to_str().unwrap(), db.to_str().unwrap());
    for (errno, word) in [("1", "seccomp filter refuses"), ("38", "seccomp filter hides")] {
        let wrapper = [launcher, errno];
        let Some(put) = under(&wrapper, &["put", "--db", db, "apple", "red"]) else { return };
        put.ok();
        let got = under(&wrapper, &["get", "--db", db, "apple"]).unwrap().ok();
        assert_eq!(got.text(), "red\n");
        let named = under(&wrapper, &["get", "--db", db, "--io", "io_uring", "apple"]).unwrap();
        named.fails(4, &["io_uring_setup", word]);
        let json = under(&wrapper, &["doctor", "--db", db, "--json"]).unwrap().ok().json();
        assert_eq!(json["system"]["seccomp_filter"], true);
        let ring = feature(&json, "io_uring");
        assert_eq!(ring["works"], false);
        assert!(ring["detail"].as_str().unwrap().contains(word), "{ring}");
        let auto = &json["auto"];
        assert!(!auto["io"].as_str().unwrap().starts_with("io_uring"));
        assert!(auto["reasons"].to_string().contains(word), "{auto}");
        let advice = &json["recommended"];
        assert!(!advice["io"].as_str().unwrap().starts_with("io_uring"));
        assert!(advice["reasons"].to_string().contains(word), "{advice}");
    }
}

#[test]
fn little_lockable_memory_and_no_privileges() {
    let dir = tempdir().unwrap();
    // An unprivileged user must get in.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let d = dir.path().to_str().unwrap();
    let bare = [
        "setpriv",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let limited = ["sh", "-c", "ulimit -l 16 && exec \"$@\"", "sh"];
    let both: Vec<&str> = limited.iter().chain(&bare).copied().collect();
    for wrapper in [&limited[..], &bare[..], &both[..]] {
        let db = format!("{d}/db{}", wrapper.len());
        // Where the binary itself cannot be reached by that user there is nothing to test.
        let Some(put) = under(wrapper, &["put", "--db", &db, "apple", "red"]) else { continue };
        put.ok();
        assert_eq!(under(wrapper, &["get", "--db", &db, "apple"]).unwrap().ok().text(), "red\n");
        let json = under(wrapper, &["doctor", "--dir", &db, "--json"]).unwrap().ok().json();
        let auto = json["auto"]["io"].as_str().unwrap();
        assert!(!json["auto"]["reasons"].as_array().unwrap().is_empty());
        assert_eq!(feature(&json, auto.split('?').next().unwrap())["works"], true);
        if wrapper.contains(&"sh") {
            assert_eq!(json["system"]["memlock_bytes"], 16 << 10);
        }
        if wrapper.contains(&"setpriv") {
            assert_eq!(json["system"]["ipc_lock"], false);
        }
        if json["system"]["memlock_bytes"] == 16 << 10 && json["system"]["ipc_lock"] == false {
            assert!(json["remarks"].to_string().contains("ulimit -l"), "{}", json["remarks"]);
        }
    }
}
