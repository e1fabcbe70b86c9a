//! Level 0: whole runs, newest first, that may overlap each other.

use std::sync::Arc;

use super::damage::above_each_other;
use super::{
    Busy, Merge, Pick, PickContext, Reason, Shape, bytes, meta, overlap, overlapping, overlapping_range, span,
};
use crate::table::meta::TableMeta;

/// Runs from which the newest of level 0 are merged among themselves while its way down is taken, as multiples of
/// the trigger.
const WITHIN_FROM: usize = 2;

/// Tombstones in one table that make a scan slow. Fewer are not worth a compaction of their own.
const MANY_TOMBSTONES: u64 = 1024;

/// Level 0 into the base level; while that is not possible and runs pile up, some runs into one.
pub(super) fn pick<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    shape: &Shape,
    busy: &Busy,
    base: usize,
) -> Option<Pick<T>> {
    moves(levels, shape, busy, base, Reason::Level0)
        .or_else(|| down(levels, shape, busy, base, Reason::Level0))
        .or_else(|| within(levels.first()?, shape, busy))
}

/// Level 0 into the base level, once the store is quiet, for the sake of a table of which a large share is tombstones
/// that no view needs: where they lie many in a row, a scan has to step over all of them. Each time some tables leave
/// the level, so it comes to an end.
pub(super) fn tombstones<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    busy: &Busy,
    context: &PickContext,
    base: usize,
    shape: &Shape,
) -> Option<Pick<T>> {
    let many = |t: &Arc<T>| {
        let m = meta(t);
        let dead = m.dead_at(context.now);
        m.max_seq <= context.oldest_view
            && (dead >= MANY_TOMBSTONES || dead > m.tombstones)
            && dead.saturating_mul(4) >= m.entries
    };
    if !context.quiet || !levels.first()?.iter().any(many) {
        return None;
    }
    let reason = Reason::Tombstones;
    moves(levels, shape, busy, base, reason).or_else(|| down(levels, shape, busy, base, reason))
}

/// Tables that overlap neither an older run nor the base level.
fn moves<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    shape: &Shape,
    busy: &Busy,
    base: usize,
    reason: Reason,
) -> Option<Pick<T>> {
    let (zero, below) = (levels.first()?, levels.get(base)?);
    let movable = |i: usize| {
        let m = meta(&zero[i]);
        shape.may_move(m, base)
            && !busy.table(&zero[i])
            && !busy.output(base, &m.smallest, &m.largest)
            && overlapping(below, m).is_empty()
            && !zero[i + 1..].iter().any(|older| overlap(meta(older), m))
    };
    let tables: Vec<Arc<T>> = (0..zero.len()).filter(|&i| movable(i)).map(|i| Arc::clone(&zero[i])).collect();
    (!tables.is_empty()).then_some(Pick::Move { from: 0, to: base, tables, reason })
}

/// The oldest runs, as many as a compaction may have, with what they overlap in the base level.
fn down<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    shape: &Shape,
    busy: &Busy,
    base: usize,
    reason: Reason,
) -> Option<Pick<T>> {
    let (zero, below) = (levels.first()?, levels.get(base)?);
    let mut size = 0;
    let taken = zero.iter().rev().take_while(|t| {
        let fits = size == 0 || size + meta(t).file_bytes <= shape.compaction_bytes;
        size += meta(t).file_bytes;
        fits
    });
    let runs = &zero[zero.len() - taken.count()..];
    let (from, to) = span(runs.iter())?;
    let below = overlapping_range(below, from, to);
    let (from, to) = span(runs.iter().chain(below))?;
    if runs.iter().chain(below).any(|t| busy.table(t)) || busy.output(base, from, to) {
        return None;
    }
    let mut inputs = vec![(0, runs.to_vec())];
    if !below.is_empty() {
        inputs.push((base, below.to_vec()));
    }
    Some(Pick::Merge(Merge { inputs, output: base, reason }))
}

/// The newest runs into one, so that reads and writers do not suffer while the way down is taken.
pub(super) fn within<T: AsRef<TableMeta>>(zero: &[Arc<T>], shape: &Shape, busy: &Busy) -> Option<Pick<T>> {
    // Tables of one region: those of several become as many again.
    let count = |tables: &[Arc<T>]| above_each_other(tables, &shape.settings);
    if count(zero) < shape.level0_runs * WITHIN_FROM {
        return None;
    }
    let free = &zero[..zero.iter().take_while(|t| !busy.table(t)).count()];
    let (from, to) = span(free.iter())?;
    if count(free) < shape.level0_runs || busy.output(0, from, to) {
        return None;
    }
    // A run that is much larger than the others has been merged before: leave it alone.
    let most = 4 * bytes(free) / free.len() as u64;
    let runs = &free[..free.iter().take_while(|t| meta(t).file_bytes <= most).count()];
    if count(runs) < shape.level0_runs || bytes(runs) > shape.compaction_bytes {
        return None;
    }
    Some(Pick::Merge(Merge { inputs: vec![(0, runs.to_vec())], output: 0, reason: Reason::WithinLevel0 }))
}
