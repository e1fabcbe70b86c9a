//! What must come of the operations that a test has pushed: kept beside the queue, and compared with it.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use super::super::sys;
use super::{Event, ModelRing};
use crate::kind::OpKind;
use crate::mem::ReadPool;
use crate::op::Done;
use crate::{Buf, ErrorKind, File, Io, OpenHow, Result};

/// Bytes of a region, and how many a file has. The last ends behind the end of the file, and is only read.
pub(super) const REGION: u64 = 16_384;
pub(super) const REGIONS: usize = 24;
const LEN: u64 = REGION * (REGIONS as u64 - 1) + REGION / 2;
/// In place of a region: the right to sync a file.
pub(super) const SYNC: usize = REGIONS;
/// What buffers to be read into are full of.
pub(super) const CANARY: u8 = 0xa5;

/// An operation that was pushed.
#[derive(Clone)]
pub(super) struct Record {
    pub(super) user: u64,
    pub(super) chain: u64,
    pub(super) kind: OpKind,
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// The pieces of its buffer.
    pub(super) memory: Vec<Range<usize>>,
    pub(super) pool: bool,
    /// What it writes.
    pub(super) bytes: Vec<u8>,
    /// The operation before it in its chain.
    pub(super) before: Option<u64>,
    pub(super) limited: bool,
    pub(super) asked: bool,
    pub(super) moved: u64,
    pub(super) began: bool,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Record { user, kind, file, offset, len, before, .. } = self;
        write!(f, "{user} ({kind:?}, {len} bytes at {offset} of file {file}, after {before:?})")
    }
}

impl Record {
    /// Whether a request of this kind at this place is this operation's.
    fn is_of(&self, e: &Event) -> bool {
        let inside = (self.offset..self.offset + self.len).contains(&e.offset);
        match self.kind {
            OpKind::Read => [sys::OP_READ, sys::OP_READV].contains(&e.opcode) && inside,
            OpKind::Write { .. } => [sys::OP_WRITE, sys::OP_WRITEV].contains(&e.opcode) && inside,
            OpKind::SyncAll | OpKind::SyncData => e.opcode == sys::OP_FSYNC,
            OpKind::SyncRange | OpKind::StartWriteBack { .. } => {
                e.opcode == sys::OP_SYNC_FILE_RANGE && e.offset == self.offset
            }
            OpKind::Allocate => e.opcode == sys::OP_FALLOCATE && e.offset == self.offset,
        }
    }

    fn is_full(&self, result: &Result<u64>) -> bool {
        let transfer = matches!(self.kind, OpKind::Read | OpKind::Write { .. });
        result.as_ref().is_ok_and(|n| !transfer || *n == self.len)
    }
}

/// Files in memory, what must be in them, and the operations on them.
pub(super) struct Shadow {
    pub(super) files: Vec<File>,
    _fds: Vec<OwnedFd>,
    expected: Vec<Vec<u8>>,
    /// Which chain has a region.
    owners: Vec<[Option<u64>; REGIONS + 1]>,
    pub(super) open: HashMap<u64, Record>,
    /// Operations of a chain that have not ended.
    left: HashMap<u64, usize>,
    /// Whether what has ended has fully succeeded.
    ended: HashMap<u64, bool>,
    fails: bool,
}

/// A file in memory, with bytes that tell where they are from.
fn file(io: &Io, k: usize) -> (OwnedFd, File, Vec<u8>) {
    // SAFETY: a plain system call with a name.
    let fd = unsafe { libc::memfd_create(c"model".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just given it to us.
    let own = unsafe { OwnedFd::from_raw_fd(fd) };
    let file = io.open(format!("/proc/self/fd/{fd}").as_ref(), &OpenHow::read_write()).unwrap();
    let bytes: Vec<u8> = (0..LEN).map(|i| (i * 7 + (i >> 8) * 13 + k as u64 * 29) as u8).collect();
    file.write_all_at(&bytes, 0, crate::Purpose(0)).unwrap();
    (own, file, bytes)
}

impl Shadow {
    pub(super) fn new(files: usize, fails: bool) -> Shadow {
        let io = Io::from_uri("posix").unwrap();
        let mut s = Shadow {
            files: Vec::new(),
            _fds: Vec::new(),
            expected: Vec::new(),
            owners: vec![[None; REGIONS + 1]; files],
            open: HashMap::new(),
            left: HashMap::new(),
            ended: HashMap::new(),
            fails,
        };
        for k in 0..files {
            let (fd, file, bytes) = file(&io, k);
            s._fds.push(fd);
            s.files.push(file);
            s.expected.push(bytes);
        }
        s
    }

    fn fd(&self, file: usize) -> RawFd {
        self.files[file].0.os().unwrap().fd()
    }

    pub(super) fn is_free(&self, file: usize, region: usize) -> bool {
        self.owners[file][region].is_none()
    }

    pub(super) fn own(&mut self, file: usize, region: usize, chain: u64) {
        self.owners[file][region] = Some(chain);
    }

    /// A chain of so many operations is about to be pushed.
    pub(super) fn begin(&mut self, chain: u64, operations: usize) {
        self.left.insert(chain, operations);
    }

    /// Gives the regions of a chain back.
    fn release(&mut self, chain: u64) {
        let all = self.owners.iter_mut().flatten();
        all.filter(|o| **o == Some(chain)).for_each(|o| *o = None);
    }

    fn on_disk(&self, file: usize, range: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len()];
        let n = self.files[file].read_at(&mut bytes, range.start as u64, crate::Purpose(0)).unwrap();
        assert_eq!(n, range.len(), "the file has another length");
        bytes
    }

    /// Looks at what the ring has carried out: in the order of chains, and where the part before stopped.
    pub(super) fn follow(&mut self, ring: &ModelRing) {
        let log = std::mem::take(&mut ring.0.borrow_mut().log);
        for e in log {
            let k = (0..self.files.len()).find(|k| self.fd(*k) == e.fd).expect("one of the files");
            let r = self.open.values_mut().find(|r| r.file == k && r.is_of(&e));
            let r = r.unwrap_or_else(|| panic!("{e:?} was not asked for, or has been answered"));
            if matches!(r.kind, OpKind::Read | OpKind::Write { .. }) {
                assert_eq!(e.offset, r.offset + r.moved, "{e:?} does not go on where {r:?} stopped");
                r.moved += e.res.max(0) as u64;
            }
            // One that failed has not begun.
            r.began |= e.res >= 0;
            let user = r.user;
            let after = self.open.values().find(|a| a.before == Some(user));
            assert!(!after.is_some_and(|a| a.began), "{after:?} began before {user} had ended");
        }
    }

    /// Takes an operation's completion.
    pub(super) fn take(&mut self, d: Done, ring: &ModelRing, pool: &ReadPool) {
        let user = d.user;
        let r = self.open.remove(&user).unwrap_or_else(|| panic!("{user} has ended twice, or never began"));
        let m = ring.0.borrow();
        assert!(
            r.memory.iter().all(|p| !m.uses(p)),
            "{r:?} is back, and a request still points to its memory"
        );
        drop(m);
        let full = r.is_full(&d.result);
        self.check_chain(&r, &d.result);
        self.ended.insert(user, full);
        let bytes = self.check_buffer(&r, &d, pool);
        let (at, len) = (r.offset as usize, r.len as usize);
        match (r.kind, &d.result) {
            (OpKind::Read, Ok(n)) => {
                let have = (LEN as usize).saturating_sub(at).min(len);
                assert_eq!(*n as usize, have, "{r:?}");
                assert!(bytes[..have] == self.expected[r.file][at..at + have], "{user} has read other bytes");
                let untouched = r.pool || bytes[have..].iter().all(|b| *b == CANARY);
                assert!(untouched, "{user}: bytes behind the end of the file");
            }
            (OpKind::Write { .. }, Ok(n)) => {
                assert_eq!(*n, r.len, "{r:?}");
                self.expected[r.file][at..at + len].copy_from_slice(&r.bytes);
            }
            (OpKind::Write { .. }, Err(_)) => {
                let now = self.on_disk(r.file, at..at + len);
                let old = &mut self.expected[r.file][at..at + len];
                let one_of = (0..len).all(|i| now[i] == old[i] || now[i] == r.bytes[i]);
                assert!(one_of, "{user} has failed and written other bytes");
                let canceled = r.before.is_some_and(|b| self.ended.get(&b) == Some(&false));
                assert!(!canceled || now == *old, "{user} was canceled with its chain, and has written");
                old.copy_from_slice(&now);
            }
            (_, Ok(n)) => assert_eq!(*n, 0, "{r:?}"),
            (_, Err(_)) => {}
        }
        let left = self.left.get_mut(&r.chain).expect("its chain");
        *left -= 1;
        if *left == 0 {
            self.release(r.chain);
        }
    }

    fn check_chain(&self, r: &Record, result: &Result<u64>) {
        let before = r.before.map(|b| self.ended.get(&b).copied());
        let canceled = matches!(result, Err(e) if e.kind() == ErrorKind::Canceled);
        match before {
            Some(Some(false)) => assert!(canceled, "{r:?} after a failure: {result:?}"),
            Some(None) => assert!(canceled && r.asked, "{r:?} before the one before it: {result:?}"),
            Some(Some(true)) | None => assert!(!canceled || r.asked, "{r:?}: {result:?}"),
        }
        if let Err(e) = result {
            let timed_out = e.kind() == ErrorKind::TimedOut;
            assert!(!timed_out || r.limited, "{r:?}: {e}");
            assert!(self.fails || canceled || timed_out, "{r:?} has failed for no reason: {e}");
        }
    }

    /// Sees that the operation's own buffer is back; its bytes.
    fn check_buffer(&self, r: &Record, d: &Done, pool: &ReadPool) -> Vec<u8> {
        let (memory, bytes): (Vec<usize>, Vec<u8>) = match &d.buf {
            Buf::None => (Vec::new(), Vec::new()),
            Buf::Aligned(b) => (vec![b.as_ptr() as usize], b[..r.len as usize].to_vec()),
            Buf::Pieces(v) => (
                v.iter().map(|p| p.bytes().as_ptr() as usize).collect(),
                v.iter().flat_map(|p| p.bytes().iter().copied()).take(r.len as usize).collect(),
            ),
            Buf::Pooled(b) => {
                assert!(r.pool && b.pool().is(pool) && matches!(d.result, Ok(1..)), "{r:?}: {:?}", d.result);
                (Vec::new(), b[..r.len as usize].to_vec())
            }
            Buf::Pool(p) => {
                assert!(r.pool && p.is(pool) && !matches!(d.result, Ok(1..)), "{r:?}: {:?}", d.result);
                (Vec::new(), Vec::new())
            }
            other => panic!("{r:?} has come back with {other:?}"),
        };
        let own: Vec<usize> = r.memory.iter().map(|m| m.start).collect();
        assert_eq!(memory, own, "{r:?} has come back with another buffer");
        bytes
    }

    /// Takes the answers of a queue whose ring is broken: one for every operation.
    pub(super) fn fail(&mut self, answers: Vec<Done>) {
        for d in &answers {
            assert!(self.open.remove(&d.user).is_some(), "{} has ended twice, or never began", d.user);
        }
        assert!(self.open.is_empty(), "not answered: {:?}", self.open.keys());
    }

    /// Starts over from what is in the files, with nothing in flight.
    pub(super) fn start_over(&mut self, ring: &ModelRing) {
        ring.0.borrow_mut().log.clear();
        self.owners.fill([None; REGIONS + 1]);
        for k in 0..self.files.len() {
            self.expected[k] = self.on_disk(k, 0..LEN as usize);
        }
    }

    /// With nothing in flight, the files are as they must be.
    pub(super) fn check_files(&self) {
        assert!(self.open.is_empty(), "no completion: {:?}", self.open);
        for (k, f) in self.files.iter().enumerate() {
            assert_eq!(f.len().unwrap(), LEN);
            assert!(self.on_disk(k, 0..LEN as usize) == self.expected[k], "file {k} has other bytes");
        }
    }
}
