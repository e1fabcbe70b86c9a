//! Memory of the caller, registered with an engine.

use std::ffi::{CString, c_char, c_void};

use engineswap::Registration;
use engineswap::mem::Region;

use crate::args;
use crate::engine::engineswap_engine;
use crate::result::{Fail, OK, engineswap_error, guard};

/// A registration's handle.
pub struct engineswap_registration {
    _registration: Registration,
    refusal: Option<CString>,
}

/// # Safety
/// The header's contract of a registered buffer.
unsafe fn region(buffer: *mut c_void, len: usize) -> Result<Region, Fail> {
    // SAFETY: the caller's promise: the memory stays as long as the registration.
    unsafe { Region::foreign(buffer.cast(), len) }
        .ok_or_else(|| Fail::invalid(format!("no memory of {len} bytes to register")))
}

/// Registers memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_register_buffer(
    engine: *const engineswap_engine,
    buffer: *mut c_void,
    len: usize,
    out: *mut *mut engineswap_registration,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (engine, region) = unsafe { (args::handle(engine, "engine")?, region(buffer, len)?) };
        let registration = engine.io.register_buffers(region)?;
        let refusal = registration.refusal().map(args::c_string);
        let handle = engineswap_registration { _registration: registration, refusal };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(Box::into_raw(Box::new(handle))) };
        Ok(OK)
    })
}

/// Why it is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_registration_refusal(
    registration: *const engineswap_registration,
) -> *const c_char {
    // SAFETY: the header's contract.
    let registration = unsafe { registration.as_ref() };
    registration.and_then(|r| r.refusal.as_ref()).map_or(std::ptr::null(), |r| r.as_ptr())
}

/// Takes the memory out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_unregister(registration: *mut engineswap_registration) {
    if !registration.is_null() {
        guard(std::ptr::null_mut(), || {
            // SAFETY: made by `engineswap_register_buffer`, closed once.
            drop(unsafe { Box::from_raw(registration) });
            Ok(OK)
        });
    }
}
