//! Internal keys: a user's key, then eight bytes with the number of the write and what it did. They are ordered by the
//! user's key ascending, then the newest write first.

use std::cmp::Ordering;

/// The highest number of a write.
pub(crate) const MAX_SEQUENCE: u64 = (1 << 56) - 1;

/// An internal key's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    pub(crate) user: &'a [u8],
    pub(crate) sequence: u64,
    pub(crate) deleted: bool,
}

impl Parts<'_> {
    /// The parts of an internal key; what is wrong if it is none.
    pub(crate) fn of(key: &[u8]) -> Result<Parts<'_>, String> {
        let Some((user, tag)) = key.split_last_chunk() else {
            return Err(format!("a key of {} bytes, where each ends with a number of eight", key.len()));
        };
        let tag = u64::from_le_bytes(*tag);
        let deleted = match tag & 0xFF {
            0 => true,
            1 => false,
            kind => return Err(format!("an entry of the unknown kind {kind}")),
        };
        Ok(Parts { user, sequence: tag >> 8, deleted })
    }
}

/// The order of internal keys. What is too short has no number, and comes last of its kind.
pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    fn split(key: &[u8]) -> (&[u8], u64) {
        key.split_last_chunk().map_or((key, 0), |(user, tag)| (user, u64::from_le_bytes(*tag)))
    }
    let ((a, tag_a), (b, tag_b)) = (split(a), split(b));
    a.cmp(b).then(tag_b.cmp(&tag_a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_writes_of_a_key_come_first() {
        let key = |user: &[u8], tag: u64| [user, &tag.to_le_bytes()].concat();
        let (a9, a2, b3) = (key(b"a", 9 << 8 | 1), key(b"a", 2 << 8), key(b"b", 3 << 8 | 1));
        assert_eq!(compare(&a9, &a2), Ordering::Less);
        assert_eq!(compare(&a2, &b3), Ordering::Less);
        assert_eq!(Parts::of(&a2), Ok(Parts { user: b"a", sequence: 2, deleted: true }));
        assert!(Parts::of(&key(b"a", 2)).is_err_and(|e| e.contains("kind 2")));
        assert!(Parts::of(b"short").is_err());
    }
}
