//! The rooms' order, circles of imports, length of functions, width of comments. Each is a ratchet:
//! limits.txt lists what is over the limit, with its size. `cargo run -p tidy --example report` prints the
//! sizes of today.

use std::sync::LazyLock;

use tidy::code::{Source, sources, wide_comments};
use tidy::functions::long_functions;
use tidy::imports::Imports;
use tidy::limits::compare;
use tidy::rooms::{ORDERS, against_the_order};
use tidy::{fail_if_any, files, is_rust, read};

static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| sources(files("crates", is_rust)));

fn limits() -> String {
    read("crates/tidy/limits.txt")
}

#[test]
fn rooms_import_from_below() {
    let found = ORDERS.iter().flat_map(|o| against_the_order(o, &SOURCES)).collect();
    fail_if_any("a room imports only from rooms below it", compare("import", &limits(), found));
}

#[test]
fn every_crate_with_folders_has_an_order() {
    let found = SOURCES
        .iter()
        .filter_map(|s| s.name.split_once("/src/"))
        .filter(|(krate, file)| {
            file.contains('/') && !krate.contains("/tests") && *krate != "crates/fuzz-targets"
        })
        .map(|(krate, _)| format!("{krate}/src/"))
        .filter(|src| ORDERS.iter().all(|o| o.src != src))
        .collect();
    fail_if_any("a crate whose sources have folders has an order of rooms", found);
}

#[test]
fn circles_of_imports_are_small() {
    let mut crates: Vec<&str> =
        SOURCES.iter().filter_map(|s| s.name.split_once("/src/")).map(|s| s.0).collect();
    crates.dedup();
    let mut found = vec![];
    for krate in crates {
        let largest = Imports::of(&format!("{krate}/src/"), &SOURCES).circles().first().map_or(0, Vec::len);
        if largest > 6 {
            found.push((krate.to_owned(), largest));
        }
    }
    fail_if_any("a circle of imports has at most 6 files", compare("circle", &limits(), found));
}

#[test]
fn functions_are_short() {
    fail_if_any(
        "a function has at most 70 lines",
        compare("function", &limits(), long_functions(&SOURCES, 70)),
    );
}

#[test]
fn comments_are_narrow() {
    let wide = SOURCES.iter().map(|s| (s.name.clone(), wide_comments(&s.text, 120).len()));
    let found = wide.filter(|(_, n)| *n > 0).collect();
    fail_if_any("a comment ends at column 120 at most", compare("wide", &limits(), found));
}
