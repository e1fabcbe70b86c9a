//! Where a table goes that comes from outside, newer than everything that lies in its range.

use std::sync::Arc;

use super::{Busy, meta, overlap, overlapping};
use crate::table::meta::TableMeta;

/// The deepest level that takes a table: neither there nor above lies anything in its range, and no running compaction
/// writes there. (Deeper than such a compaction it may go: nothing of it has keys in the range.) Level 0 takes any.
pub(crate) fn level_for<T: AsRef<TableMeta>>(levels: &[Vec<Arc<T>>], busy: &Busy, m: &TableMeta) -> usize {
    let mut deepest = 0;
    for (level, tables) in levels.iter().enumerate() {
        let meets = match level {
            0 => tables.iter().any(|t| overlap(meta(t), m)),
            _ => !overlapping(tables, m).is_empty(),
        };
        if meets {
            break;
        }
        if !busy.output(level, &m.smallest, &m.largest) {
            deepest = level;
        }
    }
    deepest
}
