//! [`TableParts`]: what is read of a table when it is opened, and stays in memory.

use std::path::{Path, PathBuf};

use engineswap::mem::AlignedBuf;
use engineswap::{Direct, File, Io, OpenHow, Purpose};

use super::block::BLOCK_UNIT;
use super::filter::Filter;
use super::format::{FOOTER_BYTES, Footer, Properties};
use super::index::Index;
use crate::error::{Error, Result};

/// First guess at how much of a table's end is needed.
const TAIL_BYTES: u64 = 256 << 10;

/// A table's open file, index, filter and properties.
#[derive(Debug)]
pub(crate) struct TableParts {
    pub file: File,
    pub path: PathBuf,
    pub file_id: u64,
    pub properties: Properties,
    pub index: Index,
    pub filter: Filter,
}

impl TableParts {
    /// Opens table `file_id` at `path` and reads all but its data blocks, in one read, or two if the index and
    /// filter are long. Everything is checked, and against each other.
    pub fn load(io: &Io, path: &Path, file_id: u64, purpose: Purpose) -> Result<TableParts> {
        let file = io.open(path, &OpenHow::read().direct(Direct::Prefer))?;
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
        let s = footer.properties;
        let properties = s
            .check(&tail, tail_at, file_id)
            .and_then(|b| Properties::decode(b).ok_or_else(|| "they are not well formed".into()))
            .map_err(|e| bad("properties", s.offset, e))?;
        let s = footer.filter;
        let filter = s
            .check(&tail, tail_at, file_id)
            .and_then(Filter::decode)
            .map_err(|e| bad("filter", s.offset, e))?;
        let s = footer.index;
        let index = s
            .check(&tail, tail_at, file_id)
            .and_then(|b| Index::decode(b, properties.block_bytes))
            .map_err(|e| bad("index", s.offset, e))?;
        let meta = &properties.meta;
        let agree = index.blocks() == properties.blocks
            && index.data_bytes() <= s.offset
            && index.separator(index.blocks() - 1) == meta.largest
            && meta.file_id == file_id
            && meta.file_bytes == file_bytes;
        if !agree {
            return Err(bad("properties", footer.properties.offset, "they disagree with the index".into()));
        }
        Ok(TableParts { file, path: path.into(), file_id, properties, index, filter })
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
