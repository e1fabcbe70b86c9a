//! Pages: links, targets of make, numbers, names in ARCHITECTURE.md.

use std::path::Path;

use tidy::code::sources;
use tidy::pages::{numbers, unknown_names};
use tidy::{fail_if_any, files, is_rust, read, root};

fn is_page(p: &Path) -> bool {
    p.extension().is_some_and(|e| e == "md")
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

#[test]
fn the_readme_names_real_targets() {
    let makefile = read("Makefile");
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

#[test]
fn decisions_and_experiments_are_numbered_without_holes() {
    for folder in ["docs/decisions", "docs/experiments"] {
        let names: Vec<String> = files(folder, is_page)
            .into_iter()
            .map(|(n, _)| n.rsplit_once('/').map_or(n.clone(), |n| n.1.to_owned()))
            .collect();
        fail_if_any(folder, numbers(&names, &read(&format!("{folder}/README.md"))));
    }
}

#[test]
fn the_architecture_names_what_is_there() {
    let page = read("ARCHITECTURE.md");
    let paths: Vec<String> = files("", |p| {
        let ends = ["rs", "cc", "h", "c", "md", "toml", "txt"];
        p.extension().is_some_and(|e| ends.iter().any(|x| e == *x))
            && !p.to_string_lossy().contains("/target/")
    })
    .into_iter()
    .map(|f| f.0)
    .collect();
    assert!(page.matches("`").count() > 100, "ARCHITECTURE.md names files and functions in backticks");
    let found = unknown_names(&page, &sources(files("crates", is_rust)), &paths);
    fail_if_any("ARCHITECTURE.md names files and functions that exist", found);
}
