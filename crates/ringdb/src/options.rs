//! Settings: plain data with `with_*` builders.

mod calls;
mod file;
mod keyspace;
mod life;

use std::sync::Arc;
use std::time::Duration;

use crate::compaction_filter::CompactionFilter;
use crate::compaction_filter::registry::FilterRegistry;
use crate::events::{EventListener, Listeners};
use crate::operator::MergeOperator;
use crate::operator::registry::Registry;
use crate::seal::provider::Provider;

pub use calls::{ReadOptions, WriteOptions};
pub use keyspace::KeyspaceOptions;

/// How durable a write is when its call returns.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Not logged: lost with the process unless flushed. For bulk loads.
    None,
    /// Survives the death of the process. A power cut may lose the newest writes, never an older one while a
    /// newer one survives, never an acknowledged `Sync`.
    #[default]
    Process,
    /// On the device before the call returns.
    Sync,
}

/// How data blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4 blocks.
    Lz4,
    /// Zstandard, level 1.
    Zstd,
}

/// Settings of a store.
///
/// Four of them are of the tables on disk, and the store remembers them: `block_bytes`, `compression`,
/// `last_level_compression` and `filter_bits_per_key`. What is *given* here overrides what the store remembers, and is
/// remembered from then on; what is not given is as the store remembers it, or the default in a new store. A setting is
/// given if a builder, a settings file or [`Options::over`] has set it, also to its default, or if the field differs
/// from its default. [`crate::Db::options`] says what is in force. Keyspaces can have settings of their own:
/// [`KeyspaceOptions`].
///
/// A settings file is TOML with the fields by name; see `Options::from_toml` (feature `toml`).
///
/// ```
/// use ringdb::{Compression, Db, Options};
///
/// # fn main() -> ringdb::Result<()> {
/// # let tmp = tempfile::tempdir().expect("a temporary directory");
/// # let dir = tmp.path().join("store");
/// let zstd = Options::default().with_last_level_compression(Compression::Zstd);
/// Db::open(&dir, zstd)?.close()?;
/// // Remembered.
/// let db = Db::open(&dir, Options::default())?;
/// assert_eq!(db.options().last_level_compression, Compression::Zstd);
/// # db.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The I/O engine's URI; `auto` takes the best that works. Default `auto`.
    pub io: String,
    /// Budget in bytes for all that the store keeps in memory: cached blocks, indexes, filters, memtables, buffers of
    /// flushes and compactions, what iterators read ahead. Default 256 MiB.
    ///
    /// Anonymous memory of the store (`RssAnon`) is at most the budget and 32 MiB. Log segments that are
    /// mapped (`RssFile`, only without `Durability::Sync`) come on top: three, of a sixteenth of the budget each,
    /// 16 MiB at most. It holds for up to eight background threads (2 MiB for each further one), and while indexes and
    /// filters, which stay in memory, leave room: about 1.5 % of the data. What one call makes comes on top: a value
    /// larger than an eighth of the budget takes its size twice while it is put (the caller's copy is one of
    /// them), once for each compacting thread that merges it, and once for each table that an iterator stands on. An
    /// iterator holds one block of each level, and the memtables of its moment until it is dropped.
    /// [`crate::Stats`] says who has what.
    pub cache_bytes: u64,
    /// A memtable is flushed when it holds about this many bytes. Default 64 MiB, at most a quarter of `cache_bytes`.
    pub memtable_bytes: u64,
    /// Durability of writes that do not say otherwise, and the medium of the log. Default `Process`.
    pub durability: Durability,
    /// Bytes of a data block, a power of two from 4 KiB to 64 KiB. Remembered. Default 4 KiB.
    pub block_bytes: u32,
    /// Compression of all levels but the last. Remembered. Default none.
    pub compression: Compression,
    /// Compression of the last level. Remembered. Default none.
    pub last_level_compression: Compression,
    /// Bloom filter bits per key in the last level, which has most of the keys; levels above it have four more, and
    /// keep them where a table moves down as it is. 0 for no filters. Remembered. Default 10.
    pub filter_bits_per_key: u32,
    /// How long a put lives, in keyspaces that do not say otherwise: then it counts as deleted. Whole milliseconds;
    /// zero: for ever. Remembered. Default zero.
    pub time_to_live: Duration,
    /// Threads that flush and compact. Default: the number of cores, at most 4.
    pub background_threads: usize,
    /// Bytes of a log segment, from 64 KiB to 1 GiB. Default 0: a quarter of a memtable, from 1 to 16 MiB.
    pub log_segment_bytes: u64,
    /// About how large the tables are that compactions write, from 64 KiB. Default 0: as a memtable, from 1 to 64 MiB.
    pub table_bytes: u64,
    /// Bytes that compactions may write a second, all together; they read about as many. Flushes are not limited. From
    /// 64 KiB. Default 0: no limit. Writers that put more than compactions can bring down the levels are slowed to what
    /// they can, so a limit below about ten times the rate of lasting writes is also one of writes.
    pub compaction_bytes_per_second: u64,
    /// The manifest is rewritten when it is this large (and twice as large as when it was begun). Default 4 MiB.
    pub manifest_bytes: u64,
    /// Read and write tables past the page cache (O_DIRECT, where direct transfers need no more than 4 KiB of
    /// alignment; else through it all the same). Memory is then bounded by `cache_bytes`, and what is not in the cache
    /// comes from the device. Default false: what free memory holds of the tables is read from there; the kernel
    /// gives that memory up when somebody needs it.
    pub direct_reads: bool,
    /// Make the store if it is missing. Default true.
    pub create_if_missing: bool,
    /// If the log is corrupt before its tail, recover what precedes the damage instead of failing. Default false.
    pub recover_damaged_log: bool,
    /// Serve the store, while it is open for writing, by a Unix socket in its directory, so that the `ringdb` command
    /// works on it from outside; see `ringdb::socket`. Default true; false in a build without the feature `socket`.
    pub socket: bool,
    /// Of the blocking calls that memory may answer alone (gets, seeks, writes that do not wait for the device), one in
    /// so many is timed, for [`crate::Stats::latencies`]; 1: each, 0: none. What waits for the device is always timed.
    /// Default 64. With an [`crate::Env`] of the program's own no calls are timed.
    pub time_one_in: u32,
    /// The fields that were set, whatever to: bit by [`Field`].
    given: u32,
    /// Merge operators besides those that are built in.
    operators: Registry,
    /// Compaction filters.
    filters: FilterRegistry,
    /// Who gives encryption keys.
    keys: Provider,
    /// Who is told of events.
    listeners: Listeners,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            io: "auto".into(),
            cache_bytes: 256 << 20,
            memtable_bytes: 64 << 20,
            durability: Durability::Process,
            block_bytes: 4096,
            compression: Compression::None,
            last_level_compression: Compression::None,
            filter_bits_per_key: 10,
            time_to_live: Duration::ZERO,
            background_threads: 0,
            log_segment_bytes: 0,
            table_bytes: 0,
            compaction_bytes_per_second: 0,
            manifest_bytes: 4 << 20,
            direct_reads: false,
            create_if_missing: true,
            recover_damaged_log: false,
            socket: cfg!(feature = "socket"),
            time_one_in: 64,
            given: 0,
            operators: Registry::default(),
            filters: FilterRegistry::default(),
            keys: Provider::default(),
            listeners: Listeners::default(),
        }
    }
}

/// What there is to set: the name and the number of each field, and its builder.
macro_rules! fields {
    ($($(#[$doc:meta])* $fn:ident $field:ident: $t:ty),* $(,)?) => {
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        enum Field { io, $($field),* }

        impl Options {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $fn(mut self, value: $t) -> Self {
                    self.$field = value;
                    self.give(Field::$field)
                }
            )*

            /// The names of the settings that are given, in the order of the fields.
            #[must_use]
            pub fn given(&self) -> Vec<&'static str> {
                let default = Options::default();
                let mut names = Vec::new();
                if self.has(Field::io) || self.io != default.io {
                    names.push("io");
                }
                $(if self.has(Field::$field) || self.$field != default.$field {
                    names.push(stringify!($field));
                })*
                names
            }

            /// These settings where they are given, those of `below` elsewhere: what the command line says over what a
            /// file says, for example.
            ///
            /// ```
            /// use ringdb::Options;
            ///
            /// let file = Options::default().with_cache_bytes(64 << 20).with_block_bytes(8192);
            /// let both = Options::default().with_cache_bytes(32 << 20).over(file);
            /// assert_eq!((both.cache_bytes, both.block_bytes), (32 << 20, 8192));
            /// ```
            #[must_use]
            pub fn over(self, below: Options) -> Options {
                let default = Options::default();
                let mut all = below;
                all.operators.extend(self.operators.clone());
                all.filters.extend(self.filters.clone());
                if self.keys.0.is_some() {
                    all.keys = self.keys.clone();
                }
                all.listeners.extend(self.listeners.clone());
                if self.has(Field::io) || self.io != default.io {
                    all = all.with_io(self.io.clone());
                }
                $(if self.has(Field::$field) || self.$field != default.$field {
                    all = all.$fn(self.$field);
                })*
                all
            }
        }
    };
}

fields! {
    /// Sets the memory budget in bytes.
    with_cache_bytes cache_bytes: u64,
    /// Sets the size of a memtable in bytes.
    with_memtable_bytes memtable_bytes: u64,
    /// Sets the store's durability.
    with_durability durability: Durability,
    /// Sets the size of a data block in bytes.
    with_block_bytes block_bytes: u32,
    /// Sets the compression of all levels but the last.
    with_compression compression: Compression,
    /// Sets the compression of the last level.
    with_last_level_compression last_level_compression: Compression,
    /// Sets the Bloom filter bits per key.
    with_filter_bits_per_key filter_bits_per_key: u32,
    /// Sets how long a put lives (zero: for ever).
    with_time_to_live time_to_live: Duration,
    /// Sets the number of background threads (0: choose).
    with_background_threads background_threads: usize,
    /// Sets the size of a log segment in bytes (0: choose).
    with_log_segment_bytes log_segment_bytes: u64,
    /// Sets the size of compacted tables in bytes (0: choose).
    with_table_bytes table_bytes: u64,
    /// Sets how many bytes a second compactions may write (0: no limit).
    with_compaction_bytes_per_second compaction_bytes_per_second: u64,
    /// Sets the size in bytes from which on the manifest is rewritten.
    with_manifest_bytes manifest_bytes: u64,
    /// Sets whether tables are read past the page cache.
    with_direct_reads direct_reads: bool,
    /// Sets whether a missing store is made.
    with_create_if_missing create_if_missing: bool,
    /// Sets whether what precedes damage in the log is recovered.
    with_recover_damaged_log recover_damaged_log: bool,
    /// Sets whether the store is served by a socket in its directory.
    with_socket socket: bool,
    /// Sets of how many calls that memory may answer one is timed (0: none).
    with_time_one_in time_one_in: u32,
}

impl Options {
    /// Sets the I/O engine's URI.
    #[must_use]
    pub fn with_io(mut self, uri: impl Into<String>) -> Self {
        self.io = uri.into();
        self.give(Field::io)
    }

    /// Registers a merge operator, for this open: keyspaces that have it ([`KeyspaceOptions::with_merge_operator`]) can
    /// be read and merged into. One of the same name that was registered before, or is built in, is replaced.
    ///
    /// A store opens without the operators of its keyspaces, too. Then what needs one fails and says which: reading a
    /// key with operands, and merging more into it. All else works, compactions included, which keep the operands.
    ///
    /// See [`crate::MergeOperator`] for an example.
    #[must_use]
    pub fn register_merge_operator(mut self, operator: impl MergeOperator) -> Self {
        self.operators.add(Arc::new(operator));
        self
    }

    /// The merge operators that are registered.
    pub(crate) fn operators(&self) -> &Registry {
        &self.operators
    }

    /// Registers a compaction filter, for this open: it decides which entries compactions keep in the keyspaces that
    /// have it ([`KeyspaceOptions::with_compaction_filter`]). One of the same name that was registered before is
    /// replaced.
    ///
    /// A store opens without the filters of its keyspaces, too. Then all entries are kept.
    ///
    /// See [`crate::CompactionFilter`] for an example.
    #[must_use]
    pub fn register_compaction_filter(mut self, filter: impl CompactionFilter) -> Self {
        self.filters.add(Arc::new(filter));
        self
    }

    /// The compaction filters that are registered.
    pub(crate) fn filters(&self) -> &FilterRegistry {
        &self.filters
    }

    /// Has a listener told of what happens in the store; one that is there already is told, too.
    ///
    /// See [`EventListener`] for an example.
    #[must_use]
    pub fn with_listener(mut self, listener: impl EventListener) -> Self {
        self.listeners.add(Arc::new(listener));
        self
    }

    /// The listeners.
    pub(crate) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Encrypts what this open writes: tables, log and manifest, with the provider's current key; and reads what is
    /// encrypted. A store that was not encrypted, or with another key, is read as it is, and written anew bit by bit
    /// by compactions; all at once by [`crate::Db::rewrite`]. Nothing of it is remembered: each open needs it.
    ///
    /// See [`crate::StaticKeys`] for an example.
    #[cfg(feature = "encryption")]
    #[must_use]
    pub fn with_encryption(mut self, keys: impl crate::KeyProvider) -> Self {
        self.keys = Provider(Some(Arc::new(keys)));
        self
    }

    /// Who gives encryption keys.
    pub(crate) fn keys(&self) -> &Provider {
        &self.keys
    }

    fn give(mut self, field: Field) -> Self {
        self.given |= 1 << field as u32;
        self
    }

    fn has(&self, field: Field) -> bool {
        self.given & 1 << field as u32 != 0
    }

    /// Those of the remembered settings that are given.
    pub(crate) fn remembered(&self) -> KeyspaceOptions {
        let given = self.given();
        let is = |name: &str| given.contains(&name);
        KeyspaceOptions {
            compression: is("compression").then_some(self.compression),
            last_level_compression: is("last_level_compression").then_some(self.last_level_compression),
            block_bytes: is("block_bytes").then_some(self.block_bytes),
            filter_bits_per_key: is("filter_bits_per_key").then_some(self.filter_bits_per_key),
            merge_operator: None,
            compaction_filter: None,
            time_to_live: is("time_to_live").then_some(self.time_to_live),
        }
    }

    /// Checks every setting; says which is wrong and what is allowed.
    pub(crate) fn validate(&self) -> crate::Result<()> {
        let wrong = |what: String| Err(crate::Error::Invalid(what));
        if self.cache_bytes < MIN_CACHE_BYTES {
            return wrong(format!("cache_bytes is {}: at least {MIN_CACHE_BYTES} (1 MiB)", self.cache_bytes));
        }
        if !(MIN_MEMTABLE_BYTES..=MAX_MEMTABLE_BYTES).contains(&self.memtable_bytes) {
            return wrong(format!(
                "memtable_bytes is {}: from {MIN_MEMTABLE_BYTES} (64 KiB) to {MAX_MEMTABLE_BYTES} (16 GiB)",
                self.memtable_bytes
            ));
        }
        check_block_bytes(self.block_bytes)?;
        check_filter_bits(self.filter_bits_per_key)?;
        life::check(self.time_to_live)?;
        self.filters.validate()?;
        if self.log_segment_bytes != 0
            && !(MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&self.log_segment_bytes)
        {
            return wrong(format!(
                "log_segment_bytes is {}: from {MIN_SEGMENT_BYTES} (64 KiB) to {MAX_SEGMENT_BYTES} (1 GiB), 0 to choose",
                self.log_segment_bytes
            ));
        }
        if self.table_bytes != 0 && self.table_bytes < MIN_TABLE_BYTES {
            return wrong(format!(
                "table_bytes is {}: at least {MIN_TABLE_BYTES} (64 KiB), 0 to choose",
                self.table_bytes
            ));
        }
        if (1..MIN_COMPACTION_RATE).contains(&self.compaction_bytes_per_second) {
            return wrong(format!(
                "compaction_bytes_per_second is {}: at least {MIN_COMPACTION_RATE} (64 KiB), 0 for no limit",
                self.compaction_bytes_per_second
            ));
        }
        if self.socket && !cfg!(feature = "socket") {
            return wrong("socket is true: this build of ringdb is without the feature `socket`".into());
        }
        if self.background_threads > MAX_BACKGROUND_THREADS {
            return wrong(format!(
                "background_threads is {}: at most {MAX_BACKGROUND_THREADS}, 0 to choose",
                self.background_threads
            ));
        }
        Ok(())
    }

    /// Bytes at which a memtable is switched: at most a quarter of the budget.
    pub(crate) fn memtable_limit(&self) -> u64 {
        self.memtable_bytes.min((self.cache_bytes / 4).max(MIN_MEMTABLE_BYTES))
    }

    /// Bytes of a log segment: as set, or a quarter of a memtable, within reason.
    pub(crate) fn segment_bytes(&self, most: u64) -> u64 {
        match self.log_segment_bytes {
            0 => (self.memtable_limit() / 4).next_power_of_two().clamp(1 << 20, most),
            n => n,
        }
    }

    /// Bytes of a table that a compaction writes: as set, or as a memtable, within reason.
    pub(crate) fn compacted_table_bytes(&self) -> u64 {
        match self.table_bytes {
            0 => self.memtable_limit().clamp(1 << 20, 64 << 20),
            n => n,
        }
    }

    /// Background threads: as set, or the number of cores, at most 4, at least 2 (one may flush while the other
    /// compacts).
    pub(crate) fn threads(&self) -> usize {
        match self.background_threads {
            0 => cores().clamp(2, 4),
            n => n,
        }
    }
}

fn check_block_bytes(n: u32) -> crate::Result<()> {
    match n.is_power_of_two() && (4096..=65536).contains(&n) {
        true => Ok(()),
        false => Err(crate::Error::Invalid(format!(
            "block_bytes is {n}: a power of two from 4096 (4 KiB) to 65536 (64 KiB)"
        ))),
    }
}

fn check_filter_bits(n: u32) -> crate::Result<()> {
    match n <= MAX_FILTER_BITS {
        true => Ok(()),
        false => Err(crate::Error::Invalid(format!(
            "filter_bits_per_key is {n}: at most {MAX_FILTER_BITS}, 0 for no filters"
        ))),
    }
}

const MIN_CACHE_BYTES: u64 = 1 << 20;
const MIN_MEMTABLE_BYTES: u64 = 64 << 10;
const MAX_MEMTABLE_BYTES: u64 = 16 << 30;
const MIN_SEGMENT_BYTES: u64 = 64 << 10;
const MAX_SEGMENT_BYTES: u64 = 1 << 30;
const MIN_TABLE_BYTES: u64 = 64 << 10;
const MIN_COMPACTION_RATE: u64 = 64 << 10;
const MAX_FILTER_BITS: u32 = 64;
const MAX_BACKGROUND_THREADS: usize = 64;

/// Cores that this process may use; 2 where that is not known.
pub(crate) fn cores() -> usize {
    // Asked once: it reads a dozen files of the system.
    static CORES: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(2, |n| n.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_settings_are_named_with_what_is_allowed() {
        let d = Options::default;
        for (o, what) in [
            (d().with_cache_bytes(5), "cache_bytes is 5"),
            (d().with_memtable_bytes(1), "memtable_bytes is 1"),
            (d().with_block_bytes(5000), "block_bytes is 5000: a power of two"),
            (d().with_block_bytes(1 << 20), "block_bytes"),
            (d().with_filter_bits_per_key(1000), "filter_bits_per_key is 1000"),
            (d().with_background_threads(1000), "background_threads is 1000"),
            (d().with_log_segment_bytes(5000), "log_segment_bytes is 5000"),
            (d().with_table_bytes(5000), "table_bytes is 5000"),
        ] {
            let e = o.validate().unwrap_err();
            assert_eq!(e.kind(), crate::ErrorKind::FixCall);
            assert!(e.to_string().contains(what), "{e}");
        }
        assert!(d().validate().is_ok());
        assert!(KeyspaceOptions::default().with_block_bytes(5000).validate().is_err());
        assert!(KeyspaceOptions::default().with_filter_bits_per_key(65).validate().is_err());
        assert_eq!(d().with_cache_bytes(8 << 20).memtable_limit(), 2 << 20);
        assert_eq!(d().segment_bytes(16 << 20), 16 << 20);
        assert_eq!(d().with_log_segment_bytes(64 << 10).segment_bytes(16 << 20), 64 << 10);
        assert_eq!(d().with_table_bytes(64 << 10).compacted_table_bytes(), 64 << 10);
    }
    #[test]
    fn a_setting_is_given_by_a_builder_or_by_differing_from_its_default() {
        assert!(Options::default().given().is_empty());
        let mut o = Options::default().with_compression(Compression::None).with_io("posix");
        o.block_bytes = 8192;
        assert_eq!(o.given(), ["io", "block_bytes", "compression"]);
        let r = o.remembered();
        assert_eq!((r.compression, r.block_bytes), (Some(Compression::None), Some(8192)));
        assert_eq!((r.last_level_compression, r.filter_bits_per_key), (None, None));

        let below = Options::default().with_compression(Compression::Zstd).with_table_bytes(1 << 20);
        let both = o.over(below);
        assert_eq!(both.given(), ["io", "block_bytes", "compression", "table_bytes"]);
        assert_eq!((both.compression, both.io.as_str()), (Compression::None, "posix"));
    }
}
