//! Contexts of native AIO, and those that are kept for the next queue.
//!
//! To destroy a context takes the kernel tens of milliseconds (a grace period of RCU). A compaction that makes a queue
//! for each table that it reads or writes would pay that for each, so an engine keeps what its queues give back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Event, Iocb, errno};
use crate::process::Process;

/// An AIO context of the kernel, and whose it is: a child after fork() has none, though it may get the same number.
pub(super) struct Context(u64, Process);

impl Context {
    /// In place of one that has been moved out.
    pub(super) fn none() -> Context {
        Context(0, Process::this())
    }

    /// Whether it is this process's.
    pub(super) fn is_mine(&self) -> bool {
        self.1.is_this()
    }

    pub(super) fn new(depth: u32) -> std::result::Result<Context, i32> {
        let mut id = 0u64;
        // SAFETY: the kernel fills `id`.
        let r = unsafe { libc::syscall(libc::SYS_io_setup, libc::c_long::from(depth), &mut id as *mut u64) };
        if r < 0 { Err(errno()) } else { Ok(Context(id, Process::this())) }
    }

    /// Submits; returns how many were taken, or why the first was not.
    ///
    /// # Safety
    /// What the requests point to must stay valid, and untouched if the kernel writes to it, until their
    /// completions were taken.
    pub(super) unsafe fn submit(&self, list: &[*mut Iocb]) -> std::result::Result<usize, i32> {
        let n = list.len() as libc::c_long;
        // SAFETY: the pointers are to requests that live for the call; their targets are the caller's promise.
        let r = unsafe { libc::syscall(libc::SYS_io_submit, self.0, n, list.as_ptr()) };
        if r < 0 { Err(errno()) } else { Ok(r as usize) }
    }

    /// Takes at least `min` completions, waiting for them.
    pub(super) fn take(&self, min: usize, events: &mut [Event]) -> std::result::Result<usize, i32> {
        let (min, max) = (min.min(events.len()) as libc::c_long, events.len() as libc::c_long);
        // SAFETY: the kernel fills at most `max` events; no timeout is a null pointer.
        let r = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.0,
                min,
                max,
                events.as_mut_ptr(),
                std::ptr::null_mut::<libc::timespec>(),
            )
        };
        if r < 0 { Err(errno()) } else { Ok(r as usize) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.0 == 0 || !self.is_mine() {
            // Moved out, or the parent's.
            return;
        }
        // Waits for what is in flight, of which the queue has left none.
        // SAFETY: a plain system call; the context is destroyed once.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// Contexts kept at most.
const MANY: usize = 64;

/// Contexts that queues have given back, with nothing in flight and no completion left.
pub(super) struct Spare {
    list: Mutex<Vec<(u32, Context)>>,
    /// Requests that they take in sum, at most: the whole system has a limit of them.
    requests: u32,
}

impl Spare {
    pub(super) fn new(requests: u32) -> Spare {
        Spare { list: Mutex::default(), requests }
    }

    fn list(&self) -> MutexGuard<'_, Vec<(u32, Context)>> {
        // No code that holds the lock can panic halfway through a change.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A context for at least `depth` requests: the smallest spare one, or a new one. With how many it takes.
    pub(super) fn take(&self, depth: u32) -> Result<(u32, Context), i32> {
        let mut list = self.list();
        let fits = list.iter().enumerate().filter(|(_, (holds, _))| *holds >= depth);
        if let Some((i, _)) = fits.min_by_key(|(_, (holds, _))| *holds) {
            return Ok(list.swap_remove(i));
        }
        drop(list);
        let made = match Context::new(depth) {
            // The system's limit of requests: those that are kept for nothing count, too.
            Err(libc::EAGAIN) if self.clear() => Context::new(depth),
            made => made,
        };
        Ok((depth, made?))
    }

    pub(super) fn give(&self, holds: u32, context: Context) {
        let mut list = self.list();
        let kept: u32 = list.iter().map(|(holds, _)| *holds).sum();
        if list.len() < MANY && kept + holds <= self.requests {
            list.push((holds, context));
        }
        // One too many is destroyed here, after the lock is given up (locals go in reverse order).
    }

    /// Destroys all; says whether there were any.
    fn clear(&self) -> bool {
        let all = std::mem::take(&mut *self.list());
        let any = !all.is_empty();
        destroy(all);
        any
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let list = self.list.get_mut().unwrap_or_else(PoisonError::into_inner);
        destroy(std::mem::take(list));
    }
}

/// All together wait as long as one alone.
fn destroy(all: Vec<(u32, Context)>) {
    if all.len() < 2 || !all.iter().all(|(_, c)| c.is_mine()) {
        return;
    }
    std::thread::scope(|s| {
        for one in all {
            // Without another thread it is destroyed here.
            let _ = std::thread::Builder::new().spawn_scoped(s, move || drop(one));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(requests: u32) -> Option<Spare> {
        match Context::new(1) {
            Ok(_) => Some(Spare::new(requests)),
            Err(_) => {
                println!("SKIPPED: io_setup does not work here");
                None
            }
        }
    }

    fn kept(spare: &Spare) -> Vec<(u32, u64)> {
        let mut all: Vec<_> = spare.list().iter().map(|(holds, c)| (*holds, c.0)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn contexts_are_used_again_when_they_are_large_enough() {
        let Some(spare) = spare(1000) else { return };
        let (holds, first) = spare.take(8).unwrap();
        let id = first.0;
        spare.give(holds, first);
        let (holds, again) = spare.take(4).unwrap();
        assert_eq!((holds, again.0), (8, id));
        spare.give(holds, again);
        let (holds, larger) = spare.take(16).unwrap();
        assert_eq!(holds, 16);
        assert_ne!(larger.0, id);
        spare.give(holds, larger);
        let (holds, smallest) = spare.take(2).unwrap();
        assert_eq!((holds, smallest.0), (8, id), "the larger one is kept for who needs it");
    }

    #[test]
    fn what_a_merge_needs_at_once_is_kept_for_the_next() {
        let Some(spare) = spare(1000) else { return };
        let mut before = Vec::new();
        for round in 0..3 {
            let at_once: Vec<_> = (0..24).map(|_| spare.take(6).unwrap()).collect();
            at_once.into_iter().for_each(|(holds, c)| spare.give(holds, c));
            let all = kept(&spare);
            assert_eq!(all.len(), 24);
            assert!(round == 0 || all == before, "others were set up");
            before = all;
        }
    }

    #[test]
    fn no_more_are_kept_than_said() {
        let Some(spare) = spare(100) else { return };
        let many: Vec<_> = (0..5).map(|_| spare.take(40).unwrap()).collect();
        many.into_iter().for_each(|(holds, c)| spare.give(holds, c));
        assert_eq!(kept(&spare).len(), 2);
        let few: Vec<_> = (0..30).map(|_| spare.take(1).unwrap()).collect();
        assert_eq!(kept(&spare).len(), 0);
        few.into_iter().for_each(|(holds, c)| spare.give(holds, c));
        assert!(spare.clear() && !spare.clear());
    }
}
