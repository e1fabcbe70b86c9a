//! Which process this is. A child after fork() makes rings, contexts and threads of its own and leaves its parent's
//! alone: it has the parent's descriptors and mappings, but none of its threads, and locks that these held stay locked.
//!
//! Forks are counted by a handler of pthread_atfork.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Once, OnceLock};

use crate::{Error, ErrorKind};

/// Forks between the program's start and this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> libc::c_int;
}

unsafe extern "C" fn in_child() {
    // Nothing but an atomic: the child of a process with threads may not do more here.
    FORKS.fetch_add(1, Relaxed);
}

/// The process that something was made in. Whoever holds what belongs to one process (mapped files, locks, threads)
/// keeps one: in a child, by fork(), it is another, and there nothing of the parent's may be touched.
///
/// To ask is to load a number. A child made by a bare clone() or _Fork() is not noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// The present one.
    pub fn this() -> Process {
        static COUNTED: Once = Once::new();
        COUNTED.call_once(|| {
            // SAFETY: the handler only stores to atomics, which is allowed in a child of a process with threads.
            let refused = unsafe { pthread_atfork(None, None, Some(in_child)) } != 0;
            assert!(!refused, "no memory for a handler of fork()");
        });
        Process(FORKS.load(Relaxed))
    }

    /// Whether it is the present one: not in a child of it.
    #[inline]
    pub fn is_this(self) -> bool {
        self.0 == FORKS.load(Relaxed)
    }

    /// An error in a child of it.
    #[inline]
    pub(crate) fn check(self) -> crate::Result<()> {
        if self.is_this() { Ok(()) } else { Err(inherited()) }
    }
}

#[cold]
fn inherited() -> Error {
    let why = "this queue was made before fork() and is the parent's; make one in the child";
    Error::new(ErrorKind::InvalidInput, "queue", why)
}

/// A value that each process has its own of.
pub(crate) struct OfProcess<T> {
    process: Process,
    value: T,
    /// That of a child of this process.
    child: OnceLock<Box<OfProcess<T>>>,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> OfProcess<T> {
        OfProcess { process: Process::this(), value, child: OnceLock::new() }
    }

    /// This process's value, made if it has none yet.
    #[inline]
    pub(crate) fn get(&self, make: impl Fn() -> T) -> &T {
        if self.process.is_this() { &self.value } else { self.of_child(make) }
    }

    #[cold]
    fn of_child(&self, make: impl Fn() -> T) -> &T {
        let mut at = self;
        while !at.process.is_this() {
            at = at.child.get_or_init(|| Box::new(OfProcess::new(make())));
        }
        &at.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_a_value_of_its_own_and_so_has_its_child() {
        let parent = Process::this();
        let value = OfProcess::new(1);
        let made = || *value.get(|| 2);
        assert!(parent.is_this() && made() == 1 && parent.check().is_ok());
        // SAFETY: the child calls nothing that needs another thread, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut good = !parent.is_this() && Process::this().is_this() && parent.check().is_err();
            good &= made() == 2 && made() == 2;
            // SAFETY: as above.
            let next = unsafe { libc::fork() };
            good &= *value.get(|| 3) == if next == 0 { 3 } else { 2 };
            let ended = next == 0 || ended_well(next);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if good && ended { 0 } else { 1 }) };
        }
        assert!(ended_well(child));
        assert!(parent.is_this() && made() == 1);
    }

    fn ended_well(child: i32) -> bool {
        let mut status = -1;
        // SAFETY: the kernel fills `status`.
        (unsafe { libc::waitpid(child, &mut status, 0) }) == child && status == 0
    }
}
