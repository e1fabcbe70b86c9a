//! Internal keys: the keyspace's id before the user's key, so that one tree holds every keyspace.
//!
//! Ids below 0xF0 are one byte; larger ones are 0xF0 and four bytes, big endian. Byte order of internal keys
//! is (id, user key). Id 0 is the default keyspace. Ids are never used twice.

use crate::{Error, Result};

/// Sequence number of a write: later writes have larger numbers. The first is 1.
pub(crate) type Seq = u64;

/// Sees every version.
pub(crate) const SEQ_MAX: Seq = (1 << 56) - 1;

/// Longest user key in bytes.
pub const MAX_KEY_BYTES: usize = 64 << 10;
/// Longest value in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 30;

/// Most bytes of one batch: what one frame of the log can hold.
pub(crate) const MAX_BATCH_BYTES: usize = 2 << 30;

/// What a version of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A tombstone.
    Delete = 0,
    /// A value.
    Put = 1,
    /// An operand, which the keyspace's operator merges into what is older.
    Merge = 2,
    /// A value behind the time from which on it counts as deleted: see [`crate::expiry`].
    Expiring = 3,
}

impl Kind {
    /// Whether a version of this kind has a value, or an operand.
    #[inline]
    pub fn has_value(self) -> bool {
        self != Kind::Delete
    }
}

const WIDE: u8 = 0xF0;

/// The prefix of a keyspace's internal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    bytes: [u8; 5],
    len: u8,
}

impl Prefix {
    pub fn new(id: u32) -> Prefix {
        if id < WIDE as u32 {
            Prefix { bytes: [id as u8, 0, 0, 0, 0], len: 1 }
        } else {
            let b = id.to_be_bytes();
            Prefix { bytes: [WIDE, b[0], b[1], b[2], b[3]], len: 5 }
        }
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    pub fn len(&self) -> usize {
        self.len as usize
    }
}

/// Splits an internal key into the keyspace's id and the user's key; `None` if it is too short or not canonical.
pub(crate) fn split(internal: &[u8]) -> Option<(u32, &[u8])> {
    let (&first, rest) = internal.split_first()?;
    if first < WIDE {
        return Some((first as u32, rest));
    }
    let (id, rest) = rest.split_first_chunk::<4>()?;
    let id = u32::from_be_bytes(*id);
    (first == WIDE && id >= WIDE as u32).then_some((id, rest))
}

/// Whether a key and a value are within the limits.
#[inline]
pub(crate) fn check_limits(key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
        return Err(too_long(key, value));
    }
    Ok(())
}

#[cold]
fn too_long(key: &[u8], value: &[u8]) -> Error {
    Error::Invalid(if key.len() > MAX_KEY_BYTES {
        format!("a key of {} bytes is too long: at most {MAX_KEY_BYTES} (64 KiB)", key.len())
    } else {
        format!("a value of {} bytes is too long: at most {MAX_VALUE_BYTES} (1 GiB)", value.len())
    })
}

/// Where a keyspace's internal keys begin, and where those of larger ids do.
pub(crate) fn bounds_of(id: u32) -> (Vec<u8>, Vec<u8>) {
    (Prefix::new(id).as_slice().to_vec(), Prefix::new(id.saturating_add(1)).as_slice().to_vec())
}

/// An internal key for people: the user's key as text (bytes that are not printable ASCII as `\xNN`), after the
/// keyspace's id if it is not the default one.
pub(crate) fn printable(internal: &[u8]) -> String {
    let (id, user) = split(internal).unwrap_or((0, internal));
    let text: String = user.iter().flat_map(|b| std::ascii::escape_default(*b)).map(char::from).collect();
    if id == 0 { text } else { format!("{id}:{text}") }
}

/// An internal key on the stack (or the heap when long).
pub(crate) struct KeyBuf {
    inline: [u8; 64],
    heap: Box<[u8]>,
    len: usize,
}

impl KeyBuf {
    #[inline]
    pub fn new(prefix: &Prefix, key: &[u8]) -> KeyBuf {
        let len = prefix.len() + key.len();
        let mut b = KeyBuf { inline: [0; 64], heap: Box::default(), len };
        if len <= 64 {
            // All of it, of fixed length: the key overwrites what does not count.
            b.inline[..prefix.bytes.len()].copy_from_slice(&prefix.bytes);
            b.inline[prefix.len()..len].copy_from_slice(key);
        } else {
            b.heap = [prefix.as_slice(), key].concat().into();
        }
        b
    }

    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        if self.len <= 64 { &self.inline[..self.len] } else { &self.heap }
    }
}

/// The hash that every filter of an internal key is asked with.
#[inline]
pub(crate) fn hash(internal: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_keep_order_and_split() {
        let ids = [0, 1, 239, 240, 241, 65536, u32::MAX];
        let keys: Vec<Vec<u8>> =
            ids.iter().map(|&i| KeyBuf::new(&Prefix::new(i), b"k").as_slice().to_vec()).collect();
        assert!(keys.is_sorted());
        for (k, id) in keys.iter().zip(ids) {
            assert_eq!(split(k), Some((id, &b"k"[..])));
            let (from, to) = bounds_of(id);
            assert!(id == u32::MAX || (&from <= k && *k < to));
        }
        assert_eq!(split(b""), None);
        assert_eq!(split(&[0xF1, 0, 0, 0, 0]), None);
        assert_eq!(split(&[0xF0, 0, 0, 0, 1]), None);
    }
}
