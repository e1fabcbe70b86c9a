//! The plugin in a process with another RocksDB than it was built for: every way in refuses, with the reason, and
//! nothing of that RocksDB's is touched.

#![allow(clippy::unwrap_used)] // a test

use std::process::Command;

use rocksdb_plugin_tests::{good, other_version, plugin, version, ways_in};

fn go(other: &str) -> Option<String> {
    let (_, exe, shim) = (plugin()?, ways_in()?, other_version()?);
    let mut c = Command::new(exe);
    c.env("LD_PRELOAD", shim).env("OTHER_ROCKSDB", other).env_remove("ENGINESWAP");
    Some(good(&mut c))
}

#[test]
fn every_way_in_refuses_another_version() {
    let Some([major, minor, patch]) = version() else { return };
    let built = format!("{major}.{minor}.{patch}");
    // Another major or minor version, and a release that differs in its patch alone.
    for other in [
        format!("{}.{minor}.{patch}", major + 4),
        format!("{major}.{}.{patch}", minor + 1),
        format!("{major}.{minor}.{}", patch + 1),
    ] {
        let Some(out) = go(&other) else { return };
        let why = format!(
            "engineswap: built for RocksDB {built}, but this program has RocksDB {other}: engineswap:// is not \
             available (build the plugin against its headers: make plugin ROCKSDB_DIR=...)"
        );
        // At load, by the function that RocksDB's build calls, and as the message of the C interface.
        assert!(out.contains("load: nothing") && out.contains("register: 0"), "{other}: {out}");
        assert!(out.contains(&format!("c: {why}")), "{other}: {out}");
        assert_eq!(out.matches(&why).count(), 3, "{other}: {out}");
    }
}

#[test]
fn every_way_in_works_with_its_own_version() {
    let Some([major, minor, patch]) = version() else { return };
    let Some(out) = go(&format!("{major}.{minor}.{patch}")) else { return };
    assert!(out.contains("load: engineswap") && out.contains("register: 2"), "{out}");
    assert!(out.contains("c: an environment"), "{out}");
}
