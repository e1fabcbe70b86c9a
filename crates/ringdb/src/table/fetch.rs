//! Reading data blocks: from the disk into frames (or buffers of their own), checked, then into the cache.
//!
//! A block that comes out of here has the right checksum and structure; one that is wrong is [`Error::Corrupt`] with
//! the path and offset, a failing read is [`Error::Io`].

use std::ops::Range;
use std::sync::Arc;

use engineswap::mem::AlignedBuf;
use engineswap::{Buf, Done, File, Io, Op, Piece, Purpose};
use latchfree::{FreeFrame, PinnedFrame};

use super::block::BlockView;
use super::compress::Encoding;
use super::format::unpack;
use super::index::BlockPos;
use super::reader::Table;
use crate::cache::Owner;
use crate::{Error, Result, Value};

/// What direct reads are aligned to. Reads through the page cache take a block's bytes alone.
const ALIGN: u64 = 4096;
/// Most blocks of one read operation.
pub(super) const RUN_BLOCKS: u32 = 16;

/// From here on it pays not to copy a value, though the block stays in memory for as long.
const SHARED_FROM: usize = 32 << 10;

/// From here on a block that is being read is charged to the budget by itself.
const ROOM_FROM: usize = 1 << 20;

/// A checked block that stays in memory as long as this lives.
pub(crate) enum Block {
    /// In the cache, kept from being evicted.
    Pinned(PinnedFrame),
    /// In a frame that is not (or not yet) in the cache.
    Own(FreeFrame),
    /// In a buffer, perhaps with others.
    Shared(Arc<AlignedBuf>, Range<usize>),
}

impl Block {
    /// The block's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Block::Pinned(frame) => frame,
            Block::Own(frame) => frame,
            Block::Shared(buf, range) => &buf[range.clone()],
        }
    }

    /// `part` of the block's bytes as a value. A large one that is most of its buffer is not copied.
    pub fn value(&self, part: &[u8]) -> Value {
        if let Block::Shared(buf, _) = self
            && part.len() >= SHARED_FROM.max(buf.len() / 2)
        {
            let start = part.as_ptr() as usize - buf.as_ptr() as usize;
            return Value::shared(Arc::clone(buf), start..start + part.len());
        }
        Value::copy_from(part)
    }

    /// Bytes of memory besides the cache's frames.
    pub fn bytes_of_its_own(&self) -> u64 {
        match self {
            Block::Pinned(_) | Block::Own(_) => 0,
            Block::Shared(_, range) => range.len() as u64,
        }
    }
}

/// Consecutive blocks of one table, to be read by one operation.
pub(super) struct Run<'a> {
    table: &'a Table,
    first: u32,
    count: u32,
    /// The place of its first block among those that are read together.
    place: usize,
    /// Where the operation reads.
    span: Range<u64>,
    /// What the operation's range is aligned to.
    unit: u64,
}

impl<'a> Run<'a> {
    pub fn new(table: &'a Table, first: u32, count: u32, place: usize) -> Run<'a> {
        let start = table.index().block_pos(first).offset;
        let last = table.index().block_pos(first + count - 1);
        let end = last.offset + last.stored_len as u64;
        let unit = if table.reads_direct() { ALIGN } else { 1 };
        let span = start / unit * unit..end.next_multiple_of(unit);
        Run { table, first, count, place, span, unit }
    }

    /// Whether the blocks can be read where they will lie in the cache.
    fn fits_frames(&self) -> bool {
        let frame = self.table.cache().frame_bytes() as u64;
        let len = self.span.end - self.span.start;
        let aligned_plain = |i| {
            let pos = self.table.index().block_pos(i);
            let all = self.count == 1 || pos.stored_len as u64 == frame;
            pos.encoding == Encoding::Plain && pos.offset.is_multiple_of(self.unit) && all
        };
        len <= self.count as u64 * frame && (self.first..self.first + self.count).all(aligned_plain)
    }

    /// The operation; into frames of the cache where that can be.
    pub fn op(&self, file: &File, use_frames: bool, purpose: Purpose) -> Op {
        let len = self.span.end - self.span.start;
        let mut buf = Buf::None;
        if use_frames && self.fits_frames() {
            let frame = || self.table.cache().frame();
            buf = match self.count {
                1 => frame().map_or(Buf::None, Buf::from),
                n => {
                    let all: Option<Vec<Piece>> = (0..n).map(|_| frame().map(Piece::from)).collect();
                    all.map_or(Buf::None, Buf::Pieces)
                }
            };
        }
        if let Buf::None = buf {
            buf = Buf::Aligned(AlignedBuf::zeroed(len as usize));
        }
        Op::read(file, self.span.start, len, buf, purpose)
    }

    /// Puts the run's blocks out of a completion, checked, into their places.
    pub fn finish(&self, done: Done, use_frames: bool, all: &mut [Option<Result<Block>>]) {
        let places = &mut all[self.place..][..self.count as usize];
        let read = match done.result {
            Ok(n) => n,
            Err(e) => return places.fill_with(|| Some(Err(Error::Io(e.clone())))),
        };
        let (mut one, mut several, mut shared) = (None, Vec::new(), None);
        match done.buf {
            Buf::Arena(buf) => one = Some(Piece::Arena(buf)),
            Buf::Pieces(pieces) => several = pieces,
            Buf::Aligned(buf) => shared = Some(Arc::new(buf)),
            _ => {}
        }
        let mut frames = one.into_iter().chain(several).map(|piece| match piece {
            Piece::Arena(buf) => FreeFrame::try_from(buf).ok(),
            _ => None,
        });
        for (number, place) in (self.first..).zip(places) {
            let frame = frames.next().flatten();
            *place = Some(self.block(number, frame, shared.as_ref(), read, use_frames));
        }
    }

    /// A block of which `read` bytes of the run have come, into its frame or the buffer of all.
    fn block(
        &self,
        number: u32,
        frame: Option<FreeFrame>,
        shared: Option<&Arc<AlignedBuf>>,
        read: u64,
        use_frames: bool,
    ) -> Result<Block> {
        let pos = self.table.index().block_pos(number);
        let from = pos.offset - self.span.start;
        if from + pos.stored_len as u64 > read {
            return Err(self.table.short_read(&pos, read.saturating_sub(from)));
        }
        if let Some(frame) = frame {
            self.table.check(&frame[..pos.block_len as usize], number, &pos)?;
            return Ok(Block::Own(frame));
        }
        let Some(buf) = shared else { return Err(self.table.short_read(&pos, 0)) };
        self.table.block_within(buf, from as usize, number, &pos, use_frames)
    }
}

impl Table {
    fn short_read(&self, pos: &BlockPos, got: u64) -> Error {
        let detail = format!("the file ends after {got} of these bytes");
        let e = engineswap::Error::new(engineswap::ErrorKind::UnexpectedEof, "read", detail);
        Error::Io(e.at(self.path()).range(pos.offset, pos.stored_len as u64))
    }

    /// Checks a block as it lies in the file.
    fn check(&self, bytes: &[u8], number: u32, pos: &BlockPos) -> Result<()> {
        let sum = BlockView::check_sum(bytes, self.meta().file_id, number)
            .map_err(|detail| Error::corrupt(self.path(), Some(pos.offset), detail))?;
        self.check_structure(bytes, number, pos, sum)
    }

    /// Checks the structure of a block, unless it has passed with this checksum before.
    #[inline]
    fn check_structure(&self, bytes: &[u8], number: u32, pos: &BlockPos, sum: u32) -> Result<()> {
        if self.checked().has(number, sum) {
            return Ok(());
        }
        BlockView::check_structure(bytes).map_err(|what| {
            Error::corrupt(self.path(), Some(pos.offset), format!("block {number}: {what}"))
        })?;
        self.checked().add(number, sum);
        Ok(())
    }

    /// The block at `from` of a buffer that was read from the file: unpacked if need be, and checked.
    fn block_within(
        &self,
        buf: &Arc<AlignedBuf>,
        from: usize,
        number: u32,
        pos: &BlockPos,
        use_frames: bool,
    ) -> Result<Block> {
        let range = from..from + pos.stored_len as usize;
        let stored = &buf[range.clone()];
        let len = pos.block_len as usize;
        let fits = len <= self.cache().frame_bytes();
        // A large block that is to be cached has its buffer to itself.
        if pos.encoding == Encoding::Plain && (!use_frames || (!fits && from == 0)) {
            self.check(stored, number, pos)?;
            return Ok(Block::Shared(Arc::clone(buf), range));
        }
        let unpack = |out: &mut [u8]| {
            let sum = unpack(stored, pos, out, (self.meta().file_id, self.parts().seal()), number)
                .map_err(|detail| Error::corrupt(self.path(), Some(pos.offset), detail))?;
            self.check_structure(&out[..len], number, pos, sum)
        };
        let frame = if use_frames && fits { self.cache().frame() } else { None };
        if let Some(mut frame) = frame {
            unpack(&mut frame)?;
            return Ok(Block::Own(frame));
        }
        let mut plain = AlignedBuf::zeroed(len);
        unpack(&mut plain)?;
        Ok(Block::Shared(Arc::new(plain), 0..len))
    }

    fn is_large(&self, number: u32) -> bool {
        self.block_bytes(number) > self.cache().frame_bytes() as u64
    }

    /// Bytes that a block takes in memory.
    pub fn block_bytes(&self, number: u32) -> u64 {
        self.index().block_pos(number).block_len as u64
    }

    /// Whether a block is in memory at this moment.
    pub fn is_cached(&self, number: u32) -> bool {
        self.slots().contains(number as usize)
            || (self.is_large(number) && self.cache().large().get(self.meta().file_id, number).is_some())
    }

    /// A cached block, kept from being evicted. Counts a hit.
    pub fn cached_block(&self, number: u32) -> Option<Block> {
        let slots = self.slots();
        let pinned = slots.pin(number as usize, &slots.collector().pin());
        let found = match pinned {
            Some(frame) => Some(Block::Pinned(frame)),
            None => self.cached_large(number),
        };
        if found.is_some() {
            self.cache().count_hits(1);
        }
        found
    }

    fn cached_large(&self, number: u32) -> Option<Block> {
        if !self.is_large(number) {
            return None;
        }
        let buf = self.cache().large().get(self.meta().file_id, number)?;
        let len = self.block_bytes(number) as usize;
        Some(Block::Shared(buf, 0..len))
    }

    /// Whether [`Table::read_block_now`] asks the page cache for this block.
    pub fn may_be_read_now(&self, number: u32) -> bool {
        !self.reads_direct() && !self.is_large(number)
    }

    /// Reads one block, alone, by a plain read. Counts a miss.
    pub fn read_block(&self, number: u32, fill_cache: bool, purpose: Purpose) -> Result<Block> {
        let file = self.file()?;
        let read = self.read_into(number, fill_cache, |buf, at| Some(file.read_at(buf, at, purpose)));
        // A plain read answers.
        read.unwrap_or_else(unanswered)
    }

    /// The same if the page cache has the block, without waiting; `None` if not. Counts a miss if so.
    pub fn read_block_now(&self, number: u32, fill_cache: bool, purpose: Purpose) -> Option<Result<Block>> {
        let file = self.file().ok().filter(|_| self.may_be_read_now(number))?;
        self.read_into(number, fill_cache, |buf, at| {
            file.read_cached_at(buf, at, purpose).map(|()| Ok(buf.len()))
        })
    }

    /// One block by `read`, which fills a buffer from an offset, or leaves it.
    fn read_into(
        &self,
        number: u32,
        fill_cache: bool,
        read: impl FnOnce(&mut [u8], u64) -> Option<engineswap::Result<usize>>,
    ) -> Option<Result<Block>> {
        let run = Run::new(self, number, 1, 0);
        let len = (run.span.end - run.span.start) as usize;
        let (mut frame, mut buf) = (None, None);
        if run.fits_frames() {
            frame = self.cache().frame();
        }
        // Room for a very large one before it is there: it may be kept, which would evict only afterwards.
        let large = frame.is_none() && len >= ROOM_FROM;
        let _room = large.then(|| self.cache().charge(Owner::Iterators, len as u64));
        let into = match &mut frame {
            Some(frame) => &mut frame[..len],
            None => &mut buf.insert(AlignedBuf::zeroed(len))[..len],
        };
        let read = read(into, run.span.start)?;
        self.cache().count_misses(1);
        let block = |read| run.block(number, frame, buf.map(Arc::new).as_ref(), read as u64, fill_cache);
        Some(read.map_err(Error::Io).and_then(block))
    }

    /// Puts a block that was read into the cache, if it is to be there, and gives it back kept from being evicted.
    pub fn keep(&self, number: u32, block: Block) -> Block {
        match block {
            // A miss that the page cache answers is cheap: a block has to come often to push another out.
            Block::Own(frame) if !self.reads_direct() && !self.cache().admits(number) => Block::Own(frame),
            Block::Own(frame) => match self.slots().publish_pinned(number as usize, frame) {
                Ok(pinned) => Block::Pinned(pinned),
                // Another reader was faster; this copy is as good.
                Err(frame) => Block::Own(frame),
            },
            Block::Shared(buf, range) => {
                let wanted = self.reads_direct() || self.cache().admits_large(number, buf.len() as u64);
                if range.start == 0 && self.is_large(number) && wanted {
                    self.cache().keep_large(self.meta().file_id, number, &buf);
                }
                Block::Shared(buf, range)
            }
            pinned => pinned,
        }
    }

    /// Reads `count` blocks from `first` on, in one submission, and counts the misses.
    pub fn read_run(&self, first: u32, count: u32, fill_cache: bool, purpose: Purpose) -> Vec<Result<Block>> {
        if count == 1 {
            return vec![self.read_block(first, fill_cache, purpose)];
        }
        self.cache().count_misses(count as u64);
        let runs: Vec<Run<'_>> = (0..count)
            .step_by(RUN_BLOCKS as usize)
            .map(|i| Run::new(self, first + i, RUN_BLOCKS.min(count - i), i as usize))
            .collect();
        read_all(self.io(), &runs, fill_cache, purpose)
    }
}

/// Reads blocks of several tables together, in the order asked for, and counts the misses.
pub(crate) fn read_together<'a>(
    wanted: &[(&'a Table, u32)],
    fill_cache: bool,
    purpose: Purpose,
) -> Vec<Result<Block>> {
    if let [(table, number)] = wanted {
        return vec![table.read_block(*number, fill_cache, purpose)];
    }
    let Some((first, _)) = wanted.first() else { return Vec::new() };
    first.cache().count_misses(wanted.len() as u64);
    let run = |(i, (table, number)): (usize, &(&'a Table, u32))| Run::new(table, *number, 1, i);
    let runs: Vec<Run<'a>> = wanted.iter().enumerate().map(run).collect();
    read_all(first.io(), &runs, fill_cache, purpose)
}

/// Reads runs in one submission; each is checked while others are in flight. Their blocks in order.
fn read_all(io: &Io, runs: &[Run<'_>], fill_cache: bool, purpose: Purpose) -> Vec<Result<Block>> {
    let mut blocks: Vec<Option<Result<Block>>> = Vec::new();
    blocks.resize_with(runs.iter().map(|run| run.count as usize).sum(), || None);
    for run in runs {
        if let Err(e) = run.table.file() {
            blocks[run.place..][..run.count as usize].fill_with(|| Some(Err(e.clone())));
        }
    }
    let op = |(i, run): (usize, &Run<'_>)| {
        Some(run.op(run.table.file().ok()?, fill_cache, purpose).user(i as u64))
    };
    io.run_with(runs.iter().enumerate().filter_map(op), |done| {
        runs[done.user as usize].finish(done, fill_cache, &mut blocks)
    });
    blocks.into_iter().map(|block| block.unwrap_or_else(unanswered)).collect()
}

/// An engine answers for every operation.
pub(super) fn unanswered() -> Result<Block> {
    let detail = "the I/O engine has not answered";
    Err(Error::Io(engineswap::Error::new(engineswap::ErrorKind::Io, "read", detail)))
}
