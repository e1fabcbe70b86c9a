//! Answers to requests that an event loop takes.

use crate::args;
use crate::result::{ABSENT, FOUND, Fail, guard, report, ringdb_error};
use crate::value::ringdb_value;

/// An answer.
#[repr(C)]
pub struct ringdb_answer {
    /// The request's.
    pub tag: u64,
    /// Of a read that found one.
    pub value: *mut ringdb_value,
    /// How it ended.
    pub code: i32,
    pub(crate) reserved: u32,
}

impl ringdb_answer {
    pub(crate) fn new(tag: u64, code: i32, value: *mut ringdb_value) -> ringdb_answer {
        ringdb_answer { tag, value, code, reserved: 0 }
    }
}

/// Hands an answer, and what its failure says, to the caller.
///
/// # Safety
/// The header's contract of `out` and `err`.
pub(crate) unsafe fn hand_out(
    out: *mut ringdb_answer,
    err: *mut ringdb_error,
    take: impl FnOnce() -> Result<Option<(ringdb_answer, Option<Fail>)>, Fail>,
) -> i32 {
    let mut failed = None;
    let taken = guard(err, || {
        let out = args::out(out)?;
        let Some((answer, fail)) = take()? else { return Ok(ABSENT) };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(answer) };
        failed = fail;
        Ok(FOUND)
    });
    if let Some(f) = failed {
        // SAFETY: the caller's promise.
        unsafe { report(err, f.code, f.errno, &f.message) };
    }
    taken
}
