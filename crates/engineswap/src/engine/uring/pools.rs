//! Pools whose buffers the kernel chooses: which of them a ring knows, and by which number.
//!
//! A ring gets to know a pool when a read first brings it, unless another ring has it already. It forgets the pool when
//! the queue is dropped, when nobody else has the pool any more and another one needs its number, and when the kernel
//! is left with buffers that no read wants (after reads that failed), so that these can be used elsewhere.

use super::raw::RawRing;
use super::ring::{Ring, Setup};
use super::sys;
use crate::mem::{PoolBuf, ReadPool};

/// Pools that a ring knows at most.
const POOLS: usize = 16;

/// The pools of one ring; the place of each is its number.
#[derive(Default)]
pub(super) struct RingPools {
    known: [Option<ReadPool>; POOLS],
}

impl RingPools {
    fn group(&self, pool: &ReadPool) -> Option<u16> {
        let same = |k: &Option<ReadPool>| k.as_ref().is_some_and(|k| k.is(pool));
        self.known.iter().position(same).map(|i| i as u16)
    }

    /// Whether the ring knows the pool, after trying to make it so.
    pub(super) fn knows(&mut self, ring: &impl RawRing, pool: &ReadPool) -> bool {
        self.group(pool).is_some() || self.meet(ring, pool)
    }

    #[cold]
    fn meet(&mut self, ring: &impl RawRing, pool: &ReadPool) -> bool {
        for i in 0..POOLS {
            if self.known[i].as_ref().is_some_and(ReadPool::is_alone) {
                self.forget(ring, i);
            }
        }
        let Some(i) = self.known.iter().position(Option::is_none) else { return false };
        let met = pool.attach(|list, entries| register(ring, i as u16, list, entries));
        if met {
            self.known[i] = Some(pool.clone());
        }
        met
    }

    fn forget(&mut self, ring: &impl RawRing, i: usize) {
        if let Some(pool) = self.known[i].take() {
            pool.detach(|| unregister(ring, i as u16));
        }
    }

    /// The number of the pool for a read that is put into the ring now.
    pub(super) fn want(&self, pool: &ReadPool) -> Option<u16> {
        let group = self.group(pool)?;
        pool.want();
        Some(group)
    }

    /// Such a read has ended with these flags of its completion: the buffer that it has.
    pub(super) fn chosen(&mut self, ring: &impl RawRing, pool: &ReadPool, flags: u32) -> Option<PoolBuf> {
        let id = (flags & sys::CQE_BUFFER != 0).then_some((flags >> 16) as u16);
        let (buf, left_over) = pool.chosen(id);
        if let (true, Some(i)) = (left_over, self.group(pool)) {
            self.forget(ring, i.into());
        }
        buf
    }

    /// The ring is about to be closed, with nothing in flight.
    pub(super) fn leave(mut self, ring: &impl RawRing) {
        (0..POOLS).for_each(|i| self.forget(ring, i));
    }
}

/// Whether rings of this kind can choose buffers; an errno if not.
pub(super) fn probe() -> Result<(), i32> {
    let ring = Ring::new(1, &Setup::default())?;
    let pool = ReadPool::new(1, 1);
    let mut why = 0;
    let can = pool.attach(|list, entries| register(&ring, 0, list, entries).inspect_err(|e| why = *e));
    if !can {
        return Err(why);
    }
    pool.detach(|| unregister(&ring, 0));
    Ok(())
}

/// struct io_uring_buf_reg.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct BufReg {
    pub(super) address: u64,
    pub(super) entries: u32,
    pub(super) group: u16,
    flags: u16,
    reserved: [u64; 3],
}

fn register(ring: &impl RawRing, group: u16, list: *mut u8, entries: u32) -> Result<(), i32> {
    let arg = BufReg { address: list as u64, entries, group, ..BufReg::default() };
    // SAFETY: that structure, which the kernel reads. The pool keeps the list's memory until the kernel has
    // forgotten it.
    unsafe { ring.register(sys::REGISTER_PBUF_RING, (&raw const arg).cast(), 1) }.map(drop)
}

fn unregister(ring: &impl RawRing, group: u16) -> Result<(), i32> {
    let arg = BufReg { group, ..BufReg::default() };
    // SAFETY: as above.
    unsafe { ring.register(sys::UNREGISTER_PBUF_RING, (&raw const arg).cast(), 1) }.map(drop)
}
