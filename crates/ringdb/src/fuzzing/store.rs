//! A whole store from any bytes: tables, a manifest that names them, and a log.
//!
//! Input: `u8 tables`, each `u8 level, chunk of its parts` (as [`super::table`] takes them); `u8 records`, each a
//! chunk, whose tables are replaced by those here; then `u8 segments`, each `u8 number - previous, chunk`.

use std::path::Path;

use engineswap::Io;

use crate::files::{FileKind, parse};
use crate::fuzz_input::{Input, put_chunk, write_file};
use crate::log;
use crate::manifest::{VersionEdit, fuzzing as manifest};
use crate::table::fuzzing as table;

const MANIFEST: u64 = 60;
const FIRST_TABLE: u64 = 10;

/// Makes the store's files in `dir`.
pub fn make(io: &Io, dir: &Path, data: &[u8]) {
    let mut input = Input::new(data);
    let mut added = Vec::new();
    for i in 0..u64::from(input.u8() & 7) {
        let level = u32::from(input.u8());
        let number = FIRST_TABLE + i;
        if let Some((file, meta)) = table::assemble(&mut Input::new(input.chunk()), number) {
            write_file(io, &FileKind::Table(number).path(dir), &file);
            added.push((level, meta));
        }
    }
    let mut records = Vec::new();
    for i in 0..input.u8() & 15 {
        let record = input.chunk();
        match VersionEdit::decode(record) {
            Ok(mut edit) => {
                edit.removed.clear();
                edit.added = if i == 0 { std::mem::take(&mut added) } else { vec![] };
                let mut bytes = Vec::new();
                edit.encode(&mut bytes);
                records.push(bytes);
            }
            Err(_) => records.push(record.to_vec()),
        }
    }
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    write_file(io, &FileKind::Manifest(MANIFEST).path(dir), &manifest::seal(MANIFEST, &records));
    let current = format!("{}\n", FileKind::Manifest(MANIFEST).name());
    write_file(io, &FileKind::Current.path(dir), current.as_bytes());
    let mut number = 0;
    for _ in 0..input.u8() & 7 {
        number += u64::from(input.u8());
        let body = input.chunk().to_vec();
        write_file(io, &FileKind::Log(number).path(dir), &log::fuzzing::file(number, body));
    }
}

/// The input that [`make`] makes a store of these files (name, bytes) of.
pub fn describe(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let of = |want: fn(&FileKind) -> Option<u64>| {
        let mut found: Vec<(u64, &[u8])> =
            files.iter().filter_map(|(name, bytes)| Some((want(&parse(name)?)?, bytes.as_slice()))).collect();
        found.sort_unstable();
        found
    };
    let tables: Vec<Vec<u8>> = of(|k| if let FileKind::Table(n) = k { Some(*n) } else { None })
        .into_iter()
        .filter_map(|(_, bytes)| table::describe(bytes))
        .collect();
    let mut out = vec![tables.len() as u8];
    for t in &tables {
        out.push(0);
        // Without the mode, which says that these are parts.
        put_chunk(&mut out, &t[1..]);
    }
    for (_, bytes) in of(|k| if let FileKind::Manifest(n) = k { Some(*n) } else { None }).iter().take(1) {
        let described = manifest::describe(bytes);
        let mut chunks = Input::new(&described[2..]);
        let mut records = Vec::new();
        while !chunks.is_empty() {
            records.push(chunks.chunk());
        }
        out.push(records.len() as u8);
        records.iter().for_each(|r| put_chunk(&mut out, r));
    }
    let logs = of(|k| if let FileKind::Log(n) = k { Some(*n) } else { None });
    let described = log::fuzzing::describe(0, 0, &logs);
    let mut segments = Input::new(&described[3..]);
    out.push(logs.len() as u8);
    while !segments.is_empty() {
        out.push(segments.u8());
        segments.u8();
        put_chunk(&mut out, segments.chunk());
    }
    out
}
