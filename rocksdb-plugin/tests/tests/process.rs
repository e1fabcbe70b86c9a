//! What the plugin does to its process: no descriptor stays open, and ends, forks and threads are survived.

#![allow(clippy::unwrap_used)] // a test

use rocksdb_plugin_tests::{ENGINES, good, place, plugin, store, under, uri};

#[test]
fn nothing_stays_open_after_a_thousand_opens() {
    let (Some(plugin), Some(store)) = (plugin(), store()) else { return };
    for engine in ENGINES {
        let dir = place();
        let text = good(under(plugin, store).args(["leaks", &uri(engine)]).arg(dir.path()).arg("1000"));
        assert!(text.contains("descriptors") || text.contains("skipped"), "{engine}: {text}");
    }
}

/// Ends of a process with a database or files open: they must end, without a signal.
#[test]
fn any_order_of_ending() {
    let (Some(plugin), Some(store)) = (plugin(), store()) else { return };
    for engine in ENGINES {
        for how in ["thread", "static", "return", "quick"] {
            let dir = place();
            good(under(plugin, store).args(["exit", &uri(engine)]).arg(dir.path().join("db")).arg(how));
        }
    }
}

#[test]
fn forks_with_a_database_open() {
    let (Some(plugin), Some(store)) = (plugin(), store()) else { return };
    for engine in ENGINES {
        let dir = place();
        let text = good(under(plugin, store).args(["fork", &uri(engine)]).arg(dir.path().join("place")));
        assert!(text.contains("forked") || text.contains("skipped"), "{engine}: {text}");
    }
}
