//! Mappings of files: bytes are copied in and out.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

/// An engine's mapping.
pub trait RawMap: Send + Sync {
    /// Some of it, to be written. Panics if the range is outside of the mapping.
    fn range(&mut self, range: Range<usize>) -> MapRange<'_>;
    /// Copies the bytes at `offset` out. Panics if the range is outside of the mapping.
    fn read(&self, offset: usize, buf: &mut [u8]);
    /// Copies `bytes` to `offset`. Panics if the range is outside of the mapping.
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.range(offset..offset.saturating_add(bytes.len())).write(0, bytes);
    }
}

/// A writable shared mapping of a file: a write is a copy; [`crate::File::sync_data`] makes it durable.
///
/// Bytes are copied in and out, and no reference to them is given: others have the file too (another mapping, a plain
/// write, another process), and may change it at any time. Two that write the same bytes at the same time leave some
/// of either, as two plain writes do.
pub struct MappedFile {
    pub(crate) raw: Box<dyn RawMap>,
}

impl MappedFile {
    /// Copies `bytes` to `offset`. Panics if the range is outside of the mapping.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.raw.write(offset, bytes);
    }

    /// Some of it, to put a record together in place. Panics if the range is outside of the mapping.
    #[inline]
    pub fn range(&mut self, range: Range<usize>) -> MapRange<'_> {
        self.raw.range(range)
    }

    /// Copies the bytes at `offset` out. Panics if the range is outside of the mapping.
    pub fn read(&self, offset: usize, buf: &mut [u8]) {
        self.raw.read(offset, buf);
    }
}

/// A part of a [`MappedFile`], to be written.
pub struct MapRange<'a> {
    ptr: NonNull<u8>,
    len: usize,
    _map: PhantomData<&'a mut MappedFile>,
}

impl MapRange<'_> {
    /// # Safety
    /// `len` bytes at `ptr` are mapped and writable for the lifetime, no reference to any of them exists, and this
    /// process stores to these addresses only through this value.
    pub(crate) unsafe fn new<'a>(ptr: NonNull<u8>, len: usize) -> MapRange<'a> {
        MapRange { ptr, len, _map: PhantomData }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where `len` bytes at `at` are.
    #[inline]
    fn place(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of a range of {}", self.len);
        // SAFETY: within the range, as just checked.
        unsafe { self.ptr.add(at).as_ptr() }
    }

    /// Copies `bytes` to `at` of the range. Panics if they do not fit.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let to = self.place(at, bytes.len());
        // SAFETY: `place` has checked that they fit; `bytes` is not part of the mapping, of which no references exist.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Sets `len` bytes at `at` of the range to `byte`. Panics if they are not all in it.
    #[inline]
    pub fn fill(&mut self, at: usize, len: usize, byte: u8) {
        let to = self.place(at, len);
        // SAFETY: `place` has checked the range.
        unsafe { std::ptr::write_bytes(to, byte, len) };
    }
}
