//! Writes and batches.

use std::ffi::c_void;

use ringdb::{Db, WriteBatch, WriteOptions};

use crate::args::{self, ringdb_slice, ringdb_write_options};
use crate::callback::refuse_in_a_callback;
use crate::result::{Alone, Fail, OK, failed, guard, guarded, ringdb_error};
use crate::store::ringdb_db;
use crate::value::free;

/// A batch.
pub struct ringdb_batch(pub(crate) Alone<WriteBatch>);

pub(crate) fn write_and_wait(db: &Db, batch: &WriteBatch, how: &WriteOptions) -> Result<i32, Fail> {
    if how.deadline.is_some() {
        refuse_in_a_callback("a write that waits until a deadline")?;
    }
    db.write_ref(batch, how).map_err(failed)?;
    Ok(OK)
}

/// Sets a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_put(
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    how: *const ringdb_write_options,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (db, key, value) = unsafe {
            (
                args::handle(db, "store")?,
                args::bytes(key, key_len, "key")?,
                args::bytes(value, value_len, "value")?,
            )
        };
        let keyspace = db.writable()?;
        if how.is_null() {
            keyspace.put(key, value).map_err(failed)?;
            return Ok(OK);
        }
        let mut batch = WriteBatch::new();
        batch.put_in(keyspace, key, value);
        // SAFETY: the header's contract.
        write_and_wait(&db.db, &batch, &unsafe { args::write_options(how)? })
    })
}

/// Deletes a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_delete(
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    how: *const ringdb_write_options,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (db, key) = unsafe { (args::handle(db, "store")?, args::bytes(key, key_len, "key")?) };
        let keyspace = db.writable()?;
        if how.is_null() {
            keyspace.delete(key).map_err(failed)?;
            return Ok(OK);
        }
        let mut batch = WriteBatch::new();
        batch.delete_in(keyspace, key);
        // SAFETY: the header's contract.
        write_and_wait(&db.db, &batch, &unsafe { args::write_options(how)? })
    })
}

/// Deletes the keys of a range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_delete_range(
    db: *const ringdb_db,
    from: *const ringdb_slice,
    to: *const ringdb_slice,
    flags: u32,
    how: *const ringdb_write_options,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (db, range, how) = unsafe {
            (args::handle(db, "store")?, args::bounds(from, to, flags)?, args::write_options(how)?)
        };
        let mut batch = WriteBatch::new();
        batch.delete_range_in(db.writable()?, range);
        write_and_wait(&db.db, &batch, &how)
    })
}

/// Deletes the keys that begin with something.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_delete_prefix(
    db: *const ringdb_db,
    prefix: *const c_void,
    prefix_len: usize,
    how: *const ringdb_write_options,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (db, prefix, how) = unsafe {
            (
                args::handle(db, "store")?,
                args::bytes(prefix, prefix_len, "prefix")?,
                args::write_options(how)?,
            )
        };
        let mut batch = WriteBatch::new();
        batch.delete_prefix_in(db.writable()?, prefix);
        write_and_wait(&db.db, &batch, &how)
    })
}

/// Changes a key if it is as expected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_compare_and_swap(
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    expected: *const ringdb_slice,
    new: *const ringdb_slice,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (db, key, expected, new) = unsafe {
            (
                args::handle(db, "store")?,
                args::bytes(key, key_len, "key")?,
                args::optional(expected, "expected value")?,
                args::optional(new, "new value")?,
            )
        };
        let swapped = db.writable()?.compare_and_swap(key, expected, new).map_err(failed)?;
        Ok(i32::from(swapped))
    })
}

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn ringdb_batch_new() -> *mut ringdb_batch {
    guarded(std::ptr::null_mut(), || Box::into_raw(Box::new(ringdb_batch(Alone::new(WriteBatch::new())))))
}

/// Frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_batch_free(batch: *mut ringdb_batch) {
    // SAFETY: the header's contract.
    unsafe { free(batch) }
}

/// Adds a put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_batch_put(
    batch: *mut ringdb_batch,
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (batch, key, value) = unsafe {
            (
                args::handle(batch, "batch")?,
                args::bytes(key, key_len, "key")?,
                args::bytes(value, value_len, "value")?,
            )
        };
        let mut batch = batch.0.take("batch")?;
        // SAFETY: the header's contract.
        match unsafe { db.as_ref() } {
            None => batch.put(key, value),
            Some(db) => batch.put_in(db.writable()?, key, value),
        }
        Ok(OK)
    })
}

/// Adds a deletion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_batch_delete(
    batch: *mut ringdb_batch,
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (batch, key) = unsafe { (args::handle(batch, "batch")?, args::bytes(key, key_len, "key")?) };
        let mut batch = batch.0.take("batch")?;
        // SAFETY: the header's contract.
        match unsafe { db.as_ref() } {
            None => batch.delete(key),
            Some(db) => batch.delete_in(db.writable()?, key),
        }
        Ok(OK)
    })
}

/// Adds the deletion of a range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_batch_delete_range(
    batch: *mut ringdb_batch,
    db: *const ringdb_db,
    from: *const ringdb_slice,
    to: *const ringdb_slice,
    flags: u32,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (batch, range) = unsafe { (args::handle(batch, "batch")?, args::bounds(from, to, flags)?) };
        let mut batch = batch.0.take("batch")?;
        // SAFETY: the header's contract.
        match unsafe { db.as_ref() } {
            None => batch.delete_range(range),
            Some(db) => batch.delete_range_in(db.writable()?, range),
        }
        Ok(OK)
    })
}

/// Adds the deletion of the keys that begin with something.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_batch_delete_prefix(
    batch: *mut ringdb_batch,
    db: *const ringdb_db,
    prefix: *const c_void,
    prefix_len: usize,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (batch, prefix) =
            unsafe { (args::handle(batch, "batch")?, args::bytes(prefix, prefix_len, "prefix")?) };
        let mut batch = batch.0.take("batch")?;
        // SAFETY: the header's contract.
        match unsafe { db.as_ref() } {
            None => batch.delete_prefix(prefix),
            Some(db) => batch.delete_prefix_in(db.writable()?, prefix),
        }
        Ok(OK)
    })
}

/// Empties it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_batch_clear(batch: *mut ringdb_batch, err: *mut ringdb_error) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        unsafe { args::handle(batch, "batch")? }.0.take("batch")?.clear();
        Ok(OK)
    })
}

/// Its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_batch_size(
    batch: *const ringdb_batch,
    count: *mut usize,
    bytes: *mut usize,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let batch = unsafe { args::handle(batch, "batch")? }.0.take("batch")?;
        for (place, n) in [(count, batch.len()), (bytes, batch.size_bytes())] {
            if !place.is_null() {
                // SAFETY: a place of the caller.
                unsafe { place.write(n) };
            }
        }
        Ok(OK)
    })
}

/// Commits a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_write(
    db: *const ringdb_db,
    batch: *const ringdb_batch,
    how: *const ringdb_write_options,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (db, batch, how) =
            unsafe { (args::handle(db, "store")?, args::handle(batch, "batch")?, args::write_options(how)?) };
        db.writable()?;
        let batch = batch.0.take("batch")?;
        write_and_wait(&db.db, &batch, &how)
    })
}

/// Makes everything durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_sync(db: *const ringdb_db, err: *mut ringdb_error) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let db = unsafe { args::handle(db, "store")? };
        db.db.sync().map_err(failed)?;
        Ok(OK)
    })
}
