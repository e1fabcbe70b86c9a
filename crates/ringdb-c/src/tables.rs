//! Ingests, exports and imports; settings of keyspaces.

use std::ffi::{c_char, c_void};

use ringdb::{Ingester, Keyspace, KeyspaceOptions};

use crate::args::{self, ringdb_slice};
use crate::result::{Alone, Fail, OK, failed, guard, ringdb_error};
use crate::store::{give, of_part, ringdb_db};
use crate::value::{free, ringdb_value};

/// Pairs on their way, until they are ingested.
pub struct ringdb_ingester(Alone<Option<Ingesting>>);

/// The ingester goes first.
struct Ingesting {
    ingester: Ingester<'static>,
    _of: Box<Keyspace>,
}

/// Begins an ingest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_ingester_open(
    db: *const ringdb_db,
    out: *mut *mut ringdb_ingester,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let of = Box::new(unsafe { args::handle(db, "store")? }.writable()?.clone());
        // SAFETY: the keyspace stays where it is as long as `_of` holds it, which is dropped after the ingester; and
        // neither leaves the handle.
        let keyspace: &'static Keyspace = unsafe { &*std::ptr::from_ref(&*of) };
        let ingester = keyspace.ingester().map_err(failed)?;
        let handle = ringdb_ingester(Alone::new(Some(Ingesting { ingester, _of: of })));
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, handle) };
        Ok(OK)
    })
}

fn ended() -> Fail {
    Fail::invalid("the ingest has ended: open another one")
}

/// Adds a pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_ingester_add(
    ingester: *mut ringdb_ingester,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (ingester, key, value) = unsafe {
            (
                args::handle(ingester, "ingester")?,
                args::bytes(key, key_len, "key")?,
                args::bytes(value, value_len, "value")?,
            )
        };
        let mut open = ingester.0.take("ingester")?;
        open.as_mut().ok_or_else(ended)?.ingester.add(key, value).map_err(failed)?;
        Ok(OK)
    })
}

/// Makes all pairs part of the keyspace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_ingester_finish(
    ingester: *mut ringdb_ingester,
    pairs: *mut u64,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let ingester = unsafe { args::handle(ingester, "ingester")? };
        let Ingesting { ingester, _of } = ingester.0.take("ingester")?.take().ok_or_else(ended)?;
        let ingested = ingester.finish().map_err(failed)?;
        // SAFETY: the header's contract.
        unsafe { count(pairs, ingested) };
        Ok(OK)
    })
}

/// Tells a number to who wants it.
///
/// # Safety
/// `place` is NULL or a place of the caller.
unsafe fn count(place: *mut u64, n: u64) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(n) };
    }
}

/// Ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_ingester_free(ingester: *mut ringdb_ingester) {
    // SAFETY: the header's contract.
    unsafe { free(ingester) }
}

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
        // SAFETY: the header's contract.
        unsafe { count(pairs, imported) };
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
