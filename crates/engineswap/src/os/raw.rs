//! What an engine's file does.

use std::path::Path;

use super::os_file::OsFile;
use crate::Result;
use crate::how::Advice;
use crate::info::Alignment;
use crate::kind::Purpose;
use crate::map::RawMap;

/// An engine's file; see [`crate::File`] for the meaning of each call.
#[allow(missing_docs, clippy::len_without_is_empty)]
pub trait RawFile: Send + Sync {
    fn read_at(&self, buf: &mut [u8], offset: u64, purpose: Purpose) -> Result<usize>;
    fn write_all_at(&self, buf: &[u8], offset: u64, dsync: bool, purpose: Purpose) -> Result<()>;
    fn sync(&self, data_only: bool, purpose: Purpose) -> Result<()>;
    fn sync_range(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()>;
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;
    fn set_len(&self, len: u64) -> Result<()>;
    fn len(&self) -> Result<u64>;
    fn path(&self) -> &Path;
    fn is_direct(&self) -> bool;
    fn alignment(&self) -> Alignment;
    fn map(&self, len: u64) -> Result<Box<dyn RawMap>>;
    /// See [`crate::File::rewrites_in_place`].
    fn rewrites_in_place(&self) -> bool {
        true
    }
    fn advise(&self, _advice: Advice, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
    /// Without an answer of its own an engine waits for all of it.
    fn start_write_back(&self, offset: u64, len: u64, _wait_before: bool, purpose: Purpose) -> Result<()> {
        self.sync_range(offset, len, purpose)
    }
    /// See [`crate::File::read_cached_at`].
    fn read_cached_at(&self, _buf: &mut [u8], _offset: u64, _purpose: Purpose) -> Option<()> {
        None
    }
    /// The file of the operating system behind it, if it is one.
    fn os(&self) -> Option<&OsFile> {
        None
    }
}
