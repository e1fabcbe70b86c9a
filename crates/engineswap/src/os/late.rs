//! Calls that Linux had long before C libraries did (glibc 2.26 to 2.28, musl 1.2.4 and 1.2.5), made without them: what
//! refers to a function that the C library has not is not loaded at all.

use std::ffi::CStr;
use std::os::fd::RawFd;

use libc::{c_int, c_long, iovec, off_t};

/// # Safety
/// The vectors and their memory are valid, and nobody else uses the memory during the call.
pub(super) unsafe fn preadv2(
    fd: RawFd,
    iov: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { transfer(libc::SYS_preadv2, fd, iov, count, offset, flags) }
}

/// # Safety
/// The vectors and their memory are valid, and nobody writes to the memory during the call.
pub(super) unsafe fn pwritev2(
    fd: RawFd,
    iov: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { transfer(libc::SYS_pwritev2, fd, iov, count, offset, flags) }
}

unsafe fn transfer(
    call: c_long,
    fd: RawFd,
    iov: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> isize {
    let (fd, count, flags) = (c_long::from(fd), c_long::from(count), c_long::from(flags));
    // On 64 bits the first of the offset's two words has all of it.
    let second: c_long = 0;
    // SAFETY: the caller's promise; each argument is a whole word, as the call reads it.
    unsafe { libc::syscall(call, fd, iov, count, offset, second, flags) as isize }
}

/// What statx says of a descriptor, as far as `mask` asks; none if it fails.
pub(super) fn statx(fd: RawFd, mask: u32) -> Option<libc::statx> {
    // SAFETY: `statx` is plain data; all-zero bytes are a valid value.
    let mut st: libc::statx = unsafe { std::mem::zeroed() };
    let (fd, flags, mask) = (c_long::from(fd), c_long::from(libc::AT_EMPTY_PATH), c_long::from(mask));
    // SAFETY: an empty path with AT_EMPTY_PATH means the descriptor; the kernel fills `st`.
    let r = unsafe { libc::syscall(libc::SYS_statx, fd, c"".as_ptr(), flags, mask, &raw mut st) };
    (r == 0).then_some(st)
}

/// A file in memory, closed on exec; its descriptor, or -1 with the error in errno.
pub(crate) fn memfd(name: &CStr) -> RawFd {
    let flags = c_long::from(libc::MFD_CLOEXEC);
    // SAFETY: the name is a zero-terminated string.
    unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) as RawFd }
}
