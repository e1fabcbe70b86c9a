use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::*;
use crate::Error;
use crate::db::testing::{Fixture, Plan, Rng, version};
use crate::db::view::View;
use crate::options::Compression;

fn read(f: &Fixture, key: &[u8], seq: Seq, options: &ReadOptions) -> Result<Option<Value>> {
    f.views.get(&f.prefix, key, Some(seq), options)
}

fn check_all(f: &mut Fixture, reads: u64) {
    for i in 0..reads {
        let (key, seq) = (f.some_key(), f.some_seq());
        let options = ReadOptions::default().fill_cache(i % 5 != 0);
        let got = read(f, &key, seq, &options).unwrap();
        assert_eq!(got.as_deref(), f.expect(&key, seq), "{} at {seq}", key.escape_ascii());
    }
}

#[test]
fn finds_the_newest_visible_version() {
    let mut f = Fixture::new(Plan::default());
    for key in f.model.keys() {
        for seq in [f.last_seq, f.last_seq / 2, f.last_seq / 10, 0] {
            let got = read(&f, key, seq, &ReadOptions::default()).unwrap();
            assert_eq!(got.as_deref(), f.expect(key, seq), "{} at {seq}", key.escape_ascii());
        }
    }
    check_all(&mut f, 5000);
    let stats = f.cache.stats();
    assert!(stats.hits > stats.misses && stats.filter_negatives > 0, "{stats:?}");
    // Another keyspace has none of these keys.
    let other = Prefix::new(4);
    for key in f.model.keys() {
        assert_eq!(f.views.get(&other, key, Some(f.last_seq), &ReadOptions::default()).unwrap(), None);
    }
}

#[test]
fn a_tiny_cache_large_values_and_compression() {
    for (seed, compression, filter_bits) in
        [(2, Compression::None, 0), (3, Compression::Lz4, 10), (4, Compression::Zstd, 3)]
    {
        let plan =
            Plan { seed, compression, filter_bits, cache_bytes: 1, large_every: 20, ..Plan::default() };
        let mut f = Fixture::new(plan);
        check_all(&mut f, 6000);
        let used = f.cache.stats().used_bytes;
        assert!(used <= 2 * 64 * 4096, "{used} bytes in a cache of 64 frames");
    }
}

#[test]
fn reads_without_filling_leave_the_cache_alone() {
    let mut f = Fixture::new(Plan { large_every: 30, ..Plan::default() });
    let before = f.cache.stats().used_bytes;
    for _ in 0..1000 {
        let key = f.some_key();
        let got = read(&f, &key, f.last_seq, &ReadOptions::default().fill_cache(false)).unwrap();
        assert_eq!(got.as_deref(), f.expect(&key, f.last_seq));
    }
    assert_eq!(f.cache.stats().used_bytes, before);
}

#[test]
fn readers_beside_evictions_and_new_views() {
    let f = Fixture::new(Plan { cache_bytes: 1, large_every: 40, ..Plan::default() });
    let stop = AtomicBool::new(false);
    let keys: Vec<_> = f.model.keys().cloned().collect();
    std::thread::scope(|s| {
        let readers: Vec<_> = (0..3)
            .map(|t| {
                let (f, keys) = (&f, &keys);
                s.spawn(move || {
                    let mut rng = Rng::new(t + 10);
                    for _ in 0..4000 {
                        let key = &keys[rng.below(keys.len() as u64) as usize];
                        let got = read(f, key, f.last_seq, &ReadOptions::default()).unwrap();
                        assert_eq!(got.as_deref(), f.expect(key, f.last_seq));
                    }
                })
            })
            .collect();
        let (f, stop) = (&f, &stop);
        s.spawn(move || {
            while !stop.load(Relaxed) {
                let view = f.views.newest();
                let same =
                    View::new(Arc::clone(&view.active), view.immutables.clone(), Arc::clone(&view.version));
                f.views.publish(same);
                std::thread::yield_now();
            }
        });
        let results: Vec<_> = readers.into_iter().map(|r| r.join()).collect();
        stop.store(true, Relaxed);
        results.into_iter().for_each(|r| r.unwrap());
    });
}

#[test]
fn a_damaged_block_is_reported_where_it_is_needed_and_nowhere_else() {
    for compression in [Compression::None, Compression::Lz4] {
        let f = Fixture::new(Plan { compression, ..Plan::default() });
        // The first table of the last level; its third block (about).
        let path = &f.files()[0];
        let mut bytes = std::fs::read(path).unwrap();
        bytes[2 * 4096 + 1000] ^= 4;
        std::fs::write(path, bytes).unwrap();
        let (mut damaged, mut right) = (0, 0);
        for key in f.model.keys() {
            match read(&f, key, f.last_seq, &ReadOptions::default()) {
                Ok(got) => {
                    assert_eq!(got.as_deref(), f.expect(key, f.last_seq));
                    right += 1;
                }
                Err(Error::Corrupt { path: at, offset, .. }) => {
                    assert_eq!(&at, path);
                    assert!(offset.is_some_and(|o| (4096..=3 * 4096).contains(&o)), "{offset:?}");
                    damaged += 1;
                }
                Err(e) => panic!("{e}"),
            }
        }
        assert!(damaged > 5 && damaged < 100 && right > 1000, "{damaged} damaged, {right} right");
    }
}

#[test]
fn a_failing_read_is_not_called_corruption() {
    let f = Fixture::new(Plan::default());
    let path = &f.files()[0];
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(4096).unwrap();
    let mut failed = 0;
    for key in f.model.keys() {
        match read(&f, key, f.last_seq, &ReadOptions::default()) {
            Ok(got) => assert_eq!(got.as_deref(), f.expect(key, f.last_seq)),
            Err(Error::Io(e)) => {
                assert_eq!(e.kind(), engineswap::ErrorKind::UnexpectedEof);
                failed += 1;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(failed > 100, "{failed}");
}

#[test]
fn an_obsolete_table_goes_with_its_last_reader() {
    let f = Fixture::new(Plan::default());
    let view = f.views.newest();
    let table = Arc::clone(&view.tables().level0()[0]);
    let path = table.path().to_path_buf();
    let used = f.cache.stats().index_bytes;
    table.mark_obsolete();
    f.views.publish(View::new(Arc::clone(&view.active), Vec::new(), version(&[])));
    let kept = view.tables().level(0).tables()[0].path().to_path_buf();
    drop(view);
    // The index, and for each block a slot and a checksum of 4 bytes.
    let blocks = table.index().blocks() as u64 * 4;
    let parts = table.index().bytes() + blocks.next_multiple_of(64) + blocks;
    assert!(path.exists() && f.cache.stats().index_bytes == parts);
    drop(table);
    while path.exists() {
        f.cache.collector().collect();
        std::thread::yield_now();
    }
    assert!(kept.exists(), "only what is obsolete is deleted");
    assert!(used > 0 && f.cache.stats().index_bytes == 0);
}

#[test]
fn many_tables_of_level_0() {
    let mut f = Fixture::new(Plan { level0: 40, keys: 500, ..Plan::default() });
    check_all(&mut f, 4000);
}
