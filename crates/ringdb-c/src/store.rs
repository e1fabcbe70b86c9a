//! Stores, keyspaces and snapshots: one kind of handle.

use std::ffi::c_char;

use ringdb::{Db, Iter, KeyRange, Keyspace, ReadOptions, Reads, Snapshot, Value};

use crate::args;
use crate::callback::refuse_in_a_callback;
use crate::options::{chosen, ringdb_options};
use crate::result::{ABSENT, FOUND, Fail, OK, READ_ONLY, failed, guard, ringdb_error};
use crate::value::{free, ringdb_value, ringdb_values};

/// A store, or a part of it.
pub struct ringdb_db {
    pub(crate) db: Db,
    pub(crate) keyspace: Keyspace,
    /// Of that keyspace.
    pub(crate) snapshot: Option<Snapshot>,
}

/// The name of the keyspace that `Db`'s own calls use.
const DEFAULT: &str = "default";

/// The same call of a keyspace, or of a snapshot of it.
macro_rules! of_part {
    ($self:ident . $call:ident ( $($arg:expr),* )) => {
        match &$self.snapshot {
            None => $self.keyspace.$call($($arg),*),
            Some(snapshot) => snapshot.$call($($arg),*),
        }
    };
}
pub(crate) use of_part;

impl ringdb_db {
    #[inline]
    pub(crate) fn get(&self, key: &[u8], how: &ReadOptions) -> ringdb::Result<Option<Value>> {
        of_part!(self.get_with(key, how))
    }

    pub(crate) fn multi_get(&self, keys: &[&[u8]], how: &ReadOptions) -> ringdb::Result<Vec<Option<Value>>> {
        of_part!(self.multi_get_with(keys, how))
    }

    pub(crate) fn range(&self, range: impl KeyRange, how: &ReadOptions) -> Iter {
        of_part!(self.range_with(range, how))
    }

    pub(crate) fn reads(&self, depth: usize, how: &ReadOptions) -> ringdb::Result<Reads> {
        of_part!(self.reads_with(depth, how))
    }

    /// Fails for a snapshot.
    #[inline]
    pub(crate) fn writable(&self) -> Result<&Keyspace, Fail> {
        match &self.snapshot {
            None => Ok(&self.keyspace),
            Some(_) => Err(Fail::new(READ_ONLY, "a snapshot cannot be written to")),
        }
    }

    /// The same part of another keyspace.
    pub(crate) fn with(&self, keyspace: Keyspace) -> ringdb_db {
        let snapshot = self.snapshot.as_ref().map(|s| s.keyspace(&keyspace));
        ringdb_db { db: self.db.clone(), keyspace, snapshot }
    }
}

/// Gives a handle away.
///
/// # Safety
/// `out` is a place of the caller.
pub(crate) unsafe fn give<T>(out: *mut *mut T, handle: T) {
    // SAFETY: the caller's promise.
    unsafe { out.write(Box::into_raw(Box::new(handle))) };
}

/// # Safety
/// The header's contract.
unsafe fn open(
    path: *const c_char,
    options: *const ringdb_options,
    out: *mut *mut ringdb_db,
    err: *mut ringdb_error,
    open: impl FnOnce(&std::path::Path, ringdb::Options) -> ringdb::Result<Db>,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the caller's promise.
        let (path, options) = unsafe { (args::path(path)?, chosen(options)?) };
        let db = open(path, options).map_err(failed)?;
        let keyspace = db.keyspace(DEFAULT).map_err(failed)?;
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, ringdb_db { db, keyspace, snapshot: None }) };
        Ok(OK)
    })
}

/// Opens a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_open(
    path: *const c_char,
    options: *const ringdb_options,
    out: *mut *mut ringdb_db,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { open(path, options, out, err, |path, options| Db::open(path, options)) }
}

/// Opens a store for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_open_read_only(
    path: *const c_char,
    options: *const ringdb_options,
    out: *mut *mut ringdb_db,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { open(path, options, out, err, |path, options| Db::open_read_only(path, options)) }
}

/// Closes a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_close(db: *mut ringdb_db, err: *mut ringdb_error) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let db = unsafe { args::handle(db, "store")? };
        refuse_in_a_callback("ringdb_close")?;
        db.db.clone().close().map_err(failed)?;
        Ok(OK)
    })
}

/// Gives a handle back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_release(db: *mut ringdb_db) {
    // SAFETY: the header's contract.
    unsafe { free(db) }
}

/// Makes or finds a keyspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_keyspace(
    db: *const ringdb_db,
    name: *const c_char,
    out: *mut *mut ringdb_db,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (db, name) = unsafe { (args::handle(db, "store")?, args::text(name, "keyspace's name")?) };
        db.writable()?;
        let keyspace = db.db.keyspace(name).map_err(failed)?;
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, db.with(keyspace)) };
        Ok(OK)
    })
}

/// Finds a keyspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_existing_keyspace(
    db: *const ringdb_db,
    name: *const c_char,
    out: *mut *mut ringdb_db,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (db, name) = unsafe { (args::handle(db, "store")?, args::text(name, "keyspace's name")?) };
        let Some(keyspace) = db.db.existing_keyspace(name).map_err(failed)? else { return Ok(ABSENT) };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, db.with(keyspace)) };
        Ok(FOUND)
    })
}

/// Drops a keyspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_drop_keyspace(
    db: *const ringdb_db,
    name: *const c_char,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (db, name) = unsafe { (args::handle(db, "store")?, args::text(name, "keyspace's name")?) };
        db.writable()?;
        let dropped = db.db.drop_keyspace(name).map_err(failed)?;
        Ok(if dropped { FOUND } else { ABSENT })
    })
}

/// The names of the keyspaces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_keyspaces(
    db: *const ringdb_db,
    out: *mut *mut ringdb_values,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let db = unsafe { args::handle(db, "store")? };
        let names = db.db.keyspaces().map_err(failed)?;
        let names = names.into_iter().map(|n| Some(Value::from(n.into_bytes()))).collect();
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(ringdb_values::give(names)) };
        Ok(OK)
    })
}

/// The name of a handle's keyspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_keyspace_name(
    db: *const ringdb_db,
    out: *mut *mut ringdb_value,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let db = unsafe { args::handle(db, "store")? };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(ringdb_value::text(db.keyspace.name())) };
        Ok(OK)
    })
}

/// A snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_snapshot(
    db: *const ringdb_db,
    out: *mut *mut ringdb_db,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let db = unsafe { args::handle(db, "store")? };
        let keyspace = db.keyspace.clone();
        let snapshot = match &db.snapshot {
            Some(snapshot) => snapshot.clone(),
            None => {
                // Which tells of a store that is closed.
                db.db.keyspaces().map_err(failed)?;
                db.db.snapshot().keyspace(&keyspace)
            }
        };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, ringdb_db { db: db.db.clone(), keyspace, snapshot: Some(snapshot) }) };
        Ok(OK)
    })
}
