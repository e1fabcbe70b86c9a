//! Leaving out what a range tombstone hides: to where a source goes on behind it, instead of stepping through it.

use super::{LevelCursor, Source};
use crate::key::Seq;
use crate::table::meta::TableMeta;

impl Source {
    /// No version of the table or memtable that it stands in is newer than this, but for such as no reader of before
    /// the call sees.
    pub fn newest_here(&self) -> Seq {
        match self {
            Source::Memtable(c) => c.newest_version(),
            Source::Table(c) => c.table().meta().max_seq,
            Source::Level(c) => c.cursor.table().meta().max_seq,
        }
    }

    /// How far towards `end` it may go by one seek if what is not newer than `above` is of no interest: every version
    /// that is left out is as old. It stands before `end`, in something that is.
    pub fn forward_to(&self, end: &[u8], above: Seq) -> Vec<u8> {
        match self {
            Source::Memtable(_) | Source::Table(_) => end.to_vec(),
            Source::Level(c) => c.forward_to(end, above).to_vec(),
        }
    }

    /// The same backwards: before which key it may seek towards `start`.
    pub fn back_to(&self, start: &[u8], above: Seq) -> Vec<u8> {
        match self {
            Source::Memtable(_) | Source::Table(_) => start.to_vec(),
            Source::Level(c) => c.back_to(start, above),
        }
    }
}

impl LevelCursor {
    fn forward_to<'k>(&'k self, end: &'k [u8], above: Seq) -> &'k [u8] {
        let newer = |m: &&TableMeta| m.max_seq > above;
        let next = self.tables()[self.at + 1..].iter().map(|t| t.meta());
        let mut inside = next.take_while(|m| m.smallest.as_slice() < end);
        inside.find(newer).map_or(end, |m| &m.smallest)
    }

    fn back_to(&self, start: &[u8], above: Seq) -> Vec<u8> {
        let newer = |m: &&TableMeta| m.max_seq > above;
        let before = self.tables()[..self.at].iter().rev().map(|t| t.meta());
        let mut inside = before.take_while(|m| m.largest.as_slice() >= start);
        // Before the first key behind that table's last.
        inside.find(newer).map_or_else(|| start.to_vec(), |m| [m.largest.as_slice(), &[0]].concat())
    }
}
