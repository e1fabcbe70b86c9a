//! [`Lookup`]: one key's way through a view: memtables, then the tables that may hold it, newest first, each by its
//! filter, its index and a block.
//!
//! It is a state machine of plain data. [`Lookup::step`] goes on as far as memory reaches and gives the answer, or
//! stands at the block that has to be read ([`Lookup::needed`]); [`Lookup::give`] takes that block, from wherever it
//! came, and the next step goes on behind it. The key is built and hashed once. Nothing of a view is borrowed in
//! between, so that a lookup can wait without a guard, and with its view ([`Parked`]) be resumed by another thread.
//!
//! A caller with many keys drives the stages of a step itself, so that what several lookups wait for overlaps.

mod operands;

use std::sync::Arc;

use latchfree::epoch::Guard;
use latchfree::prefetch;

use super::table_map::Ahead;
use super::view::View;
use crate::key::{self, KeyBuf, Kind, Prefix, Seq};
use crate::operator::operands::Operands;
use crate::purpose;
use crate::table::block::{BlockView, Find};
use crate::table::fetch::Block;
use crate::table::index::{Probe, Step as Descent};
use crate::table::reader::Table;
use crate::{Error, Result, Value};

/// What a step has come to.
pub(super) enum Step {
    /// The value, or that there is none.
    Done(Option<Value>),
    /// The block that [`Lookup::needed`] names has to be read.
    Needs,
}

/// Table probes of a step, counted together at its end.
#[derive(Default)]
pub(super) struct Probes {
    hits: u64,
    filter_negatives: u64,
    /// A lookup has come to its end with operands: [`Lookup::merge_the_rest`] has its answer.
    pub unmerged: bool,
}

impl Probes {
    /// Adds them to the counters of the store's cache.
    #[inline]
    pub fn count(&self, view: &View) {
        if self.hits + self.filter_negatives > 0 {
            // Any table will do: they have one cache.
            view.tables().table(0).cache().count_probes(self.hits, self.filter_negatives);
        }
    }
}

/// The search for the newest version of a key at or before a sequence number. All calls are for the same view.
pub(super) struct Lookup {
    key: KeyBuf,
    hash: u64,
    seq: Seq,
    /// The newest range tombstone that covers the key as of `seq`, 0 if there is none: what is older is deleted.
    cover: Seq,
    walk: Walk,
    /// Newer operands that were met; `seq` is below them then.
    operands: Option<Box<Operands>>,
    /// Only whether there is a value is asked: an operand says so, and is not merged.
    presence: bool,
}

/// Where it is.
#[derive(Clone, Copy)]
struct Walk {
    tables: Ahead,
    /// The number of the table that it is in.
    table: u32,
    at: At,
}

#[derive(Clone, Copy)]
enum At {
    /// Nothing was looked at.
    Memtables,
    /// Before the next table that may hold the key.
    Tables,
    /// On the way down the table's index.
    Index(Probe),
    /// At this block of the table.
    Block(u32),
    /// Answered.
    Done,
}

impl Lookup {
    /// Begins: what will be looked at first is on its way into the CPU's cache. `seq` was loaded after the view.
    #[inline]
    pub fn new(view: &View, prefix: &Prefix, key: &[u8], seq: Seq) -> Lookup {
        let key = KeyBuf::new(prefix, key);
        let hash = key::hash(key.as_slice());
        for m in view.memtables() {
            m.prefetch(hash);
        }
        // The filters are on their way while the memtables are asked.
        let tables = Ahead::new(view.tables(), key.as_slice(), hash);
        let cover = if view.has_ranges() { view.newest_range(key.as_slice(), seq) } else { 0 };
        Lookup {
            key,
            hash,
            seq,
            cover,
            walk: Walk { tables, table: 0, at: At::Memtables },
            operands: None,
            presence: false,
        }
    }

    /// Asks only whether there is a value, with which `make` is called, or with nothing in its place.
    pub fn for_presence(mut self) -> Lookup {
        self.presence = true;
        self
    }

    /// The internal key.
    pub fn key(&self) -> &[u8] {
        self.key.as_slice()
    }

    /// Goes on until the answer is known or a block has to be read.
    #[inline]
    pub fn step(&mut self, view: &View, guard: &Guard<'_>) -> Result<Step> {
        let mut probes = Probes::default();
        let step = self.go_on(view, guard, &mut probes);
        probes.count(view);
        step
    }

    #[inline]
    fn go_on(&mut self, view: &View, guard: &Guard<'_>, probes: &mut Probes) -> Result<Step> {
        assert!(!matches!(self.walk.at, At::Done), "an answered lookup goes on");
        if let Some(answer) = self.ask_memtables(view)? {
            return Ok(Step::Done(answer));
        }
        loop {
            if let At::Tables = self.walk.at
                && !self.next_table(view, probes)
            {
                return Ok(Step::Done(self.nothing_older(copied)?));
            }
            if let At::Index(probe) = self.walk.at {
                let block = self.table(view).index().finish(probe, self.key.as_slice());
                self.walk.at = block.map_or(At::Tables, At::Block);
            }
            if let Some(step) = self.search_cached(view, guard, probes)? {
                return Ok(step);
            }
        }
    }

    /// The table and the number of the block that it stands at. Where that lies, the table's index says.
    pub fn needed<'v>(&self, view: &'v View) -> (&'v Arc<Table>, u32) {
        let At::Block(number) = self.walk.at else { unreachable!("a lookup that needs no block") };
        (self.table(view), number)
    }

    /// Takes the block that it needs; the answer if that is in it. If not, the next step goes on behind it.
    pub fn give(&mut self, view: &View, block: &Block) -> Result<Option<Option<Value>>> {
        self.give_with(view, block, |value, lies| match lies {
            Lies::Stored => block.value(value),
            Lies::Made => Value::copy_from(value),
        })
    }

    #[inline]
    fn give_with(
        &mut self,
        view: &View,
        block: &Block,
        make: impl FnOnce(&[u8], Lies) -> Value,
    ) -> Result<Option<Option<Value>>> {
        let (table, number) = self.needed(view);
        self.search(view, (table, number), block.bytes(), make)
    }

    /// Takes the lookup to its end without a guard of the epoch: blocks are held while they are looked at. The answer
    /// is what `make` makes of the value where it lies.
    pub fn run_with(
        &mut self,
        view: &View,
        fill_cache: bool,
        make: impl FnOnce(&[u8]) -> Value,
    ) -> Result<Option<Value>> {
        let mut probes = Probes::default();
        let answer = self.go_through(view, fill_cache, &mut probes, make);
        probes.count(view);
        answer
    }

    fn go_through(
        &mut self,
        view: &View,
        fill_cache: bool,
        probes: &mut Probes,
        make: impl FnOnce(&[u8]) -> Value,
    ) -> Result<Option<Value>> {
        // An answer ends the lookup: it is called once at most.
        let mut make = Some(make);
        let mut make = |value: &[u8], _| make.take().map_or_else(Value::default, |make| make(value));
        if let Some(answer) = self.ask_memtables_with(view, &mut make)? {
            return Ok(answer);
        }
        loop {
            if let At::Tables = self.walk.at
                && !self.next_table(view, probes)
            {
                return self.nothing_older(make);
            }
            while self.descend(view) {}
            let At::Block(number) = self.walk.at else { continue };
            let table = Arc::clone(self.table(view));
            let block = match table.cached_block(number) {
                Some(block) => block,
                None if self.stop(&table)?.is_none() => continue,
                None => {
                    let block = table.read_block(number, fill_cache, purpose::USER_READ)?;
                    if fill_cache { table.keep(number, block) } else { block }
                }
            };
            if let Some(answer) = self.give_with(view, &block, &mut make)? {
                return Ok(answer);
            }
        }
    }

    /// Calls `f` with every block that is not in memory and would be needed if none of them held the key.
    pub fn look_ahead<'v>(&mut self, view: &'v View, guard: &Guard<'_>, mut f: impl FnMut(&'v Table, u32)) {
        let (here, seq, operands) = (self.walk, self.seq, self.operands.take());
        // What cannot be read is reported when it is needed.
        while let Ok(Step::Needs) = self.go_on(view, guard, &mut Probes::default()) {
            let (table, number) = self.needed(view);
            if !table.is_cached(number) {
                f(table, number);
            }
            self.walk.at = At::Tables;
        }
        (self.walk, self.seq, self.operands) = (here, seq, operands);
    }

    /// Takes a lookup that needs a block to its end. Blocks come from `local`, the cache, or the disk, one at a time.
    pub fn finish<'b>(
        &mut self,
        view: &View,
        fill_cache: bool,
        local: impl Fn(&Table, u32) -> Option<&'b Result<Block>>,
    ) -> Result<Option<Value>> {
        loop {
            let (table, number) = self.needed(view);
            let answer = if let Some(block) = local(table, number) {
                self.give(view, block.as_ref().map_err(Error::clone)?)?
            } else if let Some(block) = table.cached_block(number) {
                self.give(view, &block)?
            } else {
                let block = table.read_block(number, fill_cache, purpose::USER_READ)?;
                let answer = self.give(view, &block)?;
                if fill_cache {
                    table.keep(number, block);
                }
                answer
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
            if let Step::Done(answer) = self.step(view, &table.slots().collector().pin())? {
                return Ok(answer);
            }
        }
    }

    #[inline]
    fn table<'v>(&self, view: &'v View) -> &'v Arc<Table> {
        view.tables().table(self.walk.table)
    }

    /// The answer, if the memtables have one.
    #[inline]
    pub fn ask_memtables(&mut self, view: &View) -> Result<Option<Option<Value>>> {
        self.ask_memtables_with(view, copied)
    }

    #[inline(always)]
    fn ask_memtables_with(
        &mut self,
        view: &View,
        make: impl FnOnce(&[u8], Lies) -> Value,
    ) -> Result<Option<Option<Value>>> {
        let At::Memtables = self.walk.at else { return Ok(None) };
        self.walk.at = At::Tables;
        let newest = view.memtables().find_map(|m| m.get(self.key.as_slice(), self.hash, self.seq));
        let Some(entry) = newest else { return Ok(None) };
        if entry.kind == Kind::Merge {
            return self.merge_memtables(view, make);
        }
        self.walk.at = At::Done;
        Ok(Some(self.live(view, entry.kind, entry.seq, entry.value).map(|value| make(value, Lies::Stored))))
    }

    /// The value of a version that is no operand, unless it is deleted or has expired.
    #[inline]
    fn live<'v>(&self, view: &View, kind: Kind, seq: Seq, value: &'v [u8]) -> Option<&'v [u8]> {
        match kind {
            _ if seq < self.cover => None,
            Kind::Put => Some(value),
            Kind::Delete | Kind::Merge => None,
            Kind::Expiring => view.clock().unexpired(value),
        }
    }

    /// From between tables to the index of the next one whose filter does not deny the key; false if there is none.
    #[inline]
    pub fn next_table(&mut self, view: &View, probes: &mut Probes) -> bool {
        let At::Tables = self.walk.at else { return false };
        while let Some(number) = self.walk.tables.next(view.tables(), self.key.as_slice(), self.hash) {
            self.walk.table = number;
            let table = self.table(view);
            // What it may have is deleted, and whatever lies in older tables too. (What has taken the number 0 is
            // older than every range tombstone that covers it.)
            if self.cover > 0 && table.meta().max_seq < self.cover {
                continue;
            }
            if table.filter().may_contain(self.hash) {
                self.walk.at = At::Index(table.index().root());
                return true;
            }
            probes.filter_negatives += 1;
        }
        self.walk.at = At::Done;
        probes.unmerged |= self.operands.is_some();
        false
    }

    /// Starts to load the index's node that it stands at.
    #[inline]
    pub fn prefetch_index(&self, view: &View) {
        if let At::Index(probe) = self.walk.at {
            self.table(view).index().prefetch(probe);
        }
    }

    /// Goes a level down the index, starting to load what comes next; false when there is no level left.
    #[inline]
    pub fn descend(&mut self, view: &View) -> bool {
        let At::Index(mut probe) = self.walk.at else { return false };
        let table = self.table(view);
        self.walk.at = match table.index().step(&mut probe, self.key.as_slice()) {
            Descent::Down => At::Index(probe),
            Descent::Done(Some(number)) => {
                table.slots().prefetch(number as usize);
                At::Block(number)
            }
            Descent::Done(None) => At::Tables,
        };
        matches!(self.walk.at, At::Index(_))
    }

    /// Starts to load the beginning of the block that it stands at, if that is cached.
    #[inline]
    pub fn prefetch_block(&self, view: &View) {
        let At::Block(number) = self.walk.at else { return };
        let slots = self.table(view).slots();
        for line in 0..4 {
            slots.prefetch_frame(number as usize, 64 * line);
        }
    }

    /// Starts to load the entry in the block that it stands at, if that is cached.
    #[inline]
    pub fn prefetch_entry(&self, view: &View, guard: &Guard<'_>) {
        let At::Block(number) = self.walk.at else { return };
        if let Some(bytes) = self.table(view).slots().load(number as usize, guard) {
            BlockView::trusted(bytes).prefetch_entry(self.key.as_slice());
        }
    }

    /// Searches the block that it stands at, and those behind it with more versions of the key, as far as they are
    /// cached. `None`: the table does not have the key.
    #[inline]
    pub fn search_cached(
        &mut self,
        view: &View,
        guard: &Guard<'_>,
        probes: &mut Probes,
    ) -> Result<Option<Step>> {
        while let At::Block(number) = self.walk.at {
            let table = self.table(view);
            let Some(bytes) = table.slots().load(number as usize, guard) else { return self.stop(table) };
            // The heads lie behind the header; the search would wait for one line after the other.
            for line in 1..4 {
                prefetch(bytes, 64 * line);
            }
            probes.hits += 1;
            if let Some(answer) = self.search(view, (table, number), bytes, copied)? {
                return Ok(Some(Step::Done(answer)));
            }
        }
        Ok(None)
    }

    /// At a block that is not cached. No block of a table that could not be opened ever is: there the key is absent or
    /// an error.
    #[cold]
    fn stop(&mut self, table: &Table) -> Result<Option<Step>> {
        if table.why_unreadable().is_none() {
            return Ok(Some(Step::Needs));
        }
        self.walk.at = At::Tables;
        table.why_not_read(self.key.as_slice()).map_or(Ok(None), |why| Err(why.clone()))
    }

    /// Searches block `number` of its table and goes on behind it, or has the answer, made by `value`.
    #[inline]
    fn search(
        &mut self,
        view: &View,
        (table, number): (&Table, u32),
        block: &[u8],
        make: impl FnOnce(&[u8], Lies) -> Value,
    ) -> Result<Option<Option<Value>>> {
        match BlockView::trusted(block).find(self.key.as_slice(), self.seq) {
            // Of a table that was ingested, the number is not in the block, and the key is there once.
            Find::Found(entry) if entry.seq + table.given() > self.seq => self.walk.at = At::Tables,
            Find::Found(entry) => {
                if (entry.kind == Kind::Merge) | self.operands.is_some() {
                    return self.merge_block(view, (table, number), block, make);
                }
                self.walk.at = At::Done;
                let seq = entry.seq + table.given();
                let there = self.live(view, entry.kind, seq, entry.value);
                return Ok(Some(there.map(|value| make(value, Lies::Stored))));
            }
            Find::Next if number + 1 < table.index().blocks() => self.walk.at = At::Block(number + 1),
            Find::Next | Find::Absent => self.walk.at = At::Tables,
        }
        Ok(None)
    }
}

/// Where the bytes of a value are.
#[derive(Clone, Copy)]
enum Lies {
    /// Where the store has them.
    Stored,
    /// In memory of their own: they were merged.
    Made,
}

/// A copy of a value.
#[inline]
fn copied(value: &[u8], _: Lies) -> Value {
    Value::copy_from(value)
}

/// A lookup that waits for a block, with the view that keeps its tables: owns all that it needs, so that any thread may
/// resume it.
pub(super) struct Parked {
    view: Arc<View>,
    lookup: Lookup,
}

impl Parked {
    /// Keeps `view` for a lookup in it.
    pub fn new(view: &Arc<View>, lookup: Lookup) -> Parked {
        Parked { view: Arc::clone(view), lookup }
    }

    /// Reads what it needs, one block at a time.
    pub fn finish(mut self, fill_cache: bool) -> Result<Option<Value>> {
        self.lookup.finish(&self.view, fill_cache, |_, _| None)
    }

    /// The table and the number of the block that it needs.
    pub fn needed(&self) -> (&Arc<Table>, u32) {
        self.lookup.needed(&self.view)
    }

    /// That block, if it is in memory.
    pub fn needed_from_memory(&self) -> Option<Block> {
        let (table, number) = self.needed();
        table.cached_block(number)
    }

    /// Takes that block out of the page cache and goes on, as [`Parked::give`]; `None` if it is not there.
    pub fn read_now(&mut self, fill_cache: bool) -> Option<Result<Option<Option<Value>>>> {
        let (table, number) = self.needed();
        let (table, block) =
            (Arc::clone(table), table.read_block_now(number, fill_cache, purpose::USER_READ)?);
        Some(block.and_then(|block| {
            let block = if fill_cache { table.keep(number, block) } else { block };
            self.give(&block)
        }))
    }

    /// Takes that block and goes on; the answer, or `None` if it needs another block now.
    pub fn give(&mut self, block: &Block) -> Result<Option<Option<Value>>> {
        if let Some(answer) = self.lookup.give(&self.view, block)? {
            return Ok(Some(answer));
        }
        let collector = self.view.tables().table(0).slots().collector();
        match self.lookup.step(&self.view, &collector.pin())? {
            Step::Done(answer) => Ok(Some(answer)),
            Step::Needs => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;
