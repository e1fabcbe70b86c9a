//! [`Io`]: the handle through which everything is opened, and [`Queue`], the way to overlap.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Result;
use crate::engine::{Engine, RawQueue, RawRegistration};
use crate::file::{File, FileLock};
use crate::how::OpenHow;
use crate::info::{DirEntry, EngineInfo, Metadata};
use crate::mem::Region;
use crate::op::{Done, Op};
use crate::shared::SharedQueue;
use crate::stats::IoStats;

/// An I/O engine. Cheap to clone, shared by all threads.
///
/// After fork() a child may go on using it and its files: what belongs to a process (rings, contexts, threads,
/// registered memory) it makes anew, and its parent's stays untouched. Queues, mappings, registrations and locks are
/// the parent's.
#[derive(Clone)]
pub struct Io {
    engine: Arc<dyn Engine>,
    context: Option<Arc<dyn Any + Send + Sync>>,
}

impl Io {
    /// An engine made by the caller.
    pub fn from_engine(engine: Arc<dyn Engine>) -> Io {
        Io { engine, context: None }
    }

    /// The same engine with something of the caller's: it goes along with this handle and its clones to whoever opens
    /// files through them. The engine knows nothing of it. It takes the place of what was there.
    #[must_use]
    pub fn with_context<T: Any + Send + Sync>(&self, context: Arc<T>) -> Io {
        Io { engine: self.engine.clone(), context: Some(context) }
    }

    /// What [`Io::with_context`] has attached, if it is a `T`.
    pub fn context<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.context.as_ref()?.downcast_ref()
    }

    /// What this engine is and why it was chosen.
    pub fn info(&self) -> EngineInfo {
        self.engine.info()
    }

    /// Opens a file.
    pub fn open(&self, path: &Path, how: &OpenHow) -> Result<File> {
        self.engine.open(path, how)
    }

    /// Size and type, or `None` if there is no such path.
    pub fn metadata(&self, path: &Path) -> Result<Option<Metadata>> {
        self.engine.metadata(path)
    }

    /// The path with every link followed, by which two names of one file or directory can be told to be that; made
    /// absolute, and no more, where there is nothing to follow it in.
    pub fn real_path(&self, path: &Path) -> Result<PathBuf> {
        self.engine.real_path(path)
    }

    /// The entries of a directory, in no order.
    pub fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.engine.read_dir(path)
    }

    /// Makes a directory and its missing parents.
    pub fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.engine.create_dir_all(path)
    }

    /// Removes a file.
    pub fn remove_file(&self, path: &Path) -> Result<()> {
        self.engine.remove_file(path)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: &Path) -> Result<()> {
        self.engine.remove_dir(path)
    }

    /// Renames; replaces the target.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.engine.rename(from, to)
    }

    /// Makes a second name for a file.
    pub fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.engine.hard_link(from, to)
    }

    /// Makes the directory's entries durable. [`crate::ErrorKind::SyncFailed`]: see [`Dir::sync`].
    pub fn sync_dir(&self, path: &Path) -> Result<()> {
        self.engine.sync_dir(path)
    }

    /// Opens a directory whose entries are to be made durable time and again: no sync needs a descriptor then.
    pub fn open_dir(&self, path: &Path) -> Result<Dir> {
        Ok(Dir { fd: self.engine.open_dir(path)?, engine: self.engine.clone(), path: path.to_path_buf() })
    }

    /// Takes an exclusive lock on a file, made if missing; [`crate::ErrorKind::Locked`] if another holder has it.
    pub fn lock_file(&self, path: &Path) -> Result<FileLock> {
        self.engine.lock_file(path)
    }

    /// A queue for the calling thread, for at most `depth` operations in flight (and at most as many as the
    /// engine's own option `depth` says).
    pub fn queue(&self, depth: u32) -> Result<Queue> {
        Ok(Queue { raw: self.engine.queue(depth)? })
    }

    /// A queue that any thread may use, several at once. io_uring makes its ring without single_issuer, defer_taskrun,
    /// coop_taskrun and registered_ring, whatever was asked for: these are for a ring of one thread.
    pub fn shared_queue(&self, depth: u32) -> Result<SharedQueue> {
        Ok(SharedQueue::new(self.engine.shared_queue(depth)?, depth))
    }

    /// Registers an arena's memory, so that transfers from and to its buffers skip the mapping of their pages. They
    /// are recognised by their addresses; nothing else changes for the caller. It lasts until the registration is
    /// dropped; rings of other threads let go of the memory at their next call.
    ///
    /// Where the engine has no such thing, or (io_uring, unless `fixed_buffers` was asked for) the kernel refuses it,
    /// the registration says so and transfers are done as without.
    pub fn register_buffers(&self, region: Region) -> Result<Registration> {
        Ok(Registration { raw: self.engine.register_buffers(region)? })
    }

    /// Runs all operations together on the calling thread's own queue and waits for all of them. The results
    /// are in the order of the operations; `user` is left as it was.
    pub fn run(&self, ops: Vec<Op>) -> Vec<Done> {
        self.engine.run(ops)
    }

    /// Like [`Io::run`], but calls `each` with every completion as it comes, in no order, so that results can be
    /// used while the rest is in flight. `user` tells them apart. `each` may start batches of its own. Operations are
    /// taken as they are submitted: the first are in flight while the last are made.
    pub fn run_with(&self, ops: impl IntoIterator<Item = Op>, mut each: impl FnMut(Done)) {
        self.engine.run_with(&mut ops.into_iter(), &mut each);
    }

    /// Counters and latencies since the engine was opened.
    pub fn stats(&self) -> IoStats {
        self.engine.stats()
    }
}

/// An open directory.
pub struct Dir {
    engine: Arc<dyn Engine>,
    path: PathBuf,
    fd: Option<OwnedFd>,
}

impl Dir {
    /// Makes its entries durable. [`crate::ErrorKind::SyncFailed`]: what becomes of those made since the sync before is
    /// unknown, and no later sync can tell.
    pub fn sync(&self) -> Result<()> {
        match &self.fd {
            Some(fd) => self.engine.sync_open_dir(fd, &self.path),
            None => self.engine.sync_dir(&self.path),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Memory registered with an engine by [`Io::register_buffers`]. Dropping it takes the memory out.
pub struct Registration {
    raw: Box<dyn RawRegistration>,
}

impl Registration {
    /// Why the memory is not registered; `None` if it is.
    pub fn refusal(&self) -> Option<&str> {
        self.raw.refusal()
    }

    /// Registers other memory in its place. After an error none is registered.
    pub fn replace(&mut self, region: Region) -> Result<()> {
        self.raw.replace(region)
    }
}

/// A queue of operations in flight. It belongs to the thread that made it. In a child after fork() it takes no
/// operations, and every submission and wait is an error that says so.
pub struct Queue {
    raw: Box<dyn RawQueue>,
}

impl Queue {
    /// Adds an operation; it starts at the next [`Queue::submit`] or [`Queue::wait`]. Gives the operation
    /// back when the queue is full: take completions first.
    // The operation comes back whole by design: its buffer is the caller's.
    #[allow(clippy::result_large_err)]
    pub fn push(&mut self, op: Op) -> std::result::Result<(), Op> {
        self.raw.push(op)
    }

    /// Starts what was pushed.
    pub fn submit(&mut self) -> Result<()> {
        self.raw.submit()
    }

    /// Submits, then waits until at least `min` completions can be taken (fewer if fewer are in flight).
    pub fn wait(&mut self, min: usize) -> Result<()> {
        self.raw.wait(min)
    }

    /// Takes a completion, without waiting.
    pub fn pop(&mut self) -> Option<Done> {
        self.raw.pop()
    }

    /// Operations pushed whose completion has not been taken.
    pub fn in_flight(&self) -> usize {
        self.raw.in_flight()
    }

    /// The most operations in flight.
    pub fn depth(&self) -> usize {
        self.raw.depth()
    }

    /// Takes operations back, all that have this tag. Those not started end at once; of those that the kernel has,
    /// io_uring asks it to let go, and they end as canceled, or as if nothing had been asked if that came too late.
    /// Either way each completion comes, once, and its buffer with it. What was transferred before stays. Returns how
    /// many were found that can be taken back. (The kernel misses a request that a worker is just picking up; asking
    /// again finds it.)
    pub fn cancel(&mut self, user: u64) -> Result<usize> {
        self.raw.cancel(user)
    }

    /// The last operation pushed has no successor after all, if it asked for one ([`Op::chain`]).
    pub fn end_chain(&mut self) {
        self.raw.end_chain();
    }
}
