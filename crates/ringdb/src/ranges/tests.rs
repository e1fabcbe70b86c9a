use proptest::prelude::*;

use super::*;

fn tombstone(start: u8, len: u8, seq: Seq) -> RangeTombstone {
    RangeTombstone::new(&[0, start], &[0, start.saturating_add(len.max(1))], seq)
}

/// Of different sequence numbers, in any order.
fn some() -> impl Strategy<Value = Vec<RangeTombstone>> {
    prop::collection::vec((0u8..40, 1u8..20, any::<u16>()), 0..40).prop_map(|all| {
        let mut all: Vec<_> =
            all.into_iter().zip(1..).map(|((s, l, r), i)| (r, tombstone(s, l, 2 * i))).collect();
        all.sort_by_key(|(r, _)| *r);
        all.into_iter().map(|(_, t)| t).collect()
    })
}

fn keys() -> impl Iterator<Item = Vec<u8>> {
    let around = (0u8..64).flat_map(|k| [vec![0, k], vec![0, k, 0], vec![0, k, 9]]);
    around.chain([vec![], vec![0], vec![1], vec![0, 255, 255]])
}

fn expected(all: &[RangeTombstone], key: &[u8], upto: Seq) -> Seq {
    all.iter().filter(|t| t.covers(key) && t.seq <= upto).map(|t| t.seq).max().unwrap_or(0)
}

fn check(ranges: &Ranges, all: &[RangeTombstone], upto: Seq) {
    for key in keys() {
        let seq = expected(all, &key, upto);
        assert_eq!(ranges.newest(&key, upto), seq, "{key:?} of {all:?}");
        let mut cover = Cover::default();
        ranges.cover(&key, upto, &mut cover);
        assert_eq!(cover.seq, seq);
        assert!(cover.holds(&key));
        for other in keys().filter(|k| cover.holds(k)) {
            assert_eq!(expected(all, &other, upto), seq, "{other:?} lies in the piece of {key:?} of {all:?}");
        }
        for above in [0, upto / 2] {
            let end = ranges.covered_until(&key, upto, above);
            let start = ranges.covered_from(&key, upto, above);
            assert_eq!((end.is_some(), start.is_some()), (seq > above, seq > above), "{key:?}");
            let (Some(start), Some(end)) = (start, end) else { continue };
            assert!(start <= key.as_slice() && key.as_slice() < end);
            for other in keys().filter(|k| start <= k.as_slice() && k.as_slice() < end) {
                assert!(expected(all, &other, upto) > above);
            }
            assert!(expected(all, end, upto) <= above, "it goes on");
        }
    }
}

#[test]
fn nothing_covers_nothing() {
    let set = RangeSet::new(vec![]);
    assert!(set.is_empty() && set.newest(b"\0a", 9) == 0 && set.all().is_empty());
    check(&Ranges::default(), &[], 9);
}

#[test]
fn encodings_read_back_and_the_impossible_is_refused() {
    let t = RangeTombstone::new(b"\0a", b"\0b", 7);
    let encode = |start: &[u8], end: &[u8], seq| {
        let mut out = vec![];
        RangeTombstone::new(start, end, seq).encode(&mut out);
        out
    };
    let good = encode(b"\0a", b"\0b", 7);
    assert_eq!(RangeTombstone::decode(&mut Reader::new(&good)), Some(t));
    for cut in 0..good.len() {
        assert_eq!(RangeTombstone::decode(&mut Reader::new(&good[..cut])), None);
    }
    let long = vec![0; MAX_END_BYTES + 1];
    for (start, end, seq) in [
        (&b"\0b"[..], &b"\0b"[..], 7),
        (b"\0b", b"\0a", 7),
        (b"", b"\0a", 7),
        (b"\0a", b"\0b", 0),
        (b"\0a", b"\0b", SEQ_MAX + 1),
        (b"\0", &long, 7),
        (b"\xF1", b"\xF2", 7),
    ] {
        assert_eq!(
            RangeTombstone::decode(&mut Reader::new(&encode(start, end, seq))),
            None,
            "{start:?} {end:?}"
        );
    }
    // The end of the widest keyspace's longest key.
    let (mut widest, last) =
        (key::Prefix::new(u32::MAX - 1).as_slice().to_vec(), key::bounds_of(u32::MAX - 1).1);
    widest.resize(5 + MAX_KEY_BYTES, 9);
    let end = [&widest[..], &[0]].concat();
    assert!(is_range(&widest, &end) && is_range(&widest, &last));
}

#[test]
fn nested_ranges_take_no_quadratic_space() {
    let bytes = |n: u32| {
        let t = |i: u32| RangeTombstone::new(b"\0", &[&[0][..], &i.to_be_bytes()].concat(), i.into());
        RangeSet::new((1..=n).map(t).collect()).bytes() / u64::from(n)
    };
    assert!(bytes(4096) < 2 * bytes(256), "{} {}", bytes(4096), bytes(256));
}

#[test]
fn adding_one_costs_the_same_however_many_there_are() {
    // By how often tombstones are moved to another set.
    let (mut writer, mut moved, mut most) = (GrowingWriter::default(), 0, 0);
    for i in 1..=20_000u32 {
        let start = [&[0][..], &i.to_be_bytes()].concat();
        let sets = writer.add(RangeTombstone::new(&start, &[&start[..], &[9]].concat(), i.into()));
        moved += sets.sets[0].len();
        most = most.max(sets.sets.len());
    }
    assert!(moved < 20_000 * 64 && most <= 5, "{moved} moves, {most} sets");
}

proptest! {
    #[test]
    fn a_set_finds_what_covers_a_key(all in some(), upto in 0u64..90) {
        let mut ranges = Ranges::default();
        ranges.push(&Arc::new(RangeSet::new(all.clone())));
        check(&ranges, &all, upto);
        let mut sweep = Sweep::new(&Arc::new(RangeSet::new(all.clone())));
        let mut sorted: Vec<_> = keys().collect();
        sorted.sort();
        for key in sorted {
            let mut expected: Vec<Seq> = all.iter().filter(|t| t.covers(&key)).map(|t| t.seq).collect();
            expected.sort();
            prop_assert_eq!(sweep.covering(&key), expected);
        }
        for (lower, upper) in [(&[0u8][..], None), (&[0, 9], Some(&[0u8, 12][..])), (&[0, 30], Some(&[0, 30, 1]))] {
            let meets = |t: &&RangeTombstone| t.seq <= upto && lower < &t.end[..] && upper.is_none_or(|u| &t.start[..] < u);
            let newest = all.iter().filter(meets).map(|t| t.seq).max().unwrap_or(0);
            prop_assert_eq!(ranges.newest_within(lower, upper, upto), newest);
        }
    }

    #[test]
    fn several_sets_are_as_one(all in some(), cuts in prop::collection::vec(0usize..40, 0..4), upto in 0u64..90) {
        let mut sorted = all.clone();
        sorted.sort_by_key(|t| std::cmp::Reverse(t.seq));
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(sorted.len())).chain([0, sorted.len()]).collect();
        cuts.sort();
        let mut ranges = Ranges::default();
        cuts.windows(2).for_each(|w| ranges.push(&Arc::new(RangeSet::new(sorted[w[0]..w[1]].to_vec()))));
        check(&ranges, &all, upto);
    }

    #[test]
    fn what_grows_is_seen_at_every_moment(all in some()) {
        let (growing, mut writer, collector) = (Growing::new(), GrowingWriter::default(), latchfree::epoch::Collector::new());
        let mut added: Vec<RangeTombstone> = vec![];
        for (t, seq) in all.into_iter().zip(1..) {
            prop_assert_eq!(growing.is_empty(), added.is_empty());
            let t = RangeTombstone { seq, ..t };
            growing.add(&mut writer, &collector, t.clone());
            added.push(t);
            for key in keys() {
                prop_assert_eq!(growing.newest(&key, seq), expected(&added, &key, seq));
            }
        }
        check(&growing.get(), &added, 90);
    }

    /// Whatever is left out, every view sees the same of every version.
    #[test]
    fn the_needed_ones_do_what_all_do(all in some(), mut views in prop::collection::vec(0u64..90, 1..5)) {
        views.sort();
        views.dedup();
        let needed = needed(&all, &views);
        let kept: Vec<RangeTombstone> = all.iter().filter(|t| needed.contains(&t.seq)).cloned().collect();
        let newest = *views.last().unwrap();
        for key in keys() {
            for view in views.iter().copied().chain(newest..90) {
                for version in 0..90 {
                    let hidden = |by: &[RangeTombstone]| version <= view && version < expected(by, &key, view);
                    // Between two views no version needs to tell: only what the view's own stripe and older ones hold.
                    prop_assert_eq!(hidden(&all), hidden(&kept), "{:?} view {} version {}", key, view, version);
                }
            }
        }
    }
}
