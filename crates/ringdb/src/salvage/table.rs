//! [`Versions`]: the versions of one table, from all of its blocks that can be read; and [`Run`], those of several
//! tables, one after the other.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::Shared;
use super::ledger::Loss;
use crate::cursor::Cursor;
use crate::key::{Kind, Seq};
use crate::sync::lock;
use crate::table::block::{BlockView, Layout};
use crate::table::carve::Carver;
use crate::table::compress::Encoding;
use crate::table::remains::Remains;
use crate::table::walk::BlockWalk;
use crate::{Error, Result, purpose};

/// Where blocks come from.
enum Feed {
    /// The index says where they are.
    Index(BlockWalk),
    /// They are looked for, because of what is wrong with the index; with the number of blocks if known.
    Carve(Box<Carver>, String, Option<u32>),
}

/// What comes next out of a table.
enum Next {
    /// A block, in the buffer, with its place.
    Block(u32, u64, u64),
    /// Blocks that are lost.
    Gap(Loss),
    End,
}

/// The versions of a table in order.
pub(super) struct Versions {
    shared: Arc<Shared>,
    source: usize,
    feed: Option<Feed>,
    /// A block that was found behind a gap that has been reported only now.
    held: Option<(u32, u64, u64)>,
    next_block: u32,
    /// Up to where the file is accounted for, when carving.
    carved_to: u64,
    block: Vec<u8>,
    layout: Option<Layout>,
    at: usize,
    key: Vec<u8>,
    seq: Seq,
    kind: Kind,
    value: Range<usize>,
    any: bool,
    gap: Option<Loss>,
    entries: u64,
}

impl Versions {
    /// Of source number `source`; at its first version.
    pub fn open(shared: &Arc<Shared>, source: usize) -> Versions {
        let mut v = Versions {
            shared: Arc::clone(shared),
            source,
            feed: None,
            held: None,
            next_block: 0,
            carved_to: 0,
            block: Vec::new(),
            layout: None,
            at: 0,
            key: Vec::new(),
            seq: 0,
            kind: Kind::Put,
            value: 0..0,
            any: false,
            gap: None,
            entries: 0,
        };
        v.open_feed();
        v.next_version();
        v
    }

    fn open_feed(&mut self) {
        let s = &self.shared.sources[self.source];
        let gone = |detail: String| Loss {
            source: Some(self.source),
            path: s.path.clone(),
            detail,
            bytes: s.meta.as_ref().map_or(s.bytes, |m| m.file_bytes),
            entries: s.meta.as_ref().map(|m| m.entries),
            from: s.meta.as_ref().map(|m| m.smallest.clone()),
            to: s.meta.as_ref().map(|m| m.largest.clone()),
            ..Loss::default()
        };
        let lost = match s.missing {
            true => gone("the file is missing".into()),
            false => {
                let block_bytes = self.shared.block_bytes;
                match Remains::load(&self.shared.io, &s.path, s.file_id, block_bytes, purpose::RECOVERY) {
                    // Only a manifest knows which table of this number is meant: of a copy of the store that went its
                    // own way, or another store, blocks have the same checksums.
                    Ok(Remains { properties: Some(p), .. })
                        if s.level.is_some() && s.meta.as_ref().is_some_and(|m| m.in_file() != p.meta) =>
                    {
                        gone("it is not the table that the manifest describes".into())
                    }
                    Ok(remains) => return self.feed = Some(feed(remains, block_bytes)),
                    Err(e) => gone(format!("it cannot be opened: {e}")),
                }
            }
        };
        let mut ledger = lock(&self.shared.ledger);
        let entries = lost.entries;
        ledger.lost(lost);
        ledger.entries_missing(self.source, entries);
    }

    /// To the next version, in this block or a later one.
    fn next_version(&mut self) {
        let mut at = if self.layout.is_some() { self.at + 1 } else { 0 };
        while self.layout.is_none_or(|l| at >= l.len()) {
            if !self.load_next() {
                return;
            }
            at = 0;
        }
        self.stand(at);
        self.entries += 1;
    }

    fn stand(&mut self, at: usize) {
        let Some(layout) = self.layout else { return };
        let entry = BlockView::with_layout(&self.block, layout).entry(at);
        entry.key_into(&mut self.key);
        let given = self.given();
        (self.seq, self.kind, self.value, self.at) = (entry.seq + given, entry.kind, entry.value_range(), at);
        self.any = true;
    }

    /// See [`crate::table::TableMeta::given`].
    fn given(&self) -> Seq {
        self.shared.sources[self.source].meta.as_ref().map_or(0, |m| m.given)
    }

    /// Loads the next block that can be read and follows in order; false at the end.
    fn load_next(&mut self) -> bool {
        self.layout = None;
        loop {
            match self.next_block() {
                Next::Block(number, offset, len) => {
                    let (mut key, view) = (Vec::new(), BlockView::trusted(&self.block));
                    let (first, layout) = (view.entry(0), view.layout());
                    first.key_into(&mut key);
                    let follows = !self.any
                        || self.key < key
                        || (self.key == key && self.seq > first.seq + self.given());
                    if !follows {
                        let detail = format!("block {number} is out of order");
                        let loss = self.loss(number, Some(1), offset, len, detail);
                        self.add_to_gap(loss);
                        continue;
                    }
                    self.layout = Some(layout);
                    self.end_gap(Some(key));
                    let mut ledger = lock(&self.shared.ledger);
                    ledger.report.blocks += 1;
                    ledger.read(len);
                    return true;
                }
                Next::Gap(loss) => self.add_to_gap(loss),
                Next::End => {
                    self.feed = None;
                    let end = self.shared.sources[self.source].meta.as_ref().map(|m| m.largest.clone());
                    self.end_gap(end);
                    self.account();
                    return false;
                }
            }
        }
    }

    /// How many entries are missing, if anything is.
    fn account(&mut self) {
        let mut ledger = lock(&self.shared.ledger);
        ledger.report.entries += self.entries;
        if ledger.has_lost(self.source) {
            let said = self.shared.sources[self.source].meta.as_ref().map(|m| m.entries);
            ledger.entries_missing(self.source, said.map(|n| n.saturating_sub(self.entries)));
        }
    }

    fn loss(&self, first: u32, blocks: Option<u64>, offset: u64, bytes: u64, detail: String) -> Loss {
        Loss {
            source: Some(self.source),
            path: self.shared.sources[self.source].path.clone(),
            detail,
            first_block: Some(first),
            blocks,
            offset: Some(offset),
            bytes,
            ..Loss::default()
        }
    }

    /// Neighbouring losses are one.
    fn add_to_gap(&mut self, loss: Loss) {
        lock(&self.shared.ledger).read(loss.bytes);
        match &mut self.gap {
            Some(gap) => {
                gap.blocks = gap.blocks.zip(loss.blocks).map(|(a, b)| a + b);
                gap.bytes += loss.bytes;
            }
            None => {
                let first = self.shared.sources[self.source].meta.as_ref().map(|m| m.smallest.clone());
                let from = if self.any { Some(self.key.clone()) } else { first };
                self.gap = Some(Loss { from, ..loss });
            }
        }
    }

    fn end_gap(&mut self, to: Option<Vec<u8>>) {
        if let Some(gap) = self.gap.take() {
            lock(&self.shared.ledger).lost(Loss { to, ..gap });
        }
    }

    fn next_block(&mut self) -> Next {
        if let Some((number, offset, len)) = self.held.take() {
            return Next::Block(number, offset, len);
        }
        let number = self.next_block;
        match &mut self.feed {
            None => Next::End,
            Some(Feed::Index(walk)) => {
                if number >= walk.index().blocks() {
                    return Next::End;
                }
                self.next_block += 1;
                let pos = walk.index().block_pos(number);
                let (offset, len) = (pos.offset, pos.stored_len as u64);
                let read = walk.block(number).map(|b| {
                    self.block.clear();
                    self.block.extend_from_slice(b);
                });
                match read {
                    Ok(()) => Next::Block(number, offset, len),
                    Err(Error::Corrupt { detail, .. }) => {
                        Next::Gap(self.loss(number, Some(1), offset, len, detail))
                    }
                    Err(e) => Next::Gap(self.loss(number, Some(1), offset, len, e.to_string())),
                }
            }
            Some(Feed::Carve(carver, why, blocks)) => {
                let (from, expected) = (self.carved_to, *blocks);
                match carver.next(&mut self.block) {
                    Some(found) => {
                        self.next_block = found.number + 1;
                        self.carved_to = found.offset + found.len;
                        if found.number == number {
                            return Next::Block(found.number, found.offset, found.len);
                        }
                        self.held = Some((found.number, found.offset, found.len));
                        let detail = format!("no whole block here; {why}");
                        let blocks = Some((found.number - number) as u64);
                        Next::Gap(self.loss(number, blocks, from, found.offset - from, detail))
                    }
                    None => {
                        let (end, why) = (carver.end(), why.clone());
                        self.feed = None;
                        self.end_of_carving(number, expected, from, end, &why)
                    }
                }
            }
        }
    }

    /// What is missing behind the last block that was found.
    fn end_of_carving(&mut self, number: u32, blocks: Option<u32>, from: u64, end: u64, why: &str) -> Next {
        let meta = self.shared.sources[self.source].meta.as_ref();
        let said = meta.map(|m| m.entries);
        let at_last_key = self.any && meta.is_some_and(|m| m.largest == self.key);
        let missing = blocks.map(|n| n.saturating_sub(number) as u64);
        let all = match (missing, said) {
            (Some(n), _) => n == 0,
            (None, Some(said)) => said <= self.entries || at_last_key,
            (None, None) => false,
        };
        if all {
            return Next::End;
        }
        let detail = match missing.is_some() || said.is_some() {
            true => format!("no whole block from here on; {why}"),
            false => format!("no whole block from here on, and whether there was one is not known; {why}"),
        };
        Next::Gap(self.loss(number, missing, from, end.saturating_sub(from), detail))
    }
}

fn feed(remains: Remains, block_bytes: Option<u32>) -> Feed {
    let Remains { window, file_id, seal, properties, index, data_end, problems } = remains;
    if let Some(index) = index {
        return Feed::Index(BlockWalk::new(window, index, (file_id, seal)));
    }
    let packed = properties.as_ref().map(|p| p.trimmed || p.compression != Encoding::Plain);
    let size = properties.as_ref().map(|p| p.block_bytes).or(block_bytes);
    let blocks = properties.as_ref().map(|p| p.blocks);
    Feed::Carve(Box::new(Carver::new(window, file_id, size, packed, data_end)), problems.join("; "), blocks)
}

impl Versions {
    fn valid(&self) -> bool {
        self.layout.is_some()
    }

    fn value(&self) -> &[u8] {
        self.block.get(self.value.clone()).unwrap_or_default()
    }
}

/// The versions of tables whose ranges ascend and are disjoint; one of them is open at a time.
pub(super) struct Run {
    shared: Arc<Shared>,
    rest: VecDeque<usize>,
    open: Option<Versions>,
}

impl Run {
    /// Over these sources.
    pub fn new(shared: &Arc<Shared>, sources: Vec<usize>) -> Run {
        Run { shared: Arc::clone(shared), rest: sources.into(), open: None }
    }

    fn settle(&mut self) {
        while self.open.as_ref().is_none_or(|v| !v.valid()) {
            self.open = None;
            let Some(next) = self.rest.pop_front() else { return };
            self.open = Some(Versions::open(&self.shared, next));
        }
    }

    fn here(&self) -> &Versions {
        self.open.as_ref().expect("a cursor is asked only when valid")
    }
}

impl Cursor for Run {
    fn valid(&self) -> bool {
        self.open.as_ref().is_some_and(Versions::valid)
    }
    fn key(&self) -> &[u8] {
        &self.here().key
    }
    fn seq(&self) -> Seq {
        self.here().seq
    }
    fn kind(&self) -> Kind {
        self.here().kind
    }
    fn value(&self) -> &[u8] {
        self.here().value()
    }
    fn seek(&mut self, _key: &[u8]) -> Result<()> {
        Err(Error::Invalid("a salvage reads from the first key on".into()))
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.settle();
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        if let Some(v) = &mut self.open {
            v.next_version();
        }
        self.settle();
        Ok(())
    }
}
