//! Files: positioned reads and writes by plain system calls, syncs, allocation, mapping, locks.

use std::path::Path;
use std::sync::Arc;

use crate::how::Advice;
use crate::info::Alignment;
use crate::kind::Purpose;
use crate::map::MappedFile;
use crate::os::RawFile;
use crate::process::Process;
use crate::{Error, ErrorKind, Result};

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

    /// Fills `buf` from `offset` if the page cache has all of it: the call does not wait for the device (RWF_NOWAIT).
    /// `None` if it has not, and on files that bypass it, file systems without the flag, engines with `queue_always`
    /// and the simulated disk; what is in `buf` then is unspecified. After a try in vain the kernel has mostly begun
    /// the device's read.
    pub fn read_cached_at(&self, buf: &mut [u8], offset: u64, purpose: Purpose) -> Option<()> {
        self.0.read_cached_at(buf, offset, purpose)
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

    /// Cuts or grows the file. [`ErrorKind::InvalidInput`] if more of it is mapped ([`File::map`]).
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

    /// Tells the page cache what is going to be done with `len` bytes at `offset` (0: to the end).
    pub fn advise(&self, advice: Advice, offset: u64, len: u64) -> Result<()> {
        self.0.advise(advice, offset, len)
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

    /// Whether bytes that the file has are always rewritten where they are. If not (copy on write: btrfs; XFS, where
    /// files can share bytes), rewriting needs space, and a store to a mapped page ends the process by SIGBUS when the
    /// disk is full, while [`File::write_all_at`] fails.
    pub fn rewrites_in_place(&self) -> bool {
        self.0.rewrites_in_place()
    }

    /// Maps the first `len` bytes, shared and writable, populated where the kernel can; the file must be
    /// that long. [`ErrorKind::Unsupported`] on engines and file systems without mappings.
    ///
    /// As long as it is mapped, no handle of this process cuts the file to less ([`File::set_len`],
    /// [`crate::OpenHow::truncate`]): that is refused with [`ErrorKind::InvalidInput`]. *Another* process, or a call
    /// that goes around this library, can cut it all the same, and then the next store to the mapping ends this process
    /// with SIGBUS. So does a store that needs space of a full disk. Map only files that nobody else cuts: a lock
    /// ([`crate::Io::lock_file`]) that everybody respects is enough.
    pub fn map(&self, len: u64) -> Result<MappedFile> {
        Ok(MappedFile { raw: self.0.map(len)? })
    }
}

/// A lock on a file, given up when dropped (or when the process dies).
pub struct FileLock {
    file: File,
    holder: Process,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A child after fork() has the same open file, and the lock is its parent's.
        if let Some(os) = self.file.0.os().filter(|_| self.holder.is_this()) {
            os.unlock();
        }
    }
}

impl FileLock {
    /// Keeps `file`, on which the engine has taken the lock.
    pub fn new(file: File) -> FileLock {
        FileLock { file, holder: Process::this() }
    }
}
