//! Iterators.

use std::ffi::c_void;

use ringdb::{Iter, Value};

use crate::args::{self, ringdb_read_options, ringdb_slice};
use crate::result::{ABSENT, Alone, FOUND, Fail, OK, failed, guard, ringdb_error};
use crate::store::{give, of_part, ringdb_db};
use crate::value::free;

/// An iterator, and the pair that it stands on.
pub struct ringdb_iter(Alone<(Iter, (Value, Value))>);

impl ringdb_iter {
    fn new(iter: Iter) -> ringdb_iter {
        ringdb_iter(Alone::new((iter, Default::default())))
    }
}

/// How to read, in a scan.
///
/// # Safety
/// The header's contract of `how`.
unsafe fn scanning(how: *const ringdb_read_options) -> Result<ringdb::ReadOptions, Fail> {
    // SAFETY: the caller's promise.
    let how = unsafe { args::read_options(how)? };
    match how.deadline {
        None => Ok(how),
        Some(_) => Err(Fail::invalid("iterators have no deadline")),
    }
}

/// A range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_range(
    db: *const ringdb_db,
    from: *const ringdb_slice,
    to: *const ringdb_slice,
    flags: u32,
    how: *const ringdb_read_options,
    out: *mut *mut ringdb_iter,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (db, range, how) =
            unsafe { (args::handle(db, "store")?, args::bounds(from, to, flags)?, scanning(how)?) };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, ringdb_iter::new(db.range(range, &how))) };
        Ok(OK)
    })
}

/// The keys that begin with something.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_prefix(
    db: *const ringdb_db,
    prefix: *const c_void,
    prefix_len: usize,
    how: *const ringdb_read_options,
    out: *mut *mut ringdb_iter,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (db, prefix, how) = unsafe {
            (args::handle(db, "store")?, args::bytes(prefix, prefix_len, "prefix")?, scanning(how)?)
        };
        let iter = of_part!(db.prefix_with(prefix, &how));
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, ringdb_iter::new(iter)) };
        Ok(OK)
    })
}

/// # Safety
/// The header's contract.
#[inline]
unsafe fn step(
    iter: *mut ringdb_iter,
    key: *mut ringdb_slice,
    value: *mut ringdb_slice,
    err: *mut ringdb_error,
    step: impl FnOnce(&mut Iter) -> Option<ringdb::Result<(Value, Value)>>,
) -> i32 {
    guard(err, || {
        // SAFETY: the caller's promise.
        let iter = unsafe { args::handle(iter, "iterator")? };
        let mut iter = iter.0.take("iterator")?;
        let Some(pair) = step(&mut iter.0) else { return Ok(ABSENT) };
        // The handle does not move, so the bytes of short values do not either.
        iter.1 = pair.map_err(failed)?;
        for (place, bytes) in [(key, &iter.1.0), (value, &iter.1.1)] {
            if !place.is_null() {
                // SAFETY: a place of the caller.
                unsafe { place.write(ringdb_slice::of(bytes)) };
            }
        }
        Ok(FOUND)
    })
}

/// The next pair from the front.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_iter_next(
    iter: *mut ringdb_iter,
    key: *mut ringdb_slice,
    value: *mut ringdb_slice,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { step(iter, key, value, err, Iter::next) }
}

/// The next pair from the back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_iter_next_back(
    iter: *mut ringdb_iter,
    key: *mut ringdb_slice,
    value: *mut ringdb_slice,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { step(iter, key, value, err, Iter::next_back) }
}

/// Frees an iterator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_iter_free(iter: *mut ringdb_iter) {
    // SAFETY: the header's contract.
    unsafe { free(iter) }
}
