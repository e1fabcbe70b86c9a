//! [`Reactor`]: one thread that reads blocks for all tasks that wait for some.
//!
//! It is started with the first miss and ended by [`Reactor::close`]; with nothing to do it sleeps. Lookups come in
//! through an inbox, which it empties whole: what came while it was at work is submitted together. A sender rings
//! only if it sleeps. It holds nothing of the store but what the lookups bring along.
//!
//! Whoever sent a lookup learns how it ends in any case, at the latest from the end of the thread, however that comes
//! about. Tasks are woken without a lock, and what a waker panics with goes no further.

mod fetches;
mod ticket;
mod timers;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use engineswap::{Io, SharedQueue};

pub(super) use fetches::{Asker, Counters, Fetches, Waiting};
pub(super) use ticket::{Answers, Question, Ticket, tell};

use ticket::tell_run;

use timers::Timers;

use super::inbox::{self, Inbox, Serving};
use crate::sync::{Condvar, Mutex, lock, wait, wait_briefly};
use crate::table::block_read::RunRead;
use crate::{Env, Error, Result, Stats};

/// Reads in flight at most: as many as a multi-get.
const WINDOW: usize = 256;

/// It looks at its timers at least so often.
const LONGEST: Duration = Duration::from_secs(3600);

/// What a future waits for.
#[allow(clippy::large_enum_variant)] // almost all are lookups: boxed, each would be an allocation more
pub(super) enum Sent {
    /// A lookup's answer.
    Lookup(Waiting<Question>),
    /// A read of blocks, for a scan.
    Run(RunRead, Question),
}

/// See the module.
pub(super) struct Reactor {
    shared: Arc<Shared>,
}

struct Shared {
    io: Io,
    env: Arc<dyn Env>,
    inbox: Mutex<Inbox<Sent, Waits>>,
    sent: Condvar,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Waits {
    /// Tickets, and when they end.
    timed: Vec<(Duration, Arc<Ticket>)>,
    sleep: Sleep,
}

/// How the thread is to be woken.
#[derive(Default)]
enum Sleep {
    /// It looks into the inbox before it sleeps.
    #[default]
    Awake,
    /// Nothing is in flight: it waits for `sent`.
    Idle,
    /// It waits for reads.
    Reading(Arc<SharedQueue>),
}

impl Reactor {
    /// Without a thread yet.
    pub fn new(io: &Io, env: &Arc<dyn Env>) -> Reactor {
        let (inbox, sent, counters) = (Mutex::default(), Condvar::new(), Arc::default());
        Reactor { shared: Arc::new(Shared { io: io.clone(), env: Arc::clone(env), inbox, sent, counters }) }
    }

    /// Takes lookups and reads, each of which will be answered, and a ticket that is to end at a moment. After an error
    /// none of them is looked for.
    pub fn send(
        &self,
        what: impl IntoIterator<Item = Sent>,
        timed: Option<(Duration, Arc<Ticket>)>,
    ) -> Result<()> {
        let mut inbox = lock(&self.shared.inbox);
        inbox.start(&*self.shared.env, "ringdb-reactor", || {
            let shared = Arc::clone(&self.shared);
            Box::new(move || shared.run())
        })?;
        inbox.new.extend(what);
        inbox.state.timed.extend(timed);
        self.shared.rouse(&mut inbox.state);
        Ok(())
    }

    /// Ends the thread; whoever waits gets [`Error::Closed`]. Reads in flight are waited for: their buffers are
    /// the kernel's until then. Called by a waker, on that thread itself, it does not wait.
    pub fn close(&self) {
        let mut inbox = lock(&self.shared.inbox);
        inbox.closed = true;
        self.shared.rouse(&mut inbox.state);
        drop(inbox);
        inbox::join(&self.shared.inbox);
    }

    /// Adds what it has read.
    pub fn add_stats(&self, s: &mut Stats) {
        let c = &self.shared.counters;
        s.async_reads = c.reads.load(Relaxed);
        s.async_joined = c.joined.load(Relaxed);
        s.async_submissions = c.submissions.load(Relaxed);
    }
}

impl Shared {
    fn rouse(&self, waits: &mut Waits) {
        match std::mem::replace(&mut waits.sleep, Sleep::Awake) {
            Sleep::Awake => {}
            Sleep::Idle => self.sent.notify_one(),
            Sleep::Reading(queue) => queue.wake(),
        }
    }

    fn run(&self) {
        let _serving = Serving::new(&self.inbox);
        let mut fetches = Fetches::new(&self.io, WINDOW, Arc::clone(&self.counters));
        let (mut new, mut timers) = (Vec::new(), Timers::default());
        while self.receive(&mut new, &mut fetches, &mut timers) {
            if !timers.is_empty() && timers.fire(self.env.now()) {
                fetches.cancel_unwanted();
            }
            new.drain(..).for_each(|sent| match sent {
                Sent::Lookup(lookup) => fetches.add(lookup),
                Sent::Run(read, question) => fetches.add_run(read, question),
            });
            fetches.start();
            fetches.reap();
            // What is needed next is on its way before anybody is told of what is there; unless it would be done here.
            if fetches.queue().is_some() {
                fetches.start();
            }
            tell_all(&mut fetches);
        }
        fetches.fail_all(&Error::Closed);
        tell_all(&mut fetches);
    }

    /// Waits for lookups, reads or a moment, and takes the lookups that are there; false when it is closed.
    fn receive(&self, new: &mut Vec<Sent>, fetches: &mut Fetches<Question>, timers: &mut Timers) -> bool {
        let mut inbox = lock(&self.inbox);
        loop {
            inbox.state.timed.drain(..).for_each(|(at, ticket)| timers.add(at, &ticket));
            if inbox.closed || !inbox.new.is_empty() || fetches.has_more() {
                inbox.state.sleep = Sleep::Awake;
                std::mem::swap(&mut inbox.new, new);
                return !inbox.closed;
            }
            let most = if timers.is_empty() {
                None
            } else {
                timers.until_next(self.env.now()).map(|d| d.min(LONGEST))
            };
            if most.is_some_and(|most| most.is_zero()) {
                inbox.state.sleep = Sleep::Awake;
                return true;
            }
            match (fetches.queue().filter(|_| fetches.in_flight() > 0), most) {
                (Some(queue), _) => {
                    inbox.state.sleep = Sleep::Reading(Arc::clone(queue));
                    drop(inbox);
                    fetches.wait(most);
                    lock(&self.inbox).state.sleep = Sleep::Awake;
                    return true;
                }
                (None, Some(most)) => {
                    inbox.state.sleep = Sleep::Idle;
                    wait_briefly(&self.sent, inbox, most);
                    inbox = lock(&self.inbox);
                }
                (None, None) => {
                    inbox.state.sleep = Sleep::Idle;
                    inbox = wait(&self.sent, inbox, &self.inbox);
                }
            }
        }
    }
}

/// Gives everybody the answers that are there.
fn tell_all(fetches: &mut Fetches<Question>) {
    fetches.take_finished().into_iter().for_each(|(question, answer)| tell(question, answer));
    fetches.take_finished_runs().into_iter().for_each(|(question, done)| tell_run(question, done));
}

#[cfg(test)]
mod tests;
