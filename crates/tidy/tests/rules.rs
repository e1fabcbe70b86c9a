//! The rules of this repository that the compiler and clippy do not hold. They only tighten.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_path_buf()
}

/// Every file below `dir` (relative to the root) that satisfies `keep`, build output left out.
fn files(dir: &str, keep: impl Fn(&Path) -> bool) -> Vec<(String, String)> {
    fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.expect("entry").path();
            let name = path.file_name().expect("name").to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && name != ".git" {
                walk(&path, out);
            } else if path.is_file() {
                out.push(path);
            }
        }
    }
    let mut paths = vec![];
    walk(&root().join(dir), &mut paths);
    paths.sort();
    let all: Vec<(String, String)> = paths
        .into_iter()
        .filter(|p| keep(p))
        .map(|p| {
            let name = p.strip_prefix(root()).expect("below the root").display().to_string();
            (name, fs::read_to_string(&p).unwrap_or_else(|e| panic!("{}: {e}", p.display())))
        })
        .collect();
    assert!(!all.is_empty(), "nothing to check in {dir}");
    all
}

fn is_rust(p: &Path) -> bool {
    p.extension().is_some_and(|e| e == "rs")
}

fn fail_if_any(rule: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

/// Lines of code: comments and strings of documentation left out, tests at the end of a file left out.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, l)| l.trim() != "#[cfg(test)]")
        .map(|(i, l)| (i + 1, l.split("//").next().unwrap_or("")))
}

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

#[test]
fn the_store_reaches_the_system_only_through_engineswap() {
    let mut found = vec![];
    // Tests may look at files behind the store's back, and run threads.
    let is_test = |p: &Path| {
        let p = p.to_string_lossy();
        p.ends_with("tests.rs") || p.ends_with("testing.rs") || p.contains("/tests/")
    };
    let is_store = |p: &Path| is_rust(p) && !is_test(p);
    for (name, text) in files("crates/ringdb/src", is_store) {
        for (line, code) in code_lines(&text) {
            for word in ["libc", "io_uring::", "std::fs", " File::open", " File::create", "unsafe "] {
                if code.contains(word) && !code.contains(&format!("\"{word}")) && !name.ends_with("lib.rs") {
                    found.push(format!("{name}:{line}: {word}"));
                }
            }
            let clock = ["Instant::now", "SystemTime::now", "thread::spawn", "thread::sleep"];
            if !name.ends_with("src/env.rs") {
                for word in clock.iter().filter(|w| code.contains(*w)) {
                    found.push(format!("{name}:{line}: {word} (time and threads come from Env)"));
                }
            }
        }
    }
    fail_if_any("ringdb names no system interface", found);
}

#[test]
fn the_layer_below_knows_nothing_of_the_store() {
    let mut found = vec![];
    for (name, text) in files("crates/engineswap/src", is_rust) {
        for (line, code) in code_lines(&text) {
            for word in ["ringdb", "memtable", "sstable", "compaction", "manifest"] {
                if code.to_lowercase().replace("cargo_manifest_dir", "").contains(word) {
                    found.push(format!("{name}:{line}: {word}"));
                }
            }
        }
    }
    fail_if_any("engineswap knows nothing of LSM trees", found);
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
fn links_of_the_documentation_lead_somewhere() {
    let mut found = vec![];
    for (name, text) in files("", |p| p.extension().is_some_and(|e| e == "md")) {
        let dir = root().join(&name).parent().expect("folder").to_path_buf();
        for part in text.split("](").skip(1) {
            let target = part.split([')', '#']).next().unwrap_or("");
            if !target.is_empty() && !target.contains("://") && !dir.join(target).exists() {
                found.push(format!("{name}: {target}"));
            }
        }
    }
    fail_if_any("a relative link names a file that exists", found);
}

/// `crates/.../x.rs` and bare `dir/x.rs` words in backticks of ARCHITECTURE.md are real files.
#[test]
fn the_architecture_names_real_files() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let sources: Vec<String> = files("crates", is_rust).into_iter().map(|(n, _)| n).collect();
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|w| w.ends_with(".rs")).collect();
    assert!(named.len() > 10, "ARCHITECTURE.md names {} files", named.len());
    let found = named
        .into_iter()
        .filter(|w| !sources.iter().any(|s| s == w || s.ends_with(&format!("/{w}"))))
        .map(str::to_owned)
        .collect();
    fail_if_any("ARCHITECTURE.md names files that exist", found);
}

#[test]
fn every_dependency_has_its_reason() {
    let reasons = fs::read_to_string(root().join("docs/decisions/0002-dependencies.md")).expect("the page");
    let mut found = vec![];
    for (name, text) in files("crates", |p| p.file_name().is_some_and(|n| n == "Cargo.toml")) {
        let mut inside = false;
        for line in text.lines() {
            if line.starts_with('[') {
                inside = line.contains("dependencies");
            } else if inside && let Some((dependency, _)) = line.split_once(['.', '=', ' ']) {
                let dependency = dependency.trim();
                if !dependency.is_empty()
                    && !["engineswap", "engineswap-c", "ringdb"].contains(&dependency)
                    && !reasons.contains(&format!("`{dependency}`"))
                {
                    found.push(format!("{name}: {dependency}"));
                }
            }
        }
    }
    fail_if_any("docs/decisions/0002-dependencies.md has a line for each dependency", found);
}

#[test]
fn decisions_are_numbered_once() {
    let mut numbers: Vec<String> = fs::read_dir(root().join("docs/decisions"))
        .expect("docs/decisions")
        .map(|e| e.expect("entry").file_name().to_string_lossy().into_owned())
        .filter(|n| n != "README.md")
        .map(|n| n.chars().take(4).collect())
        .collect();
    numbers.sort();
    let all = numbers.len();
    assert!(numbers.iter().all(|n| n.chars().all(|c| c.is_ascii_digit())), "{numbers:?}");
    numbers.dedup();
    assert_eq!(numbers.len(), all, "two decisions have one number");
}

#[test]
fn the_readme_names_real_targets() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("Makefile");
    let mut found = vec![];
    for (name, text) in files("", |p| p.extension().is_some_and(|e| e == "md")) {
        for part in text.split("`make ").skip(1) {
            let target = part.split(['`', ' ', '\n']).next().unwrap_or("");
            if !makefile.lines().any(|l| l.starts_with(&format!("{target}:"))) {
                found.push(format!("{name}: make {target}"));
            }
        }
    }
    fail_if_any("a make target that the documentation names exists", found);
}
