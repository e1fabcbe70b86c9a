//! [`BlockView`]: a data block, used as it lies on disk.
//!
//! ```text
//! u32 checksum | u16 n | u8 widths | u8 meta width | u64 base seq | u32 prefix length
//! u32 heads[n] | offsets[n + 1] | prefix | entries { suffix length, meta, suffix, value }
//! ```
//! A head is the first four bytes of an entry's suffix (its key after the block's common prefix), zero-padded,
//! as a number that orders as the bytes do: a search counts heads and compares one full suffix at the end.
//! Widths are fixed within a block and as small as it allows, so nothing is parsed in a search.
//!
//! [`BlockView::validate`] checks checksum and structure once, when the block is read from disk; afterwards
//! [`BlockView::trusted`] gives a view of the same bytes on which no call can panic.

use std::cmp::Ordering;

use super::meta::MAX_INTERNAL_KEY_BYTES;
use crate::coding::{crc32c, same_bytes};
use crate::expiry::STAMP_BYTES;
use crate::key::{Kind, SEQ_MAX, Seq};

/// Bytes before the heads.
pub(super) const HEADER_BYTES: usize = 20;
/// Flag: offsets are `u32`, not `u16`.
pub(super) const WIDE_OFFSETS: u8 = 1;
/// Shift of the two bits that say how wide suffix lengths are: 1 << bits.
pub(super) const SUFFIX_WIDTH_SHIFT: u8 = 1;
/// Flag: two bits of an entry's meta, not one, say its kind. Readers that do not know it refuse the block.
pub(super) const WIDE_KINDS: u8 = 0x80;
/// Blocks lie on multiples of this, and are as long, when not compressed.
pub(crate) const BLOCK_UNIT: usize = 4096;

/// The value that block `block_no` of table `file_id` has its checksum started with, so that a block that was
/// written elsewhere is never believed.
#[inline]
pub(crate) fn checksum_seed(file_id: u64, block_no: u32) -> u32 {
    let id = (file_id ^ (file_id >> 32)) as u32;
    id.wrapping_mul(0x9E37_79B1) ^ block_no
}

/// The number of the block of table `file_id` whose checksum is started from `seed`.
pub(super) fn block_of_seed(file_id: u64, seed: u32) -> u32 {
    seed ^ checksum_seed(file_id, 0)
}

/// A block's shape, read from its header: `Copy`, so that a cursor can keep it beside the bytes' owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    n: u32,
    prefix_len: u32,
    base_seq: Seq,
    offsets_at: u32,
    prefix_at: u32,
    wide: bool,
    suffix_width: u8,
    meta_width: u8,
    /// Bits of an entry's meta that say its kind: 1, or 2 if the header says so.
    kind_bits: u8,
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u32 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]]) as u32
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Little-endian integer of `width` (at most 8) bytes.
#[inline]
fn uint_at(bytes: &[u8], at: usize, width: usize) -> u64 {
    if let Some(eight) = bytes.get(at..at + 8) {
        let v = u64::from_le_bytes(eight.try_into().unwrap_or_default());
        return if width == 8 { v } else { v & ((1 << (8 * width)) - 1) };
    }
    bytes[at..at + width].iter().rev().fold(0, |v, &b| v << 8 | b as u64)
}

/// The first four bytes, zero-padded, as a number that orders as the bytes do.
#[inline]
pub(super) fn head32(suffix: &[u8]) -> u32 {
    if let Some(head) = suffix.first_chunk::<4>() {
        return u32::from_be_bytes(*head);
    }
    let mut head = [0; 4];
    head[..suffix.len()].copy_from_slice(suffix);
    u32::from_be_bytes(head)
}

impl Layout {
    /// Entries.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.n as usize
    }

    /// Reads the header of a validated block.
    #[inline]
    fn trusted(bytes: &[u8]) -> Layout {
        let n = u16_at(bytes, 4);
        let widths = bytes[6];
        let wide = widths & WIDE_OFFSETS != 0;
        let offsets_at = HEADER_BYTES as u32 + 4 * n;
        Layout {
            n,
            prefix_len: u32_at(bytes, 16),
            base_seq: uint_at(bytes, 8, 8),
            offsets_at,
            prefix_at: offsets_at + (n + 1) * if wide { 4 } else { 2 },
            wide,
            suffix_width: 1 << (widths >> SUFFIX_WIDTH_SHIFT & 3),
            meta_width: bytes[7],
            kind_bits: 1 + (widths >> 7),
        }
    }
}

impl Layout {
    /// The kind that an entry's meta says: two bits have four values, and four kinds.
    #[inline]
    fn kind(&self, meta: u64) -> Kind {
        match meta & ((1 << self.kind_bits) - 1) {
            0 => Kind::Put,
            1 => Kind::Delete,
            2 => Kind::Merge,
            _ => Kind::Expiring,
        }
    }
}

/// The number of a kind in an entry's meta.
pub(super) fn kind_number(kind: Kind) -> u64 {
    match kind {
        Kind::Put => 0,
        Kind::Delete => 1,
        Kind::Merge => 2,
        Kind::Expiring => 3,
    }
}

/// Whether the header's byte of flags and widths is one that can be read.
#[inline]
fn known_widths(widths: u8) -> bool {
    (widths & !WIDE_KINDS) >> SUFFIX_WIDTH_SHIFT <= 2
}

/// Whether a value can be one of this kind.
#[inline]
fn fits(kind: Kind, value_len: usize) -> bool {
    kind != Kind::Expiring || value_len >= STAMP_BYTES
}

/// An entry of a block; its key is `prefix` and `suffix` together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryRef<'a> {
    pub prefix: &'a [u8],
    pub suffix: &'a [u8],
    pub seq: Seq,
    pub kind: Kind,
    pub value: &'a [u8],
    /// Where the value starts in the block.
    pub value_at: usize,
}

impl EntryRef<'_> {
    /// The value within the block's bytes, to find it again without the entry.
    #[inline]
    pub fn value_range(&self) -> std::ops::Range<usize> {
        self.value_at..self.value_at + self.value.len()
    }

    /// Makes `key` this entry's key.
    #[inline]
    pub fn key_into(&self, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(self.prefix);
        key.extend_from_slice(self.suffix);
    }

    /// Orders this entry's key against `key`.
    pub fn cmp_key(&self, key: &[u8]) -> Ordering {
        match key.split_at_checked(self.prefix.len()) {
            Some((p, s)) => self.prefix.cmp(p).then_with(|| self.suffix.cmp(s)),
            None => self.prefix.cmp(key),
        }
    }
}

/// Answer of [`BlockView::find`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Find<'a> {
    /// The newest version that may be seen.
    Found(EntryRef<'a>),
    /// The table has no version of the key that may be seen.
    Absent,
    /// The block ends with versions of the key that are all too new: older ones may follow in the next block.
    Next,
}

/// What the first bytes of a block say of its only entry.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    pub key: Vec<u8>,
    pub seq: Seq,
    pub kind: Kind,
    /// The value within the block.
    pub value: std::ops::Range<usize>,
    pub layout: Layout,
}

/// A validated data block. `bytes` may be longer than the block (a frame).
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockView<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> BlockView<'a> {
    /// Checks the checksum and the whole structure of block `block_no` of table `file_id`. `bytes` are the whole
    /// block and nothing else. The error says what is wrong.
    pub fn validate(bytes: &[u8], file_id: u64, block_no: u32) -> Result<(), String> {
        BlockView::check_sum(bytes, file_id, block_no)?;
        BlockView::check_structure(bytes).map_err(|what| format!("block {block_no}: {what}"))
    }

    /// Checks and returns the checksum only.
    #[inline]
    pub fn check_sum(bytes: &[u8], file_id: u64, block_no: u32) -> Result<u32, String> {
        let Some((stored, rest)) = bytes.split_first_chunk::<4>() else {
            return Err("the block has no header".into());
        };
        let sum = crc32c(checksum_seed(file_id, block_no), rest);
        if sum != u32::from_le_bytes(*stored) {
            return Err(format!("block {block_no}: its checksum does not match"));
        }
        Ok(sum)
    }

    /// Of what may be a block, by its first 24 bytes: where in it the end of its entries is written. `None` if it is
    /// none.
    pub fn end_at(header: &[u8]) -> Option<std::ops::Range<usize>> {
        if header.len() < HEADER_BYTES || !known_widths(header[6]) || header[7] > 8 {
            return None;
        }
        let l = Layout::trusted(header);
        (l.n > 0).then(|| l.prefix_at as usize - if l.wide { 4 } else { 2 }..l.prefix_at as usize)
    }

    /// Of the front of a block of `block_len` bytes that may hold one large entry: that entry. `None` if it holds
    /// anything else, or the key is not whole. Nothing of it was checked against the checksum.
    pub fn lone_front(front: &[u8], block_len: usize) -> Option<Front> {
        if front.len() < HEADER_BYTES || !known_widths(front[6]) || front[7] > 8 {
            return None;
        }
        let l = Layout::trusted(front);
        let (sw, mw) = (l.suffix_width as usize, l.meta_width as usize);
        let start = l.prefix_at as usize + l.prefix_len as usize;
        if l.n != 1 || start + sw + mw > front.len() {
            return None;
        }
        let view = BlockView { bytes: front, layout: l };
        let (suffix_len, end) = (uint_at(front, start, sw), view.offset(1));
        let key_end = (start + sw + mw).checked_add(usize::try_from(suffix_len).ok()?)?;
        let meta = uint_at(front, start + sw, mw);
        let seq = l.base_seq.saturating_add(meta >> l.kind_bits);
        if view.offset(0) != start || key_end > front.len().min(end) || end > block_len || seq > SEQ_MAX {
            return None;
        }
        let key = [view.prefix(), &front[start + sw + mw..key_end]].concat();
        let kind = l.kind(meta);
        if !fits(kind, end - key_end) {
            return None;
        }
        Some(Front { key, seq, kind, value: key_end..end, layout: l })
    }

    /// Checks everything but the checksum, for blocks whose stored (compressed) form had its own.
    pub fn check_structure(bytes: &[u8]) -> Result<(), &'static str> {
        if bytes.len() < HEADER_BYTES {
            return Err("no header");
        }
        if !known_widths(bytes[6]) || bytes[7] > 8 {
            return Err("unknown field widths");
        }
        let l = Layout::trusted(bytes);
        let (sw, mw) = (l.suffix_width as usize, l.meta_width as usize);
        if l.n == 0 {
            return Err("no entries");
        }
        let entries_at = l.prefix_at as u64 + l.prefix_len as u64;
        if l.prefix_len as usize > MAX_INTERNAL_KEY_BYTES || entries_at > bytes.len() as u64 {
            return Err("tables longer than the block");
        }
        let view = BlockView { bytes, layout: l };
        let mut start = view.offset(0);
        if start as u64 != entries_at {
            return Err("entries do not start after the prefix");
        }
        let (mut last_head, mut last_suffix, mut last_seq) = (0, &bytes[..0], 0);
        for i in 0..l.n as usize {
            let end = view.offset(i + 1);
            if end > bytes.len() || end < start || end - start < sw + mw {
                return Err("an entry outside of the block");
            }
            let suffix_len = uint_at(bytes, start, sw);
            let suffix_at = start + sw + mw;
            if suffix_len > (end - suffix_at) as u64
                || l.prefix_len as u64 + suffix_len > MAX_INTERNAL_KEY_BYTES as u64
            {
                return Err("a key outside of its entry");
            }
            let suffix = &bytes[suffix_at..suffix_at + suffix_len as usize];
            let meta = uint_at(bytes, start + sw, mw);
            let seq = l.base_seq.saturating_add(meta >> l.kind_bits);
            let value_len = end - suffix_at - suffix.len();
            if !fits(l.kind(meta), value_len) {
                return Err("an entry without the time at which it expires");
            }
            if seq > SEQ_MAX {
                return Err("a sequence number out of range");
            }
            let head = view.head(i);
            if head != head32(suffix) {
                return Err("a head that is not its key's");
            }
            let ascends = i == 0
                || head > last_head
                || (head == last_head
                    && match last_suffix.cmp(suffix) {
                        Ordering::Less => true,
                        Ordering::Equal => last_seq > seq,
                        Ordering::Greater => false,
                    });
            if !ascends {
                return Err("entries out of order");
            }
            (last_head, last_suffix, last_seq) = (head, suffix, seq);
            start = end;
        }
        Ok(())
    }

    /// A view of bytes that [`BlockView::validate`] or [`BlockView::check_structure`] accepted. On other bytes
    /// its calls may panic.
    #[inline]
    pub fn trusted(bytes: &'a [u8]) -> BlockView<'a> {
        BlockView { bytes, layout: Layout::trusted(bytes) }
    }

    /// The same from a layout kept from an earlier view of the same bytes.
    #[inline]
    pub fn with_layout(bytes: &'a [u8], layout: Layout) -> BlockView<'a> {
        BlockView { bytes, layout }
    }

    /// The shape, to keep beside the bytes' owner.
    #[inline]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Entries; at least one.
    #[inline]
    pub fn len(&self) -> usize {
        self.layout.n as usize
    }

    /// The prefix that all keys share.
    #[inline]
    pub fn prefix(&self) -> &'a [u8] {
        let at = self.layout.prefix_at as usize;
        &self.bytes[at..at + self.layout.prefix_len as usize]
    }

    #[inline]
    fn heads(&self) -> &'a [[u8; 4]] {
        self.bytes[HEADER_BYTES..self.layout.offsets_at as usize].as_chunks::<4>().0
    }

    #[inline]
    fn head(&self, i: usize) -> u32 {
        u32_at(self.bytes, HEADER_BYTES + 4 * i)
    }

    #[inline]
    fn offset(&self, i: usize) -> usize {
        let at = self.layout.offsets_at as usize;
        if self.layout.wide {
            u32_at(self.bytes, at + 4 * i) as usize
        } else {
            u16_at(self.bytes, at + 2 * i) as usize
        }
    }

    /// Entry `i`, below [`BlockView::len`].
    #[inline(always)]
    pub fn entry(&self, i: usize) -> EntryRef<'a> {
        let (start, end) = (self.offset(i), self.offset(i + 1));
        let (sw, mw) = (self.layout.suffix_width as usize, self.layout.meta_width as usize);
        let suffix_len =
            if sw == 1 { self.bytes[start] as usize } else { uint_at(self.bytes, start, sw) as usize };
        let meta = uint_at(self.bytes, start + sw, mw);
        let (suffix, value) = self.bytes[start + sw + mw..end].split_at(suffix_len);
        EntryRef {
            prefix: self.prefix(),
            suffix,
            seq: self.layout.base_seq + (meta >> self.layout.kind_bits),
            kind: self.layout.kind(meta),
            value,
            value_at: end - value.len(),
        }
    }

    /// The first entry whose key is at or after `key`; [`BlockView::len`] if there is none.
    #[inline]
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        // No version is newer than this, so it stands before all versions of `key`.
        self.position(key, u64::MAX).0
    }

    /// Starts to load the entry at which a search for `key` will arrive.
    #[inline]
    pub fn prefetch_entry(&self, key: &[u8]) {
        let prefix = self.prefix();
        let Some((_, suffix)) = key.split_at_checked(prefix.len()).filter(|(p, _)| *p == prefix) else {
            return;
        };
        let i = self.count_heads_below(head32(suffix));
        if i < self.len() {
            let at = self.offset(i);
            latchfree::prefetch(self.bytes, at);
            latchfree::prefetch(self.bytes, at + 64);
        }
    }

    /// The newest version of `key` with a sequence number of at most `seq`.
    ///
    /// Ask the block that [`super::index::Index::find_block`] names. On [`Find::Next`], ask the next block too
    /// (its first entry may be of another key: then it says so with `Absent`).
    #[inline]
    pub fn find(&self, key: &[u8], seq: Seq) -> Find<'a> {
        match self.position(key, seq) {
            (i, true) => Find::Found(self.entry(i)),
            (i, false) if i < self.len() => Find::Absent,
            (i, false) if self.entry(i - 1).cmp_key(key) == Ordering::Equal => Find::Next,
            _ => Find::Absent,
        }
    }

    /// The first entry at or after (`key`, `seq`) in table order, and whether it is of `key`.
    #[inline]
    fn position(&self, key: &[u8], seq: Seq) -> (usize, bool) {
        let prefix = self.prefix();
        let suffix = match key.split_at_checked(prefix.len()) {
            Some((p, s)) if same_bytes(p, prefix) => s,
            _ => return (if key < prefix { 0 } else { self.len() }, false),
        };
        let head = head32(suffix);
        let mut i = self.count_heads_below(head);
        let n = self.len();
        let heads = self.heads();
        let is_tie = |i: usize| heads.get(i).is_some_and(|h| u32::from_le_bytes(*h) == head);
        let cmp = |i: usize| {
            let e = self.entry(i);
            (e.suffix.cmp(suffix).then_with(|| seq.cmp(&e.seq)), e)
        };
        // Heads that tie are told apart by the whole suffix and the sequence number. Long runs (many versions
        // of one key) are halved first.
        if is_tie(i + 8) {
            let (mut lo, mut hi) = (i, n);
            while lo < hi {
                let mid = lo.midpoint(hi);
                if is_tie(mid) && cmp(mid).0 == Ordering::Less { lo = mid + 1 } else { hi = mid }
            }
            i = lo;
        }
        while is_tie(i) {
            let (order, e) = cmp(i);
            if order != Ordering::Less {
                return (i, same_bytes(e.suffix, suffix));
            }
            i += 1;
        }
        (i, false)
    }

    #[inline]
    fn count_heads_below(&self, head: u32) -> usize {
        let mut heads = self.heads();
        let mut below = 0;
        // Counting needs no branch and touches every line at once, but only pays for a few lines.
        while heads.len() > 128 {
            let mid = heads.len() / 2;
            if u32::from_le_bytes(heads[mid]) < head {
                below += mid + 1;
                heads = &heads[mid + 1..];
            } else {
                heads = &heads[..mid];
            }
        }
        below + heads.iter().map(|h| (u32::from_le_bytes(*h) < head) as u32).sum::<u32>() as usize
    }
}
