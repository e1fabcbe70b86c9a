//! The static probes, seen by bpftrace: every operation fires submit and complete once, with the arguments that the
//! caller and [`engineswap::IoStats`] know of too.
//!
//! Skipped, with the reason, where there is no bpftrace or it may not attach. bpftrace may lose an event when two
//! meet on a processor, and does not say so; counts that do not match are therefore taken up to three times.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use engineswap::mem::AlignedBuf;
use engineswap::{Buf, Direct, Done, ErrorKind, File, Io, Op, OpClass, OpKind, OpenHow, Purpose, probes};

const SCRIPT: &str = "
struct engineswap_op {
  char engine[16]; char op[16];
  uint64_t purpose; int64_t fd; uint64_t offset; uint64_t len; int64_t result; uint64_t id; uint64_t plain;
};
usdt:BINARY:engineswap:submit {
  @submit[str(arg0), str(arg1)] = count();
  @purposes[str(arg1), arg2] = count();
  @asked[str(arg1)] = sum(arg5);
  $o = (struct engineswap_op *)arg0;
  @plain[str(arg1), $o->plain] = count();
  @open[$o->id] = 1;
}
usdt:BINARY:engineswap:complete {
  @complete[str(arg0), str(arg1)] = count();
  $o = (struct engineswap_op *)arg0;
  if ($o->result < 0) { @errors[str(arg1), 0 - $o->result] = count(); }
  if ($o->result > 0) { @bytes[str(arg1)] = sum($o->result); }
  delete(@open[$o->id]);
}";

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, first, uri, dir] = &args[..]
        && first == "child"
    {
        return child(uri, Path::new(dir));
    }
    if args.iter().any(|a| a == "--list") {
        println!("counts_match: test");
        return;
    }
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        println!("skipped: this processor's probes are empty");
        return;
    }
    if let Err(why) = bpftrace_works() {
        println!("skipped: {why}");
        return;
    }
    for uri in ["posix", "libaio", "io_uring"] {
        match Io::from_uri(uri) {
            Ok(_) => compare(uri),
            Err(e) => println!("skipped {uri}: {e}"),
        }
    }
}

fn bpftrace_works() -> Result<(), String> {
    let out = Command::new("bpftrace")
        .args(["-e", "BEGIN { printf(\"works\"); exit() }"])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("bpftrace cannot be run: {e}"))?;
    match String::from_utf8_lossy(&out.stdout).contains("works") {
        true => Ok(()),
        false => Err(format!("bpftrace may not trace here: {}", String::from_utf8_lossy(&out.stderr).trim())),
    }
}

type Counts = BTreeMap<String, i64>;

/// `NAME: NUMBER` lines.
fn parse(text: &str) -> Counts {
    let number = |l: &str| {
        let (name, n) = l.rsplit_once(": ")?;
        Some((name.trim().to_string(), n.trim().parse().ok()?))
    };
    text.lines().filter_map(number).collect()
}

fn compare(uri: &str) {
    let mut last = (Counts::new(), Counts::new());
    for _ in 0..3 {
        let (seen, known) = run(uri);
        if seen == known {
            println!("{uri}: {} counters match", seen.len());
            return;
        }
        last = (seen, known);
    }
    let (seen, known) = last;
    for key in seen.keys().chain(known.keys()) {
        if seen.get(key) != known.get(key) {
            println!("{uri}: {key}: probes {:?}, known {:?}", seen.get(key), known.get(key));
        }
    }
    panic!("{uri}: the probes and the counters differ");
}

/// What the probes saw, and what the child knows.
fn run(uri: &str) -> (Counts, Counts) {
    let dir = tempfile::tempdir().unwrap();
    let me = std::env::current_exe().unwrap();
    let script = SCRIPT.replace("BINARY", me.to_str().unwrap());
    let out = std::fs::File::create(dir.path().join("out")).unwrap();
    let command = format!("{} child {uri} {}", me.display(), dir.path().display());
    let mut bpftrace = Command::new("bpftrace")
        .args(["-e", &script, "-c", &command])
        .stdin(Stdio::null())
        .stdout(out)
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(120);
    let status = loop {
        if let Some(s) = bpftrace.try_wait().unwrap() {
            break s;
        }
        if Instant::now() > end {
            bpftrace.kill().unwrap();
            panic!("bpftrace does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "bpftrace: {status}");
    let known = std::fs::read_to_string(dir.path().join("known")).expect("the child ended early");
    let seen = std::fs::read_to_string(dir.path().join("out")).unwrap();
    (parse(&seen), parse(&known))
}

/// What the child expects the probes to count, in the form of bpftrace's output.
struct Known {
    counts: Counts,
    engine: &'static str,
    /// What the engine's counters do not count: names, and what was refused.
    beside: BTreeMap<&'static str, u64>,
}

impl Known {
    fn add(&mut self, key: String, n: i64) {
        if n != 0 {
            *self.counts.entry(key).or_insert(0) += n;
        }
    }

    fn count(&mut self, op: &'static str, purpose: u8, len: u64, result: Result<u64, i32>) {
        let engine = self.engine;
        for probe in ["submit", "complete"] {
            self.add(format!("@{probe}[{engine}, {op}]"), 1);
        }
        self.add(format!("@purposes[{op}, {purpose}]"), 1);
        *self.counts.entry(format!("@asked[{op}]")).or_insert(0) += len as i64;
        match result {
            Ok(n) => self.add(format!("@bytes[{op}]"), n as i64),
            Err(e) => self.add(format!("@errors[{op}, {e}]"), 1),
        }
    }

    /// Operations that the engine's counters leave out.
    fn beside(&mut self, op: &'static str, len: u64, result: Result<u64, i32>) {
        self.count(op, 0, len, result);
        *self.beside.entry(op).or_insert(0) += 1;
    }
}

fn child(uri: &str, dir: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    while probes::attached() < 2 {
        assert!(Instant::now() < end, "nobody attaches");
        std::thread::sleep(Duration::from_millis(5));
    }
    let io = Io::from_uri(uri).unwrap();
    let engine = io.info().name;
    let mut k = Known { counts: Counts::new(), engine, beside: BTreeMap::new() };
    let path = dir.join("f");
    let f = io.open(&path, &OpenHow::read_write().direct(Direct::Prefer)).unwrap();
    let read_only = io.open(&path, &OpenHow::read()).unwrap();
    k.beside("open", 0, Ok(0));
    k.beside("open", 0, Ok(0));
    assert_eq!(io.open(&dir.join("none"), &OpenHow::read()).unwrap_err().kind(), ErrorKind::NotFound);
    k.beside("open", 0, Err(libc::ENOENT));

    f.allocate(0, 64 * 4096).unwrap();
    k.count("fallocate", 0, 64 * 4096, Ok(0));
    let buf = || Buf::Aligned(AlignedBuf::zeroed(4096));
    let run = |ops: Vec<Op>| -> Vec<Result<u64, ErrorKind>> {
        io.run(ops).into_iter().map(|d: Done| d.result.map_err(|e| e.kind())).collect()
    };
    // Overlapping: durable writes, then reads, the last ones beyond the end.
    let writes = (0..40).map(|i| Op {
        kind: OpKind::Write { dsync: i % 4 != 0 },
        ..Op::write(&f, i * 4096, 4096, buf(), Purpose(1))
    });
    assert!(run(writes.collect()).iter().all(|r| *r == Ok(4096)));
    (0..40).for_each(|_| k.count("write", 1, 4096, Ok(4096)));
    let reads = (0..70).map(|i| Op::read(&f, i * 4096, 4096, buf(), Purpose(2)));
    let got = run(reads.collect());
    assert!((0..70).all(|i| got[i] == Ok(if i < 64 { 4096 } else { 0 })));
    got.iter().for_each(|r| k.count("read", 2, 4096, Ok(*r.as_ref().unwrap())));
    // Into pieces, by one vectored operation, twice at a time.
    let pieces = || Buf::Pieces((0..4).map(|_| AlignedBuf::zeroed(4096).into()).collect());
    let vectored = (0..2).map(|i| Op::read(&f, i * 16384, 16384, pieces(), Purpose(3)));
    assert_eq!(run(vectored.collect()), [Ok(16384), Ok(16384)]);
    (0..2).for_each(|_| k.count("read", 3, 16384, Ok(16384)));
    // A chain in order, then one that breaks: the write is refused by the kernel, the sync is canceled.
    let range = Op { kind: OpKind::SyncRange, len: 4096, ..Op::sync_data(&f, Purpose(4)) };
    let all = Op { kind: OpKind::SyncAll, ..Op::sync_data(&f, Purpose(4)) };
    let chain = vec![
        Op::write(&f, 0, 4096, buf(), Purpose(4)).then(),
        range.then(),
        Op::sync_data(&f, Purpose(4)).then(),
        all,
    ];
    assert_eq!(run(chain), [Ok(4096), Ok(0), Ok(0), Ok(0)]);
    k.count("write", 4, 4096, Ok(4096));
    k.count("sync_file_range", 4, 4096, Ok(0));
    k.count("fdatasync", 4, 0, Ok(0));
    k.count("fsync", 4, 0, Ok(0));
    let broken = vec![
        Op::write(&read_only, 0, 4096, buf(), Purpose(5)).then(),
        Op::sync_data(&f, Purpose(0)).then(),
        Op::sync_data(&f, Purpose(0)),
    ];
    assert_eq!(run(broken), [Err(ErrorKind::Io), Err(ErrorKind::Canceled), Err(ErrorKind::Canceled)]);
    k.count("write", 5, 4096, Err(libc::EBADF));
    (0..2).for_each(|_| k.beside("fdatasync", 0, Err(libc::ECANCELED)));
    // Refused before any call: more than the buffer has; in a batch and alone.
    for n in [1, 2] {
        let wrong = (0..n).map(|_| Op::read(&f, 0, 8192, buf(), Purpose(0)));
        assert!(run(wrong.collect()).iter().all(|r| *r == Err(ErrorKind::InvalidInput)));
        (0..n).for_each(|_| k.beside("read", 8192, Err(libc::EINVAL)));
    }
    // Alone: plain system calls.
    let mut memory = [0u8; 1000];
    for i in 0..25 {
        assert_eq!(f.read_at(&mut memory, i * 777, Purpose(6)).unwrap(), 1000);
        k.count("read", 6, 1000, Ok(1000));
    }
    assert_eq!(run(vec![Op::read(&f, 0, 4096, buf(), Purpose(6))]), [Ok(4096)]);
    k.count("read", 6, 4096, Ok(4096));
    f.write_all_at_dsync(&[7; 8192], 4096, Purpose(7)).unwrap();
    k.count("write", 7, 8192, Ok(8192));
    assert!(read_only.write_all_at(&[7; 4096], 0, Purpose(7)).is_err());
    k.count("write", 7, 4096, Err(libc::EBADF));
    f.sync_data(Purpose(8)).unwrap();
    k.count("fdatasync", 8, 0, Ok(0));
    f.sync_all(Purpose(8)).unwrap();
    k.count("fsync", 8, 0, Ok(0));
    f.set_len(8192).unwrap();
    k.beside("truncate", 8192, Ok(0));
    let other = dir.join("g");
    io.hard_link(&path, &other).unwrap();
    k.beside("link", 0, Ok(0));
    io.rename(&other, &dir.join("h")).unwrap();
    k.beside("rename", 0, Ok(0));
    io.remove_file(&dir.join("h")).unwrap();
    k.beside("unlink", 0, Ok(0));
    assert!(io.remove_file(&other).is_err());
    k.beside("unlink", 0, Err(libc::ENOENT));
    io.sync_dir(dir).unwrap();
    k.beside("sync_dir", 0, Ok(0));
    taken_back(&io, &mut k, &f, dir);
    // A queue, dropped with operations in flight.
    let mut q = io.queue(8).unwrap();
    for i in 0..8 {
        q.push(Op::write(&f, i * 4096, 4096, buf(), Purpose(9))).unwrap();
        k.count("write", 9, 4096, Ok(4096));
    }
    q.submit().unwrap();
    drop(q);

    check_stats(&io, &k);
    how_it_was_done(&mut k, f.is_direct());
    let lines: Vec<String> = k.counts.iter().map(|(name, n)| format!("{name}: {n}\n")).collect();
    std::fs::write(dir.join("known"), lines.concat()).unwrap();
}

/// Operations that end before they are done: taken back before they are started, or by time or by their caller while
/// the kernel has them.
fn taken_back(io: &Io, k: &mut Known, f: &File, dir: &Path) {
    let read =
        |f: &File, user| Op::read(f, 0, 4096, Buf::Aligned(AlignedBuf::zeroed(4096)), Purpose(0)).user(user);
    let mut q = io.queue(4).unwrap();
    q.push(read(f, 1)).unwrap();
    q.push(read(f, 1)).unwrap();
    assert_eq!(q.cancel(1).unwrap(), 2);
    for _ in 0..2 {
        assert_eq!(q.pop().unwrap().result.unwrap_err().kind(), ErrorKind::Canceled);
        k.beside("read", 4096, Err(libc::ECANCELED));
    }
    if k.engine != "io_uring" {
        q.push(read(f, 1).time_limit(Duration::from_millis(1))).unwrap();
        assert_eq!(q.pop().unwrap().result.unwrap_err().kind(), ErrorKind::Unsupported);
        k.beside("read", 4096, Err(libc::EOPNOTSUPP));
        return;
    }
    // A read of a pipe that nobody writes to.
    let path = dir.join("pipe");
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the name is a zero-terminated string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let both = OpenHow { read: true, write: true, ..OpenHow::default() };
    let pipe = io.open(&path, &both).unwrap();
    k.beside("open", 0, Ok(0));
    q.push(read(&pipe, 2).time_limit(Duration::from_millis(2))).unwrap();
    q.wait(1).unwrap();
    assert_eq!(q.pop().unwrap().result.unwrap_err().kind(), ErrorKind::TimedOut);
    k.count("read", 0, 4096, Err(libc::ETIMEDOUT));
    q.push(read(&pipe, 3)).unwrap();
    q.submit().unwrap();
    assert_eq!(q.cancel(3).unwrap(), 1);
    q.wait(1).unwrap();
    assert_eq!(q.pop().unwrap().result.unwrap_err().kind(), ErrorKind::Canceled);
    k.count("read", 0, 4096, Err(libc::ECANCELED));
}

/// What the child expects is what the engine has counted.
fn check_stats(io: &Io, k: &Known) {
    let stats = io.stats();
    let of = |ops: &[&str], name: &str| -> i64 {
        let is = |key: &str| ops.iter().any(|op| key.starts_with(&format!("@{name}[{op}")));
        k.counts.iter().filter(|(key, _)| is(key)).map(|(_, n)| n).sum()
    };
    let beside = |ops: &[&str]| -> i64 { ops.iter().filter_map(|op| k.beside.get(op)).sum::<u64>() as i64 };
    for (class, ops) in [
        (OpClass::Read, &["read"][..]),
        (OpClass::Write, &["write"]),
        (OpClass::Sync, &["fsync", "fdatasync"]),
        (OpClass::SyncRange, &["sync_file_range"]),
        (OpClass::Allocate, &["fallocate"]),
    ] {
        let total = stats.total(class);
        assert_eq!(total.ops as i64, of(ops, "purposes") - beside(ops), "{class:?}");
        assert_eq!(total.bytes as i64, of(ops, "bytes"), "{class:?}");
        assert_eq!(total.errors as i64, of(ops, "errors") - beside(ops), "{class:?}");
    }
}

/// Batches are the kernel's as far as it overlaps them; everything else is done by plain calls.
fn how_it_was_done(k: &mut Known, direct: bool) {
    for key in k.counts.clone().keys().filter_map(|key| key.strip_prefix("@submit[")) {
        let op = key.trim_end_matches(']').rsplit(", ").next().unwrap();
        let queued = match (k.engine, op) {
            ("posix", _) => 0,
            // And two of a pipe that end early.
            ("io_uring", "read") => 70 + 2 + 2,
            (_, "read") => 70 + 2,
            // The first batch (buffered, its durable ones only), the chain, the dropped queue.
            (_, "write") if direct => 40 + 1 + 8,
            (_, "write") => 30,
            (_, "fdatasync" | "fsync") | ("io_uring", "sync_file_range") => 1,
            _ => 0,
        };
        k.add(format!("@plain[{op}, 0]"), queued);
        k.add(format!("@plain[{op}, 1]"), k.counts[&format!("@submit[{key}")] - queued);
    }
}
