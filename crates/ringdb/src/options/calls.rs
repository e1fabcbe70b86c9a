//! Settings of one call: plain data with builders.

use std::time::Duration;

use super::Durability;

/// Settings of one write.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
/// use std::time::Duration;
/// use ringdb::{Durability, WriteBatch, WriteOptions};
///
/// let mut batch = WriteBatch::new();
/// batch.put("apple", "red");
/// let durable = WriteOptions::default().durability(Durability::Sync).with_deadline(Duration::from_secs(5));
/// db.write(batch, &durable)?;
/// # Ok::<(), ringdb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    /// How durable; `None` here means the store's own level.
    pub durability: Option<Durability>,
    /// The longest that the call may take, or the future from its first poll on: then it ends with
    /// [`crate::Error::TimedOut`], and the batch has been written or not. Default: no limit.
    pub deadline: Option<Duration>,
}

impl WriteOptions {
    /// Sets the durability of this write.
    #[must_use]
    pub fn durability(mut self, d: Durability) -> Self {
        self.durability = Some(d);
        self
    }

    /// Sets the longest that this write may take.
    #[must_use]
    pub fn with_deadline(mut self, most: Duration) -> Self {
        self.deadline = Some(most);
        self
    }
}

/// Settings of one read.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
/// let once = ringdb::ReadOptions::default().fill_cache(false);
/// let bytes: usize = db.range_with(.., &once).map(|pair| pair.map(|(_, v)| v.len())).sum::<ringdb::Result<_>>()?;
/// assert_eq!(bytes, 0);
/// # Ok::<(), ringdb::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Whether blocks read from disk stay in the cache. Default true; false for a scan that would sweep it.
    pub fill_cache: bool,
    /// The longest that a `get` or `multi_get` may take, or its future from its first poll on: then it ends with
    /// [`crate::Error::TimedOut`], whatever the device does; of a [`crate::RangeStream`], each pair. What memory has is
    /// answered in any case. Iterators and [`crate::Reads`] refuse it. Default: no limit.
    pub deadline: Option<Duration>,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { fill_cache: true, deadline: None }
    }
}

impl ReadOptions {
    /// Sets whether blocks read from disk stay in the cache.
    #[must_use]
    pub fn fill_cache(mut self, yes: bool) -> Self {
        self.fill_cache = yes;
        self
    }

    /// Sets the longest that a `get` or `multi_get` may take.
    #[must_use]
    pub fn with_deadline(mut self, most: Duration) -> Self {
        self.deadline = Some(most);
        self
    }

    /// Fails if there is a deadline, where none can be kept.
    pub(crate) fn without_deadline(&self) -> crate::Result<()> {
        match self.deadline {
            None => Ok(()),
            Some(_) => Err(crate::Error::Invalid("a deadline is for get, multi_get and writes".into())),
        }
    }
}
