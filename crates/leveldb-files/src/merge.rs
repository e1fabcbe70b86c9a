//! All runs of tables and what the logs hold, as one: the newest write of each key, without those that are deletions.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::collections::btree_map;
use std::rc::Rc;

use crate::key::{self, Parts};
use crate::memory::Memory;
use crate::run::Run;
use crate::store::Store;
use crate::{Error, Result};

/// All pairs of a store, in the order of their keys.
pub struct Pairs {
    store: Store,
    sources: BinaryHeap<Source>,
    /// The key that was given last, or is deleted.
    last: Option<Vec<u8>>,
    value: Vec<u8>,
    read: Rc<Cell<u64>>,
    failed: bool,
}

enum Source {
    Run(Box<Run>),
    Memory { entry: (Vec<u8>, Option<Vec<u8>>), left: btree_map::IntoIter<Vec<u8>, (u64, Option<Vec<u8>>)> },
}

impl std::fmt::Debug for Pairs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pairs").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Pairs {
    pub(crate) fn new(store: Store, memory: Memory, read: Rc<Cell<u64>>) -> Result<Pairs> {
        let mut sources: BinaryHeap<Source> =
            Run::all(&store, &read)?.into_iter().map(|r| Source::Run(Box::new(r))).collect();
        let mut left = memory.into_iter();
        if let Some(entry) = left.next() {
            sources.push(Source::Memory { entry: internal(entry), left });
        }
        Ok(Pairs { store, sources, last: None, value: Vec::new(), read, failed: false })
    }

    /// The next pair; `None` behind the last.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Io`], where a table cannot be read. What is behind cannot be asked for.
    pub fn next_pair(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.failed {
            return Err(Error::damaged(
                &self.store.files.dir(),
                0,
                "what is behind the damage cannot be read",
            ));
        }
        let found = self.advance();
        self.failed = found.is_err();
        Ok(found?.then_some((self.last.as_deref().unwrap_or_default(), &self.value)))
    }

    /// Goes to the next pair; whether there is one.
    fn advance(&mut self) -> Result<bool> {
        loop {
            let Some(mut top) = self.sources.peek_mut() else { return Ok(false) };
            // Its parts have been looked at when it was read.
            let parts =
                Parts::of(top.key()).map_err(|why| Error::damaged(&self.store.files.dir(), 0, why))?;
            let older = self.last.as_deref() == Some(parts.user);
            let shown = !older && !parts.deleted;
            if !older {
                let last = self.last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(parts.user);
            }
            if shown {
                self.value.clear();
                self.value.extend_from_slice(top.value());
            }
            let more = match &mut *top {
                Source::Run(run) => run.step(&self.store, &self.read)?,
                Source::Memory { entry, left } => left.next().map(|next| *entry = internal(next)).is_some(),
            };
            match more {
                true => drop(top),
                false => drop(PeekMut::pop(top)),
            }
            if shown {
                return Ok(true);
            }
        }
    }

    /// Bytes of files read so far, of [`Store::bytes`].
    pub fn bytes_read(&self) -> u64 {
        // A window may begin with what the one before ended with.
        self.read.get().min(self.store.bytes())
    }
}

/// An entry of the logs with its internal key.
fn internal((mut key, (sequence, value)): (Vec<u8>, (u64, Option<Vec<u8>>))) -> (Vec<u8>, Option<Vec<u8>>) {
    let tag = sequence << 8 | u64::from(value.is_some());
    key.extend_from_slice(&tag.to_le_bytes());
    (key, value)
}

impl Source {
    fn key(&self) -> &[u8] {
        match self {
            Source::Run(run) => run.key(),
            Source::Memory { entry, .. } => &entry.0,
        }
    }

    fn value(&self) -> &[u8] {
        match self {
            Source::Run(run) => run.value(),
            Source::Memory { entry, .. } => entry.1.as_deref().unwrap_or_default(),
        }
    }
}

/// The greatest of a heap is the one whose key comes first.
impl Ord for Source {
    fn cmp(&self, other: &Source) -> Ordering {
        key::compare(other.key(), self.key())
    }
}

impl PartialOrd for Source {
    fn partial_cmp(&self, other: &Source) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Source) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Source {}
