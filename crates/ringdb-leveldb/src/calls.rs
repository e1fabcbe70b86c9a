//! Options of one call.

use ringdb::{Durability, ReadOptions, Snapshot, WriteOptions};

use crate::args;
use crate::report::quiet;

/// A snapshot.
pub struct leveldb_snapshot_t(pub(crate) Snapshot);

/// How to read.
#[derive(Default)]
pub struct leveldb_readoptions_t {
    pub(crate) how: ReadOptions,
    pub(crate) snapshot: Option<Snapshot>,
}

/// How to write.
#[derive(Default)]
pub struct leveldb_writeoptions_t {
    sync: bool,
}

impl leveldb_writeoptions_t {
    pub(crate) fn how(&self) -> WriteOptions {
        WriteOptions::default().durability(if self.sync { Durability::Sync } else { Durability::Process })
    }
}

/// The defaults.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_create() -> *mut leveldb_readoptions_t {
    quiet(std::ptr::null_mut(), || Ok(args::give(leveldb_readoptions_t::default())))
}

/// Frees them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_destroy(options: *mut leveldb_readoptions_t) {
    // SAFETY: the header's contract.
    unsafe { args::free(options) }
}

/// No effect: checksums are verified whenever a block is read.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_verify_checksums(_options: *mut leveldb_readoptions_t, _yes: u8) {}

/// Whether blocks that are read stay in the cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_fill_cache(options: *mut leveldb_readoptions_t, yes: u8) {
    quiet((), || {
        // SAFETY: the header's contract.
        let options = unsafe { args::handle_mut(options, "read options") }?;
        options.how = options.how.fill_cache(yes != 0);
        Ok(())
    });
}

/// The snapshot to read, or NULL for what is there now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_snapshot(
    options: *mut leveldb_readoptions_t,
    snapshot: *const leveldb_snapshot_t,
) {
    quiet((), || {
        // SAFETY: the header's contract.
        let (options, snapshot) = unsafe { (args::handle_mut(options, "read options")?, snapshot.as_ref()) };
        options.snapshot = snapshot.map(|s| s.0.clone());
        Ok(())
    });
}

/// The defaults.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_create() -> *mut leveldb_writeoptions_t {
    quiet(std::ptr::null_mut(), || Ok(args::give(leveldb_writeoptions_t::default())))
}

/// Frees them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_destroy(options: *mut leveldb_writeoptions_t) {
    // SAFETY: the header's contract.
    unsafe { args::free(options) }
}

/// Whether writes are on the device when their call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_set_sync(options: *mut leveldb_writeoptions_t, yes: u8) {
    quiet((), || {
        // SAFETY: the header's contract.
        unsafe { args::handle_mut(options, "write options") }?.sync = yes != 0;
        Ok(())
    });
}
