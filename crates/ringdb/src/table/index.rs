//! [`Index`]: finds the data block of a key.
//!
//! Each block has a separator: at least its last key and below the first key of the next block, or equal to
//! both where the versions of one key continue in the next block. So the first block whose separator is at or
//! after a key holds the key's newest version, if any block does.
//!
//! The search is a 16-ary tree. A node holds the common prefix of the separators below it and, for each of its
//! 16 children, eight bytes of the child's last separator after that prefix as a number: three cache lines that
//! are loaded together. Whole separators are looked at only when such numbers tie.

use std::cmp::Ordering;

use super::block::BLOCK_UNIT;
use super::compress::Encoding;
use crate::coding::same_bytes;
use crate::cursor::key_head;
use crate::seal::TAG_BYTES;

const FANOUT: usize = 16;
const INLINE_PREFIX: usize = 58;

#[repr(C, align(64))]
#[derive(Clone, Debug)]
struct Node {
    heads: [u64; FANOUT],
    /// Length of the prefix; its first bytes are `prefix`, all of it is the start of the node's separators.
    prefix_len: u32,
    count: u8,
    inline_len: u8,
    prefix: [u8; INLINE_PREFIX],
}

/// Where a data block lies and what it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPos {
    /// Byte offset in the file. A multiple of 4096 in tables that are not compressed.
    pub offset: u64,
    /// Bytes on disk.
    pub stored_len: u32,
    /// Bytes in memory: `block_bytes`, or more (a multiple of 4096) for a large block; any number if it is trimmed.
    pub block_len: u32,
    /// How the stored bytes are encoded.
    pub encoding: Encoding,
}

/// A block that is longer than `block_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Large {
    pub block: u32,
    /// Its length in units of 4096 bytes.
    pub units: u32,
    /// Units by which it and the large blocks before it are longer than normal ones together.
    pub extra_after: u64,
}

/// Where the blocks lie: by rule, with the exceptions listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Positions {
    pub large: Vec<Large>,
    /// In compressed and trimmed tables: each block's offset << 2 | encoding, and at last the end of the data.
    pub packed: Vec<u64>,
    /// The table is trimmed: blocks that are not compressed are as long as they are stored.
    pub trimmed: bool,
}

/// Finds the data block of a key, and where it lies.
#[derive(Debug)]
pub(crate) struct Index {
    block_bytes: u32,
    /// The separators, one after the other.
    separators: Vec<u8>,
    /// Ends of the separators in there.
    ends: Vec<u32>,
    /// The tree, leaves first; the last level is one node.
    levels: Vec<Vec<Node>>,
    positions: Positions,
}

/// A search on its way down, for callers that overlap several ([`Index::start`], [`Index::step`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    level: u32,
    node: u32,
}

/// Answer of [`Index::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The search went down a level and the next node's loading has been started.
    Down,
    /// The block, or `None` if the key is after the table's last.
    Done(Option<u32>),
}

impl Index {
    /// From the separators (all bytes, their ends) and the positions; both were checked.
    pub(super) fn assemble(
        block_bytes: u32,
        separators: Vec<u8>,
        ends: Vec<u32>,
        positions: Positions,
    ) -> Index {
        let mut index = Index { block_bytes, separators, ends, levels: Vec::new(), positions };
        let blocks = index.ends.len();
        let mut span = 1;
        loop {
            let level: Vec<Node> =
                (0..blocks).step_by(span * FANOUT).map(|first| index.make_node(first, span)).collect();
            let done = level.len() <= 1;
            index.levels.push(level);
            if done {
                return index;
            }
            span *= FANOUT;
        }
    }

    /// The node over the blocks from `first` on whose children have `span` blocks each.
    fn make_node(&self, first: usize, span: usize) -> Node {
        let blocks = self.ends.len();
        let end = (first + span * FANOUT).min(blocks);
        let (a, z) = (self.separator(first as u32), self.separator(end as u32 - 1));
        let prefix_len = a.iter().zip(z).take_while(|(x, y)| x == y).count();
        let inline_len = prefix_len.min(INLINE_PREFIX);
        let mut node = Node {
            heads: [u64::MAX; FANOUT],
            prefix_len: prefix_len as u32,
            count: (end - first).div_ceil(span) as u8,
            inline_len: inline_len as u8,
            prefix: [0; INLINE_PREFIX],
        };
        node.prefix[..inline_len].copy_from_slice(&a[..inline_len]);
        for (child, start) in (first..end).step_by(span).enumerate() {
            let last = (start + span).min(end) as u32 - 1;
            node.heads[child] = key_head(self.separator(last), prefix_len);
        }
        node
    }

    /// Number of data blocks.
    #[inline]
    pub fn blocks(&self) -> u32 {
        self.ends.len() as u32
    }

    /// The separator of a block below [`Index::blocks`]: at or after its keys. The last block's is its last key.
    #[inline]
    pub fn separator(&self, block: u32) -> &[u8] {
        let start = if block == 0 { 0 } else { self.ends[block as usize - 1] };
        &self.separators[start as usize..self.ends[block as usize] as usize]
    }

    /// The first block that may hold `key` or a later key; `None` if all keys are before `key`.
    #[inline]
    pub fn find_block(&self, key: &[u8]) -> Option<u32> {
        self.finish(self.root(), key)
    }

    /// Takes a search to its end.
    #[inline]
    pub fn finish(&self, mut probe: Probe, key: &[u8]) -> Option<u32> {
        loop {
            if let Step::Done(block) = self.descend(&mut probe, key) {
                return block;
            }
        }
    }

    /// Begins a search, starting to load its first node.
    #[inline]
    pub fn start(&self) -> Probe {
        let probe = self.root();
        self.prefetch(probe);
        probe
    }

    /// Takes a search down a level, starting to load the next node.
    #[inline]
    pub fn step(&self, probe: &mut Probe, key: &[u8]) -> Step {
        let step = self.descend(probe, key);
        if step == Step::Down {
            self.prefetch(*probe);
        }
        step
    }

    /// Starts to load the node that a search stands at.
    pub fn prefetch(&self, probe: Probe) {
        if let Some(node) = self.levels.get(probe.level as usize).and_then(|l| l.get(probe.node as usize)) {
            latchfree::prefetch_ref(&node.heads[0]);
            latchfree::prefetch_ref(&node.heads[8]);
            latchfree::prefetch_ref(&node.prefix_len);
        }
    }

    /// A search that has not begun.
    #[inline]
    pub fn root(&self) -> Probe {
        Probe { level: self.levels.len() as u32 - 1, node: 0 }
    }

    #[inline]
    fn descend(&self, probe: &mut Probe, key: &[u8]) -> Step {
        let (level, at) = (probe.level as usize, probe.node as usize);
        let Some(node) = self.levels.get(level).and_then(|l| l.get(at)) else {
            return Step::Done(None);
        };
        let child = self.rank(node, level, at, key);
        if child >= node.count as usize {
            return Step::Done(None);
        }
        let next = (at * FANOUT + child) as u32;
        if level == 0 {
            return Step::Done(Some(next));
        }
        *probe = Probe { level: level as u32 - 1, node: next };
        Step::Down
    }

    /// The first child of `node` whose last separator is at or after `key`; its count if none is.
    #[inline]
    fn rank(&self, node: &Node, level: usize, at: usize, key: &[u8]) -> usize {
        let inline = &node.prefix[..(node.inline_len as usize).min(INLINE_PREFIX)];
        let mut order = match key.get(..inline.len()) {
            Some(start) if same_bytes(start, inline) => Ordering::Equal,
            _ => key.cmp(inline),
        };
        if order == Ordering::Equal && node.prefix_len as usize > INLINE_PREFIX {
            order = self.cmp_long_prefix(node, level, at, key);
        }
        match order {
            Ordering::Less => return 0,
            Ordering::Greater => return node.count as usize,
            Ordering::Equal => {}
        }
        let head = key_head(key, node.prefix_len as usize);
        let mut child = count_below(&node.heads, head);
        while child < node.count as usize && node.heads[child & (FANOUT - 1)] == head {
            if self.separator(self.last_block(level, at * FANOUT + child)) >= key {
                break;
            }
            child += 1;
        }
        child
    }

    #[cold]
    fn cmp_long_prefix(&self, node: &Node, level: usize, at: usize, key: &[u8]) -> Ordering {
        let prefix = &self.separator(self.last_block(level, at * FANOUT))[..node.prefix_len as usize];
        if key.starts_with(prefix) { Ordering::Equal } else { key.cmp(prefix) }
    }

    /// The last block below child number `child` of a level (of its whole width).
    fn last_block(&self, level: usize, child: usize) -> u32 {
        let span = FANOUT.pow(level as u32);
        ((child + 1) * span).min(self.ends.len()) as u32 - 1
    }

    /// Where a block below [`Index::blocks`] lies.
    #[inline]
    pub fn block_pos(&self, block: u32) -> BlockPos {
        let units = self.block_bytes / BLOCK_UNIT as u32;
        let p = &self.positions;
        let mut extra = 0;
        let mut block_len = self.block_bytes;
        if !p.large.is_empty() {
            let i = p.large.partition_point(|l| l.block < block);
            if let Some(l) = p.large.get(i).filter(|l| l.block == block) {
                block_len = l.units * BLOCK_UNIT as u32;
            }
            extra = if i == 0 { 0 } else { p.large[i - 1].extra_after };
        }
        if let Some(&[start, end]) = p.packed.get(block as usize..block as usize + 2) {
            let encoding = Encoding::from_u8((start & 3) as u8).unwrap_or(Encoding::Plain);
            let stored_len = ((end >> 2) - (start >> 2)) as u32;
            if encoding == Encoding::Sealed {
                block_len = stored_len.saturating_sub(TAG_BYTES as u32);
            } else if p.trimmed && encoding == Encoding::Plain {
                block_len = stored_len;
            }
            return BlockPos { offset: start >> 2, stored_len, block_len, encoding };
        }
        let offset = (block as u64 * units as u64 + extra) * BLOCK_UNIT as u64;
        BlockPos { offset, stored_len: block_len, block_len, encoding: Encoding::Plain }
    }

    /// Bytes of all data blocks on disk.
    pub fn data_bytes(&self) -> u64 {
        match self.blocks().checked_sub(1) {
            None => 0,
            Some(last) => {
                let p = self.block_pos(last);
                p.offset + p.stored_len as u64
            }
        }
    }

    /// Whether this can be the index of a sealed table (of another one, if not `sealed`).
    pub fn fits_seal(&self, sealed: bool) -> bool {
        let wrong = if sealed { Encoding::Plain } else { Encoding::Sealed };
        let packed = self.positions.packed.split_last().map_or(&[][..], |(_, blocks)| blocks);
        // Where there are no positions, all blocks are as they are.
        (!sealed || !packed.is_empty()) && packed.iter().all(|p| p & 3 != wrong as u64)
    }

    /// Whether blocks may be stored without padding.
    pub fn is_trimmed(&self) -> bool {
        self.positions.trimmed
    }

    /// Bytes of a normal block.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Whether all blocks lie by rule, block `i` at `i * block_bytes` with that length.
    #[cfg(test)]
    pub fn is_regular(&self) -> bool {
        self.positions.large.is_empty() && self.positions.packed.is_empty()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        let nodes: usize = self.levels.iter().map(|l| l.capacity() * size_of::<Node>()).sum();
        let positions = self.positions.large.capacity() * size_of::<Large>()
            + self.positions.packed.capacity() * size_of::<u64>();
        (nodes + self.separators.capacity() + self.ends.capacity() * size_of::<u32>() + positions) as u64
    }

    pub(super) fn positions(&self) -> &Positions {
        &self.positions
    }
}

/// How many of ascending heads are below `head`. Halving without branches: to compare all sixteen takes four times the
/// instructions where vectors have no comparison of 64-bit numbers (x86-64 without extensions).
#[inline(always)]
fn count_below(heads: &[u64; FANOUT], head: u64) -> usize {
    let mut below = 0;
    for step in [8, 4, 2, 1] {
        below += step * usize::from(heads[(below + step - 1) & (FANOUT - 1)] < head);
    }
    below + usize::from(heads[below & (FANOUT - 1)] < head)
}

/// The shortest key `s` with `last <= s < next`, for `last <= next`; `last` itself if they are equal (then it is
/// not below `next`) or none is shorter.
pub(crate) fn shortest_separator<'a>(last: &'a [u8], next: &'a [u8]) -> &'a [u8] {
    let same = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    // next's own start, one byte past what both share: above `last`, and below `next` if that goes on.
    if same + 1 < next.len() && same + 1 < last.len() { &next[..same + 1] } else { last }
}

#[cfg(test)]
mod tests {
    use super::super::index_format::IndexBuilder;
    use super::*;
    use proptest::prelude::*;

    fn build(separators: &[Vec<u8>]) -> Index {
        let mut b = IndexBuilder::new(4096);
        for s in separators {
            b.add(s, 4096, None);
        }
        b.finish()
    }

    #[test]
    fn separators_are_short_and_between() {
        let cases: [(&[u8], &[u8], &[u8]); 6] = [
            (b"abcdef", b"abzzzz", b"abz"),
            (b"abc", b"abcd", b"abc"),
            (b"abcd", b"abd", b"abcd"),
            (b"a", b"a", b"a"),
            (b"", b"a", b""),
            (b"a\xff\xff", b"b\0", b"b"),
        ];
        for (last, next, want) in cases {
            assert_eq!(shortest_separator(last, next), want, "{last:?} {next:?}");
        }
    }

    #[test]
    fn an_empty_index_finds_nothing() {
        let i = build(&[]);
        assert_eq!((i.find_block(b"x"), i.blocks(), i.data_bytes()), (None, 0, 0));
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255), any::<u8>()];
        let tail = proptest::collection::vec(byte, 0..12);
        (prop_oneof![Just(0usize), Just(3), Just(60)], tail).prop_map(|(n, t)| {
            let mut k = vec![b'p'; n];
            k.extend(t);
            k
        })
    }

    proptest! {
        #[test]
        fn finds_what_a_plain_search_finds(
            mut seps in proptest::collection::vec(key(), 1..700),
            mut keys in proptest::collection::vec(key(), 1..50),
        ) {
            seps.sort();
            let index = build(&seps);
            keys.extend(seps.iter().step_by(7).cloned());
            for k in &keys {
                let want = seps.partition_point(|s| s < k);
                let want = (want < seps.len()).then_some(want as u32);
                prop_assert_eq!(index.find_block(k), want);
                let mut p = index.start();
                let got = loop {
                    if let Step::Done(b) = index.step(&mut p, k) { break b }
                };
                prop_assert_eq!(got, want);
            }
        }

        #[test]
        fn separators_separate(a in key(), b in key()) {
            let (last, next) = if a <= b { (a, b) } else { (b, a) };
            let s = shortest_separator(&last, &next);
            prop_assert!(*last <= *s && s.len() <= last.len());
            prop_assert!(*s < *next || last == next);
        }
    }
}
