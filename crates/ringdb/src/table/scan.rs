//! [`TableScan`]: reads a table from one key to another, past the cache, with reads ahead in flight. For
//! compaction.

use std::ops::Range;
use std::sync::Arc;

use engineswap::mem::AlignedBuf;
use engineswap::{Io, Purpose};

use super::block::{BlockView, Front, Layout, checksum_seed};
use super::compress::Encoding;
use super::format::unpack_block;
use super::parts::TableParts;
use super::read_ahead::{Ahead, ReadAhead};
use crate::coding::crc32c;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::key::{Kind, Seq};

/// Blocks longer than this are left on the disk but for their front, until their value is asked for: a merge stands on
/// one of each input.
const LATE_FROM: usize = 1 << 20;
/// So much of them is read: their key is in it.
const FRONT_BYTES: usize = 128 << 10;

/// Where the bytes of the present block are.
#[derive(Debug)]
enum BlockBytes {
    /// In the present chunk of the read-ahead.
    Chunk(Range<usize>),
    /// In `scratch`; of a late one, the front.
    Scratch,
    /// In a buffer of its own.
    Own(AlignedBuf),
}

/// A forward [`Cursor`] over a table. Checks each block's checksum and structure, and the order across blocks.
pub(crate) struct TableScan {
    parts: Arc<TableParts>,
    ahead: ReadAhead,
    /// First key that is not wanted, and the last block that can hold a key before it.
    end: Option<Vec<u8>>,
    end_block: u32,
    scratch: Vec<u8>,
    stored: Vec<u8>,
    /// Whether large values are left where they are until [`Cursor::load_value`].
    lazy: bool,
    /// The present block, if only its front was read, into `scratch`. Unchecked until the rest is read, at the latest
    /// when the scan goes on.
    late: Option<Front>,
    place: BlockBytes,
    layout: Option<Layout>,
    block: u32,
    at: usize,
    key: Vec<u8>,
    seq: Seq,
    kind: Kind,
    /// The value within the block.
    value: Range<usize>,
}

impl TableScan {
    /// A scan of the keys before `end` (all, if `None`), without a position yet.
    pub fn new(io: &Io, parts: &Arc<TableParts>, end: Option<&[u8]>, purpose: Purpose) -> Result<TableScan> {
        let scan = TableScan::lazy(io, parts, end, Ahead::MOST, purpose)?;
        Ok(TableScan { lazy: false, ..scan })
    }

    /// The same, reading so far ahead, and large values only when asked to by [`Cursor::load_value`].
    pub fn lazy(
        io: &Io,
        parts: &Arc<TableParts>,
        end: Option<&[u8]>,
        ahead: Ahead,
        purpose: Purpose,
    ) -> Result<TableScan> {
        let last = parts.index.blocks().saturating_sub(1);
        Ok(TableScan {
            ahead: ReadAhead::new(io, parts.file()?.clone(), ahead, purpose)?,
            end: end.map(<[u8]>::to_vec),
            end_block: end.and_then(|e| parts.index.find_block(e)).unwrap_or(last),
            parts: parts.clone(),
            scratch: Vec::new(),
            stored: Vec::new(),
            lazy: true,
            late: None,
            place: BlockBytes::Scratch,
            layout: None,
            block: 0,
            at: 0,
            key: Vec::new(),
            seq: 0,
            kind: Kind::Put,
            value: 0..0,
        })
    }

    /// Starts reading at block `block` and loads it.
    fn start_at(&mut self, block: u32) -> Result<()> {
        self.late = None;
        let from = self.parts.index.block_pos(block).offset;
        let last = self.parts.index.block_pos(self.end_block);
        self.ahead.restart(from, last.offset + last.stored_len as u64)?;
        self.load(block)
    }

    /// Loads block `block`, which is the first or follows the present one.
    fn load(&mut self, block: u32) -> Result<()> {
        self.check_late()?;
        self.layout = None;
        self.place = BlockBytes::Scratch;
        self.block = block;
        let pos = self.parts.index.block_pos(block);
        if pos.encoding == Encoding::Plain && pos.stored_len as usize > LATE_FROM {
            return self.load_front(pos.offset, pos.stored_len as usize);
        }
        let (at, chunk) = self.present_chunk(pos.offset)?;
        let start = (pos.offset - at) as usize;
        let end = start + pos.stored_len as usize;
        let whole = end <= chunk;
        if !whole {
            self.gather(pos.offset, pos.stored_len as usize)?;
        }
        let checked = if pos.encoding == Encoding::Plain {
            self.place = if whole { BlockBytes::Chunk(start..end) } else { BlockBytes::Scratch };
            if !whole {
                std::mem::swap(&mut self.stored, &mut self.scratch);
            }
            BlockView::validate(self.bytes(), self.parts.file_id, block)
        } else {
            self.place = BlockBytes::Scratch;
            if self.scratch.capacity() > LATE_FROM.max(pos.block_len as usize) {
                self.scratch = Vec::new();
            }
            self.scratch.resize(pos.block_len as usize, 0);
            let stored = match self.ahead.present() {
                Some((_, bytes)) if whole => &bytes[start..end],
                _ => &self.stored[..],
            };
            let table = (self.parts.file_id, self.parts.seal());
            let unpacked = unpack_block(stored, &pos, &mut self.scratch, table, block);
            // What a large value was read into is not kept beside it.
            if self.stored.capacity() > LATE_FROM {
                self.stored = Vec::new();
            }
            unpacked
        };
        checked.map_err(|e| self.parts.corrupt_block(block, e))?;
        self.layout = Some(BlockView::trusted(self.bytes()).layout());
        Ok(())
    }

    /// Reads the front of the present block, which is large. The rest too, if that may not wait.
    fn load_front(&mut self, offset: u64, len: usize) -> Result<()> {
        self.gather(offset, FRONT_BYTES.min(len))?;
        std::mem::swap(&mut self.stored, &mut self.scratch);
        let front = BlockView::lone_front(&self.scratch, len);
        // Nobody may take a wrong key for the end of the scan. Within its block's bounds it does no harm, since the
        // block is checked before the scan goes on.
        let inside = |f: &Front| f.key.as_slice() <= self.parts.index.separator(self.block);
        let last = self.end.is_some() && self.block == self.end_block;
        self.late = front.filter(|f| self.lazy && !last && inside(f));
        match &self.late {
            Some(front) => self.layout = Some(front.layout),
            None => self.load_rest(len)?,
        }
        Ok(())
    }

    /// Reads the rest of the present block, of which `scratch` has the front, and checks it all.
    fn load_rest(&mut self, len: usize) -> Result<()> {
        let mut buf = AlignedBuf::zeroed(len);
        let mut have = self.scratch.len();
        buf[..have].copy_from_slice(&self.scratch);
        self.each_of_the_rest(len, |bytes| {
            buf[have..have + bytes.len()].copy_from_slice(bytes);
            have += bytes.len();
        })?;
        BlockView::validate(&buf[..len], self.parts.file_id, self.block)
            .map_err(|e| self.parts.corrupt_block(self.block, e))?;
        self.layout = Some(BlockView::trusted(&buf).layout());
        self.place = BlockBytes::Own(buf);
        Ok(())
    }

    /// Reads the rest of a late block, which nobody has asked for, only to check it.
    fn check_late(&mut self) -> Result<()> {
        if self.late.take().is_none() {
            return Ok(());
        }
        let len = self.parts.index.block_pos(self.block).stored_len as usize;
        let Some((stored, rest)) = self.scratch.split_first_chunk::<4>() else { return Ok(()) };
        let stored = u32::from_le_bytes(*stored);
        let mut sum = crc32c(checksum_seed(self.parts.file_id, self.block), rest);
        self.each_of_the_rest(len, |bytes| sum = crc32c(sum, bytes))?;
        if sum != stored {
            self.layout = None;
            let detail = format!("block {}: its checksum does not match", self.block);
            return Err(self.parts.corrupt_block(self.block, detail));
        }
        Ok(())
    }

    /// Goes through what is behind the front of the present block, in pieces.
    fn each_of_the_rest(&mut self, len: usize, mut f: impl FnMut(&[u8])) -> Result<()> {
        let start = self.parts.index.block_pos(self.block).offset;
        let mut have = self.scratch.len();
        while have < len {
            let offset = start + have as u64;
            self.present_chunk(offset)?;
            let (at, bytes) = self.ahead.present().unwrap_or_default();
            let rest = bytes.get((offset - at) as usize..).unwrap_or_default();
            let rest = &rest[..rest.len().min(len - have)];
            f(rest);
            have += rest.len();
        }
        Ok(())
    }

    /// The file offset and length of the chunk that holds `offset`.
    fn present_chunk(&mut self, offset: u64) -> Result<(u64, usize)> {
        match self.ahead.chunk_at(offset)? {
            Some((at, bytes)) => Ok((at, bytes.len())),
            None => Err(Error::corrupt(&self.parts.path, Some(offset), "a block past the end of the data")),
        }
    }

    /// Copies a block that lies in several chunks to `stored`.
    fn gather(&mut self, mut offset: u64, len: usize) -> Result<()> {
        self.stored.clear();
        while self.stored.len() < len {
            self.present_chunk(offset)?;
            let (at, bytes) = self.ahead.present().unwrap_or_default();
            let rest = &bytes[(offset - at) as usize..];
            let rest = &rest[..rest.len().min(len - self.stored.len())];
            self.stored.extend_from_slice(rest);
            offset += rest.len() as u64;
        }
        Ok(())
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match &self.place {
            BlockBytes::Chunk(r) => self.ahead.present().map_or(&[], |(_, bytes)| &bytes[r.clone()]),
            BlockBytes::Scratch => &self.scratch,
            BlockBytes::Own(buf) => buf,
        }
    }

    /// To entry `at` of the present block. `fresh` if `key` is not of this block.
    #[inline]
    fn set(&mut self, at: usize, fresh: bool) {
        let Some(layout) = self.layout else { return };
        if let Some(front) = &self.late {
            self.key.clone_from(&front.key);
            self.seq = front.seq + self.parts.given();
            (self.kind, self.value, self.at) = (front.kind, front.value.clone(), at);
            return;
        }
        let mut key = std::mem::take(&mut self.key);
        let entry = BlockView::with_layout(self.bytes(), layout).entry(at);
        if fresh {
            entry.key_into(&mut key);
        } else {
            key.truncate(entry.prefix.len());
            key.extend_from_slice(entry.suffix);
        }
        let (seq, kind, value) = (entry.seq + self.parts.given(), entry.kind, entry.value_range());
        self.key = key;
        (self.seq, self.kind, self.value, self.at) = (seq, kind, value, at);
        if self.block == self.end_block && self.end.as_ref().is_some_and(|e| self.key >= *e) {
            self.layout = None;
        }
    }

    /// Loads the block after the present one, if it may hold wanted keys, and goes to its first entry.
    #[cold]
    fn next_block(&mut self, in_sequence: bool) -> Result<()> {
        if self.block >= self.end_block {
            self.check_late()?;
            self.layout = None;
            return Ok(());
        }
        let (last_key, last_seq) = (self.key.clone(), self.seq);
        let done = self.block;
        self.load(done + 1)?;
        self.set(0, true);
        if in_sequence {
            let separator = self.parts.index.separator(done);
            let ascends = last_key < self.key || (last_key == self.key && last_seq > self.seq);
            if !ascends || last_key.as_slice() > separator || self.key.as_slice() < separator {
                self.layout = None;
                return Err(self
                    .parts
                    .corrupt_block(done + 1, "out of order with the block before or the index"));
            }
        }
        Ok(())
    }
}

impl Cursor for TableScan {
    #[inline]
    fn valid(&self) -> bool {
        self.layout.is_some()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        &self.key
    }
    #[inline]
    fn seq(&self) -> Seq {
        self.seq
    }
    #[inline]
    fn kind(&self) -> Kind {
        self.kind
    }
    #[inline]
    fn value(&self) -> &[u8] {
        &self.bytes()[self.value.clone()]
    }

    #[inline]
    fn load_value(&mut self) -> Result<()> {
        match self.late.take() {
            Some(_) => self.load_rest(self.parts.index.block_pos(self.block).stored_len as usize),
            None => Ok(()),
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.layout = None;
        let Some(block) = self.parts.index.find_block(key).filter(|b| *b <= self.end_block) else {
            return Ok(());
        };
        self.start_at(block)?;
        let Some(layout) = self.layout else { return Ok(()) };
        let at = match &self.late {
            Some(front) => usize::from(front.key.as_slice() < key),
            None => BlockView::with_layout(self.bytes(), layout).lower_bound(key),
        };
        let n = layout.len();
        if at == n {
            return self.next_block(false);
        }
        self.set(at, true);
        Ok(())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.layout = None;
        if self.parts.index.blocks() > 0 {
            self.start_at(0)?;
            self.set(0, true);
        }
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some(layout) = self.layout else { return Ok(()) };
        if self.at + 1 < layout.len() {
            self.set(self.at + 1, false);
            return Ok(());
        }
        self.next_block(true)
    }
}
