//! The system calls on an open file, or what answers in their place ([`FileCalls`]): a simulated disk. All that is
//! above (continuation, retries, bounce buffers, memory of failed syncs) is the same code for both.

use std::any::Any;

use super::late;
use super::mapped::{FileKey, Held};
use super::mapping::Mapping;
use super::retry::{Sys, retry_intr};
use crate::map::RawMap;
use crate::{Error, Result};

/// The calls on an open file, as the kernel would answer them: short, with errors, and with no retries.
pub(crate) trait FileCalls: Any + Send + Sync {
    /// Like pread.
    fn read(&self, buf: &mut [u8], offset: u64) -> Sys<usize>;
    /// Like preadv.
    ///
    /// # Safety
    /// Nobody else uses the memory of the vectors during the call.
    unsafe fn read_vectors(&self, iov: &[libc::iovec], offset: u64) -> Sys<usize>;
    /// Like pwritev2.
    fn write(&self, buf: &[u8], offset: u64, flags: i32) -> Sys<usize>;
    /// Like fsync and fdatasync.
    fn sync(&self, data_only: bool) -> Sys<usize>;
    /// Like sync_file_range.
    fn sync_range(&self, offset: u64, len: u64) -> Sys<usize>;
    /// Like fallocate.
    fn allocate(&self, offset: u64, len: u64) -> Sys<usize>;
    /// Like ftruncate.
    fn truncate(&self, len: u64) -> Sys<usize>;
    /// Bytes in it.
    fn len(&self) -> Sys<u64>;
    /// Takes the lock of the file.
    fn lock(&self) -> Sys<()>;
    /// Gives it up.
    fn unlock(&self);
    /// Maps the first `len` bytes.
    fn map(&self, len: u64, held: &mut Option<Held>) -> Sys<Box<dyn RawMap>>;
    /// See [`crate::File::rewrites_in_place`].
    fn rewrites_in_place(&self) -> bool;
    /// Which file it is, for those who map it and those who cut it.
    fn key(&self) -> FileKey;
}

/// Who takes the calls.
#[derive(Clone, Copy)]
pub(crate) enum Calls<'a> {
    /// The kernel, under this descriptor.
    Kernel(i32),
    /// Somebody else.
    Other(&'a dyn FileCalls),
}

fn answer(n: isize) -> Sys<usize> {
    match n {
        0.. => Ok(n as usize),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// fstat.
pub(super) fn stat(fd: i32) -> Sys<libc::stat> {
    // SAFETY: `stat` is plain data; all-zero bytes are a valid value.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills `st`.
    retry_intr(|| answer(unsafe { libc::fstat(fd, &mut st) } as isize))?;
    Ok(st)
}

impl Calls<'_> {
    /// `flags` as of preadv2; a simulated disk knows none.
    pub(super) fn pread(self, buf: &mut [u8], offset: u64, flags: i32) -> Sys<usize> {
        match self {
            Calls::Kernel(fd) if flags == 0 => {
                // SAFETY: the kernel writes into `buf`, which is borrowed mutably for the call.
                let n = unsafe { libc::pread(fd, buf.as_mut_ptr().cast(), buf.len(), offset as libc::off_t) };
                answer(n)
            }
            Calls::Kernel(fd) => {
                let iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
                // SAFETY: as above, through one vector that lives for the call.
                answer(unsafe { late::preadv2(fd, &iov, 1, offset as libc::off_t, flags) })
            }
            Calls::Other(h) => h.read(buf, offset),
        }
    }

    /// `flags` as of preadv2; a simulated disk knows none.
    ///
    /// # Safety
    /// Nobody else uses the memory of the vectors during the call.
    pub(super) unsafe fn preadv(self, iov: &[libc::iovec], offset: u64, flags: i32) -> Sys<usize> {
        let (count, at) = (iov.len() as i32, offset as libc::off_t);
        match self {
            Calls::Kernel(fd) if flags == 0 => {
                // SAFETY: the caller's promise.
                let n = unsafe { libc::preadv(fd, iov.as_ptr(), count, at) };
                answer(n)
            }
            // SAFETY: as above.
            Calls::Kernel(fd) => answer(unsafe { late::preadv2(fd, iov.as_ptr(), count, at, flags) }),
            // SAFETY: the caller's promise.
            Calls::Other(h) => unsafe { h.read_vectors(iov, offset) },
        }
    }

    /// `flags` as of pwritev2.
    pub(super) fn pwrite(self, buf: &[u8], offset: u64, flags: i32) -> Sys<usize> {
        let at = offset as libc::off_t;
        match self {
            Calls::Kernel(fd) if flags == 0 => {
                // SAFETY: the kernel only reads `buf`, which is borrowed for the call.
                let n = unsafe { libc::pwrite(fd, buf.as_ptr().cast(), buf.len(), at) };
                answer(n)
            }
            Calls::Kernel(fd) => {
                let iov = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
                // SAFETY: as above, through one vector that lives for the call.
                answer(unsafe { late::pwritev2(fd, &iov, 1, at, flags) })
            }
            Calls::Other(h) => h.write(buf, offset, flags),
        }
    }

    /// `flags` as of pwritev2.
    ///
    /// # Safety
    /// Nobody writes to the memory of the vectors during the call.
    pub(super) unsafe fn pwritev(self, iov: &[libc::iovec], offset: u64, flags: i32) -> Sys<usize> {
        let (count, at) = (iov.len() as i32, offset as libc::off_t);
        match self {
            Calls::Kernel(fd) if flags == 0 => {
                // SAFETY: the caller's promise.
                let n = unsafe { libc::pwritev(fd, iov.as_ptr(), count, at) };
                answer(n)
            }
            Calls::Kernel(fd) => {
                // SAFETY: the caller's promise.
                let n = unsafe { late::pwritev2(fd, iov.as_ptr(), count, at, flags) };
                answer(n)
            }
            // SAFETY: the caller's promise.
            Calls::Other(h) => h.write(&unsafe { gather(iov) }, offset, flags),
        }
    }

    pub(super) fn fsync(self, data_only: bool) -> Sys<usize> {
        match self {
            Calls::Kernel(fd) => {
                // SAFETY: plain system calls on an open descriptor.
                let n = unsafe { if data_only { libc::fdatasync(fd) } else { libc::fsync(fd) } };
                answer(n as isize)
            }
            Calls::Other(h) => h.sync(data_only),
        }
    }

    pub(super) fn sync_file_range(self, offset: u64, len: u64, flags: u32) -> Sys<usize> {
        match self {
            Calls::Kernel(fd) => {
                // SAFETY: a plain system call on an open descriptor.
                let n = unsafe { libc::sync_file_range(fd, offset as i64, len as i64, flags) };
                answer(n as isize)
            }
            Calls::Other(h) => h.sync_range(offset, len),
        }
    }

    pub(super) fn fallocate(self, offset: u64, len: u64) -> Sys<usize> {
        match self {
            Calls::Kernel(fd) => {
                // SAFETY: a plain system call on an open descriptor.
                let n = unsafe { libc::fallocate(fd, 0, offset as libc::off_t, len as libc::off_t) };
                answer(n as isize)
            }
            Calls::Other(h) => h.allocate(offset, len),
        }
    }

    pub(super) fn ftruncate(self, len: libc::off_t) -> Sys<usize> {
        match self {
            // SAFETY: a plain system call on an open descriptor.
            Calls::Kernel(fd) => answer(unsafe { libc::ftruncate(fd, len) } as isize),
            Calls::Other(h) => h.truncate(len as u64),
        }
    }

    /// posix_fadvise, whose answer is the errno.
    pub(super) fn fadvise(self, offset: libc::off_t, len: libc::off_t, advice: i32) -> i32 {
        match self {
            // SAFETY: a plain system call on an open descriptor.
            Calls::Kernel(fd) => unsafe { libc::posix_fadvise(fd, offset, len, advice) },
            // Everything is in memory.
            Calls::Other(_) => 0,
        }
    }

    pub(super) fn len(self) -> Sys<u64> {
        match self {
            Calls::Kernel(fd) => stat(fd).map(|st| st.st_size as u64),
            Calls::Other(h) => retry_intr(|| h.len()),
        }
    }

    /// Takes a lock of this open file, against other processes and other opens of this process.
    pub(super) fn lock(self) -> Sys<()> {
        let fd = match self {
            Calls::Kernel(fd) => fd,
            Calls::Other(h) => return retry_intr(|| h.lock()),
        };
        // SAFETY: `flock` is plain data; all-zero bytes are a valid value.
        let mut how: libc::flock = unsafe { std::mem::zeroed() };
        how.l_type = libc::F_WRLCK as libc::c_short;
        how.l_whence = libc::SEEK_SET as libc::c_short;
        // SAFETY: a plain system call that reads `how`.
        let ofd = retry_intr(|| answer(unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &how) } as isize));
        match ofd {
            // No locks of open files here: the older kind does the same for the whole file.
            Err(libc::EINVAL) => {
                // SAFETY: a plain system call.
                retry_intr(|| answer(unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) } as isize))
            }
            other => other,
        }
        .map(drop)
    }

    pub(super) fn unlock(self) {
        let fd = match self {
            Calls::Kernel(fd) => fd,
            Calls::Other(h) => return h.unlock(),
        };
        // SAFETY: as above.
        let mut how: libc::flock = unsafe { std::mem::zeroed() };
        how.l_type = libc::F_UNLCK as libc::c_short;
        how.l_whence = libc::SEEK_SET as libc::c_short;
        // SAFETY: plain system calls; a failure leaves the lock to the closing of the file.
        unsafe {
            libc::fcntl(fd, libc::F_OFD_SETLK, &how);
            libc::flock(fd, libc::LOCK_UN);
        }
    }

    /// Which file it is, for those who map it and those who cut it.
    pub(super) fn key(self) -> Sys<FileKey> {
        match self {
            Calls::Kernel(fd) => stat(fd).map(|st| FileKey::Kernel(st.st_dev, st.st_ino)),
            Calls::Other(h) => Ok(h.key()),
        }
    }

    pub(super) fn map(self, len: u64, held: Held) -> Result<Box<dyn RawMap>> {
        match self {
            Calls::Kernel(fd) => Ok(Box::new(Mapping::new(fd, len, true, held)?)),
            Calls::Other(h) => {
                let mut held = Some(held);
                retry_intr(|| h.map(len, &mut held)).map_err(|e| Error::from_errno("mmap", e))
            }
        }
    }
}

/// The bytes of vectors, one after the other.
///
/// # Safety
/// Nobody writes to the memory of the vectors during the call.
pub(crate) unsafe fn gather(iov: &[libc::iovec]) -> Vec<u8> {
    let mut all = Vec::with_capacity(iov.iter().map(|v| v.iov_len).sum());
    for v in iov.iter().filter(|v| v.iov_len > 0) {
        // SAFETY: the caller's promise.
        all.extend_from_slice(unsafe { std::slice::from_raw_parts(v.iov_base.cast(), v.iov_len) });
    }
    all
}
