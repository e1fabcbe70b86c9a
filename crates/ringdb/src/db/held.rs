//! [`Held`]: a future's side of a ticket.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::core::Core;
use super::reactor::{Answers, Ticket};
use crate::{Error, Result};

/// A ticket that is given up with its future.
pub(super) struct Held {
    ticket: Arc<Ticket>,
    core: Arc<Core>,
}

impl Held {
    pub fn new(ticket: Arc<Ticket>, core: &Arc<Core>) -> Held {
        Held { ticket, core: Arc::clone(core) }
    }

    /// The answers, if all are there; else the task is woken when they are.
    pub fn poll(&self, context: &Context<'_>) -> Poll<Result<Answers>> {
        // Before any lock: in a child of the process nobody will answer.
        self.core.health.check_process()?;
        self.ticket.poll(context)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.core.health.is_inherited() {
            self.ticket.give_up();
        }
    }
}

/// What a future says that is polled after it was ready.
pub(super) fn polled_again() -> Error {
    Error::Invalid("the future was polled again after it was ready".into())
}
