//! Iterators.

use std::ffi::c_char;
use std::sync::Arc;

use c_abi::Fail;
use ringdb::Cursor;

use crate::args;
use crate::calls::leveldb_readoptions_t;
use crate::comparator::Comparator;
use crate::report::{failed, guard, quiet};
use crate::store::leveldb_t;

/// A place among the pairs of a store.
pub struct leveldb_iterator_t {
    cursor: Cursor,
    /// Of the last move, if it has failed.
    error: Option<Fail>,
    order: Option<Checked>,
}

/// The comparator that the pairs' order has to agree with.
struct Checked {
    order: Arc<Comparator>,
    /// The key that the last move began at, or was to find.
    from: Vec<u8>,
}

impl leveldb_iterator_t {
    /// Moves; `from`: what to compare the key with that is found, if not with the one before.
    fn go(&mut self, to: impl FnOnce(&mut Cursor) -> ringdb::Result<bool>, from: Option<&[u8]>, again: bool) {
        if !again && !self.valid() {
            return;
        }
        let compared = self.order.as_mut().map(|checked| {
            checked.from.clear();
            let from = from.or(if again { None } else { self.cursor.key() });
            checked.from.extend_from_slice(from.unwrap_or_default());
            from.is_some()
        });
        self.error = match to(&mut self.cursor) {
            Ok(true) if compared == Some(true) => self.check_order().err(),
            Ok(_) => None,
            Err(e) => Some(failed(e)),
        };
    }

    /// Fails if the comparator disagrees with the bytes about the key that was found and the one before.
    fn check_order(&self) -> Result<(), Fail> {
        match (&self.order, self.cursor.key()) {
            (Some(checked), Some(key)) => checked.order.check(&checked.from, key),
            _ => Ok(()),
        }
    }

    fn valid(&self) -> bool {
        self.error.is_none() && self.cursor.valid()
    }
}

/// Makes one, which stands nowhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_create_iterator(
    db: *mut leveldb_t,
    options: *const leveldb_readoptions_t,
) -> *mut leveldb_iterator_t {
    quiet(std::ptr::null_mut(), || {
        // SAFETY: the header's contract.
        let (db, options) = unsafe { (args::handle(db, "store")?, args::handle(options, "read options")?) };
        let cursor = match &options.snapshot {
            None => db.db.cursor_with(&options.how),
            Some(snapshot) => snapshot.cursor_with(&options.how),
        };
        let order = db.order.clone().map(|order| Checked { order, from: Vec::new() });
        Ok(args::give(leveldb_iterator_t { cursor, error: None, order }))
    })
}

/// Frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_destroy(iter: *mut leveldb_iterator_t) {
    // SAFETY: the header's contract.
    unsafe { args::free(iter) }
}

/// Whether it stands on a pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_valid(iter: *const leveldb_iterator_t) -> u8 {
    // SAFETY: the header's contract.
    quiet(0, || Ok(u8::from(unsafe { args::handle(iter, "iterator") }?.valid())))
}

/// # Safety
/// The header's contract.
#[inline]
unsafe fn moved(iter: *mut leveldb_iterator_t, go: impl FnOnce(&mut leveldb_iterator_t)) {
    quiet((), || {
        // SAFETY: the caller's promise.
        go(unsafe { args::handle_mut(iter, "iterator") }?);
        Ok(())
    });
}

/// To the first pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek_to_first(iter: *mut leveldb_iterator_t) {
    // SAFETY: the header's contract.
    unsafe { moved(iter, |i| i.go(Cursor::first, None, true)) }
}

/// To the last pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek_to_last(iter: *mut leveldb_iterator_t) {
    // SAFETY: the header's contract.
    unsafe { moved(iter, |i| i.go(Cursor::last, None, true)) }
}

/// To the first pair at or after a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_seek(iter: *mut leveldb_iterator_t, k: *const c_char, klen: usize) {
    // SAFETY: the header's contract.
    unsafe {
        moved(iter, |i| match args::bytes(k, klen, "key") {
            Ok(key) => i.go(|c| c.seek(key), Some(key), true),
            Err(wrong) => i.error = Some(wrong),
        })
    }
}

/// To the next pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_next(iter: *mut leveldb_iterator_t) {
    // SAFETY: the header's contract.
    unsafe { moved(iter, |i| i.go(Cursor::next, None, false)) }
}

/// To the pair before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_prev(iter: *mut leveldb_iterator_t) {
    // SAFETY: the header's contract.
    unsafe { moved(iter, |i| i.go(Cursor::prev, None, false)) }
}

/// # Safety
/// The header's contract.
#[inline]
unsafe fn part(
    iter: *const leveldb_iterator_t,
    len: *mut usize,
    part: impl FnOnce(&Cursor) -> Option<&[u8]>,
) -> *const c_char {
    quiet(std::ptr::null(), || {
        // SAFETY: the caller's promise.
        let (iter, len) = unsafe { (args::handle(iter, "iterator")?, args::handle_mut(len, "length")?) };
        let bytes = if iter.valid() { part(&iter.cursor) } else { None };
        *len = bytes.map_or(0, <[u8]>::len);
        Ok(bytes.map_or(std::ptr::null(), |b| b.as_ptr().cast()))
    })
}

/// The key that it stands on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_key(
    iter: *const leveldb_iterator_t,
    klen: *mut usize,
) -> *const c_char {
    // SAFETY: the header's contract.
    unsafe { part(iter, klen, Cursor::key) }
}

/// Its value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_value(
    iter: *const leveldb_iterator_t,
    vlen: *mut usize,
) -> *const c_char {
    // SAFETY: the header's contract.
    unsafe { part(iter, vlen, Cursor::value) }
}

/// Why the last move has failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_iter_get_error(iter: *const leveldb_iterator_t, errptr: *mut *mut c_char) {
    // SAFETY: the header's contract.
    unsafe {
        guard(errptr, (), || match &args::handle(iter, "iterator")?.error {
            None => Ok(()),
            Some(fail) => Err(fail.clone()),
        });
    }
}
