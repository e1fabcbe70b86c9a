//! Point reads.
//!
//! As long as everything is in memory a read happens under one epoch guard, without touching a reference count.
//! When a block has to be read the guard is given up and the view kept instead.

use super::lookup::{Lookup, Parked, Step};
use super::view::Views;
use crate::key::{Prefix, Seq};
use crate::{ReadOptions, Result, Value};

impl Views {
    /// The newest version of a key as of a snapshot (`None`: as of now).
    pub fn get(
        &self,
        prefix: &Prefix,
        key: &[u8],
        snapshot: Option<Seq>,
        options: &ReadOptions,
    ) -> Result<Option<Value>> {
        let guard = self.pin();
        let view = self.load(&guard);
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
