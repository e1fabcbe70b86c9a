//! An engine whose queues fail on demand.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering::SeqCst};

use engineswap::engine::{Engine, RawQueue};
use engineswap::open_engine;
use engineswap::{
    DirEntry, Done, EngineInfo, Error, ErrorKind, File, FileLock, Io, Metadata, Op, OpKind, OpenHow, Result,
};

/// What fails, after so many more operations of its kind.
#[derive(Default)]
pub(super) struct Faults {
    what: AtomicU8,
    after: AtomicI64,
}

pub(super) const NO_SPACE: u8 = 1;
pub(super) const WRITE_ERROR: u8 = 2;
pub(super) const READ_ERROR: u8 = 3;

impl Faults {
    pub fn set(&self, what: u8, after: i64) {
        self.after.store(after, SeqCst);
        self.what.store(what, SeqCst);
    }

    pub fn clear(&self) {
        self.what.store(0, SeqCst);
    }

    fn hits(&self, kind: OpKind) -> Option<Error> {
        let full = (ErrorKind::NoSpace, "No space left on device");
        let broken = (ErrorKind::Io, "Input/output error");
        let (op, (kind, why)) = match (self.what.load(SeqCst), kind) {
            (NO_SPACE, OpKind::Write { .. }) => ("write", full),
            (WRITE_ERROR, OpKind::Write { .. }) => ("write", broken),
            (READ_ERROR, OpKind::Read) => ("read", broken),
            _ => return None,
        };
        (self.after.fetch_sub(1, SeqCst) <= 0).then(|| Error::new(kind, op, why))
    }
}

pub(super) struct Faulty {
    inner: Arc<dyn Engine>,
    faults: Arc<Faults>,
}

pub(super) fn faulty_io() -> (Io, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let inner = open_engine("posix").expect("posix");
    (Io::from_engine(Arc::new(Faulty { inner, faults: Arc::clone(&faults) })), faults)
}

impl Engine for Faulty {
    fn info(&self) -> EngineInfo {
        self.inner.info()
    }
    fn open(&self, path: &Path, how: &OpenHow) -> Result<File> {
        self.inner.open(path, how)
    }
    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        self.inner.metadata(path)
    }
    fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.inner.read_dir(path)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.inner.create_dir_all(path)
    }
    fn remove_file(&self, path: &Path) -> Result<()> {
        self.inner.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.inner.remove_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.hard_link(from, to)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.inner.sync_dir(path)
    }
    fn lock_file(&self, path: &Path) -> Result<FileLock> {
        self.inner.lock_file(path)
    }
    fn queue(&self, depth: u32) -> Result<Box<dyn RawQueue>> {
        let inner = self.inner.queue(depth)?;
        Ok(Box::new(FaultyQueue { inner, faults: Arc::clone(&self.faults), failed: Vec::new() }))
    }
    fn run(&self, ops: Vec<Op>) -> Vec<Done> {
        self.inner.run(ops)
    }
}

struct FaultyQueue {
    inner: Box<dyn RawQueue>,
    faults: Arc<Faults>,
    failed: Vec<Done>,
}

impl RawQueue for FaultyQueue {
    fn push(&mut self, op: Op) -> std::result::Result<(), Op> {
        match self.faults.hits(op.kind) {
            Some(e) => self.failed.push(Done { user: op.user, result: Err(e), buf: op.buf }),
            None => return self.inner.push(op),
        }
        Ok(())
    }
    fn submit(&mut self) -> Result<()> {
        self.inner.submit()
    }
    fn wait(&mut self, min: usize) -> Result<()> {
        self.inner.wait(min.saturating_sub(self.failed.len()))
    }
    fn pop(&mut self) -> Option<Done> {
        self.failed.pop().or_else(|| self.inner.pop())
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.failed.len()
    }
}
