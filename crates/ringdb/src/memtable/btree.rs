//! The B+tree: one writer, readers that never wait for a lock.
//!
//! A reader goes from the root to a leaf, taking each child's version before it checks the parent's again, so that
//! a split, which makes parent and child odd together, sends it back to the root. Nodes only split, to the right;
//! they are never merged or freed.

use super::node::{FANOUT, INNER_WORDS, LEAF_WORDS, Node, Pool, Torn};
use latchfree::AppendArena;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Which leaf to go to.
#[derive(Clone, Copy)]
pub(super) enum Toward<'a> {
    /// The one that has this key or would have it.
    Key(&'a [u8]),
    /// The one that has the last key before this one, if any has.
    Before(&'a [u8]),
    First,
    Last,
}

pub(super) struct BTree {
    /// Height (0: the root is a leaf) << 32 | node.
    root: AtomicU64,
    leaves: Pool,
    inners: Pool,
}

/// What the writer remembers between insertions, to see keys that come in order.
#[derive(Default)]
pub(super) struct LastInsert {
    leaf: u32,
    index: usize,
}

/// Where a new key goes.
pub(super) struct InsertAt<'a> {
    leaf: Node<'a>,
    leaf_id: u32,
    parent: Option<(Node<'a>, usize)>,
    index: usize,
}

impl BTree {
    pub fn new() -> BTree {
        let leaves = Pool::new(LEAF_WORDS);
        let root = leaves.add();
        BTree { root: AtomicU64::new(root as u64), leaves, inners: Pool::new(INNER_WORDS) }
    }

    /// Bytes of nodes in use.
    pub fn bytes(&self) -> u64 {
        self.leaves.bytes() + self.inners.bytes()
    }

    /// Bytes of memory that the nodes take.
    pub fn reserved(&self) -> u64 {
        self.leaves.reserved() + self.inners.reserved()
    }

    #[inline(always)]
    fn node(&self, height: u64, id: u32) -> Result<Node<'_>, Torn> {
        if height == 0 { self.leaves.node(id) } else { self.inners.node(id) }
    }

    /// A leaf by its number.
    pub fn leaf(&self, id: u32) -> Result<Node<'_>, Torn> {
        self.leaves.node(id)
    }

    /// The child to go on with.
    #[inline(always)]
    fn choose(node: &Node<'_>, toward: Toward<'_>, arena: &AppendArena) -> Result<usize, Torn> {
        Ok(match toward {
            Toward::Key(key) => {
                let (at, equal) = node.find(key, arena)?;
                at - usize::from(equal.is_none())
            }
            Toward::Before(key) => node.find(key, arena)?.0 - 1,
            Toward::First => 0,
            Toward::Last => node.len().saturating_sub(1),
        })
    }

    /// The leaf, and its version at a moment when it was the right one.
    #[inline]
    pub fn descend(&self, toward: Toward<'_>, arena: &AppendArena) -> Result<(Node<'_>, u64), Torn> {
        self.descend_by(toward, arena, |_, _| ())
    }

    /// The same; `passed` is told the place of each child that it goes to, and of how many.
    #[inline(always)]
    fn descend_by(
        &self,
        toward: Toward<'_>,
        arena: &AppendArena,
        mut passed: impl FnMut(usize, usize),
    ) -> Result<(Node<'_>, u64), Torn> {
        let root = self.root.load(Acquire);
        let mut height = root >> 32;
        let mut node = self.node(height, root as u32)?;
        let mut version = node.version();
        // A root that was split was replaced before.
        if self.root.load(Acquire) != root {
            return Err(Torn);
        }
        while height > 0 {
            height -= 1;
            let at = Self::choose(&node, toward, arena)?;
            passed(at, node.len());
            let child = node.child(at);
            let child = self.node(height, child)?;
            child.prefetch();
            let child_version = child.version();
            if !node.validate(version) {
                return Err(Torn);
            }
            (node, version) = (child, child_version);
        }
        Ok((node, version))
    }

    /// The record of `key`.
    #[inline]
    pub fn get(&self, key: &[u8], arena: &AppendArena) -> Option<u64> {
        loop {
            let found = self.descend(Toward::Key(key), arena).and_then(|(leaf, version)| {
                let (_, record) = leaf.find(key, arena)?;
                if leaf.validate(version) { Ok(record) } else { Err(Torn) }
            });
            match found {
                Ok(record) => return record,
                Err(Torn) => std::hint::spin_loop(),
            }
        }
    }

    /// About which share of the keys lies before `key`, from 0 to 1: nodes beside the way down count as equally full.
    pub fn share_before(&self, key: &[u8], arena: &AppendArena) -> f64 {
        loop {
            let (mut before, mut width) = (0.0, 1.0);
            let found = self
                .descend_by(Toward::Key(key), arena, |at, of| {
                    width /= of.max(1) as f64;
                    before += at as f64 * width;
                })
                .and_then(|(leaf, version)| {
                    let (at, of) = (leaf.find(key, arena)?.0, leaf.len());
                    if leaf.validate(version) { Ok(at as f64 / of.max(1) as f64) } else { Err(Torn) }
                });
            match found {
                Ok(in_leaf) => return before + in_leaf * width,
                Err(Torn) => std::hint::spin_loop(),
            }
        }
    }

    // From here on: only for the writer. It sees its own stores, so nothing is ever torn.

    /// Finds the place of `key`, splitting full inner nodes on the way. If the key is there, its newest record.
    pub fn find_place<'a>(
        &'a self,
        key: &[u8],
        arena: &AppendArena,
    ) -> Result<(InsertAt<'a>, Option<u64>), Torn> {
        let mut root = self.root.load(Relaxed);
        if root >> 32 > 0 && self.node(root >> 32, root as u32)?.is_full() {
            root = self.grow(root)?;
        }
        let mut height = root >> 32;
        let mut id = root as u32;
        let mut node = self.node(height, id)?;
        let mut parent = None;
        while height > 0 {
            height -= 1;
            let mut at = Self::choose(&node, Toward::Key(key), arena)?;
            let mut child = self.node(height, node.child(at))?;
            child.prefetch();
            if height > 0 && child.is_full() {
                self.split_inner(&node, at, &child, arena)?;
                at = Self::choose(&node, Toward::Key(key), arena)?;
                child = self.node(height, node.child(at))?;
            }
            id = node.child(at);
            parent = Some((node, at));
            node = child;
        }
        let (index, record) = node.find(key, arena)?;
        Ok((InsertAt { leaf: node, leaf_id: id, parent, index }, record))
    }

    /// Replaces the newest record of the key at `place`.
    pub fn replace(&self, place: &InsertAt<'_>, record: u64) {
        // One word: no version is needed, a reader sees the old or the new one.
        place.leaf.set_record(place.index, record);
    }

    /// Inserts a key at its place.
    pub fn insert(
        &self,
        place: InsertAt<'_>,
        key: &[u8],
        record: u64,
        last: &mut LastInsert,
        arena: &AppendArena,
    ) -> Result<(), Torn> {
        let InsertAt { mut leaf, mut leaf_id, parent, mut index } = place;
        if leaf.is_full() {
            let (parent, at) = match parent {
                Some(p) => p,
                None => (self.inners.node(self.grow(self.root.load(Relaxed))? as u32)?, 0),
            };
            let right_id = self.leaves.add();
            let right = self.leaves.node(right_id)?;
            right.set_next(leaf.next());
            // Keys that come in order fill their leaves; others leave room in both halves.
            let in_order = index == FANOUT && last.leaf == leaf_id && last.index == FANOUT - 1;
            if in_order {
                right.insert(0, key, record, None, arena);
                parent.write(|| {
                    leaf.write(|| leaf.set_next(Some(right_id)));
                    parent.insert(at + 1, key, record, Some(right_id), arena);
                });
                *last = LastInsert { leaf: right_id, index: 0 };
                return Ok(());
            }
            let half = FANOUT / 2;
            parent.write(|| {
                leaf.write(|| {
                    leaf.split_to(&right, half, arena);
                    leaf.set_next(Some(right_id));
                });
                self.add_child(&parent, at + 1, right.record(0), right_id, arena)
            })?;
            if index > half {
                (leaf, leaf_id, index) = (right, right_id, index - half);
            }
        }
        leaf.write(|| leaf.insert(index, key, record, None, arena));
        *last = LastInsert { leaf: leaf_id, index };
        Ok(())
    }

    /// A new root above the old one, which is its only child until it is split.
    fn grow(&self, root: u64) -> Result<u64, Torn> {
        let id = self.inners.add();
        self.inners.node(id)?.set_first_child(root as u32);
        let new = ((root >> 32) + 1) << 32 | id as u64;
        self.root.store(new, Release);
        Ok(new)
    }

    fn split_inner(
        &self,
        parent: &Node<'_>,
        at: usize,
        node: &Node<'_>,
        arena: &AppendArena,
    ) -> Result<(), Torn> {
        let right_id = self.inners.add();
        let right = self.inners.node(right_id)?;
        let half = FANOUT / 2;
        parent.write(|| {
            node.write(|| node.split_to(&right, half, arena));
            // Entry 0 of an inner node has no key of its own, but its record is still there.
            self.add_child(parent, at + 1, right.record(0), right_id, arena)
        })
    }

    fn add_child(
        &self,
        parent: &Node<'_>,
        at: usize,
        record: u64,
        child: u32,
        arena: &AppendArena,
    ) -> Result<(), Torn> {
        let key = super::record::Record::at(arena, record).ok_or(Torn)?.key;
        parent.insert(at, key, record, Some(child), arena);
        Ok(())
    }
}
