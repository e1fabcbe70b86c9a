//! One job: a thread that keeps its requests in flight, on its own queue, file descriptor and random numbers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engineswap::mem::{AlignedBuf, BufArena};
use engineswap::{Buf, Direct, Done, File, Io, Op, OpenHow, Purpose, Queue};
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

use super::args::Mode;
use super::pattern;
use super::run::Spec;
use crate::error::{Failure, Result, failed};

/// Latencies from 1 ns to a minute, to three digits.
pub fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(|e| Failure::Failed(e.to_string()))
}

/// What a job did within the measured time.
pub struct Tally {
    /// Requests that transferred all of their bytes.
    pub ops: u64,
    /// Requests that transferred less: the file ended.
    pub short: u64,
    /// Bytes transferred, by whole and short requests.
    pub bytes: u64,
    /// Latencies of the whole requests in nanoseconds.
    pub latency: Histogram<u64>,
}

/// When a job counts.
#[derive(Clone, Copy)]
pub struct Times {
    /// Completions from here on count.
    pub from: Instant,
    /// Completions up to here count; nothing new is started afterwards.
    pub until: Instant,
}

/// A request in flight.
#[derive(Clone, Copy)]
struct Flight {
    block: u64,
    write: bool,
    started: Instant,
}

/// Generations of the blocks of a job's own part of the file, for `--verify`.
pub struct Known<'a> {
    /// The first block of the part.
    pub first: u64,
    /// How often each block was written.
    pub generations: &'a mut [u32],
}

/// A job, ready to run.
pub struct Job<'a> {
    spec: &'a Spec<'a>,
    file: File,
    /// Plain calls without a queue: posix with one request at a time.
    queue: Option<Queue>,
    buffers: Vec<AlignedBuf>,
    random: SmallRng,
    /// Blocks that this job may use.
    first: u64,
    blocks: u64,
    next: u64,
    known: Option<Known<'a>>,
    busy: Vec<bool>,
    tally: Tally,
}

/// Opens the file as a run asks for.
pub fn open(io: &Io, spec: &Spec<'_>) -> Result<File> {
    let direct = if spec.direct { Direct::Require } else { Direct::No };
    let how = OpenHow { read: true, write: spec.mode.writes(), direct, ..OpenHow::default() };
    Ok(io.open(spec.path, &how)?)
}

impl<'a> Job<'a> {
    /// Prepares job `n` on the calling thread.
    pub fn new(
        io: &Io,
        spec: &'a Spec<'a>,
        n: u32,
        memory: &Arc<BufArena>,
        known: Option<Known<'a>>,
    ) -> Result<Job<'a>> {
        let file = open(io, spec)?;
        let align = file.alignment();
        if !spec.bs.is_multiple_of(u64::from(align.offset.max(1))) {
            return failed(format!(
                "--bs {}: {} takes multiples of {} with --direct",
                spec.bs,
                spec.path.display(),
                align.offset
            ));
        }
        let queue = if spec.plain { None } else { Some(io.queue(spec.depth)?) };
        let all = spec.size / spec.bs;
        let (first, blocks, next) = match &known {
            Some(k) => (k.first, k.generations.len() as u64, 0),
            // Sequential jobs begin apart from each other.
            None => (0, all, all * u64::from(n) / u64::from(spec.jobs)),
        };
        let busy = known.as_ref().map_or(Vec::new(), |k| vec![false; k.generations.len()]);
        let seed = spec.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(n));
        let tally = Tally { ops: 0, short: 0, bytes: 0, latency: histogram()? };
        let mut random = SmallRng::seed_from_u64(seed);
        let mut buffers = Vec::new();
        for _ in 0..spec.depth {
            let Some(mut b) = memory.alloc() else { return failed("no memory for the buffers") };
            // Bytes worth writing.
            random.fill_bytes(&mut b);
            buffers.push(b);
        }
        Ok(Job { spec, file, queue, buffers, random, first, blocks, next, known, busy, tally })
    }

    /// Runs until the time is over and everything in flight is back.
    pub fn run(mut self, times: Times) -> Result<Tally> {
        match self.queue.take() {
            Some(queue) => self.run_queue(queue, times)?,
            None => self.run_plain(times)?,
        }
        Ok(self.tally)
    }

    /// Chooses the next request; under `--verify` never a block that is in flight.
    fn choose(&mut self) -> (u64, bool) {
        loop {
            let own = match self.spec.mode.random() {
                true => self.random.random_range(0..self.blocks),
                false => {
                    let n = self.next;
                    self.next = if n + 1 >= self.blocks { 0 } else { n + 1 };
                    n
                }
            };
            if let Some(busy) = self.busy.get_mut(own as usize) {
                if *busy {
                    continue;
                }
                *busy = true;
            }
            let write = match self.spec.mode {
                Mode::Randread | Mode::Seqread => false,
                Mode::Randwrite | Mode::Seqwrite => true,
                Mode::Randrw => self.random.random_range(0..100u8) >= self.spec.read_percent,
            };
            return (self.first + own, write);
        }
    }

    /// The bytes that a write under `--verify` is to leave.
    fn mark(&mut self, block: u64, bytes: &mut [u8]) {
        if let Some(k) = &mut self.known {
            let g = &mut k.generations[(block - k.first) as usize];
            *g = g.wrapping_add(1);
            pattern::fill(bytes, block * self.spec.bs, *g);
        }
    }

    /// Counts a request that came back, and checks what it read.
    fn account(&mut self, f: Flight, now: Instant, bytes: u64, buf: &[u8], times: Times) -> Result<()> {
        let spec = self.spec;
        if let Some(k) = &self.known {
            let own = (f.block - k.first) as usize;
            self.busy[own] = false;
            let have = &buf[..bytes.min(spec.bs) as usize];
            if !f.write
                && let Some(wrong) = pattern::differs(have, f.block * spec.bs, k.generations[own])
            {
                return failed(format!("{}: wrong bytes at offset {wrong}", spec.path.display()));
            }
        }
        if now < times.from || now > times.until {
            return Ok(());
        }
        self.tally.bytes += bytes;
        if bytes < spec.bs {
            self.tally.short += 1;
            return Ok(());
        }
        self.tally.ops += 1;
        self.tally.latency.saturating_record((now - f.started).as_nanos() as u64);
        Ok(())
    }

    fn run_plain(&mut self, times: Times) -> Result<()> {
        let Some(mut buf) = self.buffers.pop() else { return failed("a job without a buffer") };
        let bs = self.spec.bs;
        let mut now = Instant::now();
        while now < times.until {
            let (block, write) = self.choose();
            if !self.spec.think.is_zero() {
                now = compute(self.spec.think);
            }
            let f = Flight { block, write, started: now };
            let data = &mut buf[..bs as usize];
            let bytes = if write {
                self.mark(block, data);
                self.file.write_all_at(data, block * bs, Purpose(0))?;
                bs
            } else {
                self.file.read_at(data, block * bs, Purpose(0))? as u64
            };
            now = Instant::now();
            self.account(f, now, bytes, &buf, times)?;
        }
        Ok(())
    }

    fn run_queue(&mut self, mut queue: Queue, times: Times) -> Result<()> {
        let (depth, batch, bs) = (self.spec.depth as usize, self.spec.batch as usize, self.spec.bs);
        let mut idle: Vec<(usize, AlignedBuf)> =
            std::mem::take(&mut self.buffers).into_iter().enumerate().collect();
        let mut now = Instant::now();
        let mut flights = vec![Flight { block: 0, write: false, started: now }; depth];
        loop {
            if now < times.until && idle.len() >= batch {
                let mut pushed = 0;
                while let Some((i, mut buf)) = idle.pop() {
                    if pushed == batch {
                        // The device begins with these while the others are made ready; the last go with the wait.
                        queue.submit()?;
                        now = Instant::now();
                        pushed = 0;
                    }
                    if pushed == 0 && !self.spec.think.is_zero() {
                        now = compute(self.spec.think);
                    }
                    pushed += 1;
                    let (block, write) = self.choose();
                    flights[i] = Flight { block, write, started: now };
                    let op = if write {
                        self.mark(block, &mut buf[..bs as usize]);
                        Op::write(&self.file, block * bs, bs, Buf::Aligned(buf), Purpose(0))
                    } else {
                        Op::read(&self.file, block * bs, bs, Buf::Aligned(buf), Purpose(0))
                    };
                    if queue.push(op.user(i as u64)).is_err() {
                        return failed(
                            "the engine's queue takes fewer requests than --iodepth: raise its option depth",
                        );
                    }
                }
            }
            let in_flight = queue.in_flight();
            if in_flight == 0 {
                return Ok(());
            }
            queue.wait(batch.min(in_flight))?;
            while let Some(Done { user, result, buf }) = queue.pop() {
                now = Instant::now();
                let bytes = result?;
                let Buf::Aligned(buf) = buf else { return failed("a request came back without its buffer") };
                self.account(flights[user as usize], now, bytes, &buf, times)?;
                idle.push((user as usize, buf));
            }
        }
    }
}

/// Keeps the CPU busy for `time`; returns the time then. The kernel may interrupt it, which is what is studied.
fn compute(time: Duration) -> Instant {
    let end = Instant::now() + time;
    loop {
        let now = Instant::now();
        if now >= end {
            return now;
        }
        std::hint::spin_loop();
    }
}

/// Reads the whole file back and checks it against the generations.
pub fn check_file(io: &Io, spec: &Spec<'_>, generations: &[u32]) -> Result<()> {
    let file = open(io, spec)?;
    let mut buf = AlignedBuf::zeroed(spec.bs as usize);
    for (block, generation) in generations.iter().enumerate() {
        let offset = block as u64 * spec.bs;
        let data = &mut buf[..spec.bs as usize];
        file.read_exact_at(data, offset, Purpose(0))?;
        if let Some(wrong) = pattern::differs(data, offset, *generation) {
            return failed(format!(
                "{}: wrong bytes at offset {wrong}, read back at the end",
                spec.path.display()
            ));
        }
    }
    Ok(())
}

/// A duration from an argument in seconds.
pub fn duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
