//! Transactions.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use ringdb::{Keyspace, Transaction};

use crate::args::{self, ringdb_slice, ringdb_write_options};
use crate::callback::refuse_in_a_callback;
use crate::iter::ringdb_iter;
use crate::result::{Alone, Fail, OK, failed, guard, ringdb_error};
use crate::store::{give, ringdb_db};
use crate::value::{free, ringdb_value};

/// How long a call waits for keys that others have locked, if it does not say.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// A transaction, until it has ended.
pub struct ringdb_transaction {
    open: Alone<Option<Arc<Transaction>>>,
    /// The keyspace that it began with.
    keyspace: Keyspace,
}

impl ringdb_transaction {
    /// Does something with a keyspace, NULL for the one that it began with.
    ///
    /// # Safety
    /// `of` is NULL or a live handle.
    pub(crate) unsafe fn with<T>(
        &self,
        of: *const ringdb_db,
        call: impl FnOnce(&Arc<Transaction>, &Keyspace) -> ringdb::Result<T>,
    ) -> Result<T, Fail> {
        let open = self.open.take("transaction")?;
        let transaction = open.as_ref().ok_or_else(ended)?;
        // SAFETY: the caller's promise.
        let keyspace = match unsafe { of.as_ref() } {
            Some(db) => db.writable()?,
            None => &self.keyspace,
        };
        call(transaction, keyspace).map_err(failed)
    }
}

fn ended() -> Fail {
    Fail::invalid("the transaction has ended: begin another one")
}

/// Begins one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_transaction_begin(
    db: *const ringdb_db,
    out: *mut *mut ringdb_transaction,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let db = unsafe { args::handle(db, "store")? };
        let keyspace = db.writable()?.clone();
        // Which tells of a store that is closed.
        db.db.keyspaces().map_err(failed)?;
        let open = Alone::new(Some(Arc::new(db.db.transaction())));
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, ringdb_transaction { open, keyspace }) };
        Ok(OK)
    })
}

/// The value of a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_transaction_get(
    transaction: *mut ringdb_transaction,
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    out: *mut *mut ringdb_value,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (tx, key) =
            unsafe { (args::handle(transaction, "transaction")?, args::bytes(key, key_len, "key")?) };
        // SAFETY: the header's contract.
        let (code, value) =
            ringdb_value::give_or_null(unsafe { tx.with(db, |tx, keyspace| tx.get_in(keyspace, key))? });
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(value) };
        Ok(code)
    })
}

/// Sets a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_transaction_put(
    transaction: *mut ringdb_transaction,
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (tx, key, value) = unsafe {
            (
                args::handle(transaction, "transaction")?,
                args::bytes(key, key_len, "key")?,
                args::bytes(value, value_len, "value")?,
            )
        };
        // SAFETY: the header's contract.
        unsafe { tx.with(db, |tx, keyspace| tx.put_in(keyspace, key, value))? };
        Ok(OK)
    })
}

/// Deletes a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_transaction_delete(
    transaction: *mut ringdb_transaction,
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (tx, key) =
            unsafe { (args::handle(transaction, "transaction")?, args::bytes(key, key_len, "key")?) };
        // SAFETY: the header's contract.
        unsafe { tx.with(db, |tx, keyspace| tx.delete_in(keyspace, key))? };
        Ok(OK)
    })
}

/// Locks keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_transaction_lock(
    transaction: *mut ringdb_transaction,
    db: *const ringdb_db,
    keys: *const ringdb_slice,
    count: usize,
    wait_us: u64,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (tx, keys, db) =
            unsafe { (args::handle(transaction, "transaction")?, args::keys(keys, count)?, db.as_ref()) };
        let keyspace = db.map_or(Ok(&tx.keyspace), ringdb_db::writable)?;
        refuse_in_a_callback("ringdb_transaction_lock")?;
        let mut open = tx.open.take("transaction")?;
        let shared = open.as_mut().ok_or_else(ended)?;
        let alone = Arc::get_mut(shared)
            .ok_or_else(|| Fail::invalid("an iterator of the transaction is open: free it first"))?;
        alone.set_lock_wait(if wait_us == 0 { LOCK_WAIT } else { Duration::from_micros(wait_us) });
        alone.lock_in(keyspace, &keys).map_err(failed)?;
        Ok(OK)
    })
}

/// A range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_transaction_range(
    transaction: *mut ringdb_transaction,
    db: *const ringdb_db,
    from: *const ringdb_slice,
    to: *const ringdb_slice,
    flags: u32,
    out: *mut *mut ringdb_iter,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (tx, range) =
            unsafe { (args::handle(transaction, "transaction")?, args::bounds(from, to, flags)?) };
        let make = |tx: &Arc<Transaction>, keyspace: &Keyspace| {
            Ok(ringdb_iter::of_transaction(tx, |tx| tx.range_in(keyspace, range)))
        };
        // SAFETY: the header's contract; a place of the caller.
        unsafe { give(out, tx.with(db, make)?) };
        Ok(OK)
    })
}

/// Commits it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_transaction_commit(
    transaction: *mut ringdb_transaction,
    how: *const ringdb_write_options,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (tx, how) = unsafe { (args::handle(transaction, "transaction")?, args::write_options(how)?) };
        if how.deadline.is_some() {
            return Err(Fail::invalid("a transaction's commit has no deadline"));
        }
        let mut open = tx.open.take("transaction")?;
        let shared = open.take().ok_or_else(ended)?;
        match Arc::try_unwrap(shared) {
            Ok(transaction) => transaction.commit_with(&how).map_err(failed)?,
            Err(shared) => {
                *open = Some(shared);
                return Err(Fail::invalid("an iterator of the transaction is open: free it first"));
            }
        }
        Ok(OK)
    })
}

/// Ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_transaction_free(transaction: *mut ringdb_transaction) {
    // SAFETY: the header's contract.
    unsafe { free(transaction) }
}
