//! A table from its first entry to its last: a footer at the end names the index, whose entries name the blocks.

use std::cmp::Ordering;

use crate::block::Block;
use crate::bytes::{checksum, fixed32, fixed64, varint};
use crate::files::Source;
use crate::key::{self, Parts};
use crate::manifest::TableFile;
use crate::{Error, Result};

const FOOTER: u64 = 48;
const MAGIC: u64 = 0xDB47_7524_8B80_FB57;
/// Behind each block: how it is compressed, and its checksum.
const TRAILER: u64 = 5;
/// Snappy's shortest way to say something: 64 bytes by 3.
const MOST_TIMES_LARGER: usize = 22;

/// An open table. It stands on an entry, until there is none left.
pub(crate) struct Table {
    source: Source,
    checksums: bool,
    meta: TableFile,
    last_sequence: u64,
    index: Block,
    block: Block,
    /// Where the block is in the file.
    block_at: u64,
    unpacked: snap::raw::Decoder,
    /// The internal key before this one.
    last: Vec<u8>,
}

/// Where a block is, without its trailer.
#[derive(Clone, Copy)]
struct Handle {
    offset: u64,
    size: u64,
}

fn handle(bytes: &[u8]) -> Option<(Handle, &[u8])> {
    let (offset, rest) = varint(bytes)?;
    let (size, rest) = varint(rest)?;
    Some((Handle { offset, size }, rest))
}

impl Table {
    /// Opens a table and goes to its first entry. No entry may have a number above `last_sequence`.
    pub(crate) fn open(
        source: Source,
        meta: TableFile,
        last_sequence: u64,
        checksums: bool,
    ) -> Result<Table> {
        let mut table = Table {
            source,
            checksums,
            meta,
            last_sequence,
            index: Block::default(),
            block: Block::default(),
            block_at: 0,
            unpacked: snap::raw::Decoder::new(),
            last: Vec::new(),
        };
        let at =
            table.meta.size.checked_sub(FOOTER).ok_or_else(|| table.damaged(0, "too short for a table"))?;
        let footer = table.source.bytes(at, FOOTER)?;
        let magic = fixed64(&footer[40..]).map(|(m, _)| m);
        let index = handle(footer).and_then(|(_, rest)| handle(rest));
        if magic != Some(MAGIC) {
            return Err(table
                .damaged(at, "no LevelDB table ends so: the file is cut off, overwritten or another kind"));
        }
        let Some((index, _)) = index else {
            return Err(table.damaged(at, "the place of the index is unreadable"));
        };
        table.index = table.read_block(index, Vec::new())?;
        if table.step()? && table.key() == table.meta.smallest {
            return Ok(table);
        }
        Err(table.damaged(0, "its first key is not what the manifest says"))
    }

    fn damaged(&self, offset: u64, why: impl Into<String>) -> Error {
        Error::damaged(self.source.path(), offset, why)
    }

    /// The entry's internal key.
    pub(crate) fn key(&self) -> &[u8] {
        self.block.key()
    }

    /// The entry's value.
    pub(crate) fn value(&self) -> &[u8] {
        self.block.value()
    }

    /// Goes to the next entry; whether there is one.
    pub(crate) fn step(&mut self) -> Result<bool> {
        self.last.clear();
        self.last.extend_from_slice(self.block.key());
        loop {
            let within = self.block.next_at();
            match self.block.step() {
                Ok(true) => break,
                Ok(false) => {}
                Err(()) => {
                    return Err(
                        self.damaged(self.block_at, format!("no entry at byte {within} of the block"))
                    );
                }
            }
            if !self.next_block()? {
                let whole = self.last == self.meta.largest;
                let why = "its last key is not what the manifest says";
                return if whole { Ok(false) } else { Err(self.damaged(self.meta.size - FOOTER, why)) };
            }
        }
        let checked = self.check();
        checked.map(|()| true).map_err(|why| self.damaged(self.block_at, why))
    }

    /// Whether the entry can be where it is.
    fn check(&self) -> std::result::Result<(), String> {
        let key = self.block.key();
        let parts = Parts::of(key)?;
        if parts.sequence > self.last_sequence {
            return Err(format!(
                "a write of number {}, where the store's last is {}",
                parts.sequence, self.last_sequence
            ));
        }
        if !self.last.is_empty() && key::compare(&self.last, key) != Ordering::Less {
            return Err("keys out of order".into());
        }
        if key::compare(key, self.index.key()) == Ordering::Greater {
            return Err("a key above what the index says of its block".into());
        }
        Ok(())
    }

    /// Reads the next block that the index names; whether there is one.
    fn next_block(&mut self) -> Result<bool> {
        match self.index.step() {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(()) => return Err(self.damaged(self.meta.size - FOOTER, "the index has an unreadable entry")),
        }
        let Some((place, [])) = handle(self.index.value()) else {
            return Err(self.damaged(self.meta.size - FOOTER, "the index has an unreadable place of a block"));
        };
        let memory = std::mem::take(&mut self.block).into_memory();
        self.block = self.read_block(place, memory)?;
        self.block_at = place.offset;
        Ok(true)
    }

    /// Reads, checks and unpacks a block.
    fn read_block(&mut self, place: Handle, mut memory: Vec<u8>) -> Result<Block> {
        let Handle { offset, size } = place;
        let stored =
            size.checked_add(TRAILER).ok_or_else(|| self.damaged(offset, "an impossible size of a block"))?;
        let stored = self.source.bytes(offset, stored)?;
        let (covered, crc) = stored.split_at(size as usize + 1);
        if self.checksums && fixed32(crc).map(|(crc, _)| crc) != Some(checksum(covered)) {
            return Err(self.damaged(offset, "the checksum of a block is wrong"));
        }
        let (packed, kind) = covered.split_at(size as usize);
        let unpacked = match kind {
            [0] => {
                memory.extend_from_slice(packed);
                Some(memory)
            }
            [1] => unpack(&mut self.unpacked, packed, memory),
            [kind] => {
                let why = format!(
                    "a block is compressed in way {kind}; LevelDB 1.23 has none (0) and Snappy (1), and so has this reader"
                );
                return Err(Error::unsupported(self.source.path(), why));
            }
            _ => None,
        };
        let block = unpacked.and_then(Block::new);
        block.ok_or_else(|| self.damaged(offset, "a block cannot be unpacked"))
    }
}

/// Unpacks Snappy. No more memory is taken than so many bytes can become.
fn unpack(decoder: &mut snap::raw::Decoder, packed: &[u8], mut memory: Vec<u8>) -> Option<Vec<u8>> {
    let len = snap::raw::decompress_len(packed).ok()?;
    if len > packed.len().saturating_mul(MOST_TIMES_LARGER) {
        return None;
    }
    memory.resize(len, 0);
    let got = decoder.decompress(packed, &mut memory).ok()?;
    (got == len).then_some(memory)
}
