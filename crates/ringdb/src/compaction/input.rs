//! What a merge reads: [`RunScan`], one after the other the tables of a sorted run; and where to split it.

use std::sync::Arc;

use super::CompactionEnv;
use super::memory::Memory;
use super::pick::Merge;
use crate::cursor::Cursor;
use crate::key::{Kind, Seq};
use crate::table::TableScan;
use crate::table::meta::TableMeta;
use crate::table::read_ahead::Ahead;
use crate::{Result, purpose};

/// Samples of keys for each part of a merge: the parts' sizes are as even as that.
const SAMPLES: u64 = 32;

/// A forward cursor over disjoint tables in key order.
pub(crate) struct RunScan<'a, T: CompactionEnv> {
    store: &'a T,
    tables: Vec<Arc<T::Table>>,
    end: Option<&'a [u8]>,
    ahead: Ahead,
    /// The table of `scan`.
    at: usize,
    scan: Option<TableScan>,
}

impl<'a, T: CompactionEnv> RunScan<'a, T> {
    /// Over the keys before `end`.
    pub fn new(store: &'a T, tables: Vec<Arc<T::Table>>, end: Option<&'a [u8]>) -> Self {
        RunScan { store, tables, end, ahead: Ahead::MOST, at: 0, scan: None }
    }

    /// Bytes that it takes to read ahead.
    pub fn ahead_bytes(&self) -> u64 {
        self.ahead.bytes()
    }

    /// The runs of a merge's inputs that have keys from `from` on and before `to`: each table of level 0 is one,
    /// each other level is.
    pub fn of_inputs(
        store: &'a T,
        inputs: &[(usize, Vec<Arc<T::Table>>)],
        from: Option<&[u8]>,
        to: Option<&'a [u8]>,
        memory: Memory,
    ) -> Vec<Self> {
        let inside = |t: &&Arc<T::Table>| {
            let m: &TableMeta = (***t).as_ref();
            from.is_none_or(|f| m.largest.as_slice() >= f) && to.is_none_or(|to| m.smallest.as_slice() < to)
        };
        let mut runs = Vec::new();
        for (level, tables) in inputs {
            let tables: Vec<Arc<T::Table>> = tables.iter().filter(inside).cloned().collect();
            if *level == 0 {
                runs.extend(tables.into_iter().map(|t| RunScan::new(store, vec![t], to)));
            } else if !tables.is_empty() {
                runs.push(RunScan::new(store, tables, to));
            }
        }
        let ahead = memory.ahead(runs.len());
        runs.iter_mut().for_each(|r| r.ahead = ahead);
        runs
    }

    fn open(&mut self, at: usize) -> Result<Option<&mut TableScan>> {
        self.at = at;
        self.scan = None;
        let Some(table) = self.tables.get(at) else { return Ok(None) };
        let parts = self.store.table_parts(table);
        let scan = TableScan::lazy(self.store.io(), &parts, self.end, self.ahead, purpose::COMPACTION_READ)?;
        Ok(Some(self.scan.insert(scan)))
    }

    /// To the next table that has a wanted key, while the present one has none.
    fn settle(&mut self) -> Result<()> {
        while self.scan.as_ref().is_some_and(|s| !s.valid()) {
            if let Some(scan) = self.open(self.at + 1)? {
                scan.seek_to_first()?;
            }
        }
        Ok(())
    }

    #[inline]
    fn here(&self) -> &TableScan {
        self.scan.as_ref().expect("a cursor is asked only when valid")
    }
}

impl<T: CompactionEnv> Cursor for RunScan<'_, T> {
    #[inline]
    fn valid(&self) -> bool {
        self.scan.as_ref().is_some_and(TableScan::valid)
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.here().key()
    }
    #[inline]
    fn seq(&self) -> Seq {
        self.here().seq()
    }
    #[inline]
    fn kind(&self) -> Kind {
        self.here().kind()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.here().value()
    }
    #[inline]
    fn load_value(&mut self) -> Result<()> {
        self.scan.as_mut().map_or(Ok(()), TableScan::load_value)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let at = self.tables.partition_point(|t| (**t).as_ref().largest.as_slice() < key);
        if let Some(scan) = self.open(at)? {
            scan.seek(key)?;
        }
        self.settle()
    }

    fn seek_to_first(&mut self) -> Result<()> {
        if let Some(scan) = self.open(0)? {
            scan.seek_to_first()?;
        }
        self.settle()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if let Some(scan) = &mut self.scan {
            scan.next()?;
            if !scan.valid() {
                return self.settle();
            }
        }
        Ok(())
    }
}

/// Keys that split a merge into at most `parts` parts of about the same size, ascending; each part begins with one
/// of them. From the separators of the tables' blocks.
pub(crate) fn split_keys<T: CompactionEnv>(store: &T, merge: &Merge<T::Table>, parts: usize) -> Vec<Vec<u8>> {
    if parts < 2 {
        return Vec::new();
    }
    let tables = || merge.inputs.iter().flat_map(|(_, ts)| ts);
    let total: u64 = tables().map(|t| (**t).as_ref().file_bytes).sum();
    let step = (total / (parts as u64 * SAMPLES)).max(1);
    // Every sample stands for the bytes of its table since the sample before.
    let mut samples: Vec<(Vec<u8>, u64)> = Vec::new();
    for t in tables() {
        let (m, table_parts): (&TableMeta, _) = ((**t).as_ref(), store.table_parts(t));
        let index = &table_parts.index;
        let blocks = index.blocks();
        let wanted = (m.file_bytes / step).clamp(1, u64::from(blocks.max(1))) as u32;
        for i in 1..=wanted {
            let block = (u64::from(blocks) * u64::from(i) / u64::from(wanted)) as u32;
            if let Some(b) = block.checked_sub(1) {
                samples.push((index.separator(b).to_vec(), m.file_bytes / u64::from(wanted)));
            }
        }
    }
    samples.sort();
    let last = samples.last().map(|(k, _)| k.clone());
    let mut splits: Vec<Vec<u8>> = Vec::new();
    let mut bytes = 0;
    for (key, weight) in samples {
        bytes += weight;
        if splits.len() + 1 < parts
            && bytes >= total * (splits.len() as u64 + 1) / parts as u64
            && splits.last() != Some(&key)
            && Some(&key) != last.as_ref()
        {
            splits.push(key);
        }
    }
    splits
}
