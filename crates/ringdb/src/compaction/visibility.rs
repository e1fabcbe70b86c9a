//! [`Visibility`]: which versions a flush or a compaction keeps.
//!
//! Views divide sequence numbers into stripes: stripe i holds what view i sees and view i-1 does not. Of one
//! key's versions in one stripe every view sees at most the newest, so only that one is kept. In the oldest
//! stripe of a key that has no older versions in deeper places, a tombstone hides nothing and goes, and a put
//! may have the sequence number 0.

use crate::key::{self, Kind, Seq};

/// What becomes of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Written with this sequence number.
    Keep(Seq),
    /// Not written.
    Drop,
}

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
    /// The whole key is dropped: its keyspace is.
    in_dropped: bool,
    /// The prefix of the last keyspace that was looked up.
    looked_up: Option<u32>,
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
            in_dropped: false,
            looked_up: None,
        }
    }

    /// The fate of the next version. `bottom` is asked, once needed, whether no older version of this key can
    /// lie anywhere but in this same merge.
    #[inline]
    pub fn fate(&mut self, key: &[u8], seq: Seq, kind: Kind, bottom: impl FnOnce(&[u8]) -> bool) -> Fate {
        self.new_key = !self.started || self.key != key;
        if self.new_key {
            self.started = true;
            self.key.clear();
            self.key.extend_from_slice(key);
            self.stripe = usize::MAX;
            if !self.dropped.is_empty() {
                self.look_up_keyspace();
            }
        }
        if self.in_dropped {
            return Fate::Drop;
        }
        let stripe = self.stripe_of(seq);
        // What is newer than every view is not published yet: a view may still come between any two.
        if stripe == self.stripe && stripe < self.views.len() {
            return Fate::Drop;
        }
        self.stripe = stripe;
        // Older versions of the key that follow are in this oldest stripe too: none of them is kept.
        if stripe == 0 && bottom(key) {
            return if kind == Kind::Delete { Fate::Drop } else { Fate::Keep(0) };
        }
        Fate::Keep(seq)
    }

    /// Whether the last version was the first of its key.
    #[inline]
    pub fn is_new_key(&self) -> bool {
        self.new_key
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
    }
}
