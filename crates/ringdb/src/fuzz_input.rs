//! A fuzzer's bytes, taken piece by piece, and files made of them.

use std::path::Path;

use engineswap::{Io, OpenHow, Purpose};

/// Bytes taken from the front, zeros when there are none left: every input means something.
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of `data`.
    pub fn new(data: &'a [u8]) -> Input<'a> {
        Input { rest: data }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// At most `n` bytes.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(n.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let taken = self.take(N);
        out[..taken.len()].copy_from_slice(taken);
        out
    }

    /// One byte.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Bytes that are preceded by their number, as [`put_chunk`] writes them.
    pub fn chunk(&mut self) -> &'a [u8] {
        let n = self.u16();
        self.take(n.into())
    }
}

/// Appends what [`Input::chunk`] takes; what is too long is cut.
pub fn put_chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    let n = bytes.len().min(u16::MAX.into());
    out.extend_from_slice(&(n as u16).to_le_bytes());
    out.extend_from_slice(&bytes[..n]);
}

/// Makes a file.
pub(crate) fn write_file(io: &Io, path: &Path, bytes: &[u8]) {
    let how = OpenHow { truncate: true, ..OpenHow::read_write() };
    let written = io.open(path, &how).and_then(|f| f.write_all_at(bytes, 0, Purpose(0)));
    assert!(written.is_ok(), "{}: {written:?}", path.display());
}
