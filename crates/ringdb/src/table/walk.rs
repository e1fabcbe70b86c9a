//! [`Window`] and [`BlockWalk`]: reading a table that may be damaged, block by block, where one that cannot be read
//! says nothing about the others. For verification and salvage.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use engineswap::mem::AlignedBuf;
use engineswap::{File, Io, OpenHow, Purpose};

use super::block::{BLOCK_UNIT, BlockView};
use super::compress::Encoding;
use super::format::unpack_block;
use super::index::Index;
use super::reads::open_direct;
use crate::error::{Error, Result};
use crate::seal::Seal;

/// Bytes read at once, if nothing fails.
const WINDOW_BYTES: u64 = 1 << 20;
const UNIT: u64 = BLOCK_UNIT as u64;

/// Bytes of a file, past the page cache, through one buffer that is no larger than what is asked for at once.
pub(crate) struct Window {
    file: File,
    len: u64,
    purpose: Purpose,
    buf: AlignedBuf,
    start: u64,
    have: usize,
    /// Numbers of units that cannot be read: a disk may take seconds to say so, and is asked once.
    bad: BTreeSet<u64>,
    /// Before this no more is read than is asked for, since something there cannot be read.
    careful_until: u64,
}

impl Window {
    /// Over the file at `path`.
    pub fn open(io: &Io, path: &Path, purpose: Purpose) -> Result<Window> {
        Window::over(&open_direct(io, path, &OpenHow::read())?, purpose)
    }

    /// Over an open file.
    pub fn over(file: &File, purpose: Purpose) -> Result<Window> {
        let (len, buf) = (file.len()?, AlignedBuf::zeroed(0));
        Ok(Window {
            file: file.clone(),
            len,
            purpose,
            buf,
            start: 0,
            have: 0,
            bad: BTreeSet::new(),
            careful_until: 0,
        })
    }

    /// The file's length.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// `len` bytes from `offset` on. An error if the file ends before, or they cannot be read.
    pub fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        let end = offset.saturating_add(len as u64);
        if end > self.len {
            let detail = format!("the file ends at {}, before the end of these {len} bytes", self.len);
            return Err(Error::corrupt(self.file.path(), Some(offset), detail));
        }
        if offset < self.start || end > self.start + self.have as u64 {
            if let Some(unit) = self.bad.range(offset / UNIT..end.div_ceil(UNIT)).next() {
                let detail = format!("the bytes at {} cannot be read", unit * UNIT);
                return Err(Error::corrupt(self.file.path(), Some(offset), detail));
            }
            let wide = (offset + WINDOW_BYTES).max(end).min(self.len);
            let all = offset >= self.careful_until
                && self.bad.range(offset / UNIT..wide.div_ceil(UNIT)).next().is_none();
            if !all || self.read(offset, wide).is_err() {
                if all {
                    self.careful_until = wide;
                }
                // Less may be had.
                if let Err(e) = self.read(offset, end) {
                    self.find_bad(offset, end);
                    return Err(e);
                }
            }
            if end > self.start + self.have as u64 {
                let detail = format!("the file ends before the end of these {len} bytes");
                return Err(Error::corrupt(self.file.path(), Some(offset), detail));
            }
        }
        let from = (offset - self.start) as usize;
        Ok(&self.buf[from..from + len])
    }

    /// Finds the first unit of a range that cannot be read.
    fn find_bad(&mut self, from: u64, to: u64) {
        let units = from / UNIT..to.div_ceil(UNIT);
        let only = units.end - units.start == 1;
        for unit in units {
            if only || self.read(unit * UNIT, (unit + 1) * UNIT).is_err() {
                self.bad.insert(unit);
                return;
            }
        }
    }

    fn read(&mut self, from: u64, to: u64) -> Result<()> {
        let start = from / UNIT * UNIT;
        let len = (to.next_multiple_of(UNIT) - start) as usize;
        (self.start, self.have) = (start, 0);
        if self.buf.len() < len || self.buf.len() as u64 > 4 * WINDOW_BYTES.max(len as u64) {
            self.buf = AlignedBuf::zeroed(len.max(WINDOW_BYTES as usize + BLOCK_UNIT));
        }
        self.have = self.file.read_at(&mut self.buf[..len], start, self.purpose)?;
        Ok(())
    }
}

/// The blocks of a table whose index is known.
pub(crate) struct BlockWalk {
    window: Window,
    index: Arc<Index>,
    file_id: u64,
    seal: Option<Arc<Seal>>,
    block: Vec<u8>,
}

impl BlockWalk {
    /// Over the blocks that `index` names, of a table with this number and this seal.
    pub fn new(window: Window, index: Arc<Index>, (file_id, seal): (u64, Option<Arc<Seal>>)) -> BlockWalk {
        BlockWalk { window, index, file_id, seal, block: Vec::new() }
    }

    /// The index.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// Block `number`, unpacked and checked; the error names its offset.
    pub fn block(&mut self, number: u32) -> Result<&[u8]> {
        let pos = self.index.block_pos(number);
        let path = self.window.file.path().to_path_buf();
        let corrupt = |detail: String| Error::corrupt(&path, Some(pos.offset), detail);
        let stored = match self.window.bytes(pos.offset, pos.stored_len as usize) {
            Err(Error::Corrupt { detail, .. }) => return Err(corrupt(format!("block {number}: {detail}"))),
            stored => stored?,
        };
        if pos.encoding == Encoding::Plain {
            BlockView::validate(stored, self.file_id, number).map_err(corrupt)?;
            return Ok(stored);
        }
        self.block.resize(pos.block_len as usize, 0);
        let table = (self.file_id, self.seal.as_deref());
        unpack_block(stored, &pos, &mut self.block, table, number).map_err(corrupt)?;
        Ok(&self.block)
    }
}
