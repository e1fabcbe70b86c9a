//! Filter policies. The store has Bloom filters of its own; what a policy of the caller's says of a key that was found
//! counts all the same.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use c_abi::Fail;

use crate::args;
use crate::report::{State, invalid, quiet};

type CreateFilter =
    unsafe extern "C" fn(*mut c_void, *const *const c_char, *const usize, c_int, *mut usize) -> *mut c_char;
type KeyMayMatch = unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> u8;
type Destructor = unsafe extern "C" fn(*mut c_void);
type Name = unsafe extern "C" fn(*mut c_void) -> *const c_char;

/// Bits for each key of the store's own filters beside a policy of the caller's.
const OWN_BITS: u32 = 10;
/// The most that the store takes.
const MOST_BITS: u32 = 64;

/// A handle.
pub struct leveldb_filterpolicy_t(Policy);

/// What is asked before a key counts as found.
#[derive(Clone)]
pub(crate) enum Policy {
    /// The store's own filters, which are never wrong about a key that is there.
    Bloom(u32),
    Custom(Arc<Custom>),
}

/// A policy of the caller's, which its handle and stores share. The destructor runs when the last of them ends.
pub(crate) struct Custom {
    state: State,
    destructor: Option<Destructor>,
    create: CreateFilter,
    may_match: KeyMayMatch,
}

impl Drop for Custom {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the header's contract of the callback.
            unsafe { destructor(self.state.0) };
        }
    }
}

/// A filter that a callback has made.
struct Filter(*mut c_char);

impl Drop for Filter {
    fn drop(&mut self) {
        // SAFETY: the header's contract of the callback: NULL, or of malloc.
        unsafe { libc::free(self.0.cast()) }
    }
}

impl Policy {
    /// Bits for each key of the store's filters.
    pub(crate) fn bits(&self) -> u32 {
        match self {
            Policy::Bloom(bits) => *bits,
            Policy::Custom(_) => OWN_BITS,
        }
    }

    /// What has to be asked about keys that were found.
    pub(crate) fn custom(&self) -> Option<Arc<Custom>> {
        match self {
            Policy::Bloom(_) => None,
            Policy::Custom(custom) => Some(Arc::clone(custom)),
        }
    }
}

impl Custom {
    /// Whether a filter of this key lets it pass.
    pub(crate) fn lets_pass(&self, key: &[u8]) -> Result<bool, Fail> {
        let (first, len) = (key.as_ptr().cast::<c_char>(), key.len());
        let mut filter_len = 0;
        // SAFETY: the header's contract of the callbacks; all pointers live for the calls.
        unsafe {
            let filter = Filter((self.create)(self.state.0, &first, &len, 1, &mut filter_len));
            if filter.0.is_null() && filter_len > 0 {
                return Err(invalid("the filter policy has made no filter"));
            }
            Ok((self.may_match)(self.state.0, first, len, filter.0, filter_len) != 0)
        }
    }
}

/// The policy behind a handle.
///
/// # Safety
/// `handle` is NULL or live.
pub(crate) unsafe fn policy(handle: *const leveldb_filterpolicy_t) -> Option<Policy> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.map(|p| p.0.clone())
}

/// Makes a policy of callbacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_create(
    state: *mut c_void,
    destructor: Option<Destructor>,
    create_filter: Option<CreateFilter>,
    key_may_match: Option<KeyMayMatch>,
    name: Option<Name>,
) -> *mut leveldb_filterpolicy_t {
    quiet(std::ptr::null_mut(), || {
        let (Some(create), Some(may_match), Some(_)) = (create_filter, key_may_match, name) else {
            return Err(invalid("a filter policy needs its callbacks"));
        };
        let custom = Custom { state: State(state), destructor, create, may_match };
        Ok(args::give(leveldb_filterpolicy_t(Policy::Custom(Arc::new(custom)))))
    })
}

/// Makes the policy of Bloom filters.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut leveldb_filterpolicy_t {
    quiet(std::ptr::null_mut(), || {
        let bits = u32::try_from(bits_per_key).unwrap_or(0).clamp(1, MOST_BITS);
        Ok(args::give(leveldb_filterpolicy_t(Policy::Bloom(bits))))
    })
}

/// Frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_destroy(policy: *mut leveldb_filterpolicy_t) {
    // SAFETY: the header's contract.
    unsafe { args::free(policy) }
}
