//! Memory that somebody else owns, lent to an operation.

/// Bytes outside of Rust's ownership: a caller in another language, a mapping. Whoever makes one promises what the
/// type system cannot see; from then on it is used like any other buffer of an operation.
#[derive(Debug)]
pub struct ForeignBuf {
    ptr: *mut u8,
    len: usize,
    fillable: bool,
}

// SAFETY: `ForeignBuf::to_read_into` and `ForeignBuf::to_write_from` ask their callers for memory that any thread
// may use as long as the value exists.
unsafe impl Send for ForeignBuf {}
// SAFETY: as above; `&ForeignBuf` gives only `&[u8]`, which is never made of memory that is being filled: the
// filling needs `&mut ForeignBuf` or the engine's ownership of the operation.
unsafe impl Sync for ForeignBuf {}

impl ForeignBuf {
    /// Memory for a read to fill.
    ///
    /// # Safety
    /// As long as the value exists, and it may be kept for good when an engine fails, `ptr` points to `len`
    /// initialised bytes, at most `isize::MAX`, that nobody else reads or writes, on any thread. `len` 0 allows any
    /// `ptr`.
    pub unsafe fn to_read_into(ptr: *mut u8, len: usize) -> ForeignBuf {
        ForeignBuf { ptr, len, fillable: true }
    }

    /// Memory for a write to take its bytes from.
    ///
    /// # Safety
    /// As for [`ForeignBuf::to_read_into`], but others may read the bytes too.
    pub unsafe fn to_write_from(ptr: *const u8, len: usize) -> ForeignBuf {
        ForeignBuf { ptr: ptr.cast_mut(), len, fillable: false }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a read may fill it.
    pub fn is_fillable(&self) -> bool {
        self.fillable
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: initialised, nobody writes to them (the promise of both constructors).
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }

    /// The bytes, to fill; none if it was made for writes.
    pub fn to_fill(&mut self) -> &mut [u8] {
        if self.len == 0 || !self.fillable {
            return &mut [];
        }
        // SAFETY: initialised, and nobody else uses them (the promise of `to_read_into`).
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }

    /// The address of the byte at `at`, for the kernel.
    pub(crate) fn ptr_at(&self, at: usize) -> *mut u8 {
        assert!(at <= self.len, "byte {at} of {}", self.len);
        self.ptr.wrapping_add(at)
    }
}

#[cfg(test)]
mod tests {
    use super::ForeignBuf;
    use crate::{Buf, Direct, ErrorKind, Io, Op, OpenHow, Purpose};

    #[test]
    fn every_engine_takes_foreign_memory() {
        let dir = tempfile::tempdir().unwrap();
        for io in ["posix", "libaio", "io_uring"].iter().filter_map(|uri| Io::from_uri(uri).ok()) {
            for direct in [Direct::No, Direct::Prefer] {
                let how = OpenHow { truncate: true, ..OpenHow::read_write().direct(direct) };
                let f = io.open(&dir.path().join("f"), &how).unwrap();
                // One byte off, so that direct transfers of it have to be copied.
                let data: Vec<u8> = (0..4 * 4096 + 1).map(|i| (i % 251) as u8).collect();
                let write = |i: usize| {
                    // SAFETY: `data` outlives the batch, and nobody writes to it.
                    let buf = unsafe { ForeignBuf::to_write_from(data[1 + i * 4096..].as_ptr(), 4096) };
                    Op::write(&f, i as u64 * 4096, 4096, Buf::Foreign(buf), Purpose(0))
                };
                assert!(io.run((0..4).map(write).collect()).into_iter().all(|d| d.result.unwrap() == 4096));
                let mut back = vec![0u8; 4 * 4096];
                let read = |(i, part): (usize, &mut [u8])| {
                    // SAFETY: the parts of `back` outlive the batch and are borrowed by this iterator alone.
                    let buf = unsafe { ForeignBuf::to_read_into(part.as_mut_ptr(), part.len()) };
                    Op::read(&f, i as u64 * 4096, 4096, Buf::Foreign(buf), Purpose(0))
                };
                let ops = back.chunks_mut(4096).enumerate().map(read).collect();
                assert!(io.run(ops).into_iter().all(|d| d.result.unwrap() == 4096));
                assert!(back == data[1..], "the bytes of {} differ", io.info().name);
            }
        }
    }

    #[test]
    fn memory_for_writes_is_never_filled() {
        let dir = tempfile::tempdir().unwrap();
        let io = Io::from_uri("posix").unwrap();
        let f = io.open(&dir.path().join("f"), &OpenHow::read_write()).unwrap();
        f.write_all_at(b"other", 0, Purpose(0)).unwrap();
        let kept = *b"bytes";
        let op = || {
            // SAFETY: `kept` outlives the operations, and nobody writes to it.
            let buf = unsafe { ForeignBuf::to_write_from(kept.as_ptr(), kept.len()) };
            Op::read(&f, 0, 5, Buf::Foreign(buf), Purpose(0))
        };
        for done in io.run(vec![op(), op()]).into_iter().chain(io.run(vec![op()])) {
            assert_eq!(done.result.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(&kept, b"bytes");
    }
}
