//! [`Carver`]: finds a table's blocks without its index.
//!
//! A block is believed by its checksum, which is started from the table's number and the block's, so nothing else can
//! pass for one. Where blocks are not compressed they begin at multiples of 4096, and a block's own offsets say how
//! long it is. In a trimmed table they begin anywhere. In a compressed table a block begins where the one before
//! ends and does not say how long it is: its end is where the running checksum becomes the stored one and the bytes
//! decompress. Behind a damaged block the next one is looked for at every byte. The number of a plain block follows
//! from its checksum, however many are missing; a compressed one is tried with the numbers that it may have.

use super::block::{BLOCK_UNIT, BlockView, HEADER_BYTES, block_of_seed, checksum_seed};
use super::compress::{Encoding, decompress_any};
use super::format::PACKED_HEADER_BYTES;
use super::walk::Window;
use crate::coding::{Crc32cSteps, crc32c_seed};

const UNIT: u64 = BLOCK_UNIT as u64;
/// The largest block that is compressed, with room to spare.
const MOST_PACKED: usize = (16 << 20) + (128 << 10);
/// Bytes that are summed in vain at most, in a whole table, for blocks that are stored as they are.
const MOST_SUMMED: u64 = 4 << 30;
/// The same for compressed blocks that are searched byte by byte.
const MOST_SUMMED_SEARCHING: u64 = 2 << 30;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// A block that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CarvedBlock {
    pub number: u32,
    pub offset: u64,
    /// Bytes on disk.
    pub len: u64,
}

/// Goes through a file from its start.
pub(crate) struct Carver {
    window: Window,
    file_id: u64,
    /// Bytes of a normal block, once known.
    block_bytes: Option<u32>,
    packed: bool,
    /// Nobody says that it is not packed, it only does not look so.
    guessed: bool,
    end: u64,
    at: u64,
    next_number: u32,
    /// Bytes summed in vain so far, of what may have been plain blocks and compressed ones.
    summed: u64,
    summed_searching: u64,
}

impl Carver {
    /// Over the bytes before `end`. `packed`: whether the table is compressed; both ways are tried if it is not known.
    pub fn new(
        window: Window,
        file_id: u64,
        block_bytes: Option<u32>,
        packed: Option<bool>,
        end: u64,
    ) -> Carver {
        let end = end.min(window.len());
        let mut c = Carver {
            window,
            file_id,
            block_bytes,
            packed: false,
            guessed: packed.is_none(),
            end,
            at: 0,
            next_number: 0,
            summed: 0,
            summed_searching: 0,
        };
        c.packed = packed.unwrap_or_else(|| {
            let mut out = Vec::new();
            c.plain_at(0, 0..=0, &mut out).is_none() && c.packed_at(0, 0, MOST_PACKED, &mut out).is_some()
        });
        c
    }

    /// Where the bytes end that can hold blocks.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The next block; its bytes, unpacked, in `out`. `None` when there are no more.
    pub fn next(&mut self, out: &mut Vec<u8>) -> Option<CarvedBlock> {
        if !self.packed && !self.goes_on_packed(out) {
            let found = self.next_plain(out);
            if found.is_some() || !self.guessed || self.next_number > 0 {
                return found;
            }
            // Its first block may have been damaged.
            (self.packed, self.at) = (true, 0);
        }
        self.next_packed(out)
    }

    /// Whether the table, of which nobody says how it is stored, goes on without padding.
    fn goes_on_packed(&mut self, out: &mut Vec<u8>) -> bool {
        let (at, number) = (self.at, self.next_number);
        if self.guessed && number > 0 && self.plain_at(at, number..=number, out).is_none() {
            self.packed = true;
            self.packed = self.either_at(at, number, MOST_PACKED, out).is_some();
        }
        self.packed
    }

    fn found(&mut self, number: u32, len: u64) -> Option<CarvedBlock> {
        let found = CarvedBlock { number, offset: self.at, len };
        self.at += len;
        self.next_number = number + 1;
        Some(found)
    }

    fn next_plain(&mut self, out: &mut Vec<u8>) -> Option<CarvedBlock> {
        let (expected, expected_at) = (self.next_number, self.at);
        while self.at + UNIT <= self.end {
            // As long as a normal one is every block that was passed over, at least.
            let shortest = self.block_bytes.map_or(UNIT, u64::from).max(UNIT);
            let passed = u32::try_from((self.at - expected_at) / shortest).unwrap_or(u32::MAX);
            let numbers = expected..=expected.saturating_add(passed);
            if let Some((number, len)) = self.plain_at(self.at, numbers, out) {
                return self.found(number, len);
            }
            self.at += UNIT;
        }
        None
    }

    /// The block stored as it is at `offset`, if one of these numbers is there: its number and length.
    fn plain_at(
        &mut self,
        offset: u64,
        numbers: std::ops::RangeInclusive<u32>,
        out: &mut Vec<u8>,
    ) -> Option<(u32, u64)> {
        let end = self.extent(offset)?;
        let used = end.next_multiple_of(UNIT);
        let mut sizes: Vec<u64> = match self.block_bytes {
            Some(n) => vec![(n as u64).max(used)],
            None => (12..=16).map(|shift| (1u64 << shift).max(used)).collect(),
        };
        // Without padding, if the table is trimmed.
        sizes.extend(self.packed.then_some(end));
        sizes.dedup();
        for len in sizes {
            if offset + len > self.end || self.summed > MOST_SUMMED {
                continue;
            }
            let bytes = self.window.bytes(offset, len as usize).ok()?;
            if BlockView::check_structure(bytes).is_err() {
                return None;
            }
            let (sum, rest) = bytes.split_first_chunk::<4>()?;
            let seed = crc32c_seed(u32::from_le_bytes(*sum), rest);
            let number = block_of_seed(self.file_id, seed);
            if numbers.contains(&number) {
                out.clear();
                out.extend_from_slice(bytes);
                if self.block_bytes.is_none() && len > used {
                    self.block_bytes = Some(len as u32);
                }
                return Some((number, len));
            }
            self.summed += len;
        }
        None
    }

    /// The bytes up to the end of the entries of what may be a block.
    fn extent(&mut self, offset: u64) -> Option<u64> {
        let header = self.window.bytes(offset, 24).ok()?;
        let end_at = BlockView::end_at(header)?;
        let tables = self.window.bytes(offset, end_at.end).ok()?;
        let mut end = [0; 4];
        end[..end_at.len()].copy_from_slice(tables.get(end_at)?);
        let end = u32::from_le_bytes(end) as u64;
        Some(end.max(1))
    }

    fn next_packed(&mut self, out: &mut Vec<u8>) -> Option<CarvedBlock> {
        let number = self.next_number;
        if let Some(len) = self.either_at(self.at, number, MOST_PACKED, out) {
            return self.found(number, len);
        }
        // One block or more are damaged.
        let reach = 4 * self.block_bytes.unwrap_or(4096) as u64;
        let from = self.at;
        for offset in from + 1..self.end {
            if !self.may_be_block(offset) {
                continue;
            }
            // A block has a header at least.
            let passed = u32::try_from((offset - from) / HEADER_BYTES as u64).unwrap_or(u32::MAX);
            let numbers = number.saturating_add(1)..=number.saturating_add(1).saturating_add(passed);
            if let Some((number, len)) = self.plain_at(offset, numbers, out) {
                self.at = offset;
                return self.found(number, len);
            }
            for missing in 1..=1 + (offset - from) / reach {
                if self.summed_searching >= MOST_SUMMED_SEARCHING {
                    break;
                }
                let number = number.saturating_add(missing as u32);
                self.summed_searching += reach;
                if let Some(len) = self.packed_at(offset, number, reach as usize, out) {
                    self.at = offset;
                    return self.found(number, len);
                }
            }
        }
        self.at = self.end;
        None
    }

    /// Whether the first bytes at `offset` could be those of a block, stored as it is or compressed.
    fn may_be_block(&mut self, offset: u64) -> bool {
        let len = (self.end.saturating_sub(offset) as usize).min(PACKED_HEADER_BYTES + 300);
        let Ok(bytes) = self.window.bytes(offset, len) else { return false };
        let packed = bytes.get(PACKED_HEADER_BYTES..).is_some_and(may_be_packed);
        packed || BlockView::end_at(bytes).is_some()
    }

    /// The block at `offset` of a compressed table, which may hold it as it is.
    fn either_at(&mut self, offset: u64, number: u32, most: usize, out: &mut Vec<u8>) -> Option<u64> {
        if let Some((_, len)) = self.plain_at(offset, number..=number, out) {
            return Some(len);
        }
        self.packed_at(offset, number, most, out)
    }

    fn packed_at(&mut self, offset: u64, number: u32, most: usize, out: &mut Vec<u8>) -> Option<u64> {
        let most = most.min(self.end.saturating_sub(offset) as usize);
        // A little at first: few blocks are large.
        let mut have = most.min(16 << 10);
        let mut summed = 0;
        let mut steps = Crc32cSteps::new(checksum_seed(self.file_id, number));
        loop {
            let bytes = self.window.bytes(offset, have).ok()?;
            let (sum, packed) = bytes.split_first_chunk::<PACKED_HEADER_BYTES>()?;
            let sum = u32::from_le_bytes(*sum);
            if !may_be_packed(packed) {
                return None;
            }
            while let Some(b) = packed.get(summed) {
                summed += 1;
                if steps.step(*b) != sum {
                    continue;
                }
                let packed = &packed[..summed];
                let encoding = if packed.starts_with(&ZSTD_MAGIC) { Encoding::Zstd } else { Encoding::Lz4 };
                if unpack(encoding, packed, out) {
                    return Some((PACKED_HEADER_BYTES + summed) as u64);
                }
            }
            if have == most {
                return None;
            }
            have = most.min(have * 4);
        }
    }
}

/// Whether these may be the first bytes of a compressed block: they say how many entries it has (at least one) and how
/// wide its fields are, literally.
fn may_be_packed(packed: &[u8]) -> bool {
    if packed.starts_with(&ZSTD_MAGIC) {
        return true;
    }
    let literals = packed.first().map_or(0, |token| token >> 4);
    let at = if literals == 15 { 1 + packed[1..].iter().take_while(|b| **b == 255).count() + 1 } else { 1 };
    match packed.get(at..at + 4) {
        Some([a, b, widths, meta]) if literals >= 4 => (*a | *b) != 0 && *widths <= 5 && *meta <= 8,
        _ if literals >= 4 => false,
        // Then these are repeated: a match that reaches back to the first of them at most.
        _ => {
            let back = packed.get(at + literals as usize..).and_then(|b| b.first_chunk::<2>());
            back.is_some_and(|b| (1..=u16::from(literals)).contains(&u16::from_le_bytes(*b)))
        }
    }
}

/// Decompresses a block of unknown length; false if it is none.
fn unpack(encoding: Encoding, packed: &[u8], out: &mut Vec<u8>) -> bool {
    for most in [256 << 10, MOST_PACKED] {
        // The block's own checksum is not stored.
        out.clear();
        out.resize(4, 0);
        if let Some(n) = decompress_any(encoding, packed, most, out) {
            return (n + 4).is_multiple_of(BLOCK_UNIT) && BlockView::check_structure(out).is_ok();
        }
    }
    false
}
