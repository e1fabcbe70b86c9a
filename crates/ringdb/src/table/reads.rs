//! [`Reads`]: whether a table is read through the page cache; and opening files past it.
//!
//! A file that is to bypass the page cache does so where its direct transfers need no more than the 4 KiB that blocks
//! and log frames are aligned to. Where the file system has no direct I/O, and where sectors are larger (16 and 64 KiB
//! exist), that file goes through the page cache; what is durable when stays the same.

use std::path::Path;

use engineswap::{Advice, Direct, File, Io, OpenHow};

use super::block::BLOCK_UNIT;
use crate::error::Result;

/// How an open table reads its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Through the page cache, and of the file no more than is asked for: the store knows better than the kernel what
    /// comes next.
    PageCache,
    /// Past the page cache: memory is what the store's own budget says.
    Direct,
}

impl Reads {
    /// As [`crate::Options::direct_reads`] says.
    pub fn from_option(direct: bool) -> Reads {
        if direct { Reads::Direct } else { Reads::PageCache }
    }

    /// Opens a table.
    pub fn open(self, io: &Io, path: &Path) -> Result<File> {
        match self {
            Reads::Direct => open_direct(io, path, &OpenHow::read()),
            Reads::PageCache => {
                let file = io.open(path, &OpenHow::read())?;
                // Only advice: where it is not taken, reads fetch more than they need.
                let _ = file.advise(Advice::Random, 0, 0);
                Ok(file)
            }
        }
    }
}

/// Opens a file past the page cache, if its direct transfers need no more than our alignment.
pub(crate) fn open_direct(io: &Io, path: &Path, how: &OpenHow) -> Result<File> {
    let file = io.open(path, &how.direct(Direct::Prefer))?;
    if file.alignment().offset as usize <= BLOCK_UNIT {
        return Ok(file);
    }
    // It has been made and cut already.
    let again = OpenHow { create: false, create_new: false, truncate: false, direct: Direct::No, ..*how };
    Ok(io.open(path, &again)?)
}
