//! [`Core`]: what an open store consists of.

use crate::sync::atomic::AtomicU64;
use std::path::PathBuf;
use std::sync::Arc;

use engineswap::mem::epoch::Published;
use engineswap::{FileLock, Io};

use super::background::Background;
use super::damage::Damage;
use super::health::Health;
use super::keyspace::{KeyspaceState, Keyspaces};
use super::snapshot::Snapshots;
use super::tree::TreeState;
use super::view::View;
use super::write::Writes;
use crate::cache::Cache;
use crate::manifest::ManifestFile;
use crate::sync::Mutex;
use crate::{Env, Options, Result};

/// What an open store consists of. Shared by its handles, background threads and iterators.
///
/// Locks, in the order in which they may be taken: the writer's (`writes`), `manifest`, `tree`, `keyspaces`. Only
/// `manifest` is held while waiting for the disk; no reader needs it, and no writer but those that make or drop
/// keyspaces.
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
    pub view: Published<View>,
    pub cache: Arc<Cache>,
    pub snapshots: Snapshots,
    /// `None` when opened read-only.
    pub writes: Option<Writes>,
    /// `None` when opened read-only.
    pub manifest: Option<Mutex<ManifestFile>>,
    pub tree: Mutex<TreeState>,
    pub keyspaces: Mutex<Keyspaces>,
    pub next_file: Arc<AtomicU64>,
    pub background: Background,
    pub damage: Damage,
    /// What was lost to damage when the store was opened, with `recover_damaged_log`.
    pub recovered_damage: Option<String>,
    /// Held as long as the store is open for writing.
    pub lock: Mutex<Option<FileLock>>,
}

impl Core {
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        self.health.check_open()
    }
}
