//! A writer: batches and transactions that count up, across two keyspaces, and now and then a flush or a compaction.

use std::time::Duration;

use ringdb::{Db, Durability, Env, Error, ErrorKind, Keyspace, KeyspaceOptions, WriteBatch, WriteOptions};

use super::ledger::{Ack, KEYS, Numbers};
use super::reader::number;
use super::{Shared, mend};
use crate::support::Rng;

/// Tries of a write that is refused for the time being; after some of them somebody sees to the cause.
const TRIES: u32 = 400;
const MENDED_AFTER: u32 = 5;

/// The value of write `n` under one of its writer's keys.
pub fn value(n: u64, len: u64) -> Vec<u8> {
    let mut v = n.to_le_bytes().to_vec();
    v.resize(8 + len as usize, n as u8);
    v
}

/// What a writer has under its key `k` after some writes: the number of the one that put it.
pub fn expected(of: Numbers, k: u64) -> Option<u64> {
    // A write puts the key of its number and deletes the next.
    let last = of.iter().rev().find(|r| r % KEYS == k || (r + 1) % KEYS == k);
    last.filter(|r| r % KEYS == k)
}

/// The key that says that a write is there.
pub fn mark(w: usize, n: u64) -> String {
    format!("{w}/m{n:02}")
}

fn length(rng: &mut Rng) -> u64 {
    if rng.chance(12) { rng.below(30_000) } else { rng.below(2500) }
}

pub fn batch(w: usize, n: u64, rng: &mut Rng, both: &Keyspace) -> WriteBatch {
    let len = length(rng);
    let mut batch = WriteBatch::new();
    batch.put(format!("{w}/count"), n.to_le_bytes());
    batch.put(format!("{w}/{:02}", n % KEYS), value(n, len));
    batch.delete(format!("{w}/{:02}", (n + 1) % KEYS));
    batch.put_in(both, format!("{w}/count"), n.to_le_bytes());
    batch.put_in(both, mark(w, n), n.to_le_bytes());
    batch
}

/// The key of the newest ticket: each transaction takes the next, and writes it into its mark. So all that are there
/// have taken different ones, without a gap.
pub const TICKETS: &str = "tickets";

/// The key into which each transaction merges its writer and its number, without reading it.
pub const MERGED: &str = "merged";

/// What a transaction merges there.
pub fn merged(w: usize, n: u64) -> String {
    format!("{w}.{n}")
}

/// The keyspace that all write to.
pub fn both(db: &Db) -> ringdb::Result<Keyspace> {
    db.keyspace_with("both", &KeyspaceOptions::default().with_merge_operator("append:,"))
}

/// The same as a transaction, run until no other is ahead of it.
fn transact(
    life: &Shared,
    db: &Db,
    (w, n): (usize, u64),
    rng: &mut Rng,
    both: &Keyspace,
    durability: Durability,
) -> ringdb::Result<()> {
    let len = length(rng);
    loop {
        let tx = db.transaction();
        let ticket = number(tx.get_in(both, TICKETS)?.as_ref()) + 1;
        // Others take one meanwhile.
        life.env.sleep(Duration::from_micros(rng.below(60)));
        tx.put_in(both, TICKETS, ticket.to_le_bytes())?;
        tx.put(format!("{w}/count"), n.to_le_bytes())?;
        tx.put(format!("{w}/{:02}", n % KEYS), value(n, len))?;
        tx.delete(format!("{w}/{:02}", (n + 1) % KEYS))?;
        tx.put_in(both, format!("{w}/count"), n.to_le_bytes())?;
        tx.put_in(both, mark(w, n), [n.to_le_bytes(), ticket.to_le_bytes()].concat())?;
        tx.merge_in(both, MERGED, merged(w, n))?;
        if rng.chance(6) {
            // Nothing is left of one that is not committed.
            tx.put_in(both, TICKETS, (ticket + 1000).to_le_bytes())?;
            continue;
        }
        match tx.commit_with(&WriteOptions::default().durability(durability)) {
            Err(Error::Conflict { .. }) => {}
            done => return done,
        }
    }
}

/// Writes until all is written, the store has stopped, or something is wrong.
pub fn write(life: &Shared, db: &Db, w: usize) -> Result<(), String> {
    let mut rng = Rng(life.seed ^ (w as u64) << 40);
    let Some(both) = life.patiently("a keyspace", db, || both(db))? else { return Ok(()) };
    for n in 1..=life.rounds {
        if !one(life, db, (w, n), &mut rng, &both)? || !work(life, db, &mut rng)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Write `n` of writer `w`, by a blocking call; false if there can be no more.
pub fn one(
    life: &Shared,
    db: &Db,
    (w, n): (usize, u64),
    rng: &mut Rng,
    both: &Keyspace,
) -> Result<bool, String> {
    let durability = if rng.chance(4) { Durability::Sync } else { life.durability };
    let contents = rng.next();
    let transaction = rng.chance(2);
    life.ledger().begin(w, n);
    let wrote = life.patiently("a write", db, || {
        let wrote = match transaction {
            true => transact(life, db, (w, n), &mut Rng(contents), both, durability),
            false => {
                let batch = batch(w, n, &mut Rng(contents), both);
                db.write(batch, &WriteOptions::default().durability(durability))
            }
        };
        wrote.inspect_err(|e| {
            if e.kind() == ErrorKind::Retry {
                let there = both.get(mark(w, n)).ok().flatten().is_some();
                assert!(!there, "write {n} of writer {w} is refused with {e} and there all the same");
            }
        })
    })?;
    if wrote.is_some() {
        life.acknowledge(w, n, durability);
    }
    Ok(wrote.is_some())
}

/// Seldom a flush or a compaction; false if there can be no more.
pub fn work(life: &Shared, db: &Db, rng: &mut Rng) -> Result<bool, String> {
    let done = match rng.below(50) {
        0 => life.patiently("a flush", db, || db.flush())?,
        1 => life.patiently("a compaction", db, || db.compact_range(..))?,
        _ => Some(()),
    };
    Ok(done.is_some())
}

impl super::Life {
    /// A write was acknowledged.
    pub fn acknowledge(&self, writer: usize, n: u64, durability: Durability) {
        let logged = durability != Durability::None;
        let durable = durability == Durability::Sync || (self.durability == Durability::Sync && logged);
        let at = self.disk.operations();
        self.ledger().acks.push(Ack { writer, n, logged, durable, at });
    }

    /// Calls until it succeeds; `None` if the store has stopped, or cannot do it for a damaged table.
    pub fn patiently<T>(
        &self,
        what: &str,
        db: &Db,
        mut call: impl FnMut() -> ringdb::Result<T>,
    ) -> Result<Option<T>, String> {
        for tries in 0..TRIES {
            match call() {
                Ok(v) => return Ok(Some(v)),
                Err(e) => {
                    self.right_kind(what, &e)?;
                    let stats = db.stats();
                    if stats.stopped.is_some() || !stats.damaged_tables.is_empty() {
                        return Ok(None);
                    }
                    if tries == MENDED_AFTER {
                        mend(&self.disk);
                    }
                    self.env.sleep(Duration::from_millis(20 * u64::from(tries + 1)));
                }
            }
        }
        Err(format!("{what} fails for good"))
    }
}
