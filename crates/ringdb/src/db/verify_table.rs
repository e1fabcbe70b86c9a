//! Verification of one table: its parts, each block, the order of its entries, and what they should agree with.

use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;

use engineswap::Io;

use super::verify::Check;
use crate::expiry;
use crate::files::FileKind;
use crate::key::{self, Kind};
use crate::stats::VerifyProblem;
use crate::table::block::BlockView;
use crate::table::filter::Filter;
use crate::table::index::Index;
use crate::table::meta::TableMeta;
use crate::table::parts::TableParts;
use crate::table::reads::Reads;
use crate::table::remains::Remains;
use crate::table::walk::{BlockWalk, Window};
use crate::{Error, Result, purpose};

/// Problems of one table that are listed one by one; a damaged disk may have millions.
const PROBLEMS_A_TABLE: u64 = 20;

/// Reads a table's file anew and compares it with its description. An error only if its key is not to be had: then
/// nothing is wrong with it.
pub(super) fn verify_table(
    io: &Io,
    dir: &Path,
    level: usize,
    meta: &TableMeta,
    check: &mut Check,
) -> Result<()> {
    let path = FileKind::Table(meta.file_id).path(dir);
    check.report.files += 1;
    let mut t = TableCheck { path: &path, level: level as u32, meta, check, listed: 0, unlisted: 0 };
    match open(io, &path, meta) {
        Ok((mut walk, filter)) => t.blocks(&mut walk, Some(&filter)),
        Err(e @ Error::Key { .. }) => return Err(e),
        Err(e) => t.unreadable(io, e),
    }
    if t.unlisted > 0 {
        let p = t.about(None, "table", format!("{} more problems", t.unlisted));
        t.check.report.problems.push(p);
    }
    Ok(())
}

fn open(io: &Io, path: &Path, meta: &TableMeta) -> Result<(BlockWalk, Filter)> {
    let parts = TableParts::load(io, path, meta.file_id, Reads::Direct, purpose::VERIFY)?;
    if parts.properties.meta != meta.in_file() {
        return Err(Error::corrupt(path, None, "its properties are not what the manifest says"));
    }
    let window = Window::over(parts.file()?, purpose::VERIFY)?;
    let seal = parts.seal_shared();
    let TableParts { index, filter, file_id, .. } = parts;
    Ok((BlockWalk::new(window, Arc::new(index), (file_id, seal)), filter))
}

struct TableCheck<'a> {
    path: &'a Path,
    level: u32,
    meta: &'a TableMeta,
    check: &'a mut Check,
    listed: u64,
    unlisted: u64,
}

impl TableCheck<'_> {
    fn about(&self, offset: Option<u64>, kind: &str, detail: impl Into<String>) -> VerifyProblem {
        VerifyProblem {
            file: self.path.display().to_string(),
            offset,
            detail: detail.into(),
            kind: kind.into(),
            level: Some(self.level),
            ..VerifyProblem::default()
        }
    }

    fn problem(&mut self, p: VerifyProblem) {
        self.listed += 1;
        match self.listed <= PROBLEMS_A_TABLE {
            true => self.check.report.problems.push(p),
            false => self.unlisted += 1,
        }
    }

    fn says(&mut self, offset: Option<u64>, kind: &str, detail: impl Into<String>) {
        let p = self.about(offset, kind, detail);
        self.problem(p);
    }

    /// The store cannot use the table: all of it is affected. Its blocks are looked at as far as they can be found.
    fn unreadable(&mut self, io: &Io, why: Error) {
        let (offset, detail) = match why {
            Error::Corrupt { offset, detail, .. } => (offset, detail),
            Error::Io(e) if e.kind() == engineswap::ErrorKind::NotFound => {
                (None, "the manifest names this table, but it is gone".into())
            }
            e => (None, e.to_string()),
        };
        let m = self.meta;
        let p = VerifyProblem {
            bytes: Some(m.file_bytes),
            entries: Some(m.entries),
            from: Some(key::printable(&m.smallest)),
            to: Some(key::printable(&m.largest)),
            share: self.check.share(m.file_bytes),
            ..self.about(offset, "table", detail)
        };
        self.problem(p);
        let r = &mut self.check.report;
        r.damaged_bytes += m.file_bytes;
        r.damaged_entries += m.entries;
        let before = (r.damaged_bytes, r.damaged_entries);
        if let Ok(remains) = Remains::load(io, self.path, m.file_id, None, purpose::VERIFY)
            && let Some(index) = remains.index
            && remains.file_id == m.file_id
        {
            let table = (remains.file_id, remains.seal);
            self.blocks(&mut BlockWalk::new(remains.window, index, table), None);
        }
        let r = &mut self.check.report;
        (r.damaged_bytes, r.damaged_entries) = before;
    }

    /// Reads every block. `filter` if the table is whole but for its blocks.
    fn blocks(&mut self, walk: &mut BlockWalk, filter: Option<&Filter>) {
        let index = Arc::clone(walk.index());
        let mut seen = Seen { min_seq: u64::MAX, ..Seen::default() };
        let mut bad_blocks = Vec::new();
        let listed_before = self.listed;
        for number in 0..index.blocks() {
            let pos = index.block_pos(number);
            self.check.read(pos.stored_len as u64);
            let block = match walk.block(number) {
                Ok(block) => block,
                Err(e) => {
                    if let Some(at) = self.bad_block(&index, number, e) {
                        bad_blocks.push(at);
                    }
                    seen.last_seq = None;
                    continue;
                }
            };
            self.check.report.blocks += 1;
            let view = BlockView::trusted(block);
            let mut wrong = seen.block(view, number, &index, filter);
            if number == 0 && view.entry(0).cmp_key(&self.meta.smallest).is_ne() {
                wrong.push(("counts", "its first key is not what the manifest says".into()));
            }
            for (kind, detail) in wrong {
                self.says(Some(pos.offset), kind, detail);
            }
        }
        self.check.report.entries += seen.entries;
        if self.listed == listed_before && filter.is_some() {
            self.compare(&seen);
        }
        if !bad_blocks.is_empty() || self.unlisted > 0 {
            let missing = self.meta.entries.saturating_sub(seen.entries);
            let r = &mut self.check.report;
            r.damaged_entries += missing;
            if let ([one], 0) = (bad_blocks.as_slice(), self.unlisted) {
                r.problems[*one].entries = Some(missing);
            }
        }
    }

    /// Compares what all blocks hold with the table's description.
    fn compare(&mut self, seen: &Seen) {
        let m = &self.meta.in_file();
        let expiry = m.expiry.map(|e| (e.entries, e.first, e.last));
        let is = (seen.entries, seen.tombstones, seen.expiry, seen.min_seq, seen.max_seq);
        let said = (m.entries, m.tombstones, expiry, m.min_seq, m.max_seq);
        if is != said {
            let what = "(entries, tombstones, what expires, smallest and largest sequence number)";
            self.says(None, "counts", format!("it holds {is:?} {what}, not {said:?}"));
        }
        if seen.last != m.largest {
            self.says(None, "counts", "its last key is not what the manifest says");
        }
    }

    /// Where the problem is listed, if it is.
    fn bad_block(&mut self, index: &Index, number: u32, why: Error) -> Option<usize> {
        let pos = index.block_pos(number);
        let detail = match why {
            Error::Corrupt { detail, .. } => detail,
            e => e.to_string(),
        };
        let from = match number.checked_sub(1) {
            Some(before) => index.separator(before),
            None => &self.meta.smallest,
        };
        let bytes = pos.stored_len as u64;
        let p = VerifyProblem {
            block: Some(number),
            bytes: Some(bytes),
            from: Some(key::printable(from)),
            to: Some(key::printable(index.separator(number))),
            share: self.check.share(bytes),
            ..self.about(Some(pos.offset), "block", detail)
        };
        self.check.report.damaged_blocks += 1;
        self.check.report.damaged_bytes += bytes;
        self.problem(p);
        (self.unlisted == 0).then(|| self.check.report.problems.len() - 1)
    }
}

/// A problem: its kind and what it is.
type Wrong = (&'static str, String);

/// What the blocks so far have held.
#[derive(Default)]
struct Seen {
    entries: u64,
    tombstones: u64,
    /// Entries that expire, when the first does, and the last.
    expiry: Option<(u64, u64, u64)>,
    min_seq: u64,
    max_seq: u64,
    /// The last key, and its sequence number unless the block before could not be read.
    last: Vec<u8>,
    last_seq: Option<u64>,
    /// Of the entry being looked at.
    key: Vec<u8>,
}

impl Seen {
    /// Goes through a block's entries; returns what is wrong with them.
    fn block(
        &mut self,
        view: BlockView<'_>,
        number: u32,
        index: &Index,
        filter: Option<&Filter>,
    ) -> Vec<Wrong> {
        let mut wrong: Vec<Wrong> = Vec::new();
        let before = number.checked_sub(1).map(|b| index.separator(b));
        for i in 0..view.len() {
            let e = view.entry(i);
            e.key_into(&mut self.key);
            let (n, key) = (self.entries, self.key.as_slice());
            // Within a block the order is part of its structure.
            let follows = |seq| (self.last.as_slice(), Reverse(seq)) < (key, Reverse(e.seq));
            if i == 0 && self.last_seq.is_some_and(|seq| !follows(seq)) {
                wrong.push(("order", format!("entry {n}, of block {number}, is out of order")));
            }
            if filter.is_some_and(|f| !f.may_contain(key::hash(key))) {
                let what = format!("the filter denies the key of entry {n}, of block {number}");
                wrong.push(("filter", what));
            }
            if key::split(key).is_none() {
                wrong.push(("block", format!("the key of entry {n}, of block {number}, has no keyspace")));
            }
            if i == 0 && before.is_some_and(|b| key < b) {
                wrong.push(("index", format!("block {number} begins before where the index says")));
            }
            self.entries += 1;
            self.tombstones += u64::from(e.kind == Kind::Delete);
            if e.kind == Kind::Expiring {
                let at = expiry::split(e.value).0;
                let (n, first, last) = self.expiry.unwrap_or((0, at, at));
                self.expiry = Some((n + 1, first.min(at), last.max(at)));
            }
            self.min_seq = self.min_seq.min(e.seq);
            self.max_seq = self.max_seq.max(e.seq);
            std::mem::swap(&mut self.key, &mut self.last);
            self.last_seq = Some(e.seq);
        }
        if self.last.as_slice() > index.separator(number) {
            wrong.push(("index", format!("block {number} ends behind where the index says")));
        }
        wrong
    }
}
