//! An engine that fails every change of the disk from the n-th on, as a disk that dies (or fills up) does.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

use ringdb::engineswap::engine::{Engine, RawFile, RawMap, RawQueue};
use ringdb::engineswap::{
    Alignment, Buf, DirEntry, Done, EngineInfo, Error, ErrorKind, File, FileLock, Io, Metadata, Op, OpKind,
    OpenHow, Purpose, Result, open_engine,
};

/// How many changes still succeed, and how the next ones fail.
pub struct Dying {
    left: AtomicI64,
    kind: ErrorKind,
    /// Reads of files whose names end so fail, from this offset to that.
    bad: Mutex<Option<Bytes>>,
    failed_reads: AtomicI64,
    /// Called before each open and read of a file.
    before_read: Mutex<Option<Hook>>,
    /// Reads of files whose names end so hang, from this offset to that; and how many do.
    stuck: Mutex<(Option<Bytes>, usize)>,
    unstuck: Condvar,
    /// There are queues that threads share.
    shared_queues: AtomicBool,
}

/// Of files whose names end so.
type Bytes = (String, Range<u64>);
type Hook = Box<dyn FnMut() + Send>;

impl Dying {
    /// Changes that still succeed; negative when some have failed.
    #[allow(dead_code)] // not every test counts
    pub fn left(&self) -> i64 {
        self.left.load(SeqCst)
    }

    /// Reads that touch these bytes of files whose names end so fail from now on, with EIO; `None`: none does.
    #[allow(dead_code)] // not every test reads
    pub fn fail_reads(&self, bad: Option<(&str, Range<u64>)>) {
        *self.bad.lock().unwrap() = bad.map(|(name, range)| (name.to_string(), range));
    }

    /// Has something happen before each open and read of a file.
    #[allow(dead_code)] // not every test looks on
    pub fn before_reads(&self, hook: impl FnMut() + Send + 'static) {
        *self.before_read.lock().unwrap() = Some(Box::new(hook));
    }

    /// Reads that touch these bytes of files whose names end so hang from now on; `None`: none does, nor any longer.
    #[allow(dead_code)] // not every test reads
    pub fn hold_reads(&self, bytes: Option<(&str, Range<u64>)>) {
        self.stuck.lock().unwrap().0 = bytes.map(|(name, range)| (name.to_string(), range));
        self.unstuck.notify_all();
    }

    /// Waits until so many reads hang.
    #[allow(dead_code)] // not every test reads
    pub fn wait_for_held(&self, n: usize) {
        let start = std::time::Instant::now();
        while self.stuck.lock().unwrap().1 != n {
            assert!(start.elapsed().as_secs() < 100, "other than {n} reads hang");
            std::thread::yield_now();
        }
    }

    /// Whether queues that threads share are to be had: posix's. Not at first.
    #[allow(dead_code)] // not every test reads
    pub fn give_shared_queues(&self, give: bool) {
        self.shared_queues.store(give, SeqCst);
    }

    fn step(&self) {
        if let Some(hook) = &mut *self.before_read.lock().unwrap() {
            hook();
        }
    }

    /// Reads that have failed.
    #[allow(dead_code)] // not every test reads
    pub fn failed_reads(&self) -> i64 {
        self.failed_reads.load(SeqCst)
    }

    fn read(&self, path: &Path, offset: u64, len: u64) -> Result<()> {
        self.step();
        let meets = |bytes: &Option<Bytes>| {
            bytes.as_ref().is_some_and(|(name, bytes)| {
                path.to_string_lossy().ends_with(name.as_str())
                    && offset < bytes.end
                    && bytes.start < offset + len
            })
        };
        let mut stuck = self.stuck.lock().unwrap();
        while meets(&stuck.0) {
            stuck.1 += 1;
            stuck = self.unstuck.wait(stuck).unwrap();
            stuck.1 -= 1;
        }
        drop(stuck);
        match &*self.bad.lock().unwrap() {
            bad if meets(bad) => {
                self.failed_reads.fetch_add(1, SeqCst);
                Err(Error::from_errno("read", 5).at(path).range(offset, len))
            }
            _ => Ok(()),
        }
    }

    fn change(&self, op: &'static str) -> Result<()> {
        match self.left.fetch_sub(1, SeqCst) {
            n if n > 0 => Ok(()),
            _ => Err(Error::new(self.kind, op, "the disk has died")),
        }
    }
}

/// posix until `after` changes have been made.
pub fn dying(after: i64, kind: ErrorKind) -> (Io, Arc<Dying>) {
    let state = Arc::new(Dying {
        left: AtomicI64::new(after),
        kind,
        bad: Mutex::new(None),
        failed_reads: AtomicI64::new(0),
        before_read: Mutex::new(None),
        stuck: Mutex::default(),
        unstuck: Condvar::new(),
        shared_queues: AtomicBool::new(false),
    });
    dying_with(state, None)
}

type Queues = Box<dyn Fn() -> Box<dyn RawQueue + Send> + Send + Sync>;

/// posix, with shared queues of the caller's.
#[allow(dead_code)] // not every test has queues
pub fn with_queues(queues: impl Fn() -> Box<dyn RawQueue + Send> + Send + Sync + 'static) -> Io {
    let state = dying(i64::MAX, ErrorKind::Io).1;
    dying_with(state, Some(Box::new(queues))).0
}

fn dying_with(state: Arc<Dying>, queues: Option<Queues>) -> (Io, Arc<Dying>) {
    let engine = open_engine("posix").unwrap();
    let io = Io::from_engine(engine.clone());
    (Io::from_engine(Arc::new(DyingEngine { io, engine, state: state.clone(), queues })), state)
}

struct DyingEngine {
    io: Io,
    engine: Arc<dyn Engine>,
    state: Arc<Dying>,
    queues: Option<Queues>,
}

impl Engine for DyingEngine {
    fn info(&self) -> EngineInfo {
        self.io.info()
    }
    fn open(&self, path: &Path, how: &OpenHow) -> Result<File> {
        if how.create || how.create_new || how.truncate {
            self.state.change("open")?;
        }
        self.state.step();
        let file = self.io.open(path, how)?;
        Ok(File::from_raw(Arc::new(DyingFile { file, state: self.state.clone() })))
    }
    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        self.io.metadata(path)
    }
    fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.io.read_dir(path)
    }
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.state.change("mkdir")?;
        self.io.create_dir_all(path)
    }
    fn remove_file(&self, path: &Path) -> Result<()> {
        self.state.change("unlink")?;
        self.io.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.state.change("rmdir")?;
        self.io.remove_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.state.change("rename")?;
        self.io.rename(from, to)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.state.change("link")?;
        self.io.hard_link(from, to)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.state.change("fsync directory")?;
        self.io.sync_dir(path)
    }
    fn lock_file(&self, path: &Path) -> Result<FileLock> {
        self.io.lock_file(path)
    }
    fn queue(&self, depth: u32) -> Result<Box<dyn RawQueue>> {
        Ok(Box::new(DyingQueue { depth: depth as usize, todo: VecDeque::new(), done: VecDeque::new() }))
    }
    fn shared_queue(&self, depth: u32) -> Result<Box<dyn RawQueue + Send>> {
        match &self.queues {
            Some(queues) => Ok(queues()),
            None if self.state.shared_queues.load(SeqCst) => self.engine.shared_queue(depth),
            None => Err(Error::new(ErrorKind::Unsupported, "queue", "none is shared")),
        }
    }
    fn run(&self, ops: Vec<Op>) -> Vec<Done> {
        ops.into_iter().map(run).collect()
    }
}

/// Does an operation by a plain call.
pub fn run(mut op: Op) -> Done {
    let (len, file) = (op.len as usize, op.file.clone());
    let result = match (op.kind, &mut op.buf) {
        (OpKind::Read, Buf::Aligned(b)) => {
            file.read_at(&mut b[..len], op.offset, op.purpose).map(|n| n as u64)
        }
        (OpKind::Read, Buf::Arena(b)) => file.read_at(&mut b[..len], op.offset, op.purpose).map(|n| n as u64),
        (OpKind::Read, Buf::Pieces(pieces)) => {
            let mut total = 0;
            let mut result = Ok(());
            for b in pieces.iter_mut() {
                let want = b.len().min(len - total);
                match file.read_at(&mut b.to_fill()[..want], op.offset + total as u64, op.purpose) {
                    Ok(n) => total += n,
                    Err(e) => result = Err(e),
                }
                if total == len || result.is_err() {
                    break;
                }
            }
            result.map(|()| total as u64)
        }
        (OpKind::Write { dsync: true }, Buf::Aligned(b)) => {
            file.write_all_at_dsync(&b[..len], op.offset, op.purpose).map(|()| op.len)
        }
        (OpKind::Write { .. }, Buf::Aligned(b)) => {
            file.write_all_at(&b[..len], op.offset, op.purpose).map(|()| op.len)
        }
        (OpKind::SyncAll, _) => file.sync_all(op.purpose).map(|()| 0),
        (OpKind::SyncData, _) => file.sync_data(op.purpose).map(|()| 0),
        (OpKind::Allocate, _) => file.allocate(op.offset, op.len).map(|()| 0),
        (OpKind::SyncRange, _) => Ok(0),
        _ => Err(Error::new(ErrorKind::InvalidInput, "run", "an operation that the tests do not know")),
    };
    Done { user: op.user, result, buf: op.buf }
}

struct DyingQueue {
    depth: usize,
    todo: VecDeque<Op>,
    done: VecDeque<Done>,
}

impl RawQueue for DyingQueue {
    fn push(&mut self, op: Op) -> std::result::Result<(), Op> {
        if self.in_flight() >= self.depth {
            return Err(op);
        }
        self.todo.push_back(op);
        Ok(())
    }
    fn submit(&mut self) -> Result<()> {
        while let Some(op) = self.todo.pop_front() {
            self.done.push_back(run(op));
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

struct DyingFile {
    file: File,
    state: Arc<Dying>,
}

impl RawFile for DyingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, purpose: Purpose) -> Result<usize> {
        self.state.read(self.file.path(), offset, buf.len() as u64)?;
        self.file.read_at(buf, offset, purpose)
    }
    fn write_all_at(&self, buf: &[u8], offset: u64, dsync: bool, purpose: Purpose) -> Result<()> {
        self.state.change("write")?;
        match dsync {
            true => self.file.write_all_at_dsync(buf, offset, purpose),
            false => self.file.write_all_at(buf, offset, purpose),
        }
    }
    fn sync(&self, data_only: bool, purpose: Purpose) -> Result<()> {
        self.state.change("fsync")?;
        if data_only { self.file.sync_data(purpose) } else { self.file.sync_all(purpose) }
    }
    fn sync_range(&self, _offset: u64, _len: u64, _purpose: Purpose) -> Result<()> {
        Ok(())
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.state.change("fallocate")?;
        self.file.allocate(offset, len)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.state.change("truncate")?;
        self.file.set_len(len)
    }
    fn len(&self) -> Result<u64> {
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
    fn map(&self, _len: u64) -> Result<Box<dyn RawMap>> {
        Err(Error::new(ErrorKind::Unsupported, "mmap", "writes are counted"))
    }
}
