//! [`RangeSet`]: some range tombstones, immutable, found by key; [`Ranges`]: a reader's sets, newest first.
//!
//! The ends of the ranges divide the keys into pieces. Each piece knows the newest tombstone that covers it, which is
//! the answer for those who read the store as of now. For older views there is a segment tree over the pieces: a
//! tombstone is kept in O(log n) of its nodes, so that ranges nested in each other take no quadratic space, and the
//! tombstones of a piece are those on its way to the root.

use std::sync::Arc;

use super::RangeTombstone;
use crate::coding::same_bytes;
use crate::cursor::key_head;
use crate::key::Seq;

/// Some range tombstones.
#[derive(Default)]
pub(crate) struct RangeSet {
    /// By sequence number, ascending.
    all: Vec<RangeTombstone>,
    /// Where pieces begin and end, ascending, each once.
    bounds: Vec<Arc<[u8]>>,
    /// What all bounds begin with, and eight bytes of each behind that.
    common: Vec<u8>,
    heads: Vec<u64>,
    /// By piece, the sequence number of the newest tombstone that covers it; 0: none.
    newest: Vec<Seq>,
    /// Where the tombstones of a node of the tree begin in `in_nodes`, by node; the leaves are the last nodes.
    nodes: Vec<u32>,
    /// Ascending within a node.
    in_nodes: Vec<Seq>,
}

/// A piece of a set's keys, or what lies before or behind all of them.
pub(super) struct Piece<'s> {
    /// The first key; `None`: no first.
    pub from: Option<&'s [u8]>,
    /// Behind the last key; `None`: no end.
    pub to: Option<&'s [u8]>,
    /// The newest tombstone that covers it as of some number; 0: none.
    pub seq: Seq,
}

impl RangeSet {
    /// Of tombstones in any order, of different sequence numbers.
    pub fn new(mut all: Vec<RangeTombstone>) -> RangeSet {
        all.sort_unstable_by_key(|t| t.seq);
        let mut bounds: Vec<Arc<[u8]>> = Vec::with_capacity(2 * all.len());
        bounds.extend(all.iter().flat_map(|t| [Arc::clone(&t.start), Arc::clone(&t.end)]));
        bounds.sort_unstable();
        bounds.dedup();
        let (Some(first), Some(last)) = (bounds.first(), bounds.last()) else { return RangeSet::default() };
        let shared = first.iter().zip(last.iter()).take_while(|(a, b)| a == b).count();
        let common = first[..shared].to_vec();
        let heads = bounds.iter().map(|b| key_head(b, shared)).collect();
        let mut set = RangeSet { all, bounds, common, heads, ..RangeSet::default() };
        set.plant();
        set
    }

    /// Makes the tree.
    fn plant(&mut self) {
        let pieces = self.bounds.len() - 1;
        let mut counts = vec![0u32; 2 * pieces + 1];
        let places: Vec<(usize, usize)> = self.all.iter().map(|t| self.pieces_of(t)).collect();
        for &place in &places {
            nodes_of(pieces, place, |node| counts[node + 1] += 1);
        }
        for node in 1..counts.len() {
            counts[node] += counts[node - 1];
        }
        self.in_nodes = vec![0; counts[2 * pieces] as usize];
        let mut next = counts.clone();
        for (t, &place) in self.all.iter().zip(&places) {
            nodes_of(pieces, place, |node| {
                self.in_nodes[next[node] as usize] = t.seq;
                next[node] += 1;
            });
        }
        self.nodes = counts;
        let mut best = vec![0; 2 * pieces];
        for node in 1..2 * pieces {
            let own = self.node(node).last().copied().unwrap_or(0);
            best[node] = own.max(best[node / 2]);
        }
        self.newest = best.split_off(pieces);
    }

    /// The first piece of a tombstone, and the first behind it.
    fn pieces_of(&self, t: &RangeTombstone) -> (usize, usize) {
        let at = |key: &Arc<[u8]>| self.bounds.partition_point(|b| b < key);
        (at(&t.start), at(&t.end))
    }

    fn node(&self, node: usize) -> &[Seq] {
        &self.in_nodes[self.nodes[node] as usize..self.nodes[node + 1] as usize]
    }

    /// All of them, by sequence number.
    pub fn all(&self) -> &[RangeTombstone] {
        &self.all
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Bytes of memory that it takes, about; keys are counted here although other sets may share them.
    pub fn bytes(&self) -> u64 {
        let keys: usize = self.bounds.iter().map(|b| b.len() + 16).sum();
        let each = size_of::<RangeTombstone>() * self.all.len() + self.bounds.len() * 32;
        (keys + each + self.in_nodes.len() * 8 + self.nodes.len() * 4) as u64
    }

    /// How many bounds are at or before `key`.
    #[inline]
    fn bounds_through(&self, key: &[u8]) -> usize {
        let n = self.common.len();
        let head = match key.get(..n) {
            Some(start) if same_bytes(start, &self.common) => key_head(key, n),
            _ if key < self.common.as_slice() => return 0,
            _ => return self.bounds.len(),
        };
        let mut i = self.heads.partition_point(|&h| h < head);
        if self.heads.get(i) == Some(&head) {
            let same = i..i + self.heads[i..].partition_point(|&h| h == head);
            i += self.bounds[same].partition_point(|b| **b <= *key);
        }
        i
    }

    /// The newest tombstone of sequence number `upto` or lower that covers `key`; 0 if there is none.
    #[inline]
    pub fn newest(&self, key: &[u8], upto: Seq) -> Seq {
        match self.bounds_through(key) {
            0 => 0,
            n => self.newest_of(n - 1, upto),
        }
    }

    /// The same of a piece, or of what is behind the last one.
    #[inline]
    fn newest_of(&self, piece: usize, upto: Seq) -> Seq {
        match self.newest.get(piece) {
            None => 0,
            Some(&newest) if newest <= upto => newest,
            Some(_) => self
                .way_up(piece)
                .filter_map(|own| own[..own.partition_point(|s| *s <= upto)].last())
                .copied()
                .max()
                .unwrap_or(0),
        }
    }

    /// The nodes that hold a piece's tombstones.
    fn way_up(&self, piece: usize) -> impl Iterator<Item = &[Seq]> {
        let leaf = piece + self.newest.len();
        std::iter::successors(Some(leaf), |n| (*n > 1).then_some(n / 2)).map(|n| self.node(n))
    }

    /// Where `key` lies, as of `upto`.
    pub(super) fn piece(&self, key: &[u8], upto: Seq) -> Piece<'_> {
        self.piece_of(self.bounds_through(key), upto)
    }

    /// Where the keys just before `key` lie.
    pub(super) fn piece_before(&self, key: &[u8], upto: Seq) -> Piece<'_> {
        self.piece_of(self.bounds.partition_point(|b| **b < *key), upto)
    }

    /// The piece that so many bounds are at or before.
    fn piece_of(&self, bounds: usize, upto: Seq) -> Piece<'_> {
        let from = bounds.checked_sub(1);
        Piece {
            from: from.and_then(|i| self.bounds.get(i)).map(|b| &**b),
            to: self.bounds.get(bounds).map(|b| &**b),
            seq: from.map_or(0, |piece| self.newest_of(piece, upto)),
        }
    }

    /// Puts the tombstones that cover `key` into `out`, by sequence number, and gives the end of the piece.
    pub(super) fn covering(&self, key: &[u8], out: &mut Vec<Seq>) -> Option<&[u8]> {
        out.clear();
        let bounds = self.bounds_through(key);
        if let Some(piece) = bounds.checked_sub(1).filter(|p| *p < self.newest.len()) {
            self.way_up(piece).for_each(|own| out.extend_from_slice(own));
            out.sort_unstable();
        }
        self.bounds.get(bounds).map(|b| &**b)
    }
}

impl std::fmt::Debug for RangeSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.all).finish()
    }
}

/// Calls `f` with the nodes, of a tree over so many pieces, that together are the pieces from `from` to before `to`.
fn nodes_of(pieces: usize, (from, to): (usize, usize), mut f: impl FnMut(usize)) {
    let (mut l, mut r) = (from + pieces, to + pieces);
    while l < r {
        if l & 1 == 1 {
            f(l);
            l += 1;
        }
        if r & 1 == 1 {
            r -= 1;
            f(r);
        }
        (l, r) = (l / 2, r / 2);
    }
}

/// The sets of a reader or of a memtable, newest first: every tombstone of a set is newer than all of the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    pub(super) sets: Vec<Arc<RangeSet>>,
}

impl Ranges {
    /// Adds sets that are older than all that are there.
    pub fn extend(&mut self, older: &Ranges) {
        self.sets.extend_from_slice(&older.sets);
    }

    /// Adds a set that is older than all that are there.
    pub fn push(&mut self, older: &Arc<RangeSet>) {
        if !older.is_empty() {
            self.sets.push(Arc::clone(older));
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// All tombstones.
    pub fn all(&self) -> impl Iterator<Item = &RangeTombstone> {
        self.sets.iter().flat_map(|s| s.all())
    }

    /// Bytes of memory that they take, about.
    pub fn bytes(&self) -> u64 {
        self.sets.iter().map(|s| s.bytes()).sum()
    }

    /// The newest tombstone of sequence number `upto` or lower that covers `key`; 0 if there is none.
    #[inline]
    pub fn newest(&self, key: &[u8], upto: Seq) -> Seq {
        // What an older set has is older.
        self.sets.iter().map(|s| s.newest(key, upto)).find(|s| *s > 0).unwrap_or(0)
    }

    /// The newest tombstone of sequence number `upto` or lower that covers a key from `lower` on and before `upper`
    /// (`None`: no end); 0 if there is none.
    pub fn newest_within(&self, lower: &[u8], upper: Option<&[u8]>, upto: Seq) -> Seq {
        let meets =
            |t: &&RangeTombstone| t.seq <= upto && *lower < *t.end && upper.is_none_or(|u| *t.start < *u);
        let newest = |s: &Arc<RangeSet>| s.all().iter().rev().find(meets).map(|t| t.seq);
        self.sets.iter().find_map(newest).unwrap_or(0)
    }

    /// Where `key` lies among all sets.
    fn piece(&self, key: &[u8], upto: Seq) -> Piece<'_> {
        meet(self.sets.iter().map(|s| s.piece(key, upto)))
    }

    /// Puts into `cover` what is true of `key` and its neighbours.
    pub fn cover(&self, key: &[u8], upto: Seq, cover: &mut Cover) {
        let piece = self.piece(key, upto);
        cover.seq = piece.seq;
        cover.known = true;
        set_end(&mut cover.from, piece.from);
        set_end(&mut cover.to, piece.to);
    }

    /// The end of the keys from `key` on, without a gap, that tombstones newer than `above` cover; `None` if `key` is
    /// not covered by one.
    pub fn covered_until(&self, key: &[u8], upto: Seq, above: Seq) -> Option<&[u8]> {
        let mut end = None;
        loop {
            let piece = self.piece(end.unwrap_or(key), upto);
            if piece.seq <= above {
                return end;
            }
            end = piece.to;
        }
    }

    /// The first of the keys up to `key`, without a gap, that tombstones newer than `above` cover; `None` if `key` is
    /// not covered by one.
    pub fn covered_from(&self, key: &[u8], upto: Seq, above: Seq) -> Option<&[u8]> {
        let piece = self.piece(key, upto);
        let mut start = piece.from.filter(|_| piece.seq > above)?;
        loop {
            let piece = meet(self.sets.iter().map(|s| s.piece_before(start, upto)));
            match piece.from {
                Some(from) if piece.seq > above => start = from,
                _ => return Some(start),
            }
        }
    }
}

/// What several pieces around one place have in common.
fn meet<'s>(pieces: impl Iterator<Item = Piece<'s>>) -> Piece<'s> {
    pieces.fold(Piece { from: None, to: None, seq: 0 }, |a, b| Piece {
        from: a.from.max(b.from),
        to: match (a.to, b.to) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        },
        seq: a.seq.max(b.seq),
    })
}

fn set_end(end: &mut Option<Vec<u8>>, to: Option<&[u8]>) {
    match (end.as_mut(), to) {
        (Some(end), Some(to)) => {
            end.clear();
            end.extend_from_slice(to);
        }
        _ => *end = to.map(<[u8]>::to_vec),
    }
}

/// Keys side by side of which the same is true, kept by who walks over them.
#[derive(Debug, Default)]
pub(crate) struct Cover {
    known: bool,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    /// The newest tombstone that covers them; 0: none.
    pub seq: Seq,
}

impl Cover {
    /// Whether this is still true of `key`.
    #[inline]
    pub fn holds(&self, key: &[u8]) -> bool {
        self.known
            && self.to.as_ref().is_none_or(|to| key < to.as_slice())
            && self.from.as_ref().is_none_or(|from| key >= from.as_slice())
    }
}
