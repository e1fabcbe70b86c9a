//! Encryption at rest, as far as the store's calls show it.

use engineswap::Io;

use super::Db;
use crate::seal::ring::with_keys;
use crate::{Options, Result};

impl Db {
    /// Writes every table anew, in all keyspaces, as tables are written now: with the encryption key of this open, and
    /// with the compression, block size and filters that are set now. What was written before the call is in it. It
    /// takes its time and, for a while, the space of the largest compaction; reads and writes go on beside it.
    ///
    /// The last step of a change of keys: open with the new key beside the old one, rewrite, close. Then nothing needs
    /// the old key any more ([`Db::tables`] says which key each table needs).
    ///
    /// # Errors
    /// As [`Db::compact_range`].
    pub fn rewrite(&self) -> Result<()> {
        self.core().rewrite()
    }
}

impl Options {
    /// The I/O engine that these settings name, with their encryption keys: for [`crate::Backups::open_with_io`] and
    /// [`crate::Exported::open_with_io`].
    ///
    /// # Errors
    /// Of kind [`crate::ErrorKind::FixCall`] if there is no such engine, or it does not work here.
    pub fn open_io(&self) -> Result<Io> {
        Ok(with_keys(&super::engine(&self.io)?, self.keys()))
    }
}
