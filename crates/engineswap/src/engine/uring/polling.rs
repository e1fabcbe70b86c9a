//! Whether a file's device can be polled for completions: found by a polled read when the first file of the device is
//! opened that has something to read.
//!
//! A ring that polls can be set up anywhere; it is the device that has polling queues or not. Buffered files, which
//! plain calls serve, and empty ones pass: a device that cannot be polled then shows at the first transfer.
//!
//! Older kernels (6.1 among them) do not refuse: they take the flag and use interrupts. So a read that came is
//! not enough where the device says that it has nothing to poll.

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
        let why = match answer(polled_read(file, setup), || polls(device)) {
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

/// The device of a file that is not empty, or that the file is.
fn device_with_bytes(file: &OsFile) -> Option<u64> {
    // SAFETY: `stat` is plain data; all-zero bytes are a valid value.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills `st`.
    let known = unsafe { libc::fstat(file.fd(), &mut st) } == 0;
    match st.st_mode & libc::S_IFMT {
        libc::S_IFBLK => known.then_some(st.st_rdev),
        _ => (known && st.st_size > 0).then_some(st.st_dev),
    }
}

/// What a polled read tells of a device that says, or does not, whether it has polling queues.
fn answer(
    read: std::result::Result<(), i32>,
    polls: impl FnOnce() -> Option<bool>,
) -> std::result::Result<(), i32> {
    read.and_then(|()| if polls() == Some(false) { Err(libc::EOPNOTSUPP) } else { Ok(()) })
}

/// Whether a device has polling queues; `None` if it does not say, as where a file system makes up its device.
fn polls(device: u64) -> Option<bool> {
    let dir = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    // A partition has the queue of its drive.
    let said =
        ["queue", "../queue"].iter().find_map(|q| std::fs::read_to_string(format!("{dir}/{q}/io_poll")).ok());
    match said?.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_came_by_an_interrupt_is_not_polled() {
        assert_eq!(answer(Ok(()), || Some(false)), Err(libc::EOPNOTSUPP));
        assert_eq!(answer(Ok(()), || Some(true)), Ok(()));
        assert_eq!(answer(Ok(()), || None), Ok(()));
        assert_eq!(answer(Err(libc::EBADF), || Some(false)), Err(libc::EBADF));
    }

    #[test]
    fn a_device_says_whether_it_can_be_polled_and_no_other_does() {
        assert_eq!(polls(libc::makedev(0, 4_000)), None);
        let said = |dir: &std::path::Path| std::fs::read_to_string(dir.join("queue/io_poll")).ok();
        for disk in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let (Some(number), Some(flag)) =
                (std::fs::read_to_string(disk.path().join("dev")).ok(), said(&disk.path()))
            else {
                continue;
            };
            let Some((major, minor)) = number.trim().split_once(':') else { panic!("{number}") };
            let device = libc::makedev(major.parse().unwrap(), minor.parse().unwrap());
            assert_eq!(polls(device), Some(flag.trim() == "1"), "{number}");
        }
    }
}
