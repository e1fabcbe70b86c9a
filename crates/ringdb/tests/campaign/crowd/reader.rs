//! A reader: takes snapshots, reads them in every way, and keeps some, with iterators in the middle of them.

use std::collections::VecDeque;
use std::time::Duration;

use ringdb::{Db, Env, Iter, Keyspace, Result, Snapshot, Value};

use super::Shared;
use super::ledger::{KEYS, WRITERS};
use super::writer::expected;
use crate::support::Rng;

/// Snapshots that a reader holds at most.
const HELD: usize = 3;

/// What one snapshot has shown.
struct Held {
    snapshot: Snapshot,
    found: [u64; WRITERS],
    /// An iterator over all of it, and the last key that it gave.
    rest: Iter,
    last: Option<Vec<u8>>,
}

/// The number at the front of a value.
pub fn number(v: Option<&Value>) -> u64 {
    v.and_then(|v| v.get(..8)).and_then(|v| v.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Reads until the writers are done.
pub fn read(life: &Shared, db: &Db, r: usize) -> std::result::Result<(), String> {
    let mut rng = Rng(life.seed ^ (r as u64) << 50 ^ 77);
    let mut held: VecDeque<Held> = VecDeque::new();
    while !life.is_done() {
        life.env.sleep(Duration::from_micros(1 + rng.below(200)));
        // What was acknowledged by now must be seen.
        let least = life.ledger().acknowledged();
        let snapshot = db.snapshot();
        life.env.sleep(Duration::from_micros(rng.below(50)));
        let Some(found) = life.readable(look(db, &snapshot))? else { continue };
        if (0..WRITERS).any(|w| found[w] < least[w] || found[w] > life.ledger().begun[w].len() as u64) {
            return Err(format!("a snapshot shows {found:?} writes when {least:?} were acknowledged"));
        }
        let rest = snapshot.iter();
        held.push_back(Held { snapshot, found, rest, last: None });
        if let Some(old) = held.get_mut(rng.below(HELD as u64) as usize) {
            again(life, db, old)?;
        }
        while held.len() > HELD {
            held.pop_front();
        }
    }
    held.iter_mut().try_for_each(|h| again(life, db, h))
}

/// Reads all in every way; the number of writes of each writer.
pub fn look(db: &Db, snapshot: &Snapshot) -> Result<std::result::Result<[u64; WRITERS], String>> {
    let counts: Vec<String> = (0..WRITERS).map(|w| format!("{w}/count")).collect();
    let mut found = [0; WRITERS];
    for (w, v) in snapshot.multi_get(&counts)?.iter().enumerate() {
        found[w] = number(v.as_ref());
    }
    let there = match db.existing_keyspace("both")? {
        Some(both) => both_counts(snapshot, &both, &counts)?,
        None => [0; WRITERS],
    };
    if there != found {
        return Ok(Err(format!("a batch by half: {found:?} in one keyspace, {there:?} in the other")));
    }
    for (w, n) in found.into_iter().enumerate() {
        let keys: Vec<String> = (0..KEYS).map(|k| format!("{w}/{k:02}")).collect();
        let all = snapshot.multi_get(&keys)?;
        let expect: Vec<Option<u64>> = (0..KEYS).map(|k| expected(n, k)).collect();
        let got: Vec<Option<u64>> = all.iter().map(|v| v.as_ref().map(|v| number(Some(v)))).collect();
        if got != expect {
            return Ok(Err(format!("writer {w} at {n}: {got:?} instead of {expect:?}")));
        }
        let mut scanned = vec![None; KEYS as usize];
        for kv in snapshot.prefix(format!("{w}/")) {
            let (k, v) = kv?;
            if let Some(k) = std::str::from_utf8(&k[2..]).ok().and_then(|k| k.parse::<usize>().ok()) {
                scanned[k] = Some(number(Some(&v)));
            }
        }
        if scanned != expect {
            return Ok(Err(format!("writer {w} at {n}: a scan gives {scanned:?} instead of {expect:?}")));
        }
        let k = n % KEYS;
        let one = snapshot.get(format!("{w}/{k:02}"))?;
        if one.as_ref().map(|v| number(Some(v))) != expect[k as usize] {
            return Ok(Err(format!("writer {w} at {n}: get of key {k} gives {:?}", number(one.as_ref()))));
        }
    }
    Ok(Ok(found))
}

fn both_counts(snapshot: &Snapshot, both: &Keyspace, counts: &[String]) -> Result<[u64; WRITERS]> {
    let there = snapshot.keyspace(both).multi_get(counts)?;
    Ok([0, 1, 2].map(|w| number(there[w].as_ref())))
}

/// An old snapshot shows what it did, and its iterator goes on in it.
fn again(life: &Shared, db: &Db, held: &mut Held) -> std::result::Result<(), String> {
    if let Some(now) = life.readable(look(db, &held.snapshot))?
        && now != held.found
    {
        return Err(format!("a snapshot showed {:?} writes and now {now:?}", held.found));
    }
    for _ in 0..7 {
        let Some(kv) = held.rest.next() else { return Ok(()) };
        let Some((key, value)) = life.readable(kv.map(Ok))? else {
            // It stands where the damage is.
            held.rest = held.snapshot.range("~"..);
            return Ok(());
        };
        if held.last.as_deref().is_some_and(|l| l >= &key[..]) {
            return Err(format!("an iterator gives {key:?} after {:?}", held.last));
        }
        let text = String::from_utf8_lossy(&key).into_owned();
        let (w, k) = text.split_once('/').ok_or_else(|| format!("a strange key {text}"))?;
        let n = held.found[w.parse::<usize>().map_err(|_| format!("a strange key {text}"))?];
        let expect = k.parse().map_or(Some(n), |k| expected(n, k));
        if Some(number(Some(&value))) != expect {
            return Err(format!("an iterator gives {text} of write {}, at {n}", number(Some(&value))));
        }
        held.last = Some(key.to_vec());
    }
    Ok(())
}
