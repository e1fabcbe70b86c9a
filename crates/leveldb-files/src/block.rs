//! The entries of a block: each key as what it has in common with the one before, and the rest. Behind them are the
//! places where whole keys stand, for searches; a walk over all entries does not need these.

use crate::bytes::{fixed32, varint32};

/// A walk over the entries of a block.
#[derive(Default)]
pub(crate) struct Block {
    data: Vec<u8>,
    /// Where the entries end.
    end: usize,
    /// Where the next entry begins.
    at: usize,
    /// The entry's key.
    key: Vec<u8>,
    /// Where its value is.
    value: std::ops::Range<usize>,
}

impl Block {
    /// Of the block's bytes, before its first entry; `None` if they have no end as a block's.
    pub(crate) fn new(data: Vec<u8>) -> Option<Block> {
        let restarts = data.last_chunk().map(|b| u32::from_le_bytes(*b))?;
        let tail = (u64::from(restarts) + 1) * 4;
        let end = (data.len() as u64).checked_sub(tail)? as usize;
        debug_assert!(fixed32(&data[end..]).is_some());
        Some(Block { data, end, at: 0, key: Vec::new(), value: 0..0 })
    }

    /// Where in the block the entry begins that [`Block::step`] goes to.
    pub(crate) fn next_at(&self) -> usize {
        self.at
    }

    /// Goes to the next entry. `Ok(false)` if there is none; `Err` if it is none that LevelDB writes.
    pub(crate) fn step(&mut self) -> Result<bool, ()> {
        if self.at == self.end {
            return Ok(false);
        }
        let entry = &self.data[self.at..self.end];
        let (shared, rest) = varint32(entry).ok_or(())?;
        let (own, rest) = varint32(rest).ok_or(())?;
        let (value, rest) = varint32(rest).ok_or(())?;
        let (own, rest) = rest.split_at_checked(own as usize).ok_or(())?;
        let (value, rest) = rest.split_at_checked(value as usize).ok_or(())?;
        if shared as usize > self.key.len() {
            return Err(());
        }
        self.key.truncate(shared as usize);
        self.key.extend_from_slice(own);
        self.at = self.end - rest.len();
        self.value = self.at - value.len()..self.at;
        Ok(true)
    }

    /// The entry's key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The entry's value.
    pub(crate) fn value(&self) -> &[u8] {
        &self.data[self.value.clone()]
    }

    /// Its memory, for the next block.
    pub(crate) fn into_memory(mut self) -> Vec<u8> {
        self.data.clear();
        self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_walked_and_what_is_none_is_seen() {
        let block = [&[0, 2, 1][..], b"abX", &[1, 2, 0], b"cd", &[0; 4], &[1, 0, 0, 0]].concat();
        let mut b = Block::new(block.clone()).unwrap();
        assert_eq!(b.step(), Ok(true));
        assert_eq!((b.key(), b.value()), (&b"ab"[..], &b"X"[..]));
        assert_eq!(b.step(), Ok(true));
        assert_eq!((b.key(), b.value()), (&b"acd"[..], &b""[..]));
        assert_eq!(b.step(), Ok(false));
        for (at, byte) in [(0, 1), (1, 200), (2, 9), (6, 3)] {
            let mut bad = block.clone();
            bad[at] = byte;
            let mut b = Block::new(bad).unwrap();
            while b.step() == Ok(true) {}
            assert_eq!(b.step(), Err(()), "{at}");
        }
        assert!(Block::new(vec![1, 0, 0, 0]).is_none());
        assert!(Block::new(vec![0xFF; 12]).is_none());
        assert!(Block::new(vec![0; 3]).is_none());
        assert_eq!(Block::new(vec![0; 4]).unwrap().step(), Ok(false));
    }
}
