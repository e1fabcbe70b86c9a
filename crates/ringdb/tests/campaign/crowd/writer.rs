//! A writer: batches that count up, across two keyspaces, and now and then a flush or a compaction.

use std::time::Duration;

use ringdb::{Db, Durability, Env, ErrorKind, Keyspace, WriteBatch, WriteOptions};

use super::ledger::{Ack, KEYS};
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

/// What a writer has under its key `k` after `n` writes: the number of the write that put it.
pub fn expected(n: u64, k: u64) -> Option<u64> {
    // A write puts the key of its number and deletes the next.
    let last = (1..=n).rev().take(KEYS as usize).find(|r| r % KEYS == k || (r + 1) % KEYS == k);
    last.filter(|r| r % KEYS == k)
}

fn batch(w: usize, n: u64, rng: &mut Rng, both: &Keyspace) -> WriteBatch {
    let len = if rng.chance(12) { rng.below(30_000) } else { rng.below(2500) };
    let mut batch = WriteBatch::new();
    batch.put(format!("{w}/count"), n.to_le_bytes());
    batch.put(format!("{w}/{:02}", n % KEYS), value(n, len));
    batch.delete(format!("{w}/{:02}", (n + 1) % KEYS));
    batch.put_in(both, format!("{w}/count"), n.to_le_bytes());
    batch
}

/// Writes until all is written, the store has stopped, or something is wrong.
pub fn write(life: &Shared, db: &Db, w: usize) -> Result<(), String> {
    let mut rng = Rng(life.seed ^ (w as u64) << 40);
    let Some(both) = life.patiently("a keyspace", db, || db.keyspace("both"))? else { return Ok(()) };
    for n in 1..=life.rounds {
        let sync = rng.chance(4);
        let durability = if sync { Durability::Sync } else { life.durability };
        let contents = rng.next();
        let acks = life.ledger().acks.len();
        life.ledger().begun[w].push(acks);
        let wrote = life.patiently("a write", db, || {
            let batch = batch(w, n, &mut Rng(contents), &both);
            db.write(batch, &WriteOptions::default().durability(durability)).inspect_err(|e| {
                if e.kind() == ErrorKind::Retry {
                    let there =
                        db.get(format!("{w}/count")).ok().flatten().is_some_and(|v| v[..] == n.to_le_bytes());
                    assert!(!there, "write {n} of writer {w} is refused with {e} and there all the same");
                }
            })
        })?;
        if wrote.is_none() {
            return Ok(());
        }
        let durable = sync || life.durability == Durability::Sync;
        let at = life.disk.operations();
        life.ledger().acks.push(Ack { writer: w, n, durable, at });
        let work = match rng.below(50) {
            0 => life.patiently("a flush", db, || db.flush())?,
            1 => life.patiently("a compaction", db, || db.compact_range(..))?,
            _ => Some(()),
        };
        if work.is_none() {
            return Ok(());
        }
    }
    Ok(())
}

impl super::Life {
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
