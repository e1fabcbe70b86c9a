//! The nanoseconds that docs/decisions quotes, each by the page that quotes it. `make benches`; a name after
//! `--` chooses: `cargo bench -p ringdb --bench decisions -- reads`. What is timed is a call of the public
//! interface where there is one.
//!
//! `RINGDB_BENCH_KEYS` sets the keys of a store (200,000 by default; the pages say what they used). The
//! machine matters more than most changes: compare two builds in turns, not with the pages.
#![allow(missing_docs, clippy::unwrap_used)] // a bench

use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use ringdb::{Compression, Db, Durability, Options, WriteOptions};
use tempfile::TempDir;

fn main() {
    divan::main();
}

fn keys() -> u64 {
    static KEYS: LazyLock<u64> = LazyLock::new(|| {
        std::env::var("RINGDB_BENCH_KEYS").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000)
    });
    *KEYS
}

/// The numbers below `keys()` in another order, each once: a prime's multiples.
fn scattered(n: u64) -> u64 {
    n.wrapping_mul(1_000_003) % keys()
}

/// 16 bytes. Even numbers are in the stores, odd ones are not.
fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key-............";
    key[4..].copy_from_slice(format!("{n:012}").as_bytes());
    key
}

const VALUE: [u8; 100] = [b'v'; 100];

struct Store {
    db: Db,
    _dir: TempDir,
}

fn open(dir: &Path, options: Options) -> Db {
    Db::open(dir, options.with_background_threads(2)).unwrap()
}

/// Puts the keys of which `every` leaves the remainder `which`; without the log.
fn fill(db: &Db, every: u64, which: u64) {
    let unlogged = WriteOptions::default().durability(Durability::None);
    for n in (0..keys()).filter(|n| n % every == which) {
        let mut batch = ringdb::WriteBatch::new();
        batch.put(key(2 * scattered(n)), VALUE);
        db.write(batch, &unlogged).unwrap();
    }
}

/// Four sorted runs and a memtable, all of it in memory.
static RUNS: LazyLock<Store> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().with_cache_bytes(1 << 30).with_memtable_bytes(256 << 20);
    let db = open(dir.path(), options);
    for run in 0..5 {
        fill(&db, 5, run);
        match run {
            0 => db.compact_range(..).unwrap(),
            1..4 => db.flush().unwrap(),
            _ => {}
        }
    }
    assert_eq!(db.iter().count(), db.iter().rev().count());
    Store { db, _dir: dir }
});

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A key that is there.
fn present() -> [u8; 16] {
    key(2 * scattered(NEXT.fetch_add(1, Relaxed)))
}

fn absent() -> [u8; 16] {
    key(2 * scattered(NEXT.fetch_add(1, Relaxed)) + 1)
}

/// Decision 2: CRC-32C of a log record and of a block.
#[divan::bench(args = [130, 4096])]
fn checksum(bencher: Bencher, bytes: usize) {
    let data = vec![7u8; bytes];
    bencher.bench(|| crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, black_box(&data)));
}

/// Decision 3: an append to the mapped log is what a put of durability `Process` costs above one of `None`.
#[divan::bench(args = [Durability::None, Durability::Process])]
fn put(bencher: Bencher, durability: &Durability) {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path(), Options::default().with_cache_bytes(1 << 30));
    let how = WriteOptions::default().durability(*durability);
    bencher.counter(ItemsCount::new(1u32)).bench(|| {
        let mut batch = ringdb::WriteBatch::new();
        batch.put(present(), VALUE);
        db.write(batch, &how).unwrap();
    });
}

/// Decision 4: a store that is all memtable.
mod memtable {
    use super::*;

    static STORE: LazyLock<Store> = LazyLock::new(|| {
        let dir = tempfile::tempdir().unwrap();
        let db =
            open(dir.path(), Options::default().with_cache_bytes(2 << 30).with_memtable_bytes(512 << 20));
        fill(&db, 1, 0);
        Store { db, _dir: dir }
    });

    #[divan::bench]
    fn get_absent(bencher: Bencher) {
        let db = &STORE.db;
        bencher.counter(ItemsCount::new(1u32)).bench(|| db.get(absent()).unwrap());
    }

    #[divan::bench]
    fn scanned_row(bencher: Bencher) {
        let db = &STORE.db;
        bencher.counter(ItemsCount::new(1000u32)).bench(|| db.range(present()..).take(1000).count());
    }
}

/// Decision 5.
mod reads {
    use super::*;

    #[divan::bench]
    fn get_present(bencher: Bencher) {
        let db = &RUNS.db;
        bencher.counter(ItemsCount::new(1u32)).bench(|| db.get(present()).unwrap());
    }

    #[divan::bench]
    fn get_absent(bencher: Bencher) {
        let db = &RUNS.db;
        bencher.counter(ItemsCount::new(1u32)).bench(|| db.get(absent()).unwrap());
    }

    #[divan::bench]
    fn multi_get_64(bencher: Bencher) {
        let db = &RUNS.db;
        bencher
            .with_inputs(|| (0..64).map(|_| present()).collect::<Vec<_>>())
            .counter(ItemsCount::new(64u32))
            .bench_refs(|keys| db.multi_get(keys).unwrap());
    }

    /// An iterator made, sought, stepped and dropped.
    #[divan::bench(args = [1, 10])]
    fn seek_and(bencher: Bencher, rows: usize) {
        let db = &RUNS.db;
        bencher.bench(|| db.range(present()..).take(rows).count());
    }

    #[divan::bench]
    fn row_forward(bencher: Bencher) {
        let db = &RUNS.db;
        bencher.counter(ItemsCount::new(1000u32)).bench(|| db.range(present()..).take(1000).count());
    }

    #[divan::bench]
    fn row_backward(bencher: Bencher) {
        let db = &RUNS.db;
        bencher.counter(ItemsCount::new(1000u32)).bench(|| db.range(..present()).rev().take(1000).count());
    }

    /// With a cache that holds next to nothing; from the page cache, where that has the tables.
    #[divan::bench]
    fn row_first_read(bencher: Bencher) {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path(), Options::default());
        fill(&db, 1, 0);
        db.compact_range(..).unwrap();
        db.close().unwrap();
        let db = open(dir.path(), Options::default().with_cache_bytes(1 << 20).with_memtable_bytes(64 << 10));
        bencher.counter(ItemsCount::new(1000u32)).bench(|| db.range(present()..).take(1000).count());
    }
}

/// Decision 8: all entries compacted into the last level, and read from there.
mod compression {
    use super::*;

    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    fn loaded(how: Compression) -> Store {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default().with_cache_bytes(1 << 30).with_memtable_bytes(256 << 20);
        let db = open(dir.path(), options.with_compression(how).with_last_level_compression(how));
        for half in 0..2 {
            fill(&db, 2, half);
            db.flush().unwrap();
        }
        Store { db, _dir: dir }
    }

    #[divan::bench(args = ALL, sample_count = 3, sample_size = 1)]
    fn compacted_entry(bencher: Bencher, how: &Compression) {
        bencher
            .with_inputs(|| loaded(*how))
            .counter(ItemsCount::new(keys()))
            .bench_refs(|store| store.db.compact_range(..).unwrap());
    }

    #[divan::bench(args = ALL)]
    fn cached_get(bencher: Bencher, how: &Compression) {
        let store = loaded(*how);
        store.db.compact_range(..).unwrap();
        assert!(store.db.iter().count() > 0);
        bencher.counter(ItemsCount::new(1u32)).bench(|| store.db.get(present()).unwrap());
    }
}
