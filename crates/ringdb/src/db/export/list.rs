//! The list of an export's tables, which is written last. docs/formats/export.md draws it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use engineswap::{Io, OpenHow};

use crate::coding::{Reader, crc32c, put_varint};
use crate::files::{FileKind, MAX_NUMBER};
use crate::key;
use crate::purpose::BACKUP;
use crate::seal::{Seal, Stamp, Unit, ring};
use crate::table::TableMeta;
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"ringdbEX";
/// The format of [`List`], which counts for itself.
const VERSION: u32 = 1;
/// That of one that is sealed: a stamp follows, and the rest is encrypted.
const SEALED_VERSION: u32 = 2;
/// Its file, and what that is called until it is whole.
const NAME: &str = "TABLES";
const UNFINISHED: &str = "TABLES.new";
/// No list is longer: so many tables are not exported.
const MOST_BYTES: u64 = 256 << 20;

/// Where all of it is sealed, with a salt of its own.
const UNIT: Unit = Unit::Record { offset: 0 };

/// A table of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub meta: TableMeta,
    /// See [`crate::table::copy::identity`].
    pub identity: u128,
}

/// The tables of an export, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct List {
    pub tables: Vec<Listed>,
}

/// Where a table is.
pub(super) fn table_path(dir: &Path, number: u64) -> PathBuf {
    FileKind::Table(number).path(dir)
}

impl List {
    fn encode(&self, seal: Option<&Seal>) -> Vec<u8> {
        let mut b = MAGIC.to_vec();
        b.extend_from_slice(&if seal.is_some() { SEALED_VERSION } else { VERSION }.to_le_bytes());
        if let Some(seal) = seal {
            b.extend_from_slice(&Stamp::encode(Some(seal.stamp())));
        }
        let body = b.len();
        put_varint(&mut b, self.tables.len() as u64);
        for t in &self.tables {
            t.meta.encode(&mut b);
            b.extend_from_slice(&t.identity.to_le_bytes());
        }
        if let Some(seal) = seal {
            seal.close_vec(UNIT, &[], &mut b, body);
        }
        let sum = crc32c(0, &b);
        b.extend_from_slice(&sum.to_le_bytes());
        b
    }

    fn decode(io: &Io, bytes: &[u8], path: &Path) -> Result<List> {
        let bad = |what: &str| Error::corrupt(path, None, what);
        let mut r = Reader::new(bytes);
        if r.take(MAGIC.len()) != Some(&MAGIC[..]) {
            return Err(bad("not the list of an export's tables"));
        }
        let version = r.u32().ok_or_else(|| bad("it is cut off"))?;
        if version > SEALED_VERSION {
            return Err(Error::NewerFormat { path: path.into(), found: version, newest: SEALED_VERSION });
        }
        let Some((body, sum)) = bytes.split_last_chunk::<4>() else { return Err(bad("it is cut off")) };
        if crc32c(0, body).to_le_bytes() != *sum || version < VERSION || body.len() < MAGIC.len() + 4 {
            return Err(bad("its checksum does not match"));
        }
        let mut body = Cow::Borrowed(&body[MAGIC.len() + 4..]);
        if version == SEALED_VERSION {
            let (stamp, sealed) = body.split_first_chunk().ok_or_else(|| bad("it is cut off"))?;
            let stamp = Stamp::decode(stamp).ok_or_else(|| bad("it is not well formed"))?;
            let seal = ring::of_file(io, Some(stamp), path)?.ok_or_else(|| bad("it is not well formed"))?;
            body = seal.opened(UNIT, &[], sealed).ok_or_else(|| seal.wrong_key(path))?.into();
        }
        let mut r = Reader::new(&body);
        let mut read = || {
            let mut list = List::default();
            for _ in 0..r.varint()? {
                let meta = TableMeta::decode(&mut r).filter(|m| m.file_id <= MAX_NUMBER && m.max_seq == 0)?;
                let identity = u128::from_le_bytes(r.take(16)?.try_into().ok()?);
                list.tables.push(Listed { meta, identity });
            }
            r.is_empty().then_some(list)
        };
        let list = read().ok_or_else(|| bad("it is not well formed"))?;
        let of_default = |k: &[u8]| key::split(k).is_some_and(|(id, _)| id == 0);
        let own = |t: &Listed| of_default(&t.meta.smallest) && of_default(&t.meta.largest);
        let ascend = list.tables.windows(2).all(|w| w[0].meta.largest < w[1].meta.smallest);
        match ascend && list.tables.iter().all(own) {
            true => Ok(list),
            false => Err(bad("its tables are not in order")),
        }
    }

    /// Reads the list of the export in a directory.
    pub fn read(io: &Io, dir: &Path) -> Result<List> {
        let path = dir.join(NAME);
        let none = |why: &str| Error::Invalid(format!("no export is in {}: {why}", dir.display()));
        match io.metadata(dir)? {
            None => return Err(none("there is no such directory")),
            Some(m) if !m.is_dir => return Err(none("it is not a directory")),
            Some(_) => {}
        }
        if io.metadata(&path)?.is_none() {
            return Err(none("the list TABLES is missing, which is written when all tables are"));
        }
        let file = io.open(&path, &OpenHow::read())?;
        let len = file.len()?;
        if len > MOST_BYTES {
            return Err(Error::corrupt(
                &path,
                None,
                format!("{len} bytes are too many for a list of tables"),
            ));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0, BACKUP)?;
        List::decode(io, &bytes, &path)
    }

    /// Writes the list, when all tables are durable with their names: from then on there is an export.
    pub fn write(&self, io: &Io, dir: &Path) -> Result<()> {
        let unfinished = dir.join(UNFINISHED);
        let file = io.open(&unfinished, &OpenHow::create_new())?;
        file.write_all_at(&self.encode(ring::for_one(io)?.as_deref()), 0, BACKUP)?;
        file.sync_all(BACKUP)?;
        io.rename(&unfinished, &dir.join(NAME))?;
        Ok(io.sync_dir(dir)?)
    }

    /// The names of its file, whole or not.
    pub fn paths(dir: &Path) -> [PathBuf; 2] {
        [dir.join(NAME), dir.join(UNFINISHED)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(file_id: u64, smallest: &[u8], largest: &[u8]) -> Listed {
        let internal = |user: &[u8]| key::KeyBuf::new(&key::Prefix::new(0), user).as_slice().to_vec();
        let meta = TableMeta {
            file_id,
            file_bytes: 4096,
            entries: 2,
            tombstones: 0,
            min_seq: 0,
            max_seq: 0,
            smallest: internal(smallest),
            largest: internal(largest),
            given: 0,
            expiry: None,
        };
        Listed { meta, identity: u128::MAX - u128::from(file_id) }
    }

    #[test]
    fn lists_read_back_and_every_changed_byte_is_noticed() {
        let list = List { tables: vec![listed(1, b"", b"b"), listed(2, b"c", b"d")] };
        let path = Path::new(NAME);
        let io = &Io::from_uri("posix").unwrap();
        let bytes = list.encode(None);
        assert_eq!(List::decode(io, &bytes, path).unwrap(), list);
        for i in 0..bytes.len() {
            for flip in [1, 0x80] {
                let mut d = bytes.clone();
                d[i] ^= flip;
                assert!(List::decode(io, &d, path).is_err(), "byte {i}");
            }
            assert!(List::decode(io, &bytes[..i], path).is_err(), "cut at {i}");
        }
        let mut newer = bytes.clone();
        newer[8] = 3;
        let e = List::decode(io, &newer, path);
        assert!(matches!(e, Err(Error::NewerFormat { found: 3, newest: 2, .. })));
        let crossed = List { tables: vec![listed(1, b"", b"c"), listed(2, b"c", b"d")] };
        assert!(List::decode(io, &crossed.encode(None), path).is_err());
    }
}
