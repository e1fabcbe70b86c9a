//! Writes and syncs as futures.
//!
//! What a thread would not have to wait for, a first poll does at once: an unsynced write to a mapped log, with no
//! backpressure and nothing on its way that was written before. All else is the store's [`Committer`]'s.
//!
//! [`Committer`]: super::committer::Committer

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::batch::WriteBatch;
use super::committer::Order;
use super::core::Core;
use super::held::{Held, polled_again};
use super::reactor::{Answers, Question, Ticket};
use crate::{Durability, Result, WriteOptions};

/// A write, by [`crate::Db::write_async`], or a sync, by [`crate::Db::sync_async`]. It does nothing until it is polled.
#[must_use = "futures do nothing unless polled"]
pub struct WriteFuture {
    state: State,
}

enum State {
    New(Arc<Core>, WriteBatch, WriteOptions),
    Waiting(Held),
    Ready,
}

impl WriteFuture {
    /// Of a batch; an empty one that is to be durable is a sync.
    pub(super) fn new(core: &Arc<Core>, batch: WriteBatch, options: &WriteOptions) -> WriteFuture {
        WriteFuture { state: State::New(Arc::clone(core), batch, *options) }
    }

    fn begin(
        &mut self,
        core: &Arc<Core>,
        batch: WriteBatch,
        options: &WriteOptions,
        context: &Context<'_>,
    ) -> Poll<Result<()>> {
        let store = core.write_side()?;
        core.health.check_writable()?;
        batch.check(&core.keyspaces)?;
        let ops = core.stamped(&batch.ops, batch.expires)?;
        let durability = options.durability.unwrap_or(core.options.durability);
        let order = match (batch.is_empty(), durability) {
            (true, Durability::Sync) => Order::Sync,
            (true, _) => return Poll::Ready(Ok(())),
            _ => {
                if core.committer.is_idle()
                    && let Some(done) = store.commit_promptly(&ops, batch.count, durability)
                {
                    return Poll::Ready(done);
                }
                Order::Write { payload: ops.into_owned(), count: batch.count, durability }
            }
        };
        let ticket = Ticket::new(context.waker().clone(), 1, Answers::One(None));
        if let Some(ends) = core.ends(options.deadline) {
            core.reactor.send([], Some((ends, Arc::clone(&ticket))))?;
        }
        core.committer.send(&core.env, store, order, Question::new(&ticket, 0))?;
        self.state = State::Waiting(Held::new(ticket, core));
        Poll::Pending
    }
}

impl Future for WriteFuture {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match std::mem::replace(&mut self.state, State::Ready) {
            State::New(core, batch, options) => self.begin(&core, batch, &options, context),
            State::Waiting(held) => match held.poll(context) {
                Poll::Pending => {
                    self.state = State::Waiting(held);
                    Poll::Pending
                }
                Poll::Ready(answer) => Poll::Ready(answer.map(drop)),
            },
            State::Ready => Poll::Ready(Err(polled_again())),
        }
    }
}

#[cfg(test)]
mod tests;
