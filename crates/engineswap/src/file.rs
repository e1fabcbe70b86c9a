//! Files: positioned reads and writes by plain system calls, syncs, allocation, mapping, locks.

use std::path::Path;
use std::sync::Arc;

use crate::engine::{RawFile, RawMap};
use crate::op::Purpose;
use crate::{Error, ErrorKind, Result};

/// Whether to bypass the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Direct {
    /// Through the page cache.
    #[default]
    No,
    /// O_DIRECT where the file system has it, else through the page cache.
    Prefer,
    /// O_DIRECT or an error.
    Require,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHow {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Make it if missing.
    pub create: bool,
    /// Make it; an error if it exists.
    pub create_new: bool,
    /// Cut it to nothing.
    pub truncate: bool,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// Of a buffered file: transfers do not stay in the page cache (RWF_DONTCACHE, Linux 6.14, where the file system
    /// has it; else they do). For what is written or read once, from front to back.
    pub dontcache: bool,
}

impl OpenHow {
    /// For reading an existing file.
    pub fn read() -> OpenHow {
        OpenHow { read: true, ..OpenHow::default() }
    }

    /// For reading and writing a file, made if missing.
    pub fn read_write() -> OpenHow {
        OpenHow { read: true, write: true, create: true, ..OpenHow::default() }
    }

    /// For writing (and reading) a new file; an error if it exists.
    pub fn create_new() -> OpenHow {
        OpenHow { read: true, write: true, create_new: true, ..OpenHow::default() }
    }

    /// The same with transfers that do not stay in the page cache ([`OpenHow::dontcache`]).
    pub fn dontcache(mut self) -> OpenHow {
        self.dontcache = true;
        self
    }

    /// The same with this choice of O_DIRECT.
    pub fn direct(mut self, direct: Direct) -> OpenHow {
        self.direct = direct;
        self
    }
}

/// What O_DIRECT transfers of a file must be aligned to, in bytes. All 1 for buffered files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Of the buffer's address.
    pub memory: u32,
    /// Of the offset and length.
    pub offset: u32,
}

/// What is going to be done with a part of a file: what POSIX knows of advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing special.
    Normal,
    /// Read from front to back: read further ahead.
    Sequential,
    /// Read here and there: do not read ahead.
    Random,
    /// Read soon: begin now.
    WillNeed,
    /// Not soon: drop clean pages from the cache.
    DontNeed,
}

/// Which file it is. Device, inode and generation together name a file for good on file systems that have
/// generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// The device's number.
    pub device: u64,
    /// The inode's number.
    pub inode: u64,
    /// Tells files apart that had the same inode one after the other; `None` where the file system does not say.
    pub generation: Option<u32>,
    /// Bytes.
    pub len: u64,
    /// Bytes that it takes on the device.
    pub allocated: u64,
    /// Names.
    pub links: u64,
    /// Nanoseconds from 1970 to its last change.
    pub modified_ns: i64,
}

/// An open file. Cheap to clone; closed when the last clone and the last operation on it are gone.
#[derive(Clone)]
pub struct File(pub(crate) Arc<dyn RawFile>);

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "File({})", self.path().display())
    }
}

impl File {
    /// A file made by an engine.
    pub fn from_raw(raw: Arc<dyn RawFile>) -> File {
        File(raw)
    }

    /// Reads at `offset` until `buf` is full or the file ends; returns the bytes read.
    pub fn read_at(&self, buf: &mut [u8], offset: u64, purpose: Purpose) -> Result<usize> {
        self.0.read_at(buf, offset, purpose)
    }

    /// Fills `buf` from `offset`; [`ErrorKind::UnexpectedEof`] if the file ends before.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64, purpose: Purpose) -> Result<()> {
        let n = self.read_at(buf, offset, purpose)?;
        if n == buf.len() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::UnexpectedEof, "read", format!("the file ends after {n} of these bytes"))
            .at(self.path())
            .range(offset, buf.len() as u64))
    }

    /// Writes all of `buf` at `offset`.
    pub fn write_all_at(&self, buf: &[u8], offset: u64, purpose: Purpose) -> Result<()> {
        self.0.write_all_at(buf, offset, false, purpose)
    }

    /// Writes all of `buf` at `offset`, durable on return (RWF_DSYNC).
    pub fn write_all_at_dsync(&self, buf: &[u8], offset: u64, purpose: Purpose) -> Result<()> {
        self.0.write_all_at(buf, offset, true, purpose)
    }

    /// fdatasync. After a failure every later sync of this file fails with [`ErrorKind::SyncFailed`].
    pub fn sync_data(&self, purpose: Purpose) -> Result<()> {
        self.0.sync(true, purpose)
    }

    /// fsync; see [`File::sync_data`].
    pub fn sync_all(&self, purpose: Purpose) -> Result<()> {
        self.0.sync(false, purpose)
    }

    /// fallocate: reserves `len` bytes at `offset` and grows the file to hold them.
    pub fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.0.allocate(offset, len)
    }

    /// Cuts or grows the file.
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }

    /// Bytes in the file.
    pub fn len(&self) -> Result<u64> {
        self.0.len()
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Starts write-back of `len` bytes at `offset` (0: to the end) and does not wait for it; with `wait_before`, waits
    /// for what is under way there already. Not durable by itself.
    pub fn start_write_back(&self, offset: u64, len: u64, wait_before: bool, purpose: Purpose) -> Result<()> {
        self.0.start_write_back(offset, len, wait_before, purpose)
    }

    /// fallocate that keeps the file's length: reserves `len` bytes at `offset`, to be written later.
    /// [`ErrorKind::Unsupported`] where the file system has no such thing.
    pub fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.0.reserve(offset, len)
    }

    /// Tells the page cache what is going to be done with `len` bytes at `offset` (0: to the end).
    pub fn advise(&self, advice: Advice, offset: u64, len: u64) -> Result<()> {
        self.0.advise(advice, offset, len)
    }

    /// Which file it is, how large, and when it was changed.
    pub fn info(&self) -> Result<FileInfo> {
        self.0.info()
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Whether it bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.0.is_direct()
    }

    /// What transfers must be aligned to.
    pub fn alignment(&self) -> Alignment {
        self.0.alignment()
    }

    /// The descriptor of the operating system behind it, if it is one: for what this interface does not do (advice,
    /// mappings for reading). It is closed with the file; whoever writes or syncs through it goes behind the
    /// engine's back.
    pub fn raw_fd(&self) -> Option<std::os::fd::RawFd> {
        self.0.os().map(|os| os.fd()).filter(|fd| *fd >= 0)
    }

    /// Maps the first `len` bytes, shared and writable, populated where the kernel can; the file must be
    /// that long. [`ErrorKind::Unsupported`] on engines and file systems without mappings.
    pub fn map(&self, len: u64) -> Result<MappedFile> {
        Ok(MappedFile { raw: self.0.map(len)? })
    }
}

/// A writable shared mapping of a file: a write is a copy; [`File::sync_data`] makes it durable.
pub struct MappedFile {
    raw: Box<dyn RawMap>,
}

impl MappedFile {
    /// Copies `bytes` to `offset`. Panics if the range is outside of the mapping.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.raw.write(offset, bytes);
    }

    /// The mapped bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.raw.as_mut_slice()
    }

    /// Some of them, to frame a record in place. Panics if the range is outside of the mapping.
    pub fn range_mut(&mut self, range: std::ops::Range<usize>) -> &mut [u8] {
        self.raw.range_mut(range)
    }
}

/// A lock on a file, given up when dropped (or when the process dies).
pub struct FileLock {
    file: File,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if let Some(os) = self.file.0.os() {
            os.unlock();
        }
    }
}

impl FileLock {
    /// Keeps `file`, on which the engine has taken the lock.
    pub fn new(file: File) -> FileLock {
        FileLock { file }
    }
}
