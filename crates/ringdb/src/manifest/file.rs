//! [`ManifestFile`]: the edits on disk.

use std::path::Path;
use std::sync::Arc;

use engineswap::{File, Io, OpenHow};

use super::{ManifestState, VersionEdit};
use crate::coding::crc32c;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, FileKind};
use crate::format_version::{FormatVersion, Named};
use crate::log::NextNumber;
use crate::mutation::{Mutation, broken};
use crate::purpose::{MANIFEST, RECOVERY};
use crate::seal::{Seal, Stamp, Unit, opened, ring};
use crate::store_dir::StoreDir;

const MAGIC: [u8; 8] = *b"ringdbMF";
const HEADER_BYTES: usize = 28;
/// In the header's flags: a [`mark`](encode_mark) stands between the header and the records.
const MARKED: u32 = 1;
const MARK_BYTES: usize = 12;
/// The records are sealed; with what, stands behind the mark ([`encode_stamp`]).
const MARKED_SEALED: u32 = MARKED | 2;
const STAMP_AT: u64 = (HEADER_BYTES + MARK_BYTES) as u64;
const STAMP_BYTES: usize = Stamp::BYTES + 4;
/// Where the records of a manifest that is written here begin.
const FIRST_RECORD: u64 = STAMP_AT;
/// There are two of it: without it, nothing of the file can be read.
const FIRST_SEALED_RECORD: u64 = STAMP_AT + 2 * STAMP_BYTES as u64;
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
    home: Arc<StoreDir>,
    next_number: NextNumber,
    number: u64,
    file: File,
    seal: Option<Arc<Seal>>,
    len: u64,
    /// What the mark in the file says.
    marked: u64,
    /// Length behind the snapshot that the file begins with.
    begun_len: u64,
    rewrite_bytes: u64,
    state: ManifestState,
    /// An append was refused: a part of it may be at the end of the file, and nothing is ever appended behind that.
    partial: bool,
}

/// What [`ManifestFile::load`] read.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub state: ManifestState,
    /// Number of the manifest file.
    pub number: u64,
    /// The format version that it names.
    pub version: FormatVersion,
    /// Where its last record was torn (never acknowledged), if it was.
    pub torn_at: Option<u64>,
    /// Behind the last whole record.
    pub end: u64,
    /// Where the first record begins, and its header: no other manifest of this number has the same, were it another
    /// store's, since a store's id is in that record.
    first: (u64, [u8; RECORD_HEADER_BYTES]),
    /// What its records are sealed with.
    seal: Option<Arc<Seal>>,
}

/// What [`ManifestFile::load_since`] has found.
pub(crate) enum Since {
    /// There is no manifest in force any more.
    NoCurrent,
    /// Nothing new.
    Same,
    /// All that it says now.
    New(Box<Loaded>),
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
                Ok(file) => return read_manifest(io, &file, number).map(Some),
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

    /// What the manifest says beyond `loaded`, read before: new records of the same file are read alone, another file
    /// from its beginning.
    pub fn load_since(io: &Io, dir: &Path, loaded: &Loaded) -> Result<Since> {
        let anew = || Ok(ManifestFile::load(io, dir)?.map_or(Since::NoCurrent, |l| Since::New(Box::new(l))));
        match read_current(io, dir)? {
            None => return Ok(Since::NoCurrent),
            Some(number) if number == loaded.number => {}
            Some(_) => return anew(),
        }
        let file = match io.open(&FileKind::Manifest(loaded.number).path(dir), &OpenHow::read()) {
            Ok(file) => file,
            // Another one is in force since CURRENT was read.
            Err(e) if e.kind() == engineswap::ErrorKind::NotFound => return anew(),
            Err(e) => return Err(e.into()),
        };
        let (len, &Loaded { number, version, end, first, .. }) = (file.len()?, loaded);
        let seal = loaded.seal.clone();
        if len < end || first_header(&file, first.0)? != first {
            return anew();
        }
        if len == end {
            return Ok(Since::Same);
        }
        let mut state = loaded.state.clone();
        let (end, torn_at) = apply_edits(&file, (number, seal.as_deref()), (end, len), &mut state)?;
        Ok(Since::New(Box::new(Loaded { state, number, version, torn_at, end, first, seal })))
    }

    /// Whether CURRENT names a manifest that is another database's: LevelDB and those that descend from it give their
    /// files the same names.
    pub fn is_foreign(io: &Io, dir: &Path) -> Result<bool> {
        let Ok(Some(number)) = read_current(io, dir) else { return Ok(false) };
        let mut magic = [0; MAGIC.len()];
        match io.open(&FileKind::Manifest(number).path(dir), &OpenHow::read()) {
            Err(e) if e.kind() == engineswap::ErrorKind::NotFound => Ok(false),
            file => Ok(file?.read_at(&mut magic, 0, RECOVERY)? == magic.len() && magic != MAGIC),
        }
    }

    /// What manifest `number` says, whether or not it is in force, up to the first damage, which comes with it. An
    /// error if the file cannot be opened.
    pub fn load_some(io: &Io, dir: &Path, number: u64) -> Result<(ManifestState, Option<Error>)> {
        let file = io.open(&FileKind::Manifest(number).path(dir), &OpenHow::read())?;
        match read_manifest(io, &file, number) {
            Ok(loaded) => Ok((loaded.state, None)),
            Err(e @ (Error::NewerFormat { .. } | Error::Key { .. })) => Err(e),
            Err(e) => {
                // Records have checksums of their own, so a damaged header is no reason to give them up.
                let mut state = ManifestState::default();
                let seal = match read_stamp(io, &file, number) {
                    Err(e @ Error::Key { .. }) => return Err(e),
                    seal => seal.unwrap_or_default(),
                };
                for start in [FIRST_SEALED_RECORD, FIRST_RECORD, HEADER_BYTES as u64] {
                    let mut found = ManifestState::default();
                    let seal = seal.as_deref().filter(|_| start == FIRST_SEALED_RECORD);
                    let _ = read_edits(&file, (number, seal), (start, 0, file.len()?), &mut found);
                    if found != ManifestState::default() {
                        state = found;
                        break;
                    }
                }
                Ok((state, Some(e)))
            }
        }
    }

    /// Begins a new manifest with a snapshot of `state` and makes CURRENT name it; the one that CURRENT named
    /// before is removed. Everything is durable when this returns. Opening a store always begins a new
    /// manifest, so that nothing is ever appended behind a torn record.
    pub fn create(
        io: &Io,
        home: &Arc<StoreDir>,
        mut state: ManifestState,
        next_number: NextNumber,
    ) -> Result<ManifestFile> {
        let previous = read_current(io, home.path())?;
        let number = next_number();
        state.next_file_number = state.next_file_number.max(number + 1);
        state.next_keyspace_id = state.next_keyspace_id.max(1);
        let (file, len, seal) = write_snapshot(io, home, number, &state)?;
        write_current(io, home, number)?;
        switch_current(io, home)?;
        let manifest = ManifestFile {
            io: io.clone(),
            home: home.clone(),
            next_number,
            number,
            file,
            seal,
            len,
            marked: len,
            begun_len: len,
            rewrite_bytes: REWRITE_BYTES,
            state,
            partial: false,
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
    /// nothing was written then. An error of kind [`ErrorKind::Retry`]: the disk was full, or the system short of
    /// something, before all of it was written, so it will never be read; it can be tried again. Another I/O error
    /// stops the manifest for good: whether the edit is on disk is unknown, so nothing that depends on either answer
    /// may follow.
    pub fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        self.home.latch().check()?;
        self.state.check(edit).map_err(|e| Error::Invalid(format!("a wrong manifest edit: {e}")))?;
        if self.partial {
            self.rewrite()?;
        }
        let record = encode_record((self.number, self.seal.as_deref()), self.len, edit)?;
        // What was durable before this edit: true whichever of the two writes a power cut leaves, and when only this
        // one is done.
        let early = if broken(Mutation::MarkEarly) { record.len() as u64 } else { 0 };
        let mark = encode_mark(self.number, self.len + early);
        self.file.write_all_at(&mark, HEADER_BYTES as u64, MANIFEST).map_err(|e| self.mark_failed(e))?;
        let written = self.file.write_all_at(&record, self.len, MANIFEST).map_err(Error::from);
        if written.as_ref().is_err_and(|e| e.kind() == ErrorKind::Retry) {
            // A write that fails has left bytes out.
            self.partial = true;
            return written;
        }
        let sync = || match broken(Mutation::SkipManifestSync) {
            true => Ok(()),
            false => self.file.sync_data(MANIFEST),
        };
        if let Err(e) = written.and_then(|()| Ok(sync()?)) {
            self.home.latch().stop(format!("the manifest could not be written: {e}"));
            return Err(e);
        }
        self.marked = self.len;
        self.len += record.len() as u64;
        self.state.apply(edit).map_err(|e| Error::Invalid(format!("a wrong manifest edit: {e}")))?;
        if self.len >= self.rewrite_bytes && self.len >= 2 * self.begun_len {
            self.rewrite()?;
        }
        Ok(())
    }

    /// A mark that could not be written is no harm if the disk was full: one that is torn says nothing.
    fn mark_failed(&self, e: engineswap::Error) -> Error {
        let e = Error::from(e);
        if e.kind() != ErrorKind::Retry {
            self.home.latch().stop(format!("the manifest could not be written: {e}"));
        }
        e
    }

    /// Makes the file say that all of it is durable: without this the loss of its last edit cannot be told from an
    /// append that a power cut has undone. For edits that nothing else bears witness to, and for the end.
    pub fn seal(&mut self) -> Result<()> {
        self.home.latch().check()?;
        if self.marked == self.len {
            return Ok(());
        }
        let mark = encode_mark(self.number, self.len);
        if let Err(e) = self.file.write_all_at(&mark, HEADER_BYTES as u64, MANIFEST) {
            let e = self.mark_failed(e);
            // What is durable stays so without these words.
            return self.home.latch().check().map_err(|_| e);
        }
        if let Err(e) = self.file.sync_data(MANIFEST) {
            self.home.latch().stop(format!("the manifest could not be written: {e}"));
            return Err(e.into());
        }
        self.marked = self.len;
        Ok(())
    }

    /// Goes on in a new file. What led here is durable in the old one already.
    fn rewrite(&mut self) -> Result<()> {
        let number = (self.next_number)();
        let mut state = self.state.clone();
        state.next_file_number = state.next_file_number.max(number + 1);
        let written = write_snapshot(&self.io, &self.home, number, &state)
            .and_then(|written| write_current(&self.io, &self.home, number).map(|()| written));
        let (file, len, seal) = match written {
            Ok(written) => written,
            // Perhaps nobody can say any more which of the store's names are durable.
            Err(e) if self.home.latch().check().is_err() => return Err(e),
            Err(e) if self.partial => {
                self.remove(Some(number));
                return Err(e);
            }
            Err(_) => {
                // CURRENT still names the old file, which serves on (a full disk, for example). Try again when
                // it has doubled once more.
                self.begun_len = self.len;
                self.remove(Some(number));
                return Ok(());
            }
        };
        if let Err(e) = switch_current(&self.io, &self.home) {
            // Which of the two files a crash would leave behind CURRENT is unknown.
            self.home.latch().stop(format!("the manifest could not be switched: {e}"));
            return Err(e);
        }
        let old = std::mem::replace(&mut self.number, number);
        self.partial = false;
        (self.file, self.len, self.begun_len, self.state) = (file, len, len, state);
        self.seal = seal;
        self.marked = len;
        self.remove(Some(old));
        Ok(())
    }

    /// Removes a manifest that is not live; a leftover does no harm and is removed at the next open.
    fn remove(&self, number: Option<u64>) {
        if let Some(n) = number.filter(|n| *n != self.number) {
            let _ = self.io.remove_file(&FileKind::Manifest(n).path(self.home.path()));
        }
    }
}

fn write_snapshot(
    io: &Io,
    dir: &StoreDir,
    number: u64,
    state: &ManifestState,
) -> Result<(File, u64, Option<Arc<Seal>>)> {
    // A salt of its own: checkpoints and restored stores have manifests of the same numbers.
    let seal = ring::for_one(io)?;
    let file = io.open(&FileKind::Manifest(number).path(dir.path()), &OpenHow::create_new())?;
    let (flags, version, first) = match &seal {
        None => (MARKED, FormatVersion::WRITTEN, FIRST_RECORD),
        Some(_) => (MARKED_SEALED, FormatVersion::V3, FIRST_SEALED_RECORD),
    };
    let record = encode_record((number, seal.as_deref()), first, &state.snapshot())?;
    let mut bytes = encode_header(number, flags, version).to_vec();
    // CURRENT names the file when all of this is durable.
    bytes.extend(encode_mark(number, first + record.len() as u64));
    if let Some(seal) = &seal {
        bytes.extend([encode_stamp(number, seal.stamp()); 2].concat());
    }
    bytes.extend(record);
    file.write_all_at(&bytes, 0, MANIFEST)?;
    if !broken(Mutation::CurrentBeforeManifest) {
        file.sync_all(MANIFEST)?;
    }
    dir.sync()?;
    Ok((file, bytes.len() as u64, seal))
}

/// Writes the next CURRENT, under another name.
fn write_current(io: &Io, dir: &StoreDir, number: u64) -> Result<()> {
    let tmp = FileKind::CurrentTmp.path(dir.path());
    let file = io.open(&tmp, &OpenHow { truncate: true, ..OpenHow::read_write() })?;
    file.write_all_at(format!("{}\n", FileKind::Manifest(number).name()).as_bytes(), 0, MANIFEST)?;
    if broken(Mutation::SkipCurrentSync) {
        return Ok(());
    }
    Ok(file.sync_all(MANIFEST)?)
}

/// Puts the CURRENT that was written in force. The manifest that it names is durable with its name.
fn switch_current(io: &Io, dir: &StoreDir) -> Result<()> {
    io.rename(&FileKind::CurrentTmp.path(dir.path()), &FileKind::Current.path(dir.path()))?;
    dir.sync()?;
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

fn encode_header(number: u64, flags: u32, version: FormatVersion) -> [u8; HEADER_BYTES] {
    let mut h = [0; HEADER_BYTES];
    h[..8].copy_from_slice(&MAGIC);
    h[8..12].copy_from_slice(&version.number().to_le_bytes());
    h[12..16].copy_from_slice(&flags.to_le_bytes());
    h[16..24].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c(0, &h[..24]);
    h[24..].copy_from_slice(&crc.to_le_bytes());
    h
}

/// The mark behind the header: manifest `number` was durable up to `len` when this was written.
fn encode_mark(number: u64, len: u64) -> [u8; MARK_BYTES] {
    let mut m = [0; MARK_BYTES];
    m[..8].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c(crc32c(0, &number.to_le_bytes()), &m[..8]);
    m[8..].copy_from_slice(&crc.to_le_bytes());
    m
}

/// What a mark says; one that is damaged, or was torn as it was written, says nothing.
fn decode_mark(number: u64, m: &[u8; MARK_BYTES]) -> u64 {
    let len = u64::from_le_bytes([m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7]]);
    if *m == encode_mark(number, len) { len } else { 0 }
}

/// What the records of manifest `number` are sealed with.
fn encode_stamp(number: u64, stamp: &Stamp) -> [u8; STAMP_BYTES] {
    let mut s = [0; STAMP_BYTES];
    s[..Stamp::BYTES].copy_from_slice(&Stamp::encode(Some(stamp)));
    let crc = crc32c(crc32c(0, &number.to_le_bytes()), &s[..Stamp::BYTES]);
    s[Stamp::BYTES..].copy_from_slice(&crc.to_le_bytes());
    s
}

/// The seal that a manifest's stamp names.
fn read_stamp(io: &Io, file: &File, number: u64) -> Result<Option<Arc<Seal>>> {
    let mut bytes = [0; 2 * STAMP_BYTES];
    file.read_at(&mut bytes, STAMP_AT, RECOVERY)?;
    let decode = |one: &[u8]| {
        let stamp = one.first_chunk().and_then(Stamp::decode)?;
        (one == encode_stamp(number, &stamp)).then_some(stamp)
    };
    match bytes.chunks(STAMP_BYTES).find_map(decode) {
        Some(stamp) => ring::of_file(io, Some(stamp), file.path()),
        None => Err(Error::corrupt(file.path(), Some(STAMP_AT), "what it is encrypted with is damaged")),
    }
}

fn encode_record((number, seal): Sealing<'_>, offset: u64, edit: &VersionEdit) -> Result<Vec<u8>> {
    let mut record = vec![0; RECORD_HEADER_BYTES];
    edit.encode(&mut record);
    if let Some(seal) = seal {
        seal.close_vec(Unit::Record { offset }, &[], &mut record, RECORD_HEADER_BYTES);
    }
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

/// A manifest's number, and what its records are sealed with.
type Sealing<'a> = (u64, Option<&'a Seal>);

fn read_manifest(io: &Io, file: &File, number: u64) -> Result<Loaded> {
    let path = file.path();
    let corrupt = |offset: u64, detail: &str| Error::corrupt(path, Some(offset), detail);
    let mut h = [0; HEADER_BYTES];
    if file.read_at(&mut h, 0, RECOVERY)? < HEADER_BYTES {
        return Err(corrupt(0, "the header is cut off"));
    }
    let u32_at = |i: usize| u32::from_le_bytes([h[i], h[i + 1], h[i + 2], h[i + 3]]);
    if h[..8] != MAGIC || u32_at(24) != crc32c(0, &h[..24]) {
        return Err(corrupt(0, "the header is damaged, or this is not a manifest"));
    }
    let version = match FormatVersion::named(u32_at(8)) {
        Named::Known(version) => version,
        Named::Newer(found) => return Err(Error::newer_format(path, found)),
        Named::Never => return Err(corrupt(8, "there is no such format version")),
    };
    let flags = u32_at(12);
    if h != encode_header(number, flags, version) {
        return Err(corrupt(16, "the header is another manifest's"));
    }
    let (start, durable) = match flags {
        0 => (HEADER_BYTES as u64, 0),
        MARKED | MARKED_SEALED => {
            let mut mark = [0; MARK_BYTES];
            if file.read_at(&mut mark, HEADER_BYTES as u64, RECOVERY)? < MARK_BYTES {
                return Err(corrupt(HEADER_BYTES as u64, "the file is cut off behind the header"));
            }
            let first = if flags == MARKED { FIRST_RECORD } else { FIRST_SEALED_RECORD };
            (first, decode_mark(number, &mark))
        }
        _ => return Err(corrupt(12, "the header has flags that no version has written")),
    };
    let seal = if flags == MARKED_SEALED { read_stamp(io, file, number)? } else { None };
    // After the mark, so that it is never ahead of what is read beside a writer.
    let len = file.len()?;
    let mut state = ManifestState::default();
    let (end, torn_at) = read_edits(file, (number, seal.as_deref()), (start, durable, len), &mut state)?;
    Ok(Loaded { state, number, version, torn_at, end, first: first_header(file, start)?, seal })
}

/// The header of the record at `start`, with its place; zeros where there is none.
fn first_header(file: &File, start: u64) -> Result<(u64, [u8; RECORD_HEADER_BYTES])> {
    let mut header = [0; RECORD_HEADER_BYTES];
    file.read_at(&mut header, start, RECOVERY)?;
    Ok((start, header))
}

/// Applies the edits of a manifest to `state`, from `start` up to its end or the first that is damaged; where the last
/// whole one ends, and where another was torn. Up to `durable` none can be.
fn read_edits(
    file: &File,
    sealing: Sealing<'_>,
    (start, durable, len): (u64, u64, u64),
    state: &mut ManifestState,
) -> Result<(u64, Option<u64>)> {
    let corrupt = |offset: u64, detail: &str| Error::corrupt(file.path(), Some(offset), detail);
    let (offset, torn_at) = apply_edits(file, sealing, (start, len), state)?;
    if offset == start {
        // The snapshot was durable before CURRENT named this file.
        return Err(corrupt(offset, "the snapshot at its beginning is missing or cut off"));
    }
    if offset < durable {
        let detail =
            format!("edits are missing here: the file says that it was durable up to offset {durable}");
        return Err(corrupt(offset, &detail));
    }
    Ok((offset, torn_at))
}

/// Applies the edits from `offset` on; where the last whole one ends, and where another was torn.
fn apply_edits(
    file: &File,
    (number, seal): Sealing<'_>,
    (mut offset, len): (u64, u64),
    state: &mut ManifestState,
) -> Result<(u64, Option<u64>)> {
    let corrupt = |offset: u64, detail: &str| Error::corrupt(file.path(), Some(offset), detail);
    let mut torn_at = None;
    while offset < len {
        match read_record(file, number, offset, len)? {
            Record::Edit(payload) => {
                let edit = opened(seal, Unit::Record { offset }, &payload).map_err(|e| {
                    match (seal, state.is_new()) {
                        // The first that is opened: a wrong key is met here.
                        (Some(seal), true) => seal.wrong_key(file.path()),
                        _ => corrupt(offset, &e),
                    }
                })?;
                let edit = VersionEdit::decode(&edit).map_err(|e| corrupt(offset, &e))?;
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
    Ok((offset, torn_at))
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
