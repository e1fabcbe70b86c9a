//! [`Reads`]: point reads for programs with an event loop of their own, and [`MultiGetStream`] on top.
//!
//! The same lookups and reads as of a future, on a queue of its own and in the caller's thread: no other thread has a
//! part in it.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::ask::Ask;
use super::get::Look;
use super::reactor::{Asker, Counters, Fetches, Waiting};
use crate::{Error, Result, Value};

/// Most reads that one of these has open.
const MOST: usize = 1 << 16;

/// A completion interface: reads are submitted with a tag, and their answers taken in any order. Made by
/// [`crate::Db::reads`]; owned by one thread at a time.
///
/// ```
/// # let dir = std::env::temp_dir().join(format!("ringdb-reads-{}", std::process::id()));
/// # let db = ringdb::Db::open(&dir, ringdb::Options::default())?;
/// db.put("apple", "red")?;
/// let mut reads = db.reads(64)?;
/// reads.submit(1, "apple")?;
/// reads.submit(2, "pear")?;
/// reads.wait(2)?;
/// while let Some((tag, answer)) = reads.poll() {
///     assert_eq!(answer?.is_some(), tag == 1);
/// }
/// # drop((reads, db));
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok::<(), ringdb::Error>(())
/// ```
///
/// Dropping it waits for the reads that the device has; their answers are lost. It does not keep the store open: what
/// is open when the store is closed is answered with [`Error::Closed`].
pub struct Reads {
    ask: Ask,
    fetches: Fetches<Tag>,
    depth: usize,
    /// Submitted, and the answer not taken.
    open: usize,
    /// Somebody waits for the descriptor.
    watched: bool,
    answers: VecDeque<(u64, Result<Option<Value>>)>,
}

struct Tag(u64);

impl Asker for Tag {}

impl Reads {
    pub(super) fn new(ask: Ask, depth: usize) -> Result<Reads> {
        ask.core.check_open()?;
        ask.options.without_deadline()?;
        let depth = depth.clamp(1, MOST);
        let fetches = Fetches::new(&ask.core.io, depth, Arc::new(Counters::default()));
        Ok(Reads { ask, fetches, depth, open: 0, watched: false, answers: VecDeque::new() })
    }

    /// Reads submitted whose answers have not been taken.
    pub fn open(&self) -> usize {
        self.open
    }

    /// The most of them.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Asks for the value of a key. What memory has is answered without a read; the rest begins, together, with the
    /// next [`Reads::poll`] that has nothing to give, or [`Reads::wait`].
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if `depth` reads are open: take answers first; [`Error::Closed`];
    /// [`Error::KeyspaceDropped`]. What the read fails with comes with its answer.
    pub fn submit(&mut self, tag: u64, key: impl AsRef<[u8]>) -> Result<()> {
        let seq = self.ask.seq();
        let views = self.ask.core.views_of(&self.ask.keyspace, seq)?;
        if self.open == self.depth {
            return Err(Error::WouldBlock);
        }
        let found = views.look(&self.ask.keyspace.prefix, key.as_ref(), seq);
        self.open += 1;
        match found {
            Ok(Look::Done(value)) => self.answers.push_back((tag, Ok(value))),
            Ok(Look::Parked(parked)) => {
                let fill_cache = self.ask.options.fill_cache;
                self.fetches.add(Waiting { parked, fill_cache, asker: Tag(tag) });
            }
            Err(e) => self.answers.push_back((tag, Err(e))),
        }
        Ok(())
    }

    /// Takes an answer, with its tag, without waiting. After `None` everything that was submitted is on its way, and
    /// [`Reads::fd`] tells when there is more.
    pub fn poll(&mut self) -> Option<(u64, Result<Option<Value>>)> {
        if self.answers.is_empty() && (self.open > 0 || self.watched) && self.check().is_ok() {
            self.fetches.start();
            // Silences the descriptor, too.
            self.fetches.wait(Some(std::time::Duration::ZERO));
            self.collect();
        }
        let answer = self.answers.pop_front()?;
        self.open -= 1;
        Some(answer)
    }

    /// Waits until at least `min` answers can be taken, or fewer if fewer reads are open; says how many can.
    ///
    /// # Errors
    /// [`Error::Closed`]: what was open has been answered with it.
    pub fn wait(&mut self, min: usize) -> Result<usize> {
        self.check()?;
        self.fetches.start();
        self.collect();
        while self.answers.len() < min.min(self.open) {
            self.fetches.wait(None);
            self.collect();
            self.check()?;
        }
        Ok(self.answers.len())
    }

    /// A descriptor that is readable when there may be answers to take, for epoll and the like. Poll until there is
    /// none before waiting for it: only then is everything on its way, and the descriptor silent. Engines that have
    /// none (the simulated disk, polled rings) refuse.
    ///
    /// # Errors
    /// [`Error::Closed`]; of kind [`crate::ErrorKind::FixCall`] from an engine that has no descriptor.
    pub fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        self.check()?;
        self.watched = true;
        self.fetches.fd()
    }

    /// Fails, and answers what is open, when the store is closed.
    fn check(&mut self) -> Result<()> {
        self.ask.core.health.check_process()?;
        self.ask.core.check_open().inspect_err(|e| {
            self.fetches.fail_all(e);
            self.collect();
        })
    }

    fn collect(&mut self) {
        // What is begun may be done at once, and shows at no descriptor then: it is taken here.
        loop {
            self.fetches.reap();
            if !self.fetches.start() {
                break;
            }
        }
        self.answers.extend(self.fetches.take_finished().into_iter().map(|(tag, answer)| (tag.0, answer)));
    }
}

/// The values of many keys, each when it is there, with a window of reads that is always full; by
/// [`crate::Db::multi_get_stream`].
pub struct MultiGetStream<I: Iterator> {
    keys: I,
    reads: Reads,
    /// By tag.
    asked: Vec<Option<I::Item>>,
    free: Vec<usize>,
}

impl<I: Iterator> MultiGetStream<I> {
    pub(super) fn new(keys: I, reads: Reads) -> MultiGetStream<I> {
        MultiGetStream { keys, reads, asked: Vec::new(), free: Vec::new() }
    }
}

impl<I: Iterator<Item: AsRef<[u8]>>> MultiGetStream<I> {
    /// Submits keys until the window is full or there are none left; gives one back that was refused.
    fn fill(&mut self) -> Option<(I::Item, Error)> {
        while self.reads.open() < self.reads.depth() {
            let key = self.keys.next()?;
            let tag = self.free.pop().unwrap_or_else(|| {
                self.asked.push(None);
                self.asked.len() - 1
            });
            if let Err(e) = self.reads.submit(tag as u64, key.as_ref()) {
                self.free.push(tag);
                return Some((key, e));
            }
            self.asked[tag] = Some(key);
        }
        None
    }
}

impl<I: Iterator<Item: AsRef<[u8]>>> Iterator for MultiGetStream<I> {
    type Item = (I::Item, Result<Option<Value>>);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((key, e)) = self.fill() {
            return Some((key, Err(e)));
        }
        loop {
            if let Some((tag, answer)) = self.reads.poll() {
                self.free.push(tag as usize);
                return self.asked[tag as usize].take().map(|key| (key, answer));
            }
            if self.reads.open() == 0 {
                return None;
            }
            // A failure comes out with the answers.
            let _ = self.reads.wait(1);
        }
    }
}
