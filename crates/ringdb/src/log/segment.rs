//! Segment files: made, zero-filled, recycled, and their header.

use crate::files::FileKind;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::path::{Path, PathBuf};

use engineswap::mem::AlignedBuf;
use engineswap::{File, Io, MappedFile, OpenHow};

use super::frame::FIRST_FRAME;
use crate::coding::crc32c;
use crate::error::{Error, Result};
use crate::format_version::{FormatVersion, Named};
use crate::purpose::{LOG, LOG_PREPARE};
use crate::seal::Stamp;
use crate::store_dir::StoreDir;
use crate::sync::{Mutex, lock};
use crate::table::open_direct;

const MAGIC: [u8; 8] = *b"ringdbLG";
/// The version that new segments name. A header is written before the frames that will follow are known, so this is the
/// lowest one that knows everything that a batch may hold.
const WRITTEN_VERSION: FormatVersion = FormatVersion::V2;

/// How frames reach their file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// Copied into a mapping of the file; by `pwrite` where the engine or file system has no mappings.
    Mapped,
    /// By one `pwrite` each.
    #[cfg(test)]
    Pwrite,
    /// By O_DIRECT writes that are durable when they return.
    Direct,
}

/// Bytes of the header that are used; it has the 4 KiB before the first frame to itself.
pub(super) const SEGMENT_HEADER_BYTES: usize = STAMP_END + 4;
/// Those that every version has. Behind them is the stamp of a sealed segment, with a checksum of its own.
const PLAIN_HEADER_BYTES: usize = 36;
const STAMP_END: usize = PLAIN_HEADER_BYTES + Stamp::BYTES;

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
    /// Whether the file's length has been durable since before the header was written last: a shorter file is damaged.
    settled: AtomicBool,
}

impl Segment {
    pub fn is_named(&self) -> bool {
        self.named.load(Ordering::Acquire)
    }

    pub fn set_named(&self) {
        self.named.store(true, Ordering::Release);
    }

    /// The same file as a released segment.
    pub fn reborn(&self) -> Segment {
        Segment {
            number: self.number,
            path: self.path.clone(),
            size: self.size,
            file: self.file.clone(),
            map: Mutex::new(None),
            named: AtomicBool::new(self.is_named()),
            settled: AtomicBool::new(self.settled.load(Ordering::Acquire)),
        }
    }
}

/// How this log's segments are made.
pub(super) struct Maker<'a> {
    pub io: &'a Io,
    pub dir: &'a StoreDir,
    pub medium: Medium,
    pub segment_bytes: u64,
    /// What the frames will be sealed with.
    pub stamp: Option<Stamp>,
}

impl Maker<'_> {
    /// A new segment of the usual size, zero-filled and durable with its name.
    pub fn filled(&self, number: u64) -> Result<Segment> {
        let path = segment_path(self.dir.path(), number);
        self.or_remove(&path, || {
            let file = self.open(&path, &OpenHow::create_new())?;
            zero_fill(&file, self.segment_bytes)?;
            let segment = self.finish(number, path.clone(), file, self.segment_bytes)?;
            self.settle(&segment)?;
            Ok(segment)
        })
    }

    /// Makes the length and the name of a new segment's file durable, and has its header say so.
    pub fn settle(&self, segment: &Segment) -> Result<()> {
        segment.file.sync_data(LOG_PREPARE).map_err(|e| e.at(&segment.path))?;
        self.dir.sync()?;
        segment.set_named();
        segment.settled.store(true, Ordering::Release);
        self.write_header(segment)
    }

    /// A new segment of any size, allocated only: quick to make, slower to write durably. Not durable itself.
    pub fn allocated(&self, number: u64, size: u64) -> Result<Segment> {
        let path = segment_path(self.dir.path(), number);
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

    /// A released segment under a new number. With `durable`, its name is durable when this returns. If it fails the
    /// segment is gone.
    pub fn recycled(&self, old: Segment, number: u64, durable: bool) -> Result<Segment> {
        let path = segment_path(self.dir.path(), number);
        // The name first: were the header first, the file would for a moment be a believable segment `number`
        // under its old name. Old frames are not believed under either.
        if let Err(e) = self.io.rename(&old.path, &path) {
            let _ = self.io.remove_file(&old.path);
            return Err(e.into());
        }
        self.or_remove(&path, || {
            let map = self.map(&old.file, old.size);
            let segment = Segment {
                number,
                path: path.clone(),
                size: old.size,
                file: old.file,
                map: Mutex::new(map),
                named: AtomicBool::new(false),
                settled: old.settled,
            };
            self.write_header(&segment)?;
            if durable {
                // The header needs no sync of its own: it is written through on the direct medium, and on the
                // others the first sync of a frame takes it along. A sync here would write back the whole former
                // life of the segment, which nobody needs.
                self.dir.sync()?;
                segment.set_named();
            }
            Ok(segment)
        })
    }

    fn open(&self, path: &Path, how: &OpenHow) -> Result<File> {
        match self.medium {
            Medium::Direct => open_direct(self.io, path, how),
            _ => Ok(self.io.open(path, how)?),
        }
    }

    fn finish(&self, number: u64, path: PathBuf, file: File, size: u64) -> Result<Segment> {
        let map = self.map(&file, size);
        let named = AtomicBool::new(false);
        let settled = AtomicBool::new(false);
        let segment = Segment { number, path, size, file, map: Mutex::new(map), named, settled };
        self.write_header(&segment)?;
        Ok(segment)
    }

    fn map(&self, file: &File, size: u64) -> Option<MappedFile> {
        // A segment made for one large frame is written once, in order: a mapping would not pay.
        match self.medium {
            // Whatever keeps the file from being mapped, `pwrite` serves. Where rewriting needs space a full disk would
            // kill the process.
            Medium::Mapped if size == self.segment_bytes && file.rewrites_in_place() => file.map(size).ok(),
            _ => None,
        }
    }

    fn write_header(&self, s: &Segment) -> Result<()> {
        let header = encode_header(s.number, s.size, s.settled.load(Ordering::Acquire), self.stamp);
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
pub(super) fn encode_header(
    number: u64,
    size: u64,
    settled: bool,
    stamp: Option<Stamp>,
) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut h = [0; SEGMENT_HEADER_BYTES];
    let version = if stamp.is_some() { FormatVersion::V3 } else { WRITTEN_VERSION };
    h[..8].copy_from_slice(&MAGIC);
    h[8..12].copy_from_slice(&version.number().to_le_bytes());
    h[12..16].copy_from_slice(&(settled as u32).to_le_bytes());
    h[16..24].copy_from_slice(&number.to_le_bytes());
    h[24..32].copy_from_slice(&size.to_le_bytes());
    let crc = crc32c(0, &h[..32]);
    h[32..PLAIN_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    h[PLAIN_HEADER_BYTES..STAMP_END].copy_from_slice(&Stamp::encode(stamp.as_ref()));
    let crc = stamp_crc(&h);
    h[STAMP_END..].copy_from_slice(&crc.to_le_bytes());
    h
}

/// The checksum of the stamp, which covers the segment's number, too.
fn stamp_crc(h: &[u8; SEGMENT_HEADER_BYTES]) -> u32 {
    crc32c(crc32c(0, &h[16..24]), &h[PLAIN_HEADER_BYTES..STAMP_END])
}

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderState {
    /// Damaged, missing or never written.
    Unreadable,
    /// Written by a newer version of this library.
    Newer(u32),
    /// Readable.
    Of(SegmentHeader),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub version: FormatVersion,
    pub number: u64,
    /// Bytes of the file.
    pub size: u64,
    /// The file has had that size durably since before this header was written.
    pub settled: bool,
    /// What its frames are sealed with, if they are and that can be read.
    pub stamp: Option<Stamp>,
}

/// The number that the header of the segment file at `path` has, if it can be read.
pub(crate) fn number_in_header(io: &Io, path: &Path) -> Option<u64> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    let got = io.open(path, &OpenHow::read()).ok()?.read_at(&mut bytes, 0, crate::purpose::RECOVERY).ok()?;
    match decode_header(&bytes[..got]) {
        HeaderState::Of(h) => Some(h.number),
        _ => None,
    }
}

/// The format version that the header of the segment file at `path` names, if it can be read.
pub(crate) fn version_in_header(io: &Io, path: &Path) -> Result<Option<FormatVersion>> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    let file = match io.open(path, &OpenHow::read()) {
        Err(e) if e.kind() == engineswap::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let got = file.read_at(&mut bytes, 0, crate::purpose::RECOVERY)?;
    match decode_header(&bytes[..got]) {
        HeaderState::Of(h) => Ok(Some(h.version)),
        HeaderState::Newer(found) => Err(Error::newer_format(path, found)),
        HeaderState::Unreadable => Ok(None),
    }
}

/// Reads a header from the front of `bytes`.
pub(super) fn decode_header(bytes: &[u8]) -> HeaderState {
    let Some(h) = bytes.first_chunk::<PLAIN_HEADER_BYTES>() else { return HeaderState::Unreadable };
    let u32_at = |i: usize| u32::from_le_bytes([h[i], h[i + 1], h[i + 2], h[i + 3]]);
    if h[..8] != MAGIC || u32_at(32) != crc32c(0, &h[..32]) {
        return HeaderState::Unreadable;
    }
    match FormatVersion::named(u32_at(8)) {
        Named::Never => HeaderState::Unreadable,
        Named::Newer(v) => HeaderState::Newer(v),
        Named::Known(version) => {
            let u64_at = |i: usize| u32_at(i) as u64 | (u32_at(i + 4) as u64) << 32;
            let settled = u32_at(12) & 1 != 0;
            let stamp = match bytes.first_chunk::<SEGMENT_HEADER_BYTES>() {
                Some(h) if version == FormatVersion::V3 && h[STAMP_END..] == stamp_crc(h).to_le_bytes() => {
                    h[PLAIN_HEADER_BYTES..].first_chunk().and_then(Stamp::decode)
                }
                _ => None,
            };
            HeaderState::Of(SegmentHeader { version, number: u64_at(16), size: u64_at(24), settled, stamp })
        }
    }
}

/// The file of segment `number`.
pub(super) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    FileKind::Log(number).path(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_back_and_every_bit_counts() {
        let stamp = Some(Stamp { key: 2, salt: [9; 16] });
        for (stamp, version) in [(None, WRITTEN_VERSION), (stamp, FormatVersion::V3)] {
            let h = encode_header(77, 1 << 24, true, stamp);
            let read = SegmentHeader { version, number: 77, size: 1 << 24, settled: true, stamp };
            assert_eq!(decode_header(&h), HeaderState::Of(read));
            let unsettled = HeaderState::Of(SegmentHeader { settled: false, ..read });
            assert_eq!(decode_header(&encode_header(77, 1 << 24, false, stamp)), unsettled);
            // A stamp that is lost loses no more: each segment's first frame has it, too.
            for i in PLAIN_HEADER_BYTES * 8..h.len() * 8 {
                let mut c = h;
                c[i / 8] ^= 1 << (i % 8);
                assert_eq!(
                    decode_header(&c),
                    HeaderState::Of(SegmentHeader { stamp: None, ..read }),
                    "bit {i}"
                );
            }
        }
        let h = encode_header(77, 1 << 24, true, None);
        for i in 0..PLAIN_HEADER_BYTES * 8 {
            let mut c = h;
            c[i / 8] ^= 1 << (i % 8);
            assert_eq!(decode_header(&c), HeaderState::Unreadable, "bit {i}");
        }
        assert_eq!(decode_header(&h[..35]), HeaderState::Unreadable);
    }

    #[test]
    fn a_newer_version_is_known() {
        let mut h = encode_header(77, 1 << 24, false, None);
        let mut decode_as = |version: u32| {
            h[8..12].copy_from_slice(&version.to_le_bytes());
            let crc = crc32c(0, &h[..32]);
            h[32..PLAIN_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
            decode_header(&h)
        };
        for version in [FormatVersion::V1, FormatVersion::V2, FormatVersion::V3] {
            let read = SegmentHeader { version, number: 77, size: 1 << 24, settled: false, stamp: None };
            assert_eq!(decode_as(version.number()), HeaderState::Of(read));
        }
        assert_eq!(decode_as(4), HeaderState::Newer(4));
        assert_eq!(decode_as(0), HeaderState::Unreadable);
    }
}
