//! The C interface of engineswap. What each function does, and what its caller owes it, is said once, in
//! `include/engineswap.h`.
//!
//! Every function that can fail runs inside `c_abi::guard`: a panic becomes a code, an error is copied into the
//! caller's struct. Handles are boxes; a NULL one is an error. The structs here mirror those of the header; the tests
//! compare their sizes and the constants with what a C compiler makes of it.

#![allow(non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // The header is the contract.

mod args;
mod buffer;
mod engine;
mod file;
mod queue;
mod register;
mod result;
mod stats;

pub use buffer::{engineswap_buffer_alloc, engineswap_buffer_free};
pub use engine::*;
pub use file::*;
pub use queue::*;
pub use register::*;
pub use result::{engineswap_code_name, engineswap_error};
pub use stats::*;

/// The version of the interface.
pub const ENGINESWAP_ABI_VERSION: u32 = 1;

/// The ABI version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn engineswap_abi_version() -> u32 {
    ENGINESWAP_ABI_VERSION
}

/// The version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn engineswap_version() -> *const std::ffi::c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    /// The same numbers as in `tests/c/contract.c`.
    #[test]
    fn structs_are_as_large_as_in_c() {
        assert_eq!(size_of::<crate::engineswap_error>(), 1024);
        assert_eq!(size_of::<crate::engineswap_op>(), 56);
        assert_eq!(size_of::<crate::engineswap_completion>(), 24);
        assert_eq!(size_of::<crate::engineswap_vector>(), 16);
        assert_eq!(size_of::<crate::engineswap_op_stats>(), 64);
        assert_eq!(size_of::<crate::engineswap_stats>(), 400);
    }
}
