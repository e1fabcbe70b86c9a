//! [`Core`]: what an open store consists of.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use engineswap::Io;
use engineswap::mem::epoch::Published;

use super::KeyspaceState;
use super::health::Health;
use super::snapshot::Snapshots;
use super::view::View;
use crate::cache::Cache;
use crate::env::Join;
use crate::key::Kind;
use crate::{Env, Options, Result, Stats, VerifyReport, WriteBatch, WriteOptions};

/// What an open store consists of. Shared by its handles, background threads and iterators.
pub(crate) struct Core {
    pub io: Io,
    pub env: Arc<dyn Env>,
    pub dir: PathBuf,
    pub options: Options,
    pub read_only: bool,
    /// Tells open stores of this process apart.
    pub store: u64,
    pub default_keyspace: Arc<KeyspaceState>,
    pub health: Health,
    /// The newest sequence number whose writes, and all before them, are in the memtables: what a read sees.
    /// Load the view first, then this.
    pub visible: AtomicU64,
    pub snapshots: Snapshots,
    /// The memory budget and the cached blocks.
    pub cache: Arc<Cache>,
    /// What reads look at.
    pub view: Published<View>,
}

#[allow(unused_variables, clippy::unimplemented)]
impl Core {
    pub fn open(dir: &Path, options: Options, io: Io, env: Arc<dyn Env>) -> Result<Arc<Core>> {
        unimplemented!()
    }
    pub fn open_read_only(dir: &Path, options: Options, io: Io, env: Arc<dyn Env>) -> Result<Arc<Core>> {
        unimplemented!()
    }
    pub fn start_threads(self: &Arc<Core>, threads: &mut Vec<Join>) -> Result<()> {
        unimplemented!()
    }
    pub fn shut_down(&self, threads: Vec<Join>) -> Result<()> {
        unimplemented!()
    }
    pub fn keyspace(&self, name: &str) -> Result<Arc<KeyspaceState>> {
        unimplemented!()
    }
    pub fn existing_keyspace(&self, name: &str) -> Result<Option<Arc<KeyspaceState>>> {
        unimplemented!()
    }
    pub fn keyspace_names(&self) -> Result<Vec<String>> {
        unimplemented!()
    }
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        unimplemented!()
    }
    pub fn commit_batch(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()> {
        unimplemented!()
    }
    pub fn commit_one(
        &self,
        keyspace: &Arc<KeyspaceState>,
        kind: Kind,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        unimplemented!()
    }
    pub fn flush(&self) -> Result<()> {
        unimplemented!()
    }
    pub fn compact_range(
        &self,
        keyspace: &Arc<KeyspaceState>,
        range: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<()> {
        unimplemented!()
    }
    pub fn stats(&self) -> Stats {
        unimplemented!()
    }
    pub fn verify(&self) -> Result<VerifyReport> {
        unimplemented!()
    }
    pub fn checkpoint(&self, dir: &Path) -> Result<()> {
        unimplemented!()
    }

    #[inline]
    pub fn check_open(&self) -> Result<()> {
        self.health.check_open()
    }
}
