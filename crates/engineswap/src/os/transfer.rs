//! Loops around pread and pwrite: short transfers are continued, EINTR and EAGAIN retried. Errors are errnos;
//! the callers add names and paths.

use std::cell::RefCell;

use super::calls::Calls;
use super::retry::{Sys, retry};
use crate::info::Alignment;
use crate::mem::AlignedBuf;

/// Bytes of the bounce buffer that a thread keeps.
const BOUNCE: usize = 1 << 20;

/// Whether a transfer needs no bounce buffer.
pub(crate) fn is_aligned(a: Alignment, ptr: *const u8, offset: u64, len: u64) -> bool {
    let (memory, unit) = (a.memory.max(1) as u64, a.offset.max(1) as u64);
    (ptr as u64).is_multiple_of(memory) && offset.is_multiple_of(unit) && len.is_multiple_of(unit)
}

/// Reads until `buf` is full or the file ends. `a` is the file's alignment; a direct read that stops between
/// two units has met the end. `flags` as of preadv2.
pub(super) fn read_full(fd: Calls<'_>, buf: &mut [u8], offset: u64, a: Alignment, flags: i32) -> Sys<usize> {
    let mut n = 0;
    while n < buf.len() {
        let rest = &mut buf[n..];
        let k = retry(|| fd.pread(rest, offset + n as u64, flags))?;
        n += k;
        if k == 0 || (a.offset > 1 && !n.is_multiple_of(a.offset as usize)) {
            break;
        }
    }
    Ok(n)
}

/// Fills the buffers one after the other, with vectored reads; returns the bytes read.
pub(super) fn read_full_vectored(
    fd: Calls<'_>,
    iov: &mut [libc::iovec],
    offset: u64,
    a: Alignment,
    flags: i32,
) -> Sys<usize> {
    let (mut n, mut first) = (0usize, 0usize);
    while first < iov.len() {
        let count = (iov.len() - first).min(libc::UIO_MAXIOV as usize);
        let rest = &iov[first..first + count];
        // SAFETY: the caller made the vectors from buffers that it holds mutably for this call.
        let k = retry(|| unsafe { fd.preadv(rest, offset + n as u64, flags) })?;
        n += k;
        if k == 0 || (a.offset > 1 && !n.is_multiple_of(a.offset as usize)) {
            break;
        }
        first = skip(iov, first, k);
    }
    Ok(n)
}

/// Takes `k` bytes off the vectors from `first` on; returns the first that is not used up.
fn skip(iov: &mut [libc::iovec], mut first: usize, mut k: usize) -> usize {
    while first < iov.len() && k >= iov[first].iov_len {
        k -= iov[first].iov_len;
        first += 1;
    }
    if k > 0 {
        // `k` is less than the vector's length, so the pointer stays inside of its buffer.
        iov[first].iov_base = iov[first].iov_base.cast::<u8>().wrapping_add(k).cast();
        iov[first].iov_len -= k;
    }
    first
}

/// Writes all bytes of the vectors; `flags` as of pwritev2.
pub(super) fn write_full_vectored(
    fd: Calls<'_>,
    iov: &mut [libc::iovec],
    offset: u64,
    flags: i32,
) -> Sys<()> {
    let (mut n, mut first) = (0usize, 0usize);
    while first < iov.len() {
        let count = (iov.len() - first).min(libc::UIO_MAXIOV as usize);
        let rest = &iov[first..first + count];
        // SAFETY: the caller made the vectors from buffers that it holds for this call.
        let k = retry(|| unsafe { fd.pwritev(rest, offset + n as u64, flags) })?;
        if k == 0 {
            return Err(libc::EIO);
        }
        n += k;
        if crate::mutation::short_writes_pass() {
            break;
        }
        first = skip(iov, first, k);
    }
    Ok(())
}

/// Writes all of `buf`; `flags` as of pwritev2 (0: pwrite).
pub(super) fn write_full(fd: Calls<'_>, buf: &[u8], offset: u64, flags: i32) -> Sys<()> {
    let mut n = 0;
    while n < buf.len() {
        let rest = &buf[n..];
        let k = retry(|| fd.pwrite(rest, offset + n as u64, flags))?;
        if k == 0 {
            return Err(libc::EIO);
        }
        n += k;
    }
    Ok(())
}

/// Calls `f` with the thread's bounce buffer.
fn with_bounce<T>(f: impl FnOnce(&mut AlignedBuf) -> T) -> T {
    thread_local! {
        static BUF: RefCell<Option<AlignedBuf>> = const { RefCell::new(None) };
    }
    let kept = BUF.try_with(|b| b.borrow_mut().take()).ok().flatten();
    let mut buf = kept.unwrap_or_else(|| AlignedBuf::zeroed(BOUNCE));
    let out = f(&mut buf);
    // While the thread ends there is no place to keep it: it is freed.
    let _ = BUF.try_with(|b| *b.borrow_mut() = Some(buf));
    out
}

/// A direct read of any range of `len` bytes; `give` gets them in parts, each with its distance from `offset`.
fn read_parts(
    fd: Calls<'_>,
    len: usize,
    offset: u64,
    a: Alignment,
    mut give: impl FnMut(usize, &[u8]),
) -> Sys<usize> {
    let unit = a.offset.max(1) as u64;
    with_bounce(|bounce| {
        let mut n = 0;
        while n < len {
            let at = offset + n as u64;
            let skip = at % unit;
            let want = ((len - n) as u64 + skip).next_multiple_of(unit).min(bounce.len() as u64);
            let got = read_full(fd, &mut bounce[..want as usize], at - skip, a, 0)? as u64;
            let fresh = (got.saturating_sub(skip) as usize).min(len - n);
            give(n, &bounce[skip as usize..][..fresh]);
            n += fresh;
            if got < want {
                break;
            }
        }
        Ok(n)
    })
}

/// A direct read of any range into any memory.
pub(super) fn read_bounced(fd: Calls<'_>, buf: &mut [u8], offset: u64, a: Alignment) -> Sys<usize> {
    read_parts(fd, buf.len(), offset, a, |n, part| buf[n..][..part.len()].copy_from_slice(part))
}

/// A direct read of any range into vectors of any memory, one after the other.
///
/// # Safety
/// Nobody else uses the memory of the vectors during the call.
pub(super) unsafe fn read_scattered(
    fd: Calls<'_>,
    iov: &[libc::iovec],
    offset: u64,
    a: Alignment,
) -> Sys<usize> {
    let len: usize = iov.iter().map(|v| v.iov_len).sum();
    let mut to = VectorPos::default();
    read_parts(fd, len, offset, a, |_, part| {
        to.walk(iov, part.len(), |done, place, k| {
            // SAFETY: `k` bytes inside of the bounce buffer and inside of a vector, which the caller promises.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr().wrapping_add(done), place, k) };
        });
    })
}

/// A direct write of an aligned range from vectors of any memory.
///
/// # Safety
/// Nobody writes to the memory of the vectors during the call.
pub(super) unsafe fn write_gathered(fd: Calls<'_>, iov: &[libc::iovec], offset: u64, flags: i32) -> Sys<()> {
    let len: usize = iov.iter().map(|v| v.iov_len).sum();
    with_bounce(|bounce| {
        let (mut n, mut from) = (0, VectorPos::default());
        while n < len {
            let want = (len - n).min(bounce.len());
            let to = bounce[..want].as_mut_ptr();
            from.walk(iov, want, |done, place, k| {
                // SAFETY: as in `read_scattered`, the other way.
                unsafe { std::ptr::copy_nonoverlapping(place, to.wrapping_add(done), k) };
            });
            write_full(fd, &bounce[..want], offset + n as u64, flags)?;
            n += want;
        }
        Ok(())
    })
}

/// A byte in a list of vectors.
#[derive(Default)]
struct VectorPos {
    vector: usize,
    at: usize,
}

impl VectorPos {
    /// Goes on by `n` bytes, and calls `each` with every stretch of them: bytes before it, its address, its length.
    fn walk(&mut self, iov: &[libc::iovec], n: usize, mut each: impl FnMut(usize, *mut u8, usize)) {
        let mut done = 0;
        while done < n {
            let v = &iov[self.vector];
            let k = (v.iov_len - self.at).min(n - done);
            each(done, v.iov_base.cast::<u8>().wrapping_add(self.at), k);
            done += k;
            self.at += k;
            if self.at == v.iov_len {
                (self.vector, self.at) = (self.vector + 1, 0);
            }
        }
    }
}

/// A direct write of aligned ranges from memory that is not aligned.
pub(super) fn write_bounced(fd: Calls<'_>, buf: &[u8], offset: u64, flags: i32) -> Sys<()> {
    with_bounce(|bounce| {
        for (i, part) in buf.chunks(bounce.len()).enumerate() {
            bounce[..part.len()].copy_from_slice(part);
            write_full(fd, &bounce[..part.len()], offset + (i * BOUNCE) as u64, flags)?;
        }
        Ok(())
    })
}
