//! Every kind of work, one after the other, on a store several times larger than its budget: anonymous memory is at
//! most the budget and 32 MiB, and a cgroup of the budget and 64 MiB is enough.

use std::path::Path;
use std::time::Duration;

use ringdb::{Db, Iter, Options, ReadOptions};

use crate::child;
use crate::support::{Rng, env_number};
use crate::watch::Watch;

const MIB: u64 = 1 << 20;
const VALUE: usize = 100;
const ITERATORS: usize = 100;

fn budget() -> u64 {
    env_number("RINGDB_BUDGET_MIB", 32) * MIB
}

fn keys() -> u64 {
    env_number("RINGDB_BUDGET_KEYS", 500_000)
}

#[test]
fn every_workload_keeps_to_the_budget() {
    child::run("workloads::child_does_everything", budget() + 64 * MIB);
}

#[test]
fn child_does_everything() {
    if child::is_me("workloads::child_does_everything") {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Run { watch: Watch::start(), most: budget() + 32 * MIB, keys: keys(), rng: Rng(7) }.all(dir.path());
    }
}

struct Run {
    watch: Watch,
    most: u64,
    keys: u64,
    rng: Rng,
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    // Spread over the key space, each number its own key.
    key[..8].copy_from_slice(&n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key
}

fn value(n: u64) -> [u8; VALUE] {
    let mut value = [n as u8; VALUE];
    value[..8].copy_from_slice(&n.to_le_bytes());
    value
}

#[track_caller]
fn check(n: u64, found: Option<ringdb::Value>) {
    assert!(found.unwrap_or_else(|| panic!("key {n} is gone")) == value(n), "key {n} has a wrong value");
}

impl Run {
    fn all(mut self, dir: &Path) {
        let (store, copy) = (dir.join("store"), dir.join("copy"));
        let options = Options::default().with_cache_bytes(budget());
        let db = self.open(&store, &options);
        self.phase(&db, "fill at random", |r| (0..r.keys).for_each(|n| db.put(key(n), value(n)).unwrap()));
        let mapped = self.watch.files();
        self.phase(&db, "settle", |_| db.wait_idle().unwrap());
        self.phase(&db, "get", |r| r.gets(&db, r.keys / 10));
        self.phase(&db, "multi_get", |r| r.multi_gets(&db, r.keys / 10));
        self.phase(&db, "overwrite", |r| r.overwrite(&db, r.keys / 2));
        self.phase(&db, "get while overwriting", |r| r.both(&db));
        self.phase(&db, "settle again", |_| db.flush().and_then(|()| db.wait_idle()).unwrap());
        self.phase(&db, "many iterators", |r| r.iterators(&db));
        self.phase(&db, "compact", |r| {
            r.overwrite(&db, r.keys / 10);
            db.compact_range(..).unwrap();
        });
        self.phase(&db, "large values", |r| r.large(&db));
        self.phase(&db, "checkpoint", |_| db.checkpoint(&copy).unwrap());
        // Dropped, not closed: the log has to be replayed.
        self.phase(&db, "overwrite without a flush", |r| r.overwrite(&db, r.keys / 4));
        drop(db);
        let db = self.open(&store, &options);
        self.phase(&db, "get after the replay", |r| r.gets(&db, r.keys / 20));
        // What the log has mapped is bounded besides the budget: by segments of at most 16 MiB.
        let own_files = 24 * MIB;
        assert!(mapped <= budget() / 4 + own_files, "{mapped} bytes of mapped files while filling");
    }

    fn open(&self, store: &Path, options: &Options) -> Db {
        self.watch.phase("open", self.most, || Db::open(store, options.clone()).unwrap())
    }

    fn phase(&mut self, db: &Db, name: &str, f: impl FnOnce(&mut Run)) {
        let watch = std::mem::replace(&mut self.watch, Watch::start());
        watch.phase(name, self.most, || f(self));
        let s = db.stats();
        println!(
            "  counted {} MiB: memtables {}, background {}, iterators {}, index and filters {}, blocks {}; log mapped {}",
            s.memory_bytes / MIB,
            s.memtable_memory_bytes / MIB,
            s.background_memory_bytes / MIB,
            s.iterator_memory_bytes / MIB,
            (s.index_bytes + s.filter_bytes) / MIB,
            s.cache_used_bytes / MIB,
            s.log_mapped_bytes / MIB
        );
        self.watch = watch;
    }

    fn gets(&mut self, db: &Db, count: u64) {
        for _ in 0..count {
            let n = self.rng.below(self.keys);
            check(n, db.get(key(n)).unwrap());
        }
    }

    fn multi_gets(&mut self, db: &Db, count: u64) {
        for _ in 0..count / 64 {
            let numbers: Vec<u64> = (0..64).map(|_| self.rng.below(self.keys)).collect();
            let keys: Vec<_> = numbers.iter().map(|&n| key(n)).collect();
            for (n, found) in numbers.into_iter().zip(db.multi_get(&keys).unwrap()) {
                check(n, found);
            }
        }
    }

    fn overwrite(&mut self, db: &Db, count: u64) {
        for _ in 0..count {
            let n = self.rng.below(self.keys);
            db.put(key(n), value(n)).unwrap();
        }
    }

    fn both(&mut self, db: &Db) {
        let (keys, seed) = (self.keys, self.rng.next());
        std::thread::scope(|s| {
            for t in 0..2 {
                s.spawn(move || {
                    let watch = Watch::start();
                    Run { watch, most: 0, keys, rng: Rng(seed + t) }.gets(db, keys / 40);
                });
            }
            self.overwrite(db, keys / 4);
        });
    }

    /// Iterators of both directions and both kinds, all open while each goes on a little in its turn.
    fn iterators(&mut self, db: &Db) {
        let quiet = ReadOptions::default().fill_cache(false);
        let mut open: Vec<(usize, Iter)> = (0..ITERATORS)
            .map(|i| {
                let from = key(self.rng.below(self.keys));
                let options = if i % 2 == 0 { ReadOptions::default() } else { quiet };
                (i, if i % 4 < 2 { db.range_with(from.., &options) } else { db.range_with(..from, &options) })
            })
            .collect();
        for _ in 0..6 {
            for (i, iter) in &mut open {
                for _ in 0..200 {
                    let pair = if *i % 4 < 2 { iter.next() } else { iter.next_back() };
                    let Some(pair) = pair else { break };
                    assert_eq!(pair.unwrap().1.len(), VALUE);
                }
            }
        }
        // One of each kind by itself to see the whole window.
        assert_eq!(db.range_with(.., &quiet).take(50_000).map(Result::unwrap).count(), 50_000);
        assert_eq!(db.iter().rev().take(50_000).map(Result::unwrap).count(), 50_000);
    }

    /// Values of up to a thirty-second of the budget.
    fn large(&mut self, db: &Db) {
        let len = (budget() / 32) as usize;
        let name = |i: usize| format!("large{i:04}");
        // One buffer for all: what the caller's allocator keeps of each is not the store's.
        let mut value = vec![0; len];
        for round in 0..2 {
            for i in 0..64 {
                value.fill(i as u8 + round);
                db.put(name(i), &value[..len >> (i % 4)]).unwrap();
            }
        }
        for i in 0..64 {
            let found = db.get(name(i)).unwrap().unwrap();
            let right = found.len() == len >> (i % 4) && found.iter().all(|b| *b == i as u8 + 1);
            assert!(right, "large value {i}");
        }
        assert_eq!(db.prefix("large").map(Result::unwrap).count(), 64);
        (0..64).step_by(2).for_each(|i| db.delete(name(i)).unwrap());
        db.compact_range("large".."largf").unwrap();
        assert_eq!(db.prefix("large").rev().map(Result::unwrap).count(), 32);
        std::thread::sleep(Duration::from_millis(5));
    }
}
