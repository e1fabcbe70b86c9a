//! [`MemCursor`]: a position in a memtable that survives concurrent insertions.
//!
//! The cursor copies a leaf's record positions at one moment and walks the copy; nothing of it ever becomes stale,
//! since records are never freed. Going right it takes the leaf that was the next one at that moment: what split off
//! since then has only keys already copied, or newer ones. Going left it searches again for the key before.

use super::btree::Toward;
use super::node::FANOUT;
use super::record::{self, Record};
use super::{Memtable, node::Torn};
use crate::cursor::{Cursor, ReverseCursor};
use crate::error::Result;
use crate::key::{Kind, Seq};
use std::sync::Arc;

/// Records fetched ahead of the one in hand.
const AHEAD: usize = 8;

/// A position in a memtable.
pub(crate) struct MemCursor {
    memtable: Arc<Memtable>,
    /// Newest versions of a leaf's keys.
    records: [u64; FANOUT],
    len: usize,
    /// The key in hand; at or beyond `len` when not valid.
    at: usize,
    next_leaf: Option<u32>,
    /// The version in hand.
    pos: u64,
    prev: u64,
    seq: Seq,
    kind: Kind,
    /// Newer versions of the key in hand, newest first.
    newer: Vec<u64>,
    scratch: Vec<u8>,
}

impl MemCursor {
    pub(super) fn new(memtable: Arc<Memtable>) -> MemCursor {
        MemCursor {
            memtable,
            records: [0; FANOUT],
            len: 0,
            at: 0,
            next_leaf: None,
            pos: 0,
            prev: 0,
            seq: 0,
            kind: Kind::Delete,
            newer: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// See [`Memtable::newest_version`].
    pub fn newest_version(&self) -> Seq {
        self.memtable.newest_version()
    }

    /// Copies the leaf that `toward` leads to; returns where its key is or belongs in it.
    fn copy_toward(&mut self, toward: Toward<'_>) -> usize {
        let m = &*self.memtable;
        loop {
            let copied = m.tree.descend(toward, &m.arena).and_then(|(leaf, version)| {
                let at = match toward {
                    Toward::Key(key) | Toward::Before(key) => leaf.find(key, &m.arena)?.0,
                    Toward::First => 0,
                    Toward::Last => leaf.len(),
                };
                let (len, next) = (leaf.len(), leaf.next());
                for i in 0..len {
                    self.records[i] = leaf.record(i);
                }
                if leaf.validate(version) { Ok((at, len, next)) } else { Err(Torn) }
            });
            if let Ok((at, len, next)) = copied {
                (self.len, self.next_leaf) = (len, next);
                return at;
            }
            std::hint::spin_loop();
        }
    }

    /// Copies the leaf to the right; false if there is none.
    fn copy_next(&mut self) -> bool {
        let Some(id) = self.next_leaf else { return false };
        // The leaf is there: its number was read under a valid version.
        let Ok(leaf) = self.memtable.tree.leaf(id) else { return false };
        loop {
            let version = leaf.version();
            let (len, next) = (leaf.len(), leaf.next());
            for i in 0..len {
                self.records[i] = leaf.record(i);
            }
            if leaf.validate(version) {
                (self.len, self.next_leaf) = (len, next);
                return true;
            }
        }
    }

    fn invalidate(&mut self) {
        self.at = 0;
        self.len = 0;
        self.newer.clear();
    }

    #[inline(always)]
    fn fetch(&self, i: usize) {
        if i < self.len {
            record::prefetch(&self.memtable.arena, self.records[i]);
        }
    }

    /// Takes the version at `pos` in hand.
    #[inline]
    fn take(&mut self, pos: u64) {
        match Record::at(&self.memtable.arena, pos) {
            Some(r) => (self.pos, self.prev, self.seq, self.kind) = (pos, r.prev, r.seq, r.kind),
            None => unreachable!("no record at {pos}"),
        }
    }

    /// To the newest version of the key `at`, or of the first one to the right if there is none.
    fn settle_newest(&mut self, mut at: usize) {
        self.newer.clear();
        while at >= self.len {
            if !self.copy_next() {
                self.invalidate();
                return;
            }
            at = 0;
        }
        self.at = at;
        for i in at..at + AHEAD {
            self.fetch(i);
        }
        self.take(self.records[at]);
    }

    /// To the oldest version of the key before `end`.
    fn settle_oldest(&mut self, end: usize) {
        self.newer.clear();
        let Some(at) = end.checked_sub(1) else {
            self.invalidate();
            return;
        };
        self.at = at;
        if at >= AHEAD {
            self.fetch(at - AHEAD);
        }
        self.take(self.records[at]);
        while self.prev != 0 {
            self.newer.push(self.pos);
            self.take(self.prev);
        }
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        debug_assert!(self.valid());
        match Record::at(&self.memtable.arena, self.pos) {
            Some(r) => r,
            None => unreachable!("no record at {}", self.pos),
        }
    }
}

impl Cursor for MemCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.at < self.len
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.record().key
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
        self.record().value
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let at = self.copy_toward(Toward::Key(key));
        self.settle_newest(at);
        Ok(())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        let at = self.copy_toward(Toward::First);
        self.settle_newest(at);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.prev != 0 {
            self.newer.push(self.pos);
            self.take(self.prev);
            return Ok(());
        }
        let at = self.at + 1;
        if at < self.len {
            self.newer.clear();
            self.at = at;
            self.fetch(at + AHEAD);
            self.take(self.records[at]);
        } else {
            self.settle_newest(at);
        }
        Ok(())
    }
}

impl ReverseCursor for MemCursor {
    fn seek_to_last(&mut self) -> Result<()> {
        self.copy_toward(Toward::Last);
        self.settle_oldest(self.len);
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let end = self.copy_toward(Toward::Before(key));
        self.settle_oldest(end);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        if let Some(newer) = self.newer.pop() {
            self.take(newer);
        } else if self.at > 0 {
            self.settle_oldest(self.at);
        } else {
            let mut key = std::mem::take(&mut self.scratch);
            key.clear();
            key.extend_from_slice(self.key());
            let end = self.copy_toward(Toward::Before(&key));
            self.scratch = key;
            for i in end.saturating_sub(AHEAD)..end {
                self.fetch(i);
            }
            self.settle_oldest(end);
        }
        Ok(())
    }
}
