//! given up, or with a deadline.

use std::task::Poll;
use std::time::Duration;

use ringdb::{Db, Durability, Env, Error, ErrorKind, Keyspace, WriteBatch, WriteFuture, WriteOptions};

use super::ledger::{Found, Numbers};
use super::life::Life;
use super::ways::{Task, block_on};
use super::writer::{batch, both, one, work};
use super::{Shared, mend};
use crate::support::Rng;

/// Writes on their way, at most.
const BURST: u64 = 9;
/// Failures after which somebody sees to their cause.
const MENDED_AFTER: u64 = 5;

/// What becomes of a write's future.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    /// It is dropped before it is polled,
    Never,
    /// after its first poll,
    Dropped,
    /// while the others of its burst are waited for,
    DroppedLate,
    /// or waited for.
    Awaited,
}

/// A write on its way.
pub struct Left {
    w: usize,
    n: u64,
    durability: Durability,
    deadline: bool,
    plan: Plan,
    task: Task<WriteFuture>,
}

impl Left {
    /// How it fared when the store was closed: whoever waits is answered by then.
    pub fn answered(mut self, life: &Life) -> Result<(), String> {
        match self.task.poll() {
            Poll::Pending => Err(format!("write {} of writer {} is not answered", self.n, self.w)),
            Poll::Ready(Err(Error::Closed)) => Ok(()),
            Poll::Ready(done) => self.fared(life, done).map(drop),
        }
    }

    /// Notes how it ended; false if it has failed.
    fn fared(&self, life: &Life, done: ringdb::Result<()>) -> Result<bool, String> {
        match done {
            Ok(()) => life.acknowledge(self.w, self.n, self.durability),
            // It is there or not.
            Err(Error::TimedOut) if self.deadline => {}
            Err(e) => {
                life.right_kind("an asynchronous write", &e)?;
                if e.kind() == ErrorKind::Retry {
                    life.ledger().refused[self.w].insert(self.n);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A writer and what it has done.
struct Writer<'a> {
    life: &'a Shared,
    db: &'a Db,
    both: Keyspace,
    w: usize,
    n: u64,
    rng: Rng,
    failures: u64,
}

/// Writes until all is written, the store has stopped, or something is wrong.
pub fn write(life: &Shared, db: &Db, w: usize) -> Result<(), String> {
    let rng = Rng(life.seed ^ (w as u64) << 40 ^ 0x7A5C);
    let Some(both) = life.patiently("a keyspace", db, || both(db))? else { return Ok(()) };
    let mut writer = Writer { life, db, both, w, n: 0, rng, failures: 0 };
    let last = writer.rng.below(BURST);
    while writer.n + 1 + last < life.rounds {
        if !writer.burst(last)? || !work(life, db, &mut writer.rng)? {
            return Ok(());
        }
    }
    // Nothing is on its way: a blocking call keeps the order. Whatever was wrong has been mended by now.
    writer.n += 1;
    let number = (w, writer.n);
    if one(life, db, number, &mut writer.rng, &writer.both)? {
        for _ in 0..last {
            let write = writer.begin(None)?;
            write.into_iter().for_each(|write| life.leave(write));
        }
    }
    Ok(())
}

impl Writer<'_> {
    /// Several writes and how they end; false if there can be no more. So many are left for later.
    fn burst(&mut self, last: u64) -> Result<bool, String> {
        let most = self.life.rounds - last - 1 - self.n;
        let before = self.failures;
        let unlogged = self.rng.chance(6).then_some(Durability::None);
        let mut waiting = Vec::new();
        for _ in 0..(1 + self.rng.below(BURST)).min(most) {
            waiting.extend(self.begin(unlogged)?);
            if self.rng.chance(3) {
                self.life.env.sleep(Duration::from_micros(self.rng.below(30)));
            }
        }
        let early = self.rng.chance(6).then(|| self.begin_sync());
        while !waiting.is_empty() {
            let mut write: Left = waiting.swap_remove(self.rng.below(waiting.len() as u64) as usize);
            if write.plan == Plan::Awaited {
                let done = write.task.wait(&self.life.env);
                self.failures += u64::from(!write.fared(self.life, done)?);
            }
        }
        if let Some((covers, first, mut task)) = early {
            let done = match first {
                Poll::Ready(done) => done,
                Poll::Pending => task.wait(&self.life.env),
            };
            self.synced(covers, done)?;
        }
        if unlogged.is_some() || self.rng.chance(6) {
            self.sync()?;
        }
        if self.failures > before {
            if self.failures >= MENDED_AFTER {
                mend(&self.life.disk);
            }
            self.life.env.sleep(Duration::from_millis(20));
        }
        let stats = self.db.stats();
        Ok(stats.stopped.is_none() && stats.damaged_tables.is_empty())
    }

    /// Polls the next write once; gives it back if it is on its way.
    fn begin(&mut self, durability: Option<Durability>) -> Result<Option<Left>, String> {
        self.n += 1;
        let (w, n) = (self.w, self.n);
        let plan = match self.rng.below(12) {
            0 => Plan::Never,
            1 => Plan::Dropped,
            2 => Plan::DroppedLate,
            _ => Plan::Awaited,
        };
        let levels = [Durability::Sync, Durability::Process, self.life.durability];
        let durability = durability.unwrap_or(*self.rng.pick(&levels));
        let mut options = WriteOptions::default().durability(durability);
        let deadline = self.rng.chance(8);
        if deadline {
            options = options.with_deadline(Duration::from_micros(self.rng.below(400)));
        }
        let contents = batch(w, n, &mut Rng(self.rng.next()), &self.both);
        let task = Task::new(self.db.write_async(contents, &options));
        let mut write = Left { w, n, durability, deadline, plan, task };
        self.life.ledger().begin(w, n);
        if plan == Plan::Never {
            self.life.ledger().refused[w].insert(n);
            return Ok(None);
        }
        match write.task.poll() {
            Poll::Ready(done) => {
                self.failures += u64::from(!write.fared(self.life, done)?);
                Ok(None)
            }
            Poll::Pending => Ok((plan != Plan::Dropped).then_some(write)),
        }
    }

    /// What a sync covers that begins now: what was acknowledged, and `mine`.
    fn covered(&self, mine: Numbers) -> Found {
        let mut covers = self.life.ledger().acknowledged();
        covers[self.w] = covers[self.w].or(mine);
        covers
    }

    /// Polls a sync once, while writes are on their way: they count.
    fn begin_sync(&mut self) -> (Found, Poll<ringdb::Result<()>>, Task<WriteFuture>) {
        let covers = self.covered(Numbers::up_to(self.n));
        let mut task = Task::new(self.db.sync_async());
        (covers, task.poll(), task)
    }

    /// A sync by any of the calls that there are.
    fn sync(&mut self) -> Result<(), String> {
        let covers = self.covered(Numbers::default());
        let sync = WriteOptions::default().durability(Durability::Sync);
        let done = match self.rng.below(4) {
            0 => self.db.sync(),
            1 => self.db.write(WriteBatch::new(), &sync),
            2 => block_on(&self.life.env, self.db.write_async(WriteBatch::new(), &sync)),
            _ => block_on(&self.life.env, self.db.sync_async()),
        };
        self.synced(covers, done)
    }

    fn synced(&mut self, covers: Found, done: ringdb::Result<()>) -> Result<(), String> {
        match done {
            Ok(()) => self.life.ledger().synced(covers, self.life.disk.operations()),
            Err(e) => {
                self.failures += 1;
                self.life.right_kind("a sync", &e)?;
            }
        }
        Ok(())
    }
}
