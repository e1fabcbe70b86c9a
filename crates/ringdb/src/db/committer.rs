//! [`Committer`]: one thread that commits what futures write.
//!
//! It is started with the first write that has to wait, and ended when the store is closed; with nothing to do it
//! sleeps.
//! Batches are committed in the order in which they came. What came while the thread was at work shares frames, up to
//! the bytes of a group: so thousands of tasks that wait for the device share its writes. Backpressure holds up this
//! thread and no executor's.
//!
//! Whoever sent something learns how it ends in any case, at the latest from the end of the thread.

use std::sync::Arc;

use super::inbox::{self, Inbox, Serving};
use super::reactor::{Question, tell};
use super::write::WriteSide;
use crate::commit::GROUP_BYTES;
use crate::mutation::{Mutation, broken};
use crate::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};
use crate::sync::{Condvar, Mutex, lock, wait};
use crate::{Durability, Env, Result};

/// What is to be done.
pub(super) enum Order {
    /// Commit a payload of so many operations, not none.
    Write { payload: Vec<u8>, count: u32, durability: Durability },
    /// Make everything durable that was committed before.
    Sync,
}

/// See the module.
#[derive(Default)]
pub(super) struct Committer {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    inbox: Mutex<Inbox<(Order, Question)>>,
    sent: Condvar,
    /// Orders that came and are not answered.
    open: AtomicUsize,
}

impl Committer {
    /// Whether nothing is on its way: a write that is committed at once has overtaken none.
    pub fn is_idle(&self) -> bool {
        self.shared.open.load(Acquire) == 0
    }

    /// Takes an order, which will be answered. After an error it is not carried out.
    pub fn send(
        &self,
        env: &Arc<dyn Env>,
        store: &Arc<WriteSide>,
        order: Order,
        asker: Question,
    ) -> Result<()> {
        let mut inbox = lock(&self.shared.inbox);
        inbox.start(&**env, "ringdb-commit", || {
            let (shared, store) = (Arc::clone(&self.shared), Arc::clone(store));
            Box::new(move || shared.run(&store))
        })?;
        self.shared.open.fetch_add(1, Release);
        inbox.new.push((order, asker));
        self.shared.sent.notify_one();
        Ok(())
    }

    /// Takes no more orders; whoever waits gets [`crate::Error::Closed`], unless the thread is at it already.
    pub fn begin_close(&self) {
        let mut inbox = lock(&self.shared.inbox);
        inbox.closed = true;
        let left = std::mem::take(&mut inbox.new);
        self.shared.sent.notify_one();
        drop(inbox);
        // Which answers them.
        drop(left);
    }

    /// Waits for the end of the thread; not if this is it (a waker closes the store).
    pub fn end_close(&self) {
        inbox::join(&self.shared.inbox);
    }
}

impl Shared {
    fn run(&self, store: &WriteSide) {
        let _serving = Serving::new(&self.inbox);
        while let Some(orders) = self.receive() {
            self.carry_out(store, orders);
        }
    }

    /// Waits for orders; `None` when it is closed.
    fn receive(&self) -> Option<Vec<(Order, Question)>> {
        let mut inbox = lock(&self.inbox);
        while inbox.new.is_empty() && !inbox.closed {
            inbox = wait(&self.sent, inbox, &self.inbox);
        }
        (!inbox.closed).then(|| std::mem::take(&mut inbox.new))
    }

    /// Carries out orders in their order; syncs, once, when all writes are done.
    fn carry_out(&self, store: &WriteSide, orders: Vec<(Order, Question)>) {
        let (mut group, mut syncs) = (Group::default(), Vec::new());
        for (order, asker) in orders {
            match order {
                _ if asker.is_gone() => self.answer(vec![asker], &Ok(())),
                Order::Sync => syncs.push(asker),
                Order::Write { payload, count, durability } => {
                    if !group.has_room(payload.len()) {
                        self.commit(store, std::mem::take(&mut group));
                    }
                    group.add(payload, count, durability, asker);
                }
            }
        }
        self.commit(store, group);
        if !syncs.is_empty() {
            let result = store.sync();
            self.answer(syncs, &result);
        }
    }

    fn commit(&self, store: &WriteSide, group: Group) {
        let Some(mut durability) = group.durability else { return };
        if broken(Mutation::ResolveBeforeSync) {
            durability = durability.min(Durability::Process);
        }
        let batches = group.askers.len() as u64;
        let result = store.commit_several(&group.payload, group.count, batches, durability);
        self.answer(group.askers, &result);
    }

    fn answer(&self, askers: Vec<Question>, result: &Result<()>) {
        // Before anybody is woken: what a task does next may be done at once.
        self.open.fetch_sub(askers.len(), Release);
        for asker in askers {
            tell(asker, result.clone().map(|()| None));
        }
    }
}

/// Batches that share a frame.
#[derive(Default)]
struct Group {
    payload: Vec<u8>,
    count: u32,
    /// The strongest that one of them asks for; `None` of an empty group.
    durability: Option<Durability>,
    askers: Vec<Question>,
}

impl Group {
    fn has_room(&self, bytes: usize) -> bool {
        self.askers.is_empty() || (self.payload.len() + bytes) as u64 <= GROUP_BYTES
    }

    fn add(&mut self, payload: Vec<u8>, count: u32, durability: Durability, asker: Question) {
        if self.askers.is_empty() {
            self.payload = payload;
        } else {
            self.payload.extend_from_slice(&payload);
        }
        self.count += count;
        self.durability = self.durability.max(Some(durability));
        self.askers.push(asker);
    }
}
