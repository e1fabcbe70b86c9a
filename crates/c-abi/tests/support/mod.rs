//! What the tests of the C interfaces share: a library installed as its users have it, and compilers that make programs
//! with it, all warnings as errors, under AddressSanitizer where that works.

#![allow(dead_code)] // each test uses its part

mod abi;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A library by its name, which its header, its functions and its files have.
pub struct Library {
    pub name: &'static str,
    pub abi_version: u32,
    installed: OnceLock<PathBuf>,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// A file of the crate that is tested.
pub fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A directory on the disk of the build.
pub fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub fn have(command: &str) -> bool {
    let found = Command::new(command).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        println!("skipped: there is no '{command}' here");
    }
    found
}

/// Runs a command; its output, or a panic that shows it.
pub fn run(command: &mut Command) -> String {
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

/// Flags for AddressSanitizer, if `compiler` makes programs with it that run here.
pub fn sanitizer(compiler: &str, dir: &Path) -> Vec<&'static str> {
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

/// What a shared library exports.
pub fn exports(library: &Path) -> BTreeSet<String> {
    let out = run(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library));
    let names = out.lines().filter_map(|l| l.split(' ').next());
    names.map(|n| n.split('@').next().unwrap().to_owned()).collect()
}

impl Library {
    pub const fn new(name: &'static str, abi_version: u32) -> Library {
        Library { name, abi_version, installed: OnceLock::new() }
    }

    /// Compiles a program of `tests/c` and runs it on each engine, in a directory on the disk of the build. Its last
    /// line says that it has passed, or that it is skipped and why.
    pub fn passes(&self, compiler: &str, standard: &str, source: &str, engines: &[&str]) {
        if !have(compiler) {
            return;
        }
        let dir = place();
        let exe = dir.path().join("program");
        let sanitizer = sanitizer(compiler, dir.path());
        self.compile(compiler, standard, &file("tests/c").join(source), &exe, &sanitizer);
        for uri in engines {
            let place = dir.path().join(uri);
            std::fs::create_dir(&place).unwrap();
            let out = run(Command::new(&exe).arg(uri).arg(&place).env_remove("ENGINESWAP"));
            let last = out.lines().last().unwrap_or_default();
            assert!(last.starts_with("passed") || last.starts_with("skipped"), "{uri}: {out}");
            println!("{source} on {uri}: {out}");
        }
    }

    /// Where Cargo put the libraries that it built for this test.
    pub fn built(&self) -> PathBuf {
        let exe = std::env::current_exe().unwrap();
        let name = format!("lib{}_c.so", self.name);
        let dirs = exe.ancestors().skip(1).take(2).map(Path::to_path_buf);
        dirs.into_iter().find(|d| d.join(&name).exists()).unwrap_or_else(|| panic!("no {name} near the test"))
    }

    /// The interface installed into a directory that lives as long as the tests.
    pub fn prefix(&self) -> &Path {
        self.installed.get_or_init(|| {
            let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("prefix-{}", self.name));
            let _ = std::fs::remove_dir_all(&dir);
            let mut install = Command::new(root().join("tools/install-capi"));
            run(install.arg(self.built()).arg(&dir).arg(self.name).env_remove("DESTDIR"));
            dir
        })
    }

    /// `NAME.h`, or `NAME/c.h`.
    pub fn header(&self) -> PathBuf {
        let include = self.prefix().join("include");
        let own = include.join(format!("{}.h", self.name));
        if own.exists() { own } else { include.join(self.name).join("c.h") }
    }

    fn pkg_config(&self, args: &[&str]) -> Option<Vec<String>> {
        if !have("pkg-config") {
            return None;
        }
        let path = self.prefix().join("lib/pkgconfig");
        let out = run(Command::new("pkg-config").args(args).arg(self.name).env("PKG_CONFIG_PATH", path));
        Some(out.split_whitespace().map(str::to_owned).collect())
    }

    /// Flags to compile against the installed library, as pkg-config gives them.
    pub fn flags(&self) -> Vec<String> {
        let own = || {
            let p = self.prefix().display();
            vec![format!("-I{p}/include"), format!("-L{p}/lib"), format!("-l{}", self.name)]
        };
        let mut flags = self.pkg_config(&["--cflags", "--libs"]).unwrap_or_else(own);
        flags.push(format!("-Wl,-rpath,{}", self.prefix().join("lib").display()));
        flags
    }

    /// The static library, and its own dependencies as pkg-config names them.
    pub fn fixed(&self) -> Vec<String> {
        let all = self.pkg_config(&["--static", "--libs-only-l"]);
        let all = all.unwrap_or_else(|| ["-lpthread", "-ldl", "-lm", "-lgcc_s"].map(String::from).to_vec());
        let archive = self.prefix().join(format!("lib/lib{}.a", self.name)).display().to_string();
        let own = format!("-l{}", self.name);
        std::iter::once(archive).chain(all.into_iter().filter(|l| *l != own)).collect()
    }

    /// Compiles a program with the shared library.
    pub fn compile(&self, compiler: &str, standard: &str, source: &Path, exe: &Path, more: &[&str]) {
        let mut c = Command::new(compiler);
        c.args([
            standard,
            "-g",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-Wno-overlength-strings",
        ]);
        c.args(more).arg(source).arg("-o").arg(exe).args(self.flags()).arg("-lpthread");
        run(&mut c);
    }

    /// The shared library has its name, exports what the header declares and nothing else; and the interface is that of
    /// the crate's `abi.txt`.
    pub fn check_exports(&self) {
        if !have("nm") {
            return;
        }
        let exported = exports(&self.prefix().join(format!("lib/lib{}.so", self.name)));
        assert!(exported.len() > 40, "{exported:?}");
        assert_eq!(exported, abi::functions(&self.header(), self.name));
    }

    /// A shared library with the static one inside shows nothing of it but what `source`, a line of C that has
    /// `inside`, is.
    pub fn hides_inside_a_shared_one(&self, source: &str) {
        if !have("cc") || !have("nm") {
            return;
        }
        let dir = place();
        let (file, library) = (dir.path().join("inside.c"), dir.path().join("libinside.so"));
        std::fs::write(&file, source).unwrap();
        let mut c = Command::new("cc");
        c.args(["-fPIC", "-shared", "-Wl,-z,defs"]).arg(format!("-I{}/include", self.prefix().display()));
        run(c.arg(&file).arg("-o").arg(&library).arg("-Wl,--exclude-libs,ALL").args(self.fixed()));
        assert_eq!(exports(&library).into_iter().collect::<Vec<_>>(), ["inside"]);
    }

    pub fn check_name(&self) {
        if !have("readelf") {
            return;
        }
        let file = format!("lib{}.so.{}", self.name, self.abi_version);
        let out = run(Command::new("readelf").arg("-d").arg(self.prefix().join("lib").join(&file)));
        let name = format!("[{file}]");
        assert!(out.lines().any(|l| l.contains("SONAME") && l.contains(&name)), "{out}");
    }

    /// The interface is the one that the crate's `abi.txt` lists: functions, types, layouts and constants.
    pub fn check_abi(&self) {
        if !have("cc") {
            return;
        }
        let dir = place();
        let now = abi::list(&self.header(), dir.path());
        let kept = std::fs::read_to_string(file("abi.txt")).unwrap_or_default();
        if kept != now {
            let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-abi.txt", self.name));
            std::fs::write(&at, &now).unwrap();
            let old: BTreeSet<&str> = kept.lines().collect();
            let new: BTreeSet<&str> = now.lines().collect();
            panic!(
                "the interface is not that of abi.txt.\nGone or changed, which the ABI version forbids: {:#?}\n\
                 New, to be added to abi.txt: {:#?}\nThe list of now is {}",
                old.difference(&new).collect::<Vec<_>>(),
                new.difference(&old).collect::<Vec<_>>(),
                at.display()
            );
        }
    }
}
