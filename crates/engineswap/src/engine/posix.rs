//! The posix engine (placeholder: sequential, buffered; the real one replaces this file).

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Engine, RawFile, RawMap, RawQueue};
use crate::file::{Alignment, File, FileLock, OpenHow};
use crate::io::{DirEntry, EngineInfo, Metadata};
use crate::op::{Buf, Done, Op, OpKind, Purpose};
use crate::{Error, ErrorKind, Result};

/// The engine.
pub struct Posix;
impl Posix {
    /// New.
    pub fn new() -> Posix {
        Posix
    }
}
impl Default for Posix {
    fn default() -> Self {
        Posix
    }
}
fn e(op: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |x| Error::from_std(op, &x).at(path)
}
impl Engine for Posix {
    fn info(&self) -> EngineInfo {
        EngineInfo { name: "posix", uri: "posix".into(), reasons: vec![] }
    }
    fn open(&self, path: &Path, how: &OpenHow) -> Result<File> {
        let f = std::fs::OpenOptions::new()
            .read(how.read)
            .write(how.write)
            .create(how.create)
            .create_new(how.create_new)
            .truncate(how.truncate)
            .open(path)
            .map_err(e("open", path))?;
        Ok(File(Arc::new(PosixFile { f, path: path.into() })))
    }
    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        match std::fs::metadata(path) {
            Ok(m) => Ok(Some(Metadata { len: m.len(), is_dir: m.is_dir() })),
            Err(x) if x.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(x) => Err(e("stat", path)(x)),
        }
    }
    fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let mut v = vec![];
        for d in std::fs::read_dir(path).map_err(e("readdir", path))? {
            let d = d.map_err(e("readdir", path))?;
            let is_dir = d.file_type().map_err(e("readdir", path))?.is_dir();
            v.push(DirEntry { name: d.file_name().to_string_lossy().into_owned(), is_dir });
        }
        Ok(v)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        std::fs::create_dir_all(path).map_err(e("mkdir", path))
    }
    fn remove_file(&self, path: &Path) -> Result<()> {
        std::fs::remove_file(path).map_err(e("unlink", path))
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        std::fs::remove_dir(path).map_err(e("rmdir", path))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to).map_err(e("rename", from))
    }
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::hard_link(from, to).map_err(e("link", from))
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        std::fs::File::open(path).and_then(|d| d.sync_all()).map_err(e("fsync directory", path))
    }
    fn lock_file(&self, path: &Path) -> Result<FileLock> {
        let f = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(e("open", path))?;
        f.try_lock().map_err(|_| Error::new(ErrorKind::Locked, "lock", "held by another").at(path))?;
        Ok(FileLock::new(File(Arc::new(PosixFile { f, path: path.into() }))))
    }
    fn queue(&self, depth: u32) -> Result<Box<dyn RawQueue>> {
        Ok(Box::new(Q { depth: depth as usize, todo: VecDeque::new(), done: VecDeque::new() }))
    }
    fn run(&self, ops: Vec<Op>) -> Vec<Done> {
        ops.into_iter().map(do_op).collect()
    }
}
fn do_op(mut op: Op) -> Done {
    let len = op.len as usize;
    let f = op.file.clone();
    let result = (|| match op.kind {
        OpKind::Read => match &mut op.buf {
            Buf::Aligned(b) => f.read_at(&mut b[..len], op.offset, op.purpose).map(|n| n as u64),
            Buf::Frame(b) => f.read_at(&mut b[..len], op.offset, op.purpose).map(|n| n as u64),
            Buf::Frames(v) => {
                let mut total = 0;
                for b in v {
                    let want = b.len().min(len - total);
                    let n = f.read_at(&mut b[..want], op.offset + total as u64, op.purpose)?;
                    total += n;
                    if n < want || total == len {
                        break;
                    }
                }
                Ok(total as u64)
            }
            Buf::None => Ok(0),
        },
        OpKind::Write { dsync } => match &op.buf {
            Buf::Aligned(b) => f.0.write_all_at(&b[..len], op.offset, dsync, op.purpose).map(|()| op.len),
            _ => Err(Error::new(ErrorKind::InvalidInput, "write", "no buffer")),
        },
        OpKind::SyncAll => f.sync_all(op.purpose).map(|()| 0),
        OpKind::SyncData => f.sync_data(op.purpose).map(|()| 0),
        OpKind::SyncRange => f.0.sync_range(op.offset, op.len, op.purpose).map(|()| 0),
        OpKind::Allocate => f.allocate(op.offset, op.len).map(|()| 0),
    })();
    Done { user: op.user, result, buf: op.buf }
}
struct Q {
    depth: usize,
    todo: VecDeque<Op>,
    done: VecDeque<Done>,
}
impl RawQueue for Q {
    fn push(&mut self, op: Op) -> std::result::Result<(), Op> {
        if self.in_flight() >= self.depth {
            return Err(op);
        }
        self.todo.push_back(op);
        Ok(())
    }
    fn submit(&mut self) -> Result<()> {
        while let Some(op) = self.todo.pop_front() {
            self.done.push_back(do_op(op));
        }
        Ok(())
    }
    fn wait(&mut self, _min: usize) -> Result<()> {
        self.submit()
    }
    fn pop(&mut self) -> Option<Done> {
        self.done.pop_front()
    }
    fn in_flight(&self) -> usize {
        self.todo.len() + self.done.len()
    }
}
struct PosixFile {
    f: std::fs::File,
    path: PathBuf,
}
impl RawFile for PosixFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, _p: Purpose) -> Result<usize> {
        let mut n = 0;
        while n < buf.len() {
            match self.f.read_at(&mut buf[n..], offset + n as u64).map_err(e("read", &self.path))? {
                0 => break,
                k => n += k,
            }
        }
        Ok(n)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64, dsync: bool, _p: Purpose) -> Result<()> {
        self.f.write_all_at(buf, offset).map_err(e("write", &self.path))?;
        if dsync {
            self.f.sync_data().map_err(e("fdatasync", &self.path))?;
        }
        Ok(())
    }
    fn sync(&self, data_only: bool, _p: Purpose) -> Result<()> {
        if data_only { self.f.sync_data() } else { self.f.sync_all() }.map_err(e("fsync", &self.path))
    }
    fn sync_range(&self, _offset: u64, _len: u64, _p: Purpose) -> Result<()> {
        Ok(())
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        // SAFETY: a plain system call on an open descriptor.
        let r = unsafe { libc::posix_fallocate(self.f.as_raw_fd(), offset as i64, len as i64) };
        if r == 0 { Ok(()) } else { Err(Error::from_errno("fallocate", r).at(&self.path)) }
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.f.set_len(len).map_err(e("truncate", &self.path))
    }
    fn len(&self) -> Result<u64> {
        Ok(self.f.metadata().map_err(e("stat", &self.path))?.len())
    }
    fn path(&self) -> &Path {
        &self.path
    }
    fn is_direct(&self) -> bool {
        false
    }
    fn alignment(&self) -> Alignment {
        Alignment { memory: 1, offset: 1 }
    }
    fn map(&self, _len: u64) -> Result<Box<dyn RawMap>> {
        Err(Error::new(ErrorKind::Unsupported, "mmap", "not yet").at(&self.path))
    }
}
