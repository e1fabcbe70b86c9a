//! `import`, and dumps that other programs read and write, run as a user runs them.
#![allow(clippy::unwrap_used)] // a test

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{on, ringdb, with_input, words};
use tempfile::tempdir;

#[test]
fn a_rocksdb_store_is_imported() {
    let dir = tempdir().unwrap();
    let (src, db) = (&dir.path().join("rocks"), &dir.path().join("db"));
    let ldb = |args: &str| {
        let mut command = Command::new("ldb");
        command.arg(format!("--db={}", src.display())).args(args.split_whitespace());
        command.output().map(|o| assert!(o.status.success(), "{args}: {o:?}"))
    };
    let Ok(()) = ldb("--create_if_missing put first one") else {
        eprintln!("SKIPPED: there is no ldb here; it comes with the package rocksdb-tools");
        return;
    };
    ldb("put --hex 0x00FF09 0x0A0D").unwrap();
    let pairs: String = (0..500).map(|i| format!(" key{i:04} {i}")).collect();
    ldb(&format!("batchput{pairs}")).unwrap();
    ldb("compact").unwrap();
    ldb("delete key0007").unwrap();
    ldb("put key0008 changed").unwrap();
    ldb("create_column_family other").unwrap();
    ldb("--column_family=other put in other").unwrap();
    let src = src.to_str().unwrap();
    let said = on(db, &format!("import --db DB --from rocksdb {src} --json")).ok().json();
    assert_eq!((&said["records"], &said["skipped"]), (&501.into(), &0.into()));
    assert_eq!(on(db, "count --db DB").ok().text(), "501\n");
    assert_eq!(on(db, "get --db DB first key0008 key0499").ok().text(), "one\nchanged\n499\n");
    assert_eq!(on(db, "get --db DB --hex 00FF09").ok().text(), "0a0d\n");
    on(db, "get --db DB key0007").code(1);
    let line = format!("import --db DB --from rocksdb --column-family other --keyspace o {src}");
    assert!(on(db, &line).ok().text().contains("loaded 1 records"));
    assert_eq!(on(db, "get --db DB --keyspace o in").ok().text(), "other\n");
    let line = format!("import --db DB --from rocksdb --column-family no {src}");
    on(db, &line).fails(4, &["ldb ended after 0 records"]);
}

/// A tool that prints so and ends so.
fn tool(path: &Path, prints: &str, code: i32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, format!("#!/bin/sh\nprintf '{prints}'\nexit {code}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn an_import_that_is_not_whole_is_an_error() {
    let dir = tempdir().unwrap();
    let (src, db, ldb) = (dir.path().join("rocks"), &dir.path().join("db"), dir.path().join("ldb"));
    let line = format!("import --db DB --from rocksdb --ldb {} {}", ldb.display(), src.display());
    on(db, &line).fails(4, &["no RocksDB store", "CURRENT"]);
    std::fs::create_dir(&src).unwrap();
    std::fs::write(src.join("CURRENT"), "MANIFEST-000001\n").unwrap();
    on(db, &line).fails(4, &["rocksdb-tools", "--ldb"]);
    for (prints, code, words) in [
        ("0x61 ==> 0x62\\n", 0, "after 1 records"),
        ("0x61 ==> 0x62\\nKeys in range: 2\\n", 0, "ldb says 2"),
        ("0x61 ==> 0x62\\nKeys in range: 1\\n", 3, "exit status: 3"),
        ("0x61 : 0x62\\n", 0, "not a line of"),
    ] {
        tool(&ldb, prints, code);
        on(db, &line).fails(4, &[words]);
    }
    tool(&ldb, "0x61 ==> 0x62\\nKeys in range: 1\\n", 0);
    on(db, &line).ok();
    assert_eq!(on(db, "get --db DB a").ok().text(), "b\n");
    on(db, &format!("import --db DB --from bdb {}", src.display())).fails(2, &["rocksdb", "leveldb"]);
}

/// The store that LevelDB made, and what it holds as `dump --hex` prints it.
fn leveldb() -> (PathBuf, String) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/leveldb");
    (dir.join("store"), std::fs::read_to_string(dir.join("pairs.tsv")).unwrap())
}

/// A copy that can be changed.
fn copy_of(src: &Path, to: &Path) -> PathBuf {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(src).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
    to.into()
}

#[test]
fn a_leveldb_store_is_imported() {
    let dir = tempdir().unwrap();
    let (db, (src, pairs)) = (&dir.path().join("db"), leveldb());
    let line = format!("import --db DB --from leveldb {}", src.display());
    let said = on(db, &format!("{line} --json")).ok().json();
    assert_eq!(said["records"], pairs.lines().count());
    assert_eq!(on(db, "dump --db DB --hex").ok().text(), pairs);
    // Beside what is there, in place of older values of the same keys, and again.
    on(db, "put --db DB other stays").ok();
    on(db, "put --db DB key003 goes").ok();
    assert!(on(db, &line).ok().text().starts_with("loaded "));
    on(db, "del --db DB other").ok();
    assert_eq!(on(db, "dump --db DB --hex").ok().text(), pairs);
    on(db, &format!("{line} --keyspace k")).ok();
    assert_eq!(on(db, "dump --db DB --keyspace k --hex").ok().text(), pairs);
    // An unfinished write at the end of its log.
    let torn = copy_of(&src, &dir.path().join("torn"));
    let log = std::fs::read_dir(&torn).unwrap().map(|e| e.unwrap().path());
    let log = log.into_iter().find(|p| p.extension().is_some_and(|e| e == "log")).unwrap();
    let bytes = std::fs::read(&log).unwrap();
    std::fs::write(&log, &bytes[..bytes.len() - 5]).unwrap();
    let ran = on(db, &format!("import --db DB --keyspace torn --from leveldb {}", torn.display())).ok();
    assert!(ran.err.contains("record that was not finished"), "{}", ran.err);
    let lines = on(db, "count --db DB --keyspace torn").ok().text().trim().parse::<usize>().unwrap();
    assert_eq!(lines, pairs.lines().count() - 1);
}

#[test]
fn a_leveldb_store_that_is_not_whole_gives_nothing() {
    let dir = tempdir().unwrap();
    let (db, (src, _)) = (&dir.path().join("db"), leveldb());
    on(db, "put --db DB a b").ok();
    let import = |src: &Path| on(db, &format!("import --db DB --from leveldb {}", src.display()));
    import(&dir.path().join("no")).fails(4, &["no LevelDB store", "no such directory"]);
    import(dir.path()).fails(4, &["no LevelDB store", "CURRENT"]);
    import(db).fails(4, &["ringdb's own"]);
    for flag in ["--ldb x", "--column-family x", "--durability sync"] {
        on(db, &format!("import --db DB --from leveldb {flag} {}", src.display())).fails(2, &["rocksdb"]);
    }
    let copy = copy_of(&src, &dir.path().join("copy"));
    let tables = std::fs::read_dir(&copy).unwrap().map(|e| e.unwrap().path());
    let mut tables: Vec<PathBuf> = tables.filter(|p| p.extension().is_some_and(|e| e == "ldb")).collect();
    tables.sort();
    let bytes = std::fs::read(&tables[0]).unwrap();
    std::fs::write(&tables[0], &bytes[..bytes.len() - 1]).unwrap();
    import(&copy).fails(4, &[tables[0].to_str().unwrap(), "the file ends here", "repair"]);
    // Only seen when it is read: what precedes it is not loaded either.
    let mut flipped = bytes.clone();
    flipped[100] ^= 1;
    std::fs::write(&tables[0], &flipped).unwrap();
    import(&copy).fails(4, &["checksum", "byte 0", "nothing is loaded"]);
    std::fs::remove_file(&tables[0]).unwrap();
    import(&copy).fails(4, &["missing"]);
    assert_eq!(on(db, "dump --db DB").ok().text(), "a\tb\n");
    // The other way round: a LevelDB directory is no place for a store.
    let line = format!("import --db {0} --from leveldb {0}", src.display());
    on(db, &line).code(4);
    assert_eq!(on(db, "verify --db DB").code, Some(0));
}

#[test]
fn length_prefixed_and_ldb_dumps_come_back() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    with_input(words(db, "load --db DB --hex"), b"00\t\n6162\t090a0d\nff\t00\n").ok();
    let whole = on(db, "dump --db DB --hex").ok().out;
    let binary = on(db, "dump --db DB --format binary").ok().out;
    assert_eq!(&binary[..9], [1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(on(db, "dump --db DB --format binary --prefix 61 --hex").ok().out.len(), 8 + 2 + 3);
    let lines = on(db, "dump --db DB --format ldb").ok();
    assert_eq!(lines.text(), "0x00 ==> 0x\n0x6162 ==> 0x090A0D\n0xFF ==> 0x00\nKeys in range: 3\n");
    for (format, dump) in [("binary", &binary), ("ldb", &lines.out)] {
        let copy = &dir.path().join(format);
        with_input(words(copy, &format!("load --db DB --format {format}")), dump).ok();
        assert_eq!(on(copy, "dump --db DB --hex").ok().out, whole, "{format}");
        with_input(words(copy, &format!("load --db DB --hex --format {format}")), dump)
            .fails(4, &["one coding"]);
    }
    let file = dir.path().join("a.bin");
    on(db, &format!("dump --db DB --output {}", file.display())).ok();
    assert_eq!(std::fs::read(&file).unwrap(), binary);
    with_input(words(db, "load --db DB --format binary"), &binary[..12]).fails(4, &["record 2", "ends"]);
    ringdb(["load", "--db", db.to_str().unwrap(), "--format", "no"]).fails(2, &["binary"]);
}

#[test]
fn a_sorted_dump_is_ingested_whole_or_not_at_all() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    on(db, "put --db DB other stays").ok();
    let tsv = b"apple\tred\npear\tgreen\nplum\tblue\n";
    let said = with_input(words(db, "load --db DB --sorted --json"), tsv).ok().json();
    assert_eq!((&said["records"], &said["bytes"]), (&3.into(), &25.into()));
    let whole = on(db, "dump --db DB").ok().out;
    assert_eq!(whole, b"apple\tred\nother\tstays\npear\tgreen\nplum\tblue\n");
    // What `dump` gives is sorted, in each format.
    for format in ["tsv", "tsv --hex", "csv", "jsonl --base64", "binary", "ldb"] {
        let copy = &dir.path().join(format);
        let dump = on(db, &format!("dump --db DB --format {format}")).ok().out;
        with_input(words(copy, &format!("load --db DB --sorted --format {format}")), &dump).ok();
        assert_eq!(on(copy, "dump --db DB").ok().out, whole, "{format}");
    }
    // A key out of order, one that comes twice, a bad line: the line is named, and nothing is there.
    let copy = &dir.path().join("none");
    for (input, words_of_it) in [
        (
            &b"b\t1\nc\t2\na\t3\n"[..],
            ["line 3", "'a' comes after 'c'", "nothing is loaded", "without --sorted"],
        ),
        (b"b\t1\nb\t2\n", ["line 2", "'b' comes after 'b'", "nothing is loaded", "each key once"]),
        (b"b\t1\nno tab\n", ["line 2", "no TAB", "nothing is loaded", "--on-error skip"]),
    ] {
        with_input(words(copy, "load --db DB --sorted"), input).fails(4, &words_of_it);
        assert_eq!(on(copy, "count --db DB").ok().text(), "0\n");
    }
    let said = with_input(words(copy, "load --db DB --sorted --on-error skip"), b"b\t1\nno tab\nc\t2\n").ok();
    assert!(said.text().contains("loaded 2 records") && said.text().contains("1 bad ones skipped"));
    // Over several files the order goes on.
    let (one, two) = (dir.path().join("1.tsv"), dir.path().join("2.tsv"));
    std::fs::write(&one, "d\t1\n").unwrap();
    std::fs::write(&two, "e\t2\n").unwrap();
    let files = |a: &Path, b: &Path| format!("load --db DB --sorted {} {}", a.display(), b.display());
    on(copy, &files(&two, &one)).fails(4, &["1.tsv, line 1", "nothing is loaded"]);
    on(copy, &files(&one, &two)).ok();
    assert_eq!(on(copy, "dump --db DB").ok().text(), "b\t1\nc\t2\nd\t1\ne\t2\n");
    for flag in ["--batch-size 9", "--durability sync"] {
        on(copy, &format!("load --db DB --sorted {flag}")).fails(2, &["cannot be used with"]);
    }
}

#[test]
fn tables_are_exported_and_imported() {
    let dir = tempdir().unwrap();
    let (db, out) = (&dir.path().join("db"), dir.path().join("out"));
    let export = |more: &str| on(db, &format!("export --db DB {more} {}", out.display()));
    with_input(words(db, "load --db DB"), b"apple\tred\npear\tgreen\nplum\tblue\n").ok();
    on(db, "put --db DB --keyspace k pear other").ok();
    let said = export("--from p --to pl --json").ok().json();
    assert_eq!((&said["pairs"], &said["tables"]), (&1.into(), &1.into()));
    export("").fails(4, &["new or empty directory", "is not empty"]);
    let copy = &dir.path().join("copy");
    let import = format!("import --db DB --from tables {}", out.display());
    assert_eq!(on(copy, &format!("{import} --json")).ok().json()["records"], 1);
    assert_eq!(on(copy, "dump --db DB").ok().text(), "pear\tgreen\n");
    assert!(on(copy, &format!("{import} --keyspace k")).ok().text().starts_with("loaded 1 records"));
    for flag in ["--ldb x", "--column-family x", "--durability sync"] {
        on(copy, &format!("{import} {flag}")).fails(2, &["rocksdb"]);
    }
    // Of a keyspace, of all, of nothing.
    for (what, n) in [("--keyspace k", 1), ("", 3), ("--prefix p", 2), ("--from x --to a", 0)] {
        std::fs::remove_dir_all(&out).unwrap();
        let ran = export(what).ok();
        assert!(ran.text().starts_with(&format!("exported {n} records")), "{}", ran.text());
    }
    std::fs::remove_dir_all(&out).unwrap();
    export("").ok();
    // Damaged, unfinished, none.
    let table = out.join("000001.sst");
    let good = std::fs::read(&table).unwrap();
    let mut bad = good.clone();
    bad[20] ^= 1;
    std::fs::write(&table, &bad).unwrap();
    on(copy, &import).fails(4, &["000001.sst", "nothing is loaded", "make it anew"]);
    std::fs::write(&table, &good[..good.len() / 2]).unwrap();
    on(copy, &import).fails(4, &["000001.sst", "nothing is loaded"]);
    std::fs::write(&table, &good).unwrap();
    std::fs::remove_file(out.join("TABLES")).unwrap();
    on(copy, &import).fails(4, &["no export is in", "TABLES is missing", "`ringdb export`"]);
    on(copy, "import --db DB --from tables no").fails(4, &["no such directory"]);
    assert_eq!(on(copy, "dump --db DB").ok().text(), "pear\tgreen\n");
    on(&dir.path().join("none"), &format!("export --db DB {}", dir.path().join("x").display()))
        .fails(4, &["no store"]);
}
