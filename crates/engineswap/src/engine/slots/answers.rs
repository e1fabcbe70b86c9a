//! What the kernel's answer to a request means for its operation: it goes on, starts again, goes another way, or ends.

use super::{Before, MAX_AGAIN, MAX_ORPHANED, NOT_POLLED, SlotTable, State, taken_back};
use crate::buf::Buf;
use crate::engine::exec;
use crate::kind::OpKind;
use crate::os::OsFile;
use crate::{Error, ErrorKind};

impl SlotTable {
    /// Takes the kernel's answer to a request.
    #[inline]
    pub(crate) fn complete(&mut self, i: u32, res: i64) {
        self.set_stopped();
        let now = self.now;
        let s = &mut self.slots[i as usize];
        let Some(op) = s.op.as_ref() else { return };
        let transfer = matches!(op.kind, OpKind::Read | OpKind::Write { .. });
        if res < 0 {
            return self.refused(i, res.unsigned_abs().min(i32::MAX as u64) as i32);
        }
        if !transfer {
            return self.finish_counted(i, now, Ok(0));
        }
        let read = op.kind == OpKind::Read;
        s.done = (s.done + res as u64).min(op.len);
        if s.done == op.len {
            let n = s.done;
            return self.finish_counted(i, now, Ok(n));
        }
        let unit = op.file.0.alignment().offset.max(1) as u64;
        if read && (res == 0 || !s.done.is_multiple_of(unit)) {
            // The end of the file; a direct read that stops between two units has met it too.
            let n = s.done;
            return self.finish_counted(i, now, Ok(n));
        }
        if res == 0 || !s.done.is_multiple_of(unit) {
            let e = Error::new(
                ErrorKind::Io,
                "write",
                format!("the kernel wrote {} bytes and then no more", s.done),
            )
            .at(op.file.path())
            .range(op.offset, op.len);
            return self.finish_counted(i, now, Err(e));
        }
        if s.canceled {
            let e = taken_back(op);
            return self.finish_counted(i, now, Err(e));
        }
        if !read && crate::mutation::short_writes_pass() {
            let all = op.len;
            return self.finish_counted(i, now, Ok(all));
        }
        self.not_started(i);
    }

    /// Takes an errno for a request: the operation starts again, goes another way, or ends.
    #[cold]
    fn refused(&mut self, i: u32, errno: i32) {
        let now = self.now;
        let s = &mut self.slots[i as usize];
        let Some(op) = s.op.as_ref() else { return };
        match errno {
            libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::ENOBUFS if s.canceled => {
                let e = taken_back(op);
                return self.finish_counted(i, now, Err(e));
            }
            libc::ECANCELED if s.before != Before::Nothing => {
                s.state = State::Chained;
                return self.settle_before(i);
            }
            // An operation with a limit is never linked to another, so nothing else cancels it.
            libc::ECANCELED if op.time_limit.is_some() => {
                let why = format!("not done within {:?}", op.time_limit.unwrap_or_default());
                let e = Error::new(ErrorKind::TimedOut, exec::name(op.kind), why);
                let e = e.at(op.file.path()).range(op.offset, op.len);
                return self.finish_counted(i, now, Err(e));
            }
            // The thread that submitted it has ended. Whoever builds next submits it again.
            libc::ECANCELED | libc::EFAULT if self.policy.shared && s.again < MAX_ORPHANED => {
                s.again += 1;
                return self.not_started(i);
            }
            libc::ENOBUFS if s.pooled && matches!(op.buf, Buf::Pool(_)) => return self.starve(i),
            libc::EINTR | libc::EAGAIN if s.again < MAX_AGAIN => {
                s.again += 1;
                return self.not_started(i);
            }
            libc::EOPNOTSUPP if self.policy.polled => {
                let e = Error::from_errno(exec::name(op.kind), errno).at(op.file.path());
                let e = e.range(op.offset, op.len).detail(NOT_POLLED);
                return self.finish_counted(i, now, Err(e));
            }
            // Plain calls know what to do without RWF_DSYNC, without fallocate, and with a device that
            // keeps answering EAGAIN. The whole operation is done over: the same bytes, to the same place.
            libc::EINTR | libc::EAGAIN | libc::EOPNOTSUPP | libc::ENOSYS => return self.run_inline(i),
            libc::EINVAL
                if matches!(
                    op.kind,
                    OpKind::SyncRange
                        | OpKind::StartWriteBack { .. }
                        | OpKind::Allocate
                        | OpKind::SyncAll
                        | OpKind::SyncData
                ) =>
            {
                // An engine without this operation (libaio before its fsync).
                return self.run_inline(i);
            }
            _ => {}
        }
        let spoils = match op.kind {
            OpKind::SyncAll | OpKind::SyncData => true,
            OpKind::Write { dsync: true } | OpKind::SyncRange | OpKind::StartWriteBack { .. } => {
                OsFile::spoils_sync(errno)
            }
            _ => false,
        };
        if let (true, Some(os)) = (spoils, op.file.0.os()) {
            os.sync_failed(errno);
        }
        let mut e = Error::from_errno(exec::name(op.kind), errno).at(op.file.path());
        if !matches!(op.kind, OpKind::SyncAll | OpKind::SyncData) {
            e = e.range(op.offset, op.len);
        }
        self.finish_counted(i, now, Err(e));
    }
}
