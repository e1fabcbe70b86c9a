//! What operations are run on: the model, and what every subject answers with.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Bound;

use crate::op::{How, Item, KEYSPACES, Key, Limits, Op, SEPARATOR, SLOTS, View};
use crate::support::Rng;

/// Something that operations are done to. The answer is text, the same for every subject that is right.
pub trait Subject {
    fn run(&mut self, op: &Op) -> String;
}

/// The answer to an operation that names what is not there.
pub const NOTHING: &str = "-";
/// The answer to an operation that gives nothing back.
pub const DONE: &str = "done";

/// How values are shown: long ones by length and hash.
pub fn show(value: &[u8]) -> String {
    // FNV-1a.
    let hash = value
        .iter()
        .fold(0xCBF2_9CE4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01B3));
    format!("{}:{:08x}", value.len(), hash as u32 ^ (hash >> 32) as u32)
}

pub fn show_pairs<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> String {
    let mut out = String::new();
    for (k, v) in pairs {
        let _ = write!(out, "{}={} ", k.escape_ascii(), show(v));
    }
    out
}

/// Takes up to `count` items from one end or both; the order in which they were taken is part of the answer.
pub fn take<T>(mut i: impl DoubleEndedIterator<Item = T>, how: How, count: usize) -> Vec<T> {
    let mut rng = match how {
        How::Mixed(seed) => Some(Rng(seed.into())),
        _ => None,
    };
    let mut taken = Vec::new();
    while taken.len() < count {
        let forward = rng.as_mut().map_or(how == How::Forward, |r| r.chance(2));
        match if forward { i.next() } else { i.next_back() } {
            Some(x) => taken.push(x),
            None => break,
        }
    }
    taken
}

type Map = BTreeMap<Key, Vec<u8>>;
type Pair = (Key, Vec<u8>);

/// What a key has.
#[derive(Clone, Default)]
struct Held {
    /// What was put, and when it expires.
    put: Option<(Vec<u8>, u64)>,
    /// What was merged since, which does not expire.
    merged: Option<Vec<u8>>,
}

impl Held {
    fn merge(&mut self, operand: Vec<u8>) {
        self.merged = joined(self.merged.as_deref(), Some(&operand));
    }

    /// What there is at this time.
    fn at(&self, now: u64) -> Option<Vec<u8>> {
        let put = self.put.as_ref().filter(|(_, at)| *at > now);
        joined(put.map(|(value, _)| value.as_slice()), self.merged.as_deref())
    }
}

/// What comes of a value and an operand.
pub fn joined(a: Option<&[u8]>, b: Option<&[u8]>) -> Option<Vec<u8>> {
    match (a, b) {
        (Some(a), Some(b)) => Some([a, SEPARATOR.as_bytes(), b].concat()),
        (one, None) | (None, one) => one.map(<[u8]>::to_vec),
    }
}

/// A keyspace's pairs by its number among all that ever were, so that a name that was taken again is another one.
type Content = BTreeMap<u64, BTreeMap<Key, Held>>;

/// What a store must do, on maps.
pub struct Model {
    /// The keyspaces that there are: which one each is.
    live: [Option<u64>; KEYSPACES.len()],
    next: u64,
    /// The wall clock's milliseconds.
    now: u64,
    content: Content,
    snapshots: [Option<Content>; SLOTS],
    /// What each has left, and of which keyspace.
    iters: [Option<(u64, Vec<Pair>)>; SLOTS],
}

impl Default for Model {
    fn default() -> Model {
        let mut m = Model {
            live: [None; KEYSPACES.len()],
            next: 1,
            now: 0,
            content: Content::from([(0, BTreeMap::new())]),
            snapshots: [const { None }; SLOTS],
            iters: [const { None }; SLOTS],
        };
        m.live[0] = Some(0);
        m
    }
}

fn within(map: &Map, (lo, hi): &Limits) -> Vec<Pair> {
    let above = |k: &Key| match lo {
        Bound::Included(b) => k >= b,
        Bound::Excluded(b) => k > b,
        Bound::Unbounded => true,
    };
    let below = |k: &Key| match hi {
        Bound::Included(b) => k <= b,
        Bound::Excluded(b) => k < b,
        Bound::Unbounded => true,
    };
    map.iter().filter(|(k, _)| above(k) && below(k)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

impl Model {
    fn write(&mut self, item: &Item) {
        let Some(id) = self.live[item.keyspace] else { return };
        let map = self.content.entry(id).or_default();
        if let Some(limits) = &item.range {
            let keys = map.keys().map(|k| (k.clone(), vec![])).collect();
            within(&keys, limits).iter().for_each(|(k, _)| drop(map.remove(k)));
            return;
        }
        match item.value {
            Some(v) if item.merge => map.entry(item.key.clone()).or_default().merge(v.bytes()),
            Some(v) => {
                let at = item.life.map_or(u64::MAX, |life| self.now + u64::from(life));
                map.insert(item.key.clone(), Held { put: Some((v.bytes(), at)), merged: None });
            }
            None => drop(map.remove(&item.key)),
        }
    }

    /// The pairs of a view; `None` if there is no such keyspace or snapshot.
    fn view(&self, view: View) -> Option<Map> {
        let id = self.live[view.keyspace]?;
        let content = match view.snapshot {
            Some(slot) => self.snapshots[slot].as_ref()?,
            None => &self.content,
        };
        Some(content.get(&id).map(|map| self.there(map)).unwrap_or_default())
    }

    fn create(&mut self, k: usize) -> String {
        if self.live[k].is_none() {
            self.live[k] = Some(self.next);
            self.content.insert(self.next, BTreeMap::new());
            self.next += 1;
        }
        DONE.into()
    }

    fn pass(&mut self, millis: u32) -> String {
        self.now += u64::from(millis);
        self.iters = [const { None }; SLOTS];
        DONE.into()
    }

    /// What has not expired.
    fn there(&self, map: &BTreeMap<Key, Held>) -> Map {
        map.iter().filter_map(|(k, held)| Some((k.clone(), held.at(self.now)?))).collect()
    }

    fn pairs(pairs: &[Pair]) -> String {
        show_pairs(pairs.iter().map(|(k, v)| (k.as_slice(), v.as_slice())))
    }

    /// Everything, as a checkpoint shows it.
    fn all(&self) -> String {
        let mut out = String::new();
        for (name, id) in KEYSPACES.iter().zip(&self.live) {
            if let Some(map) = id.and_then(|id| self.content.get(&id)) {
                let pairs = show_pairs(self.there(map).iter().map(|(k, v)| (k.as_slice(), v.as_slice())));
                let _ = write!(out, "[{name} {pairs}]");
            }
        }
        out
    }
}

impl Subject for Model {
    fn run(&mut self, op: &Op) -> String {
        match op {
            Op::Put(item) => {
                self.write(item);
                DONE.into()
            }
            Op::Batch { items, .. } | Op::Ingest(items) => {
                items.iter().for_each(|i| self.write(i));
                DONE.into()
            }
            Op::Get { view, key } => match self.view(*view) {
                Some(map) => map.get(key).map_or("none".into(), |v| show(v)),
                None => NOTHING.into(),
            },
            Op::MultiGet { view, keys } => match self.view(*view) {
                Some(map) => {
                    let found = keys.iter().map(|k| map.get(k).map_or("none".into(), |v| show(v)));
                    found.collect::<Vec<_>>().join(" ")
                }
                None => NOTHING.into(),
            },
            Op::Scan { view, limits, how, count } => match self.view(*view) {
                Some(map) => Model::pairs(&take(within(&map, limits).into_iter(), *how, *count)),
                None => NOTHING.into(),
            },
            Op::Prefix { view, prefix, how, count } => match self.view(*view) {
                Some(map) => {
                    let all: Vec<_> = map.into_iter().filter(|(k, _)| k.starts_with(prefix)).collect();
                    Model::pairs(&take(all.into_iter(), *how, *count))
                }
                None => NOTHING.into(),
            },
            Op::Snapshot(slot) => {
                self.snapshots[*slot] = Some(self.content.clone());
                DONE.into()
            }
            Op::Release(slot) => {
                self.snapshots[*slot] = None;
                DONE.into()
            }
            Op::Iter { slot, view, limits } => match self.view(*view) {
                Some(map) => {
                    let id = self.live[view.keyspace].expect("it has a view");
                    self.iters[*slot] = Some((id, within(&map, limits)));
                    DONE.into()
                }
                None => NOTHING.into(),
            },
            Op::Step { slot, how, count } => {
                let Some((id, rest)) = self.iters[*slot].take() else { return NOTHING.into() };
                let mut rest = rest.into_iter();
                let taken = take(rest.by_ref(), *how, *count);
                self.iters[*slot] = Some((id, rest.collect()));
                Model::pairs(&taken)
            }
            Op::DropIter(slot) => {
                self.iters[*slot] = None;
                DONE.into()
            }
            Op::Create(k) => self.create(*k),
            Op::DropKeyspace(k) => {
                let Some(id) = self.live[*k].take() else { return "false".into() };
                self.content.remove(&id);
                // What open iterators show of it is not promised.
                for i in &mut self.iters {
                    *i = i.take().filter(|(of, _)| *of != id);
                }
                "true".into()
            }
            Op::Flush | Op::Sync | Op::Compact { .. } | Op::WaitIdle => DONE.into(),
            Op::Pass(millis) => self.pass(*millis),
            Op::Verify => "sound".into(),
            Op::Checkpoint | Op::ReadOnly => self.all(),
            Op::Reopen { .. } => {
                self.snapshots = [const { None }; SLOTS];
                self.iters = [const { None }; SLOTS];
                self.all()
            }
        }
    }
}
