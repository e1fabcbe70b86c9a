//! LevelDB's C interface as programs for it meet it: installed, found by pkg-config, compiled with all warnings as
//! errors, under AddressSanitizer where the compiler has it; and in LevelDB's place.

#![allow(clippy::unwrap_used)] // a test

#[path = "../../c-abi/tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Library, file, have, place, run, sanitizer};

static LIBRARY: Library = Library::new("leveldb", leveldb_c::LEVELDB_ABI_VERSION);

#[test]
fn every_function_from_c() {
    LIBRARY.passes("cc", "-std=gnu99", "contract.c", &["auto"]);
}

#[test]
fn comparators_and_filter_policies_from_c() {
    LIBRARY.passes("cc", "-std=gnu99", "policies.c", &["auto"]);
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    LIBRARY.check_exports();
}

#[test]
fn the_library_is_named_as_leveldbs() {
    LIBRARY.check_name();
}

#[test]
fn the_interface_is_leveldbs() {
    LIBRARY.check_abi();
}

fn small() -> PathBuf {
    file("tests/c/small.c")
}

/// The small program, which is to find the library by itself, makes a store of ringdb's.
fn runs(program: &mut Command, dir: &Path, name: &str) {
    let store = dir.join(name);
    assert_eq!(run(program.arg(&store)), "apple\npear\n");
    let db = ringdb::Db::open(&store, ringdb::Options::default()).unwrap();
    assert_eq!(db.get("pear").unwrap().as_deref(), Some(&b"green"[..]));
}

#[test]
fn a_program_runs_with_either_library_from_c_and_cpp() {
    if !have("cc") || !have("c++") {
        return;
    }
    let dir = place();
    let exe = |name: &str| dir.path().join(name);
    LIBRARY.compile("cc", "-std=c99", &small(), &exe("c"), &[]);
    let mut cpp = Command::new("c++");
    cpp.args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-x", "c++"]).arg(small());
    run(cpp.args(["-x", "none", "-o"]).arg(exe("cpp")).args(LIBRARY.flags()));
    let mut fixed = Command::new("cc");
    fixed.arg(small()).arg("-o").arg(exe("fixed")).arg(format!("-I{}/include", LIBRARY.prefix().display()));
    run(fixed.args(LIBRARY.fixed()));
    for name in ["c", "cpp", "fixed"] {
        runs(&mut Command::new(exe(name)), dir.path(), &format!("{name}-store"));
    }
}

/// LevelDB's own header and library, if they are installed: `LEVELDB_INCLUDE` and `LEVELDB_LIB` say where, or the
/// compiler's directories have them.
fn leveldb() -> Option<(PathBuf, Vec<String>)> {
    let include = std::env::var_os("LEVELDB_INCLUDE").map_or("/usr/include".into(), PathBuf::from);
    if !include.join("leveldb/c.h").exists() {
        println!("skipped: no LevelDB here (Debian: libleveldb-dev)");
        return None;
    }
    let lib = std::env::var("LEVELDB_LIB").map(|d| format!("-L{d}"));
    Some((include, lib.into_iter().collect()))
}

#[test]
fn what_is_compiled_with_leveldbs_header_runs_with_this_library() {
    let Some((include, _)) = leveldb().filter(|_| have("cc")) else { return };
    let dir = place();
    let sanitizer = sanitizer("cc", dir.path());
    let lib = LIBRARY.prefix().join("lib").display().to_string();
    for source in ["contract.c", "policies.c"] {
        let exe = dir.path().join(source.trim_end_matches(".c"));
        let mut c = Command::new("cc");
        c.args(["-std=gnu99", "-g", "-Wall", "-Wextra", "-Werror"])
            .args(&sanitizer)
            .arg("-isystem")
            .arg(&include);
        c.arg(file("tests/c").join(source)).arg("-o").arg(&exe);
        run(c.args([format!("-L{lib}"), "-lleveldb".into(), format!("-Wl,-rpath,{lib}")]));
        let place = dir.path().join(source);
        std::fs::create_dir(&place).unwrap();
        let out = run(Command::new(&exe).arg("auto").arg(&place));
        assert!(out.ends_with("passed\n"), "{out}");
    }
}

#[test]
fn a_program_linked_with_leveldb_takes_this_library_instead() {
    let Some((include, library)) = leveldb().filter(|_| have("cc")) else { return };
    let dir = place();
    let exe = dir.path().join("program");
    let mut c = Command::new("cc");
    c.arg(small()).arg("-o").arg(&exe).arg("-isystem").arg(include).args(&library).arg("-lleveldb");
    // What LevelDB needs itself is found when the program is run.
    run(c.arg("-Wl,--allow-shlib-undefined"));
    let lib = LIBRARY.prefix().join("lib");
    runs(Command::new(&exe).env("LD_LIBRARY_PATH", &lib), dir.path(), "by-path");
    // LevelDB itself is loaded too, and has to be found with what it needs.
    let mut preloaded = Command::new(&exe);
    preloaded.env("LD_PRELOAD", lib.join("libleveldb.so.1"));
    if let Ok(path) = std::env::var("LEVELDB_LIB") {
        preloaded.env("LD_LIBRARY_PATH", path);
    }
    runs(&mut preloaded, dir.path(), "preloaded");
}

#[test]
fn a_program_in_another_language_runs_with_this_library() {
    if !have("python3") {
        return;
    }
    let dir = place();
    let mut python = Command::new("python3");
    python.arg(file("tests/program.py")).arg(dir.path().join("store"));
    let out = run(python.env("LD_LIBRARY_PATH", LIBRARY.prefix().join("lib")));
    assert_eq!(out, "green\nplum\nkiwi\napple\n");
}

/// A C program of somebody's, unchanged: `RINGDB_LEVELDB_C_TEST` names its source. It has to end with success.
#[test]
fn a_given_program_passes() {
    let Some(source) = std::env::var_os("RINGDB_LEVELDB_C_TEST").map(PathBuf::from).filter(|_| have("cc"))
    else {
        println!("skipped: RINGDB_LEVELDB_C_TEST names no source of a program");
        return;
    };
    let dir = place();
    let exe = dir.path().join("program");
    let mut c = Command::new("cc");
    c.arg("-g").args(sanitizer("cc", dir.path())).arg(&source).arg("-o").arg(&exe);
    run(c.args(LIBRARY.flags()).args(["-lpthread", "-lm"]));
    let tests = dir.path().join("tests");
    let output = Command::new(&exe).env("TEST_TMPDIR", &tests).current_dir(dir.path()).output().unwrap();
    println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {}", source.display(), output.status);
}

#[test]
fn the_static_library_hides_inside_a_shared_one() {
    LIBRARY.hides_inside_a_shared_one(
        "#include <leveldb/c.h>\nint inside(void) { return leveldb_minor_version(); }\n",
    );
}
