//! How much lies in a range of keys, told from what is in memory anyway: the memtables' trees, the tables' descriptions
//! and indexes. Nothing is read.

use super::view::View;
use crate::bounds::Bounds;
use crate::key::SEQ_MAX;
use crate::memtable::Memtable;
use crate::table::reader::Table;

/// What a range holds, about.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    /// Pairs: each tombstone of a table is taken to hide one put, and tables within deleted ranges to hold none.
    pub pairs: f64,
    /// Bytes in tables and memtables.
    pub bytes: f64,
}

impl Estimate {
    /// Of the internal keys within `bounds`.
    pub fn of(view: &View, bounds: &Bounds) -> Estimate {
        let mut all = Estimate::default();
        for m in view.memtables().filter(|m| !m.is_empty()) {
            let share = share_of_memtable(m, bounds);
            all.pairs += share * m.entries() as f64;
            all.bytes += share * m.bytes() as f64;
        }
        let ranges = view.ranges();
        for (_, table) in view.version.tables() {
            let meta = table.meta();
            let deleted_until = ranges.covered_until(&meta.smallest, SEQ_MAX, meta.max_seq);
            if deleted_until.is_some_and(|end| end > meta.largest.as_slice()) {
                continue;
            }
            if bounds.overlap(&meta.smallest, &meta.largest) {
                let share = share_of_table(table, bounds);
                all.pairs += share * (meta.entries as f64 - 2.0 * meta.tombstones as f64);
                all.bytes += share * meta.file_bytes as f64;
            }
        }
        all
    }
}

fn share_of_memtable(m: &Memtable, bounds: &Bounds) -> f64 {
    let end = bounds.upper.as_ref().map_or(1.0, |upper| m.share_before(upper));
    (end - m.share_before(&bounds.lower)).max(0.0)
}

/// By whole blocks: from the one where the range begins up to the one where it ends.
fn share_of_table(table: &Table, bounds: &Bounds) -> f64 {
    let meta = table.meta();
    let index = table.index();
    let offset = |block: Option<u32>| match block.filter(|b| *b < index.blocks()) {
        Some(block) => index.block_pos(block).offset,
        None => index.data_bytes(),
    };
    let from = if bounds.lower <= meta.smallest { 0 } else { offset(index.find_block(&bounds.lower)) };
    let to = match &bounds.upper {
        Some(upper) if *upper <= meta.largest => offset(index.find_block(upper)),
        _ => index.data_bytes(),
    };
    to.saturating_sub(from) as f64 / index.data_bytes().max(1) as f64
}
