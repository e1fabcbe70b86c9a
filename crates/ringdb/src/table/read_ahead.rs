//! [`ReadAhead`]: the bytes of a file from one offset on, in order, with several reads in flight;
//! one after the other where no queue is to be had (descriptors, memory).

use std::collections::VecDeque;

use engineswap::mem::AlignedBuf;
use engineswap::{Buf, File, Io, Op, Purpose, Queue};

use super::block::BLOCK_UNIT;
use crate::error::Result;

/// Bytes of one read.
pub(super) const READ_BYTES: u64 = 256 << 10;
/// The same where there is less memory than for two of those.
const SMALL_READ_BYTES: u64 = 64 << 10;
/// Reads in flight at most.
const IN_FLIGHT: u64 = 8;

/// How far to read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    read_bytes: u64,
    in_flight: u64,
}

impl Ahead {
    /// As far as is of use.
    pub const MOST: Ahead = Ahead { read_bytes: READ_BYTES, in_flight: IN_FLIGHT };

    /// With buffers of so many bytes together, but two at least.
    pub fn of_bytes(bytes: u64) -> Ahead {
        let read_bytes = if bytes >= 2 * READ_BYTES { READ_BYTES } else { SMALL_READ_BYTES };
        Ahead { read_bytes, in_flight: (bytes / read_bytes).clamp(2, IN_FLIGHT) }
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> u64 {
        self.read_bytes * self.in_flight
    }
}

struct Chunk {
    /// The tag of its read.
    tag: u64,
    offset: u64,
    len: u64,
    /// There once the read is done.
    buf: Option<AlignedBuf>,
}

/// Reads a file forward. The bytes of the present chunk can be looked at in place.
pub(super) struct ReadAhead {
    file: File,
    queue: Option<Queue>,
    purpose: Purpose,
    how_far: Ahead,
    /// The chunk being looked at, and those after it in file order.
    chunks: VecDeque<Chunk>,
    spare: Vec<AlignedBuf>,
    next_tag: u64,
    next_read: u64,
    end: u64,
}

impl ReadAhead {
    pub fn new(io: &Io, file: File, how_far: Ahead, purpose: Purpose) -> Result<ReadAhead> {
        Ok(ReadAhead {
            file,
            queue: io.queue(how_far.in_flight as u32).ok(),
            purpose,
            how_far,
            chunks: VecDeque::new(),
            spare: Vec::new(),
            next_tag: 0,
            next_read: 0,
            end: 0,
        })
    }

    /// Forgets the present position; from here on, reads `from..to` (and what of the units of 4096 bytes around
    /// it the file has).
    pub fn restart(&mut self, from: u64, to: u64) -> Result<()> {
        while let Some(chunk) = self.chunks.pop_front() {
            self.spare.extend(chunk.buf);
        }
        let unit = BLOCK_UNIT as u64;
        self.next_read = from / unit * unit;
        self.end = to.next_multiple_of(unit);
        self.top_up()
    }

    fn top_up(&mut self) -> Result<()> {
        while self.next_read < self.end && self.in_flight() + self.ready() < self.most() {
            let (offset, tag) = (self.next_read, self.next_tag);
            let len = self.how_far.read_bytes.min(self.end - offset);
            let mut buf = match self.spare.pop() {
                Some(b) => b,
                None => AlignedBuf::zeroed(self.how_far.read_bytes as usize),
            };
            let there = match &mut self.queue {
                Some(queue) => {
                    let op = Op::read(&self.file, offset, len, Buf::Aligned(buf), self.purpose).user(tag);
                    if queue.push(op).is_err() {
                        break;
                    }
                    None
                }
                None => {
                    self.file.read_exact_at(&mut buf[..len as usize], offset, self.purpose)?;
                    Some(buf)
                }
            };
            self.chunks.push_back(Chunk { tag, offset, len, buf: there });
            self.next_tag += 1;
            self.next_read += len;
        }
        Ok(self.queue.as_mut().map_or(Ok(()), Queue::submit)?)
    }

    fn in_flight(&self) -> usize {
        self.queue.as_ref().map_or(0, Queue::in_flight)
    }

    /// Chunks ahead.
    fn most(&self) -> usize {
        if self.queue.is_some() { self.how_far.in_flight as usize } else { 1 }
    }

    fn ready(&self) -> usize {
        self.chunks.iter().filter(|c| c.buf.is_some()).count()
    }

    /// Takes completions; waits for one if none is there and `wait`.
    fn reap(&mut self, wait: bool) -> Result<()> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        if wait {
            queue.wait(1)?;
        }
        while let Some(done) = queue.pop() {
            let first = self.chunks.front().map_or(u64::MAX, |c| c.tag);
            let chunk = done.user.checked_sub(first).and_then(|i| self.chunks.get_mut(i as usize));
            match chunk {
                Some(chunk) => {
                    let result = done.full(chunk.len, "read");
                    let result = result.map_err(|e| e.at(self.file.path()).range(chunk.offset, chunk.len));
                    if let Buf::Aligned(b) = result? {
                        chunk.buf = Some(b);
                    }
                }
                // Asked for before the last restart.
                None => {
                    if let Buf::Aligned(b) = done.buf {
                        self.spare.push(b);
                    }
                }
            }
        }
        Ok(())
    }

    /// Drops chunks that end at or before `offset` and waits for the one that holds it: its offset in the file
    /// and its bytes. Offsets must not go back between restarts. `None` past the end.
    pub fn chunk_at(&mut self, offset: u64) -> Result<Option<(u64, &[u8])>> {
        while self.chunks.front().is_some_and(|c| c.offset + c.len <= offset) {
            self.wait_front()?;
            self.spare.extend(self.chunks.pop_front().and_then(|c| c.buf));
            self.top_up()?;
        }
        while self.chunks.is_empty() && self.next_read < self.end {
            // Reads from before a restart take up the queue.
            self.reap(true)?;
            self.top_up()?;
        }
        self.wait_front()?;
        Ok(self.present().filter(|(at, _)| *at <= offset))
    }

    fn wait_front(&mut self) -> Result<()> {
        while self.chunks.front().is_some_and(|c| c.buf.is_none()) {
            self.reap(true)?;
        }
        Ok(())
    }

    /// The chunk that [`ReadAhead::chunk_at`] gave last.
    #[inline]
    pub fn present(&self) -> Option<(u64, &[u8])> {
        let chunk = self.chunks.front()?;
        Some((chunk.offset, chunk.buf.as_ref()?.get(..chunk.len as usize)?))
    }
}
