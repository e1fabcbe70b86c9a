//! Options of a store, and what they are to ringdb.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use c_abi::Fail;
use ringdb::{Compression, Options};

use crate::args;
use crate::comparator::{Comparator, leveldb_comparator_t, shared};
use crate::filter::{Policy, leveldb_filterpolicy_t, policy};
use crate::objects::{leveldb_cache_t, leveldb_env_t};
use crate::report::{invalid, quiet};

/// A handle, with LevelDB's defaults.
pub struct leveldb_options_t(pub(crate) Chosen);

/// What was chosen.
#[derive(Clone)]
pub(crate) struct Chosen {
    pub(crate) create_if_missing: bool,
    pub(crate) error_if_exists: bool,
    pub(crate) comparator: Option<Arc<Comparator>>,
    pub(crate) filter: Option<Policy>,
    write_buffer_bytes: usize,
    cache_bytes: usize,
    block_bytes: usize,
    /// `None`: not said.
    file_bytes: Option<usize>,
    compression: c_int,
    has_info_log: bool,
}

const NO_COMPRESSION: c_int = 0;
const SNAPPY: c_int = 1;
/// Of later LevelDBs.
const ZSTD: c_int = 2;

/// What a store without a cache object has.
const CACHE_BYTES: usize = 8 << 20;
/// The memory budget beside cache and memtables, for indexes, filters, background work and iterators.
const OTHER_BYTES: u64 = 16 << 20;
/// The size of tables where none was chosen. Each takes a descriptor as long as the store is open, so LevelDB's 2 MiB
/// would be too many.
const TABLE_BYTES: u64 = 32 << 20;

impl Default for Chosen {
    fn default() -> Chosen {
        Chosen {
            create_if_missing: false,
            error_if_exists: false,
            comparator: None,
            filter: None,
            write_buffer_bytes: 4 << 20,
            cache_bytes: CACHE_BYTES,
            block_bytes: 4 << 10,
            file_bytes: None,
            compression: SNAPPY,
            has_info_log: false,
        }
    }
}

impl Chosen {
    /// The same for ringdb. Sizes are brought within what LevelDB and ringdb take.
    pub(crate) fn to_ringdb(&self) -> Result<Options, Fail> {
        if self.has_info_log {
            return Err(invalid("info_log: this library makes no loggers, so only NULL can be set"));
        }
        let compression = match self.compression {
            NO_COMPRESSION => Compression::None,
            SNAPPY => Compression::Lz4,
            ZSTD => Compression::Zstd,
            n => return Err(invalid(format!("compression {n}: none (0), fast (1, LZ4) or Zstandard (2)"))),
        };
        let memtable = (self.write_buffer_bytes as u64).clamp(64 << 10, 1 << 30);
        // A memtable takes a quarter of the budget at most.
        let budget = (self.cache_bytes as u64).saturating_add(4 * memtable).saturating_add(OTHER_BYTES);
        let block = self.block_bytes.clamp(4 << 10, 64 << 10).next_power_of_two() as u32;
        let table = self.file_bytes.map_or(TABLE_BYTES, |n| (n as u64).clamp(1 << 20, 1 << 30));
        Ok(Options::default()
            .with_create_if_missing(self.create_if_missing)
            .with_memtable_bytes(memtable)
            .with_cache_bytes(budget)
            .with_block_bytes(block)
            .with_table_bytes(table)
            .with_compression(compression)
            .with_last_level_compression(compression)
            .with_filter_bits_per_key(self.filter.as_ref().map_or(0, Policy::bits)))
    }
}

/// What the options of a handle are.
///
/// # Safety
/// `options` is NULL or live.
pub(crate) unsafe fn chosen<'a>(options: *const leveldb_options_t) -> Result<&'a Chosen, Fail> {
    // SAFETY: the caller's promise.
    unsafe { args::handle(options, "options") }.map(|o| &o.0)
}

/// LevelDB's defaults.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_create() -> *mut leveldb_options_t {
    quiet(std::ptr::null_mut(), || Ok(args::give(leveldb_options_t(Chosen::default()))))
}

/// Frees them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_destroy(options: *mut leveldb_options_t) {
    // SAFETY: the header's contract.
    unsafe { args::free(options) }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($value:ident: $t:ty), $options:ident => $set:expr;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(options: *mut leveldb_options_t, $value: $t) {
            quiet((), || {
                // SAFETY: the header's contract.
                let $options = &mut unsafe { args::handle_mut(options, "options") }?.0;
                $set;
                Ok(())
            });
        }
    )*};
}

setters! {
    /// The order of keys.
    leveldb_options_set_comparator(c: *mut leveldb_comparator_t), o => {
        // SAFETY: the header's contract.
        o.comparator = unsafe { shared(c) }
    };
    /// Filters.
    leveldb_options_set_filter_policy(p: *mut leveldb_filterpolicy_t), o => {
        // SAFETY: the header's contract.
        o.filter = unsafe { policy(p) }
    };
    /// Whether a missing store is made.
    leveldb_options_set_create_if_missing(yes: u8), o => o.create_if_missing = yes != 0;
    /// Whether a store that is there is refused.
    leveldb_options_set_error_if_exists(yes: u8), o => o.error_if_exists = yes != 0;
    /// Only NULL.
    leveldb_options_set_info_log(log: *mut c_void), o => o.has_info_log = !log.is_null();
    /// Bytes of a memtable.
    leveldb_options_set_write_buffer_size(bytes: usize), o => o.write_buffer_bytes = bytes;
    /// Memory for blocks.
    leveldb_options_set_cache(cache: *mut leveldb_cache_t), o => {
        // SAFETY: the header's contract.
        o.cache_bytes = unsafe { cache.as_ref() }.map_or(CACHE_BYTES, |c| c.capacity)
    };
    /// Bytes of a block.
    leveldb_options_set_block_size(bytes: usize), o => o.block_bytes = bytes;
    /// Bytes of a table.
    leveldb_options_set_max_file_size(bytes: usize), o => o.file_bytes = Some(bytes);
    /// How blocks are compressed.
    leveldb_options_set_compression(kind: c_int), o => o.compression = kind;
}

/// Options that have no counterpart; the header says why.
macro_rules! no_effect {
    ($($(#[$doc:meta])* $name:ident($t:ty);)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(_options: *mut leveldb_options_t, _value: $t) {}
    )*};
}

no_effect! {
    /// Checks are always as strict as with 1.
    leveldb_options_set_paranoid_checks(u8);
    /// There is one environment.
    leveldb_options_set_env(*mut leveldb_env_t);
    /// All tables stay open.
    leveldb_options_set_max_open_files(c_int);
    /// Blocks have no restart points.
    leveldb_options_set_block_restart_interval(c_int);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_brought_within_what_is_possible() {
        let of = |c: Chosen| c.to_ringdb().unwrap_or_else(|e| panic!("{}", e.message));
        let o = of(Chosen::default());
        assert_eq!((o.memtable_bytes, o.block_bytes, o.table_bytes), (4 << 20, 4096, TABLE_BYTES));
        assert_eq!((o.cache_bytes, o.filter_bits_per_key), (40 << 20, 0));
        assert_eq!((o.compression, o.create_if_missing), (Compression::Lz4, false));
        let small = Chosen {
            write_buffer_bytes: 0,
            cache_bytes: 0,
            block_bytes: 0,
            file_bytes: Some(0),
            ..Chosen::default()
        };
        let o = of(small);
        assert_eq!((o.memtable_bytes, o.block_bytes, o.table_bytes), (64 << 10, 4096, 1 << 20));
        let large = Chosen {
            write_buffer_bytes: usize::MAX,
            cache_bytes: usize::MAX,
            block_bytes: usize::MAX,
            file_bytes: Some(usize::MAX),
            ..Chosen::default()
        };
        let o = of(large);
        assert_eq!((o.memtable_bytes, o.block_bytes, o.table_bytes), (1 << 30, 64 << 10, 1 << 30));
        assert_eq!(of(Chosen { block_bytes: 5000, ..Chosen::default() }).block_bytes, 8192);
        for (compression, wanted) in [(0, Compression::None), (1, Compression::Lz4), (2, Compression::Zstd)] {
            let o = of(Chosen { compression, ..Chosen::default() });
            assert_eq!((o.compression, o.last_level_compression), (wanted, wanted));
        }
        assert!(Chosen { compression: 3, ..Chosen::default() }.to_ringdb().is_err());
    }
}
