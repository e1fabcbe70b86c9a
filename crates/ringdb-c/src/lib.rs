//! The C interface of ringdb. What each function does, and what its caller owes it, is said once, in
//! `include/ringdb.h`.
//!
//! Every function that can fail runs inside `result::guard`: a panic becomes a code, an error is copied into the
//! caller's struct. Handles are boxes; a NULL one is an error. Asynchronous requests are the store's futures (`task`),
//! polled by whoever wakes them; their callbacks are called by `callback::deliver`.

#![allow(non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // The header is the contract.
#![allow(clippy::too_many_arguments)] // C passes lengths beside pointers, and places for results.

mod answer;
mod args;
mod asynchronous;
mod callback;
mod filter;
mod ingest;
mod iter;
mod merge;
mod operator;
mod options;
mod read;
mod reads;
mod result;
mod said;
mod store;
mod tables;
mod task;
mod transaction;
mod upkeep;
mod value;
mod write;
mod writes;

pub use answer::ringdb_answer;
pub use args::{ringdb_read_options, ringdb_slice, ringdb_write_options};
pub use asynchronous::*;
pub use filter::*;
pub use ingest::*;
pub use iter::{
    ringdb_iter, ringdb_iter_free, ringdb_iter_next, ringdb_iter_next_back, ringdb_prefix, ringdb_range,
};
pub use merge::*;
pub use operator::*;
pub use options::*;
pub use read::*;
pub use reads::*;
pub use result::{ringdb_code_kind, ringdb_code_name, ringdb_error};
pub use store::*;
pub use tables::*;
pub use transaction::*;
pub use upkeep::*;
pub use value::*;
pub use write::*;
pub use writes::*;

/// The version of the interface.
pub const RINGDB_ABI_VERSION: u32 = 1;

/// The ABI version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn ringdb_abi_version() -> u32 {
    RINGDB_ABI_VERSION
}

/// The version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn ringdb_version() -> *const std::ffi::c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    /// The same numbers as in `abi.txt`, which a C compiler makes of the header.
    #[test]
    fn structs_are_as_large_as_in_c() {
        assert_eq!(size_of::<crate::ringdb_error>(), 1024);
        assert_eq!(size_of::<crate::ringdb_slice>(), 16);
        assert_eq!(size_of::<crate::ringdb_read_options>(), 16);
        assert_eq!(size_of::<crate::ringdb_write_options>(), 16);
        assert_eq!(size_of::<crate::ringdb_answer>(), 24);
        assert_eq!(size_of::<crate::ringdb_merge_operator>(), 56);
        assert_eq!(size_of::<crate::ringdb_filter_context>(), 16);
        assert_eq!(size_of::<crate::ringdb_compaction_filter>(), 40);
    }
}
