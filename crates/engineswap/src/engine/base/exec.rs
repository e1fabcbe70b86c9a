//! One operation of a queue, done at once by plain system calls.

use crate::op::{Buf, Op, OpKind};
use crate::probes::{self, Event};
use crate::{Error, ErrorKind, Result};

/// Does a lone operation; the result is that of its [`crate::Done`]. The buffer stays in the operation.
pub(crate) fn execute(op: &mut Op) -> Result<u64> {
    let event = if probes::on() { Event::of(op, true) } else { None };
    match event {
        None => perform(op),
        Some(event) => probes::around(|| event, |n| *n, || perform(op)),
    }
}

/// Does an operation of a queue, which fires its probes.
pub(crate) fn perform(op: &mut Op) -> Result<u64> {
    probes::quiet(|| plain(op))
}

fn plain(op: &mut Op) -> Result<u64> {
    check(op)?;
    let Op { kind, file, offset, len, buf, purpose, .. } = op;
    let (offset, len, purpose) = (*offset, *len, *purpose);
    let raw = &*file.0;
    match kind {
        OpKind::Read => {
            let n = match buf {
                Buf::Aligned(b) => raw.read_at(&mut b[..len as usize], offset, purpose)?,
                Buf::Frame(b) => raw.read_at(&mut b[..len as usize], offset, purpose)?,
                Buf::Foreign(b) => raw.read_at(&mut b.to_fill()[..len as usize], offset, purpose)?,
                Buf::Frames(v) => match raw.os() {
                    Some(os) => os.read_frames_at(v, len as usize, offset, purpose)?,
                    None => {
                        let mut n = 0;
                        for b in v {
                            let want = b.len().min(len as usize - n);
                            let k = raw.read_at(&mut b[..want], offset + n as u64, purpose)?;
                            n += k;
                            if k < want || n == len as usize {
                                break;
                            }
                        }
                        n
                    }
                },
                Buf::None => 0,
            };
            Ok(n as u64)
        }
        OpKind::Write { dsync } => {
            match buf {
                Buf::Aligned(b) => raw.write_all_at(&b[..len as usize], offset, *dsync, purpose)?,
                Buf::Frame(b) => raw.write_all_at(&b[..len as usize], offset, *dsync, purpose)?,
                Buf::Foreign(b) => raw.write_all_at(&b.bytes()[..len as usize], offset, *dsync, purpose)?,
                Buf::Frames(v) => {
                    let mut n = 0;
                    for b in v {
                        let part = b.len().min(len as usize - n);
                        raw.write_all_at(&b[..part], offset + n as u64, *dsync, purpose)?;
                        n += part;
                        if n == len as usize {
                            break;
                        }
                    }
                }
                Buf::None => {}
            }
            Ok(len)
        }
        OpKind::SyncAll => raw.sync(false, purpose).map(|()| 0),
        OpKind::SyncData => raw.sync(true, purpose).map(|()| 0),
        OpKind::SyncRange => raw.sync_range(offset, len, purpose).map(|()| 0),
        OpKind::Allocate => raw.allocate(offset, len).map(|()| 0),
    }
}

/// The operation's name in errors.
pub(crate) fn name(kind: OpKind) -> &'static str {
    match kind {
        OpKind::Read => "read",
        OpKind::Write { .. } => "write",
        OpKind::SyncAll => "fsync",
        OpKind::SyncData => "fdatasync",
        OpKind::SyncRange => "sync_file_range",
        OpKind::Allocate => "fallocate",
    }
}

/// Refuses transfers that exceed their buffer or the largest offset.
pub(crate) fn check(op: &Op) -> Result<()> {
    let room = match (&op.kind, &op.buf) {
        (OpKind::Read | OpKind::Write { .. }, Buf::None) => 0,
        (OpKind::Read | OpKind::Write { .. }, Buf::Aligned(b)) => b.len() as u64,
        (OpKind::Read | OpKind::Write { .. }, Buf::Frame(b)) => b.len() as u64,
        (OpKind::Write { .. }, Buf::Foreign(b)) => b.len() as u64,
        (OpKind::Read, Buf::Foreign(b)) if b.is_fillable() => b.len() as u64,
        (OpKind::Read, Buf::Foreign(_)) => 0,
        (OpKind::Read | OpKind::Write { .. }, Buf::Frames(v)) => v.iter().map(|b| b.len() as u64).sum(),
        _ => u64::MAX,
    };
    let fits = op.offset.checked_add(op.len).is_some_and(|end| end <= i64::MAX as u64);
    if op.len <= room && fits {
        return Ok(());
    }
    let why = match fits {
        true => format!("{} bytes asked for, {room} in the buffer", op.len),
        false => "beyond the largest offset".to_string(),
    };
    Err(Error::new(ErrorKind::InvalidInput, name(op.kind), why).at(op.file.path()).range(op.offset, op.len))
}
