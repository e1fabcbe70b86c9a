//! What a queue needs of its ring: the kernel's, or, in tests, a model of it (`model`) that answers in all the ways
//! that the kernel may.

use std::os::fd::RawFd;

use super::sys::{self, Sqe};

/// A ring, used by one thread at a time.
pub(super) trait RawRing {
    /// Free places for requests.
    fn space(&self) -> u32;
    /// Requests put in since the last [`RawRing::enter`].
    fn queued(&self) -> u32;
    /// Puts a request in; false if the ring is full.
    ///
    /// # Safety
    /// What the request points to must stay valid, and untouched if the kernel writes to it, until its completion was
    /// taken out or the request was given back by [`RawRing::enter`].
    unsafe fn put(&mut self, sqe: Sqe) -> bool;
    /// Links the request put in last to the one that is put in next.
    fn link_last(&mut self);
    /// Hands over what was put in and waits for `min` completions; if `min_wait_us` is not 0, for one after that time.
    /// What was not taken is out of the ring again;
    /// returns how much was taken, or the errno of a call that took nothing.
    fn enter(&mut self, min: u32, min_wait_us: u32) -> Result<u32, i32>;
    /// System calls that `enter` made.
    fn calls(&self) -> u64;
    /// Whether there are completions that come out only by a call (overflow, or work that the thread has to do).
    fn needs_enter(&self) -> bool;
    /// Whether completions come out only by calls that look for them.
    fn polls(&self) -> bool;
    /// Takes a completion out: its tag, result and flags.
    fn take(&mut self) -> Option<(u64, i32, u32)>;
    /// Its descriptor, to register buffers with.
    fn fd(&self) -> RawFd;
    /// io_uring_register on it.
    ///
    /// # Safety
    /// As of [`sys::register`].
    unsafe fn register(&self, opcode: u32, arg: *const libc::c_void, n: u32) -> Result<u32, i32> {
        // SAFETY: the caller's promise.
        unsafe { sys::register(self.fd(), opcode, arg, n) }
    }
}
