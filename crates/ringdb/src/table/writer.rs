//! [`TableWriter`]: makes a table from versions in order.

use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

use engineswap::{Io, Purpose};
use xxhash_rust::xxh3::Xxh3;

use super::block::BLOCK_UNIT;
use super::block_builder::{BlockBuilder, lone_block_front, lone_used, put_checksum};
use super::compress::{Compressor, Encoding};
use super::filter::FilterBuilder;
use super::format::{FOOTER_BYTES, Footer, INDEX, PROPERTIES, Properties, packed_checksum};
use super::index::shortest_separator;
use super::index_format::IndexBuilder;
use super::meta::{MAX_INTERNAL_KEY_BYTES, TableMeta};
use super::output::{MOST_BUFFER_BYTES, Output, Syncing};
use super::reads::Reads;
use super::sections::Sections;
use crate::error::{Error, Result};
use crate::expiry::{self, Expiries};
use crate::format_version::FormatVersion;
use crate::key::{self, Kind, MAX_VALUE_BYTES, SEQ_MAX, Seq};
use crate::options::Compression;
use crate::seal::{Seal, TAG_BYTES, Unit};

/// Values longer than this go straight from the caller's memory to the file's buffers, when not compressed.
const STREAM_PLAIN_BYTES: usize = 128 << 10;
/// Values longer than this do so in compressed tables too: they are stored plain, to bound memory.
const STREAM_ALWAYS_BYTES: usize = 16 << 20;

/// So many times the keys are expected that would come if they were as close as those before.
const SURPLUS: f64 = 1.25;

/// Where a table's padding is more than this part of it, blocks are stored without padding from there on. They begin
/// anywhere then, which is nothing to the page cache; of a read past it, more is thrown away.
const MOST_PADDING_CACHED: u64 = 32;
const MOST_PADDING_DIRECT: u64 = 8;
/// So much padding is never too much: one large value among small ones should not trim them.
const PADDING_SLACK: u64 = 16 << 10;

/// A block begins with its checksum.
const CHECKSUM_BYTES: usize = 4;

/// How to write a table.
#[derive(Clone, Debug)]
pub(crate) struct TableOptions {
    /// Bytes of a normal block: a power of two from 4 KiB to 64 KiB.
    pub block_bytes: u32,
    pub compression: Compression,
    /// Bloom filter bits per key; 0 for no filter.
    pub filter_bits_per_key: u32,
    /// About how long the file will be: so much is reserved before the first write.
    pub expected_bytes: u64,
    /// Bytes of buffers for what is on its way to the file, within reason.
    pub buffer_bytes: u64,
    /// No more keys will come, and not many fewer; `None` if that is to be told from `expected_bytes`.
    pub most_keys: Option<u64>,
    /// Of how many keys hashes may be held: with more the filter is made early.
    pub most_hashes: usize,
    /// How the table will be read: through the page cache, and then what is written stays there; or past it.
    pub reads: Reads,
    /// What to seal it with.
    pub seal: Option<Arc<Seal>>,
    pub purpose: Purpose,
}

/// Writes a table. Dropped before it is finished, it leaves a file that is not a table.
pub(crate) struct TableWriter {
    out: Output,
    file_id: u64,
    options: TableOptions,
    block: BlockBuilder,
    /// The last key, if its block was streamed and so `block` is empty.
    streamed_key: Option<Vec<u8>>,
    index: IndexBuilder,
    /// Bytes of padding so far, and whether there will be no more.
    padding: u64,
    trims: bool,
    /// There are operands.
    merges: bool,
    /// When entries expire.
    expiries: Expiries,
    filter: FilterBuilder,
    compressor: Compressor,
    scratch: Vec<u8>,
    separator: Vec<u8>,
    last_seq: Seq,
    keys: u64,
    key_bytes: u64,
    value_bytes: u64,
    meta: TableMeta,
    /// Of all blocks' checksums.
    digest: Box<Xxh3>,
}

impl TableWriter {
    /// Makes the file `path` for table `file_id`; an error if it exists.
    pub fn create(io: &Io, path: &Path, file_id: u64, options: TableOptions) -> Result<TableWriter> {
        let out = Output::create(io, path, &options)?;
        let meta = TableMeta {
            given: 0,
            file_id,
            file_bytes: 0,
            entries: 0,
            tombstones: 0,
            min_seq: SEQ_MAX,
            max_seq: 0,
            smallest: Vec::new(),
            largest: Vec::new(),
            expiry: None,
        };
        let mut block = BlockBuilder::new(options.block_bytes as usize);
        let mut index = IndexBuilder::new(options.block_bytes);
        // What is sealed can lie anywhere: nothing is read in place.
        let trims = options.seal.is_some();
        if trims {
            index.trim();
            block.trim();
        }
        Ok(TableWriter {
            out,
            file_id,
            block,
            streamed_key: None,
            index,
            padding: 0,
            trims,
            merges: false,
            expiries: Expiries::default(),
            filter: FilterBuilder::new(options.filter_bits_per_key),
            compressor: Compressor::new(options.compression.into()),
            options,
            scratch: Vec::new(),
            separator: Vec::new(),
            last_seq: 0,
            keys: 0,
            key_bytes: 0,
            value_bytes: 0,
            meta,
            digest: Box::new(Xxh3::new()),
        })
    }

    /// Adds a version, which must follow the last one: by key ascending, then by sequence number descending.
    pub fn add(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> Result<()> {
        if key.is_empty()
            || key.len() > MAX_INTERNAL_KEY_BYTES
            || value.len() > MAX_VALUE_BYTES
            || seq > SEQ_MAX
        {
            return Err(Error::Invalid(format!(
                "a table cannot hold a key of {} and a value of {} bytes at sequence number {seq}",
                key.len(),
                value.len()
            )));
        }
        let order = match self.meta.entries {
            0 => Ordering::Less,
            _ => self.last_key().cmp(key),
        };
        match order {
            Ordering::Less => {
                self.keys += 1;
                if self.filter.is_wanted() {
                    self.filter.add(key::hash(key));
                    if self.filter.held() >= self.options.most_hashes {
                        self.filter.make_early(self.keys_in_the_end());
                    }
                }
                if self.meta.entries == 0 {
                    self.meta.smallest.extend_from_slice(key);
                }
            }
            Ordering::Equal if seq < self.last_seq => {}
            _ => return Err(Error::Invalid("a table's versions must be added in order".into())),
        }
        let streams = value.len() > STREAM_ALWAYS_BYTES
            || (value.len() > STREAM_PLAIN_BYTES && self.compressor.encoding() == Encoding::Plain);
        if streams {
            self.end_block(Some(key))?;
            self.stream_block(key, seq, kind, value)?;
        } else if self.streamed_key.is_some() || !self.block.add(key, seq, kind, value) {
            self.end_block(Some(key))?;
            let taken = self.block.add(key, seq, kind, value);
            assert!(taken, "an empty block takes any entry");
        }
        self.merges |= kind == Kind::Merge;
        self.last_seq = seq;
        self.key_bytes += key.len() as u64;
        self.value_bytes += value.len() as u64;
        let m = &mut self.meta;
        m.entries += 1;
        m.tombstones += (kind == Kind::Delete) as u64;
        if kind == Kind::Expiring {
            self.expiries.add(expiry::split(value).0);
        }
        m.min_seq = m.min_seq.min(seq);
        m.max_seq = m.max_seq.max(seq);
        Ok(())
    }

    fn last_key(&self) -> &[u8] {
        match &self.streamed_key {
            Some(k) => k,
            None => self.block.last_key(),
        }
    }

    /// About how long the file would be if finished now.
    pub fn estimated_bytes(&self) -> u64 {
        let block = if self.block.is_empty() { 0 } else { self.block.block_len() as u64 };
        self.out.position() + block + self.index.estimated_bytes() + self.filter.estimated_bytes() + 4096
    }

    /// How many keys there will be; rather more than fewer.
    #[cold]
    fn keys_in_the_end(&self) -> u64 {
        if let Some(most) = self.options.most_keys {
            return most;
        }
        let left = self.options.expected_bytes.saturating_sub(self.out.position());
        let alike = self.keys as f64 / self.out.position().max(1) as f64 * left as f64;
        self.keys + (alike * SURPLUS) as u64
    }

    /// About how many bytes of memory it takes: buffers, and what the index and the filter are made from.
    pub fn memory(&self) -> u64 {
        self.options.buffer_bytes.min(MOST_BUFFER_BYTES)
            + 2 * self.index.estimated_bytes()
            + self.filter.memory()
            + self.scratch.capacity() as u64
    }

    /// Ends the block before `next`, the key that follows (`None` at the table's end).
    fn end_block(&mut self, next: Option<&[u8]>) -> Result<()> {
        if self.meta.entries == 0 {
            return Ok(());
        }
        let mut separator = std::mem::take(&mut self.separator);
        separator.clear();
        let last = self.last_key();
        separator.extend_from_slice(next.map_or(last, |next| shortest_separator(last, next)));
        if !self.index.has_room(separator.len()) {
            return Err(Error::Invalid("the table's index is full".into()));
        }
        if self.streamed_key.take().is_some() {
            self.index.add_separator(&separator);
        } else {
            self.write_block()?;
            self.index.add_separator(&separator);
        }
        self.separator = separator;
        Ok(())
    }

    /// The length to store the next block with, of which `used` bytes are needed and `padded` are the rule.
    fn stored_len(&mut self, used: usize, padded: usize) -> usize {
        if !self.trims {
            self.padding += (padded - used) as u64;
            let one_of = match self.options.reads {
                Reads::PageCache => MOST_PADDING_CACHED,
                Reads::Direct => MOST_PADDING_DIRECT,
            };
            let most = (self.out.position() + padded as u64) / one_of + PADDING_SLACK;
            if self.padding > most {
                self.trims = true;
                self.index.trim();
                self.block.trim();
            }
        }
        if self.trims { used } else { padded }
    }

    fn write_block(&mut self) -> Result<()> {
        let len = self.block.block_len();
        let block_no = self.index.positions_added();
        if let Some(seal) = self.options.seal.clone() {
            let used = self.block.used_len();
            self.scratch.resize(self.block.block_len(), 0);
            self.block.finish_into(&mut self.scratch, self.file_id, block_no);
            return self.write_sealed(&seal, used);
        }
        if self.compressor.encoding() == Encoding::Plain {
            let len = self.stored_len(self.block.used_len(), len);
            self.index.add_position(len as u32, self.trims.then_some((len as u32, Encoding::Plain)));
            if let Some(room) = self.out.room(len) {
                self.block.finish_into(room, self.file_id, block_no);
                self.digest.update(&room[..CHECKSUM_BYTES]);
                return self.out.flush_if_full();
            }
            self.scratch.resize(len, 0);
            self.block.finish_into(&mut self.scratch, self.file_id, block_no);
            self.digest.update(&self.scratch[..CHECKSUM_BYTES]);
            return self.out.write(&self.scratch);
        }
        self.scratch.resize(len, 0);
        let used = self.block.used_len();
        self.block.finish_into(&mut self.scratch, self.file_id, block_no);
        // Worth it from an eighth saved.
        let packed = match self.compressor.compress(&self.scratch[4..], len / 8 * 7) {
            None => {
                let len = self.stored_len(used, len);
                if len < self.scratch.len() {
                    self.scratch.truncate(len);
                    put_checksum(&mut self.scratch, self.file_id, block_no);
                }
                self.digest.update(&self.scratch[..CHECKSUM_BYTES]);
                self.out.write(&self.scratch)?;
                (len as u32, Encoding::Plain)
            }
            Some(packed) => {
                let sum = packed_checksum(packed, self.file_id, block_no).to_le_bytes();
                self.digest.update(&sum);
                self.out.write(&sum)?;
                self.out.write(packed)?;
                (packed.len() as u32 + 4, self.compressor.encoding())
            }
        };
        self.index.add_position(len as u32, Some(packed));
        Ok(())
    }

    /// Compresses the block in `scratch`, if that is worth it, seals and writes it; `used` of its bytes are no padding.
    fn write_sealed(&mut self, seal: &Seal, used: usize) -> Result<()> {
        let len = self.scratch.len();
        let Some(packed) = self.compressor.compress(&self.scratch[CHECKSUM_BYTES..], len / 8 * 7) else {
            self.scratch.truncate(used);
            return self.write_sealed_as(seal, used, Encoding::Sealed);
        };
        self.scratch.truncate(CHECKSUM_BYTES);
        self.scratch.extend_from_slice(packed);
        self.write_sealed_as(seal, len, self.compressor.encoding())
    }

    /// Seals what `scratch` has behind the checksum's place: a block that is `len` bytes long in memory.
    fn write_sealed_as(&mut self, seal: &Seal, len: usize, encoding: Encoding) -> Result<()> {
        let number = self.index.positions_added();
        let unit = Unit::Block { file: self.file_id, number };
        seal.close_vec(unit, &[], &mut self.scratch, CHECKSUM_BYTES);
        let sum = packed_checksum(&self.scratch[CHECKSUM_BYTES..], self.file_id, number).to_le_bytes();
        self.scratch[..CHECKSUM_BYTES].copy_from_slice(&sum);
        self.digest.update(&sum);
        self.out.write(&self.scratch)?;
        self.index.add_position(len as u32, Some((self.scratch.len() as u32, encoding)));
        Ok(())
    }

    /// Writes a block of one entry without a copy of its value besides the file's buffers (sealed: and one that is
    /// encrypted).
    fn stream_block(&mut self, key: &[u8], seq: Seq, kind: Kind, value: &[u8]) -> Result<()> {
        if let Some(seal) = self.options.seal.clone() {
            let used = lone_used(key, kind, value.len());
            let block_no = self.index.positions_added();
            self.scratch.clear();
            self.scratch.reserve_exact(used + TAG_BYTES);
            self.scratch.extend_from_slice(&lone_block_front(
                (key, seq, kind, value),
                used,
                self.file_id,
                block_no,
            ));
            self.scratch.extend_from_slice(value);
            self.write_sealed_as(&seal, used, Encoding::Sealed)?;
            self.scratch = Vec::new();
            self.streamed_key = Some(key.to_vec());
            return Ok(());
        }
        let len =
            self.stored_len(lone_used(key, kind, value.len()), self.block.lone_len(key, kind, value.len()));
        let block_no = self.index.positions_added();
        let end = self.out.position() + len as u64;
        let front = lone_block_front((key, seq, kind, value), len, self.file_id, block_no);
        self.digest.update(&front[..CHECKSUM_BYTES]);
        self.out.write(&front)?;
        self.out.write(value)?;
        self.out.pad_to(end)?;
        let is_packed = self.trims || self.compressor.encoding() != Encoding::Plain;
        let packed = is_packed.then_some((len as u32, Encoding::Plain));
        self.index.add_position(len as u32, packed);
        self.streamed_key = Some(key.to_vec());
        Ok(())
    }

    /// The version that the footer names: the lowest whose readers know all that the table holds.
    fn version(&self) -> FormatVersion {
        if self.options.seal.is_some() {
            FormatVersion::V3
        } else if self.trims || self.merges || self.meta.expiry.is_some() {
            FormatVersion::V2
        } else {
            FormatVersion::V1
        }
    }

    /// Writes the rest and waits until the table is durable (its directory entry is not).
    #[cfg(test)]
    pub fn finish(self) -> Result<TableMeta> {
        self.finish_start()?.wait()
    }

    /// Writes the rest and starts the sync, so that it overlaps the writing of the next table.
    pub fn finish_start(mut self) -> Result<FinishingTable> {
        if self.meta.entries == 0 {
            return Err(Error::Invalid("a table needs an entry".into()));
        }
        self.meta.largest = self.last_key().to_vec();
        self.meta.expiry = self.expiries.finish();
        self.end_block(None)?;
        let (file_id, version) = (self.file_id, self.version());
        let index = self.index.finish();
        let sections = Sections { file_id, seal: self.options.seal };
        let mut bytes = self.scratch;
        bytes.clear();
        index.encode(&mut bytes);
        let index_section = sections.write(&mut self.out, &mut bytes, INDEX)?;
        let filter_section = sections.write_filter(&mut self.out, &self.filter.finish(), &mut bytes)?;
        let mut properties = Properties {
            block_bytes: self.options.block_bytes,
            compression: self.compressor.encoding(),
            trimmed: self.trims,
            filter_bits_per_key: self.options.filter_bits_per_key,
            blocks: index.blocks(),
            keys: self.keys,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            meta: self.meta,
        };
        // The file's length is among the properties, and their length decides it: a varint may grow it once.
        let start = self.out.position();
        let tag = sections.tag_bytes();
        loop {
            bytes.clear();
            properties.encode(&mut bytes);
            let end = start + (bytes.len() + tag + FOOTER_BYTES) as u64;
            let file_bytes = end.next_multiple_of(BLOCK_UNIT as u64);
            if properties.meta.file_bytes == file_bytes {
                break;
            }
            properties.meta.file_bytes = file_bytes;
        }
        let meta = properties.meta;
        let properties_section = sections.write(&mut self.out, &mut bytes, PROPERTIES)?;
        let footer = Footer {
            version,
            file_id,
            file_bytes: meta.file_bytes,
            index: index_section,
            filter: filter_section,
            properties: properties_section,
            // 0 would say that there is none.
            digest: self.digest.digest128().max(1),
            stamp: sections.seal.map(|seal| *seal.stamp()),
        };
        self.out.pad_to(meta.file_bytes - FOOTER_BYTES as u64)?;
        self.out.write(&footer.encode())?;
        Ok(FinishingTable { syncing: self.out.finish()?, meta })
    }
}

/// A table that is written and being synced.
pub(crate) struct FinishingTable {
    syncing: Syncing,
    meta: TableMeta,
}

impl FinishingTable {
    /// The table's description; to be recorded only after [`FinishingTable::wait`].
    #[cfg(test)]
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// Waits until the table is durable (its directory entry is not).
    pub fn wait(self) -> Result<TableMeta> {
        self.syncing.wait()?;
        Ok(self.meta)
    }
}
