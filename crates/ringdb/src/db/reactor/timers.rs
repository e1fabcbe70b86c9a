//! [`Timers`]: tickets that end at a moment, answered or not.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::ticket::{Ticket, expire};

/// See the module. A ticket that was answered, or given up, before its moment goes with its future.
#[derive(Default)]
pub(super) struct Timers {
    /// By the moment, and a number of its own.
    due: BTreeMap<(Duration, u64), Weak<Ticket>>,
    next: u64,
    /// So many are looked through for those that have gone.
    sweep_at: usize,
}

impl Timers {
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    pub fn add(&mut self, at: Duration, ticket: &Arc<Ticket>) {
        if self.due.len() >= self.sweep_at {
            self.due.retain(|_, ticket| ticket.strong_count() > 0);
            self.sweep_at = (2 * self.due.len()).max(1024);
        }
        self.next += 1;
        self.due.insert((at, self.next), Arc::downgrade(ticket));
    }

    /// How long it is to the next moment.
    pub fn until_next(&self, now: Duration) -> Option<Duration> {
        self.due.first_key_value().map(|((at, _), _)| at.saturating_sub(now))
    }

    /// Ends those whose moment has come; says whether there was one that still waited. To be called without any lock.
    pub fn fire(&mut self, now: Duration) -> bool {
        let mut any = false;
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            any |= entry.remove().upgrade().is_some_and(|ticket| expire(&ticket));
        }
        any
    }
}
