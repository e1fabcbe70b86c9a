//! Waiting for a queue's completions without holding the queue: on descriptors, of which one is a bell that others
//! ring when they have changed what the waiter waits for.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use super::RawWaiter;
use crate::{Error, Result};

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// An eventfd. Rung any number of times, it is silenced once.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> Result<Bell> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::from_errno("eventfd", errno()));
        }
        // SAFETY: a descriptor that was just made, and that nobody else owns.
        Ok(Bell(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(crate) fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight bytes to write. It fails only when the bell rings already.
        let _ = unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
    }

    pub(crate) fn silence(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes to read into. It fails only when the bell is silent.
        let _ = unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
    }
}

/// Waits for the bell, and for another descriptor if there is one.
pub(crate) struct FdWaiter {
    pub(crate) bell: Arc<Bell>,
    pub(crate) also: Option<OwnedFd>,
}

impl RawWaiter for FdWaiter {
    fn wait(&self) -> Result<()> {
        self.wait_at_most(None)
    }

    fn wait_at_most(&self, most: Option<Duration>) -> Result<()> {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // A negative descriptor is passed over.
        let mut fds = [entry(self.bell.fd()), entry(self.also.as_ref().map_or(-1, |fd| fd.as_raw_fd()))];
        let limit = most.map(|most| libc::timespec {
            tv_sec: most.as_secs().min(1 << 30) as _,
            tv_nsec: most.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: two entries, which the kernel reads and fills in, and a time that it reads, if there is one.
        let n = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, limit, std::ptr::null()) };
        match if n < 0 { errno() } else { 0 } {
            // Whoever waits looks again in any case.
            0 | libc::EINTR => {}
            e => return Err(Error::from_errno("poll", e).detail("waiting for a shared queue")),
        }
        if fds[0].revents != 0 {
            self.bell.silence();
        }
        Ok(())
    }

    fn wake(&self) {
        self.bell.ring();
    }

    fn fd(&self) -> Result<BorrowedFd<'_>> {
        // Where there is another descriptor, completions show there.
        Ok(self.also.as_ref().map_or(self.bell.as_fd(), |fd| fd.as_fd()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rung_before_the_wait_ends_it() {
        let waiter = FdWaiter { bell: Arc::new(Bell::new().unwrap()), also: None };
        waiter.wake();
        waiter.wake();
        waiter.wait().unwrap();
        // Silent now: another thread has to ring.
        std::thread::scope(|s| {
            s.spawn(|| waiter.wake());
            waiter.wait().unwrap();
        });
    }

    #[test]
    fn a_wait_ends_with_its_time() {
        let waiter = FdWaiter { bell: Arc::new(Bell::new().unwrap()), also: None };
        let start = std::time::Instant::now();
        waiter.wait_at_most(Some(Duration::from_millis(20))).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
        waiter.wake();
        waiter.wait_at_most(None).unwrap();
        waiter.wait_at_most(Some(Duration::ZERO)).unwrap();
    }
}
