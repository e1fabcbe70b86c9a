//! One run: jobs started together, a time that does not count and a time that does, and what the process cost.

use std::path::Path;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use engineswap::Io;
use engineswap::mem::BufArena;
use hdrhistogram::Histogram;

use super::args::Mode;
use super::job::{self, Job, Known, Tally, Times, histogram};
use crate::bench::meter::cpu_time;
use crate::error::{Failure, Result};

/// What a run does.
pub struct Spec<'a> {
    /// The file.
    pub path: &'a Path,
    /// Bytes of it that are used.
    pub size: u64,
    /// What is done.
    pub mode: Mode,
    /// Reads among the requests of `randrw`, in percent.
    pub read_percent: u8,
    /// Threads.
    pub jobs: u32,
    /// Requests in flight of each.
    pub depth: u32,
    /// Bytes of a request.
    pub bs: u64,
    /// Requests started and awaited together.
    pub batch: u32,
    /// What a job computes before each submission.
    pub think: Duration,
    /// Without the page cache.
    pub direct: bool,
    /// Whether the buffers are registered with the engine.
    pub fixed_buffers: bool,
    /// Whether requests are plain calls, with no queue.
    pub plain: bool,
    /// Time that does not count.
    pub warmup: Duration,
    /// Time that counts.
    pub time: Duration,
    /// Of the random numbers; another in each round.
    pub seed: u64,
}

/// What a run gave.
pub struct Sample {
    /// Whole requests.
    pub ops: u64,
    /// Short requests.
    pub short: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Seconds that were measured.
    pub seconds: f64,
    /// CPU seconds of the process, kernel workers included.
    pub cpu_s: f64,
    /// Context switches because a thread waited.
    pub voluntary: u64,
    /// Context switches because a thread was displaced.
    pub involuntary: u64,
    /// System calls of the engine that submitted or waited.
    pub enters: u64,
    /// Requests known to be handed to kernel workers.
    pub punted: u64,
    /// Requests whose buffer the kernel knew.
    pub registered: u64,
    /// Latencies.
    pub latency: Histogram<u64>,
}

impl Sample {
    /// Requests per second.
    pub fn rps(&self) -> f64 {
        self.ops as f64 / self.seconds
    }
}

#[derive(Clone, Copy, Default)]
struct Books {
    cpu: Duration,
    voluntary: u64,
    involuntary: u64,
    enters: u64,
    punted: u64,
    registered: u64,
}

fn books(io: &Io) -> Books {
    let stats = io.stats();
    let mut b = Books {
        cpu: cpu_time(),
        enters: stats.submit_calls,
        punted: stats.punted,
        registered: stats.fixed,
        ..Books::default()
    };
    // A thread's switches are counted in its own file; threads of the kernel that work for this process are listed too.
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        for line in status.lines() {
            let number = |s: &str| s.trim().parse::<u64>().unwrap_or(0);
            match line.split_once(':') {
                Some(("voluntary_ctxt_switches", n)) => b.voluntary += number(n),
                Some(("nonvoluntary_ctxt_switches", n)) => b.involuntary += number(n),
                _ => {}
            }
        }
    }
    b
}

fn sleep_until(t: Instant) {
    std::thread::sleep(t.saturating_duration_since(Instant::now()));
}

/// Runs once. `generations` is there under `--verify`: how often each block was written.
pub fn run(io: &Io, spec: &Spec<'_>, mut generations: Option<&mut [u32]>) -> Result<Sample> {
    let ready = Barrier::new(spec.jobs as usize + 1);
    let times: OnceLock<Times> = OnceLock::new();
    let memory = BufArena::new(spec.bs as usize, spec.jobs as usize * spec.depth as usize);
    // It lasts until the end of this function.
    let _registered = if spec.fixed_buffers { Some(io.register_buffers(memory.region())?) } else { None };
    let mut parts = parts(spec, generations.as_deref_mut());
    let (tallies, before, after) = std::thread::scope(|s| {
        let mut threads = Vec::new();
        for n in 0..spec.jobs {
            let known = parts.get_mut(n as usize).and_then(Option::take);
            let (ready, times, memory) = (&ready, &times, &memory);
            threads.push(s.spawn(move || {
                let job = Job::new(io, spec, n, memory, known);
                ready.wait();
                ready.wait();
                let done = match (job, times.get()) {
                    (Ok(job), Some(times)) => job.run(*times),
                    (Err(e), _) => Err(e),
                    (_, None) => Err(Failure::Negative),
                };
                // The books of a thread that is gone cannot be read.
                ready.wait();
                done
            }));
        }
        ready.wait();
        let from = Instant::now() + spec.warmup;
        let until = from + spec.time;
        let _ = times.set(Times { from, until });
        ready.wait();
        sleep_until(from);
        let before = books(io);
        sleep_until(until);
        let after = books(io);
        ready.wait();
        let join = |t: std::thread::ScopedJoinHandle<'_, Result<Tally>>| match t.join() {
            Ok(r) => r,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        (threads.into_iter().map(join).collect::<Vec<_>>(), before, after)
    });
    let mut sample = Sample {
        ops: 0,
        short: 0,
        bytes: 0,
        seconds: spec.time.as_secs_f64(),
        cpu_s: after.cpu.saturating_sub(before.cpu).as_secs_f64(),
        voluntary: after.voluntary.saturating_sub(before.voluntary),
        involuntary: after.involuntary.saturating_sub(before.involuntary),
        enters: after.enters.saturating_sub(before.enters),
        punted: after.punted.saturating_sub(before.punted),
        registered: after.registered.saturating_sub(before.registered),
        latency: histogram()?,
    };
    for tally in tallies {
        let t = tally?;
        sample.ops += t.ops;
        sample.short += t.short;
        sample.bytes += t.bytes;
        sample.latency.add(&t.latency).map_err(|e| Failure::Failed(e.to_string()))?;
    }
    if let Some(g) = generations {
        job::check_file(io, spec, g)?;
    }
    Ok(sample)
}

/// Each job's own part of the file.
fn parts<'a>(spec: &Spec<'_>, generations: Option<&'a mut [u32]>) -> Vec<Option<Known<'a>>> {
    let Some(mut rest) = generations else { return (0..spec.jobs).map(|_| None).collect() };
    let each = rest.len() / spec.jobs as usize;
    let mut first = 0;
    let mut out = Vec::new();
    for _ in 0..spec.jobs {
        let (mine, others) = rest.split_at_mut(each);
        out.push(Some(Known { first, generations: mine }));
        first += each as u64;
        rest = others;
    }
    out
}
