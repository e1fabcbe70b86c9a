//! Picking around damaged tables, which stay where they are.
//!
//! A damaged table is in everyone's way as one that is being compacted is, but for good. Nothing from above may go
//! below it, nothing may be merged with it, and whatever lies under it keeps its tombstones, since its range still
//! counts. So that only its own range is stuck, all outputs are cut at the ends of damaged ranges ([`cuts`]), and
//! tables of level 0 that reach over such an end are rewritten once ([`straddler`]). What then lies between the
//! damaged ranges (in a *gap*) goes on as ever, each gap for itself; what lies within one is merged in level 0 only.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Busy, Merge, Pick, Reason, Shape, Targets, level0 as zero, meta, overlap};
use crate::settings::SettingsMap;
use crate::table::meta::TableMeta;

/// Key ranges of damaged tables, ends included: ascending and disjoint.
pub(super) type Ranges = Vec<(Vec<u8>, Vec<u8>)>;

/// Where a table lies among damaged ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// Between them: behind so many.
    Gap(usize),
    /// Within one.
    Inside(usize),
    /// It overlaps one and reaches over its end.
    Across,
}

/// The ranges of the damaged tables.
pub(super) fn ranges<T: AsRef<TableMeta>>(levels: &[Vec<Arc<T>>], damaged: &BTreeSet<u64>) -> Ranges {
    if damaged.is_empty() {
        return Ranges::new();
    }
    let metas = levels.iter().flatten().map(meta).filter(|m| damaged.contains(&m.file_id));
    let mut all: Ranges = metas.map(|m| (m.smallest.clone(), m.largest.clone())).collect();
    all.sort();
    let mut merged = Ranges::new();
    for (from, to) in all {
        match merged.last_mut() {
            Some((_, end)) if *end >= from => *end = std::mem::take(end).max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// Where tables must end: before the first key of a damaged range (`false`), behind its last (`true`). Ascending. (Not
/// within one: what is merged into one there must stay one, or it would be merged for ever.)
pub(crate) fn cuts<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    damaged: &BTreeSet<u64>,
) -> Vec<(Vec<u8>, bool)> {
    ranges(levels, damaged).into_iter().flat_map(|(from, to)| [(from, false), (to, true)]).collect()
}

/// The tables that no damage keeps where they are.
pub(crate) fn movable<T: AsRef<TableMeta>>(
    mut levels: Vec<Vec<Arc<T>>>,
    damaged: &BTreeSet<u64>,
) -> Vec<Vec<Arc<T>>> {
    let ranges = ranges(&levels, damaged);
    if !ranges.is_empty() {
        for tables in &mut levels {
            tables.retain(|t| matches!(position_of(meta(t), &ranges), Position::Gap(_)));
        }
    }
    levels
}

/// How many runs lie above each other in level 0, of `levels` as [`movable`] leaves them. A flush is one run, although
/// the cuts make a table of it for each gap, and the settings one for each region.
pub(crate) fn runs<T: AsRef<TableMeta>>(
    all: &[Vec<Arc<T>>],
    movable: &[Vec<Arc<T>>],
    damaged: &BTreeSet<u64>,
    settings: &SettingsMap,
) -> usize {
    let ranges = ranges(all, damaged);
    let zero = movable.first().map(Vec::as_slice).unwrap_or_default();
    let mut in_gap = vec![Vec::new(); ranges.len() + 1];
    for t in zero {
        if let Position::Gap(gap) = position_of(meta(t), &ranges) {
            in_gap[gap].push(Arc::clone(t));
        }
    }
    in_gap.iter().map(|tables| above_each_other(tables, settings)).max().unwrap_or(0)
}

/// How many of these tables of level 0 lie in one region of the settings, at most.
pub(super) fn above_each_other<T: AsRef<TableMeta>>(tables: &[Arc<T>], settings: &SettingsMap) -> usize {
    if settings.regions() == 1 {
        return tables.len();
    }
    let mut in_region = vec![0; settings.regions()];
    for t in tables {
        let (first, last) = settings.regions_of(meta(t));
        in_region[first..=last].iter_mut().for_each(|n| *n += 1);
    }
    in_region.into_iter().max().unwrap_or(0)
}

pub(super) fn position_of(m: &TableMeta, ranges: &Ranges) -> Position {
    let before = ranges.partition_point(|(_, to)| *to < m.smallest);
    match ranges.get(before) {
        Some((from, to)) if *from <= m.largest => match *from <= m.smallest && m.largest <= *to {
            true => Position::Inside(before),
            false => Position::Across,
        },
        _ => Position::Gap(before),
    }
}

/// The levels with those tables of level 0 that lie in a gap and above nothing that is kept back.
pub(super) fn of_gap<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    ranges: &Ranges,
    gap: usize,
) -> Vec<Vec<Arc<T>>> {
    let mut levels = levels.to_vec();
    if let Some(zero) = levels.first_mut() {
        let mut kept_back: Vec<Arc<T>> = Vec::new();
        let mut taken = Vec::new();
        for t in zero.iter().rev() {
            let m = meta(t);
            let above = kept_back.iter().any(|older| overlap(meta(older), m));
            match position_of(m, ranges) {
                Position::Gap(g) if !above && g == gap => taken.push(Arc::clone(t)),
                Position::Gap(_) if !above => {}
                _ => kept_back.push(Arc::clone(t)),
            }
        }
        taken.reverse();
        *zero = taken;
    }
    levels
}

/// A table of level 0 that overlaps a damaged range and reaches over its end, to be rewritten in pieces.
pub(super) fn straddler<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    busy: &Busy,
    ranges: &Ranges,
) -> Option<Pick<T>> {
    let t = levels.first()?.iter().find(|t| {
        let m = meta(t);
        !busy.table(t)
            && !busy.output(0, &m.smallest, &m.largest)
            && position_of(m, ranges) == Position::Across
    })?;
    let inputs = vec![(0, vec![Arc::clone(t)])];
    Some(Pick::Merge(Merge { inputs, output: 0, reason: Reason::Damage }))
}

/// Level 0 around damage.
pub(super) fn level0<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    shape: &Shape,
    busy: &Busy,
    targets: &Targets,
    ranges: &Ranges,
) -> Option<Pick<T>> {
    let all = levels.first()?;
    if let Some(p) = straddler(levels, busy, ranges) {
        return Some(p);
    }
    for gap in 0..=ranges.len() {
        let view = of_gap(levels, ranges, gap);
        let scores = targets.scores(&view, shape, |t| busy.table(t));
        if scores.first().is_none_or(|(score, _)| *score < 1.0) {
            continue;
        }
        let p = zero::pick(&view, shape, busy, targets.base).filter(|p| keeps_order(p, all));
        if p.is_some() {
            return p;
        }
    }
    for (i, (from, to)) in ranges.iter().enumerate() {
        // Only what is newer than the damaged tables of this level.
        let within: Vec<Arc<T>> = all
            .iter()
            .take_while(|t| {
                let m = meta(t);
                !busy.table(t) || m.largest < *from || m.smallest > *to
            })
            .filter(|t| position_of(meta(t), ranges) == Position::Inside(i))
            .cloned()
            .collect();
        let p = zero::within(&within, shape, busy).filter(|p| keeps_order(p, all));
        if p.is_some() {
            return p;
        }
    }
    None
}

/// Whether a merge within level 0 leaves out nothing of an age in between that its output would cover.
fn keeps_order<T: AsRef<TableMeta>>(pick: &Pick<T>, zero: &[Arc<T>]) -> bool {
    let Pick::Merge(m) = pick else { return true };
    if m.output != 0 {
        return true;
    }
    let inputs: Vec<&Arc<T>> = pick.inputs().into_iter().map(|(_, t)| t).collect();
    let oldest = inputs.iter().map(|t| meta(t).max_seq).min().unwrap_or(0);
    let Some((from, to)) = super::span(inputs.iter().copied()) else { return true };
    let between = |t: &Arc<T>| {
        let m = meta(t);
        m.max_seq > oldest && m.smallest.as_slice() <= to && m.largest.as_slice() >= from
    };
    !zero.iter().any(|t| between(t) && !inputs.iter().any(|i| Arc::ptr_eq(i, t)))
}
