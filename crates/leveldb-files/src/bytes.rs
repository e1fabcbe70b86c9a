//! Numbers at the front of bytes, and checksums. Each reader takes what it needs and gives the rest, or `None` if
//! there is too little.

/// A number of seven bits a byte, low bits first.
pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut v = 0;
    for (i, &b) in bytes.iter().take(10).enumerate() {
        if i == 9 && b > 1 {
            return None;
        }
        v |= u64::from(b & 0x7F) << (7 * i);
        if b < 0x80 {
            return Some((v, &bytes[i + 1..]));
        }
    }
    None
}

/// One that has at most 32 bits.
pub(crate) fn varint32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (v, rest) = varint(bytes)?;
    Some((u32::try_from(v).ok()?, rest))
}

/// Bytes behind their length.
pub(crate) fn prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (n, rest) = varint32(bytes)?;
    rest.split_at_checked(n as usize)
}

/// Four bytes, low first.
pub(crate) fn fixed32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (b, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*b), rest))
}

/// Eight bytes, low first.
pub(crate) fn fixed64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (b, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*b), rest))
}

/// What LevelDB stores as the checksum of `bytes`: their CRC-32C, turned and moved, so that a checksum of bytes which
/// hold checksums is still one.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    crc.rotate_right(15).wrapping_add(0xA282_EAD8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_cut_off_or_too_large_are_none() {
        assert_eq!(varint(&[0xAC, 0x02, 7]), Some((300, &[7][..])));
        assert_eq!(varint(&[0xFF; 3]), None);
        assert_eq!(varint(&[0xFF; 10]), None);
        let most = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1];
        assert_eq!(varint(&most), Some((u64::MAX, &[][..])));
        assert_eq!(varint32(&most), None);
        assert_eq!(prefixed(&[2, b'a', b'b', b'c']), Some((&b"ab"[..], &b"c"[..])));
        assert_eq!(prefixed(&[2, b'a']), None);
    }

    #[test]
    fn the_checksum_is_crc32c_masked() {
        // CRC-32C of nine digits is 0xE3069283.
        assert_eq!(checksum(b"123456789"), 0xE306_9283_u32.rotate_right(15).wrapping_add(0xA282_EAD8));
    }
}
