//! [`TableCursor`]: the versions of one table in both directions, over cached blocks, with read-ahead.
//!
//! A cursor keeps the block it stands on from being evicted. When blocks are missing one after the other it
//! reads a growing window of them in one submission. Without `fill_cache` what it reads stays its own.
//!
//! A block that cannot be read is a place like any other: the cursor stands at its bound, valid, with a sequence
//! number that nobody sees ([`UNREADABLE`]), and the step beyond it is the error. So a merge of several cursors
//! fails when it gets there, not before.

mod supply;

use std::collections::VecDeque;
use std::sync::Arc;

use super::block::{BlockView, Layout};
use super::fetch::Block;
use super::index::{Probe, Step};
use super::reader::Table;
use crate::bounds::Bounds;
use crate::cache::{Charge, Owner};
use crate::cursor::{Cursor, ReverseCursor};
use crate::error::{Error, Result};
use crate::key::{Kind, Seq};
use crate::purpose;

pub(crate) use supply::Lacks;

/// Most bytes that one submission reads ahead.
const WINDOW_BYTES: usize = 256 << 10;

/// The sequence number of the place of a block that cannot be read: newer than whatever a reader may see, so that
/// it steps on, which fails.
const UNREADABLE: Seq = Seq::MAX;

/// Where to seek.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SeekTo<'a> {
    /// The first version of the first key at or after.
    AtOrAfter(&'a [u8]),
    /// The last version of the last key before.
    Before(&'a [u8]),
    /// The last version of all.
    Last,
}

/// Where the seek that is under way begins.
#[derive(Clone, Copy, Debug)]
enum Planned {
    /// No block can hold the place.
    Nowhere,
    /// On the way down the index.
    Descending(Probe),
    /// In this block.
    Block(u32),
}

/// A position in a table. Read-ahead does not go beyond the bounds; the position may.
pub(crate) struct TableCursor {
    table: Arc<Table>,
    bounds: Arc<Bounds>,
    fill_cache: bool,
    /// The block that the cursor stands on.
    block: Option<(Block, Layout)>,
    /// Its number; kept when the cursor runs off an end, to recognise sequential misses.
    number: u32,
    len: usize,
    at: usize,
    valid: bool,
    key: Vec<u8>,
    /// Bytes at the start of `key` that all keys of the block have.
    shared: usize,
    seq: Seq,
    kind: Kind,
    value: (usize, usize),
    /// Why the block that the cursor should stand on cannot be read.
    failed: Option<Error>,
    planned: Planned,
    /// Blocks that were read ahead and are not in the cache, in the order of the scan; of the first, why not.
    ahead: VecDeque<(u32, Result<Block>)>,
    /// Blocks to read at the next miss if it is sequential.
    window: u32,
    /// The direction of the last move to another block.
    forward: bool,
    /// What it holds outside of the cache, if that is worth counting.
    charge: Option<Charge>,
    /// Whether it reads what it lacks; if not, somebody sees to it that it lacks nothing (`supply`).
    reads: bool,
}

impl TableCursor {
    /// A cursor without a position.
    pub fn new(table: &Arc<Table>, bounds: &Arc<Bounds>, fill_cache: bool) -> TableCursor {
        TableCursor {
            table: Arc::clone(table),
            bounds: Arc::clone(bounds),
            fill_cache,
            block: None,
            number: u32::MAX,
            len: 0,
            at: 0,
            valid: false,
            key: Vec::with_capacity(64),
            shared: 0,
            seq: 0,
            kind: Kind::Put,
            value: (0, 0),
            failed: None,
            planned: Planned::Nowhere,
            ahead: VecDeque::new(),
            window: 1,
            forward: true,
            charge: None,
            reads: true,
        }
    }

    /// The table it is in.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Takes the position away.
    pub fn clear(&mut self) {
        self.valid = false;
        self.failed = None;
        self.planned = Planned::Nowhere;
    }

    /// Enters another table, without a position. The read-ahead window stays as wide as it is.
    pub fn go_to(&mut self, table: &Arc<Table>) {
        self.table = Arc::clone(table);
        self.block = None;
        self.valid = false;
        self.failed = None;
        self.planned = Planned::Nowhere;
        self.ahead.clear();
        self.number = u32::MAX;
    }

    /// Begins to seek `place`: [`TableCursor::step`] until it says no, [`TableCursor::touch`],
    /// [`TableCursor::take_cached`], [`TableCursor::seek_planned`]. Several cursors go through these stages side
    /// by side, so that what they wait for overlaps.
    #[inline]
    pub fn start(&mut self, place: SeekTo<'_>) {
        self.valid = false;
        self.failed = None;
        self.window = 1;
        self.planned = match place {
            SeekTo::AtOrAfter(_) | SeekTo::Before(_) => Planned::Descending(self.table.index().start()),
            SeekTo::Last => {
                self.table.index().blocks().checked_sub(1).map_or(Planned::Nowhere, Planned::Block)
            }
        };
    }

    /// Goes a level down the index; false when there is none left.
    #[inline]
    pub fn step(&mut self, place: SeekTo<'_>) -> bool {
        let Planned::Descending(probe) = &mut self.planned else { return false };
        let index = self.table.index();
        let (SeekTo::AtOrAfter(key) | SeekTo::Before(key)) = place else { return false };
        let block = match index.step(probe, key) {
            Step::Down => return true,
            Step::Done(None) if matches!(place, SeekTo::Before(_)) => index.blocks().checked_sub(1),
            Step::Done(block) => block,
        };
        if let Some(block) = block {
            self.table.slots().prefetch(block as usize);
        }
        self.planned = block.map_or(Planned::Nowhere, Planned::Block);
        false
    }

    /// Starts to load the block into the CPU's cache, if it is in the block cache.
    #[inline]
    pub fn touch(&self) {
        let Planned::Block(number) = self.planned else { return };
        for line in 0..4 {
            self.table.slots().prefetch_frame(number as usize, 64 * line);
        }
        self.table.slots().prefetch_pin(number as usize);
    }

    /// Takes the block if it is cached; else returns its number, for the caller to read it together with others
    /// and to [`TableCursor::provide`] it.
    pub fn take_cached(&mut self) -> Option<u32> {
        let Planned::Block(number) = self.planned else { return None };
        if self.block.is_some() && self.number == number {
            return None;
        }
        self.block = None;
        match self.table.cached_block(number) {
            Some(block) => {
                self.enter(number, block);
                None
            }
            None => Some(number),
        }
    }

    /// Takes a block that [`TableCursor::take_cached`] asked for and that was read.
    pub fn provide(&mut self, number: u32, block: Block) {
        let block = if self.fill_cache { self.table.keep(number, block) } else { block };
        self.count(Some(&block));
        self.enter(number, block);
        self.window = 2;
    }

    /// Seeks the place that was planned.
    pub fn seek_planned(&mut self, place: SeekTo<'_>) -> Result<()> {
        let Planned::Block(number) = std::mem::replace(&mut self.planned, Planned::Nowhere) else {
            self.valid = false;
            return Ok(());
        };
        self.forward = matches!(place, SeekTo::AtOrAfter(_));
        if !self.load(number) {
            // All of the table is at or after such a key.
            let none = matches!(place, SeekTo::Before(key) if key <= self.table.meta().smallest.as_slice());
            if none {
                self.clear();
            }
            return Ok(());
        }
        match place {
            SeekTo::AtOrAfter(key) => {
                let at = self.lower_bound(key);
                self.first_from(at)
            }
            SeekTo::Before(key) => {
                let at = self.lower_bound(key);
                self.last_before(at)
            }
            SeekTo::Last => self.last_before(self.len),
        }
    }

    /// The first entry of this block at or after `key`.
    fn lower_bound(&self, key: &[u8]) -> usize {
        self.block
            .as_ref()
            .map_or(0, |(b, layout)| BlockView::with_layout(b.bytes(), *layout).lower_bound(key))
    }

    /// To entry `at` of this block, or the first one of a later block.
    fn first_from(&mut self, mut at: usize) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)?;
        while at >= self.len {
            if self.number + 1 >= self.table.index().blocks() {
                self.valid = false;
                return Ok(());
            }
            self.forward = true;
            if !self.load(self.number + 1) {
                return Ok(());
            }
            at = 0;
        }
        self.stand(at);
        Ok(())
    }

    /// To the entry before `at` of this block, or the last one of an earlier block.
    fn last_before(&mut self, mut at: usize) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)?;
        while at == 0 {
            if self.number == 0 {
                self.valid = false;
                return Ok(());
            }
            self.forward = false;
            if !self.load(self.number - 1) {
                return Ok(());
            }
            at = self.len;
        }
        self.stand(at - 1);
        Ok(())
    }

    #[inline]
    fn stand(&mut self, at: usize) {
        let Some((block, layout)) = &self.block else { return };
        let bytes = block.bytes();
        let entry = BlockView::with_layout(bytes, *layout).entry(at);
        self.key.truncate(self.shared);
        self.key.extend_from_slice(entry.suffix);
        self.seq = entry.seq + self.table.given();
        self.kind = entry.kind;
        let start = entry.value.as_ptr().addr() - bytes.as_ptr().addr();
        self.value = (start, start + entry.value.len());
        self.at = at;
        self.valid = true;
    }

    /// Makes `block` the one that the cursor stands on; the position in it is not valid yet.
    fn enter(&mut self, number: u32, block: Block) {
        let view = BlockView::trusted(block.bytes());
        self.len = view.len();
        self.key.clear();
        self.key.extend_from_slice(view.prefix());
        self.shared = self.key.len();
        self.number = number;
        self.valid = false;
        let layout = view.layout();
        self.block = Some((block, layout));
    }

    /// Stands at the bound of block `number`, which cannot be read, on the side from which the cursor comes.
    #[cold]
    fn stand_before_unreadable(&mut self, number: u32, why: Error) {
        let (index, meta) = (self.table.index(), self.table.meta());
        let bound = match number.checked_sub(1) {
            _ if !self.forward => index.separator(number),
            Some(before) => index.separator(before),
            None => &meta.smallest,
        };
        self.key.clear();
        self.key.extend_from_slice(bound);
        self.block = None;
        (self.number, self.len, self.at, self.shared) = (number, 0, 0, 0);
        (self.seq, self.kind, self.value) = (UNREADABLE, Kind::Delete, (0, 0));
        self.failed = Some(why);
        self.valid = true;
    }

    /// Enters block `number`, from the cache or the disk; false if it cannot be read.
    fn load(&mut self, number: u32) -> bool {
        self.valid = false;
        self.failed = None;
        if self.block.is_some() && self.number == number {
            return true;
        }
        let sequential = if self.forward {
            number.wrapping_sub(1) == self.number
        } else {
            number.wrapping_add(1) == self.number
        };
        self.block = None;
        while let Some((n, block)) = self.ahead.pop_front() {
            if n == number {
                match block {
                    Ok(block) => self.enter(number, block),
                    Err(e) => self.stand_before_unreadable(number, e),
                }
                return self.failed.is_none();
            }
        }
        if let Some(block) = self.table.cached_block(number) {
            self.enter(number, block);
            self.touch_neighbour();
            return true;
        }
        match self.read(number, sequential) {
            Ok(block) => self.enter(number, block),
            Err(e) => self.stand_before_unreadable(number, e),
        }
        self.failed.is_none()
    }

    /// Starts to load the start of the next block of the scan into the CPU's cache.
    fn touch_neighbour(&self) {
        let next = if self.forward { self.number.wrapping_add(1) } else { self.number.wrapping_sub(1) };
        if next < self.table.index().blocks() {
            for line in 0..4 {
                self.table.slots().prefetch_frame(next as usize, 64 * line);
            }
            self.table.slots().prefetch_pin(next as usize);
        }
    }

    /// Reads a missing block, and more if the scan has been missing blocks one after the other.
    fn read(&mut self, number: u32, sequential: bool) -> Result<Block> {
        debug_assert!(self.reads, "a cursor that is not to wait reads a block");
        // The first block of the next table of a level is as sequential as its neighbours.
        let sequential = sequential || self.number == u32::MAX;
        let count = if sequential { self.run_length(&self.table, number) } else { 1 };
        self.widen(sequential);
        let first = if self.forward { number } else { number + 1 - count };
        let blocks = self.table.read_run(first, count, self.fill_cache, purpose::SCAN_READ);
        let mut wanted = None;
        let mut rest = VecDeque::new();
        for (n, block) in (first..).zip(blocks) {
            // What fails ahead of need is reported when it is needed; and the block that is needed may have failed
            // with another one of its operation.
            let block = match block {
                Ok(block) => block,
                Err(_) if n != number || count > 1 => continue,
                Err(e) => return Err(e),
            };
            if n == number {
                wanted = Some(if self.fill_cache { self.table.keep(n, block) } else { block });
                continue;
            }
            match if self.fill_cache { self.table.keep(n, block) } else { block } {
                // In the cache: it may be evicted before it is needed, which costs a read.
                Block::Pinned(_) => {}
                own if self.forward => rest.push_back((n, Ok(own))),
                own => rest.push_front((n, Ok(own))),
            }
        }
        self.ahead = rest;
        let block = match wanted {
            Some(block) => block,
            None => self.table.read_block(number, self.fill_cache, purpose::SCAN_READ)?,
        };
        self.count(Some(&block));
        Ok(block)
    }

    /// Makes the window that of the next miss.
    fn widen(&mut self, sequential: bool) {
        let cache = self.table.cache();
        // The blocks of another keyspace than the cache was made for may be larger than its frames.
        let block_bytes = cache.frame_bytes().max(self.table.index().block_bytes() as usize);
        let widest = (WINDOW_BYTES / block_bytes) as u32;
        let affordable = match self.fill_cache {
            true => cache.frame_limit() as u32 / 16,
            false => (cache.read_ahead_bytes() / block_bytes as u64).min(u32::MAX as u64) as u32,
        };
        let grown = if sequential { self.window * 2 } else { 2 };
        self.window = grown.min(widest).min(affordable).max(1);
    }

    /// Has the budget count `block` and what was read ahead, as far as they are not in frames.
    fn count(&mut self, block: Option<&Block>) {
        let ahead = self.ahead.iter().filter_map(|(_, block)| block.as_ref().ok());
        let held: u64 = ahead.chain(block).map(Block::bytes_of_its_own).sum();
        let worth_it = held > self.table.cache().frame_bytes() as u64;
        match &self.charge {
            Some(charge) => charge.set(held),
            None if worth_it => self.charge = Some(self.table.cache().charge(Owner::Iterators, held)),
            None => {}
        }
    }

    /// How many blocks of `table` from `number` on, in the direction of the scan, to read in one go: those that are
    /// within the window and the bounds, not cached and of plain size.
    fn run_length(&self, table: &Table, number: u32) -> u32 {
        let index = table.index();
        let mut most = self.window;
        if most > 1 {
            most = most.min(if self.forward {
                let last = self.bounds.upper.as_ref().and_then(|upper| index.find_block(upper));
                last.unwrap_or(index.blocks() - 1).max(number) - number + 1
            } else {
                let first = index.find_block(&self.bounds.lower).unwrap_or(number);
                number - first.min(number) + 1
            });
        }
        let mut count = 1;
        while count < most {
            let n = if self.forward { number + count } else { number - count };
            if index.block_pos(n).block_len > index.block_bytes() || table.is_cached(n) {
                break;
            }
            count += 1;
        }
        count
    }

    fn seek_place(&mut self, place: SeekTo<'_>) -> Result<()> {
        self.start(place);
        while self.step(place) {}
        // A block that is not cached is read by the seek.
        self.take_cached();
        self.seek_planned(place)
    }

    /// Passes an error on, without a position left.
    #[inline]
    fn check(&mut self, r: Result<()>) -> Result<()> {
        if r.is_err() {
            self.valid = false;
            self.block = None;
        }
        r
    }
}

impl Cursor for TableCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.valid
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
        self.block.as_ref().map(|(b, _)| &b.bytes()[self.value.0..self.value.1]).unwrap_or_default()
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let r = self.seek_place(SeekTo::AtOrAfter(key));
        self.check(r)
    }
    fn seek_to_first(&mut self) -> Result<()> {
        // Not by a plan: going on to the next table of a level keeps the window.
        self.forward = true;
        let r = if self.table.index().blocks() == 0 {
            self.valid = false;
            Ok(())
        } else if self.load(0) {
            self.first_from(0)
        } else {
            Ok(())
        };
        self.check(r)
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        let at = self.at + 1;
        if at < self.len {
            self.stand(at);
            return Ok(());
        }
        let r = self.first_from(at);
        self.check(r)
    }
}

impl ReverseCursor for TableCursor {
    fn seek_to_last(&mut self) -> Result<()> {
        self.forward = false;
        let r = match self.table.index().blocks().checked_sub(1) {
            Some(last) if self.load(last) => self.last_before(self.len),
            Some(_) => Ok(()),
            None => {
                self.valid = false;
                Ok(())
            }
        };
        self.check(r)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let r = self.seek_place(SeekTo::Before(key));
        self.check(r)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.at > 0 {
            self.stand(self.at - 1);
            return Ok(());
        }
        let r = self.last_before(0);
        self.check(r)
    }
}
