//! Writing to an open store: what it takes ([`WriteSide`]), and the log, memtable and readers as the commit queue
//! sees them ([`StoreCommitEnv`]).

use std::sync::Arc;

use super::compact::StoreCompactionEnv;
use super::directory::StoreLock;
use super::health::Health;
use super::keyspaces::KeyspaceState;
use super::log_keeper::LogKeeper;
use super::tree::{Fresh, LsmTree};
use super::version_set::VersionSet;
use super::view::Views;
use crate::cache::Cache;
use crate::commit::{CommitEnv, CommitQueue, GROUP_BYTES, Single, Write, with_single};
use crate::compaction::scheduler::{On, Scheduler};
use crate::insight::{Latencies, Operation};
use crate::key::{self, KeyBuf, Kind, Seq, check_limits};
use crate::log::payload::{Op, decode};
use crate::log::{Log, LogPos, LogWriter, Medium, Reserved, Turn};
use crate::memtable::{MemWriter, Memtable};
use crate::mutation::{Mutation, broken};
use crate::sync::{Mutex, lock};
use crate::{Durability, Error, Result};

/// Frames on their way to the device at once: one for each core, within these. Each is written by a thread that waits
/// for it; beyond the cores, larger groups cost less than more frames.
const IN_FLIGHT: std::ops::RangeInclusive<usize> = 2..=8;

/// What only a store that is open for writing has.
pub(crate) struct WriteSide {
    pub commits: CommitQueue<StoreCommitEnv>,
    pub log: Arc<Log>,
    pub log_keeper: Arc<LogKeeper>,
    pub versions: Arc<VersionSet>,
    pub scheduler: Arc<Scheduler>,
    pub compaction: Arc<StoreCompactionEnv>,
    latencies: Arc<Latencies>,
    /// Held as long as the store is open.
    lock: Mutex<Option<StoreLock>>,
}

impl WriteSide {
    pub fn new(
        env: StoreCommitEnv,
        writer: ActiveWriter,
        last_seq: Seq,
        compaction: StoreCompactionEnv,
        held: StoreLock,
    ) -> Arc<WriteSide> {
        let most_leaders = crate::options::cores().clamp(*IN_FLIGHT.start(), *IN_FLIGHT.end());
        Arc::new(WriteSide {
            latencies: env.views.latencies().clone(),
            log: env.log.clone(),
            log_keeper: env.log_keeper.clone(),
            versions: compaction.versions.clone(),
            scheduler: env.scheduler.clone(),
            commits: CommitQueue::new(env, writer, last_seq, most_leaders),
            compaction: Arc::new(compaction),
            lock: Mutex::new(Some(held)),
        })
    }

    /// Commits one operation.
    #[inline]
    pub fn commit_one(
        &self,
        keyspace: &KeyspaceState,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<()> {
        check_limits(key, value)?;
        keyspace.check()?;
        let internal = KeyBuf::new(&keyspace.prefix, key);
        let key = internal.as_slice();
        with_single(Single { key, hash: key::hash(key), kind, value }, |write| self.commit(write, durability))
    }

    /// Commits a batch: a payload of `count` operations.
    pub fn commit_batch(&self, payload: &[u8], count: u32, durability: Durability) -> Result<()> {
        match count {
            0 if durability == Durability::Sync => self.sync(),
            0 => Ok(()),
            _ => self.commit_several(payload, count, 1, durability),
        }
    }

    /// Commits the operations of several batches, as one.
    pub fn commit_several(
        &self,
        payload: &[u8],
        count: u32,
        batches: u64,
        durability: Durability,
    ) -> Result<()> {
        self.commit(&Write { parts: &[payload], count, batches, single: None }, durability)
    }

    /// Commits a batch if that waits for nothing but locks that are held briefly.
    pub fn commit_promptly(&self, payload: &[u8], count: u32, durability: Durability) -> Option<Result<()>> {
        let prompt = durability < Durability::Sync
            && payload.len() as u64 <= GROUP_BYTES
            && self.log.medium() == Medium::Mapped
            && !self.scheduler.slowing()
            && !self.commits.is_placing();
        let write = Write { parts: &[payload], count, batches: 1, single: None };
        prompt.then(|| self.commits.commit(&write, durability))
    }

    /// Slows a writer when flushes and compactions do not keep up.
    pub fn admit(&self, write: &Write<'_>) -> Result<()> {
        self.scheduler.admit(write.bytes())
    }

    /// Makes everything that was committed durable: by a sync of the log, or if there is something that was not
    /// logged, by a flush.
    pub fn sync(&self) -> Result<()> {
        if broken(Mutation::SyncNothing) {
            return Ok(());
        }
        if self.commits.sync()?.is_some() { self.flush() } else { Ok(()) }
    }

    /// Flushes everything that was committed.
    pub fn flush(&self) -> Result<()> {
        let through = self.commits.freeze()?;
        self.scheduler.wait_for(On::Flushes, || self.compaction.tree.is_flushed(through))?;
        self.commits.flushed(through);
        Ok(())
    }

    #[inline]
    fn commit(&self, write: &Write<'_>, durability: Durability) -> Result<()> {
        let waits = match durability {
            Durability::None => false,
            Durability::Process => self.log.medium() == Medium::Direct,
            Durability::Sync => true,
        };
        if waits {
            return self.latencies.always(Operation::SyncWrite, || self.commit_untimed(write, durability));
        }
        if self.latencies.is_due() {
            return self.latencies.sampled(Operation::Write, || self.commit_untimed(write, durability));
        }
        self.commit_untimed(write, durability)
    }

    #[inline(always)]
    fn commit_untimed(&self, write: &Write<'_>, durability: Durability) -> Result<()> {
        // Before any lock is taken: a writer that is slowed holds up nobody else.
        self.scheduler.admit(write.bytes())?;
        self.commits.commit(write, durability)
    }

    /// Lets others open the store.
    pub fn unlock(&self) {
        drop(lock(&self.lock).take());
    }
}

/// The store as its commit queue sees it.
pub(crate) struct StoreCommitEnv {
    pub health: Arc<Health>,
    pub log: Arc<Log>,
    pub tree: Arc<LsmTree>,
    pub views: Arc<Views>,
    pub scheduler: Arc<Scheduler>,
    pub log_keeper: Arc<LogKeeper>,
    pub cache: Arc<Cache>,
    /// Bytes at which a memtable is switched.
    pub memtable_limit: u64,
    /// Segments of log behind the active memtable at which it is switched.
    pub max_segments: u64,
}

/// The ends that grow: of the log, and the active memtable.
pub(crate) struct ActiveWriter {
    log: LogWriter,
    mem: MemWriter,
    active: Arc<Memtable>,
    /// The segment of the newest frame, and how many there have been since the active memtable began.
    segment: u64,
    segments: u64,
    /// Offset in the first segment from which on another is made ready: a store that is opened for a few writes
    /// does without.
    prepare_at: u64,
}

impl ActiveWriter {
    pub fn new(
        log: LogWriter,
        (active, mem): (Arc<Memtable>, MemWriter),
        segment_bytes: u64,
    ) -> ActiveWriter {
        let segment = log.segment();
        ActiveWriter { log, mem, active, segment, segments: 1, prepare_at: segment_bytes / 4 }
    }
}

impl StoreCommitEnv {
    /// After a frame has its place: looks at how many segments there are, and has more prepared.
    #[inline]
    fn follow_log(&self, w: &mut ActiveWriter, end: LogPos) {
        if end.segment != w.segment || end.offset >= w.prepare_at {
            self.segment_changed(w, end.segment);
        }
    }

    #[cold]
    fn segment_changed(&self, w: &mut ActiveWriter, now: u64) {
        w.segments += u64::from(now != w.segment);
        w.segment = now;
        w.prepare_at = u64::MAX;
        if self.log.needs_prepare() {
            self.log_keeper.prepare();
        }
    }

    /// The active segment outlives the flush, however large it is. Without room for another one it stays.
    fn leave_oversized(&self, w: &mut ActiveWriter) {
        if w.log.leave_oversized().is_ok() {
            let now = w.log.segment();
            if now != w.segment {
                self.segment_changed(w, now);
            }
        }
    }

    /// Begins another memtable if `install` makes it the active one. All numbers up to `last_seq` are applied, and no
    /// frame is on its way.
    pub fn replace_memtable(
        &self,
        w: &mut ActiveWriter,
        last_seq: Seq,
        install: impl FnOnce(&Fresh<'_>) -> Result<bool>,
    ) -> Result<bool> {
        let (active, mem) = Memtable::charged(self.memtable_limit, &self.cache);
        self.leave_oversized(w);
        let installed = install(&Fresh { active: &active, segment: w.log.segment(), last_seq })?;
        if installed {
            self.scheduler.memtable_frozen(self.tree.immutable_count());
            (w.active, w.mem, w.segments) = (active, mem, 1);
        }
        Ok(installed)
    }

    /// The frame that ends at `pos` is durable: has the manifest say so if it is the first of its segment.
    #[inline]
    fn note_durable(&self, pos: LogPos) {
        if self.log.should_note(pos) {
            self.log_keeper.note();
        }
    }
}

impl CommitEnv for StoreCommitEnv {
    type Writer = ActiveWriter;
    type Frame = Reserved;
    type Turn<'a> = Turn<'a>;

    #[inline]
    fn pipelined(&self) -> bool {
        self.log.medium() == Medium::Direct
    }

    #[inline]
    fn check_writable(&self) -> Result<()> {
        self.health.check_writable()
    }

    #[cold]
    fn failed(&self, e: Error) -> Error {
        match e {
            Error::Closed => e,
            e => self.health.latch().fail(e),
        }
    }

    #[inline]
    fn append(&self, w: &mut ActiveWriter, first: Seq, parts: &[&[u8]]) -> Result<LogPos> {
        let end = w.log.append(first, parts)?;
        self.follow_log(w, end);
        Ok(end)
    }

    fn sync(&self, end: LogPos) -> Result<()> {
        self.log.sync_to(end)?;
        self.note_durable(end);
        Ok(())
    }

    fn reserve(&self, w: &mut ActiveWriter, first: Seq, parts: &[&[u8]]) -> Result<Reserved> {
        let frame = w.log.reserve(first, parts)?;
        self.follow_log(w, frame.end());
        Ok(frame)
    }

    fn write(&self, frame: Reserved) -> Result<Turn<'_>> {
        let turn = self.log.write(frame)?;
        self.note_durable(turn.pos());
        Ok(turn)
    }

    #[inline]
    fn segment(&self, w: &ActiveWriter) -> u64 {
        w.log.segment()
    }

    #[inline]
    fn has_writes(&self, w: &ActiveWriter) -> bool {
        !w.active.is_empty()
    }

    #[inline]
    fn is_full(&self, w: &ActiveWriter) -> bool {
        w.active.bytes() >= self.memtable_limit || w.segments > self.max_segments || w.mem.has_long_row()
    }

    #[inline]
    fn memtable_limit(&self) -> u64 {
        self.memtable_limit
    }

    #[cold]
    fn switch_memtable(&self, w: &mut ActiveWriter, reserved: Option<u64>, applied: Seq) {
        let (active, mem) = Memtable::charged(self.memtable_limit, &self.cache);
        self.leave_oversized(w);
        let waiting = self.tree.begin_memtable(&active, reserved.unwrap_or_else(|| w.log.segment()), applied);
        self.scheduler.memtable_frozen(waiting);
        (w.active, w.mem, w.segments) = (active, mem, 1);
    }

    #[inline]
    fn apply(&self, w: &mut ActiveWriter, first: Seq, write: &Write<'_>) {
        if let Some(s) = &write.single {
            return w.mem.insert(s.key, s.hash, first, s.kind, s.value);
        }
        // Encoded by this process a moment ago: every operation decodes.
        for (op, seq) in decode(write.parts[0]).flatten().zip(first..) {
            op.insert_into(&mut w.mem, seq);
        }
    }

    fn each_key(&self, write: &Write<'_>, mut f: impl FnMut(&[u8], u64, &[u8])) {
        match &write.single {
            Some(s) => f(s.key, s.hash, &[]),
            None => decode(write.parts[0]).flatten().for_each(|op| match op {
                Op::Version { key, .. } => f(key, key::hash(key), &[]),
                Op::DeleteRange { start, end } => f(start, 0, end),
            }),
        }
    }

    #[inline]
    fn publish(&self, newest: Seq) {
        self.views.make_visible(newest);
    }
}
