//! [`Live`]: the range tombstones that tables may need, as the manifest keeps them, and to which tables they have been
//! applied; [`RangeState`]: the same of a version, indexed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{RangeSet, RangeTombstone};
use crate::key::Seq;

/// A change of [`Live`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeEdit {
    /// By sequence number: those that no table needs any more.
    pub removed: Vec<Seq>,
    pub added: Vec<RangeTombstone>,
    /// Tables by file id: all tombstones up to this sequence number have been applied to it.
    pub cleared: Vec<(u64, Seq)>,
}

/// The live range tombstones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    /// By sequence number.
    pub tombstones: BTreeMap<Seq, RangeTombstone>,
    /// By file id: no entry of the table is older than a tombstone which covers it and has this sequence number or a
    /// lower one. Of tables for which that follows from their entries' sequence numbers alone, nothing is kept.
    pub cleared: BTreeMap<u64, Seq>,
}

impl Live {
    /// Why `edit` cannot be applied, if it cannot.
    pub fn check(&self, edit: &RangeEdit, is_table: impl Fn(u64) -> bool) -> Result<(), String> {
        let mut removed = edit.removed.clone();
        removed.sort_unstable();
        if let Some(twice) = removed.windows(2).find(|w| w[0] == w[1]) {
            return Err(format!("range tombstone {} is removed twice", twice[0]));
        }
        if let Some(seq) = removed.iter().find(|seq| !self.tombstones.contains_key(seq)) {
            return Err(format!("range tombstone {seq} is removed but is not there"));
        }
        let mut added: Vec<Seq> = edit.added.iter().map(|t| t.seq).collect();
        added.sort_unstable();
        let there = |seq: &Seq| self.tombstones.contains_key(seq);
        if let Some(seq) =
            added.iter().find(|s| there(s)).or(added.windows(2).find(|w| w[0] == w[1]).map(|w| &w[0]))
        {
            return Err(format!("range tombstone {seq} is added but is there already"));
        }
        match edit.cleared.iter().find(|(id, _)| !is_table(*id)) {
            Some((id, _)) => Err(format!("range tombstones are applied to table {id}, which is not there")),
            None => Ok(()),
        }
    }

    /// Applies an edit that fits; `is_table` says which tables there are after it.
    pub fn apply(&mut self, edit: &RangeEdit, is_table: impl Fn(u64) -> bool) {
        for seq in &edit.removed {
            self.tombstones.remove(seq);
        }
        self.tombstones.extend(edit.added.iter().map(|t| (t.seq, t.clone())));
        self.cleared.extend(edit.cleared.iter().copied());
        if self.tombstones.is_empty() {
            self.cleared.clear();
        }
        self.cleared.retain(|id, _| is_table(*id));
    }

    /// The edit that makes this out of nothing.
    pub fn snapshot(&self) -> RangeEdit {
        RangeEdit {
            removed: vec![],
            added: self.tombstones.values().cloned().collect(),
            cleared: self.cleared.iter().map(|(id, seq)| (*id, *seq)).collect(),
        }
    }
}

/// The live range tombstones of a version.
#[derive(Debug, Default)]
pub(crate) struct RangeState {
    pub live: Live,
    pub set: Arc<RangeSet>,
    /// Every tombstone of this sequence number or a lower one is among them, or no table needs it.
    pub through: Seq,
}

impl RangeState {
    pub fn new(live: Live, through: Seq) -> RangeState {
        let set = Arc::new(RangeSet::new(live.tombstones.values().cloned().collect()));
        RangeState { live, set, through }
    }

    /// The state after an edit that fits, with everything flushed up to `through`.
    pub fn after(&self, edit: &RangeEdit, is_table: impl Fn(u64) -> bool, through: Seq) -> RangeState {
        let mut live = self.live.clone();
        live.apply(edit, is_table);
        if edit.added.is_empty() && edit.removed.is_empty() {
            return RangeState { live, set: Arc::clone(&self.set), through };
        }
        RangeState::new(live, through)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Whether a table, by its file id, its oldest sequence number and its ends, may hold an entry that `t` covers and
    /// that is older. What has taken the number 0 counts as older, whatever it was: hence [`Live::cleared`].
    pub fn needs(&self, t: &RangeTombstone, table: u64, min_seq: Seq, ends: (&[u8], &[u8])) -> bool {
        min_seq < t.seq
            && self.live.cleared.get(&table).is_none_or(|c| *c < t.seq)
            && t.overlaps(ends.0, ends.1)
    }
}
