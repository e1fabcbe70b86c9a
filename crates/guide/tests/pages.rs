//! What the compiler does not see of the guide: its list of chapters, its settings files, the kinds of its blocks, and
//! the files that it shows.
#![allow(clippy::unwrap_used)] // a test

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Name and text of each chapter.
fn chapters() -> Vec<(String, String)> {
    let names = std::fs::read_dir(book()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = names.filter(|n| n.ends_with(".md") && n != "SUMMARY.md").collect();
    names.into_iter().map(|n| (n.clone(), read(&book().join(n)))).collect()
}

/// What stands behind the backticks of each block, and the block.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    text.split("```").skip(1).step_by(2).map(|b| b.split_once('\n').unwrap()).collect()
}

#[test]
fn the_summary_and_the_doc_tests_have_each_chapter() {
    let (summary, tests) = (read(&book().join("SUMMARY.md")), include_str!("../src/lib.rs"));
    for (name, _) in chapters() {
        assert!(summary.contains(&format!("({name})")), "{name} is not in SUMMARY.md");
        assert!(tests.contains(&format!("\"{name}\"")), "{name} is not in crates/guide/src/lib.rs");
    }
}

/// Everything in a block is run: Rust here, `sh` by the command's tests (which only parse `bash`), C by those of the
/// C interface, Python and Go by those of their packages.
#[test]
fn no_block_is_of_a_kind_that_nobody_runs() {
    for (name, text) in chapters() {
        for (kind, block) in blocks(&text) {
            assert!(
                ["rust", "toml", "sh", "bash", "c", "python", "go"].contains(&kind),
                "{name}: a block of '{kind}'"
            );
            assert!(kind != "c" || block.trim().starts_with("{{#include"), "{name}: C that nobody compiles");
        }
    }
}

#[test]
fn settings_files_are_read() {
    let mut read = 0;
    for (name, text) in chapters() {
        for (_, block) in blocks(&text).into_iter().filter(|(kind, _)| *kind == "toml") {
            let options = ringdb::Options::from_toml(block);
            assert!(!options.unwrap_or_else(|e| panic!("{name}: {e}")).given().is_empty());
            read += 1;
        }
    }
    assert!(read > 0);
}

#[test]
fn files_that_are_shown_exist() {
    for (name, text) in chapters() {
        for shown in text.split("{{#include ").skip(1) {
            let file = shown.split("}}").next().unwrap().trim();
            assert!(book().join(file).is_file(), "{name}: {file}");
        }
    }
}
