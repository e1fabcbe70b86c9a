//! Codes and the caller's error struct.

use std::ffi::c_char;

use c_abi::{ErrorStruct, Parts};
pub(crate) use c_abi::{Fail, INTERNAL, INVALID_ARGUMENT, OK, code_of};

pub(crate) const QUEUE_FULL: i32 = c_abi::WOULD_BLOCK;
pub(crate) const WRONG_THREAD: i32 = -13;
pub(crate) const QUEUE_BROKEN: i32 = -14;

const MESSAGE: usize = 1016;

/// The caller's error struct.
#[repr(C)]
pub struct engineswap_error {
    code: i32,
    os_errno: i32,
    message: [u8; MESSAGE],
}

// SAFETY: the struct's own fields.
unsafe impl ErrorStruct for engineswap_error {
    const LIBRARY: &'static str = "engineswap";

    unsafe fn parts(at: *mut engineswap_error) -> Parts {
        // SAFETY: addresses within the caller's struct.
        unsafe {
            Parts {
                code: &raw mut (*at).code,
                errno: &raw mut (*at).os_errno,
                message: (&raw mut (*at).message).cast(),
                len: MESSAGE,
            }
        }
    }
}

/// The name of a code.
#[unsafe(no_mangle)]
pub extern "C" fn engineswap_code_name(code: i32) -> *const c_char {
    let own = match code {
        QUEUE_FULL => c"queue full",
        WRONG_THREAD => c"wrong thread",
        QUEUE_BROKEN => c"queue broken",
        _ => c"unknown",
    };
    c_abi::code_name(code).unwrap_or(own).as_ptr()
}

/// Runs `f`, catches its panic, and reports into the caller's struct, which may be NULL.
pub(crate) fn guard(err: *mut engineswap_error, f: impl FnOnce() -> Result<i32, Fail>) -> i32 {
    // SAFETY: the header's contract: NULL or a struct of the caller's.
    unsafe { c_abi::guard(err, f) }
}

/// Fills the caller's struct, unless it is NULL.
pub(crate) fn report(err: *mut engineswap_error, code: i32, errno: i32, message: &str) {
    // SAFETY: as above.
    unsafe { c_abi::report(err, code, errno, message) }
}
