//! Runs one of this binary's functions in a process of its own, in a memory cgroup if there can be one.

use std::process::{Command, Stdio};

use crate::cgroup::Cgroup;

/// Which test of this binary is meant for a child, so that it does nothing when it is run as a test.
const CHILD: &str = "RINGDB_BUDGET_CHILD";
const PROCS: &str = "RINGDB_BUDGET_PROCS";

/// Whether this process is the child that `test` is for. Joins the cgroup.
pub fn is_me(test: &str) -> bool {
    if std::env::var(CHILD).as_deref() != Ok(test) {
        return false;
    }
    if let Ok(procs) = std::env::var(PROCS) {
        std::fs::write(procs, std::process::id().to_string()).expect("join the cgroup");
    }
    true
}

/// Runs the test of this name as a child that may use `limit` bytes of memory, page cache included. Panics if it
/// fails or is killed.
pub fn run(test: &str, limit: u64) {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(CHILD, test);
    let group = Cgroup::new(limit);
    match &group {
        Ok(group) => _ = command.env(PROCS, group.procs()),
        Err(e) => println!("SKIPPED the cgroup of {limit} bytes, the rest runs: {e}"),
    }
    let status = command.stdin(Stdio::null()).status().expect("child");
    if let Ok(group) = &group {
        println!("{test}: at most {} bytes in a cgroup of {limit}", group.peak());
    }
    assert!(status.success(), "{test} in {limit} bytes: {status}");
}
