//! CURRENT names the manifest, whose records say what changed in the set of tables: added together they are the store.

use std::collections::BTreeMap;

use crate::bytes::{prefixed, varint, varint32};
use crate::files::Files;
use crate::journal::Journal;
use crate::key;
use crate::{Error, Result};

/// LevelDB's own order of keys.
const BYTEWISE: &[u8] = b"leveldb.BytewiseComparator";
/// Its levels.
const LEVELS: u32 = 7;

/// A table as the manifest describes it. Keys are internal ones.
#[derive(Clone, Debug)]
pub(crate) struct TableFile {
    pub(crate) number: u64,
    pub(crate) size: u64,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
}

/// What all records of a manifest give together.
#[derive(Default)]
pub(crate) struct State {
    tables: BTreeMap<u64, (u32, TableFile)>,
    comparator: Option<Vec<u8>>,
    log: Option<u64>,
    previous_log: u64,
    last_sequence: Option<u64>,
    /// Bytes of an unfinished record at its end.
    pub(crate) torn: u64,
}

/// A record.
#[derive(Default)]
struct Edit {
    comparator: Option<Vec<u8>>,
    log: Option<u64>,
    previous_log: Option<u64>,
    last_sequence: Option<u64>,
    deleted: Vec<(u32, u64)>,
    added: Vec<(u32, TableFile)>,
}

/// The manifest that CURRENT names.
pub(crate) fn current(files: &Files) -> Result<String> {
    let dir = || files.dir();
    let no_store = |why: String| Error::NoStore { dir: dir(), why };
    let Some(len) = files.len("CURRENT")? else {
        return Err(no_store("it has no file CURRENT".into()));
    };
    let path = files.path("CURRENT");
    if len > 100 {
        return Err(Error::damaged(&path, 0, format!("{len} bytes, where the name of a manifest should be")));
    }
    let mut source = files.open("CURRENT", &Default::default())?;
    let text = source.bytes(0, len)?;
    let name = std::str::from_utf8(text).ok().and_then(|t| t.strip_suffix('\n'));
    let is_number = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    match name.filter(|n| n.strip_prefix("MANIFEST-").is_some_and(is_number)) {
        Some(name) => Ok(name.into()),
        None => {
            Err(Error::damaged(&path, 0, "it does not name a manifest, as in MANIFEST-000005 and a line end"))
        }
    }
}

impl State {
    /// Reads all records.
    pub(crate) fn read(files: &Files, name: &str, checksums: bool) -> Result<State> {
        if files.len(name)?.is_none() {
            let why = format!("{name}, which CURRENT names, is missing");
            return Err(Error::NoStore { dir: files.dir(), why });
        }
        let mut source = files.open(name, &Default::default())?;
        if source.len() >= 6 && source.bytes(0, 6)? == b"ringdb" {
            return Err(Error::NoStore { dir: files.dir(), why: "it holds a store of ringdb's own".into() });
        }
        let mut journal = Journal::new(source, checksums);
        let mut state = State::default();
        while let Some((at, record)) = journal.next_record()? {
            let applied = Edit::decode(record).and_then(|edit| state.apply(edit));
            applied.map_err(|why| journal.damaged(at, why))?;
        }
        state.torn = journal.torn();
        state.check(journal.path())?;
        Ok(state)
    }

    fn apply(&mut self, edit: Edit) -> std::result::Result<(), String> {
        for (level, number) in edit.deleted {
            if self.tables.get(&number).is_some_and(|(l, _)| *l == level) {
                self.tables.remove(&number);
            }
        }
        for (level, table) in edit.added {
            let number = table.number;
            if let Some((other, _)) = self.tables.insert(number, (level, table)) {
                return Err(format!(
                    "table {number} is added to level {level} and is in level {other} already"
                ));
            }
        }
        self.comparator = edit.comparator.or(self.comparator.take());
        self.log = edit.log.or(self.log);
        self.previous_log = edit.previous_log.unwrap_or(self.previous_log);
        self.last_sequence = edit.last_sequence.or(self.last_sequence);
        Ok(())
    }

    fn check(&self, path: &std::path::Path) -> Result<()> {
        let Some(comparator) = &self.comparator else {
            return Err(Error::damaged(
                path,
                0,
                "no record names the order of the keys: this is no LevelDB manifest",
            ));
        };
        if comparator != BYTEWISE {
            return Err(Error::unsupported(
                path,
                format!(
                    "the keys are in the order of the comparator '{}'; only those in the order of their bytes \
                     (leveldb.BytewiseComparator) can be read. Write them out by the program that has this \
                     comparator, and load them with `ringdb load`",
                    comparator.escape_ascii()
                ),
            ));
        }
        if self.log.is_none() || self.last_sequence.is_none() {
            return Err(Error::damaged(path, 0, "no record names the log and the last write: it is cut off"));
        }
        Ok(())
    }

    /// The number of the last write that tables have.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence.unwrap_or(0)
    }

    /// The number of the log that has to be there; 0 for none.
    pub(crate) fn log(&self) -> u64 {
        self.log.unwrap_or(0)
    }

    /// Whether a log's writes may not be in tables yet.
    pub(crate) fn needs_log(&self, number: u64) -> bool {
        number >= self.log() || number == self.previous_log
    }

    /// All tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableFile> {
        self.tables.values().map(|(_, t)| t)
    }
}

impl Edit {
    fn decode(mut bytes: &[u8]) -> std::result::Result<Edit, String> {
        let mut edit = Edit::default();
        while !bytes.is_empty() {
            let (field, rest) = varint32(bytes).ok_or("a field is cut off")?;
            let known = (1..=7).contains(&field) || field == 9;
            if !known {
                return Err(format!(
                    "field {field}, which LevelDB's manifests do not have: perhaps another kind of store, as RocksDB's \
                     (`ringdb import --from rocksdb`)"
                ));
            }
            bytes = edit
                .field(field, rest)
                .ok_or_else(|| format!("field {field} is cut off or has a bad value"))?;
        }
        Ok(edit)
    }

    /// Takes a field, and gives the rest.
    fn field<'a>(&mut self, field: u32, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let level = |bytes: &'a [u8]| varint32(bytes).filter(|(l, _)| *l < LEVELS);
        if field == 1 {
            let (name, rest) = prefixed(bytes)?;
            self.comparator = Some(name.into());
            return Some(rest);
        }
        if [2, 3, 4, 9].contains(&field) {
            let (n, rest) = varint(bytes)?;
            match field {
                2 => self.log = Some(n),
                4 => self.last_sequence = Some(n).filter(|n| *n <= key::MAX_SEQUENCE),
                9 => self.previous_log = Some(n),
                // The next number of a file: for writers.
                _ => {}
            }
            return Some(rest);
        }
        let (level, rest) = level(bytes)?;
        if field == 5 {
            // Where the next compaction of a level begins.
            return prefixed(rest).map(|(_, rest)| rest);
        }
        let (number, rest) = varint(rest)?;
        if field == 6 {
            self.deleted.push((level, number));
            return Some(rest);
        }
        let (size, rest) = varint(rest)?;
        let (smallest, rest) = prefixed(rest)?;
        let (largest, rest) = prefixed(rest)?;
        if smallest.len() < 8 || largest.len() < 8 || key::compare(smallest, largest).is_gt() {
            return None;
        }
        self.added
            .push((level, TableFile { number, size, smallest: smallest.into(), largest: largest.into() }));
        Some(rest)
    }
}
