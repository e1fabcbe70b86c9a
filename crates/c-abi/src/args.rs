//! Checks of what a caller passes.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::Fail;

/// A handle that is not NULL.
///
/// # Safety
/// `handle` is NULL or leads to a live `T`.
pub unsafe fn handle<'a, T>(handle: *const T, what: &str) -> Result<&'a T, Fail> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| Fail::invalid(format!("the {what} is NULL")))
}

/// An array.
///
/// # Safety
/// `first` is NULL or leads to `count` live values, unless these cannot be.
pub unsafe fn array<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T], Fail> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() || count > isize::MAX as usize / size_of::<T>() {
        return Err(Fail::invalid(format!("no array of {count} {what}")));
    }
    // SAFETY: not NULL, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Fills a struct of the caller, which has a shorter one with an older header and a longer one with a newer header.
///
/// # Safety
/// `out` leads to `size` bytes, and `T` is made of numbers of eight bytes alone.
pub unsafe fn struct_of_size<T: Copy>(out: *mut T, size: usize, from: &T) -> Result<(), Fail> {
    if size < 8 || !size.is_multiple_of(8) {
        return Err(Fail::invalid(format!("the struct for the result has {size} bytes")));
    }
    let known = size.min(size_of::<T>());
    // SAFETY: the caller's promise.
    unsafe {
        out.cast::<u8>().write_bytes(0, size);
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(from).cast::<u8>(), out.cast::<u8>(), known);
    }
    Ok(())
}

/// A struct of options of the caller, which is shorter with an older header and longer with a newer one: what is
/// missing is as in `none`, what is unknown has to be zero. Its first field is its size, a `u32`.
///
/// # Safety
/// `from` leads to as many bytes as its first field says, and any bytes are a `T`.
pub unsafe fn struct_in<T: Copy>(from: *const T, none: T, what: &str) -> Result<T, Fail> {
    const MOST: usize = 4096;
    // SAFETY: the caller's promise.
    let size = unsafe { from.cast::<u32>().read_unaligned() } as usize;
    if !(8..=MOST).contains(&size) || !size.is_multiple_of(8) {
        return Err(Fail::invalid(format!("the size of a {what} is {size}: set it to sizeof({what})")));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if bytes[known..].iter().any(|b| *b != 0) {
        return Err(Fail::invalid(format!(
            "this library does not know all fields of this {what}: use a newer one"
        )));
    }
    let mut out = none;
    // SAFETY: at most as many bytes as either has; any bytes are a `T`.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut out).cast::<u8>(), known) };
    Ok(out)
}

/// A path that is not NULL.
///
/// # Safety
/// `path` is NULL or NUL-terminated and lives as long as the result.
pub unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path, Fail> {
    if path.is_null() {
        return Err(Fail::invalid("the path is NULL"));
    }
    // SAFETY: not NULL, and the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if bytes.is_empty() {
        return Err(Fail::invalid("the path is empty"));
    }
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// The place for a result.
pub fn out<T>(out: *mut T) -> Result<*mut T, Fail> {
    if out.is_null() { Err(Fail::invalid("the place for the result is NULL")) } else { Ok(out) }
}

/// A length that memory can have, at an address that is not NULL (unless there are no bytes).
pub fn memory(buffer: *const u8, len: u64, what: &str) -> Result<usize, Fail> {
    if buffer.is_null() && len > 0 {
        return Err(Fail::invalid(format!("the {what} of {len} bytes is NULL")));
    }
    match usize::try_from(len) {
        Ok(n) if n <= isize::MAX as usize && (buffer as usize).checked_add(n).is_some() => Ok(n),
        _ => Err(Fail::invalid(format!("no {what} has {len} bytes"))),
    }
}

/// A string for C; what follows a NUL is left out.
pub fn c_string(text: impl Into<Vec<u8>>) -> CString {
    let mut bytes = text.into();
    if let Some(n) = bytes.iter().position(|b| *b == 0) {
        bytes.truncate(n);
    }
    CString::new(bytes).unwrap_or_default()
}
