//! [`crate::Io::run`]: a batch on a queue that is kept for it ([`super::kept`]).
//!
//! While a batch runs its queue is out of the thread's list, so a callback that runs a batch of its own gets
//! another one.

use std::iter;
use std::sync::Arc;

use super::kept::{self, Maker};
use super::{RawQueue, cached, trace};
use crate::Error;
use crate::buf::Buf;
use crate::engine::exec;
use crate::op::{Done, Op};
use crate::stats::{Counter, Stats};

/// Runs one operation through a queue, with nothing to overlap. Its memory is nobody's but the caller's afterwards.
pub(crate) fn run_alone(token: &Arc<u64>, op: Op, maker: &dyn Maker, stats: &Stats) -> Done {
    let Some(mut taken) = kept::take(token, maker) else {
        stats.add(Counter::Fallbacks, 1);
        return alone(op);
    };
    let queue = taken.queue();
    if let Err(op) = queue.push(op) {
        return alone(op);
    }
    loop {
        let waited = queue.wait(1);
        if let Some(done) = queue.pop() {
            if waited.is_ok() {
                taken.put_back();
            }
            return done;
        }
        let Err(e) = waited else { continue };
        let failed = queue.fail_all(&e).pop();
        if !queue.settle() {
            // The operation's memory is only lent for this call, and the kernel may still write to it.
            eprintln!(
                "engineswap: {e}, with an operation in flight whose memory its caller gets back; aborting"
            );
            std::process::abort();
        }
        return failed.unwrap_or(Done { user: 0, result: Err(e), buf: Buf::None });
    }
}

/// Operations of a batch are submitted in groups of so many, so that the device works on the first while the system
/// prepares the rest: 64 random reads take 356 us in eights, 376 us at once; 16 take 99 us, 106 us.
const SUBMIT_EVERY: usize = 8;

/// Runs all operations; the results are in their order.
pub(crate) fn run(token: &Arc<u64>, mut ops: Vec<Op>, maker: &dyn Maker, stats: &Stats) -> Vec<Done> {
    if ops.len() == 1 && ops[0].time_limit.is_none() && !maker.queue_always() {
        return ops.into_iter().map(alone).collect();
    }
    // The place in the batch travels as the tag; the caller's tags wait in the results.
    let mut out: Vec<(u64, Option<Done>)> = Vec::with_capacity(ops.len());
    for (i, op) in ops.iter_mut().enumerate() {
        out.push((op.user, None));
        op.user = i as u64;
    }
    // Nobody looks at a result before all are there: one wait is enough.
    feed(token, &mut ops.into_iter(), maker, stats, false, &mut |done| {
        let i = done.user as usize;
        out[i].1 = Some(done);
    });
    let unanswered = || Err(Error::from_errno("run", libc::ECANCELED));
    let answer = |(user, done): (u64, Option<Done>)| match done {
        Some(done) => Done { user, ..done },
        None => Done { user, result: unanswered(), buf: Buf::None },
    };
    out.into_iter().map(answer).collect()
}

/// Runs all operations and calls `each` with every completion as it comes.
pub(crate) fn run_with(
    token: &Arc<u64>,
    ops: &mut dyn Iterator<Item = Op>,
    maker: &dyn Maker,
    stats: &Stats,
    each: &mut dyn FnMut(Done),
) {
    feed(token, ops, maker, stats, true, each);
}

fn feed(
    token: &Arc<u64>,
    ops: &mut dyn Iterator<Item = Op>,
    maker: &dyn Maker,
    stats: &Stats,
    in_groups: bool,
    each: &mut dyn FnMut(Done),
) {
    let mut rest;
    let ops = if maker.cached_first() {
        rest = cached::reads(ops.collect(), stats, each).into_iter();
        &mut rest
    } else {
        ops
    };
    let Some(first) = ops.next() else { return };
    let second = ops.next();
    if second.is_none() && first.time_limit.is_none() && !maker.queue_always() {
        return each(alone(first));
    }
    let ops = iter::once(first).chain(second).chain(ops);
    let Some(mut taken) = kept::take(token, maker) else {
        // This thread cannot have a queue now (descriptors, memory, as many as are good). The engine works, so the
        // operations are done all the same, one by one, and counted as such.
        stats.add(Counter::Fallbacks, 1);
        one_by_one(ops, each);
        return;
    };
    if drive(taken.queue(), ops, in_groups, each) {
        taken.put_back();
    }
}

/// Feeds the operations through; says whether the queue can be used again.
fn drive(
    queue: &mut dyn RawQueue,
    ops: impl Iterator<Item = Op>,
    in_groups: bool,
    each: &mut dyn FnMut(Done),
) -> bool {
    let mut ops = ops.peekable();
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
            if pushed >= SUBMIT_EVERY && !chain && ops.peek().is_some() {
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
        let to_come = held.is_some() || ops.peek().is_some();
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
    let result = exec::execute(&mut op);
    Done { user: op.user, result, buf: op.buf }
}

/// The error of an operation that is answered without having been started.
fn refuse(op: &Op, e: Error) -> Error {
    trace::refused(op, &e);
    e
}

fn one_by_one(ops: impl Iterator<Item = Op>, each: &mut dyn FnMut(Done)) {
    let mut go = true;
    for mut op in ops {
        let result = match (go, op.time_limit) {
            (true, None) => exec::execute(&mut op),
            (true, Some(_)) => Err(refuse(&op, super::slots::no_limit(&op))),
            (false, _) => Err(refuse(&op, super::slots::canceled(&op))),
        };
        let chain = op.chain;
        go = !chain || super::slots::is_full(&op, &result);
        each(Done { user: op.user, result, buf: op.buf });
    }
}
