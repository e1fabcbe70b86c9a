//! Whether a file's device can be polled for completions: found by a polled read when the first file of the device is
//! opened that has something to read.
//!
//! A ring that polls can be set up anywhere; it is the device that has polling queues or not. Buffered files, which
//! plain calls serve, and empty ones pass: a device that cannot be polled then shows at the first transfer.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::raw::RawRing;
use super::ring::{Ring, Setup};
use super::sys;
use crate::engine::slots::NOT_POLLED;
use crate::mem::AlignedBuf;
use crate::os::{OsFile, RawFile};
use crate::{Error, ErrorKind, Result};

/// Looks at the completions, a millisecond apart, before the device is given up.
const LOOKS: u32 = 10_000;

/// Devices that were polled and answered.
#[derive(Default)]
pub(super) struct Polling(Mutex<Vec<u64>>);

impl Polling {
    /// An error with the remedy if the file is to be polled for and cannot be.
    pub(super) fn check(&self, file: &OsFile, setup: &Setup) -> Result<()> {
        let Some(device) = device_with_bytes(file).filter(|_| file.is_direct()) else { return Ok(()) };
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known().contains(&device) {
            return Ok(());
        }
        let why = match polled_read(file, setup) {
            // A file that is not open for reading, or whatever else: its operations will tell.
            Err(libc::EBADF) => return Ok(()),
            Ok(()) => {
                let mut known = known();
                if !known.contains(&device) {
                    known.push(device);
                }
                return Ok(());
            }
            Err(libc::EOPNOTSUPP) => (libc::EOPNOTSUPP, NOT_POLLED),
            Err(libc::ETIMEDOUT) => (
                libc::ETIMEDOUT,
                "iopoll: a polled read of this file has not ended; use an engine without iopoll",
            ),
            Err(_) => return Ok(()),
        };
        Err(Error::from_errno("open", why.0).with_kind(ErrorKind::Unsupported).at(file.path()).detail(why.1))
    }
}

/// The device of a file that is not empty.
fn device_with_bytes(file: &OsFile) -> Option<u64> {
    // SAFETY: `stat` is plain data; all-zero bytes are a valid value.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills `st`.
    let known = unsafe { libc::fstat(file.fd(), &mut st) } == 0;
    (known && st.st_size > 0).then_some(st.st_dev)
}

/// Reads the first block of a direct file by a ring that polls, of nobody else's.
fn polled_read(file: &OsFile, setup: &Setup) -> std::result::Result<(), i32> {
    let flags = setup.flags & (sys::SETUP_IOPOLL | sys::SETUP_HYBRID_IOPOLL | sys::SETUP_CLAMP);
    let mut ring = Ring::new(2, &Setup { flags, ..Setup::default() })?;
    let mut buf = AlignedBuf::zeroed(file.alignment().offset as usize);
    let len = buf.len() as u32;
    let (addr, user_data) = (buf.as_mut_ptr() as u64, 1);
    let read = sys::Sqe { opcode: sys::OP_READ, fd: file.fd(), addr, len, user_data, ..sys::Sqe::default() };
    // SAFETY: the buffer is freed only when the completion has come, or the kernel has not taken the request.
    if !unsafe { ring.put(read) } {
        return Err(libc::ENOSPC);
    }
    let mut taken = false;
    for _ in 0..LOOKS {
        // Looks without waiting, so that nothing here can hang.
        match ring.enter(0, 0) {
            Ok(n) => taken |= n > 0,
            Err(libc::EINTR | libc::EAGAIN | libc::EBUSY) if taken => {}
            Err(e) if !taken => return Err(e),
            Err(e) => {
                std::mem::forget(buf);
                return Err(e);
            }
        }
        match ring.take() {
            Some((_, res, _)) if res < 0 => return Err(-res),
            Some(_) => return Ok(()),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    // The device may still write to it.
    std::mem::forget(buf);
    Err(libc::ETIMEDOUT)
}
