//! The io_uring system calls and the structures that they share with the kernel (linux/io_uring.h).

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

pub(super) const SETUP_IOPOLL: u32 = 1 << 0;
pub(super) const SETUP_SQPOLL: u32 = 1 << 1;
pub(super) const SETUP_SQ_AFF: u32 = 1 << 2;
pub(super) const SETUP_CLAMP: u32 = 1 << 4;
pub(super) const SETUP_ATTACH_WQ: u32 = 1 << 5;
pub(super) const SETUP_SUBMIT_ALL: u32 = 1 << 7;
pub(super) const SETUP_COOP_TASKRUN: u32 = 1 << 8;
pub(super) const SETUP_TASKRUN_FLAG: u32 = 1 << 9;
pub(super) const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
pub(super) const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
pub(super) const SETUP_NO_SQARRAY: u32 = 1 << 16;
pub(super) const SETUP_HYBRID_IOPOLL: u32 = 1 << 17;

pub(super) const FEAT_SINGLE_MMAP: u32 = 1 << 0;
pub(super) const FEAT_NODROP: u32 = 1 << 1;
/// Came with Linux 5.6, like the plain read and write requests.
pub(super) const FEAT_RW_CUR_POS: u32 = 1 << 3;
/// Came with Linux 6.12.
pub(super) const FEAT_MIN_TIMEOUT: u32 = 1 << 15;

pub(super) const ENTER_GETEVENTS: u32 = 1 << 0;
pub(super) const ENTER_SQ_WAKEUP: u32 = 1 << 1;
pub(super) const ENTER_SQ_WAIT: u32 = 1 << 2;
pub(super) const ENTER_EXT_ARG: u32 = 1 << 3;
pub(super) const ENTER_REGISTERED_RING: u32 = 1 << 4;

pub(super) const UNREGISTER_BUFFERS: u32 = 1;
pub(super) const UNREGISTER_FILES: u32 = 3;
pub(super) const REGISTER_FILES_UPDATE: u32 = 6;
pub(super) const REGISTER_PROBE: u32 = 8;
pub(super) const REGISTER_FILES2: u32 = 13;
pub(super) const REGISTER_BUFFERS2: u32 = 15;
pub(super) const REGISTER_BUFFERS_UPDATE: u32 = 16;
pub(super) const REGISTER_CLONE_BUFFERS: u32 = 30;
pub(super) const RSRC_SPARSE: u32 = 1 << 0;
pub(super) const CLONE_DST_REPLACE: u32 = 1 << 1;
pub(super) const REGISTER_IOWQ_AFF: u32 = 17;
pub(super) const REGISTER_IOWQ_MAX_WORKERS: u32 = 19;
pub(super) const REGISTER_RING_FDS: u32 = 20;
pub(super) const UNREGISTER_RING_FDS: u32 = 21;

pub(super) const REGISTER_PBUF_RING: u32 = 22;
pub(super) const UNREGISTER_PBUF_RING: u32 = 23;
/// A completion's flag: it has a buffer of a pool, whose number is in the upper 16 bits.
pub(super) const CQE_BUFFER: u32 = 1 << 0;

pub(super) const SQ_NEED_WAKEUP: u32 = 1 << 0;

pub(super) const SQ_CQ_OVERFLOW: u32 = 1 << 1;
pub(super) const SQ_TASKRUN: u32 = 1 << 2;

pub(super) const OFF_SQ_RING: libc::off_t = 0;
pub(super) const OFF_SQES: libc::off_t = 0x1000_0000;

pub(super) const OP_NOP: u8 = 0;
pub(super) const OP_READV: u8 = 1;
pub(super) const OP_WRITEV: u8 = 2;
pub(super) const OP_FSYNC: u8 = 3;
pub(super) const OP_READ_FIXED: u8 = 4;
pub(super) const OP_WRITE_FIXED: u8 = 5;
pub(super) const OP_SYNC_FILE_RANGE: u8 = 8;
pub(super) const OP_ASYNC_CANCEL: u8 = 14;
pub(super) const OP_LINK_TIMEOUT: u8 = 15;
pub(super) const OP_FALLOCATE: u8 = 17;
pub(super) const OP_READ: u8 = 22;
pub(super) const OP_WRITE: u8 = 23;
/// Came with Linux 6.15.
pub(super) const OP_READV_FIXED: u8 = 60;
pub(super) const OP_WRITEV_FIXED: u8 = 61;

pub(super) const IOSQE_FIXED_FILE: u8 = 1 << 0;
pub(super) const IOSQE_IO_LINK: u8 = 1 << 2;
pub(super) const IOSQE_ASYNC: u8 = 1 << 4;
pub(super) const IOSQE_BUFFER_SELECT: u8 = 1 << 5;
pub(super) const FSYNC_DATASYNC: u32 = 1 << 0;

/// struct io_uring_sqe: one request.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Sqe {
    pub(super) opcode: u8,
    pub(super) flags: u8,
    pub(super) ioprio: u16,
    pub(super) fd: i32,
    pub(super) off: u64,
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) op_flags: u32,
    pub(super) user_data: u64,
    pub(super) rest: [u64; 3],
}

/// struct io_uring_cqe: one completion.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Cqe {
    pub(super) user_data: u64,
    pub(super) res: i32,
    pub(super) flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SqOffsets {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) ring_mask: u32,
    pub(super) ring_entries: u32,
    pub(super) flags: u32,
    pub(super) dropped: u32,
    pub(super) array: u32,
    resv1: u32,
    resv2: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct CqOffsets {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) ring_mask: u32,
    pub(super) ring_entries: u32,
    pub(super) overflow: u32,
    pub(super) cqes: u32,
    pub(super) flags: u32,
    resv1: u32,
    resv2: u64,
}

/// struct io_uring_params.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Params {
    pub(super) sq_entries: u32,
    pub(super) cq_entries: u32,
    pub(super) flags: u32,
    pub(super) sq_thread_cpu: u32,
    pub(super) sq_thread_idle: u32,
    pub(super) features: u32,
    pub(super) wq_fd: u32,
    pub(super) resv: [u32; 3],
    pub(super) sq_off: SqOffsets,
    pub(super) cq_off: CqOffsets,
}

const _: () = assert!(size_of::<Sqe>() == 64 && size_of::<Cqe>() == 16 && size_of::<Params>() == 120);
const _: () = assert!(size_of::<GeteventsArg>() == 24);

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

pub(super) fn setup(entries: u32, params: &mut Params) -> Result<OwnedFd, i32> {
    // SAFETY: the kernel reads and fills `params`, which has its layout.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, params as *mut Params) };
    if fd < 0 {
        return Err(errno());
    }
    // SAFETY: the kernel has just given us this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// struct io_uring_getevents_arg.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct GeteventsArg {
    sigmask: u64,
    sigmask_sz: u32,
    min_wait_usec: u32,
    ts: u64,
}

/// Enters the kernel; a `min_wait_us` above 0 bounds the wait for more than one completion.
pub(super) fn enter(
    fd: RawFd,
    to_submit: u32,
    min_complete: u32,
    flags: u32,
    min_wait_us: u32,
) -> Result<u32, i32> {
    let arg = GeteventsArg { min_wait_usec: min_wait_us, ..GeteventsArg::default() };
    let (flags, arg, size) = match min_wait_us {
        0 => (flags, std::ptr::null(), 0),
        _ => (flags | ENTER_EXT_ARG, &raw const arg, size_of::<GeteventsArg>()),
    };
    // SAFETY: the argument is null or lives for the call; what the submitted requests point to is the caller's
    // promise when it puts them into the ring.
    let n = unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, to_submit, min_complete, flags, arg, size) };
    if n < 0 { Err(errno()) } else { Ok(n as u32) }
}

/// io_uring_register.
///
/// # Safety
/// `arg` and `n` are what `opcode` asks for, and what they point to lives for the call (and, for memory that is
/// registered, until it is taken out again).
pub(super) unsafe fn register(fd: RawFd, opcode: u32, arg: *const libc::c_void, n: u32) -> Result<u32, i32> {
    // SAFETY: the caller's promise.
    let r = unsafe { libc::syscall(libc::SYS_io_uring_register, fd, opcode, arg, n) };
    if r < 0 { Err(errno()) } else { Ok(r as u32) }
}

/// Gives a ring a table of `n` empty places, of buffers or files (`opcode`; Linux 5.19).
pub(super) fn register_sparse(fd: RawFd, opcode: u32, n: u32) -> Result<(), i32> {
    // struct io_uring_rsrc_register: number and flags, reserved, data, tags.
    let arg = [u64::from(n) | u64::from(RSRC_SPARSE) << 32, 0, 0, 0];
    // SAFETY: that structure, which the kernel reads.
    unsafe { register(fd, opcode, arg.as_ptr().cast(), size_of_val(&arg) as u32) }.map(drop)
}
