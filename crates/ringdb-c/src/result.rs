//! Codes, their kinds, and the caller's error struct.

use std::ffi::{c_char, c_void};
use std::sync::{Mutex, MutexGuard, TryLockError};

use c_abi::{ErrorStruct, Parts};
pub(crate) use c_abi::{Fail, INVALID_ARGUMENT, OK, report};
use c_abi::{INTERNAL, IO, NOT_FOUND, UNEXPECTED_EOF, WOULD_BLOCK};
use ringdb::{Error, ErrorKind};

pub(crate) const FOUND: i32 = 1;
pub(crate) const ABSENT: i32 = 0;

const ALREADY_EXISTS: i32 = -2;
const PERMISSION_DENIED: i32 = -3;
const NO_SPACE: i32 = -4;
pub(crate) const EXHAUSTED: i32 = -5;
pub(crate) const UNSUPPORTED: i32 = -7;
const BUSY: i32 = -13;
const TIMED_OUT: i32 = -16;
const CORRUPT: i32 = -17;
const STOPPED: i32 = -18;
const LOCKED: i32 = -19;
const NO_STORE: i32 = -20;
const NEWER_FORMAT: i32 = -21;
pub(crate) const READ_ONLY: i32 = -22;
const KEYSPACE_DROPPED: i32 = -23;
const CLOSED: i32 = -24;
pub(crate) const BUFFER_TOO_SMALL: i32 = -25;
const CONFLICT: i32 = -26;
const KEY_LOCKED: i32 = -27;
const ENCRYPTION_KEY: i32 = -28;

const MESSAGE: usize = 1008;

/// The caller's error struct.
#[repr(C)]
pub struct ringdb_error {
    code: i32,
    kind: i32,
    os_errno: i32,
    reserved: u32,
    message: [u8; MESSAGE],
}

// SAFETY: the struct's own fields.
unsafe impl ErrorStruct for ringdb_error {
    const LIBRARY: &'static str = "ringdb";

    #[inline]
    unsafe fn parts(at: *mut ringdb_error) -> Parts {
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

    #[inline]
    unsafe fn more(at: *mut ringdb_error, code: i32) {
        // SAFETY: the caller's struct.
        unsafe {
            (&raw mut (*at).kind).write(kind_of(code));
            (&raw mut (*at).reserved).write(0);
        }
    }
}

/// Runs `f`, catches its panic, and reports into the caller's struct, which may be NULL.
#[inline]
pub(crate) fn guard(err: *mut ringdb_error, f: impl FnOnce() -> Result<i32, Fail>) -> i32 {
    // SAFETY: the header's contract: NULL or a struct of the caller's.
    unsafe { c_abi::guard(err, f) }
}

/// The same for what cannot fail, and gives something back.
pub(crate) fn guarded<T>(otherwise: T, f: impl FnOnce() -> T) -> T {
    let mut out = otherwise;
    guard(std::ptr::null_mut(), || {
        out = f();
        Ok(OK)
    });
    out
}

/// An error of the store's on its way to the caller.
#[cold]
pub(crate) fn failed(e: Error) -> Fail {
    let message = e.to_string();
    let code = match &e {
        Error::Io(io) => {
            let mut fail = Fail::from(io.clone());
            fail.code = match io.kind() {
                engineswap::ErrorKind::Exhausted => EXHAUSTED,
                engineswap::ErrorKind::Locked => LOCKED,
                engineswap::ErrorKind::CrossesFileSystems => UNSUPPORTED,
                // The store sets no time limits of the I/O layer.
                engineswap::ErrorKind::TimedOut => IO,
                _ => fail.code,
            };
            return fail;
        }
        Error::Corrupt { .. } => CORRUPT,
        Error::Stopped(_) => STOPPED,
        Error::Locked(_) => LOCKED,
        Error::NoStore { .. } => NO_STORE,
        Error::NewerFormat { .. } => NEWER_FORMAT,
        Error::Conflict { .. } => CONFLICT,
        Error::KeyLocked { .. } => KEY_LOCKED,
        Error::Key { .. } => ENCRYPTION_KEY,
        Error::ReadOnly => READ_ONLY,
        Error::KeyspaceDropped(_) => KEYSPACE_DROPPED,
        Error::Closed => CLOSED,
        _ => match e.kind() {
            ErrorKind::Retry => EXHAUSTED,
            ErrorKind::Stop => STOPPED,
            ErrorKind::Repair => CORRUPT,
            ErrorKind::WouldBlock => WOULD_BLOCK,
            ErrorKind::TimedOut => TIMED_OUT,
            _ => INVALID_ARGUMENT,
        },
    };
    Fail::new(code, message)
}

/// No room for a request.
pub(crate) fn would_block() -> Fail {
    failed(Error::WouldBlock)
}

/// `RINGDB_KIND_...`.
fn kind_of(code: i32) -> i32 {
    match code {
        OK.. => 0,
        NO_SPACE | EXHAUSTED | LOCKED | CONFLICT | KEY_LOCKED => 1,
        UNEXPECTED_EOF | CORRUPT => 3,
        WOULD_BLOCK => 4,
        TIMED_OUT => 5,
        NOT_FOUND | ALREADY_EXISTS | PERMISSION_DENIED | UNSUPPORTED | INVALID_ARGUMENT | BUSY | NO_STORE
        | NEWER_FORMAT | READ_ONLY | KEYSPACE_DROPPED | BUFFER_TOO_SMALL | ENCRYPTION_KEY => 6,
        _ => 2,
    }
}

/// What to do about a code.
#[unsafe(no_mangle)]
pub extern "C" fn ringdb_code_kind(code: i32) -> i32 {
    kind_of(code)
}

/// The name of a code.
#[unsafe(no_mangle)]
pub extern "C" fn ringdb_code_name(code: i32) -> *const c_char {
    let own = match code {
        EXHAUSTED => c"out of resources",
        WOULD_BLOCK => c"would block",
        BUSY => c"in use by another thread",
        CORRUPT => c"corrupt",
        STOPPED => c"stopped writing",
        LOCKED => c"locked",
        NO_STORE => c"no store",
        NEWER_FORMAT => c"newer format",
        READ_ONLY => c"read-only",
        KEYSPACE_DROPPED => c"keyspace dropped",
        CLOSED => c"closed",
        BUFFER_TOO_SMALL => c"buffer too small",
        CONFLICT => c"conflict",
        KEY_LOCKED => c"key locked",
        ENCRYPTION_KEY => c"encryption key",
        _ => c"unknown",
    };
    c_abi::code_name(code).unwrap_or(own).as_ptr()
}

/// What one thread uses at a time: a second one gets an error instead of undefined behaviour.
pub(crate) struct Alone<T>(Mutex<T>);

impl<T> Alone<T> {
    pub(crate) fn new(inside: T) -> Alone<T> {
        Alone(Mutex::new(inside))
    }

    #[inline]
    pub(crate) fn take(&self, what: &str) -> Result<MutexGuard<'_, T>, Fail> {
        self.0.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => Fail::new(
                BUSY,
                format!("another thread is in a call with the {what}, or this one in its callback"),
            ),
            TryLockError::Poisoned(_) => {
                Fail::new(INTERNAL, format!("an earlier call with the {what} ended in a defect of ringdb"))
            }
        })
    }
}

/// What a caller gave along for its callback, or a place of its own.
#[derive(Clone, Copy)]
pub(crate) struct User(pub(crate) *mut c_void);

// SAFETY: only handed back to the caller, who has been told on which threads.
unsafe impl Send for User {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_codes_are_those_of_the_errors() {
        let kind = |e: &Error| match e.kind() {
            ErrorKind::Retry => 1,
            ErrorKind::Stop => 2,
            ErrorKind::Repair => 3,
            ErrorKind::WouldBlock => 4,
            ErrorKind::TimedOut => 5,
            ErrorKind::FixCall => 6,
            _ => panic!("a kind that C does not know"),
        };
        let io = [
            libc::ENOENT,
            libc::EEXIST,
            libc::EACCES,
            libc::ENOSPC,
            libc::EMFILE,
            libc::ENOMEM,
            libc::EXDEV,
            libc::EIO,
            libc::ECANCELED,
            libc::ETIME,
            libc::EINVAL,
            libc::ENOSYS,
            libc::EAGAIN,
            libc::EOPNOTSUPP,
        ];
        let io = io.map(|n| Error::Io(engineswap::Error::from_errno("read", n)));
        let path = std::path::PathBuf::from("x");
        let own = [
            Error::Corrupt { path: path.clone(), offset: None, detail: "d".into() },
            Error::Stopped("s".into()),
            Error::Locked(path.clone()),
            Error::NoStore { path: path.clone(), detail: "d".into() },
            Error::NewerFormat { path: path.clone(), found: 9, newest: 1 },
            Error::Key { path, key: 1, detail: "d".into() },
            Error::Invalid("i".into()),
            Error::ReadOnly,
            Error::Conflict { key: "k".into() },
            Error::KeyLocked { key: "k".into(), deadlock: true },
            Error::KeyspaceDropped("k".into()),
            Error::Closed,
            Error::TimedOut,
            Error::WouldBlock,
        ];
        for e in io.into_iter().chain(own) {
            let (wanted, fail) = (kind(&e), failed(e));
            assert_eq!(ringdb_code_kind(fail.code), wanted, "{fail:?}");
            assert!(fail.code < 0 && !fail.message.is_empty());
            // SAFETY: a static string.
            let name = unsafe { std::ffi::CStr::from_ptr(ringdb_code_name(fail.code)) };
            assert_ne!(name, c"unknown", "{fail:?}");
        }
    }

    #[test]
    fn a_second_thread_is_told() {
        let alone = Alone::new(1);
        let held = alone.take("number").map_err(|f| f.code);
        assert!(held.is_ok());
        let second = std::thread::scope(|s| s.spawn(|| alone.take("number").map(|_| ()).unwrap_err()).join());
        assert_eq!(second.unwrap().code, BUSY);
    }
}
