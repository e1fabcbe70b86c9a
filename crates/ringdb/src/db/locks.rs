//! [`Locks`]: which open transaction has locked which keys, and who waits for them.
//!
//! Only transactions that lock ask here. A key goes to those who wait in the order in which they came. A transaction
//! waits for one key at a time, so whether waiting would never end is found by going from owner to owner.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use crate::key::printable;
use crate::sync::{Condvar, Mutex, lock, wait_briefly};
use crate::{Error, Result};

/// How often those who wait look whether the store is still open.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// The locked keys of an open store.
#[derive(Default)]
pub(crate) struct Locks {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Default)]
struct State {
    /// By internal key.
    keys: BTreeMap<Vec<u8>, Locked>,
    /// What owners wait for.
    waits: BTreeMap<u64, Vec<u8>>,
    next_owner: u64,
}

struct Locked {
    owner: u64,
    /// Those who wait, in order.
    queue: VecDeque<u64>,
}

impl State {
    fn owns(&self, owner: u64, key: &[u8]) -> bool {
        self.keys.get(key).is_some_and(|k| k.owner == owner)
    }

    /// Whether `owner`, which waits, waits for one that waits for it.
    fn is_circle(&self, owner: u64) -> bool {
        let next = |o: u64| self.waits.get(&o).and_then(|key| self.keys.get(key)).map(|k| k.owner);
        let mut at = next(owner);
        // Another circle than its own is for those who are in it to find.
        for _ in 0..self.waits.len() {
            match at {
                Some(o) if o == owner => return true,
                Some(o) => at = next(o),
                None => return false,
            }
        }
        false
    }

    fn stop_waiting(&mut self, owner: u64) {
        let Some(key) = self.waits.remove(&owner) else { return };
        if let Some(k) = self.keys.get_mut(&key) {
            k.queue.retain(|o| *o != owner);
        }
    }

    /// Gives a key up, to the first who waits for it. Whether there was one.
    fn release(&mut self, key: &[u8]) -> bool {
        let Some(k) = self.keys.get_mut(key) else { return false };
        let Some(next) = k.queue.pop_front() else {
            self.keys.remove(key);
            return false;
        };
        k.owner = next;
        self.waits.remove(&next);
        true
    }
}

impl Locks {
    fn new_owner(&self) -> u64 {
        let mut state = lock(&self.state);
        state.next_owner += 1;
        state.next_owner
    }

    /// Locks a key that the owner has not locked, as soon as nobody else has it.
    fn acquire(&self, core: &Core, owner: u64, key: &[u8], until: Duration) -> Result<()> {
        let mut state = lock(&self.state);
        match state.keys.get_mut(key) {
            None => {
                state.keys.insert(key.to_vec(), Locked { owner, queue: VecDeque::new() });
                return Ok(());
            }
            Some(k) => k.queue.push_back(owner),
        }
        state.waits.insert(owner, key.to_vec());
        let deadlock = state.is_circle(owner);
        loop {
            if state.owns(owner, key) {
                return Ok(());
            }
            let now = core.env.now();
            let stop = match core.check_open() {
                Ok(()) if deadlock || now >= until => Err(Error::KeyLocked { key: printable(key), deadlock }),
                open => open,
            };
            if stop.is_err() {
                state.stop_waiting(owner);
                return stop;
            }
            wait_briefly(&self.released, state, LOOK_AROUND.min(until.saturating_sub(now)));
            state = lock(&self.state);
        }
    }

    fn release<'k>(&self, keys: impl Iterator<Item = &'k Vec<u8>>) {
        let mut state = lock(&self.state);
        let mut waited = false;
        for key in keys {
            waited |= state.release(key);
        }
        drop(state);
        if waited {
            self.released.notify_all();
        }
    }
}

/// The keys that a transaction has locked; they are given up with it.
pub(super) struct HeldKeys {
    core: Arc<Core>,
    owner: u64,
    keys: BTreeSet<Vec<u8>>,
}

impl HeldKeys {
    pub fn new(core: &Arc<Core>) -> HeldKeys {
        HeldKeys { core: Arc::clone(core), owner: core.locks.new_owner(), keys: BTreeSet::new() }
    }

    /// Locks these internal keys too, or none of them; waits at most so long. Those that were not locked before.
    pub fn add(&mut self, keys: BTreeSet<Vec<u8>>, wait: Duration) -> Result<Vec<Vec<u8>>> {
        let until = self.core.env.now().saturating_add(wait);
        // In order: two who lock the same keys by one call each do not wait for each other.
        let new: Vec<Vec<u8>> = keys.difference(&self.keys).cloned().collect();
        for (i, key) in new.iter().enumerate() {
            if let Err(e) = self.core.locks.acquire(&self.core, self.owner, key, until) {
                self.core.locks.release(new[..i].iter());
                return Err(e);
            }
        }
        self.keys.extend(new.iter().cloned());
        Ok(new)
    }

    /// Gives up what [`HeldKeys::add`] has locked.
    pub fn give_up(&mut self, keys: &[Vec<u8>]) {
        keys.iter().for_each(|key| _ = self.keys.remove(key));
        self.core.locks.release(keys.iter());
    }
}

impl Drop for HeldKeys {
    fn drop(&mut self) {
        // In a child of the process the lock may be held by a thread that is not there.
        if !self.core.health.is_inherited() {
            self.core.locks.release(self.keys.iter());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(state: &mut State, owner: u64, key: &[u8]) {
        state.keys.get_mut(key).expect("locked").queue.push_back(owner);
        state.waits.insert(owner, key.to_vec());
    }

    #[test]
    fn a_circle_is_found_by_who_closes_it_and_keys_go_on_in_order() {
        let mut s = State::default();
        for (key, owner) in [(b"a", 1), (b"b", 2), (b"c", 3)] {
            s.keys.insert(key.to_vec(), Locked { owner, queue: VecDeque::new() });
        }
        waiting(&mut s, 1, b"b");
        waiting(&mut s, 2, b"c");
        waiting(&mut s, 4, b"b");
        assert!(!s.is_circle(1) && !s.is_circle(2) && !s.is_circle(4));
        waiting(&mut s, 3, b"a");
        assert!(s.is_circle(1) && s.is_circle(2) && s.is_circle(3));
        assert!(!s.is_circle(4), "it waits for them, but they do not wait for it");
        s.stop_waiting(3);
        assert!(!s.is_circle(1));
        assert!(s.release(b"b"));
        assert!(s.owns(1, b"b") && !s.waits.contains_key(&1));
        assert!(s.release(b"b") && s.owns(4, b"b"));
        assert!(!s.release(b"b") && !s.keys.contains_key(&b"b"[..]));
        assert!(!s.release(b"b"));
    }
}
