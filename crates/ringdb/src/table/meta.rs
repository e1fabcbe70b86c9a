//! [`TableMeta`]: what the manifest knows of a table.

use crate::coding::{Reader, put_bytes, put_varint};
use crate::expiry::Expiry;
use crate::key::{MAX_KEY_BYTES, SEQ_MAX, Seq};

/// Longest internal key: the widest keyspace prefix and the longest user key.
pub(crate) const MAX_INTERNAL_KEY_BYTES: usize = MAX_KEY_BYTES + 5;

/// What the manifest knows of a table. Keys are internal keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableMeta {
    /// The number in its file name.
    pub file_id: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Versions, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Smallest sequence number.
    pub min_seq: Seq,
    /// Largest sequence number.
    pub max_seq: Seq,
    /// First key.
    pub smallest: Vec<u8>,
    /// Last key.
    pub largest: Vec<u8>,
    /// Of a table that was ingested: the sequence number of all its entries, which the file has as 0. 0 for any other.
    pub given: Seq,
    /// When entries expire, if any do. Not part of what [`TableMeta::encode`] writes.
    pub expiry: Option<Expiry>,
}

impl TableMeta {
    /// Appends the encoding that [`TableMeta::decode`] reads.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for v in [self.file_id, self.file_bytes, self.entries, self.tombstones, self.min_seq, self.max_seq] {
            put_varint(out, v);
        }
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
    }

    /// What an ingested table, whose entries have the number 0 in the file, is from the number `seq` on.
    pub fn with_given(&self, seq: Seq) -> TableMeta {
        TableMeta { given: seq, min_seq: seq, max_seq: seq, ..self.clone() }
    }

    /// As the file has it.
    pub fn in_file(&self) -> TableMeta {
        if self.given == 0 { self.clone() } else { self.with_given(0) }
    }

    /// The same of a table that was ingested, from the manifest.
    pub fn decode_given(r: &mut Reader<'_>) -> Option<TableMeta> {
        let meta = TableMeta::decode(r)?;
        (meta.min_seq == meta.max_seq && meta.max_seq > 0 && meta.tombstones == 0)
            .then_some(TableMeta { given: meta.max_seq, ..meta })
    }

    /// Takes a table's description from `r`. `None` if it is cut off or says what no table can be.
    pub fn decode(r: &mut Reader<'_>) -> Option<TableMeta> {
        let meta = TableMeta {
            given: 0,
            file_id: r.varint()?,
            file_bytes: r.varint()?,
            entries: r.varint()?,
            tombstones: r.varint()?,
            min_seq: r.varint()?,
            max_seq: r.varint()?,
            smallest: r.bytes()?.to_vec(),
            largest: r.bytes()?.to_vec(),
            expiry: None,
        };
        meta.is_sane().then_some(meta)
    }

    /// The same with when its entries expire; `None` if that cannot be.
    pub fn with_expiry(self, expiry: Expiry) -> Option<TableMeta> {
        let fits = expiry.entries <= self.entries - self.tombstones;
        fits.then_some(TableMeta { expiry: Some(expiry), ..self })
    }

    /// About how many entries hide older ones, at most, and are nothing themselves at this time: tombstones, and what
    /// has expired.
    pub fn dead_at(&self, now: u64) -> u64 {
        self.tombstones + self.expiry.map_or(0, |e| e.expired_at(now))
    }

    /// Whether there is any such entry.
    pub fn has_dead_at(&self, now: u64) -> bool {
        self.tombstones > 0 || self.expiry.is_some_and(|e| e.first <= now)
    }

    fn is_sane(&self) -> bool {
        self.entries > 0
            && self.tombstones <= self.entries
            && self.min_seq <= self.max_seq
            && self.max_seq <= SEQ_MAX
            && self.smallest <= self.largest
            && !self.smallest.is_empty()
            && self.smallest.len().max(self.largest.len()) <= MAX_INTERNAL_KEY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> TableMeta {
        TableMeta {
            given: 0,
            file_id: 7,
            file_bytes: 1 << 20,
            entries: 300,
            tombstones: 4,
            min_seq: 9,
            max_seq: SEQ_MAX,
            smallest: b"\0a".to_vec(),
            largest: b"\0zz".to_vec(),
            expiry: None,
        }
    }

    #[test]
    fn reads_back_and_refuses_what_is_cut_off() {
        let mut b = vec![];
        sample().encode(&mut b);
        assert_eq!(TableMeta::decode(&mut Reader::new(&b)), Some(sample()));
        for cut in 0..b.len() {
            assert_eq!(TableMeta::decode(&mut Reader::new(&b[..cut])), None);
        }
    }

    #[test]
    fn refuses_the_impossible() {
        for spoil in [
            |m: &mut TableMeta| m.entries = 0,
            |m: &mut TableMeta| m.tombstones = 301,
            |m: &mut TableMeta| m.min_seq = SEQ_MAX + 1,
            |m: &mut TableMeta| m.max_seq = SEQ_MAX + 1,
            |m: &mut TableMeta| m.smallest = b"\0zzz".to_vec(),
            |m: &mut TableMeta| m.smallest = vec![],
            |m: &mut TableMeta| m.largest = vec![9; MAX_INTERNAL_KEY_BYTES + 1],
        ] {
            let mut m = sample();
            spoil(&mut m);
            let mut b = vec![];
            m.encode(&mut b);
            assert_eq!(TableMeta::decode(&mut Reader::new(&b)), None, "{m:?}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(b in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = TableMeta::decode(&mut Reader::new(&b));
        }
    }
}
