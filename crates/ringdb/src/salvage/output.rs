//! [`Output`]: the tables of the new store.

use std::sync::Arc;

use super::Files;
use crate::compaction::pick::LAST;
use crate::key::{Kind, Seq};
use crate::seal::ring;
use crate::settings::SettingsMap;
use crate::table::writer::{TableOptions, TableWriter};
use crate::table::{Reads, TableMeta};
use crate::{Result, purpose};

/// Where they lie.
pub(super) const LEVEL: u32 = LAST as u32;
/// About the bytes of one.
const TABLE_BYTES: u64 = 64 << 20;
/// Of how many keys hashes are held while a table is written.
const MOST_HASHES: usize = 1 << 20;

/// Writes versions into tables, durably; their names in the directory are not yet.
pub(super) struct Output<'a> {
    files: &'a Files,
    settings: Arc<SettingsMap>,
    /// Which region of the settings the open table is in.
    region: usize,
    writer: Option<TableWriter>,
    done: Vec<TableMeta>,
}

impl<'a> Output<'a> {
    pub fn new(files: &'a Files, settings: Arc<SettingsMap>) -> Output<'a> {
        Output { files, settings, region: 0, writer: None, done: Vec::new() }
    }

    /// Adds a version, after those before in order. `new_key`: its key is not that of the version before.
    pub fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8], new_key: bool) -> Result<()> {
        let leaves = self.settings.end_of(self.region).is_some_and(|end| end <= key);
        if !new_key {
            // All of a key lies in one table.
        } else if leaves || self.writer.as_ref().is_some_and(|w| w.estimated_bytes() >= TABLE_BYTES) {
            self.cut()?;
        }
        if let Some(w) = &mut self.writer {
            return w.add(key, seq, kind, value);
        }
        let (id, path) = self.files.table();
        self.region = self.settings.region_of(key);
        let settings = self.settings.of_region(self.region);
        let options = TableOptions {
            block_bytes: settings.block_bytes,
            compression: settings.last_level_compression,
            filter_bits_per_key: settings.filter_bits_per_key,
            expected_bytes: 0,
            buffer_bytes: u64::MAX,
            most_keys: None,
            most_hashes: MOST_HASHES,
            reads: Reads::Direct,
            seal: ring::for_writing(&self.files.io)?,
            purpose: purpose::FLUSH,
        };
        let w = TableWriter::create(&self.files.io, &path, id, options)?;
        self.writer.insert(w).add(key, seq, kind, value)
    }

    fn cut(&mut self) -> Result<()> {
        if let Some(w) = self.writer.take() {
            self.done.push(w.finish_start()?.wait()?);
        }
        Ok(())
    }

    /// All tables.
    pub fn finish(mut self) -> Result<Vec<TableMeta>> {
        self.cut()?;
        Ok(self.done)
    }
}
