//! `--verbose`: what a store does, on standard error.
#![allow(clippy::unwrap_used)] // a test

mod common;

use common::{on, with_input, words};

#[test]
fn events_are_told_on_standard_error_and_only_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let db = &dir.path().join("db");
    let text: String = (0..3000).map(|i| format!("key{i:05}\t{}\n", "v".repeat(100))).collect();
    let silent = with_input(words(db, "load --db DB"), text.as_bytes()).ok();
    assert!(!silent.err.contains("flush"), "{}", silent.err);
    let told = on(db, "compact --db DB --verbose --json").ok();
    assert!(told.json()["table_bytes_after"].as_u64().unwrap() > 0);
    let at = |what: &str| told.err.find(what).unwrap_or_else(|| panic!("no '{what}' in {}", told.err));
    assert!(at("INFO opened") < at("compaction began"), "{}", told.err);
    assert!(
        at("compaction began") < at("compaction ended") && at("reason=\"manual\"") < at("INFO closed"),
        "{}",
        told.err
    );
    assert!(!told.err.contains('\u{1b}'), "no colours: {}", told.err);
}

#[test]
fn a_backup_tells_them_too() {
    let dir = tempfile::tempdir().unwrap();
    let db = &dir.path().join("db");
    with_input(words(db, "load --db DB"), b"apple\tred\n").ok();
    let to = dir.path().join("backups");
    let backup = |more: &str| on(db, &format!("backup --db DB {more} {}", to.display())).ok();
    assert!(!backup("").err.contains("INFO"), "only when asked for");
    let told = backup("--verbose --json");
    assert!(told.err.contains("INFO opened") && told.err.contains("INFO closed"), "{}", told.err);
}
