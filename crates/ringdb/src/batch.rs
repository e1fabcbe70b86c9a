//! [`WriteBatch`]: writes that happen together or not at all, and the payload they become in the log.
//!
//! A payload is a sequence of operations: `u8 kind, varint length, internal key`, and for a put
//! `varint length, value`. Each operation takes one sequence number, in order.

use std::sync::Arc;

use crate::coding::{Reader, put_bytes, put_varint};
use crate::db::{Keyspace, KeyspaceState};
use crate::key::{self, Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES, Prefix};
use crate::{Error, Result};

/// Most bytes of one batch: what one frame of the log can hold.
pub(crate) const MAX_BATCH_BYTES: usize = 2 << 30;

/// Writes that happen together or not at all, in any keyspaces of one store, in the order they were added.
///
/// A key or value that is too long (64 KiB and 1 GiB) makes the commit fail with [`Error::Invalid`]; nothing of
/// the batch is written then.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    pub(crate) ops: Vec<u8>,
    pub(crate) count: u32,
    /// The keyspaces written to, each once, the default one left out.
    keyspaces: Vec<Arc<KeyspaceState>>,
    /// The first thing wrong with the batch, told at commit.
    invalid: Option<String>,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets a key of the default keyspace.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.add(&Prefix::new(0), Kind::Put, key.as_ref(), value.as_ref());
    }

    /// Deletes a key of the default keyspace.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        self.add(&Prefix::new(0), Kind::Delete, key.as_ref(), b"");
    }

    /// Sets a key of a keyspace.
    pub fn put_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.touch(keyspace);
        self.add(&keyspace.state().prefix, Kind::Put, key.as_ref(), value.as_ref());
    }

    /// Deletes a key of a keyspace.
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.touch(keyspace);
        self.add(&keyspace.state().prefix, Kind::Delete, key.as_ref(), b"");
    }

    /// Number of writes.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forgets the writes, keeps the memory.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.count = 0;
        self.keyspaces.clear();
        self.invalid = None;
    }

    /// Bytes of keys and values, with their framing.
    pub fn size_bytes(&self) -> usize {
        self.ops.len()
    }

    fn touch(&mut self, keyspace: &Keyspace) {
        let state = keyspace.state();
        if !self.keyspaces.iter().any(|k| Arc::ptr_eq(k, state)) {
            self.keyspaces.push(state.clone());
        }
    }

    fn add(&mut self, prefix: &Prefix, kind: Kind, key: &[u8], value: &[u8]) {
        let fits = check_limits(key, value).and_then(|()| {
            let room = MAX_BATCH_BYTES - self.ops.len().min(MAX_BATCH_BYTES);
            if key.len() + value.len() + 32 > room || self.count == u32::MAX {
                return Err(Error::Invalid(format!("a batch holds at most {MAX_BATCH_BYTES} bytes")));
            }
            Ok(())
        });
        match fits {
            Ok(()) => {
                encode(&mut self.ops, prefix, kind, key, value);
                self.count += 1;
            }
            Err(e) => {
                self.invalid.get_or_insert_with(|| e.to_string());
            }
        }
    }

    /// Whether the batch can be committed to the store with this identity.
    pub(crate) fn check(&self, store: u64) -> Result<()> {
        if let Some(why) = &self.invalid {
            return Err(Error::Invalid(why.clone()));
        }
        for k in &self.keyspaces {
            if k.store != store {
                return Err(Error::Invalid(format!("keyspace '{}' belongs to another store", k.name)));
            }
            k.check()?;
        }
        Ok(())
    }
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

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn operations_come_back_in_order() {
        let mut b = WriteBatch::new();
        b.put("", "");
        b.put("k", vec![7; 300]);
        b.delete("k");
        assert_eq!(b.len(), 3);
        let ops: Vec<Op> = decode(&b.ops).collect::<std::result::Result<_, _>>().unwrap();
        assert_eq!(ops[0], Op { kind: Kind::Put, key: b"\0", value: b"" });
        assert_eq!(ops[1], Op { kind: Kind::Put, key: b"\0k", value: &[7; 300] });
        assert_eq!(ops[2], Op { kind: Kind::Delete, key: b"\0k", value: b"" });
        for cut in 1..b.ops.len() {
            let n = decode(&b.ops[..cut]).filter(|o| o.is_ok()).count();
            assert!(n < 3, "cut at {cut}");
        }
        b.clear();
        assert!(b.is_empty() && b.size_bytes() == 0);
    }

    #[test]
    fn too_long_a_key_fails_the_commit() {
        let mut b = WriteBatch::new();
        b.put(vec![0; MAX_KEY_BYTES], "fits");
        assert!(b.check(1).is_ok());
        b.put(vec![0; MAX_KEY_BYTES + 1], "does not");
        assert!(b.check(1).unwrap_err().to_string().contains("65536"));
        b.clear();
        assert!(b.check(1).is_ok());
    }

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
