//! The C interface as C and C++ programs meet it: installed, found by pkg-config, compiled with all warnings as
//! errors, under AddressSanitizer where the compiler has it, and run on each engine.

#![allow(clippy::unwrap_used)] // a test

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const ENGINES: [&str; 4] = ["posix", "libaio", "io_uring", "auto"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

fn have(command: &str) -> bool {
    let found = Command::new(command).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        println!("skipped: there is no '{command}' here");
    }
    found
}

/// Runs a command; its output, or a panic that shows it.
fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success(),
        "{command:?}: {}\n{text}\n{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    text
}

/// Where Cargo put the libraries that it built for this test.
fn built() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let dirs = exe.ancestors().skip(1).take(2).map(Path::to_path_buf);
    dirs.into_iter()
        .find(|d| d.join("libengineswap_c.so").exists())
        .expect("libengineswap_c.so near the test")
}

/// The interface installed into a directory that lives as long as the tests.
fn prefix() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
        let _ = std::fs::remove_dir_all(&dir);
        run(Command::new(root().join("tools/install-capi")).arg(built()).arg(&dir).env_remove("DESTDIR"));
        dir
    })
}

fn pkg_config(args: &[&str]) -> Option<Vec<String>> {
    if !have("pkg-config") {
        return None;
    }
    let path = prefix().join("lib/pkgconfig");
    let out = run(Command::new("pkg-config").args(args).arg("engineswap").env("PKG_CONFIG_PATH", path));
    Some(out.split_whitespace().map(str::to_owned).collect())
}

/// Flags to compile against the installed library, as pkg-config gives them.
fn flags() -> Vec<String> {
    let own = || {
        let p = prefix().display();
        vec![format!("-I{p}/include"), format!("-L{p}/lib"), "-lengineswap".into()]
    };
    let mut flags = pkg_config(&["--cflags", "--libs"]).unwrap_or_else(own);
    flags.push(format!("-Wl,-rpath,{}", prefix().join("lib").display()));
    flags
}

/// Whether `compiler` makes programs with AddressSanitizer that run here.
fn sanitizer(compiler: &str, dir: &Path) -> Vec<&'static str> {
    let flags = vec!["-fsanitize=address,undefined", "-fno-omit-frame-pointer"];
    let (source, exe) = (dir.join("probe.c"), dir.join("probe"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let compiled = Command::new(compiler).args(&flags).arg(&source).arg("-o").arg(&exe).output();
    if compiled.is_ok_and(|o| o.status.success()) && Command::new(&exe).status().is_ok_and(|s| s.success()) {
        return flags;
    }
    println!("without AddressSanitizer: {compiler} has none that works here");
    vec![]
}

fn compile(compiler: &str, standard: &str, source: &Path, exe: &Path, more: &[&str]) {
    let mut c = Command::new(compiler);
    c.args([standard, "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wno-overlength-strings"]);
    c.args(more).arg(source).arg("-o").arg(exe).args(flags()).arg("-lpthread");
    run(&mut c);
}

/// Compiles a test program and runs it on each engine, in a directory on the disk of the build.
fn runs_on_each_engine(compiler: &str, standard: &str, source: &str) {
    if !have(compiler) {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let exe = dir.path().join("program");
    let sanitizer = sanitizer(compiler, dir.path());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    compile(compiler, standard, &source, &exe, &sanitizer);
    for uri in ENGINES {
        let place = dir.path().join(uri);
        std::fs::create_dir(&place).unwrap();
        let out = run(Command::new(&exe).arg(uri).arg(&place).env_remove("ENGINESWAP"));
        assert!(out.starts_with("passed") || out.starts_with("skipped"), "{uri}: {out}");
        println!("{source:?} on {uri}: {out}", source = source.file_name().unwrap());
    }
}

#[test]
fn the_contract_from_c() {
    runs_on_each_engine("cc", "-std=c99", "contract.c");
}

#[test]
fn what_operations_can_do_from_c() {
    runs_on_each_engine("cc", "-std=gnu99", "more.c");
}

#[test]
fn handles_from_cpp() {
    runs_on_each_engine("c++", "-std=c++17", "raii.cc");
}

#[test]
fn the_example_runs_with_either_library() {
    if !have("cc") {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/overlap.c");
    let (shared, fixed) = (dir.path().join("shared"), dir.path().join("static"));
    compile("cc", "-std=c99", &source, &shared, &[]);
    let mut c = Command::new("cc");
    c.arg(&source).arg("-o").arg(&fixed).arg(format!("-I{}/include", prefix().display()));
    c.arg(prefix().join("lib/libengineswap.a")).args(private());
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

/// A static library's own dependencies, as pkg-config names them.
fn private() -> Vec<String> {
    let all = pkg_config(&["--static", "--libs-only-l"]);
    let all = all.unwrap_or_else(|| ["-lpthread", "-ldl", "-lm", "-lgcc_s"].map(String::from).to_vec());
    all.into_iter().filter(|l| l != "-lengineswap").collect()
}

/// What a shared library exports.
fn exports(library: &Path) -> BTreeSet<String> {
    let out = run(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library));
    let names = out.lines().filter_map(|l| l.split(' ').next());
    names.map(|n| n.split('@').next().unwrap().to_owned()).collect()
}

/// Plugins link the static library into a shared one that is loaded into any program: into one that knows nothing of
/// it, into one with the shared library, and into one that has the static library, and its own Rust, itself.
#[test]
fn the_static_library_hides_inside_a_shared_one() {
    if !have("cc") || !have("nm") {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let library = dir.path().join("libinside.so");
    let (include, archive) =
        (format!("-I{}/include", prefix().display()), prefix().join("lib/libengineswap.a"));
    let mut c = Command::new("cc");
    c.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-Wl,-z,defs", &include]);
    c.arg(tests.join("inside.c")).arg("-o").arg(&library);
    run(c.arg("-Wl,--exclude-libs,ALL").arg(&archive).args(private()));
    let exported: Vec<String> = exports(&library).into_iter().collect();
    assert_eq!(exported, ["inside_was_here"], "the rest has to be hidden");

    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/overlap.c");
    let (shared, fixed) = (dir.path().join("shared"), dir.path().join("static"));
    compile("cc", "-std=c99", &example, &shared, &[]);
    let mut c = Command::new("cc");
    run(c.arg(&example).arg("-o").arg(&fixed).arg(&include).arg(&archive).args(private()));
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

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(prefix().join("include/engineswap.h")).unwrap();
    let code: String = header.split("/*").map(|p| p.split_once("*/").map_or(p, |(_, code)| code)).collect();
    let names = code.split('(').filter_map(|before| {
        let name = before.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next()?;
        name.starts_with("engineswap_").then(|| name.to_owned())
    });
    names.collect()
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    if !have("nm") {
        return;
    }
    let library = prefix().join("lib/libengineswap.so");
    let exported = exports(&library);
    assert!(exported.len() > 40, "{exported:?}");
    assert_eq!(exported, declared());
}

#[test]
fn the_library_is_named_by_its_abi() {
    if !have("readelf") {
        return;
    }
    let library = prefix().join(format!("lib/libengineswap.so.{}", engineswap_c::ENGINESWAP_ABI_VERSION));
    let out = run(Command::new("readelf").arg("-d").arg(library));
    let name = format!("[libengineswap.so.{}]", engineswap_c::ENGINESWAP_ABI_VERSION);
    assert!(out.lines().any(|l| l.contains("SONAME") && l.contains(&name)), "{out}");
}
