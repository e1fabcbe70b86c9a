//! What all queues of the engines have in common.
//!
//! [`SlotQueue`] is what one engine's queue does with the slots of its [`SlotTable`]. [`Owned`] makes a [`RawQueue`] of
//! it that knows its process: in a child after fork() it does nothing but say so. Its ring, context or threads are the
//! parent's, and what is in flight ends there.

use std::sync::Arc;

use super::slots::SlotTable;
use super::{Lends, RawQueue, RawWaiter};
use crate::op::{Done, Op};
use crate::process::Process;
use crate::{Error, Result};

/// A queue whose operations lie in the slots of a [`SlotTable`]; see [`crate::Queue`] for the meaning of each call.
pub(crate) trait SlotQueue {
    fn slots(&self) -> &SlotTable;
    fn slots_mut(&mut self) -> &mut SlotTable;
    fn submit(&mut self) -> Result<()>;
    fn wait(&mut self, min: usize) -> Result<()>;
    fn pop(&mut self) -> Option<Done>;
    /// What has been handed out cannot be taken back, unless the engine has a way.
    fn cancel(&mut self, user: u64) -> Result<usize> {
        Ok(self.slots_mut().cancel(user).0)
    }
    /// See [`RawQueue::waiter`].
    fn waiter(&self) -> Option<Arc<dyn RawWaiter>> {
        None
    }
    /// See [`RawQueue::settle`]; `true` for queues that cannot break.
    fn settle(&mut self) -> bool {
        true
    }
    /// See [`RawQueue::fail_all`].
    fn fail_all(&mut self, e: &Error) -> Vec<Done> {
        self.slots_mut().fail_all(e)
    }
}

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

impl<Q: SlotQueue> RawQueue for Owned<Q> {
    fn push(&mut self, op: Op) -> std::result::Result<(), Op> {
        // As if there were no room; the wait for it says why.
        if self.process.is_this() { self.queue.slots_mut().push(op) } else { Err(op) }
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
        self.queue.slots().in_flight()
    }

    fn cancel(&mut self, user: u64) -> Result<usize> {
        self.process.check()?;
        self.queue.cancel(user)
    }

    fn starving(&self) -> bool {
        self.process.is_this() && self.queue.slots().starving()
    }

    fn end_chain(&mut self) {
        self.queue.slots_mut().end_chain();
    }

    fn depth(&self) -> usize {
        self.queue.slots().depth()
    }

    fn holds(&self, user: u64) -> bool {
        self.queue.slots().holds(user)
    }

    fn lends(&mut self) -> Option<&mut dyn Lends> {
        if self.process.is_this() { Some(self.queue.slots_mut()) } else { None }
    }

    fn waiter(&self) -> Option<Arc<dyn RawWaiter>> {
        self.queue.waiter()
    }

    fn fail_all(&mut self, e: &Error) -> Vec<Done> {
        self.queue.fail_all(e)
    }

    fn settle(&mut self) -> bool {
        self.queue.settle()
    }
}
