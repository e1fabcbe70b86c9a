//! `backup` and `restore`, run as a user runs them.
#![allow(clippy::unwrap_used)] // a test

mod common;

use std::fs;

use common::{on, ringdb, with_input, words};
use tempfile::tempdir;

#[test]
fn backups_are_made_listed_verified_and_restored() {
    let dir = tempdir().unwrap();
    let (db, to) = (&dir.path().join("db"), dir.path().join("backups"));
    let text: String = (0..3000).map(|i| format!("key{i:05}\t{}\n", "v".repeat(100))).collect();
    with_input(words(db, "load --db DB"), text.as_bytes()).ok();
    let to = to.to_str().unwrap();
    assert!(on(db, &format!("backup --db DB {to}")).ok().text().starts_with("generation 1 in "));
    on(db, "put --db DB more x").ok();
    let second = on(db, &format!("backup --db DB {to} --json")).ok().json();
    assert_eq!((&second["generation"], &second["copied_tables"]), (&2.into(), &1.into()));
    on(db, "put --db DB more y").ok();
    let third = on(db, &format!("backup --db DB {to} --keep 2")).ok();
    assert!(third.text().contains("generation 1 is removed"), "{}", third.text());
    assert!(ringdb(["backup", "--verify", to]).ok().text().contains("2 generations"));
    let all = ringdb(["backup", "--list", to, "--json"]).ok().json();
    assert_eq!(all.as_array().unwrap().len(), 2);
    assert_eq!(all[1]["generation"], 3);
    assert!(all[1]["made_unix_seconds"].as_u64().unwrap() > 1_600_000_000);
    assert!(ringdb(["backup", "--list", to]).ok().text().contains("generation"));

    let back = dir.path().join("back");
    let restored = ringdb(["restore", to, back.to_str().unwrap(), "--generation", "2", "--json"]).ok().json();
    assert_eq!(restored["generation"], 2);
    assert_eq!(on(&back, "get --db DB more").ok().text(), "x\n");
    assert_eq!(on(&back, "count --db DB").ok().text(), "3001\n");
    on(&back, "verify --db DB").ok();
    ringdb(["restore", to, back.to_str().unwrap()]).fails(2, &["new or empty directory"]);
    ringdb(["restore", to, "/tmp/nowhere", "--generation", "9"]).fails(2, &["no backup 9; there are 2, 3"]);

    // What is wrong is named.
    let table = fs::read_dir(format!("{to}/tables")).unwrap().map(|e| e.unwrap().path());
    let table = table.max_by_key(|t| t.metadata().unwrap().len()).unwrap();
    let mut bytes = fs::read(&table).unwrap();
    bytes[77] ^= 1;
    fs::write(&table, bytes).unwrap();
    let said = ringdb(["backup", "--verify", to]).code(1);
    assert!(said.text().contains("generations that need it: 2, 3"), "{}", said.text());
    assert_eq!(
        ringdb(["backup", "--verify", to, "--json"]).code(1).json()["problems"].as_array().unwrap().len(),
        1
    );
    let new = dir.path().join("new");
    ringdb(["restore", to, new.to_str().unwrap()]).fails(4, &["checksum does not match", "backup --verify"]);
    assert!(!new.exists());

    on(db, "backup --db DB").fails(2, &["TO"]);
    ringdb(["backup", to]).fails(2, &["--db"]);
    on(db, &format!("backup --db DB --keep 0 {to}")).fails(2, &["0 is not in 1.."]);
    ringdb(["backup", "--verify", "/nowhere"]).fails(2, &["no complete backup"]);
    let other = &dir.path().join("other");
    on(other, "put --db DB a b").ok();
    on(other, &format!("backup --db DB {to}")).fails(2, &["another store"]);
}
