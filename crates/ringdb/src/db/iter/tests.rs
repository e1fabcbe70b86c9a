use super::*;
use crate::db::testing::{Fixture, Plan, user_key, version};
use crate::options::Compression;

type Pair = (Vec<u8>, Vec<u8>);

fn range(f: &Fixture, from: &[u8], to: Option<&[u8]>, seq: Seq, fill_cache: bool) -> Iter {
    let upper = to.map_or(Bound::Unbounded, Bound::Excluded);
    let (lower, upper) = internal_bounds(&f.prefix, (Bound::Included(from), upper));
    let options = ReadOptions::default().fill_cache(fill_cache);
    Iter::over(f.views.newest(), lower, upper, seq, f.prefix.len(), &options)
}

fn owned(pair: Result<(Value, Value)>) -> Pair {
    let (k, v) = pair.unwrap();
    (k.into_vec(), v.into_vec())
}

/// The pairs that both ends, asked in a random order, return: as one sequence.
fn from_both_ends(f: &mut Fixture, mut iter: Iter, runs: u64) -> Vec<Pair> {
    let (mut front, mut back) = (Vec::new(), Vec::new());
    loop {
        let n = 1 + f.rng.below(runs);
        let forward = f.rng.below(2) == 0;
        for _ in 0..n {
            let pair = if forward { iter.next() } else { iter.next_back() };
            let Some(pair) = pair else {
                assert!(iter.next().is_none() && iter.next_back().is_none());
                back.reverse();
                front.append(&mut back);
                return front;
            };
            if forward { front.push(owned(pair)) } else { back.push(owned(pair)) }
        }
    }
}

fn check(f: &mut Fixture, rounds: u64) {
    for i in 0..rounds {
        let seq = f.some_seq();
        let (a, b) = (f.some_key(), f.some_key());
        let (from, to) = if a <= b || i % 10 == 0 { (a, b) } else { (b, a) };
        let to = (f.rng.below(4) > 0).then_some(to);
        let want: Vec<Pair> = f
            .expect_all(seq)
            .into_iter()
            .filter(|(k, _)| *k >= from && to.as_ref().is_none_or(|to| k < to))
            .collect();
        let fill = f.rng.below(3) > 0;
        let iter = range(f, &from, to.as_deref(), seq, fill);
        let got: Vec<Pair> = match i % 3 {
            0 => iter.map(owned).collect(),
            1 => {
                let mut got: Vec<_> = iter.rev().map(owned).collect();
                got.reverse();
                got
            }
            _ => from_both_ends(f, iter, 40),
        };
        assert!(got == want, "round {i} at {seq}: {} pairs, not {}", got.len(), want.len());
    }
}

#[test]
fn both_ends_return_what_the_model_holds() {
    let mut f = Fixture::new(Plan::default());
    check(&mut f, 60);
    let all: Vec<_> = range(&f, b"", None, f.last_seq, true).map(owned).collect();
    assert_eq!(all, f.expect_all(f.last_seq));
}

#[test]
fn a_tiny_cache_large_values_and_compression() {
    for (seed, compression) in [(2, Compression::None), (3, Compression::Lz4), (4, Compression::Zstd)] {
        let plan = Plan { seed, compression, cache_bytes: 1, large_every: 30, ..Plan::default() };
        let mut f = Fixture::new(plan);
        check(&mut f, 20);
    }
}

#[test]
fn the_ends_meet_and_no_pair_comes_twice() {
    let mut f = Fixture::new(Plan { keys: 200, ..Plan::default() });
    let want = f.expect_all(f.last_seq);
    for _ in 0..200 {
        let iter = range(&f, b"", None, f.last_seq, true);
        let got = from_both_ends(&mut f, iter, 3);
        assert!(got == want);
    }
}

#[test]
fn empty_and_reversed_ranges_are_empty() {
    let f = Fixture::new(Plan::default());
    let key = user_key(4);
    assert!(range(&f, &key, Some(&key), f.last_seq, true).next().is_none());
    assert!(range(&f, b"b", Some(b"a"), f.last_seq, true).next_back().is_none());
    assert!(range(&f, b"", None, 0, true).next().is_none());
    assert!(range(&f, b"", None, 0, true).next_back().is_none());
    assert_eq!(
        range(&f, b"", Some(b"\0"), f.last_seq, true).count(),
        f.model.contains_key(&b""[..]) as usize
    );
}

#[test]
fn scans_read_ahead_in_both_directions_and_each_block_once() {
    for forward in [true, false] {
        let f = Fixture::new(Plan { keys: 20_000, cache_bytes: 64 << 20, ..Plan::default() });
        let view = f.views.newest();
        let tables = || {
            let map = view.tables();
            map.tables().iter()
        };
        let blocks: u64 = tables().map(|t| t.index().blocks() as u64).sum();
        let iter = range(&f, b"", None, f.last_seq, true);
        let n = if forward { iter.count() } else { iter.rev().count() };
        assert_eq!(n, f.expect_all(f.last_seq).len());
        let stats = f.cache.stats();
        assert_eq!(stats.misses, blocks, "each block is read once");
        // A hit for each block that was read ahead: most of them.
        assert!(stats.hits > blocks / 2, "{stats:?} of {blocks} blocks");
    }
}

#[test]
fn a_scan_that_does_not_fill_the_cache_leaves_it_alone() {
    let f = Fixture::new(Plan { cache_bytes: 1, ..Plan::default() });
    let want = f.expect_all(f.last_seq);
    let got: Vec<_> = range(&f, b"", None, f.last_seq, false).map(owned).collect();
    assert!(got == want);
    let got: Vec<_> = range(&f, b"", None, f.last_seq, false).rev().map(owned).collect();
    assert!(got.iter().eq(want.iter().rev()));
    assert_eq!(f.cache.stats().used_bytes, 0);
}

#[test]
fn an_error_comes_once_and_ends_the_iterator() {
    let f = Fixture::new(Plan::default());
    let path = &f.files()[0];
    let mut bytes = std::fs::read(path).unwrap();
    bytes[4 * 4096 + 1000] ^= 4;
    std::fs::write(path, bytes).unwrap();
    let want = f.expect_all(f.last_seq);
    for forward in [true, false] {
        let mut iter = range(&f, b"", None, f.last_seq, true);
        let mut next = || if forward { iter.next() } else { iter.next_back() };
        let mut got = Vec::new();
        let error = loop {
            match next().expect("the damaged block comes first") {
                Ok((k, v)) => got.push((k.into_vec(), v.into_vec())),
                Err(e) => break e,
            }
        };
        assert!(
            matches!(&error, Error::Corrupt { path: at, offset: Some(16384), .. } if at == path),
            "{error}"
        );
        assert!(next().is_none() && next().is_none());
        let same = if forward {
            got.iter().eq(&want[..got.len()])
        } else {
            got.iter().eq(want.iter().rev().take(got.len()))
        };
        assert!(same && !got.is_empty() && got.len() < want.len());
    }
    let mut failed = Iter::failed(Error::Closed);
    assert!(matches!(failed.next_back(), Some(Err(Error::Closed))) && failed.next().is_none());
}

#[test]
fn iterators_may_move_to_another_thread_and_outlive_the_view() {
    let f = Fixture::new(Plan::default());
    let want = f.expect_all(f.last_seq);
    let mut iter = range(&f, b"", None, f.last_seq, true);
    assert_eq!(owned(iter.next().unwrap()), want[0]);
    let view = f.views.newest();
    f.views.publish(View::new(Arc::clone(&view.active), Vec::new(), version(&[])));
    drop(view);
    let rest: Vec<_> = std::thread::spawn(move || iter.map(owned).collect()).join().unwrap();
    assert!(rest == want[1..]);
}

#[test]
fn bounds_of_user_keys_become_bounds_of_internal_keys() {
    use Bound::*;
    let p = Prefix::new(2);
    assert_eq!(internal_bounds(&p, (Unbounded, Unbounded)), (vec![2], Some(vec![3])));
    assert_eq!(
        internal_bounds(&p, (Included(b"a"), Included(b"b"))),
        (b"\x02a".to_vec(), Some(b"\x02b\0".to_vec()))
    );
    assert_eq!(
        internal_bounds(&p, (Excluded(b"a"), Excluded(b"b"))),
        (b"\x02a\0".to_vec(), Some(b"\x02b".to_vec()))
    );
    let last = Prefix::new(u32::MAX);
    assert_eq!(
        internal_bounds(&last, (Unbounded, Unbounded)),
        (vec![0xF0, 255, 255, 255, 255], Some(vec![0xF1]))
    );
}

#[test]
fn scans_and_batches_beside_each_other_in_a_tiny_cache() {
    for compression in [Compression::None, Compression::Lz4] {
        let plan = Plan { cache_bytes: 1, keys: 4000, large_every: 50, compression, ..Plan::default() };
        let f = Fixture::new(plan);
        let want = f.expect_all(f.last_seq);
        let keys: Vec<_> = want.iter().map(|(k, _)| k).collect();
        std::thread::scope(|s| {
            for t in 0..4 {
                let (f, want, keys) = (&f, &want, &keys);
                s.spawn(move || match t {
                    0 => (0..3).for_each(|_| {
                        assert!(range(f, b"", None, f.last_seq, true).map(owned).eq(want.iter().cloned()));
                    }),
                    1 => (0..3).for_each(|_| {
                        let back = range(f, b"", None, f.last_seq, true).rev().map(owned);
                        assert!(back.eq(want.iter().rev().cloned()));
                    }),
                    2 => {
                        // Many iterators at once hold more frames than there are.
                        let all: Vec<_> =
                            (0..100).map(|i| range(f, keys[i * 7], None, f.last_seq, true)).collect();
                        for (i, mut iter) in all.into_iter().enumerate() {
                            assert_eq!(&owned(iter.next().unwrap()), &want[i * 7]);
                        }
                        let mut open: Vec<_> =
                            (0..100).map(|i| range(f, keys[i * 11], None, f.last_seq, true)).collect();
                        for step in 0..3 {
                            for (i, iter) in open.iter_mut().enumerate() {
                                assert_eq!(&owned(iter.next().unwrap()), &want[i * 11 + step]);
                            }
                        }
                    }
                    _ => {
                        let options = ReadOptions::default();
                        for part in keys.chunks(700) {
                            let got = f.views.multi_get(
                                &crate::db::multi_get::OfOne(&f.prefix, part),
                                Some(f.last_seq),
                                &options,
                            );
                            let got = got.unwrap();
                            assert!(
                                got.iter().zip(part).all(|(v, k)| v.as_deref() == f.expect(k, f.last_seq))
                            );
                        }
                    }
                });
            }
        });
        let used = f.cache.stats().used_bytes;
        assert!(used <= 2 * 64 * 4096, "{used} bytes in a cache of 64 frames");
    }
}
