//! The end of a store, and what is not taken for one.

use std::path::Path;

use ringdb::{Db, Error, Options};

use crate::support::engines;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_store_is_removed_with_its_directory_and_nothing_else() {
    for uri in engines() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("store");
        let options = Options::default().with_io(uri);
        // Nothing there.
        Db::destroy(&dir, &options).unwrap();
        for with_others in [false, true] {
            let db = Db::open(&dir, options.clone()).unwrap();
            db.put("k", "v").unwrap();
            db.flush().unwrap();
            assert!(matches!(Db::destroy(&dir, &options), Err(Error::Locked(_))));
            assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"v"[..]));
            db.close().unwrap();
            std::fs::write(dir.join("000099.sst.orphan"), "").unwrap();
            if with_others {
                std::fs::write(dir.join("notes.txt"), "mine").unwrap();
            }
            Db::destroy(&dir, &options).unwrap();
            match with_others {
                false => assert!(!dir.exists()),
                true => assert_eq!(names(&dir), ["notes.txt"]),
            }
        }
        // A file, and a directory that only has such names, are left alone.
        let e = Db::destroy(dir.join("notes.txt"), &options).unwrap_err();
        assert!(e.to_string().contains("not a directory"), "{e}");
        std::fs::write(dir.join("000001.log"), "mine").unwrap();
        Db::destroy(&dir, &options).unwrap();
        assert_eq!(names(&dir), ["000001.log", "notes.txt"]);
    }
}

#[test]
fn another_databases_files_are_left_alone() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path();
    for (name, text) in [
        ("CURRENT", "MANIFEST-000002\n"),
        ("MANIFEST-000002", "of another kind"),
        ("LOCK", ""),
        ("000003.log", "l"),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
    }
    let before = names(dir);
    let e = Db::destroy(dir, &Options::default()).unwrap_err();
    assert!(matches!(e, Error::NoStore { .. }) && e.to_string().contains("another database"), "{e}");
    assert_eq!(names(dir), before);
}
