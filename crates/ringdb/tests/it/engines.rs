//! No engine that this machine has may be left out by the tests of this crate without anybody noticing.

use crate::support;

use ringdb::{Db, Options};

/// Asks the kernel itself, not engineswap, whether an engine can be had.
fn kernel_has(engine: &str) -> bool {
    match engine {
        // The kernel says 2 when io_uring is off for everybody, 1 when for all but a group; seccomp shows only by
        // trying, which is what engineswap's own conformance suite does.
        "io_uring" => {
            let off = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
            let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
            off.trim() == "0" && symbols.contains(" __x64_sys_io_uring_setup") && !seccomp()
        }
        "libaio" => std::path::Path::new("/proc/sys/fs/aio-max-nr").exists() && !seccomp(),
        _ => true,
    }
}

fn seccomp() -> bool {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default().contains("Seccomp:\t2")
}

#[test]
fn every_engine_of_this_machine_opens_a_store() {
    for engine in ["posix", "libaio", "io_uring"] {
        if !kernel_has(engine) {
            println!("SKIPPED {engine}: the kernel does not offer it");
            continue;
        }
        assert!(support::engines().contains(&engine), "the kernel has {engine}, but it does not open");
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temp dir");
        let db = Db::open(dir.path(), Options::default().with_io(engine)).expect("open");
        db.put("k", engine).expect("put");
        assert_eq!(db.get("k").expect("get").as_deref(), Some(engine.as_bytes()));
        assert_eq!(db.stats().io.split('?').next(), Some(engine));
    }
}

#[test]
fn an_unknown_engine_is_refused_with_the_names_of_the_known() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temp dir");
    for uri in ["uring", "io_uring?dept=4", "posix?x"] {
        let e = Db::open(dir.path().join("db"), Options::default().with_io(uri)).expect_err("refused");
        assert_eq!(e.kind(), ringdb::ErrorKind::FixCall, "{e}");
        let known = if uri == "uring" {
            "io_uring"
        } else if uri.starts_with("posix") {
            "threads"
        } else {
            "depth"
        };
        assert!(e.to_string().contains(known), "{e}");
        assert!(!dir.path().join("db").exists(), "nothing was made");
    }
}
