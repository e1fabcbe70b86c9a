//! Exports and imports; settings of keyspaces.

use std::ffi::c_char;

use ringdb::KeyspaceOptions;

use crate::args::{self, ringdb_slice};
use crate::result::{Fail, OK, failed, guard, ringdb_error};
use crate::store::{give, of_part, ringdb_db};
use crate::value::ringdb_value;

/// Exports a range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_export_range(
    db: *const ringdb_db,
    from: *const ringdb_slice,
    to: *const ringdb_slice,
    flags: u32,
    path: *const c_char,
    report: *mut *mut ringdb_value,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (db, range, path) =
            unsafe { (args::handle(db, "store")?, args::bounds(from, to, flags)?, args::path(path)?) };
        let exported = of_part!(db.export_range(range, path)).map_err(failed)?;
        // SAFETY: the header's contract.
        unsafe { crate::upkeep::report(report, &exported)? };
        Ok(OK)
    })
}

/// Imports an export.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_import_tables(
    db: *const ringdb_db,
    path: *const c_char,
    pairs: *mut u64,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (db, path) = unsafe { (args::handle(db, "store")?, args::path(path)?) };
        let imported = db.writable()?.import_tables(path).map_err(failed)?;
        if !pairs.is_null() {
            // SAFETY: a place of the caller.
            unsafe { pairs.write(imported) };
        }
        Ok(OK)
    })
}

/// # Safety
/// `toml` is NULL or NUL-terminated.
unsafe fn settings(toml: *const c_char) -> Result<KeyspaceOptions, Fail> {
    // SAFETY: the caller's promise.
    KeyspaceOptions::from_toml(unsafe { args::text(toml, "text")? }).map_err(failed)
}

/// Makes or finds a keyspace, with settings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_keyspace_with(
    db: *const ringdb_db,
    name: *const c_char,
    toml: *const c_char,
    out: *mut *mut ringdb_db,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (db, name, settings) =
            unsafe { (args::handle(db, "store")?, args::text(name, "keyspace's name")?, settings(toml)?) };
        db.writable()?;
        let keyspace = db.db.keyspace_with(name, &settings).map_err(failed)?;
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, db.with(keyspace)) };
        Ok(OK)
    })
}

/// Changes settings of a keyspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_keyspace_alter(
    db: *const ringdb_db,
    toml: *const c_char,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (db, settings) = unsafe { (args::handle(db, "store")?, settings(toml)?) };
        db.writable()?.alter(&settings).map_err(failed)?;
        Ok(OK)
    })
}

/// The settings of a keyspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_keyspace_settings(
    db: *const ringdb_db,
    out: *mut *mut ringdb_value,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let db = unsafe { args::handle(db, "store")? };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(ringdb_value::json(&db.keyspace.options())?) };
        Ok(OK)
    })
}
