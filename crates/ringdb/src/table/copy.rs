//! Copying a table: the file is read once, from start to end; each of its blocks is checked as it passes, and all bytes
//! are hashed. And what tells a table from all others without reading it.

use std::path::Path;

use engineswap::mem::AlignedBuf;
use engineswap::{File, Io, OpenHow, Purpose};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::block::{BLOCK_UNIT, BlockView};
use super::compress::Encoding;
use super::format::{FOOTER_BYTES, Footer, unpack_block};
use super::meta::TableMeta;
use super::parts::TableParts;
use super::reads::{Reads, open_direct};
use crate::error::{Error, Result};

/// Bytes read at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// Is told of bytes that have passed; its error ends the work.
pub(crate) type Passed<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// What tells a table from all others: the hash of its footer, which holds its number, its length, the checksums of its
/// index, filter and properties, and a digest of its blocks. Of a table that an earlier build wrote, without a digest,
/// the hash of all bytes, which is `passed` them.
pub(crate) fn identity(
    io: &Io,
    path: &Path,
    meta: &TableMeta,
    purpose: Purpose,
    passed: Passed<'_>,
) -> Result<u128> {
    let file = open_direct(io, path, &OpenHow::read())?;
    has_length(&file, meta.file_bytes)?;
    let mut end = AlignedBuf::zeroed(BLOCK_UNIT);
    file.read_exact_at(&mut end, meta.file_bytes - BLOCK_UNIT as u64, purpose)?;
    let Some(bytes) = end.last_chunk::<FOOTER_BYTES>() else {
        return Err(Error::corrupt(path, None, "no footer"));
    };
    let footer = Footer::decode(bytes, path, meta.file_bytes, meta.file_id)?;
    match footer.digest {
        0 => hash_file(&file, meta.file_bytes, purpose, passed),
        _ => Ok(xxh3_128(bytes)),
    }
}

/// Copies the table at `from` to the new file `to`, and makes that durable but for its name; returns the hash of all
/// bytes. An error if anything of the table is damaged.
pub(crate) fn copy_table(
    io: &Io,
    from: &Path,
    to: &Path,
    meta: &TableMeta,
    purpose: Purpose,
    passed: Passed<'_>,
) -> Result<u128> {
    let parts = TableParts::load(io, from, meta.file_id, Reads::Direct, purpose)?;
    let source = parts.file()?;
    has_length(source, meta.file_bytes)?;
    let copy = open_direct(io, to, &OpenHow::create_new())?;
    let mut check = BlockCheck { parts: &parts, next: 0, held: Vec::new(), block: Vec::new() };
    let hash = pass(source, meta.file_bytes, purpose, &mut |at, piece| {
        check.feed(at, piece)?;
        copy.write_all_at(piece, at, purpose)?;
        passed(piece.len() as u64)
    })?;
    check.end()?;
    copy.sync_all(purpose)?;
    drop(copy);
    // What is not a block was read before: once more, as it was copied.
    TableParts::load(io, to, meta.file_id, Reads::Direct, purpose)?;
    Ok(hash)
}

/// Copies a file of `len` bytes whose hash is known to the new file `to`, and makes that durable but for its name.
pub(crate) fn copy_known(
    io: &Io,
    from: &Path,
    to: &Path,
    (len, hash): (u64, u128),
    purpose: Purpose,
    passed: Passed<'_>,
) -> Result<()> {
    let source = open_direct(io, from, &OpenHow::read())?;
    has_length(&source, len)?;
    let copy = open_direct(io, to, &OpenHow::create_new())?;
    let found = pass(&source, len, purpose, &mut |at, piece| {
        copy.write_all_at(piece, at, purpose)?;
        passed(piece.len() as u64)
    })?;
    has_hash(from, found, hash)?;
    Ok(copy.sync_all(purpose)?)
}

/// Whether a file has the length and the hash that it had; the error says what is wrong.
pub(crate) fn check_known(
    io: &Io,
    path: &Path,
    (len, hash): (u64, u128),
    purpose: Purpose,
    passed: Passed<'_>,
) -> Result<()> {
    let file = open_direct(io, path, &OpenHow::read())?;
    has_length(&file, len)?;
    has_hash(path, hash_file(&file, len, purpose, passed)?, hash)
}

fn has_length(file: &File, len: u64) -> Result<()> {
    let found = file.len()?;
    if found != len || len < BLOCK_UNIT as u64 || !len.is_multiple_of(BLOCK_UNIT as u64) {
        return Err(Error::corrupt(file.path(), None, format!("{found} bytes, where {len} should be")));
    }
    Ok(())
}

fn has_hash(path: &Path, found: u128, hash: u128) -> Result<()> {
    if found == hash { Ok(()) } else { Err(Error::corrupt(path, None, "its checksum does not match")) }
}

fn hash_file(file: &File, len: u64, purpose: Purpose, passed: Passed<'_>) -> Result<u128> {
    pass(file, len, purpose, &mut |_, piece| passed(piece.len() as u64))
}

/// Gives a file's bytes to `take`, with their offsets, and returns their hash.
fn pass(
    file: &File,
    len: u64,
    purpose: Purpose,
    take: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<u128> {
    let mut buf = AlignedBuf::zeroed(PIECE_BYTES.min(len) as usize);
    let mut hasher = Xxh3::new();
    let mut at = 0;
    while at < len {
        let piece = &mut buf[..PIECE_BYTES.min(len - at) as usize];
        file.read_exact_at(piece, at, purpose)?;
        hasher.update(piece);
        take(at, piece)?;
        at += piece.len() as u64;
    }
    Ok(hasher.digest128())
}

/// Checks the blocks of a table whose bytes come piece by piece.
struct BlockCheck<'a> {
    parts: &'a TableParts,
    next: u32,
    /// What has come of a block that is not complete.
    held: Vec<u8>,
    block: Vec<u8>,
}

impl BlockCheck<'_> {
    fn feed(&mut self, mut at: u64, mut piece: &[u8]) -> Result<()> {
        let index = &self.parts.index;
        while self.next < index.blocks() {
            let pos = index.block_pos(self.next);
            let wanted = pos.offset + self.held.len() as u64;
            let skip = wanted.saturating_sub(at);
            if skip >= piece.len() as u64 {
                return Ok(());
            }
            piece = &piece[skip as usize..];
            let lacks = (pos.stored_len as usize).saturating_sub(self.held.len());
            if piece.len() < lacks {
                self.held.extend_from_slice(piece);
                return Ok(());
            }
            let (end, rest) = piece.split_at(lacks);
            if self.held.is_empty() {
                check_block(self.parts, self.next, end, &mut self.block)?;
            } else {
                self.held.extend_from_slice(end);
                check_block(self.parts, self.next, &self.held, &mut self.block)?;
                self.held.clear();
            }
            (at, piece) = (at + skip + lacks as u64, rest);
            self.next += 1;
        }
        Ok(())
    }

    fn end(&self) -> Result<()> {
        match self.next < self.parts.index.blocks() {
            true => Err(self.parts.corrupt_block(self.next, "the file ends before the block")),
            false => Ok(()),
        }
    }
}

fn check_block(parts: &TableParts, number: u32, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let pos = parts.index.block_pos(number);
    let checked = match pos.encoding {
        Encoding::Plain => BlockView::validate(stored, parts.file_id, number),
        _ => {
            out.resize(pos.block_len as usize, 0);
            unpack_block(stored, &pos, out, (parts.file_id, parts.seal()), number)
        }
    };
    checked.map_err(|e| parts.corrupt_block(number, e))
}
