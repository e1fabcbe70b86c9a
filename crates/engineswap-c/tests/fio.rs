//! fio with engineswap as its I/O engine: what it writes is read back and verified, on each engine and at several
//! depths. Skipped, with the reason, where fio is not installed or its headers cannot be had.

#![allow(clippy::unwrap_used)] // a test

#[path = "../../engineswap/tests/options/table.rs"]
mod table;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// The plugin, built from this tree, or why it cannot be.
fn plugin() -> Option<&'static Path> {
    static PLUGIN: OnceLock<Option<PathBuf>> = OnceLock::new();
    PLUGIN.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    if !Command::new("fio").arg("--version").output().is_ok_and(|o| o.status.success()) {
        println!("skipped: fio is not installed");
        return None;
    }
    // Beside Cargo's own directories, where `make fio-plugin` puts it too.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("fio");
    let headers = Command::new(root().join("tools/fetch-fio-headers")).arg(cache).output().unwrap();
    if !headers.status.success() {
        println!("skipped: no headers of fio: {}", String::from_utf8_lossy(&headers.stderr).trim());
        return None;
    }
    let headers = String::from_utf8(headers.stdout).unwrap();
    let exe = std::env::current_exe().unwrap();
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libengineswap_fio.so");
    let mut c = Command::new(root().join("tools/build-fio-plugin"));
    let built = c.arg(exe.parent().unwrap()).arg(headers.trim()).arg(&out).output().unwrap();
    assert!(built.status.success(), "{}", text(&built));
    Some(out)
}

fn text(out: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Runs fio on a file of its own directory.
fn command(program: &[&str], plugin: &Path, dir: &Path, args: &[&str]) -> Command {
    let mut c = Command::new(program[0]);
    c.args(&program[1..]).current_dir(dir).env_remove("ENGINESWAP");
    c.args(["--name=job", "--size=1m", "--bs=4k", "--direct=1", "--filename=file"]);
    c.arg(format!("--ioengine=external:{}", plugin.display())).args(args);
    c
}

fn fio(plugin: &Path, dir: &Path, args: &[&str]) -> Output {
    command(&["fio"], plugin, dir, args).output().unwrap()
}

/// The same for jobs of offloading threads: fio 3.33 can miss that they have started (seen on a busy machine, in
/// `workqueue_init`, with nothing of the engine on any stack), and waits for ever. Such a run is ended and tried again.
/// Its jobs are threads: a process of a job would live on, and keep the output open.
fn fio_that_starts(plugin: &Path, dir: &Path, args: &[&str]) -> Output {
    for _ in 0..9 {
        let mut c = command(&["timeout", "--kill-after=5", "60", "fio"], plugin, dir, args);
        let out = c.arg("--thread").output().unwrap();
        // What has to be killed takes `timeout` with it, whose group it is in.
        if out.status.code() != Some(124) && out.status.signal() != Some(libc::SIGKILL) {
            return out;
        }
        println!("fio had no end in 60 s, tried again: {args:?}");
    }
    panic!("fio had no end in 60 s, nine times: {args:?}");
}

fn good(out: Output, what: &str) -> String {
    let text = text(&out);
    assert!(out.status.success() && !text.contains("verify: bad"), "{what}: {}\n{text}", out.status);
    text
}

#[test]
fn what_fio_writes_it_reads_back() {
    let Some(plugin) = plugin() else { return };
    for uri in ["posix?threads=4", "libaio", "io_uring?depth=16"] {
        for depth in ["1", "8", "32"] {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let (uri, depth) = (format!("--uri={uri}"), format!("--iodepth={depth}"));
            let verify = ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--rw=randwrite"];
            let text = good(fio(plugin, dir.path(), &[&verify[..], &[&uri, &depth]].concat()), &uri);
            assert!(text.contains("issued rwts: total=256,256,0,0"), "{uri} {depth}: {text}");
        }
    }
}

#[test]
fn syncs_trims_batches_and_buffered_files() {
    let Some(plugin) = plugin() else { return };
    for uri in ["posix", "libaio", "io_uring"] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let uri = format!("--uri={uri}");
        let mixed =
            ["--rw=randrw", "--iodepth=16", "--iodepth_batch_submit=4", "--iodepth_batch_complete_min=4"];
        let syncs = ["--fdatasync=32", "--verify=crc32c", "--verify_fatal=1"];
        good(fio(plugin, dir.path(), &[&mixed[..], &syncs, &[&uri]].concat()), &uri);
        let buffered =
            ["--direct=0", "--rw=write", "--bs=5k", "--fsync=64", "--verify=crc32c", "--verify_fatal=1"];
        good(
            fio(
                plugin,
                dir.path(),
                // Each job its own part of the file: one verifies while the other still writes.
                &[&buffered[..], &[&uri, "--iodepth=4", "--numjobs=2", "--thread", "--offset_increment=1m"]]
                    .concat(),
            ),
            &uri,
        );
        let ranges = ["--rw=write", "--sync_file_range=write:16", "--queue_always"];
        good(fio(plugin, dir.path(), &[&ranges[..], &[&uri]].concat()), &uri);
    }
}

#[test]
fn options_by_name_reach_the_engine() {
    let Some(plugin) = plugin() else { return };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let read = ["--rw=randread", "--iodepth=4", "--serialize_overlap=1"];
    let run = |args: &[&str]| fio(plugin, dir.path(), &[&read[..], args].concat());
    good(run(&["--engine=io_uring", "--depth=4", "--coop_taskrun=on"]), "options of io_uring");
    good(run(&["--uri=posix", "--threads=2"]), "options beside a URI");
    for (args, part) in [
        (&["--engine=posix", "--depth=4"][..], "unknown option 'depth' of posix; valid: threads"),
        (&["--engine=io_uring", "--depth=0"], "from 1 to"),
        (&["--uri=nonsense"], "unknown engine 'nonsense'"),
        (&["--uri=posix", "--engine=posix"], "not both"),
    ] {
        let out = run(args);
        let text = text(&out);
        assert!(!out.status.success() && text.contains(part), "{args:?}: {text}");
    }
}

#[test]
fn errors_of_operations_reach_fio() {
    let Some(plugin) = plugin() else { return };
    for uri in ["posix", "libaio", "io_uring"] {
        for depth in ["1", "4"] {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let (uri, depth) = (format!("--uri={uri}"), format!("--iodepth={depth}"));
            // Direct reads of a block that is not aligned are done through a copy; such writes are refused.
            let args = ["--rw=randwrite", "--bs=1000", "--number_ios=8", &uri, &depth];
            let out = fio(plugin, dir.path(), &args);
            assert!(!out.status.success(), "{uri} {depth}: {}", text(&out));
        }
    }
}

/// What the system calls of a run say, by strace; None where it does not work.
fn traced(plugin: &Path, dir: &Path, args: &[&str]) -> Option<(Output, String)> {
    let log = dir.join("calls");
    let mut c = Command::new("strace");
    c.args(["-f", "-o"]).arg(&log).args(["-e", "trace=pwritev2,io_submit,io_uring_enter"]);
    c.args(["-e", "signal=none", "fio"]).current_dir(dir).env_remove("ENGINESWAP");
    c.args([
        "--name=job",
        "--size=64k",
        "--bs=4k",
        "--direct=1",
        "--filename=file",
        "--rw=write",
        "--thread",
    ]);
    c.arg(format!("--ioengine=external:{}", plugin.display())).args(args);
    let Ok(out) = c.output() else {
        println!("skipped: there is no strace");
        return None;
    };
    Some((out, std::fs::read_to_string(&log).unwrap_or_default()))
}

/// `sync=dsync` is the difference between an acknowledged write and a durable one.
#[test]
fn a_job_of_durable_writes_writes_durably() {
    let Some(plugin) = plugin() else { return };
    for (uri, depth) in [("posix", "1"), ("io_uring", "1"), ("posix", "4"), ("libaio", "4")] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let durable = |sync: &str| {
            let args = [&*format!("--uri={uri}"), &*format!("--iodepth={depth}"), sync];
            let (out, calls) = traced(plugin, dir.path(), &args)?;
            good(out, uri);
            Some(calls.matches("RWF_DSYNC").count())
        };
        let (Some(with), Some(without)) = (durable("--sync=dsync"), durable("--sync=none")) else { return };
        // (An engine may try one when it is opened.)
        assert!(with >= 16 && without <= 1, "{uri} {depth}: {with}, {without}");
    }
}

#[test]
fn what_a_job_asks_for_is_done_or_refused() {
    let Some(plugin) = plugin() else { return };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (args, why) in [
        (&["--uri=posix", "--rw=write", "--sync=sync"][..], "sync=sync is not to be had"),
        (&["--uri=posix", "--rw=write", "--atomic=1"], "atomic=1 is not to be had"),
        (&["--uri=sim", "--rw=write"], "'sim' is a disk in memory"),
        (&["--uri=io_uring", "--iopoll=on", "--direct=0", "--rw=read"], "add direct=1"),
        (&["--uri=io_uring?provided_buffers", "--rw=read"], "'provided_buffers' would do nothing here"),
    ] {
        let out = fio(plugin, dir.path(), args);
        let text = text(&out);
        assert!(!out.status.success() && text.contains(why), "{args:?}: {text}");
    }
    // Jobs whose options fio itself takes care of.
    for args in [
        &["--rw=randwrite", "--end_fsync=1", "--fsync_on_close=1", "--iodepth=8", "--iodepth_batch=4"][..],
        &["--rw=randrw", "--io_submit_mode=offload", "--iodepth=4", "--serialize_overlap=1"],
        &[
            "--rw=randwrite",
            "--iodepth=8",
            "--iodepth_batch_complete_min=2",
            "--iodepth_batch_complete_max=4",
        ],
        &["--rw=randwrite", "--iodepth=8", "--sync=dsync", "--verify=crc32c", "--verify_fatal=1"],
    ] {
        for uri in ["--uri=posix", "--uri=libaio", "--uri=io_uring"] {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            good(fio_that_starts(plugin, dir.path(), &[args, &[uri]].concat()), &format!("{args:?} {uri}"));
        }
    }
}

/// No option of an engine's URI is accepted and ignored by fio's jobs, and so by the C interface that they use.
#[test]
fn fio_honours_or_refuses_every_option() {
    let Some(plugin) = plugin() else { return };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = |uri: &str, load: table::Load| -> Command {
        let mut c = Command::new("fio");
        c.current_dir(dir.path()).env_remove("ENGINESWAP");
        c.args(["--name=job", "--size=1m", "--bs=4k", "--filename=file", "--rw=randread"]);
        let depth = if load.alone { "1" } else { "32" };
        c.arg(format!("--iodepth={depth}")).arg(format!("--iodepth_batch={depth}"));
        c.args(["--thread", if load.buffered { "--direct=0" } else { "--direct=1" }, "--invalidate=0"]);
        c.arg(format!("--ioengine=external:{}", plugin.display())).arg(format!("--uri={uri}"));
        c
    };
    good(run("posix", table::Load { buffered: true, alone: false }).output().unwrap(), "the file");
    let refuses = &[("provided_buffers", "this program has none")];
    table::check(&table::Way { name: "fio", dir: dir.path(), refuses, buffered: true, command: &run });
}

/// With one operation in flight operations are plain calls, unless an option is named that is for queues.
#[test]
fn an_option_acts_at_an_iodepth_of_1_too() {
    let Some(plugin) = plugin() else { return };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (uri, rings) in
        [("io_uring?depth=8", false), ("io_uring?force_async", true), ("io_uring?sqpoll", true)]
    {
        let args = [&*format!("--uri={uri}"), "--iodepth=1", "--sync=dsync"];
        let Some((out, calls)) = traced(plugin, dir.path(), &args) else { return };
        good(out, uri);
        // A plain write that is durable is a call of its own.
        assert_eq!(!calls.contains("RWF_DSYNC"), rings, "{uri}: {calls}");
    }
}

/// Every option that an engine has by URI has its line in fio-plugin/options.h. Needs no fio.
#[test]
fn the_plugin_has_every_option_of_the_engines() {
    let list = std::fs::read_to_string(root().join("fio-plugin/options.h")).unwrap();
    let named: Vec<&str> = list
        .lines()
        .filter_map(|l| {
            l.strip_prefix("OPTION(").or(l.strip_prefix("SWITCH("))?.split_once(',').map(|(n, _)| n)
        })
        .collect();
    let mut known = vec![];
    for engine in ["posix", "libaio", "io_uring"] {
        let e = engineswap::Io::from_uri(&format!("{engine}?nonsense")).err().unwrap().to_string();
        let (_, valid) = e.split_once("valid: ").unwrap();
        for name in valid.split(", ") {
            assert!(named.contains(&name), "fio-plugin/options.h lacks '{name}' of {engine}");
            known.push(name.to_owned());
        }
    }
    for name in named {
        assert!(known.iter().any(|k| k == name), "no engine has the option '{name}' of fio-plugin/options.h");
    }
}
