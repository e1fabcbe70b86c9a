//! [`BlockBuilder`]: gathers entries of one data block, knows exactly how long it will be, and lays it out.
//!
//! How long blocks are: a block is `block_bytes` long, but one that would waste more than a quarter of itself
//! because the next entry does not fit grows by multiples of 4 KiB, up to four times `block_bytes`. Entries
//! longer than a block start one of their own, which takes on more under the same rule. Trimmed blocks, stored without
//! padding, waste nothing and do not grow.

use super::block::{
    BLOCK_UNIT, HEADER_BYTES, SUFFIX_WIDTH_SHIFT, WIDE_KINDS, WIDE_OFFSETS, checksum_seed, head32,
    kind_number,
};
use crate::coding::crc32c;
use crate::key::{Kind, Seq};

/// Entries at most in a block.
const MAX_ENTRIES: usize = u16::MAX as usize;

#[derive(Clone, Copy)]
struct Item {
    key_len: u32,
    /// Where its value ends in the staged bytes.
    end: u32,
    seq: Seq,
    kind: Kind,
}

/// What decides a block's length, kept up to date entry by entry.
#[derive(Clone, Copy, Default)]
struct Shape {
    n: usize,
    prefix_len: usize,
    longest_key: usize,
    key_bytes: usize,
    value_bytes: usize,
    min_seq: Seq,
    max_seq: Seq,
    /// The greatest number of a kind.
    kinds: u64,
}

impl Shape {
    fn with(mut self, prefix_len: usize, key: &[u8], seq: Seq, kind: Kind, value_len: usize) -> Shape {
        self.prefix_len = prefix_len;
        self.longest_key = self.longest_key.max(key.len());
        self.key_bytes += key.len();
        self.value_bytes += value_len;
        self.min_seq = if self.n == 0 { seq } else { self.min_seq.min(seq) };
        self.max_seq = self.max_seq.max(seq);
        self.kinds = self.kinds.max(kind_number(kind));
        self.n += 1;
        self
    }

    /// log2 of the width of suffix lengths.
    fn suffix_width_bits(&self) -> u8 {
        match self.longest_key - self.prefix_len {
            0..=0xFF => 0,
            0x100..=0xFFFF => 1,
            _ => 2,
        }
    }

    /// Bits of an entry's meta for its kind.
    fn kind_bits(&self) -> u32 {
        if self.kinds > 1 { 2 } else { 1 }
    }

    fn meta_width(&self) -> usize {
        let most = (self.max_seq - self.min_seq) << self.kind_bits() | self.kinds;
        (64 - most.leading_zeros() as usize).div_ceil(8)
    }

    /// Exact bytes of the block without padding, and whether offsets are wide.
    fn bytes(&self) -> (usize, bool) {
        let per_entry = 4 + (1 << self.suffix_width_bits()) + self.meta_width();
        let fixed = HEADER_BYTES + self.n * per_entry + self.prefix_len + self.value_bytes + self.key_bytes
            - self.n * self.prefix_len;
        let narrow = fixed + 2 * (self.n + 1);
        if narrow <= u16::MAX as usize { (narrow, false) } else { (fixed + 4 * (self.n + 1), true) }
    }
}

/// Gathers the entries of one block.
pub(crate) struct BlockBuilder {
    block_bytes: usize,
    trims: bool,
    /// Keys and values of `items`, one after the other.
    staged: Vec<u8>,
    items: Vec<Item>,
    shape: Shape,
}

impl BlockBuilder {
    /// For blocks of `block_bytes`, a multiple of 4 KiB.
    pub fn new(block_bytes: usize) -> BlockBuilder {
        BlockBuilder {
            block_bytes,
            trims: false,
            staged: Vec::new(),
            items: Vec::new(),
            shape: Shape::default(),
        }
    }

    /// From here on blocks will be stored without padding.
    pub fn trim(&mut self) {
        self.trims = true;
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes that the block will have on disk when not compressed, padding included.
    pub fn block_len(&self) -> usize {
        self.padded(self.shape.bytes().0)
    }

    /// Bytes that the entries need: a trimmed block has no more.
    pub fn used_len(&self) -> usize {
        self.shape.bytes().0
    }

    fn padded(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(BLOCK_UNIT).max(self.block_bytes)
    }

    /// Bytes of the block that would hold this entry alone, padding included.
    pub fn lone_len(&self, key: &[u8], kind: Kind, value_len: usize) -> usize {
        self.padded(lone_used(key, kind, value_len))
    }

    /// The key that was added last.
    pub fn last_key(&self) -> &[u8] {
        let Some(last) = self.items.last() else { return &[] };
        let start = match self.items.len() {
            1 => 0,
            n => self.items[n - 2].end as usize,
        };
        &self.staged[start..start + last.key_len as usize]
    }

    fn shape_with(&self, key: &[u8], seq: Seq, kind: Kind, value_len: usize) -> Shape {
        let prefix_len = match self.items.first() {
            None => key.len(),
            Some(first) => {
                let first = &self.staged[..(first.key_len as usize).min(self.shape.prefix_len)];
                if key.starts_with(first) {
                    first.len()
                } else {
                    first.iter().zip(key).take_while(|(a, b)| a == b).count()
                }
            }
        };
        self.shape.with(prefix_len, key, seq, kind, value_len)
    }

    /// Adds an entry, which must follow the last one in table order, unless the block is better closed before
    /// it: then nothing is added and the answer is false. An empty block takes any entry.
    #[must_use]
    pub fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> bool {
        let shape = self.shape_with(key, seq, kind, value.len());
        if self.shape.n > 0 && !self.takes(&shape, key, kind, value.len()) {
            return false;
        }
        self.shape = shape;
        self.staged.extend_from_slice(key);
        self.staged.extend_from_slice(value);
        let end = self.staged.len() as u32;
        self.items.push(Item { key_len: key.len() as u32, end, seq, kind });
        true
    }

    fn takes(&self, shape: &Shape, key: &[u8], kind: Kind, value_len: usize) -> bool {
        let new = shape.bytes().0;
        let limit = 4 * self.block_bytes;
        if new <= self.block_bytes {
            return shape.n <= MAX_ENTRIES;
        }
        if self.trims {
            return false;
        }
        let used = self.shape.bytes().0;
        let room = self.padded(used);
        if new > limit || shape.n > MAX_ENTRIES {
            return false;
        }
        if new <= room {
            return true;
        }
        let wasteful = (room - used) * 4 > room;
        wasteful && (used > self.block_bytes || self.lone_len(key, kind, value_len) <= self.block_bytes)
    }

    /// Lays the block out in `out`, which is [`BlockBuilder::block_len`] or [`BlockBuilder::used_len`] long, with the
    /// checksum for block `block_no` of table `file_id`, and forgets the entries.
    pub fn finish_into(&mut self, out: &mut [u8], file_id: u64, block_no: u32) {
        let (bytes, wide) = self.shape.bytes();
        assert!(
            [bytes, self.padded(bytes)].contains(&out.len()),
            "the caller asked block_len() or used_len()"
        );
        let s = self.shape;
        let (suffix_bits, mw) = (s.suffix_width_bits(), s.meta_width());
        let sw = 1 << suffix_bits;
        write_header(out, &s, wide);
        let offsets_at = HEADER_BYTES + 4 * s.n;
        let prefix_at = offsets_at + (s.n + 1) * if wide { 4 } else { 2 };
        let mut at = prefix_at + s.prefix_len;
        out[prefix_at..at].copy_from_slice(&self.staged[..s.prefix_len]);
        let mut staged_at = 0;
        for (i, item) in self.items.iter().enumerate() {
            let suffix_at = staged_at + s.prefix_len;
            let suffix_len = item.key_len as usize - s.prefix_len;
            let tail = &self.staged[suffix_at..item.end as usize];
            let head = head32(&tail[..suffix_len]);
            out[HEADER_BYTES + 4 * i..][..4].copy_from_slice(&head.to_le_bytes());
            put_offset(&mut out[offsets_at..], i, at, wide);
            out[at..at + sw].copy_from_slice(&suffix_len.to_le_bytes()[..sw]);
            let meta = (item.seq - s.min_seq) << s.kind_bits() | kind_number(item.kind);
            out[at + sw..at + sw + mw].copy_from_slice(&meta.to_le_bytes()[..mw]);
            at += sw + mw;
            out[at..at + tail.len()].copy_from_slice(tail);
            at += tail.len();
            staged_at = item.end as usize;
        }
        put_offset(&mut out[offsets_at..], s.n, at, wide);
        debug_assert_eq!(at, bytes);
        out[bytes..].fill(0);
        put_checksum(out, file_id, block_no);
        self.clear();
    }

    fn clear(&mut self) {
        self.staged.clear();
        self.items.clear();
        self.shape = Shape::default();
    }
}

fn write_header(out: &mut [u8], s: &Shape, wide: bool) {
    out[4..6].copy_from_slice(&(s.n as u16).to_le_bytes());
    let flags = if wide { WIDE_OFFSETS } else { 0 } | if s.kind_bits() > 1 { WIDE_KINDS } else { 0 };
    out[6] = (s.suffix_width_bits() << SUFFIX_WIDTH_SHIFT) | flags;
    out[7] = s.meta_width() as u8;
    out[8..16].copy_from_slice(&s.min_seq.to_le_bytes());
    out[16..20].copy_from_slice(&(s.prefix_len as u32).to_le_bytes());
}

#[inline]
fn put_offset(offsets: &mut [u8], i: usize, at: usize, wide: bool) {
    if wide {
        offsets[4 * i..4 * i + 4].copy_from_slice(&(at as u32).to_le_bytes());
    } else {
        offsets[2 * i..2 * i + 2].copy_from_slice(&(at as u16).to_le_bytes());
    }
}

/// Writes the checksum of a block that is not compressed.
pub(crate) fn put_checksum(block: &mut [u8], file_id: u64, block_no: u32) {
    let sum = crc32c(checksum_seed(file_id, block_no), &block[4..]);
    block[..4].copy_from_slice(&sum.to_le_bytes());
}

/// Bytes of the block that would hold this entry alone, without padding.
pub(crate) fn lone_used(key: &[u8], kind: Kind, value_len: usize) -> usize {
    Shape::default().with(key.len(), key, 0, kind, value_len).bytes().0
}

/// Everything of a lone entry's block before its value: what a value too long to be staged is written after.
/// The checksum covers `value` and the zeros up to `block_len` too.
pub(crate) fn lone_block_front(
    (key, seq, kind, value): (&[u8], Seq, Kind, &[u8]),
    block_len: usize,
    file_id: u64,
    block_no: u32,
) -> Vec<u8> {
    let s = Shape::default().with(key.len(), key, seq, kind, value.len());
    let (bytes, wide) = s.bytes();
    let sw = 1 << s.suffix_width_bits();
    let mw = s.meta_width();
    let mut front = vec![0; bytes - value.len()];
    write_header(&mut front, &s, wide);
    let offsets_at = HEADER_BYTES + 4;
    let prefix_at = offsets_at + if wide { 8 } else { 4 };
    let at = prefix_at + key.len();
    front[prefix_at..at].copy_from_slice(key);
    put_offset(&mut front[offsets_at..], 0, at, wide);
    put_offset(&mut front[offsets_at..], 1, bytes, wide);
    front[at + sw..at + sw + mw].copy_from_slice(&kind_number(kind).to_le_bytes()[..mw]);
    let mut sum = crc32c(crc32c(checksum_seed(file_id, block_no), &front[4..]), value);
    let mut padding = block_len - bytes;
    while padding > 0 {
        let n = padding.min(BLOCK_UNIT);
        sum = crc32c(sum, &[0; BLOCK_UNIT][..n]);
        padding -= n;
    }
    front[..4].copy_from_slice(&sum.to_le_bytes());
    front
}

#[cfg(test)]
mod tests {
    use super::super::block::{BlockView, Find};
    use super::*;
    use crate::cursor::model::Entry;
    use proptest::prelude::*;

    const FILE: u64 = 77;
    const BLOCK: u32 = 5;

    /// Builds one block of as many of `entries` as it takes.
    fn build(entries: &[Entry], block_bytes: usize) -> (Vec<u8>, usize) {
        let mut b = BlockBuilder::new(block_bytes);
        let n = entries.iter().take_while(|e| b.add(&e.key, e.seq, e.kind, &e.value)).count();
        let mut out = vec![0xEE; b.block_len()];
        assert_eq!(b.last_key(), entries[n - 1].key);
        b.finish_into(&mut out, FILE, BLOCK);
        assert!(b.is_empty());
        BlockView::validate(&out, FILE, BLOCK).unwrap();
        (out, n)
    }

    fn entry(key: &[u8], seq: Seq, value: &[u8]) -> Entry {
        Entry { key: key.to_vec(), seq, kind: Kind::Put, value: value.to_vec() }
    }

    fn read(view: &BlockView<'_>, i: usize) -> Entry {
        let e = view.entry(i);
        let mut key = vec![1, 2, 3];
        e.key_into(&mut key);
        assert_eq!(e.cmp_key(&key), std::cmp::Ordering::Equal);
        Entry { key, seq: e.seq, kind: e.kind, value: e.value.to_vec() }
    }

    /// What `find` must answer, by looking at every entry.
    fn model_find(entries: &[Entry], key: &[u8], seq: Seq) -> Result<Entry, bool> {
        match entries.iter().find(|e| e.key == key && e.seq <= seq) {
            Some(e) => Ok(e.clone()),
            None => Err(entries.last().is_some_and(|e| e.key == key)),
        }
    }

    fn check_against_model(view: &BlockView<'_>, entries: &[Entry], keys: &[Vec<u8>], seqs: &[Seq]) {
        assert_eq!(view.len(), entries.len());
        for (i, e) in entries.iter().enumerate() {
            assert_eq!(read(view, i), *e);
        }
        for key in keys {
            assert_eq!(view.lower_bound(key), entries.partition_point(|e| e.key < *key), "{key:?}");
            for &seq in seqs {
                let got = match view.find(key, seq) {
                    Find::Found(f) => {
                        let mut k = vec![];
                        f.key_into(&mut k);
                        Ok(Entry { key: k, seq: f.seq, kind: f.kind, value: f.value.to_vec() })
                    }
                    Find::Absent => Err(false),
                    Find::Next => Err(true),
                };
                assert_eq!(got, model_find(entries, key, seq), "{key:?} {seq}");
            }
        }
    }

    #[test]
    fn ties_of_heads_are_told_apart() {
        let keys: [&[u8]; 9] =
            [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0\0\0", b"a\0\0\0\0", b"a\0\0\0\x01", b"b"];
        let entries: Vec<Entry> = keys.iter().map(|k| entry(k, 3, b"v")).collect();
        let (bytes, n) = build(&entries, 4096);
        assert_eq!(n, keys.len());
        let probes: Vec<Vec<u8>> = keys.iter().flat_map(|k| [k.to_vec(), [k, &b"\0"[..]].concat()]).collect();
        check_against_model(&BlockView::trusted(&bytes), &entries, &probes, &[2, 3, 4]);
    }

    #[test]
    fn many_versions_of_one_key_and_what_may_follow_in_the_next_block() {
        let entries: Vec<Entry> = (1..=60).rev().map(|s| entry(b"k", 10 * s, b"v")).collect();
        let (bytes, n) = build(&entries, 4096);
        assert_eq!(n, 60);
        let view = BlockView::trusted(&bytes);
        let seqs: Vec<Seq> = (0..620).collect();
        check_against_model(&view, &entries, &[b"k".to_vec(), b"j".to_vec(), b"k\0".to_vec()], &seqs);
        assert_eq!(view.find(b"k", 9), Find::Next);
    }

    #[test]
    fn values_that_would_waste_a_block_get_longer_blocks() {
        let waste = |value_len: usize| {
            let entries: Vec<Entry> =
                (0..100u32).map(|i| entry(&i.to_be_bytes(), 1, &vec![7; value_len])).collect();
            let (bytes, n) = build(&entries, 4096);
            (bytes.len(), n, 1.0 - (n * value_len) as f64 / bytes.len() as f64)
        };
        assert_eq!(waste(100).0, 4096);
        for value_len in (200..9000).step_by(100) {
            let (len, n, waste) = waste(value_len);
            assert!(len <= 16384 && waste < 0.34, "{value_len}: {n} in {len}, {waste} wasted");
        }
        let (len, n, _) = waste(20_000);
        assert_eq!((len, n), (20480, 1));
    }

    #[test]
    fn a_short_entry_never_shares_a_block_with_a_huge_one() {
        let entries = [entry(b"a", 1, &[1; 100_000]), entry(b"b", 1, b"x")];
        assert_eq!(build(&entries, 4096).1, 1);
        let entries = [entry(b"a", 1, b"x"), entry(b"b", 1, &[1; 5000])];
        assert_eq!(build(&entries, 4096).1, 1);
    }

    #[test]
    fn full_and_wide_blocks_of_every_size() {
        for block_bytes in [4096, 8192, 65536] {
            for value_len in [0, 1, 30, 255, 256] {
                let entries: Vec<Entry> =
                    (0..40_000u32).map(|i| entry(&i.to_be_bytes(), 1, &vec![7; value_len])).collect();
                let (bytes, n) = build(&entries, block_bytes);
                assert_eq!(bytes.len(), block_bytes);
                let view = BlockView::trusted(&bytes);
                for (i, e) in entries[..n].iter().enumerate() {
                    assert_eq!(view.lower_bound(&e.key), i);
                }
                assert_eq!(read(&view, n - 1), entries[n - 1]);
            }
        }
    }

    #[test]
    fn a_lone_front_and_its_value_are_the_block() {
        for (key_len, value_len) in [(1, 0), (1, 8), (1, 5000), (65541, 70_000), (300, 65_000)] {
            for kind in [Kind::Put, Kind::Merge, Kind::Expiring] {
                if kind != Kind::Expiring || value_len >= 8 {
                    lone_front_is_the_block(key_len, value_len, kind);
                }
            }
        }
    }

    fn lone_front_is_the_block(key_len: usize, value_len: usize, kind: Kind) {
        {
            let mut e = entry(&vec![b'k'; key_len], 1 << 40, &vec![9; value_len]);
            e.kind = kind;
            let (bytes, _) = build(std::slice::from_ref(&e), 4096);
            let all = (&e.key[..], e.seq, e.kind, &e.value[..]);
            let mut got = lone_block_front(all, bytes.len(), FILE, BLOCK);
            assert_eq!(BlockBuilder::new(4096).lone_len(&e.key, e.kind, value_len), bytes.len());
            got.extend_from_slice(&e.value);
            got.resize(bytes.len(), 0);
            assert!(got == bytes, "{key_len} {value_len}");
        }
    }

    #[test]
    fn a_block_is_believed_only_in_its_place() {
        let (bytes, _) = build(&[entry(b"a", 1, b"x")], 4096);
        assert!(BlockView::validate(&bytes, FILE, BLOCK + 1).is_err());
        assert!(BlockView::validate(&bytes, FILE + 1, BLOCK).is_err());
        assert!(BlockView::validate(&bytes[..4095], FILE, BLOCK).is_err());
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let entries: Vec<Entry> = (0..50u8).map(|i| entry(&[b'p', i / 3], 90 - i as u64, &[i])).collect();
        let (bytes, _) = build(&entries, 4096);
        let mut b = bytes.clone();
        for i in 0..b.len() {
            for change in [1, 0x80, 0xFF] {
                b[i] ^= change;
                assert!(BlockView::validate(&b, FILE, BLOCK).is_err(), "byte {i}");
                b[i] ^= change;
            }
        }
    }

    #[test]
    fn operands_take_a_bit_more_and_so_does_what_expires_which_needs_its_time() {
        let mut entries = [entry(b"a", 9, b"x"), entry(b"a", 8, b"y"), entry(b"b", 7, b"")];
        let plain = build(&entries, 4096).0;
        assert_eq!(plain[6] & WIDE_KINDS, 0, "without operands a block is as ever");
        entries[0].kind = Kind::Merge;
        let (mut b, _) = build(&entries, 4096);
        assert_eq!(b[6] & WIDE_KINDS, WIDE_KINDS);
        let view = BlockView::trusted(&b);
        assert_eq!((0..3).map(|i| read(&view, i)).collect::<Vec<_>>(), entries);
        // The first entry's meta follows its suffix's length.
        let at = HEADER_BYTES + 3 * 4 + 4 * 2;
        assert_eq!(b[at..at + 2], [1, 2 << 2 | 2]);
        b[at + 1] |= 3;
        assert_eq!(BlockView::check_structure(&b), Err("an entry without the time at which it expires"));
        entries[0] = Entry { kind: Kind::Expiring, ..entry(b"a", 9, b"12345678") };
        let (b, _) = build(&entries, 4096);
        assert_eq!(b[6] & WIDE_KINDS, WIDE_KINDS);
        assert_eq!((b[at + 1], BlockView::check_structure(&b)), (2 << 2 | 3, Ok(())));
        let view = BlockView::trusted(&b);
        assert_eq!((0..3).map(|i| read(&view, i)).collect::<Vec<_>>(), entries);
    }

    fn any_entries() -> impl Strategy<Value = Vec<Entry>> {
        let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), any::<u8>()];
        let key = (
            prop_oneof![3 => Just(0usize), 1 => Just(40), 1 => Just(300)],
            proptest::collection::vec(byte, 0..7),
        );
        let key = key.prop_map(|(n, t)| [vec![b'p'; n], t].concat());
        let seq = prop_oneof![1u64..20, Just(1 << 30), Just(crate::key::SEQ_MAX)];
        let value = prop_oneof![4 => 0usize..40, 1 => 0usize..3000].prop_map(|n| vec![n as u8; n]);
        let one = (key, seq, 0u8..6, value).prop_map(|(key, seq, kind, value)| {
            use Kind::*;
            let kind = [Put, Delete, Put, Delete, Merge, Expiring][usize::from(kind)];
            let value = match kind {
                Put | Merge => value,
                Delete => vec![],
                Expiring => [&[1; 8], &value[..]].concat(),
            };
            Entry { key, seq, kind, value }
        });
        proptest::collection::vec(one, 1..120).prop_map(|mut v| {
            v.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
            v.dedup_by(|a, b| a.key == b.key && a.seq == b.seq);
            v
        })
    }

    proptest! {
        #[test]
        fn blocks_answer_as_the_model_does(entries in any_entries(), extra in any_entries()) {
            let (bytes, n) = build(&entries, 4096);
            let mut frame = bytes;
            frame.extend_from_slice(&[0xAB; 100]);
            let keys: Vec<Vec<u8>> = entries.iter().chain(&extra).map(|e| e.key.clone()).collect();
            check_against_model(&BlockView::trusted(&frame), &entries[..n], &keys, &[0, 1, 7, 19, 1 << 30, crate::key::SEQ_MAX]);
        }

        /// Blocks with a damaged structure (whatever their checksum says) are refused or can be read safely.
        #[test]
        fn damaged_structures_never_panic(entries in any_entries(), hits in proptest::collection::vec((0usize..4096, any::<u8>()), 1..6)) {
            let (mut b, _) = build(&entries, 4096);
            for (i, (at, v)) in hits.into_iter().enumerate() {
                // Most damage goes to the front, where the structure is.
                b[if i % 3 == 0 { at } else { 4 + at % 60 }] = v;
            }
            if BlockView::check_structure(&b).is_ok() {
                let view = BlockView::trusted(&b);
                for i in 0..view.len() {
                    let e = read(&view, i);
                    view.find(&e.key, e.seq);
                }
            }
        }

        #[test]
        fn random_bytes_never_panic(b in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(BlockView::validate(&b, 1, 1).is_err());
            if BlockView::check_structure(&b).is_ok() {
                let view = BlockView::trusted(&b);
                (0..view.len()).for_each(|i| { read(&view, i); });
            }
        }
    }
}
