//! [`Version`]: the tables of the store at one moment, immutable and shared.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ManifestState, VersionEdit};
use crate::error::{Error, Result};
use crate::key::Seq;
use crate::mutation::{Mutation, broken};
use crate::ranges::{RangeEdit, RangeState, RangeTombstone};
use crate::table::meta::TableMeta;

/// Levels of the tree.
pub(crate) const LEVELS: usize = 7;

/// The tables of the store at one moment. `T` is an open table, or in tests a description of one.
pub(crate) struct Version<T> {
    /// Level 0 newest first; the others by smallest key, disjoint.
    levels: Vec<Vec<Arc<T>>>,
    /// The range tombstones that these tables need.
    ranges: Arc<RangeState>,
}

impl<T: AsRef<TableMeta>> Version<T> {
    /// Without tables.
    pub fn empty() -> Version<T> {
        Version { levels: (0..LEVELS).map(|_| vec![]).collect(), ranges: Arc::default() }
    }

    /// The tables of a state, each made by `open` from its level and description.
    pub fn build(
        state: &ManifestState,
        mut open: impl FnMut(u32, &TableMeta) -> Result<Arc<T>>,
    ) -> Result<Version<T>> {
        let edit = VersionEdit {
            added: state.tables.values().cloned().collect(),
            flushed_seq: Some(state.flushed_seq),
            ranges: state.ranges.snapshot(),
            ..VersionEdit::default()
        };
        Version::empty().apply(&edit, &mut open)
    }

    /// The version after `edit`. Added tables are made by `open`, except those that the edit only moves to
    /// another level. [`Error::Invalid`] if the edit does not fit: a removed table is not there, an added one
    /// is there already, or two tables of one level overlap (above level 0).
    pub fn apply(
        &self,
        edit: &VersionEdit,
        mut open: impl FnMut(u32, &TableMeta) -> Result<Arc<T>>,
    ) -> Result<Version<T>> {
        let mut levels = self.levels.clone();
        let mut touched = [false; LEVELS];
        let mut moved = vec![];
        for &(level, id) in &edit.removed {
            let tables = level_mut(&mut levels, level)?;
            let at = tables
                .iter()
                .position(|t| t.as_ref().as_ref().file_id == id)
                .ok_or_else(|| Error::Invalid(format!("table {id} of level {level} is not there")))?;
            moved.push(tables.remove(at));
            touched[level as usize] = true;
        }
        for (level, meta) in &edit.added {
            let id = meta.file_id;
            if levels.iter().flatten().any(|t| t.as_ref().as_ref().file_id == id) {
                return Err(Error::Invalid(format!("table {id} is added but is there already")));
            }
            let tables = level_mut(&mut levels, *level)?;
            let table = match moved.iter().position(|t| t.as_ref().as_ref() == meta) {
                Some(i) => moved.swap_remove(i),
                None => open(*level, meta)?,
            };
            tables.push(table);
            touched[*level as usize] = true;
        }
        for (i, tables) in levels.iter_mut().enumerate() {
            if touched[i] {
                arrange(i, tables)?;
            }
        }
        let ids: BTreeSet<u64> = match self.ranges.is_empty() && edit.ranges == RangeEdit::default() {
            true => BTreeSet::new(),
            false => levels.iter().flatten().map(|t| t.as_ref().as_ref().file_id).collect(),
        };
        let is_table = |id| ids.contains(&id);
        self.ranges.live.check(&edit.ranges, is_table).map_err(Error::Invalid)?;
        let through = self.ranges.through.max(edit.flushed_seq.unwrap_or(0));
        let ranges = Arc::new(self.ranges.after(&edit.ranges, is_table, through));
        Ok(Version { levels, ranges })
    }

    /// The range tombstones.
    pub fn ranges(&self) -> &Arc<RangeState> {
        &self.ranges
    }

    /// Those of the live range tombstones that none of these tables needs.
    pub fn dead_ranges(&self) -> Vec<Seq> {
        let live = self.ranges.live.tombstones.values();
        live.filter(|t| !self.needs(t) || broken(Mutation::DropRangesEarly)).map(|t| t.seq).collect()
    }

    /// Whether a table may hold an entry that `t` covers and that is older.
    fn needs(&self, t: &RangeTombstone) -> bool {
        let meta = |table: &Arc<T>| -> bool {
            let m: &TableMeta = table.as_ref().as_ref();
            self.ranges.needs(t, m.file_id, m.min_seq, (&m.smallest, &m.largest))
        };
        self.levels.iter().enumerate().any(|(level, tables)| {
            let from = match level {
                0 => 0,
                _ => tables.partition_point(|t2| *t2.as_ref().as_ref().largest < *t.start),
            };
            let inside = |t2: &&Arc<T>| level == 0 || *t2.as_ref().as_ref().smallest < *t.end;
            tables[from..].iter().take_while(inside).any(meta)
        })
    }

    /// These levels, whether they are in order or not.
    #[cfg(test)]
    pub fn unchecked(levels: Vec<Vec<Arc<T>>>) -> Version<T> {
        Version { levels, ranges: Arc::default() }
    }

    /// All levels: level 0 newest first, the others by smallest key.
    pub fn levels(&self) -> &[Vec<Arc<T>>] {
        &self.levels
    }

    /// Every table with its level.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Arc<T>)> {
        self.levels.iter().enumerate().flat_map(|(i, l)| l.iter().map(move |t| (i, t)))
    }
}

fn level_mut<T>(levels: &mut [Vec<Arc<T>>], level: u32) -> Result<&mut Vec<Arc<T>>> {
    levels.get_mut(level as usize).ok_or_else(|| Error::Invalid(format!("there is no level {level}")))
}

/// Sorts a level and checks that its tables are disjoint.
fn arrange<T: AsRef<TableMeta>>(level: usize, tables: &mut [Arc<T>]) -> Result<()> {
    let meta = |t: &Arc<T>| -> (u64, u64) {
        let m = t.as_ref().as_ref();
        (m.max_seq, m.file_id)
    };
    if level == 0 {
        tables.sort_by_key(|t| std::cmp::Reverse(meta(t)));
        return Ok(());
    }
    tables.sort_by(|a, b| a.as_ref().as_ref().smallest.cmp(&b.as_ref().as_ref().smallest));
    for pair in tables.windows(2) {
        let (a, b) = (pair[0].as_ref().as_ref(), pair[1].as_ref().as_ref());
        if a.largest >= b.smallest {
            return Err(Error::Invalid(format!(
                "tables {} and {} of level {level} overlap",
                a.file_id, b.file_id
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::edit::tests::meta;
    use super::*;

    struct Named(TableMeta);

    impl AsRef<TableMeta> for Named {
        fn as_ref(&self) -> &TableMeta {
            &self.0
        }
    }

    fn open(_: u32, m: &TableMeta) -> Result<Arc<Named>> {
        Ok(Arc::new(Named(m.clone())))
    }

    fn version(added: Vec<(u32, TableMeta)>) -> Version<Named> {
        Version::empty().apply(&VersionEdit { added, ..VersionEdit::default() }, open).unwrap()
    }

    fn ids(tables: &[Arc<Named>]) -> Vec<u64> {
        tables.iter().map(|t| t.0.file_id).collect()
    }

    #[test]
    fn levels_are_ordered() {
        let v = version(vec![
            (0, meta(3, "a", "z")),
            (0, meta(9, "b", "c")),
            (0, meta(5, "m", "n")),
            (1, meta(7, "k", "m")),
            (1, meta(6, "c", "f")),
            (1, meta(8, "x", "z")),
        ]);
        assert_eq!(ids(&v.levels()[0]), [9, 5, 3], "newest first");
        assert_eq!(ids(&v.levels()[1]), [6, 7, 8]);
        assert_eq!(v.tables().count(), 6);
    }

    #[test]
    fn a_moved_table_is_the_same_one() {
        let v = version(vec![(1, meta(6, "c", "f"))]);
        let edit = VersionEdit {
            removed: vec![(1, 6)],
            added: vec![(2, meta(6, "c", "f"))],
            ..VersionEdit::default()
        };
        let w = v.apply(&edit, |_, _| Err(Error::Closed)).unwrap();
        assert!(Arc::ptr_eq(&v.levels()[1][0], &w.levels()[2][0]));
        assert!(w.levels()[1].is_empty());
    }

    #[test]
    fn edits_that_do_not_fit_are_refused() {
        let v = version(vec![(1, meta(6, "c", "f"))]);
        for edit in [
            VersionEdit { removed: vec![(2, 6)], ..VersionEdit::default() },
            VersionEdit { removed: vec![(9, 6)], ..VersionEdit::default() },
            VersionEdit { added: vec![(9, meta(7, "x", "y"))], ..VersionEdit::default() },
            VersionEdit { added: vec![(2, meta(6, "c", "f"))], ..VersionEdit::default() },
            VersionEdit { added: vec![(1, meta(7, "f", "g"))], ..VersionEdit::default() },
            VersionEdit { added: vec![(1, meta(7, "a", "z"))], ..VersionEdit::default() },
        ] {
            assert!(matches!(v.apply(&edit, open), Err(Error::Invalid(_))), "{edit:?}");
        }
    }
}
