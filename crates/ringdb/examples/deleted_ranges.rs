//! What a get costs beside deleted ranges, and what it costs to delete one.
//!
//! Random keys of a store in memory are read in turns of 20,000: without deleted ranges, then beside N of them, each of
//! a few keys between those that are read (`docs/decisions` has the numbers). Medians over the turns.

use std::time::Instant;

use ringdb::{Db, Options, WriteBatch, WriteOptions};

const KEYS: u64 = 200_000;
const TURNS: usize = 31;
const GETS: u64 = 20_000;

fn key(i: u64) -> String {
    format!("user:{i:012}")
}

/// Nanoseconds for each of some gets of random keys that are there.
fn turn(db: &Db, seed: u64) -> f64 {
    let mut x = seed | 1;
    let start = Instant::now();
    for _ in 0..GETS {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        // Every tenth key is one of those that ranges delete.
        let i = x % KEYS / 10 * 10 + 1 + x % 8;
        assert!(db.get(key(i)).expect("get").is_some());
    }
    start.elapsed().as_nanos() as f64 / GETS as f64
}

fn spread(mut v: Vec<f64>) -> String {
    v.sort_by(f64::total_cmp);
    let at = |share: f64| v[(share * (v.len() - 1) as f64) as usize];
    format!("{:.0} ns ({:.0} to {:.0})", at(0.5), at(0.1), at(0.9))
}

fn open(dir: &std::path::Path) -> Db {
    let db = Db::open(dir, Options::default().with_cache_bytes(256 << 20)).expect("open");
    for from in (0..KEYS).step_by(1000) {
        let mut batch = WriteBatch::new();
        (from..from + 1000).for_each(|i| batch.put(key(i), [7; 100]));
        db.write(batch, &WriteOptions::default()).expect("write");
    }
    db.compact_range(..).expect("compact");
    db
}

fn main() {
    let n: u64 = std::env::args().nth(1).map_or(10_000, |n| n.parse().expect("how many ranges"));
    let tmp = tempfile::tempdir().expect("a directory");
    let (without, with) = (open(&tmp.path().join("without")), open(&tmp.path().join("with")));
    // So that tombstones stay: what they cover has to.
    let snapshot = with.snapshot();
    let start = Instant::now();
    for i in 0..n {
        let at = i * (KEYS / 10 / n.max(1)).max(1) % (KEYS / 10) * 10;
        with.delete_range(key(at)..=key(at)).expect("delete_range");
    }
    println!("{n} ranges: {:.1} us each", start.elapsed().as_secs_f64() * 1e6 / n.max(1) as f64);
    for place in ["in the memtable", "in the version's list"] {
        let (mut a, mut b, mut ratios) = (vec![], vec![], vec![]);
        for i in 0..TURNS as u64 {
            let (x, y) = (turn(&without, i + 1), turn(&with, i + 1));
            a.push(x);
            b.push(y);
            ratios.push(y / x);
        }
        ratios.sort_by(f64::total_cmp);
        println!("{place}: without {}, with {}: {:.2} times", spread(a), spread(b), ratios[TURNS / 2]);
        with.flush().expect("flush");
        with.wait_idle().expect("wait_idle");
        println!("{} range tombstones in the list", with.stats().range_tombstones);
    }
    drop(snapshot);
}
