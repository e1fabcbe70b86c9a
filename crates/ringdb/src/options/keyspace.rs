//! [`KeyspaceOptions`]: the settings of the tables of one keyspace.

use std::time::Duration;

use super::{Compression, check_block_bytes, check_filter_bits, life};
use crate::Result;
use crate::compaction_filter::registry as filters;
use crate::operator::registry::check_name;

/// Settings of one keyspace, which the store remembers. Each is the keyspace's own, or that of the store (`None`).
///
/// They are given when a keyspace is made ([`crate::Db::keyspace_with`]) or later ([`crate::Keyspace::alter`]), and
/// hold for tables that are written from then on. Tables are cut where keyspaces with different settings meet, so each
/// flush writes one table for each run of keyspaces, in the order in which they were made, that have the same settings.
///
/// ```
/// use ringdb::{Compression, Db, KeyspaceOptions, Options};
///
/// # fn main() -> ringdb::Result<()> {
/// # let tmp = tempfile::tempdir().expect("a temporary directory");
/// # let dir = tmp.path().join("store");
/// let db = Db::open(&dir, Options::default())?;
/// let logs = KeyspaceOptions::default().with_last_level_compression(Compression::Zstd);
/// let logs = logs.with_block_bytes(16 << 10);
/// let logs = db.keyspace_with("logs", &logs)?;
/// logs.alter(&KeyspaceOptions::default().with_filter_bits_per_key(0))?;
/// assert_eq!(logs.options().block_bytes, Some(16 << 10));
/// assert_eq!(logs.options().filter_bits_per_key, Some(0));
/// # drop(logs);
/// # db.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct KeyspaceOptions {
    /// Compression of all levels but the last.
    pub compression: Option<Compression>,
    /// Compression of the last level.
    pub last_level_compression: Option<Compression>,
    /// Bytes of a data block, a power of two from 4 KiB to 64 KiB. The frames of the block cache have one size, that of
    /// the keyspaces with the most bytes of tables when the store is opened: smaller blocks take a whole frame, larger
    /// ones are cached beside them, at some cost.
    #[serde(deserialize_with = "super::file::bytes_setting")]
    pub block_bytes: Option<u32>,
    /// Bloom filter bits per key; 0 for no filters.
    pub filter_bits_per_key: Option<u32>,
    /// The name of the merge operator: `add`, `max`, `append`, `append:SEPARATOR`, or a registered one; see
    /// [`crate::MergeOperator`]. A keyspace that has one keeps it.
    pub merge_operator: Option<String>,
    /// How long a put lives that does not say so itself: from then on the key counts as deleted, and what is older of
    /// it does not come back. Whole milliseconds; zero: for ever. A change holds for what is put from then on. See
    /// [`crate::Db::put_with_ttl`].
    #[serde(with = "super::life")]
    pub time_to_live: Option<Duration>,
    /// The name of the compaction filter, which has to be registered ([`crate::Options::register_compaction_filter`]);
    /// empty: none. See [`crate::CompactionFilter`].
    pub compaction_filter: Option<String>,
}

impl KeyspaceOptions {
    /// Sets the compression of all levels but the last.
    #[must_use]
    pub fn with_compression(mut self, value: Compression) -> Self {
        self.compression = Some(value);
        self
    }

    /// Sets the compression of the last level.
    #[must_use]
    pub fn with_last_level_compression(mut self, value: Compression) -> Self {
        self.last_level_compression = Some(value);
        self
    }

    /// Sets the size of a data block in bytes.
    #[must_use]
    pub fn with_block_bytes(mut self, value: u32) -> Self {
        self.block_bytes = Some(value);
        self
    }

    /// Sets the Bloom filter bits per key.
    #[must_use]
    pub fn with_filter_bits_per_key(mut self, value: u32) -> Self {
        self.filter_bits_per_key = Some(value);
        self
    }

    /// Sets the merge operator by its name.
    ///
    /// ```
    /// use ringdb::{Db, KeyspaceOptions, Options};
    ///
    /// # fn main() -> ringdb::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// let db = Db::open(dir.path(), Options::default())?;
    /// let tags = db.keyspace_with("tags", &KeyspaceOptions::default().with_merge_operator("append:,"))?;
    /// tags.merge("page", "new")?;
    /// tags.merge("page", "red")?;
    /// assert_eq!(tags.get("page")?.as_deref(), Some(&b"new,red"[..]));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_merge_operator(mut self, name: impl Into<String>) -> Self {
        self.merge_operator = Some(name.into());
        self
    }

    /// Sets how long a put lives (zero: for ever).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ringdb::{Db, KeyspaceOptions, Options};
    ///
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// let db = Db::open(dir.path(), Options::default())?;
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let sessions = db.keyspace_with("sessions", &KeyspaceOptions::default().with_time_to_live(day))?;
    /// // Gone tomorrow, from every read and, by compactions, from the disk.
    /// sessions.put("7f3a", "alice")?;
    /// assert_eq!(sessions.options().time_to_live, Some(day));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    #[must_use]
    pub fn with_time_to_live(mut self, value: Duration) -> Self {
        self.time_to_live = Some(value);
        self
    }

    /// Sets the compaction filter by its name (empty: none). It may be changed and taken away at any time, and decides
    /// in compactions that begin from then on. See [`crate::CompactionFilter`] for an example.
    #[must_use]
    pub fn with_compaction_filter(mut self, name: impl Into<String>) -> Self {
        self.compaction_filter = Some(name.into());
        self
    }

    /// These settings where they are given, those of `below` elsewhere.
    #[must_use]
    pub fn over(&self, below: &KeyspaceOptions) -> KeyspaceOptions {
        KeyspaceOptions {
            compression: self.compression.or(below.compression),
            last_level_compression: self.last_level_compression.or(below.last_level_compression),
            block_bytes: self.block_bytes.or(below.block_bytes),
            filter_bits_per_key: self.filter_bits_per_key.or(below.filter_bits_per_key),
            merge_operator: self.merge_operator.clone().or_else(|| below.merge_operator.clone()),
            time_to_live: self.time_to_live.or(below.time_to_live),
            compaction_filter: self.compaction_filter.clone().or_else(|| below.compaction_filter.clone()),
        }
    }

    /// Checks every setting that is given; says which is wrong and what is allowed.
    pub(crate) fn validate(&self) -> Result<()> {
        self.block_bytes.map_or(Ok(()), check_block_bytes)?;
        self.filter_bits_per_key.map_or(Ok(()), check_filter_bits)?;
        self.time_to_live.map_or(Ok(()), life::check)?;
        self.compaction_filter.as_deref().map_or(Ok(()), filters::check_name)?;
        self.merge_operator.as_deref().map_or(Ok(()), check_name)
    }
}
