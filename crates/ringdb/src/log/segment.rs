//! Segment files: made, zero-filled, recycled, and their header.

use crate::sync::atomic::{AtomicBool, Ordering};
use std::path::{Path, PathBuf};

use engineswap::mem::AlignedBuf;
use engineswap::{Direct, File, Io, MappedFile, OpenHow};

use super::frame::FIRST_FRAME;
use super::{FORMAT_VERSION, Medium, segment_path};
use crate::coding::crc32c;
use crate::error::{Error, Result};
use crate::purpose::{LOG, LOG_PREPARE};
use crate::sync::{Mutex, lock};

const MAGIC: [u8; 8] = *b"ringdbLG";
/// Bytes of the header that are used; it has the 4 KiB before the first frame to itself.
pub(super) const SEGMENT_HEADER_BYTES: usize = 36;

/// A segment file that may be written.
pub(super) struct Segment {
    pub number: u64,
    pub path: PathBuf,
    pub size: u64,
    pub file: File,
    /// The mapping while the segment is not the active one.
    pub map: Mutex<Option<MappedFile>>,
    /// Whether the name and the extents of the file are durable.
    named: AtomicBool,
}

impl Segment {
    pub fn is_named(&self) -> bool {
        self.named.load(Ordering::Acquire)
    }

    pub fn set_named(&self) {
        self.named.store(true, Ordering::Release);
    }

    /// The same file as a released segment, with its mapping.
    pub fn reborn(&self, map: Option<MappedFile>) -> Segment {
        Segment {
            number: self.number,
            path: self.path.clone(),
            size: self.size,
            file: self.file.clone(),
            map: Mutex::new(map),
            named: AtomicBool::new(self.is_named()),
        }
    }
}

/// How this log's segments are made.
pub(super) struct Maker<'a> {
    pub io: &'a Io,
    pub dir: &'a Path,
    pub medium: Medium,
    pub segment_bytes: u64,
}

impl Maker<'_> {
    /// A new segment of the usual size, zero-filled and durable with its name.
    pub fn filled(&self, number: u64) -> Result<Segment> {
        let path = segment_path(self.dir, number);
        self.or_remove(&path, || {
            let file = self.open(&path, &OpenHow::create_new())?;
            zero_fill(&file, self.segment_bytes)?;
            let segment = self.finish(number, path.clone(), file, self.segment_bytes)?;
            segment.file.sync_data(LOG_PREPARE)?;
            self.io.sync_dir(self.dir)?;
            segment.set_named();
            Ok(segment)
        })
    }

    /// A new segment of any size, allocated only: quick to make, slower to write durably. Not durable itself.
    pub fn allocated(&self, number: u64, size: u64) -> Result<Segment> {
        let path = segment_path(self.dir, number);
        self.or_remove(&path, || {
            let file = self.open(&path, &OpenHow::create_new())?;
            match file.allocate(0, size) {
                // Without blocks of its own a mapped page could find the disk full, which kills the process.
                Err(e) if e.kind() == engineswap::ErrorKind::Unsupported => zero_fill(&file, size)?,
                r => r?,
            }
            self.finish(number, path.clone(), file, size)
        })
    }

    /// A released segment under a new number. With `durable`, its name is durable when this returns.
    pub fn recycled(&self, old: Segment, number: u64, durable: bool) -> Result<Segment> {
        let path = segment_path(self.dir, number);
        // The name first: were the header first, the file would for a moment be a believable segment `number`
        // under its old name. Old frames are not believed under either.
        self.io.rename(&old.path, &path)?;
        let map = lock(&old.map).take();
        let segment = Segment {
            number,
            path,
            size: old.size,
            file: old.file,
            map: Mutex::new(map),
            named: AtomicBool::new(false),
        };
        self.write_header(&segment)?;
        if durable {
            // The header needs no sync of its own: it is written through on the direct medium, and on the
            // others the first sync of a frame takes it along. A sync here would write back the whole former
            // life of the segment, which nobody needs.
            self.io.sync_dir(self.dir)?;
            segment.set_named();
        }
        Ok(segment)
    }

    fn open(&self, path: &Path, how: &OpenHow) -> Result<File> {
        let direct = if self.medium == Medium::Direct { Direct::Prefer } else { Direct::No };
        Ok(self.io.open(path, &how.direct(direct))?)
    }

    fn finish(&self, number: u64, path: PathBuf, file: File, size: u64) -> Result<Segment> {
        // A segment made for one large frame is written once, in order: a mapping would not pay.
        let map = match self.medium {
            // Whatever keeps the file from being mapped, `pwrite` serves.
            Medium::Mapped if size == self.segment_bytes => file.map(size).ok(),
            _ => None,
        };
        let named = AtomicBool::new(false);
        let segment = Segment { number, path, size, file, map: Mutex::new(map), named };
        self.write_header(&segment)?;
        Ok(segment)
    }

    fn write_header(&self, s: &Segment) -> Result<()> {
        let header = encode_header(s.number, s.size);
        if let Some(map) = &mut *lock(&s.map) {
            map.write(0, &header);
            return Ok(());
        }
        let mut block = AlignedBuf::zeroed(FIRST_FRAME as usize);
        block[..SEGMENT_HEADER_BYTES].copy_from_slice(&header);
        match self.medium {
            Medium::Direct => s.file.write_all_at_dsync(&block, 0, LOG)?,
            _ => s.file.write_all_at(&block, 0, LOG)?,
        }
        Ok(())
    }

    /// Removes the file again if making it fails, so that a full disk can be mended and the call repeated.
    fn or_remove(&self, path: &Path, make: impl FnOnce() -> Result<Segment>) -> Result<Segment> {
        make().inspect_err(|e| {
            if !matches!(e, Error::Io(e) if e.kind() == engineswap::ErrorKind::AlreadyExists) {
                // The first error is the one to report.
                let _ = self.io.remove_file(path);
            }
        })
    }
}

fn zero_fill(file: &File, size: u64) -> Result<()> {
    // Through the page cache by single pages: larger writes make large folios, and then every small sync
    // writes back far more than it changed (measured: 283 instead of 45 us a commit).
    let step = if file.is_direct() { 1 << 20 } else { 4096 };
    let zeros = AlignedBuf::zeroed(step as usize);
    let mut at = 0;
    while at < size {
        let n = step.min(size - at);
        file.write_all_at(&zeros[..n as usize], at, LOG_PREPARE)?;
        at += n;
    }
    Ok(())
}

/// The header's used bytes.
pub(super) fn encode_header(number: u64, size: u64) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut h = [0; SEGMENT_HEADER_BYTES];
    h[..8].copy_from_slice(&MAGIC);
    h[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    h[16..24].copy_from_slice(&number.to_le_bytes());
    h[24..32].copy_from_slice(&size.to_le_bytes());
    let crc = crc32c(0, &h[..32]);
    h[32..].copy_from_slice(&crc.to_le_bytes());
    h
}

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderState {
    /// Damaged, missing or never written.
    Unreadable,
    /// Written by a newer version of this library.
    Newer(u32),
    /// Readable, for the segment of this number.
    Of(u64),
}

/// The number that the header of the segment file at `path` has, if it can be read.
pub(crate) fn number_in_header(io: &Io, path: &Path) -> Option<u64> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    io.open(path, &OpenHow::read()).ok()?.read_exact_at(&mut bytes, 0, crate::purpose::RECOVERY).ok()?;
    match decode_header(&bytes) {
        HeaderState::Of(number) => Some(number),
        _ => None,
    }
}

/// Reads a header from the front of `bytes`.
pub(super) fn decode_header(bytes: &[u8]) -> HeaderState {
    let Some(h) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else { return HeaderState::Unreadable };
    let u32_at = |i: usize| u32::from_le_bytes([h[i], h[i + 1], h[i + 2], h[i + 3]]);
    if h[..8] != MAGIC || u32_at(32) != crc32c(0, &h[..32]) {
        return HeaderState::Unreadable;
    }
    match u32_at(8) {
        0 => HeaderState::Unreadable,
        v if v > FORMAT_VERSION => HeaderState::Newer(v),
        _ => HeaderState::Of(u32_at(16) as u64 | (u32_at(20) as u64) << 32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_back_and_every_bit_counts() {
        let h = encode_header(77, 1 << 24);
        assert_eq!(decode_header(&h), HeaderState::Of(77));
        for i in 0..h.len() * 8 {
            let mut c = h;
            c[i / 8] ^= 1 << (i % 8);
            assert_eq!(decode_header(&c), HeaderState::Unreadable, "bit {i}");
        }
        assert_eq!(decode_header(&h[..35]), HeaderState::Unreadable);
    }

    #[test]
    fn a_newer_version_is_known() {
        let mut h = encode_header(77, 1 << 24);
        h[8] = 2;
        let crc = crc32c(0, &h[..32]);
        h[32..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode_header(&h), HeaderState::Newer(2));
    }
}
