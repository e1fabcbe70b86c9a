//! [`ReadSet`]: what a transaction has read; and how it is checked against what was written since ([`Claim`]).

use crate::key::{self, Seq};

/// Internal keys and ranges of internal keys.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    /// Each with its hash, by the hash.
    keys: Vec<(u64, Vec<u8>)>,
    /// From the first on and before the second (`None`: no end), ascending; none of them meet.
    ranges: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl ReadSet {
    /// Of keys and of ranges, in any order.
    pub fn new(
        keys: impl IntoIterator<Item = Vec<u8>>,
        mut ranges: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    ) -> ReadSet {
        ranges.retain(|(from, to)| to.as_ref().is_none_or(|to| from < to));
        ranges.sort();
        let mut joined: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        for (from, to) in ranges {
            match joined.last_mut() {
                Some((_, end)) if end.as_ref().is_none_or(|end| *end >= from) => {
                    let further = end.is_some() && (to.is_none() || to > *end);
                    if further {
                        *end = to;
                    }
                }
                _ => joined.push((from, to)),
            }
        }
        let mut keys: Vec<(u64, Vec<u8>)> = keys.into_iter().map(|k| (key::hash(&k), k)).collect();
        keys.sort_unstable();
        ReadSet { keys, ranges: joined }
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }

    /// The keys with their hashes.
    pub fn keys(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.keys.iter().map(|(hash, key)| (*hash, key.as_slice()))
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[(Vec<u8>, Option<Vec<u8>>)] {
        &self.ranges
    }

    /// Whether it has this key, whose hash is `hash`. Keys of one hash count as one: that is never wrong, only strict.
    pub fn has_key(&self, key: &[u8], hash: u64) -> bool {
        if self.keys.binary_search_by_key(&hash, |(hash, _)| *hash).is_ok() {
            return true;
        }
        let behind = self.ranges.partition_point(|(from, _)| from.as_slice() <= key);
        behind.checked_sub(1).is_some_and(|i| self.ranges[i].1.as_ref().is_none_or(|to| key < to.as_slice()))
    }

    /// Whether it has a key from `from` on and before `to`, or of a range that meets these.
    pub fn meets(&self, from: &[u8], to: &[u8]) -> bool {
        let within = |(_, key): &(u64, Vec<u8>)| from <= key.as_slice() && key.as_slice() < to;
        let overlaps = |(start, end): &(Vec<u8>, Option<Vec<u8>>)| {
            start.as_slice() < to && end.as_ref().is_none_or(|end| from < end.as_slice())
        };
        self.ranges.iter().any(overlaps) || self.keys.iter().any(within)
    }
}

/// What a commit depends on: nothing of `reads` has been written after the number `basis`.
pub(crate) struct Claim<'a> {
    pub reads: &'a ReadSet,
    pub basis: Seq,
    /// Recent writes that are looked at under the queue's lock at most.
    pub most: usize,
}

/// What has become of a commit with a claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Committed,
    /// This key was written since, with this number, which may not be published yet. Nothing was committed.
    Conflict {
        key: Vec<u8>,
        seq: Seq,
    },
    /// Too much was written since `basis` to be told here, or what is on its way is not known up to the number
    /// `settle`: when that is published, `basis` has to be raised by other means. Nothing was committed.
    Unknown {
        settle: Seq,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(keys: &[&str], ranges: &[(&str, Option<&str>)]) -> ReadSet {
        let ranges = ranges.iter().map(|(a, b)| (a.as_bytes().to_vec(), b.map(|b| b.as_bytes().to_vec())));
        ReadSet::new(keys.iter().map(|k| k.as_bytes().to_vec()), ranges.collect())
    }

    #[test]
    fn ranges_that_meet_are_joined() {
        let s = set(
            &["x"],
            &[("d", Some("f")), ("a", Some("c")), ("c", Some("d")), ("k", Some("k")), ("y", None)],
        );
        assert_eq!(s.ranges().len(), 2);
        assert!(!set(&[], &[("a", Some("b"))]).is_empty() && set(&[], &[("b", Some("b"))]).is_empty());
        let s = set(&[], &[("a", None), ("b", Some("c"))]);
        assert_eq!(s.ranges(), [(b"a".to_vec(), None)]);
    }

    proptest! {
        #[test]
        fn a_key_is_found_where_a_plain_search_finds_it(
            keys in prop::collection::vec("[a-e]{1,2}", 0..4),
            ranges in prop::collection::vec(("[a-e]{0,2}", prop::option::of("[a-e]{0,2}")), 0..5),
            asked in ("[a-e]{0,2}", "[a-e]{0,2}"),
        ) {
            let s = ReadSet::new(
                keys.iter().map(|k| k.as_bytes().to_vec()),
                ranges.iter().map(|(a, b)| (a.as_bytes().to_vec(), b.as_ref().map(|b| b.as_bytes().to_vec()))).collect(),
            );
            let within = |k: &str| {
                keys.iter().any(|x| x == k)
                    || ranges.iter().any(|(a, b)| a.as_str() <= k && b.as_ref().is_none_or(|b| k < b.as_str()))
            };
            prop_assert_eq!(s.has_key(asked.0.as_bytes(), key::hash(asked.0.as_bytes())), within(&asked.0));
            let (from, to) = (&asked.0, &asked.1);
            let some = ["", "a", "b", "c", "d", "e"];
            let all = some.iter().flat_map(|x| some.iter().map(move |y| format!("{x}{y}")));
            // A range may hold keys longer than those listed: what meets by the list meets.
            if from < to && all.clone().any(|k| *from <= k && k < *to && within(&k)) {
                prop_assert!(s.meets(from.as_bytes(), to.as_bytes()));
            }
            if from >= to {
                prop_assert!(!keys.iter().any(|k| from <= k && k < to));
            }
        }
    }
}
