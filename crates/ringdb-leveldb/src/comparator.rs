//! Comparators. The store's order is that of the bytes; a comparator is taken if it agrees.

use std::cmp::Ordering;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use c_abi::Fail;

use crate::args;
use crate::report::{State, invalid, name_of, quiet};

type Compare = unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int;
type Destructor = unsafe extern "C" fn(*mut c_void);
type Name = unsafe extern "C" fn(*mut c_void) -> *const c_char;

/// The order of a store without a comparator, by the name that LevelDB gives it.
pub(crate) const BYTEWISE: &str = "leveldb.BytewiseComparator";

/// A handle.
pub struct leveldb_comparator_t(Arc<Comparator>);

/// What a handle and the stores that were opened with it share. The destructor runs when the last of them ends.
pub(crate) struct Comparator {
    state: State,
    destructor: Option<Destructor>,
    compare: Compare,
    name: Name,
}

impl Drop for Comparator {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the header's contract of the callback.
            unsafe { destructor(self.state.0) };
        }
    }
}

/// Keys that orders other than the bytes' are found by: numbers as bytes and as text, capitals, prefixes, zeros, bytes
/// above 127. None is shorter than 16 bytes, for a comparator may take a key apart.
const PROBES: [&[u8]; 16] = [
    b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01",
    b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\x01\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"10 and some more",
    b"9 and some more ",
    b"Key of 16 bytes.",
    b"aaaaaaaaaaaaaaaa",
    b"aaaaaaaaaaaaaaaa\0",
    b"aaaaaaaaaaaaaaaaa",
    b"aaaaaaaa\0bbbbbbb",
    b"bbbbbbbbbbbbbbbb",
    b"key of 16 bytes.",
    b"\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
];

impl Comparator {
    /// What the caller calls it.
    pub(crate) fn name(&self) -> Result<String, Fail> {
        // SAFETY: the header's contract of the callback.
        let name = unsafe { name_of((self.name)(self.state.0)) };
        name.filter(|n| !n.is_empty()).ok_or_else(|| invalid("the comparator has no name"))
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        // SAFETY: the header's contract of the callback; both are live for the call.
        let n =
            unsafe { (self.compare)(self.state.0, a.as_ptr().cast(), a.len(), b.as_ptr().cast(), b.len()) };
        n.cmp(&0)
    }

    /// Fails if two keys come in another order than their bytes.
    pub(crate) fn check(&self, a: &[u8], b: &[u8]) -> Result<(), Fail> {
        if self.compare(a, b) == a.cmp(b) {
            return Ok(());
        }
        Err(invalid(format!(
            "the comparator '{}' does not order keys as their bytes do, which is the only order of this library: \
             \"{}\" and \"{}\"",
            self.name()?,
            shown(a),
            shown(b)
        )))
    }

    /// Whether it orders as bytes do, as far as a few hundred pairs tell.
    pub(crate) fn probe(&self) -> Result<(), Fail> {
        PROBES.iter().try_for_each(|a| PROBES.iter().try_for_each(|b| self.check(a, b)))
    }
}

/// The beginning of a key, for people.
fn shown(key: &[u8]) -> String {
    const MOST: usize = 40;
    let cut = &key[..key.len().min(MOST)];
    format!("{}{}", cut.escape_ascii(), if key.len() > MOST { "..." } else { "" })
}

/// The comparator behind a handle.
///
/// # Safety
/// `handle` is NULL or live.
pub(crate) unsafe fn shared(handle: *const leveldb_comparator_t) -> Option<Arc<Comparator>> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.map(|c| Arc::clone(&c.0))
}

/// Makes a comparator of callbacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: Option<Destructor>,
    compare: Option<Compare>,
    name: Option<Name>,
) -> *mut leveldb_comparator_t {
    quiet(std::ptr::null_mut(), || {
        let (Some(compare), Some(name)) = (compare, name) else {
            return Err(invalid("a comparator needs its callbacks"));
        };
        let state = State(state);
        Ok(args::give(leveldb_comparator_t(Arc::new(Comparator { state, destructor, compare, name }))))
    })
}

/// Frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_destroy(comparator: *mut leveldb_comparator_t) {
    // SAFETY: the header's contract.
    unsafe { args::free(comparator) }
}
