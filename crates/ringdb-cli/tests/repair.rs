//! `verify` and `salvage` on damaged stores, run as a user runs them.
#![allow(clippy::unwrap_used)] // a test

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{on, ringdb, with_input, words};
use tempfile::tempdir;

fn filled(db: &Path) {
    let text: String = (0..5000).map(|i| format!("key{i:05}\t{}\n", "v".repeat(100))).collect();
    with_input(words(db, "load --db DB"), text.as_bytes()).ok();
    on(db, "put --db DB --keyspace users ann 1").ok();
    on(db, "compact --db DB").ok();
}

fn table(db: &Path) -> PathBuf {
    let all = fs::read_dir(db).unwrap().map(|e| e.unwrap().path());
    all.filter(|p| p.extension().is_some_and(|e| e == "sst"))
        .max_by_key(|p| p.metadata().unwrap().len())
        .unwrap()
}

fn change(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    let n = bytes.len();
    bytes[if at == usize::MAX { n - 10 } else { at }] ^= 0x40;
    fs::write(file, bytes).unwrap();
}

fn salvage(src: &Path, dst: &Path, more: &str) -> common::Ran {
    let args = format!("salvage {} {} {more}", src.display(), dst.display());
    ringdb(args.split_whitespace())
}

#[test]
fn verify_says_which_block_and_keys_and_how_much() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    filled(db);
    change(&table(db), 2 * 4096 + 9);
    let text = on(db, "verify --db DB").code(1).text().to_string();
    for words in [
        "at offset 8192",
        "block: block 2",
        "level 6",
        "keys key",
        "entries",
        "4.0 KiB",
        "of the store",
        "1 problem",
    ] {
        assert!(text.contains(words), "'{words}' is not in: {text}");
    }
    let json = on(db, "verify --db DB --json").code(1).json();
    let p = &json["problems"][0];
    assert_eq!(
        (p["kind"].as_str(), p["block"].as_u64(), p["bytes"].as_u64()),
        (Some("block"), Some(2), Some(4096))
    );
    assert!(p["entries"].as_u64().unwrap() > 10 && p["share"].as_f64().unwrap() < 0.1, "{p}");
    assert_eq!(json["damaged_blocks"], 1);
    // The others are served; a table that cannot be opened is listed.
    assert_eq!(on(db, "get --db DB key04999").ok().text(), "v".repeat(100) + "\n");
    on(db, "count --db DB").fails(4, &["ringdb verify", "ringdb salvage"]);
    change(&table(db), usize::MAX);
    assert!(on(db, "stats --db DB").ok().text().contains("DAMAGED"));
    assert_eq!(on(db, "verify --db DB --json").code(1).json()["problems"][0]["kind"], "table");
}

#[test]
fn salvage_makes_a_new_store_and_says_what_is_lost() {
    let dir = tempdir().unwrap();
    let (db, new) = (&dir.path().join("db"), &dir.path().join("new"));
    filled(db);
    let whole = salvage(db, new, "").ok();
    assert!(
        whole.text().contains("nothing was lost") && whole.text().contains("5,001 keys"),
        "{}",
        whole.text()
    );
    assert_eq!(on(new, "count --db DB").ok().text(), "5000\n");
    assert_eq!(on(new, "get --db DB --keyspace users ann").ok().text(), "1\n");
    on(new, "verify --db DB").ok();

    change(&table(db), 3 * 4096 + 100);
    change(&table(db), usize::MAX);
    fs::remove_file(db.join("CURRENT")).unwrap();
    let before = fs::read_dir(db).unwrap().count();
    let part = dir.path().join("part");
    let ran = salvage(db, &part, "--json").code(3);
    let report = ran.json();
    let lost = &report["lost"][0];
    let kept = 5001 - report["lost_entries"].as_u64().unwrap();
    assert_eq!(report["keys"].as_u64(), Some(kept), "{report}");
    assert!(
        kept > 4900 && lost["first_block"] == 3 && lost["from"].as_str().unwrap().starts_with("key"),
        "{report}"
    );
    on(&part, "verify --db DB").ok();
    assert_eq!(on(&part, "get --db DB --keyspace users ann").ok().text(), "1\n");
    let text = salvage(db, &dir.path().join("again"), "--io posix --frames-after-gaps").code(3);
    for words in ["LOST", "block 3", "keys key", "manifest: CURRENT is missing", "lost: 4.0 KiB"] {
        assert!(text.text().contains(words), "'{words}' is not in: {}", text.text());
    }
    assert_eq!(fs::read_dir(db).unwrap().count(), before, "the source is not changed");
}

#[test]
fn salvage_refuses_what_it_should() {
    let dir = tempdir().unwrap();
    let (db, new) = (&dir.path().join("db"), &dir.path().join("new"));
    salvage(db, new, "").fails(1, &["no store in", "db"]);
    fs::create_dir(db).unwrap();
    salvage(db, new, "").fails(1, &["no store in", "no table"]);
    fs::remove_dir(db).unwrap();
    filled(db);
    salvage(db, db, "").fails(2, &["outside"]);
    salvage(db, &db.join("sub/new"), "").fails(2, &["outside"]);
    std::os::unix::fs::symlink(db, dir.path().join("link")).unwrap();
    salvage(db, &dir.path().join("link/new"), "").fails(2, &["outside"]);
    salvage(db, &table(db), "").fails(2, &["outside"]);
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    salvage(db, &file, "").fails(2, &["new or empty"]);
    fs::create_dir(new).unwrap();
    fs::write(new.join("x"), "").unwrap();
    salvage(db, new, "").fails(2, &["new or empty"]);
    salvage(db, new, "--nonsense").fails(2, &["--nonsense"]);
    salvage(db, new, "--io nonsense").fails(2, &["nonsense"]);
    ringdb(["salvage", db.to_str().unwrap()]).fails(2, &["DST"]);
    assert!(ringdb(["salvage", "--help"]).ok().text().contains("Exit codes"));
}

#[test]
fn a_full_disk_leaves_no_half_a_store() {
    let dir = tempdir().unwrap();
    let (db, new) = (&dir.path().join("db"), &dir.path().join("new"));
    filled(db);
    // No file may become longer than 100 KiB.
    let script = format!(
        "trap '' XFSZ; ulimit -f 200; exec {} salvage {} {}",
        env!("CARGO_BIN_EXE_ringdb"),
        db.display(),
        new.display()
    );
    let ran = Command::new("sh").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains(".sst") && said.contains("try again"), "{said}");
    assert!(!new.exists(), "{:?}", fs::read_dir(new).map(|d| d.count()));
    salvage(db, new, "").ok();
}
