//! The contract of RocksDB's FileSystem (`contract/*.cc`), on each engine, buffered and direct, and on RocksDB's own
//! file system, which shows that the tests ask for what RocksDB does.

#![allow(clippy::unwrap_used)] // a test

use rocksdb_plugin_tests::{contract, good, place, plugin, under};

fn check(filter: &str, at_least: usize) {
    let (Some(plugin), Some(exe)) = (plugin(), contract()) else { return };
    let dir = place();
    let mut c = under(plugin, exe);
    // Old versions of RocksDB do not read asynchronously by themselves; the file system can.
    c.env("ENGINESWAP_ROCKSDB_ASYNC", "1")
        .env("CONTRACT_DIR", dir.path())
        .arg(format!("--gtest_filter={filter}"));
    let out = good(&mut c);
    let passed =
        out.lines().find_map(|l| l.strip_prefix("[  PASSED  ] ")?.split(' ').next()?.parse::<usize>().ok());
    assert!(passed.is_some_and(|n| n >= at_least), "{out}");
    for line in out.lines().filter(|l| l.contains("not supported") || l.contains("NotSupported")) {
        println!("{line}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the tests clean up");
}

#[test]
fn stock() {
    check("*/stock_*", 40);
}

#[test]
fn posix() {
    check("*/posix_*", 60);
}

#[test]
fn libaio() {
    check("*/libaio_*", 60);
}

#[test]
fn io_uring() {
    check("*/io_uring_buffered:*/io_uring_direct", 60);
}

/// More requests than the ring is deep.
#[test]
fn a_shallow_ring() {
    check("*/io_uring_shallow_*", 60);
}

#[test]
fn an_engine_for_each_kind_of_file() {
    check("*/mixed_*", 60);
}

#[test]
fn uris_and_options() {
    check("Uri.*", 4);
}
