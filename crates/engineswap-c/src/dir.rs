//! Paths and directories, listings, locks.

use std::ffi::{CString, c_char};
use std::path::Path;

use engineswap::{FileLock, Io};

use crate::args;
use crate::engine::engineswap_engine;
use crate::result::{Fail, NOT_FOUND, OK, engineswap_error, guard};

/// What is known of a path.
#[repr(C)]
pub struct engineswap_metadata {
    len: u64,
    is_dir: u32,
    reserved: u32,
}

/// Does `call` with the engine and the path.
///
/// # Safety
/// The header's contract of `engine` and `path`.
unsafe fn with_path(
    engine: *const engineswap_engine,
    path: *const c_char,
    err: *mut engineswap_error,
    call: impl FnOnce(&Io, &Path) -> Result<(), Fail>,
) -> i32 {
    guard(err, || {
        // SAFETY: the caller's promise.
        let (engine, path) = unsafe { (args::handle(engine, "engine")?, args::path(path, "path")?) };
        call(&engine.io, path).map(|()| OK)
    })
}

/// Size and type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_stat(
    engine: *const engineswap_engine,
    path: *const c_char,
    out: *mut engineswap_metadata,
    err: *mut engineswap_error,
) -> i32 {
    let call = |io: &Io, path: &Path| {
        let out = args::out(out)?;
        let Some(m) = io.metadata(path)? else {
            return Err(Fail {
                code: NOT_FOUND,
                errno: libc::ENOENT,
                message: format!("stat {}: no such file or directory", path.display()),
            });
        };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(engineswap_metadata { len: m.len, is_dir: m.is_dir.into(), reserved: 0 }) };
        Ok(())
    };
    // SAFETY: the header's contract.
    unsafe { with_path(engine, path, err, call) }
}

/// Makes a directory and its parents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_create_dir_all(
    engine: *const engineswap_engine,
    path: *const c_char,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { with_path(engine, path, err, |io, path| Ok(io.create_dir_all(path)?)) }
}

/// Removes a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_remove_file(
    engine: *const engineswap_engine,
    path: *const c_char,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { with_path(engine, path, err, |io, path| Ok(io.remove_file(path)?)) }
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_remove_dir(
    engine: *const engineswap_engine,
    path: *const c_char,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { with_path(engine, path, err, |io, path| Ok(io.remove_dir(path)?)) }
}

/// Renames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_rename(
    engine: *const engineswap_engine,
    from: *const c_char,
    to: *const c_char,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { with_path(engine, from, err, |io, from| Ok(io.rename(from, args::path(to, "new path")?)?)) }
}

/// Makes a second name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_hard_link(
    engine: *const engineswap_engine,
    from: *const c_char,
    to: *const c_char,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { with_path(engine, from, err, |io, from| Ok(io.hard_link(from, args::path(to, "new path")?)?)) }
}

/// Makes a directory's entries durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_sync_dir(
    engine: *const engineswap_engine,
    path: *const c_char,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { with_path(engine, path, err, |io, path| Ok(io.sync_dir(path)?)) }
}

/// The entries of a directory.
pub struct engineswap_listing {
    entries: Vec<(CString, bool)>,
    next: usize,
}

/// Reads the entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_listing_open(
    engine: *const engineswap_engine,
    path: *const c_char,
    out: *mut *mut engineswap_listing,
    err: *mut engineswap_error,
) -> i32 {
    let call = |io: &Io, path: &Path| {
        let out = args::out(out)?;
        let entries = io.read_dir(path)?.into_iter().map(|e| (args::c_string(e.name), e.is_dir)).collect();
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(Box::into_raw(Box::new(engineswap_listing { entries, next: 0 }))) };
        Ok(())
    };
    // SAFETY: the header's contract.
    unsafe { with_path(engine, path, err, call) }
}

/// The next entry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_listing_next(
    listing: *mut engineswap_listing,
    is_dir: *mut u32,
) -> *const c_char {
    // SAFETY: the header's contract: NULL or a live handle, used by one thread.
    let Some(listing) = (unsafe { listing.as_mut() }) else { return std::ptr::null() };
    let Some((name, dir)) = listing.entries.get(listing.next) else { return std::ptr::null() };
    listing.next += 1;
    if !is_dir.is_null() {
        // SAFETY: not NULL, so a place of the caller.
        unsafe { is_dir.write((*dir).into()) };
    }
    name.as_ptr()
}

/// Frees a listing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_listing_close(listing: *mut engineswap_listing) {
    if !listing.is_null() {
        // SAFETY: made by `engineswap_listing_open`, closed once.
        drop(unsafe { Box::from_raw(listing) });
    }
}

/// A lock that is held.
pub struct engineswap_lock {
    _lock: FileLock,
}

/// Takes a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_lock_file(
    engine: *const engineswap_engine,
    path: *const c_char,
    out: *mut *mut engineswap_lock,
    err: *mut engineswap_error,
) -> i32 {
    let call = |io: &Io, path: &Path| {
        let out = args::out(out)?;
        let lock = Box::new(engineswap_lock { _lock: io.lock_file(path)? });
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(Box::into_raw(lock)) };
        Ok(())
    };
    // SAFETY: the header's contract.
    unsafe { with_path(engine, path, err, call) }
}

/// Gives a lock up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_unlock(lock: *mut engineswap_lock) {
    if !lock.is_null() {
        guard(std::ptr::null_mut(), || {
            // SAFETY: made by `engineswap_lock_file`, given up once.
            drop(unsafe { Box::from_raw(lock) });
            Ok(OK)
        });
    }
}
