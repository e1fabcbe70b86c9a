//! A queue that knows its process: in a child after fork() it does nothing but say so. Its ring, context or threads are
//! the parent's, and what is in flight ends there.

use std::sync::Arc;

use super::{Lends, RawQueue, RawWaiter};
use crate::op::{Done, Op};
use crate::process::Process;
use crate::{Error, Result};

/// The queue `Q` and whose it is. What is dropped in a child is for `Q` itself to know.
pub(crate) struct Owned<Q> {
    queue: Q,
    process: Process,
}

impl<Q> Owned<Q> {
    pub(crate) fn new(queue: Q) -> Owned<Q> {
        Owned { queue, process: Process::this() }
    }
}

impl<Q: RawQueue> RawQueue for Owned<Q> {
    fn push(&mut self, op: Op) -> std::result::Result<(), Op> {
        // As if there were no room; the wait for it says why.
        if self.process.is_this() { self.queue.push(op) } else { Err(op) }
    }

    fn submit(&mut self) -> Result<()> {
        self.process.check()?;
        self.queue.submit()
    }

    fn wait(&mut self, min: usize) -> Result<()> {
        self.process.check()?;
        self.queue.wait(min)
    }

    fn pop(&mut self) -> Option<Done> {
        if self.process.is_this() { self.queue.pop() } else { None }
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    fn cancel(&mut self, user: u64) -> Result<usize> {
        self.process.check()?;
        self.queue.cancel(user)
    }

    fn starving(&self) -> bool {
        self.process.is_this() && self.queue.starving()
    }

    fn end_chain(&mut self) {
        self.queue.end_chain();
    }

    fn depth(&self) -> usize {
        self.queue.depth()
    }

    fn holds(&self, user: u64) -> bool {
        self.queue.holds(user)
    }

    fn lends(&mut self) -> Option<&mut dyn Lends> {
        if self.process.is_this() { self.queue.lends() } else { None }
    }

    fn waiter(&self) -> Option<Arc<dyn RawWaiter>> {
        self.queue.waiter()
    }

    fn fail_all(&mut self, e: &Error) -> Vec<Done> {
        self.queue.fail_all(e)
    }
}
