//! [`Filter`]: a Bloom filter whose probes for one key all fall into one cache line.
//!
//! A key's 64-bit hash picks a line of 512 bits by its upper half and bits in it by its lower half, multiplied
//! anew for each probe (as RocksDB's FastLocalBloom does). At 10 bits a key about one absent key in a hundred
//! passes.
//!
//! A line is eight little-endian words, in memory as on disk. Lines and the hashes that they are made of are mapped,
//! not on the heap: there a merge's freed hashes stay resident under whatever was allocated after them.

use engineswap::mem::AlignedBuf;

/// Bytes of a line.
pub(crate) const LINE_BYTES: usize = 64;
const LINE_BITS: u64 = 8 * LINE_BYTES as u64;
/// Probes at most.
const MAX_PROBES: u8 = 12;

/// So many lines, all zero at first. The buffer may be longer.
struct Lines {
    bytes: AlignedBuf,
    len: usize,
}

impl Lines {
    fn zeroed(len: usize) -> Lines {
        Lines { bytes: AlignedBuf::zeroed(len * LINE_BYTES), len }
    }

    /// Those that count, as bytes.
    fn encoded(&self) -> &[u8] {
        &self.bytes[..self.len * LINE_BYTES]
    }

    /// Adds each hash's bits.
    fn set(&mut self, bits_per_key: u32, hashes: &[[u8; 8]]) {
        let (n, probes) = (self.len, probes_for(bits_per_key));
        let (lines, _) = self.bytes.as_chunks_mut::<LINE_BYTES>();
        for (i, hash) in hashes.iter().enumerate() {
            if let Some(&ahead) = hashes.get(i + 16) {
                latchfree::prefetch_ref(&lines[line_of(u64::from_le_bytes(ahead), n)]);
            }
            let hash = u64::from_le_bytes(*hash);
            let (words, _) = lines[line_of(hash, n)].as_chunks_mut::<8>();
            each_bit(hash, probes, |w, bit| {
                words[w & 7] = (u64::from_le_bytes(words[w & 7]) | bit).to_le_bytes()
            });
        }
    }

    /// As many neighbouring lines in one as it takes to have `len`.
    fn fold(&mut self, len: usize) {
        let together = self.len / len;
        let (lines, _) = self.bytes.as_chunks_mut::<LINE_BYTES>();
        for i in 0..len {
            let mut line = [0; LINE_BYTES];
            for from in &lines[i * together..(i + 1) * together] {
                line.iter_mut().zip(from).for_each(|(a, b)| *a |= b);
            }
            lines[i] = line;
        }
        self.len = len;
    }
}

/// A filter of a table's keys. Without lines it lets everything pass.
pub(crate) struct Filter {
    lines: Lines,
    /// 0 without lines.
    probes: u8,
}

#[inline]
fn line_of(hash: u64, lines: usize) -> usize {
    // (upper half / 2^32) * lines: no division.
    (((hash >> 32) * lines as u64) >> 32) as usize
}

#[inline]
fn each_bit(hash: u64, probes: u8, mut f: impl FnMut(usize, u64)) {
    let mut h = hash as u32;
    for _ in 0..probes {
        let bit = h >> 23;
        f((bit >> 6) as usize, 1 << (bit & 63));
        h = h.wrapping_mul(0x9E37_79B9);
    }
}

fn probes_for(bits_per_key: u32) -> u8 {
    // The best numbers for 512-bit lines; a little below ln 2 times the bits.
    match bits_per_key {
        0..=2 => 1,
        3 => 2,
        4..=5 => 3,
        6 => 4,
        7..=8 => 5,
        9..=10 => 6,
        11 => 7,
        12..=14 => 8,
        15..=16 => 9,
        17..=18 => 10,
        19..=22 => 11,
        _ => MAX_PROBES,
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Filter) -> bool {
        self.probes == other.probes && self.lines.encoded() == other.lines.encoded()
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filter({} probes, {} lines)", self.probes, self.lines.len)
    }
}

impl Filter {
    /// Whether a key with this [`crate::key::hash`] may be in the table; if not, it surely is not.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let (lines, _) = self.lines.bytes.as_chunks::<LINE_BYTES>();
        let Some(line) = lines.get(line_of(hash, self.lines.len)) else { return true };
        let (words, _) = line.as_chunks::<8>();
        let mut missing = 0;
        each_bit(hash, self.probes, |word, bit| missing |= !u64::from_le_bytes(words[word & 7]) & bit);
        missing == 0
    }

    /// Starts to load the line that [`Filter::may_contain`] will read.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let (lines, _) = self.lines.bytes.as_chunks::<LINE_BYTES>();
        if let Some(line) = lines.get(line_of(hash, self.lines.len)) {
            latchfree::prefetch_ref(line);
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.lines.bytes.len() as u64
    }

    /// Bytes of the encoding.
    pub fn encoded_len(&self) -> u64 {
        self.lines.encoded().len() as u64 + 1
    }

    /// Gives `f` the encoding that [`Filter::decode`] reads, in pieces: the lines, then the number of probes.
    pub fn encode<E>(&self, mut f: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        f(self.lines.encoded())?;
        f(&[self.probes])
    }

    /// Reads an encoded filter.
    pub fn decode(bytes: &[u8]) -> Result<Filter, String> {
        let Some((&probes, body)) = bytes.split_last() else {
            return Err("the filter is empty".into());
        };
        let len = body.len() / LINE_BYTES;
        if !body.len().is_multiple_of(LINE_BYTES) || len > u32::MAX as usize {
            return Err(format!("a filter of {} bytes", body.len()));
        }
        if probes > MAX_PROBES || (probes == 0) != (len == 0) {
            return Err(format!("{probes} probes in {len} lines"));
        }
        let mut lines = Lines::zeroed(len);
        lines.bytes[..body.len()].copy_from_slice(body);
        Ok(Filter { lines, probes })
    }
}

/// Gathers the hashes of a table's keys.
///
/// A filter's length follows from the number of keys, so it is made when they are all known. Of more keys than memory
/// allows it is made early instead, as long as there may be keys, and folded at the end: of two neighbouring
/// lines in one lie just the bits that a filter of half the length has there.
pub(crate) struct FilterBuilder {
    bits_per_key: u32,
    keys: u64,
    /// In pieces of [`PIECE`]: one vector would be copied as it grows, and take twice its memory.
    pieces: Vec<AlignedBuf>,
    /// Hashes in the last piece; [`PIECE`] if there is none.
    last: usize,
    /// A filter of all that came before the pieces, once it is made early.
    early: Option<Lines>,
}

/// Hashes of a piece: as much as is mapped by itself.
const PIECE: usize = 16 << 10;
/// The length of a filter that is made early has this factor: so often it can be folded.
const FOLDS: u64 = 64;

impl FilterBuilder {
    /// With this many bits a key; 0 for no filter.
    pub fn new(bits_per_key: u32) -> FilterBuilder {
        FilterBuilder { bits_per_key, keys: 0, pieces: Vec::new(), last: PIECE, early: None }
    }

    /// Whether hashes are wanted at all.
    pub fn is_wanted(&self) -> bool {
        self.bits_per_key > 0
    }

    /// Adds the [`crate::key::hash`] of a key; once for all of its versions.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        if self.bits_per_key > 0 {
            if self.last == PIECE {
                self.next_piece();
            }
            let Some(piece) = self.pieces.last_mut() else { unreachable!("made above") };
            piece.as_chunks_mut::<8>().0[self.last] = hash.to_le_bytes();
            self.last += 1;
            self.keys += 1;
        }
    }

    #[cold]
    fn next_piece(&mut self) {
        match (&mut self.early, self.pieces.last()) {
            (Some(lines), Some(piece)) => lines.set(self.bits_per_key, piece.as_chunks().0),
            _ => self.pieces.push(AlignedBuf::zeroed(PIECE * 8)),
        }
        self.last = 0;
    }

    /// Adds the bits of all hashes that are held, which are then gone.
    fn set_all(&mut self, lines: &mut Lines) {
        let last = std::mem::replace(&mut self.last, PIECE);
        for (i, piece) in self.pieces.iter().enumerate() {
            let hashes = if i + 1 == self.pieces.len() { last } else { PIECE };
            lines.set(self.bits_per_key, &piece.as_chunks().0[..hashes]);
        }
        self.pieces.clear();
    }

    /// Hashes that are held.
    pub fn held(&self) -> usize {
        (self.pieces.len() * PIECE + self.last).saturating_sub(PIECE)
    }

    /// Makes the filter now, for about `keys` keys in the end. With more it lets more absent keys pass.
    pub fn make_early(&mut self, keys: u64) {
        if !self.is_wanted() || self.early.is_some() {
            return;
        }
        let lines = self.lines_for(keys.max(self.keys).max(1)).next_multiple_of(FOLDS);
        let mut early = Lines::zeroed(lines.min(u32::MAX as u64 / FOLDS * FOLDS) as usize);
        self.set_all(&mut early);
        self.early = Some(early);
    }

    /// Bytes of memory that it takes, with the filter that it becomes.
    pub fn memory(&self) -> u64 {
        let early = self.early.as_ref().map(|lines| lines.bytes.len() as u64);
        (self.pieces.len() * PIECE * 8) as u64 + early.unwrap_or_else(|| self.estimated_bytes())
    }

    /// Bytes that the filter will take.
    pub fn estimated_bytes(&self) -> u64 {
        self.folded().unwrap_or(self.lines_for(self.keys)) * LINE_BYTES as u64
    }

    fn lines_for(&self, keys: u64) -> u64 {
        keys.saturating_mul(self.bits_per_key.min(64) as u64).div_ceil(LINE_BITS)
    }

    /// How many lines are left of the early filter.
    fn folded(&self) -> Option<u64> {
        let mut n = self.early.as_ref()?.len as u64;
        let wanted = self.lines_for(self.keys).max(1);
        while n.is_multiple_of(2) && n / 2 >= wanted {
            n /= 2;
        }
        Some(n)
    }

    /// The filter.
    pub fn finish(mut self) -> Filter {
        if self.keys == 0 {
            return Filter { lines: Lines::zeroed(0), probes: 0 };
        }
        let folded = self.folded();
        let direct = self.lines_for(self.keys).min(u32::MAX as u64) as usize;
        let mut lines = self.early.take().unwrap_or_else(|| Lines::zeroed(direct));
        self.set_all(&mut lines);
        if let Some(n) = folded {
            lines.fold(n as usize);
        }
        Filter { lines, probes: probes_for(self.bits_per_key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn h(i: u64) -> u64 {
        crate::key::hash(&i.to_le_bytes())
    }

    fn encode(f: &Filter) -> Vec<u8> {
        let mut all = vec![];
        let Ok(()) = f.encode(|piece| {
            all.extend_from_slice(piece);
            Ok::<(), std::convert::Infallible>(())
        });
        assert_eq!(all.len() as u64, f.encoded_len());
        all
    }

    fn build(keys: std::ops::Range<u64>, bits: u32) -> Filter {
        let mut b = FilterBuilder::new(bits);
        keys.for_each(|k| b.add(h(k)));
        b.finish()
    }

    #[test]
    fn all_that_was_added_passes_and_little_else() {
        for (bits, most_per_mille) in [(1, 700), (5, 130), (10, 13), (20, 2)] {
            let f = build(0..10_000, bits);
            assert!((0..10_000).all(|k| f.may_contain(h(k))));
            let passed = (10_000..110_000).filter(|&k| f.may_contain(h(k))).count();
            assert!(passed <= most_per_mille * 100, "{bits} bits: {passed} of 100000");
            assert_eq!(Filter::decode(&encode(&f)), Ok(f));
        }
    }

    #[test]
    fn no_bits_or_no_keys_let_everything_pass() {
        for f in [build(0..100, 0), build(0..0, 10)] {
            assert!((0..100).all(|k| f.may_contain(h(k))));
            assert_eq!(Filter::decode(&encode(&f)), Ok(f));
        }
    }

    #[test]
    fn a_filter_made_early_and_folded_is_the_same() {
        // 10 lines of 64, so that every fold comes out even.
        let keys = 32_768;
        let direct = build(0..keys, 10);
        for (made_at, planned) in
            [(1, keys), (9000, keys), (9000, 2 * keys), (20_000, 4 * keys), (keys, 64 * keys)]
        {
            let mut b = FilterBuilder::new(10);
            for k in 0..keys {
                if k == made_at {
                    b.make_early(planned);
                }
                b.add(h(k));
            }
            b.make_early(planned);
            assert_eq!(b.estimated_bytes(), direct.bytes());
            assert!(b.finish() == direct, "made at {made_at} for {planned}");
        }
        // Planned too small, or not to be halved: it holds all the same.
        for planned in [1000, 40_000, 50_000] {
            let mut b = FilterBuilder::new(10);
            b.make_early(planned);
            (0..keys).for_each(|k| b.add(h(k)));
            let f = b.finish();
            assert!((0..keys).all(|k| f.may_contain(h(k))));
            assert!(f.bytes() < 2 * direct.bytes());
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(b in proptest::collection::vec(any::<u8>(), 0..200), hash: u64) {
            if let Ok(f) = Filter::decode(&b) {
                f.may_contain(hash);
            }
        }
    }
}
