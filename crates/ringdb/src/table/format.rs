//! The parts of a table file that are not blocks: footer and properties; and how a stored block becomes a block.

use std::path::Path;

use engineswap::{File, Purpose};

use super::block::{BLOCK_UNIT, BlockView, checksum_seed};
use super::compress::{Encoding, decompress};
use super::index::BlockPos;
use super::meta::TableMeta;
use crate::coding::{Reader, crc32c, put_varint};
use crate::error::{Error, Result};
use crate::expiry::Expiry;
use crate::format_version::{FormatVersion, Named};
use crate::seal::{Seal, Stamp, TAG_BYTES, Unit};

/// Bytes of the footer, in this and all later versions.
pub(crate) const FOOTER_BYTES: usize = 128;
const MAGIC: [u8; 8] = *b"ringdbT\n";
const DIGEST_AT: usize = 76;
const DIGEST_END: usize = 92;
const STAMP_AT: usize = DIGEST_END;
const VERSION_AT: usize = 112;
const SUM_AT: usize = 116;
const MAGIC_AT: usize = 120;
/// Smallest and largest `block_bytes`.
pub(crate) const BLOCK_BYTES_RANGE: std::ops::RangeInclusive<u32> = 4096..=65536;

/// Which part of the file behind its blocks.
#[derive(Clone, Copy)]
pub(super) struct SectionNumber(u32);
pub(super) const INDEX: SectionNumber = SectionNumber(0);
pub(super) const FILTER: SectionNumber = SectionNumber(1);
pub(super) const PROPERTIES: SectionNumber = SectionNumber(2);

impl SectionNumber {
    /// Where it is sealed, in table `file_id`.
    pub fn unit(self, file_id: u64) -> Unit {
        Unit::Section { file: file_id, number: self.0 }
    }
}

/// A part of the file with its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub offset: u64,
    pub len: u64,
    pub checksum: u32,
}

impl Section {
    /// The section's bytes within `bytes`, which start at `at` in the file, if its checksum is right.
    pub fn check<'a>(&self, bytes: &'a [u8], at: u64, file_id: u64) -> std::result::Result<&'a [u8], String> {
        let start = self.offset.checked_sub(at).and_then(|o| usize::try_from(o).ok());
        let section = start.and_then(|s| bytes.get(s..)?.get(..usize::try_from(self.len).ok()?));
        let section = section.ok_or("it is cut off")?;
        if crc32c(file_id as u32, section) != self.checksum {
            return Err("its checksum does not match".into());
        }
        Ok(section)
    }
}

/// The last bytes of a table: where the rest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// The lowest version whose readers know all that the table holds.
    pub version: FormatVersion,
    pub file_id: u64,
    pub file_bytes: u64,
    pub index: Section,
    pub filter: Section,
    pub properties: Section,
    /// XXH3-128 of all blocks' checksums, in their order; 0 in tables of earlier builds. With the rest of the footer
    /// it tells the table from all others.
    pub digest: u128,
    /// What blocks and sections are sealed with.
    pub stamp: Option<Stamp>,
}

impl Footer {
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut b = Vec::with_capacity(FOOTER_BYTES);
        b.extend_from_slice(&self.file_id.to_le_bytes());
        b.extend_from_slice(&self.file_bytes.to_le_bytes());
        for s in [self.index, self.filter, self.properties] {
            b.extend_from_slice(&s.offset.to_le_bytes());
            b.extend_from_slice(&s.len.to_le_bytes());
            b.extend_from_slice(&s.checksum.to_le_bytes());
        }
        let mut out = [0; FOOTER_BYTES];
        out[..b.len()].copy_from_slice(&b);
        out[DIGEST_AT..DIGEST_END].copy_from_slice(&self.digest.to_le_bytes());
        out[STAMP_AT..VERSION_AT].copy_from_slice(&Stamp::encode(self.stamp.as_ref()));
        out[VERSION_AT..SUM_AT].copy_from_slice(&self.version.number().to_le_bytes());
        let sum = crc32c(0, &out[..SUM_AT]);
        out[SUM_AT..MAGIC_AT].copy_from_slice(&sum.to_le_bytes());
        out[MAGIC_AT..].copy_from_slice(&MAGIC);
        out
    }

    /// Reads the footer of file `path`, which is `file_bytes` long and should be table `file_id`.
    pub fn decode(bytes: &[u8; FOOTER_BYTES], path: &Path, file_bytes: u64, file_id: u64) -> Result<Footer> {
        let at = Some(file_bytes.saturating_sub(FOOTER_BYTES as u64));
        let bad = |detail: String| Error::corrupt(path, at, detail);
        if bytes[MAGIC_AT..] != MAGIC {
            return Err(bad("not a table: the footer's magic number is missing".into()));
        }
        let mut tail = Reader::new(&bytes[VERSION_AT..]);
        let (version, sum) = (tail.u32().unwrap_or(0), tail.u32().unwrap_or(0));
        if crc32c(0, &bytes[..SUM_AT]) != sum {
            return Err(bad("the footer's checksum does not match".into()));
        }
        let version = match FormatVersion::named(version) {
            Named::Known(version) => version,
            Named::Newer(found) => return Err(Error::newer_format(path, found)),
            Named::Never => return Err(bad("there is no such format version".into())),
        };
        let mut r = Reader::new(bytes);
        let mut read = || {
            let (file_id, file_bytes) = (r.u64()?, r.u64()?);
            let mut section = || Some(Section { offset: r.u64()?, len: r.u64()?, checksum: r.u32()? });
            Some(Footer {
                version,
                file_id,
                file_bytes,
                index: section()?,
                filter: section()?,
                properties: section()?,
                digest: u128::from_le_bytes(bytes[DIGEST_AT..].first_chunk().copied()?),
                stamp: match version {
                    FormatVersion::V3 => Some(Stamp::decode(bytes[STAMP_AT..].first_chunk()?)?),
                    _ => None,
                },
            })
        };
        let footer = read().ok_or_else(|| bad("the footer is not well formed".into()))?;
        if footer.file_bytes != file_bytes || footer.file_id != file_id {
            let (id, len) = (footer.file_id, footer.file_bytes);
            return Err(bad(format!(
                "this is table {id} of {len} bytes, where table {file_id} of {file_bytes} bytes should be"
            )));
        }
        if !footer.sections_in_order() {
            return Err(bad("the footer's sections overlap or leave the file".into()));
        }
        Ok(footer)
    }

    fn sections_in_order(&self) -> bool {
        let mut at = 0;
        for s in [self.index, self.filter, self.properties] {
            let end = s.offset.checked_add(s.len);
            match end {
                Some(end) if s.offset >= at => at = end,
                _ => return false,
            }
        }
        at <= self.file_bytes.saturating_sub(FOOTER_BYTES as u64)
    }
}

/// Flag beside the compression.
const TRIMMED: u64 = 4;

/// The version that the footer of a table's file names.
pub(crate) fn version_in_footer(file: &File, file_id: u64, purpose: Purpose) -> Result<FormatVersion> {
    let len = file.len()?;
    let Some(at) = len.checked_sub(FOOTER_BYTES as u64) else {
        return Err(Error::corrupt(file.path(), Some(0), "it is shorter than a footer"));
    };
    let mut bytes = [0; FOOTER_BYTES];
    file.read_exact_at(&mut bytes, at, purpose)?;
    Ok(Footer::decode(&bytes, file.path(), len, file_id)?.version)
}

/// What a table says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Properties {
    /// Bytes of a normal block.
    pub block_bytes: u32,
    /// The compression that blocks were offered (those that did not shrink are plain).
    pub compression: Encoding,
    /// Whether blocks may be stored without padding.
    pub trimmed: bool,
    /// Bloom filter bits per key; 0 for no filter.
    pub filter_bits_per_key: u32,
    /// Data blocks.
    pub blocks: u32,
    /// Different keys.
    pub keys: u64,
    /// Bytes of all keys, once per version.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// What the manifest knows too.
    pub meta: TableMeta,
}

impl Properties {
    pub fn encode(&self, out: &mut Vec<u8>) {
        for v in [
            self.block_bytes as u64,
            self.compression as u64 | if self.trimmed { TRIMMED } else { 0 },
            self.filter_bits_per_key as u64,
            self.blocks as u64,
            self.keys,
            self.key_bytes,
            self.value_bytes,
        ] {
            put_varint(out, v);
        }
        self.meta.encode(out);
        if let Some(expiry) = &self.meta.expiry {
            expiry.encode(out);
        }
    }

    /// Reads encoded properties; `None` if they are cut off or impossible.
    pub fn decode(bytes: &[u8]) -> Option<Properties> {
        let mut r = Reader::new(bytes);
        let narrow = |v: u64| u32::try_from(v).ok();
        let (block_bytes, storage) = (narrow(r.varint()?)?, r.varint()?);
        let mut p = Properties {
            block_bytes,
            compression: Encoding::from_u8(u8::try_from(storage & !TRIMMED).ok()?)?,
            trimmed: storage & TRIMMED != 0,
            filter_bits_per_key: narrow(r.varint()?)?,
            blocks: narrow(r.varint()?)?,
            keys: r.varint()?,
            key_bytes: r.varint()?,
            value_bytes: r.varint()?,
            meta: TableMeta::decode(&mut r)?,
        };
        if !r.is_empty() {
            p.meta = p.meta.with_expiry(Expiry::decode(&mut r)?)?;
        }
        let ok = r.is_empty()
            && BLOCK_BYTES_RANGE.contains(&p.block_bytes)
            && (p.block_bytes as usize).is_multiple_of(BLOCK_UNIT)
            && p.blocks > 0
            && (1..=p.meta.entries).contains(&p.keys)
            && p.blocks as u64 <= p.meta.entries;
        ok.then_some(p)
    }
}

/// Bytes before the compressed bytes of a stored block: their checksum.
pub(super) const PACKED_HEADER_BYTES: usize = 4;

/// The checksum of a compressed block's bytes.
pub(super) fn packed_checksum(packed: &[u8], file_id: u64, block_no: u32) -> u32 {
    crc32c(checksum_seed(file_id, block_no), packed)
}

/// Turns the bytes that lie at a block's position into the block, and checks all of it. `stored` is
/// `pos.stored_len` long, `out` (a frame, a buffer) at least `pos.block_len`; its first `pos.block_len` bytes
/// become the block. `seal` is the table's, if it has one. When `pos.encoding` is plain, reading into place and
/// [`BlockView::validate`] is the same without a copy.
pub(crate) fn unpack_block(
    stored: &[u8],
    pos: &BlockPos,
    out: &mut [u8],
    (file_id, seal): (u64, Option<&Seal>),
    block_no: u32,
) -> std::result::Result<(), String> {
    unpack(stored, pos, out, (file_id, seal), block_no)?;
    let block = &out[..pos.block_len as usize];
    BlockView::check_structure(block).map_err(|e| format!("block {block_no}: {e}"))
}

/// The same without looking at the block's structure; returns the checksum, which was compared with the bytes.
pub(super) fn unpack(
    stored: &[u8],
    pos: &BlockPos,
    out: &mut [u8],
    (file_id, seal): (u64, Option<&Seal>),
    block_no: u32,
) -> std::result::Result<u32, String> {
    let Some(out) = out.get_mut(..pos.block_len as usize) else {
        return Err(format!("block {block_no}: {} bytes do not fit", pos.block_len));
    };
    if pos.encoding == Encoding::Plain {
        if stored.len() != out.len() {
            return Err(format!("block {block_no}: {} bytes where {} should be", stored.len(), out.len()));
        }
        out.copy_from_slice(stored);
        return BlockView::check_sum(out, file_id, block_no);
    }
    let Some((sum, packed)) = stored.split_first_chunk::<PACKED_HEADER_BYTES>() else {
        return Err(format!("block {block_no}: no checksum"));
    };
    let sum = u32::from_le_bytes(*sum);
    if packed_checksum(packed, file_id, block_no) != sum {
        return Err(format!("block {block_no}: its checksum does not match"));
    }
    // The block's own checksum is not stored: it would only say again what was just checked.
    let (front, body) = out.split_at_mut(4);
    front.fill(0);
    match seal {
        Some(seal) => {
            open_packed(packed, pos.encoding, body, seal, Unit::Block { file: file_id, number: block_no })
        }
        None => decompress(pos.encoding, packed, body),
    }
    .map_err(|e: String| format!("block {block_no}: {e}"))?;
    Ok(sum)
}

/// Decrypts what lies behind a block's checksum, and decompresses it into `body`.
fn open_packed(
    packed: &[u8],
    encoding: Encoding,
    body: &mut [u8],
    seal: &Seal,
    unit: Unit,
) -> std::result::Result<(), String> {
    let Some((bytes, tag)) = packed.split_last_chunk::<TAG_BYTES>() else {
        return Err("it is cut off".into());
    };
    if encoding.is_compressed() {
        let mut bytes = bytes.to_vec();
        if !seal.open(unit, &[], &mut bytes, tag) {
            return Err(seal.refusal());
        }
        return decompress(encoding, &bytes, body);
    }
    if bytes.len() != body.len() {
        return Err(format!("{} bytes where {} should be", bytes.len(), body.len()));
    }
    body.copy_from_slice(bytes);
    if seal.open(unit, &[], body, tag) { Ok(()) } else { Err(seal.refusal()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn footer() -> Footer {
        let s = |offset, len| Section { offset, len, checksum: 9 };
        Footer {
            version: FormatVersion::V2,
            file_id: 12,
            file_bytes: 16384,
            index: s(8192, 100),
            filter: s(8292, 65),
            properties: s(8400, 20),
            digest: 5 << 100,
            stamp: None,
        }
    }

    #[test]
    fn footers_read_back_and_every_changed_byte_is_noticed() {
        let b = footer().encode();
        let path = Path::new("t");
        assert_eq!(Footer::decode(&b, path, 16384, 12).unwrap(), footer());
        let stamp = Some(Stamp { key: 3, salt: [7; 16] });
        for (version, stamp) in [(FormatVersion::V1, None), (FormatVersion::V3, stamp)] {
            let other = Footer { version, stamp, ..footer() };
            assert_eq!(Footer::decode(&other.encode(), path, 16384, 12).unwrap(), other);
        }
        let unsealed = Footer { version: FormatVersion::V3, ..footer() };
        assert!(matches!(Footer::decode(&unsealed.encode(), path, 16384, 12), Err(Error::Corrupt { .. })));
        assert!(Footer::decode(&b, path, 16385, 12).is_err());
        assert!(Footer::decode(&b, path, 16384, 13).is_err());
        for i in 0..b.len() {
            let mut c = b;
            c[i] ^= 0x10;
            assert!(matches!(Footer::decode(&c, path, 16384, 12), Err(Error::Corrupt { .. })), "byte {i}");
        }
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut b = footer().encode();
        b[VERSION_AT] = 4;
        let sum = crc32c(0, &b[..SUM_AT]);
        b[SUM_AT..MAGIC_AT].copy_from_slice(&sum.to_le_bytes());
        let e = Footer::decode(&b, Path::new("t"), 16384, 12).unwrap_err();
        assert!(matches!(e, Error::NewerFormat { found: 4, newest: 3, .. }), "{e}");
    }

    #[test]
    fn sections_must_lie_in_the_file_in_order() {
        for spoil in [
            |f: &mut Footer| f.filter.offset = 8291,
            |f: &mut Footer| f.properties.len = 8000,
            |f: &mut Footer| f.index.len = u64::MAX,
        ] {
            let mut f = footer();
            spoil(&mut f);
            assert!(Footer::decode(&f.encode(), Path::new("t"), 16384, 12).is_err(), "{f:?}");
        }
    }

    fn properties() -> Properties {
        Properties {
            block_bytes: 4096,
            compression: Encoding::Lz4,
            trimmed: true,
            filter_bits_per_key: 10,
            blocks: 3,
            keys: 70,
            key_bytes: 1000,
            value_bytes: 8000,
            meta: TableMeta {
                given: 0,
                file_id: 12,
                file_bytes: 16384,
                entries: 80,
                tombstones: 3,
                min_seq: 4,
                max_seq: 500,
                smallest: b"\0a".to_vec(),
                largest: b"\0b".to_vec(),
                expiry: None,
            },
        }
    }

    #[test]
    fn properties_read_back_and_the_impossible_is_refused() {
        let encode = |p: &Properties| {
            let mut b = vec![];
            p.encode(&mut b);
            b
        };
        let b = encode(&properties());
        assert_eq!(Properties::decode(&b), Some(properties()));
        for cut in 0..b.len() {
            assert_eq!(Properties::decode(&b[..cut]), None);
        }
        for spoil in [
            |p: &mut Properties| p.block_bytes = 5000,
            |p: &mut Properties| p.block_bytes = 2048,
            |p: &mut Properties| p.blocks = 0,
            |p: &mut Properties| p.blocks = 81,
            |p: &mut Properties| p.keys = 81,
        ] {
            let mut p = properties();
            spoil(&mut p);
            assert_eq!(Properties::decode(&encode(&p)), None, "{p:?}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(b in proptest::collection::vec(any::<u8>(), 128..300), file_id: u64) {
            let _ = Properties::decode(&b);
            let mut footer = *b.first_chunk::<FOOTER_BYTES>().unwrap();
            let _ = Footer::decode(&footer, Path::new("t"), 1 << 20, file_id);
            footer[MAGIC_AT..].copy_from_slice(&MAGIC);
            let sum = crc32c(0, &footer[..SUM_AT]);
            footer[SUM_AT..MAGIC_AT].copy_from_slice(&sum.to_le_bytes());
            let _ = Footer::decode(&footer, Path::new("t"), 1 << 20, file_id);
            for encoding in [Encoding::Plain, Encoding::Lz4, Encoding::Zstd] {
                let pos = BlockPos { offset: 0, stored_len: b.len() as u32, block_len: 4096, encoding };
                prop_assert!(unpack_block(&b, &pos, &mut [0; 4096], (file_id, None), 0).is_err());
            }
        }
    }
}
