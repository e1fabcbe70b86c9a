//! Options of a store.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use ringdb::{Compression, EncryptionKey, Options, StaticKeys};

use crate::args;
use crate::result::{Alone, Fail, OK, failed, guard, guarded, ringdb_error};
use crate::value::free;

/// A handle of options.
pub struct ringdb_options(Alone<Options>);

/// The options of a handle, or the defaults.
///
/// # Safety
/// `options` is NULL or a live handle.
pub(crate) unsafe fn chosen(options: *const ringdb_options) -> Result<Options, Fail> {
    // SAFETY: the caller's promise.
    match unsafe { options.as_ref() } {
        None => Ok(Options::default()),
        Some(options) => Ok(options.0.take("options")?.clone()),
    }
}

/// The defaults.
#[unsafe(no_mangle)]
pub extern "C" fn ringdb_options_new() -> *mut ringdb_options {
    guarded(std::ptr::null_mut(), || Box::into_raw(Box::new(ringdb_options(Alone::new(Options::default())))))
}

/// Frees them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_options_free(options: *mut ringdb_options) {
    // SAFETY: the header's contract.
    unsafe { free(options) }
}

/// Changes a setting.
///
/// # Safety
/// `options` is NULL or a live handle, `err` as of `guard`.
pub(crate) unsafe fn set(
    options: *mut ringdb_options,
    err: *mut ringdb_error,
    change: impl FnOnce(&mut Options) -> Result<(), Fail>,
) -> i32 {
    guard(err, || {
        // SAFETY: the caller's promise.
        let options = unsafe { args::handle(options, "options handle")? };
        let mut options = options.0.take("options")?;
        change(&mut options)?;
        Ok(OK)
    })
}

fn compression(number: i32) -> Result<Compression, Fail> {
    match number {
        0 => Ok(Compression::None),
        1 => Ok(Compression::Lz4),
        2 => Ok(Compression::Zstd),
        n => Err(Fail::invalid(format!("compression {n}; valid: RINGDB_COMPRESSION_NONE, _LZ4, _ZSTD"))),
    }
}

/// The engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_options_set_io(
    options: *mut ringdb_options,
    uri: *const c_char,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe {
        set(options, err, |o| {
            let uri = args::text(uri, "URI")?;
            *o = std::mem::take(o).with_io(uri);
            Ok(())
        })
    }
}

/// Encryption keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_options_set_encryption_keys(
    options: *mut ringdb_options,
    numbers: *const u32,
    keys: *const c_void,
    count: usize,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract: `count` numbers, and as many keys behind each other.
    unsafe {
        set(options, err, |o| {
            let numbers = args::array(numbers, count, "numbers of keys")?;
            let keys = args::array(keys.cast::<[u8; 32]>(), count, "encryption keys")?;
            if count == 0 {
                return Err(Fail::invalid("there are no encryption keys"));
            }
            let mut all = StaticKeys::default();
            for (number, key) in numbers.iter().zip(keys) {
                all = all.with(*number, EncryptionKey::new(*key)).map_err(failed)?;
            }
            *o = std::mem::take(o).with_encryption(all);
            Ok(())
        })
    }
}

/// Settings as TOML text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_options_parse(
    options: *mut ringdb_options,
    toml: *const c_char,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe {
        set(options, err, |o| {
            let said = Options::from_toml(args::text(toml, "text")?).map_err(failed)?;
            *o = said.over(std::mem::take(o));
            Ok(())
        })
    }
}

/// Settings from a TOML file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_options_load(
    options: *mut ringdb_options,
    path: *const c_char,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe {
        set(options, err, |o| {
            let said = Options::load(args::path(path)?).map_err(failed)?;
            *o = said.over(std::mem::take(o));
            Ok(())
        })
    }
}

macro_rules! setters {
    ($($name:ident, $builder:ident: $t:ty, $convert:expr;)*) => {$(
        /// One setting.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            options: *mut ringdb_options,
            value: $t,
            err: *mut ringdb_error,
        ) -> i32 {
            let convert: fn($t) -> Result<_, Fail> = $convert;
            // SAFETY: the header's contract.
            unsafe {
                set(options, err, |o| {
                    let value = convert(value)?;
                    // By its builder, so that a default counts as given, too.
                    *o = std::mem::take(o).$builder(value);
                    Ok(())
                })
            }
        }
    )*};
}

setters! {
    ringdb_options_set_cache_bytes, with_cache_bytes: u64, Ok;
    ringdb_options_set_memtable_bytes, with_memtable_bytes: u64, Ok;
    ringdb_options_set_durability, with_durability: i32, args::durability;
    ringdb_options_set_block_bytes, with_block_bytes: u32, Ok;
    ringdb_options_set_compression, with_compression: i32, compression;
    ringdb_options_set_last_level_compression, with_last_level_compression: i32, compression;
    ringdb_options_set_filter_bits_per_key, with_filter_bits_per_key: u32, Ok;
    ringdb_options_set_background_threads, with_background_threads: usize, Ok;
    ringdb_options_set_log_segment_bytes, with_log_segment_bytes: u64, Ok;
    ringdb_options_set_table_bytes, with_table_bytes: u64, Ok;
    ringdb_options_set_compaction_bytes_per_second, with_compaction_bytes_per_second: u64, Ok;
    ringdb_options_set_manifest_bytes, with_manifest_bytes: u64, Ok;
    ringdb_options_set_time_one_in, with_time_one_in: u32, Ok;
    ringdb_options_set_time_to_live, with_time_to_live: u64, |ms| Ok(Duration::from_millis(ms));
    ringdb_options_set_direct_reads, with_direct_reads: i32, |n| args::flag(n, "direct_reads");
    ringdb_options_set_create_if_missing, with_create_if_missing: i32, |n| args::flag(n, "create_if_missing");
    ringdb_options_set_recover_damaged_log, with_recover_damaged_log: i32, |n| args::flag(n, "recover_damaged_log");
    ringdb_options_set_socket, with_socket: i32, |n| args::flag(n, "socket");
}
