//! Batches.

use std::ffi::{c_char, c_void};

use c_abi::Fail;
use ringdb::WriteBatch;

use crate::args;
use crate::report::{invalid, quiet};

/// Writes that happen together. The keys and values lie one behind the other.
#[derive(Default)]
pub struct leveldb_writebatch_t {
    bytes: Vec<u8>,
    ops: Vec<Op>,
    /// The first thing wrong with it, told when it is written.
    wrong: Option<Fail>,
}

/// One write, by the lengths of its parts.
#[derive(Clone, Copy)]
struct Op {
    key: usize,
    /// `None`: a deletion.
    value: Option<usize>,
}

type Put = unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize);
type Deleted = unsafe extern "C" fn(*mut c_void, *const c_char, usize);

impl leveldb_writebatch_t {
    fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.ops.push(Op { key: key.len(), value: value.map(<[u8]>::len) });
    }

    /// The writes in their order.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut rest = self.bytes.as_slice();
        self.ops.iter().map(move |op| {
            let (key, behind) = rest.split_at(op.key);
            let (value, behind) = behind.split_at(op.value.unwrap_or(0));
            rest = behind;
            (key, op.value.map(|_| value))
        })
    }

    /// The same for ringdb.
    pub(crate) fn to_ringdb(&self) -> Result<WriteBatch, Fail> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        let mut batch = WriteBatch::new();
        for (key, value) in self.writes() {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        Ok(batch)
    }
}

/// An empty batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_create() -> *mut leveldb_writebatch_t {
    quiet(std::ptr::null_mut(), || Ok(args::give(leveldb_writebatch_t::default())))
}

/// Frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_destroy(batch: *mut leveldb_writebatch_t) {
    // SAFETY: the header's contract.
    unsafe { args::free(batch) }
}

/// Forgets the writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_clear(batch: *mut leveldb_writebatch_t) {
    quiet((), || {
        // SAFETY: the header's contract.
        let batch = unsafe { args::handle_mut(batch, "batch") }?;
        batch.bytes.clear();
        batch.ops.clear();
        batch.wrong = None;
        Ok(())
    });
}

/// Adds a write whose parts are as `parts` finds them; what is wrong with them, the batch remembers.
///
/// # Safety
/// `batch` is NULL or live, and nobody else uses it meanwhile.
unsafe fn add<'a>(
    batch: *mut leveldb_writebatch_t,
    parts: impl FnOnce() -> Result<(&'a [u8], Option<&'a [u8]>), Fail>,
) {
    quiet((), || {
        // SAFETY: the caller's promise.
        let batch = unsafe { args::handle_mut(batch, "batch") }?;
        match parts() {
            Ok((key, value)) => batch.add(key, value),
            Err(wrong) => drop(batch.wrong.get_or_insert(wrong)),
        }
        Ok(())
    });
}

/// Adds a put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_put(
    batch: *mut leveldb_writebatch_t,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
) {
    // SAFETY: the header's contract.
    unsafe { add(batch, || Ok((args::bytes(key, klen, "key")?, Some(args::bytes(val, vlen, "value")?)))) }
}

/// Adds a deletion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_delete(
    batch: *mut leveldb_writebatch_t,
    key: *const c_char,
    klen: usize,
) {
    // SAFETY: the header's contract.
    unsafe { add(batch, || Ok((args::bytes(key, klen, "key")?, None))) }
}

/// Shows the writes in their order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_iterate(
    batch: *const leveldb_writebatch_t,
    state: *mut c_void,
    put: Option<Put>,
    deleted: Option<Deleted>,
) {
    quiet((), || {
        // SAFETY: the header's contract.
        let batch = unsafe { args::handle(batch, "batch") }?;
        let (Some(put), Some(deleted)) = (put, deleted) else {
            return Err(invalid("a callback is NULL"));
        };
        for (key, value) in batch.writes() {
            let first = key.as_ptr().cast();
            // SAFETY: the header's contract of the callbacks; all pointers live for the calls.
            unsafe {
                match value {
                    Some(value) => put(state, first, key.len(), value.as_ptr().cast(), value.len()),
                    None => deleted(state, first, key.len()),
                }
            }
        }
        Ok(())
    });
}

/// Adds the writes of another batch, which may be the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_append(
    destination: *mut leveldb_writebatch_t,
    source: *const leveldb_writebatch_t,
) {
    quiet((), || {
        // SAFETY: the header's contract. Copied first, for both may be one.
        let (bytes, ops, wrong) = unsafe {
            let source = args::handle(source, "batch")?;
            (source.bytes.clone(), source.ops.clone(), source.wrong.clone())
        };
        // SAFETY: the header's contract.
        let to = unsafe { args::handle_mut(destination, "batch") }?;
        to.bytes.extend_from_slice(&bytes);
        to.ops.extend_from_slice(&ops);
        to.wrong = to.wrong.take().or(wrong);
        Ok(())
    });
}
