//! The payload of a frame: the operations of one batch, or of several that were written together.
//!
//! A payload is a sequence of operations: `u8 kind, varint length, internal key`, and for a put
//! `varint length, value`. Each operation takes one sequence number, in order.

use crate::coding::{Reader, put_bytes, put_varint};
use crate::key::{self, Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES, Prefix};

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;

/// Appends one operation to a payload.
#[inline]
pub(crate) fn encode(out: &mut Vec<u8>, prefix: &Prefix, kind: Kind, key: &[u8], value: &[u8]) {
    out.reserve(key.len() + value.len() + 16);
    out.push(kind as u8);
    put_varint(out, (prefix.len() + key.len()) as u64);
    out.extend_from_slice(prefix.as_slice());
    out.extend_from_slice(key);
    if kind == Kind::Put {
        put_bytes(out, value);
    }
}

/// The same of an internal key.
pub(crate) fn encode_internal(out: &mut Vec<u8>, kind: Kind, key: &[u8], value: &[u8]) {
    out.push(kind as u8);
    put_bytes(out, key);
    if kind == Kind::Put {
        put_bytes(out, value);
    }
}

/// One operation of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op<'a> {
    pub kind: Kind,
    /// The internal key.
    pub key: &'a [u8],
    pub value: &'a [u8],
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
    let key = rest.bytes().ok_or("a key in a batch ends early")?;
    match key::split(key) {
        None => return Err("a key in a batch has no keyspace"),
        Some((_, user)) if user.len() > MAX_KEY_BYTES => return Err("a key in a batch is too long"),
        Some(_) => {}
    }
    match kind {
        0 => Ok(Op { kind: Kind::Delete, key, value: b"" }),
        1 => {
            let value = rest.bytes().ok_or("a value in a batch ends early")?;
            if value.len() > MAX_VALUE_BYTES {
                return Err("a value in a batch is too long");
            }
            Ok(Op { kind: Kind::Put, key, value })
        }
        _ => Err("an unknown kind of operation in a batch"),
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
                total += op.key.len() + op.value.len();
            }
            prop_assert!(total <= bytes.len());
        }
    }
}
