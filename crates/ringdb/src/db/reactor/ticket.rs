//! [`Ticket`]: what a future and the reactor share: the answers, and whom to wake when they are there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use engineswap::Done;

use super::fetches::Asker;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::sync::{Mutex, lock};
use crate::{Error, Result, Value};

/// See the module. No waker is cloned, called or dropped under its lock: they run code of others.
pub(crate) struct Ticket {
    given_up: AtomicBool,
    state: Mutex<State>,
}

struct State {
    waker: Option<Waker>,
    /// Answers to come.
    missing: usize,
    answers: Answers,
    /// The first error: all that there is to tell then.
    error: Option<Error>,
}

/// The answers to one question or to several; each in its place.
pub(crate) enum Answers {
    One(Option<Value>),
    Many(Vec<Option<Value>>),
    /// Completions of reads, as they came.
    Runs(Vec<Option<Result<Done>>>),
}

impl Ticket {
    /// For so many answers, of which those that are known are in their places.
    pub fn new(waker: Waker, missing: usize, answers: Answers) -> Arc<Ticket> {
        let state = State { waker: Some(waker), missing, answers, error: None };
        Arc::new(Ticket { given_up: AtomicBool::new(false), state: Mutex::new(state) })
    }

    /// The answers, if all are there; else the task is woken when they are.
    pub fn poll(&self, context: &Context<'_>) -> Poll<Result<Answers>> {
        let mut waker = Some(context.waker().clone());
        let mut state = lock(&self.state);
        if let Some(e) = state.error.take() {
            return Poll::Ready(Err(e));
        }
        if state.missing > 0 {
            std::mem::swap(&mut state.waker, &mut waker);
            drop(state);
            return Poll::Pending;
        }
        Poll::Ready(Ok(std::mem::replace(&mut state.answers, Answers::One(None))))
    }

    /// Nobody wants the answers any more.
    pub fn give_up(&self) {
        self.given_up.store(true, Relaxed);
        let waker = lock(&self.state).waker.take();
        drop(waker);
    }

    /// Ends the wait, if it goes on; whom to wake.
    fn expire(&self) -> Option<Waker> {
        let mut state = lock(&self.state);
        if state.missing == 0 {
            return None;
        }
        self.given_up.store(true, Relaxed);
        (state.error, state.missing) = (Some(Error::TimedOut), 0);
        state.waker.take()
    }

    /// Takes an answer, put into its place; whom to wake, if that was the last.
    fn answer(&self, answer: Result<impl FnOnce(&mut Answers)>) -> Option<Waker> {
        let mut state = lock(&self.state);
        if state.missing == 0 {
            // The wait is over.
            return None;
        }
        match answer {
            Ok(put) => put(&mut state.answers),
            Err(e) => {
                // The rest need not be looked for. What is then let go of has errors of its own, which say less.
                self.given_up.store(true, Relaxed);
                state.error.get_or_insert(e);
                state.missing = 1;
            }
        }
        state.missing -= 1;
        if state.missing == 0 { state.waker.take() } else { None }
    }
}

/// A question: a ticket, and the place of the answer. It is answered in any case: if it is dropped, with
/// [`Error::Closed`].
pub(crate) struct Question {
    ticket: Option<Arc<Ticket>>,
    place: usize,
}

impl Question {
    pub fn new(ticket: &Arc<Ticket>, place: usize) -> Question {
        Question { ticket: Some(Arc::clone(ticket)), place }
    }

    fn end(mut self, answer: Result<impl FnOnce(&mut Answers)>) {
        if let Some(waker) = self.ticket.take().and_then(|ticket| ticket.answer(answer)) {
            wake(waker);
        }
    }

    /// Nobody wants the answer any more.
    pub fn is_gone(&self) -> bool {
        self.ticket.as_ref().is_none_or(|ticket| ticket.given_up.load(Relaxed))
    }
}

impl Asker for Question {
    fn is_gone(&self) -> bool {
        Question::is_gone(self)
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take()
            && let Some(waker) = ticket.answer(Err::<fn(&mut Answers), _>(Error::Closed))
        {
            wake(waker);
        }
    }
}

/// Answers a question, and wakes the task if all are answered that it asked. To be called without any lock.
pub(crate) fn tell(question: Question, answer: Result<Option<Value>>) {
    let place = question.place;
    question.end(answer.map(|value| {
        move |answers: &mut Answers| match answers {
            Answers::One(it) => *it = value,
            Answers::Many(all) => all[place] = value,
            Answers::Runs(_) => {}
        }
    }));
}

/// The same of a read. Whether it failed is a part of the answer.
pub(crate) fn tell_run(question: Question, done: Result<Done>) {
    let place = question.place;
    question.end(Ok(move |answers: &mut Answers| {
        if let Answers::Runs(all) = answers {
            all[place] = Some(done);
        }
    }));
}

/// The time of a ticket is over; false if it was answered or given up before. To be called without any lock.
pub(super) fn expire(ticket: &Ticket) -> bool {
    match ticket.expire() {
        Some(waker) => {
            wake(waker);
            true
        }
        None => false,
    }
}

/// A panic of the waker has been printed by the panic hook.
fn wake(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}
