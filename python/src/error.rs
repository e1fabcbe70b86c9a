//! The store's errors as exceptions of `ringdb._errors`.

use pyo3::prelude::*;
use ringdb::{Error, ErrorKind};

/// The name of the exception, and of its kind.
fn names(e: &Error) -> (&'static str, &'static str) {
    let class = match e {
        Error::Corrupt { .. } => "CorruptError",
        Error::Stopped(_) => "StoppedError",
        Error::Locked(_) => "LockedError",
        Error::NoStore { .. } => "NoStoreError",
        Error::NewerFormat { .. } => "NewerFormatError",
        Error::Invalid(_) => "InvalidError",
        Error::ReadOnly => "ReadOnlyError",
        Error::KeyspaceDropped(_) => "KeyspaceDroppedError",
        Error::Closed => "ClosedError",
        Error::TimedOut => "TimeoutError",
        Error::Conflict { .. } => "ConflictError",
        Error::KeyLocked { .. } => "KeyLockedError",
        Error::Key { .. } => "EncryptionKeyError",
        _ => "Error",
    };
    let kind = match e.kind() {
        ErrorKind::Retry => "retry",
        ErrorKind::Stop => "stop",
        ErrorKind::Repair => "repair",
        ErrorKind::WouldBlock => "would_block",
        ErrorKind::TimedOut => "timed_out",
        _ => "fix_call",
    };
    (class, kind)
}

/// The exception that says what a store's error says.
pub fn exception(py: Python<'_>, e: &Error) -> PyErr {
    let (class, kind) = names(e);
    let made =
        py.import("ringdb._errors").and_then(|module| module.getattr(class)?.call1((e.to_string(), kind)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(e) => e,
    }
}

/// Of a call that is wrong before the store sees it.
pub fn invalid(py: Python<'_>, what: impl Into<String>) -> PyErr {
    exception(py, &Error::Invalid(what.into()))
}

/// Runs a store's call without the interpreter's lock.
pub fn call<T: Send>(py: Python<'_>, f: impl FnOnce() -> ringdb::Result<T> + Send) -> PyResult<T> {
    py.detach(f).map_err(|e| exception(py, &e))
}
