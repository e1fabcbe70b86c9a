//! Encrypted stores by the command: keys from a file, a change of keys, and what is said when a key is missing.
#![allow(clippy::unwrap_used)] // tests

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::ringdb;

/// A file of keys 1 to `newest`.
fn keys(dir: &Path, newest: u8) -> String {
    let path = dir.join(format!("keys-{newest}"));
    let text: String = (1..=newest).map(|n| format!("{n} {}\n", format!("{n:02x}").repeat(32))).collect();
    fs::write(&path, format!("# for a test\n{text}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn stores_are_encrypted_read_copied_and_given_other_keys() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |name: &str| tmp.path().join(name).to_str().unwrap().to_string();
    let (first, second, store) = (keys(tmp.path(), 1), keys(tmp.path(), 2), at("s"));
    let ok = |args: &[&str]| {
        let ran = ringdb(args).ok();
        assert!(ran.err.is_empty(), "{args:?}: {}", ran.err);
        ran.text().to_string()
    };
    ok(&["put", "--db", &store, "--key-file", &first, "plum", "blue"]);
    ok(&["flush", "--db", &store, "--key-file", &first]);
    assert_eq!(ok(&["get", "--db", &store, "--key-file", &first, "plum"]), "blue\n");
    assert!(ok(&["stats", "--db", &store, "--key-file", &first]).contains("1 tables with key 1"));

    for args in [
        &["get", "--db", &store, "plum"][..],
        &["verify", "--db", &store],
        &["backup", "--db", &store, &at("none")],
    ] {
        ringdb(args).fails(4, &["encrypted with key 1", "--key-file"]);
    }
    // Of a salvage 1 says that there is no new store.
    ringdb(["salvage", &store, &at("none")]).fails(1, &["encrypted with key 1", "--key-file"]);
    ok(&["compact", "--rewrite", "--db", &store, "--key-file", &second]);
    let stats = ok(&["stats", "--db", &store, "--key-file", &second]);
    assert!(stats.contains("1 tables with key 2") && !stats.contains("key 1"), "{stats}");

    ok(&["backup", "--db", &store, "--key-file", &second, &at("b")]);
    ok(&["backup", "--verify", "--key-file", &second, &at("b")]);
    ok(&["restore", "--key-file", &second, &at("b"), &at("r")]);
    assert_eq!(ok(&["get", "--db", &at("r"), "--key-file", &second, "plum"]), "blue\n");
    ok(&["export", "--db", &store, "--key-file", &second, &at("e")]);
    ok(&["import", "--from", "tables", "--db", &at("i"), "--key-file", &second, &at("e")]);
    assert_eq!(ok(&["get", "--db", &at("i"), "--key-file", &second, "plum"]), "blue\n");
    ringdb(["salvage", "--key-file", &second, &store, &at("v")]).ok();
    assert_eq!(ok(&["get", "--db", &at("v"), "--key-file", &second, "plum"]), "blue\n");
}

#[test]
fn a_wrong_file_of_keys_is_wrong_usage_and_an_open_one_a_warning() {
    let tmp = tempfile::tempdir().unwrap();
    let store = tmp.path().join("s");
    let store = store.to_str().unwrap();
    let bad = tmp.path().join("bad");
    fs::write(&bad, "1 c0ffee").unwrap();
    for (file, what) in [("/no/such/file", "No such file"), (bad.to_str().unwrap(), "line 1")] {
        let ran = ringdb(["put", "--db", store, "--key-file", file, "a", "b"]).code(2);
        assert!(ran.err.contains(what) && !ran.err.contains("c0ffee"), "{}", ran.err);
    }
    assert!(!Path::new(store).exists());
    let open = keys(tmp.path(), 1);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let ran = ringdb(["put", "--db", store, "--key-file", &open, "a", "b"]).ok();
    assert!(ran.err.contains("chmod 600"), "{}", ran.err);
}

#[test]
fn a_rewrite_by_another_process_needs_that_process_to_have_the_key() {
    let tmp = tempfile::tempdir().unwrap();
    let (first, second) = (keys(tmp.path(), 1), keys(tmp.path(), 2));
    let store = tmp.path().join("s");
    let key = ringdb::EncryptionKey::new([1; 32]);
    let options = ringdb::Options::default().with_encryption(ringdb::StaticKeys::new(1, key).unwrap());
    let open = ringdb::Db::open(&store, options).unwrap();
    open.put("plum", "blue").unwrap();
    let store = store.to_str().unwrap();
    ringdb(["compact", "--rewrite", "--db", store, "--key-file", &second]).fails(2, &["writes with key 1"]);
    let done = ringdb(["compact", "--rewrite", "--db", store, "--key-file", &first, "--json"]).ok().json();
    assert_eq!(done["encryption_key"], 1);
    open.close().unwrap();
}
