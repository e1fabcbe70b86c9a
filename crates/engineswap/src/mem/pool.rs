//! [`ReadPool`]: a fixed number of buffers for a larger number of reads.
//!
//! A read that is given a pool gets a buffer of it only when it can use one, and the buffer goes back when the reader
//! drops it. On io_uring the kernel chooses, when there is something to read (a buffer ring, Linux 5.19); a pool works
//! so with the first ring that meets it, until that is gone. Everywhere else the buffer is chosen when the read
//! starts. Nothing else differs.
//!
//! The kernel is handed no more buffers than it has reads that want one, so that the rest is there for whoever else
//! asks, and none is handed out twice: a buffer is free, or with the kernel, or in a [`PoolBuf`].

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::AlignedBuf;
use super::pages::Pages;

/// Buffers of one size for reads, shared by clones. Memory is given back when the last clone, buffer and queue that
/// used it are gone.
#[derive(Clone)]
pub struct ReadPool(Arc<Shared>);

struct Shared {
    pages: Pages,
    buf_bytes: usize,
    count: u16,
    state: Mutex<State>,
    returned: Condvar,
}

struct State {
    free: Vec<u16>,
    /// The pool's place with the kernel, while it has one.
    ring: Option<BufferRing>,
    /// Buffers that the kernel may choose from.
    provided: u32,
    /// Reads that the kernel has to choose buffers for.
    wanted: u32,
}

/// The list through which buffers are handed to the kernel: entries of 16 bytes, and the count of those written so
/// far in the last two bytes of the first.
struct BufferRing {
    pages: Pages,
    entries: u16,
    tail: u16,
}

impl BufferRing {
    fn new(count: u16) -> BufferRing {
        let entries = count.next_power_of_two();
        BufferRing { pages: Pages::reserve(entries as usize * 16), entries, tail: 0 }
    }

    fn provide(&mut self, address: *mut u8, len: usize, id: u16) {
        let place = (self.tail & (self.entries - 1)) as usize * 16;
        // SAFETY: below `entries`, so inside of the list's memory.
        let entry = unsafe { self.pages.base().add(place) };
        // SAFETY: inside of that entry and aligned. The kernel looks at it only when the count has passed it; it was
        // given fewer buffers than there are entries, so it is done with what was there. The last two bytes, which
        // in the first entry are the count, stay.
        unsafe {
            entry.cast::<u64>().write(address as u64);
            entry.add(8).cast::<u32>().write(len as u32);
            entry.add(12).cast::<u16>().write(id);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the last two bytes of the first entry, which the kernel reads as an atomic.
        unsafe { self.pages.base().add(14).cast::<AtomicU16>().as_ref() }.store(self.tail, Ordering::Release);
    }
}

impl ReadPool {
    /// The most buffers of a pool.
    pub const MAX_COUNT: usize = 1 << 15;

    /// `count` buffers (1 to [`ReadPool::MAX_COUNT`]) of `buf_bytes` bytes, rounded up to a multiple of 4096.
    pub fn new(buf_bytes: usize, count: usize) -> ReadPool {
        let size = buf_bytes.max(1).checked_next_multiple_of(AlignedBuf::ALIGN).filter(|n| *n <= 1 << 30);
        let bytes = size.and_then(|s| s.checked_mul(count));
        let (Some(size), Some(bytes), true) = (size, bytes, (1..=Self::MAX_COUNT).contains(&count)) else {
            panic!("{count} buffers of {buf_bytes} bytes")
        };
        ReadPool(Arc::new(Shared {
            pages: Pages::reserve(bytes),
            buf_bytes: size,
            count: count as u16,
            state: Mutex::new(State {
                free: (0..count as u16).rev().collect(),
                ring: None,
                provided: 0,
                wanted: 0,
            }),
            returned: Condvar::new(),
        }))
    }

    /// Bytes of a buffer.
    pub fn buf_bytes(&self) -> usize {
        self.0.buf_bytes
    }

    /// Buffers, wherever they are.
    pub fn count(&self) -> usize {
        self.0.count as usize
    }

    /// A buffer that nobody has, nor the kernel to choose from.
    pub fn take(&self) -> Option<PoolBuf> {
        let id = self.state().free.pop()?;
        Some(PoolBuf { pool: self.clone(), id })
    }

    /// The same; waits for one to come back, but not longer than this.
    pub fn take_within(&self, limit: Duration) -> Option<PoolBuf> {
        let state = self.state();
        let waited = self.0.returned.wait_timeout_while(state, limit, |s| s.free.is_empty());
        let id = waited.unwrap_or_else(PoisonError::into_inner).0.free.pop()?;
        Some(PoolBuf { pool: self.clone(), id })
    }

    /// Whether both are the same pool.
    pub(crate) fn is(&self, other: &ReadPool) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether only the caller knows it.
    pub(crate) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Buffers that reads could get now.
    pub(crate) fn available(&self) -> usize {
        let s = self.state();
        s.free.len() + s.provided as usize
    }

    /// Waits until a buffer has come back, or for this time.
    pub(crate) fn await_return(&self, limit: Duration) {
        // Poisoned or not, the caller looks for itself.
        let _ = self.0.returned.wait_timeout_while(self.state(), limit, |s| s.free.is_empty());
    }

    /// Gives the pool a place with the kernel: `register` is told the address and length of the list. False if it
    /// has one already, or is refused.
    pub(crate) fn attach(&self, register: impl FnOnce(*mut u8, u32) -> Result<(), i32>) -> bool {
        let mut s = self.state();
        if s.ring.is_some() {
            return false;
        }
        let ring = BufferRing::new(self.0.count);
        let done = register(ring.pages.base().as_ptr(), ring.entries.into());
        if done.is_ok() {
            s.ring = Some(ring);
        }
        done.is_ok()
    }

    /// Takes that place away again; `unregister` makes the kernel forget the list. No read may want a buffer.
    pub(crate) fn detach(&self, unregister: impl FnOnce() -> Result<(), i32>) {
        let mut s = self.state();
        if unregister().is_err() {
            // It may go on looking at the list: nothing of it is used again.
            std::mem::forget(s.ring.take());
            s.provided = 0;
            return;
        }
        if let Some(ring) = s.ring.take() {
            // What was handed out last has not been chosen.
            for k in 1..=s.provided as u16 {
                let place = (ring.tail.wrapping_sub(k) & (ring.entries - 1)) as usize * 16;
                // SAFETY: inside of the list, where `provide` wrote it; the kernel does not know the list any more.
                let id = unsafe { ring.pages.base().add(place + 12).cast::<u16>().read() };
                s.free.push(id);
            }
        }
        s.provided = 0;
        drop(s);
        self.0.returned.notify_all();
    }

    /// One more read wants the kernel to choose.
    pub(crate) fn want(&self) {
        let mut s = self.state();
        s.wanted += 1;
        self.provide(&mut s);
    }

    /// A read that wanted that has ended; with this buffer if it has one. Says whether the kernel now has buffers
    /// that no read wants.
    pub(crate) fn chosen(&self, id: Option<u16>) -> (Option<PoolBuf>, bool) {
        let mut s = self.state();
        s.wanted = s.wanted.saturating_sub(1);
        let buf = id.filter(|id| *id < self.0.count).map(|id| {
            s.provided -= 1;
            PoolBuf { pool: self.clone(), id }
        });
        (buf, s.wanted == 0 && s.provided > 0)
    }

    /// Hands the kernel what it may need.
    fn provide(&self, s: &mut State) {
        let State { free, ring: Some(ring), provided, wanted } = s else { return };
        while *provided < *wanted {
            let Some(id) = free.pop() else { break };
            ring.provide(self.address(id).as_ptr(), self.0.buf_bytes, id);
            *provided += 1;
        }
    }

    fn address(&self, id: u16) -> NonNull<u8> {
        // SAFETY: below `count`, so inside of the mapping.
        unsafe { self.0.pages.base().add(id as usize * self.0.buf_bytes) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can panic halfway through a change.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ReadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadPool({} of {} bytes)", self.0.count, self.0.buf_bytes)
    }
}

/// A buffer of a pool, which gets it back when this is dropped. Its address is a multiple of 4096.
pub struct PoolBuf {
    pool: ReadPool,
    id: u16,
}

impl PoolBuf {
    /// Where it came from.
    pub fn pool(&self) -> &ReadPool {
        &self.pool
    }
}

impl Drop for PoolBuf {
    fn drop(&mut self) {
        let mut s = self.pool.state();
        s.free.push(self.id);
        // A read in the kernel may be waiting for it.
        self.pool.provide(&mut s);
        drop(s);
        self.pool.0.returned.notify_all();
    }
}

impl std::ops::Deref for PoolBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: initialised memory of the pool's mapping, which lives as long as the pool; the buffer is not free
        // and not with the kernel, so it is this value's alone.
        unsafe { std::slice::from_raw_parts(self.pool.address(self.id).as_ptr(), self.pool.0.buf_bytes) }
    }
}

impl std::ops::DerefMut for PoolBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.pool.address(self.id).as_ptr(), self.pool.0.buf_bytes) }
    }
}

impl std::fmt::Debug for PoolBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolBuf({} bytes)", self.pool.0.buf_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_apart_and_come_back() {
        let pool = ReadPool::new(5000, 3);
        assert_eq!((pool.buf_bytes(), pool.count()), (8192, 3));
        let mut all: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
        assert!(pool.take().is_none() && pool.take_within(Duration::from_millis(1)).is_none());
        for (i, b) in all.iter_mut().enumerate() {
            assert_eq!((b.len(), b.as_ptr() as usize % 4096), (8192, 0));
            b.fill(i as u8 + 1);
        }
        assert!(all.iter().enumerate().all(|(i, b)| b.iter().all(|x| *x == i as u8 + 1)));
        let address = all[1].as_ptr() as usize;
        let back = std::thread::spawn({
            let b = all.remove(1);
            move || drop(b)
        });
        let again = pool.take_within(Duration::from_secs(60)).unwrap();
        assert_eq!(again.as_ptr() as usize, address);
        back.join().unwrap();
        drop(pool);
        assert!(all.iter().all(|b| b[0] == b[8191]));
    }

    #[test]
    fn the_kernel_is_handed_what_is_wanted_and_no_more() {
        let pool = ReadPool::new(4096, 3);
        assert!(pool.attach(|_, entries| if entries == 4 { Ok(()) } else { Err(libc::EINVAL) }));
        assert!(!pool.attach(|_, _| panic!("it has a place")));
        pool.want();
        assert_eq!((pool.available(), pool.state().provided), (3, 1));
        let (one, two) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.take().is_none(), "the third is with the kernel");
        pool.want();
        assert_eq!(pool.state().provided, 1);
        drop(one);
        assert_eq!(pool.state().provided, 2, "a read in the kernel gets what comes back");
        drop(two);
        let (buf, idle) = pool.chosen(Some(0));
        assert!(buf.is_some() && !idle);
        assert!(pool.chosen(None).1, "one is left with the kernel");
        pool.detach(|| Ok(()));
        assert_eq!((pool.available(), pool.state().free.len()), (2, 2));
        drop(buf);
        let all: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
        let mut ids: Vec<u16> = all.iter().map(|b| b.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2]);
        assert!(!pool.attach(|_, _| Err(libc::EINVAL)));
        assert!(pool.attach(|_, _| Ok(())), "a refusal leaves no trace");
    }

    #[test]
    fn impossible_pools_panic() {
        for (bytes, count) in [(4096, 0), (4096, ReadPool::MAX_COUNT + 1), (usize::MAX, 1), (2 << 30, 1)] {
            assert!(std::panic::catch_unwind(|| ReadPool::new(bytes, count)).is_err(), "{count} of {bytes}");
        }
    }
}
