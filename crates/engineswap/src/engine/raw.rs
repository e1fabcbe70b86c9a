//! What an engine is: the traits that one implements.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::file::{File, FileLock};
use crate::how::OpenHow;
use crate::info::{DirEntry, EngineInfo, Metadata};
use crate::mem::Region;
use crate::op::{Done, Op};
use crate::stats::IoStats;
use crate::{Error, Result};

/// An engine: opens files, does directory operations, and hands out queues.
pub trait Engine: Send + Sync {
    /// What it is.
    fn info(&self) -> EngineInfo;
    /// See [`crate::Io::open`].
    fn open(&self, path: &Path, how: &OpenHow) -> Result<File>;
    /// See [`crate::Io::metadata`].
    fn metadata(&self, path: &Path) -> Result<Option<Metadata>>;
    /// See [`crate::Io::real_path`].
    fn real_path(&self, path: &Path) -> Result<PathBuf> {
        std::path::absolute(path).map_err(|e| crate::Error::from_std("real path", &e).at(path))
    }
    /// See [`crate::Io::read_dir`].
    fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>>;
    /// See [`crate::Io::create_dir_all`].
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// See [`crate::Io::remove_file`].
    fn remove_file(&self, path: &Path) -> Result<()>;
    /// See [`crate::Io::remove_dir`].
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// See [`crate::Io::rename`].
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// See [`crate::Io::hard_link`].
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;
    /// See [`crate::Io::sync_dir`].
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// Opens a directory for [`Engine::sync_open_dir`]; `None`: it is synced by its path, which needs no descriptor.
    fn open_dir(&self, _path: &Path) -> Result<Option<OwnedFd>> {
        Ok(None)
    }
    /// See [`crate::Dir::sync`].
    fn sync_open_dir(&self, _dir: &OwnedFd, path: &Path) -> Result<()> {
        self.sync_dir(path)
    }
    /// See [`crate::Io::lock_file`].
    fn lock_file(&self, path: &Path) -> Result<FileLock>;
    /// See [`crate::Io::queue`].
    fn queue(&self, depth: u32) -> Result<Box<dyn RawQueue>>;
    /// See [`crate::Io::shared_queue`].
    fn shared_queue(&self, _depth: u32) -> Result<Box<dyn RawQueue + Send>> {
        let why = "this engine has no queues that threads share";
        Err(Error::new(crate::ErrorKind::Unsupported, "queue", why))
    }
    /// See [`crate::Io::register_buffers`]. An engine without the notion refuses nothing and uses nothing.
    fn register_buffers(&self, _region: Region) -> Result<Box<dyn RawRegistration>> {
        Ok(Box::new(Unregistered("this engine has no registered buffers".into())))
    }
    /// See [`crate::Io::run`].
    fn run(&self, ops: Vec<Op>) -> Vec<Done>;
    /// See [`crate::Io::run_with`].
    fn run_with(&self, ops: &mut dyn Iterator<Item = Op>, each: &mut dyn FnMut(Done)) {
        self.run(ops.collect()).into_iter().for_each(each);
    }
    /// See [`crate::Io::stats`].
    fn stats(&self) -> IoStats {
        IoStats::default()
    }
}

/// An engine's queue; see [`crate::Queue`] for the meaning of each call.
#[allow(missing_docs)]
pub trait RawQueue {
    #[allow(clippy::result_large_err)]
    fn push(&mut self, op: Op) -> std::result::Result<(), Op>;
    fn submit(&mut self) -> Result<()>;
    fn wait(&mut self, min: usize) -> Result<()>;
    fn pop(&mut self) -> Option<Done>;
    fn in_flight(&self) -> usize;
    /// See [`crate::Queue::cancel`]; without an answer of its own an engine finds none.
    fn cancel(&mut self, _user: u64) -> Result<usize> {
        Ok(0)
    }
    /// Whether all that is left waits for buffers of pools.
    fn starving(&self) -> bool {
        false
    }
    /// The last operation pushed, if it is chained, has no successor.
    fn end_chain(&mut self) {}
    /// The most operations in flight.
    fn depth(&self) -> usize {
        usize::MAX
    }
    /// Whether an operation with this tag is in flight whose completion cannot be popped yet.
    fn holds(&self, _user: u64) -> bool {
        self.in_flight() > 0
    }
    /// Of a queue that threads share: where it gives out what it does by plain calls, if it does any.
    fn lends(&mut self) -> Option<&mut dyn Lends> {
        None
    }
    /// Of a queue that threads share: the way to wait for its completions beside it.
    fn waiter(&self) -> Option<Arc<dyn RawWaiter>> {
        None
    }
    /// After an error of `submit` or `wait`: answers for every operation that is still held.
    fn fail_all(&mut self, _e: &Error) -> Vec<Done> {
        Vec::new()
    }
    /// After [`RawQueue::fail_all`]: waits until nobody touches the buffers of what was in flight any more. False if
    /// that cannot be known.
    fn settle(&mut self) -> bool {
        false
    }
}

/// Gives operations out that an engine cannot take, to be done by plain calls by somebody who does not hold the queue.
pub trait Lends {
    /// One of them, and its number.
    fn plain(&mut self) -> Option<(u32, Op)>;
    /// Whether there is one.
    fn has_plain(&self) -> bool;
    /// Takes back what [`Lends::plain`] gave, with its result.
    fn bring_back(&mut self, number: u32, op: Op, result: Result<u64>);
}

/// Waits for the completions of a queue that threads share, while others use the queue.
pub trait RawWaiter: Send + Sync {
    /// Waits until the queue has a completion to pop, or [`RawWaiter::wake`] was called since the last wait. It may
    /// return sooner. One thread at a time.
    fn wait(&self) -> Result<()>;
    /// The same, ended by time too. It does nothing else meanwhile that could take long.
    fn wait_at_most(&self, most: Option<Duration>) -> Result<()>;
    /// Ends the wait that goes on, or the next.
    fn wake(&self);
    /// A descriptor that is readable when the queue may have a completion to pop, until a wait has looked.
    fn fd(&self) -> Result<BorrowedFd<'_>>;
}

/// Memory registered with an engine; dropping it takes the memory out.
pub trait RawRegistration: Send + Sync {
    /// Why it is not in use, if it is not.
    fn refusal(&self) -> Option<&str>;
    /// See [`crate::Registration::replace`].
    fn replace(&mut self, region: Region) -> Result<()>;
}

/// A registration that stands for nothing, and why.
pub(crate) struct Unregistered(pub(crate) String);

impl RawRegistration for Unregistered {
    fn refusal(&self) -> Option<&str> {
        Some(&self.0)
    }

    fn replace(&mut self, _region: Region) -> Result<()> {
        Ok(())
    }
}
