//! Commits: from a call to the log, the memtable and the readers.
//!
//! *Mapped medium.* One short lock: number the writes, append the frame (a copy), insert into the memtable,
//! publish. A durable write then waits for a shared fdatasync, without the lock.
//!
//! *Direct medium.* A writer that finds a free slot leads: under the lock it numbers the writes and reserves
//! the frame's place; without the lock it writes the frame, durable on return, while other leaders write
//! theirs; when every earlier frame is durable and applied it takes the lock again, applies and publishes.
//! Writers that find no free slot join a waiting group, which the next leader to finish hands on.
//!
//! *Not logged* ([`Durability::None`]). The writes take numbers like all others and go straight to the memtable.
//! Memtables are flushed in order and whole, and a flush records the newest number that it holds: so replay
//! begins behind everything flushed, logged or not, and neither repeats nor skips a logged write.
//!
//! Backpressure is paid before any lock is taken. The first failure to write or sync the log stops the store
//! for writing; only "no space for a new segment" is given back to the caller, since nothing was written then.

use crate::sync::atomic::Ordering::Release;
use std::collections::VecDeque;
use std::sync::Arc;

use super::core::Core;
use super::keyspace::KeyspaceState;
use crate::batch::{self, WriteBatch, check_limits};
use crate::key::{self, KeyBuf, Kind, Seq};
use crate::log::{Log, LogPos, LogWriter, Medium};
use crate::memtable::{MemWriter, Memtable};
use crate::mutation::{Mutation, broken};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
use crate::{Durability, Error, Result, WriteOptions};

/// Frames on their way to the device at once, on the direct medium: one for each core, within these. Each
/// is written by a thread that waits for it; beyond the cores, larger groups cost less than more frames.
const IN_FLIGHT: std::ops::RangeInclusive<usize> = 2..=8;
/// A waiting group takes no more writers beyond this many bytes.
const GROUP_BYTES: usize = 1 << 20;

/// What a store that was opened for writing has.
pub(crate) struct Writes {
    pub log: Arc<Log>,
    pub state: Mutex<Writer>,
    /// The last leader has finished.
    idle: Condvar,
    /// Bytes at which a memtable is switched.
    memtable_limit: u64,
    /// Segments of log behind the active memtable at which it is switched.
    max_segments: u64,
    /// Leaders at work at once, on the direct medium.
    max_in_flight: usize,
}

/// Under the writer's lock.
pub(crate) struct Writer {
    pub log: LogWriter,
    mem: MemWriter,
    active: Arc<Memtable>,
    /// The next sequence number.
    next_seq: Seq,
    /// The newest number that is applied and published.
    applied: Seq,
    /// The segment of the newest frame, and how many there have been since the active memtable began.
    segment: u64,
    segments: u64,
    /// Offset in the first segment from which on another is made ready: a store that is opened for a few writes
    /// does without.
    prepare_at: u64,
    /// Direct medium: leaders at work, the segment that each reserved frame needs, and who waits to be led.
    leaders: usize,
    reserved: VecDeque<u64>,
    waiting: VecDeque<Group>,
    pub groups: u64,
    pub batches: u64,
}

/// Batches that are written in one frame.
struct Group {
    payload: Vec<u8>,
    count: u32,
    members: Vec<Arc<Waiter>>,
}

/// A writer in a waiting group.
#[derive(Default)]
struct Waiter {
    told: Mutex<Option<Told>>,
    changed: Condvar,
}

enum Told {
    /// To lead its group, in the slot of the leader that says so.
    Lead(Group),
    /// How its group fared.
    Done(Result<()>),
}

impl Waiter {
    fn tell(&self, what: Told) {
        *lock(&self.told) = Some(what);
        self.changed.notify_one();
    }

    fn listen(&self) -> Told {
        let mut told = lock(&self.told);
        loop {
            match told.take() {
                Some(what) => return what,
                None => told = wait(&self.changed, told, &self.told),
            }
        }
    }
}

/// What is to be written: the payload's pieces, one after the other, and how many operations they are.
struct Work<'a> {
    parts: &'a [&'a [u8]],
    count: u32,
    /// A single operation, with its key's hash.
    single: Option<Single<'a>>,
}

struct Single<'a> {
    key: &'a [u8],
    hash: u64,
    kind: Kind,
    value: &'a [u8],
}

impl Writes {
    pub fn new(
        log: (Arc<Log>, LogWriter),
        mem: (Arc<Memtable>, MemWriter),
        last_seq: Seq,
        memtable_limit: u64,
        max_segments: u64,
    ) -> Writes {
        let segment = log.1.segment();
        let prepare_at = log.0.segment_bytes() / 4;
        let state = Mutex::new(Writer {
            log: log.1,
            mem: mem.1,
            active: mem.0,
            next_seq: last_seq + 1,
            applied: last_seq,
            segment,
            segments: 1,
            prepare_at,
            leaders: 0,
            reserved: VecDeque::new(),
            waiting: VecDeque::new(),
            groups: 0,
            batches: 0,
        });
        let max_in_flight = crate::options::cores().clamp(*IN_FLIGHT.start(), *IN_FLIGHT.end());
        Writes { log: log.0, state, idle: Condvar::new(), memtable_limit, max_segments, max_in_flight }
    }
}

impl Writes {
    /// Waits for the commits that are on their way. For a store that accepts no more.
    pub fn wait_for_leaders(&self) {
        let mut w = lock(&self.state);
        while w.leaders > 0 {
            w = wait(&self.idle, w, &self.state);
        }
    }
}

impl Writer {
    /// Whether there is something in the active memtable.
    pub fn has_writes(&self) -> bool {
        !self.active.is_empty()
    }

    fn insert(&mut self, work: &Work<'_>, payload: &[u8], first: Seq) {
        if let Some(s) = &work.single {
            self.mem.insert(s.key, s.hash, first, s.kind, s.value);
            return;
        }
        // Encoded by this process a moment ago: every operation decodes.
        for (op, seq) in batch::decode(payload).flatten().zip(first..) {
            self.mem.insert(op.key, key::hash(op.key), seq, op.kind, op.value);
        }
    }
}

impl Core {
    /// Commits one operation at the store's durability.
    #[inline]
    pub fn commit_one(&self, keyspace: &KeyspaceState, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        check_limits(key, value)?;
        keyspace.check()?;
        let writes = self.writes()?;
        let internal = KeyBuf::new(&keyspace.prefix, key);
        let internal = internal.as_slice();
        let single = Some(Single { key: internal, hash: key::hash(internal), kind, value });
        let mut head = Head::new();
        head.push(&[kind as u8]);
        head.varint(internal.len() as u64);
        if internal.len() <= 64 {
            head.push(internal);
            if kind == Kind::Put {
                head.varint(value.len() as u64);
            }
            let work = Work { parts: &[head.as_slice(), value], count: 1, single };
            return self.commit(writes, &work, self.options.durability);
        }
        let mut middle = Head::new();
        if kind == Kind::Put {
            middle.varint(value.len() as u64);
        }
        let work = Work { parts: &[head.as_slice(), internal, middle.as_slice(), value], count: 1, single };
        self.commit(writes, &work, self.options.durability)
    }

    /// Commits a batch.
    pub fn commit_batch(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()> {
        let writes = self.writes()?;
        self.health.check_writable()?;
        batch.check(self.store)?;
        if batch.is_empty() {
            return Ok(());
        }
        let work = Work { parts: &[&batch.ops], count: batch.count, single: None };
        self.commit(writes, &work, options.durability.unwrap_or(self.options.durability))
    }

    /// What writing needs, or why there is none.
    pub fn writes(&self) -> Result<&Writes> {
        match &self.writes {
            Some(w) => Ok(w),
            None => {
                self.check_open()?;
                Err(Error::ReadOnly)
            }
        }
    }

    fn commit(&self, writes: &Writes, work: &Work<'_>, durability: Durability) -> Result<()> {
        self.background.admit(work.bytes())?;
        if writes.log.medium() == Medium::Direct {
            return self.commit_direct(writes, work, durability);
        }
        let end = self.commit_mapped(writes, work, durability)?;
        match end {
            Some(end) if durability == Durability::Sync && !broken(Mutation::AcknowledgeBeforeSync) => {
                writes.log.sync_to(end).map_err(|e| self.health.stop(&e))
            }
            _ => Ok(()),
        }
    }

    fn commit_mapped(
        &self,
        writes: &Writes,
        work: &Work<'_>,
        durability: Durability,
    ) -> Result<Option<LogPos>> {
        let mut guard = lock(&writes.state);
        let w = &mut *guard;
        self.health.check_writable()?;
        self.make_room(writes, w)?;
        let first = w.next_seq;
        if broken(Mutation::PublishBeforeLog) {
            w.insert(work, work.parts[0], first);
            w.next_seq = first + work.count as u64;
            w.applied = w.next_seq - 1;
            self.visible.store(w.applied, Release);
        }
        let end = if durability == Durability::None {
            None
        } else {
            let end = w.log.append(first, work.parts).map_err(|e| self.log_failed(e))?;
            w.groups += 1;
            if end.segment != w.segment || end.offset >= w.prepare_at {
                self.segment_changed(writes, w, end.segment);
            }
            Some(end)
        };
        if broken(Mutation::PublishBeforeLog) {
            return Ok(end);
        }
        w.insert(work, work.parts[0], first);
        w.batches += 1;
        w.next_seq = first + work.count as u64;
        w.applied = w.next_seq - 1;
        self.visible.store(w.applied, Release);
        Ok(end)
    }

    fn commit_direct(&self, writes: &Writes, work: &Work<'_>, durability: Durability) -> Result<()> {
        let mut guard = lock(&writes.state);
        let w = &mut *guard;
        self.health.check_writable()?;
        if w.leaders < writes.max_in_flight && w.waiting.is_empty() {
            if durability == Durability::None && w.reserved.is_empty() {
                self.make_room(writes, w)?;
                let first = w.next_seq;
                w.insert(work, work.parts[0], first);
                w.batches += 1;
                w.next_seq = first + work.count as u64;
                w.applied = w.next_seq - 1;
                self.visible.store(w.applied, Release);
                return Ok(());
            }
            w.leaders += 1;
            return self.lead(writes, guard, work, 1);
        }
        // A write that need not be logged is logged here: it has to keep its place among the others anyway.
        let me = Arc::new(Waiter::default());
        let joinable =
            w.waiting.back_mut().filter(|g| g.payload.len() + work.bytes() as usize <= GROUP_BYTES);
        match joinable {
            Some(g) => {
                work.append_to(&mut g.payload);
                g.count += work.count;
                g.members.push(me.clone());
            }
            None => {
                let mut payload = Vec::new();
                work.append_to(&mut payload);
                w.waiting.push_back(Group { payload, count: work.count, members: vec![me.clone()] });
            }
        }
        drop(guard);
        match me.listen() {
            Told::Done(result) => result,
            Told::Lead(group) => {
                let work = Work { parts: &[&group.payload], count: group.count, single: None };
                let result = self.lead(writes, lock(&writes.state), &work, group.members.len() as u64);
                for m in group.members.iter().filter(|m| !Arc::ptr_eq(m, &me)) {
                    m.tell(Told::Done(result.clone()));
                }
                result
            }
        }
    }

    /// Writes one frame and applies it in its turn. The caller holds one of the leaders' slots, which goes to
    /// the next waiting group.
    fn lead(
        &self,
        writes: &Writes,
        mut guard: MutexGuard<'_, Writer>,
        work: &Work<'_>,
        batches: u64,
    ) -> Result<()> {
        let w = &mut *guard;
        let first = w.next_seq;
        let segment = w.log.segment();
        let reserved = match self.health.check_writable().and_then(|()| w.log.reserve(first, work.parts)) {
            Ok(r) => r,
            Err(e) => {
                let e = self.log_failed(e);
                self.hand_on(w);
                return Err(e);
            }
        };
        w.next_seq = first + work.count as u64;
        w.reserved.push_back(segment);
        if w.log.segment() != w.segment || reserved.end().offset >= w.prepare_at {
            let now = w.log.segment();
            self.segment_changed(writes, w, now);
        }
        drop(guard);

        let turn = writes.log.write(reserved);
        let mut guard = lock(&writes.state);
        let w = &mut *guard;
        let result = match turn {
            Ok(turn) => self.make_room(writes, w).map(|()| {
                w.insert(work, work.parts[0], first);
                w.reserved.pop_front();
                w.groups += 1;
                w.batches += batches;
                w.applied = first + work.count as u64 - 1;
                self.visible.store(w.applied, Release);
                turn
            }),
            Err(e) => Err(e),
        };
        match result {
            Ok(turn) => {
                self.hand_on(w);
                drop(guard);
                drop(turn);
                Ok(())
            }
            Err(e) => {
                let e = self.health.stop(&e);
                self.hand_on(w);
                Err(e)
            }
        }
    }

    /// Gives a leader's slot to the group that has waited longest, or back. After a failure nobody leads.
    fn hand_on(&self, w: &mut Writer) {
        if let Err(e) = self.health.check_writable() {
            for m in w.waiting.drain(..).flat_map(|g| g.members) {
                m.tell(Told::Done(Err(e.clone())));
            }
        }
        match w.waiting.pop_front() {
            Some(group) => {
                let leader = group.members[0].clone();
                leader.tell(Told::Lead(group));
            }
            None => {
                w.leaders -= 1;
                if let Some(writes) = &self.writes
                    && w.leaders == 0
                {
                    writes.idle.notify_all();
                }
            }
        }
    }

    /// Before an insertion: switches memtables when the active one is full.
    #[inline]
    fn make_room(&self, writes: &Writes, w: &mut Writer) -> Result<()> {
        let full = w.active.bytes() >= writes.memtable_limit || w.segments > writes.max_segments;
        if full && w.has_writes() { self.switch_memtable(writes, w) } else { Ok(()) }
    }

    /// Makes the active memtable immutable, to be flushed, and begins another.
    #[cold]
    fn switch_memtable(&self, writes: &Writes, w: &mut Writer) -> Result<()> {
        let (active, mem) = Memtable::new(writes.memtable_limit);
        // Frames that are reserved and not yet applied go to the new memtable.
        let first_segment = w.reserved.front().copied().unwrap_or_else(|| w.log.segment());
        self.begin_memtable(&active, first_segment, w.applied);
        w.active = active;
        w.mem = mem;
        w.segments = 1;
        Ok(())
    }

    /// Switches if there is something to flush. Returns the newest sequence number before it.
    pub fn freeze(&self) -> Result<Seq> {
        let writes = self.writes()?;
        let mut w = lock(&writes.state);
        self.health.check_writable()?;
        if w.has_writes() {
            self.switch_memtable(writes, &mut w)?;
        }
        Ok(w.applied)
    }

    #[cold]
    fn segment_changed(&self, writes: &Writes, w: &mut Writer, now: u64) {
        w.segments += u64::from(now != w.segment);
        w.segment = now;
        w.prepare_at = u64::MAX;
        if writes.log.needs_prepare() {
            self.background.prepare_log();
        }
    }

    /// A failure of the log before anything was written: no space for a segment can be mended, the rest stops
    /// the store.
    #[cold]
    fn log_failed(&self, e: Error) -> Error {
        match &e {
            Error::Io(io) if io.kind() == engineswap::ErrorKind::NoSpace => e,
            Error::Closed => e,
            _ => self.health.stop(&e),
        }
    }
}

impl Work<'_> {
    fn bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.len() as u64).sum()
    }

    fn append_to(&self, out: &mut Vec<u8>) {
        self.parts.iter().for_each(|p| out.extend_from_slice(p));
    }
}

/// The front of a single operation's payload, on the stack.
struct Head {
    bytes: [u8; 80],
    len: usize,
}

impl Head {
    #[inline]
    fn new() -> Head {
        Head { bytes: [0; 80], len: 0 }
    }

    #[inline]
    fn push(&mut self, b: &[u8]) {
        self.bytes[self.len..self.len + b.len()].copy_from_slice(b);
        self.len += b.len();
    }

    #[inline]
    fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.push(&[v as u8 | 0x80]);
            v >>= 7;
        }
        self.push(&[v as u8]);
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
