//! Operations that overlap: batches, and queues, which know their thread or are safe for all.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use engineswap::mem::ForeignBuf;
use engineswap::{Buf, Done, Op, OpKind, Piece, Queue, SharedQueue};

use crate::args;
use crate::engine::engineswap_engine;
use crate::file::engineswap_file;
use crate::result::{
    Fail, INTERNAL, INVALID_ARGUMENT, OK, QUEUE_BROKEN, QUEUE_FULL, WRONG_THREAD, code_of, engineswap_error,
    guard, report,
};

const READ: u32 = 1;
const WRITE: u32 = 2;
const SYNC_DATA: u32 = 3;
const SYNC_ALL: u32 = 4;
const SYNC_RANGE: u32 = 5;
const ALLOCATE: u32 = 6;
const READV: u32 = 7;
const WRITEV: u32 = 8;
const CHAIN: u32 = 1;
const DSYNC: u32 = 2;
const FORCE_ASYNC: u32 = 4;
const BUFFER_HELD: u32 = 1;
const SHARED: u32 = 1;
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
    time_limit_us: u32,
}

/// One piece of a vectored operation.
#[repr(C)]
pub struct engineswap_vector {
    base: *mut c_void,
    len: usize,
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
        let flag = |f| self.flags & f != 0;
        if self.flags & !(CHAIN | DSYNC | FORCE_ASYNC) != 0 {
            return Err(Fail::invalid(format!("unknown flags {:#x} of an operation", self.flags)));
        }
        let kind = match self.kind {
            READ | READV => OpKind::Read,
            WRITE | WRITEV => OpKind::Write { dsync: flag(DSYNC) },
            SYNC_DATA => OpKind::SyncData,
            SYNC_ALL => OpKind::SyncAll,
            SYNC_RANGE => OpKind::SyncRange,
            ALLOCATE => OpKind::Allocate,
            k => return Err(Fail::invalid(format!("unknown kind {k} of an operation"))),
        };
        if flag(DSYNC) && !matches!(kind, OpKind::Write { .. }) {
            return Err(Fail::invalid("ENGINESWAP_OP_DSYNC is a flag of writes"));
        }
        let (buf, len) = match self.kind {
            READ | WRITE => {
                let len = args::memory(self.buffer.cast(), self.len, "buffer")?;
                // SAFETY: the caller's promise, until the completion; when an engine fails, for good.
                (Buf::Foreign(unsafe { lent(self.buffer, len, kind == OpKind::Read) }), self.len)
            }
            // SAFETY: the caller's promise.
            READV | WRITEV => unsafe { self.pieces(kind == OpKind::Read)? },
            _ => (Buf::None, self.len),
        };
        let offset = self.offset;
        if offset.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Fail::invalid(format!("offset {offset}, length {len}: beyond the largest offset")));
        }
        let limit = u64::from(self.time_limit_us);
        let op = Op::new(kind, &file.file, offset, len, buf, args::purpose(self.purpose)?);
        Ok(Op {
            user: self.user,
            chain: flag(CHAIN),
            force_async: flag(FORCE_ASYNC),
            time_limit: (limit > 0).then(|| Duration::from_micros(limit)),
            ..op
        })
    }

    /// The pieces of a vectored operation and how many bytes they have together.
    ///
    /// # Safety
    /// As of [`engineswap_op::to_op`].
    unsafe fn pieces(&self, read: bool) -> Result<(Buf, u64), Fail> {
        let count = usize::try_from(self.len).unwrap_or(usize::MAX);
        // SAFETY: the header's contract: an array of `len` vectors.
        let vectors = unsafe { args::array::<engineswap_vector>(self.buffer.cast(), count, "vectors")? };
        let mut total = 0u64;
        let mut pieces = Vec::with_capacity(count);
        for v in vectors {
            let len = args::memory(v.base.cast(), v.len as u64, "buffer")?;
            total = total.saturating_add(len as u64);
            // SAFETY: the caller's promise, until the completion; when an engine fails, for good.
            pieces.push(Piece::Foreign(unsafe { lent(v.base, len, read) }));
        }
        Ok((Buf::Pieces(pieces), total))
    }

    fn has_memory(&self) -> bool {
        matches!(self.kind, READ | WRITE | READV | WRITEV)
    }
}

/// # Safety
/// The memory is the library's until the operation's completion; when an engine fails, for good.
unsafe fn lent(buffer: *mut c_void, len: usize, read: bool) -> ForeignBuf {
    match read {
        // SAFETY: the caller's promise.
        true => unsafe { ForeignBuf::to_read_into(buffer.cast(), len) },
        // SAFETY: as above.
        false => unsafe { ForeignBuf::to_write_from(buffer.cast(), len) },
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
        // SAFETY: the header's contract: an array of `count`.
        let ops = unsafe { args::array(ops, count, "operations")? };
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

/// A queue, of one thread or of all.
pub struct engineswap_queue {
    kind: Kind,
}

enum Kind {
    Own { thread: u64, own: UnsafeCell<Own> },
    Shared(Box<SharedQueue>),
}

/// A queue of one thread.
struct Own {
    queue: Queue,
    broken: Option<Fail>,
}

/// What the calling thread may use.
enum Handle<'a> {
    Own(&'a mut Own),
    Shared(&'a SharedQueue),
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
unsafe fn mine<'a>(queue: *const engineswap_queue) -> Result<Handle<'a>, Fail> {
    // SAFETY: the caller's promise.
    match unsafe { &args::handle(queue, "queue")?.kind } {
        Kind::Shared(q) => Ok(Handle::Shared(q)),
        Kind::Own { thread: owner, .. } if *owner != thread() => {
            Err(Fail::new(WRONG_THREAD, "a queue is used only by the thread that opened it"))
        }
        // SAFETY: this thread alone uses it, and no call of this library calls back into it.
        Kind::Own { own, .. } => Ok(Handle::Own(unsafe { &mut *own.get() })),
    }
}

fn broken(f: &Fail) -> Fail {
    Fail { code: QUEUE_BROKEN, errno: f.errno, message: f.message.clone() }
}

impl Own {
    fn check(&self) -> Result<(), Fail> {
        self.broken.as_ref().map_or(Ok(()), |f| Err(broken(f)))
    }
}

impl Handle<'_> {
    /// A call after whose failure the queue is broken.
    fn call<T>(
        &mut self,
        own: impl FnOnce(&mut Queue) -> engineswap::Result<T>,
        shared: impl FnOnce(&SharedQueue) -> engineswap::Result<T>,
    ) -> Result<T, Fail> {
        match self {
            Handle::Own(q) => {
                q.check()?;
                own(&mut q.queue).map_err(|e| {
                    let f = broken(&e.into());
                    q.broken = Some(broken(&f));
                    f
                })
            }
            Handle::Shared(q) => shared(q).map_err(|e| broken(&e.into())),
        }
    }

    fn pop(&mut self) -> Option<(engineswap_completion, Done)> {
        match self {
            Handle::Own(q) => q.queue.pop().map(|done| (completion(&done), done)),
            Handle::Shared(q) => q.pop().map(|done| (shared_completion(q, &done), done)),
        }
    }

    fn in_flight(&self) -> usize {
        match self {
            Handle::Own(q) => q.queue.in_flight(),
            Handle::Shared(q) => q.in_flight(),
        }
    }

    /// Does and takes everything that is left, and tells the first failure.
    fn drain(&mut self) -> Result<(), Fail> {
        let mut first = Ok(());
        loop {
            while let Some((_, done)) = self.pop() {
                first = first.and(done.result.map(drop));
            }
            match self.in_flight() {
                0 => return Ok(first?),
                left => self.call(|q| q.wait(left), |q| q.wait(left))?,
            }
        }
    }
}

/// A completion of a shared queue: when that broke, operations were answered that the kernel may still have.
fn shared_completion(q: &SharedQueue, done: &Done) -> engineswap_completion {
    let mut c = completion(done);
    if done.result.is_err() && matches!(done.buf, Buf::None) && q.failure().is_some() {
        c.flags = BUFFER_HELD;
    }
    c
}

fn full(why: &str) -> Fail {
    Fail::new(QUEUE_FULL, format!("{why}; take completions first"))
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
        if !(1..=MAX_DEPTH).contains(&depth) || flags & !SHARED != 0 {
            return Err(Fail::invalid(format!(
                "depth {depth}, flags {flags:#x}; a queue has a depth from 1 to {MAX_DEPTH}, and of flags only \
                 ENGINESWAP_QUEUE_SHARED"
            )));
        }
        let kind = match flags & SHARED != 0 {
            true => Kind::Shared(Box::new(engine.io.shared_queue(depth)?)),
            false => {
                let own = UnsafeCell::new(Own { queue: engine.io.queue(depth)?, broken: None });
                Kind::Own { thread: thread(), own }
            }
        };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(Box::into_raw(Box::new(engineswap_queue { kind }))) };
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
        let queue = unsafe { Box::from_raw(queue) };
        // SAFETY: a live handle.
        unsafe { mine(&raw const *queue)? }.drain().map(|()| OK)
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
        let pushed = match q {
            Handle::Own(q) => {
                q.check()?;
                // SAFETY: the header's contract: a live file, and memory that is the library's from now on.
                q.queue.push(unsafe { op.to_op()? })
            }
            Handle::Shared(_) if op.flags & CHAIN != 0 => {
                return Err(Fail::invalid(
                    "another thread's operation may come next: chains of a shared queue go through \
                     engineswap_queue_push_many",
                ));
            }
            // SAFETY: as above.
            Handle::Shared(q) => q.push(unsafe { op.to_op()? }),
        };
        pushed.map(|()| OK).map_err(|_| full("the queue is full"))
    })
}

/// Adds all operations or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_push_many(
    queue: *mut engineswap_queue,
    ops: *const engineswap_op,
    count: usize,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let q = unsafe { mine(queue)? };
        // SAFETY: the header's contract: an array of `count`.
        let ops = unsafe { args::array(ops, count, "operations")? };
        let depth = match &q {
            Handle::Own(q) => q.queue.depth(),
            Handle::Shared(q) => q.depth(),
        };
        if count > depth {
            return Err(Fail::invalid(format!("{count} operations for a queue of depth {depth}")));
        }
        // SAFETY: the header's contract: live files, and memory that is the library's from now on.
        let batch: Result<Vec<Op>, Fail> = ops.iter().map(|op| unsafe { op.to_op() }).collect();
        let room = format!("the queue has no room for {count} operations");
        match q {
            Handle::Own(q) => {
                q.check()?;
                if q.queue.in_flight() + count > depth {
                    return Err(full(&room));
                }
                let pushed = batch?.into_iter().try_for_each(|op| q.queue.push(op));
                q.queue.end_chain();
                pushed.map_err(|_| Fail::new(INTERNAL, "a queue with room refused an operation"))?;
            }
            Handle::Shared(q) => q.push_all(batch?).map_err(|_| full(&room))?,
        }
        Ok(OK)
    })
}

/// Starts what was pushed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_submit(
    queue: *mut engineswap_queue,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        unsafe { mine(queue)? }.call(Queue::submit, SharedQueue::submit).map(|()| OK)
    })
}

/// Waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_wait(
    queue: *mut engineswap_queue,
    min: usize,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        unsafe { mine(queue)? }.call(|q| q.wait(min), |q| q.wait(min)).map(|()| OK)
    })
}

/// Takes operations back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_cancel(
    queue: *mut engineswap_queue,
    user: u64,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let found = unsafe { mine(queue)? }.call(|q| q.cancel(user), |q| q.cancel(user))?;
        Ok(found.min(i32::MAX as usize) as i32)
    })
}

/// Hands a completion, and what its failure says, to the caller.
///
/// # Safety
/// The header's contract of `out` and `err`.
unsafe fn hand_out(
    out: *mut engineswap_completion,
    err: *mut engineswap_error,
    take: impl FnOnce() -> Result<Option<(engineswap_completion, Option<Fail>)>, Fail>,
) -> i32 {
    let mut failed = None;
    let taken = guard(err, || {
        let out = args::out(out)?;
        let Some((c, fail)) = take()? else { return Ok(0) };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(c) };
        failed = fail;
        Ok(1)
    });
    if let Some(f) = failed {
        report(err, f.code, f.errno, &f.message);
    }
    taken
}

/// Takes a completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_pop(
    queue: *mut engineswap_queue,
    out: *mut engineswap_completion,
    err: *mut engineswap_error,
) -> i32 {
    let take = || {
        // SAFETY: the header's contract.
        let done = unsafe { mine(queue)? }.pop();
        Ok(done.map(|(c, done)| (c, done.result.err().map(Fail::from))))
    };
    // SAFETY: the header's contract.
    unsafe { hand_out(out, err, take) }
}

/// Waits for a certain completion and takes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_queue_take(
    queue: *mut engineswap_queue,
    user: u64,
    out: *mut engineswap_completion,
    err: *mut engineswap_error,
) -> i32 {
    let take = || {
        // SAFETY: the header's contract.
        let Handle::Shared(q) = (unsafe { mine(queue)? }) else {
            return Err(Fail::invalid("engineswap_queue_take is for queues with ENGINESWAP_QUEUE_SHARED"));
        };
        let done = q.take(user).map_err(|e| broken(&e.into()))?;
        Ok(done.map(|done| (shared_completion(q, &done), done.result.err().map(Fail::from))))
    };
    // SAFETY: the header's contract.
    unsafe { hand_out(out, err, take) }
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
        let mut q = unsafe { mine(queue)? };
        if max == 0 {
            return Ok(0);
        }
        let out = args::out(out)?;
        let mut n = 0;
        while n < max.min(i32::MAX as usize) {
            let Some((c, _)) = q.pop() else { break };
            // SAFETY: not NULL; an array of `max` places.
            unsafe { out.add(n).write(c) };
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
        n = unsafe { mine(queue)? }.in_flight();
        Ok(OK)
    });
    n
}
