//! Point reads: memtables first, then the tables that may hold the key, newest first.
//!
//! As long as everything is in memory a read happens under one epoch guard, without touching a reference count.
//! When a block has to be read the guard is given up and the view kept instead.

use crate::sync::atomic::Ordering;
use std::sync::Arc;

use engineswap::mem::epoch::{self, Guard, Published};

use super::Core;
use super::view::{Ahead, View};
use crate::key::{self, KeyBuf, Kind, Prefix, Seq};
use crate::table::block::EntryRef;
use crate::table::reader::Cached;
use crate::{ReadOptions, Result, Value};

impl Core {
    /// The newest version at or before `seq` (`None`: as of now).
    pub(crate) fn get_at(
        &self,
        prefix: &Prefix,
        key: &[u8],
        seq: Option<Seq>,
        options: &ReadOptions,
    ) -> Result<Option<Value>> {
        self.check_open()?;
        let key = KeyBuf::new(prefix, key);
        let seq = || seq.unwrap_or_else(|| self.visible.load(Ordering::Acquire));
        get(&self.view, key.as_slice(), seq, options)
    }
}

/// What memory says about a key.
enum Answer {
    Known(Option<Value>),
    /// A block has to be read.
    Missing,
}

/// The newest version of an internal key at or before a sequence number. `seq` is called after the view has been
/// loaded.
pub(super) fn get(
    views: &Published<View>,
    key: &[u8],
    seq: impl FnOnce() -> Seq,
    options: &ReadOptions,
) -> Result<Option<Value>> {
    let hash = key::hash(key);
    let guard = epoch::pin();
    let view = views.load(&guard);
    let seq = seq();
    match view.get_cached(key, hash, seq, &guard) {
        Answer::Known(value) => Ok(value),
        Answer::Missing => {
            let view = Arc::clone(view);
            drop(guard);
            view.get_from_tables(key, hash, seq, options.fill_cache)
        }
    }
}

impl View {
    /// What the memtables say; `None`: nothing.
    #[inline]
    pub(super) fn get_from_memtables(&self, key: &[u8], hash: u64, seq: Seq) -> Option<Option<Value>> {
        let entry = self.memtables().find_map(|m| m.get(key, hash, seq))?;
        Some((entry.kind == Kind::Put).then(|| Value::copy_from(entry.value)))
    }

    fn get_cached(&self, key: &[u8], hash: u64, seq: Seq, guard: &Guard) -> Answer {
        for m in self.memtables() {
            m.prefetch(hash);
        }
        // The filters are on their way while the memtables are asked.
        let mut tables = Ahead::new(self.tables(), key, hash);
        if let Some(value) = self.get_from_memtables(key, hash, seq) {
            return Answer::Known(value);
        }
        let (mut hits, mut negatives) = (0, 0);
        let mut cache = None;
        let mut answer = Answer::Known(None);
        while let Some(table) = tables.next() {
            cache = Some(table.cache());
            if !table.filter().may_contain(hash) {
                negatives += 1;
                continue;
            }
            let Some(number) = table.index().find_block(key) else { continue };
            match table.find_cached(number, key, seq, guard, &mut hits) {
                Cached::Found(entry) => answer = Answer::Known(value_of(entry)),
                Cached::Missing(_) => answer = Answer::Missing,
                Cached::Absent => continue,
            }
            break;
        }
        if let Some(cache) = cache {
            cache.count_probes(hits, negatives);
        }
        answer
    }

    /// Asks the tables, reading blocks from the disk as needed, one at a time.
    fn get_from_tables(&self, key: &[u8], hash: u64, seq: Seq, fill_cache: bool) -> Result<Option<Value>> {
        for table in self.tables().candidates(key).filter(|t| t.filter().may_contain(hash)) {
            let Some(number) = table.index().find_block(key) else { continue };
            if let Some(value) = table.find_reading(number, key, seq, fill_cache, |_| None, value_of)? {
                return Ok(value);
            }
        }
        Ok(None)
    }
}

/// The value; `None` for a tombstone.
#[inline]
pub(super) fn value_of(entry: EntryRef<'_>) -> Option<Value> {
    (entry.kind == Kind::Put).then(|| Value::copy_from(entry.value))
}

#[cfg(test)]
mod tests;
