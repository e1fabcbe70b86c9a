//! The profile of seccomp that comes with the image: it allows what each verb needs on each engine, which is shown by
//! running them under a filter that is made of it, and refuses what a container has no business with.
#![allow(clippy::unwrap_used)] // a test

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::engines;
use serde_json::Value;

fn container(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../container").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn profile() -> Value {
    serde_json::from_str(&container("seccomp.json")).unwrap()
}

/// The calls that are allowed; `clone` has a condition, which `filter` leaves out.
fn allowed(profile: &Value) -> BTreeSet<String> {
    let rules = profile["syscalls"].as_array().unwrap().iter().filter(|r| r["action"] == "SCMP_ACT_ALLOW");
    rules.flat_map(|r| r["names"].as_array().unwrap()).map(|n| n.as_str().unwrap().to_owned()).collect()
}

#[test]
fn rings_are_allowed_and_nothing_dangerous() {
    let profile = profile();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let allowed = allowed(&profile);
    for name in ["io_uring_setup", "io_uring_enter", "io_uring_register", "io_submit", "openat", "futex"] {
        assert!(allowed.contains(name), "{name}");
    }
    for name in [
        "add_key",
        "bpf",
        "delete_module",
        "finit_module",
        "init_module",
        "kexec_load",
        "keyctl",
        "mount",
        "move_mount",
        "open_by_handle_at",
        "perf_event_open",
        "pivot_root",
        "process_vm_readv",
        "process_vm_writev",
        "ptrace",
        "reboot",
        "setns",
        "swapon",
        "umount2",
        "unshare",
        "userfaultfd",
        "clone3",
    ] {
        assert!(!allowed.contains(name), "{name}");
    }
    // Threads, but no namespaces: all flags CLONE_NEW* have to be clear.
    let rules = profile["syscalls"].as_array().unwrap();
    let clone = rules.iter().find(|r| r["names"] == serde_json::json!(["clone"])).unwrap();
    assert_eq!(clone["args"][0]["value"], 0x7e02_0000);
    assert_eq!(
        (&clone["args"][0]["op"], &clone["args"][0]["valueTwo"]),
        (&"SCMP_CMP_MASKED_EQ".into(), &0.into())
    );
}

/// A program that runs a command under the profile, as the kernel's own filter.
fn filter(dir: &Path) -> Option<PathBuf> {
    let mut rules = String::new();
    for name in allowed(&profile()) {
        rules += &format!("#ifdef __NR_{name}\n    ALLOW(__NR_{name})\n#endif\n");
    }
    let program = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define ALLOW(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
int main(int argc, char **argv) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        RULES
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("seccomp");
        return 125;
    }
    execv(argv[1], argv + 1);
    perror(argv[1]);
    return 125;
}
"#;
    let (source, out) = (dir.join("filter.c"), dir.join("filter"));
    std::fs::write(&source, program.replace("RULES\n", &rules)).unwrap();
    match Command::new("cc").arg("-o").arg(&out).arg(&source).output() {
        Ok(o) => {
            assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
            Some(out)
        }
        Err(e) => {
            eprintln!("skipped: no C compiler to make the filter with: {e}");
            None
        }
    }
}

#[test]
fn every_verb_runs_under_the_profile() {
    let dir = tempfile::tempdir().unwrap();
    let Some(filter) = filter(dir.path()) else { return };
    let run = |line: &str| {
        let mut c = Command::new(&filter);
        c.arg(env!("CARGO_BIN_EXE_ringdb")).args(line.split_whitespace()).current_dir(dir.path());
        let out = c.env_remove("ENGINESWAP").env("TMPDIR", dir.path()).output().unwrap();
        assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    std::fs::write(dir.path().join("fruit.tsv"), "apple\tred\npear\tgreen\n").unwrap();
    for io in engines() {
        run(&format!("load --db {io} --io {io} fruit.tsv"));
        run(&format!("put --db {io} --io {io} plum blue --durability sync"));
        assert_eq!(run(&format!("get --db {io} --io {io} plum")), "blue\n");
        for verb in ["scan", "count", "stats", "compact", "flush", "verify", "dump", "keyspaces"] {
            run(&format!("{verb} --db {io} --io {io}"));
        }
        run(&format!("checkpoint --db {io} --io {io} {io}-checkpoint"));
        run(&format!("backup --db {io} --io {io} {io}-backups"));
        run(&format!("restore {io}-backups {io}-restored"));
        run(&format!("salvage {io} {io}-salvaged"));
        run(&format!("del --db {io} --io {io} plum"));
        let bench =
            "--num 5000 --ops 1000 --threads 2 --workloads fillrandom,readrandom,multireadrandom,fillsync";
        run(&format!("bench --io {io} --direct-reads {bench}"));
    }
    run("doctor --dir .");
    // A filter that refuses is noticed: nothing else in this test would tell that there is one.
    let mut c = Command::new(&filter);
    let out = c.args(["/usr/bin/unshare", "--user", "true"]).output().unwrap();
    assert!(!out.status.success(), "unshare was let through");
}

/// What `COPY` takes is what `make static` makes, and the page and the file name the same profile.
#[test]
fn the_image_is_made_of_the_static_command() {
    let file = container("Containerfile");
    let steps: Vec<_> = file.lines().filter(|l| !l.starts_with('#') && !l.is_empty()).collect();
    assert_eq!(steps[..2], ["FROM scratch", "COPY ringdb /ringdb"]);
    assert_eq!(steps.last(), Some(&r#"ENTRYPOINT ["/ringdb"]"#));
    assert!(file.contains("container/seccomp.json"));
}
