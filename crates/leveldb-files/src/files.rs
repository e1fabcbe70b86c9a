//! A store's files: those of a directory, or in memory for tests.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::{Error, Result};

/// Where the files are.
pub(crate) enum Files {
    Disk(PathBuf),
    /// Files by name.
    #[cfg_attr(not(any(test, feature = "fuzzing")), allow(dead_code))]
    Memory(BTreeMap<String, Vec<u8>>),
}

impl Files {
    /// What messages call a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match self {
            Files::Disk(dir) => dir.join(name),
            Files::Memory(_) => name.into(),
        }
    }

    /// What messages call the store.
    pub(crate) fn dir(&self) -> PathBuf {
        match self {
            Files::Disk(dir) => dir.clone(),
            Files::Memory(_) => "memory".into(),
        }
    }

    /// The names of all files.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let dir = match self {
            Files::Memory(files) => return Ok(files.keys().cloned().collect()),
            Files::Disk(dir) => dir,
        };
        let failed = |e| Error::io(dir, e);
        let entries = std::fs::read_dir(dir).map_err(failed)?;
        // A name that is not UTF-8 is none of LevelDB's.
        let name = |e: io::Result<std::fs::DirEntry>| e.map(|e| e.file_name().into_string().ok());
        entries.filter_map(|e| name(e).transpose()).collect::<io::Result<_>>().map_err(failed)
    }

    /// The length of a file; `None` if there is no such file.
    pub(crate) fn len(&self, name: &str) -> Result<Option<u64>> {
        match self {
            Files::Memory(files) => Ok(files.get(name).map(|f| f.len() as u64)),
            Files::Disk(dir) => len(&dir.join(name)),
        }
    }

    /// Opens a file.
    pub(crate) fn open(&self, name: &str, read: &Rc<Cell<u64>>) -> Result<Source> {
        let path = self.path(name);
        let failed = |e| Error::io(&path, e);
        let (len, from) = match self {
            Files::Disk(_) => {
                let file = File::open(&path).map_err(failed)?;
                (file.metadata().map_err(failed)?.len(), Held::Disk(file))
            }
            Files::Memory(files) => {
                let bytes = files.get(name).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
                (bytes.len() as u64, Held::Memory(bytes.clone()))
            }
        };
        Ok(Source { path, len, from, window: Vec::new(), window_at: 0, read: read.clone() })
    }
}

/// The length of a file; `None` if there is none. A pipe or a device could be waited for without end.
fn len(path: &Path) -> Result<Option<u64>> {
    match std::fs::metadata(path) {
        Ok(m) if m.is_file() => Ok(Some(m.len())),
        Ok(_) => Err(Error::unsupported(path, "this is no plain file")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io(path, e)),
    }
}

/// Whether there is such a plain file.
pub(crate) fn is_there(path: &Path) -> Result<bool> {
    len(path).map(|len| len.is_some())
}

/// Read at a time.
const WINDOW: u64 = 256 << 10;

/// An open file, which is read from its beginning to its end for the most part.
pub(crate) struct Source {
    path: PathBuf,
    len: u64,
    from: Held,
    window: Vec<u8>,
    window_at: u64,
    /// Bytes read, of all files together.
    read: Rc<Cell<u64>>,
}

enum Held {
    Disk(File),
    Memory(Vec<u8>),
}

impl Source {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes at `offset`. Memory is taken for what the file has.
    pub(crate) fn bytes(&mut self, offset: u64, len: u64) -> Result<&[u8]> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        let Some(end) = end else {
            let why = format!("{len} bytes should be here; the file has {} in all", self.len);
            return Err(Error::damaged(&self.path, offset, why));
        };
        if offset < self.window_at || end > self.window_at + self.window.len() as u64 {
            let size = len.max(WINDOW).min(self.len - offset) as usize;
            self.window.resize(size, 0);
            self.window_at = offset;
            let done = match &self.from {
                Held::Disk(file) => file.read_exact_at(&mut self.window, offset),
                Held::Memory(bytes) => {
                    self.window.copy_from_slice(&bytes[offset as usize..offset as usize + size]);
                    Ok(())
                }
            };
            self.read.set(self.read.get() + size as u64);
            if let Err(e) = done {
                self.window.clear();
                return Err(Error::io(&self.path, e));
            }
        }
        let at = (offset - self.window_at) as usize;
        Ok(&self.window[at..at + len as usize])
    }
}
