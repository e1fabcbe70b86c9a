//! [`Fetches`]: lookups that wait for blocks, and the reads of these blocks.
//!
//! A block that several lookups miss is read once. Reads are started together, so many at a time as the window allows;
//! the others wait in their order. A lookup that has its block goes on at once, while the block is in the CPU's cache,
//! to its answer or to the next block. Belongs to one thread; knows nothing of who waits for the answers.

use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use engineswap::{Done, Io, Op, SharedQueue};

use crate::db::lookup::Parked;
use crate::purpose;
use crate::table::block_read::{BlockRead, RunRead};
use crate::table::fetch::Block;
use crate::{Error, Result, Value};

/// Bytes in flight at most (but one block, however large).
const IN_FLIGHT_BYTES: u64 = 16 << 20;

/// From so many on, what waits is looked through for what nobody wants any more, each time that it has doubled: behind
/// a device that hangs it would pile up.
const SWEEP_FROM: usize = 1024;

/// Whom an answer is for.
pub(crate) trait Asker {
    /// Nobody wants the answer any more.
    fn is_gone(&self) -> bool {
        false
    }
}

/// A lookup that needs a block, and for whom.
pub(crate) struct Waiting<T> {
    pub parked: Parked,
    pub fill_cache: bool,
    pub asker: T,
}

/// What is to be read, or being read.
struct Missing<T> {
    wanted: Wanted<T>,
    bytes: u64,
    started: bool,
    /// It was taken back, because nobody waited for it.
    canceled: bool,
}

enum Wanted<T> {
    /// A block, with the lookups that wait for it.
    Block { read: BlockRead, waiting: Vec<Waiting<T>>, sweep_at: usize },
    /// Blocks of a scan; their completion is all the answer. `None`: it was answered.
    Run { read: RunRead, asker: Option<T> },
}

impl<T: Asker> Missing<T> {
    /// Whether nobody waits for it any more.
    fn is_unwanted(&self) -> bool {
        match &self.wanted {
            Wanted::Block { waiting, .. } => waiting.iter().all(|w| w.asker.is_gone()),
            Wanted::Run { asker, .. } => asker.as_ref().is_none_or(Asker::is_gone),
        }
    }

    fn op(&self) -> Result<Op> {
        match &self.wanted {
            Wanted::Block { read, .. } => read.op(purpose::USER_READ),
            Wanted::Run { read, .. } => read.op(purpose::SCAN_READ),
        }
    }

    fn blocks(&self) -> u64 {
        match &self.wanted {
            Wanted::Block { .. } => 1,
            Wanted::Run { read, .. } => read.count().into(),
        }
    }
}

/// How a read that was started came to its end.
enum End {
    Done(Done),
    /// It is to be done by a plain call.
    Refused(Op),
    Failed(Error),
}

/// What has been read.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Blocks.
    pub reads: AtomicU64,
    /// Lookups that found the block that they need on its way.
    pub joined: AtomicU64,
    /// Submissions in which these reads were started.
    pub submissions: AtomicU64,
}

/// See the module.
pub(crate) struct Fetches<T> {
    io: Io,
    window: usize,
    counters: Arc<Counters>,
    /// Made with the first read, and again after it broke.
    queue: Option<Arc<SharedQueue>>,
    /// By the tag of the operation.
    missing: Vec<Option<Missing<T>>>,
    free: Vec<usize>,
    by_block: HashMap<(u64, u32), usize>,
    /// Those not started.
    backlog: VecDeque<usize>,
    sweep_at: usize,
    in_flight: usize,
    in_flight_bytes: u64,
    finished: Vec<(T, Result<Option<Value>>)>,
    finished_runs: Vec<(T, Result<Done>)>,
}

impl<T: Asker> Fetches<T> {
    /// For at most `window` reads in flight.
    pub fn new(io: &Io, window: usize, counters: Arc<Counters>) -> Fetches<T> {
        Fetches {
            io: io.clone(),
            window,
            counters,
            queue: None,
            missing: Vec::new(),
            free: Vec::new(),
            by_block: HashMap::new(),
            backlog: VecDeque::new(),
            sweep_at: SWEEP_FROM,
            in_flight: 0,
            in_flight_bytes: 0,
            finished: Vec::new(),
            finished_runs: Vec::new(),
        }
    }

    /// Reads that were started and have not come back.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether there is nothing to wait for: some reads were not started, and none is in flight.
    pub fn has_more(&self) -> bool {
        self.in_flight == 0 && !self.backlog.is_empty()
    }

    /// What other threads wake to end [`Fetches::wait`].
    pub fn queue(&self) -> Option<&Arc<SharedQueue>> {
        self.queue.as_ref()
    }

    /// Answers all lookups with an error. Reads in flight are waited for when this is dropped.
    pub fn fail_all(&mut self, e: &Error) {
        for missing in self.missing.iter_mut().flatten() {
            match &mut missing.wanted {
                Wanted::Block { waiting, .. } => {
                    self.finished.extend(waiting.drain(..).map(|w| (w.asker, Err(e.clone()))));
                }
                Wanted::Run { asker, .. } => {
                    self.finished_runs.extend(asker.take().map(|asker| (asker, Err(e.clone()))));
                }
            }
        }
    }

    /// A descriptor that is readable when something may have come.
    pub fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        match self.ready_queue() {
            None => Err(self.io.shared_queue(1).err().map_or(Error::WouldBlock, Error::Io)),
            Some(_) => {
                let fd = self.queue.as_ref().map(|queue| queue.fd());
                Ok(fd.ok_or(Error::WouldBlock)??)
            }
        }
    }

    /// Takes the answers that are there.
    pub fn take_finished(&mut self) -> Vec<(T, Result<Option<Value>>)> {
        std::mem::take(&mut self.finished)
    }

    /// The same of scans' reads.
    pub fn take_finished_runs(&mut self) -> Vec<(T, Result<Done>)> {
        std::mem::take(&mut self.finished_runs)
    }

    /// Takes a read of a scan.
    pub fn add_run(&mut self, read: RunRead, asker: T) {
        let bytes = read.bytes();
        self.enqueue(Wanted::Run { read, asker: Some(asker) }, bytes);
    }

    /// Takes a lookup; it goes on as far as memory reaches, then its block is one of those to be read.
    pub fn add(&mut self, mut w: Waiting<T>) {
        loop {
            let (table, number) = w.parked.needed();
            let key = (table.meta().file_id, number);
            if let Some(i) = self.by_block.get(&key)
                && let Some(Missing { wanted: Wanted::Block { waiting, sweep_at, .. }, .. }) =
                    &mut self.missing[*i]
            {
                self.counters.joined.fetch_add(1, Relaxed);
                if waiting.len() >= *sweep_at {
                    waiting.retain(|w| !w.asker.is_gone());
                    *sweep_at = (2 * waiting.len()).max(SWEEP_FROM);
                }
                return waiting.push(w);
            }
            // It may have come since.
            let Some(block) = table.cached_block(number) else { break self.ask_for(key, w) };
            match self.go_on(w, &block) {
                Some(again) => w = again,
                None => return,
            }
        }
    }

    fn ask_for(&mut self, key: (u64, u32), w: Waiting<T>) {
        let (table, number) = w.parked.needed();
        let read = BlockRead::new(table, number, w.fill_cache);
        let bytes = table.block_bytes(number);
        let i = self.enqueue(Wanted::Block { read, waiting: vec![w], sweep_at: SWEEP_FROM }, bytes);
        self.by_block.insert(key, i);
    }

    fn enqueue(&mut self, wanted: Wanted<T>, bytes: u64) -> usize {
        if self.backlog.len() >= self.sweep_at {
            self.sweep();
        }
        let i = self.free.pop().unwrap_or_else(|| {
            self.missing.push(None);
            self.missing.len() - 1
        });
        self.missing[i] = Some(Missing { wanted, bytes, started: false, canceled: false });
        self.backlog.push_back(i);
        i
    }

    /// Lets go of what was not started and nobody wants any more.
    fn sweep(&mut self) {
        for i in std::mem::take(&mut self.backlog) {
            if self.missing[i].as_ref().is_some_and(|missing| !missing.is_unwanted()) {
                self.backlog.push_back(i);
            } else {
                drop(self.remove(i));
            }
        }
        self.sweep_at = (2 * self.backlog.len()).max(SWEEP_FROM);
    }

    /// Gives a lookup its block; it comes back if it needs another.
    fn go_on(&mut self, mut w: Waiting<T>, block: &Block) -> Option<Waiting<T>> {
        match w.parked.give(block) {
            Ok(None) => return Some(w),
            Ok(Some(answer)) => self.finished.push((w.asker, Ok(answer))),
            Err(e) => self.finished.push((w.asker, Err(e))),
        }
        None
    }

    /// Starts as many reads as the window allows, in one submission. Without a queue it does them, and leaves the
    /// others to the next call. Whether it has started any.
    pub fn start(&mut self) -> bool {
        if self.backlog.is_empty() {
            return false;
        }
        let queue = self.ready_queue();
        let ops = self.next_ops();
        if ops.is_empty() {
            return false;
        }
        self.counters.submissions.fetch_add(1, Relaxed);
        let refused = match queue {
            Some(queue) => queue.start_all(ops).err().unwrap_or_default(),
            None => ops,
        };
        // Without a queue (no descriptors, no memory) they are done one by one: slower, and that is all.
        for op in refused {
            self.done(op.user as usize, End::Refused(op));
        }
        true
    }

    /// The operations that fit into the window.
    fn next_ops(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        while self.in_flight < self.window && (self.in_flight_bytes < IN_FLIGHT_BYTES || self.in_flight == 0)
        {
            let Some(i) = self.backlog.pop_front() else { break };
            let Some(missing) = &mut self.missing[i] else { continue };
            if missing.is_unwanted() {
                drop(self.remove(i));
                continue;
            }
            let (bytes, blocks) = (missing.bytes, missing.blocks());
            match missing.op() {
                Ok(op) => {
                    missing.started = true;
                    self.counters.reads.fetch_add(blocks, Relaxed);
                    (self.in_flight, self.in_flight_bytes) =
                        (self.in_flight + 1, self.in_flight_bytes + bytes);
                    ops.push(op.user(i as u64));
                }
                Err(e) => self.end(i, End::Failed(e)),
            }
        }
        ops
    }

    fn ready_queue(&mut self) -> Option<Arc<SharedQueue>> {
        if self.queue.is_none() {
            let queue = self.io.shared_queue(self.window as u32).ok()?;
            // An engine may have less depth than was asked for.
            self.window = self.window.min(queue.depth());
            self.queue = Some(Arc::new(queue));
        }
        self.queue.clone()
    }

    /// Takes what has come, without waiting.
    pub fn reap(&mut self) {
        let Some(queue) = self.queue.clone() else { return };
        while self.in_flight > 0
            && let Some(done) = queue.pop()
        {
            self.done(done.user as usize, End::Done(done));
        }
        if let Some(e) = queue.failure() {
            self.queue = None;
            // All were answered; a read that was not would be waited for for ever.
            for i in 0..self.missing.len() {
                if self.missing[i].is_some() && !self.backlog.contains(&i) {
                    self.done(i, End::Failed(e.clone().into()));
                }
            }
        }
    }

    /// Waits until something has come, the queue is woken, or it has taken so long.
    pub fn wait(&mut self, most: Option<Duration>) {
        if let Some(queue) = &self.queue {
            // Of a failure `reap` asks the queue.
            let _ = queue.wait_or_wake(most);
        }
    }

    /// Takes reads back that nobody waits for any more, as far as the engine lets go of them.
    pub fn cancel_unwanted(&mut self) {
        let Some(queue) = &self.queue else { return };
        for (i, missing) in self.missing.iter_mut().enumerate() {
            let Some(missing) = missing else { continue };
            if missing.started && !missing.canceled && missing.is_unwanted() {
                missing.canceled = true;
                // If the queue failed, `reap` learns of it.
                let _ = queue.cancel(i as u64);
            }
        }
    }

    fn remove(&mut self, i: usize) -> Option<Missing<T>> {
        let missing = self.missing[i].take()?;
        self.free.push(i);
        if let Wanted::Block { read, .. } = &missing.wanted {
            self.by_block.remove(&read.key());
        }
        Some(missing)
    }

    /// A read that was started has come to its end.
    fn done(&mut self, i: usize, end: End) {
        let Some(missing) = &self.missing[i] else { return };
        (self.in_flight, self.in_flight_bytes) = (self.in_flight - 1, self.in_flight_bytes - missing.bytes);
        self.end(i, end);
    }

    fn end(&mut self, i: usize, end: End) {
        let Some(Missing { wanted, canceled, .. }) = self.remove(i) else { return };
        match wanted {
            Wanted::Block { read, waiting, .. } => {
                let block = match end {
                    End::Done(done) => read.finish(done),
                    End::Refused(_) => read.by_plain_call(purpose::USER_READ),
                    End::Failed(e) => Err(e),
                };
                self.came(&block.map(|block| read.keep(block)), waiting, canceled);
            }
            Wanted::Run { asker: Some(asker), .. } if !asker.is_gone() => {
                let done = match end {
                    End::Done(done) => Ok(done),
                    End::Refused(op) => self.io.run(vec![op]).pop().ok_or(Error::Closed),
                    End::Failed(e) => Err(e),
                };
                self.finished_runs.push((asker, done));
            }
            Wanted::Run { .. } => {}
        }
    }

    fn came(&mut self, block: &Result<Block>, waiting: Vec<Waiting<T>>, canceled: bool) {
        for w in waiting {
            match block {
                _ if w.asker.is_gone() => {}
                // It came after the read was taken back.
                Err(_) if canceled => self.add(w),
                Ok(block) => {
                    if let Some(w) = self.go_on(w, block) {
                        self.add(w);
                    }
                }
                Err(e) => self.finished.push((w.asker, Err(Error::clone(e)))),
            }
        }
    }
}
