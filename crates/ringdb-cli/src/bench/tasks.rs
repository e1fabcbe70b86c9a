//! Clients that are tasks: each has one operation of the store under way, thousands of them on a few threads, on a
//! small executor of this module's.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use hdrhistogram::Histogram;
use ringdb::{GetFuture, WriteBatch, WriteFuture};

use super::drive::{Outcome, Plan, histogram};
use super::keys::below;
use super::point::{Reader, Writer, check};
use crate::error::{Failure, Result, failed};

/// What the tasks of one thread do.
pub trait Work: Send {
    /// An operation.
    type Future: Future + Unpin;
    /// What has to be known when it ends.
    type About;
    /// The next operation; `None` when nothing is left.
    fn begin(&mut self) -> Option<(Self::About, Self::Future)>;
    /// One has ended.
    fn end(&mut self, about: Self::About, output: <Self::Future as Future>::Output) -> Result<()>;
}

/// Tasks that were woken.
#[derive(Default)]
struct Woken {
    tasks: Mutex<Vec<usize>>,
    any: Condvar,
}

impl Woken {
    fn lock(&self) -> MutexGuard<'_, Vec<usize>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those woken since, if need be after waiting for one.
    fn take(&self, wait: bool) -> Vec<usize> {
        let mut tasks = self.lock();
        while wait && tasks.is_empty() {
            tasks = self.any.wait(tasks).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut *tasks)
    }
}

struct Task {
    number: usize,
    woken: Arc<Woken>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut tasks = self.woken.lock();
        tasks.push(self.number);
        if tasks.len() == 1 {
            self.woken.any.notify_one();
        }
    }
}

/// Runs `tasks` tasks on the plan's threads, as [`super::drive::drive`] runs threads.
pub fn drive_tasks<W: Work>(plan: &Plan, tasks: usize, mut works: Vec<W>) -> Result<(Outcome, Vec<W>)> {
    let stop = AtomicBool::new(false);
    let n = works.len();
    let part = |all: u64, i: usize| all / n as u64 + u64::from((i as u64) < all % n as u64);
    let began = Instant::now();
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = works
            .iter_mut()
            .enumerate()
            .map(|(i, work)| {
                let (tasks, ops) =
                    (part(tasks as u64, i) as usize, plan.ops.map_or(u64::MAX, |ops| part(ops, i)));
                let stop = &stop;
                scope.spawn(move || {
                    let r = run(plan, work, tasks, ops, stop);
                    stop.fetch_or(r.is_err(), Relaxed);
                    r
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join()).collect()
    });
    let mut out = Outcome { ops: 0, seconds: began.elapsed().as_secs_f64(), latencies: histogram()? };
    for r in results {
        let Ok(r) = r else { return failed("a client thread panicked") };
        let (ops, latencies) = r?;
        out.ops += ops;
        out.latencies.add(&latencies).map_err(|e| Failure::Failed(e.to_string()))?;
    }
    Ok((out, works))
}

/// An operation that was begun, and when.
type Running<W> = (Instant, <W as Work>::About, <W as Work>::Future);

/// One thread: at most `ops` operations by so many tasks.
fn run<W: Work>(
    plan: &Plan,
    work: &mut W,
    tasks: usize,
    ops: u64,
    stop: &AtomicBool,
) -> Result<(u64, Histogram<u64>)> {
    let mut latencies = histogram()?;
    let deadline = plan.duration.map(|d| Instant::now() + d);
    let woken = Arc::new(Woken::default());
    let waker = |number| Waker::from(Arc::new(Task { number, woken: Arc::clone(&woken) }));
    let wakers: Vec<Waker> = (0..tasks).map(waker).collect();
    let mut slots: Vec<Option<Running<W>>> = (0..tasks).map(|_| None).collect();
    let mut ready: Vec<usize> = (0..tasks).collect();
    let (mut begun, mut done) = (0, 0);
    loop {
        let mut again = Vec::new();
        for i in ready {
            if slots[i].is_none() {
                let over =
                    begun == ops || stop.load(Relaxed) || deadline.is_some_and(|d| Instant::now() >= d);
                let Some((about, future)) = (if over { None } else { work.begin() }) else { continue };
                begun += 1;
                slots[i] = Some((Instant::now(), about, future));
            }
            let Some((start, about, mut future)) = slots[i].take() else { continue };
            match Pin::new(&mut future).poll(&mut Context::from_waker(&wakers[i])) {
                Poll::Pending => slots[i] = Some((start, about, future)),
                Poll::Ready(output) => {
                    latencies.saturating_record((start.elapsed().as_nanos() as u64).max(1));
                    done += 1;
                    work.end(about, output)?;
                    again.push(i);
                }
            }
        }
        if again.is_empty() && begun == done {
            return Ok((done, latencies));
        }
        let woken = woken.take(again.is_empty());
        ready = again;
        ready.extend(woken);
    }
}

impl Work for Reader<'_> {
    type Future = GetFuture;
    type About = (u64, bool);

    fn begin(&mut self) -> Option<((u64, bool), GetFuture)> {
        let bytes = self.key_bytes();
        self.keys.resize(bytes, 0);
        let n = below(&mut self.rng, self.setup.num);
        self.setup.keys.write(n, &mut self.keys);
        Some(((n, self.certain(n)), self.target.db.get_async(&self.keys)))
    }

    fn end(&mut self, (n, before): (u64, bool), got: ringdb::Result<Option<ringdb::Value>>) -> Result<()> {
        self.found += check(self.target, self.setup, n, before, self.may_come, got?.as_ref())?;
        Ok(())
    }
}

impl Work for Writer<'_> {
    type Future = WriteFuture;
    type About = u64;

    fn begin(&mut self) -> Option<(u64, WriteFuture)> {
        let n = self.number()?;
        self.make(n);
        let mut batch = WriteBatch::new();
        batch.put(&self.key, &self.value);
        Some((n, self.target.db.write_async(batch, &self.options.unwrap_or_default())))
    }

    fn end(&mut self, n: u64, done: ringdb::Result<()>) -> Result<()> {
        done?;
        self.target.presence.set(n);
        Ok(())
    }
}
