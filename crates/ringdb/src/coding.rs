//! Bytes of the on-disk formats: variable-length integers, a reader that cannot run over, and CRC-32C.
//!
//! Every reader takes what it needs from the front and returns `None` when there is too little of it, so a
//! decoder never indexes by a length it has not checked.

/// Longest encoding of a `u64`.
pub(crate) const MAX_VARINT_BYTES: usize = 10;

/// Appends `v`, seven bits a byte, low bits first; the high bit says that more follow.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Bytes that [`put_varint`] appends for `v`.
/// Whether two byte strings are equal. For short ones that are compared on every read: a call of `memcmp` costs
/// more than the comparison, and with nothing to compare it is slow on CPUs that take an assist for masked loads
/// from an address that is not mapped (an empty vector's).
#[inline(always)]
pub(crate) fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    if let (Some(x), Some(y)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        return x == y
            && a.chunks_exact(8).zip(b.chunks_exact(8)).all(
                |(x, y)| matches!((x.first_chunk::<8>(), y.first_chunk::<8>()), (Some(x), Some(y)) if x == y),
            );
    }
    a.iter().zip(b).all(|(x, y)| x == y)
}

#[cfg(test)]
#[inline]
pub(crate) fn varint_len(v: u64) -> usize {
    (70 - (v | 1).leading_zeros() as usize) / 7
}

/// The integer at the front of `bytes` and what follows it. `None` if it is cut off or above `u64::MAX`.
#[inline]
pub(crate) fn get_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    match bytes {
        [a, rest @ ..] if *a < 0x80 => Some((*a as u64, rest)),
        [a, b, rest @ ..] if *b < 0x80 => Some(((*a & 0x7F) as u64 | (*b as u64) << 7, rest)),
        _ => get_long_varint(bytes),
    }
}

fn get_long_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut v = 0;
    for (i, &b) in bytes.iter().take(MAX_VARINT_BYTES).enumerate() {
        if i == MAX_VARINT_BYTES - 1 && b > 1 {
            return None;
        }
        v |= ((b & 0x7F) as u64) << (7 * i);
        if b < 0x80 {
            return Some((v, &bytes[i + 1..]));
        }
    }
    None
}

/// Appends the length of `bytes` as a varint, then `bytes`.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Takes fields from the front of a byte string; each call is `None` when too little is left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What is left.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (a, b) = self.rest.split_at_checked(n)?;
        self.rest = b;
        Some(a)
    }

    #[inline]
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (a, b) = self.rest.split_first_chunk::<N>()?;
        self.rest = b;
        Some(*a)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|a| a[0])
    }

    /// Little endian, as all fixed-width integers of the formats.
    #[cfg(test)]
    pub fn u16(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    pub fn varint(&mut self) -> Option<u64> {
        let (v, rest) = get_varint(self.rest)?;
        self.rest = rest;
        Some(v)
    }

    /// A byte string written by [`put_bytes`].
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.varint()?;
        self.take(usize::try_from(n).ok()?)
    }
}

/// CRC-32C of `bytes` continuing from `seed`: `crc32c(crc32c(0, a), b)` is the CRC-32C of `a` and `b` together.
#[inline]
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    let mut d = crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32Iscsi, !seed as u64);
    d.update(bytes);
    d.finalize() as u32
}

/// [`crc32c`] byte by byte, for where every prefix's sum is wanted.
pub(crate) struct Crc32cSteps(u32);

impl Crc32cSteps {
    /// Continues from `seed`.
    pub fn new(seed: u32) -> Crc32cSteps {
        Crc32cSteps(!seed)
    }

    /// The sum with one more byte.
    #[inline]
    pub fn step(&mut self, byte: u8) -> u32 {
        self.0 = CRC_OF_BYTE[(self.0 as u8 ^ byte) as usize] ^ self.0 >> 8;
        !self.0
    }
}

const CRC_OF_BYTE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 == 1 { c >> 1 ^ 0x82F6_3B78 } else { c >> 1 };
            bit += 1;
        }
        table[i] = c;
        i += 1;
    }
    table
};

/// The seed from which `bytes` have this [`crc32c`]: there is one. Byte by byte, from the last to the first.
pub(crate) fn crc32c_seed(sum: u32, bytes: &[u8]) -> u32 {
    // A step leaves the upper byte of the table's entry as it is, and no two entries have the same.
    const BY_UPPER_BYTE: [u8; 256] = {
        let mut by = [0; 256];
        let mut i = 0;
        while i < 256 {
            by[(CRC_OF_BYTE[i] >> 24) as usize] = i as u8;
            i += 1;
        }
        by
    };
    let before = |crc: u32, byte: &u8| {
        let i = BY_UPPER_BYTE[(crc >> 24) as usize];
        (crc ^ CRC_OF_BYTE[i as usize]) << 8 | (i ^ byte) as u32
    };
    !bytes.iter().rev().fold(!sum, before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_has_the_published_check_value_and_continues() {
        assert_eq!(crc32c(0, b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xE306_9283);
        assert_eq!(crc32c(0, b""), 0);
        assert_eq!(crc32c(7, b""), 7);
        let mut steps = Crc32cSteps::new(7);
        for n in 1..=9 {
            assert_eq!(steps.step(b"123456789"[n - 1]), crc32c(7, &b"123456789"[..n]));
        }
        for seed in [0, 1, 7, 0x8000_0000, u32::MAX] {
            for n in 0..=9 {
                let bytes = &b"123456789"[..n];
                assert_eq!(crc32c_seed(crc32c(seed, bytes), bytes), seed);
            }
        }
    }

    #[test]
    fn varints_read_back_and_their_lengths_are_known() {
        let mut values = vec![0, u64::MAX];
        for bit in 0..64 {
            values.extend([(1 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        }
        for v in values {
            let mut b = vec![];
            put_varint(&mut b, v);
            assert_eq!(b.len(), varint_len(v), "{v}");
            for cut in 0..b.len() {
                assert_eq!(get_varint(&b[..cut]), None, "{v} cut to {cut}");
            }
            b.push(0xAA);
            assert_eq!(get_varint(&b), Some((v, &[0xAA][..])));
        }
    }

    #[test]
    fn overlong_varints_are_refused() {
        assert_eq!(get_varint(&[0xFF; 20]), None);
        let mut b = [0xFF; 10];
        b[9] = 2;
        assert_eq!(get_varint(&b), None);
        b[9] = 1;
        assert_eq!(get_varint(&b), Some((u64::MAX, &[][..])));
    }

    #[test]
    fn the_reader_stops_at_the_end() {
        let mut b = vec![1, 2, 0, 3, 0, 0, 0];
        put_bytes(&mut b, b"xyz");
        b.extend_from_slice(&[200, 1, 9]);
        let mut r = Reader::new(&b);
        assert_eq!((r.u8(), r.u16(), r.u32()), (Some(1), Some(2), Some(3)));
        assert_eq!(r.bytes(), Some(&b"xyz"[..]));
        assert_eq!(r.u64(), None);
        assert_eq!(r.bytes(), None);
        assert_eq!(r.rest(), &[9]);
    }

    #[test]
    fn short_strings_compare_as_long_ones_do() {
        let bytes: Vec<u8> = (0..40).collect();
        for len in 0..40 {
            let a = bytes[..len].to_vec();
            assert!(same_bytes(&a, &bytes[..len]));
            assert!(!same_bytes(&a, &bytes[..len + 1]));
            for at in 0..len {
                let mut b = a.clone();
                b[at] ^= 0x80;
                assert!(!same_bytes(&a, &b), "{len} bytes, difference at {at}");
            }
        }
    }
}
