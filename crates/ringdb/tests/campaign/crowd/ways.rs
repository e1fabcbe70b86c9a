//! The ways to read many keys and to wait for a future in a simulation.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ringdb::sim::SimEnv;
use ringdb::{Env, Error, ReadOptions, Reads, Result, Snapshot, Value};

use crate::support::Rng;

/// A wake-up that takes longer, in the time of the simulation, is lost.
const LOST: Duration = Duration::from_secs(1000);

#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// A future with a waker of its own.
pub struct Task<F> {
    future: F,
    bell: Arc<Bell>,
}

impl<F: Future + Unpin> Task<F> {
    pub fn new(future: F) -> Task<F> {
        Task { future, bell: Arc::default() }
    }

    pub fn poll(&mut self) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(&self.bell));
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }

    /// Waits for the end of one that was polled: looks again only when it was woken.
    pub fn wait(&mut self, env: &SimEnv) -> F::Output {
        let (start, mut step) = (env.now(), Duration::from_micros(5));
        loop {
            while !self.bell.0.swap(false, Relaxed) {
                env.sleep(step);
                step = (2 * step).min(Duration::from_millis(50));
                assert!(env.now() - start < LOST, "a wake-up is lost");
            }
            if let Poll::Ready(output) = self.poll() {
                return output;
            }
        }
    }
}

/// Polls a future and waits for it.
pub fn block_on<F: Future + Unpin>(env: &SimEnv, future: F) -> F::Output {
    let mut task = Task::new(future);
    match task.poll() {
        Poll::Ready(output) => output,
        Poll::Pending => task.wait(env),
    }
}

/// How a client reads.
pub struct Ways<'a> {
    env: &'a SimEnv,
    /// What draws the way; `None`: blocking calls.
    rng: Option<RefCell<Rng>>,
}

type Values = Vec<Option<Value>>;

impl<'a> Ways<'a> {
    pub fn blocking(env: &'a SimEnv) -> Ways<'a> {
        Ways { env, rng: None }
    }

    /// In all ways, drawn from a seed.
    pub fn all(env: &'a SimEnv, seed: u64) -> Ways<'a> {
        Ways { env, rng: Some(RefCell::new(Rng(seed))) }
    }

    fn below(&self, n: u64) -> u64 {
        self.rng.as_ref().map_or(0, |rng| rng.borrow_mut().below(n))
    }

    /// The value of a key.
    pub fn get(&self, from: &Snapshot, key: &str) -> Result<Option<Value>> {
        match self.below(3) {
            0 => from.get(key),
            1 => block_on(self.env, from.get_async(key)),
            _ => in_time(|options| block_on(self.env, from.get_async_with(key, options)), self.below(200)),
        }
    }

    /// The values of keys.
    pub fn values(&self, from: &Snapshot, keys: &[String]) -> Result<Values> {
        match self.below(6) {
            0 => from.multi_get(keys),
            1 => block_on(self.env, from.multi_get_async(keys)),
            2 => {
                let many = |options: &_| block_on(self.env, from.multi_get_async_with(keys, options));
                in_time(many, self.below(1000))
            }
            3 => self.each(from, keys),
            4 => self.by_reads(from.reads(1 + self.below(20) as usize)?, keys),
            _ => {
                let mut found = vec![None; keys.len()];
                let numbered = keys.iter().enumerate().map(|(i, key)| Numbered(i, key));
                for (Numbered(i, _), got) in from.multi_get_stream(numbered, 1 + self.below(20) as usize)? {
                    found[i] = got?;
                }
                Ok(found)
            }
        }
    }

    /// All pairs below a prefix.
    pub fn pairs(&self, from: &Snapshot, prefix: &str) -> Result<Vec<(Value, Value)>> {
        if self.below(2) == 0 {
            return from.prefix(prefix).collect();
        }
        let (mut stream, mut pairs) = (from.prefix_async(prefix), Vec::new());
        while let Some(pair) = block_on(self.env, Box::pin(stream.next())) {
            pairs.push(pair?);
            // Given up in the middle of a step, it goes on with the same pair.
            if self.below(8) == 0 {
                let gone = Task::new(Box::pin(stream.next())).poll();
                if let Poll::Ready(pair) = gone {
                    pairs.extend(pair.transpose()?);
                }
            }
        }
        Ok(pairs)
    }

    /// A future for each key, waited for in another order; some are dropped and made anew.
    fn each(&self, from: &Snapshot, keys: &[String]) -> Result<Values> {
        let mut found = vec![None; keys.len()];
        let mut waiting = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            if self.below(8) == 0 {
                let _ = Task::new(from.get_async(key)).poll();
            }
            let mut task = Task::new(from.get_async(key));
            match task.poll() {
                Poll::Ready(got) => found[i] = got?,
                Poll::Pending => waiting.push((i, task)),
            }
        }
        while !waiting.is_empty() {
            let (i, mut task) = waiting.swap_remove(self.below(waiting.len() as u64) as usize);
            found[i] = task.wait(self.env)?;
        }
        Ok(found)
    }

    fn by_reads(&self, mut reads: Reads, keys: &[String]) -> Result<Values> {
        let mut found = vec![None; keys.len()];
        let (mut asked, mut answered) = (0, 0);
        while answered < keys.len() {
            while asked < keys.len() {
                match reads.submit(asked as u64, &keys[asked]) {
                    Err(Error::WouldBlock) => break,
                    submitted => submitted?,
                }
                asked += 1;
            }
            let open = reads.open();
            let there = reads.wait(1 + self.below(4) as usize)?;
            assert!(there > 0 && there <= open, "{there} answers of {open}");
            while let Some((tag, got)) = reads.poll() {
                found[tag as usize] = got?;
                answered += 1;
                if self.below(3) == 0 {
                    break;
                }
            }
        }
        Ok(found)
    }
}

/// Asks with a deadline of so many microseconds, and again without one when it has passed.
fn in_time<T>(ask: impl Fn(&ReadOptions) -> Result<T>, micros: u64) -> Result<T> {
    match ask(&ReadOptions::default().with_deadline(Duration::from_micros(micros))) {
        Err(Error::TimedOut) => ask(&ReadOptions::default()),
        answer => answer,
    }
}

/// A key that knows its place.
struct Numbered<'a>(usize, &'a String);

impl AsRef<[u8]> for Numbered<'_> {
    fn as_ref(&self) -> &[u8] {
        self.1.as_bytes()
    }
}
