//! [`Fail`]: a failure on its way to the caller; and the codes that both interfaces have.

use std::ffi::CStr;

use engineswap::{Error, ErrorKind};

/// Success.
pub const OK: i32 = 0;
/// A path does not exist.
pub const NOT_FOUND: i32 = -1;
/// A file ended too early.
pub const UNEXPECTED_EOF: i32 = -6;
/// An argument is wrong.
pub const INVALID_ARGUMENT: i32 = -8;
/// Anything else that the kernel reports.
pub const IO: i32 = -11;
/// There is no room now.
pub const WOULD_BLOCK: i32 = -12;
/// A defect of the library.
pub const INTERNAL: i32 = -15;

/// A failure on its way to the caller.
#[derive(Clone, Debug)]
pub struct Fail {
    /// The number that the caller gets.
    pub code: i32,
    /// The kernel's, or 0.
    pub errno: i32,
    /// For people.
    pub message: String,
}

impl Fail {
    /// One without an errno.
    pub fn new(code: i32, message: impl Into<String>) -> Fail {
        Fail { code, errno: 0, message: message.into() }
    }

    /// A wrong argument.
    pub fn invalid(message: impl Into<String>) -> Fail {
        Fail::new(INVALID_ARGUMENT, message)
    }
}

impl From<Error> for Fail {
    fn from(e: Error) -> Fail {
        Fail { code: code_of(&e), errno: e.errno().unwrap_or(0), message: e.to_string() }
    }
}

/// The code of a failure of the I/O layer.
pub fn code_of(e: &Error) -> i32 {
    match e.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        ErrorKind::AlreadyExists => -2,
        ErrorKind::PermissionDenied => -3,
        ErrorKind::NoSpace => -4,
        ErrorKind::UnexpectedEof => UNEXPECTED_EOF,
        ErrorKind::Unsupported => -7,
        ErrorKind::InvalidInput => INVALID_ARGUMENT,
        ErrorKind::Canceled => -9,
        ErrorKind::SyncFailed => -10,
        ErrorKind::TimedOut => -16,
        _ => IO,
    }
}

/// The name of a code that both interfaces have.
pub fn code_name(code: i32) -> Option<&'static CStr> {
    Some(match code {
        OK => c"ok",
        NOT_FOUND => c"not found",
        -2 => c"already exists",
        -3 => c"permission denied",
        -4 => c"no space",
        UNEXPECTED_EOF => c"unexpected end of file",
        -7 => c"unsupported",
        INVALID_ARGUMENT => c"invalid argument",
        -9 => c"canceled",
        -10 => c"sync failed",
        IO => c"input/output error",
        INTERNAL => c"internal error",
        -16 => c"timed out",
        _ => return None,
    })
}
