//! Engines.

use std::ffi::{CStr, CString, c_char};

use engineswap::{Io, Uses};

use crate::args;
use crate::result::{Fail, OK, engineswap_error, guard};

/// An engine's handle.
pub struct engineswap_engine {
    pub(crate) io: Io,
    name: CString,
    uri: CString,
    reasons: CString,
}

/// `ENGINESWAP_USES_BUFFERS`.
const USES_BUFFERS: u32 = 1;

/// Opens an engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_open(
    uri: *const c_char,
    out: *mut *mut engineswap_engine,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the same contract.
    unsafe { engineswap_open_for(uri, USES_BUFFERS, out, err) }
}

/// Opens an engine for a program that does no more with it than `uses` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_open_for(
    uri: *const c_char,
    uses: u32,
    out: *mut *mut engineswap_engine,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        if uses & !USES_BUFFERS != 0 {
            return Err(Fail::invalid(format!("unknown uses {uses:#x}; valid: ENGINESWAP_USES_BUFFERS")));
        }
        // No C program has pools.
        let uses = Uses { registered_buffers: uses & USES_BUFFERS != 0, pools: false };
        let uri = if uri.is_null() {
            ""
        } else {
            // SAFETY: not NULL, and NUL-terminated by the header's contract.
            unsafe { CStr::from_ptr(uri) }.to_str().map_err(|_| Fail::invalid("the URI is not UTF-8"))?
        };
        let io = Io::from_uri_for(uri, uses)?;
        let info = io.info();
        let engine = Box::new(engineswap_engine {
            io,
            name: args::c_string(info.name),
            uri: args::c_string(info.uri),
            reasons: args::c_string(info.reasons.join("\n")),
        });
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(Box::into_raw(engine)) };
        Ok(OK)
    })
}

/// Closes an engine's handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_close(engine: *mut engineswap_engine) {
    if !engine.is_null() {
        guard(std::ptr::null_mut(), || {
            // SAFETY: made by `engineswap_open`, closed once.
            drop(unsafe { Box::from_raw(engine) });
            Ok(OK)
        });
    }
}

/// # Safety
/// `engine` is NULL or a live handle.
unsafe fn text(engine: *const engineswap_engine, of: impl Fn(&engineswap_engine) -> &CStr) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { engine.as_ref() }.map_or(c"".as_ptr(), |e| of(e).as_ptr())
}

/// The engine's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_engine_name(engine: *const engineswap_engine) -> *const c_char {
    // SAFETY: the header's contract.
    unsafe { text(engine, |e| &e.name) }
}

/// The engine's URI.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_engine_uri(engine: *const engineswap_engine) -> *const c_char {
    // SAFETY: the header's contract.
    unsafe { text(engine, |e| &e.uri) }
}

/// Why it was chosen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_engine_reasons(engine: *const engineswap_engine) -> *const c_char {
    // SAFETY: the header's contract.
    unsafe { text(engine, |e| &e.reasons) }
}

/// Makes a directory's entries durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_sync_dir(
    engine: *const engineswap_engine,
    path: *const c_char,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        // SAFETY: the header's contract.
        let (engine, path) = unsafe { (args::handle(engine, "engine")?, args::path(path)?) };
        Ok(engine.io.sync_dir(path).map(|()| OK)?)
    })
}
