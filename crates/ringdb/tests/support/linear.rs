//! Recorded histories of concurrent calls on a store, and the check that they are linearizable: that each call can be
//! given one moment between its beginning and its end, such that all of them, in that order, give what was seen.
//!
//! Every call is a set of reads and writes that happen at one moment: a put writes one key, a batch several,
//! a get reads one, a scan or a snapshot all of them, a transaction that was committed reads and writes several: so a
//! history with an order is strictly serializable, too. The search is that of Wing and Gong (1993) with Lowe's
//! memory of what was tried (2017): depth first, next any call that nobody's end precedes, never twice the
//! same set of calls with the same state.
#![allow(dead_code)]

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use ringdb::{Db, Durability, Error, Keyspace, KeyspaceOptions, Transaction, WriteBatch, WriteOptions};

use super::support::Rng;

/// Keys of a history: the first four in the default keyspace, two in another, and a counter that operands are added to.
pub const KEYS: usize = COUNTER + 1;
const DEFAULT: usize = 4;
const COUNTER: usize = 6;

/// A value of each key; 0 is none.
pub type State = [u32; KEYS];

/// One call: what it saw and what it did, and when.
#[derive(Clone, Debug)]
pub struct Call {
    pub reads: Vec<(usize, u32)>,
    pub writes: Vec<(usize, u32)>,
    /// What is added to the counter, after it was written.
    pub add: u32,
    pub begin: u64,
    pub end: u64,
    pub what: &'static str,
}

/// Looks for an order; returns the state after it, or the longest that was found.
pub fn check(first: State, calls: &[Call]) -> Result<State, String> {
    assert!(calls.len() <= 128);
    let mut calls: Vec<&Call> = calls.iter().collect();
    calls.sort_by_key(|c| c.begin);
    let all = if calls.len() == 128 { u128::MAX } else { (1u128 << calls.len()) - 1 };
    let mut seen: HashSet<(u128, State)> = HashSet::new();
    let mut longest: (u32, u128, State) = (0, 0, first);
    let mut stack = vec![(0u128, first)];
    while let Some((done, state)) = stack.pop() {
        if done == all {
            return Ok(state);
        }
        if done.count_ones() > longest.0 {
            longest = (done.count_ones(), done, state);
        }
        let left = |i: &usize| done & (1 << i) == 0;
        let first_end = (0..calls.len()).filter(left).map(|i| calls[i].end).min().expect("one is left");
        for i in (0..calls.len()).filter(left) {
            let c = calls[i];
            if c.begin > first_end {
                break;
            }
            if c.reads.iter().all(|&(k, v)| state[k] == v) {
                let mut next = state;
                c.writes.iter().for_each(|&(k, v)| next[k] = v);
                next[COUNTER] += c.add;
                if seen.insert((done | 1 << i, next)) {
                    stack.push((done | 1 << i, next));
                }
            }
        }
    }
    let (n, done, state) = longest;
    let rest: Vec<_> = (0..calls.len()).filter(|i| done & (1 << i) == 0).map(|i| calls[i]).collect();
    Err(format!(
        "no order: after {n} of {} calls the state is {state:?}, and none of these fits: {rest:#?}",
        calls.len()
    ))
}

fn key(k: usize) -> [u8; 5] {
    let mut key = *b"key-0";
    key[4] += k as u8;
    key
}

/// Longer for some, so that histories meet large values too.
fn value(v: u32) -> Vec<u8> {
    let mut bytes = v.to_le_bytes().to_vec();
    bytes.resize(if v.is_multiple_of(50) { 9000 } else { 4 + (v % 200) as usize }, v as u8);
    bytes
}

fn number(v: Option<ringdb::Value>) -> u32 {
    v.map_or(0, |v| {
        let n = u32::from_le_bytes(v[..4].try_into().expect("a number"));
        assert_eq!(*v, value(n)[..], "the value of {n}");
        n
    })
}

/// What the counter says.
fn count(v: Option<ringdb::Value>) -> u32 {
    v.map_or(0, |v| {
        u64::from_le_bytes(v[..].try_into().expect("8 bytes")).try_into().expect("a small number")
    })
}

/// What is run in a thread, and what waits for it.
pub type Body = Box<dyn FnOnce() + Send>;
pub type Wait = Box<dyn FnOnce()>;

/// A store with its two keyspaces and a clock for events.
#[derive(Clone)]
pub struct Recorder {
    pub db: Db,
    side: Keyspace,
    counts: Keyspace,
    clock: Arc<AtomicU64>,
    values: Arc<AtomicU64>,
}

impl Recorder {
    pub fn new(db: Db) -> Recorder {
        let side = db.keyspace("side").expect("keyspace");
        let add = KeyspaceOptions::default().with_merge_operator("add");
        let counts = db.keyspace_with("counts", &add).expect("keyspace");
        Recorder { db, side, counts, clock: Arc::default(), values: Arc::default() }
    }

    /// The state now, when nothing else goes on.
    pub fn state(&self) -> State {
        std::array::from_fn(|k| self.get(k))
    }

    fn get(&self, k: usize) -> u32 {
        if k == COUNTER {
            return count(self.counts.get(key(k)).expect("get"));
        }
        number(if k < DEFAULT { self.db.get(key(k)) } else { self.side.get(key(k)) }.expect("get"))
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    fn fresh(&self) -> u32 {
        self.values.fetch_add(1, SeqCst) as u32 + 1
    }

    /// Makes one call, or a transaction.
    fn any(&self, rng: &mut Rng) -> Call {
        match rng.below(8) {
            0..=1 => self.transaction(rng),
            2 => self.update(rng),
            _ => self.call(rng),
        }
    }

    /// Changes one key by what is there.
    fn update(&self, rng: &mut Rng) -> Call {
        let (k, v) = (rng.below(COUNTER as u64) as usize, self.fresh());
        let side = if k < DEFAULT { None } else { Some(&self.side) };
        let mut c =
            Call { reads: vec![], writes: vec![(k, v)], add: 0, begin: self.now(), end: 0, what: "update" };
        match rng.below(3) {
            0 => {
                let new = |_: Option<&[u8]>| Some(value(v));
                let old =
                    side.map_or_else(|| self.db.fetch_update(key(k), new), |s| s.fetch_update(key(k), new));
                c.reads.push((k, number(old.expect("fetch_update"))));
            }
            1 => {
                let absent = match side {
                    None => self.db.put_if_absent(key(k), value(v)),
                    Some(side) => side.put_if_absent(key(k), value(v)),
                };
                c.what = "put_if_absent";
                match absent.expect("put_if_absent") {
                    true => c.reads.push((k, 0)),
                    // It has seen that there is something, not what.
                    false => c.writes.clear(),
                }
            }
            _ => {
                let old = self.get(k);
                c.begin = self.now();
                let (expected, new) = ((old > 0).then(|| value(old)), value(v));
                let swapped = match side {
                    None => self.db.compare_and_swap(key(k), expected.as_deref(), Some(&new)),
                    Some(side) => side.compare_and_swap(key(k), expected.as_deref(), Some(&new)),
                };
                c.what = "compare_and_swap";
                match swapped.expect("compare_and_swap") {
                    true => c.reads.push((k, old)),
                    false => c.writes.clear(),
                }
            }
        }
        c.end = self.now();
        c
    }

    /// Reads some keys or a range and writes some; what was not committed has read one moment all the same.
    fn transaction(&self, rng: &mut Rng) -> Call {
        let mut c =
            Call { reads: vec![], writes: vec![], add: 0, begin: self.now(), end: 0, what: "transaction" };
        let tx = self.db.transaction();
        let begun = self.now();
        let mut ranged = false;
        for _ in 0..1 + rng.below(4) {
            let k = rng.below(KEYS as u64) as usize;
            if k == COUNTER {
                self.on_counter(&tx, &mut c, rng);
                continue;
            }
            match rng.below(5) {
                0..=1 if c.writes.iter().all(|w| w.0 != k) => {
                    let v = if k < DEFAULT { tx.get(key(k)) } else { tx.get_in(&self.side, key(k)) };
                    c.reads.push((k, number(v.expect("get"))));
                }
                2 if c.writes.is_empty() && !ranged => {
                    ranged = true;
                    let mut found = [0; DEFAULT];
                    let pairs: Vec<_> =
                        if rng.chance(2) { tx.range(..).collect() } else { tx.range(..).rev().collect() };
                    for pair in pairs {
                        let (k, v) = pair.expect("pair");
                        found[usize::from(k[4] - b'0')] = number(Some(v));
                    }
                    c.reads.extend(found.into_iter().enumerate());
                }
                _ => {
                    let v = if rng.chance(4) { 0 } else { self.fresh() };
                    match (k < DEFAULT, v) {
                        (true, 0) => tx.delete(key(k)),
                        (true, v) => tx.put(key(k), value(v)),
                        (false, 0) => tx.delete_in(&self.side, key(k)),
                        (false, v) => tx.put_in(&self.side, key(k), value(v)),
                    }
                    .expect("a write");
                    c.writes.retain(|w| w.0 != k);
                    c.writes.push((k, v));
                }
            }
        }
        let mut options = WriteOptions::default();
        if rng.chance(4) {
            options = options.durability(Durability::Sync);
        }
        match tx.commit_with(&options) {
            Ok(()) if !c.writes.is_empty() || c.add > 0 => c.end = self.now(),
            // A snapshot.
            Ok(()) => c.end = begun,
            Err(e) => {
                assert!(matches!(e, Error::Conflict { .. }), "{e}");
                (c.what, c.end) = ("a transaction that failed", begun);
                c.writes.clear();
                c.add = 0;
            }
        }
        c
    }

    /// Adds to the counter, sets it or reads it in a transaction.
    fn on_counter(&self, tx: &Transaction, c: &mut Call, rng: &mut Rng) {
        let set = c.writes.iter().find(|w| w.0 == COUNTER).map(|w| w.1);
        let n = 1 + rng.below(9) as u32;
        match rng.below(6) {
            0..=3 => {
                tx.merge_in(&self.counts, key(COUNTER), u64::from(n).to_le_bytes()).expect("merge");
                c.add += n;
            }
            4 => {
                tx.put_in(&self.counts, key(COUNTER), u64::from(n).to_le_bytes()).expect("put");
                c.writes.retain(|w| w.0 != COUNTER);
                c.writes.push((COUNTER, n));
                c.add = 0;
            }
            _ => {
                let seen = match rng.chance(2) {
                    true => tx.get_in(&self.counts, key(COUNTER)).expect("get"),
                    false => tx.range_in(&self.counts, ..).next().map(|pair| pair.expect("pair").1),
                };
                let before = count(seen).checked_sub(c.add).expect("its own operands");
                match set {
                    Some(set) => assert_eq!(before, set, "its own write"),
                    None => c.reads.push((COUNTER, before)),
                }
            }
        }
    }

    /// Makes one call.
    fn call(&self, rng: &mut Rng) -> Call {
        let mut c = Call { reads: vec![], writes: vec![], add: 0, begin: 0, end: 0, what: "" };
        let k = rng.below(COUNTER as u64) as usize;
        let mut options = WriteOptions::default();
        if rng.chance(8) {
            options = options.durability(Durability::Sync);
        }
        match rng.below(13) {
            12 => {
                let n = 1 + rng.below(9) as u32;
                c.begin = self.now();
                self.counts.merge(key(COUNTER), u64::from(n).to_le_bytes()).expect("merge");
                (c.what, c.add) = ("merge", n);
            }
            0..=2 => {
                let v = self.fresh();
                c.begin = self.now();
                if k < DEFAULT { self.db.put(key(k), value(v)) } else { self.side.put(key(k), value(v)) }
                    .expect("put");
                (c.what, c.writes) = ("put", vec![(k, v)]);
            }
            3 => {
                c.begin = self.now();
                if k < DEFAULT { self.db.delete(key(k)) } else { self.side.delete(key(k)) }.expect("delete");
                (c.what, c.writes) = ("delete", vec![(k, 0)]);
            }
            4..=5 => {
                let mut batch = WriteBatch::new();
                for k in 0..COUNTER {
                    if rng.chance(2) {
                        continue;
                    }
                    let v = if rng.chance(5) { 0 } else { self.fresh() };
                    match (k < DEFAULT, v) {
                        (true, 0) => batch.delete(key(k)),
                        (true, v) => batch.put(key(k), value(v)),
                        (false, 0) => batch.delete_in(&self.side, key(k)),
                        (false, v) => batch.put_in(&self.side, key(k), value(v)),
                    }
                    c.writes.push((k, v));
                }
                c.begin = self.now();
                self.db.write(batch, &options).expect("write");
                c.what = "batch";
            }
            6..=8 => {
                c.begin = self.now();
                (c.what, c.reads) = ("get", vec![(k, self.get(k))]);
            }
            9 => {
                let keys: Vec<usize> = (0..DEFAULT).filter(|_| !rng.chance(3)).collect();
                let names: Vec<_> = keys.iter().map(|&k| key(k)).collect();
                c.begin = self.now();
                let found = self.db.multi_get(&names).expect("multi_get");
                c.what = "multi_get";
                c.reads = keys.into_iter().zip(found.into_iter().map(number)).collect();
            }
            10 => {
                c.begin = self.now();
                c.what = "scan";
                let mut found = [0; DEFAULT];
                let backwards = rng.chance(2);
                let iter = self.db.iter();
                let pairs: Vec<_> = if backwards { iter.rev().collect() } else { iter.collect() };
                for kv in pairs {
                    let (k, v) = kv.expect("pair");
                    found[usize::from(k[4] - b'0')] = number(Some(v));
                }
                c.reads = found.into_iter().enumerate().collect();
            }
            _ => {
                self.read_a_snapshot(&mut c);
                return c;
            }
        }
        c.end = self.now();
        c
    }

    /// Reads all keys of a snapshot, twice.
    fn read_a_snapshot(&self, c: &mut Call) {
        c.begin = self.now();
        c.what = "snapshot";
        let snapshot = self.db.snapshot();
        // What it shows was so while it was made, whenever it is read.
        c.end = self.now();
        let side = snapshot.keyspace(&self.side);
        c.reads.push((COUNTER, count(snapshot.keyspace(&self.counts).get(key(COUNTER)).expect("get"))));
        for k in 0..COUNTER {
            let s = if k < DEFAULT { &snapshot } else { &side };
            c.reads.push((k, number(s.get(key(k)).expect("get"))));
        }
        for (k, v) in c.reads.clone().into_iter().skip(1).rev() {
            let s = if k < DEFAULT { &snapshot } else { &side };
            assert_eq!(number(s.get(key(k)).expect("get")), v, "a snapshot that changed");
        }
    }

    /// Runs `threads` threads of `each` calls, and gives what they saw; the last call reads everything afterwards.
    pub fn record(&self, seed: u64, threads: u64, each: usize, spawn: impl Fn(Body) -> Wait) -> Vec<Call> {
        let all = Arc::new(Mutex::new(Vec::new()));
        let joins: Vec<_> = (0..threads)
            .map(|t| {
                let (me, all) = (self.clone(), all.clone());
                spawn(Box::new(move || {
                    let mut rng = Rng(seed.wrapping_mul(1000).wrapping_add(t));
                    let calls: Vec<Call> = (0..each).map(|_| me.any(&mut rng)).collect();
                    all.lock().expect("lock").extend(calls);
                }))
            })
            .collect();
        joins.into_iter().for_each(|j| j());
        let mut calls = std::mem::take(&mut *all.lock().expect("lock"));
        // What is there in the end must be the end of the order too.
        let begin = self.now();
        let reads = self.state().into_iter().enumerate().collect();
        calls.push(Call { reads, writes: vec![], add: 0, begin, end: self.now(), what: "the end" });
        calls
    }
}
