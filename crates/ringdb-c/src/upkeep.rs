//! Flushes, compactions, copies, checks, counters.

use std::ffi::c_char;

use ringdb::{Db, SalvageOptions};

use crate::args::{self, ringdb_slice};
use crate::options::{chosen, ringdb_options};
use crate::result::{Fail, OK, failed, guard, ringdb_error};
use crate::store::ringdb_db;
use crate::value::ringdb_value;

/// Something is wrong with the store.
const WRONG: i32 = 1;

/// A call that only does something to a store.
///
/// # Safety
/// The header's contract.
unsafe fn upkeep(
    db: *const ringdb_db,
    err: *mut ringdb_error,
    call: impl FnOnce(&ringdb_db) -> ringdb::Result<()>,
) -> i32 {
    guard(err, || {
        // SAFETY: the caller's promise.
        call(unsafe { args::handle(db, "store")? }).map_err(failed)?;
        Ok(OK)
    })
}

/// Writes all memtables to tables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_flush(db: *const ringdb_db, err: *mut ringdb_error) -> i32 {
    // SAFETY: the header's contract.
    unsafe { upkeep(db, err, |db| db.db.flush()) }
}

/// Waits for background work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_wait_idle(db: *const ringdb_db, err: *mut ringdb_error) -> i32 {
    // SAFETY: the header's contract.
    unsafe { upkeep(db, err, |db| db.db.wait_idle()) }
}

/// Writes every table anew.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_rewrite(db: *const ringdb_db, err: *mut ringdb_error) -> i32 {
    // SAFETY: the header's contract.
    unsafe { upkeep(db, err, |db| db.db.rewrite()) }
}

/// Compacts a range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_compact(
    db: *const ringdb_db,
    from: *const ringdb_slice,
    to: *const ringdb_slice,
    flags: u32,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (db, range) = unsafe { (args::handle(db, "store")?, args::bounds(from, to, flags)?) };
        db.writable()?.compact_range(range).map_err(failed)?;
        Ok(OK)
    })
}

/// Copies a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_checkpoint(
    db: *const ringdb_db,
    path: *const c_char,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (db, path) = unsafe { (args::handle(db, "store")?, args::path(path)?) };
        db.db.checkpoint(path).map_err(failed)?;
        Ok(OK)
    })
}

/// Counters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_stats(
    db: *const ringdb_db,
    out: *mut *mut ringdb_value,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let db = unsafe { args::handle(db, "store")? };
        // Which tells of a store that is closed, or a parent's.
        db.db.keyspaces().map_err(failed)?;
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(ringdb_value::json(&db.db.stats())?) };
        Ok(OK)
    })
}

/// Counters as text for Prometheus.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_metrics(
    db: *const ringdb_db,
    open_metrics: i32,
    out: *mut *mut ringdb_value,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let (open, out) = (args::flag(open_metrics, "open_metrics")?, args::out(out)?);
        // SAFETY: the header's contract.
        let db = unsafe { args::handle(db, "store")? };
        // Which tells of a store that is closed, or a parent's.
        db.db.keyspaces().map_err(failed)?;
        let metrics = db.db.metrics();
        let text = if open { metrics.open_metrics() } else { metrics.prometheus() };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(ringdb_value::text(text)) };
        Ok(OK)
    })
}

/// Gives a report to the caller, who may not want it.
///
/// # Safety
/// The header's contract of `out`.
pub(crate) unsafe fn report(out: *mut *mut ringdb_value, report: &impl serde::Serialize) -> Result<(), Fail> {
    if !out.is_null() {
        // SAFETY: a place of the caller.
        unsafe { out.write(ringdb_value::json(report)?) };
    }
    Ok(())
}

/// Checks a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_verify(
    db: *const ringdb_db,
    out: *mut *mut ringdb_value,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let found = unsafe { args::handle(db, "store")? }.db.verify().map_err(failed)?;
        // SAFETY: the header's contract.
        unsafe { report(out, &found)? };
        Ok(if found.is_ok() { OK } else { WRONG })
    })
}

/// Checks a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_verify_dir(
    path: *const c_char,
    options: *const ringdb_options,
    out: *mut *mut ringdb_value,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (path, options) = unsafe { (args::path(path)?, chosen(options)?) };
        let found = Db::verify_dir(path, &options).map_err(failed)?;
        // SAFETY: the header's contract.
        unsafe { report(out, &found)? };
        Ok(if found.is_ok() { OK } else { WRONG })
    })
}

/// Copies what is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_salvage(
    from: *const c_char,
    to: *const c_char,
    uri: *const c_char,
    frames_after_gaps: i32,
    out: *mut *mut ringdb_value,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let mut options = SalvageOptions::default()
            .with_frames_after_gaps(args::flag(frames_after_gaps, "frames_after_gaps")?);
        if !uri.is_null() {
            // SAFETY: the header's contract.
            options = options.with_io(unsafe { args::text(uri, "URI")? });
        }
        // SAFETY: the header's contract.
        let (from, to) = unsafe { (args::path(from)?, args::path(to)?) };
        let found = ringdb::salvage(from, to, &options).map_err(failed)?;
        // SAFETY: the header's contract.
        unsafe { report(out, &found)? };
        Ok(OK)
    })
}
