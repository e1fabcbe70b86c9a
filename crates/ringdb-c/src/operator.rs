//! Merge operators of the caller's: callbacks that any thread of the store may call.

use std::ffi::{c_char, c_void};

use ringdb::MergeOperator;

use crate::args::{self, ringdb_slice};
use crate::options::{ringdb_options, set};
use crate::result::{Fail, ringdb_error};
use crate::said::{self, Said};

/// Where a callback of an operator puts what it has to say.
#[derive(Default)]
#[repr(transparent)]
pub struct ringdb_merge_result(Said);

/// Makes a value, or one operand of several.
pub type ringdb_merge_callback = Option<
    unsafe extern "C" fn(
        *mut c_void,
        ringdb_slice,
        *const ringdb_slice,
        *const ringdb_slice,
        usize,
        *mut ringdb_merge_result,
    ),
>;

/// Looks at an operand.
pub type ringdb_merge_check_callback =
    Option<unsafe extern "C" fn(*mut c_void, ringdb_slice, *mut ringdb_merge_result)>;

/// Takes `user` back.
pub type ringdb_drop_callback = Option<unsafe extern "C" fn(*mut c_void)>;

/// An operator.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ringdb_merge_operator {
    size: u32,
    reserved: u32,
    name: *const c_char,
    user: *mut c_void,
    merge: ringdb_merge_callback,
    partial_merge: ringdb_merge_callback,
    check: ringdb_merge_check_callback,
    drop: ringdb_drop_callback,
}

impl ringdb_merge_operator {
    const NONE: ringdb_merge_operator = ringdb_merge_operator {
        size: 0,
        reserved: 0,
        name: std::ptr::null(),
        user: std::ptr::null_mut(),
        merge: None,
        partial_merge: None,
        check: None,
        drop: None,
    };
}

/// The same as the store knows it.
struct Operator {
    name: String,
    by: ringdb_merge_operator,
}

// SAFETY: the callbacks and their `user` are for any thread, several at a time: the header's contract.
unsafe impl Send for Operator {}
// SAFETY: as above.
unsafe impl Sync for Operator {}

impl Drop for Operator {
    fn drop(&mut self) {
        if let Some(drop) = self.by.drop {
            // SAFETY: the caller's own, and called once: there is one `Operator` of a registration.
            unsafe { drop(self.by.user) };
        }
    }
}

impl Operator {
    /// What a callback makes; an error is what it says, or that it has said nothing.
    fn ask(
        &self,
        callback: ringdb_merge_callback,
        key: &[u8],
        value: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, String> {
        let Some(callback) = callback else { return Ok(None) };
        let value = value.map(ringdb_slice::of);
        let operands: Vec<ringdb_slice> = operands.iter().map(|o| ringdb_slice::of(o)).collect();
        let mut result = ringdb_merge_result::default();
        let value = value.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let key = ringdb_slice::of(key);
        // SAFETY: the caller's own; what is passed lives as long as the call.
        unsafe { callback(self.by.user, key, value, operands.as_ptr(), operands.len(), &raw mut result) };
        result.0.failed.map_or(Ok(result.0.made), Err)
    }
}

impl MergeOperator for Operator {
    fn name(&self) -> &str {
        &self.name
    }

    fn merge(&self, key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        self.ask(self.by.merge, key, value, operands)?
            .ok_or_else(|| "its callback has given no value (ringdb_merge_result_append)".into())
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.ask(self.by.partial_merge, key, None, operands).ok()?
    }

    fn check(&self, operand: &[u8]) -> Result<(), String> {
        let Some(check) = self.by.check else { return Ok(()) };
        let mut result = ringdb_merge_result::default();
        // SAFETY: the caller's own; what is passed lives as long as the call.
        unsafe { check(self.by.user, ringdb_slice::of(operand), &raw mut result) };
        result.0.failed.map_or(Ok(()), Err)
    }
}

/// Registers one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_options_register_merge_operator(
    options: *mut ringdb_options,
    operator: *const ringdb_merge_operator,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe {
        set(options, err, |o| {
            if operator.is_null() {
                return Err(Fail::invalid("the merge operator is NULL"));
            }
            let by = args::struct_in(operator, ringdb_merge_operator::NONE, "ringdb_merge_operator")?;
            if by.reserved != 0 {
                return Err(Fail::invalid("the reserved field of a ringdb_merge_operator is 0"));
            }
            let name = args::text(by.name, "operator's name")?.to_owned();
            if name.is_empty() || name.len() > 255 {
                return Err(Fail::invalid("a merge operator's name has 1 to 255 bytes"));
            }
            if by.merge.is_none() {
                return Err(Fail::invalid("a merge operator needs a callback that merges"));
            }
            *o = std::mem::take(o).register_merge_operator(Operator { name, by });
            Ok(())
        })
    }
}

/// Gives bytes of the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_merge_result_append(
    result: *mut ringdb_merge_result,
    data: *const c_void,
    len: usize,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { said::append(result.cast(), data, len, err) }
}

/// Says why there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_merge_result_fail(
    result: *mut ringdb_merge_result,
    why: *const c_char,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { said::fail(result.cast(), why, err) }
}
