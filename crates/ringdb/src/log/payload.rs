//! The payload of a frame: the operations of one batch, or of several that were written together.
//!
//! A payload is a sequence of operations: `u8 kind, varint length, internal key`, and for a put `varint length, value`
//! (of one that expires, with the time in front: [`crate::expiry`]), for a merge the same with an operand; or
//! [`DELETE_RANGE`] and two internal keys, the first that is deleted and the first behind those. Each operation takes
//! one sequence number, in order.

use crate::coding::{Reader, put_bytes, put_varint};
use crate::expiry;
use crate::key::{self, Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES, Prefix, Seq};
use crate::memtable::MemWriter;
use crate::ranges::is_range;

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;

/// The kind of an operation that deletes a range of keys. Apart from the kinds of versions.
const DELETE_RANGE: u8 = 8;

/// Appends one operation to a payload.
#[inline]
pub(crate) fn encode(out: &mut Vec<u8>, prefix: &Prefix, kind: Kind, key: &[u8], value: &[u8]) {
    out.reserve(key.len() + value.len() + 16);
    out.push(kind as u8);
    put_varint(out, (prefix.len() + key.len()) as u64);
    out.extend_from_slice(prefix.as_slice());
    out.extend_from_slice(key);
    if kind.has_value() {
        put_bytes(out, value);
    }
}

/// The same of an internal key.
pub(crate) fn encode_internal(out: &mut Vec<u8>, kind: Kind, key: &[u8], value: &[u8]) {
    out.push(kind as u8);
    put_bytes(out, key);
    if kind.has_value() {
        put_bytes(out, value);
    }
}

/// Appends the deletion of all internal keys from `start` on and before `end`.
pub(crate) fn encode_range(out: &mut Vec<u8>, start: &[u8], end: &[u8]) {
    debug_assert!(is_range(start, end), "only what can be read is written");
    out.push(DELETE_RANGE);
    put_bytes(out, start);
    put_bytes(out, end);
}

/// One operation of a payload. Keys are internal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op<'a> {
    /// A version of a key.
    Version { kind: Kind, key: &'a [u8], value: &'a [u8] },
    /// The deletion of the keys from `start` on and before `end`.
    DeleteRange { start: &'a [u8], end: &'a [u8] },
}

impl Op<'_> {
    /// Inserts it with its sequence number.
    pub fn insert_into(&self, mem: &mut MemWriter, seq: Seq) {
        match *self {
            Op::Version { kind, key, value } => mem.insert(key, key::hash(key), seq, kind, value),
            Op::DeleteRange { start, end } => mem.delete_range(start, end, seq),
        }
    }

    /// The first key that it touches.
    pub fn first_key(&self) -> &[u8] {
        match self {
            Op::Version { key, .. } | Op::DeleteRange { start: key, .. } => key,
        }
    }
}

/// The operations of a payload; ends after the first error.
pub(crate) struct Ops<'a> {
    rest: Reader<'a>,
}

/// Decodes a payload.
pub(crate) fn decode(payload: &[u8]) -> Ops<'_> {
    Ops { rest: Reader::new(payload) }
}

impl<'a> Iterator for Ops<'a> {
    type Item = std::result::Result<Op<'a>, &'static str>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let op = take_op(&mut self.rest);
        if op.is_err() {
            self.rest = Reader::new(&[]);
        }
        Some(op)
    }
}

#[inline]
fn take_op<'a>(rest: &mut Reader<'a>) -> std::result::Result<Op<'a>, &'static str> {
    let kind = rest.u8().ok_or("a batch ends early")?;
    if kind == DELETE_RANGE {
        return take_range(rest);
    }
    let key = rest.bytes().ok_or("a key in a batch ends early")?;
    match key::split(key) {
        None => return Err("a key in a batch has no keyspace"),
        Some((_, user)) if user.len() > MAX_KEY_BYTES => return Err("a key in a batch is too long"),
        Some(_) => {}
    }
    match kind {
        0 => Ok(Op::Version { kind: Kind::Delete, key, value: b"" }),
        1 | 2 => {
            let value = rest.bytes().ok_or("a value in a batch ends early")?;
            if value.len() > MAX_VALUE_BYTES {
                return Err("a value in a batch is too long");
            }
            let kind = if kind == 1 { Kind::Put } else { Kind::Merge };
            Ok(Op::Version { kind, key, value })
        }
        3 => take_expiring(rest, key),
        _ => Err("an unknown kind of operation in a batch"),
    }
}

#[inline(never)]
fn take_expiring<'a>(rest: &mut Reader<'a>, key: &'a [u8]) -> std::result::Result<Op<'a>, &'static str> {
    let value = rest.bytes().ok_or("a value in a batch ends early")?;
    if value.len() > MAX_VALUE_BYTES {
        return Err("a value in a batch is too long");
    }
    match value.len() < expiry::STAMP_BYTES {
        true => Err("a value in a batch lacks the time at which it expires"),
        false => Ok(Op::Version { kind: Kind::Expiring, key, value }),
    }
}

#[cold]
fn take_range<'a>(rest: &mut Reader<'a>) -> std::result::Result<Op<'a>, &'static str> {
    let mut end_of_range = || rest.bytes().ok_or("a range in a batch ends early");
    let (start, end) = (end_of_range()?, end_of_range()?);
    match is_range(start, end) {
        true => Ok(Op::DeleteRange { start, end }),
        false => Err("a range in a batch is none"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut total = 0;
            for op in decode(&bytes).flatten() {
                total += match op {
                    Op::Version { key, value, .. } => key.len() + value.len(),
                    Op::DeleteRange { start, end } => start.len() + end.len(),
                };
            }
            prop_assert!(total <= bytes.len());
        }
    }

    #[test]
    fn ranges_read_back_and_what_is_none_is_refused() {
        let mut b = Vec::new();
        encode_range(&mut b, b"\0a", b"\0c");
        encode(&mut b, &Prefix::new(0), Kind::Delete, b"x", b"");
        encode(&mut b, &Prefix::new(0), Kind::Merge, b"x", b"y");
        let ops: Vec<Op<'_>> = decode(&b).map(|op| op.expect("an operation")).collect();
        assert_eq!(ops[0], Op::DeleteRange { start: b"\0a", end: b"\0c" });
        assert_eq!(ops[1], Op::Version { kind: Kind::Delete, key: b"\0x", value: b"" });
        assert_eq!(ops[2], Op::Version { kind: Kind::Merge, key: b"\0x", value: b"y" });
        let mut b = Vec::new();
        encode(&mut b, &Prefix::new(0), Kind::Expiring, b"x", b"12345678v");
        let expiring = Op::Version { kind: Kind::Expiring, key: b"\0x", value: b"12345678v" };
        assert_eq!(decode(&b).next(), Some(Ok(expiring)));
        let no_time = Some(Err("a value in a batch lacks the time at which it expires"));
        assert_eq!(decode(&[3, 1, 0, 7, 1, 2, 3, 4, 5, 6, 7]).next(), no_time);
        assert_eq!(decode(&[4, 1, 0]).next(), Some(Err("an unknown kind of operation in a batch")));
        for (start, end) in [(&b"\0c"[..], &b"\0c"[..]), (b"\0d", b"\0c"), (b"", b"\0"), (b"\0", b"\xF9")] {
            let mut b = vec![DELETE_RANGE];
            put_bytes(&mut b, start);
            put_bytes(&mut b, end);
            assert_eq!(decode(&b).next(), Some(Err("a range in a batch is none")), "{start:?} {end:?}");
        }
    }
}
