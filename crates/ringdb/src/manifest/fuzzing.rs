//! CURRENT and the manifest from any bytes.
//!
//! Input: `u8 flags, u8 cut`, with [`CURRENT`] `u16 length, CURRENT`; then the file, or records
//! `u16 length, payload`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engineswap::Io;

use super::{
    FIRST_RECORD, FileKind, HEADER_BYTES, MARKED, ManifestFile, ManifestState, RECORD_HEADER_BYTES,
    VersionEdit, encode_header, encode_record_header,
};
use crate::coding::crc32c;
use crate::format_version::FormatVersion;
use crate::fuzz_input::{Input, put_chunk, write_file};
use crate::store_dir::StoreDir;

/// The input has a CURRENT of its own.
const CURRENT_GIVEN: u8 = 1;
/// The file is given as it is, not by its records.
const RAW: u8 = 2;
/// The file's end is cut off by `cut` bytes.
const CUT: u8 = 4;
/// The file's last `cut` bytes are zeros.
const ZEROS: u8 = 8;

const NUMBER: u64 = 9;

/// A manifest of these payloads, with right checksums.
pub fn seal(number: u64, payloads: &[&[u8]]) -> Vec<u8> {
    let mut file = encode_header(number, 0, FormatVersion::NEWEST).to_vec();
    for p in payloads {
        let h = encode_record_header(number, file.len() as u64, p.len() as u32, crc32c(0, p));
        file.extend_from_slice(&h);
        file.extend_from_slice(p);
    }
    file
}

/// The input that [`run`] makes this manifest of.
pub fn describe(manifest: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0];
    let marked = manifest.get(12..16) == Some(&MARKED.to_le_bytes());
    let start = if marked { FIRST_RECORD as usize } else { HEADER_BYTES };
    let mut rest = manifest.get(start..).unwrap_or_default();
    while let Some((h, payload)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() {
        let len = (u32::from_le_bytes([h[0], h[1], h[2], h[3]]) as usize).min(payload.len());
        put_chunk(&mut out, &payload[..len]);
        rest = &payload[len..];
    }
    out
}

fn numbers(from: u64) -> crate::log::NextNumber {
    let next = Arc::new(AtomicU64::new(from));
    Arc::new(move || next.fetch_add(1, Relaxed))
}

/// Makes the files in `dir` and loads them. What is believed must be written and loaded again the same.
pub fn run(io: &Io, dir: &Path, data: &[u8]) {
    let mut input = Input::new(data);
    let (flags, cut) = (input.u8(), usize::from(input.u8()));
    let current = match flags & CURRENT_GIVEN {
        0 => format!("{}\n", FileKind::Manifest(NUMBER).name()).into_bytes(),
        _ => input.chunk().to_vec(),
    };
    write_file(io, &FileKind::Current.path(dir), &current);
    let mut payloads = Vec::new();
    let mut file = if flags & RAW != 0 {
        input.rest().to_vec()
    } else {
        while !input.is_empty() {
            payloads.push(input.chunk());
        }
        seal(NUMBER, &payloads)
    };
    if flags & CUT != 0 {
        file.truncate(file.len().saturating_sub(cut));
    }
    if flags & ZEROS != 0 {
        let from = file.len().saturating_sub(cut);
        file[from..].fill(0);
    }
    write_file(io, &FileKind::Manifest(NUMBER).path(dir), &file);
    for p in &payloads {
        round_trip(p);
    }
    let Ok(Some(loaded)) = ManifestFile::load(io, dir) else { return };
    let snapshot = loaded.state.snapshot();
    let mut bytes = Vec::new();
    snapshot.encode(&mut bytes);
    assert_eq!(VersionEdit::decode(&bytes).as_ref(), Ok(&snapshot));
    let mut again = ManifestState::default();
    assert_eq!(again.apply(&snapshot), Ok(()), "{snapshot:?}");
    // A snapshot always has the log's number, which an edit of a damaged file may lack.
    let next_file_number = loaded.state.next_file_number.max(loaded.state.log_number.saturating_add(1));
    assert_eq!(again, ManifestState { next_file_number, ..loaded.state.clone() });

    // As when the store is opened: a new manifest in the old one's place, which then grows.
    let first = loaded.state.next_file_number.max(NUMBER + 1);
    let made = StoreDir::open(io, dir)
        .and_then(|home| ManifestFile::create(io, &home, loaded.state, numbers(first)));
    let mut manifest = match made {
        Ok(m) => m,
        Err(e) => panic!("a manifest that was loaded cannot be written: {e}"),
    };
    for p in &payloads {
        if let Ok(edit) = VersionEdit::decode(p) {
            let _ = manifest.append(&edit);
        }
    }
    match ManifestFile::load(io, dir) {
        Ok(Some(l)) => assert_eq!((&l.state, l.torn_at), (manifest.state(), None)),
        l => panic!("what was written cannot be loaded: {l:?}"),
    }
}

fn round_trip(payload: &[u8]) {
    let Ok(edit) = VersionEdit::decode(payload) else { return };
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    assert_eq!(VersionEdit::decode(&bytes), Ok(edit));
}
