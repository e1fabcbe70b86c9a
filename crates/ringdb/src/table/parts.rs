//! [`TableParts`]: what is read of a table when it is opened, and stays in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engineswap::mem::AlignedBuf;
use engineswap::{File, Io, Purpose};

use super::block::BLOCK_UNIT;
use super::compress::Encoding;
use super::filter::{Filter, FilterBuilder};
use super::format::{FILTER, FOOTER_BYTES, Footer, INDEX, PROPERTIES, Properties};
use super::index::Index;
use super::index_format::IndexBuilder;
use super::meta::TableMeta;
use super::reads::Reads;
use crate::error::{Error, Result};
use crate::key::Seq;
use crate::seal::{Seal, opened, ring};

/// First guess at how much of a table's end is needed.
const TAIL_BYTES: u64 = 256 << 10;

/// A table's open file, index, filter and properties.
#[derive(Debug)]
pub(crate) struct TableParts {
    /// The open file; or why the table cannot be read, and then the other parts stand in for it.
    file: Result<File>,
    pub path: PathBuf,
    pub file_id: u64,
    seal: Option<Arc<Seal>>,
    pub properties: Properties,
    pub index: Index,
    pub filter: Filter,
}

impl TableParts {
    /// Opens table `file_id` at `path` for `reads` and reads all but its data blocks, in one read, or two if
    /// the index and filter are long. Everything is checked, and against each other.
    pub fn load(io: &Io, path: &Path, file_id: u64, reads: Reads, purpose: Purpose) -> Result<TableParts> {
        let file = reads.open(io, path)?;
        let file_bytes = file.len()?;
        let unit = BLOCK_UNIT as u64;
        if file_bytes == 0 || !file_bytes.is_multiple_of(unit) {
            return Err(Error::corrupt(path, None, format!("a table of {file_bytes} bytes")));
        }
        let mut tail_at = file_bytes.saturating_sub(TAIL_BYTES);
        let mut tail = read(&file, tail_at, file_bytes, purpose)?;
        let Some(footer) = tail.last_chunk::<FOOTER_BYTES>() else {
            return Err(Error::corrupt(path, None, "no footer"));
        };
        let footer = Footer::decode(footer, path, file_bytes, file_id)?;
        if footer.index.offset < tail_at {
            tail_at = footer.index.offset / unit * unit;
            tail = read(&file, tail_at, file_bytes, purpose)?;
        }
        let bad = |what: &str, offset: u64, detail: String| {
            Error::corrupt(path, Some(offset), format!("{what}: {detail}"))
        };
        let seal = ring::of_file(io, footer.stamp, path)?;
        let s = footer.properties;
        let bytes = s.check(&tail, tail_at, file_id).map_err(|e| bad("properties", s.offset, e))?;
        // The first that is opened: a wrong key is met here.
        let bytes = opened(seal.as_deref(), PROPERTIES.unit(file_id), bytes).map_err(|detail| {
            seal.as_ref().map_or_else(|| bad("properties", s.offset, detail), |s| s.wrong_key(path))
        })?;
        let properties = Properties::decode(&bytes)
            .ok_or_else(|| bad("properties", s.offset, "they are not well formed".into()))?;
        let s = footer.filter;
        let filter = s
            .check(&tail, tail_at, file_id)
            .and_then(|b| Filter::decode(&opened(seal.as_deref(), FILTER.unit(file_id), b)?))
            .map_err(|e| bad("filter", s.offset, e))?;
        let s = footer.index;
        let index = s
            .check(&tail, tail_at, file_id)
            .and_then(|b| {
                Index::decode(&opened(seal.as_deref(), INDEX.unit(file_id), b)?, properties.block_bytes)
            })
            .map_err(|e| bad("index", s.offset, e))?;
        let meta = &properties.meta;
        let agree = index.fits_seal(seal.is_some())
            && index.blocks() == properties.blocks
            && index.is_trimmed() == properties.trimmed
            && index.data_bytes() <= s.offset
            && index.separator(index.blocks() - 1) == meta.largest
            && meta.file_id == file_id
            && meta.file_bytes == file_bytes;
        if !agree {
            return Err(bad("properties", footer.properties.offset, "they disagree with the index".into()));
        }
        Ok(TableParts { file: Ok(file), path: path.into(), file_id, seal, properties, index, filter })
    }

    /// The same of a table that the manifest describes as `meta`.
    pub fn load_as(
        io: &Io,
        path: &Path,
        meta: &TableMeta,
        reads: Reads,
        purpose: Purpose,
    ) -> Result<TableParts> {
        let mut parts = TableParts::load(io, path, meta.file_id, reads, purpose)?;
        if parts.properties.meta != meta.in_file() {
            return Err(Error::corrupt(path, None, "the table is not the one that the manifest describes"));
        }
        parts.properties.meta.clone_from(meta);
        Ok(parts)
    }

    /// See [`TableMeta::given`].
    #[inline]
    pub fn given(&self) -> Seq {
        self.properties.meta.given
    }

    /// Stands in for a table that cannot be read because of `why`: one block of `block_bytes` over its whole key
    /// range, whose reading fails with that error; a filter that lets every key pass.
    pub fn unreadable(path: &Path, meta: TableMeta, block_bytes: u32, why: Error) -> TableParts {
        let mut index = IndexBuilder::new(block_bytes);
        index.add_position(block_bytes, None);
        index.add_separator(&meta.largest);
        TableParts {
            file: Err(why),
            path: path.into(),
            file_id: meta.file_id,
            seal: None,
            properties: Properties {
                block_bytes,
                compression: Encoding::Plain,
                trimmed: false,
                filter_bits_per_key: 0,
                blocks: 1,
                keys: 1,
                key_bytes: 0,
                value_bytes: 0,
                meta,
            },
            index: index.finish(),
            filter: FilterBuilder::new(0).finish(),
        }
    }

    /// What its blocks are sealed with.
    #[inline]
    pub fn seal(&self) -> Option<&Seal> {
        self.seal.as_deref()
    }

    /// The same, to be kept.
    pub fn seal_shared(&self) -> Option<Arc<Seal>> {
        self.seal.clone()
    }

    /// The open file; the error with which the table failed to open.
    #[inline]
    pub fn file(&self) -> Result<&File> {
        self.file.as_ref().map_err(Error::clone)
    }

    /// Whether blocks are read past the page cache.
    #[inline]
    pub fn reads_direct(&self) -> bool {
        self.file.as_ref().is_ok_and(File::is_direct)
    }

    /// Why the table cannot be read, if it cannot.
    #[inline]
    pub fn why_unreadable(&self) -> Option<&Error> {
        self.file.as_ref().err()
    }

    /// The error for block `block`.
    pub fn corrupt_block(&self, block: u32, detail: impl Into<String>) -> Error {
        let offset = (block < self.index.blocks()).then(|| self.index.block_pos(block).offset);
        Error::corrupt(&self.path, offset, detail)
    }
}

fn read(file: &File, from: u64, to: u64, purpose: Purpose) -> Result<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed((to - from) as usize);
    file.read_exact_at(&mut buf, from, purpose)?;
    Ok(buf)
}
