//! [`TransactionRange`]: the pairs of a range as a transaction sees them, from both ends.

use std::ops::Bound;

use super::{Own, Tracked, Transaction};
use crate::db::iter::internal_bounds;
use crate::db::keyspace::Keyspace;
use crate::key::Prefix;
use crate::sync::lock;
use crate::{Iter, KeyRange, ReadOptions, Result, Value};

/// Key-value pairs of a [`Transaction`] in key order, from both ends: those of its snapshot with its own writes over
/// them, also those that are made meanwhile ahead of where it is. What it goes through counts as read. After an error,
/// which is yielded once, it ends.
pub struct TransactionRange<'t> {
    transaction: &'t Transaction,
    prefix: Prefix,
    base: Iter,
    /// What the snapshot's ends have come to and was not given out; by internal keys.
    ahead: [Option<(Vec<u8>, Value)>; 2],
    /// What is left lies within these, as the ends of a map's range.
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    /// The ranges that count as read, by their places: one from each end, as far as it has come.
    read: [Option<usize>; 2],
    /// Where all of it begins and ends.
    limits: (Vec<u8>, Option<Vec<u8>>),
    done: bool,
}

/// An end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Front = 0,
    Back = 1,
}

impl Transaction {
    /// The pairs of a range of keys of the default keyspace, as this transaction sees them.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("ringdb-txrange-{}", std::process::id()));
    /// # let db = ringdb::Db::open(&dir, ringdb::Options::default())?;
    /// db.put("apple", "red")?;
    /// let tx = db.transaction();
    /// tx.put("plum", "blue")?;
    /// let keys: Vec<ringdb::Value> = tx.range("a"..).map(|pair| Ok(pair?.0)).collect::<ringdb::Result<_>>()?;
    /// assert_eq!(keys, ["apple".as_bytes(), b"plum"]);
    /// // A new key in the range, or a change, would make the commit fail.
    /// tx.commit()?;
    /// # drop(db);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> TransactionRange<'_> {
        self.range_in(&self.keyspace, range)
    }

    /// The pairs of a range of keys of a keyspace, as this transaction sees them.
    pub fn range_in(&self, keyspace: &Keyspace, range: impl KeyRange) -> TransactionRange<'_> {
        let prefix = keyspace.state().prefix;
        let limits = internal_bounds(&prefix, range.bounds());
        let seq = Some(self.moment.seq);
        let empty = limits.1.as_ref().is_some_and(|upper| *upper <= limits.0);
        let base = match self.check(keyspace) {
            Ok(()) => keyspace.iter_at(range, seq, &ReadOptions::default()),
            Err(e) => Iter::failed(e),
        };
        TransactionRange {
            transaction: self,
            prefix,
            base,
            ahead: [None, None],
            lower: Bound::Included(limits.0.clone()),
            upper: limits.1.clone().map_or(Bound::Unbounded, Bound::Excluded),
            read: [None, None],
            limits,
            done: empty,
        }
    }

    /// The pairs of the default keyspace whose key begins with `prefix`, as this transaction sees them.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> TransactionRange<'_> {
        self.prefix_in(&self.keyspace, prefix)
    }

    /// The pairs of a keyspace whose key begins with `prefix`, as this transaction sees them.
    pub fn prefix_in(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> TransactionRange<'_> {
        self.range_in(keyspace, crate::bounds::of_prefix(prefix.as_ref()))
    }
}

impl TransactionRange<'_> {
    /// The next pair of the snapshot from an end, left where it is.
    fn look_ahead(&mut self, from: From) -> Result<()> {
        if self.ahead[from as usize].is_some() {
            return Ok(());
        }
        let next = if from == From::Front { self.base.next() } else { self.base.next_back() };
        let other = 1 - from as usize;
        self.ahead[from as usize] = match next.transpose()? {
            Some((key, value)) => Some((super::internal(&self.prefix, &key), value)),
            // What the other end has come to is the last.
            None => self.ahead[other].take(),
        };
        Ok(())
    }

    /// The pair that an end has come to, by its internal key; a deletion has no value. `None`: there is nothing left.
    fn step(&mut self, from: From) -> Result<Option<(Vec<u8>, Option<Value>)>> {
        self.look_ahead(from)?;
        let transaction = self.transaction;
        let mut tracked = lock(&transaction.tracked);
        let own = self.own(&tracked, from);
        let snapshots = &mut self.ahead[from as usize];
        let order = match (&own, &*snapshots) {
            (Some((own, _)), Some((theirs, _))) => Some(own.cmp(theirs)),
            _ => None,
        };
        let own_first =
            if from == From::Front { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater };
        let (own, theirs) = match order {
            Some(std::cmp::Ordering::Equal) => (own, snapshots.take()),
            Some(order) if order == own_first => (own, None),
            Some(_) => (None, snapshots.take()),
            None if own.is_some() => (own, None),
            None => (None, snapshots.take()),
        };
        let key = own.as_ref().map(|(key, _)| key).or(theirs.as_ref().map(|(key, _)| key)).cloned();
        self.count_as_read(&mut tracked, from, key.as_deref());
        drop(tracked);
        let Some(key) = key else { return Ok(None) };
        match from {
            From::Front => self.lower = Bound::Excluded(key.clone()),
            From::Back => self.upper = Bound::Excluded(key.clone()),
        }
        let stored = theirs.map(|(_, value)| value);
        let value = match own {
            None => stored,
            Some((_, own)) => own.value(&key, stored)?,
        };
        Ok(Some((key, value)))
    }

    /// The transaction's own write that comes next from an end.
    fn own(&self, tracked: &Tracked, from: From) -> Option<(Vec<u8>, Own)> {
        let bound = |b: &Bound<Vec<u8>>| match b {
            Bound::Included(k) | Bound::Excluded(k) => Some(k.clone()),
            Bound::Unbounded => None,
        };
        // A map's range panics if it is none.
        if let (Some(lower), Some(upper)) = (bound(&self.lower), bound(&self.upper))
            && lower >= upper
        {
            return None;
        }
        let mut within = tracked.writes.range((self.lower.clone(), self.upper.clone()));
        let own = if from == From::Front { within.next() } else { within.next_back() };
        own.map(|(key, value)| (key.clone(), value.clone()))
    }

    /// All from an end up to `key` counts as read; without a key, all that was left.
    fn count_as_read(&mut self, tracked: &mut Tracked, from: From, key: Option<&[u8]>) {
        let behind = |key: &[u8]| [key, &[0]].concat();
        let whole = || {
            let lower = match &self.lower {
                Bound::Included(key) => key.clone(),
                Bound::Excluded(key) => behind(key),
                Bound::Unbounded => Vec::new(),
            };
            let upper = match &self.upper {
                Bound::Excluded(key) => Some(key.clone()),
                _ => None,
            };
            (lower, upper)
        };
        let Some(key) = key else { return tracked.ranges.push(whole()) };
        match (self.read[from as usize], from) {
            (Some(place), From::Front) => tracked.ranges[place].1 = Some(behind(key)),
            (Some(place), From::Back) => tracked.ranges[place].0 = key.to_vec(),
            (None, from) => {
                self.read[from as usize] = Some(tracked.ranges.len());
                let (lower, upper) = self.limits.clone();
                tracked.ranges.push(match from {
                    From::Front => (lower, Some(behind(key))),
                    From::Back => (key.to_vec(), upper),
                });
            }
        }
    }

    fn take(&mut self, from: From) -> Option<Result<(Value, Value)>> {
        while !self.done {
            match self.step(from) {
                Ok(Some((key, Some(value)))) => {
                    let key = key.get(self.prefix.len()..).unwrap_or_default();
                    return Some(Ok((Value::copy_from(key), value)));
                }
                Ok(Some((_, None))) => {}
                Ok(None) => self.done = true,
                Err(e) => {
                    self.done = true;
                    return Some(Err(e));
                }
            }
        }
        None
    }
}

impl Iterator for TransactionRange<'_> {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(From::Front)
    }
}

impl DoubleEndedIterator for TransactionRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(From::Back)
    }
}

impl std::iter::FusedIterator for TransactionRange<'_> {}

impl std::fmt::Debug for TransactionRange<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TransactionRange({:?})", self.base)
    }
}
