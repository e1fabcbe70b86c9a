//! [`Core`]: what an open store consists of.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engineswap::Io;

use super::committer::Committer;
use super::health::Health;
use super::keyspaces::{KeyspaceState, Keyspaces};
use super::locks::Locks;
use super::odds::Odds;
use super::quarantine::Quarantine;
use super::reactor::Reactor;
use super::refresh::Follower;
use super::served::Served;
use super::tree::LsmTree;
use super::ttl;
use super::view::Views;
use super::write::WriteSide;
use crate::cache::Cache;
use crate::events::Events;
use crate::expiry::{self, Clock};
use crate::insight::Latencies;
use crate::key::Kind;
use crate::sync::Mutex;
use crate::{Env, Error, Options, Result, WriteOptions};

/// What an open store consists of. Shared by its handles, background threads and iterators.
///
/// Locks, in the order in which they may be taken: the commit queue's, the manifest's (in `VersionSet`), the tree's,
/// the keyspaces'. Only the manifest's is held while waiting for the disk.
pub(crate) struct Core {
    pub(super) io: Io,
    pub(super) env: Arc<dyn Env>,
    pub(super) dir: PathBuf,
    pub(super) options: Options,
    pub(super) health: Arc<Health>,
    pub(super) tree: Arc<LsmTree>,
    pub(super) views: Arc<Views>,
    pub(super) cache: Arc<Cache>,
    pub(super) keyspaces: Arc<Keyspaces>,
    /// `None` when opened read-only.
    pub(super) write_side: Option<Arc<WriteSide>>,
    pub(super) quarantine: Arc<Quarantine>,
    pub(super) reactor: Reactor,
    pub(super) odds: Odds,
    pub(super) committer: Committer,
    /// How to catch up with the writer; `None` when opened for writing.
    pub(super) follower: Option<Mutex<Follower>>,
    /// What was lost to damage when the store was opened, or refreshed, with `recover_damaged_log`.
    pub(super) recovered_damage: Mutex<Option<String>>,
    pub(super) served: Served,
    pub(super) locks: Locks,
    pub(super) latencies: Arc<Latencies>,
    pub(super) events: Arc<Events>,
}

impl Core {
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        self.health.check_open()
    }

    /// When something has to be ready that may take so long from now on.
    pub fn ends(&self, deadline: Option<Duration>) -> Option<Duration> {
        deadline.map(|most| self.env.now().saturating_add(most))
    }

    /// What writing needs, or why there is none.
    #[inline]
    pub fn write_side(&self) -> Result<&Arc<WriteSide>> {
        match &self.write_side {
            Some(w) => self.health.check_process().map(|()| w),
            None => {
                self.check_open()?;
                Err(Error::ReadOnly)
            }
        }
    }

    /// Commits one operation at the store's durability.
    #[inline]
    pub fn commit_one(&self, keyspace: &KeyspaceState, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        let store = self.write_side()?;
        if kind == Kind::Put && keyspace.life() > 0 {
            return self.put_with_ttl(keyspace, key, value, Duration::from_millis(keyspace.life()));
        }
        store.commit_one(keyspace, kind, key, value, self.options.durability)
    }

    /// Commits an operand.
    pub fn merge_one(&self, keyspace: &KeyspaceState, key: &[u8], operand: &[u8]) -> Result<()> {
        self.write_side()?;
        self.check_open()?;
        keyspace.check()?;
        ttl::check_merge(keyspace.life())?;
        self.keyspaces.operators().check(keyspace.prefix.as_slice(), operand)?;
        self.commit_one(keyspace, Kind::Merge, key, operand)
    }

    /// Commits a batch: a payload of `count` operations.
    pub fn commit_batch(&self, payload: &[u8], count: u32, options: &WriteOptions) -> Result<()> {
        let durability = options.durability.unwrap_or(self.options.durability);
        self.write_side()?.commit_batch(payload, count, durability)
    }

    /// Milliseconds since the Unix epoch.
    pub(super) fn wall_clock(&self) -> u64 {
        Clock::of(&self.env).now()
    }

    /// Commits a put that lives so long.
    #[cold]
    pub(super) fn put_with_ttl(
        &self,
        keyspace: &KeyspaceState,
        key: &[u8],
        value: &[u8],
        life: Duration,
    ) -> Result<()> {
        ttl::check(key, value, life)?;
        let stored = expiry::stamp(expiry::after(self.wall_clock(), life), value);
        self.write_side()?.commit_one(keyspace, Kind::Expiring, key, &stored, self.options.durability)
    }

    /// What is stored of a put into a keyspace, and as what.
    pub(super) fn stored(&self, keyspace: &KeyspaceState, value: Vec<u8>) -> Result<(Kind, Vec<u8>)> {
        match keyspace.life() {
            0 => Ok((Kind::Put, value)),
            life => {
                ttl::check_room(&value)?;
                let at = expiry::after(self.wall_clock(), Duration::from_millis(life));
                Ok((Kind::Expiring, expiry::stamp(at, &value)))
            }
        }
    }

    /// The payload to commit. `expires`: of a batch that has puts with a time of their own.
    #[inline]
    pub(super) fn stamped<'a>(&self, ops: &'a [u8], expires: bool) -> Result<Cow<'a, [u8]>> {
        let lives = self.keyspaces.lives();
        if !expires && lives.is_none() {
            return Ok(Cow::Borrowed(ops));
        }
        ttl::stamp(ops, &lives.unwrap_or_default(), self.wall_clock()).map(Cow::Owned)
    }
}
