//! What the queues of all engines share: slots with a generation, the order of chains, continuation of short
//! transfers, and completions waiting to be taken.
//!
//! An operation lives in its slot from [`SlotTable::push`] until it is finished, so its buffer and its file stay
//! alive as long as the kernel or a worker may touch them. A slot's generation is part of the tag that goes out
//! with a request; a completion with another generation is stale and is ignored.
//!
//! A chained operation waits in its slot until the one before it has fully succeeded. An engine may hand it to
//! the kernel early, linked; the table then sorts out what a broken link means.

mod answers;
mod pools;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

pub(crate) use self::requests::{Request, What};
use crate::buf::Buf;
use crate::engine::Lends;
use crate::engine::exec;
use crate::engine::trace;
use crate::kind::OpKind;
use crate::op::{Done, Op};
use crate::os::OsFile;
use crate::probes::{self, Event};
use crate::stats::{Counter, OpClass, Stats, Tally};
use crate::{Error, ErrorKind, Result};

/// The most that one read or write call transfers on Linux, and a multiple of every alignment.
const MAX_TRANSFER: u64 = 0x7fff_f000;
/// Why a transfer cannot be polled for, and what to do.
pub(crate) const NOT_POLLED: &str = "iopoll: this file's device cannot be polled; it needs polling queues (of an NVMe \
     drive: nvme.poll_queues=N on the kernel's command line), or an engine without iopoll";
/// After so many EAGAIN an operation is done by a plain, blocking call.
const MAX_AGAIN: u32 = 64;
/// So often an operation of a shared queue is started again because the thread that submitted it has ended. A bad
/// address looks the same.
const MAX_ORPHANED: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// In the list of operations to start.
    Pending,
    /// Waits for the operation before it in its chain.
    Chained,
    /// The kernel or a worker has it.
    Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    Unknown,
    Good,
    Bad,
}

/// Where the chain stands that the next push may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chain {
    None,
    After(u32),
    Finished(bool),
}

struct Slot {
    generation: u32,
    state: State,
    before: Before,
    /// The tag of the operation chained after this one.
    next: Option<u64>,
    op: Option<Op>,
    done: u64,
    again: u32,
    started: u64,
    abandoned: bool,
    /// The id that its probes fire with; 0 while nobody listens.
    id: u64,
    /// Done by plain calls, for the probes.
    plain: bool,
    /// The tag of the operation, while a worker has it.
    lent: Option<u64>,
    /// The caller has asked for it back while the kernel has it.
    canceled: bool,
    /// Seconds and nanoseconds of its time limit, for the kernel to read.
    timer: [i64; 2],
    iov: Vec<libc::iovec>,
    /// It was pushed with a pool to choose a buffer from.
    pooled: bool,
    /// The kernel chooses, in the request that is running.
    choosing: bool,
}

// SAFETY: the vectors point into the buffer of the slot's own operation, which may be sent itself.
unsafe impl Send for Slot {}

/// What an engine's queues do besides.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Policy {
    /// Operations can be handed to workers of the kernel, if asked for by the operation.
    pub(crate) workers: bool,
    /// All are.
    pub(crate) force_async: bool,
    /// Buffered writes are requests, too, though the kernel may hand them to a worker.
    pub(crate) always: bool,
    /// Completions are polled for: only direct reads and writes can be requests.
    pub(crate) polled: bool,
    /// Operations may have time limits.
    pub(crate) limits: bool,
    /// The engine may let the kernel choose buffers of pools.
    pub(crate) chooses: bool,
    /// Several threads submit. When one of them ends, the kernel gives up what it still did for it.
    pub(crate) shared: bool,
    /// What has to be done by plain calls is handed out for it ([`Lends`]), not done here.
    pub(crate) lends: bool,
    /// Requests go to a simulated disk, not to the kernel.
    pub(crate) simulated: bool,
}

pub(crate) struct SlotTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    pending: VecDeque<u32>,
    /// One that is pending was submitted before: its caller waits for it, and need not submit again.
    due: bool,
    /// Operations that wait for a buffer of their pool, in order, and since when nothing else goes on.
    starved: VecDeque<u32>,
    starving_since: Option<u64>,
    ready: VecDeque<Done>,
    chain: Chain,
    running: usize,
    /// What is to be done by plain calls, and how many of those that run are there or handed out for it.
    plain: VecDeque<(u32, Op)>,
    lent: usize,
    busy_since: u64,
    now: u64,
    policy: Policy,
    stats: Arc<Stats>,
    /// What has ended since [`SlotTable::count`].
    tally: Tally,
}

impl Slot {
    #[inline]
    fn event(&self) -> Option<Event> {
        self.op.as_ref().and_then(|op| trace::event(op, self.plain))
    }

    /// At the first start only; with the tag of its request, if it is one.
    #[inline]
    fn fire_submit(&mut self, tag: u64) {
        if probes::on()
            && self.id == 0
            && let Some(event) = self.event()
        {
            self.id = Event { tag: if self.plain { 0 } else { tag }, ..event }.submit();
        }
    }

    #[inline]
    fn fire_complete(&mut self, result: &Result<u64>) {
        // What was answered before, or is never answered, fires nothing more.
        if !probes::on() || self.abandoned && self.id == 0 {
            return;
        }
        if self.started == 0 {
            // Refused or canceled before it was started.
            self.plain |= self.id == 0;
            self.fire_submit(0);
        }
        if let Some(event) = self.event() {
            event.complete(probes::code(result.as_ref().map(|n| *n)), self.id);
            self.id = 0;
        }
    }
}

/// The error of an operation whose chain broke before it.
pub(crate) fn canceled(op: &Op) -> Error {
    Error::new(
        ErrorKind::Canceled,
        exec::name(op.kind),
        "an operation before it in its chain did not fully succeed",
    )
    .at(op.file.path())
    .range(op.offset, op.len)
}

/// The error of an operation that its caller took back.
fn taken_back(op: &Op) -> Error {
    let why = "taken back by its caller";
    Error::new(ErrorKind::Canceled, exec::name(op.kind), why).at(op.file.path()).range(op.offset, op.len)
}

/// The error of an operation with a time limit where there can be none.
pub(crate) fn no_limit(op: &Op) -> Error {
    let why = "a time limit needs the engine io_uring, without sqpoll and iopoll";
    Error::new(ErrorKind::Unsupported, exec::name(op.kind), why).at(op.file.path()).range(op.offset, op.len)
}

/// Whether this result lets a chain go on.
pub(crate) fn is_full(op: &Op, result: &Result<u64>) -> bool {
    match (op.kind, result) {
        (_, Err(_)) => false,
        (OpKind::Read | OpKind::Write { .. }, Ok(n)) => *n == op.len,
        (_, Ok(_)) => true,
    }
}

impl SlotTable {
    pub(crate) fn new(depth: u32, stats: &Arc<Stats>) -> SlotTable {
        // Each queue begins elsewhere: tracers tell requests of different queues by their tags.
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let generation = NEXT.fetch_add(0x9e37_79b9, Relaxed);
        let depth = depth.max(1);
        let slot = |_| Slot {
            generation,
            state: State::Free,
            before: Before::Nothing,
            next: None,
            op: None,
            done: 0,
            again: 0,
            started: 0,
            abandoned: false,
            lent: None,
            canceled: false,
            timer: [0; 2],
            id: 0,
            plain: false,
            iov: Vec::new(),
            pooled: false,
            choosing: false,
        };
        SlotTable {
            slots: (0..depth).map(slot).collect(),
            free: (0..depth).rev().collect(),
            pending: VecDeque::with_capacity(depth as usize),
            due: false,
            starved: VecDeque::new(),
            starving_since: None,
            ready: VecDeque::with_capacity(depth as usize),
            chain: Chain::None,
            running: 0,
            plain: VecDeque::new(),
            lent: 0,
            busy_since: 0,
            now: 0,
            policy: Policy::default(),
            stats: stats.clone(),
            tally: Tally::default(),
        }
    }

    /// Counts what has ended. Every call that takes completions ends with it.
    pub(crate) fn count(&mut self) {
        self.tally.count(&self.stats);
    }

    /// Takes back what has this tag: ends what has not been started, and returns how many that were, and the tags of
    /// the requests that the kernel has to be asked for.
    pub(crate) fn cancel(&mut self, user: u64) -> (usize, Vec<u64>) {
        let (mut ended, mut asked) = (0, Vec::new());
        for i in 0..self.slots.len() as u32 {
            let s = &mut self.slots[i as usize];
            let Some(op) = s.op.as_ref().filter(|op| op.user == user && !s.abandoned) else { continue };
            match s.state {
                State::Running => {
                    s.canceled = true;
                    asked.push(self.tag(i));
                }
                State::Pending | State::Chained => {
                    let e = taken_back(op);
                    self.pending.retain(|p| *p != i);
                    self.starved.retain(|p| *p != i);
                    self.finish(i, Err(e));
                    ended += 1;
                }
                State::Free => {}
            }
        }
        (ended, asked)
    }

    /// The time limit of a request, where the kernel can read it as long as the slot is running.
    pub(crate) fn timer(&mut self, i: u32, limit: Duration) -> *const [i64; 2] {
        let s = &mut self.slots[i as usize];
        // A limit of nothing would be none.
        let limit = limit.max(Duration::from_nanos(1));
        s.timer = [limit.as_secs().min(i64::MAX as u64) as i64, i64::from(limit.subsec_nanos())];
        &raw const s.timer
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Several threads will submit.
    pub(crate) fn share(&mut self) {
        (self.policy.shared, self.policy.lends) = (true, true);
    }

    /// What has to be done by plain calls is handed out for it.
    pub(crate) fn start_lending(&mut self) {
        self.policy.lends = true;
    }

    /// Whether it is.
    pub(crate) fn is_lending(&self) -> bool {
        self.policy.lends
    }

    /// From now on nobody else does anything: what was to be handed out is done here.
    pub(crate) fn stop_lending(&mut self) {
        self.policy.lends = false;
        while let Some((i, mut op)) = self.plain.pop_front() {
            let result = exec::perform(&mut op);
            self.tick();
            self.bring_back(i, op, result);
        }
        self.count();
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Never frees the buffers of what is in flight: the kernel may still write to them, or they are in flight in the
    /// parent of this process.
    pub(crate) fn leak(&mut self) {
        let empty = SlotTable::new(1, &self.stats);
        std::mem::forget(std::mem::replace(self, empty));
    }

    /// Adds an operation, or gives it back when `depth` have not been taken yet.
    #[allow(clippy::result_large_err)]
    pub(crate) fn push(&mut self, op: Op) -> std::result::Result<(), Op> {
        if self.in_flight() >= self.slots.len() {
            return Err(op);
        }
        let Some(i) = self.free.pop() else { return Err(op) };
        let before = std::mem::replace(&mut self.chain, Chain::None);
        if op.chain {
            self.chain = Chain::After(i);
        }
        let s = &mut self.slots[i as usize];
        s.pooled = matches!(op.buf, Buf::Pool(_));
        s.choosing = false;
        s.op = Some(op);
        (s.done, s.again, s.started, s.next, s.abandoned, s.canceled) = (0, 0, 0, None, false, false);
        (s.id, s.plain) = (0, false);
        s.before = Before::Nothing;
        if let Some(op) = s.op.as_ref().filter(|op| op.time_limit.is_some() && !self.policy.limits) {
            let e = no_limit(op);
            s.state = State::Chained;
            self.finish(i, Err(e));
            return Ok(());
        }
        match before {
            Chain::None | Chain::Finished(true) => {
                s.state = State::Pending;
                self.due &= !self.pending.is_empty();
                self.pending.push_back(i);
            }
            Chain::After(p) => {
                s.state = State::Chained;
                s.before = Before::Unknown;
                self.slots[p as usize].next = Some(self.tag(i));
            }
            Chain::Finished(false) => {
                s.state = State::Chained;
                self.cancel_from(i);
            }
        }
        Ok(())
    }

    /// Forgets that the last operation asked for a successor.
    pub(crate) fn end_chain(&mut self) {
        self.chain = Chain::None;
    }

    pub(crate) fn pop(&mut self) -> Option<Done> {
        self.ready.pop_front()
    }

    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.ready.len()
    }

    pub(crate) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Whether an operation with this tag is not finished.
    pub(crate) fn holds(&self, user: u64) -> bool {
        let mine = |s: &Slot| s.op.as_ref().map_or(s.lent, |op| Some(op.user)) == Some(user);
        self.slots.iter().any(|s| !s.abandoned && mine(s))
    }

    /// Operations that the kernel or workers have.
    pub(crate) fn running(&self) -> usize {
        self.running - self.lent
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether something is pending that was submitted before.
    pub(crate) fn has_due(&self) -> bool {
        self.due && self.has_pending()
    }

    /// Reads the clock, for the starts or completions that follow.
    pub(crate) fn tick(&mut self) {
        self.now = self.stats.now();
    }

    /// The file of an operation, for as long as it is wanted.
    #[cfg(feature = "sim")]
    pub(crate) fn own_file(&self, i: u32) -> Option<crate::File> {
        self.slots[i as usize].op.as_ref().map(|op| op.file.clone())
    }

    /// The next operation to start. If it is to have a buffer of a pool, it has one, unless the engine may let the
    /// kernel choose: then that is the engine's to do, or [`SlotTable::choose`].
    pub(crate) fn next_pending(&mut self) -> Option<u32> {
        loop {
            let i = self.pending.pop_front()?;
            if self.policy.chooses || self.choose(i) {
                return Some(i);
            }
        }
    }

    /// Puts an operation that could not be started yet back to the front.
    pub(crate) fn not_started(&mut self, i: u32) {
        self.slots[i as usize].state = State::Pending;
        self.due = true;
        self.pending.push_front(i);
    }

    /// Drops what was never started: operations pushed but not submitted, and those chained after them.
    pub(crate) fn discard_pending(&mut self) {
        // Reads that wait for buffers have not been started either, and leave nothing undone.
        self.pending.append(&mut self.starved);
        while let Some(i) = self.pending.pop_front() {
            self.slots[i as usize].abandoned = true;
            self.finish(i, Err(Error::from_errno("drop", libc::ECANCELED)));
        }
        self.ready.clear();
    }

    /// The tag to send out with a request.
    pub(crate) fn tag(&self, i: u32) -> u64 {
        u64::from(self.slots[i as usize].generation) << 32 | u64::from(i)
    }

    /// The slot of a tag, unless the tag is stale.
    pub(crate) fn slot_of(&self, tag: u64) -> Option<u32> {
        let i = tag as u32;
        let s = self.slots.get(i as usize)?;
        (s.generation == (tag >> 32) as u32 && s.state == State::Running).then_some(i)
    }

    /// The operation that may be linked after `i`.
    pub(crate) fn chained_after(&self, i: u32) -> Option<u32> {
        let tag = self.slots[i as usize].next?;
        let next = self.slots.get(tag as u32 as usize)?;
        (next.generation == (tag >> 32) as u32 && next.state == State::Chained).then_some(tag as u32)
    }

    /// The file of an operation, if it is the operating system's.
    pub(crate) fn file(&self, i: u32) -> Option<&OsFile> {
        self.slots[i as usize].op.as_ref()?.file.0.os()
    }

    /// Marks an operation as handed out.
    pub(crate) fn set_running(&mut self, i: u32) {
        let tag = self.tag(i);
        let s = &mut self.slots[i as usize];
        s.fire_submit(tag);
        s.state = State::Running;
        if s.started == 0 {
            s.started = self.now;
        }
        if self.running == 0 {
            self.busy_since = self.now;
        }
        self.running += 1;
    }

    fn set_stopped(&mut self) {
        self.running -= 1;
        if self.running == 0 {
            self.stats.add(Counter::QueueBusyNanos, self.now.saturating_sub(self.busy_since));
        }
    }

    /// A linked operation that the kernel never saw waits in user space again.
    pub(crate) fn unlink(&mut self, i: u32) {
        self.set_stopped();
        self.slots[i as usize].started = 0;
        self.slots[i as usize].state = State::Chained;
        self.settle_before(i);
    }

    /// A request that the kernel did not take is to be started again.
    pub(crate) fn take_back(&mut self, i: u32) {
        self.set_stopped();
        self.slots[i as usize].started = 0;
        self.not_started(i);
    }

    /// Does an operation by plain calls, from its beginning, and finishes it; or hands it out for that.
    pub(crate) fn run_inline(&mut self, i: u32) {
        if !self.choose(i) {
            return;
        }
        if self.policy.lends {
            if let Some(op) = self.lend(i) {
                self.stats.add(Counter::Inline, 1);
                self.plain.push_back((i, op));
                self.lent += 1;
            }
            return;
        }
        let s = &mut self.slots[i as usize];
        if s.op.is_some() {
            self.stats.add(Counter::Inline, 1);
            s.plain = true;
            s.fire_submit(0);
            let Some(op) = s.op.as_mut() else { return };
            let result = exec::perform(op);
            self.finish(i, result);
        }
    }

    /// Takes the operation out for a worker, which brings it back through [`SlotTable::bring_back`].
    pub(crate) fn lend(&mut self, i: u32) -> Option<Op> {
        self.slots[i as usize].plain = true;
        self.set_running(i);
        let s = &mut self.slots[i as usize];
        s.lent = s.op.as_ref().map(|op| op.user);
        s.op.take()
    }

    /// Takes back what was lent, with its result.
    pub(crate) fn bring_back(&mut self, i: u32, op: Op, result: Result<u64>) {
        self.lent = self.lent.saturating_sub(1);
        self.set_stopped();
        let s = &mut self.slots[i as usize];
        self.tally.queued(self.now.saturating_sub(s.started));
        s.op = Some(op);
        s.lent = None;
        self.finish(i, result);
    }

    fn finish_counted(&mut self, i: u32, now: u64, result: Result<u64>) {
        let s = &self.slots[i as usize];
        let took = now.saturating_sub(s.started);
        if let Some(op) = &s.op {
            let class = OpClass::of(op.kind);
            match result {
                Ok(bytes) => self.tally.record(&self.stats, class, op.purpose, bytes, took),
                Err(_) => {
                    self.stats.record(class, op.purpose, 0, false, took);
                    self.stats.queued(1, took);
                }
            }
        }
        self.finish(i, result);
    }

    /// Ends an operation and starts or cancels what is chained after it.
    fn finish(&mut self, i: u32, result: Result<u64>) {
        // A loop: a chain may be longer than the stack is deep.
        let mut last = Some((i, result));
        while let Some((i, result)) = last {
            last = self.finish_one(i, result);
        }
    }

    /// Ends an operation. Starts its successor, or says that it is to be canceled, and how.
    fn finish_one(&mut self, i: u32, result: Result<u64>) -> Option<(u32, Result<u64>)> {
        let s = &mut self.slots[i as usize];
        s.fire_complete(&result);
        let mut op = s.op.take()?;
        if s.pooled && !matches!(result, Ok(1..)) {
            op.buf.unchoose();
        }
        let good = is_full(&op, &result);
        let next = s.next.take();
        let abandoned = s.abandoned;
        s.generation = s.generation.wrapping_add(1);
        s.state = State::Free;
        s.before = Before::Nothing;
        self.free.push(i);
        if self.chain == Chain::After(i) {
            self.chain = Chain::Finished(good);
        }
        if !abandoned {
            self.ready.push_back(Done { user: op.user, result, buf: op.buf });
        }
        let tag = next?;
        let n = tag as u32;
        let s = &mut self.slots[n as usize];
        if s.generation != (tag >> 32) as u32 {
            return None;
        }
        s.before = if good { Before::Good } else { Before::Bad };
        if s.state != State::Chained {
            return None;
        }
        if !good {
            return s.op.as_ref().map(|op| (n, Err(canceled(op))));
        }
        self.settle_before(n);
        None
    }

    /// Moves a chained operation on once it is known how the one before it ended.
    fn settle_before(&mut self, i: u32) {
        let s = &mut self.slots[i as usize];
        match s.before {
            Before::Unknown => {}
            Before::Nothing | Before::Good => {
                s.before = Before::Nothing;
                s.state = State::Pending;
                self.due = true;
                self.pending.push_back(i);
            }
            Before::Bad => self.cancel_from(i),
        }
    }

    /// Cancels a chained operation and all that are chained after it (but for those that the kernel has, which
    /// are canceled when they come back).
    fn cancel_from(&mut self, i: u32) {
        let Some(op) = self.slots[i as usize].op.as_ref() else { return };
        let e = canceled(op);
        self.finish(i, Err(e));
    }

    /// Answers for every operation that is not finished, because the queue is broken. Buffers that the kernel
    /// may still touch stay in their slots.
    pub(crate) fn fail_all(&mut self, e: &Error) -> Vec<Done> {
        let failed: Result<u64> = Err(e.clone());
        let mut out: Vec<Done> = self.ready.drain(..).collect();
        self.pending.clear();
        self.starved.clear();
        self.chain = Chain::None;
        for i in 0..self.slots.len() as u32 {
            let s = &mut self.slots[i as usize];
            let Some(user) = s.op.as_ref().filter(|_| !s.abandoned).map(|op| op.user) else { continue };
            let running = s.state == State::Running;
            s.fire_complete(&failed);
            let Some(op) = s.op.as_mut() else { continue };
            let buf = if running { Buf::None } else { std::mem::take(&mut op.buf) };
            s.abandoned = true;
            (s.next, s.before) = (None, Before::Nothing);
            out.push(Done { user, result: failed.clone(), buf });
            if !running {
                s.op = None;
                s.state = State::Free;
                s.generation = s.generation.wrapping_add(1);
                self.free.push(i);
            }
        }
        out
    }
}

impl Drop for SlotTable {
    fn drop(&mut self) {
        debug_assert!(self.tally.is_empty(), "completions were taken and not counted");
    }
}

impl Lends for SlotTable {
    fn plain(&mut self) -> Option<(u32, Op)> {
        self.plain.pop_front()
    }

    fn has_plain(&self) -> bool {
        !self.plain.is_empty()
    }

    fn bring_back(&mut self, number: u32, op: Op, result: Result<u64>) {
        self.tick();
        SlotTable::bring_back(self, number, op, result);
        self.count();
    }
}
