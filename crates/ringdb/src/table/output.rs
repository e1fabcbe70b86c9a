//! [`Output`]: a file written once from start to end, in large direct writes of which several are in flight.

use std::path::Path;

use engineswap::mem::AlignedBuf;
use engineswap::{Buf, Direct, ErrorKind, File, Io, Op, OpenHow, Purpose, Queue};

use super::block::BLOCK_UNIT;
use crate::error::Result;
use crate::mutation::{Mutation, broken};

/// Bytes of one write.
pub(super) const WRITE_BYTES: usize = 512 << 10;
/// Writes in flight at most.
const IN_FLIGHT: usize = 6;
/// Space reserved at a time when the expected size is exceeded.
const GROW_BYTES: u64 = 16 << 20;

/// A file being written.
pub(super) struct Output {
    file: File,
    queue: Queue,
    purpose: Purpose,
    buf: AlignedBuf,
    used: usize,
    /// Where `buf` goes in the file.
    offset: u64,
    spare: Vec<AlignedBuf>,
    /// Bytes of the file that are reserved; `None` where reserving is not to be had.
    reserved: Option<u64>,
}

impl Output {
    /// Makes the file (an error if it exists) and reserves `expected_bytes`.
    pub fn create(io: &Io, path: &Path, expected_bytes: u64, purpose: Purpose) -> Result<Output> {
        let file = io.open(path, &OpenHow::create_new().direct(Direct::Prefer))?;
        let queue = io.queue(IN_FLIGHT as u32)?;
        let buf = AlignedBuf::zeroed(WRITE_BYTES);
        let mut out =
            Output { file, queue, purpose, buf, used: 0, offset: 0, spare: Vec::new(), reserved: Some(0) };
        out.reserve(expected_bytes.next_multiple_of(BLOCK_UNIT as u64))?;
        Ok(out)
    }

    fn reserve(&mut self, to: u64) -> Result<()> {
        let Some(from) = self.reserved.filter(|&r| r < to) else { return Ok(()) };
        match self.file.allocate(from, to - from) {
            Ok(()) => self.reserved = Some(to),
            // Reserving only saves the file system work.
            Err(e) if e.kind() == ErrorKind::Unsupported => self.reserved = None,
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// Bytes written so far.
    pub fn position(&self) -> u64 {
        self.offset + self.used as u64
    }

    /// The next `len` bytes of the file to be filled in place, if they lie together in the buffer.
    pub fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let start = self.used;
        let room = self.buf.get_mut(start..start + len)?;
        self.used += len;
        Some(room)
    }

    /// Appends bytes.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            self.flush_if_full()?;
            let n = bytes.len().min(self.buf.len() - self.used);
            self.buf[self.used..self.used + n].copy_from_slice(&bytes[..n]);
            self.used += n;
            bytes = &bytes[n..];
        }
        self.flush_if_full()
    }

    /// Appends zeros up to file offset `to`.
    pub fn pad_to(&mut self, to: u64) -> Result<()> {
        while self.position() < to {
            let n = (to - self.position()).min(BLOCK_UNIT as u64) as usize;
            self.write(&[0; BLOCK_UNIT][..n])?;
        }
        Ok(())
    }

    /// Starts the buffer's write when it is full. To be called after [`Output::room`].
    pub fn flush_if_full(&mut self) -> Result<()> {
        if self.used == self.buf.len() { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let end = self.offset + self.used as u64;
        if self.reserved.is_some_and(|r| r < end) {
            self.reserve(end.max(self.offset + GROW_BYTES))?;
        }
        while self.queue.in_flight() >= IN_FLIGHT {
            self.reap(1)?;
        }
        let next = match self.spare.pop() {
            Some(b) => b,
            None => AlignedBuf::zeroed(WRITE_BYTES),
        };
        let full = std::mem::replace(&mut self.buf, next);
        let len = self.used as u64;
        let mut op = Op::write(&self.file, self.offset, len, Buf::Aligned(full), self.purpose).user(len);
        while let Err(back) = self.queue.push(op) {
            op = back;
            self.reap(1)?;
        }
        self.queue.submit()?;
        self.offset = end;
        self.used = 0;
        Ok(())
    }

    fn reap(&mut self, min: usize) -> Result<()> {
        self.queue.wait(min)?;
        while let Some(done) = self.queue.pop() {
            let len = done.user;
            if let Buf::Aligned(b) = done.full(len, "write").map_err(|e| e.at(self.file.path()))? {
                self.spare.push(b);
            }
        }
        Ok(())
    }

    /// Writes what is left, cuts the file to its length and starts its fdatasync. The length is a multiple of
    /// 4096.
    pub fn finish(mut self) -> Result<Syncing> {
        let len = self.position();
        assert!(len.is_multiple_of(BLOCK_UNIT as u64), "the file ends on a block");
        if self.used > 0 {
            self.flush()?;
        }
        while self.queue.in_flight() > 0 {
            self.reap(self.queue.in_flight())?;
        }
        if self.reserved != Some(len) {
            self.file.set_len(len)?;
        }
        if broken(Mutation::SkipTableSync) {
            return Ok(Syncing { queue: self.queue });
        }
        let op = Op::sync_data(&self.file, self.purpose);
        // The queue is empty: it takes one operation.
        if self.queue.push(op).is_err() {
            self.file.sync_data(self.purpose)?;
        }
        self.queue.submit()?;
        Ok(Syncing { queue: self.queue })
    }
}

/// A finished file on its way to the device.
pub(super) struct Syncing {
    queue: Queue,
}

impl Syncing {
    /// Waits until the file's data and length are durable.
    pub fn wait(mut self) -> Result<()> {
        while self.queue.in_flight() > 0 {
            self.queue.wait(1)?;
            while let Some(done) = self.queue.pop() {
                done.result?;
            }
        }
        Ok(())
    }
}
