//! `ringdb lab guest` on the side of the host: with images that are none, and a QEMU that is a script.
#![allow(clippy::unwrap_used)] // a test

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Ran, command, ringdb};
use serde_json::Value;

/// A directory with images, and a QEMU that does what a script says.
struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    /// `script` has the job's files in $job and the results' disk in $results.
    fn new(script: &str) -> Fake {
        let dir = tempfile::tempdir().unwrap();
        let images = dir.path().join("images");
        std::fs::create_dir(&images).unwrap();
        for name in ["stamp", "root.img", "vmlinuz-6.1", "vmlinuz-6.12", "initrd-6.1", "initrd-6.12"] {
            std::fs::write(images.join(name), "x").unwrap();
        }
        let about = r#"{"kernels": {"6.1": "6.1.0-x"}, "debian": "12", "libc": "2.36", "fio": "fio-3.33"}"#;
        std::fs::write(images.join("guest.json"), about).unwrap();
        let fake = Fake { dir };
        let begin = r#"#!/bin/bash
            echo "$*" >>"$(dirname "$0")/arguments"
            for a in "$@"; do case $a in
              *id=results,*) results=${a##*file=} ;; *id=job,*) archive=${a##*file=} ;; esac; done
            job=$(mktemp -d -p "$(dirname "$0")"); tar -C "$job" -xf "$archive"; out=$job/out; mkdir "$out"
            bring() { (cd "$out" && tar -cf "$results" -- *); }
            "#;
        std::fs::create_dir(fake.bin()).unwrap();
        let qemu = fake.bin().join("qemu-system-x86_64");
        std::fs::write(&qemu, format!("{begin}{script}\n")).unwrap();
        assert!(Command::new("chmod").arg("755").arg(qemu).status().unwrap().success());
        fake
    }

    fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut c = command(["lab", "guest", "run"].iter().chain(args));
        let path = format!("{}:{}", self.bin().display(), std::env::var("PATH").unwrap());
        c.env("PATH", path).env("RINGDB_GUEST_DIR", self.dir.path().join("images"));
        c.env("TMPDIR", self.dir.path());
        c
    }

    fn run(&self, args: &[&str]) -> Ran {
        // The command itself is large, and what it is does not matter here.
        let carried = self.dir.path().join("carried");
        std::fs::write(&carried, "#!/bin/true").unwrap();
        let args = [args, &["--command", carried.to_str().unwrap()]].concat();
        let done = self.command(&args).stdin(Stdio::null()).output().unwrap();
        Ran { code: done.status.code(), out: done.stdout, err: String::from_utf8(done.stderr).unwrap() }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.bin().join(name)).unwrap()
    }
}

/// The features that a doctor finds on the kernel 6.1 without polling queues.
fn features(iopoll: bool) -> String {
    let all = [
        ("posix", true),
        ("libaio", true),
        ("io_uring", true),
        ("io_uring?single_issuer&defer_taskrun", true),
        ("io_uring?no_sqarray", false),
        ("io_uring?iopoll", iopoll),
        ("io_uring?iopoll&hybrid_iopoll", false),
        ("O_DIRECT", true),
    ];
    let all = all.map(|(name, works)| format!(r#"{{"name":"{name}","works":{works},"detail":"d"}}"#));
    format!(r#"{{"features":[{}]}}"#, all.join(","))
}

/// A doctor's results; the machine with polling queues is told by the kernel's command line.
fn doctor(without: bool) -> Fake {
    let script = "case \"$*\" in *poll_queues=1*) cat \"$(dirname \"$0\")/with\" ;; *) cat \"$(dirname \"$0\")/without\" ;; esac \
                  >$out/doctor.json; echo 0 >$out/status; echo '@@ done'; bring";
    let fake = Fake::new(script);
    std::fs::write(fake.bin().join("with"), features(true)).unwrap();
    std::fs::write(fake.bin().join("without"), features(without)).unwrap();
    fake
}

#[test]
fn the_list_says_what_each_job_asks_and_boots() {
    let list = ringdb(["lab", "guest", "list", "--json"]).ok().json();
    let of = |name: &str| list.as_array().unwrap().iter().find(|j| j["name"] == name).unwrap().clone();
    assert_eq!(of("iopoll")["machines"].as_array().unwrap().len(), 4);
    assert!(of("conformance")["tests"].as_str().unwrap().contains("cargo test -p engineswap"));
    assert!(of("doctor")["tests"].is_null());
    assert!(ringdb(["lab", "guest", "list"]).ok().text().contains("do iopoll and its kin poll"));
}

#[test]
fn wrong_arguments_are_refused_with_what_is_right() {
    ringdb(["lab", "guest", "run"]).fails(2, &["<JOB>"]);
    ringdb(["lab", "guest", "run", "dance"]).fails(2, &["no job 'dance'", "lab guest list"]);
    ringdb(["lab", "guest", "run", "doctor", "--kernel", "5.4"]).fails(2, &["6.1, 6.12"]);
    ringdb(["lab", "guest", "run", "doctor", "--timeout", "0"]).fails(2, &["--timeout"]);
    ringdb(["lab", "guest", "run", "doctor", "--tests", "x"]).fails(2, &["leave --tests out"]);
    ringdb(["lab", "guest", "run", "conformance"]).fails(2, &["needs --tests", "cargo test"]);
    ringdb(["lab", "guest", "run", "conformance", "--tests", "/no/such"])
        .fails(4, &["/no/such: no such file"]);
    ringdb(["lab", "guest", "run", "doctor", "--command", "/no/such"]).fails(4, &["/no/such: no such file"]);
}

#[test]
fn what_is_not_installed_or_not_built_is_named() {
    let fake = doctor(false);
    std::fs::remove_file(fake.dir.path().join("images/root.img")).unwrap();
    fake.run(&["doctor"]).fails(4, &["root.img", "make guest"]);
    std::fs::write(fake.dir.path().join("images/guest.json"), "{").unwrap();
    fake.run(&["doctor"]).fails(4, &["guest.json", "make guest"]);
    std::fs::remove_file(fake.dir.path().join("images/stamp")).unwrap();
    fake.run(&["doctor"]).fails(4, &["no guest in", "`make guest`"]);
    let none = fake.command(&["doctor"]).env("PATH", fake.dir.path()).output().unwrap();
    let said = String::from_utf8(none.stderr).unwrap();
    assert_eq!(none.status.code(), Some(4));
    assert!(said.contains("Debian package: qemu-system-x86"), "{said}");
}

#[test]
fn a_job_goes_in_and_its_results_come_out() {
    let fake = doctor(false);
    let record = fake.run(&["doctor", "--kernel", "6.1", "--json"]).ok().json();
    assert_eq!((record["job"].as_str(), record["guest"]["libc"].as_str()), (Some("doctor"), Some("2.36")));
    let machines = record["machines"].as_array().unwrap();
    assert_eq!(machines.len(), 2);
    assert_eq!(machines[1]["machine"]["poll_queues"], 1);
    let checks = machines[0]["found"]["checks"].as_array().unwrap();
    assert!(checks.len() == 8 && checks.iter().all(|c| c["holds"] == true), "{record}");
    assert!(machines[0]["found"]["data"]["features"].is_array());
    // What the machine is like, and that it has neither a network nor the host's processor.
    let arguments = fake.read("arguments");
    assert_eq!(arguments.lines().count(), 2);
    for part in
        ["-accel tcg", "-nic none", "-no-reboot", "nvme.poll_queues=0", "max_ioqpairs=2", "vmlinuz-6.1 "]
    {
        assert!(arguments.contains(part), "{part} is not in {arguments}");
    }
    assert!(!arguments.contains("kvm"));
    // The script came with its variables, and nothing stays behind.
    let job = std::fs::read_dir(fake.bin()).unwrap().find_map(|e| {
        let path = e.unwrap().path();
        path.join("script").is_file().then_some(path)
    });
    let script = std::fs::read_to_string(job.unwrap().join("script")).unwrap();
    assert!(script.starts_with("export POLL_QUEUES='") && script.contains("ringdb doctor"), "{script}");
    let left = std::fs::read_dir(fake.dir.path()).unwrap().map(|e| e.unwrap().file_name());
    assert!(!left.into_iter().any(|n| n.to_string_lossy().starts_with("ringdb-guest-")));
}

#[test]
fn what_does_not_hold_is_said_and_is_exit_code_1() {
    let ran = doctor(true).run(&["doctor", "--kernel", "6.1"]).code(1);
    assert!(ran.text().contains("NO    io_uring?iopoll is refused"), "{}", ran.text());
}

/// What a machine failed with.
fn failure(fake: &Fake, more: &[&str]) -> String {
    let args = [&["iopoll", "--kernel", "6.12", "--json"], more].concat();
    let record: Value = fake.run(&args).code(1).json();
    record["machines"][0]["failed"].as_str().unwrap().to_string()
}

#[test]
fn a_guest_that_fails_says_how() {
    let fails = |script: &str, words: &[&str]| {
        let said = failure(&Fake::new(script), &[]);
        words.iter().for_each(|w| assert!(said.contains(w), "'{w}' is not in: {said}"));
    };
    fails("echo 'Kernel panic - not syncing'", &["without results", "Kernel panic"]);
    fails("echo 'no such machine' >&2; exit 3", &["exit status: 3", "no such machine"]);
    fails(
        "yes | head -c 9000 | tr -d '\\n'; printf '\\xff\\n'; printf 'oops%0600d' 1 >$results",
        &["no archive"],
    );
    fails(
        "echo 99 >$out/status; echo GLIBC_2.99 >$out/stderr; bring",
        &["GLIBC_2.99", "make static", "2.36"],
    );
    fails("echo 124 >$out/status; bring", &["took longer than 240 seconds"]);
    fails("echo 1 >$out/status; echo 'no disk' >$out/stderr; bring", &["ended with 1", "no disk"]);
    fails("echo x >$out/stderr; bring", &["no status"]);
    fails("echo 0 >$out/status; echo '{' >$out/rows.json; bring", &["rows.json", "no JSON"]);
    fails("echo 0 >$out/status; echo '{\"name\": 3}' >$out/rows.json; bring", &["rows.json"]);
}

/// A test program that takes the log for what the script says, where this machine lets it have its own mounts.
fn power_cuts(script: &str) -> Option<Ran> {
    let may = Command::new("unshare").args(["--mount", "--propagation", "private", "true"]).output();
    if !may.is_ok_and(|o| o.status.success()) {
        println!("SKIPPED: no mount namespace");
        return None;
    }
    let fake = Fake::new("echo 0 >$out/status; bring");
    let tests = fake.dir.path().join("power_cuts");
    std::fs::write(&tests, format!("#!/bin/bash\n{script}\n")).unwrap();
    assert!(Command::new("chmod").arg("755").arg(&tests).status().unwrap().success());
    let ran = fake.run(&["powercut-smoke", "--json", "--tests", tests.to_str().unwrap()]);
    let arguments = fake.read("arguments");
    for part in
        ["driver=blklogwrites,node-name=test,", "cache.no-flush=on", "write-zeroes=off,request-merging=off"]
    {
        assert!(arguments.contains(part), "{part} is not in {arguments}");
    }
    Some(ran)
}

#[test]
fn the_log_of_a_disk_is_gone_through_afterwards() {
    let counts = "\"points\": 100, \"cases\": 208, \"told\": [\"batch 7\"], \"flushes\": 9, \"compactions\": 9, \
                  \"recycled\": 9, \"manifests\": 9, \"acknowledgements\": 9, \"stores\": 208";
    let script = |losses: u32| {
        format!(
            "[ \"$1 $4 $5 $6 $7 $8\" = 'replay ext4 335544320 process 100 1' ] || exit 2
             [ -f \"$3\" ] && echo '{{\"losses\": {losses}, {counts}}}' >\"$2\""
        )
    };
    let Some(good) = power_cuts(&script(0)) else { return };
    let record: Value = good.ok().json();
    assert_eq!(record["machines"][0]["found"]["data"]["stores"], 208);
    let bad = power_cuts(&script(1)).unwrap().code(1).json();
    let found = bad["machines"][0]["found"]["checks"][0]["found"].as_str().unwrap().to_string();
    assert!(found.contains("1 losses at 100 moments, 208 disks: first: batch 7"), "{found}");
    let failed = power_cuts("echo 'no loop device' >&2; exit 1").unwrap().code(1).json();
    let why = failed["machines"][0]["failed"].as_str().unwrap().to_string();
    assert!(why.contains("as root") && why.contains("no loop device"), "{why}");
}

fn alive(pid: &str) -> bool {
    // A zombie, which waits for whoever reaps it, has ended.
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !status.is_empty() && !status.contains(") Z ")
}

fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const FOR_EVER: &str = "echo '@@ running'; echo $$ >\"$(dirname \"$0\")/pid.new\"; \
                        mv \"$(dirname \"$0\")/pid.new\" \"$(dirname \"$0\")/pid\"; exec sleep 1000";

#[test]
fn a_guest_that_does_not_end_is_ended() {
    let fake = Fake::new(FOR_EVER);
    let began = Instant::now();
    let said = failure(&fake, &["--timeout", "2"]);
    assert!(said.contains("not ended within 2 seconds") && said.contains("@@ running"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(60));
    let pid = fake.read("pid");
    assert!(!alive(pid.trim()));
}

#[test]
fn no_guest_outlives_a_command_that_is_killed() {
    let fake = Fake::new(FOR_EVER);
    let pid_file = fake.bin().join("pid");
    let started = |path: &Path| std::fs::read_to_string(path).ok();
    let mut child = fake
        .command(&["iopoll"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the guest starts", || started(&pid_file).is_some());
    let pid = fake.read("pid");
    assert!(alive(pid.trim()));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the guest ends", || !alive(pid.trim()));
}
