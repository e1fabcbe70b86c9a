//! Writers that share a frame, and how each learns what becomes of it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Write;
use crate::Result;
use crate::sync::{Condvar, Mutex, lock, wait};

/// A waiting group takes no more writers beyond this many bytes.
pub(crate) const GROUP_BYTES: u64 = 1 << 20;

/// Writes that go to the log as one frame.
pub(super) struct Group {
    pub payload: Vec<u8>,
    /// Operations.
    pub count: u32,
    pub batches: u64,
    /// Takes no other writers: whether it is committed is not known yet.
    alone: bool,
    pub members: Vec<Arc<Waiter>>,
}

impl Group {
    /// Has its first member lead it.
    pub fn lead(self) {
        let leader = self.members[0].clone();
        leader.tell(Signal::Lead(self));
    }
}

/// Adds a write to the youngest waiting group, or to a new one if that is full, or if the write is to be alone.
pub(super) fn join(waiting: &mut VecDeque<Group>, write: &Write<'_>, alone: bool) -> Arc<Waiter> {
    let me = Arc::new(Waiter::default());
    let youngest = waiting.back_mut().filter(|g| !g.alone && !alone);
    match youngest.filter(|g| g.payload.len() as u64 + write.bytes() <= GROUP_BYTES) {
        Some(g) => {
            write.append_to(&mut g.payload);
            g.count += write.count;
            g.batches += write.batches;
            g.members.push(me.clone());
        }
        None => {
            let mut payload = Vec::new();
            write.append_to(&mut payload);
            let (count, batches) = (write.count, write.batches);
            waiting.push_back(Group { payload, count, batches, alone, members: vec![me.clone()] });
        }
    }
    me
}

/// What a waiting writer is told, once.
pub(super) enum Signal {
    /// To lead its group, in the slot of the leader that says so.
    Lead(Group),
    /// How its group fared.
    Done(Result<()>),
}

/// A writer in a waiting group.
#[derive(Default)]
pub(super) struct Waiter {
    signal: Mutex<Option<Signal>>,
    told: Condvar,
}

impl Waiter {
    pub fn tell(&self, signal: Signal) {
        *lock(&self.signal) = Some(signal);
        self.told.notify_one();
    }

    /// Blocks until it is told.
    pub fn wait(&self) -> Signal {
        let mut signal = lock(&self.signal);
        loop {
            match signal.take() {
                Some(s) => return s,
                None => signal = wait(&self.told, signal, &self.signal),
            }
        }
    }
}
