use super::*;
use crate::cursor::{Cursor, ReverseCursor};
use crate::key::{SEQ_MAX, hash};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How much less is done under Miri, which is thousands of times slower.
const LESS: u64 = if cfg!(miri) { 100 } else { 1 };
/// Bytes of a long key: also under Miri far more than a node can skip.
const LONG: usize = if cfg!(miri) { 300 } else { 64 << 10 };

type Version = (Vec<u8>, Reverse<Seq>);
type Content = (Kind, Vec<u8>);
type Model = BTreeMap<Version, Content>;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Shapes of keys: dense and sparse numbers, db_bench's, hex, URLs, prefixes of each other, long ones.
fn key(shape: u64, n: u64, r: &mut Random) -> Vec<u8> {
    let mut k = vec![0];
    match shape {
        0 => {
            k.extend_from_slice(&n.to_be_bytes());
            k.extend_from_slice(b"00000000");
        }
        1 => k.extend_from_slice(format!("{:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).as_bytes()),
        2 => k.extend_from_slice(format!("https://www.example.org/{}/page-{}.html", n % 7, n).as_bytes()),
        // Of zeros and an a or two, so that padding and ties are met.
        3 => k.extend((0..n % 13).map(|i| if n >> (4 + i) & 3 == 0 { b'a' } else { 0 })),
        4 => k.extend(std::iter::repeat_n(b'x', 60).chain(format!("{n}").bytes())),
        5 => k = (0..n % 5).map(|i| (n >> (8 * i)) as u8).collect(),
        6 if n.is_multiple_of(50) => k.resize(LONG, n as u8),
        _ => k.extend((0..r.below(30)).map(|_| r.below(256) as u8)),
    }
    k
}

fn insert(w: &mut MemWriter, model: &mut Model, k: &[u8], seq: Seq, kind: Kind, value: &[u8]) {
    w.insert(k, hash(k), seq, kind, value);
    model.insert((k.to_vec(), Reverse(seq)), (kind, value.to_vec()));
}

fn filled(shapes: &[u64], n: u64, span: u64, seed: u64) -> (Arc<Memtable>, MemWriter, Model) {
    let mut r = Random(seed);
    let (m, mut w) = Memtable::new(1 << 20);
    let mut model = Model::new();
    for seq in 1..=n {
        let shape = shapes[r.below(shapes.len() as u64) as usize];
        let number = r.below(span);
        let k = key(shape, number, &mut r);
        let kind = [Kind::Delete, Kind::Merge, Kind::Put, Kind::Put, Kind::Put][r.below(5) as usize];
        let len = if r.below(300) == 0 { 5000 / LESS } else { r.below(40) };
        let value: Vec<u8> = (0..len).map(|_| seq as u8).collect();
        insert(&mut w, &mut model, &k, seq, kind, if kind.has_value() { &value } else { b"" });
    }
    assert_eq!(m.entries(), n);
    assert!(!m.is_empty() && m.bytes() > n * 24);
    (m, w, model)
}

fn at(c: &MemCursor) -> Option<(Version, Content)> {
    c.valid().then(|| ((c.key().to_vec(), Reverse(c.seq())), (c.kind(), c.value().to_vec())))
}

fn owned(e: Option<(&Version, &Content)>) -> Option<(Version, Content)> {
    e.map(|(k, v)| (k.clone(), v.clone()))
}

fn check(m: &Arc<Memtable>, model: &Model, shapes: &[u64], span: u64) {
    let mut r = Random(99);
    let mut c = m.cursor();
    assert!(!c.valid());
    c.seek_to_first().unwrap();
    for e in model.iter() {
        assert_eq!(at(&c), owned(Some(e)));
        c.next().unwrap();
    }
    assert!(!c.valid());
    c.seek_to_last().unwrap();
    for e in model.iter().rev() {
        assert_eq!(at(&c), owned(Some(e)));
        c.prev().unwrap();
    }
    assert!(!c.valid());
    for _ in 0..if cfg!(miri) { 4 } else { 1500 } {
        let shape = shapes[r.below(shapes.len() as u64) as usize];
        let number = r.below(span + 3);
        let mut k = key(shape, number, &mut r);
        match r.below(4) {
            0 => k.push(0),
            1 => drop(k.pop()),
            _ => {}
        }
        let seq = if r.below(3) == 0 { SEQ_MAX } else { r.below(model.len() as u64 + 2) };
        let expected = model.range((k.clone(), Reverse(seq))..).next().filter(|e| e.0.0 == k);
        let got = m.get(&k, hash(&k), seq);
        assert_eq!(
            got.map(|e| (e.seq, e.kind, e.value.to_vec())),
            expected.map(|((_, s), (kind, v))| (s.0, *kind, v.clone()))
        );
        let from = (k.clone(), Reverse(SEQ_MAX));
        c.seek(&k).unwrap();
        assert_eq!(at(&c), owned(model.range(from.clone()..).next()));
        // Wander about, in both directions.
        for _ in 0..r.below(12) {
            let Some((here, _)) = at(&c) else { break };
            if r.below(2) == 0 {
                c.next().unwrap();
                let after = (Bound::Excluded(here), Bound::Unbounded);
                assert_eq!(at(&c), owned(model.range(after).next()));
            } else {
                c.prev().unwrap();
                assert_eq!(at(&c), owned(model.range(..here).next_back()));
            }
        }
        c.seek_before(&k).unwrap();
        assert_eq!(at(&c), owned(model.range(..from).next_back()));
    }
}

#[test]
fn an_empty_memtable_has_nothing() {
    let (m, w) = Memtable::new(0);
    assert!(m.is_empty() && Arc::ptr_eq(&m, w.memtable()));
    assert_eq!(m.get(b"", hash(b""), SEQ_MAX), None);
    m.prefetch(hash(b""));
    check(&m, &Model::new(), &[0, 5], 10);
}

#[test]
fn each_shape_of_key_agrees_with_the_model() {
    for shape in 0..8 {
        for span in [40, 2000, 1 << 40].into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
            // Under Miri few keys, with versions; the next test splits nodes.
            let (m, _w, model) = filled(&[shape], if cfg!(miri) { 24 } else { 7000 }, span, 7 + shape);
            check(&m, &model, &[shape], span);
        }
    }
}

#[test]
fn mixed_shapes_agree_with_the_model() {
    let shapes = [0, 1, 2, 3, 4, 5, 6, 7];
    let (n, seeds) = if cfg!(miri) { (90, 1..2) } else { (12_000, 1..4) };
    for seed in seeds {
        let (m, _w, model) = filled(&shapes, n, 3000, seed);
        check(&m, &model, &shapes, 3000);
    }
}

#[test]
fn keys_in_order_and_in_reverse_order_agree_with_the_model() {
    // Under Miri enough for a second leaf.
    const N: u64 = if cfg!(miri) { 70 } else { 20_000 };
    for order in 0..3 {
        let (m, mut w) = Memtable::new(1 << 20);
        let mut model = Model::new();
        let mut r = Random(5);
        for i in 0..N {
            let n = [i, 1 << 30 | (N - i), (i % 3) << 32 | i][order];
            insert(&mut w, &mut model, &key(0, n, &mut r), i + 1, Kind::Put, b"v");
        }
        check(&m, &model, &[0], N);
        if order == 0 && LESS == 1 {
            // Leaves are filled: 64 entries of 16 bytes and a header.
            assert!(m.tree.bytes() < 20_000 * 18, "{}", m.tree.bytes());
        }
    }
}

#[test]
fn large_values_are_kept() {
    let (m, mut w) = Memtable::new(1 << 20);
    // A chunk of the arena is smaller under Miri.
    let unit = if cfg!(miri) { 8 << 10 } else { 1 << 20 };
    let lens = [0, unit, 3 * unit, 2 * unit - 40, 9 * unit];
    for (i, len) in (0..5u8).zip(lens) {
        w.insert(&[i], hash(&[i]), i as u64 + 1, Kind::Put, &vec![i; len]);
        w.insert(b"same", hash(b"same"), i as u64 + 1, Kind::Put, &vec![i + 100; len]);
    }
    let mut c = m.cursor();
    c.seek(b"same").unwrap();
    for (i, len) in (0..5u8).zip(lens).rev() {
        assert!(m.get(&[i], hash(&[i]), SEQ_MAX).unwrap().value == vec![i; len]);
        assert!(m.get(b"same", hash(b"same"), i as u64 + 1).unwrap().value == vec![i + 100; len]);
        assert!(c.seq() == i as u64 + 1 && c.value() == vec![i + 100; len]);
        c.next().unwrap();
    }
    assert!(!c.valid());
}

/// Even numbers are there from the start, odd ones come while readers run.
/// From where the cursor is: every even key of `old` versions, one after the other, whatever is inserted between them.
fn no_old_key_is_skipped(
    c: &mut MemCursor,
    forward: bool,
    start: u64,
    steps: u64,
    old: u64,
    make: fn(u64) -> Vec<u8>,
) {
    let mut expect = start as i64;
    let mut last: Option<Version> = None;
    for _ in 0..steps {
        if !c.valid() {
            assert!(if forward { expect >= old as i64 } else { expect < 0 });
            break;
        }
        let here = (c.key().to_vec(), Reverse(c.seq()));
        assert_eq!(c.value(), c.key());
        if let Some(last) = &last {
            assert!(if forward { *last < here } else { *last > here });
        }
        if c.seq() <= old {
            assert_eq!(c.key(), make(expect as u64));
            expect += if forward { 2 } else { -2 };
        }
        last = Some(here);
        if forward { c.next().unwrap() } else { c.prev().unwrap() }
    }
}

#[test]
fn readers_meanwhile_never_skip_what_was_there() {
    // Under Miri the odd keys split the one leaf, and three times as many new versions follow.
    const N: u64 = if cfg!(miri) { 80 } else { 20_000 };
    const NEWER: u64 = if cfg!(miri) { 3 } else { 5 };
    let shapes: [fn(u64) -> Vec<u8>; 2] = [
        |n| [&[0][..], &n.to_be_bytes(), b"00000000"].concat(),
        |n| format!("\0http://example.com/{n:08}").into_bytes(),
    ];
    for make in shapes {
        let (m, mut w) = Memtable::new(1 << 20);
        for n in (0..N).step_by(2) {
            let k = make(n);
            w.insert(&k, hash(&k), n + 1, Kind::Put, &k);
        }
        let stop = AtomicBool::new(false);
        let newest = AtomicU64::new(N);
        std::thread::scope(|s| {
            for t in 0..3u64 {
                let (m, stop, newest) = (&m, &stop, &newest);
                s.spawn(move || {
                    let mut r = Random(t + 1);
                    let mut c = m.cursor();
                    let mut rounds = 0;
                    while !stop.load(Ordering::Relaxed) || rounds < 5 {
                        rounds += 1;
                        let visible = newest.load(Ordering::Acquire);
                        let start = r.below(N) / 2 * 2;
                        let steps = r.below(400 / LESS);
                        let k = make(start);
                        match t {
                            0 => {
                                let e = m.get(&k, hash(&k), visible).unwrap();
                                assert_eq!(e.value, k);
                                // What was inserted before `visible` was published is there.
                                let odd = make((visible - N).saturating_sub(1) % (N / 2) * 2 + 1);
                                assert_eq!(m.get(&odd, hash(&odd), visible).is_some(), visible > N);
                                continue;
                            }
                            1 => c.seek(&k).unwrap(),
                            _ => c.seek_before(&make(start + 1)).unwrap(),
                        }
                        no_old_key_is_skipped(&mut c, t == 1, start, steps, N, make);
                    }
                });
            }
            let mut r = Random(3);
            for i in 0..N / 2 * (1 + NEWER) {
                // Odd keys in a known order, then new versions of them in a random one.
                let n = if i < N / 2 { i * 2 + 1 } else { r.below(N / 2) * 2 + 1 };
                let k = make(n);
                w.insert(&k, hash(&k), N + 1 + i, Kind::Put, &k);
                if i < N / 2 {
                    newest.store(N + 1 + i, Ordering::Release);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(m.entries(), N / 2 * (2 + NEWER));
    }
}
