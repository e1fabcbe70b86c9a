//! Tables, blocks and filters from any bytes.
//!
//! Input of a table: `u8 mode`; then a file ([`RAW`], [`SEALED`]), or its parts: chunks of properties, index and
//! filter, then one chunk for each block, which is put where the index says that the block lies.

use std::path::Path;
use std::sync::Arc;

use engineswap::Io;

use super::block::{BLOCK_UNIT, BlockView, Find, checksum_seed};
use super::compress::{Compressor, Encoding, decompress};
use super::cursor::TableCursor;
use super::filter::{Filter, FilterBuilder};
use super::format::{
    FOOTER_BYTES, Footer, PACKED_HEADER_BYTES, Properties, Section, packed_checksum, unpack_block,
};
use super::index::{BlockPos, Index};
use super::{Reads, Table, TableMeta, TableParts, TableScan};
use crate::Result;
use crate::bounds::Bounds;
use crate::cache::Cache;
use crate::coding::{Reader, crc32c};
use crate::cursor::{Cursor, ReverseCursor};
use crate::files::FileKind;
use crate::format_version::FormatVersion;
use crate::fuzz_input::{Input, put_chunk, write_file};
use crate::key::{self, Kind, SEQ_MAX, Seq};
use crate::purpose::{USER_READ, VERIFY};
use crate::seal::{Seal, Unit};

/// The file as it is.
const RAW: u8 = 0;
/// The file with its checksums put right.
const SEALED: u8 = 1;
/// Parts.
const PARTS: u8 = 2;

const FILE_ID: u64 = 7;
/// No table of an input is longer.
const MAX_FILE: u64 = 1 << 20;

type Entry = (Vec<u8>, Seq, Kind, Vec<u8>);

/// A filter from bytes, and one made for hashes.
pub fn filter(data: &[u8]) {
    let mut input = Input::new(data);
    let bits = u32::from(input.u8());
    let hashes: Vec<u64> = data.chunks(8).map(key::hash).collect();
    let bytes = input.rest();
    if let Ok(f) = Filter::decode(bytes) {
        hashes.iter().for_each(|h| {
            f.prefetch(*h);
            std::hint::black_box(f.may_contain(*h));
        });
        assert_eq!(encoded(&f), bytes);
    }
    let mut builder = FilterBuilder::new(bits);
    hashes.iter().for_each(|h| builder.add(*h));
    let f = builder.finish();
    assert!(hashes.iter().all(|h| f.may_contain(*h)), "a key that was added");
    assert_eq!(Filter::decode(&encoded(&f)), Ok(f));
}

fn encoded(f: &Filter) -> Vec<u8> {
    let mut all = Vec::new();
    let Ok(()) = f.encode(|piece| {
        all.extend_from_slice(piece);
        Ok::<(), std::convert::Infallible>(())
    });
    all
}

/// A block: plain bytes, compressed bytes, or bytes to be compressed. Input: `u8 mode, u8 length in 4 KiB`, bytes.
pub fn block(data: &[u8]) {
    let mut input = Input::new(data);
    let (mode, units) = (input.u8(), input.u8());
    let len = BLOCK_UNIT * (1 + usize::from(units % 16));
    let bytes = input.rest();
    let mut out = vec![0; len];
    let pos = |encoding, stored: &[u8]| BlockPos {
        offset: 0,
        stored_len: stored.len() as u32,
        block_len: len as u32,
        encoding,
    };
    let encoding = if mode & 1 == 0 { Encoding::Lz4 } else { Encoding::Zstd };
    match mode >> 1 & 3 {
        0 => {
            let n = bytes.len().min(len - 4);
            out[4..4 + n].copy_from_slice(&bytes[..n]);
            let sum = crc32c(checksum_seed(FILE_ID, 3), &out[4..]);
            out[..4].copy_from_slice(&sum.to_le_bytes());
            if BlockView::validate(&out, FILE_ID, 3).is_ok() {
                look_at(&out);
            }
        }
        1 => {
            let mut stored = packed_checksum(bytes, FILE_ID, 3).to_le_bytes().to_vec();
            stored.extend_from_slice(bytes);
            if unpack_block(&stored, &pos(encoding, &stored), &mut out, (FILE_ID, None), 3).is_ok() {
                look_at(&out);
            }
            sealed(bytes, &mut out, &pos);
        }
        2 => {
            if unpack_block(bytes, &pos(encoding, bytes), &mut out, (FILE_ID, None), 3).is_ok() {
                look_at(&out);
            }
        }
        _ => {
            let mut c = Compressor::new(encoding);
            if let Some(packed) = c.compress(bytes, bytes.len()) {
                let mut back = vec![0; bytes.len()];
                assert_eq!(decompress(encoding, packed, &mut back), Ok(()));
                assert_eq!(back, bytes);
            }
        }
    }
}

/// Bytes as they are behind a checksum that is right, and the same sealed: what was not sealed is refused, what was
/// comes out as it went in.
fn sealed(bytes: &[u8], out: &mut [u8], pos: &dyn Fn(Encoding, &[u8]) -> BlockPos) {
    let Some(seal) = Seal::for_fuzzing() else { return };
    let mut body = bytes.to_vec();
    for closed in [false, true] {
        if closed {
            seal.close_vec(Unit::Block { file: FILE_ID, number: 3 }, &[], &mut body, 0);
        }
        for encoding in [Encoding::Sealed, Encoding::Lz4, Encoding::Zstd] {
            let mut stored = packed_checksum(&body, FILE_ID, 3).to_le_bytes().to_vec();
            stored.extend_from_slice(&body);
            let unpacked = unpack_block(&stored, &pos(encoding, &stored), out, (FILE_ID, Some(&seal)), 3);
            assert!(closed || unpacked.is_err(), "what nobody has sealed is opened");
            if unpacked.is_ok() {
                look_at(out);
            }
        }
    }
}

/// Every call on a block that was accepted: none panics, and each entry is found where it is.
fn look_at(bytes: &[u8]) {
    let view = BlockView::trusted(bytes);
    let mut key = Vec::new();
    for i in 0..view.len() {
        let e = view.entry(i);
        e.key_into(&mut key);
        view.prefetch_entry(&key);
        assert_eq!(view.find(&key, e.seq), Find::Found(e));
        assert!(view.lower_bound(&key) <= i);
        assert_eq!(&bytes[e.value_range()], e.value);
        key.push(0);
        assert!(view.lower_bound(&key) > i);
        assert!(!matches!(view.find(&key, 0), Find::Found(f) if f == e));
    }
}

fn put_sum(block: &mut [u8], pos: &BlockPos, file_id: u64, number: u32) {
    let Some((sum, rest)) = block.split_first_chunk_mut::<PACKED_HEADER_BYTES>() else { return };
    *sum = match pos.encoding {
        Encoding::Plain => crc32c(checksum_seed(file_id, number), rest),
        _ => packed_checksum(rest, file_id, number),
    }
    .to_le_bytes();
}

/// The footer's numbers, whatever they are.
fn raw_footer(bytes: &[u8]) -> Option<Footer> {
    let mut r = Reader::new(bytes);
    let (file_id, file_bytes) = (r.u64()?, r.u64()?);
    let mut section = || Some(Section { offset: r.u64()?, len: r.u64()?, checksum: r.u32()? });
    let version = FormatVersion::V1;
    Some(Footer {
        version,
        file_id,
        file_bytes,
        index: section()?,
        filter: section()?,
        properties: section()?,
        digest: 0,
        stamp: None,
    })
}

fn range(s: &Section, end: usize) -> Option<std::ops::Range<usize>> {
    let (from, len) = (usize::try_from(s.offset).ok()?, usize::try_from(s.len).ok()?);
    let to = from.checked_add(len).filter(|to| *to <= end)?;
    Some(from..to)
}

/// Puts right the checksums of a table's bytes, and the length that its footer gives.
pub fn seal(file: &mut Vec<u8>, file_id: u64) {
    let footer = file.split_off(file.len().saturating_sub(FOOTER_BYTES));
    let end = (file.len() + FOOTER_BYTES).next_multiple_of(BLOCK_UNIT) - FOOTER_BYTES;
    file.resize(end, 0);
    let Some(mut footer) = raw_footer(&footer) else { return file.resize(end + FOOTER_BYTES, 0) };
    let properties = range(&footer.properties, end).and_then(|r| Properties::decode(&file[r]));
    let block_bytes = properties.map_or(BLOCK_UNIT as u32, |p| p.block_bytes);
    let index = range(&footer.index, end).and_then(|r| Index::decode(&file[r], block_bytes).ok());
    if let Some(index) = index.filter(|i| i.data_bytes() <= end as u64) {
        for number in 0..index.blocks() {
            let pos = index.block_pos(number);
            let from = pos.offset as usize;
            put_sum(&mut file[from..from + pos.stored_len as usize], &pos, file_id, number);
        }
    }
    for s in [&mut footer.index, &mut footer.filter, &mut footer.properties] {
        if let Some(r) = range(s, end) {
            s.checksum = crc32c(file_id as u32, &file[r]);
        }
    }
    (footer.file_id, footer.file_bytes) = (file_id, (end + FOOTER_BYTES) as u64);
    file.extend_from_slice(&footer.encode());
}

/// A table made of its parts, with right checksums, and its description; the properties agree with the index where
/// they can.
pub(crate) fn assemble(input: &mut Input<'_>, file_id: u64) -> Option<(Vec<u8>, TableMeta)> {
    let (properties, index_bytes, filter) = (input.chunk(), input.chunk(), input.chunk());
    let mut properties = Properties::decode(properties)?;
    let index = Index::decode(index_bytes, properties.block_bytes).ok()?;
    let data = usize::try_from(index.data_bytes()).ok().filter(|n| *n as u64 <= MAX_FILE)?;
    let mut file = vec![0; data];
    for number in 0..index.blocks() {
        let pos = index.block_pos(number);
        let block = &mut file[pos.offset as usize..][..pos.stored_len as usize];
        let chunk = input.chunk();
        // The chunk begins behind the checksum.
        let n = chunk.len().min(block.len().saturating_sub(PACKED_HEADER_BYTES));
        if n > 0 {
            block[PACKED_HEADER_BYTES..PACKED_HEADER_BYTES + n].copy_from_slice(&chunk[..n]);
        }
        put_sum(block, &pos, file_id, number);
    }
    let section = |file: &mut Vec<u8>, bytes: &[u8]| {
        let s = Section {
            offset: file.len() as u64,
            len: bytes.len() as u64,
            checksum: crc32c(file_id as u32, bytes),
        };
        file.extend_from_slice(bytes);
        s
    };
    let (index_at, filter_at) = (section(&mut file, index_bytes), section(&mut file, filter));
    properties.blocks = index.blocks();
    properties.meta.file_id = file_id;
    if let Some(last) = index.blocks().checked_sub(1) {
        properties.meta.largest = index.separator(last).to_vec();
    }
    let room = 16 + 2 * (properties.meta.largest.len() + properties.meta.smallest.len() + 128) + FOOTER_BYTES;
    let total = (file.len() + room).next_multiple_of(BLOCK_UNIT);
    properties.meta.file_bytes = total as u64;
    let mut bytes = Vec::new();
    properties.encode(&mut bytes);
    let properties_at = section(&mut file, &bytes);
    file.resize(total - FOOTER_BYTES, 0);
    let footer = Footer {
        version: FormatVersion::V1,
        file_id,
        file_bytes: total as u64,
        index: index_at,
        filter: filter_at,
        properties: properties_at,
        digest: 0,
        stamp: None,
    };
    file.extend_from_slice(&footer.encode());
    Some((file, properties.meta))
}

/// The filter's bytes of a table's file.
pub fn filter_of(file: &[u8]) -> Option<&[u8]> {
    let footer = raw_footer(file.last_chunk::<FOOTER_BYTES>()?)?;
    file.get(range(&footer.filter, file.len())?)
}

/// The input that [`run`] makes this table of, as parts.
pub fn describe(file: &[u8]) -> Option<Vec<u8>> {
    let footer = raw_footer(file.last_chunk::<FOOTER_BYTES>()?)?;
    let section = |s: &Section| file.get(range(s, file.len())?);
    let (properties, index, filter) =
        (section(&footer.properties)?, section(&footer.index)?, section(&footer.filter)?);
    let mut out = vec![PARTS];
    for part in [properties, index, filter] {
        put_chunk(&mut out, part);
    }
    let index = Index::decode(index, Properties::decode(properties)?.block_bytes).ok()?;
    for number in 0..index.blocks() {
        let pos = index.block_pos(number);
        let stored = file.get(pos.offset as usize..)?.get(PACKED_HEADER_BYTES..pos.stored_len as usize)?;
        let end = stored.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
        put_chunk(&mut out, &stored[..end]);
    }
    Some(out)
}

/// Makes the table in `dir`, opens it, and reads all of it in every way.
pub fn run(io: &Io, dir: &Path, data: &[u8]) {
    let mut input = Input::new(data);
    let file = match input.u8() % 3 {
        RAW => input.rest().to_vec(),
        SEALED => {
            let mut file = input.rest().to_vec();
            seal(&mut file, FILE_ID);
            file
        }
        _ => match assemble(&mut input, FILE_ID) {
            Some((file, _)) => file,
            None => return,
        },
    };
    if file.len() as u64 > 2 * MAX_FILE {
        return;
    }
    let path = FileKind::Table(FILE_ID).path(dir);
    write_file(io, &path, &file);
    let Ok(parts) = TableParts::load(io, &path, FILE_ID, Reads::PageCache, VERIFY) else { return };
    let parts = Arc::new(parts);
    let (scanned, clean) = scan(io, &parts);
    let cache = Cache::new(1 << 20, parts.properties.block_bytes as usize);
    let table = match Table::open(io, &cache, &path, parts.properties.meta.clone(), Reads::PageCache) {
        Ok(t) => t,
        Err(e) => panic!("its parts load, but it does not open: {e}"),
    };
    let wanted = |e: &Entry| (e.0.clone(), e.1, e.2, e.3.clone());
    for fill_cache in [false, true] {
        let (forward, whole) = walk(&table, fill_cache, true);
        let (mut backward, whole_back) = walk(&table, fill_cache, false);
        backward.reverse();
        if clean {
            assert!(whole && whole_back, "a cursor fails where a scan does not");
            assert_eq!(forward, scanned);
            assert_eq!(backward, scanned);
        }
    }
    // Gets, of what is there and what is not.
    for e in scanned.iter().map(wanted).take(200) {
        let near = [e.0.as_slice(), &[0]].concat();
        for (key, seq) in [(&e.0, e.1), (&e.0, SEQ_MAX), (&e.0, e.1.saturating_sub(1)), (&near, SEQ_MAX)] {
            std::hint::black_box(parts.filter.may_contain(key::hash(key)));
            let Some(number) = table.index().find_block(key) else { continue };
            let found = get(&table, number, key, seq);
            if let (Ok(Some(found)), true) = (found, clean) {
                let newest = scanned.iter().find(|s| s.0 == *key && s.1 <= seq);
                let newest = newest.map(|s| (s.1, s.2, s.3.clone()));
                // A separator that is not its block's may lead past newer versions, never to what is not there.
                assert!(
                    scanned.iter().any(|s| s.0 == *key && (s.1, s.2, &s.3) == (found.0, found.1, &found.2))
                );
                assert!(newest.is_some_and(|n| n.0 >= found.0));
            }
        }
    }
}

/// The newest version of a key at or before `seq`, in the blocks from `number` on.
fn get(table: &Table, number: u32, key: &[u8], seq: Seq) -> Result<Option<(Seq, Kind, Vec<u8>)>> {
    for number in number..table.index().blocks() {
        let block = table.read_block(number, true, VERIFY)?;
        match BlockView::trusted(block.bytes()).find(key, seq) {
            Find::Found(f) => return Ok(Some((f.seq, f.kind, f.value.to_vec()))),
            Find::Absent => break,
            Find::Next => drop(table.keep(number, block)),
        }
    }
    Ok(None)
}

/// All entries of a scan from end to end, in order, and whether nothing was wrong.
fn scan(io: &Io, parts: &Arc<TableParts>) -> (Vec<Entry>, bool) {
    let mut all: Vec<Entry> = Vec::new();
    let Ok(mut scan) = TableScan::new(io, parts, None, VERIFY) else { return (all, false) };
    let mut at: Result<()> = scan.seek_to_first();
    for _ in 0..=2 * MAX_FILE {
        if at.is_err() || !scan.valid() {
            return (all, at.is_ok());
        }
        let here = (scan.key().to_vec(), scan.seq(), scan.kind(), scan.value().to_vec());
        if let Some(last) = all.last() {
            assert!(
                (&last.0, std::cmp::Reverse(last.1)) < (&here.0, std::cmp::Reverse(here.1)),
                "out of order"
            );
        }
        all.push(here);
        at = scan.next();
    }
    panic!("a scan without end");
}

/// All entries of a cursor, in its direction, and whether it came to the end.
fn walk(table: &Arc<Table>, fill_cache: bool, forward: bool) -> (Vec<Entry>, bool) {
    let bounds = Arc::new(Bounds { lower: Vec::new(), upper: None });
    let mut cursor = TableCursor::new(table, &bounds, fill_cache);
    let mut all = Vec::new();
    let mut at = if forward { cursor.seek_to_first() } else { cursor.seek_to_last() };
    while at.is_ok() && cursor.valid() {
        all.push((cursor.key().to_vec(), cursor.seq(), cursor.kind(), cursor.value().to_vec()));
        assert!(all.len() as u64 <= 2 * MAX_FILE, "a walk without end");
        at = if forward { cursor.next() } else { cursor.prev() };
    }
    if let Some(e) = all.get(all.len() / 2) {
        let _ = cursor.seek(&e.0).and_then(|()| if cursor.valid() { cursor.prev() } else { Ok(()) });
        let _ = cursor.seek_before(&e.0);
        let _ = table.read_block(table.index().blocks() - 1, fill_cache, USER_READ);
    }
    (all, at.is_ok())
}
