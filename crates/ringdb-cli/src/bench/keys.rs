//! The keys and values of the workloads.
//!
//! Keys are db_bench's: the number in big-endian bytes (at most 8), filled up with the digit `0`. Values are
//! a function of the key's number, so that every read can be checked; they compress to about a half.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

/// Makes and reads keys of one size.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// Bytes of a key.
    pub size: usize,
}

impl Keys {
    /// Writes the key of number `n` into `out`, which has `size` bytes or more.
    #[inline]
    pub fn write(self, n: u64, out: &mut [u8]) {
        let digits = out.len().min(8);
        let (head, rest) = out.split_at_mut(digits);
        head.copy_from_slice(&n.to_be_bytes()[8 - digits..]);
        rest.fill(b'0');
    }

    /// The key of number `n`.
    pub fn make(self, n: u64) -> Vec<u8> {
        let mut k = vec![0; self.size];
        self.write(n, &mut k);
        k
    }

    /// The number of a key, if it is one that these workloads write.
    #[inline]
    pub fn number(self, key: &[u8]) -> Option<u64> {
        if key.len() != self.size {
            return None;
        }
        let (head, rest) = key.split_at(self.size.min(8));
        let n = head.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        rest.iter().all(|b| *b == b'0').then_some(n)
    }

    /// How many different keys of this size there can be.
    pub fn capacity(self) -> u64 {
        if self.size >= 8 { u64::MAX } else { 1 << (8 * self.size) }
    }
}

/// Spreads a number over all 64-bit values (the finalizer of splitmix64).
#[inline]
pub fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Values begin anywhere in this many bytes of the pool: more than a compressor's window, less than a
/// second-level cache.
const SPAN: usize = 256 << 10;

/// Makes and checks values. A value of 8 bytes or more begins with a stamp of its key's number and its length.
pub struct Values {
    pool: Vec<u8>,
}

impl Values {
    /// For values of at most `longest` bytes. The bytes do not depend on it.
    pub fn new(longest: usize) -> Values {
        let mut rng = SmallRng::seed_from_u64(301);
        let mut pool = Vec::with_capacity(SPAN + longest + 100);
        while pool.len() < SPAN + longest {
            let mut half = [0u8; 50];
            half.iter_mut().for_each(|b| *b = rng.random_range(b' '..=b'~'));
            pool.extend_from_slice(&half);
            pool.extend_from_slice(&half);
        }
        Values { pool }
    }

    #[inline]
    fn place(n: u64) -> usize {
        mix(n) as usize % SPAN
    }

    #[inline]
    fn stamp(n: u64, len: usize) -> [u8; 8] {
        (mix(n) ^ mix(len as u64)).to_le_bytes()
    }

    /// Writes the value of number `n` with `len` bytes into `out`.
    #[inline]
    pub fn write(&self, n: u64, len: usize, out: &mut Vec<u8>) {
        out.clear();
        let at = Values::place(n);
        out.extend_from_slice(&self.pool[at..at + len]);
        if let Some(head) = out.first_chunk_mut() {
            *head = Values::stamp(n, len);
        }
    }

    /// Whether `value` is the value of number `n`, whatever its length. The stamp is checked always, all bytes
    /// for one number in eight: enough to catch a mistake, cheap enough to stay in the loop.
    #[inline]
    pub fn is_right(&self, n: u64, value: &[u8]) -> bool {
        let rest = match value.split_first_chunk::<8>() {
            Some((head, rest)) => {
                if *head != Values::stamp(n, value.len()) {
                    return false;
                }
                if !n.is_multiple_of(8) {
                    return true;
                }
                rest
            }
            None => value,
        };
        let at = Values::place(n) + value.len() - rest.len();
        self.pool.get(at..at + rest.len()) == Some(rest)
    }
}

/// A number below `n`, all alike likely (multiply and shift).
#[inline]
pub fn below(rng: &mut SmallRng, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}

/// A number in [0, 1).
#[inline]
pub fn unit(rng: &mut SmallRng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_db_benchs() {
        assert_eq!(Keys { size: 16 }.make(0x0102), b"\0\0\0\0\0\0\x01\x0200000000");
        assert_eq!(Keys { size: 4 }.make(0x0102_0304), b"\x01\x02\x03\x04");
        for size in [1, 4, 8, 16, 48] {
            let k = Keys { size };
            assert_eq!(k.number(&k.make(200)), Some(200));
            assert_eq!(k.number(&vec![b'0'; size + 1]), None);
        }
        assert_eq!(Keys { size: 16 }.number(b"\0\0\0\0\0\0\x01\x0200000001"), None);
    }

    #[test]
    fn values_are_recognised_and_compress_to_a_half() {
        let v = Values::new(400);
        let longer = Values::new(5000);
        let mut a = Vec::new();
        for len in [0, 3, 8, 9, 100, 400] {
            for n in 0..64 {
                v.write(n, len, &mut a);
                assert_eq!(a.len(), len);
                assert!(v.is_right(n, &a) && longer.is_right(n, &a));
                if len >= 8 {
                    assert!(!v.is_right(n + 1, &a) && !v.is_right(n, &a[..len - 1]));
                    let end = a.len() - 1;
                    a[end] ^= 1;
                    assert!(!v.is_right(n, &a) || n % 8 != 0);
                }
            }
        }
        let distinct = v.pool.chunks(100).filter(|c| c.len() == 100 && c[..50] == c[50..]).count();
        assert_eq!(distinct, v.pool.len() / 100);
    }
}
