//! Operations and their completions.

use std::time::Duration;

use crate::buf::{Buf, Piece};
use crate::file::File;
use crate::kind::{OpKind, Purpose};
use crate::mem::ReadPool;
use crate::{Error, Result};

/// One operation. `user` comes back in its [`Done`].
#[derive(Debug)]
pub struct Op {
    /// What to do.
    pub kind: OpKind,
    /// On which file.
    pub file: File,
    /// Byte offset in the file.
    pub offset: u64,
    /// Bytes of the buffer to transfer, from its start; or the length of the range.
    pub len: u64,
    /// The buffer.
    pub buf: Buf,
    /// What it is for.
    pub purpose: Purpose,
    /// The caller's tag.
    pub user: u64,
    /// The next operation pushed starts only when this one has fully succeeded; else it is canceled.
    pub chain: bool,
    /// io_uring: hand it to a worker thread of the kernel at once, where its submission would block. A buffered
    /// write too. Other engines do as without.
    pub force_async: bool,
    /// io_uring: the longest that it may take from its start on; then it is taken back and ends with
    /// [`crate::ErrorKind::TimedOut`], its buffer as ever with the completion. A device that does not let go of a
    /// transfer still ends it in its own time, and so does a plain call (a direct transfer that is not aligned). On
    /// other engines, and with `sqpoll` or `iopoll`, an operation with a limit is refused.
    pub time_limit: Option<Duration>,
}

impl Op {
    /// An operation of this kind, without what is optional.
    pub fn new(kind: OpKind, file: &File, offset: u64, len: u64, buf: Buf, purpose: Purpose) -> Op {
        let file = file.clone();
        Op {
            kind,
            file,
            offset,
            len,
            buf,
            purpose,
            user: 0,
            chain: false,
            force_async: false,
            time_limit: None,
        }
    }

    /// A read of `len` bytes at `offset` into `buf`.
    pub fn read(file: &File, offset: u64, len: u64, buf: Buf, purpose: Purpose) -> Op {
        Op::new(OpKind::Read, file, offset, len, buf, purpose)
    }

    /// A write of the first `len` bytes of `buf` at `offset`.
    pub fn write(file: &File, offset: u64, len: u64, buf: Buf, purpose: Purpose) -> Op {
        Op::new(OpKind::Write { dsync: false }, file, offset, len, buf, purpose)
    }

    /// A read of `len` bytes at `offset` into a buffer that is chosen from `pool` when there is something to read.
    pub fn read_from_pool(file: &File, offset: u64, len: u64, pool: &ReadPool, purpose: Purpose) -> Op {
        Op::read(file, offset, len, Buf::Pool(pool.clone()), purpose)
    }

    /// A read at `offset` that fills these pieces one after the other: one vectored operation.
    pub fn readv(file: &File, offset: u64, pieces: Vec<Piece>, purpose: Purpose) -> Op {
        let buf = Buf::Pieces(pieces);
        Op::read(file, offset, buf.room(false), buf, purpose)
    }

    /// A write of all bytes of these pieces, one after the other, at `offset`: one vectored operation.
    pub fn writev(file: &File, offset: u64, pieces: Vec<Piece>, purpose: Purpose) -> Op {
        let buf = Buf::Pieces(pieces);
        Op::write(file, offset, buf.room(false), buf, purpose)
    }

    /// An fdatasync.
    pub fn sync_data(file: &File, purpose: Purpose) -> Op {
        Op::new(OpKind::SyncData, file, 0, 0, Buf::None, purpose)
    }

    /// The same with the caller's tag.
    pub fn user(mut self, user: u64) -> Op {
        self.user = user;
        self
    }

    /// The same, handed to a worker thread of the kernel at once ([`Op::force_async`]).
    pub fn force_async(mut self) -> Op {
        self.force_async = true;
        self
    }

    /// The same with a time limit ([`Op::time_limit`]).
    pub fn time_limit(mut self, limit: Duration) -> Op {
        self.time_limit = Some(limit);
        self
    }

    /// The same, ordered before the operation pushed next.
    pub fn then(mut self) -> Op {
        self.chain = true;
        self
    }
}

/// A completed operation: the bytes transferred or the error, and its buffer back.
#[derive(Debug)]
pub struct Done {
    /// The tag of the [`Op`].
    pub user: u64,
    /// Bytes transferred (0 for syncs). A read is short only at the end of the file; a write never is.
    pub result: Result<u64>,
    /// The buffer.
    pub buf: Buf,
}

impl Done {
    /// The buffer if all `len` bytes came, an error otherwise.
    pub fn full(self, len: u64, op: &'static str) -> Result<Buf> {
        match self.result {
            Ok(n) if n == len => Ok(self.buf),
            Ok(n) => Err(Error::new(
                crate::ErrorKind::UnexpectedEof,
                op,
                format!("{n} of {len} bytes: the file ends early"),
            )),
            Err(e) => Err(e),
        }
    }
}
