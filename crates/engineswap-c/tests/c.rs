//! The C interface as C and C++ programs meet it: installed, found by pkg-config, compiled with all warnings as
//! errors, under AddressSanitizer where the compiler has it, and run on each engine.

#![allow(clippy::unwrap_used)] // a test

#[path = "../../c-abi/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;

use support::{Library, exports, file, have, place, run};

static LIBRARY: Library = Library::new("engineswap", engineswap_c::ENGINESWAP_ABI_VERSION);

const ENGINES: [&str; 4] = ["posix", "libaio", "io_uring", "auto"];

#[test]
fn the_contract_from_c() {
    LIBRARY.passes("cc", "-std=c99", "contract.c", &ENGINES);
}

#[test]
fn what_operations_can_do_from_c() {
    LIBRARY.passes("cc", "-std=gnu99", "more.c", &ENGINES);
}

#[test]
fn handles_from_cpp() {
    LIBRARY.passes("c++", "-std=c++17", "raii.cc", &ENGINES);
}

#[test]
fn the_example_runs_with_either_library() {
    if !have("cc") {
        return;
    }
    let dir = place();
    let source = file("examples/overlap.c");
    let (shared, fixed) = (dir.path().join("shared"), dir.path().join("static"));
    LIBRARY.compile("cc", "-std=c99", &source, &shared, &[]);
    let mut c = Command::new("cc");
    c.arg(&source).arg("-o").arg(&fixed).arg(format!("-I{}/include", LIBRARY.prefix().display()));
    c.args(LIBRARY.fixed());
    run(&mut c);
    let file = dir.path().join("file");
    std::fs::write(&file, vec![7u8; 1 << 20]).unwrap();
    for exe in [&shared, &fixed] {
        for uri in ENGINES {
            let out = run(Command::new(exe).arg(uri).arg(&file).arg("500").env_remove("ENGINESWAP"));
            assert!(out.contains(": 500 reads in"), "{out}");
        }
    }
}

/// Plugins link the static library into a shared one that is loaded into any program: into one that knows nothing of
/// it, into one with the shared library, and into one that has the static library, and its own Rust, itself.
#[test]
fn the_static_library_hides_inside_a_shared_one() {
    if !have("cc") || !have("nm") {
        return;
    }
    let dir = place();
    let tests = file("tests/c");
    let library = dir.path().join("libinside.so");
    let include = format!("-I{}/include", LIBRARY.prefix().display());
    let mut c = Command::new("cc");
    c.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-Wl,-z,defs", &include]);
    c.arg(tests.join("inside.c")).arg("-o").arg(&library);
    run(c.arg("-Wl,--exclude-libs,ALL").args(LIBRARY.fixed()));
    let exported: Vec<String> = exports(&library).into_iter().collect();
    assert_eq!(exported, ["inside_was_here"], "the rest has to be hidden");

    let example = file("examples/overlap.c");
    let (shared, fixed) = (dir.path().join("shared"), dir.path().join("static"));
    LIBRARY.compile("cc", "-std=c99", &example, &shared, &[]);
    let mut c = Command::new("cc");
    run(c.arg(&example).arg("-o").arg(&fixed).arg(&include).args(LIBRARY.fixed()));
    let file = dir.path().join("file");
    std::fs::write(&file, vec![7u8; 1 << 20]).unwrap();
    for uri in ["posix", "auto"] {
        for program in [Path::new("/bin/true"), &shared, &fixed] {
            let mut c = Command::new(program);
            c.arg(uri).arg(&file).arg("100").env("LD_PRELOAD", &library);
            c.env("INSIDE_ENGINE", uri).env("INSIDE_DIR", dir.path()).env_remove("ENGINESWAP");
            let out = c.output().unwrap();
            let (text, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
            assert!(out.status.success() && said.contains(" works"), "{program:?}: {text}{said}");
            assert!(
                program.ends_with("true") || text.contains(": 100 reads in"),
                "{program:?}: {text}{said}"
            );
        }
    }
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
