//! [`VersionEdit`]: one atomic change of the store's shape, and its encoding.

use super::Remembered;
use crate::coding::{Reader, put_bytes, put_varint};
use crate::expiry::Expiry;
use crate::key::Seq;
use crate::log::LogPos;
use crate::ranges::{RangeEdit, RangeTombstone};
use crate::table::meta::TableMeta;

/// One atomic change. Tables are removed before others are added, so a table moves to another level by being
/// both removed and added. Numbers never go back: a smaller one than the state's is ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VersionEdit {
    /// The log's first live segment: older ones are not replayed.
    pub log_number: Option<u64>,
    /// Larger than every file number in use. Numbers of added tables and of the log raise it by themselves.
    pub next_file_number: Option<u64>,
    /// Every sequence number in tables is this or lower.
    pub last_seq: Option<Seq>,
    /// Every write of this sequence number or lower is in tables: the log need not be replayed for it.
    pub flushed_seq: Option<Seq>,
    /// Removed tables by level and file id.
    pub removed: Vec<(u32, u64)>,
    /// Added tables by level.
    pub added: Vec<(u32, TableMeta)>,
    /// Keyspaces made: id and name. An id is never used twice.
    pub created_keyspaces: Vec<(u32, String)>,
    /// Keyspaces dropped: their entries may still be in tables and are filtered by compactions.
    pub dropped_keyspaces: Vec<u32>,
    /// Dropped keyspaces of which no entry is left, so that they can be forgotten.
    pub purged_keyspaces: Vec<u32>,
    /// Ids of keyspaces are below this. Created ids raise it by themselves.
    pub next_keyspace_id: Option<u32>,
    /// Every frame of the log that ends here or before was durable when the edit was made, and the segment's file
    /// with its name: a log that ends before is damaged.
    pub log_durable: Option<LogPos>,
    /// Settings of keyspaces by id, in place of those that they had; of the store, under id 0.
    pub settings: Vec<(u32, Remembered)>,
    /// Range tombstones that come and go. Those of a flush come in the edit that adds its tables.
    pub ranges: RangeEdit,
    /// What tells the store from all others; never 0, never changed.
    pub store_id: Option<u64>,
    /// The number of the last ingest, whose tables may be gone. Those of added tables raise it by themselves.
    pub last_ingested: Option<Seq>,
}

mod tag {
    pub const LOG_NUMBER: u64 = 1;
    pub const NEXT_FILE_NUMBER: u64 = 2;
    pub const LAST_SEQ: u64 = 3;
    pub const FLUSHED_SEQ: u64 = 4;
    pub const REMOVED: u64 = 5;
    pub const ADDED: u64 = 6;
    pub const CREATED_KEYSPACE: u64 = 7;
    pub const DROPPED_KEYSPACE: u64 = 8;
    pub const PURGED_KEYSPACE: u64 = 9;
    pub const NEXT_KEYSPACE_ID: u64 = 10;
    pub const LOG_DURABLE: u64 = 11;
    pub const SETTINGS: u64 = 12;
    pub const RANGE_REMOVED: u64 = 16;
    pub const RANGE_ADDED: u64 = 17;
    pub const RANGES_APPLIED: u64 = 18;
    pub const STORE_ID: u64 = 24;
    pub const INGESTED: u64 = 32;
    pub const LAST_INGESTED: u64 = 33;
    pub const EXPIRY: u64 = 40;
}

impl VersionEdit {
    /// Whether it changes nothing.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        *self == VersionEdit::default()
    }

    /// Appends the encoding that [`VersionEdit::decode`] reads.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut number = |tag: u64, v: Option<u64>| field(out, tag, v);
        number(tag::LOG_NUMBER, self.log_number);
        number(tag::NEXT_FILE_NUMBER, self.next_file_number);
        number(tag::LAST_SEQ, self.last_seq);
        number(tag::FLUSHED_SEQ, self.flushed_seq);
        number(tag::NEXT_KEYSPACE_ID, self.next_keyspace_id.map(u64::from));
        number(tag::STORE_ID, self.store_id);
        number(tag::LAST_INGESTED, self.last_ingested);
        for id in &self.dropped_keyspaces {
            number(tag::DROPPED_KEYSPACE, Some(*id as u64));
        }
        for id in &self.purged_keyspaces {
            number(tag::PURGED_KEYSPACE, Some(*id as u64));
        }
        if let Some(pos) = self.log_durable {
            field(out, tag::LOG_DURABLE, Some(pos.segment));
            put_varint(out, pos.offset);
        }
        for (level, id) in &self.removed {
            put_varint(out, tag::REMOVED);
            put_varint(out, *level as u64);
            put_varint(out, *id);
        }
        for (level, meta) in &self.added {
            put_varint(out, if meta.given == 0 { tag::ADDED } else { tag::INGESTED });
            put_varint(out, *level as u64);
            meta.encode(out);
            if let Some(expiry) = &meta.expiry {
                put_varint(out, tag::EXPIRY);
                expiry.encode(out);
            }
        }
        for (id, name) in &self.created_keyspaces {
            put_varint(out, tag::CREATED_KEYSPACE);
            put_varint(out, *id as u64);
            put_bytes(out, name.as_bytes());
        }
        for (id, settings) in &self.settings {
            put_varint(out, tag::SETTINGS);
            put_varint(out, *id as u64);
            let mut bytes = Vec::new();
            settings.encode(&mut bytes);
            put_bytes(out, &bytes);
        }
        for seq in &self.ranges.removed {
            field(out, tag::RANGE_REMOVED, Some(*seq));
        }
        for t in &self.ranges.added {
            put_varint(out, tag::RANGE_ADDED);
            t.encode(out);
        }
        for (id, seq) in &self.ranges.cleared {
            field(out, tag::RANGES_APPLIED, Some(*id));
            put_varint(out, *seq);
        }
    }

    /// Reads an edit that fills `bytes`. The error says what is wrong; an unknown field is an error, since
    /// leaving it out would change what the store holds.
    pub fn decode(bytes: &[u8]) -> Result<VersionEdit, String> {
        let mut edit = VersionEdit::default();
        let mut r = Reader::new(bytes);
        while !r.is_empty() {
            let tag = r.varint().ok_or("the tag of a field is cut off")?;
            edit.field(tag, &mut r)?.ok_or_else(|| format!("field {tag} is cut off or impossible"))?;
        }
        Ok(edit)
    }

    fn field(&mut self, tag: u64, r: &mut Reader<'_>) -> Result<Option<()>, String> {
        let known = match tag {
            tag::LOG_NUMBER => r.varint().map(|v| self.log_number = Some(v)),
            tag::NEXT_FILE_NUMBER => r.varint().map(|v| self.next_file_number = Some(v)),
            tag::LAST_SEQ => r.varint().map(|v| self.last_seq = Some(v)),
            tag::FLUSHED_SEQ => r.varint().map(|v| self.flushed_seq = Some(v)),
            tag::NEXT_KEYSPACE_ID => small(r).map(|v| self.next_keyspace_id = Some(v)),
            tag::STORE_ID => r.varint().map(|v| self.store_id = Some(v)),
            tag::LAST_INGESTED => r.varint().map(|v| self.last_ingested = Some(v)),
            tag::LOG_DURABLE => r.varint().zip(r.varint()).map(|(segment, offset)| {
                self.log_durable = Some(LogPos { segment, offset });
            }),
            tag::DROPPED_KEYSPACE => small(r).map(|v| self.dropped_keyspaces.push(v)),
            tag::PURGED_KEYSPACE => small(r).map(|v| self.purged_keyspaces.push(v)),
            tag::REMOVED => small(r).zip(r.varint()).map(|t| self.removed.push(t)),
            tag::ADDED => small(r).zip(TableMeta::decode(r)).map(|t| self.added.push(t)),
            tag::INGESTED => small(r).zip(TableMeta::decode_given(r)).map(|t| self.added.push(t)),
            tag::EXPIRY => Expiry::decode(r).and_then(|expiry| {
                // Of the table before.
                let (level, meta) = self.added.pop().filter(|(_, m)| m.expiry.is_none())?;
                meta.with_expiry(expiry).map(|meta| self.added.push((level, meta)))
            }),
            tag::CREATED_KEYSPACE => small(r).zip(name(r)).map(|k| self.created_keyspaces.push(k)),
            tag::SETTINGS => match small(r).zip(r.bytes()) {
                Some((id, bytes)) => {
                    self.settings.push((id, Remembered::decode(bytes)?));
                    Some(())
                }
                None => None,
            },
            tag::RANGE_REMOVED => r.varint().map(|seq| self.ranges.removed.push(seq)),
            tag::RANGE_ADDED => RangeTombstone::decode(r).map(|t| self.ranges.added.push(t)),
            tag::RANGES_APPLIED => r.varint().zip(r.varint()).map(|t| self.ranges.cleared.push(t)),
            _ => return Err(format!("unknown field {tag}")),
        };
        Ok(known)
    }
}

fn field(out: &mut Vec<u8>, tag: u64, v: Option<u64>) {
    if let Some(v) = v {
        put_varint(out, tag);
        put_varint(out, v);
    }
}

fn small(r: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(r.varint()?).ok()
}

fn name(r: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(r.bytes()?.to_vec()).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn meta(file_id: u64, smallest: &str, largest: &str) -> TableMeta {
        TableMeta {
            given: 0,
            file_id,
            file_bytes: 4096,
            entries: 2,
            tombstones: 0,
            min_seq: 1,
            max_seq: file_id,
            smallest: smallest.into(),
            largest: largest.into(),
            expiry: None,
        }
    }

    fn sample() -> VersionEdit {
        VersionEdit {
            log_number: Some(9),
            next_file_number: Some(300),
            last_seq: Some(1 << 40),
            flushed_seq: Some(77),
            removed: vec![(0, 3), (6, 200)],
            added: vec![(1, meta(8, "a", "b")), (6, meta(9, "c", "d")), (2, meta(7, "e", "f").with_given(6))],
            created_keyspaces: vec![(1, "users".into()), (500, "ü".into())],
            dropped_keyspaces: vec![4],
            purged_keyspaces: vec![2, 3],
            next_keyspace_id: Some(501),
            log_durable: Some(LogPos { segment: 300, offset: 1 << 33 }),
            settings: vec![(0, super::super::remembered::tests::sample()), (500, Remembered::default())],
            ranges: RangeEdit {
                removed: vec![5, 1 << 40],
                added: vec![RangeTombstone::new(b"\0a", b"\0b", 6), RangeTombstone::new(b"\0", b"\x01", 7)],
                cleared: vec![(9, 6), (8, 0)],
            },
            store_id: Some(u64::MAX),
            last_ingested: Some(1 << 39),
        }
    }

    #[test]
    fn reads_back_and_no_cut_goes_unnoticed_inside_a_field() {
        let mut b = vec![];
        sample().encode(&mut b);
        assert_eq!(VersionEdit::decode(&b).unwrap(), sample());
        for cut in 0..b.len() {
            // A cut between fields gives a smaller edit: only the record's checksum can tell.
            if let Ok(e) = VersionEdit::decode(&b[..cut]) {
                let mut again = vec![];
                e.encode(&mut again);
                assert_eq!(again.len(), cut);
            }
        }
        assert!(VersionEdit::default().is_empty() && !sample().is_empty());
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(VersionEdit::decode(&[13, 0]).unwrap_err().contains("unknown field 13"));
        assert!(VersionEdit::decode(&[0]).is_err());
        assert!(VersionEdit::decode(&[8, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]).is_err(), "an id above u32");
        assert!(VersionEdit::decode(&[7, 1, 2, 0xFF, 0xFE]).is_err(), "a name that is not UTF-8");
    }

    proptest! {
        #[test]
        fn random_and_mutated_bytes_never_panic(
            b in proptest::collection::vec(any::<u8>(), 0..200),
            at in any::<proptest::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let _ = VersionEdit::decode(&b);
            let mut m = vec![];
            sample().encode(&mut m);
            let i = at.index(m.len());
            m[i] = byte;
            let _ = VersionEdit::decode(&m);
        }
    }
}
