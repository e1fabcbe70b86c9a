//! The plugin from C: the example opens a database through each engine, linked with the shared object.

#![allow(clippy::unwrap_used)] // a test

use std::process::Command;

use rocksdb_plugin_tests::{ENGINES, c_example, good, place, plugin, run, text, uri};

#[test]
fn the_example_of_rocksdbs_c_interface() {
    let (Some(_), Some(example)) = (plugin(), c_example()) else { return };
    for engine in ENGINES {
        for uri in [engine.to_string(), uri(engine)] {
            let dir = place();
            let out =
                good(Command::new(example).arg(&uri).arg(dir.path().join("db")).env_remove("ENGINESWAP"));
            assert!(out.contains("1000 of 1000 found"), "{uri}: {out}");
        }
    }
}

#[test]
fn an_error_comes_as_a_message() {
    let (Some(_), Some(example)) = (plugin(), c_example()) else { return };
    let dir = place();
    let out = run(Command::new(example).arg("nonsense").arg(dir.path().join("db")));
    let text = text(&out);
    assert!(!out.status.success() && text.contains("libaio"), "{text}");
    // With the environment variable as the default.
    good(Command::new(example).arg("").arg(dir.path().join("db")).env("ENGINESWAP", "posix"));
}
