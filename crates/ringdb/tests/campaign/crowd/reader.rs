//! A reader: takes snapshots, reads them in every way, and keeps some, with iterators in the middle of them and with
//! futures that are waited for later.

use std::collections::VecDeque;
use std::time::Duration;

use ringdb::{Db, Env, GetFuture, Iter, Result, Snapshot, Value};

use super::Shared;
use super::ledger::{Found, KEYS, Numbers, WRITERS};
use super::life::ROUNDS;
use super::ways::{Task, Ways};
use super::writer::{MERGED, TICKETS, expected, mark, merged};
use crate::support::Rng;

/// Snapshots that a reader holds at most.
const HELD: usize = 3;

/// What one snapshot has shown.
struct Held {
    snapshot: Snapshot,
    found: Found,
    /// A read of writer 0's count that has begun.
    late: Option<Task<GetFuture>>,
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
    let ways = match life.tasks {
        true => Ways::all(&life.env, rng.next()),
        false => Ways::blocking(&life.env),
    };
    let mut held: VecDeque<Held> = VecDeque::new();
    let mut before = Found::default();
    while !life.is_done() {
        life.env.sleep(Duration::from_micros(1 + rng.below(200)));
        // What was acknowledged by now must be seen.
        let least = life.ledger().acknowledged();
        let snapshot = db.snapshot();
        life.env.sleep(Duration::from_micros(rng.below(50)));
        let Some(found) = life.readable(look(&ways, db, &snapshot))? else { continue };
        plausible(life, least, before, found)?;
        before = found;
        let rest = snapshot.iter();
        let mut late = (life.tasks && rng.chance(2)).then(|| Task::new(snapshot.get_async("0/count")));
        // One that is ready at once has nothing to wait for.
        late.take_if(|task| task.poll().is_ready());
        held.push_back(Held { snapshot, found, late, rest, last: None });
        if let Some(old) = held.get_mut(rng.below(HELD as u64) as usize) {
            again(life, &ways, db, old)?;
        }
        while held.len() > HELD {
            held.pop_front();
        }
    }
    held.iter_mut().try_for_each(|h| again(life, &ways, db, h))
}

/// What a snapshot shows: all that was acknowledged before, nothing that was refused, and what an earlier one showed,
/// with newer writes only.
fn plausible(life: &Shared, least: Found, before: Found, found: Found) -> std::result::Result<(), String> {
    let begun = life.ledger().begun();
    let refused = life.ledger().refused;
    for w in 0..WRITERS {
        let most = begun[w].without(refused[w]);
        if !least[w].without(found[w]).is_empty() || !found[w].without(most).is_empty() {
            return Err(format!("a snapshot shows {found:?} when {least:?} were acknowledged, of {begun:?}"));
        }
        if found[w].and(Numbers::up_to(before[w].newest())) != before[w] {
            return Err(format!("a snapshot shows {found:?}, an earlier one {before:?}"));
        }
    }
    Ok(())
}

/// Reads all in every way; the writes of each writer.
pub fn look(ways: &Ways<'_>, db: &Db, snapshot: &Snapshot) -> Result<std::result::Result<Found, String>> {
    let counts: Vec<String> = (0..WRITERS).map(|w| format!("{w}/count")).collect();
    let here = ways.values(snapshot, &counts)?;
    let (found, there) = match db.existing_keyspace("both")? {
        Some(both) => match marks(ways, &snapshot.keyspace(&both), &counts)? {
            Ok(marks) => marks,
            Err(e) => return Ok(Err(e)),
        },
        None => Default::default(),
    };
    for w in 0..WRITERS {
        let (n, newest) = (number(here[w].as_ref()), found[w].newest());
        if [n, there[w]] != [newest; 2] {
            return Ok(Err(format!(
                "a batch by half: {n} in one keyspace, {} in the other, with {:?}",
                there[w], found[w]
            )));
        }
        if let Err(e) = look_at(ways, snapshot, w, found[w])? {
            return Ok(Err(e));
        }
    }
    Ok(Ok(found))
}

/// The keys of a writer, of which these writes are there.
fn look_at(
    ways: &Ways<'_>,
    snapshot: &Snapshot,
    w: usize,
    found: Numbers,
) -> Result<std::result::Result<(), String>> {
    let keys: Vec<String> = (0..KEYS).map(|k| format!("{w}/{k:02}")).collect();
    let all = ways.values(snapshot, &keys)?;
    let expect: Vec<Option<u64>> = (0..KEYS).map(|k| expected(found, k)).collect();
    let got: Vec<Option<u64>> = all.iter().map(|v| v.as_ref().map(|v| number(Some(v)))).collect();
    if got != expect {
        return Ok(Err(format!("writer {w} at {found:?}: {got:?} instead of {expect:?}")));
    }
    let mut scanned = vec![None; KEYS as usize];
    for (k, v) in ways.pairs(snapshot, &format!("{w}/"))? {
        if let Some(k) = std::str::from_utf8(&k[2..]).ok().and_then(|k| k.parse::<usize>().ok()) {
            scanned[k] = Some(number(Some(&v)));
        }
    }
    if scanned != expect {
        return Ok(Err(format!("writer {w} at {found:?}: a scan gives {scanned:?} instead of {expect:?}")));
    }
    let k = found.newest() % KEYS;
    let one = ways.get(snapshot, &format!("{w}/{k:02}"))?;
    if one.as_ref().map(|v| number(Some(v))) != expect[k as usize] {
        return Ok(Err(format!("writer {w} at {found:?}: get of key {k} gives {:?}", number(one.as_ref()))));
    }
    Ok(Ok(()))
}

/// The writes whose marks a keyspace has, and the counts.
type Marks = (Found, [u64; WRITERS]);

fn marks(ways: &Ways<'_>, there: &Snapshot, counts: &[String]) -> Result<std::result::Result<Marks, String>> {
    let all = ways.values(there, counts)?;
    let mut found = Found::default();
    let (mut tickets, mut transactions) = (Vec::new(), Vec::new());
    for (w, of) in found.iter_mut().enumerate() {
        let keys: Vec<String> = (1..=ROUNDS).map(|n| mark(w, n)).collect();
        let marks = ways.values(there, &keys)?;
        for (n, mark) in (1..).zip(marks).filter_map(|(n, mark)| Some((n, mark?))) {
            of.insert(n);
            if let Some(ticket) = mark.get(8..16) {
                tickets.push(number(Some(&ticket.into())));
                transactions.push(merged(w, n));
            }
        }
    }
    tickets.sort_unstable();
    let newest = number(ways.get(there, TICKETS)?.as_ref());
    if !tickets.iter().copied().eq(1..=newest) {
        return Ok(Err(format!("transactions have taken the tickets {tickets:?}, the newest is {newest}")));
    }
    if let Err(e) = listed(ways, there, transactions)? {
        return Ok(Err(e));
    }
    Ok(Ok((found, [0, 1, 2].map(|w| number(all[w].as_ref())))))
}

/// Each transaction that is there has merged itself into the list, once.
fn listed(
    ways: &Ways<'_>,
    there: &Snapshot,
    mut expect: Vec<String>,
) -> Result<std::result::Result<(), String>> {
    let list = ways.get(there, MERGED)?.unwrap_or_default();
    let list = String::from_utf8_lossy(&list);
    let mut found: Vec<&str> = list.split(',').filter(|one| !one.is_empty()).collect();
    found.sort_unstable();
    expect.sort_unstable();
    if found != expect {
        return Ok(Err(format!("transactions {expect:?} are there, and {found:?} have merged themselves")));
    }
    Ok(Ok(()))
}

/// An old snapshot shows what it did, and its iterator goes on in it.
fn again(life: &Shared, ways: &Ways<'_>, db: &Db, held: &mut Held) -> std::result::Result<(), String> {
    if let Some(now) = life.readable(look(ways, db, &held.snapshot))?
        && now != held.found
    {
        return Err(format!("a snapshot showed {:?} writes and now {now:?}", held.found));
    }
    if let Some(mut late) = held.late.take()
        && let Some(value) = life.readable(late.wait(&life.env).map(Ok))?
        && number(value.as_ref()) != held.found[0].newest()
    {
        return Err(format!("a read that was begun gives {}, at {:?}", number(value.as_ref()), held.found));
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
        let of = held.found[w.parse::<usize>().map_err(|_| format!("a strange key {text}"))?];
        let expect = k.parse().map_or(Some(of.newest()), |k| expected(of, k));
        if Some(number(Some(&value))) != expect {
            return Err(format!("an iterator gives {text} of write {}, at {of:?}", number(Some(&value))));
        }
        held.last = Some(key.to_vec());
    }
    Ok(())
}
