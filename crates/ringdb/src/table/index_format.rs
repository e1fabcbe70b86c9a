//! The index's builder and its encoding.
//!
//! ```text
//! u32 blocks | u32 large blocks | u8 packed
//! blocks x { varint length, separator }
//! large blocks x { varint block number - previous one, varint length in 4 KiB }
//! if packed: blocks x { varint stored length << 2 | encoding }
//! ```

use super::block::{BLOCK_UNIT, HEADER_BYTES};
use super::compress::Encoding;
use super::index::{Index, Large, Positions};
use super::meta::MAX_INTERNAL_KEY_BYTES;
use crate::coding::{Reader, put_bytes, put_varint};
use crate::seal::TAG_BYTES;

/// A block that is compressed is no longer than this when it is not, in units of 4 KiB: values of more than 16 MiB
/// are stored plain. So a few damaged bytes cannot ask for gigabytes.
const MAX_PACKED_UNITS: u32 = (32 << 20) / BLOCK_UNIT as u32;

// Where blocks lie: by rule, packed (compressed tables), or packed and those that are not compressed without padding.
const BY_RULE: u8 = 0;
const PACKED: u8 = 1;
const TRIMMED: u8 = 2;

/// Gathers the separators and positions of a table's blocks.
pub(crate) struct IndexBuilder {
    block_bytes: u32,
    separators: Vec<u8>,
    ends: Vec<u32>,
    positions: Positions,
    added: u32,
    data_end: u64,
}

impl IndexBuilder {
    /// For normal blocks of `block_bytes`.
    pub fn new(block_bytes: u32) -> IndexBuilder {
        let positions = Positions::default();
        IndexBuilder {
            block_bytes,
            separators: Vec::new(),
            ends: Vec::new(),
            positions,
            added: 0,
            data_end: 0,
        }
    }

    /// About the bytes that the index will take on disk.
    pub fn estimated_bytes(&self) -> u64 {
        (self.separators.len() + 2 * self.ends.len() + 4 * self.positions.packed.len() + 16) as u64
    }

    /// Whether another separator of this length can be added.
    pub fn has_room(&self, separator_len: usize) -> bool {
        self.separators.len() + separator_len <= u32::MAX as usize && self.ends.len() < u32::MAX as usize - 1
    }

    /// From the next block on, blocks may be stored without padding: all are added with how they are stored.
    pub fn trim(&mut self) {
        let p = &mut self.positions;
        if p.trimmed {
            return;
        }
        p.trimmed = true;
        if !p.packed.is_empty() {
            return;
        }
        // So far they lie by rule.
        let mut large = p.large.iter().peekable();
        for block in 0..self.added {
            p.packed.push(self.data_end << 2);
            let len = match large.next_if(|l| l.block == block) {
                Some(l) => l.units * BLOCK_UNIT as u32,
                None => self.block_bytes,
            };
            self.data_end += len as u64;
        }
    }

    /// Adds where the next block lies: `block_len` bytes long in memory, after the one before. `packed` says how
    /// it is stored in a compressed or trimmed table, where all blocks are added with it; `None` if stored as it is.
    pub fn add_position(&mut self, block_len: u32, packed: Option<(u32, Encoding)>) {
        let by_rule = !self.positions.trimmed || packed.is_some_and(|(_, e)| e.is_compressed());
        if block_len > self.block_bytes && by_rule {
            let units = block_len / BLOCK_UNIT as u32;
            push_large(&mut self.positions.large, self.block_bytes, self.added, units);
        }
        if let Some((stored_len, encoding)) = packed {
            self.positions.packed.push(self.data_end << 2 | encoding as u64);
            self.data_end += stored_len as u64;
        }
        self.added += 1;
    }

    /// Blocks whose positions were added: the number of the next.
    pub fn positions_added(&self) -> u32 {
        self.added
    }

    /// Adds the separator of the next block, which may be known only after its position.
    pub fn add_separator(&mut self, separator: &[u8]) {
        self.separators.extend_from_slice(separator);
        self.ends.push(self.separators.len() as u32);
    }

    #[cfg(test)]
    pub fn add(&mut self, separator: &[u8], block_len: u32, packed: Option<(u32, Encoding)>) {
        self.add_position(block_len, packed);
        self.add_separator(separator);
    }

    /// The index.
    pub fn finish(mut self) -> Index {
        assert_eq!(self.added as usize, self.ends.len(), "a separator for each position");
        let p = &mut self.positions;
        if !p.packed.is_empty() {
            p.packed.push(self.data_end << 2);
        }
        if p.trimmed {
            // Of blocks that are stored as they are, the positions say all.
            let large = std::mem::take(&mut p.large);
            let compressed = |block: u32| matches!(p.packed[block as usize] & 3, 1 | 2);
            for l in large.iter().filter(|l| compressed(l.block)) {
                push_large(&mut p.large, self.block_bytes, l.block, l.units);
            }
        }
        Index::assemble(self.block_bytes, self.separators, self.ends, self.positions)
    }
}

fn push_large(large: &mut Vec<Large>, block_bytes: u32, block: u32, units: u32) {
    let before = large.last().map_or(0, |l| l.extra_after);
    let extra_after = before + (units - block_bytes / BLOCK_UNIT as u32) as u64;
    large.push(Large { block, units, extra_after });
}

impl Index {
    /// Appends the encoding that [`Index::decode`] reads.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let p = self.positions();
        out.extend_from_slice(&self.blocks().to_le_bytes());
        out.extend_from_slice(&(p.large.len() as u32).to_le_bytes());
        out.push(match (p.packed.is_empty(), p.trimmed) {
            (true, _) => BY_RULE,
            (false, false) => PACKED,
            (false, true) => TRIMMED,
        });
        for block in 0..self.blocks() {
            put_bytes(out, self.separator(block));
        }
        let mut last = 0;
        for l in &p.large {
            put_varint(out, (l.block - last) as u64);
            put_varint(out, l.units as u64);
            last = l.block;
        }
        for w in p.packed.windows(2) {
            let stored_len = (w[1] >> 2) - (w[0] >> 2);
            put_varint(out, stored_len << 2 | (w[0] & 3));
        }
    }

    /// Reads an encoded index of blocks of `block_bytes`, a multiple of 4 KiB.
    pub fn decode(bytes: &[u8], block_bytes: u32) -> Result<Index, String> {
        let mut r = Reader::new(bytes);
        let cut = || "the index is cut off".to_string();
        let blocks = r.u32().ok_or_else(cut)? as usize;
        let large = r.u32().ok_or_else(cut)? as usize;
        let packed = r.u8().ok_or_else(cut)?;
        // A separator takes a byte at least: this bounds what is allocated.
        if blocks > bytes.len() || large > blocks || packed > TRIMMED || bytes.len() > u32::MAX as usize {
            return Err(format!("an index of {blocks} blocks, {large} large, in {} bytes", bytes.len()));
        }
        let (separators, ends) = decode_separators(&mut r, blocks)?;
        let mut positions = Positions::default();
        decode_large(&mut r, &mut positions, (blocks, large), block_bytes).ok_or("a wrong large block")?;
        positions.trimmed = packed == TRIMMED;
        if packed != BY_RULE {
            decode_packed(&mut r, &mut positions, blocks).ok_or("a wrong position of a block")?;
        }
        if !r.is_empty() {
            return Err(format!("{} bytes after the index", r.rest().len()));
        }
        let unpacks = |l: &&Large| positions.packed.get(l.block as usize).is_some_and(|p| p & 3 != 0);
        if let Some(l) = positions.large.iter().filter(unpacks).find(|l| l.units > MAX_PACKED_UNITS) {
            return Err(format!("block {} is compressed and of {} units", l.block, l.units));
        }
        let index = Index::assemble(block_bytes, separators, ends, positions);
        // Who reads a plain block into place takes one length for the other.
        let wrong = |n: &u32| {
            let pos = index.block_pos(*n);
            let tag = if pos.encoding == Encoding::Sealed { TAG_BYTES as u32 } else { 0 };
            !pos.encoding.is_compressed()
                && (pos.stored_len != pos.block_len + tag || pos.block_len < HEADER_BYTES as u32)
        };
        match (0..index.blocks()).filter(|_| packed != BY_RULE).find(wrong) {
            Some(n) => Err(format!("block {n} is not compressed and has two lengths, or is too short")),
            None => Ok(index),
        }
    }
}

fn decode_separators(r: &mut Reader<'_>, blocks: usize) -> Result<(Vec<u8>, Vec<u32>), String> {
    let mut all: Vec<u8> = Vec::with_capacity(r.rest().len().saturating_sub(blocks));
    let mut ends = Vec::with_capacity(blocks);
    let mut last: &[u8] = &[];
    for block in 0..blocks {
        let s = r.bytes().filter(|s| s.len() <= MAX_INTERNAL_KEY_BYTES);
        let s = s.ok_or_else(|| format!("separator {block} is cut off or too long"))?;
        if last > s {
            return Err(format!("separator {block} is out of order"));
        }
        all.extend_from_slice(s);
        ends.push(all.len() as u32);
        last = s;
    }
    all.shrink_to_fit();
    Ok((all, ends))
}

fn decode_large(
    r: &mut Reader<'_>,
    p: &mut Positions,
    (blocks, large): (usize, usize),
    block_bytes: u32,
) -> Option<()> {
    p.large.reserve_exact(large);
    for i in 0..large {
        let delta = u32::try_from(r.varint()?).ok()?;
        let units = u32::try_from(r.varint()?).ok()?;
        let block = p.large.last().map_or(0, |l| l.block).checked_add(delta)?;
        let len = units.checked_mul(BLOCK_UNIT as u32)?;
        if (i > 0 && delta == 0) || block as usize >= blocks || len <= block_bytes {
            return None;
        }
        push_large(&mut p.large, block_bytes, block, units);
    }
    Some(())
}

fn decode_packed(r: &mut Reader<'_>, p: &mut Positions, blocks: usize) -> Option<()> {
    p.packed.reserve_exact(blocks + 1);
    let mut end = 0u64;
    for _ in 0..blocks {
        let v = r.varint()?;
        let stored_len = u32::try_from(v >> 2).ok()?;
        Encoding::from_u8((v & 3) as u8)?;
        p.packed.push(end << 2 | (v & 3));
        end += stored_len as u64;
    }
    p.packed.push(end << 2);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::index::BlockPos;
    use proptest::prelude::*;

    #[test]
    fn plain_positions_follow_from_the_large_blocks() {
        let mut b = IndexBuilder::new(8192);
        for (i, len) in [8192, 12288, 8192, 4096 * 100, 8192].into_iter().enumerate() {
            b.add(&[i as u8], len, None);
        }
        let mut bytes = vec![];
        let built = b.finish();
        built.encode(&mut bytes);
        let index = Index::decode(&bytes, 8192).unwrap();
        let mut offset = 0;
        for (i, len) in [8192, 12288, 8192, 4096 * 100, 8192].into_iter().enumerate() {
            let want = BlockPos { offset, stored_len: len, block_len: len, encoding: Encoding::Plain };
            assert_eq!(index.block_pos(i as u32), want);
            assert_eq!(built.block_pos(i as u32), want);
            offset += len as u64;
        }
        assert_eq!(index.data_bytes(), offset);
        assert!(!index.is_regular());
    }

    #[test]
    fn packed_positions_read_back() {
        let mut b = IndexBuilder::new(4096);
        let stored = [(100, Encoding::Lz4), (4096, Encoding::Plain), (7, Encoding::Zstd)];
        for (i, s) in stored.into_iter().enumerate() {
            b.add(&[i as u8], if i == 2 { 8192 } else { 4096 }, Some(s));
        }
        let mut bytes = vec![];
        b.finish().encode(&mut bytes);
        let index = Index::decode(&bytes, 4096).unwrap();
        let mut offset = 0;
        for (i, (stored_len, encoding)) in stored.into_iter().enumerate() {
            let block_len = if i == 2 { 8192 } else { 4096 };
            assert_eq!(index.block_pos(i as u32), BlockPos { offset, stored_len, block_len, encoding });
            offset += stored_len as u64;
        }
        assert_eq!(index.data_bytes(), offset);
        for cut in 0..bytes.len() {
            assert!(Index::decode(&bytes[..cut], 4096).is_err(), "cut to {cut}");
        }
    }

    #[test]
    fn a_compressed_block_of_gigabytes_is_refused() {
        for (len, encoding, good) in [
            (32 << 20, Encoding::Zstd, true),
            ((32 << 20) + 4096, Encoding::Zstd, false),
            (1 << 30, Encoding::Lz4, false),
            (1 << 30, Encoding::Plain, true),
        ] {
            let mut b = IndexBuilder::new(4096);
            let stored = if encoding == Encoding::Plain { len } else { 100 };
            b.add(b"k", len, Some((stored, encoding)));
            let mut bytes = vec![];
            b.finish().encode(&mut bytes);
            assert_eq!(Index::decode(&bytes, 4096).is_ok(), good, "{len} {encoding:?}");
        }
    }

    #[test]
    fn a_plain_block_is_as_long_on_disk_as_in_memory() {
        for (len, stored) in [(4096, 100), (4096, 8192), (8192, 4096), (8192, 0)] {
            for good in [true, false] {
                let mut b = IndexBuilder::new(4096);
                b.add(b"a", 4096, Some((100, Encoding::Lz4)));
                b.add(b"k", len, Some((if good { len } else { stored }, Encoding::Plain)));
                let mut bytes = vec![];
                b.finish().encode(&mut bytes);
                assert_eq!(Index::decode(&bytes, 4096).is_ok(), good, "{len} {stored}");
            }
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut b in proptest::collection::vec(any::<u8>(), 0..200), n in 0u8..20, l in 0u8..3) {
            if b.len() > 9 {
                // Small counts, or nothing would get past them.
                let packed = b[8] & 1;
                b[..9].copy_from_slice(&[n, 0, 0, 0, l, 0, 0, 0, packed]);
            }
            if let Ok(i) = Index::decode(&b, 4096) {
                i.find_block(&b);
                (0..i.blocks()).for_each(|k| { i.block_pos(k); });
            }
        }

        #[test]
        fn separators_read_back(mut keys in proptest::collection::vec(proptest::collection::vec(0u8..4, 0..9), 0..200)) {
            keys.sort();
            let mut b = IndexBuilder::new(4096);
            keys.iter().for_each(|k| b.add(k, 4096, None));
            let mut bytes = vec![];
            b.finish().encode(&mut bytes);
            let index = Index::decode(&bytes, 4096).unwrap();
            prop_assert_eq!(index.blocks() as usize, keys.len());
            for (i, k) in keys.iter().enumerate() {
                prop_assert_eq!(index.separator(i as u32), k.as_slice());
            }
        }
    }
}
