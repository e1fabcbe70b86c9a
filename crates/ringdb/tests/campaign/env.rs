//! Time that does not pass by itself, and threads that are used again: opening a store is to cost little.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringdb::{Env, Join};

/// What a thread does for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It runs the history, or checks; or does what one of these waits for, by a future.
    History,
    /// It prepares log segments.
    Log,
    /// It flushes or compacts.
    Work,
}

thread_local! {
    static CLASS: Cell<Class> = const { Cell::new(Class::History) };
}

impl Class {
    pub fn of_this_thread() -> Class {
        CLASS.get()
    }
}

/// Sleeping advances the clock and takes no time.
pub struct SimEnv {
    nanos: AtomicU64,
    random: AtomicU64,
    /// Milliseconds of the wall clock, which stands still.
    wall: AtomicU64,
}

impl SimEnv {
    pub fn shared() -> Arc<SimEnv> {
        Arc::new(SimEnv { nanos: AtomicU64::new(1), random: AtomicU64::new(1), wall: AtomicU64::new(0) })
    }

    /// Sets the wall clock to so many milliseconds.
    pub fn set_wall_clock(&self, millis: u64) {
        self.wall.store(millis, Relaxed);
    }

    /// Lets time pass.
    pub fn advance(&self, d: Duration) {
        self.nanos.fetch_add(d.as_nanos() as u64, Relaxed);
    }
}

impl Env for SimEnv {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.fetch_add(1000, Relaxed))
    }

    fn sleep(&self, d: Duration) {
        self.advance(d);
    }

    fn spawn(&self, name: &str, _: bool, f: Box<dyn FnOnce() + Send>) -> std::io::Result<Join> {
        let class = match name {
            "ringdb-log" => Class::Log,
            "ringdb-commit" | "ringdb-reactor" => Class::History,
            _ => Class::Work,
        };
        let (done, wait) = channel::<()>();
        let mut job = Some(Job { class, f, _done: done });
        while let Some(worker) = IDLE.lock().unwrap().pop() {
            match worker.send(job.take().expect("a job")) {
                Ok(()) => break,
                Err(back) => job = Some(back.0),
            }
        }
        if let Some(job) = job {
            std::thread::Builder::new().spawn(move || work(job))?;
        }
        Ok(Box::new(move || {
            // The channel closes when the job has ended.
            let _ = wait.recv();
        }))
    }

    fn wall_clock(&self) -> Duration {
        Duration::from_millis(self.wall.load(Relaxed))
    }

    fn random(&self) -> u64 {
        self.random.fetch_add(1, Relaxed)
    }
}

struct Job {
    class: Class,
    f: Box<dyn FnOnce() + Send>,
    _done: Sender<()>,
}

/// Threads without a job.
static IDLE: Mutex<Vec<Sender<Job>>> = Mutex::new(Vec::new());

fn work(first: Job) {
    let (to_me, jobs): (Sender<Job>, Receiver<Job>) = channel();
    let mut next = Some(first);
    while let Some(Job { class, f, _done: done }) = next.take().or_else(|| jobs.recv().ok()) {
        CLASS.set(class);
        f();
        CLASS.set(Class::History);
        // Idle before it is said to be done, so that whoever waits finds this thread.
        IDLE.lock().unwrap().push(to_me.clone());
        drop(done);
    }
}
