//! Pairs in order into the store, by one ingest: all of them, or none.

use std::sync::Arc;
use std::time::Instant;

use indicatif::ProgressBar;
use ringdb::Ingester;

use super::load::{Interrupt, Summary, too_long};
use crate::error::{Failure, Result, failed, warn};
use crate::store::Space;

/// Takes the pairs.
pub(super) struct Sorted<'a> {
    ingester: Ingester<'a>,
    interrupt: Arc<Interrupt>,
    /// What it comes to.
    pub(super) summary: Summary,
}

/// Makes all that `read` adds part of `space`, and says how much that was.
pub(super) fn all(
    space: Space,
    json: bool,
    bar: &ProgressBar,
    read: impl FnOnce(&mut Sorted) -> Result<()>,
) -> Result<()> {
    let start = Instant::now();
    let interrupt = Interrupt::watch()?;
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
        self.summary.records += 1;
        self.summary.bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// How many were added.
    pub(super) fn records(&self) -> u64 {
        self.summary.records
    }
}
