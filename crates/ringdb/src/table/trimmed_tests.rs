//! Tables whose blocks are stored without padding: how long they are, what is read of them, what is left of damaged
//! ones.

use std::path::Path;

use engineswap::{Io, Purpose};

use super::block::BlockView;
use super::carve::Carver;
use super::walk::Window;
use super::writer::{TableOptions, TableWriter};
use super::{Reads, TableParts};
use crate::format_version::FormatVersion;
use crate::key::Kind;
use crate::options::Compression;

const FILE: u64 = 31;

fn io() -> Io {
    Io::from_uri("posix").unwrap()
}

/// A table of `n` values, of lengths that `len` gives. Bytes of keys and values, and the parts.
fn table(
    path: &Path,
    reads: Reads,
    compression: Compression,
    n: u64,
    len: impl Fn(u64) -> usize,
) -> (u64, TableParts) {
    let options = TableOptions {
        block_bytes: 4096,
        compression,
        filter_bits_per_key: 10,
        expected_bytes: 1 << 20,
        buffer_bytes: u64::MAX,
        most_keys: None,
        most_hashes: usize::MAX,
        reads,
        seal: None,
        purpose: Purpose(1),
    };
    let mut w = TableWriter::create(&io(), path, FILE, options).unwrap();
    for i in 0..n {
        w.add(&key(i), 0, Kind::Put, &value(i, len(i))).unwrap();
    }
    w.finish().unwrap();
    let data = (0..n).map(|i| (key(i).len() + len(i)) as u64).sum();
    (data, TableParts::load(&io(), path, FILE, reads, Purpose(2)).unwrap())
}

fn key(i: u64) -> Vec<u8> {
    format!("\0user{i:012}").into_bytes()
}

/// Bytes that do not compress.
fn value(i: u64, len: usize) -> Vec<u8> {
    let mut x = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let step = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 24) as u8
    };
    std::iter::repeat_with(step).take(len).collect()
}

#[test]
fn values_of_any_size_take_little_more_than_themselves() {
    let dir = tempfile::tempdir().unwrap();
    for len in [300, 1000, 1500, 2048, 4000, 4096, 5000, 9000, 16 << 10, 70_000, 128 << 10, 300_000] {
        for c in [Compression::None, Compression::Zstd] {
            let path = dir.path().join(format!("{len}-{c:?}"));
            let n = (4 << 20) / len as u64;
            let (data, parts) = table(&path, Reads::PageCache, c, n, |_| len);
            let bytes = std::fs::metadata(&path).unwrap().len();
            // The overhead of an entry, 1/32, and what is too little to matter.
            let most = data + data / 32 + 40 * n + (40 << 10);
            assert!(bytes <= most, "{n} values of {len} take {bytes} bytes, {most} at most");
            assert_eq!(parts.index.is_trimmed(), parts.properties.trimmed);
        }
    }
}

#[test]
fn small_values_stay_in_pages_and_are_of_the_first_version() {
    let dir = tempfile::tempdir().unwrap();
    for (name, large) in [("small", 0), ("one large", 1)] {
        let path = dir.path().join(name);
        let (_, parts) =
            table(&path, Reads::PageCache, Compression::None, 20_000, |i| if i < large { 5000 } else { 100 });
        assert!(!parts.index.is_trimmed() && parts.index.block_pos(7).offset % 4096 == 0);
        assert_eq!(version(&path), FormatVersion::V1.number());
    }
    let path = dir.path().join("large");
    let (_, parts) = table(&path, Reads::Direct, Compression::None, 1000, |_| 4096);
    assert!(parts.index.is_trimmed());
    assert_eq!(version(&path), FormatVersion::V2.number());
}

fn version(path: &Path) -> u32 {
    let bytes = std::fs::read(path).unwrap();
    u32::from_le_bytes(bytes[bytes.len() - 16..][..4].try_into().unwrap())
}

/// The numbers of the blocks that are found without the index.
fn carve(path: &Path, packed: Option<bool>, size: Option<u32>, end: u64) -> Vec<u32> {
    let window = Window::open(&io(), path, Purpose(3)).unwrap();
    let mut carver = Carver::new(window, FILE, size, packed, end);
    let (mut found, mut block) = (Vec::new(), Vec::new());
    while let Some(b) = carver.next(&mut block) {
        BlockView::check_structure(&block).unwrap();
        found.push(b.number);
    }
    found
}

#[test]
fn blocks_are_found_without_an_index_also_behind_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let sizes = |i: u64| [100, 1500, 3000, 4096, 20_000, 9][i as usize % 6] + i as usize % 50;
    let (_, parts) = table(&path, Reads::PageCache, Compression::None, 3000, sizes);
    assert!(parts.index.is_trimmed());
    let (end, blocks) = (parts.index.data_bytes(), parts.index.blocks());
    let all: Vec<u32> = (0..blocks).collect();
    for (packed, size) in [(Some(true), Some(4096)), (None, Some(4096)), (None, None)] {
        assert_eq!(carve(&path, packed, size, end), all, "{packed:?} {size:?}");
    }
    // A block here and there, and a gap of several megabytes.
    let mut bytes = std::fs::read(&path).unwrap();
    let at = |n: u32| parts.index.block_pos(n).offset as usize;
    let (first, last) = (blocks / 3, blocks / 2);
    for n in [40, 41, 700] {
        bytes[at(n) + 30] ^= 1;
    }
    bytes[at(first)..at(last)].fill(0);
    assert!(at(last) - at(first) > 2 << 20);
    std::fs::write(&path, &bytes).unwrap();
    let kept: Vec<u32> =
        all.into_iter().filter(|n| ![40, 41, 700].contains(n) && !(first..last).contains(n)).collect();
    for packed in [Some(true), None] {
        assert_eq!(carve(&path, packed, Some(4096), end), kept, "{packed:?}");
    }
}
