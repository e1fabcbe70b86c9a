//! Dynamic level sizes: targets follow from the largest level, so that the last level holds nearly all data.
//!
//! RocksDB's idea (level_compaction_dynamic_level_bytes), with a ratio of the levels that follows too: with a
//! batch B of level 0 and a largest level of S bytes, there are as many levels as keep the ratio of neighbours
//! at most `fanout`, and the ratio is the same everywhere, which is where the bytes written are least.

use std::sync::Arc;

use super::damage::above_each_other;
use super::{LAST, LEVELS, Shape, bytes};
use crate::table::meta::TableMeta;

/// Sizes that the levels should have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Targets {
    /// The level that level 0 is merged into.
    pub base: usize,
    /// Bytes by level; 0 for level 0 and for levels that should be empty.
    pub bytes: [u64; LEVELS],
}

/// The targets of a tree.
pub(crate) fn targets<T: AsRef<TableMeta>>(levels: &[Vec<Arc<T>>], shape: &Shape) -> Targets {
    let batch = shape.memtable_bytes * shape.level0_runs as u64;
    let largest = levels.iter().skip(1).map(|l| bytes(l)).max().unwrap_or(0);
    let ratio = largest as f64 / batch.max(1) as f64;
    let mut count = 1;
    while count < LAST && ratio > (shape.fanout as f64).powi(count as i32) {
        count += 1;
    }
    let step = ratio.powf(1.0 / count as f64).max(1.0);
    let mut targets = [0; LEVELS];
    for (i, target) in targets.iter_mut().rev().take(count).enumerate() {
        *target = ((largest.max(batch) as f64) / step.powi(i as i32)) as u64;
    }
    let wanted = LEVELS - count;
    // Levels above that still hold tables must stay reachable until they are drained.
    let first = (1..LEVELS).find(|&l| levels.get(l).is_some_and(|t| !t.is_empty())).unwrap_or(LAST);
    Targets { base: wanted.min(first), bytes: targets }
}

impl Targets {
    /// How far each level is above its target, counting only tables that are not being compacted.
    pub(super) fn scores<T: AsRef<TableMeta>>(
        &self,
        levels: &[Vec<Arc<T>>],
        shape: &Shape,
        busy: impl Fn(&Arc<T>) -> bool,
    ) -> Vec<(f64, usize)> {
        let score = |(level, tables): (usize, &Vec<Arc<T>>)| {
            let free: Vec<Arc<T>> = tables.iter().filter(|t| !busy(t)).cloned().collect();
            if level == 0 {
                let batch = shape.memtable_bytes * shape.level0_runs as u64;
                let by_bytes = bytes(&free) as f64 / batch.max(1) as f64;
                let runs = above_each_other(&free, &shape.settings);
                return (by_bytes.max(runs as f64 / shape.level0_runs.max(1) as f64), level);
            }
            // A level that should be empty is drained, but not before one that slows writers.
            let target = self.bytes[level].max(shape.memtable_bytes / 2).max(1);
            (bytes(&free) as f64 / target as f64, level)
        };
        levels.iter().enumerate().take(LAST).map(score).collect()
    }
}

/// Bytes that compactions have to move until every level is at its target.
pub(crate) fn debt_bytes<T: AsRef<TableMeta>>(levels: &[Vec<Arc<T>>], shape: &Shape) -> u64 {
    let targets = targets(levels, shape);
    let mut debt = 0;
    // What leaves a level arrives in the next and is merged there with its share of it.
    let mut arriving = match levels.first() {
        Some(zero) if above_each_other(zero, &shape.settings) >= shape.level0_runs => bytes(zero),
        _ => 0,
    };
    for level in 1..LEVELS {
        let here = levels.get(level).map_or(0, |l| bytes(l));
        if level < targets.base {
            continue;
        }
        if arriving > 0 {
            debt += arriving + here.min(arriving.saturating_mul(shape.fanout));
        }
        arriving = if level == LAST { 0 } else { (here + arriving).saturating_sub(targets.bytes[level]) };
        if here == 0 {
            arriving = 0;
        }
    }
    debt
}
