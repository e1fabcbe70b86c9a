//! Compaction filters: a program's own word on which entries a compaction keeps.
//!
//! - [`CompactionFilter`]: what a program gives.
//! - [`registry`]: which filter each keyspace of an open store has.

pub(crate) mod registry;

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterDecision {
    /// It stays as it is.
    Keep,
    /// It goes, as if its key had been deleted when it was written: what is older of the key does not come back.
    Remove,
    /// It has this value from now on; if it expires, at the time at which it would have.
    Change(Vec<u8>),
    /// The filter cannot say, for this reason. The entry stays as it is, and so do those that this compaction has not
    /// passed yet; [`crate::Stats::background_error`] has the reason.
    Fail(String),
}

/// Where an entry is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterContext {
    /// The level that the compaction writes to, from 0 to 6.
    pub level: u32,
    /// Whether that is the last level, where most of the data lies.
    pub last_level: bool,
}

/// Decides in compactions which entries of a keyspace stay.
///
/// A keyspace has at most one filter, known by its name ([`crate::KeyspaceOptions::with_compaction_filter`]), which the
/// store remembers; filters are registered at each open ([`crate::Options::register_compaction_filter`]). In an open
/// without it all entries are kept.
///
/// **What is passed.** The newest value of each key that a compaction rewrites. Not deletions, operands of a merge
/// that have no value yet, or what a newer entry in the same compaction hides. An entry that is in memory, or in a
/// table that nothing rewrites, is not passed: a filter that removes what is out of date does so at no certain time,
/// so readers should tell such entries themselves. [`crate::Keyspace::compact_range`] passes every entry of its range.
///
/// **What others see.** No snapshot, transaction or iterator that was there before sees that anything has changed. A
/// removal or change is no write: no transaction conflicts with it.
///
/// The calls come from the threads that compact, several at a time, and must not call the store. An entry is passed
/// again each time it is compacted, also what a filter has made of it, and a compaction that was interrupted begins
/// again. If a filter fails ([`FilterDecision::Fail`]), panics, or changes a value to one that is too long, the entry
/// stays as it is, and so do those that this compaction has not passed yet; [`crate::Stats::background_error`] tells of
/// it. [`crate::Stats::compaction_filter_seen`] counts what was passed.
///
/// ```
/// use ringdb::{CompactionFilter, Db, FilterContext, FilterDecision, KeyspaceOptions, Options};
///
/// /// Removes what a user has uploaded whose account is closed.
/// struct Closed(Vec<&'static str>);
///
/// impl CompactionFilter for Closed {
///     fn name(&self) -> &str {
///         "closed accounts"
///     }
///     fn filter(&self, _context: &FilterContext, key: &[u8], _value: &[u8]) -> FilterDecision {
///         let closed = self.0.iter().any(|user| key.starts_with(user.as_bytes()));
///         if closed { FilterDecision::Remove } else { FilterDecision::Keep }
///     }
/// }
///
/// # fn main() -> ringdb::Result<()> {
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// let options = Options::default().register_compaction_filter(Closed(vec!["eve/"]));
/// let db = Db::open(dir.path(), options)?;
/// let filter = KeyspaceOptions::default().with_compaction_filter("closed accounts");
/// let files = db.keyspace_with("files", &filter)?;
/// files.put("alice/cat.jpg", "1")?;
/// files.put("eve/dog.jpg", "2")?;
/// files.compact_range(..)?;
/// assert_eq!(files.get("eve/dog.jpg")?, None);
/// assert!(files.contains_key("alice/cat.jpg")?);
/// # Ok(())
/// # }
/// ```
pub trait CompactionFilter: Send + Sync + 'static {
    /// What keyspaces know it by: 1 to 255 bytes.
    fn name(&self) -> &str;

    /// What becomes of the value of a key.
    fn filter(&self, context: &FilterContext, key: &[u8], value: &[u8]) -> FilterDecision;
}
