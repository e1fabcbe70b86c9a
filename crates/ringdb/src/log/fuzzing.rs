//! Segments of the log from any bytes, and their replay.
//!
//! Input: `u8 flags, u8 first segment, u8 flushed sequence number`, then up to 6 segments
//! `u8 number - previous, u8 how, u16 length, bytes from the first frame on`.

use std::path::Path;

use engineswap::Io;

use super::frame::{FIRST_FRAME, FrameHeader, HEADER_BYTES, PACKED, PAGED, footprint, header_crc};
use super::payload::decode;
use super::segment::encode_header;
use super::segment::segment_path;
use super::{ReplayFrom, replay};
use crate::coding::crc32c;
use crate::fuzz_input::{Input, put_chunk, write_file};
use crate::key::Seq;

/// How a segment is made: its checksums are left as they are.
const RAW: u8 = 1;
/// It has no header.
const NO_HEADER: u8 = 2;
/// It has the header of another segment.
const FOREIGN: u8 = 4;
/// A frame with this in its last spare byte is left as it is: torn.
const TORN: u8 = 0xFF;

const MAX_SEGMENTS: usize = 6;

/// Puts right the checksums of the frames in `body`, which lies behind the header of segment `number`: lengths
/// that leave it are cut, kinds and alignments made valid. Ends at the first 32 zero bytes.
pub fn seal(body: &mut [u8], number: u64) {
    let mut at = 0;
    while let Some(h) = body.get(at..at + HEADER_BYTES).filter(|h| h.iter().any(|b| *b != 0)) {
        let mut h: [u8; HEADER_BYTES] = h.try_into().expect("its length");
        let room = body.len() - at - HEADER_BYTES;
        let len = (u32::from_le_bytes([h[8], h[9], h[10], h[11]]) as usize).min(room);
        let align = if h[13] == PAGED { PAGED } else { PACKED };
        if h[15] != TORN {
            let payload = &body[at + HEADER_BYTES..at + HEADER_BYTES + len];
            h[4..8].copy_from_slice(&crc32c(0, payload).to_le_bytes());
            h[8..12].copy_from_slice(&(len as u32).to_le_bytes());
            h[12] = if h[12] == 1 { 1 } else { 2 };
            (h[13], h[14], h[15]) = (align, 0, 0);
            let crc = header_crc(&h, number, FIRST_FRAME + at as u64);
            h[..4].copy_from_slice(&crc.to_le_bytes());
            body[at..at + HEADER_BYTES].copy_from_slice(&h);
            assert!(FrameHeader::decode(&h, number, FIRST_FRAME + at as u64).is_some());
        }
        at += footprint(len as u64, align) as usize;
    }
}

/// The file of segment `number` with these bytes from the first frame on, their checksums put right.
pub(crate) fn file(number: u64, mut body: Vec<u8>) -> Vec<u8> {
    seal(&mut body, number);
    let mut file = vec![0; FIRST_FRAME as usize];
    let h = encode_header(number, 1 << 20, false, None);
    file[..h.len()].copy_from_slice(&h);
    file.extend_from_slice(&body);
    file
}

/// The input that [`run`] makes these segments (number, bytes) of.
pub fn describe(first_segment: u64, flushed: Seq, segments: &[(u64, &[u8])]) -> Vec<u8> {
    let mut out = vec![0, first_segment as u8, flushed as u8];
    let mut last = 0;
    for (number, bytes) in segments.iter().take(MAX_SEGMENTS) {
        let body = bytes.get(FIRST_FRAME as usize..).unwrap_or_default();
        let end = body.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
        out.extend([(number - last) as u8, 0]);
        put_chunk(&mut out, &body[..end.next_multiple_of(8).min(body.len())]);
        last = *number;
    }
    out
}

/// Makes the segments in `dir` and replays them, with and without regard to damage.
pub fn run(io: &Io, dir: &Path, data: &[u8]) {
    let mut input = Input::new(data);
    let (flags, first, flushed) = (input.u8(), input.u8(), input.u8());
    let (mut segments, mut number, mut total) = (Vec::new(), 0, 0);
    while !input.is_empty() && segments.len() < MAX_SEGMENTS {
        number += u64::from(input.u8()).max(1);
        let how = input.u8();
        let mut body = input.chunk().to_vec();
        if how & RAW == 0 {
            seal(&mut body, number);
        }
        let mut file = vec![0; FIRST_FRAME as usize];
        let of = if how & FOREIGN == 0 { number } else { number + 1 };
        if how & NO_HEADER == 0 {
            let h = encode_header(of, 1 << 20, false, None);
            file[..h.len()].copy_from_slice(&h);
        }
        file.extend_from_slice(&body);
        total += body.len();
        write_file(io, &segment_path(dir, number), &file);
        segments.push(number);
    }
    if flags & 1 != 0 {
        segments.reverse();
    }
    let frames = |recover_damaged| {
        let from = ReplayFrom {
            first_segment: first.into(),
            flushed_seq: flushed.into(),
            recover_damaged,
            ..ReplayFrom::default()
        };
        let mut seen: Vec<(Seq, Vec<u8>)> = Vec::new();
        let end = replay(io, dir, &segments, &from, &mut |seq, payload| {
            for op in decode(payload) {
                let _ = std::hint::black_box(op);
            }
            seen.push((seq, payload.to_vec()));
            Ok(())
        });
        (seen, end)
    };
    let (seen, end) = frames(false);
    let mut last = flushed.into();
    for (seq, _) in &seen {
        assert!(*seq > last, "{seq} follows {last}");
        last = *seq;
    }
    assert!(seen.iter().map(|(_, p)| p.len()).sum::<usize>() <= total, "more than there is");
    let (anyway, lost) = frames(true);
    assert_eq!(seen, anyway, "damage changes what precedes it");
    match (end, lost) {
        (Ok(end), Ok(same)) => {
            assert!(end.lost.is_none() && same.lost.is_none());
            assert_eq!((end.frames, end.end), (seen.len() as u64, same.end));
        }
        (Err(_), Ok(lost)) => assert!(lost.lost.is_some(), "damage is reported"),
        (_, Err(e)) => assert!(e.kind() == crate::ErrorKind::FixCall, "only a newer format stops it: {e}"),
    }
}
