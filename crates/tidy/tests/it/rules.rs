//! Words that a place may not have, sizes of files, dependencies with their reasons.

use std::path::Path;

use tidy::code::{Source, numbered, sources};
use tidy::{fail_if_any, files, is_rust, read};

#[test]
fn a_module_is_one_idea() {
    let found = files("crates", is_rust)
        .into_iter()
        .filter(|(_, text)| text.lines().count() > 800)
        .map(|(name, text)| format!("{name}: {} lines", text.lines().count()))
        .collect();
    fail_if_any("a file has at most 800 lines", found);
}

#[test]
fn every_module_says_what_it_is_for() {
    let found = files("crates", is_rust)
        .into_iter()
        .filter(|(name, text)| !text.starts_with("//!") && !name.ends_with("/tests.rs"))
        .map(|(name, _)| name)
        .collect();
    fail_if_any("a module begins with its documentation", found);
}

#[test]
fn the_rocksdb_plugin_is_one_idea_a_file() {
    let is_source = |p: &Path| p.extension().is_some_and(|e| ["cc", "h"].contains(&&*e.to_string_lossy()));
    let mut found = vec![];
    for (name, text) in files("rocksdb-plugin/src", is_source) {
        if !text.starts_with("// SPDX-License-Identifier: ") {
            found.push(format!("{name}: no licence in the first line"));
        }
        if text.lines().count() > 400 {
            found.push(format!("{name}: {} lines", text.lines().count()));
        }
        for (i, line) in text.lines().enumerate() {
            if line.chars().count() > 120 || ["TODO", "FIXME", "XXX"].iter().any(|w| line.contains(w)) {
                found.push(format!("{name}:{}: too long, or left to do", i + 1));
            }
        }
    }
    fail_if_any(
        "C++ has a licence line, at most 400 lines of at most 120 characters, and nothing to do",
        found,
    );
}

/// What code of the store may not name: the system, and the clock, threads and randomness that `Env` gives.
fn system_in_the_store(sources: &[Source]) -> Vec<String> {
    let mut found = vec![];
    for s in sources.iter().filter(|s| s.name.starts_with("crates/ringdb/src/")) {
        // What campaigns and unit tests share may look at files behind the store's back, and run threads.
        if s.name.ends_with("testing.rs") {
            continue;
        }
        for (line, code) in numbered(&s.production) {
            for word in ["libc", "io_uring::", "std::fs", " File::open", " File::create", "unsafe "] {
                if code.contains(word) {
                    found.push(format!("{}:{line}: {word}", s.name));
                }
            }
            let clock = ["Instant::now", "SystemTime::now", "thread::spawn", "thread::sleep"];
            for word in clock.iter().filter(|w| code.contains(*w) && !s.name.ends_with("src/env.rs")) {
                found.push(format!("{}:{line}: {word} (time and threads come from Env)", s.name));
            }
        }
    }
    found
}

#[test]
fn the_store_reaches_the_system_only_through_engineswap() {
    fail_if_any(
        "ringdb names no system interface",
        system_in_the_store(&sources(files("crates/ringdb/src", is_rust))),
    );
}

/// The words of the store in the layer below it.
fn store_in_the_layer(sources: &[Source]) -> Vec<String> {
    let mut found = vec![];
    for s in sources {
        for (line, code) in numbered(&s.production) {
            for word in ["ringdb", "memtable", "sstable", "compaction", "manifest"] {
                if code.to_lowercase().contains(word) {
                    found.push(format!("{}:{line}: {word}", s.name));
                }
            }
        }
    }
    found
}

#[test]
fn the_layer_below_knows_nothing_of_the_store() {
    let below = ["crates/engineswap/src", "crates/latchfree/src"];
    let sources = sources(below.iter().flat_map(|dir| files(dir, is_rust)).collect());
    fail_if_any("engineswap and latchfree know nothing of LSM trees", store_in_the_layer(&sources));
}

#[test]
fn what_stands_behind_tests_is_seen() {
    let text = "#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n// std::fs\nfn f() { std::fs::read(\"libc\"); Instant::now(); }";
    let found = system_in_the_store(&sources(vec![("crates/ringdb/src/db/x.rs".into(), text.into())]));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|f| f.starts_with("crates/ringdb/src/db/x.rs:6: ")), "{found:?}");
    let text = "#[cfg(test)]\nuse x::ringdb;\nstruct Memtable;";
    let found = store_in_the_layer(&sources(vec![("crates/engineswap/src/x.rs".into(), text.into())]));
    assert_eq!(found, ["crates/engineswap/src/x.rs:3: memtable"]);
}

#[test]
fn nothing_is_left_to_do() {
    let me = Path::new(file!()).file_name().expect("name").to_os_string();
    let mut found = vec![];
    for (name, text) in files("crates", |p| is_rust(p) && p.file_name() != Some(&me)) {
        for (i, line) in text.lines().enumerate() {
            for word in ["todo!(", "unimplemented!(", "FIXME", "XXX", "#[ignore"] {
                if line.contains(word) {
                    found.push(format!("{name}:{}: {word}", i + 1));
                }
            }
        }
    }
    fail_if_any("no stubs, no ignored tests", found);
}

#[test]
fn every_dependency_has_its_reason() {
    let reasons = read("docs/decisions/0002-dependencies.md");
    let mut found = vec![];
    for (name, text) in files("crates", |p| p.file_name().is_some_and(|n| n == "Cargo.toml")) {
        let mut inside = false;
        for line in text.lines() {
            if line.starts_with('[') {
                inside = line.contains("dependencies");
            } else if inside && let Some((dependency, _)) = line.split_once(['.', '=', ' ']) {
                let dependency = dependency.trim();
                if !dependency.is_empty()
                    && ![
                        "c-abi",
                        "engineswap",
                        "engineswap-c",
                        "latchfree",
                        "leveldb-files",
                        "ringdb",
                        "ringdb-c",
                        "ringdb-socket",
                    ]
                    .contains(&dependency)
                    && !reasons.contains(&format!("`{dependency}`"))
                {
                    found.push(format!("{name}: {dependency}"));
                }
            }
        }
    }
    fail_if_any("docs/decisions/0002-dependencies.md has a line for each dependency", found);
}
