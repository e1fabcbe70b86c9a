//! Compaction filters of the caller's: callbacks that the threads call that compact.

use std::ffi::{c_char, c_void};

use ringdb::{CompactionFilter, FilterContext, FilterDecision};

use crate::args::{self, ringdb_slice};
use crate::operator::ringdb_drop_callback;
use crate::options::{ringdb_options, set};
use crate::result::{Fail, ringdb_error};
use crate::said::{self, Said};

const KEEP: i32 = 0;
const REMOVE: i32 = 1;
const CHANGE: i32 = 2;

/// Where an entry is met.
#[repr(C)]
pub struct ringdb_filter_context {
    size: u32,
    level: u32,
    last_level: i32,
    reserved: u32,
}

/// Where a filter puts a new value, or why it cannot say.
#[derive(Default)]
#[repr(transparent)]
pub struct ringdb_filter_result(Said);

/// Decides on an entry.
pub type ringdb_filter_callback = Option<
    unsafe extern "C" fn(
        *mut c_void,
        *const ringdb_filter_context,
        ringdb_slice,
        ringdb_slice,
        *mut ringdb_filter_result,
    ) -> i32,
>;

/// A filter.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ringdb_compaction_filter {
    size: u32,
    reserved: u32,
    name: *const c_char,
    user: *mut c_void,
    filter: ringdb_filter_callback,
    drop: ringdb_drop_callback,
}

impl ringdb_compaction_filter {
    const NONE: ringdb_compaction_filter = ringdb_compaction_filter {
        size: 0,
        reserved: 0,
        name: std::ptr::null(),
        user: std::ptr::null_mut(),
        filter: None,
        drop: None,
    };
}

/// The same as the store knows it.
struct Filter {
    name: String,
    by: ringdb_compaction_filter,
}

// SAFETY: the callbacks and their `user` are for any thread, several at a time: the header's contract.
unsafe impl Send for Filter {}
// SAFETY: as above.
unsafe impl Sync for Filter {}

impl Drop for Filter {
    fn drop(&mut self) {
        if let Some(drop) = self.by.drop {
            // SAFETY: the caller's own, and called once: there is one `Filter` of a registration.
            unsafe { drop(self.by.user) };
        }
    }
}

/// What a callback's number and what it has said come to. What contradicts itself must not lose an entry.
fn decision(number: i32, said: Said) -> FilterDecision {
    if let Some(why) = said.failed {
        return FilterDecision::Fail(why);
    }
    match (number, said.made) {
        (KEEP, None) => FilterDecision::Keep,
        (REMOVE, None) => FilterDecision::Remove,
        (CHANGE, Some(value)) => FilterDecision::Change(value),
        (CHANGE, None) => {
            FilterDecision::Fail("its callback has given no value (ringdb_filter_result_append)".into())
        }
        (KEEP | REMOVE, Some(_)) => FilterDecision::Fail(
            "its callback has given a value, but not returned RINGDB_FILTER_CHANGE".into(),
        ),
        (n, _) => FilterDecision::Fail(format!("its callback has returned {n}, which is no decision")),
    }
}

impl CompactionFilter for Filter {
    fn name(&self) -> &str {
        &self.name
    }

    fn filter(&self, context: &FilterContext, key: &[u8], value: &[u8]) -> FilterDecision {
        let Some(filter) = self.by.filter else { return FilterDecision::Keep };
        let context = ringdb_filter_context {
            size: size_of::<ringdb_filter_context>() as u32,
            level: context.level,
            last_level: i32::from(context.last_level),
            reserved: 0,
        };
        let mut result = ringdb_filter_result::default();
        let (key, value) = (ringdb_slice::of(key), ringdb_slice::of(value));
        // SAFETY: the caller's own; what is passed lives as long as the call.
        let number = unsafe { filter(self.by.user, &raw const context, key, value, &raw mut result) };
        decision(number, result.0)
    }
}

/// Registers one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_options_register_compaction_filter(
    options: *mut ringdb_options,
    filter: *const ringdb_compaction_filter,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe {
        set(options, err, |o| {
            if filter.is_null() {
                return Err(Fail::invalid("the compaction filter is NULL"));
            }
            let by = args::struct_in(filter, ringdb_compaction_filter::NONE, "ringdb_compaction_filter")?;
            if by.reserved != 0 {
                return Err(Fail::invalid("the reserved field of a ringdb_compaction_filter is 0"));
            }
            let name = args::text(by.name, "filter's name")?.to_owned();
            if name.is_empty() || name.len() > 255 {
                return Err(Fail::invalid("a compaction filter's name has 1 to 255 bytes"));
            }
            if by.filter.is_none() {
                return Err(Fail::invalid("a compaction filter needs a callback that decides"));
            }
            *o = std::mem::take(o).register_compaction_filter(Filter { name, by });
            Ok(())
        })
    }
}

/// Gives bytes of the new value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_filter_result_append(
    result: *mut ringdb_filter_result,
    data: *const c_void,
    len: usize,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { said::append(result.cast(), data, len, err) }
}

/// Says why there is no decision.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_filter_result_fail(
    result: *mut ringdb_filter_result,
    why: *const c_char,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { said::fail(result.cast(), why, err) }
}
