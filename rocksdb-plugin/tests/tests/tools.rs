//! RocksDB's own programs under the plugin: db_bench writes and reads a database on each engine, and ldb and sst_dump
//! find the same data in it, with any engine and without the plugin.

#![allow(clippy::unwrap_used)] // a test

use std::path::Path;
use std::process::Command;

use rocksdb_plugin_tests::{ENGINES, good, place, plugin, run, skipped, text, tool, under, uri};

const KEYS: &str = "--num=8000";

/// db_bench on `dir`; its output. `engine` None is RocksDB without the plugin.
fn db_bench(
    engine: Option<&str>,
    dir: &Path,
    benchmarks: &str,
    direct: bool,
    args: &[&str],
) -> Option<String> {
    let (exe, plugin) = (tool("db_bench")?, plugin()?);
    let mut c = match engine {
        Some(engine) => {
            let mut c = under(plugin, exe);
            c.arg(format!("--fs_uri={}", uri(engine)));
            c
        }
        None => Command::new(exe),
    };
    c.arg(format!("--db={}", dir.display())).arg(format!("--benchmarks={benchmarks}")).args(args);
    c.args([KEYS, "--seed=42", "--value_size=300", "--verify_checksum", "--compression_type=none"]);
    c.args(["--write_buffer_size=262144", "--target_file_size_base=262144", "--cache_size=131072"]);
    c.args([
        "--multiread_batched",
        "--batch_size=16",
        "--async_io",
        "--seek_nexts=20",
        "--bytes_per_sync=131072",
    ]);
    if direct {
        c.args(["--use_direct_reads", "--use_direct_io_for_flush_and_compaction"]);
    }
    let text = good(&mut c);
    for bad in ["error", "Error:", "Corruption", "failed"] {
        // A statistics line of db_bench counts background errors: it has no such word at the line's end.
        let found = text.lines().find(|l| l.contains(bad) && !l.contains("WARNING"));
        assert!(found.is_none(), "{engine:?}: {}\n{text}", found.unwrap());
    }
    Some(text)
}

/// `(N of M found)` of each benchmark that says it.
fn found(text: &str) -> Vec<&str> {
    text.lines().filter_map(|l| Some(&l[l.find('(')?..]).filter(|l| l.contains("found"))).collect()
}

/// Every key and value, read by ldb with an engine or without the plugin.
fn scan(engine: Option<&str>, dir: &Path) -> Option<String> {
    let (exe, plugin) = (tool("ldb")?, plugin()?);
    let mut c = match engine {
        Some(engine) => {
            let mut c = under(plugin, exe);
            c.arg(format!("--fs_uri={}", uri(engine)));
            c
        }
        None => Command::new(exe),
    };
    let text = good(c.arg(format!("--db={}", dir.display())).args(["scan", "--hex", "--no_value=false"]));
    let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("0x")).collect();
    assert!(lines.len() > 1000, "{text}");
    Some(lines.join("\n"))
}

/// The names of files that begin and end like this.
fn files(dir: &Path, ending: &str) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path().display().to_string());
    names.filter(|n| n.ends_with(ending)).collect()
}

#[test]
fn db_bench_on_each_engine_and_the_data_read_by_all() {
    let all = "fillrandom,overwrite,readrandom,multireadrandom,seekrandom,readseq,compact,waitforcompaction,\
               readrandom,multireadrandom,seekrandom,readseq,verifychecksum";
    let dir = place();
    for direct in [false, true] {
        let own = dir.path().join(format!("stock-{direct}"));
        let Some(expected) = db_bench(None, &own, all, direct, &[]) else { return };
        let Some(data) = scan(None, &own) else { return };
        assert!(found(&expected).len() >= 4, "{expected}");
        for engine in ENGINES {
            let place = dir.path().join(format!("{engine}-{direct}"));
            let text = db_bench(Some(engine), &place, all, direct, &[]).unwrap();
            assert_eq!(found(&text), found(&expected), "{engine}, direct {direct}");
            // By another engine, and by RocksDB without the plugin.
            let other = ENGINES[(ENGINES.iter().position(|e| *e == engine).unwrap() + 1) % ENGINES.len()];
            assert!(scan(Some(other), &place).unwrap() == data, "{engine} read by {other}, direct {direct}");
            assert!(scan(None, &place).unwrap() == data, "{engine} read by stock, direct {direct}");
            if direct {
                check_tables(engine, &place);
                // On it goes with stock, then with the engine again.
                db_bench(None, &place, "overwrite,readrandom", direct, &["--use_existing_db"]).unwrap();
                let text = db_bench(
                    Some(engine),
                    &place,
                    "readrandom,readseq,verifychecksum",
                    direct,
                    &["--use_existing_db"],
                );
                assert!(text.unwrap().contains("readseq"), "{engine}");
            }
        }
    }
}

fn check_tables(engine: &str, dir: &Path) {
    let (Some(sst_dump), Some(ldb), Some(plugin)) = (tool("sst_dump"), tool("ldb"), plugin()) else { return };
    let tables = files(dir, ".sst");
    assert!(!tables.is_empty());
    for command in ["check", "verify", "raw"] {
        let mut c = under(plugin, &sst_dump);
        c.arg(format!("--fs_uri={}", uri(engine))).arg(format!("--file={}", tables[0])).current_dir(dir);
        let text = good(c.arg(format!("--command={command}")));
        assert!(!text.contains("orruption"), "{engine}: {text}");
    }
    for command in ["checkconsistency", "list_live_files_metadata", "manifest_dump"] {
        let mut c = under(plugin, &ldb);
        good(c.arg(format!("--fs_uri={}", uri(engine))).arg(format!("--db={}", dir.display())).arg(command));
    }
}

/// A log of its own engine, compaction by another: as the URI says.
#[test]
fn engines_by_kind_of_file() {
    let dir = place();
    let text = db_bench(
        Some("io_uring?wal=posix&compaction=libaio"),
        &dir.path().join("db"),
        "fillrandom,overwrite,compact,multireadrandom,readseq,verifychecksum",
        true,
        &["--sync=false"],
    );
    let Some(text) = text else { return };
    assert!(text.contains("multireadrandom"), "{text}");
}

#[test]
fn synced_writes_and_many_threads() {
    for engine in ENGINES {
        let dir = place();
        let args = ["--threads=8", "--sync", "--writes=50", "--reads=200"];
        let text = db_bench(
            Some(engine),
            &dir.path().join("db"),
            "fillrandom,readrandom,multireadrandom,seekrandom",
            false,
            &args,
        );
        let Some(text) = text else { return };
        assert!(text.contains("seekrandom"), "{text}");
    }
}

#[test]
fn mapped_files_pass_through() {
    for args in [["--mmap_read"], ["--mmap_write"]] {
        let dir = place();
        let text = db_bench(
            Some("io_uring"),
            &dir.path().join("db"),
            "fillrandom,readrandom,multireadrandom,readseq",
            false,
            &args,
        );
        let Some(text) = text else { return };
        assert!(text.contains("readseq"), "{text}");
    }
}

/// A wrong name ends the program with a message that lists what is valid, and ENGINESWAP is the default.
#[test]
fn the_choice_of_an_engine() {
    let (Some(exe), Some(plugin)) = (tool("db_bench"), plugin()) else { return };
    let dir = place();
    let bench = |uri: &str, variable: &str| {
        let mut c = under(plugin, &exe);
        c.arg(format!("--fs_uri={uri}")).arg(format!("--db={}", dir.path().join("db").display()));
        c.args(["--benchmarks=fillrandom", "--num=100"]).env("ENGINESWAP", variable);
        let out = run(&mut c);
        (out.status.success(), text(&out))
    };
    for (uri, variable) in [("engineswap://nonsense", ""), ("engineswap://", "nonsense")] {
        let (good, text) = bench(uri, variable);
        assert!(!good && ["posix", "libaio", "io_uring"].iter().all(|e| text.contains(e)), "{uri}: {text}");
    }
    for (uri, variable) in
        [("engineswap://", "posix"), ("engineswap://auto", "libaio"), ("engineswap://posix", "nonsense")]
    {
        let (good, text) = bench(uri, variable);
        assert!(good, "{uri} with {variable}: {text}");
    }
}

/// Programs that have no RocksDB are not disturbed by the plugin.
#[test]
fn preloading_is_harmless() {
    let Some(plugin) = plugin() else { return };
    let mut ran = 0;
    for command in [
        &["/bin/true"][..],
        &["sh", "-c", "echo $((1+1)); (exit 0); cat /dev/null | cat; exec true"],
        &[
            "python3",
            "-c",
            "import os, subprocess; pid = os.fork(); pid or os._exit(0); os.wait(); subprocess.check_call(['true'])",
        ],
        &["ls", "/"],
    ] {
        if !Path::new(command[0]).exists() && Command::new(command[0]).arg("--version").output().is_err() {
            skipped(command[0]);
            continue;
        }
        let out = run(under(plugin, command[0]).args(&command[1..]));
        assert!(out.status.success(), "{command:?}: {}", text(&out));
        assert!(out.stderr.is_empty(), "{command:?}: {}", text(&out));
        ran += 1;
    }
    assert!(ran > 0);
}
