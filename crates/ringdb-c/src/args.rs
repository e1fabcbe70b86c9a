//! Checks of what a caller passes.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Bound;
use std::time::Duration;

pub(crate) use c_abi::args::{array, c_string, handle, memory, out, path, struct_in};
use ringdb::{Durability, ReadOptions, WriteOptions};

use crate::result::Fail;

/// Bytes of the caller's.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ringdb_slice {
    /// Where they are.
    pub data: *const c_void,
    /// How many.
    pub len: usize,
}

impl ringdb_slice {
    pub(crate) fn of(bytes: &[u8]) -> ringdb_slice {
        ringdb_slice { data: bytes.as_ptr().cast(), len: bytes.len() }
    }

    pub(crate) const NONE: ringdb_slice = ringdb_slice { data: std::ptr::null(), len: 0 };
}

/// How to read.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ringdb_read_options {
    size: u32,
    flags: u32,
    deadline_us: u64,
}

/// How to write.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ringdb_write_options {
    size: u32,
    durability: i32,
    deadline_us: u64,
}

const NO_FILL_CACHE: u32 = 1;
const FROM_EXCLUDED: u32 = 1;
const TO_INCLUDED: u32 = 2;

/// # Safety
/// `data` is NULL or leads to `len` bytes, unless no memory has so many.
#[inline]
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize, what: &str) -> Result<&'a [u8], Fail> {
    if len == 0 {
        return Ok(&[]);
    }
    let len = memory(data.cast(), len as u64, what)?;
    // SAFETY: not NULL, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// # Safety
/// As of `array` and `bytes`.
pub(crate) unsafe fn keys<'a>(first: *const ringdb_slice, count: usize) -> Result<Vec<&'a [u8]>, Fail> {
    // SAFETY: the caller's promise.
    let keys = unsafe { array(first, count, "keys")? };
    // SAFETY: the caller's promise.
    keys.iter().map(|k| unsafe { bytes(k.data, k.len, "key") }).collect()
}

/// # Safety
/// `text` is NULL or NUL-terminated and lives as long as the result.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Fail> {
    if text.is_null() {
        return Err(Fail::invalid(format!("the {what} is NULL")));
    }
    // SAFETY: not NULL, and the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Fail::invalid(format!("the {what} is not UTF-8")))
}

pub(crate) fn flag(yes: i32, what: &str) -> Result<bool, Fail> {
    match yes {
        0 => Ok(false),
        1 => Ok(true),
        n => Err(Fail::invalid(format!("{what} is {n}; 0 or 1"))),
    }
}

/// Bytes that may be absent.
///
/// # Safety
/// `slice` is NULL or leads to a slice, and this to its bytes.
pub(crate) unsafe fn optional<'a>(slice: *const ringdb_slice, what: &str) -> Result<Option<&'a [u8]>, Fail> {
    // SAFETY: the caller's promise.
    match unsafe { slice.as_ref() } {
        None => Ok(None),
        // SAFETY: the caller's promise.
        Some(s) => unsafe { bytes(s.data, s.len, what) }.map(Some),
    }
}

/// From where to where.
pub(crate) type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Bounds of a range of keys.
///
/// # Safety
/// `from` and `to` are NULL or lead to slices, and these to their bytes.
pub(crate) unsafe fn bounds<'a>(
    from: *const ringdb_slice,
    to: *const ringdb_slice,
    flags: u32,
) -> Result<Range<'a>, Fail> {
    if flags & !(FROM_EXCLUDED | TO_INCLUDED) != 0 {
        return Err(Fail::invalid(format!(
            "unknown flags {flags:#x} of a range; valid: RINGDB_FROM_EXCLUDED, RINGDB_TO_INCLUDED"
        )));
    }
    // SAFETY: the caller's promise.
    let (from, to) = unsafe { (optional(from, "bound")?, optional(to, "bound")?) };
    let bound = |key, excluded| match (key, excluded) {
        (None, _) => Bound::Unbounded,
        (Some(key), true) => Bound::Excluded(key),
        (Some(key), false) => Bound::Included(key),
    };
    Ok((bound(from, flags & FROM_EXCLUDED != 0), bound(to, flags & TO_INCLUDED == 0)))
}

fn deadline(us: u64) -> Option<Duration> {
    (us != 0).then(|| Duration::from_micros(us))
}

/// # Safety
/// `how` is NULL or leads to as many bytes as its first field says.
#[inline]
pub(crate) unsafe fn read_options(how: *const ringdb_read_options) -> Result<ReadOptions, Fail> {
    if how.is_null() {
        return Ok(ReadOptions::default());
    }
    let none = ringdb_read_options { size: 0, flags: 0, deadline_us: 0 };
    // SAFETY: not NULL, and the caller's promise; plain numbers.
    let how = unsafe { struct_in(how, none, "ringdb_read_options")? };
    if how.flags & !NO_FILL_CACHE != 0 {
        return Err(Fail::invalid(format!(
            "unknown flags {:#x} of a read; valid: RINGDB_READ_NO_FILL_CACHE",
            how.flags
        )));
    }
    let options = ReadOptions::default().fill_cache(how.flags & NO_FILL_CACHE == 0);
    Ok(match deadline(how.deadline_us) {
        Some(most) => options.with_deadline(most),
        None => options,
    })
}

/// # Safety
/// As of `read_options`.
pub(crate) unsafe fn write_options(how: *const ringdb_write_options) -> Result<WriteOptions, Fail> {
    if how.is_null() {
        return Ok(WriteOptions::default());
    }
    let none = ringdb_write_options { size: 0, durability: 0, deadline_us: 0 };
    // SAFETY: not NULL, and the caller's promise; plain numbers.
    let how = unsafe { struct_in(how, none, "ringdb_write_options")? };
    let mut options = WriteOptions::default();
    if how.durability != 0 {
        options = options.durability(durability(how.durability)?);
    }
    Ok(match deadline(how.deadline_us) {
        Some(most) => options.with_deadline(most),
        None => options,
    })
}

/// `RINGDB_DURABILITY_...`.
pub(crate) fn durability(number: i32) -> Result<Durability, Fail> {
    match number {
        1 => Ok(Durability::None),
        2 => Ok(Durability::Process),
        3 => Ok(Durability::Sync),
        n => Err(Fail::invalid(format!("durability {n}; valid: RINGDB_DURABILITY_NONE, _PROCESS, _SYNC"))),
    }
}
