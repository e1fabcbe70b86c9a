//! [`Filter`]: a Bloom filter whose probes for one key all fall into one cache line.
//!
//! A key's 64-bit hash picks a line of 512 bits by its upper half and bits in it by its lower half, multiplied
//! anew for each probe (as RocksDB's FastLocalBloom does). At 10 bits a key about one absent key in a hundred
//! passes.

/// Bytes of a line.
pub(crate) const LINE_BYTES: usize = 64;
/// Lines that are encoded at once.
const ENCODED_TOGETHER: usize = 512;
const LINE_BITS: u64 = 8 * LINE_BYTES as u64;
/// Probes at most.
const MAX_PROBES: u8 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// A filter of a table's keys. Without lines it lets everything pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    lines: Vec<Line>,
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

impl Filter {
    /// Whether a key with this [`crate::key::hash`] may be in the table; if not, it surely is not.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let Some(line) = self.lines.get(line_of(hash, self.lines.len())) else { return true };
        let mut missing = 0;
        each_bit(hash, self.probes, |word, bit| missing |= !line.0[word & 7] & bit);
        missing == 0
    }

    /// Starts to load the line that [`Filter::may_contain`] will read.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines.get(line_of(hash, self.lines.len())) {
            latchfree::prefetch_ref(line);
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        (self.lines.capacity() * LINE_BYTES) as u64
    }

    /// Bytes of the encoding.
    pub fn encoded_len(&self) -> u64 {
        (self.lines.len() * LINE_BYTES) as u64 + 1
    }

    /// Gives `f` the encoding that [`Filter::decode`] reads, in pieces: the lines, then the number of probes.
    pub fn encode<E>(&self, mut f: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut piece = Vec::new();
        for lines in self.lines.chunks(ENCODED_TOGETHER) {
            piece.clear();
            lines.iter().flat_map(|l| l.0).for_each(|word| piece.extend_from_slice(&word.to_le_bytes()));
            f(&piece)?;
        }
        f(&[self.probes])
    }

    /// Reads an encoded filter.
    pub fn decode(bytes: &[u8]) -> Result<Filter, String> {
        let Some((&probes, body)) = bytes.split_last() else {
            return Err("the filter is empty".into());
        };
        let (lines, rest) = body.as_chunks::<LINE_BYTES>();
        if !rest.is_empty() || lines.len() > u32::MAX as usize {
            return Err(format!("a filter of {} bytes", body.len()));
        }
        if probes > MAX_PROBES || (probes == 0) != lines.is_empty() {
            return Err(format!("{probes} probes in {} lines", lines.len()));
        }
        let read = |line: &[u8; LINE_BYTES]| {
            let (words, _) = line.as_chunks::<8>();
            let mut out = [0; 8];
            for (w, b) in out.iter_mut().zip(words) {
                *w = u64::from_le_bytes(*b);
            }
            Line(out)
        };
        Ok(Filter { lines: lines.iter().map(read).collect(), probes })
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
    /// In pieces: one vector would be copied as it grows, and take twice its memory.
    full: Vec<Box<[u64]>>,
    hashes: Vec<u64>,
    /// A filter of all but `hashes`, once it is made early.
    early: Vec<Line>,
}

/// Hashes of a piece.
const PIECE: usize = 8 << 10;
/// The length of a filter that is made early has this factor: so often it can be folded.
const FOLDS: u64 = 64;

impl FilterBuilder {
    /// With this many bits a key; 0 for no filter.
    pub fn new(bits_per_key: u32) -> FilterBuilder {
        FilterBuilder { bits_per_key, keys: 0, full: Vec::new(), hashes: Vec::new(), early: Vec::new() }
    }

    /// Whether hashes are wanted at all.
    pub fn is_wanted(&self) -> bool {
        self.bits_per_key > 0
    }

    /// Adds the [`crate::key::hash`] of a key; once for all of its versions.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        if self.bits_per_key > 0 {
            if self.hashes.len() == PIECE {
                self.next_piece();
            }
            self.hashes.push(hash);
            self.keys += 1;
        }
    }

    #[cold]
    fn next_piece(&mut self) {
        if !self.early.is_empty() {
            let hashes = std::mem::take(&mut self.hashes);
            set(self.bits_per_key, &hashes, &mut self.early);
            self.hashes = hashes;
            self.hashes.clear();
            return;
        }
        let full = std::mem::replace(&mut self.hashes, Vec::with_capacity(PIECE));
        self.full.push(full.into_boxed_slice());
    }

    /// Hashes that are held.
    pub fn held(&self) -> usize {
        self.full.len() * PIECE + self.hashes.len()
    }

    /// Makes the filter now, for about `keys` keys in the end. With more it lets more absent keys pass.
    pub fn make_early(&mut self, keys: u64) {
        if !self.is_wanted() || !self.early.is_empty() {
            return;
        }
        let lines = self.lines_for(keys.max(self.keys)).next_multiple_of(FOLDS);
        self.early = vec![Line([0; 8]); lines.min(u32::MAX as u64 / FOLDS * FOLDS) as usize];
        for piece in std::mem::take(&mut self.full) {
            set(self.bits_per_key, &piece, &mut self.early);
        }
    }

    /// Bytes of memory that it takes, with the filter that it becomes.
    pub fn memory(&self) -> u64 {
        let early = (self.early.len() * LINE_BYTES) as u64;
        self.held() as u64 * 8 + if early > 0 { early } else { self.estimated_bytes() }
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
        let mut n = Some(self.early.len() as u64).filter(|n| *n > 0)?;
        let wanted = self.lines_for(self.keys).max(1);
        while n.is_multiple_of(2) && n / 2 >= wanted {
            n /= 2;
        }
        Some(n)
    }

    /// The filter.
    pub fn finish(mut self) -> Filter {
        if self.keys == 0 {
            return Filter::default();
        }
        let folded = self.folded();
        let mut lines = std::mem::take(&mut self.early);
        if folded.is_none() {
            lines = vec![Line([0; 8]); self.lines_for(self.keys).min(u32::MAX as u64) as usize];
        }
        self.full
            .iter()
            .map(|p| &p[..])
            .chain([&self.hashes[..]])
            .for_each(|p| set(self.bits_per_key, p, &mut lines));
        while folded.is_some_and(|n| n < lines.len() as u64) {
            for i in 0..lines.len() / 2 {
                let (a, b) = (lines[2 * i], lines[2 * i + 1]);
                lines[i] = Line(std::array::from_fn(|w| a.0[w] | b.0[w]));
            }
            lines.truncate(lines.len() / 2);
        }
        Filter { lines, probes: probes_for(self.bits_per_key) }
    }
}

fn set(bits_per_key: u32, hashes: &[u64], lines: &mut [Line]) {
    let (n, probes) = (lines.len(), probes_for(bits_per_key));
    for (i, &hash) in hashes.iter().enumerate() {
        if let Some(&ahead) = hashes.get(i + 16) {
            latchfree::prefetch_ref(&lines[line_of(ahead, n)]);
        }
        let line = &mut lines[line_of(hash, n)];
        each_bit(hash, probes, |word, bit| line.0[word & 7] |= bit);
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
