//! Pairs in order into the store, by one ingest: all of them, or none.

use std::sync::Arc;
use std::time::Instant;

use indicatif::ProgressBar;
use ringdb::Ingester;

use super::interrupt::Interrupt;
use super::load::Summary;
use super::reading::{Place, Reading, too_long};
use crate::args::LoadArgs;
use crate::error::{Failure, Result, failed, warn};
use crate::store::Space;

/// Takes the pairs.
pub(super) struct Sorted<'a> {
    ingester: Ingester<'a>,
    interrupt: Arc<Interrupt>,
    /// What it comes to.
    summary: Summary,
}

/// Makes all that `read` adds part of `space`, and says how much that was.
pub(super) fn all(
    space: Space,
    json: bool,
    bar: &ProgressBar,
    read: impl FnOnce(&mut Sorted) -> Result<()>,
) -> Result<()> {
    watched(space, json, bar, Interrupt::watch()?, read)
}

/// Loads inputs whose records come in the order of their keys.
pub(super) fn load(space: Space, args: &LoadArgs, mut reading: Reading) -> Result<()> {
    let (bar, interrupt) = (reading.bar.clone(), reading.interrupt.clone());
    watched(space, args.json, &bar, interrupt, |sorted| {
        reading.all(args, &mut |place, key, value| sorted.add_at(place, key, value))?;
        sorted.summary.skipped = reading.skipped;
        Ok(())
    })
}

fn watched(
    space: Space,
    json: bool,
    bar: &ProgressBar,
    interrupt: Arc<Interrupt>,
    read: impl FnOnce(&mut Sorted) -> Result<()>,
) -> Result<()> {
    let start = Instant::now();
    let mut sorted =
        Sorted { ingester: space.ingester()?, interrupt: interrupt.clone(), summary: Summary::default() };
    let done = read(&mut sorted);
    let Sorted { ingester, mut summary, .. } = sorted;
    let done = done.and_then(|()| {
        interrupt.not_now();
        Ok(ingester.finish()?)
    });
    bar.finish_and_clear();
    if let Err(e) = done {
        let why = if matches!(e, Failure::Interrupted(_)) { "interrupted: " } else { "" };
        warn(&format!("{why}nothing is loaded"));
        space.db.close()?;
        return Err(e);
    }
    space.db.close()?;
    summary.seconds = start.elapsed().as_secs_f64();
    summary.say(json)
}

impl Sorted<'_> {
    /// Adds a pair, whose key comes after the one before.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if let Some(signal) = self.interrupt.came() {
            return Err(Failure::Interrupted(signal));
        }
        if let Some(why) = too_long(key, value) {
            let shown = key[..key.len().min(100)].escape_ascii();
            return failed(format!("the record of the key '{shown}': {why}"));
        }
        self.ingester.add(key, value)?;
        self.count(key, value);
        Ok(())
    }

    /// Adds a record of an input.
    fn add_at(&mut self, place: &Place<'_>, key: &[u8], value: &[u8]) -> Result<()> {
        match self.ingester.add(key, value) {
            Ok(()) => {
                self.count(key, value);
                Ok(())
            }
            Err(ringdb::Error::Invalid(why)) => {
                failed(format!("{place}: {why}; without --sorted records may come in any order"))
            }
            Err(e) => Err(e.into()),
        }
    }

    fn count(&mut self, key: &[u8], value: &[u8]) {
        self.summary.records += 1;
        self.summary.bytes += (key.len() + value.len()) as u64;
    }

    /// How many were added.
    pub(super) fn records(&self) -> u64 {
        self.summary.records
    }
}
