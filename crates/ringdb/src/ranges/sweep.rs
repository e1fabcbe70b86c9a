//! [`Sweep`]: the tombstones that cover keys which come in order; [`needed`]: those that are not superseded by others.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{RangeSet, RangeTombstone};
use crate::key::Seq;

/// Walks over a set beside a merge.
#[derive(Debug)]
pub(crate) struct Sweep {
    set: Arc<RangeSet>,
    /// Tombstones that cover the present piece, by sequence number, and where it ends.
    here: Vec<Seq>,
    end: Option<Vec<u8>>,
    started: bool,
}

impl Sweep {
    pub fn new(set: &Arc<RangeSet>) -> Sweep {
        Sweep { set: Arc::clone(set), here: Vec::new(), end: None, started: false }
    }

    /// The sequence numbers of the tombstones that cover `key`, ascending. Keys must come in ascending order.
    pub fn covering(&mut self, key: &[u8]) -> &[Seq] {
        if !self.started || self.end.as_ref().is_some_and(|end| key >= end.as_slice()) {
            self.started = true;
            self.end = self.set.covering(key, &mut self.here).map(<[u8]>::to_vec);
        }
        &self.here
    }
}

/// Those of `all` (different sequence numbers, in any order) without which some view of `views` (ascending) would see
/// more: of several that cover a key, and that the same views see, only the newest counts.
pub(crate) fn needed(all: &[RangeTombstone], views: &[Seq]) -> BTreeSet<Seq> {
    let stripe_of = |seq: Seq| views.partition_point(|&v| v < seq);
    let mut ends: Vec<(&[u8], bool, Seq)> = Vec::with_capacity(2 * all.len());
    ends.extend(all.iter().flat_map(|t| [(&*t.start, true, t.seq), (&*t.end, false, t.seq)]));
    ends.sort_unstable();
    let mut active = vec![BTreeSet::new(); views.len() + 1];
    let mut touched = BTreeSet::new();
    let mut needed = BTreeSet::new();
    let mut ends = ends.into_iter().peekable();
    while let Some((at, starts, seq)) = ends.next() {
        let stripe = stripe_of(seq);
        if starts {
            active[stripe].insert(seq);
        } else {
            active[stripe].remove(&seq);
        }
        touched.insert(stripe);
        if ends.peek().is_some_and(|(next, ..)| *next == at) {
            continue;
        }
        // The piece that begins here. Newer than every view: a view may still come between any two.
        for stripe in std::mem::take(&mut touched) {
            match stripe == views.len() {
                true => needed.extend(active[stripe].iter().copied()),
                false => needed.extend(active[stripe].last().copied()),
            }
        }
    }
    needed
}
