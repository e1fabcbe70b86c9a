//! What is said of a file beside its bytes: advice for the page cache, early write-back.

use super::os_file::OsFile;
use crate::how::Advice;
use crate::kind::Purpose;
use crate::{Error, ErrorKind, Result};

/// The flags of a sync_file_range that waits for all of it.
pub(crate) const SYNC_RANGE: u32 =
    libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;

/// Those of one that starts write-back, having waited, if asked to, for what was under way.
pub(crate) fn start_write_back(wait_before: bool) -> u32 {
    let wait = if wait_before { libc::SYNC_FILE_RANGE_WAIT_BEFORE } else { 0 };
    wait | libc::SYNC_FILE_RANGE_WRITE
}

impl OsFile {
    /// posix_fadvise. That a file system takes no advice is no error.
    pub(super) fn advise_plain(&self, advice: Advice, offset: u64, len: u64) -> Result<()> {
        let what = match advice {
            Advice::Normal => libc::POSIX_FADV_NORMAL,
            Advice::Sequential => libc::POSIX_FADV_SEQUENTIAL,
            Advice::Random => libc::POSIX_FADV_RANDOM,
            Advice::WillNeed => libc::POSIX_FADV_WILLNEED,
            Advice::DontNeed => libc::POSIX_FADV_DONTNEED,
        };
        let (at, n) = self.range("fadvise", offset, len)?;
        if self.other().is_some() {
            // It has no page cache to advise.
            return Ok(());
        }
        match self.calls().fadvise(at, n, what) {
            0 | libc::ENOSYS | libc::EOPNOTSUPP | libc::ESPIPE => Ok(()),
            e => Err(self.error("fadvise", e).range(offset, len)),
        }
    }

    pub(super) fn start_write_back_plain(
        &self,
        offset: u64,
        len: u64,
        wait_before: bool,
        purpose: Purpose,
    ) -> Result<()> {
        self.sync_range_with(offset, len, start_write_back(wait_before), purpose)
    }

    fn range(&self, op: &'static str, offset: u64, len: u64) -> Result<(libc::off_t, libc::off_t)> {
        match (libc::off_t::try_from(offset), libc::off_t::try_from(len)) {
            (Ok(at), Ok(n)) if at.checked_add(n).is_some() => Ok((at, n)),
            _ => Err(Error::new(ErrorKind::InvalidInput, op, "beyond the largest offset")
                .at(self.file_path())
                .range(offset, len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Advice, ErrorKind, Io, OpClass, OpenHow, Purpose};

    /// How many of the file's first pages are in the page cache.
    fn cached(fd: i32, pages: usize) -> usize {
        // SAFETY: a new mapping of a file with so many pages, given back below; mincore fills `seen`.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), pages * 4096, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
            assert_ne!(at, libc::MAP_FAILED);
            let mut seen = vec![0u8; pages];
            assert_eq!(libc::mincore(at, pages * 4096, seen.as_mut_ptr()), 0);
            libc::munmap(at, pages * 4096);
            seen.iter().filter(|p| **p & 1 == 1).count()
        }
    }

    #[test]
    fn advice_empties_and_fills_the_page_cache() {
        // Not in a tmpfs, which is the page cache.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let io = Io::from_uri("posix").unwrap();
        let f = io.open(&dir.path().join("f"), &OpenHow::read_write()).unwrap();
        f.write_all_at(&[7; 64 * 4096], 0, Purpose(0)).unwrap();
        f.sync_all(Purpose(0)).unwrap();
        let fd = f.raw_fd().unwrap();
        for advice in [Advice::Normal, Advice::Sequential, Advice::Random] {
            f.advise(advice, 0, 0).unwrap();
        }
        assert_eq!(cached(fd, 64), 64);
        f.advise(Advice::DontNeed, 0, 0).unwrap();
        assert_eq!(cached(fd, 64), 0);
        f.advise(Advice::WillNeed, 32 * 4096, 4 * 4096).unwrap();
        let mut page = [0; 4096];
        f.read_exact_at(&mut page, 33 * 4096, Purpose(0)).unwrap();
        assert!(cached(fd, 64) >= 4);
        assert_eq!(f.advise(Advice::DontNeed, 1 << 63, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn what_is_streamed_leaves_the_page_cache() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        for uri in ["posix", "posix?nowait=off", "libaio", "io_uring"] {
            let Ok(io) = Io::from_uri(uri) else { continue };
            let path = dir.path().join("f");
            let f = io.open(&path, &OpenHow::read_write().dontcache()).unwrap();
            let plain = io.open(&path, &OpenHow::read()).unwrap();
            let fd = plain.raw_fd().unwrap();
            let data: Vec<u8> = (0..64 * 4096).map(|i| (i % 253) as u8).collect();
            f.write_all_at(&data, 0, Purpose(0)).unwrap();
            f.sync_all(Purpose(0)).unwrap();
            if f.0.os().unwrap().cache_flags() == 0 {
                return println!("skipped: no RWF_DONTCACHE here");
            }
            // The pages go when their write-back ends, which may be seen a moment after the sync.
            let gone = || {
                (0..1000).any(|_| {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    cached(fd, 64) == 0
                })
            };
            assert!(gone(), "{uri}: {} pages stay", cached(fd, 64));
            let read = |f: &crate::File| {
                let page = |i: u64| {
                    let buf = crate::Buf::Aligned(crate::mem::AlignedBuf::zeroed(4096));
                    crate::Op::read(f, i * 4096, 4096, buf, Purpose(0))
                };
                for (i, done) in io.run((0..64).map(page).collect()).into_iter().enumerate() {
                    let crate::Buf::Aligned(b) = done.buf else { panic!("the buffer is gone") };
                    assert!(b[..] == data[i * 4096..][..4096], "page {i}");
                }
                let mut all = vec![0; data.len()];
                f.read_exact_at(&mut all, 0, Purpose(0)).unwrap();
                assert!(all == data);
            };
            read(&f);
            assert!(gone(), "{uri}: {} pages stay", cached(fd, 64));
            read(&plain);
            assert_eq!(cached(fd, 64), 64);
            drop((f, plain));
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn write_back_starts_and_counts() {
        let dir = tempfile::tempdir().unwrap();
        let io = Io::from_uri("posix").unwrap();
        let f = io.open(&dir.path().join("f"), &OpenHow::read_write()).unwrap();
        f.write_all_at(&[7; 8192], 0, Purpose(0)).unwrap();
        f.start_write_back(0, 4096, false, Purpose(3)).unwrap();
        f.start_write_back(0, 0, true, Purpose(3)).unwrap();
        assert_eq!(io.stats().of(OpClass::SyncRange, Purpose(3)).ops, 2);
        f.0.os().unwrap().sync_failed(libc::EIO);
        assert_eq!(f.start_write_back(0, 0, true, Purpose(3)).unwrap_err().kind(), ErrorKind::SyncFailed);
    }

    #[test]
    fn a_simulated_disk_takes_advice() {
        let io = Io::from_uri("sim").unwrap();
        let path = std::path::Path::new("/f");
        let f = io.open(path, &OpenHow { dontcache: true, ..OpenHow::read_write() }).unwrap();
        f.write_all_at(b"bytes", 0, Purpose(0)).unwrap();
        let mut back = [0; 5];
        f.read_exact_at(&mut back, 0, Purpose(0)).unwrap();
        assert_eq!(&back, b"bytes");
        f.advise(Advice::DontNeed, 0, 0).unwrap();
        f.start_write_back(0, 5, true, Purpose(0)).unwrap();
    }
}
