//! A queue of a simulated disk. An operation takes effect at some moment between its submission and its completion,
//! and both moments are drawn from the disk's seed, so operations overtake each other as they do on a device. Time is
//! the disk's own: nothing waits.
//!
//! Slots, chains, continuation of short transfers and retries are those of every engine.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::disk::Disk;
use super::handle::{Handle, Unfinished};
use super::plan::Call;
use crate::engine::interruptions::Interruptions;
use crate::engine::owned::SlotQueue;
use crate::engine::slots::{Policy, Request, SlotTable, What};
use crate::op::Done;
use crate::os::{FileCalls, Sys, gather};
use crate::random::Random;
use crate::stats::Stats;
use crate::{Error, File, Result};

enum Step {
    Effect(Request),
    Completion(i64, Option<Unfinished>),
}

// SAFETY: a request's pointers lead to the buffer of its operation, which is in the same queue and may be sent itself.
unsafe impl Send for Step {}

pub(crate) struct SimQueue {
    slots: SlotTable,
    disk: Disk,
    random: Random,
    /// What comes next, by the disk's time and a number of its own.
    steps: BTreeMap<(u64, u64), (u32, File, Step)>,
    next: u64,
    broken: bool,
    interruptions: Interruptions,
}

impl SimQueue {
    pub fn new(disk: &Disk, depth: u32, stats: &Arc<Stats>) -> SimQueue {
        let mut slots = SlotTable::new(depth, stats);
        slots.set_policy(Policy { workers: true, force_async: true, simulated: true, ..Policy::default() });
        let random = disk.lock().random.next();
        SimQueue {
            slots,
            disk: disk.clone(),
            random: Random(random),
            steps: BTreeMap::new(),
            next: 0,
            broken: false,
            interruptions: Interruptions::default(),
        }
    }

    /// A call of the queue itself, which may be interrupted or break the queue.
    fn call(&mut self, call: Call) -> Result<()> {
        loop {
            match self.disk.queue_call(call) {
                Ok(()) => {
                    self.interruptions.none();
                    return Ok(());
                }
                Err(libc::EINTR | libc::EAGAIN) if self.interruptions.one_more() => {}
                Err(e) => {
                    return Err(Error::from_errno(call.name(), e).detail("the simulated queue is broken"));
                }
            }
        }
    }

    /// When the next step of an operation comes.
    fn moment(&mut self) -> (u64, u64) {
        let config = self.disk.config();
        self.next += 1;
        if !config.reorder {
            return (0, self.next);
        }
        let most = u64::from(config.delay_us.max(1)) * 1000;
        (self.disk.lock().clock + self.random.below(most), self.next)
    }

    /// Submits all that is pending.
    fn start(&mut self) -> Result<()> {
        self.slots.feed();
        while self.slots.has_pending() {
            self.call(Call::Submit)?;
            self.slots.tick();
            while let Some(i) = self.slots.next_pending() {
                match (self.slots.request(i), self.slots.own_file(i)) {
                    (Some(r), Some(file)) => {
                        self.slots.set_running(i);
                        let at = self.moment();
                        self.steps.insert(at, (i, file, Step::Effect(r)));
                    }
                    _ => self.slots.run_inline(i),
                }
            }
        }
        Ok(())
    }

    /// The next thing that happens.
    fn step(&mut self) {
        let Some(((time, _), (i, file, step))) = self.steps.pop_first() else { return };
        let calls = file.0.os().and_then(|os| os.other());
        let Some(handle) = calls.and_then(|c| (c as &dyn Any).downcast_ref::<Handle>()) else { return };
        {
            let mut w = self.disk.lock();
            w.clock = w.clock.max(time);
        }
        match step {
            Step::Effect(r) => {
                let (res, unfinished) = match perform(handle, &r) {
                    Ok((n, unfinished)) => (n as i64, unfinished),
                    Err(e) => (-i64::from(e), None),
                };
                let at = self.moment();
                self.steps.insert(at, (i, file, Step::Completion(res, unfinished)));
            }
            Step::Completion(res, unfinished) => {
                let res = match unfinished.map(|u| handle.end_write(u)) {
                    Some(Err(e)) => -i64::from(e),
                    _ => res,
                };
                self.slots.tick();
                self.slots.complete(i, res);
                self.slots.count();
            }
        }
    }

    fn drain(&mut self) -> Result<()> {
        while self.slots.running() > 0 {
            self.step();
            self.start()?;
        }
        Ok(())
    }
}

/// The effect of a request.
fn perform(h: &Handle, r: &Request) -> Sys<(usize, Option<Unfinished>)> {
    let flags = |dsync| if dsync { libc::RWF_DSYNC } else { 0 };
    match r.what {
        What::Read { ptr, len } => {
            // SAFETY: the buffer belongs to the operation in its slot, which keeps it until the completion
            // (`SlotTable::complete`), and it has at least `len` bytes from `ptr` on.
            let buf = unsafe { std::slice::from_raw_parts_mut(ptr, len as usize) };
            h.read(buf, r.offset).map(|n| (n, None))
        }
        What::ReadV { iov, n } => {
            // SAFETY: as above, and so do the vectors.
            let n = unsafe { h.read_vectors(std::slice::from_raw_parts(iov, n as usize), r.offset) };
            n.map(|n| (n, None))
        }
        What::Write { ptr, len, dsync } => {
            // SAFETY: as above.
            let buf = unsafe { std::slice::from_raw_parts(ptr, len as usize) };
            h.begin_write(buf, r.offset, flags(dsync))
        }
        What::WriteV { iov, n, dsync } => {
            // SAFETY: as above.
            let all = unsafe { gather(std::slice::from_raw_parts(iov, n as usize)) };
            h.begin_write(&all, r.offset, flags(dsync))
        }
        // The policy of this queue is that buffers are chosen when a read starts.
        What::Choose { .. } => Err(libc::EINVAL),
        What::Sync { data_only } => h.sync(data_only).map(|n| (n, None)),
        What::SyncRange { len, .. } => h.sync_range(r.offset, len).map(|n| (n, None)),
        What::Allocate { len } => h.allocate(r.offset, len).map(|n| (n, None)),
    }
}

impl SlotQueue for SimQueue {
    fn slots(&self) -> &SlotTable {
        &self.slots
    }

    fn slots_mut(&mut self) -> &mut SlotTable {
        &mut self.slots
    }

    fn submit(&mut self) -> Result<()> {
        self.start()
    }

    fn wait(&mut self, min: usize) -> Result<()> {
        self.start()?;
        self.call(Call::Wait)?;
        loop {
            let missing = min.min(self.slots.in_flight()).saturating_sub(self.slots.ready());
            if missing > 0 && self.slots.starving() {
                self.slots.await_buffer();
                self.start()?;
                continue;
            }
            // More than were asked for may have come meanwhile.
            let more = missing > 0 || self.disk.config().reorder && self.random.one_in(2);
            if self.slots.running() == 0 || !more {
                return Ok(());
            }
            self.step();
            self.start()?;
        }
    }

    fn pop(&mut self) -> Option<Done> {
        if self.slots.starving() {
            // As below.
            let _ = self.start();
        }
        // Now and then something has come without being waited for.
        if self.slots.ready() == 0 && self.slots.running() > 0 && self.random.one_in(4) {
            self.step();
            // An error comes out again, and is reported, at the next submit or wait.
            let _ = self.start();
        }
        self.slots.pop()
    }

    fn fail_all(&mut self, e: &Error) -> Vec<Done> {
        self.broken = true;
        self.slots.fail_all(e)
    }

    /// What was in flight is done or not; its buffers are still in their slots.
    fn settle(&mut self) -> bool {
        while !self.steps.is_empty() {
            if self.random.one_in(2) {
                self.step();
            } else {
                self.steps.pop_first();
            }
        }
        true
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        self.slots.discard_pending();
        if self.broken {
            self.settle();
        } else if self.drain().is_err() {
            self.steps.clear();
        }
    }
}
