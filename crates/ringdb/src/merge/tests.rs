//! The merge against one sorted vector.

use proptest::prelude::*;

use super::*;
use crate::cursor::model::{Entry, VecCursor};
use crate::error::Error;

/// A move of the cursor.
#[derive(Clone, Debug)]
enum Step {
    Seek(Vec<u8>),
    SeekBefore(Vec<u8>),
    First,
    Last,
    Next(u8),
    Prev(u8),
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        // Dense numbers with leading zeros, as db_bench writes them.
        3 => (0u32..600).prop_map(|n| format!("\0user:{n:012}").into_bytes()),
        1 => prop::collection::vec(prop_oneof![Just(0u8), Just(b'a'), Just(255u8)], 0..12),
        1 => (0u64..2000).prop_map(|n| [&[0][..], &n.to_be_bytes(), b"00000000"].concat()),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        keys().prop_map(Step::Seek),
        keys().prop_map(Step::SeekBefore),
        Just(Step::First),
        Just(Step::Last),
        (0u8..200).prop_map(Step::Next),
        (0u8..200).prop_map(Step::Prev),
        (0u8..4).prop_map(Step::Next),
        (0u8..4).prop_map(Step::Prev),
    ];
    prop::collection::vec(step, 1..30)
}

/// Entries spread over the sources by their number, all versions distinct.
fn spread(keys: Vec<(Vec<u8>, u8)>, sources: usize) -> (Vec<VecCursor>, VecCursor) {
    let mut parts = vec![Vec::new(); sources];
    let mut all = Vec::new();
    for (i, (key, place)) in keys.into_iter().enumerate() {
        let kind = if place % 5 == 0 { Kind::Delete } else { Kind::Put };
        let e = Entry { key, seq: i as Seq + 1, kind, value: vec![place; (place % 3) as usize] };
        all.push(e.clone());
        // The first source dominates.
        let to = if place % 2 == 0 { 0 } else { place as usize % sources };
        parts[to].push(e);
    }
    (parts.into_iter().map(VecCursor::new).collect(), VecCursor::new(all))
}

fn same(a: &impl Cursor, b: &impl Cursor) -> bool {
    a.valid() == b.valid()
        && (!a.valid() || (a.key(), a.seq(), a.kind(), a.value()) == (b.key(), b.seq(), b.kind(), b.value()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn equals_the_sorted_union(
        entries in prop::collection::vec((keys(), any::<u8>()), 0..400),
        sources in 1usize..9,
        steps in steps(),
    ) {
        let (parts, mut model) = spread(entries, sources);
        let mut merge = MergeCursor::new(parts);
        prop_assert!(!merge.valid());
        for step in steps {
            match &step {
                Step::Seek(k) => { merge.seek(k)?; model.seek(k)?; }
                Step::SeekBefore(k) => { merge.seek_before(k)?; model.seek_before(k)?; }
                Step::First => { merge.seek_to_first()?; model.seek_to_first()?; }
                Step::Last => { merge.seek_to_last()?; model.seek_to_last()?; }
                Step::Next(n) => for _ in 0..*n {
                    if !model.valid() { break }
                    merge.next()?;
                    model.next()?;
                    prop_assert!(same(&merge, &model));
                },
                Step::Prev(n) => for _ in 0..*n {
                    if !model.valid() { break }
                    merge.prev()?;
                    model.prev()?;
                    prop_assert!(same(&merge, &model));
                },
            }
            prop_assert!(same(&merge, &model), "after {step:?}");
        }
    }
}

#[test]
fn long_merges_renew_their_anchor() {
    let entries: Vec<(Vec<u8>, u8)> = (0..20_000u32)
        .map(|i| {
            let n = i.wrapping_mul(2_654_435_761) % 30_000;
            (format!("\0k{:010}", n / 3).into_bytes(), (n % 251) as u8)
        })
        .collect();
    let (parts, mut model) = spread(entries, 7);
    let mut merge = MergeCursor::new(parts);
    merge.seek_to_first().unwrap();
    model.seek_to_first().unwrap();
    while model.valid() {
        assert!(same(&merge, &model));
        merge.next().unwrap();
        model.next().unwrap();
    }
    assert!(!merge.valid());
    merge.seek_to_last().unwrap();
    model.seek_to_last().unwrap();
    while model.valid() {
        assert!(same(&merge, &model));
        merge.prev().unwrap();
        model.prev().unwrap();
    }
    assert!(!merge.valid());
}

/// Fails its `left`-th move.
struct Failing {
    inner: VecCursor,
    left: u32,
}

impl Failing {
    fn step(&mut self) -> Result<()> {
        self.left = self.left.checked_sub(1).ok_or(Error::Closed)?;
        Ok(())
    }
}

impl Cursor for Failing {
    fn valid(&self) -> bool {
        self.inner.valid()
    }
    fn key(&self) -> &[u8] {
        self.inner.key()
    }
    fn seq(&self) -> Seq {
        self.inner.seq()
    }
    fn kind(&self) -> Kind {
        self.inner.kind()
    }
    fn value(&self) -> &[u8] {
        self.inner.value()
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.step()?;
        self.inner.seek(key)
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.step()?;
        self.inner.seek_to_first()
    }
    fn next(&mut self) -> Result<()> {
        self.step()?;
        self.inner.next()
    }
}

impl ReverseCursor for Failing {
    fn seek_to_last(&mut self) -> Result<()> {
        self.step()?;
        self.inner.seek_to_last()
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.step()?;
        self.inner.seek_before(key)
    }

    fn prev(&mut self) -> Result<()> {
        self.step()?;
        self.inner.prev()
    }
}

#[test]
fn an_error_of_a_source_leaves_no_position() {
    let entries: Vec<(Vec<u8>, u8)> = (0..100u8).map(|i| (vec![0, i], i)).collect();
    for left in 0..60 {
        let (parts, _) = spread(entries.clone(), 3);
        let sources = parts.into_iter().map(|inner| Failing { inner, left }).collect();
        let mut merge = MergeCursor::new(sources);
        let mut r = merge.seek_to_first();
        for _ in 0..30 {
            if r.is_err() || !merge.valid() {
                break;
            }
            r = merge.next();
        }
        for _ in 0..30 {
            if r.is_err() || !merge.valid() {
                break;
            }
            r = merge.prev();
        }
        if left < 20 {
            assert!(matches!(r, Err(Error::Closed)), "{left}");
        }
        if r.is_err() {
            assert!(!merge.valid());
        }
    }
}

/// A source that moves by itself, which the merge cannot know.
struct Slipping {
    inner: VecCursor,
    slips: std::rc::Rc<Cell<bool>>,
}

impl Cursor for Slipping {
    fn valid(&self) -> bool {
        self.inner.valid()
    }
    fn key(&self) -> &[u8] {
        if self.slips.get() { b"a" } else { self.inner.key() }
    }
    fn seq(&self) -> Seq {
        self.inner.seq()
    }
    fn kind(&self) -> Kind {
        self.inner.kind()
    }
    fn value(&self) -> &[u8] {
        self.inner.value()
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.inner.seek(key)
    }
    fn seek_to_first(&mut self) -> Result<()> {
        self.inner.seek_to_first()
    }
    fn next(&mut self) -> Result<()> {
        self.inner.next()
    }
}

impl ReverseCursor for Slipping {
    fn seek_to_last(&mut self) -> Result<()> {
        self.inner.seek_to_last()
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.inner.seek_before(key)
    }

    fn prev(&mut self) -> Result<()> {
        self.inner.prev()
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a merge stands on the first of its sources' versions")]
fn a_version_that_was_passed_over_is_noticed() {
    let source = |keys: [&str; 2], slips| {
        let entry = |k: &str| Entry { key: k.into(), seq: 1, kind: Kind::Put, value: vec![] };
        Slipping { inner: VecCursor::new(keys.map(entry).to_vec()), slips }
    };
    let slips = std::rc::Rc::new(Cell::new(false));
    let mut merge =
        MergeCursor::new(vec![source(["b", "c"], std::rc::Rc::default()), source(["d", "e"], slips.clone())]);
    merge.seek_to_first().unwrap();
    slips.set(true);
    merge.next().unwrap();
}
