//! A few seconds of measuring: reads at several depths on each engine, durable commits by each method, sequential
//! writes.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use engineswap::mem::AlignedBuf;
use engineswap::{Buf, Direct, File, Io, Op, OpKind, OpenHow, Purpose};
use serde::Serialize;

use super::ranking;
use crate::error::{Result, at, failed};
use crate::fileperf::args::Mode;
use crate::fileperf::row::{Latency, spread};
use crate::fileperf::run::{self, Spec};

/// Bytes of the file that is measured on.
pub const FILE_BYTES: u64 = 64 << 20;
const DEPTHS: [u32; 4] = [1, 4, 16, 32];
const ROUNDS: usize = 3;
const READ_TIME: Duration = Duration::from_millis(80);
const COMMIT_TIME: Duration = Duration::from_millis(250);
const BLOCK: u64 = 4096;
const FILE_BLOCKS: u64 = FILE_BYTES / BLOCK;

/// Random reads of 4 KiB.
#[derive(Clone, Debug, Serialize)]
pub struct Reads {
    /// The engine.
    pub io: String,
    /// Reads in flight.
    pub iodepth: u32,
    /// Reads a second: the median of the rounds.
    pub rps: f64,
    /// The slowest and the fastest round.
    pub rps_spread: (f64, f64),
    /// CPU time per read in microseconds: the median of the rounds.
    pub cpu_us_per_op: f64,
    /// Latencies.
    pub latency_us: Latency,
    /// Reads a second of each round.
    pub rps_rounds: Vec<f64>,
    /// CPU time per read of each round.
    pub cpu_us_rounds: Vec<f64>,
}

impl Reads {
    /// What rounds come to.
    pub fn of(io: &str, iodepth: u32, rps: Vec<f64>, cpu_us: Vec<f64>, latency_us: Latency) -> Reads {
        let (min, median, max) = spread(&rps);
        Reads {
            io: io.into(),
            iodepth,
            rps: median,
            rps_spread: (min, max),
            cpu_us_per_op: spread(&cpu_us).1,
            latency_us,
            rps_rounds: rps,
            cpu_us_rounds: cpu_us,
        }
    }
}

/// Durable commits of 4 KiB.
#[derive(Clone, Debug, Serialize)]
pub struct Commits {
    /// How.
    pub method: &'static str,
    /// Commits in flight.
    pub in_flight: u32,
    /// Commits a second.
    pub per_second: f64,
}

/// Sequential writes, durable at the end.
#[derive(Clone, Debug, Serialize)]
pub struct Writes {
    /// How.
    pub method: &'static str,
    /// Bytes a second.
    pub bytes_per_second: f64,
}

/// How long a submission holds its thread.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Submission {
    /// The median time of submitting one direct read in microseconds.
    pub submit_us: f64,
    /// The median time until that read was there in microseconds.
    pub total_us: f64,
}

/// Measures each of `engines` at each depth, in turn; where engines are compared until that says something,
/// or more rounds are not likely to.
pub fn reads(path: &Path, direct: bool, engines: &[String]) -> Result<Vec<Reads>> {
    let mut cells = Vec::new();
    for uri in engines {
        let io = Io::from_uri(uri)?;
        cells.extend(DEPTHS.map(|depth| Cell { uri, io: io.clone(), depth, samples: Vec::new() }));
    }
    let rows = |cells: &[Cell]| cells.iter().map(|c| c.reads()).collect::<Vec<Reads>>();
    for round in 0..ranking::AT_MOST {
        if round >= ranking::AT_LEAST && !ranking::is_open(&rows(&cells)) {
            break;
        }
        // A recommendation follows from lone reads and from deep queues; the depths between are for people.
        let counts = |depth: u32| {
            depth == ranking::DEPTH || round < if depth == 1 { ranking::AT_LEAST } else { ROUNDS }
        };
        for cell in cells.iter_mut().filter(|c| counts(c.depth)) {
            let spec = Spec {
                path,
                size: FILE_BYTES,
                mode: Mode::Randread,
                read_percent: 100,
                jobs: 1,
                depth: cell.depth,
                bs: BLOCK,
                batch: 1,
                think: Duration::ZERO,
                direct,
                fixed_buffers: false,
                plain: cell.depth == 1 && cell.io.info().name == "posix",
                warmup: READ_TIME / 8,
                time: READ_TIME,
                seed: round as u64,
            };
            cell.samples.push(run::run(&cell.io, &spec, None)?);
        }
    }
    Ok(rows(&cells))
}

/// An engine at a depth, and its rounds.
struct Cell<'a> {
    uri: &'a str,
    io: Io,
    depth: u32,
    samples: Vec<run::Sample>,
}

impl Cell<'_> {
    fn reads(&self) -> Reads {
        let cpu = |s: &run::Sample| s.cpu_s * 1e6 / s.ops.max(1) as f64;
        let latency = self.samples.first().map(|s| Latency::of(&s.latency)).unwrap_or_default();
        let rates = self.samples.iter().map(run::Sample::rps).collect();
        Reads::of(self.uri, self.depth, rates, self.samples.iter().map(cpu).collect(), latency)
    }
}

/// Repeats `step` for the time and says how many there were a second.
fn rate(mut step: impl FnMut(u64) -> Result<u64>) -> Result<f64> {
    let begun = Instant::now();
    let (mut calls, mut done) = (0, 0);
    while begun.elapsed() < COMMIT_TIME {
        done += step(calls)?;
        calls += 1;
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}

fn block() -> AlignedBuf {
    let mut b = AlignedBuf::zeroed(BLOCK as usize);
    b.fill(0xa5);
    b
}

/// Durable commits by each method; `path` is a written file, `dir` takes files of its own.
pub fn commits(io: &Io, path: &Path, dir: &Path) -> Result<Vec<Commits>> {
    let data = block();
    let mut out = Vec::new();
    let mut add = |method, in_flight, per_second| out.push(Commits { method, in_flight, per_second });

    let append = io.open(&dir.join("append"), &OpenHow::create_new())?;
    let one = |f: &File, at: u64| -> Result<u64> {
        f.write_all_at(&data, at, Purpose(0))?;
        f.sync_data(Purpose(0))?;
        Ok(1)
    };
    add("append through the page cache, fdatasync", 1, rate(|i| one(&append, i * BLOCK))?);

    let reserved = io.open(&dir.join("reserved"), &OpenHow::create_new())?;
    if reserved.allocate(0, FILE_BYTES).is_ok() {
        add("the same into fallocated blocks", 1, rate(|i| one(&reserved, i % FILE_BLOCKS * BLOCK))?);
    }

    let over = io.open(path, &OpenHow { read: true, write: true, ..OpenHow::default() })?;
    if let Ok(mut map) = over.map(FILE_BYTES) {
        let mapped = rate(|i| {
            map.write((i % FILE_BLOCKS * BLOCK) as usize, &data);
            over.sync_data(Purpose(0))?;
            Ok(1)
        })?;
        add("copy into a mapped, written file, fdatasync", 1, mapped);
    }

    let direct =
        io.open(path, &OpenHow { read: true, write: true, direct: Direct::Prefer, ..OpenHow::default() })?;
    let plain = rate(|i| {
        direct.write_all_at_dsync(&data, i % FILE_BLOCKS * BLOCK, Purpose(0))?;
        Ok(1)
    })?;
    add("RWF_DSYNC into written blocks", 1, plain);
    for depth in [2, 4, 8] {
        add("RWF_DSYNC into written blocks", depth, overlapped(io, &direct, depth)?);
    }
    add("write and fdatasync as one chain", 1, chained(io, &direct)?);
    Ok(out)
}

/// Writes a second, each durable by itself, with `depth` of them in flight.
fn overlapped(io: &Io, file: &File, depth: u32) -> Result<f64> {
    let mut queue = io.queue(depth)?;
    let mut next = 0;
    rate(|_| {
        while queue.in_flight() < depth as usize {
            next += 1;
            let at = next % FILE_BLOCKS * BLOCK;
            let mut op = Op::write(file, at, BLOCK, Buf::Aligned(block()), Purpose(0));
            op.kind = OpKind::Write { dsync: true };
            if queue.push(op).is_err() {
                return failed("the engine's queue is smaller than 8");
            }
        }
        queue.wait(1)?;
        let mut n = 0;
        while let Some(done) = queue.pop() {
            done.result?;
            n += 1;
        }
        Ok(n)
    })
}

/// Writes a second, each chained to a sync.
fn chained(io: &Io, file: &File) -> Result<f64> {
    let mut queue = io.queue(2)?;
    rate(|i| {
        let write = Op::write(file, i % FILE_BLOCKS * BLOCK, BLOCK, Buf::Aligned(block()), Purpose(0));
        for op in [write.then(), Op::sync_data(file, Purpose(0))] {
            if queue.push(op).is_err() {
                return failed("the engine's queue is smaller than 2");
            }
        }
        while queue.in_flight() > 0 {
            queue.wait(2)?;
            while let Some(done) = queue.pop() {
                done.result?;
            }
        }
        Ok(1)
    })
}

/// Sequential writes of [`FILE_BYTES`], the last sync included.
pub fn writes(io: &Io, path: &Path, dir: &Path) -> Result<Vec<Writes>> {
    let chunk = vec![0x5a; 1 << 20];
    let buffered = dir.join("buffered");
    let begun = Instant::now();
    let mut f = at(&buffered, std::fs::File::create(&buffered))?;
    for _ in 0..FILE_BYTES >> 20 {
        at(&buffered, f.write_all(&chunk))?;
    }
    at(&buffered, f.sync_data())?;
    let speed = |begun: Instant| FILE_BYTES as f64 / begun.elapsed().as_secs_f64();
    let mut out =
        vec![Writes { method: "through the page cache, 1 MiB each", bytes_per_second: speed(begun) }];
    let how = OpenHow { read: true, write: true, direct: Direct::Prefer, ..OpenHow::default() };
    let file = io.open(path, &how)?;
    for (method, bytes, depth) in [
        ("direct, 256 KiB each, 1 in flight", 256u64 << 10, 1),
        ("direct, 256 KiB each, 4 in flight", 256 << 10, 4),
        ("direct, 1 MiB each, 8 in flight", 1 << 20, 8),
    ] {
        let mut queue = io.queue(depth)?;
        let mut idle: Vec<Buf> =
            (0..depth).map(|_| Buf::Aligned(AlignedBuf::zeroed(bytes as usize))).collect();
        let begun = Instant::now();
        let mut next = 0;
        while next < FILE_BYTES || queue.in_flight() > 0 {
            while next < FILE_BYTES
                && let Some(buf) = idle.pop()
            {
                if queue.push(Op::write(&file, next, bytes, buf, Purpose(0))).is_err() {
                    return failed("the engine's queue is smaller than 8");
                }
                next += bytes;
            }
            queue.wait(1)?;
            while let Some(done) = queue.pop() {
                done.result?;
                idle.push(done.buf);
            }
        }
        file.sync_data(Purpose(0))?;
        out.push(Writes { method, bytes_per_second: speed(begun) });
    }
    Ok(out)
}

/// Whether submitting a direct read holds the thread: the medians of 200 lone reads.
pub fn submission(io: &Io, path: &Path) -> Result<Submission> {
    let file = io.open(path, &OpenHow::read().direct(Direct::Prefer))?;
    let mut queue = io.queue(1)?;
    let (mut submit, mut total) = (Vec::new(), Vec::new());
    let mut buf = Buf::Aligned(AlignedBuf::zeroed(BLOCK as usize));
    for i in 0..200u64 {
        let begun = Instant::now();
        if queue.push(Op::read(&file, i * 37 % FILE_BLOCKS * BLOCK, BLOCK, buf, Purpose(0))).is_err() {
            return failed("the engine's queue takes nothing");
        }
        queue.submit()?;
        submit.push(begun.elapsed().as_secs_f64() * 1e6);
        queue.wait(1)?;
        let Some(done) = queue.pop() else { return failed("a read did not come back") };
        done.result?;
        buf = done.buf;
        total.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Submission { submit_us: spread(&submit).1, total_us: spread(&total).1 })
}
