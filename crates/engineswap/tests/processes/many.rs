//! More threads than the process may have descriptors, all idle after a batch: batches run on each, other files open,
//! and what is kept for the next batch is bounded.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use engineswap::{Io, OpenHow};

use super::{check, dir, filled, read};

pub const ENGINES: &[&str] = &[
    "posix",
    "libaio",
    "io_uring",
    "io_uring?sqpoll",
    "io_uring?fixed_files",
    "io_uring?single_issuer=off&depth=8",
];

const THREADS: usize = 400;
const DESCRIPTORS: u64 = 256;
/// Of the descriptors, and of contexts.
const SHARE: usize = 64;

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn contexts() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().matches("[aio]").count()
}

fn may_have(descriptors: u64) {
    let limit = libc::rlimit { rlim_cur: descriptors, rlim_max: descriptors };
    // SAFETY: the kernel reads `limit`.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

pub fn idle_threads_leave_descriptors(uri: &str) {
    may_have(DESCRIPTORS);
    let dir = dir();
    let io = Io::from_uri(uri).unwrap();
    let f = filled(&io, dir.path(), 64);
    let before = open_descriptors();
    let batch = || io.run((0..8).map(|i| read(&f, i * 5)).collect()).into_iter().for_each(check);
    let turns = Barrier::new(2);
    let all = Barrier::new(THREADS + 1);
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            let thread = || {
                batch();
                turns.wait();
                // All are idle now.
                all.wait();
                all.wait();
                // And all at once.
                batch();
            };
            std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(s, thread).unwrap();
            turns.wait();
        }
        all.wait();
        // One after the other they have all had a queue.
        assert_eq!(io.stats().fallbacks, 0, "batches done one by one");
        let kept = open_descriptors() - before;
        assert!(kept <= SHARE, "{kept} descriptors for idle threads");
        assert!(contexts() <= SHARE + 1, "{} contexts for idle threads", contexts());
        // What others need is there.
        let open = |i| io.open(&dir.path().join(format!("{i}")), &OpenHow::create_new()).unwrap();
        let more: Vec<_> = (0..100).map(open).collect();
        io.sync_dir(dir.path()).unwrap();
        drop(more);
        all.wait();
    });
    // Threads that have ended keep nothing; loose ones stay for the next.
    come_down_to(before + SHARE / 4 + 1);
    batch();
    drop((f, io));
    // The thread's own ring goes with its next batch, or with the thread.
    come_down_to(before);
}

/// A scope ends when its threads' closures have; their thread-locals may still be on their way out, rings among them.
fn come_down_to(descriptors: usize) {
    let end = Instant::now() + Duration::from_secs(20);
    while open_descriptors() > descriptors {
        assert!(Instant::now() < end, "{} descriptors, at most {descriptors} expected", open_descriptors());
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn a_file_is_opened_when_descriptors_run_out(uri: &str) {
    may_have(64);
    let dir = dir();
    let io = Io::from_uri(uri).unwrap();
    let f = filled(&io, dir.path(), 64);
    let batch = || io.run((0..8).map(|i| read(&f, i)).collect()).into_iter().for_each(check);
    batch();
    let others: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    assert!(others.len() > 30 && std::fs::File::open("/dev/null").is_err());
    let open = || io.open(&dir.path().join("new"), &OpenHow::read_write());
    let new = open().expect("the idle ring's descriptor is there for it");
    assert!(open().is_err(), "there is one, not more");
    drop(new);
    io.sync_dir(dir.path()).unwrap();
    // Without a descriptor for a ring, batches run all the same.
    let last = open().unwrap();
    batch();
    assert_eq!(io.stats().fallbacks, 1);
    drop((last, others));
    batch();
    assert_eq!(io.stats().fallbacks, 1);
}

/// Idle threads keep rings of an engine that is closed; each lets go of its own when it runs a batch of another engine,
/// whose places these are.
pub fn a_closed_engine_keeps_nothing_for_good(uri: &str) {
    const THREADS: usize = 20;
    may_have(64);
    let dir = dir();
    let other = Io::from_uri("posix").unwrap();
    let before = open_descriptors();
    let turn = Barrier::new(2);
    std::thread::scope(|s| {
        let io = Io::from_uri(uri).unwrap();
        let f = filled(&io, dir.path(), 8);
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (io, f) = (io.clone(), f.clone());
                let (go, gone) = std::sync::mpsc::channel::<()>();
                let (turn, other, dir) = (&turn, &other, &dir);
                s.spawn(move || {
                    io.run((0..8).map(|i| read(&f, i)).collect()).into_iter().for_each(check);
                    drop((io, f));
                    turn.wait();
                    gone.recv().unwrap();
                    let f = other.open(&dir.path().join("f"), &OpenHow::read()).unwrap();
                    other.run((0..8).map(|i| read(&f, i)).collect()).into_iter().for_each(check);
                    drop(f);
                    turn.wait();
                    let _ = gone.recv();
                });
                turn.wait();
                go
            })
            .collect();
        drop((io, f));
        assert!(open_descriptors() > before + 8, "no thread keeps a ring");
        for go in &threads {
            go.send(()).unwrap();
            turn.wait();
        }
        assert_eq!(open_descriptors(), before);
    });
}
