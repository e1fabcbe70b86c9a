//! [`Cursor`]: the one shape of everything that yields versions of keys in order.

use crate::error::Result;
use crate::key::{Kind, Seq};

/// A position among versions of internal keys, ordered by key ascending, then sequence number descending.
///
/// A cursor is made without a position (not valid). Moving past either end makes it invalid; an invalid cursor
/// is moved only by the seeks. After an error the cursor is invalid.
pub(crate) trait Cursor {
    /// Whether the cursor stands on a version.
    fn valid(&self) -> bool;
    /// The internal key. Only when valid.
    fn key(&self) -> &[u8];
    /// The version's sequence number. Only when valid.
    fn seq(&self) -> Seq;
    /// What the version is. Only when valid.
    fn kind(&self) -> Kind;
    /// The value; empty for a tombstone. Only when valid.
    fn value(&self) -> &[u8];
    /// To be called before [`Cursor::value`] of a cursor that may leave large values where they are until then, as
    /// compactions' do. Only when valid.
    #[inline]
    fn load_value(&mut self) -> Result<()> {
        Ok(())
    }
    /// To the first (newest) version of the first key at or after `key`.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    /// To the first (newest) version of the first key.
    fn seek_to_first(&mut self) -> Result<()>;
    /// To the following version. Only when valid.
    fn next(&mut self) -> Result<()>;
}

/// A cursor that goes both ways.
pub(crate) trait ReverseCursor: Cursor {
    /// To the last (oldest) version of the last key.
    fn seek_to_last(&mut self) -> Result<()>;
    /// To the last (oldest) version of the last key before `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;
    /// To the preceding version. Only when valid.
    fn prev(&mut self) -> Result<()>;
}

/// Eight bytes of `key` from `skip` on, zero-padded, as a number that orders as the bytes do. Different heads
/// decide the order of two keys that agree before `skip`; equal heads decide nothing ("a" and "a\0").
#[inline]
pub(crate) fn key_head(key: &[u8], skip: usize) -> u64 {
    let tail = key.get(skip..).unwrap_or_default();
    if let Some(head) = tail.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    head[..tail.len()].copy_from_slice(tail);
    u64::from_be_bytes(head)
}

impl<C: Cursor + ?Sized> Cursor for Box<C> {
    fn valid(&self) -> bool {
        (**self).valid()
    }
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    fn seq(&self) -> Seq {
        (**self).seq()
    }
    fn kind(&self) -> Kind {
        (**self).kind()
    }
    fn value(&self) -> &[u8] {
        (**self).value()
    }
    fn load_value(&mut self) -> Result<()> {
        (**self).load_value()
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        (**self).seek(key)
    }
    fn seek_to_first(&mut self) -> Result<()> {
        (**self).seek_to_first()
    }
    fn next(&mut self) -> Result<()> {
        (**self).next()
    }
}

/// A cursor over a vector: the sorted model of this crate's tests.
#[cfg(test)]
pub(crate) mod model {
    use super::*;

    /// One version.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Entry {
        pub key: Vec<u8>,
        pub seq: Seq,
        pub kind: Kind,
        pub value: Vec<u8>,
    }

    /// A cursor over versions, which it sorts.
    #[derive(Clone, Debug)]
    pub(crate) struct VecCursor {
        entries: Vec<Entry>,
        at: Option<usize>,
    }

    impl VecCursor {
        pub fn new(mut entries: Vec<Entry>) -> VecCursor {
            entries.sort_by(|a, b| a.key.cmp(&b.key).then(b.seq.cmp(&a.seq)));
            VecCursor { entries, at: None }
        }

        fn here(&self) -> &Entry {
            &self.entries[self.at.expect("valid")]
        }

        fn set(&mut self, at: Option<usize>) -> Result<()> {
            self.at = at.filter(|&i| i < self.entries.len());
            Ok(())
        }
    }

    impl Cursor for VecCursor {
        fn valid(&self) -> bool {
            self.at.is_some()
        }
        fn key(&self) -> &[u8] {
            &self.here().key
        }
        fn seq(&self) -> Seq {
            self.here().seq
        }
        fn kind(&self) -> Kind {
            self.here().kind
        }
        fn value(&self) -> &[u8] {
            &self.here().value
        }
        fn seek(&mut self, key: &[u8]) -> Result<()> {
            self.set(Some(self.entries.partition_point(|e| e.key.as_slice() < key)))
        }
        fn seek_to_first(&mut self) -> Result<()> {
            self.set(Some(0))
        }
        fn next(&mut self) -> Result<()> {
            self.set(self.at.map(|i| i + 1))
        }
    }

    impl ReverseCursor for VecCursor {
        fn seek_to_last(&mut self) -> Result<()> {
            self.set(self.entries.len().checked_sub(1))
        }
        fn seek_before(&mut self, key: &[u8]) -> Result<()> {
            self.set(self.entries.partition_point(|e| e.key.as_slice() < key).checked_sub(1))
        }
        fn prev(&mut self) -> Result<()> {
            self.set(self.at.and_then(|i| i.checked_sub(1)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_order_as_bytes_do() {
        let keys: [&[u8]; 7] = [b"", b"\0", b"a", b"a\0", b"ab", b"abcdefgh", b"abcdefghi"];
        for pair in keys.windows(2) {
            assert!(key_head(pair[0], 0) <= key_head(pair[1], 0));
        }
        assert_eq!(key_head(b"xxabcdefghi", 2), key_head(b"abcdefgh", 0));
        assert_eq!(key_head(b"ab", 5), 0);
    }
}
