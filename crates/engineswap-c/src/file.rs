//! Files and lone operations on them.

use std::ffi::{c_char, c_int, c_void};

use engineswap::{Direct, File, OpenHow};

use crate::args;
use crate::engine::engineswap_engine;
use crate::result::{Fail, OK, engineswap_error, guard};

/// A file's handle.
pub struct engineswap_file {
    pub(crate) file: File,
}

const READ: u32 = 1;
const WRITE: u32 = 2;
const CREATE: u32 = 4;
const CREATE_NEW: u32 = 8;
const TRUNCATE: u32 = 16;
const DIRECT_PREFER: u32 = 32;
const DIRECT_REQUIRE: u32 = 64;
const DONTCACHE: u32 = 128;
const ALL: u32 = 255;
const WAIT_BEFORE: u32 = 1;

fn how(flags: u32) -> Result<OpenHow, Fail> {
    let has = |f| flags & f != 0;
    if flags & !ALL != 0 {
        return Err(Fail::invalid(format!("unknown flags {:#x} of engineswap_file_open", flags & !ALL)));
    }
    if !has(READ) && !has(WRITE) {
        return Err(Fail::invalid("a file is opened with ENGINESWAP_READ, ENGINESWAP_WRITE or both"));
    }
    if !has(WRITE) && has(CREATE | CREATE_NEW | TRUNCATE) {
        return Err(Fail::invalid("making or cutting a file needs ENGINESWAP_WRITE"));
    }
    let direct = match (has(DIRECT_PREFER), has(DIRECT_REQUIRE)) {
        (_, true) => Direct::Require,
        (true, false) => Direct::Prefer,
        (false, false) => Direct::No,
    };
    Ok(OpenHow {
        read: has(READ),
        write: has(WRITE),
        create: has(CREATE),
        create_new: has(CREATE_NEW),
        truncate: has(TRUNCATE),
        direct,
        dontcache: has(DONTCACHE),
    })
}

/// Opens a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_open(
    engine: *const engineswap_engine,
    path: *const c_char,
    flags: u32,
    out: *mut *mut engineswap_file,
    err: *mut engineswap_error,
) -> i32 {
    guard(err, || {
        let out = args::out(out)?;
        // SAFETY: the header's contract.
        let (engine, path) = unsafe { (args::handle(engine, "engine")?, args::path(path)?) };
        let file = engine.io.open(path, &how(flags)?)?;
        let handle = Box::new(engineswap_file { file });
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(Box::into_raw(handle)) };
        Ok(OK)
    })
}

/// Closes a file's handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_close(file: *mut engineswap_file) {
    if !file.is_null() {
        guard(std::ptr::null_mut(), || {
            // SAFETY: made by `engineswap_file_open`, closed once.
            drop(unsafe { Box::from_raw(file) });
            Ok(OK)
        });
    }
}

/// The descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_fd(file: *const engineswap_file) -> c_int {
    // SAFETY: the header's contract.
    unsafe { file.as_ref() }.and_then(|f| f.file.raw_fd()).unwrap_or(-1)
}

/// Whether it is direct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_is_direct(file: *const engineswap_file) -> i32 {
    // SAFETY: the header's contract.
    unsafe { file.as_ref() }.is_some_and(|f| f.file.is_direct()).into()
}

/// Does `call` with the file.
///
/// # Safety
/// The header's contract of `file`.
unsafe fn with_file(
    file: *const engineswap_file,
    err: *mut engineswap_error,
    call: impl FnOnce(&engineswap_file) -> Result<(), Fail>,
) -> i32 {
    guard(err, || {
        // SAFETY: the caller's promise.
        call(unsafe { args::handle(file, "file")? }).map(|()| OK)
    })
}

/// What transfers must be aligned to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_alignment(
    file: *const engineswap_file,
    memory: *mut u32,
    offset: *mut u32,
    err: *mut engineswap_error,
) -> i32 {
    let call = |f: &engineswap_file| {
        let a = f.file.alignment();
        for (out, n) in [(memory, a.memory), (offset, a.offset)] {
            if !out.is_null() {
                // SAFETY: not NULL, so a place of the caller.
                unsafe { out.write(n) };
            }
        }
        Ok(())
    };
    // SAFETY: the header's contract.
    unsafe { with_file(file, err, call) }
}

/// Reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_read(
    file: *const engineswap_file,
    buffer: *mut c_void,
    len: usize,
    offset: u64,
    purpose: u32,
    done: *mut usize,
    err: *mut engineswap_error,
) -> i32 {
    let call = |f: &engineswap_file| {
        let (done, purpose) = (args::out(done)?, args::purpose(purpose)?);
        let len = args::memory(buffer.cast(), len as u64, "buffer")?;
        let bytes: &mut [u8] = match len {
            0 => &mut [],
            // SAFETY: the header's contract: `len` bytes that are the caller's, lent for this call.
            _ => unsafe { std::slice::from_raw_parts_mut(buffer.cast(), len) },
        };
        let n = f.file.read_at(bytes, offset, purpose)?;
        // SAFETY: not NULL, so a place of the caller.
        unsafe { done.write(n) };
        Ok(())
    };
    // SAFETY: the header's contract.
    unsafe { with_file(file, err, call) }
}

/// # Safety
/// The header's contract of a write.
unsafe fn write(
    file: *const engineswap_file,
    (buffer, len): (*const c_void, usize),
    (offset, dsync): (u64, bool),
    purpose: u32,
    err: *mut engineswap_error,
) -> i32 {
    let call = |f: &engineswap_file| {
        let purpose = args::purpose(purpose)?;
        let len = args::memory(buffer.cast(), len as u64, "buffer")?;
        let bytes: &[u8] = match len {
            0 => &[],
            // SAFETY: the caller's promise: `len` bytes, lent for this call.
            _ => unsafe { std::slice::from_raw_parts(buffer.cast(), len) },
        };
        match dsync {
            true => f.file.write_all_at_dsync(bytes, offset, purpose)?,
            false => f.file.write_all_at(bytes, offset, purpose)?,
        }
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { with_file(file, err, call) }
}

/// Writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_write(
    file: *const engineswap_file,
    buffer: *const c_void,
    len: usize,
    offset: u64,
    purpose: u32,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { write(file, (buffer, len), (offset, false), purpose, err) }
}

/// Writes, durable on return.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_write_dsync(
    file: *const engineswap_file,
    buffer: *const c_void,
    len: usize,
    offset: u64,
    purpose: u32,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { write(file, (buffer, len), (offset, true), purpose, err) }
}

/// fdatasync.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_sync_data(
    file: *const engineswap_file,
    purpose: u32,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { with_file(file, err, |f| Ok(f.file.sync_data(args::purpose(purpose)?)?)) }
}

/// fsync.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_sync_all(
    file: *const engineswap_file,
    purpose: u32,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { with_file(file, err, |f| Ok(f.file.sync_all(args::purpose(purpose)?)?)) }
}

/// Starts write-back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_start_write_back(
    file: *const engineswap_file,
    offset: u64,
    len: u64,
    flags: u32,
    purpose: u32,
    err: *mut engineswap_error,
) -> i32 {
    let call = |f: &engineswap_file| {
        if flags & !WAIT_BEFORE != 0 {
            return Err(Fail::invalid(format!("unknown flags {flags:#x}; there is ENGINESWAP_WAIT_BEFORE")));
        }
        Ok(f.file.start_write_back(offset, len, flags & WAIT_BEFORE != 0, args::purpose(purpose)?)?)
    };
    // SAFETY: the header's contract.
    unsafe { with_file(file, err, call) }
}

/// Cuts or grows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_set_len(
    file: *const engineswap_file,
    len: u64,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { with_file(file, err, |f| Ok(f.file.set_len(len)?)) }
}

/// The file's length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_len(
    file: *const engineswap_file,
    out: *mut u64,
    err: *mut engineswap_error,
) -> i32 {
    let call = |f: &engineswap_file| {
        let out = args::out(out)?;
        let len = f.file.len()?;
        // SAFETY: not NULL, so a place of the caller.
        unsafe { out.write(len) };
        Ok(())
    };
    // SAFETY: the header's contract.
    unsafe { with_file(file, err, call) }
}
