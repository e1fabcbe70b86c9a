//! A file of the operating system, with plain system calls.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use super::advice::SYNC_RANGE;
use super::calls::{Calls, FileCalls, stat};
use super::in_place;
use super::late;
use super::mapped::{FileKey, Held, MAPPED, cutting};
use super::raw::RawFile;
use super::retry::{Sys, retry_intr};
use super::slot::FileSlot;
use super::timing::Sampler;
use super::transfer;
use crate::buf::Buf;
use crate::how::{Advice, Direct, OpenHow};
use crate::info::Alignment;
use crate::kind::Purpose;
use crate::map::RawMap;
use crate::mem::AlignedBuf;
use crate::probes::{self, Event};
use crate::stats::{Counter, OpClass, Stats};
use crate::{Error, ErrorKind, Result};

const BUFFERED: Alignment = Alignment { memory: 1, offset: 1 };
/// For kernels and file systems that do not tell: every block device takes these.
const DIRECT_FALLBACK: Alignment = Alignment { memory: 512, offset: 4096 };

/// What a file is to those who take its calls.
#[cfg_attr(not(feature = "sim"), allow(dead_code))]
enum Open {
    Kernel(OwnedFd),
    Other(Box<dyn FileCalls>),
}

/// An open file.
pub struct OsFile {
    /// Its number in its engine's tables, once it has one. Given back before the descriptor is closed, since fields
    /// are dropped in their order.
    slot: OnceLock<FileSlot>,
    open: Open,
    path: PathBuf,
    direct: bool,
    pub(super) alignment: Alignment,
    pub(super) stats: Arc<Stats>,
    /// The errno of the first failed sync, 0 before. It never goes back: the kernel reports a write-back error
    /// once, so a later success would be a lie.
    sync_errno: AtomicI32,
    /// RWF_DSYNC is refused here: write, then fdatasync.
    no_dsync: AtomicBool,
    /// Transfers are asked not to stay in the page cache, until the file system refuses that.
    dontcache: AtomicBool,
    /// Reads cannot be asked not to wait.
    no_nowait: AtomicBool,
    pub(super) sampler: Sampler,
}

impl OsFile {
    pub(crate) fn open(path: &Path, how: &OpenHow, stats: &Arc<Stats>) -> Result<OsFile> {
        let mut file = OsFile::of(Open::Kernel(open_fd(path, how)?), path, stats);
        if how.direct != Direct::No {
            match set_direct(file.fd()) {
                Ok(a) => (file.direct, file.alignment) = (true, a),
                Err(_) if how.direct == Direct::Prefer => {}
                Err(e) => {
                    if how.create_new {
                        // Ours and empty: leave nothing behind.
                        let _ = std::fs::remove_file(path);
                    }
                    return Err(Error::from_errno("open", e)
                        .with_kind(ErrorKind::Unsupported)
                        .at(path)
                        .detail("the file system has no direct I/O (O_DIRECT) for this file"));
                }
            }
        }
        file.dontcache = AtomicBool::new(how.dontcache && !file.direct);
        Ok(file)
    }

    /// A file whose calls somebody else answers; with `direct`, of direct I/O with this alignment.
    #[cfg(feature = "sim")]
    pub(crate) fn answered_by(
        calls: Box<dyn FileCalls>,
        path: &Path,
        direct: Option<Alignment>,
        stats: &Arc<Stats>,
    ) -> OsFile {
        let file = OsFile::of(Open::Other(calls), path, stats);
        OsFile { direct: direct.is_some(), alignment: direct.unwrap_or(BUFFERED), ..file }
    }

    fn of(open: Open, path: &Path, stats: &Arc<Stats>) -> OsFile {
        OsFile {
            slot: OnceLock::new(),
            open,
            path: path.to_path_buf(),
            direct: false,
            alignment: BUFFERED,
            stats: stats.clone(),
            sync_errno: AtomicI32::new(0),
            no_dsync: AtomicBool::new(false),
            dontcache: AtomicBool::new(false),
            no_nowait: AtomicBool::new(false),
            sampler: Sampler::default(),
        }
    }

    /// Who answers its calls, if it is not the kernel.
    pub(crate) fn other(&self) -> Option<&dyn FileCalls> {
        match &self.open {
            Open::Kernel(_) => None,
            Open::Other(calls) => Some(&**calls),
        }
    }

    pub(super) fn calls(&self) -> Calls<'_> {
        match &self.open {
            Open::Kernel(fd) => Calls::Kernel(fd.as_raw_fd()),
            Open::Other(calls) => Calls::Other(&**calls),
        }
    }

    /// The name of its engine, for the probes.
    pub(crate) fn engine(&self) -> &'static CStr {
        self.stats.engine()
    }

    /// Does something to this file with its probes.
    fn traced<T>(
        &self,
        op: &'static CStr,
        purpose: Purpose,
        (offset, len): (u64, u64),
        bytes: impl FnOnce(&T) -> u64,
        call: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (engine, fd) = (self.engine(), self.fd());
        probes::around(|| Event { engine, op, purpose, fd, offset, len, plain: true, tag: 0 }, bytes, call)
    }

    pub(super) fn file_path(&self) -> &Path {
        &self.path
    }

    /// The kernel's number for it; -1 if it is not the kernel's.
    pub(crate) fn fd(&self) -> RawFd {
        match &self.open {
            Open::Kernel(fd) => fd.as_raw_fd(),
            Open::Other(_) => -1,
        }
    }

    /// Its number in its engine's tables; `give` makes one if it has none yet, or says that there is none left.
    pub(crate) fn slot(&self, give: impl FnOnce() -> Option<FileSlot>) -> Option<&FileSlot> {
        if self.slot.get().is_none() {
            // Another thread may be first; then this one is given back at once.
            let _ = self.slot.set(give()?);
        }
        self.slot.get()
    }

    /// The error that every sync gives after one has failed.
    pub(crate) fn check_sync(&self, op: &'static str) -> Result<()> {
        match self.sync_errno.load(Ordering::Acquire) {
            0 => Ok(()),
            e => Err(Error::from_errno(op, e).with_kind(ErrorKind::SyncFailed).at(&self.path).detail(
                "an earlier sync of this file failed; what it covered may be lost, and no later sync can tell",
            )),
        }
    }

    /// Remembers that a sync of some kind failed.
    pub(crate) fn sync_failed(&self, errno: i32) {
        let _ = self.sync_errno.compare_exchange(0, errno.max(1), Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether a durable write that failed with `errno` may have used up a report of failed write-back.
    pub(crate) fn spoils_sync(errno: i32) -> bool {
        use libc::{EAGAIN, EBADF, ECANCELED, EFAULT, EFBIG, EINTR, EINVAL, ENOSYS, EOPNOTSUPP, EPERM};
        ![EAGAIN, EBADF, ECANCELED, EFAULT, EFBIG, EINTR, EINVAL, ENOSYS, EOPNOTSUPP, EPERM].contains(&errno)
    }

    pub(crate) fn error(&self, op: &'static str, errno: i32) -> Error {
        Error::from_errno(op, errno).at(&self.path)
    }

    pub(crate) fn is_aligned(&self, ptr: *const u8, offset: u64, len: u64) -> bool {
        !self.direct || transfer::is_aligned(self.alignment, ptr, offset, len)
    }

    /// Takes a lock of this open file, against other processes and other opens of this process.
    pub(crate) fn lock_exclusive(&self) -> Result<()> {
        match self.calls().lock() {
            Ok(()) => Ok(()),
            Err(e @ (libc::EAGAIN | libc::EACCES)) => Err(self
                .error("lock", e)
                .with_kind(ErrorKind::Locked)
                .detail("held by another process, or by another handle of this one")),
            Err(e) => Err(self.error("lock", e)),
        }
    }

    /// Gives the lock up at once. Closing the file would do it only when the last copy of the descriptor is gone,
    /// and a process that was forked a moment ago has one until it executes something else.
    pub(crate) fn unlock(&self) {
        self.calls().unlock();
    }

    fn read_sys(&self, buf: &mut [u8], offset: u64) -> Sys<usize> {
        if self.is_aligned(buf.as_ptr(), offset, buf.len() as u64) {
            self.with_cache_flags(|flags| {
                transfer::read_full(self.calls(), buf, offset, self.alignment, flags)
            })
        } else {
            self.stats.add(Counter::Bounced, 1);
            transfer::read_bounced(self.calls(), buf, offset, self.alignment)
        }
    }

    /// Whether transfers of these vectors, one after the other from `offset` on, need no bounce buffer.
    pub(crate) fn are_aligned(&self, iov: &[libc::iovec], offset: u64) -> bool {
        let mut at = offset;
        iov.iter().all(|v| {
            let ok = self.is_aligned(v.iov_base.cast(), at, v.iov_len as u64);
            at += v.iov_len as u64;
            ok
        })
    }

    /// Reads consecutive bytes into the pieces of `buf`, `len` in all or until the file ends.
    pub(crate) fn read_vectored_at(
        &self,
        buf: &mut Buf,
        len: u64,
        offset: u64,
        purpose: Purpose,
    ) -> Result<usize> {
        let mut iov = Vec::new();
        buf.vectors(&mut iov, 0, len, usize::MAX);
        let call = || match self.are_aligned(&iov, offset) {
            true => self.with_cache_flags(|flags| {
                transfer::read_full_vectored(self.calls(), &mut iov.clone(), offset, self.alignment, flags)
            }),
            false => {
                self.stats.add(Counter::Bounced, 1);
                // SAFETY: the vectors were just made of `buf`, which is borrowed mutably for this call.
                unsafe { transfer::read_scattered(self.calls(), &iov, offset, self.alignment) }
            }
        };
        self.timed(
            OpClass::Read,
            purpose,
            |n| *n as u64,
            || call().map_err(|e| self.error("read", e).range(offset, len)),
        )
    }

    /// Writes the first `len` bytes of the pieces of `buf`.
    pub(crate) fn write_vectored_at(
        &self,
        buf: &mut Buf,
        len: u64,
        offset: u64,
        dsync: bool,
        purpose: Purpose,
    ) -> Result<()> {
        self.check_write(offset, len, dsync)?;
        let mut iov = Vec::new();
        buf.vectors(&mut iov, 0, len, usize::MAX);
        let aligned = self.are_aligned(&iov, offset);
        if !aligned {
            self.stats.add(Counter::Bounced, 1);
        }
        let write = |flags| match aligned {
            true => transfer::write_full_vectored(self.calls(), &mut iov.clone(), offset, flags),
            // SAFETY: the vectors were just made of `buf`, which is borrowed for this call.
            false => unsafe { transfer::write_gathered(self.calls(), &iov, offset, flags) },
        };
        let call = || self.durably(dsync, write).map_err(|e| self.error("write", e).range(offset, len));
        self.timed(OpClass::Write, purpose, |()| len, call)
    }

    fn write_sys(&self, buf: &[u8], offset: u64, dsync: bool) -> Sys<()> {
        let aligned = self.is_aligned(buf.as_ptr(), offset, buf.len() as u64);
        if !aligned {
            self.stats.add(Counter::Bounced, 1);
        }
        let write = |flags| match aligned {
            true => transfer::write_full(self.calls(), buf, offset, flags),
            false => transfer::write_bounced(self.calls(), buf, offset, flags),
        };
        self.durably(dsync, write)
    }

    /// Does a write, if asked for so that it is durable then: by the flag if the kernel knows it, else by a sync.
    fn durably(&self, dsync: bool, write: impl Fn(i32) -> Sys<()>) -> Sys<()> {
        let write = |flags| self.with_cache_flags(|cache| write(flags | cache));
        if !dsync {
            return write(0);
        }
        if !self.no_dsync.load(Ordering::Relaxed) {
            match write(libc::RWF_DSYNC) {
                Err(libc::EOPNOTSUPP | libc::ENOSYS) => self.no_dsync.store(true, Ordering::Relaxed),
                Err(e) if Self::spoils_sync(e) => {
                    self.sync_failed(e);
                    return Err(e);
                }
                other => return other,
            }
        }
        write(0)?;
        self.sync_sys(true)
    }

    /// What the flags of pwritev2 say of the page cache.
    pub(crate) fn cache_flags(&self) -> i32 {
        if self.dontcache.load(Ordering::Relaxed) { libc::RWF_DONTCACHE } else { 0 }
    }

    /// Does a transfer with these flags; without them from when the file system refuses them.
    fn with_cache_flags<T>(&self, mut call: impl FnMut(i32) -> Sys<T>) -> Sys<T> {
        match self.cache_flags() {
            0 => call(0),
            flags => match call(flags) {
                Err(libc::EOPNOTSUPP | libc::ENOSYS) => {
                    self.dontcache.store(false, Ordering::Relaxed);
                    call(0)
                }
                other => other,
            },
        }
    }

    /// Reads all `len` bytes if the page cache has them; `None` if it has not, or cannot say.
    pub(crate) fn read_cached(&self, buf: &mut Buf, len: u64, offset: u64, purpose: Purpose) -> Option<u64> {
        let mut iov = Vec::new();
        match buf.one_piece(0) {
            Some(ptr) => iov.push(libc::iovec { iov_base: ptr.cast(), iov_len: len as usize }),
            None => buf.vectors(&mut iov, 0, len, libc::UIO_MAXIOV as usize),
        }
        // SAFETY: the vectors were just made of `buf`, which is borrowed mutably for this call.
        unsafe { self.read_nowait(&iov, len, offset, purpose) }
    }

    fn read_cached_plain(&self, buf: &mut [u8], offset: u64, purpose: Purpose) -> Option<()> {
        let len = buf.len() as u64;
        let iov = [libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() }];
        // SAFETY: the vector was just made of `buf`, which is borrowed mutably for this call.
        unsafe { self.read_nowait(&iov, len, offset, purpose) }?;
        if !probes::on() {
            return Some(());
        }
        let (engine, fd) = (self.engine(), self.fd());
        let event = Event { engine, op: c"read", purpose, fd, offset, len, plain: true, tag: 0 };
        // Whether it would be done here was known only now.
        event.complete(len as i64, event.submit());
        Some(())
    }

    /// Reads all `len` bytes of the vectors without waiting; `None` if that cannot be.
    ///
    /// # Safety
    /// Nobody else uses the memory of the vectors during the call.
    unsafe fn read_nowait(
        &self,
        iov: &[libc::iovec],
        len: u64,
        offset: u64,
        purpose: Purpose,
    ) -> Option<u64> {
        let Open::Kernel(fd) = &self.open else { return None };
        if self.direct || self.no_nowait.load(Ordering::Relaxed) {
            return None;
        }
        let (fd, n, at) = (fd.as_raw_fd(), iov.len() as i32, offset as libc::off_t);
        let flags = libc::RWF_NOWAIT | self.cache_flags();
        let start = self.stats.now();
        // SAFETY: the caller vouches for the memory of the vectors.
        let got = unsafe { late::preadv2(fd, iov.as_ptr(), n, at, flags) };
        if got < 0 {
            let e = std::io::Error::last_os_error().raw_os_error();
            if self.cache_flags() == 0 && matches!(e, Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)) {
                self.no_nowait.store(true, Ordering::Relaxed);
            }
        }
        if got != len as isize {
            return None;
        }
        let took = self.stats.now().saturating_sub(start);
        self.stats.record(OpClass::Read, purpose, len, true, took);
        Some(len)
    }

    fn sync_sys(&self, data_only: bool) -> Sys<()> {
        match retry_intr(|| self.calls().fsync(data_only)) {
            Ok(_) => Ok(()),
            Err(e) => {
                self.sync_failed(e);
                Err(e)
            }
        }
    }

    fn allocate_sys(&self, offset: u64, len: u64) -> Sys<()> {
        match retry_intr(|| self.calls().fallocate(offset, len)) {
            Ok(_) => return Ok(()),
            Err(libc::EOPNOTSUPP | libc::ENOSYS) => {}
            Err(e) => return Err(e),
        }
        // No fallocate here: write zeros where the file has no bytes yet. What lies inside of the file is left
        // as it is, since it cannot be told from a hole without a race.
        let end = offset.checked_add(len).ok_or(libc::EFBIG)?;
        let unit = self.alignment.offset.max(1) as u64;
        let zeros = AlignedBuf::zeroed(1 << 20);
        let had = self.len_sys()?;
        if had >= end {
            return Ok(());
        }
        let mut at = had.max(offset).next_multiple_of(unit);
        while at < end {
            let n = (end - at).next_multiple_of(unit).min(zeros.len() as u64);
            self.write_sys(&zeros[..n as usize], at, false)?;
            at += n;
        }
        // The last unit may have grown the file beyond what was asked; and a file that ends between two units
        // has not been grown yet.
        if at > end || self.len_sys()? < end { self.set_len_sys(end) } else { Ok(()) }
    }

    fn set_len_sys(&self, len: u64) -> Sys<()> {
        let len = libc::off_t::try_from(len).map_err(|_| libc::EFBIG)?;
        let set = || retry_intr(|| self.calls().ftruncate(len)).map(drop);
        cutting(self.calls().key()?, len as u64, set)
    }

    fn len_sys(&self) -> Sys<u64> {
        self.calls().len()
    }

    /// Refuses writes that direct I/O cannot do, and durable ones that could no longer be trusted.
    fn check_write(&self, offset: u64, len: u64, dsync: bool) -> Result<()> {
        if self.direct && !transfer::is_aligned(self.alignment, std::ptr::null(), offset, len) {
            let what = format!("a direct write must be aligned to {} bytes", self.alignment.offset);
            return Err(Error::new(ErrorKind::InvalidInput, "write", what).at(&self.path).range(offset, len));
        }
        if dsync { self.check_sync("write") } else { Ok(()) }
    }

    fn write_plain(&self, buf: &[u8], offset: u64, dsync: bool, purpose: Purpose) -> Result<()> {
        let len = buf.len() as u64;
        self.check_write(offset, len, dsync)?;
        let short = if dsync { u64::MAX } else { len };
        self.timed_transfer(
            OpClass::Write,
            purpose,
            short,
            |_| len,
            || self.write_sys(buf, offset, dsync).map_err(|e| self.error("write", e).range(offset, len)),
        )
    }

    /// sync_file_range with these flags.
    pub(super) fn sync_range_with(&self, offset: u64, len: u64, flags: u32, purpose: Purpose) -> Result<()> {
        self.check_sync("sync_file_range")?;
        let call = || self.calls().sync_file_range(offset, len, flags);
        self.timed(
            OpClass::SyncRange,
            purpose,
            |_| 0,
            || match retry_intr(call) {
                Ok(_) => Ok(()),
                // Only a hint: where it cannot be had, the sync that follows does all the work.
                Err(libc::ENOSYS | libc::EOPNOTSUPP | libc::ESPIPE) => Ok(()),
                Err(e) => {
                    // It reports, and so uses up, write-back errors that the next fsync would have reported.
                    if Self::spoils_sync(e) {
                        self.sync_failed(e);
                    }
                    Err(self.error("sync_file_range", e).range(offset, len))
                }
            },
        )
    }
}

impl RawFile for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, purpose: Purpose) -> Result<usize> {
        let len = buf.len() as u64;
        let call = || self.read_sys(buf, offset).map_err(|e| self.error("read", e).range(offset, len));
        let timed = || self.timed_transfer(OpClass::Read, purpose, len, |n| *n as u64, call);
        self.traced(c"read", purpose, (offset, len), |n| *n as u64, timed)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64, dsync: bool, purpose: Purpose) -> Result<()> {
        let len = buf.len() as u64;
        self.traced(
            c"write",
            purpose,
            (offset, len),
            |()| len,
            || self.write_plain(buf, offset, dsync, purpose),
        )
    }

    fn sync(&self, data_only: bool, purpose: Purpose) -> Result<()> {
        let op = if data_only { "fdatasync" } else { "fsync" };
        let probe = if data_only { c"fdatasync" } else { c"fsync" };
        let call = || {
            self.check_sync(op)?;
            let sync = || self.sync_sys(data_only).map_err(|e| self.error(op, e));
            self.timed(OpClass::Sync, purpose, |_| 0, sync)
        };
        self.traced(probe, purpose, (0, 0), |()| 0, call)
    }

    fn sync_range(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        let call = || self.sync_range_with(offset, len, SYNC_RANGE, purpose);
        self.traced(c"sync_file_range", purpose, (offset, len), |()| 0, call)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let purpose = Purpose::default();
        let call = || {
            if len == 0 {
                return Ok(());
            }
            let allocate =
                || self.allocate_sys(offset, len).map_err(|e| self.error("fallocate", e).range(offset, len));
            self.timed(OpClass::Allocate, purpose, |_| 0, allocate)
        };
        self.traced(c"fallocate", purpose, (offset, len), |()| 0, call)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let call = || {
            self.set_len_sys(len).map_err(|e| match e {
                libc::ETXTBSY => mapped_error(&self.path).range(0, len),
                _ => self.error("truncate", e).range(0, len),
            })
        };
        self.traced(c"truncate", Purpose::default(), (0, len), |()| 0, call)
    }

    fn len(&self) -> Result<u64> {
        self.len_sys().map_err(|e| self.error("stat", e))
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn alignment(&self) -> Alignment {
        self.alignment
    }

    fn map(&self, len: u64) -> Result<Box<dyn RawMap>> {
        // Before the file is asked for its length: from here on nobody cuts it.
        let held = self.calls().key().and_then(|key| Held::new(key, len));
        let held = held.map_err(|e| match e {
            libc::ETXTBSY => {
                let why = "the file is being cut to less by another thread";
                self.error("mmap", e).with_kind(ErrorKind::InvalidInput).detail(why)
            }
            _ => self.error("stat", e),
        })?;
        let have = self.len()?;
        if self.direct || have < len {
            let why = match self.direct {
                true => "a direct file is not mapped: the two do not see each other's writes".to_string(),
                false => format!("the file has {have} bytes, not {len}"),
            };
            return Err(Error::new(ErrorKind::InvalidInput, "mmap", why).at(&self.path));
        }
        match self.calls().map(len, held) {
            Ok(m) => Ok(m),
            Err(e) if matches!(e.errno(), Some(libc::ENODEV | libc::EOPNOTSUPP)) => {
                Err(e.with_kind(ErrorKind::Unsupported).at(&self.path))
            }
            Err(e) => Err(e.at(&self.path)),
        }
    }

    fn rewrites_in_place(&self) -> bool {
        match &self.open {
            Open::Kernel(fd) => in_place::rewrites_in_place(fd.as_raw_fd()),
            Open::Other(calls) => calls.rewrites_in_place(),
        }
    }

    fn advise(&self, advice: Advice, offset: u64, len: u64) -> Result<()> {
        self.advise_plain(advice, offset, len)
    }

    fn start_write_back(&self, offset: u64, len: u64, wait_before: bool, purpose: Purpose) -> Result<()> {
        let call = || self.start_write_back_plain(offset, len, wait_before, purpose);
        self.traced(c"sync_file_range", purpose, (offset, len), |()| 0, call)
    }

    fn read_cached_at(&self, buf: &mut [u8], offset: u64, purpose: Purpose) -> Option<()> {
        self.read_cached_plain(buf, offset, purpose)
    }

    fn os(&self) -> Option<&OsFile> {
        Some(self)
    }
}

fn answer(n: i32) -> Sys<i32> {
    if n >= 0 { Ok(n) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)) }
}

fn open_fd(path: &Path, how: &OpenHow) -> Result<OwnedFd> {
    let mut flags = libc::O_CLOEXEC;
    flags |= match (how.read, how.write) {
        (true, true) => libc::O_RDWR,
        (false, true) => libc::O_WRONLY,
        (true, false) => libc::O_RDONLY,
        (false, false) => {
            return Err(
                Error::new(ErrorKind::InvalidInput, "open", "neither for reading nor writing").at(path)
            );
        }
    };
    if (how.truncate || how.create || how.create_new) && !how.write {
        return Err(Error::new(ErrorKind::InvalidInput, "open", "made or cut but not for writing").at(path));
    }
    if how.create_new {
        flags |= libc::O_CREAT | libc::O_EXCL;
    } else if how.create {
        flags |= libc::O_CREAT;
    }
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::new(ErrorKind::InvalidInput, "open", "a zero byte in the path").at(path))?;
    // SAFETY: `name` is a zero-terminated string that lives for the call.
    let fd = retry_intr(|| answer(unsafe { libc::open(name.as_ptr(), flags, 0o644) }))
        .map_err(|e| Error::from_errno("open", e).at(path))?;
    // SAFETY: the kernel has just given us this descriptor, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
    if how.truncate {
        cut(fd.as_raw_fd()).map_err(|e| match e {
            libc::ETXTBSY => mapped_error(path),
            _ => Error::from_errno("truncate", e).at(path),
        })?;
    }
    Ok(fd)
}

/// What O_TRUNC does, but not under a mapping.
fn cut(fd: RawFd) -> Sys<()> {
    let st = stat(fd)?;
    if st.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Ok(());
    }
    let set = || retry_intr(|| Calls::Kernel(fd).ftruncate(0)).map(drop);
    cutting(FileKey::Kernel(st.st_dev, st.st_ino), 0, set)
}

/// The error of cutting what is mapped.
fn mapped_error(path: &Path) -> Error {
    Error::from_errno("truncate", libc::ETXTBSY).with_kind(ErrorKind::InvalidInput).at(path).detail(MAPPED)
}

/// Turns O_DIRECT on. Not at open: an open that makes the file and then refuses O_DIRECT leaves it behind.
fn set_direct(fd: RawFd) -> Sys<Alignment> {
    let alignment = dio_alignment(fd)?;
    // SAFETY: plain system calls on an open descriptor.
    let flags = retry_intr(|| answer(unsafe { libc::fcntl(fd, libc::F_GETFL) }))?;
    // SAFETY: as above.
    retry_intr(|| answer(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_DIRECT) }))?;
    Ok(alignment)
}

/// What statx says of direct I/O on this file; EINVAL if it says that there is none.
fn dio_alignment(fd: RawFd) -> Sys<Alignment> {
    let Some(st) = late::statx(fd, libc::STATX_DIOALIGN) else { return Ok(DIRECT_FALLBACK) };
    if st.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Ok(DIRECT_FALLBACK);
    }
    let (memory, offset) = (st.stx_dio_mem_align, st.stx_dio_offset_align);
    if memory == 0 || offset == 0 {
        return Err(libc::EINVAL);
    }
    // AlignedBuf can serve no more than its own alignment, and no device known asks for more.
    if memory as usize > AlignedBuf::ALIGN || offset as usize > (1 << 20) {
        return Err(libc::EINVAL);
    }
    Ok(Alignment { memory, offset })
}
