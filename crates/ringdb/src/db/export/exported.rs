//! [`Exported`]: the pairs of an export, checked as they are read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engineswap::Io;

use super::list::{List, Listed, table_path};
use crate::cursor::Cursor;
use crate::key::{self, Kind};
use crate::purpose::BACKUP;
use crate::table::copy::identity;
use crate::table::{Reads, TableParts, TableScan};
use crate::{Error, Result};

/// The tables that [`crate::Db::export_range`] wrote, read in the order of their keys. Every block's checksum is
/// checked, and that each table is the one that was exported.
///
/// ```
/// # let tmp = tempfile::tempdir().expect("a temporary directory");
/// # let db = ringdb::Db::open(tmp.path().join("db"), ringdb::Options::default())?;
/// # let dir = tmp.path().join("fruit");
/// db.put("apple", "red")?;
/// db.export_range(.., &dir)?;
/// let mut exported = ringdb::Exported::open(&dir)?;
/// while let Some((key, value)) = exported.next_pair()? {
///     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
/// }
/// # Ok::<(), ringdb::Error>(())
/// ```
pub struct Exported {
    io: Io,
    dir: PathBuf,
    list: List,
    /// The table that is read, or comes next.
    table: usize,
    scan: Option<Scan>,
    bytes_read: u64,
    failed: Option<Error>,
}

/// A table that is read.
struct Scan {
    path: PathBuf,
    scan: TableScan,
    /// Entries behind the present one.
    left: u64,
}

impl fmt::Debug for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exported").field("path", &self.dir).finish_non_exhaustive()
    }
}

impl Exported {
    /// Looks at the export in a directory.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none, or none that came to its end; [`Error::NewerFormat`]; [`Error::Corrupt`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Exported> {
        Exported::open_with_io(dir, crate::db::engine("auto")?)
    }

    /// The same with an I/O engine of the caller's.
    ///
    /// # Errors
    /// As [`Exported::open`].
    pub fn open_with_io(dir: impl AsRef<Path>, io: Io) -> Result<Exported> {
        let dir = dir.as_ref().to_path_buf();
        let list = List::read(&io, &dir)?;
        Ok(Exported { io, dir, list, table: 0, scan: None, bytes_read: 0, failed: None })
    }

    /// How many pairs it has.
    pub fn pairs(&self) -> u64 {
        self.list.tables.iter().map(|t| t.meta.entries).sum()
    }

    /// The bytes of its tables.
    pub fn bytes(&self) -> u64 {
        self.list.tables.iter().map(|t| t.meta.file_bytes).sum()
    }

    /// The bytes of the tables that have been read to their end.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The next pair; `None` behind the last.
    ///
    /// # Errors [`Error::Corrupt`] if a table is damaged or is not the one that was exported; what reading a file can
    /// meet. It is the same error from then on.
    pub fn next_pair(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        match self.advance() {
            Err(e) => {
                self.failed = Some(e.clone());
                Err(e)
            }
            Ok(false) => Ok(None),
            Ok(true) => Ok(self.scan.as_ref().map(|s| (user(s.scan.key()), s.scan.value()))),
        }
    }

    /// Goes to the next pair; whether there is one.
    fn advance(&mut self) -> Result<bool> {
        if let Some(s) = &mut self.scan {
            s.scan.next()?;
            if s.scan.valid() {
                return s.check().map(|()| true);
            }
            s.end()?;
            self.scan = None;
            self.bytes_read += self.list.tables[self.table].meta.file_bytes;
            self.table += 1;
        }
        let Some(listed) = self.list.tables.get(self.table) else { return Ok(false) };
        let s = self.scan.insert(Scan::open(&self.io, &self.dir, listed)?);
        s.scan.seek_to_first()?;
        match s.scan.valid() {
            true => s.check().map(|()| true),
            false => Err(s.wrong("it has no entry")),
        }
    }
}

impl Scan {
    fn open(io: &Io, dir: &Path, listed: &Listed) -> Result<Scan> {
        let path = table_path(dir, listed.meta.file_id);
        if io.metadata(&path)?.is_none() {
            return Err(Error::corrupt(&path, None, "this table of the export is missing"));
        }
        let parts = TableParts::load_as(io, &path, &listed.meta, Reads::PageCache, BACKUP)?;
        if identity(io, &path, &listed.meta, BACKUP, &mut |_| Ok(()))? != listed.identity {
            return Err(Error::corrupt(&path, None, "this is not the table that was exported"));
        }
        let scan = TableScan::new(io, &Arc::new(parts), None, BACKUP)?;
        Ok(Scan { path, scan, left: listed.meta.entries })
    }

    fn wrong(&self, what: &str) -> Error {
        Error::corrupt(&self.path, None, what)
    }

    /// The present entry can be one of an export.
    fn check(&mut self) -> Result<()> {
        let whole =
            self.scan.kind() == Kind::Put && self.scan.seq() == 0 && key::split(self.scan.key()).is_some();
        match self.left.checked_sub(1).filter(|_| whole) {
            Some(left) => self.left = left,
            None => return Err(self.wrong("an entry that no export has")),
        }
        self.scan.load_value()
    }

    fn end(&self) -> Result<()> {
        match self.left {
            0 => Ok(()),
            n => Err(self.wrong(&format!("{n} entries are missing"))),
        }
    }
}

fn user(internal: &[u8]) -> &[u8] {
    key::split(internal).map_or(internal, |(_, user)| user)
}
