//! Settings: plain data with `with_*` builders.

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
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The I/O engine's URI; `auto` takes the best that works. Default `auto`.
    pub io: String,
    /// Budget in bytes for block cache, index, filters and memtables together. Default 256 MiB.
    pub cache_bytes: u64,
    /// A memtable is flushed when it holds about this many bytes. Default 64 MiB, at most a quarter of `cache_bytes`.
    pub memtable_bytes: u64,
    /// Durability of writes that do not say otherwise, and the medium of the log. Default `Process`.
    pub durability: Durability,
    /// Bytes of a data block, a power of two from 4 KiB to 64 KiB. Default 4 KiB.
    pub block_bytes: u32,
    /// Compression of all levels but the last. Default none.
    pub compression: Compression,
    /// Compression of the last level. Default none.
    pub last_level_compression: Compression,
    /// Bloom filter bits per key; 0 for no filters. Default 10.
    pub filter_bits_per_key: u32,
    /// Threads that flush and compact. Default: the number of cores, at most 4.
    pub background_threads: usize,
    /// Make the store if it is missing. Default true.
    pub create_if_missing: bool,
    /// If the log is corrupt before its tail, recover what precedes the damage instead of failing. Default false.
    pub recover_damaged_log: bool,
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
            background_threads: 0,
            create_if_missing: true,
            recover_damaged_log: false,
        }
    }
}

macro_rules! builders {
    ($($(#[$doc:meta])* $fn:ident $field:ident: $t:ty),* $(,)?) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $fn(mut self, value: $t) -> Self {
            self.$field = value;
            self
        }
    )*};
}

impl Options {
    /// Sets the I/O engine's URI.
    #[must_use]
    pub fn with_io(mut self, uri: impl Into<String>) -> Self {
        self.io = uri.into();
        self
    }

    builders! {
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
        /// Sets the number of background threads (0: choose).
        with_background_threads background_threads: usize,
        /// Sets whether a missing store is made.
        with_create_if_missing create_if_missing: bool,
        /// Sets whether what precedes damage in the log is recovered.
        with_recover_damaged_log recover_damaged_log: bool,
    }
}

/// Settings of one write.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    /// How durable; `None` here means the store's own level.
    pub durability: Option<Durability>,
}

impl WriteOptions {
    /// Sets the durability of this write.
    #[must_use]
    pub fn durability(mut self, d: Durability) -> Self {
        self.durability = Some(d);
        self
    }
}

/// Settings of one read.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Whether blocks read from disk stay in the cache. Default true; false for a scan that would sweep it.
    pub fill_cache: bool,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { fill_cache: true }
    }
}

impl ReadOptions {
    /// Sets whether blocks read from disk stay in the cache.
    #[must_use]
    pub fn fill_cache(mut self, yes: bool) -> Self {
        self.fill_cache = yes;
        self
    }
}
