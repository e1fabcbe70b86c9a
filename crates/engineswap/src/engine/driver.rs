//! What every engine of the operating system shares: files, locks and directories by plain system calls. The engines
//! differ only in how their queues overlap operations.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use super::owned::{Owned, SlotQueue};
use super::{Engine, RawQueue, RawRegistration, Unregistered};
use crate::Result;
use crate::engine::queued::{self, RunsAlone};
use crate::engine::{kept, runner};
use crate::file::{File, FileLock};
use crate::how::OpenHow;
use crate::info::{DirEntry, EngineInfo, Metadata};
use crate::kind::Purpose;
use crate::mem::Region;
use crate::op::{Done, Op};
use crate::os::{OsFile, dirs};
use crate::probes::{self, Event};
use crate::stats::{IoStats, Stats};

/// Who uses a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Users {
    /// The thread that made it.
    One,
    /// Threads one after the other, each with nothing in flight when it goes on.
    InTurn,
    /// Several threads at once.
    Many,
}

/// How an engine of the operating system makes its queues.
pub(crate) trait Driver: Send + Sync {
    /// The engine's name, for the probes.
    const NAME: &'static CStr;
    /// Its queues.
    type Queue: SlotQueue + Send + 'static;
    /// What it is.
    fn info(&self) -> EngineInfo;
    /// A file has been opened; an error if the driver cannot do what was asked of it with this file.
    fn opened(&self, _file: &OsFile) -> Result<()> {
        Ok(())
    }
    /// Makes a queue.
    fn queue(&self, depth: u32, users: Users, stats: &Arc<Stats>) -> Result<Self::Queue>;
    /// As many queues as are to be had at once.
    fn most_queues(&self) -> usize {
        usize::MAX
    }
    /// See [`Engine::register_buffers`].
    fn register_buffers(&self, _region: Region) -> Result<Box<dyn RawRegistration>> {
        Ok(Box::new(Unregistered(format!("{} has no registered buffers", self.info().name))))
    }
    /// The depth of the queues made for [`Engine::run`].
    fn run_depth(&self) -> u32;
    /// Whether buffered reads of a batch overlap only if each is tried before any is waited for (see `cached.rs`).
    fn cached_first(&self) -> bool {
        false
    }
    /// Whether an operation that is alone goes through a queue, too.
    fn queue_always(&self) -> bool {
        false
    }
}

/// An engine of the operating system: shared files and directories, the driver's queues.
pub(crate) struct OsEngine<D> {
    driver: D,
    stats: Arc<Stats>,
    /// Threads keep a queue per engine; the strong side of it says that the engine is still there.
    token: Arc<u64>,
    /// For the files whose every call goes through a queue.
    me: Weak<OsEngine<D>>,
}

impl<D: Driver + 'static> OsEngine<D> {
    pub(crate) fn start(driver: D) -> Arc<OsEngine<D>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (stats, token) = (Arc::new(Stats::new(D::NAME)), Arc::new(NEXT.fetch_add(1, Relaxed)));
        Arc::new_cyclic(|me| OsEngine { driver, stats, token, me: me.clone() })
    }

    fn make(&self, depth: u32, users: Users) -> Result<Box<Owned<D::Queue>>> {
        Ok(Box::new(Owned::new(self.driver.queue(depth, users, &self.stats)?)))
    }
}

impl<D> Drop for OsEngine<D> {
    fn drop(&mut self) {
        kept::close(*self.token);
    }
}

impl<D: Driver + 'static> kept::Maker for OsEngine<D> {
    fn own(&self) -> Result<Box<dyn RawQueue>> {
        Ok(self.make(self.driver.run_depth(), Users::One)?)
    }

    fn loose(&self) -> Result<Box<dyn RawQueue + Send>> {
        Ok(self.make(self.driver.run_depth(), Users::InTurn)?)
    }

    fn cached_first(&self) -> bool {
        self.driver.cached_first()
    }

    fn depth(&self) -> u32 {
        self.driver.run_depth()
    }

    fn queue_always(&self) -> bool {
        self.driver.queue_always()
    }

    fn most(&self) -> usize {
        self.driver.most_queues()
    }
}

/// A call that needs a descriptor. When there is none left, those of idle queues are given back for it.
fn with_room<T>(call: impl Fn() -> Result<T>) -> Result<T> {
    match call() {
        Err(e) if matches!(e.errno(), Some(libc::EMFILE | libc::ENFILE)) && kept::make_room() => call(),
        result => result,
    }
}

/// An operation on a name, with its probes.
fn named<D: Driver, T>(op: &'static CStr, call: impl Fn() -> Result<T>) -> Result<T> {
    let purpose = Purpose::default();
    let event = || Event { engine: D::NAME, op, purpose, fd: -1, offset: 0, len: 0, plain: true, tag: 0 };
    probes::around(event, |_| 0, || with_room(call))
}

impl<D: Driver + 'static> RunsAlone for OsEngine<D> {
    fn run_alone(&self, op: Op) -> Done {
        runner::run_alone(&self.token, op, self, &self.stats)
    }
}

impl<D: Driver + 'static> Engine for OsEngine<D> {
    fn info(&self) -> EngineInfo {
        self.driver.info()
    }

    fn open(&self, path: &Path, how: &OpenHow) -> Result<File> {
        named::<D, _>(c"open", || {
            let file = OsFile::open(path, how, &self.stats)?;
            self.driver.opened(&file)?;
            Ok(queued::file(Arc::new(file), self.driver.queue_always().then_some(&self.me)))
        })
    }

    fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        dirs::metadata(path)
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf> {
        dirs::real_path(path)
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        with_room(|| dirs::read_dir(path))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        dirs::create_dir_all(path)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        named::<D, _>(c"unlink", || dirs::remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        dirs::remove_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        named::<D, _>(c"rename", || dirs::rename(from, to))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        named::<D, _>(c"link", || dirs::hard_link(from, to))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        named::<D, _>(c"sync_dir", || dirs::sync_dir(path))
    }

    fn open_dir(&self, path: &Path) -> Result<Option<OwnedFd>> {
        dirs::open_dir(path).map(Some)
    }

    fn sync_open_dir(&self, dir: &OwnedFd, path: &Path) -> Result<()> {
        named::<D, _>(c"sync_dir", || dirs::sync_open_dir(dir, path))
    }

    fn lock_file(&self, path: &Path) -> Result<FileLock> {
        let file = with_room(|| OsFile::open(path, &OpenHow::read_write(), &self.stats))?;
        file.lock_exclusive()?;
        Ok(FileLock::new(File::from_raw(Arc::new(file))))
    }

    fn queue(&self, depth: u32) -> Result<Box<dyn RawQueue>> {
        Ok(self.make(depth, Users::One)?)
    }

    fn shared_queue(&self, depth: u32) -> Result<Box<dyn RawQueue + Send>> {
        Ok(self.make(depth, Users::Many)?)
    }

    fn register_buffers(&self, region: Region) -> Result<Box<dyn RawRegistration>> {
        self.driver.register_buffers(region)
    }

    fn run(&self, ops: Vec<Op>) -> Vec<Done> {
        runner::run(&self.token, ops, self, &self.stats)
    }

    fn run_with(&self, ops: &mut dyn Iterator<Item = Op>, each: &mut dyn FnMut(Done)) {
        runner::run_with(&self.token, ops, self, &self.stats, each);
    }

    fn stats(&self) -> IoStats {
        self.stats.snapshot()
    }
}
