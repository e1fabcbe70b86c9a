//! Bytes that the library gives away.

use std::ffi::{CString, c_void};

use ringdb::Value;

use crate::args::{c_string, ringdb_slice};
use crate::result::{ABSENT, FOUND, Fail, INVALID_ARGUMENT, guarded};

/// A value, or a text.
pub struct ringdb_value(Repr);

enum Repr {
    Bytes(Value),
    Text(CString),
}

impl ringdb_value {
    fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Bytes(value) => value,
            Repr::Text(text) => text.to_bytes(),
        }
    }

    pub(crate) fn give(value: Value) -> *mut ringdb_value {
        Box::into_raw(Box::new(ringdb_value(Repr::Bytes(value))))
    }

    pub(crate) fn give_or_null(value: Option<Value>) -> (i32, *mut ringdb_value) {
        value.map_or((ABSENT, std::ptr::null_mut()), |value| (FOUND, ringdb_value::give(value)))
    }

    pub(crate) fn text(text: impl Into<Vec<u8>>) -> *mut ringdb_value {
        Box::into_raw(Box::new(ringdb_value(Repr::Text(c_string(text)))))
    }

    /// Data as JSON.
    pub(crate) fn json(of: &impl serde::Serialize) -> Result<*mut ringdb_value, Fail> {
        let text = serde_json::to_string_pretty(of)
            .map_err(|e| Fail::new(c_abi::INTERNAL, format!("a defect of ringdb: {e}")))?;
        Ok(ringdb_value::text(text))
    }
}

/// # Safety
/// `value` is NULL or a live handle.
unsafe fn slice<'a>(value: *const ringdb_value) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    unsafe { value.as_ref() }.map(ringdb_value::as_slice)
}

/// Where the bytes are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_value_data(value: *const ringdb_value) -> *const c_void {
    // SAFETY: the header's contract.
    unsafe { slice(value) }.map_or(std::ptr::null(), |v| v.as_ptr().cast())
}

/// How many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_value_len(value: *const ringdb_value) -> usize {
    // SAFETY: the header's contract.
    unsafe { slice(value) }.map_or(0, <[u8]>::len)
}

/// Frees a handle that was made by `Box::into_raw`.
///
/// # Safety
/// `handle` is NULL, or a box's, freed once.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's promise.
        guarded((), || drop(unsafe { Box::from_raw(handle) }));
    }
}

/// Frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_value_free(value: *mut ringdb_value) {
    // SAFETY: the header's contract.
    unsafe { free(value) }
}

/// Many values.
pub struct ringdb_values(Vec<Option<Value>>);

impl ringdb_values {
    pub(crate) fn give(values: Vec<Option<Value>>) -> *mut ringdb_values {
        Box::into_raw(Box::new(ringdb_values(values)))
    }
}

/// How many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_values_count(values: *const ringdb_values) -> usize {
    // SAFETY: the header's contract.
    unsafe { values.as_ref() }.map_or(0, |v| v.0.len())
}

/// One of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_values_get(
    values: *const ringdb_values,
    place: usize,
    out: *mut ringdb_slice,
) -> i32 {
    // SAFETY: the header's contract.
    let Some(value) = unsafe { values.as_ref() }.and_then(|v| v.0.get(place)) else {
        return INVALID_ARGUMENT;
    };
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    let (code, slice) = value.as_ref().map_or((ABSENT, ringdb_slice::NONE), |v| (FOUND, ringdb_slice::of(v)));
    // SAFETY: not NULL, so a place of the caller.
    unsafe { out.write(slice) };
    code
}

/// Frees them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_values_free(values: *mut ringdb_values) {
    // SAFETY: the header's contract.
    unsafe { free(values) }
}
