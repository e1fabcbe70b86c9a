//! [`SharedQueue`]: a queue that any thread may use.
//!
//! A lock is held for each call, but not while a thread waits, and not while an operation is done by plain calls:
//! waiters take turns, one of them waits for the engine's completions without the lock, the others sleep until theirs
//! are there ([`waiting`]).
//!
//! What is submitted while the lock is held takes as long as the engine's submission takes.

mod waiting;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::waiting::{Waiting, Want};
use crate::engine::exec;
use crate::engine::{RawQueue, RawWaiter};
use crate::op::{Done, Op};
use crate::process::Process;
use crate::{Error, Result};

/// How long to sleep where nothing rings: a buffer that comes back to a pool does not.
const NAP: Duration = Duration::from_millis(2);

/// A queue of operations in flight that all threads may use at once; made by [`crate::Io::shared_queue`].
///
/// Completions go to whoever takes them: [`SharedQueue::pop`] gives any, [`SharedQueue::take`] waits for a certain
/// one. Dropping the queue waits for what is in flight, like dropping a [`crate::Queue`].
///
/// In a child after fork() it takes no operations, and every wait is an error that says so.
pub struct SharedQueue {
    state: Mutex<State>,
    /// Without one the engine waits with the lock held.
    waiter: Option<Arc<dyn RawWaiter>>,
    depth: usize,
    /// [`SharedQueue::wake`] was called since the last wait that it ends.
    woken: AtomicBool,
    /// In a child of it after fork() the lock may be held for good, so it is not taken there.
    process: Process,
    /// How often the lock was asked for.
    #[cfg(test)]
    locks: std::sync::atomic::AtomicU64,
}

type Guard<'a> = MutexGuard<'a, State>;

struct State {
    raw: Box<dyn RawQueue + Send>,
    /// Completions that have been taken out of `raw`.
    ready: VecDeque<Done>,
    /// The tags of the operations that threads do by plain calls now, without the lock.
    out: Vec<u64>,
    waiting: Waiting,
    /// The queue failed as a whole; everything has been answered but what is `out`.
    broken: Option<Error>,
}

impl State {
    fn in_flight(&self) -> usize {
        // A broken queue's operations were answered, whatever it still holds for the kernel's sake.
        let held = if self.broken.is_none() { self.raw.in_flight() } else { self.out.len() };
        held + self.ready.len()
    }

    /// An operation to be done by plain calls, without the lock.
    fn plain(&mut self) -> Option<(u32, Op)> {
        self.raw.lends()?.plain()
    }

    fn has_plain(&mut self) -> bool {
        self.raw.lends().is_some_and(|lender| lender.has_plain())
    }

    fn has(&self, user: u64) -> bool {
        self.ready.iter().any(|done| done.user == user)
    }
}

impl SharedQueue {
    pub(crate) fn new(raw: Box<dyn RawQueue + Send>, depth: u32) -> SharedQueue {
        let depth = (depth.max(1) as usize).min(raw.depth());
        let waiter = raw.waiter();
        let (ready, out, waiting) = (VecDeque::new(), Vec::new(), Waiting::default());
        SharedQueue {
            state: Mutex::new(State { raw, ready, out, waiting, broken: None }),
            waiter,
            depth,
            woken: AtomicBool::new(false),
            process: Process::this(),
            #[cfg(test)]
            locks: Default::default(),
        }
    }

    fn lock(&self) -> Guard<'_> {
        #[cfg(test)]
        self.locks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // An engine that panicked has left its queue as it was between two calls, or it is a defect anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, s: &State) {
        if let (Some(_), Some(w)) = (s.waiting.looking, &self.waiter) {
            w.wake();
        }
    }

    /// Takes everything out that is there, and wakes those who wait for it; says whether there was anything.
    fn collect(&self, s: &mut State) -> bool {
        let before = s.ready.len();
        if s.broken.is_none() {
            s.ready.extend(std::iter::from_fn(|| s.raw.pop()));
        }
        self.tell(s, before);
        s.ready.len() > before
    }

    /// Wakes those whose wait is over now that there are completions from this place on.
    fn tell(&self, s: &mut State, from: usize) {
        let (ready, in_flight) = (s.ready.len(), s.in_flight());
        if ready == from {
            return;
        }
        let new = s.ready.range(from..);
        let over = s.waiting.over(|want| match want {
            Want::Tag(user) => new.clone().any(|done| done.user == user),
            Want::Count(min) => ready >= min.min(in_flight),
        });
        if over {
            self.ring(s);
        }
    }

    fn fail(&self, s: &mut State, e: Error) -> Error {
        if s.broken.is_none() {
            while let Some((_, op)) = s.plain() {
                s.ready.push_back(Done { user: op.user, result: Err(e.clone()), buf: op.buf });
            }
            s.ready.extend(s.raw.fail_all(&e));
            s.broken = Some(e.clone());
            s.waiting.over(|_| true);
            self.ring(s);
        }
        e
    }

    /// Does an operation that the engine cannot take, without the lock.
    fn perform<'a>(&'a self, mut s: Guard<'a>, (slot, mut op): (u32, Op)) -> Guard<'a> {
        let user = op.user;
        s.out.push(user);
        drop(s);
        let result = exec::perform_alone(&mut op);
        let mut s = self.lock();
        if let Some(i) = s.out.iter().position(|out| *out == user) {
            s.out.swap_remove(i);
        }
        if s.broken.is_none() {
            if let Some(lender) = s.raw.lends() {
                lender.bring_back(slot, op, result);
            }
        } else {
            s.ready.push_back(Done { user, result, buf: op.buf });
            let last = s.ready.len() - 1;
            self.tell(&mut s, last);
        }
        s
    }

    /// Starts what can be started, does what has to be done by plain calls, and takes out what is done; at once again
    /// when `own` is there, which must not wait for what others want done.
    fn step<'a>(&'a self, mut s: Guard<'a>, own: Option<u64>) -> (Guard<'a>, Result<()>) {
        loop {
            if let Some(e) = s.broken.clone() {
                return (s, Err(e));
            }
            if let Err(e) = s.raw.submit() {
                let e = self.fail(&mut s, e);
                return (s, Err(e));
            }
            let any = self.collect(&mut s);
            if own.is_some_and(|user| s.has(user)) {
                return (s, Ok(()));
            }
            match s.plain() {
                Some(lent) => s = self.perform(s, lent),
                None if !any => return (s, Ok(())),
                // What came back may let a chain go on.
                None => {}
            }
        }
    }

    /// Before a thread goes that has waited, or has left something to be done by plain calls.
    fn leave(&self, s: &mut State) {
        if s.has_plain() {
            self.ring(s);
        }
        s.waiting.pass_on();
    }

    /// Sleeps until somebody ends it.
    fn sleep<'a>(&'a self, mut s: Guard<'a>, want: Want, most: Option<Duration>) -> Guard<'a> {
        let (id, call) = s.waiting.sleeps(want);
        loop {
            s = match most {
                Some(most) => call.wait_timeout(s, most).unwrap_or_else(PoisonError::into_inner).0,
                None => call.wait(s).unwrap_or_else(PoisonError::into_inner),
            };
            if s.waiting.wakes(id, &call, most.is_some()) {
                return s;
            }
        }
    }

    /// Waits until something has happened.
    fn block<'a>(&'a self, mut s: Guard<'a>, want: Want) -> Result<Guard<'a>> {
        if s.raw.starving() {
            // What comes back to a pool rings no bell; and it may be another thread that takes a completion and
            // drops its buffer.
            return Ok(self.sleep(s, want, Some(NAP)));
        }
        let Some(waiter) = &self.waiter else {
            if !s.out.is_empty() {
                // It may be all that is in flight, and comes back only when the lock is free.
                return Ok(self.sleep(s, want, Some(NAP)));
            }
            return match s.raw.wait(1) {
                Ok(()) => Ok(s),
                Err(e) => Err(self.fail(&mut s, e)),
            };
        };
        if s.waiting.looking.is_some() || s.broken.is_some() {
            return Ok(self.sleep(s, want, None));
        }
        s.waiting.looking = Some(want);
        drop(s);
        let waited = waiter.wait();
        let mut s = self.lock();
        s.waiting.looking = None;
        match waited {
            Ok(()) => Ok(s),
            Err(e) => Err(self.fail(&mut s, e)),
        }
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
        if !self.process.is_this() {
            return Err(op);
        }
        let mut s = self.lock();
        if s.in_flight() >= self.depth {
            return Err(op);
        }
        self.add(&mut s, op)
    }

    /// Adds an operation and starts it, with no other thread's call in between: [`SharedQueue::push`] and
    /// [`SharedQueue::submit`] in one. If the queue fails, that is the operation's result.
    #[allow(clippy::result_large_err)]
    pub fn start(&self, op: Op) -> std::result::Result<(), Op> {
        if !self.process.is_this() {
            return Err(op);
        }
        let (mut s, user) = (self.lock(), op.user);
        if s.in_flight() >= self.depth {
            return Err(op);
        }
        self.add(&mut s, op)?;
        self.go(s, user);
        Ok(())
    }

    fn go(&self, s: Guard<'_>, user: u64) {
        // A failure has answered everything, these too.
        let (mut s, _) = self.step(s, Some(user));
        self.leave(&mut s);
    }

    /// Adds all of these operations, chained as they say, with nothing of other threads in between; or gives them
    /// back when there is no room for all of them (more than [`SharedQueue::depth`] never have room).
    pub fn push_all(&self, ops: Vec<Op>) -> std::result::Result<(), Vec<Op>> {
        if !self.process.is_this() {
            return Err(ops);
        }
        self.add_all(&mut self.lock(), ops)
    }

    /// [`SharedQueue::push_all`] and [`SharedQueue::submit`] in one, as [`SharedQueue::start`].
    pub fn start_all(&self, ops: Vec<Op>) -> std::result::Result<(), Vec<Op>> {
        if !self.process.is_this() {
            return Err(ops);
        }
        let mut s = self.lock();
        let Some(user) = ops.last().map(|op| op.user) else { return Ok(()) };
        self.add_all(&mut s, ops)?;
        self.go(s, user);
        Ok(())
    }

    fn add_all(&self, s: &mut State, ops: Vec<Op>) -> std::result::Result<(), Vec<Op>> {
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
                let _ = self.add(s, op);
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
        self.process.check()?;
        let (mut s, result) = self.step(self.lock(), None);
        self.leave(&mut s);
        result
    }

    /// Submits, then waits until at least `min` completions can be taken, or fewer if fewer are in flight. Other
    /// threads may take them first; and what they take does not count.
    pub fn wait(&self, min: usize) -> Result<()> {
        self.process.check()?;
        let mut s = self.lock();
        loop {
            let stepped;
            (s, stepped) = self.step(s, None);
            if stepped.is_err() || s.ready.len() >= min.min(s.in_flight()) {
                self.leave(&mut s);
                return stepped;
            }
            s = match self.block(s, Want::Count(min)) {
                Ok(s) => s,
                // It comes out again above.
                Err(_) => self.lock(),
            };
        }
    }

    /// Submits, then waits until there is a completion to take, [`SharedQueue::wake`] is called, or it has taken so
    /// long; it may return sooner. With nothing in flight it waits for the other two. For a queue of which one thread
    /// takes the completions.
    ///
    /// A polled ring and the simulated disk cannot be waited for beside the queue: there it waits for a completion, if
    /// one is in flight, and for nothing otherwise.
    pub fn wait_or_wake(&self, most: Option<Duration>) -> Result<()> {
        self.process.check()?;
        let (mut s, stepped) = self.step(self.lock(), None);
        if stepped.is_err() || !s.ready.is_empty() || self.woken.swap(false, SeqCst) {
            self.leave(&mut s);
            return stepped;
        }
        let waited = match &self.waiter {
            None if s.raw.in_flight() > 0 => s.raw.wait(1),
            None => Ok(()),
            Some(_) if s.waiting.looking.is_some() => {
                // Another thread waits as well, whom a wake may have ended instead.
                s = self.sleep(s, Want::Count(1), Some(most.map_or(NAP, |most| most.min(NAP))));
                Ok(())
            }
            Some(waiter) => {
                // What comes back to a pool rings no bell.
                let nap = s.raw.starving().then_some(NAP);
                s.waiting.looking = Some(Want::Count(1));
                drop(s);
                let waited = waiter.wait_at_most(nap.into_iter().chain(most).min());
                s = self.lock();
                s.waiting.looking = None;
                waited
            }
        };
        self.woken.store(false, SeqCst);
        let waited = waited.map_err(|e| self.fail(&mut s, e));
        let (mut s, stepped) = self.step(s, None);
        self.leave(&mut s);
        waited.and(stepped)
    }

    /// Ends the [`SharedQueue::wait_or_wake`] that goes on, or the next. Takes no lock.
    pub fn wake(&self) {
        if !self.process.is_this() {
            return;
        }
        self.woken.store(true, SeqCst);
        if let Some(waiter) = &self.waiter {
            waiter.wake();
        }
    }

    /// A descriptor that is readable when there may be completions to take, for epoll and the like. It stays so until
    /// [`SharedQueue::wait_or_wake`] has looked. An error where the queue cannot be waited for beside it.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.process.check()?;
        match &self.waiter {
            Some(waiter) => waiter.fd(),
            None => {
                let why = "completions of this engine show at no descriptor";
                Err(Error::new(crate::ErrorKind::Unsupported, "queue", why))
            }
        }
    }

    /// Takes a completion, without waiting.
    pub fn pop(&self) -> Option<Done> {
        if !self.process.is_this() {
            return None;
        }
        let mut s = self.lock();
        while s.ready.is_empty() && !self.collect(&mut s) {
            let Some(lent) = s.plain() else { break };
            s = self.perform(s, lent);
        }
        let done = s.ready.pop_front();
        self.leave(&mut s);
        done
    }

    /// Submits, then waits for an operation with this tag and takes its completion; `None` if there is none in flight
    /// (another thread took it). Nobody else's completion is touched.
    pub fn take(&self, user: u64) -> Result<Option<Done>> {
        self.process.check()?;
        let mut s = self.lock();
        loop {
            let stepped;
            (s, stepped) = self.step(s, Some(user));
            if let Some(i) = s.ready.iter().position(|done| done.user == user) {
                let done = s.ready.remove(i);
                self.leave(&mut s);
                return Ok(done);
            }
            let gone = match stepped {
                // What a thread is doing is not answered yet.
                Err(e) if !s.out.contains(&user) => Some(Err(e)),
                Ok(()) if !s.raw.holds(user) => Some(Ok(None)),
                _ => None,
            };
            if let Some(gone) = gone {
                self.leave(&mut s);
                return gone;
            }
            s = match self.block(s, Want::Tag(user)) {
                Ok(s) => s,
                // It was answered with all the others.
                Err(_) => self.lock(),
            };
        }
    }

    /// Operations pushed whose completion has not been taken.
    pub fn in_flight(&self) -> usize {
        if self.process.is_this() { self.lock().in_flight() } else { 0 }
    }

    /// Why the queue failed as a whole, if it did: every operation was answered with this, and the memory of those
    /// that came back without their buffer may still be used by the kernel.
    pub fn failure(&self) -> Option<Error> {
        match self.process.check() {
            Ok(()) => self.lock().broken.clone(),
            Err(inherited) => Some(inherited),
        }
    }

    /// Takes operations back, as [`crate::Queue::cancel`] does, whichever thread pushed them.
    pub fn cancel(&self, user: u64) -> Result<usize> {
        self.process.check()?;
        let mut s = self.lock();
        if let Some(e) = &s.broken {
            return Err(e.clone());
        }
        let found = s.raw.cancel(user).map_err(|e| self.fail(&mut s, e));
        self.collect(&mut s);
        self.leave(&mut s);
        found
    }
}

#[cfg(test)]
mod tests;
