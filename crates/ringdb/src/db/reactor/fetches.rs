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
use crate::table::fetch::{Block, BlockRead};
use crate::{Error, Result, Value};

/// Bytes in flight at most (but one block, however large).
const IN_FLIGHT_BYTES: u64 = 16 << 20;

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

/// A block that is to be read, or being read.
struct Missing<T> {
    read: BlockRead,
    bytes: u64,
    waiting: Vec<Waiting<T>>,
    started: bool,
    /// It was taken back, because nobody waited for it.
    canceled: bool,
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
    in_flight: usize,
    in_flight_bytes: u64,
    finished: Vec<(T, Result<Option<Value>>)>,
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
            in_flight: 0,
            in_flight_bytes: 0,
            finished: Vec::new(),
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
        for w in self.missing.iter_mut().flatten().flat_map(|missing| missing.waiting.drain(..)) {
            self.finished.push((w.asker, Err(e.clone())));
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

    /// Takes a lookup; it goes on as far as memory reaches, then its block is one of those to be read.
    pub fn add(&mut self, mut w: Waiting<T>) {
        loop {
            let (table, number) = w.parked.needed();
            let key = (table.meta().file_id, number);
            if let Some(i) = self.by_block.get(&key)
                && let Some(missing) = &mut self.missing[*i]
            {
                self.counters.joined.fetch_add(1, Relaxed);
                return missing.waiting.push(w);
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
        let missing = Missing { read, bytes, waiting: vec![w], started: false, canceled: false };
        let i = self.free.pop().unwrap_or_else(|| {
            self.missing.push(None);
            self.missing.len() - 1
        });
        self.missing[i] = Some(missing);
        self.by_block.insert(key, i);
        self.backlog.push_back(i);
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
    /// others to the next call.
    pub fn start(&mut self) {
        if self.backlog.is_empty() {
            return;
        }
        let queue = self.ready_queue();
        let ops = self.next_ops();
        if ops.is_empty() {
            return;
        }
        self.counters.reads.fetch_add(ops.len() as u64, Relaxed);
        self.counters.submissions.fetch_add(1, Relaxed);
        let refused = match queue {
            Some(queue) => queue.start_all(ops).err().unwrap_or_default(),
            None => ops,
        };
        // Without a queue (no descriptors, no memory) they are done one by one: slower, and that is all.
        for op in refused {
            self.done(op.user as usize, |read| read.by_plain_call(purpose::USER_READ));
        }
    }

    /// The operations that fit into the window.
    fn next_ops(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        while self.in_flight < self.window && (self.in_flight_bytes < IN_FLIGHT_BYTES || self.in_flight == 0)
        {
            let Some(i) = self.backlog.pop_front() else { break };
            let Some(missing) = &mut self.missing[i] else { continue };
            missing.waiting.retain(|w| !w.asker.is_gone());
            if missing.waiting.is_empty() {
                drop(self.remove(i));
                continue;
            }
            let bytes = missing.bytes;
            match missing.read.op(purpose::USER_READ) {
                Ok(op) => {
                    missing.started = true;
                    (self.in_flight, self.in_flight_bytes) =
                        (self.in_flight + 1, self.in_flight_bytes + bytes);
                    ops.push(op.user(i as u64));
                }
                Err(e) => self.came(i, Err(e)),
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
            let Done { user, result, buf } = done;
            self.done(user as usize, |read| read.finish(Done { user, result, buf }));
        }
        if let Some(e) = queue.failure() {
            self.queue = None;
            // All were answered; a read that was not would be waited for for ever.
            for i in 0..self.missing.len() {
                if self.missing[i].is_some() && !self.backlog.contains(&i) {
                    self.done(i, |_| Err(e.clone().into()));
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
            if missing.started && !missing.canceled && missing.waiting.iter().all(|w| w.asker.is_gone()) {
                missing.canceled = true;
                // If the queue failed, `reap` learns of it.
                let _ = queue.cancel(i as u64);
            }
        }
    }

    fn remove(&mut self, i: usize) -> Option<Missing<T>> {
        let missing = self.missing[i].take()?;
        self.free.push(i);
        self.by_block.remove(&missing.read.key());
        Some(missing)
    }

    /// A read that was started has come to its end.
    fn done(&mut self, i: usize, finish: impl FnOnce(&BlockRead) -> Result<Block>) {
        let Some(missing) = &self.missing[i] else { return };
        (self.in_flight, self.in_flight_bytes) = (self.in_flight - 1, self.in_flight_bytes - missing.bytes);
        let block = finish(&missing.read);
        self.came(i, block);
    }

    fn came(&mut self, i: usize, block: Result<Block>) {
        let Some(missing) = self.remove(i) else { return };
        let block = block.map(|block| missing.read.keep(block));
        for w in missing.waiting {
            match &block {
                _ if w.asker.is_gone() => {}
                // It came after the read was taken back.
                Err(_) if missing.canceled => self.add(w),
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
