//! Batched point reads.
//!
//! First everything that is in memory: groups of keys go through the stages of a get side by side, so that their
//! cache misses overlap. Then the rest: every block that the remaining keys may need, in every table whose filter
//! does not rule it out, is read in one submission (or a few, for huge batches), and each key takes its newest
//! version.

use crate::sync::atomic::Ordering;

use engineswap::mem::epoch::{self, Published};

use super::Core;
use super::get::value_of;
use super::view::{Ahead, View};
use crate::key::{self, KeyBuf, Prefix, Seq};
use crate::purpose;
use crate::table::block::BlockView;
use crate::table::fetch::{Block, read_together};
use crate::table::index::{Probe, Step};
use crate::table::reader::{Cached, Table};
use crate::{ReadOptions, Result, Value};

/// Keys that go through the stages side by side.
const GROUP: usize = 8;
/// Blocks in flight at most.
const IN_FLIGHT: usize = 256;
/// Bytes in flight at most (but one block, however large).
const IN_FLIGHT_BYTES: u64 = 16 << 20;

impl Core {
    /// The newest versions at or before `seq` (`None`: as of now).
    pub(crate) fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        prefix: &Prefix,
        keys: &[K],
        seq: Option<Seq>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>> {
        self.check_open()?;
        let seq = || seq.unwrap_or_else(|| self.visible.load(Ordering::Acquire));
        multi_get(&self.view, prefix, keys, seq, options)
    }
}

/// The newest versions of keys of one keyspace at or before a sequence number, in the order of the keys. `seq` is
/// called after the view has been loaded.
pub(super) fn multi_get<K: AsRef<[u8]>>(
    views: &Published<View>,
    prefix: &Prefix,
    keys: &[K],
    seq: impl FnOnce() -> Seq,
    options: &ReadOptions,
) -> Result<Vec<Option<Value>>> {
    let view = views.get();
    let seq = seq();
    let mut out = Vec::new();
    out.resize_with(keys.len(), || None);
    let mut missed = Vec::new();
    for (group, (keys, out)) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)).enumerate() {
        view.get_group(prefix, keys, seq, out, |i| missed.push(group * GROUP + i));
    }
    // Neighbours share blocks: together they need each only once.
    missed.sort_unstable_by(|&a, &b| keys[a].as_ref().cmp(keys[b].as_ref()));
    let mut missed = missed.as_slice();
    while !missed.is_empty() {
        missed = view.get_missed(prefix, keys, missed, seq, &mut out, options.fill_cache)?;
    }
    Ok(out)
}

/// A key on its way through the stages.
struct Walk<'a> {
    key: &'a [u8],
    hash: u64,
    tables: Ahead<'a, 'a>,
    /// Where it is.
    at: At<'a>,
}

enum At<'a> {
    /// At the next table that may hold it.
    Tables,
    /// On the way down a table's index.
    Index(&'a Table, Probe),
    /// At a block.
    Block(&'a Table, u32),
    /// Answered, or known to be missing.
    Done,
}

impl View {
    /// Answers what memory can answer; calls `missed` for the others.
    fn get_group<K: AsRef<[u8]>>(
        &self,
        prefix: &Prefix,
        keys: &[K],
        seq: Seq,
        out: &mut [Option<Value>],
        mut missed: impl FnMut(usize),
    ) {
        let guard = epoch::pin();
        let bufs: [Option<KeyBuf>; GROUP] =
            std::array::from_fn(|i| keys.get(i).map(|k| KeyBuf::new(prefix, k.as_ref())));
        let mut walks: [Option<Walk<'_>>; GROUP] = std::array::from_fn(|i| {
            let key = bufs[i].as_ref()?.as_slice();
            let hash = key::hash(key);
            for m in self.memtables() {
                m.prefetch(hash);
            }
            Some(Walk { key, hash, tables: Ahead::new(self.tables(), key, hash), at: At::Tables })
        });
        let mut left = keys.len();
        for (walk, out) in walks.iter_mut().flatten().zip(&mut *out) {
            if let Some(value) = self.get_from_memtables(walk.key, walk.hash, seq) {
                *out = value;
                walk.at = At::Done;
                left -= 1;
            }
        }
        let (mut hits, mut negatives) = (0, 0);
        let mut cache = None;
        while left > 0 {
            let mut descending = false;
            for walk in walks.iter_mut().flatten() {
                if let At::Tables = walk.at {
                    walk.at = At::Done;
                    while let Some(table) = walk.tables.next() {
                        cache = Some(table.cache());
                        if table.filter().may_contain(walk.hash) {
                            walk.at = At::Index(table, table.index().start());
                            break;
                        }
                        negatives += 1;
                    }
                    match walk.at {
                        At::Done => left -= 1,
                        _ => descending = true,
                    }
                }
            }
            while std::mem::take(&mut descending) {
                for walk in walks.iter_mut().flatten() {
                    let At::Index(table, probe) = &mut walk.at else { continue };
                    match table.index().step(probe, walk.key) {
                        Step::Down => descending = true,
                        Step::Done(Some(number)) => {
                            table.slots().prefetch(number as usize);
                            walk.at = At::Block(table, number);
                        }
                        Step::Done(None) => walk.at = At::Tables,
                    }
                }
            }
            for walk in walks.iter().flatten() {
                let At::Block(table, number) = walk.at else { continue };
                for line in 0..4 {
                    table.slots().prefetch_frame(number as usize, 64 * line);
                }
            }
            for walk in walks.iter().flatten() {
                let At::Block(table, number) = walk.at else { continue };
                if let Some(bytes) = table.slots().load(number as usize, &guard) {
                    BlockView::trusted(bytes).prefetch_entry(walk.key);
                }
            }
            for (i, walk) in walks.iter_mut().flatten().enumerate() {
                let At::Block(table, number) = walk.at else { continue };
                walk.at = At::Done;
                match table.find_cached(number, walk.key, seq, &guard, &mut hits) {
                    Cached::Found(entry) => out[i] = value_of(entry),
                    Cached::Missing(_) => missed(i),
                    Cached::Absent => {
                        walk.at = At::Tables;
                        continue;
                    }
                }
                left -= 1;
            }
        }
        if let Some(cache) = cache {
            cache.count_probes(hits, negatives);
        }
    }

    /// Answers the first of the keys numbered `missed` by reading what they need together; returns the others.
    fn get_missed<'m, K: AsRef<[u8]>>(
        &self,
        prefix: &Prefix,
        keys: &[K],
        missed: &'m [usize],
        seq: Seq,
        out: &mut [Option<Value>],
        fill_cache: bool,
    ) -> Result<&'m [usize]> {
        let mut wanted: Vec<(&Table, u32)> = Vec::new();
        let mut bytes = 0;
        let mut now = 0;
        while now < missed.len() && wanted.len() < IN_FLIGHT && bytes < IN_FLIGHT_BYTES {
            let key = KeyBuf::new(prefix, keys[missed[now]].as_ref());
            self.want(key.as_slice(), seq, &mut wanted, &mut bytes);
            now += 1;
        }
        wanted.sort_unstable_by_key(|(table, number)| (table.meta().file_id, *number));
        wanted.dedup_by_key(|(table, number)| (table.meta().file_id, *number));
        let blocks = Fetched {
            blocks: read_together(&wanted, fill_cache, purpose::USER_READ),
            wanted: wanted.iter().map(|(table, number)| (table.meta().file_id, *number)).collect(),
        };
        for &i in &missed[..now] {
            let key = KeyBuf::new(prefix, keys[i].as_ref());
            out[i] = self.get_fetched(key.as_slice(), seq, &blocks, fill_cache)?;
        }
        if fill_cache {
            for ((table, number), block) in wanted.into_iter().zip(blocks.blocks) {
                if let Ok(block) = block {
                    table.keep(number, block);
                }
            }
        }
        Ok(&missed[now..])
    }

    /// Adds the blocks that have to be read to answer for a key.
    fn want<'v>(&'v self, key: &[u8], seq: Seq, wanted: &mut Vec<(&'v Table, u32)>, bytes: &mut u64) {
        let hash = key::hash(key);
        let guard = epoch::pin();
        let mut hits = 0;
        for table in self.tables().candidates(key).filter(|t| t.filter().may_contain(hash)) {
            let Some(number) = table.index().find_block(key) else { continue };
            match table.find_cached(number, key, seq, &guard, &mut hits) {
                Cached::Found(_) => break,
                Cached::Absent => {}
                Cached::Missing(number) if table.is_cached(number) => {}
                Cached::Missing(number) => {
                    // A neighbour often wants the same one.
                    if wanted.last().is_none_or(|(t, n)| *n != number || !std::ptr::eq(*t, &**table)) {
                        wanted.push((table, number));
                        *bytes += table.block_bytes(number);
                    }
                }
            }
        }
    }

    /// The answer for a key, out of what was fetched and what is cached (and, if a block was evicted meanwhile, the
    /// disk).
    fn get_fetched(
        &self,
        key: &[u8],
        seq: Seq,
        fetched: &Fetched,
        fill_cache: bool,
    ) -> Result<Option<Value>> {
        let hash = key::hash(key);
        for table in self.tables().candidates(key).filter(|t| t.filter().may_contain(hash)) {
            let Some(number) = table.index().find_block(key) else { continue };
            let local = |number| fetched.get(table, number);
            if let Some(value) = table.find_reading(number, key, seq, fill_cache, local, value_of)? {
                return Ok(value);
            }
        }
        Ok(None)
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
