//! [`Keys`]: an iterator that leaves the values where they are.

use super::{Iter, State};
use crate::{Result, Value};

/// The keys of an [`Iter`], in its order and from both ends: values are not copied. After an error, which is yielded
/// once, it ends.
#[derive(Debug)]
pub struct Keys(Iter);

impl Iter {
    /// Only the keys of what is left; values are not copied.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("ringdb-keys-{}", std::process::id()));
    /// # let db = ringdb::Db::open(&dir, ringdb::Options::default())?;
    /// db.put("apple", "red")?;
    /// db.put("plum", "blue")?;
    /// let keys: Vec<ringdb::Value> = db.range("a"..).keys().collect::<ringdb::Result<_>>()?;
    /// assert_eq!(keys, ["apple".as_bytes(), b"plum"]);
    /// # drop(db);
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn keys(mut self) -> Keys {
        if let State::Open(merged) = &mut self.state {
            merged.values = false;
        }
        Keys(self)
    }
}

impl Iterator for Keys {
    type Item = Result<Value>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|pair| pair.map(|(key, _)| key))
    }
}

impl DoubleEndedIterator for Keys {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|pair| pair.map(|(key, _)| key))
    }
}

impl std::iter::FusedIterator for Keys {}
