//! An anonymous mapping, zeroed, on huge pages where the kernel gives them.

use std::ptr::NonNull;

/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;

/// Zeroed memory that is reserved at once and backed by the kernel when it is first touched.
///
/// The address is aligned to 4096 bytes, to 2 MiB if there are at least as many. Access is by raw pointer: users
/// say in their own SAFETY comments why nobody else writes where they read.
pub struct Pages {
    base: NonNull<u8>,
    len: usize,
    /// What was really mapped: `base` lies in it.
    map: NonNull<u8>,
    map_len: usize,
}

// SAFETY: `Pages` owns its memory and hands out only its address; dereferencing is the user's affair.
unsafe impl Send for Pages {}
// SAFETY: as above; no method changes the memory's contents but `discard`, which is unsafe.
unsafe impl Sync for Pages {}

impl Pages {
    /// Reserves `len` bytes (at least one page). Aborts like a failed allocation if the kernel refuses.
    pub fn reserve(len: usize) -> Pages {
        // Not the plain one, which wraps around to 0 in a release build.
        let Some(len) = len.max(1).checked_next_multiple_of(4096) else {
            panic!("a reservation of {len} bytes")
        };
        let slack = if len >= HUGE { HUGE } else { 0 };
        let Some(map_len) = len.checked_add(slack).filter(|&n| n <= isize::MAX as usize) else {
            panic!("a reservation of {len} bytes");
        };
        let map = map(map_len);
        let skip = if slack == 0 { 0 } else { map.as_ptr().align_offset(HUGE).min(slack) };
        // SAFETY: skip <= slack, so the address lies in the mapping.
        let base = unsafe { map.add(skip) };
        #[cfg(not(miri))]
        if slack != 0 {
            // SAFETY: advice on our own mapping that does not change its contents; failure is harmless.
            unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        }
        Pages { base, len, map, map_len }
    }

    /// Memory on huge pages of the system's pool, all of them reserved at once; `None` if it has not enough.
    pub fn from_pool(len: usize) -> Option<Pages> {
        let len = len.max(1).checked_next_multiple_of(HUGE)?;
        #[cfg(not(miri))]
        {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing of ours.
            let p = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
            let base = NonNull::new(p.cast::<u8>()).filter(|_| p != libc::MAP_FAILED)?;
            Some(Pages { base, len, map: base, map_len: len })
        }
        #[cfg(miri)]
        {
            let _ = len;
            None
        }
    }

    /// Address of the first byte. All `len` bytes are initialised (zero until written).
    #[inline(always)]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Has the kernel never again make huge pages of a range: it would fill what was given back, as long as one small
    /// page of a huge one is in use.
    pub fn forbid_huge(&self, offset: usize, len: usize) {
        let len = len.min(self.len.saturating_sub(offset));
        #[cfg(not(miri))]
        if len > 0 {
            // SAFETY: advice on a range of our own mapping that does not change its contents; failure is harmless.
            unsafe {
                libc::madvise(self.base.as_ptr().add(offset).cast(), len, libc::MADV_NOHUGEPAGE);
            }
        }
        #[cfg(miri)]
        let _ = (offset, len);
    }

    /// Gives the memory behind `offset..offset + len` back to the kernel as far as whole pages go; it may read as
    /// zero afterwards.
    ///
    /// # Safety
    /// The range is within the reservation, and no reference into it exists.
    pub unsafe fn discard(&self, offset: usize, len: usize) {
        debug_assert!(offset + len <= self.len);
        #[cfg(not(miri))]
        {
            let start = offset.next_multiple_of(4096);
            let end = (offset + len) / 4096 * 4096;
            if start < end {
                // SAFETY: the caller's promise; anonymous private pages read as zero afterwards.
                unsafe {
                    libc::madvise(self.base.as_ptr().add(start).cast(), end - start, libc::MADV_DONTNEED);
                }
            }
        }
        #[cfg(miri)]
        let _ = (offset, len);
    }
}

#[cfg(not(miri))]
fn map(len: usize) -> NonNull<u8> {
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing of ours.
    let p = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if p == libc::MAP_FAILED {
        fail(len);
    }
    NonNull::new(p.cast()).unwrap_or_else(|| fail(len))
}

#[cfg(miri)]
fn map(len: usize) -> NonNull<u8> {
    // SAFETY: `len` is above zero.
    let p = unsafe { std::alloc::alloc_zeroed(layout(len)) };
    NonNull::new(p).unwrap_or_else(|| fail(len))
}

fn layout(len: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(len, 4096).unwrap_or_else(|_| panic!("a reservation of {len} bytes"))
}

fn fail(len: usize) -> ! {
    std::alloc::handle_alloc_error(layout(len))
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pages({} bytes)", self.len)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        #[cfg(not(miri))]
        // SAFETY: mapped in `map` with this length; the owner lets go of every reference before it drops us.
        unsafe {
            libc::munmap(self.map.as_ptr().cast(), self.map_len);
        }
        #[cfg(miri)]
        // SAFETY: allocated in `map` with this layout; the owner lets go of every reference before.
        unsafe {
            std::alloc::dealloc(self.map.as_ptr(), layout(self.map_len));
        }
    }
}
