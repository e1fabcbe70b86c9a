//! What blocks hold: bytes that follow from the place in the file and a generation, so that any read can be checked
//! without remembering what was written. They look random, so no device can shrink them.

/// The eight bytes at word `i` of the file, written the `generation`th time.
fn word(i: u64, generation: u32) -> u64 {
    let mut x = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= u64::from(generation).wrapping_mul(0xd1b5_4a32_d192_ed03);
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 29)
}

/// Fills `block`, which lies at `offset` (both in multiples of 8).
pub fn fill(block: &mut [u8], offset: u64, generation: u32) {
    for (i, w) in block.chunks_exact_mut(8).enumerate() {
        w.copy_from_slice(&word(offset / 8 + i as u64, generation).to_le_bytes());
    }
}

/// The first byte of `block` that is not as [`fill`] makes it.
pub fn differs(block: &[u8], offset: u64, generation: u32) -> Option<u64> {
    let wrong = |(i, w): (usize, &[u8])| *w != word(offset / 8 + i as u64, generation).to_le_bytes();
    block.chunks_exact(8).enumerate().position(wrong).map(|i| offset + i as u64 * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_and_generation_are_both_told_apart() {
        let mut b = vec![0; 4096];
        fill(&mut b, 8192, 3);
        assert_eq!(differs(&b, 8192, 3), None);
        assert_eq!(differs(&b, 8192, 4), Some(8192));
        assert_eq!(differs(&b, 4096, 3), Some(4096));
        b[1003] ^= 1;
        assert_eq!(differs(&b, 8192, 3), Some(8192 + 1000));
    }
}
