//! [`Version`]: the tables of the store at one moment, immutable and shared.

use std::sync::Arc;

use super::{ManifestState, VersionEdit};
use crate::cursor::key_head;
use crate::error::{Error, Result};
use crate::table::meta::TableMeta;

/// Levels of the tree.
pub(crate) const LEVELS: usize = 7;

/// The tables of the store at one moment. `T` is an open table, or in tests a description of one.
pub(crate) struct Version<T> {
    /// Level 0 newest first; the others by smallest key, disjoint.
    levels: Vec<Vec<Arc<T>>>,
    search: Vec<Search>,
}

/// Where a key lies in a level: heads of the tables' largest keys behind what all keys of the level begin with.
#[derive(Default)]
struct Search {
    prefix: Vec<u8>,
    heads: Vec<u64>,
}

impl<T: AsRef<TableMeta>> Version<T> {
    /// Without tables.
    pub fn empty() -> Version<T> {
        let search = (0..LEVELS).map(|_| Search::default()).collect();
        Version { levels: (0..LEVELS).map(|_| vec![]).collect(), search }
    }

    /// The tables of a state, each made by `open` from its level and description.
    pub fn build(
        state: &ManifestState,
        mut open: impl FnMut(u32, &TableMeta) -> Result<Arc<T>>,
    ) -> Result<Version<T>> {
        let added = state.tables.values().cloned().collect();
        Version::empty().apply(&VersionEdit { added, ..VersionEdit::default() }, &mut open)
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
        let mut search = vec![];
        for (i, tables) in levels.iter_mut().enumerate() {
            if touched[i] {
                arrange(i, tables)?;
            }
            search.push(if i == 0 { Search::default() } else { Search::new(tables) });
        }
        Ok(Version { levels, search })
    }

    /// All levels: level 0 newest first, the others by smallest key.
    pub fn levels(&self) -> &[Vec<Arc<T>>] {
        &self.levels
    }

    /// One level; empty if there is no such level.
    pub fn level(&self, level: usize) -> &[Arc<T>] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    /// Every table with its level.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Arc<T>)> {
        self.levels.iter().enumerate().flat_map(|(i, l)| l.iter().map(move |t| (i, t)))
    }

    /// Whether there is no table.
    pub fn is_empty(&self) -> bool {
        self.levels.iter().all(Vec::is_empty)
    }

    /// Bytes of a level's files.
    pub fn level_bytes(&self, level: usize) -> u64 {
        self.level(level).iter().map(|t| t.as_ref().as_ref().file_bytes).sum()
    }

    /// The index of the first table of a level above 0 whose largest key is `key` or above: the only one that
    /// may hold `key`, and where a seek begins. The number of tables if there is none.
    #[inline]
    pub fn lower_bound(&self, level: usize, key: &[u8]) -> usize {
        match self.search.get(level) {
            Some(s) => s.lower_bound(self.level(level), key),
            None => 0,
        }
    }

    /// The table of a level above 0 that may hold `key`.
    #[inline]
    pub fn find(&self, level: usize, key: &[u8]) -> Option<&Arc<T>> {
        let t = self.level(level).get(self.lower_bound(level, key))?;
        (t.as_ref().as_ref().smallest.as_slice() <= key).then_some(t)
    }

    /// The tables of a level above 0 that overlap the keys from `from` up to and including `to`; without `to`,
    /// all from `from` on.
    pub fn range(&self, level: usize, from: &[u8], to: Option<&[u8]>) -> &[Arc<T>] {
        let tail = &self.level(level)[self.lower_bound(level, from)..];
        let n = to
            .map_or(tail.len(), |to| tail.partition_point(|t| t.as_ref().as_ref().smallest.as_slice() <= to));
        &tail[..n]
    }

    /// The tables of any level that overlap the keys from `from` up to and including `to`, in their order.
    pub fn overlapping(&self, level: usize, from: &[u8], to: &[u8]) -> Vec<Arc<T>> {
        self.level(level).iter().filter(|t| t.as_ref().as_ref().overlaps(from, to)).cloned().collect()
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

impl Search {
    fn new<T: AsRef<TableMeta>>(tables: &[Arc<T>]) -> Search {
        let (Some(first), Some(last)) = (tables.first(), tables.last()) else { return Search::default() };
        // The level is sorted: what its first and last key share, all of them do.
        let (a, b) = (&first.as_ref().as_ref().smallest, &last.as_ref().as_ref().largest);
        let shared = a.iter().zip(b).take_while(|(x, y)| x == y).count();
        let heads = tables.iter().map(|t| key_head(&t.as_ref().as_ref().largest, shared)).collect();
        Search { prefix: a[..shared].to_vec(), heads }
    }

    #[inline]
    fn lower_bound<T: AsRef<TableMeta>>(&self, tables: &[Arc<T>], key: &[u8]) -> usize {
        if !key.starts_with(&self.prefix) {
            return if key < self.prefix.as_slice() { 0 } else { tables.len() };
        }
        let head = key_head(key, self.prefix.len());
        let mut i = self.heads.partition_point(|&h| h < head);
        // Equal heads decide nothing.
        while self.heads.get(i) == Some(&head)
            && tables.get(i).is_some_and(|t| t.as_ref().as_ref().largest.as_slice() < key)
        {
            i += 1;
        }
        i
    }
}

#[cfg(test)]
mod tests {
    use super::super::edit::tests::meta;
    use super::*;
    use proptest::prelude::*;

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
    fn levels_are_ordered_and_tables_found() {
        let v = version(vec![
            (0, meta(3, "a", "z")),
            (0, meta(9, "b", "c")),
            (0, meta(5, "m", "n")),
            (1, meta(7, "k", "m")),
            (1, meta(6, "c", "f")),
            (1, meta(8, "x", "z")),
        ]);
        assert_eq!(ids(v.level(0)), [9, 5, 3], "newest first");
        assert_eq!(ids(v.level(1)), [6, 7, 8]);
        let find = |k: &str| v.find(1, k.as_bytes()).map(|t| t.0.file_id);
        assert_eq!([find("b"), find("c"), find("f"), find("g")], [None, Some(6), Some(6), None]);
        assert_eq!([find("l"), find("z"), find("zz"), find("")], [Some(7), Some(8), None, None]);
        assert_eq!(ids(v.range(1, b"f", Some(b"k"))), [6, 7]);
        assert_eq!(ids(v.range(1, b"g", Some(b"j"))), Vec::<u64>::new());
        assert_eq!(ids(v.range(1, b"l", None)), [7, 8]);
        assert_eq!(ids(&v.overlapping(0, b"c", b"l")), [9, 3]);
        assert_eq!((v.tables().count(), v.level_bytes(1), v.is_empty()), (6, 3 * 4096, false));
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
        assert!(Arc::ptr_eq(&v.level(1)[0], &w.level(2)[0]));
        assert!(w.level(1).is_empty());
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

    proptest! {
        #[test]
        fn search_agrees_with_a_linear_one(
            bounds in proptest::collection::btree_set("[ab]{0,12}", 0..40),
            prefix in "a{0,9}",
            keys in proptest::collection::vec("a{0,9}[ab]{0,12}", 20),
        ) {
            let mut bounds: Vec<String> = bounds.into_iter().map(|b| format!("p{prefix}{b}")).collect();
            bounds.truncate(bounds.len() / 2 * 2);
            let added: Vec<_> = bounds
                .chunks_exact(2)
                .enumerate()
                .map(|(i, c)| (1, meta(i as u64 + 1, &c[0], &c[1])))
                .collect();
            let v = version(added.clone());
            for k in keys.into_iter().map(|k| format!("p{k}")).chain(bounds.iter().cloned()).chain(["".into(), "q".into()]) {
                let k = k.as_bytes();
                let want = added.iter().position(|(_, m)| m.largest.as_slice() >= k).unwrap_or(added.len());
                prop_assert_eq!(v.lower_bound(1, k), want);
                let holds = added.iter().find(|(_, m)| m.overlaps(k, k)).map(|(_, m)| m.file_id);
                prop_assert_eq!(v.find(1, k).map(|t| t.0.file_id), holds);
            }
        }
    }
}
