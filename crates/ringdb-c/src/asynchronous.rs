//! Requests that are answered by callbacks.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

use ringdb::Value;

use crate::args::{self, ringdb_read_options, ringdb_slice, ringdb_write_options};
use crate::callback::deliver;
use crate::result::{Fail, OK, User, failed, guard, guarded, report, ringdb_error};
use crate::store::{of_part, ringdb_db};
use crate::task::{Cancel, start};
use crate::value::{free, ringdb_value, ringdb_values};
use crate::write::ringdb_batch;

/// A request that can be cancelled.
pub struct ringdb_request(Arc<dyn Cancel>);

/// The callbacks of the header.
pub type ringdb_get_callback =
    Option<unsafe extern "C" fn(*mut c_void, i32, *mut ringdb_value, *const ringdb_error)>;
/// Of many keys.
pub type ringdb_multi_get_callback =
    Option<unsafe extern "C" fn(*mut c_void, i32, *mut ringdb_values, *const ringdb_error)>;
/// Of writes.
pub type ringdb_done_callback = Option<unsafe extern "C" fn(*mut c_void, i32, *const ringdb_error)>;

fn callback<F>(callback: Option<F>) -> Result<F, Fail> {
    callback.ok_or_else(|| Fail::invalid("the callback is NULL"))
}

/// Calls, in its turn, `call` with an answer's code, what the caller is given, and an error struct.
fn answered<T>(
    result: ringdb::Result<(i32, *mut T)>,
    call: impl FnOnce(i32, *mut T, *const ringdb_error) + 'static,
) where
    T: 'static,
{
    deliver(move || {
        let mut err = MaybeUninit::<ringdb_error>::uninit();
        let (code, value, failed) = match result {
            Ok((code, value)) => (code, value, Fail::new(OK, "")),
            Err(e) => {
                let fail = failed(e);
                (fail.code, null_mut(), fail)
            }
        };
        // SAFETY: a place for the struct.
        unsafe { report(err.as_mut_ptr(), failed.code, failed.errno, &failed.message) };
        call(code, value, err.as_ptr());
    });
}

/// Where the caller wants the handle of a request, if it wants one.
#[derive(Clone, Copy)]
struct Place(*mut *mut ringdb_request);

impl Place {
    fn put(self, request: Option<Arc<dyn Cancel>>) {
        if !self.0.is_null() {
            let handle = request.map_or(null_mut(), |r| Box::into_raw(Box::new(ringdb_request(r))));
            // SAFETY: a place of the caller.
            unsafe { self.0.write(handle) };
        }
    }
}

/// Asks for a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_get_async(
    db: *const ringdb_db,
    key: *const c_void,
    key_len: usize,
    how: *const ringdb_read_options,
    done: ringdb_get_callback,
    user: *mut c_void,
    request: *mut *mut ringdb_request,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let (done, user) = (callback(done)?, User(user));
        // SAFETY: the header's contract.
        let (db, key, how) = unsafe {
            (args::handle(db, "store")?, args::bytes(key, key_len, "key")?, args::read_options(how)?)
        };
        let told = move |got: ringdb::Result<Option<Value>>| {
            let user = user;
            // SAFETY: the caller's own function, with what it asked for.
            answered(got.map(ringdb_value::give_or_null), move |code, value, err| unsafe {
                done(user.0, code, value, err);
            });
        };
        start(of_part!(db.get_async_with(key, &how)), told, |handle| Place(request).put(handle));
        Ok(OK)
    })
}

/// Asks for many values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_multi_get_async(
    db: *const ringdb_db,
    keys: *const ringdb_slice,
    count: usize,
    how: *const ringdb_read_options,
    done: ringdb_multi_get_callback,
    user: *mut c_void,
    request: *mut *mut ringdb_request,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let (done, user) = (callback(done)?, User(user));
        // SAFETY: the header's contract.
        let (db, keys, how) =
            unsafe { (args::handle(db, "store")?, args::keys(keys, count)?, args::read_options(how)?) };
        let told = move |got: ringdb::Result<Vec<Option<Value>>>| {
            let user = user;
            // SAFETY: the caller's own function, with what it asked for.
            answered(got.map(|all| (OK, ringdb_values::give(all))), move |code, values, err| unsafe {
                done(user.0, code, values, err);
            });
        };
        start(of_part!(db.multi_get_async_with(&keys, &how)), told, |handle| Place(request).put(handle));
        Ok(OK)
    })
}

/// Tells a callback how a write ended.
fn tell_done(
    done: unsafe extern "C" fn(*mut c_void, i32, *const ringdb_error),
    user: User,
) -> impl FnOnce(ringdb::Result<()>) + Send {
    move |result| {
        let user = user;
        // SAFETY: the caller's own function.
        answered(result.map(|()| (OK, null_mut::<()>())), move |code, _, err| unsafe {
            done(user.0, code, err)
        });
    }
}

/// Commits a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_write_async(
    db: *const ringdb_db,
    batch: *const ringdb_batch,
    how: *const ringdb_write_options,
    done: ringdb_done_callback,
    user: *mut c_void,
    request: *mut *mut ringdb_request,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let (done, user) = (callback(done)?, User(user));
        // SAFETY: the header's contract.
        let (db, batch, how) =
            unsafe { (args::handle(db, "store")?, args::handle(batch, "batch")?, args::write_options(how)?) };
        db.writable()?;
        let batch = batch.0.take("batch")?.clone();
        start(db.db.write_async(batch, &how), tell_done(done, user), |handle| Place(request).put(handle));
        Ok(OK)
    })
}

/// Makes everything durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_sync_async(
    db: *const ringdb_db,
    done: ringdb_done_callback,
    user: *mut c_void,
    request: *mut *mut ringdb_request,
    err: *mut ringdb_error,
) -> i32 {
    guard(err, || {
        let (done, user) = (callback(done)?, User(user));
        // SAFETY: the header's contract.
        let db = unsafe { args::handle(db, "store")? };
        start(db.db.sync_async(), tell_done(done, user), |handle| Place(request).put(handle));
        Ok(OK)
    })
}

/// Cancels a request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_request_cancel(request: *const ringdb_request) -> i32 {
    // SAFETY: the header's contract.
    let request = unsafe { request.as_ref() };
    guarded(0, || request.map_or(0, |r| i32::from(r.0.cancel())))
}

/// Gives its handle back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringdb_request_free(request: *mut ringdb_request) {
    // SAFETY: the header's contract.
    unsafe { free(request) }
}
