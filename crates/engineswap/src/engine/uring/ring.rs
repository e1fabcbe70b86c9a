//! One ring: its memory shared with the kernel, putting requests in and taking completions out.
//!
//! Without a polling thread the kernel takes requests only during a call, so what it did not take can be taken
//! back. With one (SQPOLL) whatever the tail has passed belongs to the kernel at once.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::raw::RawRing;
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

/// How a ring is set up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup {
    pub(super) flags: u32,
    pub(super) idle_ms: u32,
    pub(super) cpu: u32,
    /// The ring whose polling thread is shared; it must stay open during the call.
    pub(super) share: Option<RawFd>,
}

/// A ring, used by one thread at a time.
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
    /// The next free request; the kernel sees it at the next [`RawRing::enter`].
    tail: u32,
    /// Requests put in and not yet taken by the kernel.
    queued: u32,
    flags: u32,
    features: u32,
    /// The number that the thread knows the ring by, if it is registered.
    number: Option<u32>,
    /// System calls made by `enter`.
    calls: u64,
    _rings: Shared,
    _requests: Shared,
    fd: OwnedFd,
}

// SAFETY: the pointers lead into mappings that the ring owns, which any thread may use; `&mut self` says that one does
// at a time. A ring with SINGLE_ISSUER that goes to another thread is refused by the kernel.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring for at least `entries` requests at a time.
    pub(super) fn new(entries: u32, how: &Setup) -> Result<Ring, i32> {
        let mut p = Params {
            flags: how.flags,
            sq_thread_idle: how.idle_ms,
            sq_thread_cpu: how.cpu,
            ..Params::default()
        };
        if let Some(fd) = how.share {
            p.flags |= sys::SETUP_ATTACH_WQ;
            p.wq_fd = fd as u32;
        }
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
            flags: p.flags,
            features: p.features,
            number: None,
            calls: 0,
            _rings: rings,
            _requests: requests,
            fd,
        })
    }

    fn word(&self, w: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: points into a mapping that self owns; the kernel changes it only as an atomic.
        unsafe { w.as_ref() }
    }

    /// Whether only the thread that made it may register anything with it.
    pub(super) fn is_of_single_issuer(&self) -> bool {
        self.flags & sys::SETUP_SINGLE_ISSUER != 0
    }

    /// Whether a wait can be bounded in time while fewer than asked for are there.
    pub(super) fn has_min_wait(&self) -> bool {
        self.features & sys::FEAT_MIN_TIMEOUT != 0
    }

    /// Lets the calling thread, which must be the ring's for good, name the ring by a number.
    pub(super) fn register_ring(&mut self) -> Result<(), i32> {
        // struct io_uring_rsrc_update: where (any), reserved, what.
        let mut update = [u64::from(u32::MAX), self.fd.as_raw_fd() as u64];
        // SAFETY: one io_uring_rsrc_update, which the kernel reads and fills in.
        unsafe { sys::register(self.fd(), sys::REGISTER_RING_FDS, update.as_mut_ptr().cast(), 1)? };
        self.number = Some(update[0] as u32);
        Ok(())
    }

    /// Limits the calling thread's workers; 0 leaves a limit as it is.
    pub(super) fn limit_workers(&self, bounded: u32, unbounded: u32) -> Result<(), i32> {
        let mut limits = [bounded, unbounded];
        // SAFETY: two numbers, which the kernel reads and replaces by the old ones.
        unsafe { sys::register(self.fd(), sys::REGISTER_IOWQ_MAX_WORKERS, limits.as_mut_ptr().cast(), 2)? };
        Ok(())
    }

    /// Binds the calling thread's workers to these CPUs.
    pub(super) fn bind_workers(&self, cpus: &[u32]) -> Result<(), i32> {
        let (mut mask, mut allowed) = ([0u64; 16], [0u64; 16]);
        let room = size_of_val(&allowed);
        // SAFETY: a CPU mask of so many bytes, which the kernel fills from its start. The set of the libc crate is
        // such a mask.
        if unsafe { libc::sched_getaffinity(0, room, allowed.as_mut_ptr().cast()) } != 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL));
        }
        for cpu in cpus {
            let (word, bit) = (*cpu as usize / 64, 1 << (cpu % 64));
            // The kernel would take a CPU that is not there, and not bind anything.
            if allowed.get(word).is_none_or(|a| a & bit == 0) {
                return Err(libc::EINVAL);
            }
            mask[word] |= bit;
        }
        let bytes = size_of_val(&mask) as u32;
        // SAFETY: a CPU mask of so many bytes, which the kernel only reads.
        unsafe { sys::register(self.fd(), sys::REGISTER_IOWQ_AFF, mask.as_ptr().cast(), bytes)? };
        Ok(())
    }

    /// Whether the kernel knows these kinds of requests.
    pub(super) fn knows(&self, opcodes: &[u8]) -> bool {
        // struct io_uring_probe: 16 bytes, the second of which says how many entries of 8 bytes follow; an entry is
        // the kind, a reserved byte, and flags of 16 bits.
        const SUPPORTED: u64 = 1;
        let mut probe = [0u64; 2 + 256];
        // SAFETY: room for that structure with 256 entries, zeroed, which the kernel fills.
        if unsafe { sys::register(self.fd(), sys::REGISTER_PROBE, probe.as_mut_ptr().cast(), 256) }.is_err() {
            return false;
        }
        opcodes.iter().all(|op| {
            let [kind, _, flags, ..] = probe[2 + *op as usize].to_ne_bytes();
            kind == *op && u64::from(flags) & SUPPORTED != 0
        })
    }

    fn polled_submission(&self) -> bool {
        self.flags & sys::SETUP_SQPOLL != 0
    }

    /// The polling thread takes what the tail has passed; it has to be called only if it sleeps.
    fn enter_polled(&mut self, min: u32, min_wait_us: u32) -> Result<u32, i32> {
        // The tail must be seen before the flag is read: the thread sets the flag, then looks at the tail again.
        fence(Ordering::SeqCst);
        let took = std::mem::take(&mut self.queued);
        let mut flags = 0;
        if self.submitter_sleeps() {
            flags |= sys::ENTER_SQ_WAKEUP;
        }
        if min > 0 || self.needs_enter() {
            flags |= sys::ENTER_GETEVENTS;
        }
        if self.space() == 0 {
            flags |= sys::ENTER_SQ_WAIT;
        }
        if flags == 0 {
            return Ok(took);
        }
        entered(self.call(took, min, flags, min_wait_us), took)
    }

    fn call(&mut self, submit: u32, min: u32, flags: u32, min_wait_us: u32) -> Result<u32, i32> {
        self.calls += 1;
        match self.number {
            Some(n) => sys::enter(n as i32, submit, min, flags | sys::ENTER_REGISTERED_RING, min_wait_us),
            None => sys::enter(self.fd.as_raw_fd(), submit, min, flags, min_wait_us),
        }
    }

    /// Whether the polling thread has to be woken.
    pub(super) fn submitter_sleeps(&self) -> bool {
        self.word(self.sq_flags).load(Ordering::Acquire) & sys::SQ_NEED_WAKEUP != 0
    }
}

impl RawRing for Ring {
    #[inline]
    fn space(&self) -> u32 {
        match self.polled_submission() {
            true => {
                let head = self.word(self.sq_head).load(Ordering::Acquire);
                self.sq_entries - self.tail.wrapping_sub(head).min(self.sq_entries)
            }
            false => self.sq_entries - self.queued,
        }
    }

    #[inline]
    fn queued(&self) -> u32 {
        self.queued
    }

    #[inline]
    unsafe fn put(&mut self, sqe: Sqe) -> bool {
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

    #[inline]
    fn link_last(&mut self) {
        if self.queued > 0 {
            let i = (self.tail.wrapping_sub(1) & self.sq_mask) as usize;
            // SAFETY: as in `put`: within the array, and not yet shown to the kernel.
            unsafe { (*self.sqes.add(i).as_ptr()).flags |= sys::IOSQE_IO_LINK };
        }
    }

    fn enter(&mut self, min: u32, min_wait_us: u32) -> Result<u32, i32> {
        self.word(self.sq_tail).store(self.tail, Ordering::Release);
        if self.polled_submission() {
            return self.enter_polled(min, min_wait_us);
        }
        let eager = sys::SETUP_DEFER_TASKRUN | sys::SETUP_IOPOLL;
        let events = min > 0 || self.flags & eager != 0 || self.needs_enter();
        let result = self.call(self.queued, min, if events { sys::ENTER_GETEVENTS } else { 0 }, min_wait_us);
        // Without a polling thread the kernel takes requests only during the call, so its head tells exactly
        // what it took, whatever the call returned.
        let head = self.word(self.sq_head).load(Ordering::Acquire);
        let left = self.tail.wrapping_sub(head);
        let took = self.queued.saturating_sub(left);
        self.tail = head;
        self.queued = 0;
        self.word(self.sq_tail).store(self.tail, Ordering::Release);
        entered(result, took)
    }

    #[inline]
    fn calls(&self) -> u64 {
        self.calls
    }

    #[inline]
    fn needs_enter(&self) -> bool {
        self.word(self.sq_flags).load(Ordering::Acquire) & (sys::SQ_CQ_OVERFLOW | sys::SQ_TASKRUN) != 0
    }

    #[inline]
    fn polls(&self) -> bool {
        self.flags & sys::SETUP_IOPOLL != 0
    }

    #[inline]
    fn take(&mut self) -> Option<(u64, i32, u32)> {
        let head = self.word(self.cq_head).load(Ordering::Relaxed);
        if head == self.word(self.cq_tail).load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the masked index is within the array of completions, and the kernel has published this one.
        let cqe = unsafe { self.cqes.add((head & self.cq_mask) as usize).read() };
        self.word(self.cq_head).store(head.wrapping_add(1), Ordering::Release);
        Some((cqe.user_data, cqe.res, cqe.flags))
    }

    #[inline]
    fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// What a call comes to that took so many requests.
pub(super) fn entered(result: Result<u32, i32>, took: u32) -> Result<u32, i32> {
    match result {
        // The time to wait is over and nothing has come: said only by a call that took no requests. Whoever waits
        // looks again.
        Err(libc::ETIME) => Ok(took),
        Err(e) if took == 0 => Err(e),
        _ => Ok(took),
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(n) = self.number {
            let update = [u64::from(n), 0];
            // SAFETY: one io_uring_rsrc_update, which the kernel reads. A failure leaves the number to the end of
            // the thread.
            let _ = unsafe { sys::register(self.fd(), sys::UNREGISTER_RING_FDS, update.as_ptr().cast(), 1) };
        }
    }
}
