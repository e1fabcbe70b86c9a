//! Prints lines of code and circles of imports of each crate, and all that `limits.txt` has to list.

use tidy::code::{sources, wide_comments};
use tidy::functions::long_functions;
use tidy::imports::Imports;
use tidy::rooms::{ORDERS, against_the_order};
use tidy::{files, is_rust};

fn main() {
    let all = sources(files("crates", is_rust));
    let mut crates: Vec<&str> = all.iter().filter_map(|s| s.name.split_once("/src/")).map(|s| s.0).collect();
    crates.dedup();
    for krate in crates {
        let src = format!("{krate}/src/");
        let lines = |s: &tidy::code::Source| s.production.lines().filter(|l| !l.trim().is_empty()).count();
        let of_crate = || all.iter().filter(|s| s.name.starts_with(&src));
        let tests = all.iter().filter(|s| s.name.starts_with(&format!("{krate}/"))).map(|s| {
            let all = s.code.lines().filter(|l| !l.trim().is_empty()).count();
            if s.name.starts_with(&src) { all - lines(s) } else { all }
        });
        let code: usize = of_crate().map(lines).sum();
        println!(
            "# {krate}: {code} lines of code without tests, comments and blank lines; {} of tests",
            tests.sum::<usize>()
        );
        for (i, circle) in Imports::of(&src, &all).circles().into_iter().enumerate() {
            let names: Vec<&str> = circle.iter().map(|n| n.trim_start_matches(&src)).collect();
            println!("# {krate}: a circle of {}: {}", names.len(), names.join(" "));
            if i == 0 && names.len() > 6 {
                println!("circle {} {krate}", names.len());
            }
        }
    }
    for (name, n) in ORDERS.iter().flat_map(|o| against_the_order(o, &all)) {
        println!("import {n} {name}");
    }
    for (name, n) in long_functions(&all, 70) {
        println!("function {n} {name}");
    }
    for s in &all {
        match wide_comments(&s.text, 120).len() {
            0 => {}
            n => println!("wide {n} {}", s.name),
        }
    }
}
