//! Directories, names and locks.

use std::path::Path;
use std::process::Command;

use engineswap::{ErrorKind, Io};

use crate::{Case, Ctx, P, page};

pub const CASES: &[Case] = &[
    ("names::directories", directories),
    ("names::rename_link_unlink", rename_link_unlink),
    ("names::an_unlinked_file_lives_on", an_unlinked_file_lives_on),
    ("names::locks_exclude", locks_exclude),
];

fn names(c: &Ctx, dir: &Path) -> Vec<(String, bool)> {
    let mut v: Vec<_> = c.io.read_dir(dir).unwrap().into_iter().map(|e| (e.name, e.is_dir)).collect();
    v.sort();
    v
}

fn directories(c: &Ctx) {
    let deep = c.dir.join("a/b/c");
    c.io.create_dir_all(&deep).unwrap();
    c.io.create_dir_all(&deep).unwrap();
    drop(c.filled("a/f", 1));
    assert_eq!(names(c, &c.dir.join("a")), [("b".to_string(), true), ("f".to_string(), false)]);
    c.io.sync_dir(&c.dir.join("a")).unwrap();
    assert!(c.io.metadata(&deep).unwrap().unwrap().is_dir);
    assert_eq!(c.io.metadata(&c.dir.join("a/f")).unwrap().unwrap().len, 4096);
    assert!(c.io.metadata(&c.dir.join("nothing")).unwrap().is_none());
    assert_eq!(c.io.remove_dir(&c.dir.join("a")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    c.io.remove_dir(&deep).unwrap();
    assert_eq!(c.io.remove_dir(&deep).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(c.io.read_dir(&deep).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(c.io.sync_dir(&deep).unwrap_err().kind(), ErrorKind::NotFound);
}

fn rename_link_unlink(c: &Ctx) {
    let (a, b, d) = (c.dir.join("a"), c.dir.join("b"), c.dir.join("d"));
    drop(c.filled("a", 2));
    drop(c.filled("b", 5));
    c.io.rename(&a, &b).unwrap();
    assert_eq!(names(c, &c.dir), [("b".to_string(), false)]);
    c.io.hard_link(&b, &d).unwrap();
    assert_eq!(c.io.hard_link(&b, &d).unwrap_err().kind(), ErrorKind::AlreadyExists);
    c.io.sync_dir(&c.dir).unwrap();
    c.io.remove_file(&b).unwrap();
    let mut got = vec![0; 4096];
    c.open("d").read_exact_at(&mut got, 4096, P).unwrap();
    assert_eq!(got, page(1));
    assert_eq!(c.io.remove_file(&b).unwrap_err().kind(), ErrorKind::NotFound);
    let e = c.io.rename(&a, &b).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotFound);
    assert!(e.to_string().contains("/a") && e.to_string().contains("/b"), "{e}");
}

fn an_unlinked_file_lives_on(c: &Ctx) {
    let f = c.filled("f", 2);
    c.io.remove_file(&c.dir.join("f")).unwrap();
    let mut got = vec![0; 4096];
    f.read_exact_at(&mut got, 4096, P).unwrap();
    assert_eq!(got, page(1));
    f.sync_all(P).unwrap();
}

/// The child's side of [`locks_exclude`]: its exit code says what it got.
pub fn lock_child(path: &Path) -> ! {
    let code = match Io::from_uri("posix").unwrap().lock_file(path) {
        Ok(_) => 3,
        Err(e) if e.kind() == ErrorKind::Locked => 4,
        Err(_) => 5,
    };
    std::process::exit(code);
}

fn locks_exclude(c: &Ctx) {
    let path = c.dir.join("LOCK");
    let lock = c.io.lock_file(&path).unwrap();
    let e = c.io.lock_file(&path).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Locked);
    assert!(e.to_string().contains("LOCK") && e.to_string().contains("held by"), "{e}");
    if c.simulated() {
        // No other process sees this disk.
        drop(lock);
        c.io.lock_file(&path).unwrap();
        return;
    }
    let child = || {
        let me = std::env::current_exe().unwrap();
        Command::new(me).env("ENGINESWAP_TEST_LOCK", &path).status().unwrap().code()
    };
    assert_eq!(child(), Some(4), "another process got the lock too");
    drop(lock);
    assert_eq!(child(), Some(3), "the lock was not given up");
    c.io.lock_file(&path).unwrap();
}
