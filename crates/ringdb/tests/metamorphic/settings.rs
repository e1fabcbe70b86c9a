//! What a list of operations is run under: none of it may change an answer.

use std::fmt::{self, Display};
use std::time::Duration;

use ringdb::{
    CompactionFilter, Compression, Durability, FilterContext, FilterDecision, KeyspaceOptions, Options,
};

use crate::calls::Calls;
use crate::op::SEPARATOR;
use crate::support::Rng;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub io: String,
    pub memtable: u64,
    pub cache: u64,
    /// Whether reads leave blocks in the cache.
    pub fill_cache: bool,
    /// Whether tables are read past the page cache.
    pub direct_reads: bool,
    pub block: u32,
    pub compression: Compression,
    pub last_level: Compression,
    pub filter_bits: u32,
    pub threads: usize,
    pub durability: Durability,
    /// How it is called.
    pub calls: Calls,
    /// Reopened, flushed, compacted every so many operations besides what the list says; 0: never.
    pub reopen_every: usize,
    pub flush_every: usize,
    pub compact_every: usize,
    /// Keyspaces have settings of their own, and get others every so many operations; 0: never.
    pub alter_every: usize,
    /// Whether the store is encrypted. Only in a build that can.
    pub encrypted: bool,
}

impl Settings {
    /// Of the least of everything: small memtables, the smallest cache, one thread.
    pub fn small(io: &str) -> Settings {
        Settings {
            io: io.into(),
            memtable: 64 << 10,
            cache: 1 << 20,
            fill_cache: true,
            direct_reads: false,
            block: 4096,
            compression: Compression::None,
            last_level: Compression::None,
            filter_bits: 10,
            threads: 1,
            durability: Durability::Process,
            calls: Calls::Blocking,
            reopen_every: 0,
            flush_every: 0,
            compact_every: 0,
            alter_every: 0,
            encrypted: false,
        }
    }

    /// Random ones.
    pub fn random(rng: &mut Rng, io: &str) -> Settings {
        let compression = *rng.pick(&[Compression::None, Compression::Lz4, Compression::Zstd]);
        Settings {
            io: io.into(),
            memtable: *rng.pick(&[64 << 10, 64 << 10, 256 << 10, 4 << 20]),
            cache: *rng.pick(&[1 << 20, 4 << 20, 64 << 20]),
            fill_cache: !rng.chance(3),
            direct_reads: rng.chance(2),
            block: *rng.pick(&[4096, 4096, 16384, 65536]),
            compression,
            last_level: *rng.pick(&[Compression::None, compression, Compression::Zstd]),
            filter_bits: *rng.pick(&[10, 10, 0, 3]),
            threads: 1 + rng.below(3) as usize,
            durability: *rng.pick(&[Durability::Process, Durability::Process, Durability::Sync]),
            calls: *rng.pick(&Calls::ALL),
            reopen_every: *rng.pick(&[0, 0, 97, 301]),
            flush_every: *rng.pick(&[0, 0, 0, 23, 101]),
            compact_every: *rng.pick(&[0, 0, 0, 211]),
            alter_every: *rng.pick(&[0, 0, 31, 151]),
            encrypted: cfg!(feature = "encryption") && rng.chance(3),
        }
    }

    pub fn options(&self) -> Options {
        let options = Options::default()
            .with_io(&self.io)
            .with_memtable_bytes(self.memtable)
            .with_cache_bytes(self.cache)
            .with_direct_reads(self.direct_reads)
            .with_block_bytes(self.block)
            .with_compression(self.compression)
            .with_last_level_compression(self.last_level)
            .with_filter_bits_per_key(self.filter_bits)
            .with_background_threads(self.threads)
            .with_durability(self.durability)
            .register_compaction_filter(KeepAll);
        #[cfg(feature = "encryption")]
        if self.encrypted {
            let key = ringdb::EncryptionKey::new([3; 32]);
            return options.with_encryption(ringdb::StaticKeys::new(1, key).expect("a key"));
        }
        options
    }
}

/// Has every entry passed, and changes none.
struct KeepAll;

impl CompactionFilter for KeepAll {
    fn name(&self) -> &str {
        "keeps all"
    }
    fn filter(&self, _context: &FilterContext, _key: &[u8], value: &[u8]) -> FilterDecision {
        if value.len().is_multiple_of(2) {
            FilterDecision::Keep
        } else {
            FilterDecision::Change(value.into())
        }
    }
}

/// The settings that a keyspace gets as the `n`-th change of settings.
pub fn own(n: usize) -> KeyspaceOptions {
    let all = [Compression::None, Compression::Lz4, Compression::Zstd];
    KeyspaceOptions::default()
        .with_compression(all[n % 3])
        .with_last_level_compression(all[n / 2 % 3])
        .with_block_bytes([4096, 16384, 4096, 65536][n % 4])
        .with_filter_bits_per_key([10, 0, 3][n % 3])
        .with_merge_operator(operator())
        .with_time_to_live(Duration::ZERO)
        .with_compaction_filter(KeepAll.name())
}

/// The merge operator of all keyspaces.
pub fn operator() -> String {
    format!("append:{SEPARATOR}")
}

impl Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lower = |v: &dyn fmt::Debug| format!("{v:?}").to_lowercase();
        write!(
            f,
            "io={} memtable={} cache={} fill_cache={} direct_reads={} block={} compression={} last_level={} filter_bits={} threads={} \
             durability={} calls={} reopen_every={} flush_every={} compact_every={} alter_every={} \
             encrypted={}",
            self.io,
            self.memtable,
            self.cache,
            self.fill_cache,
            self.direct_reads,
            self.block,
            lower(&self.compression),
            lower(&self.last_level),
            self.filter_bits,
            self.threads,
            lower(&self.durability),
            lower(&self.calls),
            self.reopen_every,
            self.flush_every,
            self.compact_every,
            self.alter_every,
            self.encrypted
        )
    }
}

/// Reads what [`Settings`] prints; what is left out is as in [`Settings::small`].
pub fn parse(text: &str) -> Result<Settings, String> {
    let mut s = Settings::small("posix");
    for word in text.split_whitespace() {
        let wrong = || format!("a setting '{word}'");
        let (name, value) = word.split_once('=').ok_or_else(wrong)?;
        let number = || value.parse::<u64>().map_err(|_| wrong());
        let compression = || match value {
            "none" => Ok(Compression::None),
            "lz4" => Ok(Compression::Lz4),
            "zstd" => Ok(Compression::Zstd),
            _ => Err(wrong()),
        };
        match name {
            "io" => s.io = value.into(),
            "memtable" => s.memtable = number()?,
            "cache" => s.cache = number()?,
            "fill_cache" => s.fill_cache = value == "true",
            "direct_reads" => s.direct_reads = value == "true",
            "block" => s.block = number()? as u32,
            "compression" => s.compression = compression()?,
            "last_level" => s.last_level = compression()?,
            "filter_bits" => s.filter_bits = number()? as u32,
            "threads" => s.threads = number()? as usize,
            "durability" => {
                s.durability = match value {
                    "sync" => Durability::Sync,
                    "process" => Durability::Process,
                    _ => return Err(wrong()),
                }
            }
            "calls" => {
                let known = |c: &&Calls| format!("{c:?}").to_lowercase() == value;
                s.calls = *Calls::ALL.iter().find(known).ok_or_else(wrong)?;
            }
            "reopen_every" => s.reopen_every = number()? as usize,
            "flush_every" => s.flush_every = number()? as usize,
            "compact_every" => s.compact_every = number()? as usize,
            "alter_every" => s.alter_every = number()? as usize,
            "encrypted" => s.encrypted = cfg!(feature = "encryption") && value == "true",
            _ => return Err(wrong()),
        }
    }
    Ok(s)
}
