//! I/O errors: the first one stops the log for good, and nothing unacknowledged is taken for acknowledged.

use std::path::Path;

use crate::sync::atomic::AtomicBool;

use engineswap::engine::{Engine, RawFile, RawMap, RawQueue};
use engineswap::{
    Alignment, DirEntry, Done, EngineInfo, Error as IoError, ErrorKind, File, FileLock, Metadata, Op,
    OpenHow, Purpose, Result as IoResult,
};

use super::tests::{numbers, payload, replay_all, small};
use super::*;
use crate::Error;
use crate::sync::lock;

/// Passes everything on to a real engine, but fails as told.
pub(super) struct Faulty {
    pub io: Io,
    pub faults: Arc<Faults>,
}

#[derive(Default)]
pub(super) struct Faults {
    write: AtomicBool,
    sync: AtomicBool,
    sync_dir: AtomicBool,
    allocate: AtomicBool,
    /// Happens before each read of a file.
    pub before_read: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

fn fail(flag: &AtomicBool, kind: ErrorKind, op: &'static str) -> IoResult<()> {
    if flag.load(Ordering::Relaxed) { Err(IoError::new(kind, op, "told to fail")) } else { Ok(()) }
}

impl Engine for Faulty {
    fn info(&self) -> EngineInfo {
        self.io.info()
    }
    fn open(&self, path: &Path, how: &OpenHow) -> IoResult<File> {
        let file = self.io.open(path, how)?;
        Ok(File::from_raw(Arc::new(FaultyFile { file, faults: self.faults.clone() })))
    }
    fn metadata(&self, path: &Path) -> IoResult<Option<Metadata>> {
        self.io.metadata(path)
    }
    fn read_dir(&self, path: &Path) -> IoResult<Vec<DirEntry>> {
        self.io.read_dir(path)
    }
    fn create_dir_all(&self, path: &Path) -> IoResult<()> {
        self.io.create_dir_all(path)
    }
    fn remove_file(&self, path: &Path) -> IoResult<()> {
        self.io.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> IoResult<()> {
        self.io.remove_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> IoResult<()> {
        self.io.rename(from, to)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> IoResult<()> {
        self.io.hard_link(from, to)
    }
    fn sync_dir(&self, path: &Path) -> IoResult<()> {
        fail(&self.faults.sync_dir, ErrorKind::Io, "fsync directory")?;
        self.io.sync_dir(path)
    }
    fn lock_file(&self, path: &Path) -> IoResult<FileLock> {
        self.io.lock_file(path)
    }
    fn queue(&self, _depth: u32) -> IoResult<Box<dyn RawQueue>> {
        Err(IoError::new(ErrorKind::Unsupported, "queue", "the log needs none"))
    }
    fn run(&self, ops: Vec<Op>) -> Vec<Done> {
        self.io.run(ops)
    }
}

struct FaultyFile {
    file: File,
    faults: Arc<Faults>,
}

impl RawFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, purpose: Purpose) -> IoResult<usize> {
        if let Some(happen) = &mut *lock(&self.faults.before_read) {
            happen();
        }
        self.file.read_at(buf, offset, purpose)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64, dsync: bool, purpose: Purpose) -> IoResult<()> {
        fail(&self.faults.write, ErrorKind::Io, "write")?;
        match dsync {
            true => self.file.write_all_at_dsync(buf, offset, purpose),
            false => self.file.write_all_at(buf, offset, purpose),
        }
    }
    fn sync(&self, _data_only: bool, purpose: Purpose) -> IoResult<()> {
        fail(&self.faults.sync, ErrorKind::Io, "fdatasync")?;
        self.file.sync_all(purpose)
    }
    fn sync_range(&self, _offset: u64, _len: u64, _purpose: Purpose) -> IoResult<()> {
        Ok(())
    }
    fn allocate(&self, offset: u64, len: u64) -> IoResult<()> {
        fail(&self.faults.allocate, ErrorKind::NoSpace, "fallocate")?;
        self.file.allocate(offset, len)
    }
    fn set_len(&self, len: u64) -> IoResult<()> {
        self.file.set_len(len)
    }
    fn len(&self) -> IoResult<u64> {
        self.file.len()
    }
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
    fn alignment(&self) -> Alignment {
        self.file.alignment()
    }
    fn map(&self, _len: u64) -> IoResult<Box<dyn RawMap>> {
        Err(IoError::new(ErrorKind::Unsupported, "mmap", "told to fail"))
    }
}

fn log(dir: &Path, medium: Medium) -> (Arc<Faults>, Arc<Log>, LogWriter) {
    let faults = Arc::new(Faults::default());
    let io = Io::from_engine(Arc::new(Faulty { io: super::tests::io(), faults: faults.clone() }));
    let (log, w) = Log::create(&io, &StoreDir::open(&io, dir).unwrap(), small(medium), numbers(1)).unwrap();
    (faults, log, w)
}

#[test]
fn a_failed_sync_is_final() {
    for dir_only in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        // Mappings are not to be had here: the mapped medium falls back to `pwrite`.
        let (faults, log, mut w) = log(dir.path(), Medium::Mapped);
        // The log begins in a segment whose name is durable; the second one's is not.
        let first = w.append(1, &[&payload(1, 60_000)]).unwrap();
        let pos = w.append(2, &[&payload(2, 60_000)]).unwrap();
        assert!(pos.segment > first.segment);
        let flag = if dir_only { &faults.sync_dir } else { &faults.sync };
        flag.store(true, Ordering::Relaxed);
        assert!(matches!(log.sync_to(pos), Err(Error::Io(_))));
        flag.store(false, Ordering::Relaxed);
        assert!(matches!(log.sync_to(pos), Err(Error::Stopped(r)) if r.contains("told to fail")));
        assert!(matches!(w.append(3, &[b"b"]), Err(Error::Stopped(_))));
    }
}

#[test]
fn a_failed_write_is_final() {
    for medium in [Medium::Pwrite, Medium::Direct] {
        let dir = tempfile::tempdir().unwrap();
        let (faults, log, mut w) = log(dir.path(), medium);
        w.append(1, &[b"a"]).unwrap();
        faults.write.store(true, Ordering::Relaxed);
        assert!(matches!(w.append(2, &[b"b"]), Err(Error::Io(_))));
        faults.write.store(false, Ordering::Relaxed);
        assert!(matches!(w.append(3, &[b"c"]), Err(Error::Stopped(r)) if r.contains("told to fail")));
        assert!(log.latch.check().is_err());
        let (got, end) = replay_all(dir.path());
        end.unwrap();
        assert_eq!(got, [(1, b"a".to_vec())]);
    }
}

#[test]
fn a_full_disk_can_be_mended() {
    for medium in [Medium::Pwrite, Medium::Direct] {
        let dir = tempfile::tempdir().unwrap();
        let (faults, log, mut w) = log(dir.path(), medium);
        let mut want = vec![];
        faults.allocate.store(true, Ordering::Relaxed);
        let mut seq = 1;
        let e = loop {
            let p = payload(seq, 20_000);
            match w.append(seq, &[&p]) {
                Ok(_) => want.push((seq, p)),
                Err(e) => break e,
            }
            seq += 1;
        };
        assert!(e.kind() == crate::ErrorKind::Retry, "{e}");
        assert_eq!(log.latch.reason(), None);
        faults.allocate.store(false, Ordering::Relaxed);
        let p = payload(seq, 20_000);
        w.append(seq, &[&p]).unwrap();
        want.push((seq, p));
        let (got, end) = replay_all(dir.path());
        end.unwrap();
        assert!(got == want, "{medium:?}");
    }
}
