//! Caches and environments: a size, and the system.

use std::ffi::{OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::args;
use crate::report::{copy, io_error, quiet};

/// A cache: how much memory a store may use for blocks.
pub struct leveldb_cache_t {
    pub(crate) capacity: usize,
}

/// The environment of the system; there is no other.
pub struct leveldb_env_t(());

/// Makes a cache.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_create_lru(capacity: usize) -> *mut leveldb_cache_t {
    quiet(std::ptr::null_mut(), || Ok(args::give(leveldb_cache_t { capacity })))
}

/// Frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_cache_destroy(cache: *mut leveldb_cache_t) {
    // SAFETY: the header's contract.
    unsafe { args::free(cache) }
}

/// The system.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_default_env() -> *mut leveldb_env_t {
    quiet(std::ptr::null_mut(), || Ok(args::give(leveldb_env_t(()))))
}

/// Frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_env_destroy(env: *mut leveldb_env_t) {
    // SAFETY: the header's contract.
    unsafe { args::free(env) }
}

/// A directory for tests, made if it is missing: the one that `TEST_TMPDIR` names, or one of this
/// user's among the temporary files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_env_get_test_directory(env: *mut leveldb_env_t) -> *mut c_char {
    quiet(std::ptr::null_mut(), || {
        // SAFETY: the header's contract.
        unsafe { args::handle(env, "environment") }?;
        let given = std::env::var_os("TEST_TMPDIR").filter(|d| !d.is_empty());
        let dir = given.map_or_else(own_test_directory, PathBuf::from);
        match std::fs::create_dir(&dir) {
            Err(e) if !dir.is_dir() => return Err(io_error(&dir, &e)),
            _ => {}
        }
        let mut name = OsString::from(dir).as_bytes().to_vec();
        name.push(0);
        copy(&name)
    })
}

fn own_test_directory() -> PathBuf {
    // SAFETY: it cannot fail.
    let user = unsafe { libc::geteuid() };
    std::env::temp_dir().join(format!("leveldbtest-{user}"))
}
