//! [`Window`]: a piece of a segment, read for replay.

use engineswap::File;
use engineswap::mem::AlignedBuf;

use crate::error::Result;
use crate::purpose::RECOVERY;

/// Bytes that are read at once, unless a frame needs more. Enough to be mapped, so that the last window's memory is
/// given back and does not stay with the heap.
const WINDOW: usize = 1 << 20;

/// What was read last.
#[derive(Default)]
pub(super) struct Window {
    buf: Option<AlignedBuf>,
    start: u64,
    len: usize,
}

impl Window {
    /// The bytes from `offset` on: at least `min` of them, or fewer if the file has fewer. `left` is how many it
    /// should have from there on.
    pub fn read(&mut self, file: &File, offset: u64, min: usize, left: u64) -> Result<&[u8]> {
        let end = self.start + self.len as u64;
        if offset < self.start || offset + min as u64 > end {
            let n = left.min(min.max(WINDOW) as u64) as usize;
            let buf = match self.buf.take() {
                // Not for long one that a large frame needed.
                Some(buf) if (n..=n.max(2 * WINDOW)).contains(&buf.len()) => self.buf.insert(buf),
                _ => self.buf.insert(AlignedBuf::zeroed(n.max(WINDOW))),
            };
            (self.start, self.len) = (offset, 0);
            self.len = file.read_at(&mut buf[..n], offset, RECOVERY)?;
        }
        let bytes = self.buf.as_deref().and_then(|buf| buf.get((offset - self.start) as usize..self.len));
        Ok(bytes.unwrap_or_default())
    }
}
