//! How results and failures get to the caller: memory of malloc's, messages as LevelDB begins them.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use c_abi::{ErrorStruct, Fail, OK, Parts};
use ringdb::{Error, ErrorKind};

/// What a failure is copied into on its way to the caller's `char *`.
struct Report {
    code: i32,
    errno: i32,
    message: [u8; MESSAGE],
}

const MESSAGE: usize = 2048;

// SAFETY: the struct's own fields.
unsafe impl ErrorStruct for Report {
    const LIBRARY: &'static str = "ringdb";

    #[inline]
    unsafe fn parts(at: *mut Report) -> Parts {
        // SAFETY: addresses within the struct.
        unsafe {
            Parts {
                code: &raw mut (*at).code,
                errno: &raw mut (*at).errno,
                message: (&raw mut (*at).message).cast(),
                len: MESSAGE,
            }
        }
    }
}

/// Runs `f`; if it fails or panics, sets the caller's message and returns `otherwise`.
///
/// # Safety
/// `errptr` is NULL or leads to NULL or to memory of malloc's.
#[inline]
pub(crate) unsafe fn guard<T>(
    errptr: *mut *mut c_char,
    otherwise: T,
    f: impl FnOnce() -> Result<T, Fail>,
) -> T {
    let mut report = MaybeUninit::<Report>::uninit();
    let mut out = otherwise;
    // SAFETY: a place for the struct.
    let code = unsafe {
        c_abi::guard(report.as_mut_ptr(), || {
            out = f()?;
            Ok(OK)
        })
    };
    if code != OK {
        // SAFETY: `c_abi::guard` has filled it; the caller's promise.
        unsafe { save(errptr, (&raw const (*report.as_ptr()).message).cast()) };
    }
    out
}

/// The same for what has no place for a message.
pub(crate) fn quiet<T>(otherwise: T, f: impl FnOnce() -> Result<T, Fail>) -> T {
    // SAFETY: NULL.
    unsafe { guard(std::ptr::null_mut(), otherwise, f) }
}

/// # Safety
/// As of [`guard`]; `message` ends with NUL.
#[cold]
unsafe fn save(errptr: *mut *mut c_char, message: *const c_char) {
    if errptr.is_null() {
        return;
    }
    // SAFETY: not NULL, so a place of the caller's, which holds NULL or memory of malloc's.
    unsafe {
        libc::free((*errptr).cast());
        errptr.write(libc::strdup(message));
    }
}

/// An error of the store's, begun as LevelDB begins its own of that kind.
#[cold]
pub(crate) fn failed(e: Error) -> Fail {
    let kind = match &e {
        Error::Io(io) if io.kind() == ringdb::engineswap::ErrorKind::NotFound => "NotFound",
        Error::Io(_) | Error::Locked(_) => "IO error",
        _ => match e.kind() {
            ErrorKind::Repair => "Corruption",
            ErrorKind::FixCall => "Invalid argument",
            _ => "IO error",
        },
    };
    Fail::invalid(format!("{kind}: {e}"))
}

/// A wrong argument, in LevelDB's words for it.
#[cold]
pub(crate) fn invalid(message: impl std::fmt::Display) -> Fail {
    Fail::invalid(format!("Invalid argument: {message}"))
}

/// A failure of the system.
#[cold]
pub(crate) fn io_error(path: &std::path::Path, e: &std::io::Error) -> Fail {
    Fail::invalid(format!("IO error: {}: {e}", path.display()))
}

/// A copy in memory of malloc's; not NULL, of no bytes too.
pub(crate) fn copy(bytes: &[u8]) -> Result<*mut c_char, Fail> {
    // SAFETY: any size may be asked for.
    let to = unsafe { libc::malloc(bytes.len().max(1)) };
    if to.is_null() {
        return Err(Fail::invalid(format!("IO error: no memory for {} bytes", bytes.len())));
    }
    // SAFETY: as many bytes were just given.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
    Ok(to.cast())
}

/// A copy that ends with NUL.
pub(crate) fn copy_text(text: &str) -> Result<*mut c_char, Fail> {
    copy(c_abi::args::c_string(text).as_bytes_with_nul())
}

/// A copy of a name that a callback of the caller's has given.
///
/// # Safety
/// `name` is NULL or ends with NUL.
pub(crate) unsafe fn name_of(name: *const c_char) -> Option<String> {
    if name.is_null() {
        return None;
    }
    // SAFETY: not NULL, and the caller's promise.
    Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

/// What a caller gave along for its callbacks.
#[derive(Clone, Copy)]
pub(crate) struct State(pub(crate) *mut c_void);

// SAFETY: only handed back to the caller's callbacks, which are called by any thread, as the header says.
unsafe impl Send for State {}
// SAFETY: likewise.
unsafe impl Sync for State {}
