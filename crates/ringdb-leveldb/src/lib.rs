//! LevelDB's C interface on ringdb. What each function does, and where that differs from LevelDB, is said once, in
//! `include/leveldb/c.h`; docs/leveldb.md has the differences together.
//!
//! Every function runs inside `report::guard`: a panic becomes an error, and so no more than a message or nothing.
//! Handles are boxes; what a store needs of a comparator or a filter policy it shares with their handles.

#![allow(non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // The header is the contract.
#![allow(clippy::too_many_arguments)] // C passes lengths beside pointers.

mod args;
mod batch;
mod calls;
mod comparator;
mod filter;
mod iter;
mod manage;
mod objects;
mod options;
mod property;
mod report;
mod store;

pub use batch::*;
pub use calls::*;
pub use comparator::{leveldb_comparator_create, leveldb_comparator_destroy, leveldb_comparator_t};
pub use filter::{
    leveldb_filterpolicy_create, leveldb_filterpolicy_create_bloom, leveldb_filterpolicy_destroy,
    leveldb_filterpolicy_t,
};
pub use iter::*;
pub use manage::*;
pub use objects::*;
pub use options::*;
pub use property::*;
pub use store::*;

/// The number in the shared library's name.
pub const LEVELDB_ABI_VERSION: u32 = 1;

/// The LevelDB whose interface this is.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_major_version() -> i32 {
    1
}

/// See [`leveldb_major_version`].
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_minor_version() -> i32 {
    23
}

/// Gives back what a function of this interface has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_free(ptr: *mut std::ffi::c_void) {
    // SAFETY: the header's contract: NULL, or of malloc.
    unsafe { libc::free(ptr) }
}
