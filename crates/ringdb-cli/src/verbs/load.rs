//! `ringdb load`: records into the store, in batches, or by one ingest if they come sorted.

use std::sync::Arc;
use std::time::Instant;

use indicatif::ProgressBar;
use ringdb::{WriteBatch, WriteOptions};
use serde::Serialize;

use super::ingest;
use super::interrupt::Interrupt;
use super::reading::Reading;
use crate::args::{ImportArgs, LoadArgs, OnError};
use crate::error::{Failure, Result};
use crate::formats::RecordReader;
use crate::out::{self, human_bytes, human_count};
use crate::store::{self, DurabilityArg, Space};

/// A batch is committed when it holds this many bytes, whatever its count.
const BATCH_BYTES: usize = 4 << 20;

/// What was loaded.
#[derive(Default, Serialize)]
pub(super) struct Summary {
    pub(super) records: u64,
    pub(super) skipped: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

impl Summary {
    /// Prints it.
    pub(super) fn say(&self, json: bool) -> Result<()> {
        if json {
            return out::json(self);
        }
        let skipped = match self.skipped {
            0 => String::new(),
            n => format!(", {n} bad ones skipped"),
        };
        out::text(&format!(
            "loaded {} records ({}) in {:.2} s{skipped}\n",
            human_count(self.records),
            human_bytes(self.bytes),
            self.seconds
        ))
    }
}

/// What reads records and commits them.
pub(super) struct Loader {
    reading: Reading,
    batches: Batches,
}

/// What commits records.
struct Batches {
    batch_size: usize,
    space: Space,
    batch: WriteBatch,
    options: WriteOptions,
    summary: Summary,
    interrupt: Arc<Interrupt>,
}

/// Loads the files, or standard input.
pub fn load(args: &LoadArgs) -> Result<()> {
    let reading = Reading::of(args)?;
    let db = store::open_for_writing(&args.store, true, args.durability)?;
    let space = Space::made(db, args.keyspace.keyspace.as_deref())?;
    if args.sorted {
        return ingest::load(space, args, reading);
    }
    let batches = Batches::new(space, args.batch_size as usize, args.durability, reading.interrupt.clone());
    finish(Loader { reading, batches }, args.json, |loader| {
        let Loader { reading, batches } = loader;
        reading.all(args, &mut |_, key, value| batches.add(key, value))
    })
}

/// Loads what `read` reads into a store that `import` was asked for.
pub(super) fn load_foreign(args: &ImportArgs, read: impl FnOnce(&mut Loader) -> Result<()>) -> Result<()> {
    let reading = Reading::new(OnError::Stop, out::bytes_bar(None))?;
    let db = store::open_for_writing(&args.store, true, args.durability)?;
    let space = Space::made(db, args.keyspace.keyspace.as_deref())?;
    let batches = Batches::new(space, 1000, args.durability, reading.interrupt.clone());
    finish(Loader { reading, batches }, args.json, read)
}

fn finish(mut loader: Loader, json: bool, read: impl FnOnce(&mut Loader) -> Result<()>) -> Result<()> {
    let start = Instant::now();
    let done = read(&mut loader);
    let Loader { reading, mut batches } = loader;
    batches.commit()?;
    batches.space.db.flush()?;
    reading.bar.finish_and_clear();
    let s = &mut batches.summary;
    (s.seconds, s.skipped) = (start.elapsed().as_secs_f64(), reading.skipped);
    if let Err(e) = &done {
        let why = if matches!(e, Failure::Interrupted(_)) { "interrupted: " } else { "" };
        crate::error::warn(&format!("{why}{} records are loaded", human_count(s.records)));
    } else {
        s.say(json)?;
    }
    batches.space.db.close()?;
    done
}

impl Loader {
    /// The bar that shows how much was read.
    pub(super) fn bar(&self) -> &ProgressBar {
        &self.reading.bar
    }

    /// Loads all that `reader` reads of the input `name`.
    pub(super) fn records(&mut self, name: &str, reader: &mut dyn RecordReader) -> Result<()> {
        let batches = &mut self.batches;
        self.reading.records(name, reader, &mut |_, key, value| batches.add(key, value))
    }
}

impl Batches {
    fn new(
        space: Space,
        batch_size: usize,
        durability: Option<DurabilityArg>,
        interrupt: Arc<Interrupt>,
    ) -> Batches {
        let usual = WriteOptions::default();
        let options = durability.map_or(usual, |d| usual.durability(d.into()));
        Batches {
            batch_size,
            space,
            batch: WriteBatch::new(),
            options,
            summary: Summary::default(),
            interrupt,
        }
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.space.put_in(&mut self.batch, key, value);
        self.summary.records += 1;
        self.summary.bytes += (key.len() + value.len()) as u64;
        if self.batch.len() >= self.batch_size || self.batch.size_bytes() >= BATCH_BYTES {
            self.commit()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            let n = self.batch.len() as u64;
            self.space.db.write(std::mem::take(&mut self.batch), &self.options)?;
            self.interrupt.committed(n);
        }
        Ok(())
    }
}
