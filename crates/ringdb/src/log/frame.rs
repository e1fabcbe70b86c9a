//! Frames: a header bound to its place, and a payload.
//!
//! The header has a checksum of its own, which covers the segment's number and the frame's offset besides the
//! header's fields, the payload's checksum among them. So a frame is believed only at the place and in the
//! life of the segment that it was written for, and a length is believed before the payload is looked at.

use engineswap::MapRange;

use crate::coding::crc32c;
use crate::mutation::{Mutation, broken};
use crate::seal::Stamp;

/// Longest payload of one frame in bytes.
pub(crate) const MAX_PAYLOAD_BYTES: u64 = u32::MAX as u64 - (1 << 20);

/// A position in the log: just behind a frame. Positions are ordered as the frames were appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub(crate) struct LogPos {
    /// Number of the segment.
    pub segment: u64,
    /// Offset in it.
    pub offset: u64,
}

/// Bytes of a frame's header.
pub(super) const HEADER_BYTES: usize = 32;
/// Frames of a segment begin here; the segment's header lies before.
pub(super) const FIRST_FRAME: u64 = 4096;
/// Every frame begins at a multiple of this, in all media.
pub(super) const MIN_ALIGN: u64 = 8;
/// log2 of the alignment of mapped and `pwrite` frames.
pub(super) const PACKED: u8 = 3;
/// log2 of the alignment of direct frames.
pub(super) const PAGED: u8 = 12;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameKind {
    /// The segment's first frame: which segment precedes it and where that one ends.
    Link = 1,
    /// Writes.
    Batch = 2,
    /// The same, sealed: with what, the segment's link says, and its header.
    Sealed = 3,
}

impl FrameKind {
    /// Whether it holds writes.
    pub fn is_batch(self) -> bool {
        matches!(self, FrameKind::Batch | FrameKind::Sealed)
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub payload_crc: u32,
    pub payload_len: u32,
    pub kind: FrameKind,
    /// log2 of what the next frame's offset is rounded up to.
    pub align: u8,
    pub first_seq: u64,
    /// Everything before this position was durable when the frame was made; the default says nothing.
    pub durable: LogPos,
}

impl FrameHeader {
    /// The header as it lies at `offset` of segment `number`.
    #[inline]
    pub fn encode(&self, number: u64, offset: u64) -> [u8; HEADER_BYTES] {
        let (back, durable_offset) = match u32::try_from(number.wrapping_sub(self.durable.segment)) {
            Ok(back) if self.durable != LogPos::default() => (back, self.durable.offset as u32),
            _ => (u32::MAX, 0),
        };
        let mut h = [0; HEADER_BYTES];
        h[4..8].copy_from_slice(&self.payload_crc.to_le_bytes());
        h[8..12].copy_from_slice(&self.payload_len.to_le_bytes());
        h[12] = self.kind as u8;
        h[13] = self.align;
        h[16..24].copy_from_slice(&self.first_seq.to_le_bytes());
        h[24..28].copy_from_slice(&back.to_le_bytes());
        h[28..32].copy_from_slice(&durable_offset.to_le_bytes());
        let crc = header_crc(&h, number, offset);
        h[..4].copy_from_slice(&crc.to_le_bytes());
        h
    }

    /// The header at the front of `bytes`, if one was written at `offset` of segment `number`.
    #[inline]
    pub fn decode(bytes: &[u8], number: u64, offset: u64) -> Option<FrameHeader> {
        let h = bytes.first_chunk::<HEADER_BYTES>()?;
        // Cheap tests first: a scan for frames asks here at every multiple of 8.
        let kind = match h[12] {
            1 => FrameKind::Link,
            2 => FrameKind::Batch,
            3 => FrameKind::Sealed,
            _ => return None,
        };
        let align = h[13];
        if h[14] != 0 || h[15] != 0 || (align != PACKED && align != PAGED) {
            return None;
        }
        let u32_at = |i: usize| u32::from_le_bytes([h[i], h[i + 1], h[i + 2], h[i + 3]]);
        if u32_at(0) != header_crc(h, number, offset) {
            return None;
        }
        let back = u32_at(24);
        let durable = match number.checked_sub(back as u64) {
            Some(segment) if back != u32::MAX => LogPos { segment, offset: u32_at(28) as u64 },
            _ => LogPos::default(),
        };
        Some(FrameHeader {
            payload_crc: u32_at(4),
            payload_len: u32_at(8),
            kind,
            align,
            first_seq: u32_at(16) as u64 | (u32_at(20) as u64) << 32,
            durable,
        })
    }

    /// Where the next frame begins when this one begins at `offset`.
    #[inline]
    pub fn next_offset(&self, offset: u64) -> u64 {
        offset + footprint(self.payload_len as u64, self.align)
    }
}

/// Bytes that a frame takes, padding included.
#[inline]
pub(super) fn footprint(payload_len: u64, align: u8) -> u64 {
    (HEADER_BYTES as u64 + payload_len).next_multiple_of(1 << align)
}

#[inline]
pub(super) fn header_crc(h: &[u8; HEADER_BYTES], number: u64, offset: u64) -> u32 {
    let mut b = [0; 16 + HEADER_BYTES - 4];
    if !broken(Mutation::TrustRecycledFrame) {
        b[..8].copy_from_slice(&number.to_le_bytes());
        b[8..16].copy_from_slice(&offset.to_le_bytes());
    }
    b[16..].copy_from_slice(&h[4..]);
    crc32c(0, &b)
}

/// Where a frame goes and what its header says.
#[derive(Clone, Copy)]
pub(super) struct FrameAddress {
    pub number: u64,
    pub offset: u64,
    pub align: u8,
    pub durable: LogPos,
}

/// Where a frame is built.
pub(super) trait Target {
    fn write(&mut self, at: usize, bytes: &[u8]);
    fn zero(&mut self, at: usize, len: usize);
}

impl Target for [u8] {
    #[inline]
    fn write(&mut self, at: usize, bytes: &[u8]) {
        self[at..at + bytes.len()].copy_from_slice(bytes);
    }

    #[inline]
    fn zero(&mut self, at: usize, len: usize) {
        self[at..at + len].fill(0);
    }
}

impl Target for MapRange<'_> {
    #[inline]
    fn write(&mut self, at: usize, bytes: &[u8]) {
        MapRange::write(self, at, bytes);
    }

    #[inline]
    fn zero(&mut self, at: usize, len: usize) {
        self.fill(at, len, 0);
    }
}

/// Builds a frame at the front of `out`, which has its whole footprint: the payload first, then the padding
/// (zeros), the header last.
#[inline]
pub(super) fn build(
    out: &mut (impl Target + ?Sized),
    place: &FrameAddress,
    kind: FrameKind,
    first_seq: u64,
    parts: &[&[u8]],
) {
    let mut at = HEADER_BYTES;
    let mut payload_crc = 0;
    for part in parts {
        out.write(at, part);
        payload_crc = crc32c(payload_crc, part);
        at += part.len();
    }
    let payload_len = (at - HEADER_BYTES) as u32;
    let end = footprint(payload_len as u64, place.align) as usize;
    out.zero(at, end - at);
    let h =
        FrameHeader { payload_crc, payload_len, kind, align: place.align, first_seq, durable: place.durable };
    out.write(0, &h.encode(place.number, place.offset));
}

/// The header of the frame that [`build`] would build: for one that is written in pieces.
pub(super) fn header(
    place: &FrameAddress,
    kind: FrameKind,
    first_seq: u64,
    parts: &[&[u8]],
) -> [u8; HEADER_BYTES] {
    let payload_crc = parts.iter().fold(0, |crc, part| crc32c(crc, part));
    let payload_len = parts.iter().map(|p| p.len()).sum::<usize>() as u32;
    let h =
        FrameHeader { payload_crc, payload_len, kind, align: place.align, first_seq, durable: place.durable };
    h.encode(place.number, place.offset)
}

/// The payload of a [`FrameKind::Link`] frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Where the preceding segment ends; the default in the first segment of a log.
    pub prev: LogPos,
    /// Whether the preceding segment's name was durable by then, so that a missing file is damage.
    pub prev_named: bool,
    /// What the segment's batches are sealed with.
    pub stamp: Option<Stamp>,
}

impl Link {
    const PLAIN_BYTES: usize = 17;

    /// Bytes of its payload.
    pub fn len(&self) -> usize {
        Link::PLAIN_BYTES + if self.stamp.is_some() { Stamp::BYTES } else { 0 }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut b = Vec::with_capacity(self.len());
        b.extend_from_slice(&self.prev.segment.to_le_bytes());
        b.extend_from_slice(&self.prev.offset.to_le_bytes());
        b.push(self.prev_named as u8);
        if self.stamp.is_some() {
            b.extend_from_slice(&Stamp::encode(self.stamp.as_ref()));
        }
        b
    }

    pub fn decode(b: &[u8]) -> Option<Link> {
        let (segment, rest) = b.split_first_chunk::<8>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let (named, rest) = rest.split_first()?;
        let stamp = match rest {
            [] => None,
            rest => Some(Stamp::decode(rest.try_into().ok()?)?),
        };
        let prev = LogPos { segment: u64::from_le_bytes(*segment), offset: u64::from_le_bytes(*offset) };
        Some(Link { prev, prev_named: *named == 1, stamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_believed_only_at_its_place() {
        let durable = LogPos { segment: 7, offset: 4096 };
        let h = FrameHeader {
            payload_crc: 5,
            payload_len: 130,
            kind: FrameKind::Batch,
            align: PACKED,
            first_seq: 1 << 40,
            durable,
        };
        let b = h.encode(9, 8192);
        assert_eq!(FrameHeader::decode(&b, 9, 8192), Some(h));
        assert_eq!(FrameHeader::decode(&b, 8, 8192), None);
        assert_eq!(FrameHeader::decode(&b, 9, 8200), None);
        for i in 0..HEADER_BYTES * 8 {
            let mut c = b;
            c[i / 8] ^= 1 << (i % 8);
            assert_eq!(FrameHeader::decode(&c, 9, 8192), None, "bit {i}");
        }
        assert_eq!(FrameHeader::decode(&b[..31], 9, 8192), None);
        let unknown = FrameHeader { durable: LogPos::default(), ..h };
        assert_eq!(FrameHeader::decode(&unknown.encode(9, 0), 9, 0), Some(unknown));
    }

    #[test]
    fn links_read_back() {
        for stamp in [None, Some(Stamp { key: 1, salt: [5; 16] })] {
            for prev_named in [false, true] {
                let l = Link { prev: LogPos { segment: 3, offset: 77 }, prev_named, stamp };
                let bytes = l.encode();
                assert_eq!((Link::decode(&bytes), bytes.len()), (Some(l), l.len()));
                assert_eq!(Link::decode(&bytes[..bytes.len() - 1]), None);
            }
        }
        assert_eq!(Link::decode(&[0; 16]), None);
    }
}
