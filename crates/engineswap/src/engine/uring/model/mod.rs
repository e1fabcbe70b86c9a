//! A model of a ring: answers a queue in all the ways that the kernel may, as a seed says.
//!
//! It does what requests ask for, on their files, in any order but a chain's. It takes fewer requests than it is
//! given, is interrupted, has no memory, stops transfers short, breaks chains, is late with completions and with
//! cancellations, runs out of the pools' buffers, and brings completions of requests that are long gone. What no
//! kernel may be asked for is a panic: a wait for what cannot come, a tag that is in the ring already, a list of
//! buffers taken away below a read.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod run;
mod shadow;
mod tests;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::os::fd::RawFd;
use std::rc::Rc;

use self::run::Group;
use super::raw::RawRing;
use super::ring::entered;
use super::sys::{self, Sqe};
use crate::random::Random;

/// What comes of requests that belong to no operation.
const AUX: u64 = u64::MAX;
/// Calls after which a queue that has not come to an end never will.
const MANY_CALLS: u32 = 100_000;

/// How the model is to behave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    pub(super) entries: u32,
    /// Places for completions.
    pub(super) room: usize,
    /// A thread takes the requests (SQPOLL).
    pub(super) polled: bool,
    /// Completions come out only in calls (DEFER_TASKRUN).
    pub(super) deferred: bool,
    /// Requests fail for good: EIO, ENOSPC, writes that write nothing.
    pub(super) fails: bool,
    /// Calls fail once after so many, or for good.
    pub(super) breaks: Option<(u32, bool)>,
}

/// A request that the model has taken and not ended.
struct Taken {
    sqe: Sqe,
    /// Its time is limited by the request after it.
    timer: bool,
    /// A worker has it: it cannot be taken back any more.
    busy: bool,
}

#[derive(Clone, Copy)]
struct Completion {
    tag: u64,
    res: i32,
    flags: u32,
}

/// A request that was carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) fd: RawFd,
    pub(super) opcode: u8,
    pub(super) offset: u64,
    pub(super) res: i32,
}

pub(super) struct Model {
    random: Random,
    how: Manners,
    /// Put in, and not handed over by a call.
    queued: Vec<Sqe>,
    /// Handed over, and not taken by the polling thread.
    passed: VecDeque<Sqe>,
    /// Chains of requests; only the first of each is looked at.
    inside: Vec<VecDeque<Taken>>,
    /// The last chain goes on with the next request.
    open: bool,
    /// Completions that the ring has no room for, or that come out only in a call.
    hidden: VecDeque<Completion>,
    shown: VecDeque<Completion>,
    calls: u64,
    /// Calls since the queue was last asked for something.
    pub(super) calls_now: u32,
    /// The last tag of each slot, and older ones.
    tags: HashMap<u32, u64>,
    stale: Vec<u64>,
    groups: HashMap<u16, Group>,
    pub(super) log: Vec<Event>,
}

impl Model {
    pub(super) fn new(seed: u64, how: Manners) -> Model {
        Model {
            random: Random::of(seed, 2),
            how,
            queued: Vec::new(),
            passed: VecDeque::new(),
            inside: Vec::new(),
            open: false,
            hidden: VecDeque::new(),
            shown: VecDeque::new(),
            calls: 0,
            calls_now: 0,
            tags: HashMap::new(),
            stale: Vec::new(),
            groups: HashMap::new(),
            log: Vec::new(),
        }
    }

    fn put(&mut self, sqe: Sqe) {
        if sqe.user_data != AUX {
            let inside = self.inside.iter().flatten().map(|t| t.sqe.user_data);
            let outside = self.queued.iter().chain(&self.passed).map(|s| s.user_data);
            assert!(inside.chain(outside).all(|t| t != sqe.user_data), "two requests with one tag");
            let old = self.tags.insert(sqe.user_data as u32, sqe.user_data);
            self.stale.extend(old.filter(|t| *t != sqe.user_data));
        }
        self.queued.push(sqe);
    }

    /// Takes a request from the ring.
    fn accept(&mut self, sqe: Sqe) {
        let links = sqe.flags & sys::IOSQE_IO_LINK != 0;
        match sqe.opcode {
            sys::OP_ASYNC_CANCEL => self.cancel(sqe.addr),
            sys::OP_LINK_TIMEOUT if self.open => {
                // SAFETY: the queue's promise: seconds and nanoseconds, in the slot of the request before.
                let [s, ns] = unsafe { (sqe.addr as *const [i64; 2]).read() };
                assert!(s >= 0 && (0..1_000_000_000).contains(&ns) && (s, ns) != (0, 0), "{s} s {ns} ns");
                let last = self.inside.last_mut().and_then(VecDeque::back_mut);
                last.expect("an open chain has a request").timer = true;
                self.open = links;
            }
            // It has nothing to limit.
            sys::OP_LINK_TIMEOUT => self.end(AUX, -libc::EINVAL, 0),
            _ => {
                let t = Taken { sqe, timer: false, busy: false };
                match self.inside.last_mut().filter(|_| self.open) {
                    Some(chain) => chain.push_back(t),
                    None => self.inside.push(VecDeque::from([t])),
                }
                self.open = links;
            }
        }
    }

    /// A chain that was not handed over whole ends where it stops.
    fn close_chain(&mut self) {
        self.open = false;
    }

    fn cancel(&mut self, tag: u64) {
        // What waits for another request in its chain is not found.
        let heads = self.inside.iter().enumerate().filter_map(|(i, c)| Some((i, c.front()?)));
        let found = heads.into_iter().find(|(_, t)| t.sqe.user_data == tag).map(|(i, t)| (i, t.busy));
        let open = self.open && found.is_some_and(|(i, _)| i + 1 == self.inside.len());
        match found {
            Some((i, false)) if !open => {
                self.finish(i, -libc::ECANCELED, 0, false);
                self.end(AUX, 0, 0);
            }
            Some(_) => self.end(AUX, -libc::EALREADY, 0),
            None => self.end(AUX, -libc::ENOENT, 0),
        }
    }

    fn end(&mut self, tag: u64, res: i32, flags: u32) {
        self.hidden.push_back(Completion { tag, res, flags });
        if !self.how.deferred {
            self.show();
        }
    }

    fn show(&mut self) {
        while self.shown.len() < self.how.room
            && let Some(c) = self.hidden.pop_front()
        {
            self.shown.push_back(c);
        }
    }

    /// Ends the first request of a chain; without `good` the rest is canceled.
    fn finish(&mut self, chain: usize, res: i32, flags: u32, good: bool) {
        let Some(t) = self.inside[chain].pop_front() else { return };
        let expired = res == -libc::ECANCELED && t.timer && self.random.one_in(2);
        let timer = if expired { -libc::ETIME } else { -libc::ECANCELED };
        let first = self.random.one_in(2);
        if t.timer && first {
            self.end(AUX, timer, 0);
        }
        self.end(t.sqe.user_data, res, flags);
        if t.timer && !first {
            self.end(AUX, timer, 0);
        }
        if !good {
            for t in std::mem::take(&mut self.inside[chain]) {
                self.end(t.sqe.user_data, -libc::ECANCELED, 0);
            }
        }
        if self.inside[chain].is_empty() {
            self.inside.remove(chain);
        }
    }

    /// Something happens; false if there is nothing left to happen.
    fn step(&mut self) -> bool {
        if !self.passed.is_empty() && (self.inside.is_empty() || self.random.one_in(2)) {
            for _ in 0..=self.random.below(self.passed.len() as u64) {
                if let Some(sqe) = self.passed.pop_front() {
                    self.accept(sqe);
                }
            }
            self.close_chain();
            return true;
        }
        if self.inside.is_empty() {
            return false;
        }
        if self.random.one_in(8) {
            self.bring_stale();
        }
        let i = self.random.below(self.inside.len() as u64) as usize;
        let t = &mut self.inside[i][0];
        if t.timer && self.random.one_in(4) {
            if t.busy {
                // Too late: it ends when it ends.
                t.timer = false;
                self.end(AUX, -libc::EALREADY, 0);
            } else {
                self.finish(i, -libc::ECANCELED, 0, false);
            }
        } else if !t.busy && self.random.one_in(3) {
            t.busy = true;
        } else {
            let sqe = t.sqe;
            let (res, flags, good) = self.carry_out(&sqe);
            self.finish(i, res, flags, good);
        }
        true
    }

    /// A completion that belongs to nothing that runs.
    fn bring_stale(&mut self) {
        let n = self.stale.len() as u64;
        let tag = match self.random.below(4) {
            0 => 0xffff_0000 | self.random.next() << 32,
            _ if n > 0 => self.stale[self.random.below(n) as usize],
            _ => return,
        };
        let res = [0, 1, 512, 4096, -libc::EIO, -libc::ECANCELED][self.random.below(6) as usize];
        self.end(tag, res, 0);
    }

    fn enter(&mut self, min: u32, min_wait_us: u32) -> Result<u32, i32> {
        self.calls += 1;
        self.calls_now += 1;
        if std::thread::panicking() {
            // The queue goes with a test that has failed.
            return Err(libc::EBADF);
        }
        assert!(self.calls_now < MANY_CALLS, "{MANY_CALLS} calls have led to nothing");
        let given = std::mem::take(&mut self.queued);
        if let Some((after, good)) = self.how.breaks
            && self.calls > after.into()
        {
            if !good {
                self.how.breaks = None;
            }
            return entered(Err(libc::EBADF), 0);
        }
        if self.how.polled {
            let took = given.len() as u32;
            self.passed.extend(given);
            return entered(self.attend(min, min_wait_us).map(|()| took), took);
        }
        let n = given.len() as u64;
        let (take, refusal) = match self.random.below(12) {
            0 if n > 0 => (0, Some(libc::EAGAIN)),
            1 if n > 0 && !self.hidden.is_empty() => (0, Some(libc::EBUSY)),
            2 | 3 if n > 0 => (self.random.below(n), Some(libc::EAGAIN)),
            _ => (n, None),
        };
        for sqe in given.into_iter().take(take as usize) {
            self.accept(sqe);
        }
        self.close_chain();
        for _ in 0..self.random.below(4) {
            self.step();
        }
        self.show();
        match refusal {
            // What was taken is said; a call that stops early does not wait.
            Some(e) => entered(Err(e), take as u32),
            None => entered(self.attend(min, min_wait_us).map(|()| take as u32), take as u32),
        }
    }

    /// Waits.
    fn attend(&mut self, min: u32, min_wait_us: u32) -> Result<(), i32> {
        self.show();
        let mut wanted = (min as usize).min(self.how.room);
        if wanted > 0 && self.random.one_in(6) {
            return Err(libc::EINTR);
        }
        if wanted > 1 && min_wait_us > 0 && self.random.one_in(2) {
            if self.shown.is_empty() && self.random.one_in(2) {
                return Err(libc::ETIME);
            }
            wanted = 1;
        }
        while self.shown.len() < wanted {
            let goes_on = self.step() || !self.hidden.is_empty();
            assert!(goes_on, "hangs: waits for {wanted}, and {} can come", self.shown.len());
            self.show();
        }
        Ok(())
    }

    /// Whether a request that is not ended points into this memory.
    pub(super) fn uses(&self, memory: &std::ops::Range<usize>) -> bool {
        let inside = self.inside.iter().flatten().map(|t| &t.sqe);
        inside.chain(&self.queued).chain(&self.passed).any(|s| run::points_into(s, memory))
    }
}

/// The ring that a queue has, and its test.
#[derive(Clone)]
pub(super) struct ModelRing(pub(super) Rc<RefCell<Model>>);

impl RawRing for ModelRing {
    fn space(&self) -> u32 {
        let m = self.0.borrow();
        m.how.entries - (m.queued.len() + m.passed.len()) as u32
    }

    fn queued(&self) -> u32 {
        self.0.borrow().queued.len() as u32
    }

    unsafe fn put(&mut self, sqe: Sqe) -> bool {
        let fits = self.space() > 0;
        if fits {
            self.0.borrow_mut().put(sqe);
        }
        fits
    }

    fn link_last(&mut self) {
        if let Some(s) = self.0.borrow_mut().queued.last_mut() {
            s.flags |= sys::IOSQE_IO_LINK;
        }
    }

    fn enter(&mut self, min: u32, min_wait_us: u32) -> Result<u32, i32> {
        self.0.borrow_mut().enter(min, min_wait_us)
    }

    fn calls(&self) -> u64 {
        self.0.borrow().calls
    }

    fn needs_enter(&self) -> bool {
        !self.0.borrow().hidden.is_empty()
    }

    fn polls(&self) -> bool {
        false
    }

    fn take(&mut self) -> Option<(u64, i32, u32)> {
        let mut m = self.0.borrow_mut();
        if m.shown.is_empty() && m.random.one_in(2) {
            m.step();
        }
        m.shown.pop_front().map(|c| (c.tag, c.res, c.flags))
    }

    fn fd(&self) -> RawFd {
        -1
    }

    unsafe fn register(&self, opcode: u32, arg: *const libc::c_void, _n: u32) -> Result<u32, i32> {
        // SAFETY: the caller's promise.
        unsafe { self.0.borrow_mut().register(opcode, arg) }
    }
}
