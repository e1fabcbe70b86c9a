//! Each option's effect, looked for in the kernel: in traced system calls, threads, tracepoints, and counters.

#![allow(clippy::unwrap_used)]

mod buffers;
mod calls;
mod files;
mod limits;
mod options;
mod polling;
mod pools;
mod trace;
mod workers;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::mem::AlignedBuf;
use crate::{Buf, Direct, Done, File, Io, Op, OpenHow, Purpose, Queue};

const P: Purpose = Purpose(0);

/// The engine; `None`, said aloud, if this kernel has no io_uring at all.
fn open(uri: &str) -> Option<Io> {
    match Io::from_uri("io_uring") {
        Ok(_) => Some(Io::from_uri(uri).unwrap_or_else(|e| panic!("{uri}: {e}"))),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

fn page(n: u64) -> Vec<u8> {
    (0..4096u64).map(|i| (n.wrapping_mul(31) ^ i ^ (i >> 8).wrapping_mul(n + 7)) as u8).collect()
}

/// A file of so many pages, direct where that is possible.
fn filled(io: &Io, dir: &Path, pages: u64) -> File {
    let f = io.open(&dir.join("f"), &OpenHow::read_write().direct(Direct::Prefer)).unwrap();
    let mut data = AlignedBuf::zeroed(pages as usize * 4096);
    for (i, p) in data.chunks_mut(4096).enumerate() {
        p.copy_from_slice(&page(i as u64));
    }
    f.write_all_at(&data, 0, P).unwrap();
    f
}

/// A directory on a file system with direct I/O, if the build has one: the system's own may be tmpfs.
fn dir() -> tempfile::TempDir {
    // Tests run in the folder of their crate.
    tempfile::tempdir_in(".").or_else(|_| tempfile::tempdir()).unwrap()
}

fn read_page(f: &File, n: u64) -> Op {
    Op::read(f, n * 4096, 4096, Buf::Aligned(AlignedBuf::zeroed(4096)), P).user(n)
}

fn check(d: Done) {
    assert_eq!(d.result.unwrap(), 4096);
    let Buf::Aligned(b) = d.buf else { panic!("another buffer came back") };
    assert!(b[..] == page(d.user), "page {}", d.user);
}

fn finish(q: &mut Queue) -> usize {
    let mut n = 0;
    while q.in_flight() > 0 {
        q.wait(1).unwrap();
        while let Some(d) = q.pop() {
            check(d);
            n += 1;
        }
    }
    n
}

/// Waits for what must happen in the end.
fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}: not after {:?}", start.elapsed());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn my_tid() -> i32 {
    // SAFETY: a system call without arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Threads of the kernel that the calling thread's rings have made: their ids.
fn threads(prefix: &str) -> Vec<String> {
    let name = format!("{prefix}-{}", my_tid());
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let ids = tasks.map(|t| t.file_name().into_string().unwrap());
    ids.filter(|id| {
        std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).is_ok_and(|c| c.trim() == name)
    })
    .collect()
}

/// The CPUs that a thread may run on; `None` if it has ended.
fn cpus_of(tid: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_string())
}

/// A thread that reads through the engine of ENGINESWAP_TEST_URI; alone, a small test of the default engine.
#[test]
fn traced_child() {
    let uri = std::env::var("ENGINESWAP_TEST_URI").unwrap_or_else(|_| "io_uring".into());
    let Some(io) = open(&uri) else { return };
    let dir = dir();
    let f = filled(&io, dir.path(), 16);
    // The line that the trace is cut at.
    let _ = std::fs::metadata("/traced-child-begins");
    let mut q = io.queue(8).unwrap();
    for round in 0..4 {
        for i in 0..4 {
            q.push(read_page(&f, round * 4 + i)).unwrap();
        }
        assert_eq!(finish(&mut q), 4);
    }
}

/// The system calls that a queue of `uri` makes for sixteen reads in four rounds; `None`, said aloud, without strace.
fn traced(uri: &str) -> Option<String> {
    let (trace, said, good) = traced_anyhow(uri)?;
    assert!(good && said.contains("1 passed"), "{uri}: {said}");
    Some(trace)
}

/// The same whether or not the reads succeed; what was said, and whether they did, comes along.
fn traced_anyhow(uri: &str) -> Option<(String, String, bool)> {
    let out = tempfile::NamedTempFile::new().unwrap();
    let run = Command::new("strace")
        .args([
            "-f",
            "-qq",
            "-X",
            "raw",
            "-e",
            "trace=io_uring_setup,io_uring_enter,io_uring_register,statx",
            "-o",
        ])
        .arg(out.path())
        .arg(std::env::current_exe().unwrap())
        .args(["engine::uring::tests::traced_child", "--exact", "--nocapture", "--test-threads=1"])
        .env("ENGINESWAP_TEST_URI", uri)
        .output();
    let run = match run {
        Ok(run) => run,
        Err(e) => {
            println!("skipped: no strace here: {e}");
            return None;
        }
    };
    let said = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    if said.contains("PTRACE") || said.contains("ptrace") {
        println!("skipped: strace may not trace here: {said}");
        return None;
    }
    let trace = std::fs::read_to_string(out.path()).unwrap();
    let (_, after) = trace.split_once("/traced-child-begins").unwrap_or_else(|| panic!("{said}{trace}"));
    Some((after.to_string(), said, run.status.success()))
}

/// The flags of the queue's setup in such a trace.
fn setup_flags(trace: &str) -> u32 {
    let setup = trace.split_once("io_uring_setup(").unwrap_or_else(|| panic!("{trace}")).1;
    let flags = setup.split_once("flags=").unwrap().1.split([',', '}']).next().unwrap();
    number(flags)
}

/// The flags of the entries into the kernel.
fn enter_flags(trace: &str) -> Vec<u32> {
    let enters = trace.lines().filter_map(|l| l.split_once("io_uring_enter("));
    enters.map(|(_, args)| number(args.split(',').nth(3).unwrap().trim())).collect()
}

fn number(text: &str) -> u32 {
    let n = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u32::from_str_radix(hex, 16));
    n.unwrap_or_else(|_| panic!("no number: {text}"))
}
