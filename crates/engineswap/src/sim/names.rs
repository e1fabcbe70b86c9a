//! The directories of a simulated disk: what is seen, what is certain to survive a power cut, and the changes in
//! between.
//!
//! An entry keeps its identity when it is renamed, so a later change still finds it if an earlier rename was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Component, Path};
use std::sync::Arc;

use super::crash::{How, Losses};
use crate::os::Sys;
use crate::random::Random;

/// The root directory.
pub(crate) const ROOT: u64 = 0;

/// One entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Its identity.
    link: u64,
    /// The file or directory.
    pub node: u64,
    pub is_dir: bool,
}

type Tree = BTreeMap<u64, Arc<BTreeMap<OsString, Entry>>>;

#[derive(Clone)]
enum What {
    /// The entry has this name, and in this directory no other; what had the name has it no more.
    Put { name: OsString, entry: Entry },
    /// It is gone from this directory, if (for a move to another directory) the change of this number is there.
    Drop { link: u64, after: Option<u64> },
}

#[derive(Clone)]
struct Change {
    at: u64,
    dir: u64,
    what: What,
    /// A sync that should have covered it has failed: no later one does.
    given_up: bool,
}

impl Change {
    /// Whether this one decides alone what `older` was about.
    fn supersedes(&self, older: &Change) -> bool {
        let link = |c: &Change| match &c.what {
            What::Put { entry, .. } => entry.link,
            What::Drop { link, .. } => *link,
        };
        let name = |c: &Change| match &c.what {
            What::Put { name, .. } => Some(name.clone()),
            What::Drop { .. } => None,
        };
        let same = link(self) == link(older) || name(self).is_some_and(|n| name(older) == Some(n));
        self.dir == older.dir && self.at > older.at && same
    }
}

/// All names.
#[derive(Clone)]
pub(crate) struct Names {
    now: Tree,
    durable: Tree,
    pending: Vec<Change>,
    next: u64,
}

fn apply(tree: &mut Tree, c: &Change) {
    let dir = Arc::make_mut(tree.entry(c.dir).or_default());
    match &c.what {
        What::Put { name, entry } => {
            dir.retain(|_, e| e.link != entry.link);
            dir.insert(name.clone(), *entry);
            if entry.is_dir {
                tree.entry(entry.node).or_default();
            }
        }
        What::Drop { link, .. } => dir.retain(|_, e| e.link != *link),
    }
}

impl Names {
    pub fn new() -> Names {
        let tree: Tree = [(ROOT, Arc::default())].into();
        Names { durable: tree.clone(), now: tree, pending: Vec::new(), next: 1 }
    }

    /// A number that no file and no directory has.
    pub fn new_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn dir(&self, id: u64) -> Sys<&BTreeMap<OsString, Entry>> {
        self.now.get(&id).map(|d| &**d).ok_or(libc::ENOENT)
    }

    /// The directory that a path ends in, and the name there; no name for the root itself.
    pub fn parent(&self, path: &Path) -> Sys<(u64, Option<OsString>)> {
        let mut walk: Vec<OsString> = Vec::new();
        for part in path.components() {
            match part {
                Component::Normal(name) => walk.push(name.into()),
                Component::ParentDir => drop(walk.pop()),
                _ => {}
            }
        }
        let last = walk.pop();
        let mut at = ROOT;
        for name in walk {
            let e = self.dir(at)?.get(&name).ok_or(libc::ENOENT)?;
            if !e.is_dir {
                return Err(libc::ENOTDIR);
            }
            at = e.node;
        }
        Ok((at, last))
    }

    /// What a path names.
    pub fn find(&self, path: &Path) -> Sys<Option<Entry>> {
        match self.parent(path)? {
            (_, None) => Ok(Some(Entry { link: 0, node: ROOT, is_dir: true })),
            (dir, Some(name)) => Ok(self.dir(dir)?.get(&name).copied()),
        }
    }

    /// The entries of a directory.
    pub fn list(&self, path: &Path) -> Sys<Vec<(OsString, bool)>> {
        let e = self.find(path)?.ok_or(libc::ENOENT)?;
        if !e.is_dir {
            return Err(libc::ENOTDIR);
        }
        Ok(self.dir(e.node)?.iter().map(|(n, e)| (n.clone(), e.is_dir)).collect())
    }

    fn change(&mut self, at: u64, dir: u64, what: What) {
        let c = Change { at, dir, what, given_up: false };
        apply(&mut self.now, &c);
        self.pending.push(c);
    }

    /// Names a file or directory.
    pub fn link(&mut self, at: u64, path: &Path, node: u64, is_dir: bool) -> Sys<()> {
        let (dir, name) = self.parent(path)?;
        let name = name.ok_or(libc::EEXIST)?;
        if self.dir(dir)?.contains_key(&name) {
            return Err(libc::EEXIST);
        }
        let entry = Entry { link: self.new_id(), node, is_dir };
        self.change(at, dir, What::Put { name, entry });
        Ok(())
    }

    /// Takes a name away; returns what it named.
    pub fn unlink(&mut self, at: u64, path: &Path, is_dir: bool) -> Sys<u64> {
        let (dir, name) = self.parent(path)?;
        let name = name.ok_or(libc::EBUSY)?;
        let e = *self.dir(dir)?.get(&name).ok_or(libc::ENOENT)?;
        match (is_dir, e.is_dir) {
            (true, false) => return Err(libc::ENOTDIR),
            (false, true) => return Err(libc::EISDIR),
            (true, true) if !self.dir(e.node)?.is_empty() => return Err(libc::ENOTEMPTY),
            _ => {}
        }
        self.change(at, dir, What::Drop { link: e.link, after: None });
        Ok(e.node)
    }

    /// Renames; returns what had the new name before.
    pub fn rename(&mut self, at: u64, from: &Path, to: &Path) -> Sys<Option<u64>> {
        let (from_dir, name) = self.parent(from)?;
        let e = *self.dir(from_dir)?.get(&name.ok_or(libc::EBUSY)?).ok_or(libc::ENOENT)?;
        let (to_dir, name) = self.parent(to)?;
        let name = name.ok_or(libc::EBUSY)?;
        let old = self.dir(to_dir)?.get(&name).copied();
        match old {
            Some(o) if o.node == e.node => return Ok(None),
            Some(o) if o.is_dir && !e.is_dir => return Err(libc::EISDIR),
            Some(o) if !o.is_dir && e.is_dir => return Err(libc::ENOTDIR),
            Some(o) if o.is_dir && !self.dir(o.node)?.is_empty() => return Err(libc::ENOTEMPTY),
            _ => {}
        }
        if e.is_dir && to.starts_with(from) {
            return Err(libc::EINVAL);
        }
        self.change(at, to_dir, What::Put { name, entry: e });
        if from_dir != to_dir {
            self.change(at, from_dir, What::Drop { link: e.link, after: Some(at) });
        }
        Ok(old.map(|o| o.node))
    }

    /// Makes the entries of a directory durable, but for changes that were given up.
    pub fn sync(&mut self, dir: u64) {
        let covered = self.covered(dir);
        let (now, later) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|c: &Change| !c.given_up && covered.contains(&(c.at, c.dir)));
        self.pending = later;
        for c in &now {
            apply(&mut self.durable, c);
            self.pending.retain(|p| !(p.given_up && c.supersedes(p)));
        }
    }

    /// A sync of a directory has failed: what it should have covered may be there after a power cut or not, and no
    /// later sync covers it.
    pub fn give_up(&mut self, dir: u64) {
        let covered = self.covered(dir);
        for c in self.pending.iter_mut().filter(|c| covered.contains(&(c.at, c.dir))) {
            c.given_up = true;
        }
    }

    /// The changes that a sync of a directory is about, with the directories where they happened.
    fn covered(&self, dir: u64) -> BTreeSet<(u64, u64)> {
        // A move out of it takes its other half along.
        let needed: BTreeSet<u64> = self
            .pending
            .iter()
            .filter(|c| c.dir == dir)
            .filter_map(|c| match c.what {
                What::Drop { after, .. } => after,
                What::Put { .. } => None,
            })
            .collect();
        let is_covered =
            |c: &&Change| c.dir == dir || needed.contains(&c.at) && matches!(c.what, What::Put { .. });
        self.pending.iter().filter(is_covered).map(|c| (c.at, c.dir)).collect()
    }

    /// Whether a file has a name, or may have one after a power cut.
    pub fn is_named(&self, node: u64) -> bool {
        let has = |t: &Tree| t.values().any(|d| d.values().any(|e| e.node == node));
        has(&self.now)
            || has(&self.durable)
            || self.pending.iter().any(|c| matches!(&c.what, What::Put { entry, .. } if entry.node == node))
    }

    /// Changes that a power cut may lose.
    pub fn uncertain(&self) -> usize {
        self.pending.len()
    }

    /// What a power cut leaves of the names.
    pub fn after(&self, how: How, random: &mut Random, losses: &mut Losses) -> Names {
        let mut tree = self.durable.clone();
        let mut kept = BTreeSet::new();
        for c in &self.pending {
            let keep = match (how, &c.what) {
                (How::Nothing, _) => false,
                (How::Everything, _) => true,
                (How::Before(at), _) => c.at < at,
                // The half of a move that removes never survives alone.
                (_, What::Drop { after: Some(put), .. })
                    if self.pending.iter().any(|p| p.at == *put && p.dir != c.dir) && !kept.contains(put) =>
                {
                    false
                }
                _ => random.one_in(2),
            };
            if keep {
                kept.insert(c.at);
                apply(&mut tree, c);
                losses.names_kept += 1;
            } else {
                losses.names_lost += 1;
            }
        }
        let mut reachable = Tree::new();
        let mut todo = vec![ROOT];
        while let Some(dir) = todo.pop() {
            let entries = tree.get(&dir).cloned().unwrap_or_default();
            todo.extend(
                entries.values().filter(|e| e.is_dir && !reachable.contains_key(&e.node)).map(|e| e.node),
            );
            reachable.insert(dir, entries);
        }
        Names { durable: reachable.clone(), now: reachable, pending: Vec::new(), next: self.next }
    }

    /// Every file with a name, and its path.
    pub fn files(&self) -> Vec<(std::path::PathBuf, u64)> {
        self.walk().into_iter().filter(|(_, e)| !e.is_dir).map(|(p, e)| (p, e.node)).collect()
    }

    /// Every entry below the root, directories before what is in them.
    pub fn walk(&self) -> Vec<(std::path::PathBuf, Entry)> {
        let mut out = Vec::new();
        let mut todo = vec![(std::path::PathBuf::from("/"), ROOT)];
        while let Some((path, dir)) = todo.pop() {
            for (name, e) in self.now.get(&dir).into_iter().flat_map(|d| d.iter()) {
                let path = path.join(name);
                if e.is_dir {
                    todo.push((path.clone(), e.node));
                }
                out.push((path, *e));
            }
        }
        out.sort_by(|a, b| a.0.cmp(&b.0));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(s: &str) -> &Path {
        Path::new(s)
    }

    fn paths(n: &Names) -> Vec<String> {
        n.walk().into_iter().map(|(p, e)| format!("{} {}", p.display(), e.node)).collect()
    }

    fn outcomes(n: &Names) -> BTreeSet<Vec<String>> {
        let hows = |s: u64| [How::Nothing, How::Everything, How::Each, How::Before(s % 20)];
        let all = (0..200).flat_map(|s| hows(s).map(|how| (s, how)));
        all.map(|(s, how)| paths(&n.after(how, &mut Random(s), &mut Losses::default()))).collect()
    }

    #[test]
    fn entries_are_kept_or_lost_each_for_itself_until_their_directory_is_synced() {
        let mut n = Names::new();
        n.link(1, p("/a"), 100, false).unwrap();
        n.link(2, p("/b"), 101, false).unwrap();
        assert_eq!(outcomes(&n).len(), 4);
        n.sync(ROOT);
        n.unlink(3, p("/a"), false).unwrap();
        n.rename(4, p("/b"), p("/c")).unwrap();
        let all = outcomes(&n);
        assert_eq!(all.len(), 4);
        assert!(all.iter().all(|o| o.iter().filter(|e| e.ends_with(" 101")).count() == 1), "{all:?}");
    }

    #[test]
    fn a_later_rename_finds_what_an_earlier_lost_one_left() {
        let mut n = Names::new();
        n.link(1, p("/a"), 100, false).unwrap();
        n.sync(ROOT);
        n.rename(2, p("/a"), p("/b")).unwrap();
        n.rename(3, p("/b"), p("/c")).unwrap();
        let all = outcomes(&n);
        assert_eq!(all, [vec!["/a 100".to_string()], vec!["/b 100".into()], vec!["/c 100".into()]].into());
        n.unlink(4, p("/c"), false).unwrap();
        assert!(outcomes(&n).contains(&vec![]));
    }

    #[test]
    fn a_move_to_another_directory_loses_no_file() {
        let mut n = Names::new();
        n.link(1, p("/d"), 50, true).unwrap();
        n.link(2, p("/a"), 100, false).unwrap();
        n.sync(ROOT);
        n.rename(3, p("/a"), p("/d/b")).unwrap();
        let both = outcomes(&n);
        assert!(both.iter().all(|o| o.iter().any(|e| e.ends_with(" 100"))), "{both:?}");
        assert!(both.iter().any(|o| o.len() == 3), "both names");
        // The directory that it left is synced, the other is not: the move is there all the same.
        let mut left = n.clone();
        left.sync(ROOT);
        assert_eq!(outcomes(&left), [vec!["/d 50".to_string(), "/d/b 100".into()]].into());
        n.sync(50);
        assert!(outcomes(&n).iter().all(|o| o.contains(&"/d/b 100".to_string())));
    }

    #[test]
    fn a_failed_sync_gives_up_what_it_should_have_covered() {
        let mut n = Names::new();
        n.link(1, p("/a"), 100, false).unwrap();
        n.give_up(ROOT);
        n.link(2, p("/b"), 101, false).unwrap();
        n.sync(ROOT);
        let (without, with) = (vec!["/b 101".to_string()], vec!["/a 100".to_string(), "/b 101".into()]);
        assert_eq!(outcomes(&n), [without, with].into());
        // Another change of it makes it durable after all.
        let mut renamed = n.clone();
        renamed.rename(3, p("/a"), p("/c")).unwrap();
        renamed.sync(ROOT);
        assert_eq!(outcomes(&renamed), [vec!["/b 101".to_string(), "/c 100".into()]].into());
        n.unlink(4, p("/a"), false).unwrap();
        n.sync(ROOT);
        assert_eq!(outcomes(&n), [vec!["/b 101".to_string()]].into());
    }

    #[test]
    fn a_lost_directory_takes_what_is_in_it() {
        let mut n = Names::new();
        n.link(1, p("/d"), 50, true).unwrap();
        n.link(2, p("/d/f"), 100, false).unwrap();
        n.sync(50);
        assert!(outcomes(&n).contains(&vec![]));
        n.sync(ROOT);
        assert_eq!(outcomes(&n).len(), 1);
    }

    #[test]
    fn errors_are_those_of_the_kernel() {
        let mut n = Names::new();
        n.link(1, p("/d"), 50, true).unwrap();
        n.link(2, p("/d/f"), 100, false).unwrap();
        n.link(3, p("/e"), 51, true).unwrap();
        assert_eq!(n.link(4, p("/d/f"), 1, false), Err(libc::EEXIST));
        assert_eq!(n.link(4, p("/x/f"), 1, false), Err(libc::ENOENT));
        assert_eq!(n.link(4, p("/d/f/g"), 1, false), Err(libc::ENOTDIR));
        assert_eq!(n.unlink(4, p("/d"), true), Err(libc::ENOTEMPTY));
        assert_eq!(n.unlink(4, p("/d"), false), Err(libc::EISDIR));
        assert_eq!(n.unlink(4, p("/d/f"), true), Err(libc::ENOTDIR));
        assert_eq!(n.rename(4, p("/d"), p("/d/e")), Err(libc::EINVAL));
        assert_eq!(n.rename(4, p("/e"), p("/d")), Err(libc::ENOTEMPTY));
        assert_eq!(n.rename(4, p("/d/f"), p("/e")), Err(libc::EISDIR));
        assert_eq!(n.rename(4, p("/none"), p("/e")), Err(libc::ENOENT));
        assert_eq!(n.rename(4, p("/d"), p("/e")), Ok(Some(51)));
        assert_eq!(n.find(p("/e/../e/./f")).unwrap().unwrap().node, 100);
    }
}
