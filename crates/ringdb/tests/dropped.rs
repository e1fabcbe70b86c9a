//! Futures that are dropped, very many of them, leave no memory and no descriptors behind. Counts what the whole
//! process has. `RINGDB_DROPPED=1000000` drops a million on each engine.
#![allow(clippy::unwrap_used)]

#[path = "support/executor.rs"]
mod executor;
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use executor::{block_on, poll_once};
use ringdb::{Db, Durability, Options, ReadOptions, WriteBatch, WriteOptions};
use support::{Rng, engines, env_number, seed};

/// Bytes that are allocated now.
static LIVE: AtomicI64 = AtomicI64::new(0);

struct Counting;

// SAFETY: all is left to the system's allocator; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const KEYS: u64 = 8000;
const LONG: Duration = Duration::from_secs(3600);
/// Futures between two moments at which nothing waits.
const ROUND: u64 = 500;

fn key(i: u64) -> String {
    format!("key{i:06}")
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Polls a future once, or not at all, and drops it; says whether it waited.
fn drop_one(db: &Db, rng: &mut Rng) -> bool {
    let (i, late) = (rng.below(KEYS), rng.chance(4));
    let read = if late { ReadOptions::default().with_deadline(LONG) } else { ReadOptions::default() };
    let sync = WriteOptions::default().durability(Durability::Sync);
    let sync = if late { sync.with_deadline(LONG) } else { sync };
    let mut batch = WriteBatch::new();
    batch.put("dropped", [1; 100]);
    match rng.below(12) {
        0 => drop((db.get_async(key(i)), db.write_async(batch, &sync), db.sync_async())),
        1 => return poll_once(&mut db.write_async(batch, &sync)).is_pending(),
        2 => return poll_once(&mut db.sync_async()).is_pending(),
        3 => {
            let keys: Vec<_> = (i..i + 8).map(|i| key(i * 997 % KEYS)).collect();
            return poll_once(&mut db.multi_get_async_with(&keys, &read)).is_pending();
        }
        4 => {
            // Dropped with reads on their way, and without having been asked for answers.
            let mut reads = db.reads(4).unwrap();
            (0..4).for_each(|n| reads.submit(n, key((i + n * 997) % KEYS)).unwrap());
            return rng.chance(2) && reads.poll().is_none();
        }
        5 => return poll_once(&mut db.snapshot().get_async_with(key(i), &read)).is_pending(),
        _ => {
            let mut future = db.get_async_with(key(i), &read);
            return poll_once(&mut future).is_pending() && poll_once(&mut future).is_pending();
        }
    }
    false
}

/// Drops so many futures; how many of them waited.
fn drop_many(db: &Db, rng: &mut Rng, count: u64) -> u64 {
    let mut waited = 0;
    for _ in 0..count / ROUND {
        waited += (0..ROUND).filter(|_| drop_one(db, rng)).count() as u64;
        // Behind all of them, so that nothing piles up.
        block_on(db.sync_async()).unwrap();
        block_on(db.get_async(key(rng.below(KEYS)))).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    waited
}

#[test]
fn dropped_futures_leave_nothing_behind() {
    let mut rng = Rng(seed("dropped_futures_leave_nothing_behind"));
    let count = env_number("RINGDB_DROPPED", 100_000);
    for engine in engines() {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let options = Options::default()
            .with_io(engine)
            .with_cache_bytes(1 << 20)
            .with_memtable_bytes(64 << 10)
            .with_direct_reads(true);
        let db = Db::open(dir.path(), options).unwrap();
        (0..KEYS).for_each(|i| db.put(key(i), [i as u8; 700]).unwrap());
        db.compact_range(..).unwrap();
        // Threads, queues and tables of all sizes are there after this.
        drop_many(&db, &mut rng, 10_000);
        let before = (LIVE.load(Relaxed), descriptors());
        let waited = drop_many(&db, &mut rng, count);
        let now = (LIVE.load(Relaxed), descriptors());
        println!("{engine}: {waited} of {count} waited; {before:?} -> {now:?}");
        assert!(waited > count / 3, "{engine}: {waited} of {count} waited");
        // Tables and segments of the log come and go.
        assert!(now.1 < before.1 + 20, "{engine}: {} descriptors, then {}", before.1, now.1);
        // A ticket takes more than 100 bytes, and what is bounded (timers, caches of buffers) takes less than this.
        let grown = now.0 - before.0;
        assert!(grown < 1 << 20, "{engine}: {grown} bytes more after {waited} futures");
        assert_eq!(db.stats().snapshots, 0, "{engine}");
        assert!(matches!(poll_once(&mut db.sync_async()), Poll::Pending));
        db.close().unwrap();
    }
}
