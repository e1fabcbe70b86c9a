//! Makes the seeds in fuzz/corpus from real files: the frozen store of testdata, and small stores made here.
//! `make fuzz-corpus`.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use ringdb::fuzzing::{
    describe_log, describe_manifest, describe_store, describe_table, filter_of, put_chunk,
};
use ringdb::{Compression, Db, Durability, Options, WriteBatch, WriteOptions};

struct Corpus(PathBuf);

impl Corpus {
    fn put(&self, target: &str, name: &str, bytes: &[u8]) {
        let dir = self.0.join(target);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("seed-{name}")), bytes).unwrap();
    }
}

fn files(dir: &Path, end: &str) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.to_string_lossy().contains(end))
        .map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&p).unwrap()))
        .collect();
    all.sort();
    all
}

/// The blocks of a described table: what follows its first three chunks.
fn blocks(description: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut chunks) = (&description[1..], vec![]);
    while let Some((n, tail)) = rest.split_first_chunk::<2>() {
        let (chunk, tail) = tail.split_at(usize::from(u16::from_le_bytes(*n)).min(tail.len()));
        chunks.push(chunk);
        rest = tail;
    }
    chunks.split_off(3.min(chunks.len()))
}

fn add_store(out: &Corpus, name: &str, dir: &Path) {
    for (file, bytes) in files(dir, ".sst") {
        let d = describe_table(&bytes).unwrap();
        if d.len() > 24_000 {
            continue;
        }
        let name = format!("{name}-{}", file.trim_end_matches(".sst"));
        out.put("table", &name, &d);
        if bytes.len() <= 12_288 {
            out.put("table", &format!("{name}-file"), &[&[1], bytes.as_slice()].concat());
        }
        if let Some(b) = blocks(&d).first().filter(|b| b.len() < 4096) {
            // 0: plain; 2 and 3: packed, with a right checksum. The target tells the codec by the lowest bit.
            for mode in [0, 2, 3] {
                out.put("block", &format!("{name}-{mode}"), &[&[mode, 0], *b].concat());
            }
        }
        if let Some(f) = filter_of(&bytes).filter(|f| f.len() < 4096) {
            out.put("filter", &name, &[&[10], f].concat());
        }
    }
    let d = describe_store(&files(dir, ""));
    if d.len() < 24_000 {
        out.put("store", name, &d);
    }
    for (_, bytes) in files(dir, "MANIFEST-") {
        out.put("manifest", name, &describe_manifest(&bytes));
        out.put("manifest", &format!("{name}-file"), &[&[2, 0], bytes.as_slice()].concat());
    }
    for (file, bytes) in files(dir, ".log") {
        let number = file.trim_end_matches(".log").parse().unwrap();
        let d = describe_log(0, 0, &[(number, &bytes)]);
        if d.len() < 24_000 {
            out.put("log", &format!("{name}-{number}"), &d);
        }
    }
}

fn small_store(
    compression: Compression,
    filter: u32,
    block: u32,
    durability: Durability,
) -> tempfile::TempDir {
    let tmp = tempfile::tempdir().unwrap();
    let options = Options::default()
        .with_io("posix")
        .with_cache_bytes(1 << 20)
        .with_memtable_bytes(64 << 10)
        .with_block_bytes(block)
        .with_compression(compression)
        .with_last_level_compression(compression)
        .with_filter_bits_per_key(filter)
        .with_durability(durability);
    let db = Db::open(tmp.path().join("db"), options).unwrap();
    let users = db.keyspace("users").unwrap();
    let snapshot = db.snapshot();
    for i in 0..60u32 {
        db.put(format!("key{:03}", i % 40), format!("value of {i}")).unwrap();
    }
    db.put("big", vec![7; 5000]).unwrap();
    db.delete("key003").unwrap();
    let mut batch = WriteBatch::new();
    batch.put_in(&users, "ann", "1");
    batch.delete_in(&users, "bob");
    batch.put("", "");
    db.write(batch, &WriteOptions::default()).unwrap();
    db.flush().unwrap();
    db.put("key003", "again").unwrap();
    db.put("logged", vec![1; 100]).unwrap();
    db.drop_keyspace("users").unwrap();
    drop((snapshot, users));
    db.keyspace("stock").unwrap();
    db.put("last", "one").unwrap();
    drop(db);
    tmp
}

/// A frame without checksums, which the target puts right.
fn frame(kind: u8, first_seq: u64, durable: (u32, u32), payload: &[u8]) -> Vec<u8> {
    let mut f = vec![0; 32];
    f[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    f[12] = kind;
    f[13] = 3;
    f[16..24].copy_from_slice(&first_seq.to_le_bytes());
    f[24..28].copy_from_slice(&durable.0.to_le_bytes());
    f[28..32].copy_from_slice(&durable.1.to_le_bytes());
    f.extend_from_slice(payload);
    f.resize(f.len().next_multiple_of(8), 0);
    f
}

fn link(segment: u64, offset: u64, named: u8) -> Vec<u8> {
    let payload = [&segment.to_le_bytes()[..], &offset.to_le_bytes(), &[named]].concat();
    frame(1, 0, (u32::MAX, 0), &payload)
}

const PUT: &[u8] = &[1, 2, 0, b'k', 1, b'v'];
const BATCH: &[u8] = &[1, 2, 0, b'k', 1, b'v', 0, 3, 2, b'k', b'l', 1, 6, 0xF0, 0, 0, 1, 0, b'x', 0];

fn logs(out: &Corpus) {
    let none = (u32::MAX, 0);
    let first = [link(0, 0, 0), frame(2, 1, none, PUT), frame(2, 2, none, BATCH)].concat();
    let end = 4096 + first.len() as u64;
    let second = [link(3, end, 1), frame(2, 5, (1, end as u32), PUT), frame(2, 6, (0, 4096), PUT)].concat();
    let mut torn = [link(0, 0, 0), frame(2, 1, none, PUT)].concat();
    let at = torn.len();
    torn.extend(frame(2, 2, none, PUT));
    torn[at + 15] = 0xFF;
    torn.extend(frame(2, 3, (0, at as u32 + 4096 + 8), PUT));
    for (name, segments) in [
        ("two", vec![(3, &first), (1, &second)]),
        ("gap", vec![(3, &first), (2, &second)]),
        ("torn", vec![(3, &torn)]),
        ("second", vec![(4, &second)]),
    ] {
        let mut d = vec![0, 1, 0];
        for (delta, body) in segments {
            d.extend([delta, 0]);
            put_chunk(&mut d, body);
        }
        out.put("log", name, &d);
    }
}

/// The store's C interface: writes, reads, scans, batches, keyspaces, requests, by callback and by descriptor.
fn capi_store(out: &Corpus) {
    for (i, calls) in [
        &[0, 0, 3, 9, 2, 0, 0, 100, 3, 2, 0, 3, 0, 100, 40, 0, 5, 0, 1, 3, 0, 4, 0, 9, 100, 0, 2][..],
        &[
            8, 0, 80, 6, 1, 4, 7, 1, 0, 0, 1, 7, 0, 1, 100, 2, 8, 0, 3, 9, 1, 4, 0, 100, 3, 10, 0, 64, 5,
            100, 0, 10, 0, 1,
        ],
        &[
            6, 0, 1, 4, 3, 1, 0, 0, 3, 11, 0, 64, 100, 11, 0, 2, 100, 11, 0, 1, 100, 11, 0, 6, 100, 13, 0, 2,
            13, 0, 50,
        ],
        &[
            0, 0, 35, 9, 2, 255, 0, 3, 3, 0, 35, 254, 100, 12, 1, 9, 9, 4, 0, 3, 35, 0, 1, 1, 12, 4, 200, 4,
            2, 0, 2, 100,
        ],
    ]
    .iter()
    .enumerate()
    {
        out.put("capi_store", &i.to_string(), &calls.repeat(3));
    }
}

/// The frozen store of LevelDB, whole and with less of its log.
fn leveldb(out: &Corpus, dir: &Path) {
    for (name, log_bytes) in [("whole", 64_000), ("short", 300)] {
        for checksums in [0, 1] {
            let mut d = vec![checksums];
            for (kind, end) in ["MANIFEST-", ".ldb", ".log"].iter().enumerate() {
                for (file, bytes) in files(dir, end) {
                    let number: u8 = file.trim_start_matches(end).trim_end_matches(end).parse().unwrap();
                    let len = if *end == ".log" { bytes.len().min(log_bytes) } else { bytes.len() };
                    d.extend([kind as u8, number]);
                    put_chunk(&mut d, &bytes[..len]);
                }
            }
            out.put("leveldb", &format!("{name}-{checksums}"), &d);
        }
    }
}

fn main() {
    let out = Corpus(std::env::args().nth(1).expect("the directory of the corpora").into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    add_store(&out, "frozen", &root.join("testdata/formats/v1"));
    for (name, c, filter, block, durability) in [
        ("plain", Compression::None, 10, 4096, Durability::Process),
        ("lz4", Compression::Lz4, 0, 4096, Durability::Sync),
        ("zstd", Compression::Zstd, 4, 16384, Durability::Process),
    ] {
        add_store(&out, name, &small_store(c, filter, block, durability).path().join("db"));
    }
    logs(&out);
    out.put("batch", "one", PUT);
    out.put("batch", "three", BATCH);
    out.put("block", "text", &[&[6, 0], "many words, many words, many words".as_bytes()].concat());
    out.put("filter", "built", &[&[10], [1u8; 100].as_slice()].concat());
    for (i, uri) in [
        "auto",
        "posix?threads=3",
        "libaio?depth=7",
        "io_uring?depth=64&coop_taskrun&no_sqarray=0",
        "io_uring?sqpoll&sqpoll_idle_ms=50&sqpoll_cpu=1",
        "io_uring?reap=4&min_wait_us=9&worker_cpus=0,1",
    ]
    .iter()
    .enumerate()
    {
        out.put("uri", &i.to_string(), uri.as_bytes());
    }
    for (i, ops) in [
        &[0, 4, 7, 5, 0x1E, 6, 9, 8, 17, 8, 1, 12, 9, 4, 11, 0, 0, 17, 0, 18, 3, 11, 0, 1][..],
        &[0, 4, 7, 14, 3, 2, 0, 0, 0, 6, 0x1A, 4, 9, 1, 33, 5, 77, 8, 4, 16, 17, 1, 0, 5, 8, 18, 9],
        &[0, 4, 7, 0, 8, 255, 19, 40, 0, 9, 12, 12, 13, 18, 5, 10, 6, 1, 2, 3, 4, 5, 6, 0, 4, 0, 17, 1],
    ]
    .iter()
    .enumerate()
    {
        for how in 0..4 {
            out.put("sequence", &format!("{i}-{how}"), &[&[7, how], *ops].concat());
        }
    }
    out.put("uri", "sim", b"sim?seed=9&plan=on+fsync+fail+EIO&capacity=3m&align=4096&map=off");
    capi_store(&out);
    leveldb(&out, &root.join("testdata/leveldb/store"));
    // Files opened, written, read, in batches and by a queue, on each engine.
    for engine in 0..3u8 {
        let mut calls = vec![engine];
        for _ in 0..2 {
            calls.extend([0, 3, 0x0F, 1]);
            calls.extend([3, 0, 1, 0, 4, 5, 1, 1]);
            calls.extend([5, 3, 2, 0, 0, 4, 1, 4, 2, 1, 0, 9, 1, 0, 1, 1, 0, 0, 4, 0, 4, 2, 1, 0, 9, 1, 1]);
            calls.extend([6, 4, 0, 1]);
            calls.extend([7, 2, 1, 0, 4, 1, 4, 1, 1, 0, 7, 1, 1, 1, 0, 7, 3, 0, 0, 0, 0, 1, 0, 1, 1, 1, 0]);
            calls.extend([11, 1, 12, 2, 1, 13, 1, 0, 13, 1, 0, 4, 3, 4, 1, 1, 15]);
        }
        out.put("capi", &engine.to_string(), &calls);
        // The same with memory registered, asked after and taken out on the way.
        let mut calls = vec![engine, 0, 0x0F, 1, 1];
        for what in [0, 2, 3, 1, 2] {
            calls.extend([16, what, 3, 4, 1]);
            calls.extend([6, 4, 0, 1]);
            for _ in 0..3 {
                calls.extend([7, 2, 1, 0, 4, 1, 4, 1, 1, 2, 7, 1, 1]);
            }
            calls.extend([11, 1, 16, what ^ 2, 0, 2, 1, 12, 2, 1, 13, 1, 0]);
            calls.extend([5, 2, 2, 0, 0, 4, 1, 4, 1, 1, 2, 9, 1, 0, 1, 1, 0, 0, 4, 0, 4, 2, 1, 2, 9, 1, 1]);
        }
        out.put("capi", &format!("registered-{engine}"), &calls);
    }
}
