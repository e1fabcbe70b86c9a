//! Point reads as futures.
//!
//! The first poll looks in memory, as a blocking read does. What misses a block goes to the store's [`Reactor`], which
//! wakes the task when the answer is there. A future that is dropped is forgotten: a read that was begun for it fills
//! the cache.
//!
//! Futures know the core only, like iterators: they keep no store open.
//!
//! [`Reactor`]: super::reactor::Reactor

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::ask::Ask;
use super::get::Look;
use super::held::{Held, polled_again};
use super::lookup::Parked;
use super::multi_get::OfOne;
use super::reactor::{Answers, Question, Sent, Ticket, Waiting};
use super::view::View;
use crate::key::Seq;
use crate::{Result, Value};

impl Ask {
    /// Goes on with a lookup as far as the page cache reaches, where that is likely to reach.
    fn try_page_cache(&self, parked: &mut Parked) -> Result<Option<Option<Value>>> {
        let odds = &self.core.odds;
        let may_be_there = |parked: &Parked| {
            let (table, number) = parked.needed();
            table.may_be_read_now(number)
        };
        while may_be_there(parked) && odds.worth_a_try() {
            let read = parked.read_now(self.options.fill_cache);
            odds.tell(read.is_some());
            match read.transpose()? {
                Some(Some(value)) => return Ok(Some(value)),
                Some(None) => {}
                None => break,
            }
        }
        Ok(None)
    }

    /// Has the reactor finish lookups, whose answers belong to these places.
    fn send(
        &self,
        ticket: &Arc<Ticket>,
        ends: Option<Duration>,
        lookups: impl Iterator<Item = (usize, Parked)>,
    ) -> Result<()> {
        let fill_cache = self.options.fill_cache;
        let waiting = |(place, parked)| {
            Sent::Lookup(Waiting { parked, fill_cache, asker: Question::new(ticket, place) })
        };
        self.core.reactor.send(lookups.map(waiting), ends.map(|ends| (ends, Arc::clone(ticket))))
    }
}

/// A read of one key, by [`crate::Db::get_async`]. It does nothing until it is polled.
#[must_use = "futures do nothing unless polled"]
pub struct GetFuture {
    ask: Option<Ask>,
    key: Value,
    held: Option<Held>,
}

impl GetFuture {
    pub(super) fn new(ask: Ask, key: &[u8]) -> GetFuture {
        GetFuture { ask: Some(ask), key: Value::copy_from(key), held: None }
    }

    fn begin(&mut self, context: &Context<'_>) -> Poll<Result<Option<Value>>> {
        let Some(ask) = self.ask.take() else { return Poll::Ready(Err(polled_again())) };
        let seq = ask.seq();
        let views = ask.core.views_of(&ask.keyspace, seq)?;
        let mut parked = match views.look(&ask.keyspace.prefix, &self.key, seq)? {
            Look::Done(value) => return Poll::Ready(Ok(value)),
            Look::Parked(parked) => parked,
        };
        if let Some(value) = ask.try_page_cache(&mut parked)? {
            return Poll::Ready(Ok(value));
        }
        let ticket = Ticket::new(context.waker().clone(), 1, Answers::One(None));
        ask.send(&ticket, ask.core.ends(ask.options.deadline), std::iter::once((0, parked)))?;
        self.held = Some(Held::new(ticket, &ask.core));
        Poll::Pending
    }
}

impl Future for GetFuture {
    type Output = Result<Option<Value>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(held) = &self.held else { return self.begin(context) };
        let answers = std::task::ready!(held.poll(context));
        self.held = None;
        match answers? {
            Answers::One(value) => Poll::Ready(Ok(value)),
            Answers::Many(_) | Answers::Runs(_) => Poll::Ready(Err(polled_again())),
        }
    }
}

/// A read of many keys, by [`crate::Db::multi_get_async`]. It does nothing until it is polled.
#[must_use = "futures do nothing unless polled"]
pub struct MultiGetFuture {
    ask: Ask,
    keys: Vec<Value>,
    /// The state that all keys are read as of, from the first poll on.
    at: Option<(Arc<View>, Seq)>,
    /// When it has to be ready, known from the first poll on.
    ends: Option<Duration>,
    /// The answers of the keys up to here; those of the ones in work are with the ticket.
    answers: Vec<Option<Value>>,
    asked: usize,
    held: Option<Held>,
    done: bool,
}

impl MultiGetFuture {
    pub(super) fn new<K: AsRef<[u8]>>(ask: Ask, keys: &[K]) -> MultiGetFuture {
        let keys = keys.iter().map(|key| Value::copy_from(key.as_ref())).collect();
        MultiGetFuture {
            ask,
            keys,
            at: None,
            ends: None,
            answers: Vec::new(),
            asked: 0,
            held: None,
            done: false,
        }
    }

    /// Goes on to the next keys; false when there are none left. Never more at once than a blocking multi-get has.
    fn ask_more(&mut self, context: &Context<'_>) -> Result<bool> {
        let views = self.ask.core.views_of(&self.ask.keyspace, self.ask.seq())?;
        if self.at.is_none() {
            self.ends = self.ask.core.ends(self.ask.options.deadline);
        }
        let (view, seq) = self.at.get_or_insert_with(|| views.as_of(self.ask.seq()));
        while self.asked < self.keys.len() {
            let rest = &self.keys[self.asked..];
            let now = &rest[..rest.len().min(super::multi_get::WAITING)];
            let mut answers = Vec::new();
            answers.resize_with(now.len(), || None);
            let waiting =
                views.look_up_all(view, &OfOne(&self.ask.keyspace.prefix, now), *seq, &mut answers)?;
            self.asked += now.len();
            if waiting.is_empty() {
                self.answers.append(&mut answers);
                continue;
            }
            let ticket = Ticket::new(context.waker().clone(), waiting.len(), Answers::Many(answers));
            let parked = waiting.into_iter().map(|(i, lookup)| (i, Parked::new(view, lookup)));
            self.ask.send(&ticket, self.ends, parked)?;
            self.held = Some(Held::new(ticket, &self.ask.core));
            return Ok(true);
        }
        Ok(false)
    }

    fn go_on(&mut self, context: &Context<'_>) -> Poll<Result<Vec<Option<Value>>>> {
        loop {
            if let Some(held) = &self.held {
                let answers = std::task::ready!(held.poll(context));
                self.held = None;
                if let Answers::Many(mut answers) = answers? {
                    self.answers.append(&mut answers);
                }
            }
            if !self.ask_more(context)? {
                return Poll::Ready(Ok(std::mem::take(&mut self.answers)));
            }
        }
    }
}

impl Future for MultiGetFuture {
    type Output = Result<Vec<Option<Value>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.done {
            return Poll::Ready(Err(polled_again()));
        }
        let answers = std::task::ready!(self.go_on(context));
        (self.done, self.held) = (true, None);
        Poll::Ready(answers)
    }
}

#[cfg(test)]
mod tests;
