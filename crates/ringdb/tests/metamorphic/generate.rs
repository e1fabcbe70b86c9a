//! Lists of operations from a seed.

use std::ops::Bound;

use ringdb::Durability;

use crate::op::{How, Item, Key, Limits, Op, SLOTS, Val, View};
use crate::support::Rng;

struct Generator {
    rng: Rng,
    /// Keys that were written, so that reads often find something.
    known: Vec<Key>,
    seed: u32,
}

/// `count` operations.
pub fn generate(seed: u64, count: usize) -> Vec<Op> {
    let mut g = Generator { rng: Rng(seed), known: Vec::new(), seed: 0 };
    let mut ops = vec![Op::Create(1), Op::Create(2)];
    ops.extend((2..count).map(|_| g.op()));
    // At the end, everything that there is.
    for keyspace in 0..4 {
        let view = View { keyspace, snapshot: None };
        let limits = (Bound::Unbounded, Bound::Unbounded);
        ops.push(Op::Scan { view, limits, how: How::Forward, count: usize::MAX });
    }
    ops
}

impl Generator {
    fn keyspace(&mut self) -> usize {
        *self.rng.pick(&[0, 0, 0, 1, 1, 2, 3])
    }

    fn view(&mut self) -> View {
        let snapshot = self.rng.chance(3).then(|| self.slot());
        View { keyspace: self.keyspace(), snapshot }
    }

    fn slot(&mut self) -> usize {
        self.rng.below(SLOTS as u64) as usize
    }

    fn key(&mut self) -> Key {
        if self.known.is_empty() || self.rng.chance(3) {
            return self.rng.key();
        }
        let mut key = self.rng.pick(&self.known).clone();
        match self.rng.below(12) {
            0 => key.push(0),
            1 => drop(key.pop()),
            _ => {}
        }
        key
    }

    fn value(&mut self) -> Val {
        self.seed += 1;
        let len = match self.rng.below(60) {
            0 => 0,
            1 => self.rng.below(40_000),
            2..=6 => self.rng.below(3000),
            _ => self.rng.below(400),
        };
        Val { len: len as u32, seed: self.seed }
    }

    fn item(&mut self, delete_one_in: u64) -> Item {
        if self.rng.chance(25) {
            return Item {
                keyspace: self.keyspace(),
                key: Key::new(),
                value: None,
                merge: false,
                life: None,
                range: Some(self.deleted()),
            };
        }
        let (keyspace, key) = (self.keyspace(), self.key());
        let value = (!self.rng.chance(delete_one_in)).then(|| self.value());
        if value.is_some() && self.known.len() < 3000 {
            self.known.push(key.clone());
        }
        let merge = value.is_some() && self.rng.chance(4);
        let life = (value.is_some() && !merge && self.rng.chance(6)).then(|| 1 + self.rng.below(4) as u32);
        Item { keyspace, key, value, merge, life, range: None }
    }

    /// Any keys, or some that lie side by side.
    fn ingested(&mut self) -> Vec<Item> {
        let (keyspace, near) = (self.keyspace(), self.key());
        let beside = self.rng.chance(2);
        let count = 1 + self.rng.below(80);
        let item = |g: &mut Generator| {
            let mut key = if beside { near.clone() } else { g.key() };
            if beside {
                key.extend(g.rng.below(1 << 16).to_be_bytes());
            }
            if g.known.len() < 3000 {
                g.known.push(key.clone());
            }
            Item { keyspace, key, value: Some(g.value()), merge: false, life: None, range: None }
        };
        (0..count).map(|_| item(self)).collect()
    }

    /// Mostly a few keys side by side, so that there is something left; at times all that there are.
    fn deleted(&mut self) -> Limits {
        if self.known.is_empty() || self.rng.chance(12) {
            return self.limits();
        }
        let mut from = self.rng.pick(&self.known).clone();
        from.truncate(1.max(self.rng.below(24) as usize));
        let mut to = from.clone();
        match (to.pop(), self.rng.below(3)) {
            (Some(last), 0) if last < 255 => to.push(last + 1),
            (Some(last), _) => to.extend([last, self.rng.below(256) as u8]),
            (None, _) => to.push(0),
        }
        let bound = |k, with| if with { Bound::Included(k) } else { Bound::Excluded(k) };
        (bound(from, !self.rng.chance(4)), bound(to, self.rng.chance(3)))
    }

    fn limits(&mut self) -> Limits {
        let mut bound = || match self.rng.below(3) {
            0 => None,
            n => Some((self.key(), n == 1)),
        };
        let (mut lo, mut hi) = (bound(), bound());
        if let (Some(a), Some(b)) = (&lo, &hi)
            && a.0 > b.0
            && !self.rng.chance(10)
        {
            // Mostly ranges that are not empty.
            std::mem::swap(&mut lo, &mut hi);
        }
        let bound = |b: Option<(Key, bool)>| match b {
            None => Bound::Unbounded,
            Some((k, true)) => Bound::Included(k),
            Some((k, false)) => Bound::Excluded(k),
        };
        (bound(lo), bound(hi))
    }

    fn how(&mut self) -> How {
        match self.rng.below(4) {
            0 | 1 => How::Forward,
            2 => How::Backward,
            _ => How::Mixed(self.rng.next() as u32),
        }
    }

    fn count(&mut self) -> usize {
        if self.rng.chance(4) { usize::MAX } else { self.rng.below(60) as usize }
    }

    fn op(&mut self) -> Op {
        match self.rng.below(1000) {
            0..430 => Op::Put(self.item(6)),
            430..590 => {
                let n = self.rng.below(25);
                let durability = match self.rng.below(8) {
                    0 => Some(Durability::Sync),
                    1 => Some(Durability::Process),
                    2 => Some(Durability::None),
                    _ => None,
                };
                Op::Batch { durability, items: (0..n).map(|_| self.item(4)).collect() }
            }
            590..690 => Op::Get { view: self.view(), key: self.key() },
            690..740 => {
                let n = self.rng.below(60);
                Op::MultiGet { view: self.view(), keys: (0..n).map(|_| self.key()).collect() }
            }
            740..810 => {
                let (view, limits, how) = (self.view(), self.limits(), self.how());
                Op::Scan { view, limits, how, count: self.count() }
            }
            810..830 => {
                let (view, how) = (self.view(), self.how());
                let mut prefix =
                    if self.rng.chance(4) { vec![255; self.rng.below(3) as usize] } else { self.key() };
                prefix.truncate(self.rng.below(12) as usize);
                Op::Prefix { view, prefix, how, count: self.count() }
            }
            830..855 => Op::Snapshot(self.slot()),
            855..865 => Op::Release(self.slot()),
            865..885 => Op::Iter { slot: self.slot(), view: self.view(), limits: self.limits() },
            885..935 => {
                let (slot, how) = (self.slot(), self.how());
                Op::Step { slot, how, count: self.rng.below(50) as usize }
            }
            935..940 => Op::DropIter(self.slot()),
            940..948 => Op::Ingest(self.ingested()),
            948..950 => Op::Create(1 + self.rng.below(3) as usize),
            950..954 => Op::DropKeyspace(1 + self.rng.below(3) as usize),
            954..964 => Op::Flush,
            964..970 => Op::Sync,
            970..972 => Op::Pass(1 + self.rng.below(2) as u32),
            972..981 => Op::Compact { keyspace: self.keyspace(), limits: self.limits() },
            981..983 => Op::WaitIdle,
            983..986 => Op::Verify,
            986..989 => Op::Checkpoint,
            989..992 => Op::ReadOnly,
            _ => Op::Reopen { close: self.rng.chance(2) },
        }
    }
}
