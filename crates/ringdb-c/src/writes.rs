//! Writes for event loops: futures of the store, whose ends gather behind a descriptor.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use engineswap::Process;
use ringdb::{Db, Error, WriteFuture};

use crate::answer::{hand_out, ringdb_answer};
use crate::args::{self, ringdb_write_options};
use crate::callback::refuse_in_a_callback;
use crate::result::{Alone, Fail, OK, failed, guard, ringdb_error, would_block};
use crate::store::{give, ringdb_db};
use crate::task::start;
use crate::value::free;
use crate::write::ringdb_batch;

/// A completion interface for writes.
pub struct ringdb_writes(Alone<Writes>);

/// Most writes that one of these has open.
const MOST: usize = 1 << 16;

struct Writes {
    db: Db,
    shared: Arc<Shared>,
    depth: usize,
    /// Submitted, and the answer not taken.
    open: usize,
    process: Process,
}

struct Shared {
    done: Mutex<VecDeque<(u64, Result<(), Error>)>>,
    more: Condvar,
    /// Readable exactly as long as there is something in `done`: changed under its lock.
    event: OwnedFd,
}

impl Shared {
    fn new() -> Result<Shared, Fail> {
        // SAFETY: makes a descriptor.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            let e = std::io::Error::last_os_error();
            return Err(failed(engineswap::Error::from_std("make an eventfd", &e).into()));
        }
        // SAFETY: it was just made, and is nobody else's.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Shared { done: Mutex::default(), more: Condvar::new(), event })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, Result<(), Error>)>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, tag: u64, result: Result<(), Error>) {
        let mut done = self.lock();
        if done.is_empty() {
            let one = 1u64.to_ne_bytes();
            // SAFETY: writes 8 bytes; the counter is 0, so that it does not fail.
            unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), 8) };
        }
        done.push_back((tag, result));
        drop(done);
        self.more.notify_one();
    }

    fn pop(&self) -> Option<(u64, Result<(), Error>)> {
        let mut done = self.lock();
        let one = done.pop_front()?;
        if done.is_empty() {
            let mut count = [0u8; 8];
            // SAFETY: reads 8 bytes; the counter is 1, so that it does not fail.
            unsafe { libc::read(self.event.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
        }
        Some(one)
    }
}

impl Writes {
    fn check(&self) -> Result<(), Fail> {
        if self.process.is_this() {
            return Ok(());
        }
        Err(Fail::invalid("the writes handle was opened before fork() and is the parent's"))
    }

    fn begin(&mut self, tag: u64, future: impl FnOnce(&Db) -> WriteFuture) -> Result<i32, Fail> {
        self.check()?;
        if self.open == self.depth {
            return Err(would_block());
        }
        self.open += 1;
        let shared = Arc::clone(&self.shared);
        start(future(&self.db), move |result| shared.push(tag, result), |_| {});
        Ok(OK)
    }
}

/// Opens one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_writes_open(
    db: *const ringdb_db,
    depth: usize,
    out: *mut *mut ringdb_writes,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let db = unsafe { args::handle(db, "store")? };
        db.writable()?;
        // Which tells of a store that is closed.
        db.db.keyspaces().map_err(failed)?;
        let (db, shared, depth) = (db.db.clone(), Arc::new(Shared::new()?), depth.clamp(1, MOST));
        let writes = Writes { db, shared, depth, open: 0, process: Process::this() };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, ringdb_writes(Alone::new(writes))) };
        Ok(OK)
    })
}

/// Begins a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_writes_submit(
    writes: *mut ringdb_writes,
    tag: u64,
    batch: *const ringdb_batch,
    how: *const ringdb_write_options,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (writes, batch, how) = unsafe {
            (args::handle(writes, "writes handle")?, args::handle(batch, "batch")?, args::write_options(how)?)
        };
        let batch = batch.0.take("batch")?;
        writes.0.take("writes handle")?.begin(tag, |db| db.write_async(batch.clone(), &how))
    })
}

/// Begins a sync.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_writes_sync(
    writes: *mut ringdb_writes,
    tag: u64,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let writes = unsafe { args::handle(writes, "writes handle")? };
        writes.0.take("writes handle")?.begin(tag, Db::sync_async)
    })
}

/// Takes an answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_writes_poll(
    writes: *mut ringdb_writes,
    out: *mut ringdb_answer,
    err: *mut ringdb_error,
) -> i32 {
    let take = || {
        // SAFETY: the header's contract.
        let mut writes = unsafe { args::handle(writes, "writes handle")? }.0.take("writes handle")?;
        writes.check()?;
        let Some((tag, result)) = writes.shared.pop() else { return Ok(None) };
        writes.open -= 1;
        let fail = result.err().map(failed);
        Ok(Some((ringdb_answer::new(tag, fail.as_ref().map_or(OK, |f| f.code), null_mut()), fail)))
    };
    // SAFETY: the header's contract.
    unsafe { hand_out(out, err, take) }
}

/// Waits for answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_writes_wait(
    writes: *mut ringdb_writes,
    min: usize,
    ready: *mut usize,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let writes = unsafe { args::handle(writes, "writes handle")? }.0.take("writes handle")?;
        refuse_in_a_callback("ringdb_writes_wait")?;
        writes.check()?;
        let mut done = writes.shared.lock();
        while done.len() < min.min(writes.open) {
            done = writes.shared.more.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        if !ready.is_null() {
            // SAFETY: a place of the caller.
            unsafe { ready.write(done.len()) };
        }
        Ok(OK)
    })
}

/// The descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_writes_fd(
    writes: *mut ringdb_writes,
    fd: *mut c_int,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(fd)?;
        // SAFETY: the header's contract.
        let writes = unsafe { args::handle(writes, "writes handle")? }.0.take("writes handle")?;
        writes.check()?;
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(writes.shared.event.as_raw_fd()) };
        Ok(OK)
    })
}

/// Ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_writes_free(writes: *mut ringdb_writes) {
    // SAFETY: the header's contract.
    unsafe { free(writes) }
}
