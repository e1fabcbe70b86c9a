//! Durable commits in a pipeline: several frames are written at once, their turns come one by one.

use crate::sync::atomic::Ordering;
use std::sync::Arc;

use engineswap::mem::AlignedBuf;

use super::segment::Segment;
use super::{Log, LogPos};
use crate::error::{Error, Result};
use crate::mutation::{Mutation, broken};
use crate::purpose::LOG;
use crate::sync::{Condvar, Mutex, lock, wait};

/// Waiters by ticket, so that passing the turn on wakes one thread and not all.
const SLOTS: usize = 32;
/// Buffers kept, and the largest of them.
const KEEP_BUFFERS: usize = 16;
const KEEP_BUFFER_BYTES: usize = 256 << 10;

/// A frame with its place in the log, to be written by [`Log::write`]. Dropping it unwritten stops the log,
/// since the frames behind it could never be acknowledged.
#[must_use]
pub(crate) struct Reserved {
    pub(super) log: Arc<Log>,
    pub(super) segment: Arc<Segment>,
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) buf: Option<AlignedBuf>,
    pub(super) ticket: u64,
    pub(super) pos: LogPos,
}

impl Reserved {
    /// Where the frame will end.
    pub fn end(&self) -> LogPos {
        self.pos
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.buf.take().is_some() {
            self.log.latch.stop("a reserved frame was given up");
            self.log.turns.fail(self.ticket);
        }
    }
}

/// The right to apply and publish one frame: it and every frame before are durable, and every earlier turn is
/// over. The next frame's turn begins when this is dropped.
#[must_use]
pub(crate) struct Turn<'a> {
    log: &'a Log,
    ticket: u64,
    pos: LogPos,
}

impl Turn<'_> {
    /// Where the frame ends.
    pub fn pos(&self) -> LogPos {
        self.pos
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What should have been applied may not have been: nothing may be published behind it.
            self.log.latch.stop("a thread panicked while it applied a write");
            self.log.turns.fail(self.ticket);
        } else {
            self.log.turns.pass(self.ticket);
        }
    }
}

pub(super) struct Turnstile {
    state: Mutex<State>,
    slots: [Condvar; SLOTS],
}

struct State {
    /// Whose turn it is.
    next: u64,
    /// The first ticket whose frame did not reach the device: it and all later ones fail.
    failed: u64,
}

impl Default for Turnstile {
    fn default() -> Turnstile {
        let state = Mutex::new(State { next: 0, failed: u64::MAX });
        Turnstile { state, slots: std::array::from_fn(|_| Condvar::new()) }
    }
}

impl Turnstile {
    fn slot(&self, ticket: u64) -> &Condvar {
        &self.slots[(ticket % SLOTS as u64) as usize]
    }

    /// Waits for a ticket's turn; false if it will never come.
    fn wait(&self, ticket: u64) -> bool {
        let mut s = lock(&self.state);
        while s.next != ticket && s.failed > ticket {
            s = wait(self.slot(ticket), s, &self.state);
        }
        s.failed > ticket
    }

    fn pass(&self, ticket: u64) {
        let mut s = lock(&self.state);
        s.next = ticket + 1;
        self.slot(ticket + 1).notify_all();
    }

    fn fail(&self, ticket: u64) {
        let mut s = lock(&self.state);
        s.failed = s.failed.min(ticket);
        self.slots.iter().for_each(Condvar::notify_all);
    }
}

impl Log {
    /// Writes a reserved frame to the device and waits for its turn. Several threads may be in here at once;
    /// call it without the writer's lock. Frames before a failed one still get their turn, later ones fail.
    pub fn write(&self, mut frame: Reserved) -> Result<Turn<'_>> {
        let Some(buf) = frame.buf.take() else { return Err(Error::Invalid("an empty reservation".into())) };
        let (ticket, pos) = (frame.ticket, frame.pos);
        let written = self.write_frame(&frame, &buf[..frame.len]);
        self.keep_buffer(buf);
        if let Err(e) = written {
            self.latch.stop(format!("the log could not be written: {e}"));
            self.turns.fail(ticket);
            return Err(e);
        }
        if !self.turns.wait(ticket) {
            return Err(self.latch.stop("a frame before this one could not be written"));
        }
        self.sync.set_durable(pos);
        Ok(Turn { log: self, ticket, pos })
    }

    fn write_frame(&self, frame: &Reserved, bytes: &[u8]) -> Result<()> {
        let segment = &frame.segment;
        let at_path = |e: engineswap::Error| Error::from(e.at(&segment.path));
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if broken(Mutation::AcknowledgeBeforeSync) {
            return Ok(segment.file.write_all_at(bytes, frame.offset, LOG)?);
        }
        let written = segment.file.write_all_at_dsync(bytes, frame.offset, LOG).map_err(at_path);
        if !broken(Mutation::IgnoreFailedSync) {
            written?;
        }
        if !segment.is_named() {
            // Made in a hurry, by the writer: its extents and its name are not durable yet.
            segment.file.sync_data(LOG).map_err(at_path)?;
            self.name_segments(std::slice::from_ref(segment))?;
        }
        Ok(())
    }

    pub(super) fn take_buffer(&self, len: usize) -> AlignedBuf {
        let mut buffers = lock(&self.buffers);
        match buffers.iter().rposition(|b| b.len() >= len) {
            Some(i) => buffers.swap_remove(i),
            None => {
                drop(buffers);
                AlignedBuf::zeroed(len.max(16 << 10))
            }
        }
    }

    fn keep_buffer(&self, buf: AlignedBuf) {
        let mut buffers = lock(&self.buffers);
        if buf.len() <= KEEP_BUFFER_BYTES && buffers.len() < KEEP_BUFFERS {
            buffers.push(buf);
        }
    }
}
