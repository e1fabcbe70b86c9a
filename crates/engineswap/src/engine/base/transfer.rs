//! Loops around pread and pwrite: short transfers are continued, EINTR and EAGAIN retried. Errors are errnos;
//! the callers add names and paths.

use std::cell::RefCell;

use crate::file::Alignment;
use crate::mem::AlignedBuf;

/// Result of a transfer: the errno on failure.
pub(super) type Sys<T> = Result<T, i32>;

/// EAGAIN is retried this often, the thread yielding in between, before it is reported: regular files answer
/// it only in passing, and a caller should not hang on one that answers nothing else.
const MAX_AGAIN: u32 = 10_000;

/// EINTR is retried this often: calls on files end themselves sooner or later, and one that is interrupted every
/// time never will.
const MAX_INTR: u32 = 1_000;

/// Bytes of the bounce buffer that a thread keeps.
const BOUNCE: usize = 1 << 20;

/// Repeats `call` over EINTR and EAGAIN.
pub(super) fn retry(mut call: impl FnMut() -> isize) -> Sys<usize> {
    let (mut again, mut interrupted) = (0, 0);
    loop {
        let n = call();
        if n >= 0 {
            return Ok(n as usize);
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) if interrupted < MAX_INTR => interrupted += 1,
            Some(libc::EAGAIN) if again < MAX_AGAIN => {
                again += 1;
                std::thread::yield_now();
            }
            e => return Err(e.unwrap_or(libc::EIO)),
        }
    }
}

/// Repeats a call that moves no bytes over EINTR; EAGAIN means something to its caller.
pub(super) fn retry_intr(mut call: impl FnMut() -> isize) -> Sys<usize> {
    let mut interrupted = 0;
    loop {
        let n = call();
        if n >= 0 {
            return Ok(n as usize);
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) if interrupted < MAX_INTR => interrupted += 1,
            e => return Err(e.unwrap_or(libc::EIO)),
        }
    }
}

/// Whether a transfer needs no bounce buffer.
pub(crate) fn is_aligned(a: Alignment, ptr: *const u8, offset: u64, len: u64) -> bool {
    let (memory, unit) = (a.memory.max(1) as u64, a.offset.max(1) as u64);
    (ptr as u64).is_multiple_of(memory) && offset.is_multiple_of(unit) && len.is_multiple_of(unit)
}

/// Reads until `buf` is full or the file ends. `a` is the file's alignment; a direct read that stops between
/// two units has met the end.
pub(super) fn read_full(fd: i32, buf: &mut [u8], offset: u64, a: Alignment) -> Sys<usize> {
    let mut n = 0;
    while n < buf.len() {
        let rest = &mut buf[n..];
        let at = (offset + n as u64) as libc::off_t;
        // SAFETY: the kernel writes into `rest`, which is borrowed mutably for the call.
        let k = retry(|| unsafe { libc::pread(fd, rest.as_mut_ptr().cast(), rest.len(), at) })?;
        n += k;
        if k == 0 || (a.offset > 1 && !n.is_multiple_of(a.offset as usize)) {
            break;
        }
    }
    Ok(n)
}

/// Fills the buffers one after the other, with vectored reads; returns the bytes read.
pub(super) fn read_full_vectored(fd: i32, iov: &mut [libc::iovec], offset: u64, a: Alignment) -> Sys<usize> {
    let (mut n, mut first) = (0usize, 0usize);
    while first < iov.len() {
        let rest = &mut iov[first..];
        let count = rest.len().min(libc::UIO_MAXIOV as usize) as i32;
        let at = (offset + n as u64) as libc::off_t;
        // SAFETY: the caller made the vectors from buffers that it holds mutably for this call.
        let mut k = retry(|| unsafe { libc::preadv(fd, rest.as_ptr(), count, at) })?;
        n += k;
        if k == 0 || (a.offset > 1 && !n.is_multiple_of(a.offset as usize)) {
            break;
        }
        while first < iov.len() && k >= iov[first].iov_len {
            k -= iov[first].iov_len;
            first += 1;
        }
        if k > 0 {
            // SAFETY: `k` is less than the vector's length, so the pointer stays inside of its buffer.
            iov[first].iov_base = unsafe { iov[first].iov_base.cast::<u8>().add(k) }.cast();
            iov[first].iov_len -= k;
        }
    }
    Ok(n)
}

/// Writes all of `buf`; `flags` as of pwritev2 (0: pwrite).
pub(super) fn write_full(fd: i32, buf: &[u8], offset: u64, flags: i32) -> Sys<()> {
    let mut n = 0;
    while n < buf.len() {
        let rest = &buf[n..];
        let at = (offset + n as u64) as libc::off_t;
        let k = if flags == 0 {
            // SAFETY: the kernel only reads `rest`, which is borrowed for the call.
            retry(|| unsafe { libc::pwrite(fd, rest.as_ptr().cast(), rest.len(), at) })?
        } else {
            let iov = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
            // SAFETY: as above, through one vector that lives for the call.
            retry(|| unsafe { libc::pwritev2(fd, &iov, 1, at, flags) })?
        };
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

/// A direct read of any range into any memory.
pub(super) fn read_bounced(fd: i32, buf: &mut [u8], offset: u64, a: Alignment) -> Sys<usize> {
    let unit = a.offset.max(1) as u64;
    with_bounce(|bounce| {
        let mut n = 0;
        while n < buf.len() {
            let at = offset + n as u64;
            let skip = at % unit;
            let want = ((buf.len() - n) as u64 + skip).next_multiple_of(unit).min(bounce.len() as u64);
            let got = read_full(fd, &mut bounce[..want as usize], at - skip, a)? as u64;
            let fresh = (got.saturating_sub(skip) as usize).min(buf.len() - n);
            buf[n..n + fresh].copy_from_slice(&bounce[skip as usize..][..fresh]);
            n += fresh;
            if got < want {
                break;
            }
        }
        Ok(n)
    })
}

/// A direct write of aligned ranges from memory that is not aligned.
pub(super) fn write_bounced(fd: i32, buf: &[u8], offset: u64, flags: i32) -> Sys<()> {
    with_bounce(|bounce| {
        for (i, part) in buf.chunks(bounce.len()).enumerate() {
            bounce[..part.len()].copy_from_slice(part);
            write_full(fd, &bounce[..part.len()], offset + (i * BOUNCE) as u64, flags)?;
        }
        Ok(())
    })
}
