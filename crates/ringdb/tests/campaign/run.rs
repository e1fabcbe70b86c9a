//! Runs a history on a disk, one step after the other, so that the same steps do the same things to the disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringdb::{
    BackupOptions, CompactionFilter, Compression, Db, Durability, Error, FilterContext, FilterDecision,
    Keyspace, KeyspaceOptions, Options, WriteBatch, WriteOptions,
};

use crate::env::SimEnv;
use crate::executor::block_on;
use crate::history::{KEYSPACES, Set, Shape, Step};
use crate::lab::{Lab, Turn};
use crate::model::{BACKUPS, Note, Script, checkpoint_dir, doomed, key, keyspace_name, time_of, value};

/// The store's directory: its parents are missing too.
pub const STORE: &str = "/srv/data/store";

/// Removes what is doomed.
struct Doomed;

impl CompactionFilter for Doomed {
    fn name(&self) -> &str {
        "doomed"
    }
    fn filter(&self, _context: &FilterContext, key: &[u8], value: &[u8]) -> FilterDecision {
        if doomed(key, value) { FilterDecision::Remove } else { FilterDecision::Keep }
    }
}

/// The settings of every store here: small tables, memtables and segments. `Sync` stores read past the page cache.
pub fn options(shape: &Shape, durability: Durability) -> Options {
    Options::default()
        .with_cache_bytes(1 << 20)
        .with_memtable_bytes(shape.memtable_bytes)
        .with_background_threads(1)
        .with_log_segment_bytes(shape.segment_bytes)
        .with_table_bytes(64 << 10)
        .with_manifest_bytes(shape.manifest_bytes)
        .with_direct_reads(durability == Durability::Sync)
        .with_durability(durability)
        .register_compaction_filter(Doomed)
}

/// Two keys, of which the second is the current one where `second` says so.
#[cfg(feature = "encryption")]
struct TwoKeys {
    second: bool,
}

#[cfg(feature = "encryption")]
impl ringdb::KeyProvider for TwoKeys {
    fn current(&self) -> Result<u32, ringdb::KeyError> {
        Ok(1 + u32::from(self.second))
    }
    fn key(&self, number: u32) -> Result<ringdb::EncryptionKey, ringdb::KeyError> {
        match number {
            1 | 2 => Ok(ringdb::EncryptionKey::new([number as u8; 32])),
            n => Err(format!("there is no key {n}").into()),
        }
    }
}

/// The same, with keys if the store is encrypted: the other one as the current key at every other opening.
fn with_keys(options: Options, _lab: &Lab, _shape: &Shape) -> Options {
    #[cfg(feature = "encryption")]
    if _shape.encrypted {
        return options.with_encryption(TwoKeys { second: _lab.disk.points() % 4 < 2 });
    }
    options
}

/// The settings of a keyspace that is made or altered by step `i`: of all kinds, and often as those of others.
fn own(i: usize) -> KeyspaceOptions {
    let own = KeyspaceOptions::default();
    let own = match i % 3 {
        0 => own,
        1 => own.with_compression(Compression::Lz4),
        _ => own.with_compression(Compression::None).with_last_level_compression(Compression::Zstd),
    };
    match i / 3 % 4 {
        0 => own.with_block_bytes(16 << 10),
        1 => own.with_block_bytes(4096).with_filter_bits_per_key(0),
        _ => own,
    }
}

/// A store at work.
pub struct Run<'a> {
    pub lab: Lab,
    pub env: Arc<SimEnv>,
    pub shape: &'a Shape,
    pub script: &'a Script,
    pub db: Option<Db>,
    keyspaces: [Option<Keyspace>; KEYSPACES],
}

impl<'a> Run<'a> {
    pub fn new(lab: Lab, shape: &'a Shape, script: &'a Script) -> Run<'a> {
        Run { lab, env: SimEnv::shared(), shape, script, db: None, keyspaces: [None, None, None] }
    }

    /// Opens the store; background work waits.
    pub fn open(&mut self) -> Result<(), Error> {
        self.lab.give_turn(Turn::History);
        let opened = open(&self.lab, self.shape, self.script.durability, &self.env, STORE);
        if opened.is_err() {
            self.lab.give_turn(Turn::All);
        }
        let db = opened?;
        for (k, slot) in self.keyspaces.iter_mut().enumerate() {
            *slot = db.existing_keyspace(&keyspace_name(k))?;
        }
        self.db = Some(db);
        self.rest();
        Ok(())
    }

    /// Opens the store after the death of its process, and notes what that has lost.
    pub fn begin(&mut self) -> Result<(), Error> {
        self.open()?;
        let unlogged = self.unlogged()?;
        self.lab.note(Note::Opened { unlogged });
        Ok(())
    }

    /// Lets go of the store without closing it: what a process leaves that ends.
    pub fn abandon(&mut self) {
        self.lab.give_turn(Turn::All);
        self.keyspaces = [None, None, None];
        self.db = None;
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("an open store")
    }

    /// Lets background work happen, one kind after the other.
    pub fn rest(&self) {
        let Some(db) = &self.db else { return };
        self.lab.give_turn(Turn::Log);
        // Background failures are told by later steps.
        let _ = db.wait_prepared();
        self.lab.give_turn(Turn::All);
        let _ = db.wait_idle();
        self.lab.give_turn(Turn::History);
    }

    /// Does a step and notes it; a failed one is noted as begun only.
    pub fn step(&mut self, i: usize) -> Result<(), Error> {
        self.lab.note(Note::Began(i));
        self.act(i)?;
        let unlogged = match &self.script.steps[i] {
            Step::Reopen { .. } => Some(self.unlogged()?),
            _ => None,
        };
        self.lab.note(Note::Ended { step: i, unlogged });
        self.rest();
        Ok(())
    }

    /// The newest write that was not logged and is there.
    pub fn unlogged(&self) -> Result<u32, Error> {
        let found = self.db().get("u")?;
        Ok(found.map_or(0, |v| u32::from_le_bytes((&v[..]).try_into().expect("a number"))))
    }

    fn act(&mut self, i: usize) -> Result<(), Error> {
        self.env.set_wall_clock(time_of(i));
        if self.db.is_none() {
            self.open()?;
        }
        match &self.script.steps[i] {
            Step::Write { durability, .. } => {
                let options = WriteOptions::default().durability(*durability);
                self.write(i, self.batch(i), options)
            }
            Step::Ingest(sets) => self.ingest(self.script.number(i), sets),
            Step::CreateKeyspace(k) => {
                self.keyspaces[*k] = Some(self.db().keyspace_with(&keyspace_name(*k), &own(i))?);
                Ok(())
            }
            Step::Alter(k) => match &self.keyspaces[*k] {
                Some(keyspace) => keyspace.alter(&own(i)),
                None => Ok(()),
            },
            Step::DropKeyspace(k) => {
                self.db().drop_keyspace(&keyspace_name(*k))?;
                self.keyspaces[*k] = None;
                Ok(())
            }
            Step::Flush => {
                self.lab.give_turn(Turn::All);
                self.db().flush()
            }
            Step::Sync => {
                // What was not logged is flushed.
                self.lab.give_turn(Turn::All);
                let options = WriteOptions::default().durability(Durability::Sync);
                match (self.shape.futures, i % 2) {
                    (true, 0) => block_on(self.db().sync_async()),
                    (true, _) => block_on(self.db().write_async(WriteBatch::new(), &options)),
                    (false, 0) => self.db().sync(),
                    (false, _) => self.db().write(WriteBatch::new(), &options),
                }
            }
            Step::Compact(k) => {
                self.lab.give_turn(Turn::All);
                self.db().flush()?;
                let _ = self.db().wait_idle();
                match k.and_then(|k| self.keyspaces[k].as_ref()) {
                    _ if self.shape.encrypted && i.is_multiple_of(2) => self.db().rewrite(),
                    Some(k) => k.compact_range(..),
                    None => self.db().compact_range(..),
                }
            }
            Step::Checkpoint => {
                self.lab.give_turn(Turn::All);
                self.db().flush()?;
                let _ = self.db().wait_idle();
                self.copy(i)
            }
            Step::Reopen { close } => {
                self.lab.give_turn(Turn::All);
                self.keyspaces = [None, None, None];
                let db = self.db.take().expect("an open store");
                if *close {
                    db.flush()?;
                    let _ = db.wait_idle();
                    db.close()?;
                } else {
                    drop(db);
                }
                self.open()
            }
        }
    }

    fn ingest(&self, number: u32, sets: &[Set]) -> Result<(), Error> {
        // What memtables have in between is flushed.
        self.lab.give_turn(Turn::All);
        let pairs = sets.iter().map(|s| (key(s.key), value(number, s.key, s.value.unwrap_or(0))));
        // "i" comes before all of them.
        let mark = ("i".to_string(), number.to_le_bytes().to_vec());
        self.db().ingest(std::iter::once(mark).chain(pairs)).map(drop)
    }

    /// A checkpoint, or a backup.
    fn copy(&self, i: usize) -> Result<(), Error> {
        if self.shape.backs_up {
            let two = BackupOptions::default().with_keep(2);
            return self.db().backup_with(BACKUPS, &two).map(drop);
        }
        self.db().checkpoint(checkpoint_dir(i))
    }

    /// A write of step `i`: by a call, a future or a future with a deadline that does not pass.
    fn write(&self, i: usize, batch: WriteBatch, options: WriteOptions) -> Result<(), Error> {
        match (self.shape.futures, i % 4) {
            (false, _) | (true, 0) => self.db().write(batch, &options),
            (true, 1) => self.db().write(batch, &options.with_deadline(Duration::MAX)),
            (true, _) => block_on(self.db().write_async(batch, &options)),
        }
    }

    fn batch(&self, i: usize) -> WriteBatch {
        let Step::Write { sets, durability } = &self.script.steps[i] else { unreachable!("a write") };
        let number = self.script.number(i);
        let mut batch = WriteBatch::new();
        let marker = if *durability == Durability::None { "u" } else { "n" };
        batch.put(marker, number.to_le_bytes());
        for set in sets {
            if let Some(until) = set.until {
                let range = key(set.key)..key(until);
                match set.keyspace.and_then(|k| self.keyspaces[k].as_ref()) {
                    Some(k) => batch.delete_range_in(k, range),
                    None => batch.delete_range(range),
                }
                continue;
            }
            let key = key(set.key);
            let value = set.value.map(|len| value(number, set.key, len));
            let keyspace = set.keyspace.and_then(|k| self.keyspaces[k].as_ref());
            if let (Some(life), Some(v)) = (set.life, &value) {
                let life = Duration::from_millis(life.into());
                match keyspace {
                    Some(k) => batch.put_with_ttl_in(k, key, v, life),
                    None => batch.put_with_ttl(key, v, life),
                }
                continue;
            }
            match (keyspace, value) {
                (Some(k), Some(v)) if set.merge => batch.merge_in(k, key, v),
                (None, Some(v)) if set.merge => batch.merge(key, v),
                (Some(k), Some(v)) => batch.put_in(k, key, v),
                (Some(k), None) => batch.delete_in(k, key),
                (None, Some(v)) => batch.put(key, v),
                (None, None) => batch.delete(key),
            };
        }
        batch
    }

    /// Time passes, for what is tried again.
    pub fn wait_for_another_try(&self) {
        self.env.advance(Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Opens a store on a disk.
pub fn open(
    lab: &Lab,
    shape: &Shape,
    durability: Durability,
    env: &Arc<SimEnv>,
    dir: impl AsRef<Path>,
) -> Result<Db, Error> {
    let options = with_keys(options(shape, durability), lab, shape);
    let db = Db::open_with_env(dir, options, lab.io(), env.clone())?;
    // For all keyspaces. A store that was cut before this was durable has no operands.
    let all = KeyspaceOptions::default().with_merge_operator("append:+");
    let all = if shape.filters { all.with_compaction_filter("doomed") } else { all };
    db.keyspace("default")?.alter(&all)?;
    Ok(db)
}
