//! Blocks that are read by operations of the caller's: [`BlockRead`], one, and [`RunRead`], consecutive ones.

use std::sync::Arc;

use engineswap::{Done, Op, Purpose};

use super::fetch::{Block, RUN_BLOCKS, Run, unanswered};
use super::reader::Table;
use crate::Result;

/// Consecutive blocks of one table.
#[derive(Clone)]
pub(crate) struct RunRead {
    table: Arc<Table>,
    first: u32,
    count: u32,
    fill_cache: bool,
}

impl RunRead {
    /// `count` blocks from `first` on, by as few operations as may be.
    pub fn all(
        table: &Arc<Table>,
        first: u32,
        count: u32,
        fill_cache: bool,
    ) -> impl Iterator<Item = RunRead> {
        (0..count).step_by(RUN_BLOCKS as usize).map(move |i| {
            let count = RUN_BLOCKS.min(count - i);
            RunRead { table: Arc::clone(table), first: first + i, count, fill_cache }
        })
    }

    fn run(&self) -> Run<'_> {
        Run::new(&self.table, self.first, self.count, 0)
    }

    /// Blocks.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes that the blocks take in memory.
    pub fn bytes(&self) -> u64 {
        (self.first..self.first + self.count).map(|n| self.table.block_bytes(n)).sum()
    }

    /// The operation. Counts the misses.
    pub fn op(&self, purpose: Purpose) -> Result<Op> {
        let file = self.table.file()?;
        self.table.cache().count_misses(self.count.into());
        Ok(self.run().op(file, self.fill_cache, purpose))
    }

    /// The blocks out of the operation's completion, each checked.
    pub fn finish(&self, done: Result<Done>) -> Vec<Result<Block>> {
        let mut places = Vec::new();
        places.resize_with(self.count as usize, || None);
        match done {
            Ok(done) => self.run().finish(done, self.fill_cache, &mut places),
            Err(e) => places.fill_with(|| Some(Err(e.clone()))),
        }
        places.into_iter().map(|place| place.unwrap_or_else(unanswered)).collect()
    }
}

/// One block.
pub(crate) struct BlockRead {
    table: Arc<Table>,
    number: u32,
    fill_cache: bool,
}

impl BlockRead {
    pub fn new(table: &Arc<Table>, number: u32, fill_cache: bool) -> BlockRead {
        BlockRead { table: Arc::clone(table), number, fill_cache }
    }

    /// File and block.
    pub fn key(&self) -> (u64, u32) {
        (self.table.meta().file_id, self.number)
    }

    /// The operation. Counts a miss.
    pub fn op(&self, purpose: Purpose) -> Result<Op> {
        let file = self.table.file()?;
        self.table.cache().count_misses(1);
        Ok(Run::new(&self.table, self.number, 1, 0).op(file, self.fill_cache, purpose))
    }

    /// The block out of the operation's completion, checked.
    pub fn finish(&self, done: Done) -> Result<Block> {
        let mut place = [None];
        Run::new(&self.table, self.number, 1, 0).finish(done, self.fill_cache, &mut place);
        let [block] = place;
        block.unwrap_or_else(unanswered)
    }

    /// Reads it by a plain call.
    pub fn by_plain_call(&self, purpose: Purpose) -> Result<Block> {
        self.table.read_block(self.number, self.fill_cache, purpose)
    }

    /// Puts the block into the cache, if that is wanted, and gives it back.
    pub fn keep(&self, block: Block) -> Block {
        if self.fill_cache { self.table.keep(self.number, block) } else { block }
    }
}
