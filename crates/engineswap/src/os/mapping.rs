//! Shared writable mappings.

use std::ptr::NonNull;

use super::mapped::Held;
use crate::map::{MapRange, RawMap};
use crate::{Error, ErrorKind, Result};

/// The first `len` bytes of a file, mapped shared and writable. No reference to them is ever made: whoever else has the
/// file (the kernel, another handle, another process) may change them at any time.
pub(crate) struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
    /// Given up before the mapping: nobody stores to it any more, and once it is gone, the number of a file whose name
    /// was removed may be another file's.
    held: Option<Held>,
}

// SAFETY: the mapping is owned memory that any thread may use; stores go through `&mut self`.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` only copies out of it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the open file `fd`, which must be at least `len` bytes long; with `populate`, its pages are there at once.
    pub(crate) fn new(fd: i32, len: u64, populate: bool, held: Held) -> Result<Mapping> {
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
            Some(ptr) => Ok(Mapping { ptr, len: size, held: Some(held) }),
            None => Err(Error::new(ErrorKind::Io, "mmap", "mapped at address zero")),
        }
    }
}

impl RawMap for Mapping {
    fn range(&mut self, range: std::ops::Range<usize>) -> MapRange<'_> {
        let Some(len) = range.end.checked_sub(range.start).filter(|_| range.end <= self.len) else {
            panic!("{range:?} of a mapping of {} bytes", self.len)
        };
        // SAFETY: within the mapping, as just checked; it lives as long as self, which is borrowed mutably.
        unsafe { MapRange::new(self.ptr.add(range.start), len) }
    }

    fn read(&self, offset: usize, buf: &mut [u8]) {
        let fits = offset.checked_add(buf.len()).is_some_and(|end| end <= self.len);
        assert!(fits, "{} bytes at {offset} of a mapping of {} bytes", buf.len(), self.len);
        // SAFETY: within the mapping, as just checked, and `buf` is memory of its own. Nobody stores to these
        // addresses meanwhile, which takes `&mut self`; what others do to the file shows as some bytes or others.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr.add(offset).as_ptr(), buf.as_mut_ptr(), buf.len()) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.held = None;
        // SAFETY: mapped in `new` with this length, unmapped once; no borrow outlives self.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use crate::{Io, OpenHow};

    #[test]
    fn a_mapping_that_goes_is_not_taken_for_one_of_the_next_file() {
        let dir = tempfile::tempdir().unwrap();
        let (io, done) = (Io::from_uri("posix").unwrap(), AtomicBool::new(false));
        std::thread::scope(|s| {
            // Files whose last hold on their number is the mapping.
            s.spawn(|| {
                for i in 0..20_000 {
                    let path = dir.path().join(format!("m{i}"));
                    let file = io.open(&path, &OpenHow::create_new()).unwrap();
                    file.set_len(8192).unwrap();
                    let map = file.map(8192).unwrap();
                    drop(file);
                    io.remove_file(&path).unwrap();
                    drop(map);
                }
                done.store(true, Relaxed);
            });
            // Files that take over their numbers.
            s.spawn(|| {
                while !done.load(Relaxed) {
                    let path = dir.path().join("n");
                    let file = io.open(&path, &OpenHow::create_new()).unwrap();
                    file.set_len(4096).unwrap();
                    drop(file);
                    io.remove_file(&path).unwrap();
                }
            });
        });
    }
}
