//! Merges, and puts that live for some time.

use std::ffi::c_void;
use std::time::Duration;

use ringdb::WriteBatch;

use crate::args::{self, ringdb_write_options};
use crate::result::{Fail, OK, failed, guard, ringdb_error};
use crate::store::ringdb_db;
use crate::transaction::ringdb_transaction;
use crate::write::{ringdb_batch, write_and_wait};

/// A time to live.
fn life(ttl_ms: u64) -> Duration {
    Duration::from_millis(ttl_ms)
}

/// Merges an operand into a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_merge(
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    operand: *const c_void,
    operand_len: usize,
    how: *const ringdb_write_options,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (db, key, operand) = unsafe {
            (
                args::handle(db, "store")?,
                args::bytes(key, key_len, "key")?,
                args::bytes(operand, operand_len, "operand")?,
            )
        };
        let keyspace = db.writable()?;
        if how.is_null() {
            keyspace.merge(key, operand).map_err(failed)?;
            return Ok(OK);
        }
        let mut batch = WriteBatch::new();
        batch.merge_in(keyspace, key, operand);
        // SAFETY: the header's contract.
        write_and_wait(&db.db, &batch, &unsafe { args::write_options(how)? })
    })
}

/// Sets a key for some time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_put_with_ttl(
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    ttl_ms: u64,
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
            keyspace.put_with_ttl(key, value, life(ttl_ms)).map_err(failed)?;
            return Ok(OK);
        }
        let mut batch = WriteBatch::new();
        batch.put_with_ttl_in(keyspace, key, value, life(ttl_ms));
        // SAFETY: the header's contract.
        write_and_wait(&db.db, &batch, &unsafe { args::write_options(how)? })
    })
}

/// Adds a write of a key and bytes to a batch.
///
/// # Safety
/// The header's contract.
unsafe fn add(
    batch: *mut ringdb_batch,
    db: *const ringdb_db,
    (key, key_len): (*const c_void, usize),
    (bytes, len, what): (*const c_void, usize, &str),
    add: impl FnOnce(&mut WriteBatch, Option<&ringdb::Keyspace>, &[u8], &[u8]),
) -> Result<i32, Fail> {
    // SAFETY: the caller's promise.
    let (batch, key, bytes) = unsafe {
        (args::handle(batch, "batch")?, args::bytes(key, key_len, "key")?, args::bytes(bytes, len, what)?)
    };
    let mut batch = batch.0.take("batch")?;
    // SAFETY: the caller's promise.
    let keyspace = unsafe { db.as_ref() }.map(ringdb_db::writable).transpose()?;
    add(&mut batch, keyspace, key, bytes);
    Ok(OK)
}

/// Adds a merge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_batch_merge(
    batch: *mut ringdb_batch,
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    operand: *const c_void,
    operand_len: usize,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    guard(err, || unsafe {
        add(batch, db, (key, key_len), (operand, operand_len, "operand"), |batch, keyspace, key, operand| {
            match keyspace {
                None => batch.merge(key, operand),
                Some(keyspace) => batch.merge_in(keyspace, key, operand),
            }
        })
    })
}

/// Adds a put that lives for some time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_batch_put_with_ttl(
    batch: *mut ringdb_batch,
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    ttl_ms: u64,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    guard(err, || unsafe {
        add(batch, db, (key, key_len), (value, value_len, "value"), |batch, keyspace, key, value| {
            match keyspace {
                None => batch.put_with_ttl(key, value, life(ttl_ms)),
                Some(keyspace) => batch.put_with_ttl_in(keyspace, key, value, life(ttl_ms)),
            }
        })
    })
}

/// Merges at the commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_transaction_merge(
    transaction: *mut ringdb_transaction,
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    operand: *const c_void,
    operand_len: usize,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (tx, key, operand) = unsafe {
            (
                args::handle(transaction, "transaction")?,
                args::bytes(key, key_len, "key")?,
                args::bytes(operand, operand_len, "operand")?,
            )
        };
        // SAFETY: the header's contract.
        unsafe { tx.with(db, |tx, keyspace| tx.merge_in(keyspace, key, operand))? };
        Ok(OK)
    })
}
