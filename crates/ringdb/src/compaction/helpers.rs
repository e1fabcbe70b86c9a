//! [`Helpers`]: parts of one job on several threads.

use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

use crate::sync::{Condvar, Mutex, lock, wait};

/// A job in numbered parts.
pub(crate) type Parts = Arc<dyn Fn(usize) + Send + Sync>;

/// Threads that may take over parts of a job.
pub(crate) trait Helpers {
    /// How many parts may run at once.
    fn threads(&self) -> usize;
    /// Calls `job` with 0 to `parts - 1`, each once, on the calling thread and on those that are free; returns when
    /// all calls have.
    fn share(&self, parts: usize, job: Parts);
}

/// A job in parts that are taken one by one.
pub(crate) struct Shared {
    /// Until all parts have ended.
    job: Mutex<Option<Parts>>,
    parts: usize,
    next: AtomicUsize,
    ended: Mutex<usize>,
    all_ended: Condvar,
}

impl Shared {
    pub fn new(parts: usize, job: Parts) -> Shared {
        let job = Mutex::new(Some(job));
        Shared { job, parts, next: AtomicUsize::new(0), ended: Mutex::new(0), all_ended: Condvar::new() }
    }

    /// Does one part, if one is left.
    pub fn do_one(&self) -> bool {
        let i = self.next.fetch_add(1, Relaxed);
        if i >= self.parts {
            return false;
        }
        // Counted even if the job panics, since the thread that waits must not wait for ever; and only when
        // this thread has let go of the job (locals are dropped in reverse order).
        let _ended = Ended(self);
        let job = lock(&self.job).clone();
        if let Some(job) = job {
            job(i);
        }
        true
    }

    /// Whether all parts were taken.
    pub fn is_taken(&self) -> bool {
        self.next.load(Relaxed) >= self.parts
    }

    /// Waits until all parts have ended; drops the job and what it holds. Only when all were taken.
    pub fn wait(&self) {
        let mut ended = lock(&self.ended);
        while *ended < self.parts {
            ended = wait(&self.all_ended, ended, &self.ended);
        }
        drop(ended);
        drop(lock(&self.job).take());
    }
}

struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        *lock(&self.0.ended) += 1;
        self.0.all_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_done_once_and_a_panic_ends_too() {
        let done = Arc::new(Mutex::new(vec![0; 40]));
        let seen = Arc::clone(&done);
        let shared = Arc::new(Shared::new(
            40,
            Arc::new(move |i| {
                lock(&seen)[i] += 1;
                assert!(i != 7, "one part panics");
            }),
        ));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let s = Arc::clone(&shared);
                std::thread::spawn(move || while s.do_one() {})
            })
            .collect();
        let panics = threads.into_iter().filter_map(|t| t.join().err()).count();
        while shared.do_one() {}
        shared.wait();
        assert_eq!(panics, 1);
        assert!(shared.is_taken());
        assert!(lock(&done).iter().all(|&n| n == 1));
    }
}
