//! An environment for the [`rocksdb`] crate whose files go through engineswap's engines.
//!
//! ```no_run
//! let env = engineswap_rocksdb::env("io_uring?depth=64")?;
//! let mut options = rocksdb::Options::default();
//! options.create_if_missing(true);
//! options.set_env(&env);
//! let db = rocksdb::DB::open(&options, "/tmp/db")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The plugin's C++ is compiled against the headers of the RocksDB that the `rocksdb` crate uses, and linked into the
//! program; no shared object is needed.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;

use librocksdb_sys::rocksdb_env_t;
use rocksdb::Env;

unsafe extern "C" {
    // Of rocksdb-plugin/include/engineswap_rocksdb.h.
    fn engineswap_rocksdb_create_env(uri: *const c_char, errptr: *mut *mut c_char) -> *mut rocksdb_env_t;
}

/// Why an environment could not be made: what is wrong with the URI and what is valid, or why the engine that was asked
/// for cannot be had here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// An environment whose files go through the engine that `uri` names, with or without `engineswap://` before it; ""
/// is the best engine that works here. Threads, time and locks are those of RocksDB's own environment.
///
/// Options keep the environment alive, and databases keep their options.
pub fn env(uri: &str) -> Result<Env, Error> {
    // The C++ code calls these functions; so the linker keeps them.
    let _ = engineswap_c::ENGINESWAP_ABI_VERSION;
    let uri = CString::new(uri).map_err(|_| Error("a URI with a zero byte".into()))?;
    let mut message: *mut c_char = std::ptr::null_mut();
    // SAFETY: both pointers lead to what the header asks for, and live through the call.
    let env = unsafe { engineswap_rocksdb_create_env(uri.as_ptr(), &mut message) };
    if env.is_null() {
        // SAFETY: on failure the message is a string, which is given back to RocksDB once.
        let text = unsafe { CStr::from_ptr(message).to_string_lossy().into_owned() };
        // SAFETY: as above; nobody uses it afterwards.
        unsafe { librocksdb_sys::rocksdb_free(message.cast::<c_void>()) };
        return Err(Error(text));
    }
    // SAFETY: a new environment that only this one owns; it is freed by rocksdb_env_destroy.
    Ok(unsafe { Env::from_raw(env) })
}
