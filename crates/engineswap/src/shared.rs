//! [`SharedQueue`]: a queue that any thread may use.
//!
//! A lock is held for each call, but not while a thread waits: waiters take turns, one of them waits for the engine's
//! completions without the lock, the others for its news. Whoever changes what a waiter waits for wakes it.
//!
//! What is submitted while the lock is held takes as long as the engine's submission takes; on libaio that is the
//! whole of a buffered transfer.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::engine::{RawQueue, RawWaiter};
use crate::op::{Done, Op};
use crate::{Error, Result};

/// A queue of operations in flight that all threads may use at once; made by [`crate::Io::shared_queue`].
///
/// Completions go to whoever takes them: [`SharedQueue::pop`] gives any, [`SharedQueue::take`] waits for a certain
/// one. Dropping the queue waits for what is in flight, like dropping a [`crate::Queue`].
pub struct SharedQueue {
    state: Mutex<State>,
    turn: Condvar,
    /// Without one the engine waits with the lock held.
    waiter: Option<Arc<dyn RawWaiter>>,
    depth: usize,
}

struct State {
    raw: Box<dyn RawQueue + Send>,
    /// Completions that have been taken out of `raw`.
    ready: VecDeque<Done>,
    /// A thread waits in the engine without the lock.
    looking: bool,
    /// Threads that wait for their turn.
    sleeping: usize,
    /// The queue failed as a whole; everything has been answered.
    broken: Option<Error>,
}

impl State {
    fn in_flight(&self) -> usize {
        // A broken queue's operations were answered, whatever it still holds for the kernel's sake.
        let held = if self.broken.is_none() { self.raw.in_flight() } else { 0 };
        held + self.ready.len()
    }

    /// Takes everything out that is there; says whether there was anything.
    fn collect(&mut self) -> bool {
        let before = self.ready.len();
        if self.broken.is_none() {
            self.ready.extend(std::iter::from_fn(|| self.raw.pop()));
        }
        self.ready.len() > before
    }

    fn fail(&mut self, e: Error) -> Error {
        if self.broken.is_none() {
            self.ready.extend(self.raw.fail_all(&e));
            self.broken = Some(e.clone());
        }
        e
    }
}

impl SharedQueue {
    pub(crate) fn new(raw: Box<dyn RawQueue + Send>, depth: u32) -> SharedQueue {
        let depth = (depth.max(1) as usize).min(raw.depth());
        let waiter = raw.waiter();
        let state = State { raw, ready: VecDeque::new(), looking: false, sleeping: 0, broken: None };
        SharedQueue { state: Mutex::new(state), turn: Condvar::new(), waiter, depth }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // An engine that panicked has left its queue as it was between two calls, or it is a defect anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who wait that there is something to look at.
    fn news(&self, s: &State) {
        if s.sleeping > 0 {
            self.turn.notify_all();
        }
        if let (true, Some(w)) = (s.looking, &self.waiter) {
            w.wake();
        }
    }

    /// Starts what can be started, and takes out what is done.
    fn step(&self, s: &mut State) -> Result<()> {
        let mut any = false;
        let result = loop {
            if let Some(e) = &s.broken {
                break Err(e.clone());
            }
            if let Err(e) = s.raw.submit() {
                any = true;
                break Err(s.fail(e));
            }
            // What comes back may let a chain go on.
            match s.collect() {
                true => any = true,
                false => break Ok(()),
            }
        };
        if any {
            self.news(s);
        }
        result
    }

    /// Waits until something has happened.
    fn block<'a>(&'a self, mut s: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        if s.raw.starving() {
            // What comes back to a pool rings no bell; and it may be another thread that takes a completion and
            // drops its buffer.
            s.sleeping += 1;
            let waited = self.turn.wait_timeout(s, Duration::from_millis(2));
            s = waited.unwrap_or_else(PoisonError::into_inner).0;
            s.sleeping -= 1;
            return Ok(s);
        }
        let Some(waiter) = &self.waiter else {
            let waited = s.raw.wait(1).map_err(|e| s.fail(e));
            self.news(&s);
            return waited.map(|()| s);
        };
        if s.looking {
            s.sleeping += 1;
            s = self.turn.wait(s).unwrap_or_else(PoisonError::into_inner);
            s.sleeping -= 1;
            return Ok(s);
        }
        s.looking = true;
        drop(s);
        let waited = waiter.wait();
        let mut s = self.lock();
        s.looking = false;
        let waited = waited.map_err(|e| s.fail(e));
        // The turn is free, whether this thread needs it again or not.
        self.news(&s);
        waited.map(|()| s)
    }

    /// The most operations in flight.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Adds an operation; it starts at the next [`SharedQueue::submit`] or wait of any thread. Gives it back when the
    /// queue is full. It is a chain of its own, whatever [`Op::chain`] says: others may push at any time.
    // The operation comes back whole by design: its buffer is the caller's.
    #[allow(clippy::result_large_err)]
    pub fn push(&self, op: Op) -> std::result::Result<(), Op> {
        let mut s = self.lock();
        if s.in_flight() >= self.depth {
            return Err(op);
        }
        self.add(&mut s, op)
    }

    /// Adds all of these operations, chained as they say, with nothing of other threads in between; or gives them
    /// back when there is no room for all of them (more than [`SharedQueue::depth`] never have room).
    pub fn push_all(&self, ops: Vec<Op>) -> std::result::Result<(), Vec<Op>> {
        let mut s = self.lock();
        if s.in_flight().saturating_add(ops.len()) > self.depth {
            return Err(ops);
        }
        let mut ops = ops.into_iter();
        while let Some(op) = ops.next() {
            if s.broken.is_none() {
                if let Err(op) = s.raw.push(op) {
                    // Cannot be: it has at least the room that was just asked for.
                    s.raw.end_chain();
                    return Err(std::iter::once(op).chain(ops).collect());
                }
            } else {
                let _ = self.add(&mut s, op);
            }
        }
        s.raw.end_chain();
        Ok(())
    }

    #[allow(clippy::result_large_err)]
    fn add(&self, s: &mut State, op: Op) -> std::result::Result<(), Op> {
        if let Some(e) = &s.broken {
            let done = Done { user: op.user, result: Err(e.clone()), buf: op.buf };
            s.ready.push_back(done);
            return Ok(());
        }
        let pushed = s.raw.push(op);
        s.raw.end_chain();
        pushed
    }

    /// Starts what was pushed.
    pub fn submit(&self) -> Result<()> {
        self.step(&mut self.lock())
    }

    /// Submits, then waits until at least `min` completions can be taken, or fewer if fewer are in flight. Other
    /// threads may take them first; and what they take does not count.
    pub fn wait(&self, min: usize) -> Result<()> {
        let mut s = self.lock();
        loop {
            self.step(&mut s)?;
            if s.ready.len() >= min.min(s.in_flight()) {
                return Ok(());
            }
            s = self.block(s)?;
        }
    }

    /// Takes a completion, without waiting.
    pub fn pop(&self) -> Option<Done> {
        let mut s = self.lock();
        if s.ready.is_empty() && !s.collect() {
            return None;
        }
        let done = s.ready.pop_front();
        // Fewer are in flight than somebody may be waiting for.
        self.news(&s);
        done
    }

    /// Submits, then waits for an operation with this tag and takes its completion; `None` if there is none in flight
    /// (another thread took it). Nobody else's completion is touched.
    pub fn take(&self, user: u64) -> Result<Option<Done>> {
        let mut s = self.lock();
        loop {
            let stepped = self.step(&mut s);
            if let Some(i) = s.ready.iter().position(|done| done.user == user) {
                let done = s.ready.remove(i);
                self.news(&s);
                return Ok(done);
            }
            stepped?;
            if !s.raw.holds(user) {
                return Ok(None);
            }
            s = match self.block(s) {
                Ok(s) => s,
                // It was answered with all the others.
                Err(_) => self.lock(),
            };
        }
    }

    /// Operations pushed whose completion has not been taken.
    pub fn in_flight(&self) -> usize {
        self.lock().in_flight()
    }

    /// Why the queue failed as a whole, if it did: every operation was answered with this, and the memory of those
    /// that came back without their buffer may still be used by the kernel.
    pub fn failure(&self) -> Option<Error> {
        self.lock().broken.clone()
    }

    /// Takes operations back, as [`crate::Queue::cancel`] does, whichever thread pushed them.
    pub fn cancel(&self, user: u64) -> Result<usize> {
        let mut s = self.lock();
        if let Some(e) = &s.broken {
            return Err(e.clone());
        }
        let found = s.raw.cancel(user).map_err(|e| s.fail(e));
        s.collect();
        self.news(&s);
        found
    }
}

#[cfg(test)]
mod tests;
