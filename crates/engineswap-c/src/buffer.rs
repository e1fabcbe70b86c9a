//! Aligned memory for callers.

use std::ffi::c_void;

use engineswap::mem::AlignedBuf;

/// Zeroed, aligned memory.
#[unsafe(no_mangle)]
pub extern "C" fn engineswap_buffer_alloc(len: usize) -> *mut c_void {
    let Some(len) =
        len.checked_next_multiple_of(AlignedBuf::ALIGN).filter(|n| (1..=isize::MAX as usize).contains(n))
    else {
        return std::ptr::null_mut();
    };
    let mut out = std::ptr::null_mut();
    // SAFETY: `out` is a place for a pointer, the alignment a power of two.
    if unsafe { libc::posix_memalign(&mut out, AlignedBuf::ALIGN, len) } != 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: `len` bytes that were just allocated.
    unsafe { libc::memset(out, 0, len) }
}

/// Frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_buffer_free(buffer: *mut c_void) {
    // SAFETY: the caller passes NULL or what `engineswap_buffer_alloc` gave, once.
    unsafe { libc::free(buffer) }
}
