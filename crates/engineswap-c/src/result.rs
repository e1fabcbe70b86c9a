//! Codes, the caller's error struct, and the guard that no panic passes.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use engineswap::{Error, ErrorKind};

pub(crate) const OK: i32 = 0;
pub(crate) const NOT_FOUND: i32 = -1;
pub(crate) const IO: i32 = -11;
pub(crate) const INVALID_ARGUMENT: i32 = -8;
pub(crate) const QUEUE_FULL: i32 = -12;
pub(crate) const WRONG_THREAD: i32 = -13;
pub(crate) const QUEUE_BROKEN: i32 = -14;
pub(crate) const INTERNAL: i32 = -15;

const MESSAGE: usize = 1016;

/// The caller's error struct.
#[repr(C)]
pub struct engineswap_error {
    code: i32,
    os_errno: i32,
    message: [u8; MESSAGE],
}

/// A failure on its way to the caller.
pub(crate) struct Fail {
    pub(crate) code: i32,
    pub(crate) errno: i32,
    pub(crate) message: String,
}

impl Fail {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Fail {
        Fail { code, errno: 0, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Fail {
        Fail::new(INVALID_ARGUMENT, message)
    }
}

impl From<Error> for Fail {
    fn from(e: Error) -> Fail {
        Fail { code: code_of(&e), errno: e.errno().unwrap_or(0), message: e.to_string() }
    }
}

pub(crate) fn code_of(e: &Error) -> i32 {
    match e.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        ErrorKind::AlreadyExists => -2,
        ErrorKind::PermissionDenied => -3,
        ErrorKind::NoSpace => -4,
        ErrorKind::UnexpectedEof => -6,
        ErrorKind::Unsupported => -7,
        ErrorKind::InvalidInput => INVALID_ARGUMENT,
        ErrorKind::Canceled => -9,
        ErrorKind::SyncFailed => -10,
        ErrorKind::TimedOut => -16,
        _ => IO,
    }
}

/// The name of a code.
#[unsafe(no_mangle)]
pub extern "C" fn engineswap_code_name(code: i32) -> *const c_char {
    let name: &CStr = match code {
        0 => c"ok",
        -1 => c"not found",
        -2 => c"already exists",
        -3 => c"permission denied",
        -4 => c"no space",
        -6 => c"unexpected end of file",
        -7 => c"unsupported",
        -8 => c"invalid argument",
        -9 => c"canceled",
        -10 => c"sync failed",
        -11 => c"input/output error",
        -12 => c"queue full",
        -13 => c"wrong thread",
        -14 => c"queue broken",
        -15 => c"internal error",
        -16 => c"timed out",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// Runs `f`, catches its panic, and reports into the caller's struct, which may be NULL.
pub(crate) fn guard(err: *mut engineswap_error, f: impl FnOnce() -> Result<i32, Fail>) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<&str>().map(|s| s.to_string());
        let what = what.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Fail::new(INTERNAL, format!("a defect of engineswap: {what}")))
    });
    match result {
        Ok(n) => {
            report(err, OK, 0, "");
            n
        }
        Err(fail) => {
            report(err, fail.code, fail.errno, &fail.message);
            fail.code
        }
    }
}

/// Fills the caller's struct, unless it is NULL.
pub(crate) fn report(err: *mut engineswap_error, code: i32, errno: i32, message: &str) {
    if err.is_null() {
        return;
    }
    let n = message.floor_char_boundary_before(MESSAGE - 1);
    // SAFETY: not NULL, so a struct of the caller, written through field pointers because it may be uninitialised.
    unsafe {
        (&raw mut (*err).code).write(code);
        (&raw mut (*err).os_errno).write(errno);
        let text: *mut u8 = (&raw mut (*err).message).cast();
        std::ptr::copy_nonoverlapping(message.as_ptr(), text, n);
        text.add(n).write(0);
    }
}

trait FloorCharBoundary {
    fn floor_char_boundary_before(&self, max: usize) -> usize;
}

impl FloorCharBoundary for str {
    /// The largest length of at most `max` bytes that cuts no character and holds no NUL.
    fn floor_char_boundary_before(&self, max: usize) -> usize {
        let mut n = self.bytes().position(|b| b == 0).unwrap_or(self.len()).min(max);
        while !self.is_char_boundary(n) {
            n -= 1;
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    fn caught(f: impl FnOnce() -> Result<i32, Fail>) -> (i32, i32, String) {
        let mut err = MaybeUninit::<engineswap_error>::zeroed();
        let code = guard(err.as_mut_ptr(), f);
        // SAFETY: all zeros are a valid value, and `guard` filled it.
        let err = unsafe { err.assume_init() };
        assert_eq!(err.code, code.min(0));
        let text = CStr::from_bytes_until_nul(&err.message).unwrap();
        (code, err.os_errno, text.to_str().unwrap().to_owned())
    }

    #[test]
    fn no_panic_passes() {
        let (code, _, text) = caught(|| panic!("number {}", 7));
        assert_eq!(code, INTERNAL);
        assert!(text.contains("number 7"), "{text}");
        assert_eq!(guard(std::ptr::null_mut(), || panic!("again")), INTERNAL);
    }

    #[test]
    fn messages_are_cut_between_characters() {
        let (_, _, text) = caught(|| Err(Fail::invalid("ü".repeat(2000))));
        assert_eq!(text.len(), 1014);
        let (_, _, text) = caught(|| Err(Fail::invalid("one\0two")));
        assert_eq!(text, "one");
        assert_eq!(caught(|| Ok(3)), (3, 0, String::new()));
        let e = Error::from_errno("read", libc::ENOSPC);
        assert_eq!(caught(|| Err(e.into())).1, libc::ENOSPC);
    }
}
