//! Readers of every kind on a cache far smaller than the data, while pairs of keys are written and the tables under
//! them are compacted.
//!
//! Each key holds a counter; the keys of a pair lie far apart and are always written together. So whatever is
//! read: the two are equal, none is less than what was acknowledged before the read or seen by an earlier one,
//! and no key is ever missing.

#![allow(clippy::unwrap_used)]

use crate::support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use ringdb::{Db, Durability, Iter, Options, ReadOptions, Snapshot, WriteBatch, WriteOptions};
use support::{Rng, env_number, seed};

const PAIRS: u64 = 6000;
const WRITERS: u64 = 2;
const READERS: u64 = 4;

fn key(side: char, pair: u64) -> String {
    format!("{side}-pair{pair:06}")
}

/// The counter, then as many bytes as the pair's values have: some do not fit a block, one is much larger.
fn value(pair: u64, counter: u64) -> Vec<u8> {
    let len = match pair {
        4321 => 600 << 10,
        p if p % 499 == 0 => 9000,
        p => 100 + p % 300,
    };
    let mut v = format!("{counter:010}").into_bytes();
    v.resize(len as usize, pair as u8);
    v
}

#[track_caller]
fn counter(pair: u64, v: &[u8]) -> u64 {
    let n = std::str::from_utf8(&v[..10]).unwrap().parse().unwrap();
    assert!(v == value(pair, n), "pair {pair}: a torn value");
    n
}

/// The pairs of one side from `from` on, at most `most`, checked to be all there.
#[track_caller]
fn collect(iter: impl Iterator<Item = <Iter as Iterator>::Item>, side: char, pairs: &[u64]) -> Vec<u64> {
    let mut pairs = pairs.iter();
    let out = iter
        .map(|kv| {
            let (k, v) = kv.unwrap();
            let pair = *pairs.next().expect("a key too many");
            assert_eq!(k.as_ref(), key(side, pair).as_bytes(), "a key is missing or out of order");
            counter(pair, &v)
        })
        .collect();
    assert_eq!(pairs.next(), None, "keys are missing at the end");
    out
}

struct Reader<'a> {
    db: &'a Db,
    acked: &'a [AtomicU64],
    seen: Vec<u64>,
    rng: Rng,
    /// Snapshots held for a while, with a pair and what it was.
    held: Vec<(Snapshot, u64, u64)>,
    /// Iterators held for a while: the one, and the pairs that it has yet to yield.
    iters: Vec<(Iter, Vec<u64>)>,
}

impl Reader<'_> {
    fn floor(&self, pair: u64) -> u64 {
        self.acked[pair as usize].load(SeqCst).max(self.seen[pair as usize])
    }

    fn saw(&mut self, pair: u64, floor: u64, n: u64) {
        assert!(n >= floor, "pair {pair}: {n} after {floor}");
        self.seen[pair as usize] = n;
    }

    fn range(&mut self) -> (u64, Vec<u64>, ReadOptions) {
        let from = self.rng.below(PAIRS);
        let to = (from + 1 + self.rng.below(200)).min(PAIRS);
        (to, (from..to).collect(), ReadOptions::default().fill_cache(!self.rng.chance(3)))
    }

    fn get(&mut self) {
        let pair = self.rng.below(PAIRS);
        let floor = self.floor(pair);
        let side = *self.rng.pick(&['a', 'z']);
        let v = self.db.get(key(side, pair)).unwrap().expect("a key is missing");
        self.saw(pair, floor, counter(pair, &v));
        assert_eq!(self.db.get(format!("{}x", key(side, pair))).unwrap(), None);
    }

    fn multi_get(&mut self) {
        // More than the cache has frames, now and then.
        let n = if self.rng.chance(8) { 400 } else { 1 + self.rng.below(30) };
        let pairs: Vec<u64> = (0..n).map(|_| self.rng.below(PAIRS)).collect();
        let floors: Vec<u64> = pairs.iter().map(|&p| self.floor(p)).collect();
        let keys: Vec<String> = pairs.iter().flat_map(|&p| [key('a', p), key('z', p)]).collect();
        let got = self.db.multi_get(&keys).unwrap();
        for ((&pair, floor), two) in pairs.iter().zip(floors).zip(got.chunks(2)) {
            let two: Vec<u64> =
                two.iter().map(|v| counter(pair, v.as_ref().expect("a key is missing"))).collect();
            assert_eq!(two[0], two[1], "pair {pair}: half a batch");
            self.saw(pair, floor, two[0]);
        }
    }

    fn iterate(&mut self) {
        let (to, pairs, options) = self.range();
        let floors: Vec<u64> = pairs.iter().map(|&p| self.floor(p)).collect();
        let mut iter = self.db.range_with(key('a', pairs[0])..key('a', to), &options);
        let counters = match self.rng.below(3) {
            0 => collect(iter, 'a', &pairs),
            1 => {
                let backward: Vec<u64> = pairs.iter().rev().copied().collect();
                let mut c = collect(iter.rev(), 'a', &backward);
                c.reverse();
                c
            }
            _ => {
                // From both ends until they meet.
                let (mut front, mut back) = (Vec::new(), Vec::new());
                loop {
                    let forward = self.rng.chance(2);
                    let next = if forward { iter.next() } else { iter.next_back() };
                    let Some(kv) = next else { break };
                    if forward { front.push(kv) } else { back.push(kv) }
                }
                assert!(iter.next().is_none() && iter.next_back().is_none());
                collect(front.into_iter().chain(back.into_iter().rev()), 'a', &pairs)
            }
        };
        for ((&pair, floor), n) in pairs.iter().zip(floors).zip(counters) {
            self.saw(pair, floor, n);
        }
    }

    fn snapshot(&mut self) {
        let snap = self.db.snapshot();
        let (to, pairs, options) = self.range();
        let a = collect(snap.range_with(key('a', pairs[0])..key('a', to), &options), 'a', &pairs);
        let z = collect(snap.range_with(key('z', pairs[0])..key('z', to), &options), 'z', &pairs);
        assert!(a == z, "half a batch in a snapshot");
        let v = snap.get(key('z', pairs[0])).unwrap().expect("a key is missing");
        assert_eq!(counter(pairs[0], &v), a[0]);
        self.held.push((snap, pairs[0], a[0]));
        let (to, pairs, options) = self.range();
        let mut iter = self.db.range_with(key('z', pairs[0])..key('z', to), &options);
        // It pins a block at least.
        collect(iter.next().into_iter(), 'z', &pairs[..1]);
        self.iters.push((iter, pairs[1..].to_vec()));
    }

    fn let_go(&mut self) {
        if self.held.len() > 20 {
            let (snap, pair, n) = self.held.swap_remove(0);
            for v in snap.multi_get(&[key('a', pair), key('z', pair)]).unwrap() {
                assert_eq!(counter(pair, &v.expect("a key is missing")), n, "a snapshot has changed");
            }
        }
        if self.iters.len() > 40 {
            let (iter, rest) = self.iters.swap_remove(0);
            collect(iter, 'z', &rest);
        }
    }

    fn run(mut self, done: &AtomicBool) -> u64 {
        let mut rounds = 0;
        while !done.load(SeqCst) || rounds < 20 {
            match self.rng.below(10) {
                0..=4 => self.get(),
                5 | 6 => self.multi_get(),
                7 | 8 => self.iterate(),
                _ => self.snapshot(),
            }
            self.let_go();
            rounds += 1;
        }
        rounds
    }
}

#[test]
fn nothing_goes_back_or_missing_under_a_tiny_cache() {
    let seed = seed("pressure");
    let time = Duration::from_millis(env_number("RINGDB_PRESSURE_MS", 2000));
    for (durability, round) in [(Durability::Process, 0), (Durability::Sync, 1)] {
        let options = Options::default()
            .with_cache_bytes(1 << 20)
            .with_memtable_bytes(256 << 10)
            .with_background_threads(2)
            .with_durability(durability);
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), options).unwrap();
        for pairs in (0..PAIRS).collect::<Vec<_>>().chunks(200) {
            let mut b = WriteBatch::new();
            for &p in pairs {
                b.put(key('a', p), value(p, 0));
                b.put(key('z', p), value(p, 0));
            }
            db.write(b, &WriteOptions::default()).unwrap();
        }
        let acked: Vec<AtomicU64> = (0..PAIRS).map(|_| AtomicU64::new(0)).collect();
        let done = AtomicBool::new(false);
        let write = |w: u64| {
            let mut rng = Rng(seed ^ (w << 32));
            while !done.load(SeqCst) {
                // A writer has pairs of its own. Some pairs are written much more often than others.
                let below = if rng.chance(2) { 20 } else { PAIRS / WRITERS };
                let mut pairs: Vec<u64> =
                    (0..1 + rng.below(4)).map(|_| rng.below(below) * WRITERS + w).collect();
                pairs.sort_unstable();
                pairs.dedup();
                let mut b = WriteBatch::new();
                for &p in &pairs {
                    let n = acked[p as usize].load(SeqCst) + 1;
                    if rng.chance(4) {
                        b.delete(key('a', p));
                    }
                    b.put(key('a', p), value(p, n));
                    b.put(key('z', p), value(p, n));
                }
                db.write(b, &WriteOptions::default()).unwrap();
                for p in pairs {
                    acked[p as usize].fetch_add(1, SeqCst);
                }
            }
        };
        let rounds = thread::scope(|s| {
            let (db, acked, done) = (&db, acked.as_slice(), &done);
            let writers: Vec<_> = (0..WRITERS).map(|w| s.spawn(move || write(w))).collect();
            let readers: Vec<_> = (0..READERS)
                .map(|i| {
                    let rng = Rng(seed.wrapping_add(i + 1 + round * READERS));
                    let seen = vec![0; PAIRS as usize];
                    let reader = Reader { db, acked, seen, rng, held: Vec::new(), iters: Vec::new() };
                    s.spawn(move || reader.run(done))
                })
                .collect();
            let compactor = s.spawn(move || {
                let mut rng = Rng(seed ^ 77);
                while !done.load(SeqCst) {
                    db.flush().unwrap();
                    let from = rng.below(PAIRS);
                    db.compact_range(key('a', from)..key('z', rng.below(PAIRS))).unwrap();
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let end = Instant::now() + time;
            while Instant::now() < end
                && !readers.iter().any(|r| r.is_finished())
                && !writers.iter().any(|w| w.is_finished())
            {
                thread::sleep(Duration::from_millis(10));
            }
            done.store(true, SeqCst);
            let others: Vec<_> = writers.into_iter().chain([compactor]).map(|t| t.join()).collect();
            let rounds: Vec<_> = readers.into_iter().map(|r| r.join()).collect();
            assert!(others.iter().all(Result::is_ok), "a thread has panicked");
            rounds.into_iter().map(|r| r.expect("a reader has panicked")).sum::<u64>()
        });
        let stats = db.stats();
        println!("{durability:?}: {rounds} rounds, {stats:?}");
        assert!(stats.flushes > 0 && stats.compactions > 0, "{stats:?}");
        assert!(db.verify().unwrap().is_ok());
        // Everything that held memory or files has let it go.
        db.compact_range(..).unwrap();
        db.wait_idle().unwrap();
        let tables = std::fs::read_dir(dir.path())
            .unwrap()
            .filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|x| x == "sst"))
            .count() as u64;
        let levels: u64 = db.stats().levels.iter().map(|l| l.tables).sum();
        assert_eq!(tables, levels, "files of obsolete tables are left");
        let got: Vec<_> = (0..PAIRS).map(|p| acked[p as usize].load(SeqCst)).collect();
        let all: Vec<u64> = (0..PAIRS).collect();
        assert!(collect(db.prefix("a-"), 'a', &all) == got && collect(db.prefix("z-"), 'z', &all) == got);
    }
}
