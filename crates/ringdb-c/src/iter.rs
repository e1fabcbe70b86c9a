//! Iterators.

use std::ffi::c_void;

use std::sync::Arc;

use ringdb::{Iter, Transaction, TransactionRange, Value};

use crate::args::{self, ringdb_read_options, ringdb_slice};
use crate::result::{ABSENT, Alone, FOUND, Fail, OK, failed, guard, ringdb_error};
use crate::store::{give, of_part, ringdb_db};
use crate::value::free;

/// An iterator, and the pair that it stands on.
pub struct ringdb_iter(Alone<(Pairs, (Value, Value))>);

/// What it goes through.
enum Pairs {
    Plain(Iter),
    Tracked(Box<Tracked>),
}

/// A range of a transaction, which it keeps. The range goes first.
struct Tracked {
    range: TransactionRange<'static>,
    _of: Arc<Transaction>,
}

type Pair = Option<ringdb::Result<(Value, Value)>>;

impl Pairs {
    #[inline]
    fn next(&mut self) -> Pair {
        match self {
            Pairs::Plain(iter) => iter.next(),
            Pairs::Tracked(tracked) => tracked.range.next(),
        }
    }

    #[inline]
    fn next_back(&mut self) -> Pair {
        match self {
            Pairs::Plain(iter) => iter.next_back(),
            Pairs::Tracked(tracked) => tracked.range.next_back(),
        }
    }
}

impl ringdb_iter {
    fn new(iter: Iter) -> ringdb_iter {
        ringdb_iter(Alone::new((Pairs::Plain(iter), Default::default())))
    }

    /// The pairs of a range of a transaction.
    pub(crate) fn of_transaction(
        transaction: &Arc<Transaction>,
        range: impl FnOnce(&'static Transaction) -> TransactionRange<'static>,
    ) -> ringdb_iter {
        let of = Arc::clone(transaction);
        // SAFETY: the transaction stays where it is as long as `_of` holds it, which is dropped after the range; and
        // neither leaves the handle.
        let range = range(unsafe { &*Arc::as_ptr(&of) });
        let pairs = Pairs::Tracked(Box::new(Tracked { range, _of: of }));
        ringdb_iter(Alone::new((pairs, Default::default())))
    }
}

/// How to read, in a scan.
///
/// # Safety
/// The header's contract of `how`.
unsafe fn scanning(how: *const ringdb_read_options) -> Result<ringdb::ReadOptions, Fail> {
    // SAFETY: the caller's promise.
    let how = unsafe { args::read_options(how)? };
    match how.deadline {
        None => Ok(how),
        Some(_) => Err(Fail::invalid("iterators have no deadline")),
    }
}

/// A range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_range(
    db: *const ringdb_db,
    from: *const ringdb_slice,
    to: *const ringdb_slice,
    flags: u32,
    how: *const ringdb_read_options,
    out: *mut *mut ringdb_iter,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (db, range, how) =
            unsafe { (args::handle(db, "store")?, args::bounds(from, to, flags)?, scanning(how)?) };
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, ringdb_iter::new(db.range(range, &how))) };
        Ok(OK)
    })
}

/// The keys that begin with something.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_prefix(
    db: *const ringdb_db,
    prefix: *const c_void,
    prefix_len: usize,
    how: *const ringdb_read_options,
    out: *mut *mut ringdb_iter,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (db, prefix, how) = unsafe {
            (args::handle(db, "store")?, args::bytes(prefix, prefix_len, "prefix")?, scanning(how)?)
        };
        let iter = of_part!(db.prefix_with(prefix, &how));
        // SAFETY: not NULL, so a place of the caller.
        unsafe { give(out, ringdb_iter::new(iter)) };
        Ok(OK)
    })
}

/// # Safety
/// The header's contract.
#[inline]
unsafe fn step(
    iter: *mut ringdb_iter,
    key: *mut ringdb_slice,
    value: *mut ringdb_slice,
    err: *mut ringdb_error,
    step: impl FnOnce(&mut Pairs) -> Pair,
) -> i32 {
    guard(err, || {
        // SAFETY: the caller's promise.
        let iter = unsafe { args::handle(iter, "iterator")? };
        let mut iter = iter.0.take("iterator")?;
        let Some(pair) = step(&mut iter.0) else { return Ok(ABSENT) };
        // The handle does not move, so the bytes of short values do not either.
        iter.1 = pair.map_err(failed)?;
        for (place, bytes) in [(key, &iter.1.0), (value, &iter.1.1)] {
            if !place.is_null() {
                // SAFETY: a place of the caller.
                unsafe { place.write(ringdb_slice::of(bytes)) };
            }
        }
        Ok(FOUND)
    })
}

/// The next pair from the front.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_iter_next(
    iter: *mut ringdb_iter,
    key: *mut ringdb_slice,
    value: *mut ringdb_slice,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { step(iter, key, value, err, Pairs::next) }
}

/// The next pair from the back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_iter_next_back(
    iter: *mut ringdb_iter,
    key: *mut ringdb_slice,
    value: *mut ringdb_slice,
    err: *mut ringdb_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { step(iter, key, value, err, Pairs::next_back) }
}

/// Frees an iterator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_iter_free(iter: *mut ringdb_iter) {
    // SAFETY: the header's contract.
    unsafe { free(iter) }
}
