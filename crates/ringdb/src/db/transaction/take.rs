//! What takes pairs out of a transaction: pops, `retain`, `extract_if`.

use std::ops::Bound;

use super::range::TransactionRange;
use super::{Tracked, Transaction};
use crate::db::keyspace::Keyspace;
use crate::sync::lock;
use crate::{KeyRange, Result, Value};

/// What pops have found of a keyspace: there is nothing up to `front`, and from `back` on. So the next pop does not go
/// through what the earlier ones have deleted.
#[derive(Default)]
pub(super) struct Emptied {
    front: Option<Vec<u8>>,
    back: Option<Vec<u8>>,
}

impl Tracked {
    /// A key of a keyspace was set.
    pub(super) fn refill(&mut self, prefix: &[u8], key: &[u8]) {
        if self.emptied.is_empty() {
            return;
        }
        if let Some(e) = self.emptied.get_mut(prefix) {
            e.front.take_if(|front| key <= front.as_slice());
            e.back.take_if(|back| key >= back.as_slice());
        }
    }
}

impl Transaction {
    /// Takes the first pair out of the default keyspace.
    ///
    /// # Errors
    /// What reading fails with: an I/O error, damage, a closed store.
    pub fn pop_first(&self) -> Result<Option<(Value, Value)>> {
        self.pop_first_in(&self.keyspace)
    }

    /// Takes the first pair out of a keyspace.
    ///
    /// # Errors
    /// As [`Transaction::get_in`].
    pub fn pop_first_in(&self, keyspace: &Keyspace) -> Result<Option<(Value, Value)>> {
        self.pop(keyspace, |range| range.next(), |emptied, key| emptied.front = Some(key))
    }

    /// Takes the last pair out of the default keyspace.
    ///
    /// # Errors
    /// As [`Transaction::pop_first`].
    pub fn pop_last(&self) -> Result<Option<(Value, Value)>> {
        self.pop_last_in(&self.keyspace)
    }

    /// Takes the last pair out of a keyspace.
    ///
    /// # Errors
    /// As [`Transaction::get_in`].
    pub fn pop_last_in(&self, keyspace: &Keyspace) -> Result<Option<(Value, Value)>> {
        self.pop(keyspace, |range| range.next_back(), |emptied, key| emptied.back = Some(key))
    }

    fn pop(
        &self,
        keyspace: &Keyspace,
        end: impl FnOnce(&mut TransactionRange<'_>) -> Option<Result<(Value, Value)>>,
        note: impl FnOnce(&mut Emptied, Vec<u8>),
    ) -> Result<Option<(Value, Value)>> {
        let prefix = keyspace.state().prefix.as_slice().to_vec();
        let left = {
            let tracked = lock(&self.tracked);
            let (front, back) =
                tracked.emptied.get(&prefix).map_or((None, None), |e| (e.front.clone(), e.back.clone()));
            let bound = |key: Option<Vec<u8>>| key.map_or(Bound::Unbounded, Bound::Excluded);
            (bound(front), bound(back))
        };
        let Some(pair) = end(&mut self.range_in(keyspace, left)).transpose()? else { return Ok(None) };
        self.delete_in(keyspace, &pair.0)?;
        note(lock(&self.tracked).emptied.entry(prefix).or_default(), pair.0.to_vec());
        Ok(Some(pair))
    }

    /// Deletes the pairs of a range of the default keyspace for which `keep` says no.
    ///
    /// # Errors
    /// What reading fails with; some pairs may be deleted then.
    pub fn retain(&self, range: impl KeyRange, keep: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.retain_in(&self.keyspace, range, keep)
    }

    /// Deletes the pairs of a range of a keyspace for which `keep` says no.
    ///
    /// # Errors
    /// As [`Transaction::retain`].
    pub fn retain_in(
        &self,
        keyspace: &Keyspace,
        range: impl KeyRange,
        mut keep: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.extract_if_in(keyspace, range, |key, value| !keep(key, value))
            .try_for_each(|pair| pair.map(drop))
    }

    /// Takes the pairs of a range of the default keyspace for which `take` says yes, one by one: those that the
    /// iterator does not get to stay.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("ringdb-extract-{}", std::process::id()));
    /// # let db = ringdb::Db::open(&dir, ringdb::Options::default())?;
    /// for i in 0..10u8 {
    ///     db.put([i], [i % 3])?;
    /// }
    /// let tx = db.transaction();
    /// assert_eq!(tx.pop_first()?.expect("a pair").0, [0]);
    /// assert_eq!(tx.extract_if(.., |_, value| value == [0]).count(), 3);
    /// tx.retain([5].., |_, value| value == [1])?;
    /// tx.commit()?;
    /// let left: Vec<u8> = db.iter().keys().map(|key| key.map(|k| k[0])).collect::<ringdb::Result<_>>()?;
    /// assert_eq!(left, [1, 2, 4, 7]);
    /// # drop(db);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn extract_if<F>(&self, range: impl KeyRange, take: F) -> ExtractIf<'_, F>
    where
        F: FnMut(&[u8], &[u8]) -> bool,
    {
        self.extract_if_in(&self.keyspace, range, take)
    }

    /// Takes the pairs of a range of a keyspace for which `take` says yes; see [`Transaction::extract_if`].
    pub fn extract_if_in<F>(&self, keyspace: &Keyspace, range: impl KeyRange, take: F) -> ExtractIf<'_, F>
    where
        F: FnMut(&[u8], &[u8]) -> bool,
    {
        ExtractIf {
            transaction: self,
            keyspace: keyspace.clone(),
            pairs: self.range_in(keyspace, range),
            take,
        }
    }
}

/// Pairs that are taken out of a [`Transaction`], by [`Transaction::extract_if`]. From both ends; after an error, which
/// is yielded once, it ends.
pub struct ExtractIf<'t, F> {
    transaction: &'t Transaction,
    keyspace: Keyspace,
    pairs: TransactionRange<'t>,
    take: F,
}

impl<F: FnMut(&[u8], &[u8]) -> bool> ExtractIf<'_, F> {
    fn find(
        &mut self,
        next: impl Fn(&mut TransactionRange<'_>) -> Option<Result<(Value, Value)>>,
    ) -> Option<Result<(Value, Value)>> {
        loop {
            let pair = next(&mut self.pairs)?;
            match &pair {
                Ok((key, value)) if (self.take)(key, value) => {
                    return Some(self.transaction.delete_in(&self.keyspace, key).and(pair));
                }
                Ok(_) => {}
                Err(_) => return Some(pair),
            }
        }
    }
}

impl<F: FnMut(&[u8], &[u8]) -> bool> Iterator for ExtractIf<'_, F> {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.find(|pairs| pairs.next())
    }
}

impl<F: FnMut(&[u8], &[u8]) -> bool> DoubleEndedIterator for ExtractIf<'_, F> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.find(|pairs| pairs.next_back())
    }
}

impl<F> std::fmt::Debug for ExtractIf<'_, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExtractIf({:?})", self.pairs)
    }
}
