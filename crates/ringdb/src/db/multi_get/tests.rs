use super::*;
use crate::db::testing::{Fixture, Plan};
use crate::options::Compression;
use crate::{Error, ErrorKind};

fn check(f: &mut Fixture, batches: u64, largest: u64) {
    for i in 0..batches {
        let n = f.rng.below(largest + 1);
        let seq = f.some_seq();
        let mut keys: Vec<_> = (0..n).map(|_| f.some_key()).collect();
        if let Some(first) = keys.first().cloned() {
            keys.push(first);
        }
        let options = ReadOptions::default().fill_cache(i % 4 != 0);
        let got = f.views.multi_get(&OfOne(&f.prefix, &keys), Some(seq), &options).unwrap();
        assert_eq!(got.len(), keys.len());
        for (key, got) in keys.iter().zip(&got) {
            assert_eq!(got.as_deref(), f.expect(key, seq), "{} at {seq}", key.escape_ascii());
        }
    }
}

#[test]
fn answers_in_the_order_of_the_keys() {
    let mut f = Fixture::new(Plan::default());
    check(&mut f, 200, 100);
}

#[test]
fn batches_larger_than_the_cache() {
    for (seed, compression, filter_bits) in
        [(2, Compression::None, 0), (3, Compression::Lz4, 10), (4, Compression::None, 10)]
    {
        let plan =
            Plan { seed, compression, filter_bits, cache_bytes: 1, large_every: 20, ..Plan::default() };
        let mut f = Fixture::new(plan);
        check(&mut f, 10, 3000);
    }
}

#[test]
fn every_missing_block_is_read_once() {
    let f = Fixture::new(Plan::default());
    let keys: Vec<_> = f.model.keys().collect();
    let got = f.views.multi_get(&OfOne(&f.prefix, &keys), Some(f.last_seq), &ReadOptions::default()).unwrap();
    assert!(got.iter().zip(&keys).all(|(got, key)| got.as_deref() == f.expect(key, f.last_seq)));
    let view = f.views.newest();
    let tables = view.tables().tables().iter();
    let blocks: u64 = tables.map(|t| t.index().blocks() as u64).sum();
    let misses = f.cache.stats().misses;
    assert!(misses <= blocks, "{misses} reads of {blocks} blocks");
    f.views.multi_get(&OfOne(&f.prefix, &keys), Some(f.last_seq), &ReadOptions::default()).unwrap();
    assert_eq!(f.cache.stats().misses, misses, "everything is cached the second time");
}

#[test]
fn a_damaged_block_fails_the_batch_that_needs_it() {
    let f = Fixture::new(Plan::default());
    let path = &f.files()[0];
    let mut bytes = std::fs::read(path).unwrap();
    bytes[2 * 4096 + 1000] ^= 4;
    std::fs::write(path, bytes).unwrap();
    let keys: Vec<_> = f.model.keys().collect();
    let e =
        f.views.multi_get(&OfOne(&f.prefix, &keys), Some(f.last_seq), &ReadOptions::default()).unwrap_err();
    assert!(matches!(&e, Error::Corrupt { path: at, offset: Some(8192), .. } if at == path), "{e}");
    assert_eq!(e.kind(), ErrorKind::Repair);
    // The last keys are in other tables.
    let tail = &keys[keys.len() - 100..];
    let got = f.views.multi_get(&OfOne(&f.prefix, tail), Some(f.last_seq), &ReadOptions::default()).unwrap();
    assert!(got.iter().zip(tail).all(|(got, key)| got.as_deref() == f.expect(key, f.last_seq)));
}
