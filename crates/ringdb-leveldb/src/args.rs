//! Checks of what a caller passes.

use std::ffi::c_char;
use std::path::Path;

use c_abi::Fail;

use crate::report::invalid;

/// The bytes of a key or value.
///
/// # Safety
/// `first` leads to `len` bytes that live as long as the result, unless `len` is 0.
#[inline]
pub(crate) unsafe fn bytes<'a>(first: *const c_char, len: usize, what: &str) -> Result<&'a [u8], Fail> {
    if len == 0 {
        return Ok(&[]);
    }
    if first.is_null() || len > isize::MAX as usize {
        return Err(invalid(format!("no {what} of {len} bytes is there")));
    }
    // SAFETY: not NULL, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(first.cast(), len) })
}

/// A handle that is not NULL.
///
/// # Safety
/// `handle` is NULL or leads to a live `T`.
#[inline]
pub(crate) unsafe fn handle<'a, T>(handle: *const T, what: &str) -> Result<&'a T, Fail> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| invalid(format!("NULL for the {what}")))
}

/// A handle to change.
///
/// # Safety
/// `handle` is NULL or leads to a live `T` that nobody else uses meanwhile.
#[inline]
pub(crate) unsafe fn handle_mut<'a, T>(handle: *mut T, what: &str) -> Result<&'a mut T, Fail> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_mut() }.ok_or_else(|| invalid(format!("NULL for the {what}")))
}

/// A store's directory.
///
/// # Safety
/// `name` is NULL or ends with NUL, and lives as long as the result.
pub(crate) unsafe fn path<'a>(name: *const c_char) -> Result<&'a Path, Fail> {
    // SAFETY: the caller's promise.
    unsafe { c_abi::args::path(name) }.map_err(|e| invalid(e.message))
}

/// Frees a handle; NULL is nothing.
///
/// # Safety
/// `handle` is NULL or of `Box::into_raw`, and used no more.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if handle.is_null() {
        return;
    }
    crate::report::quiet((), || {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(handle) });
        Ok(())
    });
}

/// A new handle.
pub(crate) fn give<T>(inside: T) -> *mut T {
    Box::into_raw(Box::new(inside))
}
