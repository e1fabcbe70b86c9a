//! What is said and asked of a file beside its bytes.

use engineswap::Advice;

use crate::args;
use crate::file::{engineswap_file, with_file};
use crate::result::{Fail, engineswap_error};

const WAIT_BEFORE: u32 = 1;

/// Which file it is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct engineswap_file_info {
    device: u64,
    inode: u64,
    generation: u64,
    len: u64,
    allocated: u64,
    links: u64,
    modified_ns: i64,
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

/// fallocate that keeps the length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_reserve(
    file: *const engineswap_file,
    offset: u64,
    len: u64,
    err: *mut engineswap_error,
) -> i32 {
    // SAFETY: the header's contract.
    unsafe { with_file(file, err, |f| Ok(f.file.reserve(offset, len)?)) }
}

/// posix_fadvise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_advise(
    file: *const engineswap_file,
    advice: u32,
    offset: u64,
    len: u64,
    err: *mut engineswap_error,
) -> i32 {
    let call = |f: &engineswap_file| {
        let advice = match advice {
            0 => Advice::Normal,
            1 => Advice::Sequential,
            2 => Advice::Random,
            3 => Advice::WillNeed,
            4 => Advice::DontNeed,
            n => return Err(Fail::invalid(format!("unknown advice {n}"))),
        };
        Ok(f.file.advise(advice, offset, len)?)
    };
    // SAFETY: the header's contract.
    unsafe { with_file(file, err, call) }
}

/// Which file it is, how large, and when it was changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engineswap_file_get_info(
    file: *const engineswap_file,
    out: *mut engineswap_file_info,
    size: usize,
    err: *mut engineswap_error,
) -> i32 {
    let call = |f: &engineswap_file| {
        let out = args::out(out)?;
        let i = f.file.info()?;
        let info = engineswap_file_info {
            device: i.device,
            inode: i.inode,
            generation: i.generation.map_or(u64::MAX, u64::from),
            len: i.len,
            allocated: i.allocated,
            links: i.links,
            modified_ns: i.modified_ns,
        };
        // SAFETY: the caller's struct has `size` bytes, and both are made of numbers of eight bytes alone.
        unsafe { args::struct_of_size(out, size, &info) }
    };
    // SAFETY: the header's contract.
    unsafe { with_file(file, err, call) }
}
