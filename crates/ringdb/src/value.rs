//! [`Value`]: bytes that a read returns.

use std::borrow::Borrow;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use engineswap::mem::AlignedBuf;

/// Bytes that a read returns: a key or a value. Dereferences to `[u8]`. Short ones are kept inline; a large value
/// may be a part of the block that was read, which stays in memory for as long.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = ringdb::Db::open(dir.path(), ringdb::Options::default())?;
/// db.put("apple", "red")?;
/// let value: ringdb::Value = db.get("apple")?.expect("a value");
/// assert!(value.starts_with(b"r") && value == b"red");
/// let owned: Vec<u8> = value.into_vec();
/// # Ok::<(), ringdb::Error>(())
/// ```
#[derive(Clone)]
pub struct Value(Repr);

/// Longest byte string that is kept inline.
const INLINE: usize = 30;

#[derive(Clone)]
enum Repr {
    Inline(u8, [u8; INLINE]),
    Heap(Box<[u8]>),
    Shared(Arc<AlignedBuf>, Range<usize>),
}

impl Value {
    /// Copies `bytes`.
    #[inline]
    pub fn copy_from(bytes: &[u8]) -> Value {
        if bytes.len() <= INLINE {
            let mut a = [0; INLINE];
            a[..bytes.len()].copy_from_slice(bytes);
            Value(Repr::Inline(bytes.len() as u8, a))
        } else {
            Value(Repr::Heap(bytes.into()))
        }
    }

    /// `part` of a buffer, without copying it.
    pub(crate) fn shared(buf: Arc<AlignedBuf>, part: Range<usize>) -> Value {
        Value(Repr::Shared(buf, part))
    }

    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline(n, a) => &a[..*n as usize],
            Repr::Heap(b) => b,
            Repr::Shared(buf, part) => &buf[part.clone()],
        }
    }

    /// The bytes as an owned vector.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Repr::Inline(n, a) => a[..n as usize].to_vec(),
            Repr::Heap(b) => b.into_vec(),
            Repr::Shared(buf, part) => buf[part].to_vec(),
        }
    }
}

impl Default for Value {
    fn default() -> Value {
        Value::copy_from(&[])
    }
}

impl Deref for Value {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl From<Vec<u8>> for Value {
    fn from(v: Vec<u8>) -> Value {
        if v.len() <= INLINE { Value::copy_from(&v) } else { Value(Repr::Heap(v.into_boxed_slice())) }
    }
}

impl From<&[u8]> for Value {
    fn from(v: &[u8]) -> Value {
        Value::copy_from(v)
    }
}

impl From<Value> for Vec<u8> {
    fn from(v: Value) -> Vec<u8> {
        v.into_vec()
    }
}

/// Without a copy, but for what is kept inline (30 bytes at most).
#[cfg(feature = "bytes")]
impl From<Value> for bytes::Bytes {
    fn from(v: Value) -> bytes::Bytes {
        match v.0 {
            Repr::Inline(n, a) => bytes::Bytes::copy_from_slice(&a[..n as usize]),
            Repr::Heap(b) => b.into(),
            Repr::Shared(..) => bytes::Bytes::from_owner(v),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, o: &Value) -> bool {
        self.as_slice() == o.as_slice()
    }
}
impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, o: &Value) -> Option<std::cmp::Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for Value {
    fn cmp(&self, o: &Value) -> std::cmp::Ordering {
        self.as_slice().cmp(o.as_slice())
    }
}

impl std::hash::Hash for Value {
    fn hash<H: std::hash::Hasher>(&self, h: &mut H) {
        self.as_slice().hash(h);
    }
}

macro_rules! eq_with {
    ($($t:ty $(, $n:ident)?);*) => {$(
        impl$(<const $n: usize>)? PartialEq<$t> for Value {
            fn eq(&self, o: &$t) -> bool { self.as_slice() == &o[..] }
        }
        impl$(<const $n: usize>)? PartialEq<Value> for $t {
            fn eq(&self, o: &Value) -> bool { &self[..] == o.as_slice() }
        }
    )*};
}
eq_with!([u8]; &[u8]; Vec<u8>; [u8; N], N; &[u8; N], N);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_and_heap_read_back() {
        for n in [0, 1, INLINE, INLINE + 1, 5000] {
            let v: Vec<u8> = (0..n).map(|i| i as u8).collect();
            let x = Value::copy_from(&v);
            assert_eq!(x, v);
            assert_eq!(x.clone().into_vec(), v);
            assert_eq!(Value::from(v.clone()), x);
        }
        let mut buf = AlignedBuf::zeroed(8192);
        buf[5000..5003].copy_from_slice(b"abc");
        let x = Value::shared(Arc::new(buf), 5000..5003);
        assert_eq!((&x, x.clone().into_vec()), (&Value::copy_from(b"abc"), b"abc".to_vec()));
        assert_eq!(size_of::<Value>(), 32);
    }

    #[test]
    #[cfg(feature = "bytes")]
    fn bytes_come_without_a_copy() {
        let heap = Value::copy_from(&[7; 5000]);
        let shared = Value::shared(Arc::new(AlignedBuf::zeroed(8192)), 5000..5003);
        for v in [heap, shared] {
            let (at, content) = (v.as_ptr(), v.to_vec());
            let b = bytes::Bytes::from(v);
            assert_eq!((b.as_ptr(), &b[..]), (at, &content[..]));
        }
        assert_eq!(bytes::Bytes::from(Value::copy_from(b"abc")), "abc");
    }

    #[test]
    fn values_compare_and_print() {
        assert_eq!(Value::copy_from(b"abc"), b"abc");
        assert_eq!(format!("{:?}", Value::copy_from(b"a\x00")), "b\"a\\x00\"");
    }
}
