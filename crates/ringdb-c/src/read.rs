//! Reads that wait.

use std::ffi::c_void;

use ringdb::ReadOptions;

use crate::args::{self, ringdb_read_options, ringdb_slice};
use crate::callback::refuse_in_a_callback;
use crate::result::{ABSENT, BUFFER_TOO_SMALL, FOUND, Fail, OK, failed, guard, ringdb_error};
use crate::store::ringdb_db;
use crate::value::{ringdb_value, ringdb_values};

/// How to read, in a call that waits.
///
/// # Safety
/// The header's contract of `how`.
#[inline]
unsafe fn waiting(how: *const ringdb_read_options) -> Result<ReadOptions, Fail> {
    // SAFETY: the caller's promise.
    let how = unsafe { args::read_options(how)? };
    if how.deadline.is_some() {
        refuse_in_a_callback("a read that waits until a deadline")?;
    }
    Ok(how)
}

/// The value of a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_get(
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    how: *const ringdb_read_options,
    out: *mut *mut ringdb_value,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (db, key, how) =
            unsafe { (args::handle(db, "store")?, args::bytes(key, key_len, "key")?, waiting(how)?) };
        let (code, value) = ringdb_value::give_or_null(db.get(key, &how).map_err(failed)?);
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(value) };
        Ok(code)
    })
}

/// The value of a key, into the caller's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_get_into(
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    how: *const ringdb_read_options,
    buffer: *mut c_void,
    capacity: usize,
    len: *mut usize,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let len = args::out(len)?;
        let capacity = args::memory(buffer.cast(), capacity as u64, "buffer")?;
        // SAFETY: the header's contract.
        let (db, key, how) =
            unsafe { (args::handle(db, "store")?, args::bytes(key, key_len, "key")?, waiting(how)?) };
        let Some(value) = db.get(key, &how).map_err(failed)? else { return Ok(ABSENT) };
        let n = value.len().min(capacity);
        // SAFETY: places of the caller, the buffer of `capacity` bytes. The value is the library's own memory.
        unsafe {
            len.write(value.len());
            if n > 0 {
                std::ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast(), n);
            }
        }
        if n < value.len() {
            let message = format!("the value has {} bytes, the buffer {capacity}", value.len());
            return Err(Fail::new(BUFFER_TOO_SMALL, message));
        }
        Ok(FOUND)
    })
}

/// The values of many keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_multi_get(
    db: *const ringdb_db,
    keys: *const ringdb_slice,
    count: usize,
    how: *const ringdb_read_options,
    out: *mut *mut ringdb_values,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (db, keys, how) =
            unsafe { (args::handle(db, "store")?, args::keys(keys, count)?, waiting(how)?) };
        let values = db.multi_get(&keys, &how).map_err(failed)?;
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(ringdb_values::give(values)) };
        Ok(OK)
    })
}
