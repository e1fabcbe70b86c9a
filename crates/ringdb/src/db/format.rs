//! Which versions of the format a store's files have, and what an upgrade would do.

use std::path::Path;

use engineswap::{Io, OpenHow};
use serde::Serialize;

use super::directory::{DirState, look};
use crate::files::FileKind;
use crate::format_version::FormatVersion;
use crate::log::version_in_header;
use crate::manifest::ManifestFile;
use crate::purpose::RECOVERY;
use crate::seal::ring::has_keys;
use crate::table::version_in_footer;
use crate::{Error, Result};

/// Which versions of the format a store and its files have; see [`crate::Db::format`].
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct FormatReport {
    /// The store's version: that of its manifest. Builds that know only older ones refuse the store.
    pub version: u32,
    /// The version that the store has once this build has opened it for writing, with these options.
    pub newest: u32,
    /// The manifest in force, the log segments and the tables.
    pub files: Vec<FileFormat>,
}

/// The version that one file needs.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct FileFormat {
    /// Its name.
    pub file: String,
    /// The lowest version whose readers know all that it holds; `None` if the file does not say, because it is damaged
    /// or was never used.
    pub version: Option<u32>,
}

impl FormatReport {
    /// Whether opening the store for writing would raise its version.
    #[must_use]
    pub fn is_old(&self) -> bool {
        self.version < self.newest
    }
}

/// See [`crate::Db::format`].
pub(super) fn report(io: &Io, dir: &Path) -> Result<FormatReport> {
    let no_store = |detail: &str| Error::NoStore { path: dir.to_path_buf(), detail: detail.into() };
    let mut own = match look(io, dir)? {
        DirState::Store(own) => own,
        DirState::Nothing => return Err(no_store("there is no such directory")),
        DirState::Unfinished(_) => return Err(no_store("it is empty")),
    };
    own.sort_unstable();
    let Some(loaded) = ManifestFile::load(io, dir)? else { return Err(no_store("its CURRENT has vanished")) };
    // One that is not encrypted stays as it is.
    let written = if has_keys(io) { FormatVersion::V3 } else { FormatVersion::WRITTEN };
    let mut all = FormatReport {
        version: loaded.version.number(),
        newest: written.max(loaded.version).number(),
        files: Vec::new(),
    };
    for kind in own {
        let path = kind.path(dir);
        let version = match kind {
            FileKind::Manifest(n) if n == loaded.number => Some(loaded.version),
            FileKind::Log(_) => version_in_header(io, &path)?,
            FileKind::Table(id) if loaded.state.tables.contains_key(&id) => table_version(io, &path, id)?,
            _ => continue,
        };
        all.files.push(FileFormat { file: kind.name(), version: version.map(FormatVersion::number) });
    }
    Ok(all)
}

fn table_version(io: &Io, path: &Path, id: u64) -> Result<Option<FormatVersion>> {
    let file = match io.open(path, &OpenHow::read()) {
        // Compacted away meanwhile, or lost, which `verify` reports.
        Err(e) if e.kind() == engineswap::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    match version_in_footer(&file, id, RECOVERY) {
        Ok(version) => Ok(Some(version)),
        Err(Error::Corrupt { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}
