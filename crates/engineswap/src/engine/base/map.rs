//! Shared writable mappings.

use std::ptr::NonNull;

use crate::engine::RawMap;
use crate::{Error, ErrorKind, Result};

/// The first `len` bytes of a file, mapped shared and writable.
pub(crate) struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is owned memory that any thread may use; access goes through `&mut self`.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives no access at all.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the open file `fd`, which must be at least `len` bytes long; with `populate`, its pages are there at once.
    pub(crate) fn new(fd: i32, len: u64, populate: bool) -> Result<Mapping> {
        let size = usize::try_from(len).ok().filter(|n| *n > 0);
        let Some(size) = size else {
            return Err(Error::new(ErrorKind::InvalidInput, "mmap", format!("a length of {len}")));
        };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let p = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if p == libc::MAP_FAILED {
            return Err(Error::last_os("mmap"));
        }
        // Page faults now rather than during an append. Older kernels refuse it, and nothing depends on it.
        if populate {
            // SAFETY: the range was mapped just above.
            unsafe { libc::madvise(p, size, libc::MADV_POPULATE_WRITE) };
        }
        match NonNull::new(p.cast()) {
            Some(ptr) => Ok(Mapping { ptr, len: size }),
            None => Err(Error::new(ErrorKind::Io, "mmap", "mapped at address zero")),
        }
    }
}

impl RawMap for Mapping {
    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `len` mapped bytes that live as long as self, borrowed mutably; every byte pattern is a
        // valid u8. (The file's owner must not cut it while it is mapped: an access would raise SIGBUS, which
        // ends the process but breaks no memory.)
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, unmapped once; no borrow outlives self.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}
