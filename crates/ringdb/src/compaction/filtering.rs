//! [`Filtering`]: a compaction filter is asked of what a part of a compaction would write.
//!
//! It is asked of the newest version of each key in the merge, if that is kept and has a value. What it removes becomes
//! a tombstone of the same number, which goes if nothing older can lie anywhere: so older versions do not come back,
//! and transactions still see that the key was written. Open snapshots go on with the view before (see
//! [`Change::filtered`](super::Change)).

use std::sync::Arc;

use super::CompactionEnv;
use super::output::Outputs;
use super::pick::LAST;
use crate::compaction_filter::registry::{Filter, FilterMap, Filters};
use crate::compaction_filter::{FilterContext, FilterDecision};
use crate::key::{self, Kind, MAX_VALUE_BYTES, Seq};
use crate::mutation::{Mutation, broken};
use crate::sync::atomic::Ordering::Relaxed;
use crate::{Error, Result, expiry};

/// See the module.
pub(super) struct Filtering {
    map: Arc<FilterMap>,
    context: FilterContext,
    /// The keyspace that was looked up last, and its filter.
    keyspace: Option<u32>,
    filter: Option<Filter>,
    seen: u64,
    removed: u64,
    changed: u64,
    /// It is not asked again after this.
    failure: Option<Error>,
}

impl Filtering {
    pub fn new(map: Arc<FilterMap>, level: usize) -> Filtering {
        let context = FilterContext { level: level as u32, last_level: level == LAST };
        let (keyspace, filter, failure) = (None, None, None);
        Filtering { map, context, keyspace, filter, seen: 0, removed: 0, changed: 0, failure }
    }

    /// Adds what was done to what is known of the filters. Whether something was removed or changed.
    pub fn tell(self, filters: Option<&Filters>) -> bool {
        if let Some(filters) = filters {
            filters.seen.fetch_add(self.seen, Relaxed);
            filters.removed.fetch_add(self.removed, Relaxed);
            filters.changed.fetch_add(self.changed, Relaxed);
            self.failure.iter().for_each(|why| filters.note(why));
        }
        self.removed + self.changed > 0
    }

    fn filter_of(&mut self, internal: &[u8]) -> Option<Filter> {
        let id = key::split(internal).map(|(id, _)| id);
        if id != self.keyspace || id.is_none() {
            self.keyspace = id;
            self.filter = id.and_then(|id| self.map.of(id).cloned());
        }
        self.filter.clone().filter(|_| self.failure.is_none())
    }

    /// What becomes of a version: what is to be stored of it instead, if it changes.
    fn pass(&mut self, internal: &[u8], kind: Kind, stored: &[u8]) -> FilterDecision {
        let (at, value) = match kind {
            Kind::Put => (None, stored),
            Kind::Expiring => {
                let (at, value) = expiry::split(stored);
                (Some(at), value)
            }
            Kind::Delete | Kind::Merge => return FilterDecision::Keep,
        };
        let Some(filter) = self.filter_of(internal) else { return FilterDecision::Keep };
        self.seen += 1;
        let said = filter.ask(&self.context, internal, value).and_then(|said| match said {
            FilterDecision::Change(new) if new == value => Ok(FilterDecision::Keep),
            FilterDecision::Change(new) => {
                let new = match at {
                    Some(at) => expiry::stamp(at, &new),
                    None => new,
                };
                match new.len() <= MAX_VALUE_BYTES {
                    true => Ok(FilterDecision::Change(new)),
                    false => {
                        Err(filter.failure(internal, "what it changes the value to is longer than 1 GiB"))
                    }
                }
            }
            FilterDecision::Fail(why) => Err(filter.failure(internal, &why)),
            said => Ok(said),
        });
        said.unwrap_or_else(|why| {
            self.failure = Some(why);
            FilterDecision::Keep
        })
    }
}

impl<T: CompactionEnv> Outputs<'_, T> {
    /// Adds the newest version of a key as the keyspace's filter wants it. `lowest`: a tombstone in its place would
    /// hide nothing.
    #[inline(never)]
    pub(super) fn add_passed(
        &mut self,
        key: &[u8],
        seq: Seq,
        kind: Kind,
        stored: &[u8],
        lowest: bool,
    ) -> Result<()> {
        let Some(filtering) = &mut self.filtering else { return self.add(key, seq, kind, stored, true) };
        match filtering.pass(key, kind, stored) {
            FilterDecision::Keep | FilterDecision::Fail(_) => self.add(key, seq, kind, stored, true),
            FilterDecision::Remove => {
                filtering.removed += 1;
                match lowest || broken(Mutation::DropFiltered) {
                    true => Ok(()),
                    false => self.add(key, seq, Kind::Delete, &[], true),
                }
            }
            FilterDecision::Change(new) => {
                filtering.changed += 1;
                self.add(key, seq, kind, &new, true)
            }
        }
    }
}
