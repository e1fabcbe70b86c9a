//! [`CommitQueue`]: gives every write its place in one order, its frame in the log, and shows it to readers.
//!
//! The queue reaches the store through [`CommitEnv`]: a log, a memtable, readers. A commit takes these steps:
//! a place in the order and in the log (under the lock), the log's device (without it), the memtable and the
//! readers (under it, in order). The last two are [`CommitQueue::publish`], for every write.
//!
//! *Copied frames.* The log takes a frame by a copy, so one short lock does all: number the writes, append,
//! publish. A durable write then waits for a sync, which it shares with others, without the lock.
//!
//! *Pipelined frames.* Each frame is written by a leader, durable on return, several at once. A writer that finds a
//! free slot leads: under the lock it numbers the writes and reserves the frame's place; without it, it writes
//! the frame and waits for its turn, which comes when every earlier frame is durable and published. Writers that find
//! no free slot join a waiting [`group`](Group), and the next leader to finish hands its slot to the group that has
//! waited longest.
//!
//! *Not logged* ([`Durability::None`]). The writes take numbers like all others and go straight to the memtable.
//! Memtables are flushed in order and whole, and a flush records the newest number that it holds: so replay
//! begins behind everything flushed, logged or not, and neither repeats nor skips a logged write.
//!
//! *With a claim* ([`CommitQueue::commit_checked`]): what a transaction has read must not have been written since. That
//! is judged under the lock at which the write takes its number, against what was written lately ([`Recent`]), frames
//! on their way included. Such a write shares no frame.
//!
//! *Tables that come whole* ([`CommitQueue::place`]) take one number when no other write is on its way.
//!
//! What waits in a group is a [`Waiter`]: a cell that is told once, to lead or how its group fared. A thread blocks on
//! it; anything else that can be woken could stand in its place.

#[cfg(test)]
mod claim_tests;
mod group;
mod place;
mod reads;
mod recent;
#[cfg(test)]
mod tests;
mod write;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::key::Seq;
use crate::log::LogPos;
use crate::mutation::{Mutation, broken};
use crate::sync::atomic::AtomicUsize;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
use crate::{Durability, Error, Result};

pub(crate) use group::GROUP_BYTES;
use group::{Group, Signal, Waiter};
pub(crate) use place::Place;
pub(crate) use reads::{Claim, ReadSet, Verdict};
use recent::Recent;
pub(crate) use write::{Single, Write, with_single};

/// What a [`CommitQueue`] needs of the store around it.
///
/// What takes a `Writer` is called under the queue's lock, one call at a time; the rest is called without it.
pub(crate) trait CommitEnv {
    /// The log's writer and the active memtable.
    type Writer;
    /// A frame that has its place in the log and is yet to be written.
    type Frame;
    /// The right to publish one frame: it and every frame before are durable, and all earlier turns are over. The next
    /// turn begins when this is dropped.
    type Turn<'a>
    where
        Self: 'a;

    /// Whether frames are written by leaders; they are copied under the lock otherwise. Always the same answer.
    fn pipelined(&self) -> bool;
    /// Fails when the store is closed or has stopped writing.
    fn check_writable(&self) -> Result<()>;
    /// An error of the log: given back if it has left everything as it was; any other stops the store.
    fn failed(&self, e: Error) -> Error;

    /// Appends a copied frame; where it ends.
    fn append(&self, w: &mut Self::Writer, first: Seq, parts: &[&[u8]]) -> Result<LogPos>;
    /// Waits until all frames up to here are durable.
    fn sync(&self, end: LogPos) -> Result<()>;
    /// Gives a frame its place. Places come in the order of the calls.
    fn reserve(&self, w: &mut Self::Writer, first: Seq, parts: &[&[u8]]) -> Result<Self::Frame>;
    /// Writes a frame durably and waits for its turn. Frames before one that fails have their turns, those behind it
    /// fail, and the store stops: their numbers are given out.
    fn write(&self, frame: Self::Frame) -> Result<Self::Turn<'_>>;

    /// The log's segment that the next frame goes to, or one before it.
    fn segment(&self, w: &Self::Writer) -> u64;
    /// Whether there is something in the active memtable.
    fn has_writes(&self, w: &Self::Writer) -> bool;
    /// Whether the next write is to go to a new memtable.
    fn is_full(&self, w: &Self::Writer) -> bool;
    /// Bytes that fill a memtable.
    fn memtable_limit(&self) -> u64;
    /// Begins another memtable. The former one holds everything up to `applied`; frames that are reserved and not yet
    /// applied go to the new one: the oldest of them lies in the segment `reserved` or behind it.
    fn switch_memtable(&self, w: &mut Self::Writer, reserved: Option<u64>, applied: Seq);
    /// Inserts into the active memtable.
    fn apply(&self, w: &mut Self::Writer, first: Seq, write: &Write<'_>);
    /// Calls `f` for each operation of a write, in their order: with its key, the key's hash, and the end of the range
    /// (empty: it is of one key).
    fn each_key(&self, write: &Write<'_>, f: impl FnMut(&[u8], u64, &[u8]));
    /// Lets readers see everything up to this number. Numbers rise from call to call.
    fn publish(&self, newest: Seq);
}

/// See the module.
pub(crate) struct CommitQueue<E: CommitEnv> {
    env: E,
    state: Mutex<State<E::Writer>>,
    /// The last leader has finished.
    idle: Condvar,
    /// A leader has finished, and somebody waits for what is published ([`CommitQueue::wait_applied`]).
    moved: Condvar,
    /// Frames on their way to the device at once.
    most_leaders: usize,
    /// How many are in [`CommitQueue::place`], where the queue's lock is held while the disk is waited for.
    placing: AtomicUsize,
}

/// Under the queue's lock.
struct State<W> {
    writer: W,
    next_seq: Seq,
    /// The newest number that is applied and published.
    applied: Seq,
    /// Where the newest copied frame ends.
    appended: LogPos,
    /// The newest number that was not logged and, for all that is known here, has not been flushed; 0: none.
    unlogged: Seq,
    /// Leaders at work, for each frame that is not applied yet the segment that it needs, and who waits to be led.
    leaders: usize,
    reserved: VecDeque<u64>,
    waiting: VecDeque<Group>,
    counts: Counts,
    recent: Recent,
    /// Who waits for `moved`.
    watchers: usize,
    /// Who waits until no frame is on its way, to go alone ([`CommitQueue::place`]): no leader begins meanwhile.
    alone: usize,
}

/// What has been committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Frames of the log.
    pub groups: u64,
    pub batches: u64,
}

/// What becomes of a commit at first.
enum Begun {
    Done(Result<Verdict>),
    Waits(Arc<Waiter>),
}

impl<W> State<W> {
    /// Why a write with this claim is not committed, if so.
    #[inline]
    fn refuses(&self, claim: Option<&Claim<'_>>) -> Option<Verdict> {
        claim.map(|claim| self.recent.judge(claim)).filter(|verdict| *verdict != Verdict::Committed)
    }
}

impl<E: CommitEnv> CommitQueue<E> {
    /// A queue whose first write has the number after `last_seq`.
    pub fn new(env: E, writer: E::Writer, last_seq: Seq, most_leaders: usize) -> Self {
        let state = Mutex::new(State {
            writer,
            next_seq: last_seq + 1,
            applied: last_seq,
            appended: LogPos::default(),
            unlogged: 0,
            leaders: 0,
            reserved: VecDeque::new(),
            waiting: VecDeque::new(),
            counts: Counts::default(),
            recent: Recent::default(),
            watchers: 0,
            alone: 0,
        });
        CommitQueue {
            env,
            state,
            idle: Condvar::new(),
            moved: Condvar::new(),
            most_leaders,
            placing: AtomicUsize::new(0),
        }
    }

    /// Commits a write: readers see it when this returns, and it is as durable as it is to be.
    #[inline]
    pub fn commit(&self, write: &Write<'_>, durability: Durability) -> Result<()> {
        self.commit_if(write, durability, None).map(|_| ())
    }

    /// Commits a write of an open transaction if its claim holds.
    pub fn commit_checked(
        &self,
        write: &Write<'_>,
        durability: Durability,
        claim: &Claim<'_>,
    ) -> Result<Verdict> {
        self.commit_if(write, durability, Some(claim))
    }

    #[inline]
    fn commit_if(
        &self,
        write: &Write<'_>,
        durability: Durability,
        claim: Option<&Claim<'_>>,
    ) -> Result<Verdict> {
        if !self.env.pipelined() {
            return self.commit_copied(write, durability, claim);
        }
        match self.begin(write, durability, claim) {
            Begun::Done(result) => result,
            Begun::Waits(waiter) => match waiter.wait() {
                Signal::Done(result) => result.map(|()| Verdict::Committed),
                Signal::Lead(group) => self.lead_group(&group, &waiter, claim),
            },
        }
    }

    fn commit_copied(
        &self,
        write: &Write<'_>,
        durability: Durability,
        claim: Option<&Claim<'_>>,
    ) -> Result<Verdict> {
        let end = {
            let s = &mut *lock(&self.state);
            self.env.check_writable()?;
            if let Some(refused) = s.refuses(claim) {
                return Ok(refused);
            }
            self.make_room(s);
            let first = s.next_seq;
            let early = broken(Mutation::PublishBeforeLog);
            if early {
                self.publish(s, write, first);
            }
            let end = match durability {
                Durability::None => None,
                _ => {
                    Some(self.env.append(&mut s.writer, first, write.parts).map_err(|e| self.env.failed(e))?)
                }
            };
            s.counts.groups += u64::from(end.is_some());
            self.record(s, write, first);
            if !early {
                self.publish(s, write, first);
            }
            match end {
                Some(end) => s.appended = end,
                None => s.unlogged = s.applied,
            }
            end
        };
        let sync = durability == Durability::Sync && !broken(Mutation::AcknowledgeBeforeSync);
        if let Some(end) = end.filter(|_| sync) {
            self.env.sync(end).map_err(|e| self.env.failed(e))?;
        }
        Ok(Verdict::Committed)
    }

    /// Leads if there is a free slot, joins a group otherwise.
    fn begin(&self, write: &Write<'_>, durability: Durability, claim: Option<&Claim<'_>>) -> Begun {
        let mut guard = lock(&self.state);
        let s = &mut *guard;
        if let Err(e) = self.env.check_writable() {
            return Begun::Done(Err(e));
        }
        if s.leaders == self.most_leaders || s.alone > 0 {
            // A write that need not be logged is logged here: it has to keep its place among the others anyway.
            return Begun::Waits(group::join(&mut s.waiting, write, claim.is_some()));
        }
        assert!(s.waiting.is_empty(), "a group waits only while every slot is taken");
        if durability == Durability::None && s.reserved.is_empty() {
            if let Some(refused) = s.refuses(claim) {
                return Begun::Done(Ok(refused));
            }
            self.make_room(s);
            let first = s.next_seq;
            self.record(s, write, first);
            self.publish(s, write, first);
            s.unlogged = s.applied;
            return Begun::Done(Ok(Verdict::Committed));
        }
        s.leaders += 1;
        Begun::Done(self.lead(guard, write, claim))
    }

    /// Leads the group of `me`, in the slot of the leader that said so, and tells the others how it fared.
    fn lead_group(&self, group: &Group, me: &Arc<Waiter>, claim: Option<&Claim<'_>>) -> Result<Verdict> {
        let parts: &[&[u8]] = &[&group.payload];
        let write = Write { parts, count: group.count, batches: group.batches, single: None };
        assert!(claim.is_none() || group.members.len() == 1, "a claim is for a frame of one writer");
        let result = self.lead(lock(&self.state), &write, claim);
        for m in group.members.iter().filter(|m| !Arc::ptr_eq(m, me)) {
            m.tell(Signal::Done(result.as_ref().map(|_| ()).map_err(Error::clone)));
        }
        result
    }

    /// Writes one frame and publishes it in its turn. The caller holds one of the leaders' slots, which goes to the
    /// next waiting group.
    fn lead(
        &self,
        mut guard: MutexGuard<'_, State<E::Writer>>,
        write: &Write<'_>,
        claim: Option<&Claim<'_>>,
    ) -> Result<Verdict> {
        let s = &mut *guard;
        if let Some(refused) = s.refuses(claim) {
            self.hand_on(s);
            return Ok(refused);
        }
        let (segment, first) = (self.env.segment(&s.writer), s.next_seq);
        let reserved = self.env.check_writable();
        let reserved = reserved.and_then(|()| self.env.reserve(&mut s.writer, first, write.parts));
        let frame = match reserved {
            Ok(frame) => frame,
            Err(e) => {
                let e = self.env.failed(e);
                self.hand_on(s);
                return Err(e);
            }
        };
        s.next_seq += Seq::from(write.count);
        s.reserved.push_back(segment);
        self.record(s, write, first);
        drop(guard);

        let turn = self.env.write(frame);
        let mut guard = lock(&self.state);
        let s = &mut *guard;
        let turn = match turn {
            Ok(turn) => turn,
            Err(e) => {
                let e = self.env.failed(e);
                self.hand_on(s);
                return Err(e);
            }
        };
        self.make_room(s);
        s.reserved.pop_front();
        s.counts.groups += 1;
        self.publish(s, write, first);
        self.hand_on(s);
        drop(guard);
        drop(turn);
        Ok(Verdict::Committed)
    }

    /// Has transactions see a write that has its numbers.
    #[inline]
    fn record(&self, s: &mut State<E::Writer>, write: &Write<'_>, first: Seq) {
        if s.recent.on() {
            self.record_keys(&mut s.recent, write, first);
        }
    }

    #[cold]
    fn record_keys(&self, recent: &mut Recent, write: &Write<'_>, first: Seq) {
        if recent.begin(first, first + Seq::from(write.count), write.bytes()) {
            let mut seq = first;
            self.env.each_key(write, |key, hash, end| {
                recent.record(seq, hash, key, end);
                seq += 1;
            });
        }
    }

    /// Applies a write whose frame is in the log, or that has none, and lets readers see it.
    #[inline]
    fn publish(&self, s: &mut State<E::Writer>, write: &Write<'_>, first: Seq) {
        assert!(first == s.applied + 1, "writes are published in order: {first} after {}", s.applied);
        self.env.apply(&mut s.writer, first, write);
        s.applied += Seq::from(write.count);
        s.next_seq = s.next_seq.max(s.applied + 1);
        s.counts.batches += write.batches;
        self.env.publish(s.applied);
        // What fills a memtable alone is flushed now, not before the next write, which may be long in coming: its
        // memory and its log segment are large.
        if write.bytes() >= self.env.memtable_limit() {
            self.make_room(s);
        }
    }

    /// Gives a leader's slot to the group that has waited longest, or back. After a failure that group is refused and
    /// hands on in its turn.
    fn hand_on(&self, s: &mut State<E::Writer>) {
        if s.watchers > 0 {
            self.moved.notify_all();
        }
        if s.alone == 0
            && let Some(group) = s.waiting.pop_front()
        {
            return group.lead();
        }
        s.leaders -= 1;
        if s.leaders == 0 {
            self.idle.notify_all();
        }
    }

    /// Before a write is applied: switches memtables when the active one is full.
    #[inline]
    fn make_room(&self, s: &mut State<E::Writer>) {
        if self.env.is_full(&s.writer) && self.env.has_writes(&s.writer) {
            self.env.switch_memtable(&mut s.writer, s.reserved.front().copied(), s.applied);
        }
    }

    /// Begins another memtable if there is something in the active one. Returns the newest number before it.
    pub fn freeze(&self) -> Result<Seq> {
        let s = &mut *lock(&self.state);
        self.env.check_writable()?;
        if self.env.has_writes(&s.writer) {
            self.env.switch_memtable(&mut s.writer, s.reserved.front().copied(), s.applied);
        }
        Ok(s.applied)
    }

    /// Makes everything that is published durable, if that is all in the log. If not, nothing is done but to say up to
    /// which number it has to be flushed ([`CommitQueue::flushed`]).
    pub fn sync(&self) -> Result<Option<Seq>> {
        let s = lock(&self.state);
        self.env.check_writable()?;
        let (end, unlogged) = (s.appended, s.unlogged);
        drop(s);
        if unlogged > 0 {
            return Ok(Some(unlogged));
        }
        // Pipelined frames are published when they are durable.
        if end > LogPos::default() && !broken(Mutation::AcknowledgeBeforeSync) {
            self.env.sync(end).map_err(|e| self.env.failed(e))?;
        }
        Ok(None)
    }

    /// Everything up to this number has been flushed.
    pub fn flushed(&self, through: Seq) {
        let s = &mut *lock(&self.state);
        if s.unlogged <= through {
            s.unlogged = 0;
        }
    }

    /// A transaction begins: what is written from now on can be checked against. It reads as of a number that is
    /// published later.
    pub fn open_transaction(&self) {
        let s = &mut *lock(&self.state);
        s.recent.opened(s.next_seq);
    }

    /// A transaction has ended.
    pub fn close_transaction(&self) {
        lock(&self.state).recent.closed();
    }

    /// Waits until a number that was given out is published; fails if it will not be.
    pub fn wait_applied(&self, seq: Seq) -> Result<()> {
        let mut s = lock(&self.state);
        while s.applied < seq {
            self.env.check_writable()?;
            s.watchers += 1;
            s = wait(&self.moved, s, &self.state);
            s.watchers -= 1;
        }
        Ok(())
    }

    /// Waits for the commits that are on their way. For a store that accepts no more.
    pub fn wait_for_leaders(&self) {
        let mut s = lock(&self.state);
        while s.leaders > 0 {
            s = wait(&self.idle, s, &self.state);
        }
    }

    /// What has been committed.
    pub fn counts(&self) -> Counts {
        lock(&self.state).counts
    }
}
