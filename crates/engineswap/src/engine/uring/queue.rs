//! A queue on a ring of its own.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::buffers::RingBuffers;
use super::files::RingFiles;
use super::pools::RingPools;
use super::raw::RawRing;
use super::ring::Ring;
use super::sys::{self, Sqe};
use crate::engine::RawWaiter;
use crate::engine::bell::{Bell, FdWaiter};
use crate::engine::interruptions::Interruptions;
use crate::engine::owned::SlotQueue;
use crate::engine::slots::{Policy, Request, SlotTable, What};
use crate::op::Done;
use crate::process::Process;
use crate::stats::{Counter, Stats};
use crate::uri::UringConfig;
use crate::{Error, Result};

/// After so many refusals in a row with nothing in flight, operations are done by plain calls.
const MAX_REFUSED: u32 = 64;

/// In place of a slot: a request that belongs to no operation.
const AUX: u32 = u32::MAX;

fn broken(errno: i32) -> Error {
    Error::from_errno("io_uring_enter", errno).detail("the ring is broken")
}

pub(super) struct UringQueue<R: RawRing = Ring> {
    ring: R,
    slots: SlotTable,
    /// Slots of the requests in the ring that the kernel has not taken, in order.
    queued: VecDeque<(u32, bool)>,
    refused: u32,
    /// The last look for completions found that the next submission will bring them.
    put_off: bool,
    /// Requests without an operation that the kernel did not take.
    lost: u32,
    interruptions: Interruptions,
    /// Completions are waited for in groups of so many, the time for it bounded if that is not 0.
    group: u32,
    min_wait_us: u32,
    /// Chains may be linked in the ring. A polling thread that serves several rings takes eight requests from each
    /// at a time, and a link from the eighth to the ninth orders nothing.
    links: bool,
    buffers: Option<RingBuffers>,
    /// If several threads share the queue, and its completions need no calls to come out.
    waiter: Option<Arc<dyn RawWaiter>>,
    files: Option<RingFiles>,
    /// Pools whose buffers the kernel chooses, if it is to.
    pools: Option<RingPools>,
    /// Who made it.
    process: Process,
}

/// What a ring has registered.
#[derive(Default)]
pub(super) struct Registered {
    pub(super) buffers: Option<RingBuffers>,
    pub(super) files: Option<RingFiles>,
    pub(super) pools: Option<RingPools>,
}

impl UringQueue {
    /// The same, for several threads.
    pub(super) fn shared(mut self, config: &UringConfig) -> Result<UringQueue> {
        self.slots.share();
        // A link's next request belongs to the thread that submitted it, and goes with it.
        self.links = false;
        if !config.iopoll {
            // SAFETY: the ring is open during the call.
            let fd = unsafe { BorrowedFd::borrow_raw(self.ring.fd()) };
            let also = fd.try_clone_to_owned().map_err(|e| Error::from_std("io_uring", &e))?;
            self.waiter = Some(Arc::new(FdWaiter { bell: Arc::new(Bell::new()?), also: Some(also) }));
        }
        Ok(self)
    }
}

impl<R: RawRing> UringQueue<R> {
    pub(super) fn new(
        ring: R,
        depth: u32,
        config: &UringConfig,
        registered: Registered,
        stats: &Arc<Stats>,
    ) -> UringQueue<R> {
        let mut slots = SlotTable::new(depth, stats);
        slots.set_policy(Policy {
            workers: true,
            force_async: config.force_async,
            always: config.queue_always,
            polled: config.iopoll,
            chooses: registered.pools.is_some(),
            // A limit is a link, too.
            limits: !config.sqpoll && !config.iopoll,
            shared: false,
            lends: false,
            simulated: false,
        });
        UringQueue {
            ring,
            slots,
            queued: VecDeque::new(),
            refused: 0,
            put_off: false,
            lost: 0,
            waiter: None,
            buffers: registered.buffers,
            files: registered.files,
            pools: registered.pools,
            process: Process::this(),
            interruptions: Interruptions::default(),
            links: !config.sqpoll,
            group: config.reap.unwrap_or(1),
            min_wait_us: config.min_wait_us.unwrap_or(0),
        }
    }

    /// Puts what is pending into the ring, chains linked as far as possible.
    fn build(&mut self) {
        self.tend();
        self.slots.feed();
        if !self.slots.has_pending() {
            return;
        }
        self.slots.tick();
        if let Some(b) = &mut self.buffers {
            b.follow(self.ring.fd());
        }
        while self.ring.space() > 0 {
            let Some(mut i) = self.slots.next_pending() else { break };
            if let Some(pool) = self.slots.pool(i) {
                let chooses = self.pools.as_mut().is_some_and(|p| p.knows(&self.ring, &pool));
                if !chooses && !self.slots.choose(i) {
                    continue;
                }
            }
            let Some(mut request) = self.slots.request(i) else {
                self.slots.run_inline(i);
                continue;
            };
            if request.limit.is_some() && self.ring.space() < 2 {
                self.slots.not_started(i);
                break;
            }
            self.put(i, &request, false);
            if request.limit.is_some() || matches!(request.what, What::Choose { .. }) {
                // Nothing is linked to it: what cancels it can then only be the time. And what finds no buffer
                // starts again later.
                continue;
            }
            // The kernel starts a linked request only after the full success of the one before; that is what a
            // chain means as long as one request is the whole rest of its operation.
            while self.links && request.whole && self.ring.space() > 0 {
                let Some(next) = self.slots.chained_after(i) else { break };
                let links = |r: &Request| r.limit.is_none() && !matches!(r.what, What::Choose { .. });
                let Some(r) = self.slots.request(next).filter(links) else { break };
                self.ring.link_last();
                self.put(next, &r, true);
                (i, request) = (next, r);
            }
        }
    }

    /// Lets go of files that others have closed.
    fn tend(&self) {
        if let Some(files) = &self.files {
            files.tend();
        }
    }

    /// Lets the kernel choose the read's buffer of its pool.
    fn let_choose(&mut self, i: u32, s: &mut Sqe) {
        let pool = self.slots.pool(i);
        if let Some(group) = self.pools.as_ref().zip(pool).and_then(|(pools, p)| pools.want(&p)) {
            s.flags |= sys::IOSQE_BUFFER_SELECT;
            s.rest[0] = u64::from(group.to_le());
            self.slots.set_choosing(i);
            self.slots.stats().add(Counter::Chosen, 1);
        }
    }

    /// Names the buffer and the file by their registered places, where they have some.
    #[inline]
    fn name_registered(&mut self, i: u32, r: &Request, s: &mut Sqe) {
        let fixed = match (r.what, &self.buffers) {
            (What::Read { ptr, len } | What::Write { ptr, len, .. }, Some(b)) => b.find(ptr, len),
            (What::ReadV { iov, n } | What::WriteV { iov, n, .. }, Some(b)) => {
                // SAFETY: the slot's vectors, `n` of them, which stay as they are while it runs.
                b.find_all(unsafe { std::slice::from_raw_parts(iov, n as usize) })
            }
            _ => None,
        };
        if let Some(place) = fixed {
            s.opcode = match s.opcode {
                sys::OP_READ => sys::OP_READ_FIXED,
                sys::OP_READV => sys::OP_READV_FIXED,
                sys::OP_WRITEV => sys::OP_WRITEV_FIXED,
                _ => sys::OP_WRITE_FIXED,
            };
            // The index of the buffer is the first of the remaining fields.
            s.rest[0] = u64::from(place.to_le());
            self.slots.stats().add(Counter::Fixed, 1);
            if let Some(b) = &mut self.buffers {
                b.names(i);
            }
        }
        let known = self.files.as_ref().zip(self.slots.file(i));
        if let Some(number) = known.and_then(|(files, file)| files.find(file)) {
            s.fd = number as i32;
            s.flags |= sys::IOSQE_FIXED_FILE;
            self.slots.stats().add(Counter::FixedFiles, 1);
        }
    }

    fn put(&mut self, i: u32, r: &Request, linked: bool) {
        let mut s = Sqe { user_data: self.slots.tag(i), ..sqe(r) };
        if let What::Choose { .. } = r.what {
            self.let_choose(i, &mut s);
        }
        self.name_registered(i, r, &mut s);
        if r.force_async {
            s.flags |= sys::IOSQE_ASYNC;
        }
        if r.punted {
            self.slots.stats().add(Counter::Punted, 1);
        }
        self.slots.set_running(i);
        // SAFETY: the buffer and the vectors belong to the operation in slot `i`, which keeps them, and the file,
        // until its completion is taken (`SlotTable::complete`); `drop` waits for all of them or leaks the slots.
        let fits = unsafe { self.ring.put(s) };
        debug_assert!(fits, "callers check the space first");
        self.queued.push_back((i, linked));
        if let Some(limit) = r.limit {
            let at = self.slots.timer(i, limit);
            self.ring.link_last();
            let timer =
                Sqe { opcode: sys::OP_LINK_TIMEOUT, fd: -1, addr: at as u64, len: 1, ..Sqe::default() };
            self.put_aux(timer);
        }
    }

    /// Puts a request in whose completion nobody looks at.
    fn put_aux(&mut self, sqe: Sqe) {
        // SAFETY: a cancellation points to nothing, a timer to the slot of the running operation before it.
        let fits = unsafe { self.ring.put(Sqe { user_data: u64::MAX, ..sqe }) };
        debug_assert!(fits, "callers check the space first");
        self.queued.push_back((AUX, true));
    }

    /// Whether completions are hidden that a call is to bring out now. If operations wait to be submitted, that call
    /// brings them too, and comes soon: only who looks twice before it makes a call for the completions alone.
    fn looks(&mut self) -> bool {
        let hidden = self.ring.needs_enter() || self.ring.polls();
        hidden && (!self.slots.has_pending() || std::mem::replace(&mut self.put_off, true))
    }

    /// Enters the ring, and counts it if it is a system call.
    fn call(&mut self, min: u32, min_wait_us: u32) -> std::result::Result<u32, i32> {
        let calls = self.ring.calls();
        self.put_off = false;
        let result = self.ring.enter(min, min_wait_us);
        if self.ring.calls() != calls {
            self.slots.stats().add(Counter::SubmitCalls, 1);
        }
        result
    }

    /// Enters the kernel with what is queued and waits for `min` completions, or for one after `min_wait_us`.
    fn enter(&mut self, min: u32, min_wait_us: u32) -> Result<()> {
        let min = self.interruptions.wait_for(min as usize) as u32;
        let result = self.call(min, min_wait_us);
        let took = *result.as_ref().unwrap_or(&0) as usize;
        self.queued.drain(..took.min(self.queued.len()));
        // What the kernel did not take starts over; the last first, so that the order stays.
        let had = !self.queued.is_empty();
        while let Some((i, linked)) = self.queued.pop_back() {
            if i == AUX {
                // A timer is made again with its operation; if the kernel had memory for that alone, it has no
                // limit now. A cancellation is asked for again.
                self.lost += 1;
            } else {
                self.is_out(i);
                self.chosen(i, 0);
                if linked { self.slots.unlink(i) } else { self.slots.take_back(i) }
            }
        }
        self.reap();
        match result {
            Ok(_) => {
                self.refused = 0;
                self.interruptions.none();
                Ok(())
            }
            Err(libc::EINTR) if self.interruptions.one_more() => Ok(()),
            Err(libc::EAGAIN | libc::EBUSY) => {
                // No memory for requests now, or completions in the way. What runs will make room, and comes out
                // only by a call that submits nothing; with nothing running the plain calls need no room.
                self.refused += 1;
                if self.slots.running() > 0 {
                    match self.call(1, 0) {
                        Ok(_) | Err(libc::EINTR | libc::EAGAIN | libc::EBUSY) => {}
                        Err(e) => return Err(broken(e)),
                    }
                    self.reap();
                } else if had && self.refused > MAX_REFUSED {
                    while let Some(i) = self.slots.next_pending() {
                        self.slots.run_inline(i);
                    }
                } else {
                    std::thread::yield_now();
                }
                Ok(())
            }
            Err(e) => Err(broken(e)),
        }
    }

    /// Takes all completions that are there.
    fn reap(&mut self) -> bool {
        let mut any = false;
        while let Some((tag, res, flags)) = self.ring.take() {
            if !any {
                self.slots.tick();
                any = true;
            }
            // A stale tag has no slot any more.
            if let Some(i) = self.slots.slot_of(tag) {
                self.is_out(i);
                self.chosen(i, flags);
                self.slots.complete(i, i64::from(res));
            }
        }
        self.slots.count();
        any
    }

    /// The request of this slot is out of the ring.
    fn is_out(&mut self, i: u32) {
        if let Some(b) = &mut self.buffers {
            b.is_out(i);
        }
    }

    /// Takes over the buffer that the kernel has chosen for a read, if it was to, and has.
    fn chosen(&mut self, i: u32, flags: u32) {
        if !self.slots.was_choosing(i) {
            return;
        }
        if let Some((pools, pool)) = self.pools.as_mut().zip(self.slots.pool(i))
            && let Some(buf) = pools.chosen(&self.ring, &pool, flags)
        {
            self.slots.chosen(i, buf);
        }
    }

    fn drain(&mut self) -> Result<()> {
        while self.slots.running() > 0 {
            if !self.reap() {
                self.enter(1, 0)?;
            }
            self.build();
        }
        Ok(())
    }
}

/// A request in the kernel's form.
#[inline]
fn sqe(r: &Request) -> Sqe {
    let mut s = Sqe { fd: r.fd, off: r.offset, ..Sqe::default() };
    let dsync_flag = |dsync| r.flags as u32 | if dsync { libc::RWF_DSYNC as u32 } else { 0 };
    match r.what {
        What::Read { ptr, len } => {
            (s.opcode, s.addr, s.len, s.op_flags) = (sys::OP_READ, ptr as u64, len, r.flags as u32);
        }
        What::Choose { len } => {
            (s.opcode, s.len, s.op_flags) = (sys::OP_READ, len, r.flags as u32);
        }
        What::ReadV { iov, n } => {
            (s.opcode, s.addr, s.len, s.op_flags) = (sys::OP_READV, iov as u64, n, r.flags as u32);
        }
        What::Write { ptr, len, dsync } => {
            (s.opcode, s.addr, s.len, s.op_flags) = (sys::OP_WRITE, ptr as u64, len, dsync_flag(dsync));
        }
        What::WriteV { iov, n, dsync } => {
            (s.opcode, s.addr, s.len, s.op_flags) = (sys::OP_WRITEV, iov as u64, n, dsync_flag(dsync));
        }
        What::Sync { data_only } => {
            (s.opcode, s.off) = (sys::OP_FSYNC, 0);
            s.op_flags = if data_only { sys::FSYNC_DATASYNC } else { 0 };
        }
        What::SyncRange { len, flags } => {
            (s.opcode, s.len, s.op_flags) = (sys::OP_SYNC_FILE_RANGE, len as u32, flags);
        }
        // The length travels in the address, the mode (0) in the length.
        What::Allocate { len } => (s.opcode, s.addr) = (sys::OP_FALLOCATE, len),
    }
    s
}

impl<R: RawRing> SlotQueue for UringQueue<R> {
    fn slots(&self) -> &SlotTable {
        &self.slots
    }

    fn slots_mut(&mut self) -> &mut SlotTable {
        &mut self.slots
    }

    fn submit(&mut self) -> Result<()> {
        self.build();
        // A polling thread may be behind: then there is no space for what is pending until it has gone on.
        while self.ring.queued() > 0 || self.slots.has_pending() {
            self.enter(0, 0)?;
            self.build();
        }
        Ok(())
    }

    fn wait(&mut self, min: usize) -> Result<()> {
        // Groups are waited for once, if that is bounded in time: what has not come then is waited for plainly.
        let mut over = false;
        loop {
            self.build();
            let missing = min.min(self.slots.in_flight()).saturating_sub(self.slots.ready());
            let missing = missing.min(self.slots.running()) as u32;
            if missing == 0 && self.ring.queued() == 0 && !self.slots.has_pending() {
                if min > 0 && self.slots.starving() {
                    self.slots.await_buffer();
                    continue;
                }
                return Ok(());
            }
            // Completions that are there already need no call.
            if self.ring.queued() == 0 && self.reap() {
                continue;
            }
            let group = match missing {
                0 => 0,
                n if over => n,
                n => n
                    .max(self.group.saturating_sub(self.slots.ready() as u32))
                    .min(self.slots.running() as u32),
            };
            let bound = if group > missing { self.min_wait_us } else { 0 };
            over |= bound > 0;
            self.enter(group, bound)?;
        }
    }

    fn pop(&mut self) -> Option<Done> {
        self.tend();
        if self.slots.starving() {
            // An error comes out again, and is reported, at the next submit or wait.
            let _ = self.submit();
        }
        if self.slots.ready() == 0 && self.slots.running() > 0 {
            self.reap();
            if self.slots.has_due() || self.slots.ready() == 0 && self.looks() {
                self.build();
                // An error comes out again, and is reported, at the next submit or wait.
                let _ = self.enter(0, 0);
            }
        }
        self.slots.pop()
    }

    fn cancel(&mut self, user: u64) -> Result<usize> {
        self.tend();
        let (ended, asked) = self.slots.cancel(user);
        for tag in &asked {
            let mut tries = 0;
            loop {
                while self.ring.space() == 0 {
                    self.enter(0, 0)?;
                }
                self.lost = 0;
                self.put_aux(Sqe { opcode: sys::OP_ASYNC_CANCEL, fd: -1, addr: *tag, ..Sqe::default() });
                self.enter(0, 0)?;
                tries += 1;
                if self.lost == 0 || tries > MAX_REFUSED || self.slots.slot_of(*tag).is_none() {
                    break;
                }
            }
        }
        Ok(ended + asked.len())
    }

    fn waiter(&self) -> Option<Arc<dyn RawWaiter>> {
        self.waiter.clone()
    }

    fn settle(&mut self) -> bool {
        self.drain().is_ok()
    }
}

impl<R: RawRing> Drop for UringQueue<R> {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // A child after fork() lets go of its descriptor and mapping; what is in flight and registered is its
            // parent's.
            self.slots.leak();
            std::mem::forget((self.files.take(), self.pools.take()));
            return;
        }
        self.slots.stop_lending();
        self.slots.discard_pending();
        if self.drain().is_err() {
            // The kernel may still write to these buffers: they are never freed.
            self.slots.leak();
        }
        // As long as the ring is open.
        if let Some(pools) = self.pools.take() {
            pools.leave(&self.ring);
        }
        self.files = None;
    }
}
