//! What a history has done, and what a store may hold after a cut.
//!
//! Writes are numbered from 1. Each logged one sets the key `n` to its number, each one that is not logged sets `u`,
//! each ingest, which counts as logged, `i`: so a store says how far it has kept both, and all else in it follows.

use std::collections::{BTreeMap, BTreeSet};

use ringdb::{Db, Durability, Value};

use crate::executor::{block_on, join_all};
use crate::history::{KEYSPACES, Set, Shape, Step};

/// What is noted among the events of a disk.
#[derive(Clone, Debug)]
pub enum Note {
    /// After the death of the process; of the writes that were not logged, the newest that is still there.
    Opened {
        unlogged: u32,
    },
    Began(usize),
    Ended {
        step: usize,
        /// Of the writes that were not logged, the newest that is still there.
        unlogged: Option<u32>,
    },
}

/// A history with what its steps mean.
pub struct Script {
    pub steps: Vec<Step>,
    pub durability: Durability,
    /// Whether the store is called by futures.
    pub futures: bool,
    /// Whether compactions remove what is doomed.
    filters: bool,
    /// Of each step: the number of the newest write up to and with it, and which life of each keyspace it meets
    /// (0: there is none), after it.
    meaning: Vec<(u32, [u32; KEYSPACES])>,
    /// The writes, by number from 1: step and whether logged.
    writes: Vec<(usize, bool)>,
}

impl Script {
    pub fn new(shape: &Shape, steps: Vec<Step>, durability: Durability) -> Script {
        let (mut number, mut lives, mut made) = (0, [0; KEYSPACES], 0);
        let (mut meaning, mut writes) = (Vec::new(), Vec::new());
        for (i, step) in steps.iter().enumerate() {
            match step {
                Step::Write { durability, .. } => {
                    number += 1;
                    writes.push((i, *durability != Durability::None));
                }
                Step::Ingest(_) => {
                    number += 1;
                    writes.push((i, true));
                }
                Step::CreateKeyspace(k) => {
                    made += 1;
                    lives[*k] = made;
                }
                Step::DropKeyspace(k) => lives[*k] = 0,
                _ => {}
            }
            meaning.push((number, lives));
        }
        Script { steps, durability, futures: shape.futures, filters: shape.filters, meaning, writes }
    }

    /// The number of the newest write up to and with a step.
    pub fn number(&self, step: usize) -> u32 {
        self.meaning[step].0
    }

    fn lives(&self, step: usize) -> [u32; KEYSPACES] {
        self.meaning[step].1
    }

    fn before(&self, step: usize) -> (u32, [u32; KEYSPACES]) {
        step.checked_sub(1).map_or((0, [0; KEYSPACES]), |s| self.meaning[s])
    }

    /// The sets of a write, its marker first.
    fn sets(&self, number: u32) -> (&[Set], bool, usize) {
        let (step, logged) = self.writes[number as usize - 1];
        match &self.steps[step] {
            Step::Write { sets, .. } | Step::Ingest(sets) => (sets, logged, step),
            other => unreachable!("step {step} is no write: {other:?}"),
        }
    }

    /// The newest logged write up to a number.
    fn logged_up_to(&self, number: u32) -> u32 {
        (1..=number).rev().find(|n| self.writes[*n as usize - 1].1).unwrap_or(0)
    }

    fn is_ingest(&self, number: u32) -> bool {
        matches!(self.steps[self.writes[number as usize - 1].0], Step::Ingest(_))
    }

    fn unlogged_up_to(&self, number: u32) -> u32 {
        (1..=number).rev().find(|n| !self.writes[*n as usize - 1].1).unwrap_or(0)
    }
}

pub fn keyspace_name(k: usize) -> String {
    format!("keyspace {k}")
}

/// The wall clock's milliseconds during a step.
pub fn time_of(step: usize) -> u64 {
    step as u64 + 1
}

pub fn key(k: u32) -> String {
    format!("k/{k:05}")
}

/// The value that a write gives to a key.
pub fn value(number: u32, key: u32, len: usize) -> Vec<u8> {
    let mut v = vec![(number.wrapping_mul(31) ^ key) as u8; len];
    let head = (number as u64) << 32 | key as u64;
    for (to, from) in v.iter_mut().zip(head.to_le_bytes()) {
        *to = from;
    }
    v
}

/// Whether the compaction filter removes the value of a key.
pub fn doomed(key: &[u8], value: &[u8]) -> bool {
    key.starts_with(b"k/") && value.len() % 3 == 1
}

/// What must and may hold at some moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The newest write that has begun, logged or not.
    pub begun: u32,
    /// The newest logged one that was acknowledged; that is durable; the newest durable one that was not logged.
    pub acknowledged: u32,
    pub durable: u32,
    pub unlogged: u32,
    /// The wall clock's milliseconds.
    pub now: u64,
    /// Writes that were not logged and are known to be lost.
    gone: BTreeSet<u32>,
    /// Which life of each keyspace there is; and maybe one more change.
    lives: [u32; KEYSPACES],
    maybe: Option<[u32; KEYSPACES]>,
    /// Checkpoints: the step, whether it was acknowledged, what is gone by then.
    pub checkpoints: Vec<(usize, bool, BTreeSet<u32>)>,
    /// The newest write whatsoever that was acknowledged.
    newest: u32,
}

/// Where backups go.
pub const BACKUPS: &str = "/srv/backups";

/// Where the checkpoint of a step goes.
pub fn checkpoint_dir(step: usize) -> String {
    format!("/srv/copies/{step}")
}

impl Facts {
    pub fn note(&mut self, script: &Script, note: &Note) {
        match note {
            Note::Opened { unlogged } => {
                // Recovery makes durable whatever it finds.
                self.durable = self.acknowledged;
                self.lost_unlogged(script, *unlogged);
            }
            Note::Began(step) => {
                self.begun = script.number(*step);
                self.now = time_of(*step);
                let lives = script.lives(*step);
                self.maybe = (lives != self.lives).then_some(lives);
                if let Step::Checkpoint = script.steps[*step] {
                    self.checkpoints.retain(|(s, ..)| s != step);
                    self.checkpoints.push((*step, false, self.gone.clone()));
                }
            }
            Note::Ended { step, unlogged } => {
                (self.lives, self.maybe) = (script.lives(*step), None);
                let number = script.number(*step);
                match &script.steps[*step] {
                    Step::Write { durability, .. } => {
                        self.newest = number;
                        if *durability != Durability::None {
                            self.acknowledged = number;
                        }
                        let durable = *durability == Durability::Sync
                            || (script.durability == Durability::Sync && *durability != Durability::None);
                        if durable {
                            self.durable = number;
                        }
                    }
                    // Everything before it is durable too.
                    Step::Ingest(_) => {
                        (self.newest, self.acknowledged) = (number, number);
                        self.flushed(script);
                    }
                    Step::Flush
                    | Step::Sync
                    | Step::Compact(_)
                    | Step::Checkpoint
                    | Step::Reopen { close: true } => self.flushed(script),
                    // Recovery makes durable whatever it finds.
                    Step::Reopen { close: false } => self.durable = self.acknowledged,
                    Step::CreateKeyspace(_) | Step::DropKeyspace(_) | Step::Alter(_) => {}
                }
                if let Some(u) = unlogged {
                    self.lost_unlogged(script, *u);
                }
                if let (Step::Checkpoint, Some(c)) = (&script.steps[*step], self.checkpoints.last_mut()) {
                    c.1 = true;
                }
            }
        }
    }

    fn flushed(&mut self, script: &Script) {
        self.durable = self.acknowledged;
        self.unlogged = script.unlogged_up_to(self.newest);
        while self.unlogged > 0 && self.gone.contains(&self.unlogged) {
            self.unlogged = script.unlogged_up_to(self.unlogged - 1);
        }
    }

    /// Of the writes that were not logged those after `u` are lost for good.
    fn lost_unlogged(&mut self, script: &Script, u: u32) {
        self.unlogged = u;
        let begun = self.begun;
        self.gone.extend((u + 1..=begun).filter(|n| !script.writes[*n as usize - 1].1));
    }

    /// The store goes on with what was found in it after the process died or the power was cut.
    pub fn found(&mut self, script: &Script, kept: Kept) {
        (self.acknowledged, self.durable) = (kept.logged, kept.logged);
        self.newest = kept.logged.max(kept.unlogged);
        self.lost_unlogged(script, kept.unlogged);
        // A logged write that was not acknowledged and is not there will never be.
        self.begun = self.newest;
        if let Some(lives) = self.maybe.take()
            && kept.maybe
        {
            self.lives = lives;
        }
    }

    /// The same after the death of the process: all that was acknowledged is there.
    pub fn killed(mut self) -> Facts {
        self.durable = self.acknowledged;
        self
    }
}

/// How much of a history a store has kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub logged: u32,
    pub unlogged: u32,
    /// Writes of the check's own.
    pub tail: u32,
    /// Whether the change of keyspaces that may have happened has.
    pub maybe: bool,
}

type Content = BTreeMap<(usize, u32), Held>;

/// What a key has: the newest write that has set it or merged into it, and the value.
struct Held {
    by: u32,
    value: Vec<u8>,
}

/// The index of the default keyspace in a [`Content`].
const DEFAULT: usize = KEYSPACES;

fn content(script: &Script, facts: &Facts, lives: &[u32; KEYSPACES], kept: Kept) -> Content {
    let mut content = Content::new();
    for number in 1..=kept.logged.max(kept.unlogged) {
        let (sets, logged, step) = script.sets(number);
        let there = if logged {
            number <= kept.logged
        } else {
            number <= kept.unlogged && !facts.gone.contains(&number)
        };
        if !there {
            continue;
        }
        for set in sets {
            // Of another life of the keyspace nothing is seen.
            let space = match set.keyspace {
                Some(k) if script.lives(step)[k] == lives[k] => k,
                Some(_) => continue,
                None => DEFAULT,
            };
            if let Some(until) = set.until {
                content.retain(|(s, k), _| *s != space || !(set.key..until).contains(k));
                continue;
            }
            // What has expired is a deletion.
            let expired = set.life.is_some_and(|life| time_of(step) + u64::from(life) <= facts.now);
            match set.value.filter(|_| !expired) {
                Some(len) => {
                    let mut value = value(number, set.key, len);
                    if let (true, Some(old)) = (set.merge, content.get(&(space, set.key))) {
                        value = [&old.value[..], b"+", &value].concat();
                    }
                    content.insert((space, set.key), Held { by: number, value });
                }
                None => drop(content.remove(&(space, set.key))),
            }
        }
    }
    content
}

/// Reads the numbers of the newest writes that a store has kept.
fn read_numbers(db: &Db, script: &Script, kept: &mut Kept) -> Result<(), String> {
    let number = |what: &str| -> Result<u32, String> {
        match db.get(what).map_err(|e| format!("get {what}: {e}"))? {
            None => Ok(0),
            Some(v) => Ok(u32::from_le_bytes((&v[..]).try_into().map_err(|_| format!("a bad {what}"))?)),
        }
    };
    let (logged, ingested) = (number("n")?, number("i")?);
    (kept.logged, kept.unlogged, kept.tail) = (logged.max(ingested), number("u")?, number("t")?);
    let newest = |is: bool| {
        let all = (1..=kept.logged.min(script.writes.len() as u32)).rev();
        all.filter(|n| script.writes[*n as usize - 1].1).find(|n| script.is_ingest(*n) == is).unwrap_or(0)
    };
    if (logged, ingested) != (newest(false), newest(true)) {
        return Err(format!("write {logged} and ingest {ingested} are the newest: one between them is lost"));
    }
    Ok(())
}

/// Checks that nothing durable was lost and nothing lost is back.
fn check_numbers(script: &Script, facts: &Facts, kept: &Kept) -> Result<(), String> {
    let (n, u) = (kept.logged, kept.unlogged);
    if n > facts.begun || u > facts.begun {
        return Err(format!("writes {n} and {u} are there, but only {} have begun", facts.begun));
    }
    if n < facts.durable {
        return Err(format!("the log was kept up to write {n}, but write {} was durable", facts.durable));
    }
    if u < facts.unlogged {
        return Err(format!("write {u} is the newest unlogged one, but {} had been flushed", facts.unlogged));
    }
    if u > 0 && facts.gone.contains(&u) {
        return Err(format!("write {u} was lost before and is back"));
    }
    if n < script.logged_up_to(u) {
        return Err(format!("write {u} was flushed, but the log was kept only up to {n}"));
    }
    Ok(())
}

/// Checks everything that a store holds against what it may hold.
pub fn check(db: &Db, script: &Script, facts: &Facts) -> Result<Kept, String> {
    let names = db.keyspaces().map_err(|e| format!("listing keyspaces: {e}"))?;
    let expected = |lives: &[u32; KEYSPACES]| -> Vec<String> {
        (0..KEYSPACES).filter(|k| lives[*k] > 0).map(keyspace_name).collect()
    };
    let mut kept = Kept::default();
    let mut lives = &facts.lives;
    if names != expected(lives) {
        match &facts.maybe {
            Some(l) if names == expected(l) => (lives, kept.maybe) = (l, true),
            _ => return Err(format!("keyspaces {names:?} instead of {:?}", expected(lives))),
        }
    }
    read_numbers(db, script, &mut kept)?;
    check_numbers(script, facts, &kept)?;
    let (n, u) = (kept.logged, kept.unlogged);
    let content = content(script, facts, lives, kept);
    let mut left: BTreeSet<&(usize, u32)> = content.keys().collect();
    let may_go =
        |(_, id): &(usize, u32), held: &Held| script.filters && doomed(key(*id).as_bytes(), &held.value);
    let live = (0..KEYSPACES).filter(|k| lives[*k] > 0);
    for space in live.chain([DEFAULT]) {
        let keyspace = match space {
            DEFAULT => None,
            k => db.existing_keyspace(&keyspace_name(k)).map_err(|e| e.to_string())?,
        };
        let all = keyspace.as_ref().map_or_else(|| db.iter(), |k| k.iter());
        for kv in all {
            let (k, v) = kv.map_err(|e| format!("a scan: {e}"))?;
            let Some(id) = std::str::from_utf8(&k).ok().and_then(|k| k.strip_prefix("k/")) else { continue };
            let id: u32 = id.parse().map_err(|_| format!("a strange key {k:?}"))?;
            let Some(held) = content.get(&(space, id)) else {
                let by = u32::from_le_bytes(v.get(4..8).unwrap_or(&[0; 4]).try_into().unwrap_or_default());
                return Err(format!(
                    "key {id} of keyspace {space} is there ({} bytes, by write {by}), which it should not be \
                     after writes {n} and {u}",
                    v.len()
                ));
            };
            if v[..] != held.value {
                let by = held.by;
                return Err(format!("key {id} of keyspace {space} has not the value that write {by} left"));
            }
            left.remove(&(space, id));
        }
    }
    left.retain(|key| !may_go(key, &content[key]));
    if !left.is_empty() {
        return Err(format!("{left:?} of {} keys are missing after writes {n} and {u}", content.len()));
    }
    // Point reads take another way than scans.
    let ids: Vec<u32> = (0..200).step_by(17).collect();
    for (id, found) in ids.iter().zip(point_reads(db, script.futures, &ids)?) {
        let held = content.get(&(DEFAULT, *id));
        // It may have gone since.
        if found.is_none() && held.is_some_and(|held| may_go(&(DEFAULT, *id), held)) {
            continue;
        }
        if found.as_deref() != held.map(|held| &held.value[..]) {
            return Err(format!("a get of key {id} differs from the scan"));
        }
    }
    Ok(kept)
}

fn point_reads(db: &Db, futures: bool, ids: &[u32]) -> Result<Vec<Option<Value>>, String> {
    let one_by_one: ringdb::Result<Vec<_>> = match futures {
        false => ids.iter().map(|id| db.get(key(*id))).collect(),
        true => join_all(ids.iter().map(|id| db.get_async(key(*id)))).into_iter().collect(),
    };
    let found = one_by_one.map_err(|e| format!("get: {e}"))?;
    if futures {
        let keys: Vec<String> = ids.iter().map(|id| key(*id)).collect();
        let together = block_on(db.multi_get_async(&keys)).map_err(|e| format!("multi_get_async: {e}"))?;
        if found != together {
            return Err("a multi_get_async differs from get_async".into());
        }
    }
    Ok(found)
}

/// What the checkpoint of a step must hold: everything before it.
pub fn checkpoint_facts(script: &Script, step: usize, gone: &BTreeSet<u32>, now: u64) -> Facts {
    let (number, lives) = script.before(step);
    let mut unlogged = script.unlogged_up_to(number);
    while unlogged > 0 && gone.contains(&unlogged) {
        unlogged = script.unlogged_up_to(unlogged - 1);
    }
    let logged = script.logged_up_to(number);
    let gone = gone.clone();
    Facts { begun: number, durable: logged, unlogged, now, gone, lives, ..Facts::default() }
}
