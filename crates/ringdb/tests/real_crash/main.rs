//! Real file systems that lose what was not synced, run full, or become read-only, and processes without memory or
//! descriptors. Needs root, for loop mounts in a mount namespace of its own; skipped with the reason elsewhere.
//!
//! `cargo test -p ringdb --test real_crash [-- PART_OF_A_NAME]`. `RINGDB_REAL_ROUNDS` sets how often each case of a
//! crash is repeated (1 by default; above 1 every case takes every engine, else one chosen by the seed), `RINGDB_SEED`
//! the moments.
//!
//! - *snapshots*: the file behind the device is copied at one instant, while a process writes, as a power cut
//!   leaves the disk: all that reached the device is there, all that only the page cache had is gone. On
//!   ext4, xfs and btrfs.
//! - *shutdowns*: the file system stops at once without flushing (`xfs_io shutdown`), so that the writer sees the
//!   failure too. On ext4 and xfs.
//! - *full*, *read-only*, *descriptors*, *memory*: what the names say.

#![allow(clippy::unwrap_used, missing_docs)] // a test

mod crashes;
mod limits;
mod mounts;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/writers.rs"]
mod writers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use ringdb::Durability;

/// What the parent asks of this process when it is a child: engine, durability, directory.
const CHILD: &str = "RINGDB_REAL_CHILD";
const NAMESPACE: &str = "RINGDB_REAL_NAMESPACE";
/// A child that could not go on and said why.
const FAILED: u8 = 3;

fn main() -> ExitCode {
    if let Ok(what) = std::env::var(CHILD) {
        return child(&what);
    }
    let filters: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if std::env::args().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(NAMESPACE).is_none() {
        return in_a_namespace();
    }
    let seed = support::seed("real_crash");
    let mut failed = 0;
    for (name, case) in crashes::CASES.iter().chain(limits::CASES) {
        if !filters.is_empty() && !filters.iter().any(|f| name.contains(f)) {
            continue;
        }
        let started = std::time::Instant::now();
        match catch_unwind(AssertUnwindSafe(|| case(seed))) {
            Ok(Ok(said)) => println!("real_crash {name}: ok in {:.1?}: {said}", started.elapsed()),
            Ok(Err(why)) => println!("SKIPPED real_crash {name}: {why}"),
            Err(_) => {
                println!("real_crash {name}: FAILED; again by RINGDB_SEED={seed}");
                failed += 1;
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs this program again where its mounts are its own.
fn in_a_namespace() -> ExitCode {
    let exe = std::env::current_exe().expect("own path");
    let mut c = Command::new("unshare");
    c.args(["--mount", "--propagation", "private", "--"]).arg(exe).args(std::env::args_os().skip(1));
    let probe = Command::new("unshare").args(["--mount", "--propagation", "private", "true"]).output();
    match probe {
        Ok(o) if o.status.success() => {
            let status = c.env(NAMESPACE, "1").status().expect("run");
            if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Ok(o) => {
            println!("SKIPPED real_crash: no mount namespace: {}", String::from_utf8_lossy(&o.stderr).trim());
            ExitCode::SUCCESS
        }
        Err(e) => {
            println!("SKIPPED real_crash: unshare: {e}");
            ExitCode::SUCCESS
        }
    }
}

fn child(what: &str) -> ExitCode {
    let mut words = what.splitn(3, ' ');
    let (io, how, dir) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    let durability = if how == "sync" { Durability::Sync } else { Durability::Process };
    let e = writers::write_for_ever(Path::new(dir), io, durability);
    eprintln!("{:?}: {e}", e.kind());
    ExitCode::from(FAILED)
}

/// A process that writes to the store in `dir`, with what it acknowledges.
pub struct Writer {
    pub process: Child,
    pub acks: writers::Acks,
}

impl Writer {
    /// `before` is a command that runs it, with arguments, or nothing.
    pub fn start(before: &[&str], io: &str, durability: Durability, dir: &Path) -> Writer {
        let exe = std::env::current_exe().expect("own path");
        let mut c = match before {
            [] => Command::new(exe),
            [program, args @ ..] => {
                let mut c = Command::new(program);
                c.args(args).arg(exe);
                c
            }
        };
        let how = if durability == Durability::Sync { "sync" } else { "process" };
        c.env(CHILD, format!("{io} {how} {}", dir.display()));
        let mut process = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("child");
        let acks = writers::Acks::of(process.stdout.take().expect("stdout"));
        Writer { process, acks }
    }

    /// Waits for it to end by itself; how it ended and what it said.
    pub fn ended(&mut self, at_most: Duration) -> (std::process::ExitStatus, String) {
        let until = std::time::Instant::now() + at_most;
        while std::time::Instant::now() < until {
            if let Some(status) = self.process.try_wait().expect("wait") {
                let mut said = String::new();
                use std::io::Read;
                let _ = self.process.stderr.take().expect("stderr").read_to_string(&mut said);
                return (status, said);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        panic!("the writer hangs: it neither wrote nor ended for {at_most:?}");
    }

    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.kill();
    }
}
