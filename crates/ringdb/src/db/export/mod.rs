//! Exports: the pairs of a range as sorted tables in a directory of their own, and those tables taken in again.
//!
//! The tables are as a compaction writes them into the last level, with the sequence number 0 and the keys of the
//! default keyspace, whichever they come from. The list of them is written last, so an export is there whole or not at
//! all. Its reader checks every block, and that the tables are those of the list; an import ingests what it reads,
//! since the keys may go into another keyspace, with other settings, and beside other data.

mod exported;
mod list;

use std::path::{Path, PathBuf};

use engineswap::Io;
use serde::Serialize;

use self::list::{List, Listed, table_path};
use super::core::Core;
use super::directory::make_dir;
use super::iter::Iter;
use crate::cache::Owner;
use crate::compaction::Memory;
use crate::key::{KeyBuf, Kind, Prefix};
use crate::purpose::BACKUP;
use crate::seal::ring;
use crate::table::copy::identity;
use crate::table::writer::{TableOptions, TableWriter};
use crate::table::{Reads, TableMeta};
use crate::{Compression, Db, Error, KeyRange, Keyspace, KeyspaceOptions, ReadOptions, Result, Snapshot};

pub use exported::Exported;

/// Pairs between looks at how long a table has become.
const LOOK_EVERY: u64 = 64;
/// What a new file system has of its own.
const LOST_AND_FOUND: &str = "lost+found";

/// What an export wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExportReport {
    /// How many pairs.
    pub pairs: u64,
    /// How many tables they are in.
    pub tables: u64,
    /// Bytes of these tables.
    pub bytes: u64,
}

impl Snapshot {
    /// Writes the pairs of a range of keys, as the snapshot sees them, as sorted tables into `dir`, which must be new
    /// or empty. [`Keyspace::import_tables`] takes them into any store and keyspace; [`Exported`] reads them.
    ///
    /// Values that expire are exported as they are now, and live for ever where they are imported.
    ///
    /// It is durable when this returns. An export that did not come to its end (the process was killed, the disk is
    /// full) leaves nothing that an import accepts; what is left of it has to be removed by hand if the process was
    /// killed.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `dir` holds something; as iterators for the pairs; what writing a file can meet.
    ///
    /// ```
    /// # let tmp = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(tmp.path().join("db"), ringdb::Options::default())?;
    /// # let dir = tmp.path().join("plums");
    /// db.put("plum", "blue")?;
    /// let before = db.snapshot();
    /// db.put("plum", "ripe")?;
    /// assert_eq!(before.export_range("p".."q", &dir)?.pairs, 1);
    /// db.import_tables(&dir)?;
    /// assert_eq!(db.get("plum")?.as_deref(), Some(&b"blue"[..]));
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn export_range(&self, range: impl KeyRange, dir: impl AsRef<Path>) -> Result<ExportReport> {
        let keyspace = self.parts().0;
        let pairs = self.range_with(range, &past_the_cache());
        export(keyspace.core(), &keyspace.options(), dir.as_ref(), pairs)
    }
}

impl Keyspace {
    /// Writes the pairs of a range of keys as of now; see [`Snapshot::export_range`].
    ///
    /// # Errors
    /// As [`Snapshot::export_range`].
    pub fn export_range(&self, range: impl KeyRange, dir: impl AsRef<Path>) -> Result<ExportReport> {
        let pairs = self.range_with(range, &past_the_cache());
        export(self.core(), &self.options(), dir.as_ref(), pairs)
    }

    /// Ingests all pairs of an export: all of them at once, in place of older values of the same keys, or none.
    /// Returns how many. Every byte is checked. The export stays as it is.
    ///
    /// # Errors [`Error::Invalid`] if there is no whole export in `dir`; [`Error::NewerFormat`]; [`Error::Corrupt`] if
    /// a table is damaged or another one; as [`Keyspace::ingest`].
    pub fn import_tables(&self, dir: impl AsRef<Path>) -> Result<u64> {
        let mut exported = Exported::open_with_io(dir, self.core().io.clone())?;
        let mut ingester = self.ingester()?;
        while let Some((key, value)) = exported.next_pair()? {
            ingester.add(key, value)?;
        }
        ingester.finish()
    }
}

impl Db {
    /// Writes the pairs of a range of keys as sorted tables into a new or empty directory; see
    /// [`Snapshot::export_range`].
    ///
    /// # Errors
    /// As [`Snapshot::export_range`].
    ///
    /// ```
    /// # let tmp = tempfile::tempdir().expect("a temporary directory");
    /// # let db = ringdb::Db::open(tmp.path().join("db"), ringdb::Options::default())?;
    /// # let dir = tmp.path().join("fruit");
    /// db.put("apple", "red")?;
    /// db.export_range(.., &dir)?;
    /// let archive = db.keyspace("archive")?;
    /// assert_eq!(archive.import_tables(&dir)?, 1);
    /// # Ok::<(), ringdb::Error>(())
    /// ```
    pub fn export_range(&self, range: impl KeyRange, dir: impl AsRef<Path>) -> Result<ExportReport> {
        self.default.export_range(range, dir)
    }

    /// Ingests all pairs of an export into the default keyspace; see [`Keyspace::import_tables`].
    ///
    /// # Errors
    /// As [`Keyspace::import_tables`].
    pub fn import_tables(&self, dir: impl AsRef<Path>) -> Result<u64> {
        self.default.import_tables(dir)
    }
}

fn past_the_cache() -> ReadOptions {
    ReadOptions::default().fill_cache(false)
}

fn export(core: &Core, settings: &KeyspaceOptions, dir: &Path, pairs: Iter) -> Result<ExportReport> {
    let mut made = Made::begin(&core.io, dir)?;
    let o = &core.options;
    let table_bytes = o.compacted_table_bytes();
    let options = TableOptions {
        block_bytes: settings.block_bytes.unwrap_or(o.block_bytes),
        compression: settings.last_level_compression.unwrap_or(Compression::Lz4),
        filter_bits_per_key: settings.filter_bits_per_key.unwrap_or(0),
        expected_bytes: table_bytes,
        buffer_bytes: Memory::of(o).write_bytes(),
        most_keys: None,
        most_hashes: Memory::of(o).hashes(),
        reads: Reads::from_option(o.direct_reads),
        // Its tables have numbers of their own.
        seal: ring::for_one(&core.io)?,
        purpose: BACKUP,
    };
    let prefix = Prefix::new(0);
    let (mut list, mut pairs_written) = (List::default(), 0_u64);
    let mut writer: Option<TableWriter> = None;
    let charge = core.cache.charge(Owner::Background, 0);
    for pair in pairs {
        let (key, value) = pair?;
        if pairs_written.is_multiple_of(LOOK_EVERY) {
            charge.set_roughly(writer.as_ref().map_or(0, TableWriter::memory));
            if let Some(full) = writer.take_if(|w| w.estimated_bytes() >= table_bytes) {
                list.tables.push(made.finish(full)?);
            }
        }
        let to = match &mut writer {
            Some(writer) => writer,
            None => writer.insert(made.table(options.clone())?),
        };
        to.add(KeyBuf::new(&prefix, &key).as_slice(), 0, Kind::Put, &value)?;
        pairs_written += 1;
    }
    if let Some(last) = writer {
        list.tables.push(made.finish(last)?);
    }
    core.io.sync_dir(dir)?;
    list.write(&core.io, dir)?;
    made.whole = true;
    let bytes = list.tables.iter().map(|t| t.meta.file_bytes).sum();
    Ok(ExportReport { pairs: pairs_written, tables: list.tables.len() as u64, bytes })
}

/// What an export has made so far: removed again, as far as that can be done, unless it is whole.
struct Made<'a> {
    io: &'a Io,
    dir: &'a Path,
    /// It was not there before.
    new_dir: bool,
    tables: Vec<PathBuf>,
    whole: bool,
}

impl<'a> Made<'a> {
    fn begin(io: &'a Io, dir: &'a Path) -> Result<Made<'a>> {
        let occupied = |why: &str| {
            Err(Error::Invalid(format!(
                "an export goes into a new or empty directory; {} {why}",
                dir.display()
            )))
        };
        let there = io.metadata(dir)?;
        match &there {
            Some(m) if !m.is_dir => return occupied("is a file"),
            Some(_) if io.read_dir(dir)?.iter().any(|e| e.name != LOST_AND_FOUND) => {
                return occupied("is not empty");
            }
            _ => make_dir(io, dir)?,
        }
        Ok(Made { io, dir, new_dir: there.is_none(), tables: Vec::new(), whole: false })
    }

    fn table(&mut self, options: TableOptions) -> Result<TableWriter> {
        let number = self.tables.len() as u64 + 1;
        let path = table_path(self.dir, number);
        self.tables.push(path.clone());
        TableWriter::create(self.io, &path, number, options)
    }

    fn finish(&self, writer: TableWriter) -> Result<Listed> {
        let meta: TableMeta = writer.finish_start()?.wait()?;
        let path = table_path(self.dir, meta.file_id);
        let identity = identity(self.io, &path, &meta, BACKUP, &mut |_| Ok(()))?;
        Ok(Listed { meta, identity })
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if self.whole {
            return;
        }
        // The list first: without it the rest is nothing.
        let lists = List::paths(self.dir);
        for path in lists.iter().chain(&self.tables) {
            let _ = self.io.remove_file(path);
        }
        if self.new_dir {
            let _ = self.io.remove_dir(self.dir);
        }
    }
}
