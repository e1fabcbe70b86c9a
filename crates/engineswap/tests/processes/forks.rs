//! A process forks with a queue in use in every thread, and both sides do I/O at the same time.
//!
//! The child uses what it has inherited of the engine and its files; from inherited queues it gets nothing but an
//! error. It ends as processes end. The parent goes on with the queues that it had.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use engineswap::mem::{AlignedBuf, BufArena};
use engineswap::{Buf, ErrorKind, File, Io, Op, OpenHow, Queue, Registration, SharedQueue};

use super::{P, PAGE, byte, check, dir, filled, read};

pub const ENGINES: &[&str] = &[
    "posix",
    "posix?threads=2&nowait=off",
    "libaio",
    "io_uring",
    "io_uring?sqpoll",
    "io_uring?sqpoll&sqpoll_share=off",
    "io_uring?fixed_files",
    "io_uring?fixed_files&single_issuer&defer_taskrun",
    "io_uring?fixed_buffers",
    "io_uring?registered_ring=off&force_async",
    "io_uring?single_issuer=off&defer_taskrun=off&coop_taskrun=off",
    "io_uring?reap=4&min_wait_us=50",
];

/// Pages that are read, and after them one for each writer.
const PAGES: u64 = 64;
const ROUNDS: u64 = 30;

/// What a process has when it forks.
struct Before {
    io: Io,
    f: File,
    queue: Queue,
    shared: SharedQueue,
    lock: engineswap::FileLock,
    arena: Arc<BufArena>,
    registration: Registration,
    dir: std::path::PathBuf,
}

pub fn both_sides_go_on(uri: &str) {
    let dir = dir();
    let io = Io::from_uri(uri).unwrap();
    let f = filled(&io, dir.path(), PAGES + 2);
    let arena = BufArena::new(PAGE as usize, 8);
    let mut x = Before {
        queue: io.queue(8).unwrap(),
        shared: io.shared_queue(8).unwrap(),
        lock: io.lock_file(&dir.path().join("LOCK")).unwrap(),
        registration: io.register_buffers(arena.region()).unwrap(),
        dir: dir.path().to_path_buf(),
        io: io.clone(),
        f: f.clone(),
        arena,
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        // Threads that the child has not, with queues of their own, and the engine's locks now and then.
        for _ in 0..3 {
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    io.run((0..8).map(|i| read(&f, i * 3)).collect()).into_iter().for_each(check);
                }
            });
        }
        for end in [End::Immediate, End::Normal, End::Dropped] {
            work(&x, 0);
            fork_once(&mut x, end);
        }
        stop.store(true, Relaxed);
    });
    drop(x.lock);
    assert!(io.lock_file(&dir.path().join("LOCK")).is_ok());
}

/// How the child ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Immediate,
    Normal,
    Dropped,
}

fn fork_once(x: &mut Before, end: End) {
    // In flight at the fork: the parent's, and the parent gets them.
    for page in 0..6 {
        x.queue.push(read(&x.f, page)).unwrap();
        x.shared.push(read(&x.f, page)).unwrap();
    }
    x.queue.submit().unwrap();
    x.shared.submit().unwrap();
    // SAFETY: a child that goes on with what it has is what is looked at here. The memory allocator of the C library
    // is usable in it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no handler: the signal ends the process.
        unsafe { libc::alarm(super::SECONDS / 2) };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| in_child(x)));
        if done.is_err() || end == End::Immediate {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) };
        }
        if end == End::Dropped {
            // SAFETY: the original is never used nor dropped: the process ends here.
            drop(unsafe { std::ptr::read(x) });
        }
        std::process::exit(0);
    }
    work(x, PAGES);
    for _ in 0..6 {
        x.queue.wait(1).unwrap();
        check(x.queue.pop().unwrap());
        x.shared.wait(1).unwrap();
        check(x.shared.pop().unwrap());
    }
    let mut status = -1;
    // SAFETY: the kernel fills `status`.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child, to end {end:?}");
    // What the child has done is there, and took nothing from the parent.
    let pages = std::fs::read(x.f.path()).unwrap();
    for writer in [PAGES, PAGES + 1] {
        let page = &pages[(writer * PAGE) as usize..][..PAGE as usize];
        assert!(page.iter().all(|b| *b == byte(ROUNDS - 1)), "the page of writer {writer}");
    }
    let e = x.io.lock_file(&x.dir.join("LOCK")).err().expect("the child has given its parent's lock up");
    assert_eq!(e.kind(), ErrorKind::Locked);
    work(x, PAGES);
    fixed(x);
}

/// Batches, lone operations, and queues made now: all that an engine has.
fn work(x: &Before, writer: u64) {
    for round in 0..ROUNDS {
        let mut ops: Vec<Op> = (0..8).map(|i| read(&x.f, (round * 5 + i * 11) % PAGES)).collect();
        if writer > 0 {
            let mut page = AlignedBuf::zeroed(PAGE as usize);
            page.fill(byte(round));
            ops.push(Op::write(&x.f, writer * PAGE, PAGE, Buf::Aligned(page), P).then().user(u64::MAX));
            ops.push(Op::sync_data(&x.f, P).user(u64::MAX));
        }
        for done in x.io.run(ops) {
            if done.user == u64::MAX {
                assert!(done.result.is_ok(), "{:?}", done.result)
            } else {
                check(done)
            }
        }
        x.io.run(vec![read(&x.f, round)]).into_iter().for_each(check);
    }
    let other = x.io.open(x.f.path(), &OpenHow::read()).unwrap();
    let mut queue = x.io.queue(4).unwrap();
    let shared = x.io.shared_queue(4).unwrap();
    for page in 0..4 {
        queue.push(read(&other, page)).unwrap();
        shared.push(read(&x.f, page)).unwrap();
    }
    queue.wait(4).unwrap();
    std::iter::from_fn(|| queue.pop()).for_each(check);
    for page in 0..4 {
        check(shared.take(page).unwrap().unwrap());
    }
}

/// Reads into registered memory, which still holds what is read.
fn fixed(x: &Before) {
    let before = x.io.stats().fixed;
    let ops = (0..8).map(|i| Op { buf: Buf::Aligned(x.arena.alloc().unwrap()), ..read(&x.f, i) });
    x.io.run(ops.collect()).into_iter().for_each(check);
    if x.registration.refusal().is_none() && x.f.is_direct() && x.io.info().uri.contains("fixed_buffers") {
        assert!(x.io.stats().fixed >= before + 8, "{} after {before}", x.io.stats().fixed);
    }
}

fn in_child(x: &mut Before) {
    // The parent's queues do nothing here but say so.
    let says_so = |e: engineswap::Error| assert!(e.to_string().contains("before fork()"), "{e}");
    assert!(x.queue.push(read(&x.f, 0)).is_err() && x.queue.pop().is_none());
    says_so(x.queue.wait(1).unwrap_err());
    says_so(x.queue.submit().unwrap_err());
    says_so(x.queue.cancel(0).unwrap_err());
    assert!(x.shared.push(read(&x.f, 0)).is_err() && x.shared.pop().is_none());
    assert!(x.shared.push_all(vec![read(&x.f, 0)]).is_err() && x.shared.in_flight() == 0);
    says_so(x.shared.wait(1).unwrap_err());
    says_so(x.shared.take(0).unwrap_err());
    says_so(x.shared.failure().unwrap());
    work(x, PAGES + 1);
    // Threads of the child's own.
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| x.io.run((0..4).map(|i| read(&x.f, i)).collect()).into_iter().for_each(check));
        }
    });
    // Registered memory is the parent's; a child's copy is memory like any other.
    let ops = (0..8).map(|i| Op { buf: Buf::Aligned(x.arena.alloc().unwrap()), ..read(&x.f, i) });
    x.io.run(ops.collect()).into_iter().for_each(check);
    let again = x.io.register_buffers(x.arena.region()).unwrap();
    let ops = (0..8).map(|i| Op { buf: Buf::Aligned(x.arena.alloc().unwrap()), ..read(&x.f, i) });
    x.io.run(ops.collect()).into_iter().for_each(check);
    drop(again);
    std::thread::sleep(Duration::from_millis(1));
}
