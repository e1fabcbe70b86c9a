//! Batched point reads.
//!
//! First everything that is in memory: groups of [`Lookup`]s go through their stages side by side, so that their
//! cache misses overlap. Then the rest: every block that the remaining ones may need, in every table whose filter
//! does not rule it out, is read in one submission (or a few, for huge batches), and each takes its newest
//! version.

use std::ops::Range;

use super::lookup::{Lookup, Probes, Step};
use super::view::{View, Views};
use crate::insight::Operation;
use crate::key::{Prefix, Seq};
use crate::purpose;
use crate::table::fetch::{Block, read_together};
use crate::table::reader::Table;
use crate::{ReadOptions, Result, Value};

/// Keys that go through the stages side by side.
const GROUP: usize = 8;
/// Keys whose lookups wait for the disk at the same time, at most: each takes about 250 bytes meanwhile.
pub(super) const WAITING: usize = 4096;
/// Blocks in flight at most.
const IN_FLIGHT: usize = 256;
/// Bytes in flight at most (but one block, however large).
const IN_FLIGHT_BYTES: u64 = 16 << 20;

/// A lookup that needs a block, and the number of its key.
type Waiting = (usize, Lookup);

/// Keys that are asked for, by number.
pub(super) trait Asked {
    fn len(&self) -> usize;
    /// The prefix of a key's keyspace, and the key.
    fn at(&self, i: usize) -> (&Prefix, &[u8]);
}

/// Keys of one keyspace.
pub(super) struct OfOne<'a, K>(pub &'a Prefix, pub &'a [K]);

impl<K: AsRef<[u8]>> Asked for OfOne<'_, K> {
    #[inline]
    fn len(&self) -> usize {
        self.1.len()
    }
    #[inline]
    fn at(&self, i: usize) -> (&Prefix, &[u8]) {
        (self.0, self.1[i].as_ref())
    }
}

impl Views {
    /// The newest versions of keys as of a snapshot (`None`: as of now), in the order of the keys.
    pub(super) fn multi_get(
        &self,
        keys: &impl Asked,
        snapshot: Option<Seq>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        self.latencies().sample(Operation::MultiGet, || self.multi_get_untimed(keys, snapshot, options))
    }

    #[inline]
    fn multi_get_untimed(
        &self,
        keys: &impl Asked,
        snapshot: Option<Seq>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        let (view, seq) = self.as_of(snapshot);
        let mut out = Vec::new();
        out.resize_with(keys.len(), || None);
        let mut waiting = Vec::new();
        for from in (0..keys.len()).step_by(WAITING) {
            let to = keys.len().min(from + WAITING);
            for group in (from..to).step_by(GROUP) {
                self.get_group(&view, keys, group..to, seq, &mut out, &mut waiting)?;
            }
            // Neighbours share blocks: together they need each only once.
            waiting.sort_unstable_by(|a, b| a.1.key().cmp(b.1.key()));
            let mut rest = waiting.as_mut_slice();
            while !rest.is_empty() {
                let now = self.read_needed(&view, rest, &mut out, options.fill_cache)?;
                rest = &mut rest[now..];
            }
            waiting.clear();
        }
        Ok(out)
    }

    /// Answers what memory can answer; the others' lookups, each with the number of its key.
    pub(super) fn look_up_all(
        &self,
        view: &View,
        keys: &impl Asked,
        seq: Seq,
        out: &mut [Option<Value>],
    ) -> Result<Vec<(usize, Lookup)>> {
        let mut waiting = Vec::new();
        for group in (0..keys.len()).step_by(GROUP) {
            self.get_group(view, keys, group..keys.len(), seq, out, &mut waiting)?;
        }
        Ok(waiting)
    }

    /// Answers what memory can answer of the first group of the keys with these numbers.
    fn get_group(
        &self,
        view: &View,
        keys: &impl Asked,
        numbers: Range<usize>,
        seq: Seq,
        out: &mut [Option<Value>],
        waiting: &mut Vec<Waiting>,
    ) -> Result<()> {
        let guard = self.pin();
        // Each is made where it stays: they are too long to be moved about.
        let mut lookups = [const { None }; GROUP];
        let first = numbers.start;
        for (slot, i) in lookups.iter_mut().zip(numbers) {
            let (prefix, key) = keys.at(i);
            *slot = Some(Lookup::new(view, prefix, key, seq));
        }
        for (lookup, out) in lookups.iter_mut().flatten().zip(&mut out[first..]) {
            if let Some(answer) = lookup.ask_memtables(view)? {
                *out = answer;
            }
        }
        let mut probes = Probes::default();
        loop {
            let mut descending = false;
            for lookup in lookups.iter_mut().flatten() {
                if lookup.next_table(view, &mut probes) {
                    lookup.prefetch_index(view);
                    descending = true;
                }
            }
            if !descending {
                break;
            }
            while std::mem::take(&mut descending) {
                for lookup in lookups.iter_mut().flatten() {
                    descending |= lookup.descend(view);
                }
            }
            lookups.iter().flatten().for_each(|lookup| lookup.prefetch_block(view));
            lookups.iter().flatten().for_each(|lookup| lookup.prefetch_entry(view, &guard));
            for (i, slot) in lookups.iter_mut().enumerate() {
                let Some(lookup) = slot else { continue };
                match lookup.search_cached(view, &guard, &mut probes)? {
                    Some(Step::Done(answer)) => out[first + i] = answer,
                    Some(Step::Needs) => waiting.extend(slot.take().map(|lookup| (first + i, lookup))),
                    None => {}
                }
            }
        }
        if probes.unmerged {
            // Those that wait are not here any more; the others have come to their ends.
            for (i, slot) in lookups.iter_mut().enumerate() {
                if let Some(lookup) = slot.as_mut().filter(|lookup| lookup.has_operands()) {
                    out[first + i] = lookup.merge_the_rest()?;
                }
            }
        }
        probes.count(view);
        Ok(())
    }

    /// Answers the first of `waiting` by reading what they need together; returns how many.
    fn read_needed(
        &self,
        view: &View,
        waiting: &mut [Waiting],
        out: &mut [Option<Value>],
        fill_cache: bool,
    ) -> Result<usize> {
        let mut wanted: Vec<(&Table, u32)> = Vec::new();
        let mut bytes = 0;
        let mut now = 0;
        while now < waiting.len() && wanted.len() < IN_FLIGHT && bytes < IN_FLIGHT_BYTES {
            waiting[now].1.look_ahead(view, &self.pin(), |table, number| {
                // A neighbour often wants the same one.
                if wanted.last().is_none_or(|(t, n)| *n != number || !std::ptr::eq(*t, table)) {
                    wanted.push((table, number));
                    bytes += table.block_bytes(number);
                }
            });
            now += 1;
        }
        wanted.sort_unstable_by_key(|(table, number)| (table.meta().file_id, *number));
        wanted.dedup_by_key(|(table, number)| (table.meta().file_id, *number));
        let blocks = Fetched {
            blocks: read_together(&wanted, fill_cache, purpose::USER_READ),
            wanted: wanted.iter().map(|(table, number)| (table.meta().file_id, *number)).collect(),
        };
        for (i, lookup) in &mut waiting[..now] {
            out[*i] = lookup.finish(view, fill_cache, |table, number| blocks.get(table, number))?;
        }
        if fill_cache {
            for ((table, number), block) in wanted.into_iter().zip(blocks.blocks) {
                if let Ok(block) = block {
                    table.keep(number, block);
                }
            }
        }
        Ok(now)
    }
}

/// Blocks that were read for this batch.
struct Fetched {
    /// File and block, sorted.
    wanted: Vec<(u64, u32)>,
    blocks: Vec<Result<Block>>,
}

impl Fetched {
    fn get(&self, table: &Table, number: u32) -> Option<&Result<Block>> {
        self.blocks.get(self.wanted.binary_search(&(table.meta().file_id, number)).ok()?)
    }
}

#[cfg(test)]
mod tests;
