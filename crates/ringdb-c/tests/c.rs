//! The C interface as C and C++ programs meet it: installed, found by pkg-config, compiled with all warnings as
//! errors, under AddressSanitizer where the compiler has it, and run on each engine.

#![allow(clippy::unwrap_used)] // a test

#[path = "../../c-abi/tests/support/mod.rs"]
mod support;

use std::process::Command;

use support::{Library, file, have, place, run, sanitizer};

static LIBRARY: Library = Library::new("ringdb", ringdb_c::RINGDB_ABI_VERSION);

const ENGINES: [&str; 3] = ["posix", "libaio", "io_uring"];

/// Compiles a test program and runs it on each engine, in a directory on the disk of the build.
fn runs_on_each_engine(compiler: &str, standard: &str, source: &str) {
    if !have(compiler) {
        return;
    }
    let dir = place();
    let exe = dir.path().join("program");
    let sanitizer = sanitizer(compiler, dir.path());
    LIBRARY.compile(compiler, standard, &file("tests/c").join(source), &exe, &sanitizer);
    for uri in ENGINES {
        let place = dir.path().join(uri);
        std::fs::create_dir(&place).unwrap();
        let out = run(Command::new(&exe).arg(uri).arg(&place).env_remove("ENGINESWAP"));
        assert!(out.ends_with("passed\n") || out.starts_with("skipped"), "{uri}: {out}");
        println!("{source} on {uri}: {out}");
    }
}

#[test]
fn the_contract_from_c() {
    runs_on_each_engine("cc", "-std=c99", "contract.c");
}

#[test]
fn asynchronous_calls_from_c() {
    runs_on_each_engine("cc", "-std=gnu11", "async.c");
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    LIBRARY.check_exports();
}

#[test]
fn the_library_is_named_by_its_abi() {
    LIBRARY.check_name();
}

#[test]
fn the_interface_is_the_one_that_programs_were_compiled_against() {
    LIBRARY.check_abi();
}
