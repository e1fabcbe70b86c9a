//! Random operations from several threads at once on each engine, for a bounded time, against a model.
//!
//! `ENGINESWAP_STRESS_SECONDS` says for how long the engines are stressed, all at once (1 by default; CI and `make
//! stress`: 60),
//! `ENGINESWAP_TEST_SEED` where the random numbers begin. Each thread has its own part of two files that all share,
//! buffered and direct, and a model of its bytes; another file is written and read through queues that are
//! dropped while operations are in flight. The threads share one queue beside their own.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/arena.rs"]
mod arena;

use std::path::Path;
use std::time::{Duration, Instant};

use engineswap::mem::{AlignedBuf, BufArena, ReadPool};
use engineswap::{
    Buf, Direct, Done, ErrorKind, File, Io, Op, OpKind, OpenHow, Purpose, Queue, Registration, SharedQueue,
};

const PAGE: usize = 4096;
const PAGES: usize = 64;
const THREADS: usize = 3;

struct Random(u64);

impl Random {
    /// Below `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n.max(1)
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

fn stress(uri: &str) {
    let io = match Io::from_uri(uri) {
        Ok(io) => io,
        Err(e) => return println!("skipped {uri}: {e}"),
    };
    let limit = Duration::from_secs(number("ENGINESWAP_STRESS_SECONDS", 1));
    let seed = number("ENGINESWAP_TEST_SEED", 20_261_121);
    println!("{uri} for {limit:?}, seed {seed}");
    // Not in /tmp, which may have no direct I/O.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let end = Instant::now() + limit;
    let shared = io.shared_queue(23).unwrap();
    let rounds: Vec<u64> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let (io, dir, shared) = (io.clone(), dir.path(), &shared);
                s.spawn(move || worker(&io, shared, dir, t, seed, end))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let stats = io.stats();
    println!("{uri}: rounds {rounds:?}, {} reads, {} writes", stats.reads().ops, stats.writes().ops);
    assert!(rounds.iter().all(|r| *r > 0));
    assert_eq!(stats.reads().errors, 0);
}

/// Where reads have their buffers from.
struct Memory {
    arena: std::sync::Arc<arena::PageArena>,
    /// As many as the operations of a batch, whose results are kept; and fewer.
    enough: ReadPool,
    few: ReadPool,
    bufs: std::sync::Arc<BufArena>,
    /// What is registered of this thread's arenas, which changes while operations run.
    registered: Vec<Registration>,
}

impl Memory {
    /// Registers one more arena, puts one in another's place, or takes one out.
    fn change(&mut self, io: &Io, r: &mut Random) {
        let region = if r.below(2) == 0 { self.bufs.region() } else { self.arena.region() };
        let n = self.registered.len() as u64;
        match r.below(3) {
            0 if n > 0 => drop(self.registered.swap_remove(r.below(n) as usize)),
            1 if n > 0 => self.registered[r.below(n) as usize].replace(region).unwrap(),
            _ if n < 4 => self.registered.push(io.register_buffers(region).unwrap()),
            _ => {}
        }
    }

    /// A page of the arena, or other memory.
    fn page(&self) -> AlignedBuf {
        self.bufs.alloc().unwrap_or_else(|| AlignedBuf::zeroed(PAGE))
    }
}

/// A thread's part of a file, and what it must hold.
struct Part {
    file: File,
    first: u64,
    model: Vec<u8>,
}

fn worker(io: &Io, shared: &SharedQueue, dir: &Path, thread: usize, seed: u64, end: Instant) -> u64 {
    let mut r = Random(seed.wrapping_add(thread as u64 * 7919) | 1);
    let mut memory = Memory {
        arena: arena::PageArena::new(64),
        enough: ReadPool::new(PAGE, 48),
        few: ReadPool::new(PAGE, 3),
        bufs: BufArena::new(PAGE, 24),
        registered: Vec::new(),
    };
    let mut parts: Vec<Part> = [("buffered", Direct::No), ("direct", Direct::Prefer)]
        .iter()
        .map(|(name, direct)| {
            let file = io.open(&dir.join(name), &OpenHow::read_write().direct(*direct)).unwrap();
            let first = (thread * PAGES * PAGE) as u64;
            file.write_all_at(&vec![0; PAGES * PAGE], first, Purpose(0)).unwrap();
            Part { file, first, model: vec![0; PAGES * PAGE] }
        })
        .collect();
    let mut queue = io.queue(1 + r.below(20) as u32).unwrap();
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < end {
        rounds += 1;
        let part = &mut parts[r.below(2) as usize];
        // Threads change the table of the engine while the others' operations, and what this one has left in its
        // own queue, run.
        if r.below(4) == 0 {
            memory.change(io, &mut r);
        }
        match r.below(20) {
            0 => part.lone(&mut r),
            1 => part.file.sync_data(Purpose(2)).unwrap(),
            2 => abandon(io, dir, thread, &mut r),
            3 => queue = io.queue(1 + r.below(20) as u32).unwrap(),
            4 => refused(io, part),
            5..8 => part.batch(&mut Way::Shared(shared, thread), &memory, &mut r),
            n if n > 13 => part.batch(&mut Way::Run(io), &memory, &mut r),
            _ => part.batch(&mut Way::Own(&mut queue), &memory, &mut r),
        }
    }
    for part in &parts {
        let mut all = vec![0; part.model.len()];
        part.file.read_exact_at(&mut all, part.first, Purpose(0)).unwrap();
        assert!(all == part.model, "thread {thread}: the contents differ at the end");
    }
    rounds
}

/// How a batch is done.
enum Way<'a> {
    Run(&'a Io),
    Own(&'a mut Queue),
    /// With the number of the thread.
    Shared(&'a SharedQueue, usize),
}

impl Part {
    fn lone(&mut self, r: &mut Random) {
        let unit = self.file.alignment().offset as u64;
        let at = r.below((PAGES * PAGE) as u64 - 20_000);
        let mut b = vec![0; 1 + r.below(20_000) as usize];
        assert_eq!(self.file.read_at(&mut b, self.first + at, Purpose(1)).unwrap(), b.len());
        assert!(b == self.model[at as usize..][..b.len()], "a lone read at {at}");
        let (at, len) = (at / unit * unit, (b.len() as u64 / unit * unit) as usize);
        b[..len].fill(r.below(256) as u8);
        match r.below(3) {
            0 => self.file.write_all_at_dsync(&b[..len], self.first + at, Purpose(1)).unwrap(),
            _ => self.file.write_all_at(&b[..len], self.first + at, Purpose(1)).unwrap(),
        }
        self.model[at as usize..][..len].copy_from_slice(&b[..len]);
    }

    /// Reads and writes of different pages, in flight together; some in chains, some into frames.
    fn batch(&mut self, way: &mut Way<'_>, memory: &Memory, r: &mut Random) {
        let unit = self.file.alignment().offset as u64;
        let (start, stride, n) = (r.below(PAGES as u64), 1 + 2 * r.below(8), 1 + r.below(40));
        let how = r.below(2);
        // Whoever takes its own last one first must not wait for a buffer that an earlier one has.
        let all_at_once = matches!((&way, how), (Way::Run(_), 0) | (Way::Shared(..), _));
        let pool = if all_at_once { &memory.enough } else { &memory.few };
        let mut ops = Vec::new();
        let mut want: Vec<Option<Vec<u8>>> = Vec::new();
        for i in 0..n {
            let at = ((start + i * stride) % PAGES as u64) as usize * PAGE;
            let offset = self.first + at as u64;
            let op = match r.below(8) {
                0..4 => {
                    want.push(Some(self.model[at..at + PAGE].to_vec()));
                    let buf = match (r.below(6), memory.arena.alloc()) {
                        (2, _) => Buf::Pool(pool.clone()),
                        (3, Some(f)) => Buf::Pieces(vec![f.into(), AlignedBuf::zeroed(PAGE).into()]),
                        (0, Some(f)) => Buf::Arena(f),
                        (1, Some(f)) => Buf::Pieces(vec![f.into()]),
                        _ => Buf::Aligned(memory.page()),
                    };
                    Op::read(&self.file, offset, PAGE as u64, buf, Purpose(3))
                }
                4 => {
                    want.push(None);
                    Op::sync_data(&self.file, Purpose(4))
                }
                k => {
                    want.push(None);
                    let len = if k == 5 { (1 + r.below(4096)).next_multiple_of(unit) } else { 4096 };
                    let mut b = memory.page();
                    b[..len as usize].fill(r.below(256) as u8);
                    self.model[at..at + len as usize].copy_from_slice(&b[..len as usize]);
                    let op = Op::write(&self.file, offset, len, Buf::Aligned(b), Purpose(5));
                    Op { kind: OpKind::Write { dsync: r.below(4) == 0 }, ..op }
                }
            };
            let op = op.user(i);
            ops.push(if r.below(5) == 0 && i + 1 < n { op.then() } else { op });
        }
        let mut seen = vec![false; want.len()];
        let mut check = |d: Done| {
            let i = d.user as usize;
            assert!(!std::mem::replace(&mut seen[i], true), "completed twice");
            let got = d.result.unwrap();
            if let Some(want) = &want[i] {
                assert_eq!(got, PAGE as u64);
                let b: &[u8] = match &d.buf {
                    Buf::Aligned(b) => b,
                    Buf::Arena(f) => f,
                    Buf::Pooled(b) => b,
                    Buf::Pieces(v) => v[0].bytes(),
                    _ => panic!("another buffer"),
                };
                assert!(b == want, "a read of a page");
            }
        };
        match (way, how) {
            (Way::Run(io), 0) => io.run(ops).into_iter().for_each(&mut check),
            (Way::Run(io), _) => io.run_with(ops, &mut check),
            (Way::Own(queue), k) => through(queue, ops, k == 0, &mut check),
            (Way::Shared(queue, thread), _) => through_shared(queue, *thread, ops, &mut check),
        }
        assert!(seen.iter().all(|s| *s), "an operation without completion");
    }
}

/// Chain by chain, and each operation taken by its tag; threads must not hold places while they wait for others, or all
/// of them would wait.
fn through_shared(queue: &SharedQueue, thread: usize, mut ops: Vec<Op>, check: &mut dyn FnMut(Done)) {
    let tag = |user: u64| (thread as u64) << 32 | user;
    while !ops.is_empty() {
        let end = ops.iter().position(|op| !op.chain).map_or(ops.len(), |i| i + 1).min(queue.depth());
        let rest = ops.split_off(end);
        let mine: Vec<u64> = ops.iter().map(|op| op.user).collect();
        ops.iter_mut().for_each(|op| op.user = tag(op.user));
        while let Err(back) = queue.push_all(ops) {
            ops = back;
            std::thread::yield_now();
        }
        for user in mine.into_iter().rev() {
            let done = queue.take(tag(user)).unwrap().unwrap();
            check(Done { user, ..done });
        }
        ops = rest;
    }
}

fn through(queue: &mut Queue, ops: Vec<Op>, wait: bool, check: &mut dyn FnMut(Done)) {
    let (mut ops, mut held) = (ops.into_iter(), None);
    loop {
        while let Some(op) = held.take().or_else(|| ops.next()) {
            if let Err(op) = queue.push(op) {
                held = Some(op);
                break;
            }
        }
        if queue.in_flight() == 0 {
            return;
        }
        match wait {
            true => queue.wait(1).unwrap(),
            false => queue.submit().unwrap(),
        }
        while let Some(d) = queue.pop() {
            check(d);
        }
    }
}

/// A queue dropped in the middle. What was submitted before is in the file then, and nothing comes later.
fn abandon(io: &Io, dir: &Path, thread: usize, r: &mut Random) {
    let how = OpenHow::read_write().direct(Direct::Prefer);
    let file = io.open(&dir.join(format!("abandoned{thread}")), &how).unwrap();
    let byte = r.below(256) as u8;
    let write = |page: u64, byte: u8| {
        let mut b = AlignedBuf::zeroed(PAGE);
        b.fill(byte);
        Op::write(&file, page * PAGE as u64, PAGE as u64, Buf::Aligned(b), Purpose(6))
    };
    let mut q = io.queue(8).unwrap();
    for i in 0..4 {
        q.push(write(i, byte)).unwrap();
    }
    q.submit().unwrap();
    for i in 0..4 {
        q.push(write(i, !byte)).unwrap();
    }
    drop(q);
    let mut b = vec![0; 4 * PAGE];
    file.read_exact_at(&mut b, 0, Purpose(6)).unwrap();
    assert!(b.iter().all(|x| *x == byte), "a dropped queue");
}

/// A broken chain, and an operation that is refused, among good ones.
fn refused(io: &Io, part: &Part) {
    let page = || Buf::Aligned(AlignedBuf::zeroed(PAGE));
    let beyond = (1 << 40) + 4096;
    let ops = vec![
        Op::read(&part.file, part.first, PAGE as u64, page(), Purpose(3)),
        Op::read(&part.file, beyond, PAGE as u64, page(), Purpose(3)).then(),
        Op::sync_data(&part.file, Purpose(4)),
        Op::read(&part.file, part.first, 2 * PAGE as u64, page(), Purpose(3)),
        Op::read(&part.file, part.first, PAGE as u64, page(), Purpose(3)),
    ];
    let got: Vec<_> = io.run(ops).into_iter().map(|d| d.result.map_err(|e| e.kind())).collect();
    let full = Ok(PAGE as u64);
    assert_eq!(got, [full, Ok(0), Err(ErrorKind::Canceled), Err(ErrorKind::InvalidInput), full]);
}

/// All engines side by side, so that a minute of each takes a minute.
#[test]
fn every_engine() {
    let uris = [
        "posix?threads=4",
        "libaio",
        "io_uring",
        "io_uring?depth=16&single_issuer=off&defer_taskrun=off&coop_taskrun=off&no_sqarray=off",
        "io_uring?fixed_files&depth=32&reap=4",
        "io_uring?fixed_buffers&force_async&bounded_workers=4",
        "io_uring?clone_buffers=off&sqpoll&sqpoll_idle_ms=5",
    ];
    std::thread::scope(|s| {
        uris.map(|uri| s.spawn(move || stress(uri))).into_iter().for_each(|t| t.join().unwrap());
    });
}
