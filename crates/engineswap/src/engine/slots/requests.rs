//! What is left of an operation, as a request to the kernel.

use std::time::Duration;

use super::{MAX_TRANSFER, SlotTable};
use crate::buf::Buf;
use crate::engine::exec;
use crate::kind::OpKind;
use crate::os::{OsFile, SYNC_RANGE, start_write_back};

/// One request to the kernel: what is left of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) fd: i32,
    pub(crate) offset: u64,
    pub(crate) what: What,
    /// Known to be done by a kernel worker.
    pub(crate) punted: bool,
    /// It is all that is left of the operation.
    pub(crate) whole: bool,
    /// To be handed to a worker at once.
    pub(crate) force_async: bool,
    /// What is left of its time.
    pub(crate) limit: Option<Duration>,
    /// Of reads and writes: flags as of pwritev2, but for what `what` says.
    pub(crate) flags: i32,
}

/// The kind of a request, with memory that stays where it is while the slot is running.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Read {
        ptr: *mut u8,
        len: u32,
    },
    /// A read into a buffer that the kernel chooses from the operation's pool.
    Choose {
        len: u32,
    },
    ReadV {
        iov: *const libc::iovec,
        n: u32,
    },
    Write {
        ptr: *mut u8,
        len: u32,
        dsync: bool,
    },
    WriteV {
        iov: *const libc::iovec,
        n: u32,
        dsync: bool,
    },
    Sync {
        data_only: bool,
    },
    SyncRange {
        len: u64,
        flags: u32,
    },
    Allocate {
        len: u64,
    },
}

impl SlotTable {
    /// What is left of an operation as a request to the kernel; `None` if it is to be done by plain calls: a buffered
    /// write (the kernel would only hand it to a worker, unless that is what is wanted), a direct transfer that is not
    /// aligned, a file of another kind of engine, a wrong argument, a file whose sync has failed. With
    /// [`super::Policy::always`] a buffered write is a request, too.
    pub(crate) fn request(&mut self, i: u32) -> Option<Request> {
        let s = &mut self.slots[i as usize];
        let op = s.op.as_mut()?;
        let os: &OsFile = op.file.0.os()?;
        if os.other().is_some() != self.policy.simulated {
            return None;
        }
        if exec::check(op).is_err() {
            return None;
        }
        let (fd, flags) = (os.fd(), os.cache_flags());
        let direct = op.file.0.is_direct();
        let force_async = self.policy.workers && (self.policy.force_async || op.force_async);
        if self.policy.polled && !(direct && matches!(op.kind, OpKind::Read | OpKind::Write { .. })) {
            return None;
        }
        let limit = op.time_limit.map(|all| {
            let since = if s.started == 0 { 0 } else { self.now.saturating_sub(s.started) };
            all.saturating_sub(Duration::from_nanos(since))
        });
        let left = (op.len - s.done).min(MAX_TRANSFER);
        let offset = op.offset + s.done;
        let mut whole = true;
        let (what, punted) = match op.kind {
            OpKind::Read | OpKind::Write { .. } | OpKind::Allocate if op.len == 0 => return None,
            OpKind::Read | OpKind::Write { .. } => {
                let (write, dsync) = match op.kind {
                    OpKind::Write { dsync } => (true, dsync),
                    _ => (false, false),
                };
                let for_a_worker = write && !direct && !dsync && !self.policy.always;
                if for_a_worker && !force_async && op.time_limit.is_none()
                    || dsync && os.check_sync("write").is_err()
                {
                    return None;
                }
                if matches!(op.buf, Buf::None) {
                    return None;
                }
                if let Buf::Pool(_) = op.buf {
                    // Buffers of pools are aligned themselves.
                    if !self.policy.chooses || write || !os.is_aligned(std::ptr::null(), offset, left) {
                        return None;
                    }
                    let (what, punted) = (What::Choose { len: left as u32 }, force_async);
                    return Some(Request {
                        fd,
                        offset,
                        what,
                        punted,
                        whole: true,
                        force_async,
                        limit,
                        flags,
                    });
                }
                let ptr = op.buf.one_piece(s.done as usize).unwrap_or(std::ptr::null_mut());
                let len = left;
                if ptr.is_null() {
                    op.buf.vectors(&mut s.iov, s.done, left, libc::UIO_MAXIOV as usize);
                }
                let vectored = ptr.is_null();
                let aligned = match vectored {
                    true => os.are_aligned(&s.iov, offset),
                    false => os.is_aligned(ptr, offset, len),
                };
                if !aligned {
                    return None;
                }
                let covered = if vectored { s.iov.iter().map(|v| v.iov_len as u64).sum() } else { len };
                whole = s.done + covered == op.len;
                let (iov, n, len) = (s.iov.as_ptr(), s.iov.len() as u32, len as u32);
                let what = match (write, vectored) {
                    (false, false) => What::Read { ptr, len },
                    (false, true) => What::ReadV { iov, n },
                    (true, false) => What::Write { ptr, len, dsync },
                    (true, true) => What::WriteV { iov, n, dsync },
                };
                (what, write && !direct)
            }
            _ if op.kind != OpKind::Allocate && os.check_sync("sync").is_err() => return None,
            // io_uring has 32 bits for the length.
            OpKind::SyncRange | OpKind::StartWriteBack { .. } if op.len > u64::from(u32::MAX) => return None,
            OpKind::SyncAll => (What::Sync { data_only: false }, true),
            OpKind::SyncData => (What::Sync { data_only: true }, true),
            OpKind::SyncRange => (What::SyncRange { len: op.len, flags: SYNC_RANGE }, true),
            OpKind::StartWriteBack { wait_before } => {
                (What::SyncRange { len: op.len, flags: start_write_back(wait_before) }, true)
            }
            OpKind::Allocate => (What::Allocate { len: op.len }, true),
        };
        Some(Request { fd, offset, what, punted: punted || force_async, whole, force_async, limit, flags })
    }
}
