//! [`crate::Io::run`]: a batch on a queue that the calling thread keeps for the engine.
//!
//! A thread keeps at most [`KEPT`] queues; those of engines that are gone are dropped when it makes another.
//! While a batch runs its queue is out of the thread's list, so a callback that runs a batch of its own gets
//! another one.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use super::{RawQueue, base};
use crate::buf::Buf;
use crate::op::{Done, Op};
use crate::probes;
use crate::stats::Stats;
use crate::{Error, Result};

const KEPT: usize = 8;

/// Operations of a batch are submitted in groups of so many, so that the device works on the first while the system
/// prepares the rest: 64 random reads take 356 us in eights, 376 us at once; 16 take 99 us, 106 us.
const SUBMIT_EVERY: usize = 8;

type Make<'a> = &'a dyn Fn() -> Result<Box<dyn RawQueue>>;

struct Kept {
    engine: Weak<u64>,
    id: u64,
    queue: Box<dyn RawQueue>,
}

thread_local! {
    static QUEUES: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

fn take(id: u64) -> Option<Box<dyn RawQueue>> {
    // The list is not to be had while the thread ends.
    QUEUES
        .try_with(|q| {
            let mut q = q.borrow_mut();
            let i = q.iter().position(|k| k.id == id)?;
            Some(q.swap_remove(i).queue)
        })
        .ok()?
}

fn put_back(token: &Arc<u64>, queue: Box<dyn RawQueue>) {
    // What is thrown out is dropped only after the list is given back: a queue's drop is not trivial.
    let _ = QUEUES.try_with(|q| {
        let mut q = q.borrow_mut();
        let mut out: Vec<Kept> = q.extract_if(.., |k| k.engine.strong_count() == 0).collect();
        if q.len() >= KEPT {
            out.push(q.remove(0));
        }
        q.push(Kept { engine: Arc::downgrade(token), id: **token, queue });
        drop(q);
        out
    });
}

/// Runs all operations; the results are in their order.
pub(super) fn run(token: &Arc<u64>, mut ops: Vec<Op>, make: Make<'_>, stats: &Stats) -> Vec<Done> {
    if ops.len() == 1 && ops[0].time_limit.is_none() {
        return ops.into_iter().map(alone).collect();
    }
    // The place in the batch travels as the tag; the caller's tags wait in the results.
    let mut out: Vec<Done> = Vec::with_capacity(ops.len());
    for (i, op) in ops.iter_mut().enumerate() {
        let unfinished = Err(Error::from_errno("run", libc::ECANCELED));
        out.push(Done { user: op.user, result: unfinished, buf: Buf::None });
        op.user = i as u64;
    }
    // Nobody looks at a result before all are there: one wait is enough.
    feed(token, ops, make, stats, false, &mut |done| {
        let place = &mut out[done.user as usize];
        place.result = done.result;
        place.buf = done.buf;
    });
    out
}

/// Runs all operations and calls `each` with every completion as it comes.
pub(super) fn run_with(
    token: &Arc<u64>,
    ops: Vec<Op>,
    make: Make<'_>,
    stats: &Stats,
    each: &mut dyn FnMut(Done),
) {
    feed(token, ops, make, stats, true, each);
}

fn feed(
    token: &Arc<u64>,
    ops: Vec<Op>,
    make: Make<'_>,
    stats: &Stats,
    in_groups: bool,
    each: &mut dyn FnMut(Done),
) {
    if ops.len() < 2 && ops.iter().all(|op| op.time_limit.is_none()) {
        ops.into_iter().map(alone).for_each(each);
        return;
    }
    let queue = match take(**token) {
        Some(q) => Ok(q),
        None => make(),
    };
    let Ok(mut queue) = queue else {
        // This thread cannot have a queue now (descriptors, memory). The engine works, so the operations are
        // done all the same, one by one, and counted as such.
        stats.fallback();
        one_by_one(ops, each);
        return;
    };
    if drive(&mut *queue, ops, in_groups, each) {
        put_back(token, queue);
    }
}

/// Feeds the operations through; says whether the queue can be used again.
fn drive(queue: &mut dyn RawQueue, ops: Vec<Op>, in_groups: bool, each: &mut dyn FnMut(Done)) -> bool {
    let mut ops = ops.into_iter();
    let mut held = None;
    loop {
        let mut pushed = 0;
        let mut started = Ok(());
        while let Some(op) = held.take().or_else(|| ops.next()) {
            let chain = op.chain;
            if let Err(op) = queue.push(op) {
                held = Some(op);
                break;
            }
            pushed += 1;
            // A chain is not cut.
            if pushed >= SUBMIT_EVERY && !chain && ops.len() > 0 {
                pushed = 0;
                started = queue.submit();
                if started.is_err() {
                    break;
                }
            }
        }
        if queue.in_flight() == 0 {
            queue.end_chain();
            return true;
        }
        // In groups: the results of the first are used, or their places refilled, while the rest is in flight.
        let n = queue.in_flight();
        let to_come = held.is_some() || ops.len() > 0;
        let group = if n <= 16 || !(in_groups || to_come) { n } else { (n / 4).max(8) };
        let waited = started.and_then(|()| queue.wait(group));
        while let Some(done) = queue.pop() {
            each(done);
        }
        if let Err(e) = waited {
            // The queue itself broke. It answers for every operation that it still holds.
            for done in queue.fail_all(&e) {
                each(done);
            }
            for op in held.into_iter().chain(ops) {
                let result = Err(refuse(&op, e.clone()));
                each(Done { user: op.user, result, buf: op.buf });
            }
            return false;
        }
    }
}

fn alone(mut op: Op) -> Done {
    let result = base::execute(&mut op);
    Done { user: op.user, result, buf: op.buf }
}

/// The error of an operation that is answered without having been started.
fn refuse(op: &Op, e: Error) -> Error {
    probes::refused(op, &e);
    e
}

fn one_by_one(ops: Vec<Op>, each: &mut dyn FnMut(Done)) {
    let mut go = true;
    for mut op in ops {
        let result = match (go, op.time_limit) {
            (true, None) => base::execute(&mut op),
            (true, Some(_)) => Err(refuse(&op, super::core::no_limit(&op))),
            (false, _) => Err(refuse(&op, super::core::canceled(&op))),
        };
        let chain = op.chain;
        go = !chain || super::core::is_full(&op, &result);
        each(Done { user: op.user, result, buf: op.buf });
    }
}
