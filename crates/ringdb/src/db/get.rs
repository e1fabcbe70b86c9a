//! Point reads.
//!
//! As long as everything is in memory a read happens under one epoch guard, without touching a reference count.
//! When a block has to be read the guard is given up and the view kept instead.

use super::lookup::{Lookup, Parked, Step};
use super::view::Views;
use crate::insight::Operation;
use crate::key::{Prefix, Seq};
use crate::{ReadOptions, Result, Value};

/// What a look into memory has come to.
// It is taken apart where it is made: to copy it costs less than a box for each miss.
#[expect(clippy::large_enum_variant)]
pub(super) enum Look {
    Done(Option<Value>),
    /// A block has to be read.
    Parked(Parked),
}

impl Views {
    /// The newest version of a key as of a snapshot (`None`: as of now), if memory has it.
    pub(super) fn look(&self, prefix: &Prefix, key: &[u8], snapshot: Option<Seq>) -> Result<Look> {
        let guard = self.pin();
        let newest = self.load(&guard);
        let kept = self.kept(snapshot);
        let view = kept.as_ref().unwrap_or(newest);
        let seq = snapshot.unwrap_or_else(|| self.visible());
        let mut lookup = Lookup::new(view, prefix, key, seq);
        match lookup.step(view, &guard)? {
            Step::Done(value) => Ok(Look::Done(value)),
            Step::Needs => {
                let mut parked = Parked::new(view, lookup);
                drop(guard);
                // Blocks larger than a frame are not where a step looks.
                while let Some(block) = parked.needed_from_memory() {
                    if let Some(value) = parked.give(&block)? {
                        return Ok(Look::Done(value));
                    }
                }
                Ok(Look::Parked(parked))
            }
        }
    }

    /// What `f` makes of the newest version of a key as of a snapshot (`None`: as of now), called with the bytes where
    /// they lie: in a memtable, in the cache, or in the block that was read. Without a guard of the epoch: the caller's
    /// function may do anything, also call the store.
    pub fn read_with<R>(
        &self,
        prefix: &Prefix,
        key: &[u8],
        snapshot: Option<Seq>,
        options: &ReadOptions,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.latencies().sample(Operation::Get, || {
            let (view, seq) = self.as_of(snapshot);
            let mut made = None;
            Lookup::new(&view, prefix, key, seq).run_with(&view, options.fill_cache, |value| {
                made = Some(f(value));
                Value::default()
            })?;
            Ok(made)
        })
    }

    /// Whether a key has a value as of a snapshot (`None`: as of now). Asks no merge operator.
    pub fn contains(&self, prefix: &Prefix, key: &[u8], snapshot: Option<Seq>) -> Result<bool> {
        self.latencies().sample(Operation::Get, || {
            let (view, seq) = self.as_of(snapshot);
            let mut lookup = Lookup::new(&view, prefix, key, seq).for_presence();
            let fill_cache = ReadOptions::default().fill_cache;
            Ok(lookup.run_with(&view, fill_cache, |_| Value::default())?.is_some())
        })
    }

    /// The newest version of a key as of a snapshot (`None`: as of now).
    pub fn get(
        &self,
        prefix: &Prefix,
        key: &[u8],
        snapshot: Option<Seq>,
        options: &ReadOptions,
    ) -> Result<Option<Value>> {
        match self.latencies().is_due() {
            false => self.get_untimed(prefix, key, snapshot, options),
            true => {
                self.latencies().sampled(Operation::Get, || self.get_untimed(prefix, key, snapshot, options))
            }
        }
    }

    // Within its only caller that is not cold.
    #[inline(always)]
    fn get_untimed(
        &self,
        prefix: &Prefix,
        key: &[u8],
        snapshot: Option<Seq>,
        options: &ReadOptions,
    ) -> Result<Option<Value>> {
        let guard = self.pin();
        let newest = self.load(&guard);
        let kept = self.kept(snapshot);
        let view = kept.as_ref().unwrap_or(newest);
        let seq = snapshot.unwrap_or_else(|| self.visible());
        let mut lookup = Lookup::new(view, prefix, key, seq);
        match lookup.step(view, &guard)? {
            Step::Done(value) => Ok(value),
            Step::Needs => {
                let parked = Parked::new(view, lookup);
                drop(guard);
                parked.finish(options.fill_cache)
            }
        }
    }
}

#[cfg(test)]
mod tests;
