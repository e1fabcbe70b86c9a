//! What table files say of how they were written, by docs/formats/table.md.
#![allow(clippy::unwrap_used)]

use std::path::Path;

/// How a table was written, and whose keys it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    /// Ids of the keyspaces of its first and last key.
    pub keyspaces: (u8, u8),
    pub block_bytes: u64,
    /// 0 none, 1 LZ4, 2 Zstandard.
    pub compression: u64,
    pub filter_bits_per_key: u64,
}

/// All tables of a store whose keyspaces have ids below 240, by keyspace.
pub fn written(dir: &Path) -> Vec<Written> {
    let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let tables = files.filter(|p| p.extension().is_some_and(|e| e == "sst"));
    // One may be on its way in or out.
    let whole = |file: &Vec<u8>| file.ends_with(b"ringdbT\n");
    let mut all: Vec<Written> =
        tables.filter_map(|p| std::fs::read(p).ok().filter(whole)).map(|file| of(&file)).collect();
    all.sort_unstable();
    all
}

fn of(file: &[u8]) -> Written {
    let footer = &file[file.len() - 128..];
    let number = |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().unwrap()) as usize;
    let mut rest = &file[number(56)..number(56) + number(64)];
    let (block_bytes, compression, filter_bits_per_key) =
        (varint(&mut rest), varint(&mut rest), varint(&mut rest));
    // Blocks, keys, bytes of keys and values; file, its length, entries, tombstones, two sequence numbers.
    for _ in 0..10 {
        varint(&mut rest);
    }
    let mut key = || {
        let len = varint(&mut rest) as usize;
        let (key, behind) = rest.split_at(len);
        rest = behind;
        key[0]
    };
    // Beside the compression: whether blocks are stored without padding.
    Written { keyspaces: (key(), key()), block_bytes, compression: compression & 3, filter_bits_per_key }
}

fn varint(rest: &mut &[u8]) -> u64 {
    let (mut v, mut shift) = (0, 0);
    loop {
        let b = rest[0];
        *rest = &rest[1..];
        v |= u64::from(b & 0x7F) << shift;
        shift += 7;
        if b & 0x80 == 0 {
            return v;
        }
    }
}
