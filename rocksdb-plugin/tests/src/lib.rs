//! Builds the plugin and the C++ programs that test it, and runs programs under it.
//!
//! What is tested is the RocksDB that is installed (Debian: librocksdb-dev, rocksdb-tools), or, if ROCKSDB_DIR names a
//! source tree and ROCKSDB_BUILD a build of it with shared libraries, that one. Where something is missing, a test
//! says what and is skipped, unless ENGINESWAP_TEST_REQUIRE names `rocksdb`.
#![allow(clippy::unwrap_used)] // for tests

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// The engines that every test runs on.
pub const ENGINES: [&str; 3] = ["posix", "libaio", "io_uring"];

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// A directory for what is built, below Cargo's own; on a disk, where direct I/O works.
fn built() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let dir = exe.ancestors().nth(3).unwrap().join("tmp/rocksdb-plugin").join(match source() {
        Some(_) => "source",
        None => "installed",
    });
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A directory of a test's own.
pub fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(built()).unwrap()
}

fn source() -> Option<(PathBuf, PathBuf)> {
    let dir = std::env::var_os("ROCKSDB_DIR")?;
    let build = std::env::var_os("ROCKSDB_BUILD")
        .expect("ROCKSDB_BUILD, a build of ROCKSDB_DIR with shared libraries");
    Some((dir.into(), build.into()))
}

fn include() -> PathBuf {
    source().map_or("/usr/include".into(), |(dir, _)| dir.join("include"))
}

/// One of RocksDB's programs; None, with the reason printed, if it is not there.
pub fn tool(name: &str) -> Option<PathBuf> {
    let found = match source() {
        Some((_, build)) => {
            Some(build.join("tools").join(name)).filter(|p| p.exists()).or(Some(build.join(name)))
        }
        None => std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|d| d.join(name))
            .find(|p| p.exists()),
    };
    let found = found.filter(|p| p.exists());
    if found.is_none() {
        skipped(&format!("there is no {name} (Debian: rocksdb-tools)"));
    }
    found
}

/// Says that a test is skipped. Fails where RocksDB is required.
pub fn skipped(why: &str) {
    let required = std::env::var("ENGINESWAP_TEST_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|r| r.trim() == "rocksdb"), "required: {why}");
    println!("skipped: {why}");
}

/// Whether a program can be run.
pub fn have(command: &str, args: &[&str]) -> bool {
    let ran = Command::new(command).args(args).stdin(Stdio::null()).output();
    let works = ran.is_ok_and(|o| o.status.success());
    if !works {
        skipped(&format!("{command} does not work here"));
    }
    works
}

/// Output of a command in one text.
pub fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Runs a command that must end by itself; it is killed, and the test fails, after five minutes.
pub fn run(command: &mut Command) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let (stdout, stderr) = (dir.path().join("out"), dir.path().join("err"));
    command.stdin(Stdio::null());
    command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let end = Instant::now() + Duration::from_secs(300);
    let mut pause = Duration::from_micros(500);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let read = |p: &Path| std::fs::read(p).unwrap();
    let (stdout, stderr) = (read(&stdout), read(&stderr));
    let Some(status) = status else {
        panic!(
            "{command:?} does not end:\n{}",
            String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr)
        );
    };
    Output { status, stdout, stderr }
}

/// Runs a command that must succeed; its output.
pub fn good(command: &mut Command) -> String {
    let out = run(command);
    assert!(out.status.success(), "{command:?}: {}\n{}", out.status, text(&out));
    text(&out)
}

/// Holds off other test programs of this crate while this one builds.
fn lock() -> File {
    let lock = File::create(built().join("lock")).unwrap();
    lock.lock().unwrap();
    lock
}

/// The newest change below a folder.
fn newest(dir: &Path) -> SystemTime {
    let times = std::fs::read_dir(dir).unwrap().map(|e| {
        let e = e.unwrap();
        match e.file_type().unwrap().is_dir() {
            true => newest(&e.path()),
            false => e.metadata().unwrap().modified().unwrap(),
        }
    });
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The version of the headers: major, minor, patch.
fn numbers() -> [u32; 3] {
    let text = std::fs::read_to_string(include().join("rocksdb/version.h")).unwrap();
    let number = |name: &str| {
        let line = format!("#define ROCKSDB_{name} ");
        text.lines().find_map(|l| l.strip_prefix(&line)).unwrap().trim().parse().unwrap()
    };
    [number("MAJOR"), number("MINOR"), number("PATCH")]
}

/// The version of RocksDB that the plugin is built for.
pub fn version() -> Option<[u32; 3]> {
    can_compile().then(numbers)
}

/// Compiles the sources of a folder of this crate into one program, unless that has been done.
fn program(folder: &str, sources: &[&str], libraries: &[&str]) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let _lock = lock();
    let exe = built().join(sources[0]).with_extension("");
    if exe.metadata().is_ok_and(|m| m.modified().unwrap() > newest(&dir)) {
        return exe;
    }
    let mut c = Command::new("c++");
    c.arg(if numbers()[0] < 10 { "-std=c++17" } else { "-std=c++20" });
    c.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-rtti", "-DGTEST_HAS_RTTI=0"]);
    if let Some((_, build)) = source() {
        c.arg("-isystem").arg(include()).arg("-L").arg(&build).arg(format!("-Wl,-rpath,{}", build.display()));
    }
    let new = exe.with_extension("new");
    c.args(sources.iter().map(|s| dir.join(s))).arg("-o").arg(&new).args(libraries).arg("-lpthread");
    good(&mut c);
    std::fs::rename(new, &exe).unwrap();
    exe
}

/// Whether C++ programs can be compiled against RocksDB here.
fn can_compile() -> bool {
    if !have("c++", &["--version"]) {
        return false;
    }
    let header = include().join("rocksdb/version.h");
    if !header.exists() {
        skipped(&format!("no {} (Debian: librocksdb-dev)", header.display()));
    }
    header.exists()
}

/// The plugin, built from this tree.
pub fn plugin() -> Option<&'static Path> {
    static PLUGIN: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        // The name of a symbol, so that the dependency is one.
        let _ = engineswap_c::ENGINESWAP_ABI_VERSION;
        if !can_compile() {
            return None;
        }
        let _lock = lock();
        let out = built().join("libengineswap_rocksdb.so");
        let libraries = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let modified = |p: &Path| p.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let of = ["rocksdb-plugin/src", "rocksdb-plugin/include", "crates/engineswap-c/include"];
        let sources = of.iter().map(|d| newest(&root().join(d))).chain([
            modified(&libraries.join("libengineswap_c.a")),
            modified(&root().join("tools/build-rocksdb-plugin")),
        ]);
        if sources.max().unwrap() < modified(&out) {
            return Some(out);
        }
        good(Command::new(root().join("tools/build-rocksdb-plugin")).arg(libraries).arg(include()).arg(&out));
        Some(out)
    };
    PLUGIN.get_or_init(build).as_deref()
}

/// The program of the FileSystem's contract.
pub fn contract() -> Option<&'static Path> {
    static EXE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        if !can_compile() {
            return None;
        }
        if !Path::new("/usr/include/gtest/gtest.h").exists() {
            skipped("no googletest (Debian: libgtest-dev)");
            return None;
        }
        let sources = ["main.cc", "read_test.cc", "write_test.cc", "names_test.cc"];
        Some(program("contract", &sources, &["-lrocksdb", "-lgtest"]))
    };
    EXE.get_or_init(build).as_deref()
}

/// The small database of `programs/store.cc`.
pub fn store() -> Option<&'static Path> {
    static EXE: OnceLock<Option<PathBuf>> = OnceLock::new();
    EXE.get_or_init(|| can_compile().then(|| program("programs", &["store.cc"], &["-lrocksdb"]))).as_deref()
}

/// The example of the C interface, linked with the plugin.
pub fn c_example() -> Option<&'static Path> {
    static EXE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let (plugin, out) = (plugin()?, built().join("c_example"));
        let mut c = Command::new("cc");
        c.args(["-std=c99", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
        c.arg(root().join("rocksdb-plugin/examples/store.c"))
            .arg("-I")
            .arg(root().join("rocksdb-plugin/include"));
        if let Some((_, build)) = source() {
            c.arg("-isystem")
                .arg(include())
                .arg("-L")
                .arg(&build)
                .arg(format!("-Wl,-rpath,{}", build.display()));
        }
        let dir = plugin.parent().unwrap().display();
        c.arg("-lrocksdb")
            .arg(format!("-L{dir}"))
            .arg("-l:libengineswap_rocksdb.so")
            .arg(format!("-Wl,-rpath,{dir}"));
        good(c.arg("-o").arg(&out));
        Some(out)
    };
    EXE.get_or_init(build).as_deref()
}

/// A program that goes every way into the plugin, linked with the shared object.
pub fn ways_in() -> Option<&'static Path> {
    static EXE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let dir = plugin()?.parent()?.display().to_string();
        let (from, at_run) = (format!("-L{dir}"), format!("-Wl,-rpath,{dir}"));
        let libraries = [&from, "-l:libengineswap_rocksdb.so", &at_run, "-lrocksdb"];
        Some(program("programs", &["version.cc"], &libraries))
    };
    EXE.get_or_init(build).as_deref()
}

/// A shared object of one source of `programs`, to be loaded before a program.
fn loaded_before(compiler: &str, source: &str) -> Option<PathBuf> {
    if !have(compiler, &["--version"]) {
        return None;
    }
    let out = built().join(format!("lib{source}.so"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(source);
    let mut c = Command::new(compiler);
    c.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]).arg(source).arg("-o").arg(&out);
    good(c.arg("-ldl"));
    Some(out)
}

/// A shared object that makes transfers short and interrupted, to be loaded before the plugin.
pub fn short_transfers() -> Option<&'static Path> {
    static SO: OnceLock<Option<PathBuf>> = OnceLock::new();
    SO.get_or_init(|| loaded_before("cc", "short.c")).as_deref()
}

/// A shared object in whose presence RocksDB says that it is the version of the variable OTHER_ROCKSDB.
pub fn other_version() -> Option<&'static Path> {
    static SO: OnceLock<Option<PathBuf>> = OnceLock::new();
    SO.get_or_init(|| loaded_before("c++", "other_version.cc")).as_deref()
}

/// A command that runs under the plugin, with nothing of this environment that would choose an engine.
pub fn under(plugin: &Path, exe: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut c = Command::new(exe);
    c.env("LD_PRELOAD", plugin).env_remove("ENGINESWAP");
    c
}

/// A URI of the plugin.
pub fn uri(engine: &str) -> String {
    format!("engineswap://{engine}")
}
