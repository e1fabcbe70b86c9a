//! Reads for event loops.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use ringdb::Reads;

use crate::answer::{hand_out, ringdb_answer};
use crate::args::{self, ringdb_read_options};
use crate::result::{Alone, OK, failed, guard, ringdb_error};
use crate::store::{give, ringdb_db};
use crate::value::{free, ringdb_value};

/// A completion interface.
pub struct ringdb_reads(Alone<Reads>);

/// Opens one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_reads_open(
    db: *const ringdb_db,
    depth: usize,
    how: *const ringdb_read_options,
    out: *mut *mut ringdb_reads,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (db, how) = unsafe { (args::handle(db, "store")?, args::read_options(how)?) };
        let reads = db.reads(depth, &how).map_err(failed)?;
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, ringdb_reads(Alone::new(reads))) };
        Ok(OK)
    })
}

/// Asks for a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_reads_submit(
    reads: *mut ringdb_reads,
    tag: u64,
    key: *const c_void,
    key_len: usize,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (reads, key) =
            unsafe { (args::handle(reads, "reads handle")?, args::bytes(key, key_len, "key")?) };
        reads.0.take("reads handle")?.submit(tag, key).map_err(failed)?;
        Ok(OK)
    })
}

/// Takes an answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_reads_poll(
    reads: *mut ringdb_reads,
    out: *mut ringdb_answer,
    err: *mut ringdb_error,
) -> i32 {
    let take = || {
        // SAFETY: the header's contract.
        let answer = unsafe { args::handle(reads, "reads handle")? }.0.take("reads handle")?.poll();
        Ok(answer.map(|(tag, answer)| match answer {
            Ok(value) => {
                let (code, value) = ringdb_value::give_or_null(value);
                (ringdb_answer::new(tag, code, value), None)
            }
            Err(e) => {
                let fail = failed(e);
                (ringdb_answer::new(tag, fail.code, null_mut()), Some(fail))
            }
        }))
    };
    // SAFETY: the header's contract.
    unsafe { hand_out(out, err, take) }
}

/// Waits for answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_reads_wait(
    reads: *mut ringdb_reads,
    min: usize,
    ready: *mut usize,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let reads = unsafe { args::handle(reads, "reads handle")? };
        let n = reads.0.take("reads handle")?.wait(min).map_err(failed)?;
        if !ready.is_null() {
            // SAFETY: a place of the caller.
            unsafe { ready.write(n) };
        }
        Ok(OK)
    })
}

/// The descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_reads_fd(
    reads: *mut ringdb_reads,
    fd: *mut c_int,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(fd)?;
        // SAFETY: the header's contract.
        let reads = unsafe { args::handle(reads, "reads handle")? };
        let fd = reads.0.take("reads handle")?.fd().map_err(failed)?.as_raw_fd();
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(fd) };
        Ok(OK)
    })
}

/// Ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_reads_free(reads: *mut ringdb_reads) {
    // SAFETY: the header's contract.
    unsafe { free(reads) }
}
