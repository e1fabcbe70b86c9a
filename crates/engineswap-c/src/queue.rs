//! Operations that overlap: batches, and queues that know their thread.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engineswap::mem::ForeignBuf;
use engineswap::{Buf, Done, Op, OpKind, Queue};

use crate::args;
use crate::engine::engineswap_engine;
use crate::file::engineswap_file;
use crate::result::{
    Fail, INVALID_ARGUMENT, OK, QUEUE_BROKEN, QUEUE_FULL, WRONG_THREAD, code_of, engineswap_error, guard,
    report,
};

const CHAIN: u32 = 1;
const DSYNC: u32 = 2;
const BUFFER_HELD: u32 = 1;
const MAX_DEPTH: u32 = 65_536;

/// One operation.
#[repr(C)]
pub struct engineswap_op {
    kind: u32,
    flags: u32,
    file: *mut engineswap_file,
    buffer: *mut c_void,
    offset: u64,
    len: u64,
    user: u64,
    purpose: u32,
    reserved: u32,
}

/// How an operation ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct engineswap_completion {
    user: u64,
    result: i64,
    os_errno: i32,
    flags: u32,
}

impl engineswap_op {
    /// # Safety
    /// The header's contract: the file's handle is live, and the memory is the library's from now on.
    unsafe fn to_op(&self) -> Result<Op, Fail> {
        // SAFETY: the caller's promise.
        let file = unsafe { args::handle(self.file, "operation's file")? };
        if self.flags & !(CHAIN | DSYNC) != 0 || self.reserved != 0 {
            return Err(Fail::invalid("unknown flags of an operation, or a reserved field that is not 0"));
        }
        let dsync = self.flags & DSYNC != 0;
        let kind = match self.kind {
            1 => OpKind::Read,
            2 => OpKind::Write { dsync },
            3 => OpKind::SyncData,
            4 => OpKind::SyncAll,
            5 => OpKind::SyncRange,
            6 => OpKind::Allocate,
            k => return Err(Fail::invalid(format!("unknown kind {k} of an operation"))),
        };
        if dsync && self.kind != 2 {
            return Err(Fail::invalid("ENGINESWAP_OP_DSYNC is a flag of writes"));
        }
        if self.offset.checked_add(self.len).is_none_or(|end| end > i64::MAX as u64) {
            let range = format!("offset {}, length {}", self.offset, self.len);
            return Err(Fail::invalid(format!("{range}: beyond the largest offset")));
        }
        let buf = match kind {
            OpKind::Read => {
                let len = args::memory(self.buffer.cast(), self.len)?;
                // SAFETY: the caller's promise, until the completion; when an engine fails, for good.
                Buf::Foreign(unsafe { ForeignBuf::to_read_into(self.buffer.cast(), len) })
            }
            OpKind::Write { .. } => {
                let len = args::memory(self.buffer.cast(), self.len)?;
                // SAFETY: as above.
                Buf::Foreign(unsafe { ForeignBuf::to_write_from(self.buffer.cast(), len) })
            }
            _ => Buf::None,
        };
        let (offset, len, user) = (self.offset, self.len, self.user);
        let chain = self.flags & CHAIN != 0;
        let rest = Op::sync_data(&file.file, args::purpose(self.purpose)?);
        Ok(Op { kind, offset, len, buf, user, chain, ..rest })
    }

    fn has_memory(&self) -> bool {
        matches!(self.kind, 1 | 2)
    }
}

fn completion(done: &Done) -> engineswap_completion {
    let (result, os_errno) = match &done.result {
        Ok(n) => (*n as i64, 0),
        Err(e) => (code_of(e).into(), e.errno().unwrap_or(0)),
    };
    engineswap_completion { user: done.user, result, os_errno, flags: 0 }
}

/// Runs a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_run(
    engine: *const engineswap_engine,
    ops: *const engineswap_op,
    count: usize,
    out: *mut engineswap_completion,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let engine = unsafe { args::handle(engine, "engine")? };
        if count == 0 {
            return Ok(OK);
        }
        let out = args::out(out)?;
        if ops.is_null() || count > isize::MAX as usize / size_of::<engineswap_op>() {
            return Err(Fail::invalid(format!("no array of {count} operations")));
        }
        // SAFETY: not NULL; the header's contract: an array of `count`.
        let ops = unsafe { std::slice::from_raw_parts(ops, count) };
        // SAFETY: the header's contract: a live file, and memory that is the library's for this call.
        let batch: Result<Vec<Op>, Fail> = ops.iter().map(|op| unsafe { op.to_op() }).collect();
        let batch = match batch {
            Ok(batch) => batch,
            Err(fail) => {
                for (i, op) in ops.iter().enumerate() {
                    let result = INVALID_ARGUMENT.into();
                    let c = engineswap_completion { user: op.user, result, os_errno: 0, flags: 0 };
                    // SAFETY: not NULL; an array of `count` places.
                    unsafe { out.add(i).write(c) };
                }
                return Err(fail);
            }
        };
        let mut first: Option<Fail> = None;
        for (i, done) in engine.io.run(batch).into_iter().enumerate() {
            let mut c = completion(&done);
            if ops[i].has_memory() && matches!(done.buf, Buf::None) {
                c.flags = BUFFER_HELD;
            }
            // SAFETY: as above; there are as many results as operations.
            unsafe { out.add(i).write(c) };
            if let (Err(e), None) = (done.result, &first) {
                first = Some(e.into());
            }
        }
        first.map_or(Ok(OK), Err)
    })
}

/// A queue and the thread that it belongs to.
pub struct engineswap_queue {
    queue: Queue,
    thread: u64,
    broken: Option<Fail>,
}

/// A number that no other thread of this process has or had.
fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static MINE: Cell<u64> = const { Cell::new(0) };
    }
    MINE.with(|mine| {
        if mine.get() == 0 {
            mine.set(NEXT.fetch_add(1, Relaxed));
        }
        mine.get()
    })
}

/// # Safety
/// `queue` is NULL or a live handle.
unsafe fn mine<'a>(queue: *mut engineswap_queue) -> Result<&'a mut engineswap_queue, Fail> {
    if queue.is_null() {
        return Err(Fail::invalid("the queue is NULL"));
    }
    // SAFETY: not NULL, live; `thread` never changes, so that any thread may read it.
    let owner = unsafe { (&raw const (*queue).thread).read() };
    if owner != thread() {
        return Err(Fail::new(WRONG_THREAD, "a queue is used only by the thread that opened it"));
    }
    // SAFETY: this thread alone uses the rest, and no call of this library calls back into it.
    unsafe { args::handle_mut(queue, "queue") }
}

impl engineswap_queue {
    fn check(&self) -> Result<(), Fail> {
        match &self.broken {
            None => Ok(()),
            Some(f) => Err(Fail { code: QUEUE_BROKEN, errno: f.errno, message: f.message.clone() }),
        }
    }

    fn attempt(&mut self, call: impl FnOnce(&mut Queue) -> engineswap::Result<()>) -> Result<i32, Fail> {
        self.check()?;
        match call(&mut self.queue) {
            Ok(()) => Ok(OK),
            Err(e) => {
                self.broken = Some(Fail::from(e).with_code(QUEUE_BROKEN));
                self.check().map(|()| OK)
            }
        }
    }
}

/// Opens a queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_open(
    engine: *const engineswap_engine,
    depth: u32,
    flags: u32,
    out: *mut *mut engineswap_queue,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let engine = unsafe { args::handle(engine, "engine")? };
        if !(1..=MAX_DEPTH).contains(&depth) || flags != 0 {
            return Err(Fail::invalid(format!(
                "depth {depth}, flags {flags:#x}; a queue has a depth from 1 to {MAX_DEPTH} and no flags"
            )));
        }
        let queue = engineswap_queue { queue: engine.io.queue(depth)?, thread: thread(), broken: None };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(Box::into_raw(Box::new(queue))) };
        Ok(OK)
    })
}

/// Drains and closes a queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_close(
    queue: *mut engineswap_queue,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        if queue.is_null() {
            return Ok(OK);
        }
        // SAFETY: the header's contract.
        unsafe { mine(queue)? };
        // SAFETY: made by `engineswap_queue_open`, closed once: after this the handle is gone.
        let mut q = unsafe { Box::from_raw(queue) };
        let mut first: Option<Fail> = None;
        loop {
            while let Some(done) = q.queue.pop() {
                if let (Err(e), None) = (done.result, &first) {
                    first = Some(e.into());
                }
            }
            let left = q.queue.in_flight();
            if left == 0 {
                return first.map_or(Ok(OK), Err);
            }
            q.attempt(|queue| queue.wait(left))?;
        }
    })
}

/// Adds an operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_push(
    queue: *mut engineswap_queue,
    op: *const engineswap_op,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (q, op) = unsafe { (mine(queue)?, args::handle(op, "operation")?) };
        q.check()?;
        // SAFETY: the header's contract: a live file, and memory that is the library's from now on.
        match q.queue.push(unsafe { op.to_op()? }) {
            Ok(()) => Ok(OK),
            Err(_) => Err(Fail::new(QUEUE_FULL, "the queue is full; take completions first")),
        }
    })
}

/// Ends a chain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_end_chain(
    queue: *mut engineswap_queue,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        unsafe { mine(queue)? }.queue.end_chain();
        Ok(OK)
    })
}

/// Starts what was pushed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_submit(
    queue: *mut engineswap_queue,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    guard(err, || unsafe { mine(queue)? }.attempt(Queue::submit))
}

/// Waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_wait(
    queue: *mut engineswap_queue,
    min: usize,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    guard(err, || unsafe { mine(queue)? }.attempt(|q| q.wait(min)))
}

/// Takes a completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_pop(
    queue: *mut engineswap_queue,
    out: *mut engineswap_completion,
    err: *mut engineswap_error,
) -> i32 {
    let mut failed = None;
    let taken = guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let Some(done) = unsafe { mine(queue)? }.queue.pop() else { return Ok(0) };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(completion(&done)) };
        failed = done.result.err().map(Fail::from);
        Ok(1)
    });
    if let Some(f) = failed {
        report(err, f.code, f.errno, &f.message);
    }
    taken
}

/// Takes completions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_pop_many(
    queue: *mut engineswap_queue,
    out: *mut engineswap_completion,
    max: usize,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let q = unsafe { mine(queue)? };
        if max == 0 {
            return Ok(0);
        }
        let out = args::out(out)?;
        let mut n = 0;
        while n < max.min(i32::MAX as usize) {
            let Some(done) = q.queue.pop() else { break };
            // SAFETY: not NULL; an array of `max` places.
            unsafe { out.add(n).write(completion(&done)) };
            n += 1;
        }
        Ok(n as i32)
    })
}

/// Operations in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_in_flight(queue: *const engineswap_queue) -> usize {
    let mut n = 0;
    guard(std::ptr::null_mut(), || {
        // SAFETY: the header's contract.
        n = unsafe { mine(queue.cast_mut())? }.queue.in_flight();
        Ok(OK)
    });
    n
}
