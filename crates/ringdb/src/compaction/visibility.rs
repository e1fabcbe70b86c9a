//! [`Visibility`]: which versions a flush or a compaction keeps.
//!
//! Views divide sequence numbers into stripes: stripe i holds what view i sees and view i-1 does not. Of one
//! key's versions in one stripe every view sees at most the newest, so only that one is kept. In the oldest
//! stripe of a key that has no older versions in deeper places, a tombstone hides nothing and goes, and a put
//! may have the sequence number 0.
//!
//! A range tombstone hides a version from every view that sees the tombstone. So what it covers goes if it lies in the
//! tombstone's own stripe: no view sees the version without the tombstone. The tombstones asked are those that come to
//! the disk at the latest with the tables being written, never one that so far only a younger memtable holds: what
//! had deleted a version must not be lost when the version is.
//!
//! No version may become 0 that is newer than a live tombstone which covers it: the tombstone would hide it. It is
//! enough to look at the version's own list, although memtables may hold others: memtables are flushed whole and in
//! order, and a flush adds its tombstones in the edit that adds its tables. So a tombstone that is older than a
//! version which lies in a table was in the list when that table came. If it is not there now, no table needs it.

use std::sync::Arc;

use crate::key::{self, Kind, Seq};
use crate::ranges::{RangeSet, RangeState, Sweep};

/// What becomes of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Written with this sequence number.
    Keep(Seq),
    /// Not written.
    Drop,
    /// An operand: it is merged with what follows of its key, as far as that has the same [`Stripe`]. With the lowest
    /// number that the result may have.
    Operand(Stripe, Seq),
    /// What the operands before are merged into: no view sees one without the other.
    Base,
    /// Hidden from all who see the operands before: they are merged into nothing.
    NoBase,
}

/// Between which views a version lies.
pub(crate) type Stripe = usize;

/// Decides the fate of versions that come in order: key ascending, then newest first.
#[derive(Debug)]
pub(crate) struct Visibility {
    /// Ascending, without repetition. The last is the newest state that a reader may have begun with.
    views: Vec<Seq>,
    /// Ids of dropped keyspaces, ascending.
    dropped: Vec<u32>,
    /// The key of the last version.
    key: Vec<u8>,
    started: bool,
    new_key: bool,
    /// Stripe of the key's last kept or hidden version; `usize::MAX` before the first.
    stripe: usize,
    /// What was kept last are operands: what follows in the stripe is seen with them.
    open: bool,
    /// No older version of the key than the last that was kept can lie anywhere.
    lowest: bool,
    /// The whole key is dropped: its keyspace is.
    in_dropped: bool,
    /// The prefix of the last keyspace that was looked up.
    looked_up: Option<u32>,
    ranges: Option<Sweep>,
    /// Every range tombstone of this number or a lower one is known here or has nothing left to hide.
    through: Seq,
    /// The oldest range tombstone that could not be applied to all that it covers, for the sake of a view.
    blocked: Option<Seq>,
}

impl Visibility {
    /// `views`: the open snapshots and the newest published sequence number, in any order.
    /// `dropped`: ids of dropped keyspaces.
    pub fn new(mut views: Vec<Seq>, mut dropped: Vec<u32>) -> Visibility {
        views.sort_unstable();
        views.dedup();
        dropped.sort_unstable();
        let (key, stripe) = (Vec::new(), usize::MAX);
        Visibility {
            views,
            dropped,
            key,
            started: false,
            new_key: false,
            stripe,
            open: false,
            lowest: false,
            in_dropped: false,
            looked_up: None,
            ranges: None,
            through: 0,
            blocked: None,
        }
    }

    /// With the range tombstones of a version. Get hold of them before the views: then a view sees all of them.
    pub fn with_ranges(self, ranges: &RangeState) -> Visibility {
        self.with_range_set(&ranges.set, ranges.through)
    }

    /// With these range tombstones: all that there are up to the number `through`.
    pub fn with_range_set(self, set: &Arc<RangeSet>, through: Seq) -> Visibility {
        let ranges = (!set.is_empty()).then(|| Sweep::new(set));
        Visibility { ranges, through, ..self }
    }

    /// All range tombstones up to this number have been applied to what was kept.
    pub fn applied(&self) -> Seq {
        self.blocked.map_or(self.through, |seq| self.through.min(seq - 1))
    }

    /// The fate of the next version. `bottom` is asked, once needed, whether no older version of this key can
    /// lie anywhere but in this same merge.
    #[inline]
    pub fn fate(&mut self, key: &[u8], seq: Seq, kind: Kind, bottom: impl FnOnce(&[u8]) -> bool) -> Fate {
        if !self.started || self.key != key {
            self.started = true;
            self.key.clear();
            self.key.extend_from_slice(key);
            self.stripe = usize::MAX;
            self.open = false;
            if !self.dropped.is_empty() {
                self.look_up_keyspace();
            }
        }
        if self.in_dropped {
            return Fate::Drop;
        }
        let stripe = self.stripe_of(seq);
        let mut may_be_0 = true;
        if let Some(ranges) = &mut self.ranges {
            let covering = ranges.covering(key);
            let older = covering.partition_point(|t| *t < seq);
            may_be_0 = older == 0;
            if let Some(&t) = covering.get(older) {
                if self.stripe_of(t) == stripe && stripe < self.views.len() {
                    let ends = std::mem::take(&mut self.open) && stripe == self.stripe;
                    return if ends { Fate::NoBase } else { Fate::Drop };
                }
                self.blocked = Some(self.blocked.map_or(t, |b| b.min(t)));
            }
        }
        // What is newer than every view is not published yet: a view may still come between any two.
        let joins = stripe == self.stripe && stripe < self.views.len();
        if joins && !self.open {
            return Fate::Drop;
        }
        if joins && kind != Kind::Merge {
            self.open = false;
            return Fate::Base;
        }
        // The first of a key may have gone: a range tombstone hides it, and an older one not from an older view.
        self.new_key = self.stripe == usize::MAX;
        self.stripe = stripe;
        self.open = kind == Kind::Merge;
        self.lowest = false;
        if self.open && stripe < self.views.len() {
            return Fate::Operand(stripe, if stripe == 0 && may_be_0 { 0 } else { seq });
        }
        // Older versions of the key that follow are in this oldest stripe too: none of them is kept.
        if stripe == 0 && bottom(key) {
            self.lowest = true;
            return match kind {
                Kind::Delete => Fate::Drop,
                _ if may_be_0 => Fate::Keep(0),
                _ => Fate::Keep(seq),
            };
        }
        Fate::Keep(seq)
    }

    /// Whether the version that was kept last is the first one that was kept of its key.
    #[inline]
    pub fn is_new_key(&self) -> bool {
        self.new_key
    }

    /// Whether a tombstone in the place of the version that was kept last would hide nothing.
    #[inline]
    pub fn is_lowest(&self) -> bool {
        self.lowest
    }

    /// Index of the oldest view that sees `seq`.
    #[inline]
    fn stripe_of(&self, seq: Seq) -> usize {
        match self.views.as_slice() {
            [only] => usize::from(seq > *only),
            views => views.partition_point(|&v| v < seq),
        }
    }

    fn look_up_keyspace(&mut self) {
        let id = key::split(&self.key).map(|(id, _)| id);
        if id != self.looked_up || id.is_none() {
            self.looked_up = id;
            self.in_dropped = id.is_some_and(|id| self.dropped.binary_search(&id).is_ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::ranges::RangeTombstone;

    type Versions = BTreeMap<(Vec<u8>, std::cmp::Reverse<Seq>), Kind>;

    fn filter(versions: &Versions, views: &[Seq], dropped: &[u32], bottom: bool) -> Versions {
        let mut v = Visibility::new(views.to_vec(), dropped.to_vec());
        let mut out = Versions::new();
        for ((key, seq), kind) in versions {
            if let Fate::Keep(s) = v.fate(key, seq.0, *kind, |_| bottom) {
                assert!(out.insert((key.clone(), std::cmp::Reverse(s)), *kind).is_none());
            }
        }
        out
    }

    /// What a view sees of a key: the kind, not the number, which may have become 0.
    fn sees(versions: &Versions, key: &[u8], view: Seq) -> Option<Kind> {
        versions
            .range((key.to_vec(), std::cmp::Reverse(view))..)
            .next()
            .filter(|((k, _), _)| k == key)
            .map(|(_, &kind)| kind)
    }

    #[test]
    fn keeps_one_version_a_stripe() {
        let k = vec![0, b'k'];
        let all: Versions =
            [(9, Kind::Put), (8, Kind::Delete), (5, Kind::Put), (4, Kind::Put), (2, Kind::Put)]
                .map(|(s, kind)| ((k.clone(), std::cmp::Reverse(s)), kind))
                .into();
        let seqs = |v: &Versions| v.keys().map(|(_, s)| s.0).collect::<Vec<_>>();
        assert_eq!(seqs(&filter(&all, &[9], &[], false)), [9]);
        assert_eq!(seqs(&filter(&all, &[9], &[], true)), [0]);
        assert_eq!(seqs(&filter(&all, &[8], &[], true)), [9]);
        assert_eq!(seqs(&filter(&all, &[8], &[], false)), [9, 8]);
        assert_eq!(seqs(&filter(&all, &[3, 9], &[], true)), [9, 0]);
        assert_eq!(seqs(&filter(&all, &[4, 5, 8, 9], &[], false)), [9, 8, 5, 4]);
        assert!(filter(&all, &[3, 9], &[0], true).is_empty());
        assert_eq!(seqs(&filter(&all, &[3, 9], &[1], true)), [9, 0]);
    }

    proptest! {
        #[test]
        fn every_view_sees_what_it_saw(
            entries in prop::collection::btree_map((0u8..3, 0u8..6, 1u64..40), any::<bool>(), 0..80),
            mut views in prop::collection::vec(0u64..45, 1..5),
            dropped in prop::collection::vec(0u32..4, 0..2),
            bottom in any::<bool>(),
        ) {
            views.sort();
            let versions: Versions = entries
                .iter()
                .map(|((ks, k, s), put)| {
                    ((vec![*ks, *k], std::cmp::Reverse(*s)), if *put { Kind::Put } else { Kind::Delete })
                })
                .collect();
            let kept = filter(&versions, &views, &dropped, bottom);
            let newest = *views.last().unwrap();
            for ks in 0..3u8 {
                for k in 0..6u8 {
                    let key = [ks, k];
                    for view in views.iter().copied().chain(newest..50) {
                        let mut was = sees(&versions, &key, view).filter(|_| !dropped.contains(&ks.into()));
                        let is = sees(&kept, &key, view);
                        if bottom && is.is_none() && was == Some(Kind::Delete) {
                            was = None;
                        }
                        prop_assert_eq!(is, was, "key {:?} view {}", key, view);
                    }
                    // Nothing superfluous: no more versions than views, and what is newer than all.
                    let n = kept.keys().filter(|(x, s)| x == &key && s.0 <= newest).count();
                    views.dedup();
                    prop_assert!(n <= views.len());
                }
            }
        }

        /// With range tombstones, of which a version's list may lack those that are younger than all that is merged.
        #[test]
        fn every_view_sees_what_it_saw_through_range_tombstones(
            entries in prop::collection::btree_map((0u8..8, 1u64..20), any::<bool>(), 0..60),
            ranges in prop::collection::vec((0u8..8, 1u8..8, 1u64..24), 0..8),
            mut views in prop::collection::vec(0u64..24, 0..4),
            bottom in any::<bool>(),
            listed in 20u64..24,
        ) {
            // All that is merged is published; no number is used twice.
            views.push(2 * listed);
            views.sort();
            let versions: Versions = entries
                .iter()
                .map(|((k, s), put)| {
                    ((vec![0, *k], std::cmp::Reverse(2 * *s)), if *put { Kind::Put } else { Kind::Delete })
                })
                .collect();
            let mut all: Vec<RangeTombstone> = ranges
                .iter()
                .map(|(from, len, s)| RangeTombstone::new(&[0, *from], &[0, from + len], 2 * s + 1))
                .collect();
            all.sort_by_key(|t| t.seq);
            all.dedup_by_key(|t| t.seq);
            let known: Vec<RangeTombstone> = all.iter().filter(|t| t.seq <= 2 * listed).cloned().collect();
            let set = Arc::new(RangeSet::new(known));
            let mut v = Visibility::new(views.clone(), vec![]).with_range_set(&set, 2 * listed);
            let mut kept = Versions::new();
            let mut last = None;
            for ((key, seq), kind) in &versions {
                if let Fate::Keep(s) = v.fate(key, seq.0, *kind, |_| bottom) {
                    prop_assert!(kept.insert((key.clone(), std::cmp::Reverse(s)), *kind).is_none());
                    prop_assert_eq!(v.is_new_key(), last != Some(key), "tables are cut before a key's first version");
                    last = Some(key);
                }
            }
            let there = |versions: &Versions, key: &[u8], view: Seq| -> Option<Seq> {
                let ((_, seq), kind) = versions
                    .range((key.to_vec(), std::cmp::Reverse(view))..)
                    .next()
                    .filter(|((k, _), _)| k == key)?;
                let hidden = all.iter().any(|t| t.covers(key) && seq.0 < t.seq && t.seq <= view);
                (*kind == Kind::Put && !hidden).then_some(seq.0)
            };
            for k in 0..8u8 {
                for view in views.iter().copied().chain(2 * listed..60) {
                    let (was, is) = (there(&versions, &[0, k], view), there(&kept, &[0, k], view));
                    prop_assert_eq!(is.is_some(), was.is_some(), "key {} view {} of {:?}", k, view, all);
                    prop_assert!(is == was || is == Some(0));
                }
            }
            for (key, seq) in kept.keys() {
                let newer = all.iter().find(|t| t.covers(key) && seq.0 < t.seq && t.seq <= v.applied());
                // What has become 0 was newer than all that have been applied, or there is none.
                prop_assert!(newer.is_none(), "{:?}@{} is covered by {:?}, which was applied", key, seq.0, newer);
            }
        }
    }
}
