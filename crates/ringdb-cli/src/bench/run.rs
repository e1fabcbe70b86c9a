//! One run of one workload on one store.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use ringdb::{Durability, WriteOptions};

use super::args::BenchArgs;
use super::dist::Chooser;
use super::drive::{Outcome, Plan, Worker, drive};
use super::meter::Meter;
use super::mixgraph::{Mixer, Model};
use super::point::{Deleter, Order, Reader, Writer, rng};
use super::row::Row;
use super::scan::{Seeker, Walker};
use super::source::{self, Source};
use super::target::{Setup, Target};
use super::tasks::drive_tasks;
use super::workload::Workload;
use super::ycsb::{self, Client};
use crate::error::{Result, failed};
use crate::out;

/// The thread number from which the writer beside the readers draws its random numbers.
const BACKGROUND: usize = 1 << 20;

struct Run<'a> {
    args: &'a BenchArgs,
    setup: &'a Setup,
    target: &'a Target,
    plan: Plan,
    number: u64,
    bar: indicatif::ProgressBar,
}

/// What the workers tell beside the latencies.
#[derive(Default)]
struct Extra {
    batch: usize,
    found: Option<u64>,
    background_ops: u64,
}

/// Runs a workload. `number` tells runs apart: each draws other random numbers, the same on each engine.
pub fn run(args: &BenchArgs, setup: &Setup, target: &Target, workload: Workload, number: u64) -> Result<Row> {
    let ops = default_ops(args, workload);
    let plan = Plan {
        threads: match workload {
            Workload::Flush | Workload::Compact | Workload::Waitforcompaction => 1,
            _ => args.threads.into(),
        },
        ops,
        duration: args.duration.map(Duration::from_secs_f64),
        rate: args.open_loop,
        sample: args.sample,
    };
    let bar = out::count_bar(ops);
    bar.set_message(format!("{} on {}", workload.name(), target.io));
    let meter = Meter::new(&target.dir);
    let r = Run { args, setup, target, plan, number, bar };
    let io_before = target.db.io().stats();
    let mark = meter.mark();
    let (outcome, extra) = r.workload(workload)?;
    let cost = meter.since(&mark);
    let io = target.db.io().stats().since(&io_before);
    r.bar.finish_and_clear();
    let asked = source::asked(&io);
    let us = |p: f64| outcome.latencies.value_at_quantile(p) as f64 / 1e3;
    Ok(Row {
        workload: workload.name(),
        io: target.io.clone(),
        engine: target.db.io().info().uri,
        threads: r.plan.threads,
        batch_size: extra.batch,
        ops: outcome.ops,
        seconds: outcome.seconds,
        ops_per_s: outcome.ops as f64 / outcome.seconds.max(1e-9),
        p50_us: us(0.5),
        p95_us: us(0.95),
        p99_us: us(0.99),
        p999_us: us(0.999),
        max_us: outcome.latencies.max() as f64 / 1e3,
        device_read_bytes: cost.read_bytes,
        device_write_bytes: cost.write_bytes,
        in_flight_avg: io.average_reads_in_flight(),
        cpu_s: cost.cpu_s,
        queue_depth_avg: io.average_queue_depth(),
        device_reads: cost.device_reads,
        device_writes: cost.device_writes,
        device_in_flight_avg: cost.device_in_flight,
        reads_from: extra.found.map(|_| Source::of(asked, cost.read_bytes)),
        file_read_bytes: asked.0,
        direct_reads: args.direct_reads,
        found: extra.found,
        background_ops: extra.background_ops,
        round: 1,
        num: args.num,
        key_size: setup.keys.size,
        value_size: setup.value_size,
        cache_bytes: args.cache_bytes,
        durability: format!("{:?}", target.durability).to_lowercase(),
        compression: target.compression(),
        open_loop_rate: args.open_loop,
        async_tasks: args.async_tasks,
        seed: args.seed,
    })
}

/// The number of operations where none is given; walks over all rows end by themselves.
fn default_ops(args: &BenchArgs, workload: Workload) -> Option<u64> {
    match workload {
        Workload::Flush | Workload::Compact | Workload::Waitforcompaction => Some(1),
        _ if args.ops.is_some() => args.ops,
        Workload::Readseq | Workload::Readreverse => None,
        _ if args.duration.is_some() => None,
        Workload::Fillsync => Some((args.num / 1000).max(1)),
        _ => Some(args.num),
    }
}

impl Run<'_> {
    fn workload(&self, workload: Workload) -> Result<(Outcome, Extra)> {
        use Workload::*;
        if let Some(tasks) = self.args.async_tasks {
            return self.by_tasks(workload, tasks as usize);
        }
        match workload {
            Fillseq => self.fill(true, None),
            Fillrandom | Overwrite => self.fill(false, None),
            Fillsync => self.fill(false, self.sync_option()),
            Readrandom => self.read(0, false),
            Readmissing => self.read(0, true),
            Multireadrandom => self.read(self.args.batch_size.unwrap_or(64).into(), false),
            Readwhilewriting => self.read_while_writing(),
            Seekrandom => self.seek(),
            Readseq => self.walk(false),
            Readreverse => self.walk(true),
            Deleterandom => self.delete(),
            Mixgraph => self.mixgraph(),
            YcsbA | YcsbB | YcsbC | YcsbD | YcsbE | YcsbF => self.ycsb(workload),
            Flush => self.once(|t| Ok(t.db.flush()?)),
            Compact => self.once(|t| Ok(t.db.compact_range(..)?)),
            Waitforcompaction => self.once(Target::settle),
        }
    }

    /// The same by tasks instead of threads.
    fn by_tasks(&self, workload: Workload, tasks: usize) -> Result<(Outcome, Extra)> {
        use Workload::*;
        let threads = 0..self.plan.threads.min(tasks);
        if let Readrandom | Readmissing = workload {
            let make = |i| self.reader(0, workload == Readmissing, false, i);
            let (outcome, readers) = drive_tasks(&self.plan, tasks, threads.map(make).collect())?;
            let found = Some(readers.iter().map(|r| r.found).sum());
            return Ok((outcome, Extra { batch: 1, found, ..Extra::default() }));
        }
        let options = match workload {
            Fillsync => self.sync_option(),
            Fillrandom | Overwrite => None,
            other => return failed(format!("{} has no form for --async-tasks", other.name())),
        };
        let make = |i| self.writer(Order::Random, 1, options, i);
        let (outcome, _) = drive_tasks(&self.plan, tasks, threads.map(make).collect())?;
        Ok((outcome, Extra { batch: 1, ..Extra::default() }))
    }

    fn drive<W: Worker>(&self, make: impl Fn(usize) -> W) -> Result<(Outcome, Vec<W>)> {
        drive(&self.plan, (0..self.plan.threads).map(make).collect(), &self.bar)
    }

    fn write_batch(&self) -> u64 {
        self.args.batch_size.unwrap_or(1).into()
    }

    /// Each write of fillsync is on the device before the next: by the store's own durability, else by the
    /// write's.
    fn sync_option(&self) -> Option<WriteOptions> {
        (self.target.durability != Durability::Sync)
            .then(|| WriteOptions::default().durability(Durability::Sync))
    }

    fn writer(&self, order: Order, batch: u64, options: Option<WriteOptions>, thread: usize) -> Writer<'_> {
        Writer {
            target: self.target,
            setup: self.setup,
            order,
            batch,
            options,
            rng: rng(self.args.seed, self.number, thread),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    fn fill(&self, in_order: bool, options: Option<WriteOptions>) -> Result<(Outcome, Extra)> {
        let (num, threads) = (self.setup.num, self.plan.threads as u64);
        // Each thread writes a part of its own in order.
        let part = |i: u64| num / threads * i + (num % threads).min(i);
        let (outcome, _) = self.drive(|i| {
            let i64 = i as u64;
            let order = if in_order { Order::Sequence(part(i64)..part(i64 + 1)) } else { Order::Random };
            self.writer(order, self.write_batch(), options, i)
        })?;
        Ok((outcome, Extra { batch: self.write_batch() as usize, ..Extra::default() }))
    }

    fn reader(&self, batch: u64, missing: bool, may_come: bool, thread: usize) -> Reader<'_> {
        Reader {
            target: self.target,
            setup: self.setup,
            batch,
            missing,
            may_come,
            rng: rng(self.args.seed, self.number, thread),
            found: 0,
            keys: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn read(&self, batch: u64, missing: bool) -> Result<(Outcome, Extra)> {
        let (outcome, readers) = self.drive(|i| self.reader(batch, missing, false, i))?;
        let found = Some(readers.iter().map(|r| r.found).sum());
        Ok((outcome, Extra { batch: batch.max(1) as usize, found, ..Extra::default() }))
    }

    fn read_while_writing(&self) -> Result<(Outcome, Extra)> {
        let stop = AtomicBool::new(false);
        let (read, written) = std::thread::scope(|scope| {
            let writing = scope.spawn(|| -> Result<u64> {
                let mut writer = self.writer(Order::Random, self.write_batch(), None, BACKGROUND);
                let mut ops = 0;
                while !stop.load(Relaxed) {
                    ops += writer.step(u64::MAX)?;
                }
                Ok(ops)
            });
            let read = self.drive(|i| self.reader(0, false, true, i));
            stop.store(true, Relaxed);
            (read, writing.join())
        });
        let (outcome, readers) = read?;
        let Ok(written) = written else { return failed("the writing thread panicked") };
        let found = Some(readers.iter().map(|r| r.found).sum());
        Ok((outcome, Extra { batch: 1, found, background_ops: written? }))
    }

    fn seek(&self) -> Result<(Outcome, Extra)> {
        let (outcome, seekers) = self.drive(|i| Seeker {
            target: self.target,
            setup: self.setup,
            nexts: self.args.seek_nexts.into(),
            rng: rng(self.args.seed, self.number, i),
            found: 0,
        })?;
        let found = Some(seekers.iter().map(|s| s.found).sum());
        Ok((outcome, Extra { batch: 1, found, ..Extra::default() }))
    }

    fn walk(&self, reverse: bool) -> Result<(Outcome, Extra)> {
        let (outcome, walkers) = self.drive(|_| Walker::new(self.target, self.setup, reverse))?;
        let found = Some(walkers.iter().map(|w| w.found).sum());
        Ok((outcome, Extra { batch: 1, found, ..Extra::default() }))
    }

    fn delete(&self) -> Result<(Outcome, Extra)> {
        let (outcome, _) = self.drive(|i| Deleter {
            target: self.target,
            setup: self.setup,
            batch: self.write_batch(),
            rng: rng(self.args.seed, self.number, i),
        })?;
        Ok((outcome, Extra { batch: self.write_batch() as usize, ..Extra::default() }))
    }

    fn mixgraph(&self) -> Result<(Outcome, Extra)> {
        let model = Model::new(&self.args.mix, self.setup.num);
        let alone = self.plan.threads == 1;
        let (outcome, mixers) = self.drive(|i| {
            Mixer::new(self.target, self.setup, &model, rng(self.args.seed, self.number, i), alone)
        })?;
        let found = Some(mixers.iter().map(|m| m.found).sum());
        Ok((outcome, Extra { batch: 1, found, ..Extra::default() }))
    }

    fn ycsb(&self, workload: Workload) -> Result<(Outcome, Extra)> {
        let (shares, distribution) = ycsb::mix_of(workload);
        let chooser = Chooser::new(self.args.distribution.unwrap_or(distribution), self.setup.num);
        let (outcome, clients) = self.drive(|i| Client {
            target: self.target,
            setup: self.setup,
            shares,
            chooser: chooser.clone(),
            rng: rng(self.args.seed, self.number, i),
            may_come: self.plan.threads > 1,
            found: 0,
            key: Vec::new(),
            value: Vec::new(),
        })?;
        let found = Some(clients.iter().map(|c| c.found).sum());
        Ok((outcome, Extra { batch: 1, found, ..Extra::default() }))
    }

    fn once(&self, f: impl Fn(&Target) -> Result<()> + Send + Sync) -> Result<(Outcome, Extra)> {
        let (outcome, _) = self.drive(|_| Once { target: self.target, f: &f })?;
        Ok((outcome, Extra { batch: 1, ..Extra::default() }))
    }
}

/// One thing done to the store as a whole.
struct Once<'a, F> {
    target: &'a Target,
    f: &'a F,
}

impl<F: Fn(&Target) -> Result<()> + Send + Sync> Worker for Once<'_, F> {
    fn step(&mut self, _most: u64) -> Result<u64> {
        (self.f)(self.target)?;
        Ok(1)
    }
}
