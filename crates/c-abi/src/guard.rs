//! [`guard`]: the place that no panic passes, and [`ErrorStruct`], the caller's struct that failures are copied into.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Fail, INTERNAL, OK};

/// An error struct of a library's header.
///
/// # Safety
/// `parts` leads into the struct: all three may be written.
pub unsafe trait ErrorStruct {
    /// The library's name.
    const LIBRARY: &'static str;

    /// Where things go in a struct that may be uninitialised; only addresses are taken.
    ///
    /// # Safety
    /// `at` leads to a struct.
    unsafe fn parts(at: *mut Self) -> Parts;

    /// Fills what the struct has beside these.
    ///
    /// # Safety
    /// As of `parts`.
    unsafe fn more(_at: *mut Self, _code: i32) {}
}

/// The fields that every error struct has.
pub struct Parts {
    /// The code.
    pub code: *mut i32,
    /// The kernel's errno.
    pub errno: *mut i32,
    /// The bytes of the message.
    pub message: *mut u8,
    /// How many there are.
    pub len: usize,
}

/// Runs `f`, catches its panic, and reports into the caller's struct.
///
/// # Safety
/// `err` is NULL or leads to a struct, which may be uninitialised.
#[inline]
pub unsafe fn guard<E: ErrorStruct>(err: *mut E, f: impl FnOnce() -> Result<i32, Fail>) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<&str>().map(|s| s.to_string());
        let what = what.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Fail::new(INTERNAL, format!("a defect of {}: {what}", E::LIBRARY)))
    });
    match result {
        Ok(n) => {
            // SAFETY: the caller's promise.
            unsafe { report(err, OK, 0, "") };
            n
        }
        Err(fail) => {
            // SAFETY: the caller's promise.
            unsafe { report(err, fail.code, fail.errno, &fail.message) };
            fail.code
        }
    }
}

/// Fills the caller's struct, unless it is NULL.
///
/// # Safety
/// As of [`guard`].
#[inline]
pub unsafe fn report<E: ErrorStruct>(err: *mut E, code: i32, errno: i32, message: &str) {
    if err.is_null() {
        return;
    }
    // SAFETY: not NULL, so a struct of the caller, written through field pointers because it may be uninitialised.
    unsafe {
        let to = E::parts(err);
        let n = cut(message, to.len - 1);
        to.code.write(code);
        to.errno.write(errno);
        std::ptr::copy_nonoverlapping(message.as_ptr(), to.message, n);
        to.message.add(n).write(0);
        E::more(err, code);
    }
}

/// The largest length of at most `max` bytes that cuts no character and holds no NUL.
fn cut(message: &str, max: usize) -> usize {
    let mut n = message.bytes().position(|b| b == 0).unwrap_or(message.len()).min(max);
    while !message.is_char_boundary(n) {
        n -= 1;
    }
    n
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::mem::MaybeUninit;

    use engineswap::Error;

    use super::*;

    #[repr(C)]
    struct Plain {
        code: i32,
        errno: i32,
        message: [u8; 1016],
    }

    // SAFETY: the struct's own fields.
    unsafe impl ErrorStruct for Plain {
        const LIBRARY: &'static str = "a test";

        unsafe fn parts(at: *mut Plain) -> Parts {
            // SAFETY: addresses only.
            unsafe {
                Parts {
                    code: &raw mut (*at).code,
                    errno: &raw mut (*at).errno,
                    message: (&raw mut (*at).message).cast(),
                    len: 1016,
                }
            }
        }
    }

    fn caught(f: impl FnOnce() -> Result<i32, Fail>) -> (i32, i32, String) {
        let mut err = MaybeUninit::<Plain>::zeroed();
        // SAFETY: a place for the struct.
        let code = unsafe { guard(err.as_mut_ptr(), f) };
        // SAFETY: all zeros are a valid value, and `guard` filled it.
        let err = unsafe { err.assume_init() };
        assert_eq!(err.code, code.min(0));
        let text = CStr::from_bytes_until_nul(&err.message).unwrap();
        (code, err.errno, text.to_str().unwrap().to_owned())
    }

    #[test]
    fn no_panic_passes() {
        let (code, _, text) = caught(|| panic!("number {}", 7));
        assert_eq!(code, INTERNAL);
        assert!(text.contains("number 7") && text.contains("a test"), "{text}");
        // SAFETY: NULL.
        let code = unsafe { guard(std::ptr::null_mut::<Plain>(), || panic!("again")) };
        assert_eq!(code, INTERNAL);
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
