//! A compaction of a range that was asked for: level by level down to the last one.

use std::sync::Arc;

use super::reclaim::{alone, has_deleted, touches_dropped};
use super::{
    Busy, LAST, LEVELS, Merge, Pick, PickContext, Reason, Shape, bytes, damage, meta, overlapping,
    overlapping_range, span, targets,
};
use crate::key::Seq;
use crate::table::meta::TableMeta;

/// The next step of a compaction of a range.
#[derive(Debug)]
pub(crate) enum Manual<T> {
    /// Do this, then ask again.
    Pick(Pick<T>),
    /// A running compaction is in the way: ask again when it has ended.
    Wait,
    /// All is in the last level.
    Done,
}

/// What must be done next so that everything between `from` and `to` (internal keys, ends included; `None`: no
/// end) that was written up to `seq` lies in the last level, without tombstones that no view needs, and has passed the
/// compaction filters that `context` has.
pub(crate) fn pick_manual<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    shape: &Shape,
    busy: &Busy,
    context: &PickContext,
    range: (&[u8], Option<&[u8]>),
    seq: Seq,
) -> Manual<T> {
    let Some(busy) = busy.and(&context.damaged) else {
        return step(levels, shape, busy, context, range, seq, &|_| true);
    };
    let stuck = damage::ranges(levels, &context.damaged);
    if let Some(p) = damage::straddler(levels, &busy, &stuck) {
        return Manual::Pick(p);
    }
    // Between the damaged ranges, one after the other; what lies within them stays.
    let mut all = Manual::Done;
    for gap in 0..=stuck.len() {
        let view = damage::of_gap(levels, &stuck, gap);
        let inside = |t: &Arc<T>| damage::position_of(meta(t), &stuck) == damage::Position::Gap(gap);
        match step(&view, shape, &busy, context, range, seq, &inside) {
            Manual::Done => {}
            Manual::Wait => all = Manual::Wait,
            pick => return pick,
        }
    }
    all
}

/// The same for the tables that `eligible` names.
fn step<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    shape: &Shape,
    busy: &Busy,
    context: &PickContext,
    range: (&[u8], Option<&[u8]>),
    seq: Seq,
    eligible: &dyn Fn(&Arc<T>) -> bool,
) -> Manual<T> {
    let inside = |m: &TableMeta| {
        m.largest.as_slice() >= range.0 && range.1.is_none_or(|to| m.smallest.as_slice() <= to)
    };
    let wanted = |t: &Arc<T>| inside(meta(t)) && meta(t).min_seq <= seq && eligible(t);
    for (level, tables) in levels.iter().enumerate().take(LAST) {
        let Some(first) = tables.iter().position(&wanted) else { continue };
        let step = match level {
            0 => level0(levels, shape, busy),
            _ => chunk(levels, shape, busy, context, (level, first), &wanted),
        };
        return step.map_or(Manual::Wait, Manual::Pick);
    }
    let last = levels.get(LAST).map(Vec::as_slice).unwrap_or_default();
    let worth = |t: &&Arc<T>| {
        let m = meta(t);
        let tombstones = m.has_dead_at(context.now) && m.max_seq <= context.oldest_view;
        wanted(t)
            && (touches_dropped(m, context) || tombstones || has_deleted(m, context) || context.unpassed(m))
    };
    match last.iter().find(worth) {
        None => Manual::Done,
        Some(t) if busy.table(t) || busy.output(LAST, &meta(t).smallest, &meta(t).largest) => Manual::Wait,
        Some(t) => Manual::Pick(alone(LAST, t, Reason::Manual)),
    }
}

/// All of level 0: its runs overlap.
fn level0<T: AsRef<TableMeta>>(levels: &[Vec<Arc<T>>], shape: &Shape, busy: &Busy) -> Option<Pick<T>> {
    let base = targets(levels, shape).base;
    let zero = levels.first()?;
    let (from, to) = span(zero.iter())?;
    let below = overlapping_range(levels.get(base)?, from, to);
    let (from, to) = span(zero.iter().chain(below))?;
    if zero.iter().chain(below).any(|t| busy.table(t)) || busy.output(base, from, to) {
        return None;
    }
    let mut inputs = vec![(0, zero.to_vec())];
    if !below.is_empty() {
        inputs.push((base, below.to_vec()));
    }
    Some(Pick::Merge(Merge { inputs, output: base, reason: Reason::Manual }))
}

/// The next tables of a level, as many as a compaction may have, into the next level that has tables.
fn chunk<T: AsRef<TableMeta>>(
    levels: &[Vec<Arc<T>>],
    shape: &Shape,
    busy: &Busy,
    context: &PickContext,
    (level, first): (usize, usize),
    wanted: &impl Fn(&Arc<T>) -> bool,
) -> Option<Pick<T>> {
    let output = (level + 1..LEVELS).find(|&l| levels.get(l).is_some_and(|t| !t.is_empty())).unwrap_or(LAST);
    let (tables, next) = (&levels[level], &levels[output]);
    let below =
        |to: usize| overlapping_range(next, &meta(&tables[first]).smallest, &meta(&tables[to]).largest);
    let mut to = first;
    while to + 1 < tables.len()
        && wanted(&tables[to + 1])
        && bytes(&tables[first..=to + 1]) + bytes(below(to + 1)) <= shape.compaction_bytes
    {
        to += 1;
    }
    let own = &tables[first..=to];
    let below = below(to);
    let (low, high) = span(own.iter().chain(below))?;
    // Between the two levels nothing may be under way either: it would end up above what is older.
    if own.iter().chain(below).any(|t| busy.table(t))
        || (level + 1..=output).any(|l| busy.output(l, low, high))
    {
        return None;
    }
    let as_it_is = |t: &Arc<T>| {
        let m = meta(t);
        !m.has_dead_at(context.now)
            && !context.unpassed(m)
            && overlapping(next, m).is_empty()
            && shape.may_move(m, output)
    };
    if own.iter().all(as_it_is) {
        let (tables, reason) = (own.to_vec(), Reason::Manual);
        return Some(Pick::Move { from: level, to: output, tables, reason });
    }
    let mut inputs = vec![(level, own.to_vec())];
    if !below.is_empty() {
        inputs.push((output, below.to_vec()));
    }
    Some(Pick::Merge(Merge { inputs, output, reason: Reason::Manual }))
}
