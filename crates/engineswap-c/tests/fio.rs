//! fio with engineswap as its I/O engine: what it writes is read back and verified, on each engine and at several
//! depths. Skipped, with the reason, where fio is not installed or its headers cannot be had.

#![allow(clippy::unwrap_used)] // a test

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
fn fio(plugin: &Path, dir: &Path, args: &[&str]) -> Output {
    let mut c = Command::new("fio");
    c.current_dir(dir).env_remove("ENGINESWAP");
    c.args(["--name=job", "--size=1m", "--bs=4k", "--direct=1", "--filename=file"]);
    c.arg(format!("--ioengine=external:{}", plugin.display())).args(args);
    c.output().unwrap()
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
    let read = ["--rw=randread", "--iodepth=4"];
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

/// Every option that an engine has by URI has its line in fio-plugin/options.h. Needs no fio.
#[test]
fn the_plugin_has_every_option_of_the_engines() {
    let list = std::fs::read_to_string(root().join("fio-plugin/options.h")).unwrap();
    let named: Vec<&str> =
        list.lines().filter_map(|l| l.strip_prefix("OPTION(")?.split_once(',').map(|(n, _)| n)).collect();
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
