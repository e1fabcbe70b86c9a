//! [`ManifestState`]: the sum of all edits.

use std::collections::{BTreeMap, BTreeSet};

use super::{LEVELS, Remembered, VersionEdit};
use crate::files::MAX_NUMBER;
use crate::key::{SEQ_MAX, Seq};
use crate::log::LogPos;
use crate::ranges::Live;
use crate::table::meta::TableMeta;

/// What the manifest says the store is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManifestState {
    /// See [`VersionEdit`] for these.
    pub log_number: u64,
    pub next_file_number: u64,
    pub last_seq: Seq,
    pub flushed_seq: Seq,
    /// 0 if nothing ever was.
    pub last_ingested: Seq,
    pub next_keyspace_id: u32,
    /// The default if nothing is known.
    pub log_durable: LogPos,
    /// 0 if nothing is known: the store was not opened for writing since there are such ids.
    pub store_id: u64,
    /// Live keyspaces but the default one.
    pub keyspaces: BTreeMap<u32, String>,
    /// Dropped keyspaces that may have entries left.
    pub dropped: BTreeSet<u32>,
    /// Tables by file id, each with its level.
    pub tables: BTreeMap<u64, (u32, TableMeta)>,
    /// Settings of live keyspaces that have some of their own; of the store, under id 0.
    pub settings: BTreeMap<u32, Remembered>,
    /// Range tombstones.
    pub ranges: Live,
}

impl ManifestState {
    /// Whether no edit has been applied yet.
    pub fn is_new(&self) -> bool {
        self.next_keyspace_id == 0
    }

    fn check_numbers(&self, edit: &VersionEdit) -> Result<(), String> {
        let numbers = edit.added.iter().map(|(_, m)| m.file_id);
        let numbers = numbers.chain(edit.log_number).chain(edit.next_file_number);
        let numbers = numbers.chain(edit.log_durable.map(|p| p.segment));
        if let Some(n) = numbers.max().filter(|n| *n > MAX_NUMBER) {
            return Err(format!("no store has a file of number {n}"));
        }
        let applied = edit.ranges.cleared.iter().map(|(_, seq)| *seq).max();
        if let Some(seq) =
            edit.last_seq.max(edit.flushed_seq).max(edit.last_ingested).max(applied).filter(|s| *s > SEQ_MAX)
        {
            return Err(format!("no write has the sequence number {seq}"));
        }
        if edit.store_id.is_some_and(|id| id == 0 || (self.store_id != 0 && id != self.store_id)) {
            return Err("the store's id changes".into());
        }
        Ok(())
    }

    /// Why `edit` cannot be applied, if it cannot.
    pub fn check(&self, edit: &VersionEdit) -> Result<(), String> {
        self.check_numbers(edit)?;
        let mut removed = BTreeSet::new();
        for (level, id) in &edit.removed {
            match self.tables.get(id) {
                Some((l, _)) if l == level && removed.insert(*id) => {}
                Some((l, _)) if l != level => {
                    return Err(format!("table {id} is removed from level {level} but is in {l}"));
                }
                _ => return Err(format!("table {id} is removed but is not there")),
            }
        }
        let mut added = BTreeSet::new();
        for (level, meta) in &edit.added {
            let id = meta.file_id;
            if *level as usize >= LEVELS {
                return Err(format!("table {id} is added to level {level}, there are {LEVELS}"));
            }
            if !added.insert(id) || (self.tables.contains_key(&id) && !removed.contains(&id)) {
                return Err(format!("table {id} is added but is there already"));
            }
        }
        let stays = |id: &u64| self.tables.contains_key(id) && !removed.contains(id);
        self.ranges.check(&edit.ranges, |id| added.contains(&id) || stays(&id))?;
        let mut names: BTreeSet<&str> = self
            .keyspaces
            .iter()
            .filter(|(id, _)| !edit.dropped_keyspaces.contains(id))
            .map(|(_, name)| name.as_str())
            .collect();
        let mut created = BTreeSet::new();
        for (id, name) in &edit.created_keyspaces {
            let used = self.keyspaces.contains_key(id) || self.dropped.contains(id);
            if *id == 0 || *id == u32::MAX || used || !created.insert(*id) {
                return Err(format!("keyspace id {id} is used twice"));
            }
            if !names.insert(name) {
                return Err(format!("keyspace '{name}' is made twice"));
            }
        }
        let mut dropped = BTreeSet::new();
        for id in &edit.dropped_keyspaces {
            // A snapshot (the first edit of a file) lists keyspaces that were dropped before it.
            let there = self.keyspaces.contains_key(id) || (self.is_new() && !created.contains(id));
            if *id == 0 || *id == u32::MAX || !there || !dropped.insert(*id) {
                return Err(format!("keyspace {id} is dropped but is not there"));
            }
        }
        let mut set = BTreeSet::new();
        for (id, _) in &edit.settings {
            let lives = self.keyspaces.contains_key(id) && !dropped.contains(id) || created.contains(id);
            if *id != 0 && !lives || !set.insert(*id) {
                return Err(format!("settings of keyspace {id}, which is not there, or twice"));
            }
        }
        match edit.purged_keyspaces.iter().find(|id| !self.dropped.contains(id) && !dropped.contains(id)) {
            Some(id) => Err(format!("keyspace {id} is forgotten but was not dropped")),
            None => Ok(()),
        }
    }

    /// Applies an edit, all of it or, if it is wrong, nothing.
    pub fn apply(&mut self, edit: &VersionEdit) -> Result<(), String> {
        self.check(edit)?;
        for (_, id) in &edit.removed {
            self.tables.remove(id);
        }
        for (level, meta) in &edit.added {
            self.tables.insert(meta.file_id, (*level, meta.clone()));
        }
        self.ranges.apply(&edit.ranges, |id| self.tables.contains_key(&id));
        for id in &edit.dropped_keyspaces {
            self.keyspaces.remove(id);
            self.settings.remove(id);
            self.dropped.insert(*id);
        }
        for (id, name) in &edit.created_keyspaces {
            self.keyspaces.insert(*id, name.clone());
        }
        for id in &edit.purged_keyspaces {
            self.dropped.remove(id);
        }
        self.settings.extend(edit.settings.iter().cloned());
        let raise = |v: &mut u64, to: Option<u64>| *v = (*v).max(to.unwrap_or(0));
        raise(&mut self.log_number, edit.log_number);
        let newest_range = edit.ranges.added.iter().map(|t| t.seq).max();
        raise(&mut self.last_seq, edit.last_seq.max(edit.flushed_seq).max(newest_range));
        raise(&mut self.flushed_seq, edit.flushed_seq);
        raise(&mut self.next_file_number, edit.next_file_number);
        self.store_id = edit.store_id.unwrap_or(self.store_id);
        self.log_durable = self.log_durable.max(edit.log_durable.unwrap_or_default());
        raise(&mut self.next_file_number, edit.log_number.map(|n| n.saturating_add(1)));
        raise(&mut self.last_ingested, edit.last_ingested);
        for (_, meta) in &edit.added {
            raise(&mut self.next_file_number, Some(meta.file_id.saturating_add(1)));
            raise(&mut self.last_seq, Some(meta.max_seq));
            raise(&mut self.last_ingested, Some(meta.given));
        }
        let created = edit.created_keyspaces.iter().map(|(id, _)| id + 1);
        let dropped = edit.dropped_keyspaces.iter().map(|id| id + 1);
        let highest =
            created.chain(dropped).chain(edit.next_keyspace_id).chain([1, self.next_keyspace_id]).max();
        self.next_keyspace_id = highest.unwrap_or(1);
        Ok(())
    }

    /// Whether something was ingested until `later`. A log that was read in between may have writes that came after it.
    pub fn lacks_ingest_of(&self, later: &ManifestState) -> bool {
        self.last_ingested < later.last_ingested
    }

    /// The edit that makes this state out of nothing.
    pub fn snapshot(&self) -> VersionEdit {
        VersionEdit {
            log_number: Some(self.log_number),
            next_file_number: Some(self.next_file_number),
            last_seq: Some(self.last_seq),
            flushed_seq: Some(self.flushed_seq),
            last_ingested: (self.last_ingested != 0).then_some(self.last_ingested),
            removed: vec![],
            added: self.tables.values().cloned().collect(),
            created_keyspaces: self.keyspaces.iter().map(|(id, name)| (*id, name.clone())).collect(),
            dropped_keyspaces: self.dropped.iter().copied().collect(),
            purged_keyspaces: vec![],
            next_keyspace_id: Some(self.next_keyspace_id),
            log_durable: (self.log_durable != LogPos::default()).then_some(self.log_durable),
            settings: self.settings.iter().map(|(id, s)| (*id, s.clone())).collect(),
            ranges: self.ranges.snapshot(),
            store_id: (self.store_id != 0).then_some(self.store_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::edit::tests::meta;
    use super::*;

    fn apply(s: &mut ManifestState, f: impl FnOnce(&mut VersionEdit)) -> Result<(), String> {
        let mut e = VersionEdit::default();
        f(&mut e);
        let before = s.clone();
        s.apply(&e).inspect_err(|_| assert_eq!(*s, before, "a wrong edit changes nothing"))
    }

    #[test]
    fn edits_add_up_and_the_snapshot_says_the_same() {
        let mut s = ManifestState::default();
        apply(&mut s, |e| e.added = vec![(0, meta(5, "a", "c")), (1, meta(6, "a", "b"))]).unwrap();
        let own = super::super::remembered::tests::sample;
        apply(&mut s, |e| {
            e.created_keyspaces = vec![(1, "x".into()), (2, "y".into())];
            e.settings = vec![(1, own()), (2, own())];
        })
        .unwrap();
        apply(&mut s, |e| e.settings = vec![(0, own()), (2, Remembered::default())]).unwrap();
        apply(&mut s, |e| {
            (e.log_number, e.flushed_seq, e.dropped_keyspaces) = (Some(40), Some(90), vec![1]);
            (e.removed, e.added) = (vec![(1, 6)], vec![(2, meta(6, "a", "b"))]);
        })
        .unwrap();
        apply(&mut s, |e| (e.log_number, e.flushed_seq) = (Some(3), Some(4))).unwrap();
        assert_eq!((s.log_number, s.flushed_seq, s.last_seq, s.next_file_number), (40, 90, 90, 41));
        assert_eq!((s.next_keyspace_id, s.tables[&6].0), (3, 2));
        assert_eq!(s.settings, BTreeMap::from([(0, own()), (2, Remembered::default())]), "1 was dropped");
        let mut again = ManifestState::default();
        again.apply(&s.snapshot()).unwrap();
        assert_eq!(again, s);
        apply(&mut s, |e| e.purged_keyspaces = vec![1]).unwrap();
        let mut again = ManifestState::default();
        again.apply(&s.snapshot()).unwrap();
        assert_eq!((again.next_keyspace_id, &again), (3, &s), "ids are never used twice");
    }

    #[test]
    fn wrong_edits_are_refused_whole() {
        let mut s = ManifestState::default();
        apply(&mut s, |e| {
            e.added = vec![(0, meta(5, "a", "c"))];
            e.created_keyspaces = vec![(1, "x".into())];
        })
        .unwrap();
        apply(&mut s, |e| e.removed = vec![(0, 6)]).unwrap_err();
        apply(&mut s, |e| e.removed = vec![(1, 5)]).unwrap_err();
        apply(&mut s, |e| e.removed = vec![(0, 5), (0, 5)]).unwrap_err();
        apply(&mut s, |e| e.added = vec![(0, meta(5, "x", "y"))]).unwrap_err();
        apply(&mut s, |e| e.added = vec![(0, meta(7, "x", "y")), (1, meta(7, "x", "y"))]).unwrap_err();
        apply(&mut s, |e| e.added = vec![(7, meta(7, "x", "y"))]).unwrap_err();
        apply(&mut s, |e| e.created_keyspaces = vec![(1, "z".into())]).unwrap_err();
        apply(&mut s, |e| e.created_keyspaces = vec![(2, "x".into())]).unwrap_err();
        apply(&mut s, |e| e.created_keyspaces = vec![(0, "z".into())]).unwrap_err();
        apply(&mut s, |e| e.dropped_keyspaces = vec![2]).unwrap_err();
        apply(&mut s, |e| e.purged_keyspaces = vec![1]).unwrap_err();
        apply(&mut s, |e| e.settings = vec![(2, Remembered::default())]).unwrap_err();
        apply(&mut s, |e| e.settings = vec![(1, Remembered::default()), (1, Remembered::default())])
            .unwrap_err();
        apply(&mut s, |e| {
            (e.dropped_keyspaces, e.settings) = (vec![1], vec![(1, Remembered::default())]);
        })
        .unwrap_err();
        apply(&mut s, |e| e.next_file_number = Some(u64::MAX)).unwrap_err();
        apply(&mut s, |e| e.log_number = Some(u64::MAX)).unwrap_err();
        apply(&mut s, |e| e.added = vec![(1, meta(u64::MAX, "x", "y"))]).unwrap_err();
        apply(&mut s, |e| e.last_seq = Some(SEQ_MAX + 1)).unwrap_err();
        apply(&mut s, |e| e.flushed_seq = Some(u64::MAX)).unwrap_err();
        apply(&mut s, |e| e.store_id = Some(0)).unwrap_err();
        apply(&mut s, |e| e.store_id = Some(7)).unwrap();
        apply(&mut s, |e| e.store_id = Some(8)).unwrap_err();
        let mut again = ManifestState::default();
        again.apply(&s.snapshot()).unwrap();
        assert_eq!(again.store_id, 7);
        // A keyspace may be dropped and made again under the same name at once, with a new id.
        apply(&mut s, |e| {
            (e.dropped_keyspaces, e.created_keyspaces) = (vec![1], vec![(2, "x".into())]);
        })
        .unwrap();
    }
}
