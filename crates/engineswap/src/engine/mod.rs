//! The engines, one a file, and the traits that they implement.

use std::path::Path;
use std::sync::Arc;

use crate::file::{Advice, Alignment, File, FileInfo, FileLock, OpenHow};
use crate::io::{DirEntry, EngineInfo, Metadata};
use crate::mem::Region;
use crate::op::{Done, Op, Purpose};
use crate::stats::IoStats;
use crate::uri::Config;
use crate::{Error, Result};

mod base;
mod bell;
mod core;
mod interruptions;
mod libaio;
mod posix;
mod probe;
mod runner;
pub mod sim;
mod uring;

pub use base::OsFile;

/// An engine: opens files, does directory operations, and hands out queues.
pub trait Engine: Send + Sync {
    /// What it is.
    fn info(&self) -> EngineInfo;
    /// See [`crate::Io::open`].
    fn open(&self, path: &Path, how: &OpenHow) -> Result<File>;
    /// See [`crate::Io::metadata`].
    fn metadata(&self, path: &Path) -> Result<Option<Metadata>>;
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
    fn run_with(&self, ops: Vec<Op>, each: &mut dyn FnMut(Done)) {
        self.run(ops).into_iter().for_each(each);
    }
    /// See [`crate::Io::stats`].
    fn stats(&self) -> IoStats {
        IoStats::default()
    }
}

/// An engine's file; see [`File`] for the meaning of each call.
#[allow(missing_docs, clippy::len_without_is_empty)]
pub trait RawFile: Send + Sync {
    fn read_at(&self, buf: &mut [u8], offset: u64, purpose: Purpose) -> Result<usize>;
    fn write_all_at(&self, buf: &[u8], offset: u64, dsync: bool, purpose: Purpose) -> Result<()>;
    fn sync(&self, data_only: bool, purpose: Purpose) -> Result<()>;
    fn sync_range(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()>;
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;
    fn set_len(&self, len: u64) -> Result<()>;
    fn len(&self) -> Result<u64>;
    fn path(&self) -> &Path;
    fn is_direct(&self) -> bool;
    fn alignment(&self) -> Alignment;
    fn map(&self, len: u64) -> Result<Box<dyn RawMap>>;
    fn advise(&self, _advice: Advice, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
    /// Without an answer of its own an engine waits for all of it.
    fn start_write_back(&self, offset: u64, len: u64, _wait_before: bool, purpose: Purpose) -> Result<()> {
        self.sync_range(offset, len, purpose)
    }
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        let why = "this engine's files have no reservations";
        Err(Error::new(crate::ErrorKind::Unsupported, "fallocate", why).at(self.path()).range(offset, len))
    }
    fn info(&self) -> Result<FileInfo> {
        let why = "this engine's files have no identity";
        Err(Error::new(crate::ErrorKind::Unsupported, "stat", why).at(self.path()))
    }
    /// The file of the operating system behind it, if it is one.
    fn os(&self) -> Option<&OsFile> {
        None
    }
}

/// An engine's mapping.
pub trait RawMap: Send + Sync {
    /// The mapped bytes.
    fn as_mut_slice(&mut self) -> &mut [u8];
    /// Some of them. Panics if the range is outside of the mapping.
    fn range_mut(&mut self, range: std::ops::Range<usize>) -> &mut [u8] {
        &mut self.as_mut_slice()[range]
    }
    /// Copies `bytes` to `offset`. Panics if the range is outside of the mapping.
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.range_mut(offset..offset + bytes.len()).copy_from_slice(bytes);
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
    /// Of a queue that threads share: the way to wait for its completions beside it.
    fn waiter(&self) -> Option<Arc<dyn RawWaiter>> {
        None
    }
    /// After an error of `submit` or `wait`: answers for every operation that is still held.
    fn fail_all(&mut self, _e: &Error) -> Vec<Done> {
        Vec::new()
    }
}

/// Waits for the completions of a queue that threads share, while others use the queue.
pub trait RawWaiter: Send + Sync {
    /// Waits until the queue has a completion to pop, or [`RawWaiter::wake`] was called since the last wait. It may
    /// return sooner. One thread at a time.
    fn wait(&self) -> Result<()>;
    /// Ends the wait that goes on, or the next.
    fn wake(&self);
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

/// Opens the engine that `uri` names.
pub fn open(uri: &str) -> Result<Arc<dyn Engine>> {
    open_config(&uri.parse()?)
}

/// Opens the engine that `config` describes.
pub fn open_config(config: &Config) -> Result<Arc<dyn Engine>> {
    match config {
        Config::Posix(c) => Ok(posix::open(c, Vec::new())),
        Config::Libaio(c) => libaio::open(c, Vec::new()),
        Config::IoUring(c) => uring::open(c, Vec::new()),
        Config::Sim(c) => sim::open(c),
        Config::Auto => match std::env::var("ENGINESWAP").ok().filter(|v| !v.trim().is_empty()) {
            None => Ok(probe::auto()),
            Some(uri) => {
                let from_env = |e: Error| e.more("asked for by the environment variable ENGINESWAP");
                match uri.parse().map_err(from_env)? {
                    Config::Auto => Ok(probe::auto()),
                    named => open_config(&named).map_err(from_env),
                }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::mem::AlignedBuf;
    use crate::{Buf, ErrorKind, Io, Op, OpKind, OpenHow, Purpose};

    /// The engines that work here.
    fn engines() -> Vec<Io> {
        ["posix", "libaio", "io_uring"].iter().filter_map(|uri| Io::from_uri(uri).ok()).collect()
    }

    #[test]
    fn a_failed_sync_is_final_for_its_file() {
        let dir = tempfile::tempdir().unwrap();
        for io in engines() {
            let path = dir.path().join("f");
            let f = io.open(&path, &OpenHow::read_write()).unwrap();
            let other = io.open(&path, &OpenHow::read_write()).unwrap();
            f.sync_data(Purpose(0)).unwrap();
            f.0.os().unwrap().sync_failed(libc::EIO);
            let check = |e: crate::Error| {
                assert_eq!((e.kind(), e.errno()), (ErrorKind::SyncFailed, Some(libc::EIO)), "{e}");
                assert_eq!(e.path(), Some(path.as_path()));
            };
            check(f.sync_data(Purpose(0)).unwrap_err());
            check(f.clone().sync_all(Purpose(0)).unwrap_err());
            check(f.write_all_at_dsync(b"x", 0, Purpose(0)).unwrap_err());
            let mut write = Op::write(&f, 0, 1, Buf::Aligned(AlignedBuf::zeroed(1)), Purpose(0));
            write.kind = OpKind::Write { dsync: true };
            let range = Op { kind: OpKind::SyncRange, len: 1, ..Op::sync_data(&f, Purpose(0)) };
            for done in io.run(vec![Op::sync_data(&f, Purpose(0)), write, range]) {
                check(done.result.unwrap_err());
            }
            // Plain writes and reads go on, and so do other handles: the kernel tells each of its own.
            f.write_all_at(b"x", 0, Purpose(0)).unwrap();
            other.sync_data(Purpose(0)).unwrap();
        }
    }

    #[test]
    fn auto_says_what_it_took_and_why() {
        let info = Io::from_config(&crate::Config::Auto).unwrap().info();
        assert!(!info.reasons.is_empty());
        assert!(info.reasons.iter().any(|r| r.starts_with(info.name)) || std::env::var("ENGINESWAP").is_ok());
        let again = Io::from_uri(&info.uri).unwrap().info();
        assert_eq!((again.name, again.uri), (info.name, info.uri));
    }

    #[test]
    fn an_option_that_was_asked_for_is_had() {
        for flag in ["single_issuer", "coop_taskrun", "no_sqarray", "defer_taskrun&single_issuer"] {
            match Io::from_uri(&format!("io_uring?{flag}")) {
                Ok(io) => assert!(flag.split('&').all(|f| io.info().uri.contains(f)), "{}", io.info().uri),
                Err(e) => assert_eq!(e.kind(), ErrorKind::Unsupported),
            }
        }
    }
}
