//! One operation of a queue, done at once by plain system calls.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::trace;
use crate::buf::Buf;
use crate::kind::OpKind;
use crate::op::Op;
use crate::os::RawFile;
use crate::probes;
use crate::{Error, ErrorKind, Result};

/// Does a lone operation; the result is that of its [`crate::Done`]. The buffer stays in the operation.
pub(crate) fn execute(op: &mut Op) -> Result<u64> {
    let event = if probes::on() { trace::event(op, true) } else { None };
    match event {
        None => perform(op),
        Some(event) => probes::around(|| event, |n| *n, || perform(op)),
    }
}

/// Does an operation of a queue, which fires its probes.
pub(crate) fn perform(op: &mut Op) -> Result<u64> {
    probes::quiet(|| plain(op))
}

/// The longest that a read waits for a buffer of its pool with nothing else in flight: those who hold the buffers
/// may be waiting for this very read.
pub(crate) const NO_BUFFER: Duration = Duration::from_secs(1);

/// The error of a read whose pool has had no buffer for that long.
pub(crate) fn no_buffer(op: &Op) -> Error {
    let why = "every buffer of the pool is in use, and none came back for a second";
    Error::from_errno(name(op.kind), libc::ENOBUFS).at(op.file.path()).range(op.offset, op.len).detail(why)
}

fn plain(op: &mut Op) -> Result<u64> {
    check(op)?;
    if let (OpKind::Read, 1.., Buf::Pool(pool)) = (op.kind, op.len, &op.buf) {
        op.buf = Buf::Pooled(pool.take_within(NO_BUFFER).ok_or_else(|| no_buffer(op))?);
        let result = transfer(op);
        if !matches!(result, Ok(1..)) {
            op.buf.unchoose();
        }
        return result;
    }
    transfer(op)
}

fn transfer(op: &mut Op) -> Result<u64> {
    let Op { kind, file, offset, len, buf, purpose, .. } = op;
    let (offset, len, purpose) = (*offset, *len, *purpose);
    // Not by way of its engine's queue, from which this may come.
    let raw = file.0.os().map_or(&*file.0, |os| os as &dyn RawFile);
    match kind {
        OpKind::Read => {
            let n = match buf {
                Buf::Aligned(b) => raw.read_at(&mut b[..len as usize], offset, purpose)?,
                Buf::Arena(b) => raw.read_at(&mut b[..len as usize], offset, purpose)?,
                Buf::Pooled(b) => raw.read_at(&mut b[..len as usize], offset, purpose)?,
                Buf::Foreign(b) => raw.read_at(&mut b.to_fill()[..len as usize], offset, purpose)?,
                Buf::Pieces(_) => match raw.os() {
                    Some(os) => os.read_vectored_at(buf, len, offset, purpose)?,
                    None => {
                        let mut all = vec![0; len as usize];
                        let n = raw.read_at(&mut all, offset, purpose)?;
                        scatter(&all[..n], buf);
                        n
                    }
                },
                Buf::None | Buf::Pool(_) => 0,
            };
            Ok(n as u64)
        }
        OpKind::Write { dsync } => {
            match buf {
                Buf::Aligned(b) => raw.write_all_at(&b[..len as usize], offset, *dsync, purpose)?,
                Buf::Arena(b) => raw.write_all_at(&b[..len as usize], offset, *dsync, purpose)?,
                Buf::Pooled(b) => raw.write_all_at(&b[..len as usize], offset, *dsync, purpose)?,
                Buf::Foreign(b) => raw.write_all_at(&b.bytes()[..len as usize], offset, *dsync, purpose)?,
                Buf::Pieces(_) => match raw.os() {
                    Some(os) => os.write_vectored_at(buf, len, offset, *dsync, purpose)?,
                    None => raw.write_all_at(&gather(buf, len as usize), offset, *dsync, purpose)?,
                },
                Buf::None | Buf::Pool(_) => {}
            }
            Ok(len)
        }
        OpKind::SyncAll => raw.sync(false, purpose).map(|()| 0),
        OpKind::SyncData => raw.sync(true, purpose).map(|()| 0),
        OpKind::SyncRange => raw.sync_range(offset, len, purpose).map(|()| 0),
        OpKind::StartWriteBack { wait_before } => {
            raw.start_write_back(offset, len, *wait_before, purpose).map(|()| 0)
        }
        OpKind::Allocate => raw.allocate(offset, len).map(|()| 0),
    }
}

/// The same, where a panic must not get lost or leave the operation behind.
pub(crate) fn perform_alone(op: &mut Op) -> Result<u64> {
    catch_unwind(AssertUnwindSafe(|| perform(op))).unwrap_or_else(|_| {
        let why = "the thread that did it panicked";
        Err(Error::new(ErrorKind::Io, name(op.kind), why).at(op.file.path()))
    })
}

/// The most bytes that are copied at submission; more of them are better spread over the threads.
const MAX_CACHED: u64 = 128 << 10;

/// Does a read that need not wait, because the page cache has all of it; `None` if that is not so.
pub(crate) fn read_cached(op: &mut Op) -> Option<u64> {
    if op.kind != OpKind::Read || !(1..=MAX_CACHED).contains(&op.len) || check(op).is_err() {
        return None;
    }
    let os = op.file.0.os()?;
    os.read_cached(&mut op.buf, op.len, op.offset, op.purpose)
}

/// Copies what a file of another kind of engine gave into the pieces, in their order.
fn scatter(mut all: &[u8], buf: &mut Buf) {
    let mut fill = |piece: &mut [u8]| {
        let n = piece.len().min(all.len());
        piece[..n].copy_from_slice(&all[..n]);
        all = &all[n..];
    };
    if let Buf::Pieces(v) = buf {
        v.iter_mut().for_each(|b| fill(b.to_fill()));
    }
}

/// The first `len` bytes of the pieces in one, so that a file of another kind of engine sees one write.
fn gather(buf: &Buf, len: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(len);
    let mut add = |piece: &[u8]| all.extend_from_slice(&piece[..piece.len().min(len - all.len())]);
    if let Buf::Pieces(v) = buf {
        v.iter().for_each(|b| add(b.bytes()));
    }
    all
}

/// The operation's name in errors.
pub(crate) fn name(kind: OpKind) -> &'static str {
    match kind {
        OpKind::Read => "read",
        OpKind::Write { .. } => "write",
        OpKind::SyncAll => "fsync",
        OpKind::SyncData => "fdatasync",
        OpKind::SyncRange | OpKind::StartWriteBack { .. } => "sync_file_range",
        OpKind::Allocate => "fallocate",
    }
}

/// Refuses transfers that exceed their buffer or the largest offset.
pub(crate) fn check(op: &Op) -> Result<()> {
    let room = match op.kind {
        OpKind::Read => op.buf.room(true),
        OpKind::Write { .. } => op.buf.room(false),
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
