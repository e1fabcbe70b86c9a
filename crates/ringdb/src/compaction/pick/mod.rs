//! What to compact next: pure functions on the tables' descriptions.
//!
//! Levels have dynamic targets ([`targets`]). The level most above its target goes first: level 0 into the base
//! level, any other into the next, starting from the table that overlaps least below it. A table that overlaps
//! nothing there is moved without being rewritten. When no level is above its target, tables that are worth it for
//! the space they hold (tombstones, what has expired, deleted ranges, dropped keyspaces) are rewritten, and many small
//! tables side by side become one. What is dear for what it brings waits until the store is quiet. Nothing is picked
//! that a running compaction reads, or whose output could overlap the output of a running one; nor a damaged table
//! ([`damage`]).

mod damage;
mod ingest;
mod level0;
mod manual;
mod reclaim;
mod targets;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::compaction_filter::registry::FilterMap;
use crate::key::Seq;
use crate::ranges::RangeState;
use crate::settings::SettingsMap;
use crate::table::meta::TableMeta;

pub(crate) use damage::{cuts, movable, runs};
pub(crate) use ingest::level_for;
pub(crate) use manual::{Manual, pick_manual};
pub(crate) use targets::{Targets, debt_bytes, targets};

/// Levels of the tree.
pub(crate) const LEVELS: usize = 7;
/// The last of them.
pub(crate) const LAST: usize = LEVELS - 1;

/// The sizes that decide.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Bytes of a full memtable, so about those of a level 0 table.
    pub memtable_bytes: u64,
    /// Runs of level 0 that start its compaction.
    pub level0_runs: usize,
    /// Largest ratio of the targets of neighbouring levels.
    pub fanout: u64,
    /// A compaction is not extended beyond so many input bytes.
    pub compaction_bytes: u64,
    /// How tables are written: some cannot be moved into the last level as they are.
    pub settings: Arc<SettingsMap>,
}

impl Shape {
    /// Whether a table can go to a level as it is.
    pub fn may_move(&self, m: &TableMeta, to: usize) -> bool {
        to != LAST || !self.settings.rewritten_into_last(m)
    }
}

/// Why something was picked. Counted in [`crate::Stats::compaction_reasons`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Level 0 has too many runs or bytes.
    Level0,
    /// Level 0 has too many runs and its way down is taken.
    WithinLevel0,
    /// The level is above its target.
    Size,
    /// Many tombstones that can go.
    Tombstones,
    /// Tables of which every entry has expired.
    Expired,
    /// Ranges that were deleted.
    RangeTombstones,
    /// Entries of a dropped keyspace.
    DroppedKeyspace,
    /// It reaches over the end of a damaged table's range.
    Damage,
    /// Many small tables side by side.
    SmallTables,
    /// Asked for.
    Manual,
}

impl Reason {
    /// All of them, in order.
    pub const ALL: [Reason; 10] = [
        Reason::Level0,
        Reason::WithinLevel0,
        Reason::Size,
        Reason::Tombstones,
        Reason::Expired,
        Reason::RangeTombstones,
        Reason::DroppedKeyspace,
        Reason::Damage,
        Reason::SmallTables,
        Reason::Manual,
    ];

    /// As the store's statistics name it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Level0 => "level 0",
            Reason::WithinLevel0 => "within level 0",
            Reason::Size => "size",
            Reason::Tombstones => "tombstones",
            Reason::Expired => "expired",
            Reason::RangeTombstones => "range tombstones",
            Reason::DroppedKeyspace => "dropped keyspace",
            Reason::Damage => "damage",
            Reason::SmallTables => "small tables",
            Reason::Manual => "manual",
        }
    }
}

/// Tables to merge.
#[derive(Debug)]
pub(crate) struct Merge<T> {
    /// By level, newest first within level 0, in key order elsewhere.
    pub inputs: Vec<(usize, Vec<Arc<T>>)>,
    /// Where the outputs go.
    pub output: usize,
    /// What is done does not depend on it.
    pub reason: Reason,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Pick<T> {
    /// Tables of which nobody can see anything any more, with their levels.
    Delete(Vec<(usize, Arc<T>)>, Reason),
    /// Tables that go to another level as they are.
    Move { from: usize, to: usize, tables: Vec<Arc<T>>, reason: Reason },
    /// Tables to merge.
    Merge(Merge<T>),
}

impl<T> Pick<T> {
    /// The tables it takes, with their levels.
    pub fn inputs(&self) -> Vec<(usize, &Arc<T>)> {
        match self {
            Pick::Delete(tables, _) => tables.iter().map(|(l, t)| (*l, t)).collect(),
            Pick::Move { from, tables, .. } => tables.iter().map(|t| (*from, t)).collect(),
            Pick::Merge(m) => m.inputs.iter().flat_map(|(l, ts)| ts.iter().map(move |t| (*l, t))).collect(),
        }
    }

    /// Why it was picked.
    pub fn reason(&self) -> Reason {
        match self {
            Pick::Delete(_, reason) => *reason,
            Pick::Move { reason, .. } => *reason,
            Pick::Merge(m) => m.reason,
        }
    }

    /// The level that gets tables.
    pub fn output(&self) -> Option<usize> {
        match self {
            Pick::Delete(..) => None,
            Pick::Move { to, .. } => Some(*to),
            Pick::Merge(m) => Some(m.output),
        }
    }

    /// The ranges, ends included, that the tables which the output level gets may cover.
    fn output_ranges(&self) -> Vec<(&[u8], &[u8])>
    where
        T: AsRef<TableMeta>,
    {
        match self {
            Pick::Delete(..) => vec![],
            Pick::Move { tables, .. } => tables.iter().filter_map(|t| span(std::iter::once(t))).collect(),
            Pick::Merge(_) => span(self.inputs().into_iter().map(|(_, t)| t)).into_iter().collect(),
        }
    }
}

/// What running compactions hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy {
    files: BTreeSet<u64>,
    outputs: Vec<(usize, Vec<u8>, Vec<u8>)>,
}

impl Busy {
    /// A compaction starts.
    pub fn add<T: AsRef<TableMeta>>(&mut self, pick: &Pick<T>) {
        self.files.extend(pick.inputs().into_iter().map(|(_, t)| meta(t).file_id));
        if let Some(level) = pick.output() {
            let ranges = pick.output_ranges();
            self.outputs.extend(ranges.into_iter().map(|(from, to)| (level, from.to_vec(), to.to_vec())));
        }
    }

    /// It has ended.
    pub fn remove<T: AsRef<TableMeta>>(&mut self, pick: &Pick<T>) {
        for (_, t) in pick.inputs() {
            self.files.remove(&meta(t).file_id);
        }
        for (from, to) in pick.output_ranges() {
            let same =
                |(l, f, t): &(usize, Vec<u8>, Vec<u8>)| Some(*l) == pick.output() && f == from && t == to;
            if let Some(i) = self.outputs.iter().position(same) {
                self.outputs.swap_remove(i);
            }
        }
    }

    /// Keeps compactions from beginning whose output overlaps a range, ends included, on any level.
    pub fn hold(&mut self, from: &[u8], to: &[u8]) {
        self.outputs.extend((0..LEVELS).map(|level| (level, from.to_vec(), to.to_vec())));
    }

    /// Ends what [`Busy::hold`] began.
    pub fn release(&mut self, from: &[u8], to: &[u8]) {
        for level in 0..LEVELS {
            let same =
                |(l, f, t): &(usize, Vec<u8>, Vec<u8>)| (*l, f.as_slice(), t.as_slice()) == (level, from, to);
            if let Some(i) = self.outputs.iter().position(same) {
                self.outputs.swap_remove(i);
            }
        }
    }

    /// With tables that nobody may take; `None` if there are none.
    fn and(&self, tables: &BTreeSet<u64>) -> Option<Busy> {
        let mut with = (!tables.is_empty()).then(|| self.clone())?;
        with.files.extend(tables);
        Some(with)
    }

    fn table<T: AsRef<TableMeta>>(&self, t: &Arc<T>) -> bool {
        self.files.contains(&meta(t).file_id)
    }

    fn output(&self, level: usize, from: &[u8], to: &[u8]) -> bool {
        self.outputs.iter().any(|(l, f, t)| *l == level && f.as_slice() <= to && from <= t.as_slice())
    }
}

/// What is known of the store besides its tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct PickContext {
    /// The oldest view that a reader may have.
    pub oldest_view: Seq,
    /// Ids of dropped keyspaces.
    pub dropped: Vec<u32>,
    /// Tables that cannot be read and stay where they are.
    pub damaged: BTreeSet<u64>,
    /// The range tombstones of the tables.
    pub ranges: Arc<RangeState>,
    /// Nothing was flushed for a while, or somebody waits until nothing is left to do.
    pub quiet: bool,
    /// Milliseconds since the Unix epoch: by this time values have expired.
    pub now: u64,
    /// The compaction filters, if somebody waits until they have passed everything.
    pub filters: Option<Arc<FilterMap>>,
    /// Everything is to be written anew.
    pub rewrite: bool,
    /// Tables with lower numbers have not passed the filters, or were not written anew.
    pub unpassed_below: u64,
}

impl PickContext {
    /// Whether a table may hold entries that a filter has to pass, or is to be written anew.
    fn unpassed(&self, m: &TableMeta) -> bool {
        let filtered = || self.filters.as_ref().is_some_and(|f| f.reach(&m.smallest, Some(&m.largest)));
        m.file_id < self.unpassed_below && (self.rewrite || filtered())
    }
}

/// The most useful thing to do, if anything is.
pub(crate) fn pick<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    shape: &Shape,
    busy: &Busy,
    context: &PickContext,
) -> Option<Pick<T>> {
    let (with_damaged, stuck) = (busy.and(&context.damaged), damage::ranges(levels, &context.damaged));
    let busy = with_damaged.as_ref().unwrap_or(busy);
    let delete = reclaim::delete(levels, busy, context)
        .or_else(|| reclaim::delete_ranges(levels, busy, context))
        .or_else(|| reclaim::delete_expired(levels, busy, context));
    if delete.is_some() {
        return delete;
    }
    let targets = targets(levels, shape);
    let mut scores = targets.scores(levels, shape, |t| busy.table(t));
    scores.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    for (score, level) in scores {
        if score < 1.0 {
            break;
        }
        let p = match level {
            0 if !stuck.is_empty() => damage::level0(levels, shape, busy, &targets, &stuck),
            0 => level0::pick(levels, shape, busy, targets.base),
            _ => pick_level(levels, shape, busy, level, &targets),
        };
        if p.is_some() {
            return p;
        }
    }
    let reclaim =
        reclaim::pick(levels, shape, busy, context).or_else(|| reclaim::ranges(levels, busy, context));
    if reclaim.is_some() || !stuck.is_empty() {
        // Between damaged tables small ones are what the cuts around those make, and would again.
        return reclaim;
    }
    level0::tombstones(levels, busy, context, targets.base, shape)
        .or_else(|| reclaim::small(levels, shape, busy))
}

/// From a level above its target into the next.
fn pick_level<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    shape: &Shape,
    busy: &Busy,
    level: usize,
    targets: &Targets,
) -> Option<Pick<T>> {
    let (tables, next) = (levels.get(level)?, levels.get(level + 1)?);
    let free = |t: &&Arc<T>| {
        !busy.table(t)
            && !busy.output(level + 1, &meta(t).smallest, &meta(t).largest)
            && !overlapping(next, meta(t)).iter().any(|n| busy.table(n))
    };
    let mut excess = bytes(tables).saturating_sub(targets.bytes[level]);
    let movable = tables.iter().filter(free).filter(|t| overlapping(next, meta(t)).is_empty());
    let movable = movable.filter(|t| shape.may_move(meta(t), level + 1));
    let moves: Vec<Arc<T>> = movable
        .take_while(|t| {
            let more = excess > 0;
            excess = excess.saturating_sub(meta(t).file_bytes);
            more
        })
        .cloned()
        .collect();
    if !moves.is_empty() {
        return Some(Pick::Move { from: level, to: level + 1, tables: moves, reason: Reason::Size });
    }
    let ratio = |t: &Arc<T>| bytes(overlapping(next, meta(t))) as f64 / meta(t).file_bytes.max(1) as f64;
    let candidates = tables.iter().enumerate().filter(|(_, t)| free(t));
    let (first, _) = candidates.min_by(|(_, a), (_, b)| ratio(a).total_cmp(&ratio(b)))?;
    Some(Pick::Merge(into_next(levels, shape, busy, level, first, Reason::Size)))
}

/// The merge of one table into the next level, with neighbours as long as they make it no dearer.
fn into_next<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    shape: &Shape,
    busy: &Busy,
    level: usize,
    first: usize,
    reason: Reason,
) -> Merge<T> {
    let (tables, next) = (&levels[level], &levels[level + 1]);
    let inputs_below = |from: usize, to: usize| {
        overlapping_range(next, &meta(&tables[from]).smallest, &meta(&tables[to]).largest)
    };
    let (mut from, mut to) = (first, first);
    loop {
        let (own, below) = (bytes(&tables[from..=to]), bytes(inputs_below(from, to)));
        let acceptable = |f: usize, t: usize| {
            let (new_own, new_below) = (bytes(&tables[f..=t]), bytes(inputs_below(f, t)));
            tables[f..=t].iter().chain(inputs_below(f, t)).all(|t| !busy.table(t))
                && !busy.output(level + 1, &meta(&tables[f]).smallest, &meta(&tables[t]).largest)
                && new_own + new_below <= shape.compaction_bytes
                && u128::from(new_below) * u128::from(own) <= u128::from(below) * u128::from(new_own)
        };
        if to + 1 < tables.len() && acceptable(from, to + 1) {
            to += 1;
        } else if from > 0 && acceptable(from - 1, to) {
            from -= 1;
        } else {
            break;
        }
    }
    let mut inputs = vec![(level, tables[from..=to].to_vec())];
    if !inputs_below(from, to).is_empty() {
        inputs.push((level + 1, inputs_below(from, to).to_vec()));
    }
    Merge { inputs, output: level + 1, reason }
}

#[inline]
fn meta<T: AsRef<TableMeta>>(t: &Arc<T>) -> &TableMeta {
    (**t).as_ref()
}

fn bytes<T: AsRef<TableMeta>>(tables: &[Arc<T>]) -> u64 {
    tables.iter().map(|t| meta(t).file_bytes).sum()
}

/// Smallest and largest key of some tables.
fn span<'a, T: AsRef<TableMeta> + 'a>(
    tables: impl Iterator<Item = &'a Arc<T>>,
) -> Option<(&'a [u8], &'a [u8])> {
    tables.fold(None, |span, t| {
        let (s, l) = (meta(t).smallest.as_slice(), meta(t).largest.as_slice());
        Some(span.map_or((s, l), |(a, b): (&[u8], &[u8])| (a.min(s), b.max(l))))
    })
}

/// The tables of a sorted level that overlap a range, ends included.
fn overlapping_range<'a, T: AsRef<TableMeta>>(level: &'a [Arc<T>], from: &[u8], to: &[u8]) -> &'a [Arc<T>] {
    let start = level.partition_point(|t| meta(t).largest.as_slice() < from);
    let rest = &level[start..];
    &rest[..rest.partition_point(|t| meta(t).smallest.as_slice() <= to)]
}

fn overlapping<'a, T: AsRef<TableMeta>>(level: &'a [Arc<T>], m: &TableMeta) -> &'a [Arc<T>] {
    overlapping_range(level, &m.smallest, &m.largest)
}

fn overlap(a: &TableMeta, b: &TableMeta) -> bool {
    a.smallest <= b.largest && b.smallest <= a.largest
}

#[cfg(test)]
mod tests;
