//! What there is to salvage: the manifest as far as it can be read, the tables it names or those that are found, the
//! segments of the log. Changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engineswap::{Io, OpenHow};

use crate::files::{self, FileKind};
use crate::format_version::FormatVersion;
use crate::manifest::{ManifestFile, ManifestState};
use crate::table::meta::TableMeta;
use crate::table::remains::Remains;
use crate::table::version_in_footer;
use crate::{Error, Result, purpose};

/// A table to read.
pub(super) struct Source {
    /// Its file; where it should be, if there is none.
    pub path: PathBuf,
    pub missing: bool,
    /// The number that it should have.
    pub file_id: u64,
    pub level: Option<u32>,
    /// What the manifest, or else the table itself, says of it.
    pub meta: Option<TableMeta>,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Source {
    /// Whether what it holds is older than what `newer` holds of the same keys.
    pub fn is_below(&self, newer: &Source) -> bool {
        let seq = |s: &Source| s.meta.as_ref().map(|m| m.max_seq);
        match (self.level, newer.level) {
            (Some(0), Some(0)) => seq(self) < seq(newer),
            (Some(own), Some(other)) => own > other,
            _ => true,
        }
    }

    /// Whether it may hold keys of a range, ends included.
    pub fn meets(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> bool {
        let Some(m) = &self.meta else { return true };
        from.is_none_or(|f| m.largest.as_slice() >= f) && to.is_none_or(|t| m.smallest.as_slice() <= t)
    }
}

/// What there is.
pub(super) struct Inventory {
    pub state: ManifestState,
    /// Whether `state` is all that the manifest said.
    pub whole: bool,
    /// How much of it could be read, in words.
    pub manifest: String,
    pub sources: Vec<Source>,
    pub segments: Vec<u64>,
    /// Bytes of a normal block of this store's tables, and whether the last level is compressed, by how.
    pub block_bytes: Option<u32>,
    pub encoding: Option<crate::table::compress::Encoding>,
    pub notes: Vec<String>,
}

/// Looks at a directory.
pub(super) fn find(io: &Io, dir: &Path) -> Result<Inventory> {
    let no_store = |detail: &str| Error::NoStore { path: dir.to_path_buf(), detail: detail.into() };
    match io.metadata(dir)? {
        None => return Err(no_store("there is no such directory")),
        Some(m) if !m.is_dir => return Err(no_store("it is not a directory")),
        Some(_) => {}
    }
    let own: Vec<FileKind> =
        io.read_dir(dir)?.iter().filter(|e| !e.is_dir).filter_map(|e| files::parse(&e.name)).collect();
    let store = |k: &FileKind| matches!(k, FileKind::Manifest(_) | FileKind::Table(_) | FileKind::Log(_));
    if !own.iter().any(store) {
        return Err(no_store("it holds no table, log segment or manifest"));
    }
    let (state, whole, manifest) = read_manifest(io, dir, &own)?;
    let mut found = Inventory {
        state,
        whole,
        manifest,
        sources: Vec::new(),
        segments: own.iter().filter_map(|k| if let FileKind::Log(n) = k { Some(*n) } else { None }).collect(),
        block_bytes: None,
        encoding: None,
        notes: Vec::new(),
    };
    found.segments.sort_unstable();
    find_tables(io, dir, &own, &mut found)?;
    for s in found.sources.iter().filter(|s| !s.missing) {
        check_key(io, s)?;
    }
    Ok(found)
}

/// The manifest in force; else the newest, if it is whole; else what there is of the newest, or an older one. Of the
/// tables that came after an older one it says nothing, so it is not taken for the whole truth.
fn read_manifest(io: &Io, dir: &Path, own: &[FileKind]) -> Result<(ManifestState, bool, String)> {
    let why = match ManifestFile::load(io, dir) {
        Ok(Some(loaded)) => {
            let name = FileKind::Manifest(loaded.number).name();
            return Ok((loaded.state, true, format!("{name} is whole")));
        }
        Ok(None) => "CURRENT is missing".to_string(),
        Err(e @ (Error::NewerFormat { .. } | Error::Key { .. })) => return Err(e),
        Err(e) => e.to_string(),
    };
    let mut numbers: Vec<u64> =
        own.iter().filter_map(|k| if let FileKind::Manifest(n) = k { Some(*n) } else { None }).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let mut best: Option<(ManifestState, String)> = None;
    for number in numbers {
        let name = FileKind::Manifest(number).name();
        match ManifestFile::load_some(io, dir, number) {
            Ok((state, None)) => match best {
                None => return Ok((state, true, format!("{why}; {name} is whole and taken"))),
                Some((newest, words)) if !newest.tables.is_empty() || !newest.keyspaces.is_empty() => {
                    return Ok((newest, false, words));
                }
                Some(_) => {
                    return Ok((state, false, format!("{why}; {name}, an older one, names keyspaces")));
                }
            },
            Ok((state, Some(e))) => {
                best.get_or_insert_with(|| (state, format!("{why}; of {name} what precedes is taken: {e}")));
            }
            Err(e @ (Error::NewerFormat { .. } | Error::Key { .. })) => return Err(e),
            Err(_) => {}
        }
    }
    let (state, words) =
        best.unwrap_or_else(|| (ManifestState::default(), format!("{why}; there is no other")));
    Ok((state, false, words))
}

/// A table whose key is not to be had is not lost: the salvage is to be done again with it.
fn check_key(io: &Io, s: &Source) -> Result<()> {
    let version = io.open(&s.path, &OpenHow::read()).map_err(Error::from);
    let version = version.and_then(|file| version_in_footer(&file, s.file_id, purpose::RECOVERY));
    if version.is_ok_and(|v| v < FormatVersion::V3) {
        return Ok(());
    }
    match Remains::load(io, &s.path, s.file_id, None, purpose::RECOVERY) {
        Err(e @ Error::Key { .. }) => Err(e),
        _ => Ok(()),
    }
}

fn find_tables(io: &Io, dir: &Path, own: &[FileKind], found: &mut Inventory) -> Result<()> {
    // By what they say that they are, since files may have been renamed.
    let mut tables: BTreeMap<u64, (PathBuf, Option<TableMeta>, u64)> = BTreeMap::new();
    let mut deepest = None;
    for id in own.iter().filter_map(|k| if let FileKind::Table(n) = k { Some(*n) } else { None }) {
        let path = FileKind::Table(id).path(dir);
        let bytes = io.metadata(&path)?.map_or(0, |m| m.len);
        let (real, meta) = match Remains::load(io, &path, id, found.block_bytes, purpose::RECOVERY) {
            Ok(r) => {
                if let Some(p) = &r.properties {
                    found.block_bytes.get_or_insert(p.block_bytes);
                    let level = found.state.tables.get(&r.file_id).map(|(level, _)| *level);
                    if found.encoding.is_none() || level > deepest {
                        (found.encoding, deepest) = (Some(p.compression), level);
                    }
                }
                (r.file_id, r.properties.map(|p| p.meta))
            }
            Err(_) => (id, None),
        };
        if real != id {
            found.notes.push(format!("{} holds table {real}", path.display()));
        }
        // The file that has the right name is the better one.
        let better = real == id || !tables.contains_key(&real);
        if better {
            tables.insert(real, (path, meta, bytes));
        }
    }
    if !found.whole {
        found.sources.extend(tables.into_iter().map(|(file_id, (path, meta, bytes))| Source {
            path,
            missing: false,
            file_id,
            level: None,
            meta,
            bytes,
        }));
        return Ok(());
    }
    for (id, (level, meta)) in &found.state.tables {
        let (path, missing, bytes) = match tables.remove(id) {
            Some((path, _, bytes)) => (path, false, bytes),
            None => (FileKind::Table(*id).path(dir), true, 0),
        };
        let meta = Some(meta.clone());
        found.sources.push(Source { path, missing, file_id: *id, level: Some(*level), meta, bytes });
    }
    let rest = tables.values().map(|(path, ..)| format!("{} is not part of the store", path.display()));
    found.notes.extend(rest);
    Ok(())
}
