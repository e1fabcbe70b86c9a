//! A version of a key as it lies in the arena.
//!
//! ```text
//! u64 prev (position of the next older version, 0 if none) | u64 seq << 8 | kind | u32 key bytes | u32 value bytes
//! | key | value
//! ```
//! In the processor's own byte order: it never leaves memory.

use crate::key::{Kind, Seq};
use latchfree::{AppendArena, ArenaPos, ArenaWriter};

const HEADER: usize = 24;

/// A version in the arena.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    /// Position of the next older version of the key; 0 if there is none.
    pub prev: u64,
    pub seq: Seq,
    pub kind: Kind,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at `pos`; `None` if there is none.
    #[inline]
    pub fn at(arena: &'a AppendArena, pos: u64) -> Option<Record<'a>> {
        let (header, rest) = arena.tail(ArenaPos(pos))?.split_first_chunk::<HEADER>()?;
        let word = |i: usize| u64::from_ne_bytes(std::array::from_fn(|j| header[i * 8 + j]));
        let (prev, tag, lens) = (word(0), word(1), word(2));
        let (key, rest) = rest.split_at_checked(lens as u32 as usize)?;
        let value = rest.get(..(lens >> 32) as usize)?;
        let kind = match tag as u8 {
            0 => Kind::Delete,
            1 => Kind::Put,
            2 => Kind::Merge,
            _ => Kind::Expiring,
        };
        Some(Record { prev, seq: tag >> 8, kind, key, value })
    }

    /// Appends a record; returns its position, which is not 0.
    pub fn append(
        writer: &mut ArenaWriter,
        prev: u64,
        seq: Seq,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> u64 {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&prev.to_ne_bytes());
        header[8..16].copy_from_slice(&(seq << 8 | kind as u64).to_ne_bytes());
        header[16..].copy_from_slice(&(key.len() as u64 | (value.len() as u64) << 32).to_ne_bytes());
        writer.append(&[&header, key, value]).0
    }
}

/// Hints that the record at `pos` is about to be read.
#[inline(always)]
pub(super) fn prefetch(arena: &AppendArena, pos: u64) {
    arena.prefetch(ArenaPos(pos), 0);
    arena.prefetch(ArenaPos(pos), 64);
}
