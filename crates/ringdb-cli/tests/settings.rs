//! Settings by the command: remembered by the store, read from a file, overridden by options.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;

use common::{on, ringdb, with_input};
use ringdb::{Compression, Db, KeyspaceOptions, Options};

/// Bytes of tables when all is in the last level.
fn compacted(db: &Path) -> u64 {
    on(db, "compact --db DB").ok();
    on(db, "stats --db DB --json").ok().json()["table_bytes"].as_u64().unwrap()
}

fn zstd() -> Options {
    Options::default().with_compression(Compression::Zstd).with_last_level_compression(Compression::Zstd)
}

fn fill(db: &Db) -> u64 {
    let value = "text that shrinks to a fraction of its length ".repeat(8);
    for i in 0..3000 {
        db.put(format!("key{i:06}"), &value).unwrap();
    }
    (3000 * value.len()) as u64
}

#[test]
fn what_was_written_with_zstd_stays_so_whoever_opens_the_store() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("db");
    let db = Db::open(&dir, zstd()).unwrap();
    let raw = fill(&db);
    db.close().unwrap();
    let small = compacted(&dir);
    assert!(small < raw / 3, "{small} of {raw}");

    // A key in the middle, so that compactions rewrite the tables.
    for verb in ["put --db DB key000000 new", "put --db DB key002999 new", "del --db DB key001500"] {
        on(&dir, verb).ok();
        assert!(compacted(&dir) < raw / 3, "{verb}");
    }
    let lines: String =
        (0..3000).map(|i| format!("key{i:06}\t{}\n", "loaded from a file ".repeat(18))).collect();
    with_input(common::words(&dir, "load --db DB"), lines.as_bytes()).ok();
    assert!(compacted(&dir) < raw / 3, "load");
    let db = Db::open(&dir, Options::default()).unwrap();
    fill(&db);
    db.close().unwrap();
    assert!(compacted(&dir) < raw / 3, "an open with the defaults");
    let text = on(&dir, "stats --db DB").ok();
    assert!(text.text().contains("compression zstd, last level zstd"), "{}", text.text());
}

#[test]
fn options_go_before_the_file_and_the_file_before_the_store() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("db");
    let file = tmp.path().join("settings.toml");
    std::fs::write(&file, "compression = 'lz4'\ncache_bytes = '16 MiB'\nio = 'posix'\n").unwrap();
    let with = |line: &str| on(&dir, &format!("{line} --options {}", file.display()));
    with("put --db DB a 1").ok();
    let settings = |ran: common::Ran| {
        let json = ran.ok().json();
        (json["settings"][0]["compression"].clone(), json["cache_capacity_bytes"].clone(), json["io"].clone())
    };
    // Remembered; the budget and the engine are of the process.
    let (compression, budget, _) = settings(on(&dir, "stats --db DB --json"));
    assert_eq!((compression, budget), ("lz4".into(), (256 << 20).into()));
    let (_, budget, io) = settings(with("stats --db DB --json"));
    assert_eq!(budget, 16 << 20);
    assert!(io.as_str().unwrap().starts_with("posix"), "{io}");
    let (_, budget, _) = settings(with("stats --db DB --json --cache-bytes 8m --io posix"));
    assert_eq!(budget, 8 << 20);
    // A file that says less changes nothing else; one that says the default does.
    std::fs::write(&file, "block_bytes = '8 KiB'").unwrap();
    with("put --db DB b 2").ok();
    assert_eq!(settings(on(&dir, "stats --db DB --json")).0, "lz4");
    std::fs::write(&file, "compression = 'none'").unwrap();
    with("put --db DB b 2").ok();
    let json = on(&dir, "stats --db DB --json").ok().json();
    assert_eq!(
        (&json["settings"][0]["compression"], &json["settings"][0]["block_bytes"]),
        (&"none".into(), &8192.into())
    );
}

#[test]
fn every_verb_on_a_store_takes_a_file() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("db");
    let file = tmp.path().join("settings.toml");
    std::fs::write(&file, "io = 'posix'\nfilter_bits_per_key = 5\n").unwrap();
    let f = file.display();
    let copy = tmp.path().join("copy");
    for line in [
        "put --db DB apple red".into(),
        "get --db DB apple".into(),
        "scan --db DB".into(),
        "count --db DB".into(),
        "dump --db DB".into(),
        "stats --db DB".into(),
        "verify --db DB".into(),
        "compact --db DB".into(),
        "keyspaces --db DB --create more".into(),
        "upgrade --db DB".into(),
        "load --db DB".into(),
        format!("checkpoint --db DB {}", copy.display()),
        "del --db DB apple".into(),
        format!("salvage {} {}", dir.display(), tmp.path().join("saved").display()),
        "bench --workloads fillseq --num 100".into(),
    ] {
        let line: &String = &line;
        on(&dir, &format!("{line} --options {f}")).ok();
        on(&dir, &format!("{line} --options /nowhere/at/all")).fails(2, &["/nowhere/at/all"]);
    }
    for at in [&dir, &copy] {
        let json = on(at, "stats --db DB --json").ok().json();
        assert!(json["settings"].as_array().unwrap().iter().all(|s| s["filter_bits_per_key"] == 5), "{json}");
    }
    std::fs::write(&file, "io = 'posix'\nfilter_bits = 5\n").unwrap();
    on(&dir, &format!("put --db DB a b --options {f}")).fails(2, &["filter_bits", "settings.toml"]);
    std::fs::write(&file, "create_if_missing = false\n").unwrap();
    ringdb([
        "put",
        "--db",
        tmp.path().join("new").to_str().unwrap(),
        "a",
        "b",
        "--options",
        file.to_str().unwrap(),
    ])
    .fails(4, &["no store"]);
}

#[test]
fn keyspaces_keep_their_own_settings() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("db");
    let db = Db::open(&dir, Options::default()).unwrap();
    let own =
        KeyspaceOptions::default().with_last_level_compression(Compression::Zstd).with_block_bytes(16 << 10);
    let logs = db.keyspace_with("logs", &own).unwrap();
    let value = "text that shrinks to a fraction of its length ".repeat(8);
    for i in 0..3000 {
        logs.put(format!("key{i:06}"), &value).unwrap();
    }
    drop(logs);
    db.close().unwrap();
    on(&dir, "put --db DB --keyspace logs key001000 new").ok();
    on(&dir, "compact --db DB --keyspace logs").ok();
    let json = on(&dir, "stats --db DB --json").ok().json();
    assert!(json["table_bytes"].as_u64().unwrap() < (3000 * value.len()) as u64 / 3, "{json}");
    let logs = &json["settings"][1];
    assert_eq!((&logs["keyspace"], &logs["last_level_compression"]), (&"logs".into(), &"zstd".into()));
    assert_eq!((&logs["block_bytes"], &json["settings"][0]["block_bytes"]), (&16384.into(), &4096.into()));
}

/// A copy of the frozen store of version 1.
fn version_1(to: &Path) {
    std::fs::create_dir(to).unwrap();
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/formats/v1");
    for entry in std::fs::read_dir(frozen).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_store_of_version_1_is_upgraded_and_stays_compressed() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("db");
    version_1(&dir);
    let names = || {
        let mut all: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        all.sort();
        all
    };
    let before = names();
    let json = on(&dir, "upgrade --db DB --dry-run --json").ok().json();
    assert_eq!((&json["version"], &json["newest"], &json["upgraded"]), (&1.into(), &2.into(), &false.into()));
    let files = json["files"].as_array().unwrap();
    assert_eq!(files.len(), 5);
    assert!(files.iter().all(|f| f["version"] == 1), "{files:?}");
    let text = on(&dir, "upgrade --db DB --dry-run").ok();
    assert!(text.text().contains("an upgrade would"), "{}", text.text());
    assert_eq!(names(), before, "a dry run changes nothing");

    let json = on(&dir, "upgrade --db DB --json").ok().json();
    assert_eq!(
        (&json["version"], &json["version_now"], &json["upgraded"]),
        (&1.into(), &2.into(), &true.into())
    );
    let text = on(&dir, "upgrade --db DB").ok();
    assert!(
        text.text().contains("format version 2") && text.text().contains("nothing to do"),
        "{}",
        text.text()
    );
    // It did not say how it was written; its tables did.
    let settings = on(&dir, "stats --db DB --json").ok().json()["settings"][0].clone();
    assert_eq!(settings["last_level_compression"], "zstd", "{settings}");

    on(tmp.path(), "upgrade --db DB").fails(4, &["no store"]);
}
