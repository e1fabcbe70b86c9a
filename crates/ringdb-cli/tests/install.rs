//! What `make install` does, into a directory: the command with its manual pages and completions, and the C interfaces.
//! `make uninstall` leaves what others put there.
#![allow(clippy::unwrap_used)] // a test

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A script of `tools/`, with DESTDIR set.
fn tool(name: &str, destdir: &Path, args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut c = Command::new(root.join("tools").join(name));
    c.args(args).env("DESTDIR", destdir).env_remove("LIBDIR").output().unwrap()
}

fn good(out: Output) -> String {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Names of all files and links below a directory.
fn files(dir: &Path) -> BTreeSet<PathBuf> {
    let all = walkdir::WalkDir::new(dir).into_iter().map(Result::unwrap);
    all.filter(|e| !e.file_type().is_dir()).map(|e| e.path().strip_prefix(dir).unwrap().to_owned()).collect()
}

/// A build's directory: the command, and files that stand for the libraries.
fn build(dir: &Path) -> String {
    let build = dir.join("build");
    std::fs::create_dir(&build).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ringdb"), build.join("ringdb")).unwrap();
    for name in ["libringdb_c.so", "libringdb_c.a", "libengineswap_c.so", "libengineswap_c.a"] {
        std::fs::write(build.join(name), name).unwrap();
    }
    build.display().to_string()
}

#[test]
fn the_command_is_installed_with_its_pages_and_completions() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    good(tool("install-command", &to, &[&build(dir.path()), "/usr"]));
    let usr = to.join("usr");
    let version = good(Command::new(usr.join("bin/ringdb")).arg("--version").output().unwrap());
    assert_eq!(version.trim(), format!("ringdb {}", env!("CARGO_PKG_VERSION")));

    let help = good(Command::new(usr.join("bin/ringdb")).arg("--help").output().unwrap());
    let verbs: Vec<_> =
        ["salvage", "load", "stats", "man"].into_iter().filter(|v| help.contains(v)).collect();
    assert_eq!(verbs.len(), 4, "{help}");
    for page in ["", "-salvage", "-load", "-stats"] {
        let text = std::fs::read_to_string(usr.join(format!("share/man/man1/ringdb{page}.1"))).unwrap();
        assert!(text.contains(".TH ringdb") && text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    for (file, names) in [
        ("share/bash-completion/completions/ringdb", "complete -F _ringdb"),
        ("share/zsh/site-functions/_ringdb", "#compdef ringdb"),
        ("share/fish/vendor_completions.d/ringdb.fish", "complete -c ringdb"),
    ] {
        assert!(std::fs::read_to_string(usr.join(file)).unwrap().contains(names), "{file}");
    }
}

#[test]
fn what_was_installed_is_removed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    let build = build(dir.path());
    let others =
        ["bin/other", "lib/libringdb_other.so.1", "share/man/man1/ringdbx.1", "include/ringdb_other.h"];
    for file in others.map(|f| to.join("usr").join(f)) {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "another's").unwrap();
    }
    let before = files(&to);
    good(tool("install-command", &to, &[&build, "/usr"]));
    good(tool("install-capi", &to, &[&build, "/usr"]));
    let installed = files(&to);
    for file in ["bin/ringdb", "lib/libringdb.so.1", "include/ringdb.hpp", "lib/pkgconfig/engineswap.pc"] {
        assert!(installed.contains(&Path::new("usr").join(file)), "{installed:?}");
    }
    let said = good(tool("uninstall", &to, &["/usr"]));
    assert!(said.contains(&format!("removed {} files", installed.len() - before.len())), "{said}");
    assert_eq!(files(&to), before);
}

/// Debian has a folder of libraries for each kind of machine.
#[test]
fn libraries_go_where_the_packager_says() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    let build = build(dir.path());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    for (name, args) in [("install-capi", vec![build.as_str(), "/usr"]), ("uninstall", vec!["/usr"])] {
        let mut c = Command::new(root.join("tools").join(name));
        good(c.args(args).env("DESTDIR", &to).env("LIBDIR", "lib/some-linux").output().unwrap());
        if name == "install-capi" {
            let pc = std::fs::read_to_string(to.join("usr/lib/some-linux/pkgconfig/ringdb.pc")).unwrap();
            assert!(pc.contains("prefix=/usr\nlibdir=${prefix}/lib/some-linux\n"), "{pc}");
            assert!(to.join("usr/lib/some-linux/libringdb.so").exists());
        }
    }
    assert!(files(&to).is_empty());
}

/// Whether a file is named by a line of debian/*.install: a path, a folder above it, or a pattern.
fn takes(pattern: &str, file: &str) -> bool {
    let (mut parts, mut names) = (pattern.split('/'), file.split('/'));
    parts.by_ref().all(|part| {
        let name = names.next();
        match part.split_once('*') {
            Some((head, tail)) => name.is_some_and(|n| n.starts_with(head) && n.ends_with(tail)),
            None => name == Some(part),
        }
    })
}

/// Debian's packages share out what is installed: each file goes into one of them, and none asks for a file that there
/// is not. (Their contents are looked at by `tools/check-deb`, what they do by `tools/test-deb`.)
#[test]
fn each_file_is_in_one_of_debians_packages() {
    let dir = tempfile::tempdir().unwrap();
    let (to, build) = (dir.path().join("to"), build(dir.path()));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let read = |name: &str| std::fs::read_to_string(root.join("debian").join(name)).unwrap();
    good(tool("install-command", &to, &[&build, "/usr"]));
    let mut c = Command::new(root.join("tools/install-capi"));
    good(
        c.args([&build, "/usr", "ringdb"])
            .env("DESTDIR", &to)
            .env("LIBDIR", "lib/some-linux")
            .output()
            .unwrap(),
    );
    let plugins = ["rocksdb", "fio"].map(|p| format!("usr/lib/some-linux/engineswap/libengineswap_{p}.so"));
    let installed = files(&to).into_iter().map(|f| f.display().to_string()).chain(plugins);
    let installed: Vec<_> = installed.collect();

    let control = read("control");
    let packages: Vec<_> = control.lines().filter_map(|l| l.strip_prefix("Package: ")).collect();
    assert_eq!(packages, ["ringdb", "libringdb1", "libringdb-dev", "rocksdb-engineswap", "fio-engineswap"]);
    let mut taken = vec![0; installed.len()];
    for package in packages {
        for line in read(&format!("{package}.install")).lines() {
            let pattern = line.split(' ').next().unwrap();
            let found: Vec<_> = (0..installed.len()).filter(|i| takes(pattern, &installed[*i])).collect();
            assert!(!found.is_empty(), "{package}: nothing is {pattern}");
            found.into_iter().for_each(|i| taken[i] += 1);
        }
    }
    for (file, times) in installed.iter().zip(taken) {
        assert_eq!(times, 1, "{file}");
    }
    let version = format!("ringdb ({}) ", env!("CARGO_PKG_VERSION"));
    assert!(
        read("changelog").starts_with(&version),
        "debian/changelog begins with another version than Cargo.toml's"
    );
}

#[test]
fn what_cannot_be_done_is_said() {
    let dir = tempfile::tempdir().unwrap();
    for (name, args, words) in [
        ("install-command", vec!["/nowhere", "/usr"], "make build"),
        ("install-command", vec!["/nowhere"], "usage:"),
        ("uninstall", vec!["/usr"], "nothing to remove"),
    ] {
        let out = tool(name, dir.path(), &args);
        assert!(!out.status.success(), "{name}");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(said.contains(words), "{said}");
    }
}
