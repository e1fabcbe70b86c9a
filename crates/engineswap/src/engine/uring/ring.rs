//! One ring: its memory shared with the kernel, putting requests in and taking completions out.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::sys::{self, Cqe, Params, Sqe};

/// Memory shared with the kernel.
struct Shared {
    ptr: NonNull<u8>,
    len: usize,
}

impl Shared {
    fn map(fd: &OwnedFd, len: usize, offset: libc::off_t) -> Result<Shared, i32> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let p = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                offset,
            )
        };
        if p == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOMEM));
        }
        NonNull::new(p.cast()).map(|ptr| Shared { ptr, len }).ok_or(libc::ENOMEM)
    }

    /// The counter at a byte offset that the kernel gave.
    fn counter(&self, offset: u32) -> Result<NonNull<AtomicU32>, i32> {
        self.array::<AtomicU32>(offset, 1)
    }

    fn array<T>(&self, offset: u32, n: u32) -> Result<NonNull<T>, i32> {
        let end = offset as usize + n as usize * size_of::<T>();
        if end > self.len || !(offset as usize).is_multiple_of(align_of::<T>()) {
            return Err(libc::EPROTO);
        }
        // SAFETY: within the mapping, as just checked.
        Ok(unsafe { self.ptr.add(offset as usize) }.cast())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, unmapped once, by the ring that owns every pointer into it.
        unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
    }
}

/// A ring, used by the thread that made it.
pub(super) struct Ring {
    sq_head: NonNull<AtomicU32>,
    sq_tail: NonNull<AtomicU32>,
    sq_flags: NonNull<AtomicU32>,
    sq_mask: u32,
    sq_entries: u32,
    sqes: NonNull<Sqe>,
    cq_head: NonNull<AtomicU32>,
    cq_tail: NonNull<AtomicU32>,
    cq_mask: u32,
    cqes: NonNull<Cqe>,
    /// The next free request; the kernel sees it at the next [`Ring::enter`].
    tail: u32,
    /// Requests put in and not yet taken by the kernel.
    queued: u32,
    flags: u32,
    _rings: Shared,
    _requests: Shared,
    fd: OwnedFd,
}

impl Ring {
    /// A ring for at least `entries` requests at a time, with these setup flags.
    pub(super) fn new(entries: u32, flags: u32) -> Result<Ring, i32> {
        let mut p = Params { flags, ..Params::default() };
        let fd = sys::setup(entries, &mut p)?;
        let need = sys::FEAT_SINGLE_MMAP | sys::FEAT_NODROP | sys::FEAT_RW_CUR_POS;
        if p.features & need != need {
            return Err(libc::ENOSYS);
        }
        let with_array = p.flags & sys::SETUP_NO_SQARRAY == 0;
        let sq_end = match with_array {
            true => p.sq_off.array as usize + p.sq_entries as usize * 4,
            false => 0,
        };
        let cq_end = p.cq_off.cqes as usize + p.cq_entries as usize * size_of::<Cqe>();
        let rings = Shared::map(&fd, sq_end.max(cq_end), sys::OFF_SQ_RING)?;
        let requests = Shared::map(&fd, p.sq_entries as usize * size_of::<Sqe>(), sys::OFF_SQES)?;
        if with_array {
            let array = rings.array::<AtomicU32>(p.sq_off.array, p.sq_entries)?;
            for i in 0..p.sq_entries {
                // SAFETY: `array` has `sq_entries` elements within the mapping.
                unsafe { array.add(i as usize).as_ref() }.store(i, Ordering::Relaxed);
            }
        }
        Ok(Ring {
            sq_head: rings.counter(p.sq_off.head)?,
            sq_tail: rings.counter(p.sq_off.tail)?,
            sq_flags: rings.counter(p.sq_off.flags)?,
            sq_mask: p.sq_entries - 1,
            sq_entries: p.sq_entries,
            sqes: requests.array::<Sqe>(0, p.sq_entries)?,
            cq_head: rings.counter(p.cq_off.head)?,
            cq_tail: rings.counter(p.cq_off.tail)?,
            cq_mask: p.cq_entries - 1,
            cqes: rings.array::<Cqe>(p.cq_off.cqes, p.cq_entries)?,
            tail: 0,
            queued: 0,
            flags,
            _rings: rings,
            _requests: requests,
            fd,
        })
    }

    fn word(&self, w: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: points into a mapping that self owns; the kernel changes it only as an atomic.
        unsafe { w.as_ref() }
    }

    /// Free places for requests.
    pub(super) fn space(&self) -> u32 {
        self.sq_entries - self.queued
    }

    /// Requests that the kernel has not taken.
    pub(super) fn queued(&self) -> u32 {
        self.queued
    }

    /// Puts a request in; false if the ring is full.
    ///
    /// # Safety
    /// What the request points to must stay valid, and untouched if the kernel writes to it, until its
    /// completion was taken out or the request was given back by [`Ring::enter`].
    pub(super) unsafe fn put(&mut self, sqe: Sqe) -> bool {
        if self.space() == 0 {
            return false;
        }
        // SAFETY: the masked index is within the array of requests, and the kernel does not look at this place
        // before the tail passes it.
        unsafe { self.sqes.add((self.tail & self.sq_mask) as usize).write(sqe) };
        self.tail = self.tail.wrapping_add(1);
        self.queued += 1;
        true
    }

    /// Links the request put in last to the one that is put in next.
    pub(super) fn link_last(&mut self) {
        if self.queued > 0 {
            let i = (self.tail.wrapping_sub(1) & self.sq_mask) as usize;
            // SAFETY: as in `put`: within the array, and not yet shown to the kernel.
            unsafe { (*self.sqes.add(i).as_ptr()).flags |= sys::IOSQE_IO_LINK };
        }
    }

    /// Hands the queued requests to the kernel and waits for `min` completions. Requests that the kernel did not
    /// take are out of the ring again; returns how many it took.
    pub(super) fn enter(&mut self, min: u32) -> Result<u32, i32> {
        self.word(self.sq_tail).store(self.tail, Ordering::Release);
        let deferred = self.flags & sys::SETUP_DEFER_TASKRUN != 0;
        let flags = if min > 0 || deferred || self.needs_enter() { sys::ENTER_GETEVENTS } else { 0 };
        let result = sys::enter(self.fd.as_raw_fd(), self.queued, min, flags);
        // Without a polling thread the kernel takes requests only during the call, so its head tells exactly
        // what it took, whatever the call returned.
        let head = self.word(self.sq_head).load(Ordering::Acquire);
        let left = self.tail.wrapping_sub(head);
        let took = self.queued.saturating_sub(left);
        self.tail = head;
        self.queued = 0;
        self.word(self.sq_tail).store(self.tail, Ordering::Release);
        match result {
            Err(e) if took == 0 => Err(e),
            _ => Ok(took),
        }
    }

    /// Whether the kernel holds completions that come out only by a call.
    pub(super) fn needs_enter(&self) -> bool {
        self.word(self.sq_flags).load(Ordering::Acquire) & (sys::SQ_CQ_OVERFLOW | sys::SQ_TASKRUN) != 0
    }

    /// Takes a completion out: its tag and result.
    pub(super) fn take(&mut self) -> Option<(u64, i32)> {
        let head = self.word(self.cq_head).load(Ordering::Relaxed);
        if head == self.word(self.cq_tail).load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the masked index is within the array of completions, and the kernel has published this one.
        let cqe = unsafe { self.cqes.add((head & self.cq_mask) as usize).read() };
        self.word(self.cq_head).store(head.wrapping_add(1), Ordering::Release);
        Some((cqe.user_data, cqe.res))
    }
}
