//! Prefetch hints behind safe functions.

/// Hints that `bytes[offset]` is about to be read; nothing if it is out of bounds.
#[inline(always)]
pub fn prefetch(bytes: &[u8], offset: usize) {
    if let Some(b) = bytes.get(offset) {
        hint(b);
    }
}

/// Hints that the first cache line of `t` is about to be read.
#[inline(always)]
pub fn prefetch_ref<T: ?Sized>(t: &T) {
    hint(std::ptr::from_ref(t).cast::<u8>());
}

/// Hints that the cache line at `p` is about to be read. `p` may be any address: it is not dereferenced.
#[inline(always)]
pub(super) fn hint(p: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE is part of every x86-64; a prefetch of any address, mapped or not, has no visible effect.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: PRFM of any address, mapped or not, has no visible effect.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) p, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = p;
}
