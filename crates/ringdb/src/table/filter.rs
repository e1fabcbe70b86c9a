//! [`Filter`]: a Bloom filter whose probes for one key all fall into one cache line.
//!
//! A key's 64-bit hash picks a line of 512 bits by its upper half and bits in it by its lower half, multiplied
//! anew for each probe (as RocksDB's FastLocalBloom does). At 10 bits a key about one absent key in a hundred
//! passes.

/// Bytes of a line.
pub(crate) const LINE_BYTES: usize = 64;
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
            engineswap::mem::prefetch_ref(line);
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        (self.lines.capacity() * LINE_BYTES) as u64
    }

    /// Appends the encoding that [`Filter::decode`] reads: the lines, then the number of probes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.lines.len() * LINE_BYTES + 1);
        for line in &self.lines {
            for word in line.0 {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        out.push(self.probes);
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
pub(crate) struct FilterBuilder {
    bits_per_key: u32,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// With this many bits a key; 0 for no filter.
    pub fn new(bits_per_key: u32) -> FilterBuilder {
        FilterBuilder { bits_per_key, hashes: Vec::new() }
    }

    /// Whether hashes are wanted at all.
    pub fn is_wanted(&self) -> bool {
        self.bits_per_key > 0
    }

    /// Adds the [`crate::key::hash`] of a key; once for all of its versions.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        if self.bits_per_key > 0 {
            self.hashes.push(hash);
        }
    }

    /// Bytes that the filter will take.
    pub fn estimated_bytes(&self) -> u64 {
        self.lines() * LINE_BYTES as u64
    }

    fn lines(&self) -> u64 {
        (self.hashes.len() as u64 * self.bits_per_key.min(64) as u64).div_ceil(LINE_BITS)
    }

    /// The filter.
    pub fn finish(self) -> Filter {
        let n = self.lines().min(u32::MAX as u64) as usize;
        if n == 0 {
            return Filter::default();
        }
        let probes = probes_for(self.bits_per_key);
        let mut lines = vec![Line([0; 8]); n];
        for (i, &hash) in self.hashes.iter().enumerate() {
            if let Some(&ahead) = self.hashes.get(i + 16) {
                engineswap::mem::prefetch_ref(&lines[line_of(ahead, n)]);
            }
            let line = &mut lines[line_of(hash, n)];
            each_bit(hash, probes, |word, bit| line.0[word & 7] |= bit);
        }
        Filter { lines, probes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn h(i: u64) -> u64 {
        crate::key::hash(&i.to_le_bytes())
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
            let mut b = vec![];
            f.encode(&mut b);
            assert_eq!(Filter::decode(&b), Ok(f));
        }
    }

    #[test]
    fn no_bits_or_no_keys_let_everything_pass() {
        for f in [build(0..100, 0), build(0..0, 10)] {
            assert!((0..100).all(|k| f.may_contain(h(k))));
            let mut b = vec![];
            f.encode(&mut b);
            assert_eq!(Filter::decode(&b), Ok(f));
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
