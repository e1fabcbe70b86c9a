//! Tables worth rewriting for the space that they hold.

use std::sync::Arc;

use super::{Busy, LAST, Merge, Pick, PickContext, Reason, Shape, bytes, into_next, meta, overlapping, span};
use crate::key;
use crate::table::meta::TableMeta;

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
    (!gone.is_empty()).then_some(Pick::Delete(gone))
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
            if level == LAST {
                // Nothing is below: all of its tombstones go.
                if m.tombstones > 0 && m.tombstones.saturating_mul(10) >= m.entries {
                    return Some(alone(level, t, Reason::Tombstones));
                }
            } else if m.tombstones.saturating_mul(2) > m.entries {
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
