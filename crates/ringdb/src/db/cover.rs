//! What range tombstones hide from an iterator or a cursor, and how it gets past that.
//!
//! Each end asks for the tombstones around its key once, and again when it has left the piece of keys for which the
//! answer holds. After a few hidden versions in a row it looks how far it may go by a seek: a source may leave out
//! what follows as long as tombstones cover it that are newer than everything that the source has there.

use crate::Result;
use crate::cursor::{Cursor, ReverseCursor};
use crate::db::source::Source;
use crate::db::view::View;
use crate::key::Seq;
use crate::ranges::{Cover, Ranges};

/// Hidden versions in a row after which a seek is worth it.
const STEPS: u32 = 8;

/// See the module.
#[derive(Default)]
pub(super) struct Covered {
    ranges: Ranges,
    seq: Seq,
    front: End,
    back: End,
}

#[derive(Default)]
struct End {
    cover: Cover,
    /// Hidden versions since the last one that was not.
    hidden: u32,
}

impl End {
    #[inline]
    fn hides(&mut self, ranges: &Ranges, upto: Seq, key: &[u8], seq: Seq) -> bool {
        if !self.cover.holds(key) {
            ranges.cover(key, upto, &mut self.cover);
        }
        let hides = seq < self.cover.seq;
        self.hidden = if hides { self.hidden + 1 } else { 0 };
        hides
    }

    /// What is hidden in the source as far as it stands in something of this age, if it is time to ask.
    fn older_than(&mut self, source: &Source) -> Option<Seq> {
        if self.hidden < STEPS {
            return None;
        }
        self.hidden = 0;
        Some(source.newest_here()).filter(|newest| *newest < self.cover.seq)
    }
}

/// Where a source goes on.
pub(super) struct Skip {
    to: Vec<u8>,
    /// Whether a source that does not read has begun to seek this.
    pub planned: bool,
}

impl Skip {
    /// The first key of interest.
    pub fn to(&self) -> &[u8] {
        &self.to
    }

    pub fn forward(&self, source: &mut Source) -> Result<()> {
        if self.planned { source.seek_supplied(&self.to) } else { source.seek(&self.to) }
    }

    pub fn back(&self, source: &mut Source) -> Result<()> {
        source.seek_before(&self.to)
    }
}

impl Covered {
    /// In a view as of `seq`, which was loaded after it.
    pub fn new(view: &View, seq: Seq) -> Covered {
        let ranges = if view.has_ranges() { view.ranges() } else { Ranges::default() };
        Covered { ranges, seq, ..Covered::default() }
    }

    /// Whether there is any range tombstone.
    #[inline]
    pub fn any(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Whether a version that the front has come to is hidden.
    pub fn hides_ahead(&mut self, key: &[u8], seq: Seq) -> bool {
        self.front.hides(&self.ranges, self.seq, key, seq)
    }

    /// Whether a version that the back has come to is hidden.
    pub fn hides_behind(&mut self, key: &[u8], seq: Seq) -> bool {
        self.back.hides(&self.ranges, self.seq, key, seq)
    }

    /// Where the source that has a hidden version of `key` goes on, if a seek is worth it.
    pub fn skip_ahead(&mut self, key: &[u8], source: &Source) -> Option<Box<Skip>> {
        let above = self.front.older_than(source)?;
        let end = self.ranges.covered_until(key, self.seq, above)?;
        Some(Box::new(Skip { to: source.forward_to(end, above), planned: false }))
    }

    /// The same backwards: before which key.
    pub fn skip_behind(&mut self, key: &[u8], source: &Source) -> Option<Skip> {
        let above = self.back.older_than(source)?;
        let start = self.ranges.covered_from(key, self.seq, above)?;
        Some(Skip { to: source.back_to(start, above), planned: false })
    }
}
