//! Each verb of the command, run as a user runs it.
#![allow(clippy::unwrap_used)] // a test

mod common;

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use common::{command, on, ringdb, with_input, words};
use tempfile::tempdir;

/// Bytes that look random, the same each time.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

fn filled(db: &Path, pairs: &[(&str, &str)]) {
    let text: String = pairs.iter().map(|(k, v)| format!("{k}\t{v}\n")).collect();
    with_input(words(db, "load --db DB"), text.as_bytes()).ok();
}

#[test]
fn merge_by_the_operator_of_the_keyspace() {
    let dir = tempfile::tempdir().unwrap();
    let db = &dir.path().join("store");
    on(db, "merge --db DB hits 1 --number").fails(4, &["no store", "ringdb put"]);
    on(db, "merge --db DB hits 1 --operator sum").fails(2, &["'sum'", "add, max, append"]);
    on(db, "merge --db DB hits one --number --operator add").fails(2, &["'one'", "whole numbers"]);
    assert!(!db.exists());
    on(db, "put --db DB k v").ok();
    on(db, "merge --db DB hits 1 --number").fails(2, &["'default' has no merge operator", "--operator"]);
    on(db, "merge --db DB --keyspace none hits 1").fails(4, &["no keyspace 'none'"]);
    on(db, "merge --db DB --keyspace counts hits 5 --number --operator add --durability sync").ok();
    let out = on(db, "merge --db DB --keyspace counts hits 7 -2 --number --json").ok();
    assert!(out.json()["merged"] == 2);
    let out = on(db, "get --db DB --keyspace counts 68697473 --hex").ok();
    assert_eq!(out.text(), "0a00000000000000\n");
    // Text is as it is given, and eight of it are a number, too.
    on(db, "merge --db DB --keyspace counts hits 7").fails(2, &["--number", "8 bytes"]);
    on(db, "merge --db DB --keyspace counts hits 7 --number --operator max").fails(2, &["'add'"]);
    on(db, "merge --db DB --keyspace counts 0f 00 --hex --number").fails(2, &["--number"]);
    on(db, "merge --db DB --keyspace counts hits").fails(2, &["OPERAND"]);
    let tags = "append:, ";
    for (given, tag) in [(Some(tags), "red"), (None, "new"), (Some(tags), "-x")] {
        let mut args = vec!["merge", "--db", db.to_str().unwrap(), "--keyspace", "tags"];
        args.extend(given.iter().flat_map(|name| ["--operator", name]));
        args.extend(["--", "page", tag]);
        ringdb(args).ok();
    }
    assert_eq!(on(db, "get --db DB --keyspace tags page").ok().text(), "red, new, -x\n");
    assert!(on(db, "keyspaces --db DB").ok().text().contains("tags"));
}

#[test]
fn put_get_del() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    on(db, "put --db DB apple red").ok();
    on(db, "put --db DB banana yellow --durability sync").ok();
    assert_eq!(on(db, "get --db DB apple").ok().text(), "red\n");
    assert_eq!(on(db, "get --db DB banana apple").ok().text(), "yellow\nred\n");
    assert_eq!(on(db, "get --db DB apple --raw").ok().text(), "red");
    assert_eq!(
        on(db, "get --db DB apple --json").ok().json(),
        serde_json::json!({"key": "apple", "value": "red"})
    );
    on(db, "put --db DB apple green").ok();
    assert_eq!(on(db, "get --db DB apple").ok().text(), "green\n");

    let absent = on(db, "get --db DB apple cherry").code(1);
    assert_eq!(absent.text(), "green\n");
    assert!(absent.err.contains("no key 'cherry'"), "{}", absent.err);
    let absent = on(db, "get --db DB cherry --json").code(1);
    assert_eq!(absent.json(), serde_json::json!({"key": "cherry", "value": null}));

    assert_eq!(on(db, "del --db DB apple cherry --json").ok().json()["deleted"], 2);
    on(db, "get --db DB apple").code(1);
    assert_eq!(on(db, "count --db DB").ok().text(), "1\n");
}

#[test]
fn ranges_are_deleted() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    let fill = || {
        for key in ["a/1", "a/2", "b/1", "c"] {
            on(db, &format!("put --db DB {key} v")).ok();
            on(db, &format!("put --db DB --keyspace users {key} v")).ok();
        }
    };
    let left = || on(db, "scan --db DB --keys-only").ok().text().to_string();
    fill();
    on(db, "del --db DB --prefix a/").ok();
    assert_eq!(left(), "b/1\nc\n");
    assert_eq!(on(db, "count --db DB --keyspace users").ok().text(), "4\n");
    fill();
    assert_eq!(on(db, "del --db DB --from a/2 --to c a/1 --json").ok().json()["ranges"], 1);
    assert_eq!(left(), "c\n");
    on(db, "del --db DB --to a").ok();
    assert_eq!(left(), "c\n");
    let refused = on(db, "del --db DB").code(2);
    assert!(refused.err.contains("--prefix, --from, --to"), "{}", refused.err);
    on(db, "del --db DB --all c").code(2);
    on(db, "del --db DB --keyspace users --all").ok();
    assert_eq!(on(db, "count --db DB --keyspace users").ok().text(), "0\n");
    assert_eq!(left(), "c\n");
}

#[test]
fn values_from_files_and_in_other_codings() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    let blob = noise(1, 100_000);
    let file = dir.path().join("blob");
    std::fs::write(&file, &blob).unwrap();
    on(db, &format!("put --db DB blob --value-file {}", file.display())).ok();
    assert_eq!(on(db, "get --db DB blob --raw").ok().out, blob);
    with_input(words(db, "put --db DB piped --value-file -"), b"from a pipe\n").ok();
    assert_eq!(on(db, "get --db DB piped").ok().text(), "from a pipe\n\n");

    on(db, "put --db DB --hex 00ff 0a").ok();
    assert_eq!(on(db, "get --db DB --hex 00ff").ok().text(), "0a\n");
    assert_eq!(on(db, "get --db DB --base64 AP8=").ok().text(), "Cg==\n");
    let v = on(db, "get --db DB --base64 AP8= --json").ok().json();
    assert_eq!(v, serde_json::json!({"key_base64": "AP8=", "value_base64": "Cg=="}));
    on(db, "put --db DB --hex 0 00").fails(2, &["key '0' is not hexadecimal"]);
    on(db, "get --db DB --hex --base64 00").fails(2, &["cannot be used with"]);
    on(db, "put --db DB key").fails(2, &["VALUE"]);
    on(db, "put --db DB key --value-file /nowhere/x").fails(4, &["/nowhere/x", "No such file"]);
}

#[test]
fn scans_and_counts() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    filled(db, &[("a1", "1"), ("a2", "2"), ("b1", "3"), ("b2", "4"), ("c", "x\\ty")]);
    let scan = |args: &str| on(db, &format!("scan --db DB {args}")).ok().text().to_string();
    assert_eq!(scan(""), "a1\t1\na2\t2\nb1\t3\nb2\t4\nc\tx\\ty\n");
    assert_eq!(scan("--prefix a"), "a1\t1\na2\t2\n");
    assert_eq!(scan("--from a2 --to b2 --keys-only"), "a2\nb1\n");
    assert_eq!(scan("--reverse --limit 2"), "c\tx\\ty\nb2\t4\n");
    assert_eq!(scan("--prefix b --from b2"), "b2\t4\n");
    assert_eq!(scan("--prefix b --to b"), "");
    assert_eq!(scan("--prefix 61 --reverse --limit 1 --hex"), "6132\t32\n");
    let lines = scan("--prefix c --json");
    assert_eq!(lines, "{\"key\":\"c\",\"value\":\"x\\ty\"}\n");
    assert_eq!(scan("--prefix c --json --keys-only"), "{\"key\":\"c\"}\n");
    assert_eq!(on(db, "count --db DB --prefix b").ok().text(), "2\n");
    assert_eq!(on(db, "count --db DB --from a2 --json").ok().json()["count"], 4);
}

#[test]
fn keyspaces_are_apart() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    on(db, "put --db DB k default").ok();
    on(db, "put --db DB --keyspace users k other").ok();
    on(db, "keyspaces --db DB --create empty").ok();
    let mut names: Vec<String> = on(db, "keyspaces --db DB").ok().text().lines().map(String::from).collect();
    names.sort();
    assert_eq!(names, ["empty", "users"]);
    assert_eq!(on(db, "get --db DB k").ok().text(), "default\n");
    assert_eq!(on(db, "get --db DB k --keyspace users").ok().text(), "other\n");
    assert_eq!(on(db, "count --db DB --keyspace empty").ok().text(), "0\n");
    on(db, "scan --db DB --keyspace nosuch").fails(4, &["no keyspace 'nosuch'", "users"]);
    on(db, "del --db DB --keyspace nosuch k").fails(4, &["no keyspace 'nosuch'"]);
    on(db, "keyspaces --db DB --drop users").ok();
    on(db, "keyspaces --db DB --drop users").fails(4, &["no keyspace 'users'"]);
    assert_eq!(on(db, "keyspaces --db DB --json").ok().json(), serde_json::json!(["empty"]));
    on(db, "keyspaces --db DB --create a --drop b").fails(2, &["cannot be used with"]);
}

#[test]
fn what_was_loaded_comes_out_byte_for_byte() {
    let dir = tempdir().unwrap();
    let source = &dir.path().join("source");
    // Random bytes of all lengths, as hexadecimal TSV: the one form that needs no escapes.
    let mut lines = vec!["\t".to_string(), "00\t".into(), "0d0a\t0d".into()];
    for i in 0..800u64 {
        let key = [&i.to_be_bytes()[6..], &noise(i, i as usize % 40)].concat();
        let value = noise(i + 10_000, (i as usize * 7) % 300);
        lines.push(format!("{}\t{}", hex(&key), hex(&value)));
    }
    lines.push(format!("ee\t{}", hex(&noise(5, 70_000))));
    lines.sort();
    let text = lines.join("\n") + "\n";
    let loaded = with_input(words(source, "load --db DB --hex --json"), text.as_bytes()).ok();
    assert_eq!(loaded.json()["records"], lines.len());
    assert_eq!(on(source, "dump --db DB --hex").ok().text(), text);

    for args in ["-f tsv", "-f csv", "-f jsonl", "-f csv --base64", "-f jsonl --hex", "-f tsv --base64"] {
        let dump = on(source, &format!("dump --db DB {args}")).ok();
        let copy = &dir.path().join(format!("copy-{args}"));
        with_input(words(copy, &format!("load --db DB {args} --batch-size 7")), &dump.out).ok();
        assert_eq!(on(copy, "dump --db DB --hex").ok().text(), text, "{args}");
        // Through a file whose name says the format.
        let name = args.split_whitespace().nth(1).unwrap();
        let file = dir.path().join(format!("records.{name}"));
        if args.split_whitespace().count() == 2 {
            on(source, &format!("dump --db DB --output {}", file.display())).ok();
            assert_eq!(std::fs::read(&file).unwrap(), dump.out);
            let copy = &dir.path().join(format!("file-{name}"));
            on(copy, &format!("load --db DB {}", file.display())).ok();
            assert_eq!(on(copy, "dump --db DB --hex").ok().text(), text, "{args}");
        }
    }
    assert_eq!(on(source, "dump --db DB --json").ok().out, on(source, "dump --db DB -f jsonl").ok().out);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn bad_records_are_named_and_stop_or_are_skipped() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    let tsv = b"a\t1\nb\t2\nno tab here\nc\t3\n";
    let stopped = with_input(words(db, "load --db DB"), tsv);
    assert!(stopped.out.is_empty());
    stopped.fails(4, &["standard input, line 3", "no TAB", "--on-error skip", "2 records are loaded"]);
    assert_eq!(on(db, "scan --db DB").ok().text(), "a\t1\nb\t2\n");

    let skipped = with_input(words(db, "load --db DB --on-error skip"), tsv).ok();
    assert!(skipped.err.contains("line 3") && skipped.err.contains("skipped"), "{}", skipped.err);
    assert!(
        skipped.text().starts_with("loaded 3 records") && skipped.text().contains("1 bad"),
        "{}",
        skipped.text()
    );
    assert_eq!(on(db, "count --db DB").ok().text(), "3\n");

    let file = dir.path().join("x.jsonl");
    std::fs::write(&file, "{\"key\":\"d\",\"value\":\"4\"}\n{\"key\":\"e\"}\n").unwrap();
    on(db, &format!("load --db DB {}", file.display())).fails(4, &["x.jsonl, line 2", "no \"value\""]);
    let csv = b"name,size,key\nfig,9,f\nshort\n";
    let args = "load --db DB -f csv --value-column name --on-error skip --json";
    let ran = with_input(words(db, args), csv).ok();
    assert_eq!((ran.json()["records"].as_u64(), ran.json()["skipped"].as_u64()), (Some(1), Some(1)));
    assert!(ran.err.contains("line 3") && ran.err.contains("1 fields"), "{}", ran.err);
    assert_eq!(on(db, "get --db DB f").ok().text(), "fig\n");
    with_input(words(db, "load --db DB -f csv"), csv).fails(4, &["no column 'value'", "name, size, key"]);
    let long = [vec![b'k'; 70_000], b"\tv\n".to_vec()].concat();
    with_input(words(db, "load --db DB"), &long).fails(4, &["line 1", "the key has 70000 bytes"]);
    on(db, "load --db DB /nowhere/x.tsv").fails(4, &["/nowhere/x.tsv", "No such file"]);
    on(db, "load --db DB /").fails(4, &["is a directory"]);
}

#[test]
fn loads_go_into_a_keyspace() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    with_input(words(db, "load --db DB --keyspace fruit --durability none"), b"apple\tred\n").ok();
    assert_eq!(on(db, "dump --db DB --keyspace fruit").ok().text(), "apple\tred\n");
    assert_eq!(on(db, "dump --db DB").ok().text(), "");
    assert_eq!(on(db, "dump --db DB --keyspace fruit --prefix b").ok().text(), "");
}

#[test]
fn stats_verify_compact_checkpoint() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    let text: String = (0..5000).map(|i| format!("key{i:05}\t{}\n", "v".repeat(100))).collect();
    with_input(words(db, "load --db DB"), text.as_bytes()).ok();
    let stats = on(db, "stats --db DB --json").ok().json();
    assert!(stats["table_bytes"].as_u64().unwrap() > 500_000, "{stats}");
    assert!(on(db, "stats --db DB").ok().text().contains("I/O engine"));
    let report = on(db, "verify --db DB --json").ok().json();
    assert!(report["entries"].as_u64().unwrap() >= 5000 && report["problems"].as_array().unwrap().is_empty());
    assert!(on(db, "verify --db DB").ok().text().contains("all is well"));
    assert!(on(db, "compact --db DB").ok().text().contains("of tables"));
    assert!(on(db, "compact --db DB --from key01 --to key02 --json").ok().json()["seconds"].is_number());
    assert_eq!(on(db, "count --db DB").ok().text(), "5000\n");

    let copy = &dir.path().join("copy");
    on(db, &format!("checkpoint --db DB {}", copy.display())).ok();
    on(db, "put --db DB key00000 changed").ok();
    assert_eq!(on(copy, "get --db DB key00000").ok().text(), "v".repeat(100) + "\n");
    on(copy, "verify --db DB").ok();
    on(db, &format!("checkpoint --db DB {}", copy.display())).fails(2, &["new or empty directory"]);
}

#[test]
fn verify_names_what_is_wrong() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    let text: String = (0..5000).map(|i| format!("key{i:05}\t{}\n", "v".repeat(100))).collect();
    with_input(words(db, "load --db DB"), text.as_bytes()).ok();
    let table = std::fs::read_dir(db)
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.extension().is_some_and(|e| e == "sst"))
        .unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[5000] ^= 0x40;
    std::fs::write(&table, bytes).unwrap();
    let ran = on(db, "verify --db DB").code(1);
    let name = table.file_name().unwrap().to_str().unwrap();
    assert!(ran.text().contains(name) && ran.text().contains("problem"), "{}", ran.text());
    let report = on(db, "verify --db DB --json").code(1).json();
    assert!(!report["problems"].as_array().unwrap().is_empty());
    // Too damaged to be opened: still named with everything else.
    let mut bytes = std::fs::read(&table).unwrap();
    let footer = bytes.len() - 10;
    bytes[footer] ^= 0x40;
    std::fs::write(&table, bytes).unwrap();
    on(db, "get --db DB key00000").fails(4, &[name, "ringdb verify"]);
    let report = on(db, "verify --db DB --json").code(1).json();
    assert!(report["problems"][0]["file"].as_str().unwrap().ends_with(name), "{report}");
}

#[test]
fn an_occupied_place_is_not_recommended() {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("mail"), "dear").unwrap();
    let ran = on(dir.path(), "put --db DB k v").code(4);
    assert!(ran.err.contains("mail") && ran.err.contains("new or empty one"), "{}", ran.err);
    assert!(!ran.err.contains("make one"), "{}", ran.err);
}

#[test]
fn an_error_that_nobody_reads_is_no_panic() {
    let dir = tempdir().unwrap();
    let mut child = command(words(&dir.path().join("none"), "get --db DB k"));
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let status = child.stdout(std::process::Stdio::null()).stderr(write).status().unwrap();
    assert_eq!(status.code(), Some(4));
}

#[test]
fn reading_makes_nothing_and_says_what_is_missing() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("nothing");
    for verb in
        ["get --db DB k", "scan --db DB", "count --db DB", "stats --db DB", "verify --db DB", "dump --db DB"]
    {
        on(db, verb).fails(4, &["no store in", "nothing"]);
        assert!(!db.exists(), "{verb}");
    }
    for verb in
        ["del --db DB k", "compact --db DB", "checkpoint --db DB /tmp/x", "keyspaces --db DB --drop x"]
    {
        on(db, verb).fails(4, &["no store in"]);
        assert!(!db.exists(), "{verb}");
    }
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    on(&empty, "get --db DB k").fails(4, &["no store in"]);
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
    let file = dir.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    on(&file, "count --db DB").fails(4, &["is a file"]);
}

#[test]
fn a_store_in_use_refuses_writers_and_serves_readers() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    let open = ringdb::Db::open(db, ringdb::Options::default()).unwrap();
    open.put(b"k", b"v").unwrap();
    on(db, "put --db DB k w").fails(4, &["open in another process"]);
    on(db, "del --db DB k").fails(4, &["open in another process"]);
    // By its socket.
    assert_eq!(on(db, "compact --db DB --json").ok().json()["via"], "socket");
    assert_eq!(on(db, "get --db DB k").ok().text(), "v\n");
    assert_eq!(on(db, "count --db DB").ok().text(), "1\n");
    on(db, "verify --db DB").ok();
    open.put(b"k2", b"v").unwrap();
    assert_eq!(on(db, "count --db DB").ok().text(), "2\n");
    open.close().unwrap();
    on(db, "put --db DB k w").ok();
}

#[test]
fn wrong_arguments_are_usage_errors() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    on(db, "get --db DB --nonsense k").fails(2, &["--nonsense"]);
    on(db, "frobnicate").fails(2, &["frobnicate"]);
    on(db, "get k").fails(2, &["--db"]);
    on(db, "scan --db DB --limit x").fails(2, &["--limit"]);
    on(db, "stats --db DB --cache-bytes 12q").fails(2, &["unknown unit"]);
    on(db, "put --db DB k v --io nosuch").fails(2, &["nosuch", "posix", "libaio", "io_uring"]);
    on(db, "put --db DB k v --io posix?nosuch=1").fails(2, &["nosuch"]);
    assert!(!db.exists());
    ringdb::<&str>([]).code(2);
}

#[test]
fn every_engine_reads_what_another_wrote() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    let engines = common::engines();
    for e in &engines {
        on(db, &format!("put --db DB {e} written --io {e}")).ok();
    }
    for reader in &engines {
        let ran = on(db, &format!("get --db DB {} --io {reader}", engines.join(" "))).ok();
        assert_eq!(ran.text(), "written\n".repeat(engines.len()));
        let stats = on(db, &format!("stats --db DB --io {reader} --json")).ok().json();
        assert!(stats["io"].as_str().unwrap().starts_with(reader), "{stats}");
    }
}

#[test]
fn a_closed_pipe_is_quiet() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    let text: String = (0..20_000).map(|i| format!("key{i:05}\t{}\n", "v".repeat(50))).collect();
    with_input(words(db, "load --db DB"), text.as_bytes()).ok();
    for verb in ["scan --db DB", "dump --db DB", "dump --db DB -f csv", "dump --db DB -f jsonl"] {
        let mut child =
            command(words(db, verb)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let done = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(done.stderr).unwrap(), "", "{verb}");
        assert!(done.status.success(), "{verb}: {}", done.status);
    }
}

#[test]
fn help_completions_and_manual_pages() {
    let help = ringdb(["--help"]).ok();
    for word in ["load", "dump", "verify", "bench", "demo", "Exit codes"] {
        assert!(help.text().contains(word), "{word}");
    }
    for verb in "load dump get put del scan count stats verify salvage compact checkpoint keyspaces bench demo completions man"
        .split_whitespace()
    {
        assert!(!ringdb([verb, "--help"]).ok().text().is_empty());
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = ringdb(["completions", shell]).ok();
        assert!(script.text().contains("ringdb") && script.text().contains("keyspaces"), "{shell}");
    }
    assert!(ringdb(["man"]).ok().text().contains(".TH ringdb"));
    let dir = tempdir().unwrap();
    ringdb(["man", "--dir", dir.path().to_str().unwrap()]).ok();
    assert!(std::fs::read_to_string(dir.path().join("ringdb-load.1")).unwrap().contains("on\\-error"));
}

#[test]
fn a_simulated_disk_says_that_it_is_gone_afterwards() {
    let dir = tempdir().unwrap();
    let db = &dir.path().join("db");
    let put = on(db, "put --db DB apple red --io sim?seed=5").ok();
    assert_eq!(put.err.matches("is gone when this command ends").count(), 1, "{}", put.err);
    assert!(put.err.contains("sim?seed=5"), "{}", put.err);
    assert!(!db.exists());
    on(db, "put --db DB apple red --io sim?plan=on+write+EIO").fails(4, &["Input/output error"]);
    on(db, "put --db DB apple red --io sim?plan=on+write+EWHAT").fails(2, &["'EWHAT' is no action"]);
}

/// The flags of the descriptors of tables that a verb opens, as strace sees them.
#[test]
fn direct_reads_are_for_every_verb_and_in_settings_files() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let db = dir.path().join("db");
    on(&db, "bench --db DB --workloads fillseq,flush --num 20000 --cache-bytes 4MiB").ok();
    let conf = dir.path().join("io.conf");
    std::fs::write(&conf, "io = 'posix'\ndirect_reads = true\n").unwrap();
    let trace = dir.path().join("trace");
    let direct = |line: &str| {
        let line = line.replace("DB", db.to_str().unwrap());
        let ran = std::process::Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=fcntl,fadvise64", "-o"])
            .arg(&trace)
            .arg(env!("CARGO_BIN_EXE_ringdb"))
            .args(line.split_whitespace())
            .output()
            .ok()?;
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let text = std::fs::read_to_string(&trace).unwrap();
        Some((text.contains("O_DIRECT"), text.contains("POSIX_FADV_RANDOM")))
    };
    let key = "0000000000000001";
    let Some(first) = direct("count --db DB --io posix") else {
        return println!("SKIPPED: there is no strace here");
    };
    assert_eq!(first, (false, true), "buffered, without read-ahead");
    let asked = [
        "count --db DB --io posix --direct-reads".to_string(),
        format!("count --db DB --io @{}", conf.display()),
        "scan --db DB --io posix --limit 1 --direct-reads".into(),
        "stats --db DB --io posix --direct-reads".into(),
        "dump --db DB --io posix --direct-reads -o /dev/null".into(),
        format!("put --db DB --io posix --direct-reads {key} v"),
    ];
    for line in asked {
        let (o_direct, advised) = direct(&line).unwrap();
        assert!(o_direct && !advised, "{line}");
    }
}
