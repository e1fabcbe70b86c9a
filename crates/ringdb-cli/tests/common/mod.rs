//! Running the command and looking at what it says.
#![allow(clippy::unwrap_used)]
#![allow(dead_code)] // each test file uses a part

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a run of the command gave.
pub struct Ran {
    pub code: Option<i32>,
    pub out: Vec<u8>,
    pub err: String,
}

impl Ran {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.out)))
    }

    #[track_caller]
    pub fn ok(self) -> Ran {
        self.code(0)
    }

    #[track_caller]
    pub fn code(self, code: i32) -> Ran {
        let out = String::from_utf8_lossy(&self.out[..self.out.len().min(4000)]);
        assert_eq!(self.code, Some(code), "standard output: {out}\nstandard error: {}", self.err);
        self
    }

    /// It failed with `code` and said why, in words that include each of `words`.
    #[track_caller]
    pub fn fails(self, code: i32, words: &[&str]) {
        let ran = self.code(code);
        for w in words {
            assert!(ran.err.contains(w), "'{w}' is not in: {}", ran.err);
        }
    }
}

pub fn command(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_ringdb"));
    c.args(args).env_remove("ENGINESWAP");
    c
}

pub fn ringdb<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Ran {
    with_input(args, b"")
}

pub fn with_input<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, input: &[u8]) -> Ran {
    let mut child =
        command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A command that fails early does not read its input.
    let feeder = std::thread::spawn(move || stdin.write_all(&input).map_err(|e| e.kind()));
    let done = child.wait_with_output().unwrap();
    let _ = feeder.join().unwrap();
    Ran { code: done.status.code(), out: done.stdout, err: String::from_utf8(done.stderr).unwrap() }
}

/// Splits a command line at blanks; `DB` stands for the directory of the store.
pub fn on(db: &Path, line: &str) -> Ran {
    ringdb(words(db, line))
}

pub fn words(db: &Path, line: &str) -> Vec<String> {
    let db = db.to_str().unwrap();
    line.split_whitespace().map(|w| if w == "DB" { db.into() } else { w.to_string() }).collect()
}

/// The engines that can be had here.
pub fn engines() -> Vec<&'static str> {
    let (have, not): (Vec<_>, Vec<_>) =
        ["posix", "libaio", "io_uring"].into_iter().partition(|e| engineswap::Io::from_uri(e).is_ok());
    if !not.is_empty() {
        eprintln!("skipped, not available on this machine: {}", not.join(", "));
    }
    have
}
