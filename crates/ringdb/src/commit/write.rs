//! [`Write`]: what a commit puts into the log and the memtable.

use crate::key::Kind;

/// What is to be written: the pieces of a frame's payload, one after the other.
pub(crate) struct Write<'a> {
    pub parts: &'a [&'a [u8]],
    /// Operations in it.
    pub count: u32,
    /// Batches in it.
    pub batches: u64,
    /// If it is one operation that has not been encoded whole.
    pub single: Option<Single<'a>>,
}

/// One operation.
#[derive(Clone, Copy)]
pub(crate) struct Single<'a> {
    /// The internal key, and its hash.
    pub key: &'a [u8],
    pub hash: u64,
    pub kind: Kind,
    pub value: &'a [u8],
}

impl Write<'_> {
    /// Bytes of the payload.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.len() as u64).sum()
    }

    /// Appends the payload.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        self.parts.iter().for_each(|p| out.extend_from_slice(p));
    }
}

/// Calls `f` with a write of one operation, whose key and value stay where they are.
#[inline]
pub(crate) fn with_single<R>(single: Single<'_>, f: impl FnOnce(&Write<'_>) -> R) -> R {
    let Single { key, kind, value, .. } = single;
    let (mut front, mut middle) = (Front::default(), Front::default());
    front.push(&[kind as u8]);
    front.varint(key.len() as u64);
    if key.len() <= 64 {
        front.push(key);
        if kind.has_value() {
            front.varint(value.len() as u64);
        }
        return f(&Write { parts: &[front.as_slice(), value], count: 1, batches: 1, single: Some(single) });
    }
    if kind.has_value() {
        middle.varint(value.len() as u64);
    }
    let parts = [front.as_slice(), key, middle.as_slice(), value];
    f(&Write { parts: &parts, count: 1, batches: 1, single: Some(single) })
}

/// What stands before a key or a value, on the stack.
struct Front {
    bytes: [u8; 80],
    len: usize,
}

impl Default for Front {
    #[inline]
    fn default() -> Front {
        Front { bytes: [0; 80], len: 0 }
    }
}

impl Front {
    #[inline]
    fn push(&mut self, b: &[u8]) {
        self.bytes[self.len..self.len + b.len()].copy_from_slice(b);
        self.len += b.len();
    }

    #[inline]
    fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.push(&[v as u8 | 0x80]);
            v >>= 7;
        }
        self.push(&[v as u8]);
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
