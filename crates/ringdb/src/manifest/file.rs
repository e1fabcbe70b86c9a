//! [`ManifestFile`]: the edits on disk.

use std::path::{Path, PathBuf};

use engineswap::{File, Io, OpenHow};

use super::{ManifestState, VersionEdit};
use crate::coding::crc32c;
use crate::error::{Error, Result};
use crate::files::{self, FileKind};
use crate::log::NextNumber;
use crate::mutation::{Mutation, broken};
use crate::purpose::{MANIFEST, RECOVERY};

const MAGIC: [u8; 8] = *b"ringdbMF";
/// Version of the store's format that is written here, and the newest that is read.
pub(crate) const FORMAT_VERSION: u32 = 1;
const HEADER_BYTES: usize = 28;
const RECORD_HEADER_BYTES: usize = 12;
/// A file is rewritten when it is this large and twice as large as when it was begun.
const REWRITE_BYTES: u64 = 4 << 20;
/// A torn append is no longer than this.
const MAX_TORN_BYTES: u64 = 64 << 20;
/// What a device writes whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// The live manifest, open for appending.
pub(crate) struct ManifestFile {
    io: Io,
    dir: PathBuf,
    next_number: NextNumber,
    number: u64,
    file: File,
    len: u64,
    /// Length behind the snapshot that the file begins with.
    begun_len: u64,
    rewrite_bytes: u64,
    state: ManifestState,
    /// The first failure, after which nothing is appended.
    stopped: Option<String>,
}

/// What [`ManifestFile::load`] read.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub state: ManifestState,
    /// Number of the manifest file.
    pub number: u64,
    /// Where its last record was torn (never acknowledged), if it was.
    pub torn_at: Option<u64>,
}

impl ManifestFile {
    /// Reads the manifest that CURRENT names; `None` if there is no CURRENT. Changes nothing on disk, so it
    /// also serves readers beside a running writer.
    pub fn load(io: &Io, dir: &Path) -> Result<Option<Loaded>> {
        let mut missing = None;
        loop {
            let Some(number) = read_current(io, dir)? else { return Ok(None) };
            let path = FileKind::Manifest(number).path(dir);
            match io.open(&path, &OpenHow::read()) {
                Ok(file) => return read_manifest(&file, number).map(Some),
                // A writer may have switched to another file just now; then CURRENT names that one.
                Err(e) if e.kind() == engineswap::ErrorKind::NotFound && missing != Some(number) => {
                    missing = Some(number);
                }
                Err(e) if e.kind() == engineswap::ErrorKind::NotFound => {
                    let name = FileKind::Manifest(number).name();
                    return Err(Error::corrupt(
                        &FileKind::Current.path(dir),
                        Some(0),
                        format!("it names {name}, which does not exist"),
                    ));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// What manifest `number` says, whether or not it is in force, up to the first damage, which comes with it. An
    /// error if the file cannot be opened.
    pub fn load_some(io: &Io, dir: &Path, number: u64) -> Result<(ManifestState, Option<Error>)> {
        let file = io.open(&FileKind::Manifest(number).path(dir), &OpenHow::read())?;
        match read_manifest(&file, number) {
            Ok(loaded) => Ok((loaded.state, None)),
            Err(e @ Error::NewerFormat { .. }) => Err(e),
            Err(e) => {
                // Records have checksums of their own, so a damaged header is no reason to give them up.
                let mut state = ManifestState::default();
                let _ = read_edits(&file, number, file.len()?, &mut state);
                Ok((state, Some(e)))
            }
        }
    }

    /// Begins a new manifest with a snapshot of `state` and makes CURRENT name it; the one that CURRENT named
    /// before is removed. Everything is durable when this returns. Opening a store always begins a new
    /// manifest, so that nothing is ever appended behind a torn record.
    pub fn create(
        io: &Io,
        dir: &Path,
        mut state: ManifestState,
        next_number: NextNumber,
    ) -> Result<ManifestFile> {
        let previous = read_current(io, dir)?;
        let number = next_number();
        state.next_file_number = state.next_file_number.max(number + 1);
        state.next_keyspace_id = state.next_keyspace_id.max(1);
        let (file, len) = write_snapshot(io, dir, number, &state)?;
        write_current(io, dir, number)?;
        switch_current(io, dir)?;
        let manifest = ManifestFile {
            io: io.clone(),
            dir: dir.to_path_buf(),
            next_number,
            number,
            file,
            len,
            begun_len: len,
            rewrite_bytes: REWRITE_BYTES,
            state,
            stopped: None,
        };
        manifest.remove(previous);
        Ok(manifest)
    }

    /// The sum of all edits.
    pub fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Number of the file.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bytes in the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Rewrites the file when it is this large (and twice as large as when it was begun).
    pub fn rewrite_at(&mut self, bytes: u64) {
        self.rewrite_bytes = bytes;
    }

    /// Appends an edit, durable when this returns. [`Error::Invalid`] if the edit does not fit the state;
    /// nothing was written then. An I/O error stops the manifest for good: whether the edit is on disk is
    /// unknown, so nothing that depends on either answer may follow.
    pub fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        if let Some(reason) = &self.stopped {
            return Err(Error::Stopped(reason.clone()));
        }
        self.state.check(edit).map_err(|e| Error::Invalid(format!("a wrong manifest edit: {e}")))?;
        let record = encode_record(self.number, self.len, edit)?;
        let sync = || match broken(Mutation::SkipManifestSync) {
            true => Ok(()),
            false => self.file.sync_data(MANIFEST),
        };
        let written = self.file.write_all_at(&record, self.len, MANIFEST).and_then(|()| sync());
        if let Err(e) = written {
            if !broken(Mutation::GoOnAfterFailure) {
                self.stopped = Some(format!("the manifest could not be written: {e}"));
            }
            return Err(e.into());
        }
        self.len += record.len() as u64;
        self.state.apply(edit).map_err(|e| Error::Invalid(format!("a wrong manifest edit: {e}")))?;
        if self.len >= self.rewrite_bytes && self.len >= 2 * self.begun_len {
            self.rewrite()?;
        }
        Ok(())
    }

    /// Goes on in a new file. The edit that led here is durable in the old one already.
    fn rewrite(&mut self) -> Result<()> {
        let number = (self.next_number)();
        let mut state = self.state.clone();
        state.next_file_number = state.next_file_number.max(number + 1);
        let written = write_snapshot(&self.io, &self.dir, number, &state)
            .and_then(|written| write_current(&self.io, &self.dir, number).map(|()| written));
        let (file, len) = match written {
            Ok(written) => written,
            Err(_) => {
                // CURRENT still names the old file, which serves on (a full disk, for example). Try again when
                // it has doubled once more.
                self.begun_len = self.len;
                self.remove(Some(number));
                return Ok(());
            }
        };
        if let Err(e) = switch_current(&self.io, &self.dir) {
            // Which of the two files a crash would leave behind CURRENT is unknown.
            self.stopped = Some(format!("the manifest could not be switched: {e}"));
            return Err(e);
        }
        let old = std::mem::replace(&mut self.number, number);
        (self.file, self.len, self.begun_len, self.state) = (file, len, len, state);
        self.remove(Some(old));
        Ok(())
    }

    /// Removes a manifest that is not live; a leftover does no harm and is removed at the next open.
    fn remove(&self, number: Option<u64>) {
        if let Some(n) = number.filter(|n| *n != self.number) {
            let _ = self.io.remove_file(&FileKind::Manifest(n).path(&self.dir));
        }
    }
}

fn write_snapshot(io: &Io, dir: &Path, number: u64, state: &ManifestState) -> Result<(File, u64)> {
    let file = io.open(&FileKind::Manifest(number).path(dir), &OpenHow::create_new())?;
    let mut bytes = encode_header(number).to_vec();
    bytes.extend(encode_record(number, bytes.len() as u64, &state.snapshot())?);
    file.write_all_at(&bytes, 0, MANIFEST)?;
    if !broken(Mutation::CurrentBeforeManifest) {
        file.sync_all(MANIFEST)?;
    }
    io.sync_dir(dir)?;
    Ok((file, bytes.len() as u64))
}

/// Writes the next CURRENT, under another name.
fn write_current(io: &Io, dir: &Path, number: u64) -> Result<()> {
    let tmp = FileKind::CurrentTmp.path(dir);
    let file = io.open(&tmp, &OpenHow { truncate: true, ..OpenHow::read_write() })?;
    file.write_all_at(format!("{}\n", FileKind::Manifest(number).name()).as_bytes(), 0, MANIFEST)?;
    if broken(Mutation::SkipCurrentSync) {
        return Ok(());
    }
    Ok(file.sync_all(MANIFEST)?)
}

/// Puts the CURRENT that was written in force. The manifest that it names is durable with its name.
fn switch_current(io: &Io, dir: &Path) -> Result<()> {
    io.rename(&FileKind::CurrentTmp.path(dir), &FileKind::Current.path(dir))?;
    io.sync_dir(dir)?;
    Ok(())
}

fn read_current(io: &Io, dir: &Path) -> Result<Option<u64>> {
    let path = FileKind::Current.path(dir);
    let file = match io.open(&path, &OpenHow::read()) {
        Err(e) if e.kind() == engineswap::ErrorKind::NotFound => return Ok(None),
        f => f?,
    };
    let mut buf = [0; 64];
    let n = file.read_at(&mut buf, 0, RECOVERY)?;
    let name = std::str::from_utf8(&buf[..n]).ok().and_then(|s| s.strip_suffix('\n'));
    match name.and_then(files::parse) {
        Some(FileKind::Manifest(number)) => Ok(Some(number)),
        _ => Err(Error::corrupt(&path, Some(0), "it does not name a manifest")),
    }
}

fn encode_header(number: u64) -> [u8; HEADER_BYTES] {
    let mut h = [0; HEADER_BYTES];
    h[..8].copy_from_slice(&MAGIC);
    h[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    h[16..24].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c(0, &h[..24]);
    h[24..].copy_from_slice(&crc.to_le_bytes());
    h
}

fn encode_record(number: u64, offset: u64, edit: &VersionEdit) -> Result<Vec<u8>> {
    let mut record = vec![0; RECORD_HEADER_BYTES];
    edit.encode(&mut record);
    let payload = &record[RECORD_HEADER_BYTES..];
    let len = u32::try_from(payload.len())
        .map_err(|_| Error::Invalid(format!("a manifest edit of {} bytes", payload.len())))?;
    let payload_crc = crc32c(0, payload);
    let header = encode_record_header(number, offset, len, payload_crc);
    record[..RECORD_HEADER_BYTES].copy_from_slice(&header);
    Ok(record)
}

/// The header has a checksum of its own, over its place too: a damaged length must not pass for a torn tail.
fn encode_record_header(number: u64, offset: u64, len: u32, payload_crc: u32) -> [u8; RECORD_HEADER_BYTES] {
    let mut h = [0; RECORD_HEADER_BYTES];
    h[..4].copy_from_slice(&len.to_le_bytes());
    h[4..8].copy_from_slice(&payload_crc.to_le_bytes());
    let mut crc = crc32c(0, &number.to_le_bytes());
    crc = crc32c(crc, &offset.to_le_bytes());
    crc = crc32c(crc, &h[..8]);
    h[8..].copy_from_slice(&crc.to_le_bytes());
    h
}

fn read_manifest(file: &File, number: u64) -> Result<Loaded> {
    let path = file.path();
    let len = file.len()?;
    let corrupt = |offset: u64, detail: &str| Error::corrupt(path, Some(offset), detail);
    let mut h = [0; HEADER_BYTES];
    if file.read_at(&mut h, 0, RECOVERY)? < HEADER_BYTES {
        return Err(corrupt(0, "the header is cut off"));
    }
    let u32_at = |i: usize| u32::from_le_bytes([h[i], h[i + 1], h[i + 2], h[i + 3]]);
    if h[..8] != MAGIC || u32_at(24) != crc32c(0, &h[..24]) {
        return Err(corrupt(0, "the header is damaged, or this is not a manifest"));
    }
    match u32_at(8) {
        FORMAT_VERSION => {}
        found if found > FORMAT_VERSION => {
            return Err(Error::NewerFormat { path: path.to_path_buf(), found, newest: FORMAT_VERSION });
        }
        _ => return Err(corrupt(8, "there is no such format version")),
    }
    if h != encode_header(number) {
        return Err(corrupt(16, "the header is another manifest's"));
    }
    let mut state = ManifestState::default();
    let torn_at = read_edits(file, number, len, &mut state)?;
    Ok(Loaded { state, number, torn_at })
}

/// Applies the edits of a manifest to `state`, up to its end or the first that is damaged; where the last was torn.
fn read_edits(file: &File, number: u64, len: u64, state: &mut ManifestState) -> Result<Option<u64>> {
    let corrupt = |offset: u64, detail: &str| Error::corrupt(file.path(), Some(offset), detail);
    let mut offset = HEADER_BYTES as u64;
    let mut torn_at = None;
    while offset < len {
        match read_record(file, number, offset, len)? {
            Record::Edit(payload) => {
                let edit = VersionEdit::decode(&payload).map_err(|e| corrupt(offset, &e))?;
                state.apply(&edit).map_err(|e| corrupt(offset, &e))?;
                offset += (RECORD_HEADER_BYTES + payload.len()) as u64;
            }
            Record::Torn => {
                torn_at = Some(offset);
                break;
            }
            Record::Damaged(detail) => return Err(corrupt(offset, detail)),
        }
    }
    if offset == HEADER_BYTES as u64 {
        // The snapshot was durable before CURRENT named this file.
        return Err(corrupt(offset, "the snapshot at its beginning is missing or cut off"));
    }
    Ok(torn_at)
}

enum Record {
    Edit(Vec<u8>),
    /// The file ends within the record: it was never acknowledged.
    Torn,
    Damaged(&'static str),
}

fn read_record(file: &File, number: u64, offset: u64, len: u64) -> Result<Record> {
    let rest = len - offset;
    let mut h = [0; RECORD_HEADER_BYTES];
    let have = rest.min(RECORD_HEADER_BYTES as u64) as usize;
    file.read_exact_at(&mut h[..have], offset, RECOVERY)?;
    if have < RECORD_HEADER_BYTES {
        return Ok(Record::Torn);
    }
    let u32_at = |i: usize| u32::from_le_bytes([h[i], h[i + 1], h[i + 2], h[i + 3]]);
    let (payload_len, payload_crc) = (u32_at(0), u32_at(4));
    if h != encode_record_header(number, offset, payload_len, payload_crc) {
        return Ok(match torn(file, number, offset, len)? {
            true => Record::Torn,
            false => Record::Damaged("a record's header is damaged"),
        });
    }
    let start = offset + RECORD_HEADER_BYTES as u64;
    if payload_len as u64 > len - start {
        return Ok(Record::Torn);
    }
    let mut payload = vec![0; payload_len as usize];
    file.read_exact_at(&mut payload, start, RECOVERY)?;
    if crc32c(0, &payload) == payload_crc {
        return Ok(Record::Edit(payload));
    }
    Ok(match torn(file, number, offset, len)? {
        true => Record::Torn,
        false => Record::Damaged("a record is damaged"),
    })
}

/// Whether the bad record at `offset` can be what a power cut left of an append that was never acknowledged: the
/// file has grown, but some of the sectors were not written. So the record, or what there is of it in one sector at
/// least, is zeros; and nothing follows it, since an append begins when the one before is durable. A record that
/// was acknowledged and damaged later has no such sector, so that its loss does not go unnoticed.
fn torn(file: &File, number: u64, offset: u64, len: u64) -> Result<bool> {
    if len - offset > MAX_TORN_BYTES {
        return Ok(false);
    }
    let mut rest = vec![0; (len - offset) as usize];
    file.read_exact_at(&mut rest, offset, RECOVERY)?;
    let first = (SECTOR_BYTES - offset % SECTOR_BYTES).min(rest.len() as u64) as usize;
    let (head, tail) = rest.split_at(first);
    let is_zero = |sector: &[u8]| sector.iter().all(|b| *b == 0);
    if !is_zero(head) && !tail.chunks(SECTOR_BYTES as usize).any(is_zero) {
        return Ok(false);
    }
    let header_at = |i: usize| {
        let h = rest.get(i..)?.first_chunk::<RECORD_HEADER_BYTES>()?;
        let u32_at = |i: usize| u32::from_le_bytes([h[i], h[i + 1], h[i + 2], h[i + 3]]);
        (u32_at(0) != 0).then_some(())?;
        Some(*h == encode_record_header(number, offset + i as u64, u32_at(0), u32_at(4)))
    };
    Ok(!(1..rest.len()).any(|i| header_at(i) == Some(true)))
}

#[cfg(feature = "fuzzing")]
#[path = "fuzzing.rs"]
pub(crate) mod fuzzing;

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
