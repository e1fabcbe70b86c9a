//! Opening a store: its lock, its manifest, and whether all its files are there.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{FlockOperation, fcntl_lock};

use crate::files::Files;
use crate::journal::Journal;
use crate::manifest::{self, State};
use crate::memory::{self, Memory};
use crate::merge::Pairs;
use crate::{Error, Result};

/// A LevelDB store that nobody changes meanwhile.
///
/// LevelDB's own lock is held, shared with other readers of this kind: a program that opens the store with LevelDB is
/// told that it is in use until this is dropped.
pub struct Store {
    pub(crate) files: Files,
    pub(crate) state: State,
    pub(crate) checksums: bool,
    /// The numbers of the logs, in the order of their writes.
    logs: Vec<u64>,
    bytes: u64,
    torn: Vec<TornTail>,
    memory: Memory,
    _lock: Option<File>,
}

/// An unfinished record at the end of a manifest or log: what its writer was about to write when it died. It is left
/// out, as LevelDB leaves it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub file: PathBuf,
    /// How many bytes of it are left out.
    pub bytes: u64,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("dir", &self.files.dir()).finish_non_exhaustive()
    }
}

/// The names that a table may have: today's, and the one until LevelDB 1.13.
pub(crate) fn table_names(number: u64) -> [String; 2] {
    [format!("{number:06}.ldb"), format!("{number:06}.sst")]
}

impl Store {
    /// Opens the store in a directory: reads its manifest and its logs, and looks whether all tables are there.
    ///
    /// # Errors [`Error::NoStore`]; [`Error::InUse`]; [`Error::Unsupported`] if its keys are in another order than
    /// that of their bytes; [`Error::Damaged`]; [`Error::Io`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Store> {
        let dir = dir.as_ref();
        let no_store = |why: &str| Err(Error::NoStore { dir: dir.into(), why: why.into() });
        match std::fs::metadata(dir) {
            Ok(m) if m.is_dir() => {}
            Ok(_) => return no_store("it is a file; a LevelDB store is a directory"),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return no_store("there is no such directory"),
            Err(e) => return Err(Error::io(dir, e)),
        }
        let lock = lock(dir)?;
        Store::read(Files::Disk(dir.into()), true, lock)
    }

    /// A store of files in memory; without checksums if those are of no interest.
    ///
    /// # Errors
    /// As [`Store::open`].
    #[cfg(feature = "fuzzing")]
    pub fn in_memory(files: std::collections::BTreeMap<String, Vec<u8>>, checksums: bool) -> Result<Store> {
        Store::read(Files::Memory(files), checksums, None)
    }

    fn read(files: Files, checksums: bool, lock: Option<File>) -> Result<Store> {
        let name = manifest::current(&files)?;
        let state = State::read(&files, &name, checksums)?;
        let torn = Some(TornTail { file: files.path(&name), bytes: state.torn }).filter(|t| t.bytes > 0);
        let (logs, memory) = (Vec::new(), Memory::new());
        let torn = torn.into_iter().collect();
        let mut store = Store { files, state, checksums, logs, bytes: 0, torn, memory, _lock: lock };
        store.find_tables()?;
        store.find_logs(&name)?;
        store.replay()?;
        Ok(store)
    }

    fn find_tables(&mut self) -> Result<()> {
        for table in self.state.tables() {
            let [new, old] = table_names(table.number);
            let found = match self.files.len(&new)? {
                Some(len) => Some((new, len)),
                None => self.files.len(&old)?.map(|len| (old, len)),
            };
            let Some((name, len)) = found else {
                let file = self.files.path(&table_names(table.number)[0]);
                return Err(Error::damaged(&file, 0, "this table, which the manifest names, is missing"));
            };
            if len < table.size {
                let why = format!("the file ends here; the manifest says that it has {} bytes", table.size);
                return Err(Error::damaged(&self.files.path(&name), len, why));
            }
            self.bytes += table.size;
        }
        Ok(())
    }

    fn find_logs(&mut self, manifest: &str) -> Result<()> {
        let number = |name: &str| name.strip_suffix(".log").and_then(|n| n.parse().ok());
        let mut logs: Vec<u64> = self.files.names()?.iter().filter_map(|n| number(n)).collect();
        logs.retain(|n| self.state.needs_log(*n));
        logs.sort_unstable();
        let needed = self.state.log();
        if needed > 0 && !logs.contains(&needed) {
            let why = format!("this log, which {manifest} names, is missing: writes may have been in it");
            return Err(Error::damaged(&self.files.path(&log_name(needed)), 0, why));
        }
        for log in &logs {
            self.bytes += self.files.len(&log_name(*log))?.unwrap_or(0);
        }
        self.logs = logs;
        Ok(())
    }

    fn replay(&mut self) -> Result<()> {
        for log in &self.logs {
            let source = self.files.open(&log_name(*log), &Default::default())?;
            let bytes = memory::replay(&mut Journal::new(source, self.checksums), &mut self.memory)?;
            if bytes > 0 {
                self.torn.push(TornTail { file: self.files.path(&log_name(*log)), bytes });
            }
        }
        Ok(())
    }

    /// Bytes of the tables and logs that make the store.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was left out because its writer died before it had written it.
    pub fn torn_tails(&self) -> &[TornTail] {
        &self.torn
    }

    /// All pairs, in the order of their keys.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Io`], for a table.
    pub fn into_pairs(mut self) -> Result<Pairs> {
        let tables: u64 = self.state.tables().map(|t| t.size).sum();
        let memory = std::mem::take(&mut self.memory);
        let read = Rc::new(Cell::new(self.bytes - tables));
        Pairs::new(self, memory, read)
    }
}

fn log_name(number: u64) -> String {
    format!("{number:06}.log")
}

/// Takes LevelDB's lock, if there is a file for it: a copy of a store may have none, and is nobody's then.
fn lock(dir: &Path) -> Result<Option<File>> {
    let path = dir.join("LOCK");
    if !crate::files::is_there(&path)? {
        return Ok(None);
    }
    let file = File::open(&path).map_err(|e| Error::io(&path, e))?;
    // Shared: this process cannot write to the file, and need not.
    match fcntl_lock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Err(Error::InUse(dir.into())),
        Err(e) => Err(Error::io(&path, e.into())),
    }
}
