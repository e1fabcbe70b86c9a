//! [`LogWriter`]: the one that appends.

use crate::sync::atomic::Ordering;
use std::sync::Arc;

use engineswap::MappedFile;

use super::frame::{self, FIRST_FRAME, FrameAddress, FrameKind, Link, PACKED, PAGED};
use super::segment::Segment;
use super::turn::Reserved;
use super::{Log, LogPos, MAX_PAYLOAD_BYTES, Medium};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Seq;
use crate::purpose::LOG;
use crate::seal::{Seal, Stamp, TAG_BYTES, Unit};
use crate::sync::lock;

/// Frames longer than this are written in pieces where they are not mapped.
const STREAM_BYTES: usize = 1 << 20;

/// Appends frames, one at a time: it lives under the writer's lock.
pub(crate) struct LogWriter {
    log: Arc<Log>,
    segment: Arc<Segment>,
    /// The active segment's mapping; without one, frames are written by `pwrite`.
    map: Option<MappedFile>,
    /// Where the next frame goes.
    offset: u64,
    /// Where the preceding segment ended, for the active segment's link; `None` once that is written.
    link: Option<Link>,
    align: u8,
    /// What was durable when last asked, and when that was.
    durable: LogPos,
    seen: u64,
    next_ticket: u64,
    scratch: Vec<u8>,
    seal: Option<Arc<Seal>>,
    /// The payload of the frame that is made, sealed.
    sealed: Vec<u8>,
}

impl LogWriter {
    pub(super) fn new(log: &Arc<Log>) -> Result<LogWriter> {
        let segment = log.next_segment(0, 0)?;
        log.settle(&segment)?;
        let map = lock(&segment.map).take();
        Ok(LogWriter {
            log: log.clone(),
            segment,
            map,
            offset: FIRST_FRAME,
            link: Some(Link { prev: LogPos::default(), prev_named: false, stamp: stamp_of(log) }),
            align: if log.options.medium == Medium::Direct { PAGED } else { PACKED },
            durable: LogPos::default(),
            seen: 0,
            next_ticket: 0,
            scratch: vec![],
            seal: log.seal.clone(),
            sealed: vec![],
        })
    }

    /// The segment that the next frame goes to, or one before it. What is appended from now on lies in segments
    /// of this number and above: a memtable that begins now needs no older ones.
    pub fn segment(&self) -> u64 {
        self.segment.number
    }

    /// Moves on to a segment of the usual size if the active one was made for a frame that did not fit one: it is
    /// not written to any more, so it can go as soon as what is in it is flushed.
    pub fn leave_oversized(&mut self) -> Result<()> {
        if self.segment.size <= self.log.segment_bytes() {
            return Ok(());
        }
        self.log.latch.check()?;
        self.next_segment(self.link_footprint())
    }

    /// Appends a frame whose payload is the concatenation of `parts` (not empty in sum) and returns where it
    /// ends. It survives the process from here on; [`Log::sync_to`] makes it durable. On the direct medium it
    /// is durable at once, which waits for the device: prefer [`LogWriter::reserve`] there.
    ///
    /// [`Error::Io`] of kind [`ErrorKind::Retry`]: no segment could be made, or the file took only a part of the frame,
    /// which is written again in the same place by the next call. Nothing was appended. Other I/O errors stop the log.
    #[inline]
    pub fn append(&mut self, first_seq: Seq, parts: &[&[u8]]) -> Result<LogPos> {
        if self.align == PAGED {
            let frame = self.reserve(first_seq, parts)?;
            let log = self.log.clone();
            return Ok(log.write(frame)?.pos());
        }
        if self.seal.is_some() {
            return self.append_sealed(first_seq, parts);
        }
        let place = self.place(total(parts))?;
        self.append_at(&place, FrameKind::Batch, first_seq, parts)
    }

    #[cold]
    fn append_sealed(&mut self, first_seq: Seq, parts: &[&[u8]]) -> Result<LogPos> {
        let place = self.place(total(parts) + TAG_BYTES as u64)?;
        let sealed = self.seal_payload(place.offset, first_seq, parts);
        let end = self.append_at(&place, FrameKind::Sealed, first_seq, &[&sealed]);
        self.keep_sealed(sealed);
        end
    }

    /// The payload of the frame that goes to `offset` of the active segment, sealed. Never in place: of a mapping the
    /// kernel may write back what is there at any moment.
    fn seal_payload(&mut self, offset: u64, first_seq: Seq, parts: &[&[u8]]) -> Vec<u8> {
        let mut sealed = std::mem::take(&mut self.sealed);
        sealed.clear();
        sealed.reserve_exact(total(parts) as usize + TAG_BYTES);
        parts.iter().for_each(|part| sealed.extend_from_slice(part));
        if let Some(seal) = &self.seal {
            let unit = Unit::Frame { segment: self.segment.number, offset };
            seal.close_vec(unit, &first_seq.to_le_bytes(), &mut sealed, 0);
        }
        sealed
    }

    fn keep_sealed(&mut self, sealed: Vec<u8>) {
        if sealed.capacity() <= STREAM_BYTES {
            self.sealed = sealed;
        }
    }

    #[inline]
    fn append_at(
        &mut self,
        place: &FrameAddress,
        kind: FrameKind,
        first_seq: Seq,
        parts: &[&[u8]],
    ) -> Result<LogPos> {
        let len = frame::footprint(total(parts), PACKED) as usize;
        match &mut self.map {
            Some(map) => {
                let at = place.offset as usize;
                let mut out = map.range(at..at + len);
                frame::build(&mut out, place, kind, first_seq, parts);
            }
            None if len > STREAM_BYTES => self.write_pieces(place, kind, first_seq, parts)?,
            None => {
                self.build_scratch(len, |out| frame::build(out, place, kind, first_seq, parts));
                self.write_scratch(place.offset)?;
            }
        }
        self.advance(len)
    }

    /// Writes a large frame without a copy of it: the payload from where it is, the header last.
    fn write_pieces(
        &mut self,
        place: &FrameAddress,
        kind: FrameKind,
        first_seq: Seq,
        parts: &[&[u8]],
    ) -> Result<()> {
        let header = frame::header(place, kind, first_seq, parts);
        let mut at = place.offset + frame::HEADER_BYTES as u64;
        for part in parts {
            self.write_bytes(part, at)?;
            at += part.len() as u64;
        }
        let end = place.offset + frame::footprint(total(parts), PACKED);
        self.write_bytes(&[0; 1 << PACKED][..(end - at) as usize], at)?;
        self.write_bytes(&header, place.offset)
    }

    /// Gives a frame its place and copies it, for [`Log::write`]. Frames must be reserved in the order of their
    /// sequence numbers. Only on the direct medium.
    pub fn reserve(&mut self, first_seq: Seq, parts: &[&[u8]]) -> Result<Reserved> {
        if self.align != PAGED {
            return Err(Error::Invalid("frames are reserved on the direct medium only".into()));
        }
        let payload_len = total(parts) + if self.seal.is_some() { TAG_BYTES as u64 } else { 0 };
        let mut place = self.place(payload_len)?;
        // A new segment's link goes to the device together with its first frame.
        let start = place.offset;
        let link = self.link.take();
        let link_len = link.map_or(0, |link| frame::footprint(link.len() as u64, PAGED) as usize);
        let frame_len = frame::footprint(payload_len, PAGED) as usize;
        let mut buf = self.log.take_buffer(link_len + frame_len);
        if let Some(link) = link {
            frame::build(&mut buf[..], &place, FrameKind::Link, 0, &[&link.encode()]);
            place.offset += link_len as u64;
        }
        if self.seal.is_some() {
            let sealed = self.seal_payload(place.offset, first_seq, parts);
            frame::build(&mut buf[link_len..], &place, FrameKind::Sealed, first_seq, &[&sealed]);
            self.keep_sealed(sealed);
        } else {
            frame::build(&mut buf[link_len..], &place, FrameKind::Batch, first_seq, parts);
        }
        let pos = self.advance(link_len + frame_len)?;
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        Ok(Reserved {
            log: self.log.clone(),
            segment: self.segment.clone(),
            offset: start,
            len: link_len + frame_len,
            buf: Some(buf),
            ticket,
            pos,
        })
    }

    /// Bytes that the link of a segment takes.
    #[inline]
    fn link_footprint(&self) -> u64 {
        let link = Link { prev: LogPos::default(), prev_named: false, stamp: stamp_of(&self.log) };
        frame::footprint(link.len() as u64, self.align)
    }

    /// Finds room for a frame with so long a payload; moves on to another segment if the active one has too little.
    #[inline]
    fn place(&mut self, payload: u64) -> Result<FrameAddress> {
        self.log.latch.check()?;
        if payload == 0 || payload > MAX_PAYLOAD_BYTES {
            return Err(Error::Invalid(format!(
                "a batch of {payload} bytes: the log takes 1 to {MAX_PAYLOAD_BYTES}"
            )));
        }
        let need = frame::footprint(payload, self.align);
        let pending = self.link.map_or(0, |link| frame::footprint(link.len() as u64, self.align));
        if self.offset + pending + need > self.segment.size {
            self.next_segment(self.link_footprint() + need)?;
        }
        if let Some(durable) = self.log.sync.durable_since(&mut self.seen) {
            self.durable = durable;
        }
        if self.link.is_some() && self.align == PACKED {
            self.write_link()?;
        }
        Ok(FrameAddress {
            number: self.segment.number,
            offset: self.offset,
            align: self.align,
            durable: self.durable,
        })
    }

    #[cold]
    fn next_segment(&mut self, need: u64) -> Result<()> {
        let next = self.log.next_segment(need, self.segment.number)?;
        // An active segment without a frame (its first one was too large for it) is not part of the chain: its
        // own link is handed on.
        let link = self.link.take().unwrap_or_else(|| Link {
            prev: LogPos { segment: self.segment.number, offset: self.offset },
            prev_named: self.segment.is_named(),
            stamp: stamp_of(&self.log),
        });
        self.link = Some(link);
        // What the former segment's mapping holds is in the page cache all the same; the process's memory is that of
        // the active segment and of those made ready.
        self.map = lock(&next.map).take();
        self.segment = next;
        self.offset = FIRST_FRAME;
        Ok(())
    }

    fn write_link(&mut self) -> Result<()> {
        let Some(link) = self.link else { return Ok(()) };
        let place = FrameAddress {
            number: self.segment.number,
            offset: self.offset,
            align: PACKED,
            durable: self.durable,
        };
        let len = frame::footprint(link.len() as u64, PACKED) as usize;
        self.build_scratch(len, |out| frame::build(out, &place, FrameKind::Link, 0, &[&link.encode()]));
        match &mut self.map {
            Some(map) => map.write(place.offset as usize, &self.scratch),
            None => self.write_scratch(place.offset)?,
        }
        self.link = None;
        self.advance(len)?;
        Ok(())
    }

    fn build_scratch(&mut self, len: usize, build: impl FnOnce(&mut [u8])) {
        self.scratch.resize(len, 0);
        build(&mut self.scratch);
    }

    fn write_scratch(&mut self, offset: u64) -> Result<()> {
        let scratch = std::mem::take(&mut self.scratch);
        let written = self.write_bytes(&scratch, offset);
        if scratch.capacity() <= STREAM_BYTES {
            self.scratch = scratch;
        }
        written
    }

    fn write_bytes(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let written = self.segment.file.write_all_at(bytes, offset, LOG);
        written.map_err(|e| {
            let e = Error::from(e.at(&self.segment.path));
            // Where rewriting a file needs space (copy on write), a full disk refuses this without harm: what there is
            // of the frame does not match its checksum, and nothing is behind it.
            if e.kind() != ErrorKind::Retry {
                self.log.latch.stop(format!("the log could not be written: {e}"));
            }
            e
        })
    }

    #[inline]
    fn advance(&mut self, len: usize) -> Result<LogPos> {
        self.offset += len as u64;
        self.log.written_bytes.fetch_add(len as u64, Ordering::Relaxed);
        Ok(LogPos { segment: self.segment.number, offset: self.offset })
    }
}

fn stamp_of(log: &Log) -> Option<Stamp> {
    log.seal.as_ref().map(|seal| *seal.stamp())
}

#[inline]
fn total(parts: &[&[u8]]) -> u64 {
    parts.iter().map(|p| p.len() as u64).sum()
}
