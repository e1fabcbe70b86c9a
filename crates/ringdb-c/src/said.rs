//! What a callback of the caller's has said: bytes, or why there are none.

use std::ffi::{c_char, c_void};

use crate::args;
use crate::result::{Fail, OK, guard, ringdb_error};

/// See the module.
#[derive(Default)]
pub(crate) struct Said {
    /// `None`: it has given nothing.
    pub made: Option<Vec<u8>>,
    pub failed: Option<String>,
}

/// Adds bytes to what is made.
///
/// # Safety
/// `said` is NULL or what the callback that is running was given, which nobody else has; `data` as of `args::bytes`,
/// `err` as of `guard`.
pub(crate) unsafe fn append(said: *mut Said, data: *const c_void, len: usize, err: *mut ringdb_error) -> i32 {
    guard(err, || {
        // SAFETY: the caller's promise.
        let bytes = unsafe { args::bytes(data, len, "result")? };
        // SAFETY: the caller's promise.
        let said = unsafe { said.as_mut() }.ok_or_else(|| Fail::invalid("the callback's result is NULL"))?;
        let made = said.made.get_or_insert_default();
        if bytes.len() > ringdb::MAX_VALUE_BYTES - made.len().min(ringdb::MAX_VALUE_BYTES) {
            let why = format!("a value has at most {} bytes (1 GiB)", ringdb::MAX_VALUE_BYTES);
            // A caller who does not look must not have half a value stored.
            said.failed = Some(why.clone());
            return Err(Fail::invalid(why));
        }
        made.extend_from_slice(bytes);
        Ok(OK)
    })
}

/// There is nothing, for this reason.
///
/// # Safety
/// As of `append`; `why` as of `args::text`.
pub(crate) unsafe fn fail(said: *mut Said, why: *const c_char, err: *mut ringdb_error) -> i32 {
    guard(err, || {
        // SAFETY: the caller's promise.
        let said = unsafe { said.as_mut() }.ok_or_else(|| Fail::invalid("the callback's result is NULL"))?;
        // SAFETY: as above.
        let why = unsafe { args::text(why, "reason") };
        // It has failed, however it says so: what it has given must not be stored, nor what it refuses.
        said.failed = Some(why.as_ref().map_or_else(|wrong| wrong.message.clone(), |why| (*why).to_owned()));
        why.map(|_| OK)
    })
}
