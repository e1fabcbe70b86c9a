//! Tables worth rewriting for the space that they hold.
//!
//! What has expired counts as tombstones, by what a table's description says of when its entries expire. A merge then
//! drops it or makes it a tombstone, so it is picked for that once.
//!
//! A range tombstone is applied to a table at most once: the outputs of a merge have it behind them, which the version
//! remembers ([`RangeState`](crate::ranges::RangeState)). It counts from when no view needs what it covers. So what is
//! picked for it makes progress, and comes to an end. To rewrite a table for one small range is dear. While the store
//! is busy, only tables are rewritten of which an end is covered: of a large range these are two in each level, between
//! tables that are dropped. The rest waits until nothing has been flushed for a while, or there are many tombstones.

use std::sync::Arc;

use super::{
    Busy, LAST, Merge, Pick, PickContext, Reason, Shape, bytes, into_next, meta, overlap, overlapping, span,
};
use crate::key::{self, Seq};
use crate::ranges::Ranges;
use crate::table::meta::TableMeta;

/// With so many live range tombstones those of small ranges do not wait.
const MANY: usize = 1024;
/// Small tables side by side that are rewritten as one: from so many on, and so many at most.
const SMALL_FROM: usize = 8;
const SMALL_MOST: usize = 64;

/// Tables that lie fully inside dropped keyspaces.
pub(super) fn delete<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    busy: &Busy,
    context: &PickContext,
) -> Option<Pick<T>> {
    if context.dropped.is_empty() {
        return None;
    }
    let inside = |t: &Arc<T>| {
        let id = |key: &[u8]| key::split(key).map(|(id, _)| id);
        let m = meta(t);
        matches!((id(&m.smallest), id(&m.largest)), (Some(a), Some(b)) if a == b && context.dropped.contains(&a))
    };
    let all = levels.iter().enumerate().flat_map(|(l, tables)| tables.iter().map(move |t| (l, t)));
    let gone: Vec<(usize, Arc<T>)> =
        all.filter(|(_, t)| !busy.table(t) && inside(t)).map(|(l, t)| (l, Arc::clone(t))).collect();
    (!gone.is_empty()).then_some(Pick::Delete(gone, Reason::DroppedKeyspace))
}

/// Tables of which every entry is a tombstone or has expired, in keys of which nothing older lies anywhere else. Each
/// hides what is older, so the others have to be merged down.
pub(super) fn delete_expired<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    busy: &Busy,
    context: &PickContext,
) -> Option<Pick<T>> {
    let mut gone: Vec<(usize, Arc<T>)> = Vec::new();
    for (level, tables) in levels.iter().enumerate() {
        for (i, t) in tables.iter().enumerate() {
            let m = meta(t);
            // What is younger than a view may be what a transaction has to hear of.
            let dead = m.expiry.is_some_and(|e| context.now >= e.last)
                && m.dead_at(context.now) == m.entries
                && m.max_seq <= context.oldest_view;
            if !dead || busy.table(t) {
                continue;
            }
            let older_runs = if level == 0 { &tables[i + 1..] } else { &[] };
            let deeper = levels.iter().skip(level + 1);
            let alone = older_runs.iter().all(|o| !overlap(meta(o), m))
                && deeper.into_iter().all(|l| overlapping(l, m).is_empty());
            if alone {
                gone.push((level, Arc::clone(t)));
            }
        }
    }
    (!gone.is_empty()).then_some(Pick::Delete(gone, Reason::Expired))
}

/// One table with many tombstones that no view needs, or with an end in a dropped keyspace.
pub(super) fn pick<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    shape: &Shape,
    busy: &Busy,
    context: &PickContext,
) -> Option<Pick<T>> {
    for (level, tables) in levels.iter().enumerate().skip(1) {
        for (i, t) in tables.iter().enumerate() {
            let m = meta(t);
            if busy.table(t) || busy.output(level, &m.smallest, &m.largest) {
                continue;
            }
            if touches_dropped(m, context) {
                return Some(alone(level, t, Reason::DroppedKeyspace));
            }
            if m.max_seq > context.oldest_view {
                continue;
            }
            let dead = m.dead_at(context.now);
            if level == LAST {
                // Nothing is below: all of its tombstones go.
                if dead > 0 && dead.saturating_mul(10) >= m.entries {
                    return Some(alone(level, t, Reason::Tombstones));
                }
            // Of what expires no more than half is told before all has: that half is enough.
            } else if dead.saturating_mul(2) >= m.entries.saturating_add(u64::from(dead == m.tombstones)) {
                let below = overlapping(&levels[level + 1], m);
                if below.iter().any(|b| busy.table(b)) || busy.output(level + 1, &m.smallest, &m.largest) {
                    continue;
                }
                if below.is_empty() && shape.may_move(m, level + 1) {
                    let (tables, reason) = (vec![Arc::clone(t)], Reason::Tombstones);
                    return Some(Pick::Move { from: level, to: level + 1, tables, reason });
                }
                return Some(Pick::Merge(into_next(levels, shape, busy, level, i, Reason::Tombstones)));
            }
        }
    }
    None
}

/// Small tables side by side in one level, as a store gets that is opened for a few writes again and again: its
/// tables are moved down as they are. They are rewritten as one when the largest is at most half of them all, so an
/// entry is rewritten for each doubling at most.
pub(super) fn small<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    shape: &Shape,
    busy: &Busy,
) -> Option<Pick<T>> {
    let is_small = |t: &Arc<T>| meta(t).file_bytes <= shape.memtable_bytes / 8 && !busy.table(t);
    // The others would be cut again where they are now.
    let region = |t: &Arc<T>| {
        let (first, last) = shape.settings.regions_of(meta(t));
        (first == last).then_some(first)
    };
    for (level, tables) in levels.iter().enumerate().skip(1) {
        let mut from = 0;
        while from < tables.len() {
            let alike =
                |t: &&Arc<T>| is_small(t) && region(t).is_some() && region(t) == region(&tables[from]);
            let run = &tables[from..from + tables[from..].iter().take_while(alike).take(SMALL_MOST).count()];
            from += run.len().max(1);
            let largest = run.iter().map(|t| meta(t).file_bytes).max().unwrap_or(0);
            let Some((first, last)) = span(run.iter()) else { continue };
            if run.len() >= SMALL_FROM
                && largest <= bytes(run) / 2
                && bytes(run) <= shape.compaction_bytes
                && !busy.output(level, first, last)
            {
                let inputs = vec![(level, run.to_vec())];
                return Some(Pick::Merge(Merge { inputs, output: level, reason: Reason::SmallTables }));
            }
        }
    }
    None
}

/// Whether an end of the table lies in a dropped keyspace. (Only the ends: they are gone once it is rewritten,
/// so this comes to an end.)
pub(super) fn touches_dropped(m: &TableMeta, context: &PickContext) -> bool {
    let gone = |key: &[u8]| key::split(key).is_some_and(|(id, _)| context.dropped.contains(&id));
    !context.dropped.is_empty() && (gone(&m.smallest) || gone(&m.largest))
}

/// A table rewritten where it is.
pub(super) fn alone<T>(level: usize, t: &Arc<T>, reason: Reason) -> Pick<T> {
    Pick::Merge(Merge { inputs: vec![(level, vec![Arc::clone(t)])], output: level, reason })
}

/// The range tombstones of a version, as the picker asks for them.
struct Asked<'c> {
    ranges: Ranges,
    context: &'c PickContext,
}

impl Asked<'_> {
    fn new(context: &PickContext) -> Option<Asked<'_>> {
        if context.ranges.is_empty() {
            return None;
        }
        let mut ranges = Ranges::default();
        ranges.push(&context.ranges.set);
        Some(Asked { ranges, context })
    }

    /// Whether all of a table is deleted, for every view.
    fn covers(&self, m: &TableMeta) -> bool {
        let end = self.ranges.covered_until(&m.smallest, self.context.oldest_view, m.max_seq);
        end.is_some_and(|end| end > m.largest.as_slice())
    }

    /// Older tombstones than this have nothing to do with a table.
    fn settled(&self, m: &TableMeta) -> Seq {
        let cleared = self.context.ranges.live.cleared.get(&m.file_id).copied().unwrap_or(0);
        m.min_seq.max(cleared)
    }

    /// Whether a table may hold entries that are deleted for every view.
    fn asks_for(&self, m: &TableMeta) -> bool {
        let behind = [m.largest.as_slice(), &[0]].concat();
        let newest = self.ranges.newest_within(&m.smallest, Some(&behind), self.context.oldest_view);
        newest > self.settled(m)
    }

    /// Whether such entries may be at an end of the table.
    fn covers_end(&self, m: &TableMeta) -> bool {
        let newest = |key: &[u8]| self.ranges.newest(key, self.context.oldest_view);
        newest(&m.smallest).max(newest(&m.largest)) > self.settled(m)
    }
}

/// Tables that lie fully inside deleted ranges.
pub(super) fn delete_ranges<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    busy: &Busy,
    context: &PickContext,
) -> Option<Pick<T>> {
    let asked = Asked::new(context)?;
    let all = levels.iter().enumerate().flat_map(|(l, tables)| tables.iter().map(move |t| (l, t)));
    let gone: Vec<(usize, Arc<T>)> = all
        .filter(|(_, t)| !busy.table(t) && asked.covers(meta(t)))
        .map(|(l, t)| (l, Arc::clone(t)))
        .collect();
    (!gone.is_empty()).then_some(Pick::Delete(gone, Reason::RangeTombstones))
}

/// A table to be rewritten where it is, without what tombstones cover.
pub(super) fn ranges<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    busy: &Busy,
    context: &PickContext,
) -> Option<Pick<T>> {
    let asked = Asked::new(context)?;
    let all_of_them = context.quiet || context.ranges.set.len() >= MANY;
    for (level, tables) in levels.iter().enumerate() {
        for t in tables {
            let m = meta(t);
            let wanted = asked.asks_for(m) && (all_of_them || (level > 0 && asked.covers_end(m)));
            if wanted && !busy.table(t) && !busy.output(level, &m.smallest, &m.largest) {
                return Some(alone(level, t, Reason::RangeTombstones));
            }
        }
    }
    None
}

/// Whether a table may hold entries that range tombstones have deleted for every view.
pub(super) fn has_deleted(m: &TableMeta, context: &PickContext) -> bool {
    Asked::new(context).is_some_and(|asked| asked.asks_for(m))
}
