//! [`Output`]: a file written once from start to end.
//!
//! In large writes of which several are in flight; where no queue is to be had (descriptors, memory), one after the
//! other. A table that is read past the page cache is written past it. One that is read through the page cache is
//! written through it: whoever looks for a key right after a compaction finds the blocks in memory, as before it. Its
//! write-back begins at once, so that there is little left for the sync at the end.

use std::path::Path;

use engineswap::mem::AlignedBuf;
use engineswap::{Buf, ErrorKind, File, Io, Op, OpenHow, Purpose, Queue};

use super::block::BLOCK_UNIT;
use super::reads::{Reads, open_direct};
use super::writer::TableOptions;
use crate::error::Result;
use crate::mutation::{Mutation, broken};

/// Bytes of one write.
pub(super) const WRITE_BYTES: usize = 512 << 10;
/// Writes in flight at most.
const IN_FLIGHT: usize = 6;
/// Bytes of buffers that are of use; fewer than for two writes will not do.
pub(super) const MOST_BUFFER_BYTES: u64 = (WRITE_BYTES * (IN_FLIGHT + 1)) as u64;
/// Space reserved at a time when the expected size is exceeded.
const GROW_BYTES: u64 = 16 << 20;

/// A file being written.
pub(super) struct Output {
    file: File,
    /// Whether it goes through the page cache.
    buffered: bool,
    /// For writes, and for the sync at the end.
    queue: Option<Queue>,
    most_in_flight: usize,
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
    /// Makes the file (an error if it exists) and reserves the expected bytes. Takes about `buffer_bytes` of memory.
    pub fn create(io: &Io, path: &Path, options: &TableOptions) -> Result<Output> {
        let most_in_flight = (options.buffer_bytes as usize / WRITE_BYTES).clamp(2, IN_FLIGHT + 1) - 1;
        let file = match options.reads {
            Reads::PageCache => io.open(path, &OpenHow::create_new())?,
            Reads::Direct => open_direct(io, path, &OpenHow::create_new())?,
        };
        let mut out = Output {
            buffered: options.reads == Reads::PageCache,
            queue: io.queue(most_in_flight as u32).ok(),
            file,
            most_in_flight,
            purpose: options.purpose,
            buf: AlignedBuf::zeroed(WRITE_BYTES),
            used: 0,
            offset: 0,
            spare: Vec::new(),
            reserved: Some(0),
        };
        out.reserve(options.expected_bytes.next_multiple_of(BLOCK_UNIT as u64))?;
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
        let (at, len) = (self.offset, std::mem::take(&mut self.used));
        self.offset += len as u64;
        if self.reserved.is_some_and(|r| r < self.offset) {
            self.reserve(self.offset.max(at + GROW_BYTES))?;
        }
        if self.queue.is_none() {
            return Ok(self.file.write_all_at(&self.buf[..len], at, self.purpose)?);
        }
        while self.in_flight() >= self.most_in_flight {
            self.reap(1)?;
        }
        let next = match self.spare.pop() {
            Some(b) => b,
            None => AlignedBuf::zeroed(WRITE_BYTES),
        };
        let full = std::mem::replace(&mut self.buf, next);
        let mut op = Op::write(&self.file, at, len as u64, Buf::Aligned(full), self.purpose).user(at);
        while let Some(queue) = &mut self.queue {
            match queue.push(op) {
                Ok(()) => {
                    queue.submit()?;
                    break;
                }
                Err(back) => op = back,
            }
            self.reap(1)?;
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.queue.as_ref().map_or(0, Queue::in_flight)
    }

    fn reap(&mut self, min: usize) -> Result<()> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        queue.wait(min)?;
        while let Some(done) = queue.pop() {
            let at = done.user;
            // All are of one length but the last, which ends where the file does.
            let len = (self.offset - at).min(WRITE_BYTES as u64);
            if let Buf::Aligned(b) = done.full(len, "write").map_err(|e| e.at(self.file.path()))? {
                self.spare.push(b);
            }
            if self.buffered && !broken(Mutation::SkipTableSync) {
                self.file.start_write_back(at, len, false, self.purpose)?;
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
        while self.in_flight() > 0 {
            self.reap(self.in_flight())?;
        }
        if self.reserved != Some(len) {
            self.file.set_len(len)?;
        }
        if broken(Mutation::SkipTableSync) {
            return Ok(Syncing { queue: self.queue });
        }
        // The queue is empty: it takes one operation.
        let pushed = self.queue.as_mut().map(|q| q.push(Op::sync_data(&self.file, self.purpose)).map(|()| q));
        match pushed {
            Some(Ok(queue)) => queue.submit()?,
            _ => self.file.sync_data(self.purpose)?,
        }
        Ok(Syncing { queue: self.queue })
    }
}

/// A finished file on its way to the device.
pub(super) struct Syncing {
    queue: Option<Queue>,
}

impl Syncing {
    /// Waits until the file's data and length are durable.
    pub fn wait(self) -> Result<()> {
        let Some(mut queue) = self.queue else { return Ok(()) };
        while queue.in_flight() > 0 {
            queue.wait(1)?;
            while let Some(done) = queue.pop() {
                done.result?;
            }
        }
        Ok(())
    }
}
