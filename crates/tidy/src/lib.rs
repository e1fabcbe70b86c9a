//! The repository's own rules, as a test: what the compiler and clippy do not check.
//!
//! Each rule is a function from sources or pages to what breaks it. `tests/it` runs the rules on the
//! repository, and shows of each that it can fail. `limits.txt` lists the places that are over a limit today;
//! its numbers only go down.

pub mod code;
pub mod functions;
pub mod imports;
pub mod limits;
pub mod pages;
pub mod rooms;

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_path_buf()
}

/// The text of a file, named from the root.
pub fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Name (from the root) and text of every file below `dir` that satisfies `keep`, build output left out.
pub fn files(dir: &str, keep: impl Fn(&Path) -> bool) -> Vec<(String, String)> {
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

/// Whether a file is Rust.
pub fn is_rust(p: &Path) -> bool {
    p.extension().is_some_and(|e| e == "rs")
}

/// Fails with all that breaks `rule`.
pub fn fail_if_any(rule: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}
