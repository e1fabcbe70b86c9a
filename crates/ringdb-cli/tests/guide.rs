//! The commands of the guide's chapters, run as a reader runs them: the blocks of `sh` of a chapter, one after the
//! other, in one shell and an empty directory. (Blocks of `bash` need what a test has not; `src/documented.rs` parses
//! those.)
#![allow(clippy::unwrap_used)] // a test

use std::path::Path;
use std::process::Command;

/// The blocks of shell of a chapter, as one script.
fn script(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src").join(name);
    let text = std::fs::read_to_string(file).unwrap();
    text.split("```").skip(1).step_by(2).filter_map(|b| b.strip_prefix("sh\n")).collect()
}

/// What the script of a chapter printed.
fn run(name: &str) -> String {
    let script = script(name);
    assert!(script.contains("ringdb "), "{name} has no commands");
    let dir = tempfile::tempdir().unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_ringdb")).parent().unwrap().display();
    let path = std::env::var("PATH").unwrap();
    let mut sh = Command::new("sh");
    sh.args(["-euxc", &script]).current_dir(dir.path()).env("PATH", format!("{bin}:{path}"));
    let ran = sh.env_remove("ENGINESWAP").output().unwrap();
    assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn first_steps() {
    let out = run("first-steps.md");
    assert!(out.contains("red\n") && out.contains(r#"{"key":"pear","value":"green"}"#), "{out}");
}

#[test]
fn operations() {
    let out = run("operations.md");
    for said in ["all is well", "generation 1", "nothing was lost", "format version"] {
        assert!(out.contains(said), "'{said}' is not in {out}");
    }
}

#[test]
fn insight() {
    assert!(run("insight.md").contains("# TYPE ringdb_operation_seconds histogram"));
}

#[test]
fn keyspaces() {
    assert!(run("keyspaces.md").contains("apple"));
}

#[test]
fn a_command_that_fails_fails_the_chapter() {
    let script = script("operations.md").replacen("ringdb stats", "ringdb no-such-verb", 1);
    let dir = tempfile::tempdir().unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_ringdb")).parent().unwrap().display();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    let ran = Command::new("sh")
        .args(["-euc", &script])
        .current_dir(dir.path())
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(!ran.status.success());
}
