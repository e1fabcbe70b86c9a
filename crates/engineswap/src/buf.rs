//! The memory of an operation: one buffer, or the pieces of a vectored transfer.

use crate::mem::{AlignedBuf, ArenaBuf, ForeignBuf, PoolBuf, ReadPool};

/// The buffer that an operation owns until its completion.
#[derive(Debug, Default)]
pub enum Buf {
    /// No buffer (syncs, allocations).
    #[default]
    None,
    /// An aligned buffer of its own.
    Aligned(AlignedBuf),
    /// A piece of somebody's arena.
    Arena(ArenaBuf),
    /// Memory that somebody else owns, lent for the time of the operation.
    Foreign(ForeignBuf),
    /// Consecutive bytes of the file into or out of pieces of any kind (one vectored operation). There may be any
    /// number of them: what one call of the kernel does not take is continued by the next.
    Pieces(Vec<Piece>),
    /// For reads: a buffer of this pool, chosen when there is something to read. It comes back as [`Buf::Pooled`]; as
    /// it was if nothing was read. A read that finds no buffer waits in its queue until one is dropped. It fails
    /// with ENOBUFS if for a second none is, and nothing else is in flight whose completion could free one.
    Pool(ReadPool),
    /// A buffer of a pool, for any transfer.
    Pooled(PoolBuf),
}

/// One piece of a vectored transfer, used whole (the last one as far as the operation's length goes).
#[derive(Debug)]
pub enum Piece {
    /// An aligned buffer of its own.
    Aligned(AlignedBuf),
    /// A piece of somebody's arena.
    Arena(ArenaBuf),
    /// Memory that somebody else owns, lent for the time of the operation.
    Foreign(ForeignBuf),
}

impl From<AlignedBuf> for Piece {
    fn from(b: AlignedBuf) -> Piece {
        Piece::Aligned(b)
    }
}

impl From<ArenaBuf> for Piece {
    fn from(b: ArenaBuf) -> Piece {
        Piece::Arena(b)
    }
}

impl From<ForeignBuf> for Piece {
    fn from(b: ForeignBuf) -> Piece {
        Piece::Foreign(b)
    }
}

impl Piece {
    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Piece::Aligned(b) => b.len(),
            Piece::Arena(b) => b.len(),
            Piece::Foreign(b) => b.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Piece::Aligned(b) => b,
            Piece::Arena(b) => b,
            Piece::Foreign(b) => b.bytes(),
        }
    }

    /// The bytes, to fill; none of memory that was lent for writes.
    pub fn to_fill(&mut self) -> &mut [u8] {
        match self {
            Piece::Aligned(b) => b,
            Piece::Arena(b) => b,
            Piece::Foreign(b) => b.to_fill(),
        }
    }

    fn is_fillable(&self) -> bool {
        !matches!(self, Piece::Foreign(b) if !b.is_fillable())
    }

    /// The address of the byte at `at`, for the kernel.
    fn ptr_at(&mut self, at: usize) -> *mut u8 {
        match self {
            Piece::Aligned(b) => b[at..].as_mut_ptr(),
            Piece::Arena(b) => b[at..].as_mut_ptr(),
            Piece::Foreign(b) => b.ptr_at(at),
        }
    }
}

impl Buf {
    /// Puts a buffer in the pool's place; false if the pool has none to give.
    pub(crate) fn choose(&mut self) -> bool {
        if let Buf::Pool(pool) = self {
            match pool.take() {
                Some(b) => *self = Buf::Pooled(b),
                None => return false,
            }
        }
        true
    }

    /// Gives the buffer back, so that the pool stands in its place again.
    pub(crate) fn unchoose(&mut self) {
        if let Buf::Pooled(b) = self {
            *self = Buf::Pool(b.pool().clone());
        }
    }

    /// The most bytes that a read or a write can move.
    pub(crate) fn room(&self, read: bool) -> u64 {
        match self {
            Buf::None => 0,
            Buf::Pool(p) if read => p.buf_bytes() as u64,
            Buf::Pool(_) => 0,
            Buf::Pooled(b) => b.len() as u64,
            Buf::Aligned(b) => b.len() as u64,
            Buf::Arena(b) => b.len() as u64,
            Buf::Foreign(b) if read && !b.is_fillable() => 0,
            Buf::Foreign(b) => b.len() as u64,
            Buf::Pieces(v) if read && !v.iter().all(Piece::is_fillable) => 0,
            Buf::Pieces(v) => v.iter().fold(0, |n, p| n.saturating_add(p.len() as u64)),
        }
    }

    /// The address of the byte at `at` if all of the memory is one piece, for the kernel.
    pub(crate) fn one_piece(&mut self, at: usize) -> Option<*mut u8> {
        match self {
            Buf::Aligned(b) => Some(b[at..].as_mut_ptr()),
            Buf::Arena(b) => Some(b[at..].as_mut_ptr()),
            Buf::Pooled(b) => Some(b[at..].as_mut_ptr()),
            Buf::Foreign(b) => Some(b.ptr_at(at)),
            Buf::Pieces(v) if v.len() == 1 => Some(v[0].ptr_at(at)),
            _ => None,
        }
    }

    /// Makes the vectors of `left` bytes from the byte at `skip` on, at most `most` of them, none of them empty.
    pub(crate) fn vectors(&mut self, iov: &mut Vec<libc::iovec>, skip: u64, left: u64, most: usize) {
        iov.clear();
        let (mut skip, mut left) = (skip as usize, left as usize);
        let mut add = |len: usize, ptr: &mut dyn FnMut(usize) -> *mut u8| {
            if skip >= len {
                skip -= len;
                return true;
            }
            let n = (len - skip).min(left);
            if n == 0 || iov.len() == most {
                return false;
            }
            iov.push(libc::iovec { iov_base: ptr(skip).cast(), iov_len: n });
            skip = 0;
            left -= n;
            true
        };
        if let Buf::Pieces(v) = self {
            v.iter_mut().all(|b| add(b.len(), &mut |at| b.ptr_at(at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lens(buf: &mut Buf, skip: u64, left: u64, most: usize) -> Vec<usize> {
        let mut iov = Vec::new();
        buf.vectors(&mut iov, skip, left, most);
        iov.iter().map(|v| v.iov_len).collect()
    }

    #[test]
    fn vectors_cover_what_is_left_and_no_more() {
        let piece = |n: usize| Piece::Aligned(AlignedBuf::zeroed(n));
        // SAFETY: no bytes at all.
        let empty = || Piece::Foreign(unsafe { ForeignBuf::to_write_from(std::ptr::null(), 0) });
        let mut b = Buf::Pieces(vec![empty(), piece(4096), empty(), piece(8192), piece(4096), empty()]);
        assert_eq!((b.room(false), b.room(true)), (16384, 0));
        assert_eq!(lens(&mut b, 0, 16384, 9), [4096, 8192, 4096]);
        assert_eq!(lens(&mut b, 0, 5000, 9), [4096, 904]);
        assert_eq!(lens(&mut b, 4095, 2, 9), [1, 1]);
        assert_eq!(lens(&mut b, 4096, 12288, 1), [8192]);
        assert_eq!(lens(&mut b, 16384, 0, 9), [0; 0]);
        let Buf::Pieces(v) = &mut b else { unreachable!() };
        let second = v[3].bytes().as_ptr() as usize;
        let mut iov = Vec::new();
        b.vectors(&mut iov, 5096, 10, 9);
        assert_eq!(iov[0].iov_base as usize, second + 1000);
    }
}
