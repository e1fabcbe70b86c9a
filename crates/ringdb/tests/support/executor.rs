//! Two small executors: one future on the calling thread, and many tasks on it. A wake-up that is lost hangs them; so
//! they give up after a time that is absurdly long.
#![allow(dead_code)]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

#[cfg(shuttle)]
use shuttle::sync::{Condvar, Mutex};
#[cfg(not(shuttle))]
use std::sync::{Condvar, Mutex};

/// What was woken.
#[derive(Default)]
struct Woken {
    tasks: Mutex<Vec<usize>>,
    any: Condvar,
}

impl Woken {
    fn wake(&self, task: usize) {
        self.tasks.lock().expect("no panic").push(task);
        self.any.notify_one();
    }

    fn wait(&self) -> Vec<usize> {
        let mut tasks = self.tasks.lock().expect("no panic");
        while tasks.is_empty() {
            #[cfg(shuttle)]
            (tasks = self.any.wait(tasks).expect("no panic"));
            #[cfg(not(shuttle))]
            {
                let limit = std::time::Duration::from_secs(200);
                let (got, timeout) = self.any.wait_timeout(tasks, limit).expect("no panic");
                assert!(!timeout.timed_out(), "a wake-up is lost");
                tasks = got;
            }
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
        self.woken.wake(self.number);
    }
}

/// Runs a future to its end.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::new(Task { number: 0, woken: Arc::clone(&woken) }));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        woken.wait();
    }
}

/// Runs futures side by side, each a task of its own that is polled only when it was woken.
pub fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let woken = Arc::new(Woken::default());
    let mut tasks: Vec<Option<Pin<Box<F>>>> = futures.into_iter().map(|f| Some(Box::pin(f))).collect();
    let mut outputs: Vec<Option<F::Output>> = tasks.iter().map(|_| None).collect();
    let task = |number| Waker::from(Arc::new(Task { number, woken: Arc::clone(&woken) }));
    let wakers: Vec<Waker> = (0..tasks.len()).map(task).collect();
    let mut left = tasks.len();
    let mut now: Vec<usize> = (0..tasks.len()).collect();
    loop {
        for i in now {
            let Some(task) = &mut tasks[i] else { continue };
            if let Poll::Ready(output) = task.as_mut().poll(&mut Context::from_waker(&wakers[i])) {
                (outputs[i], tasks[i]) = (Some(output), None);
                left -= 1;
            }
        }
        if left == 0 {
            return outputs.into_iter().flatten().collect();
        }
        now = woken.wait();
    }
}

/// Polls a future once, waking nobody later.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A waker that counts how often it was called, and by its references how many of it there are.
#[derive(Default)]
pub struct Counted(AtomicUsize);

impl Counted {
    pub fn calls(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}
