//! With `queue_always` every operation of a file is a request of its engine, also when it is alone: the kernel's
//! tracepoints and the engine's own counters show it.

#![allow(clippy::unwrap_used)] // a test

#[path = "options/table.rs"]
mod table;

use std::collections::BTreeMap;

use engineswap::mem::AlignedBuf;
use engineswap::{Buf, Direct, ErrorKind, File, Io, Op, OpClass, OpenHow, Purpose};
use table::Requests;

const P: Purpose = Purpose(2);

/// Each operation of a file, alone; so many.
const OPERATIONS: u64 = 9;

fn one_of_each(f: &File) {
    let mut page = AlignedBuf::zeroed(4096);
    page.fill(7);
    f.allocate(0, 8192).unwrap();
    f.write_all_at(&page, 0, P).unwrap();
    f.write_all_at_dsync(&page, 4096, P).unwrap();
    f.start_write_back(0, 8192, false, P).unwrap();
    f.start_write_back(0, 8192, true, P).unwrap();
    f.sync_data(P).unwrap();
    f.sync_all(P).unwrap();
    page.fill(0);
    assert!(f.read_cached_at(&mut page, 0, P).is_none() || !is_queued(f), "a plain call, by another name");
    f.read_exact_at(&mut page, 4096, P).unwrap();
    assert!(page.iter().all(|b| *b == 7));
    assert_eq!(f.read_at(&mut page, 8192, P).unwrap(), 0, "behind the end");
}

fn is_queued(f: &File) -> bool {
    f.map(4096).err().is_some_and(|e| e.to_string().contains("queue_always"))
}

fn disk() -> tempfile::TempDir {
    // Not /tmp, which may be a file system without direct I/O.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// How often each opcode was submitted.
fn opcodes(text: &str) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for line in text.lines().filter_map(|l| l.split_once("io_uring_submit_req: ")) {
        let Some((_, rest)) = line.1.split_once("opcode ") else { continue };
        *all.entry(rest.split(',').next().unwrap().to_owned()).or_default() += 1;
    }
    all
}

#[test]
fn each_kind_of_operation_is_a_request_of_the_ring() {
    if Io::from_uri("io_uring").is_err() {
        return println!("SKIPPED: no io_uring here");
    }
    let dir = disk();
    for (uri, direct, requests) in [
        ("io_uring", Direct::No, false),
        ("io_uring?queue_always", Direct::No, true),
        ("io_uring?queue_always", Direct::Prefer, true),
        ("io_uring?queue_always&force_async", Direct::No, true),
        ("io_uring?queue_always&sqpoll", Direct::No, true),
    ] {
        let io = Io::from_uri(uri).unwrap();
        let Some(seen) = Requests::watch() else {
            return println!("SKIPPED: no tracefs that this user may use");
        };
        let f = io
            .open(&dir.path().join("f"), &OpenHow { truncate: true, ..OpenHow::read_write().direct(direct) });
        let f = f.unwrap();
        one_of_each(&f);
        let (text, stats) = (seen.text(), io.stats());
        let count = |op: &str| opcodes(&text).get(op).copied().unwrap_or(0);
        if !requests {
            assert_eq!(opcodes(&text), BTreeMap::new(), "{uri}");
            assert_eq!(stats.queue_ops, 0, "{uri}");
            continue;
        }
        assert!(is_queued(&f), "{uri}");
        let want = [("FALLOCATE", 1), ("WRITE", 2), ("SYNC_FILE_RANGE", 2), ("FSYNC", 2), ("READ", 2)];
        // A polling thread submits for others, which is not watched.
        if !uri.contains("sqpoll") {
            for (op, n) in want {
                assert_eq!(count(op), n, "{uri}: {op} in {text}");
            }
        }
        assert_eq!((stats.queue_ops, stats.inline), (OPERATIONS, 0), "{uri}");
        let to_worker = |l: &str| {
            let flags = l
                .split_once("flags 0x")
                .and_then(|(_, f)| u64::from_str_radix(f.split(',').next()?, 16).ok());
            flags.unwrap() & 1 << 4 != 0
        };
        // The kernel hands all but transfers to a worker itself.
        let mut lines = text.lines().filter(|l| l.contains("opcode READ,") || l.contains("opcode WRITE,"));
        assert!(lines.all(|l| to_worker(l) == uri.contains("force_async")), "{uri}: {text}");
    }
}

#[test]
fn each_kind_that_native_aio_has_goes_through_the_context() {
    for uri in ["libaio?queue_always", "posix?queue_always"] {
        let Ok(io) = Io::from_uri(uri) else {
            println!("SKIPPED: {uri}");
            continue;
        };
        let dir = disk();
        let f = io.open(&dir.path().join("f"), &OpenHow::read_write()).unwrap();
        one_of_each(&f);
        let stats = io.stats();
        let (submitted, inline) = match uri.starts_with("libaio") {
            // Native AIO has neither ranges nor allocations.
            true => (stats.submit_calls / 2, 3),
            // The page cache answers one read at submission, the other of no bytes is nobody's.
            false => (OPERATIONS - 3, stats.inline),
        };
        assert_eq!((submitted, stats.inline), (OPERATIONS - 3, inline), "{uri}: {stats:?}");
        assert_eq!(stats.total(OpClass::Read).ops, 2);
        assert_eq!(stats.total(OpClass::SyncRange).ops, 2);
        // A batch of one is as alone as a call.
        let before = io.stats().queue_ops;
        let read = Op::read(&f, 0, 4096, Buf::Aligned(AlignedBuf::zeroed(4096)), P);
        assert_eq!(*io.run(vec![read]).remove(0).result.as_ref().unwrap(), 4096);
        assert_eq!(io.stats().queue_ops, before + 1, "{uri}");
    }
}

#[test]
fn a_file_outlives_its_engine_and_a_mapping_is_refused() {
    for uri in ["posix?queue_always&threads=2", "libaio?queue_always", "io_uring?queue_always"] {
        let Ok(io) = Io::from_uri(uri) else {
            println!("SKIPPED: {uri}");
            continue;
        };
        assert!(io.info().uri.contains("&queue_always"), "{}", io.info().uri);
        let dir = disk();
        let f = io.open(&dir.path().join("f"), &OpenHow::read_write()).unwrap();
        drop(io);
        one_of_each(&f);
        assert_eq!(f.map(4096).err().unwrap().kind(), ErrorKind::Unsupported);
        // From a thread that has no queue yet, and takes the file with it.
        std::thread::spawn(move || one_of_each(&f)).join().unwrap();
    }
}

#[test]
fn errors_say_what_a_plain_call_would() {
    let dir = disk();
    let plain = Io::from_uri("posix").unwrap();
    for uri in ["posix?queue_always", "libaio?queue_always", "io_uring?queue_always"] {
        let Ok(io) = Io::from_uri(uri) else {
            println!("SKIPPED: {uri}");
            continue;
        };
        let path = dir.path().join("f");
        let open = |io: &Io| {
            io.open(&path, &OpenHow::read_write()).unwrap();
            io.open(&path, &OpenHow::read()).unwrap()
        };
        let (a, b) = (open(&plain), open(&io));
        let both = |of: &dyn Fn(&File) -> engineswap::Error| {
            let (a, b) = (of(&a), of(&b));
            assert_eq!(
                (a.kind(), a.errno(), a.path()),
                (b.kind(), b.errno(), b.path()),
                "{uri}: {a} and {b}"
            );
        };
        both(&|f| f.write_all_at(&[1], 0, P).unwrap_err());
        both(&|f| f.allocate(0, 10).unwrap_err());
        both(&|f| f.read_exact_at(&mut [0; 9], 5, P).unwrap_err());
    }
}
