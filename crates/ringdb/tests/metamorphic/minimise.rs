//! Makes a failing list of operations small: delta debugging (Zeller, Hildebrandt 2002) on the operations, then on
//! what is in them, then on keys and values.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::op::{How, Item, Key, Limits, Op, View};

/// The smallest list found for which `fails` still holds. `fails` is asked at most `budget` times.
pub fn minimise(ops: Vec<Op>, budget: usize, mut fails: impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    let mut m = Minimiser { budget, fails: &mut fails };
    let mut ops = ops;
    loop {
        let before = (ops.len(), format!("{ops:?}").len());
        ops = m.fewer(ops, |ops| ops.to_vec());
        for i in 0..ops.len() {
            ops = m.within(ops, i);
        }
        ops = m.shorter_keys(ops);
        if (ops.len(), format!("{ops:?}").len()) == before || m.budget == 0 {
            return ops;
        }
    }
}

struct Minimiser<'f> {
    budget: usize,
    fails: &'f mut dyn FnMut(&[Op]) -> bool,
}

impl Minimiser<'_> {
    fn fails(&mut self, ops: &[Op]) -> bool {
        if self.budget == 0 {
            return false;
        }
        self.budget -= 1;
        (self.fails)(ops)
    }

    /// Leaves out as many of `items` as can be: pieces of half the list first, single ones last.
    fn fewer<T: Clone>(&mut self, mut items: Vec<T>, list: impl Fn(&[T]) -> Vec<Op>) -> Vec<T> {
        let mut size = items.len().div_ceil(2);
        while size > 0 && !items.is_empty() {
            let mut at = 0;
            while at < items.len() {
                let end = (at + size).min(items.len());
                let rest = [&items[..at], &items[end..]].concat();
                if self.fails(&list(&rest)) {
                    items = rest;
                } else {
                    at = end;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
        items
    }

    /// Tries `change` of operation `i`.
    fn try_one(&mut self, ops: &mut Vec<Op>, i: usize, change: Op) -> bool {
        if ops[i] == change {
            return false;
        }
        let mut other = ops.clone();
        other[i] = change;
        let fails = self.fails(&other);
        if fails {
            *ops = other;
        }
        fails
    }

    /// Makes operation `i` simpler.
    fn within(&mut self, mut ops: Vec<Op>, i: usize) -> Vec<Op> {
        let with = |op: Op, ops: &[Op]| {
            let mut all = ops.to_vec();
            all[i] = op;
            all
        };
        match ops[i].clone() {
            Op::Batch { durability, items } => {
                let batch = |items: &[Item]| Op::Batch { durability, items: items.to_vec() };
                let base = ops.clone();
                let items = self.fewer(items, |items| with(batch(items), &base));
                ops[i] = batch(&items);
                self.try_one(&mut ops, i, Op::Batch { durability: None, items: items.clone() });
                if let [one] = items.as_slice() {
                    self.try_one(&mut ops, i, Op::Put(one.clone()));
                }
            }
            Op::Ingest(items) => {
                let base = ops.clone();
                let items = self.fewer(items, |items| with(Op::Ingest(items.to_vec()), &base));
                ops[i] = Op::Ingest(items.clone());
                self.try_one(&mut ops, i, Op::Batch { durability: None, items });
            }
            Op::MultiGet { view, keys } => {
                let base = ops.clone();
                let keys = self.fewer(keys, |keys| with(Op::MultiGet { view, keys: keys.to_vec() }, &base));
                if let [key] = keys.as_slice() {
                    ops[i] = Op::MultiGet { view, keys: keys.clone() };
                    self.try_one(&mut ops, i, Op::Get { view, key: key.clone() });
                } else {
                    ops[i] = Op::MultiGet { view, keys };
                }
            }
            Op::Scan { view, limits, how, .. } => self.scan(&mut ops, i, view, limits, how),
            // A prefix and the keys that have it are not renamed together.
            Op::Prefix { view, .. } => {
                let limits = (Bound::Unbounded, Bound::Unbounded);
                self.try_one(&mut ops, i, Op::Scan { view, limits, how: How::Forward, count: usize::MAX });
            }
            Op::Iter { slot, view, .. } => {
                let limits = (Bound::Unbounded, Bound::Unbounded);
                self.try_one(&mut ops, i, Op::Iter { slot, view, limits });
            }
            Op::Compact { keyspace, .. } => {
                let limits = (Bound::Unbounded, Bound::Unbounded);
                self.try_one(&mut ops, i, Op::Compact { keyspace, limits });
            }
            Op::Put(_) => {}
            _ => return ops,
        }
        for len in [0, 1, 100, 1000] {
            let mut op = ops[i].clone();
            let items: &mut [Item] = match &mut op {
                Op::Put(item) => std::slice::from_mut(item),
                Op::Batch { items, .. } | Op::Ingest(items) => items,
                _ => break,
            };
            items.iter_mut().filter_map(|i| i.value.as_mut()).for_each(|v| v.len = v.len.min(len));
            if self.try_one(&mut ops, i, op) {
                break;
            }
        }
        ops
    }

    /// A scan of more, or one that goes one way.
    fn scan(&mut self, ops: &mut Vec<Op>, i: usize, view: View, limits: Limits, how: How) {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let scan = |limits, how| Op::Scan { view, limits, how, count: usize::MAX };
        let _ = self.try_one(ops, i, scan(all.clone(), How::Forward))
            || self.try_one(ops, i, scan(all, How::Backward))
            || self.try_one(ops, i, scan((limits.0.clone(), Bound::Unbounded), how))
            || self.try_one(ops, i, scan((Bound::Unbounded, limits.1.clone()), how))
            || self.try_one(ops, i, scan(limits, how));
    }

    /// Gives keys short names, everywhere at once, in an order like theirs.
    fn shorter_keys(&mut self, mut ops: Vec<Op>) -> Vec<Op> {
        let mut keys = BTreeSet::new();
        ops.iter_mut().for_each(|op| {
            each_key(op, &mut |k| {
                keys.insert(k.clone());
            })
        });
        let short: Vec<(Key, Key)> = (0u32..)
            .zip(&keys)
            .map(|(i, k)| {
                (k.clone(), if keys.len() <= 26 { vec![b'a' + i as u8] } else { format!("k{i:03}").into() })
            })
            .collect();
        let rename = |ops: &[Op], which: &dyn Fn(&Key) -> Option<Key>| {
            let mut ops = ops.to_vec();
            ops.iter_mut().for_each(|op| {
                each_key(op, &mut |k| {
                    if let Some(new) = which(k) {
                        *k = new;
                    }
                });
            });
            ops
        };
        let all = rename(&ops, &|k| short.iter().find(|(old, _)| old == k).map(|(_, new)| new.clone()));
        if all != ops && self.fails(&all) {
            return all;
        }
        for (old, new) in &short {
            if new.len() < old.len() && !keys.contains(new) {
                let one = rename(&ops, &|k| (k == old).then(|| new.clone()));
                if self.fails(&one) {
                    ops = one;
                }
            }
        }
        ops
    }
}

fn each_key(op: &mut Op, f: &mut dyn FnMut(&mut Key)) {
    let bound = |b: &mut Bound<Key>, f: &mut dyn FnMut(&mut Key)| match b {
        Bound::Included(k) | Bound::Excluded(k) => f(k),
        Bound::Unbounded => {}
    };
    let of_item = |item: &mut Item, f: &mut dyn FnMut(&mut Key)| match &mut item.range {
        Some(limits) => {
            bound(&mut limits.0, f);
            bound(&mut limits.1, f);
        }
        None => f(&mut item.key),
    };
    match op {
        Op::Put(item) => of_item(item, f),
        Op::Batch { items, .. } | Op::Ingest(items) => items.iter_mut().for_each(|i| of_item(i, f)),
        Op::Get { key, .. } => f(key),
        Op::MultiGet { keys, .. } => keys.iter_mut().for_each(f),
        Op::Prefix { prefix, .. } => f(prefix),
        Op::Scan { limits, .. } | Op::Iter { limits, .. } | Op::Compact { limits, .. } => {
            bound(&mut limits.0, f);
            bound(&mut limits.1, f);
        }
        _ => {}
    }
}
