//! A cursor that must not wait: before each step forward it is asked which blocks it lacks; whoever has them read
//! supplies it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Planned, TableCursor};
use crate::Result;
use crate::table::fetch::Block;
use crate::table::reader::Table;

/// Consecutive blocks without the first of which a cursor cannot go on.
pub(crate) struct Lacks {
    pub table: Arc<Table>,
    pub first: u32,
    pub count: u32,
}

impl TableCursor {
    /// From now on it does not read.
    pub fn never_read(&mut self) {
        self.reads = false;
    }

    /// What [`TableCursor::seek_planned`] of the first version at or after `key` lacks.
    pub fn lacks_for_seek(&mut self, key: &[u8]) -> Option<Lacks> {
        let Planned::Block(number) = self.planned else { return None };
        self.forward = true;
        if self.block.is_none() || self.number != number {
            let lacks = self.lacks_block(number, false);
            if lacks.is_some() {
                return lacks;
            }
            match self.ahead.pop_front() {
                Some((_, Ok(block))) => self.enter(number, block),
                // The seek will stand before it.
                unreadable => {
                    self.ahead.extend(unreadable);
                    return None;
                }
            }
        }
        self.lacks_from(self.lower_bound(key))
    }

    /// Whether that seek ends behind all that the table has.
    pub fn seek_ends_behind(&self, key: &[u8]) -> bool {
        match self.planned {
            Planned::Block(number) => {
                let entered = self.block.is_some() && self.number == number;
                entered && self.is_behind(self.lower_bound(key))
            }
            _ => true,
        }
    }

    /// What the step to the following version lacks.
    #[inline]
    pub fn lacks(&mut self) -> Option<Lacks> {
        self.lacks_from(self.at + 1)
    }

    /// Whether that step goes behind the table's end.
    pub fn steps_behind(&self) -> bool {
        self.is_behind(self.at + 1)
    }

    fn is_behind(&self, at: usize) -> bool {
        at >= self.len && self.failed.is_none() && self.number + 1 >= self.table.index().blocks()
    }

    /// What it lacks to stand at entry `at` of this block, or at the first of the next.
    #[inline]
    fn lacks_from(&mut self, at: usize) -> Option<Lacks> {
        if at < self.len || self.failed.is_some() || self.number + 1 >= self.table.index().blocks() {
            return None;
        }
        self.lacks_block(self.number + 1, true)
    }

    /// What it lacks to enter a block; if nothing, that block is the first of those ahead.
    fn lacks_block(&mut self, number: u32, sequential: bool) -> Option<Lacks> {
        while self.ahead.front().is_some_and(|(n, _)| *n < number) {
            self.ahead.pop_front();
        }
        if self.ahead.front().is_some_and(|(n, _)| *n == number) {
            return None;
        }
        if let Some(block) = self.table.cached_block(number) {
            self.ahead.push_front((number, Ok(block)));
            return None;
        }
        let count = if sequential { self.run_length(&self.table, number) } else { 1 };
        self.widen(sequential);
        Some(Lacks { table: Arc::clone(&self.table), first: number, count })
    }

    /// What it lacks to enter the first block of `table`, the next of its level.
    pub fn lacks_first_of(&mut self, table: &Arc<Table>) -> Lacks {
        let count = self.run_length(table, 0);
        self.widen(true);
        Lacks { table: Arc::clone(table), first: 0, count }
    }

    /// Whether the first of these blocks may have failed with another one of its operation: then it is lacking once
    /// more, alone.
    pub fn wants_again(&mut self, blocks: &[Result<Block>]) -> bool {
        let again = blocks.len() > 1 && blocks[0].is_err();
        if again {
            self.window = 1;
        }
        again
    }

    /// Takes blocks of its table from `first` on, which it lacked.
    pub fn supply(&mut self, first: u32, blocks: Vec<Result<Block>>) {
        let mut ahead = VecDeque::with_capacity(blocks.len());
        for (n, block) in (first..).zip(blocks) {
            let block = block.map(|block| if self.fill_cache { self.table.keep(n, block) } else { block });
            match block {
                // Without it there is no going on.
                needed if n == first => ahead.push_back((n, needed)),
                // The others may be evicted before they are needed, or are reported then.
                Ok(Block::Pinned(_)) | Err(_) => {}
                own => ahead.push_back((n, own)),
            }
        }
        self.ahead = ahead;
        self.count(None);
    }
}
