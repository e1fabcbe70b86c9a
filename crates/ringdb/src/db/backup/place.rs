//! [`Place`]: what a directory of backups holds, and where. docs/formats/backup.md draws it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use engineswap::{Io, OpenHow};

use crate::coding::{Reader, crc32c, put_varint};
use crate::files::{FileKind, MAX_NUMBER};
use crate::manifest::{ManifestFile, ManifestState};
use crate::purpose::BACKUP;
use crate::store_dir::StoreDir;
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"ringdbBK";
/// The format of [`Contents`], which counts for itself.
const VERSION: u32 = 1;
const TABLES: &str = "tables";
const GENERATIONS: &str = "generations";
/// The file in a generation's directory that lists its tables.
const CONTENTS: &str = "TABLES";
/// What a directory of backups may hold: what is here, and what mkfs leaves in a new file system.
const KNOWN: [&str; 4] = [TABLES, GENERATIONS, crate::files::LOCK, "lost+found"];

/// A table in a directory of backups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub file_id: u64,
    pub bytes: u64,
    /// See [`crate::table::copy::identity`].
    pub identity: u128,
    /// XXH3-128 of all bytes.
    pub hash: u128,
}

impl Stored {
    /// The name of its file: two tables of one number have two.
    pub fn name(&self) -> String {
        format!("{:06}-{:032x}.sst", self.file_id, self.identity)
    }
}

/// Whether a file's name is one of [`Stored::name`].
fn is_table(name: &str) -> bool {
    let parts = name.strip_suffix(".sst").and_then(|n| n.split_once('-'));
    parts.is_some_and(|(number, hash)| {
        number.len() >= 6
            && number.bytes().all(|b| b.is_ascii_digit())
            && hash.len() == 32
            && hash.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// What a generation consists of, besides its manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub store_id: u64,
    pub tables: Vec<Stored>,
}

impl Contents {
    fn encode(&self) -> Vec<u8> {
        let mut b = MAGIC.to_vec();
        b.extend_from_slice(&VERSION.to_le_bytes());
        b.extend_from_slice(&self.store_id.to_le_bytes());
        put_varint(&mut b, self.tables.len() as u64);
        for t in &self.tables {
            put_varint(&mut b, t.file_id);
            put_varint(&mut b, t.bytes);
            b.extend_from_slice(&t.identity.to_le_bytes());
            b.extend_from_slice(&t.hash.to_le_bytes());
        }
        let sum = crc32c(0, &b);
        b.extend_from_slice(&sum.to_le_bytes());
        b
    }

    fn decode(bytes: &[u8], path: &Path) -> Result<Contents> {
        let bad = |what: &str| Error::corrupt(path, None, what);
        let mut r = Reader::new(bytes);
        if r.take(MAGIC.len()) != Some(&MAGIC[..]) {
            return Err(bad("not the list of a backup's tables"));
        }
        let version = r.u32().ok_or_else(|| bad("it is cut off"))?;
        if version > VERSION {
            return Err(Error::NewerFormat { path: path.into(), found: version, newest: VERSION });
        }
        let Some((body, sum)) = bytes.split_last_chunk::<4>() else { return Err(bad("it is cut off")) };
        if crc32c(0, body).to_le_bytes() != *sum || version != VERSION {
            return Err(bad("its checksum does not match"));
        }
        let mut r = Reader::new(&body[MAGIC.len() + 4..]);
        let mut read = || {
            let mut c = Contents { store_id: r.u64()?, tables: Vec::new() };
            for _ in 0..r.varint()? {
                let (file_id, bytes) = (r.varint().filter(|n| *n <= MAX_NUMBER)?, r.varint()?);
                let mut wide = || Some(u128::from_le_bytes(r.take(16)?.try_into().ok()?));
                c.tables.push(Stored { file_id, bytes, identity: wide()?, hash: wide()? });
            }
            r.is_empty().then_some(c)
        };
        read().ok_or_else(|| bad("it is not well formed"))
    }
}

/// A directory of backups.
pub(super) struct Place {
    pub io: Io,
    pub root: PathBuf,
}

impl Place {
    /// Over the directory `root`, if it holds backups or nothing.
    pub fn over(io: &Io, root: &Path) -> Result<Place> {
        let place = Place { io: io.clone(), root: root.into() };
        let no_backups =
            |detail: String| Error::Invalid(format!("no backups are in {}: {detail}", root.display()));
        match io.metadata(root)? {
            None => return Ok(place),
            Some(m) if !m.is_dir => return Err(no_backups("it is not a directory".into())),
            Some(_) => {}
        }
        let mut names: Vec<String> = io.read_dir(root)?.into_iter().map(|e| e.name).collect();
        names.retain(|n| !KNOWN.contains(&n.as_str()));
        names.sort_unstable();
        match names.first() {
            Some(n) => Err(no_backups(format!("it holds something else ({n}, {} in all)", names.len()))),
            None => Ok(place),
        }
    }

    pub fn lock_path(&self) -> PathBuf {
        FileKind::Lock.path(&self.root)
    }

    pub fn tables(&self) -> PathBuf {
        self.root.join(TABLES)
    }

    pub fn generations(&self) -> PathBuf {
        self.root.join(GENERATIONS)
    }

    pub fn generation(&self, number: u64) -> PathBuf {
        self.generations().join(format!("{number:06}"))
    }

    pub fn table(&self, t: &Stored) -> PathBuf {
        self.tables().join(t.name())
    }

    /// The numbers of all generations, ascending, and whether each is complete: what has no CURRENT is not.
    pub fn numbers(&self) -> Result<Vec<(u64, bool)>> {
        let dir = self.generations();
        if self.io.metadata(&dir)?.is_none() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for e in self.io.read_dir(&dir)? {
            let number =
                e.name.parse().ok().filter(|n: &u64| *n <= MAX_NUMBER && format!("{n:06}") == e.name);
            if let Some(number) = number.filter(|_| e.is_dir) {
                let current = FileKind::Current.path(&self.generation(number));
                found.push((number, self.io.metadata(&current)?.is_some()));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// What a generation consists of.
    pub fn contents(&self, number: u64) -> Result<Contents> {
        let path = self.generation(number).join(CONTENTS);
        let file = self.io.open(&path, &OpenHow::read())?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_exact_at(&mut bytes, 0, BACKUP)?;
        Contents::decode(&bytes, &path)
    }

    /// The state that a generation's manifest tells; it has the tables that `contents` lists.
    pub fn state(&self, number: u64, contents: &Contents) -> Result<ManifestState> {
        let dir = self.generation(number);
        let Some(loaded) = ManifestFile::load(&self.io, &dir)? else {
            return Err(Error::corrupt(&FileKind::Current.path(&dir), None, "it is missing"));
        };
        let listed: BTreeMap<u64, u64> = contents.tables.iter().map(|t| (t.file_id, t.bytes)).collect();
        let named = loaded.state.tables.iter().map(|(id, (_, m))| (*id, m.file_bytes));
        if listed.len() != contents.tables.len() || !listed.into_iter().eq(named) {
            let path = dir.join(CONTENTS);
            return Err(Error::corrupt(&path, None, "it lists other tables than the manifest"));
        }
        Ok(loaded.state)
    }

    /// Writes what makes tables that are here, durable with their names, a generation. CURRENT comes last.
    pub fn complete(&self, number: u64, contents: &Contents, state: ManifestState) -> Result<()> {
        use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
        let dir = self.generation(number);
        super::super::directory::make_dir(&self.io, &dir)?;
        let list = self.io.open(&dir.join(CONTENTS), &OpenHow::create_new())?;
        list.write_all_at(&contents.encode(), 0, BACKUP)?;
        list.sync_all(BACKUP)?;
        let home = StoreDir::open(&self.io, &dir)?;
        home.sync()?;
        let next = AtomicU64::new(state.next_file_number);
        let next = std::sync::Arc::new(move || next.fetch_add(1, Relaxed));
        ManifestFile::create(&self.io, &home, state, next)?;
        Ok(())
    }

    /// Removes a generation, whole or not. Its tables stay, for the time being.
    pub fn remove(&self, number: u64) -> Result<()> {
        let dir = self.generation(number);
        let names = self.io.read_dir(&dir)?;
        // Before anything else of it goes, it is durably none.
        for e in names.iter().filter(|e| e.name == crate::files::CURRENT) {
            self.io.remove_file(&dir.join(&e.name))?;
        }
        self.io.sync_dir(&dir)?;
        for e in names.iter().filter(|e| e.name != crate::files::CURRENT) {
            self.io.remove_file(&dir.join(&e.name))?;
        }
        Ok(self.io.remove_dir(&dir)?)
    }

    /// Makes the directories, and sweeps. As long as no generation is complete they are made anew: those that a failed
    /// backup has left may have names that never become durable.
    pub fn prepare(&self) -> Result<Vec<(u64, Contents)>> {
        let dirs = [self.tables(), self.generations()];
        let make = || dirs.iter().try_for_each(|d| super::super::directory::make_dir(&self.io, d));
        let mut were_there = false;
        for dir in &dirs {
            were_there |= self.io.metadata(dir)?.is_some();
        }
        make()?;
        let former = self.sweep()?;
        if former.is_empty() && were_there {
            dirs.iter().try_for_each(|d| self.io.remove_dir(d))?;
            make()?;
        }
        Ok(former)
    }

    /// Removes generations that are not complete, and tables that no generation has. Returns the others.
    pub fn sweep(&self) -> Result<Vec<(u64, Contents)>> {
        let mut complete = Vec::new();
        for (number, whole) in self.numbers()? {
            match whole {
                true => complete.push((number, self.contents(number)?)),
                false => self.remove(number)?,
            }
        }
        let named: BTreeSet<String> =
            complete.iter().flat_map(|(_, c)| c.tables.iter().map(Stored::name)).collect();
        for e in self.io.read_dir(&self.tables())? {
            if is_table(&e.name) && !named.contains(&e.name) {
                self.io.remove_file(&self.tables().join(&e.name))?;
            }
        }
        Ok(complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_back_and_every_changed_byte_is_noticed() {
        let t = |file_id| Stored { file_id, bytes: 4096, identity: u128::MAX - 5, hash: 3 };
        let c = Contents { store_id: 7, tables: vec![t(1), t(MAX_NUMBER)] };
        let b = c.encode();
        let path = Path::new("TABLES");
        assert_eq!(Contents::decode(&b, path).unwrap(), c);
        for i in 0..b.len() {
            let mut d = b.clone();
            d[i] ^= 1;
            assert!(Contents::decode(&d, path).is_err(), "byte {i}");
            assert!(Contents::decode(&b[..i], path).is_err(), "cut at {i}");
        }
        assert!(is_table(&t(1).name()) && is_table(&t(MAX_NUMBER).name()));
        assert!(!is_table("000001.sst") && !is_table("notes-1.sst"));
    }
}
