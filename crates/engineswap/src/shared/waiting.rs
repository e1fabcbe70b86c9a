//! Who waits for a shared queue: at most one thread in the engine, the others asleep, each with what it waits for.
//!
//! A completion wakes those whose wait it ends, and nobody else. As long as somebody sleeps, somebody waits in the
//! engine, or is awake and sees to it when it leaves ([`Waiting::pass_on`]).

use std::sync::{Arc, Condvar};

/// What a thread waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Want {
    /// The completion of an operation with this tag.
    Tag(u64),
    /// So many completions that can be taken, or all that are in flight.
    Count(usize),
}

struct Sleeper {
    id: u64,
    want: Want,
    call: Arc<Condvar>,
}

#[derive(Default)]
pub(super) struct Waiting {
    /// What the thread wants that waits in the engine, without the lock.
    pub(super) looking: Option<Want>,
    sleepers: Vec<Sleeper>,
    /// Threads that were woken and have not run yet.
    coming: usize,
    next: u64,
    spare: Vec<Arc<Condvar>>,
    /// How often somebody was woken.
    #[cfg(test)]
    pub(super) woken: u64,
}

impl Waiting {
    /// Threads that sleep.
    #[cfg(test)]
    pub(super) fn asleep(&self) -> usize {
        self.sleepers.len()
    }

    /// The calling thread is going to sleep on this.
    pub(super) fn sleeps(&mut self, want: Want) -> (u64, Arc<Condvar>) {
        self.next += 1;
        let call = self.spare.pop().unwrap_or_default();
        self.sleepers.push(Sleeper { id: self.next, want, call: Arc::clone(&call) });
        (self.next, call)
    }

    /// Whether a thread that sleeps, or did, was woken; it is awake now if so, or if it is `tired` of it.
    pub(super) fn wakes(&mut self, id: u64, call: &Arc<Condvar>, tired: bool) -> bool {
        match self.sleepers.iter().position(|s| s.id == id) {
            None => self.coming -= 1,
            Some(i) if tired => drop(self.sleepers.remove(i)),
            Some(_) => return false,
        }
        self.spare.push(Arc::clone(call));
        true
    }

    fn wake(&mut self, i: usize) {
        let sleeper = self.sleepers.remove(i);
        self.coming += 1;
        #[cfg(test)]
        (self.woken += 1);
        sleeper.call.notify_one();
    }

    /// Wakes those whose wait is over, and says whether that of the one in the engine is.
    pub(super) fn over(&mut self, met: impl Fn(Want) -> bool) -> bool {
        let mut i = 0;
        while let Some(sleeper) = self.sleepers.get(i) {
            if met(sleeper.want) { self.wake(i) } else { i += 1 }
        }
        self.looking.is_some_and(met)
    }

    /// Wakes one to wait in the engine, if nobody does and nobody is on the way.
    pub(super) fn pass_on(&mut self) {
        if self.looking.is_none() && self.coming == 0 && !self.sleepers.is_empty() {
            self.wake(0);
        }
    }
}
