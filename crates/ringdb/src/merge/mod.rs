//! [`MergeCursor`]: many cursors as one, in both directions.
//!
//! A [tree of losers](tree) over eight bytes of each source's key ([`anchor`]); a tie is resolved by the full
//! key, then the newer version first, then the order of the sources. As long as one source keeps winning, only
//! the runner-up is compared with it.
//!
//! The sources must not hold the same version twice.

mod anchor;
mod loser_tree;

use std::cell::Cell;
use std::cmp::Ordering;

use crate::cursor::{Cursor, ReverseCursor};
use crate::error::Result;
use crate::key::{Kind, Seq};
use anchor::Anchor;
use loser_tree::{LoserTree, Player};

/// The union of its sources, newest version of a key first.
pub(crate) struct MergeCursor<C> {
    sources: Vec<C>,
    tree: LoserTree,
    anchor: Anchor,
    /// Full comparisons since the anchor was chosen.
    comparisons: Cell<u32>,
    backward: bool,
    /// The best of all but the winner, known while one source keeps winning.
    runner_up: Option<Player>,
    /// All sources but the winner have ended.
    alone: bool,
}

impl<C: Cursor> MergeCursor<C> {
    /// A merge without a position.
    pub fn new(sources: Vec<C>) -> MergeCursor<C> {
        MergeCursor {
            sources,
            tree: LoserTree::default(),
            anchor: Anchor::default(),
            comparisons: Cell::new(0),
            backward: false,
            runner_up: None,
            alone: false,
        }
    }

    /// The sources, to position them by other means (all reads together); call [`MergeCursor::start_forward`]
    /// or [`MergeCursor::start_backward`] afterwards.
    pub fn sources_mut(&mut self) -> &mut [C] {
        self.tree.clear();
        &mut self.sources
    }

    /// The source whose version it stands on, to prepare the next step; it stays where it stands. Only when valid.
    #[inline]
    pub fn current_source(&mut self) -> &mut C {
        let current = self.current();
        &mut self.sources[current]
    }

    /// Moves the source whose version it stands on further in the direction in which the merge goes. Only when valid.
    pub fn move_current(&mut self, f: impl FnOnce(&mut C) -> Result<()>) -> Result<()> {
        let current = self.current();
        let r = f(&mut self.sources[current]);
        self.check(r)?;
        self.moved();
        Ok(())
    }

    /// Takes up the sources where they stand: each at its first version at or after one place.
    pub fn start_forward(&mut self) {
        self.start(false);
    }

    /// Takes up the sources where they stand: each at its last version before one place.
    pub fn start_backward(&mut self) {
        self.start(true);
    }

    fn start(&mut self, backward: bool) {
        self.backward = backward;
        let keys = self.sources.iter().filter(|s| s.valid()).map(|s| s.key());
        // The first key to come need not be known: any source's key is near it or far from all.
        let first = if backward { keys.clone().max() } else { keys.clone().min() };
        self.anchor.start(first.into_iter().chain(without(keys, first)));
        self.rebuild();
    }

    fn renew_anchor(&mut self) {
        let current = self.current();
        let first = self.sources[current].valid().then(|| self.sources[current].key());
        let others = self.sources.iter().enumerate().filter(|(i, s)| *i != current && s.valid());
        self.anchor.renew(first.into_iter().chain(others.map(|(_, s)| s.key())));
        self.rebuild();
    }

    fn rebuild(&mut self) {
        self.runner_up = None;
        self.alone = self.sources.len() == 1;
        self.comparisons.set(0);
        let matches =
            Matches { sources: &self.sources, backward: self.backward, comparisons: &self.comparisons };
        let players = (0..self.sources.len()).map(|i| player(&self.sources, &self.anchor, self.backward, i));
        self.tree.build(players, |a, b| matches.less(a, b));
    }

    /// Index of the source that the cursor stands on. Only when there are sources.
    #[inline]
    fn current(&self) -> usize {
        self.tree.winner().map_or(0, |w| w.source as usize)
    }

    /// The winner's source has moved in the current direction.
    #[inline]
    fn moved(&mut self) {
        let current = self.current();
        if self.alone {
            // Nobody is left to lose against, whatever the key.
            let done = !self.sources[current].valid();
            self.tree.keep_winner(Player { head: 0, source: current as u32, done });
            return;
        }
        let p = player(&self.sources, &self.anchor, self.backward, current);
        let matches =
            Matches { sources: &self.sources, backward: self.backward, comparisons: &self.comparisons };
        if let Some(second) = &self.runner_up
            && matches.less(&p, second)
        {
            self.tree.keep_winner(p);
        } else {
            self.tree.replay(p, |a, b| matches.less(a, b));
            self.runner_up = match self.tree.winner() {
                Some(w) if w.source as usize == current => self.tree.runner_up(|a, b| matches.less(a, b)),
                _ => None,
            };
            self.alone = self.runner_up.is_some_and(|r| r.done);
        }
        if self.anchor.doubtful(self.comparisons.get()) {
            self.renew_anchor();
        }
        debug_assert!(self.stands_first(), "a merge stands on the first of its sources' versions");
    }

    /// Whether no other source stands before the winner. So it must be even if sources are out of order themselves,
    /// as a table may be whose index is wrong.
    fn stands_first(&self) -> bool {
        let current = self.current();
        let here = &self.sources[current];
        let behind = if self.backward { Ordering::Less } else { Ordering::Greater };
        self.sources.iter().filter(|s| s.valid()).all(|s| {
            let order = || s.key().cmp(here.key()).then_with(|| here.seq().cmp(&s.seq()));
            here.valid() && [Ordering::Equal, behind].contains(&order())
        })
    }

    /// Changes the direction: moves the other sources behind the current version, and then by `back`.
    fn turn(&mut self, mut back: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        let current = self.current();
        let (key, seq) = (self.sources[current].key().to_vec(), self.sources[current].seq());
        self.tree.clear();
        for (i, s) in self.sources.iter_mut().enumerate() {
            if i == current {
                continue;
            }
            s.seek(&key)?;
            while s.valid() && s.key() == key && s.seq() > seq {
                s.next()?;
            }
            back(s)?;
        }
        self.backward = !self.backward;
        self.rebuild();
        Ok(())
    }

    fn each(&mut self, mut f: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        self.sources_mut().iter_mut().try_for_each(&mut f)
    }

    /// Passes an error on, without a position left.
    #[inline]
    fn check(&mut self, r: Result<()>) -> Result<()> {
        if r.is_err() {
            self.tree.clear();
        }
        r
    }
}

/// `keys` without one occurrence of `first` (the same memory, not equal bytes).
fn without<'a>(
    keys: impl Iterator<Item = &'a [u8]>,
    first: Option<&'a [u8]>,
) -> impl Iterator<Item = &'a [u8]> {
    keys.filter(move |k| first.is_none_or(|f| !std::ptr::eq(*k, f)))
}

#[inline]
fn player<C: Cursor>(sources: &[C], anchor: &Anchor, backward: bool, i: usize) -> Player {
    let s = &sources[i];
    if !s.valid() {
        return Player { head: u64::MAX, source: i as u32, done: true };
    }
    let head = anchor.head(s.key());
    Player { head: if backward { !head } else { head }, source: i as u32, done: false }
}

/// The order of players.
struct Matches<'a, C> {
    sources: &'a [C],
    backward: bool,
    comparisons: &'a Cell<u32>,
}

impl<C: Cursor> Matches<'_, C> {
    #[inline]
    fn less(&self, a: &Player, b: &Player) -> bool {
        if a.head != b.head { a.head < b.head } else { self.less_in_full(a, b) }
    }

    #[inline(never)]
    fn less_in_full(&self, a: &Player, b: &Player) -> bool {
        if a.done || b.done {
            return !a.done;
        }
        self.comparisons.set(self.comparisons.get() + 1);
        let (x, y) = (&self.sources[a.source as usize], &self.sources[b.source as usize]);
        let order = x.key().cmp(y.key()).then_with(|| y.seq().cmp(&x.seq()));
        let order = order.then_with(|| a.source.cmp(&b.source));
        order == if self.backward { Ordering::Greater } else { Ordering::Less }
    }
}

impl<C: Cursor> Cursor for MergeCursor<C> {
    #[inline]
    fn valid(&self) -> bool {
        self.tree.winner().is_some_and(|w| !w.done)
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.sources[self.current()].key()
    }
    #[inline]
    fn seq(&self) -> Seq {
        self.sources[self.current()].seq()
    }
    #[inline]
    fn kind(&self) -> Kind {
        self.sources[self.current()].kind()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.sources[self.current()].value()
    }
    #[inline]
    fn load_value(&mut self) -> Result<()> {
        let current = self.current();
        self.sources[current].load_value()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.each(|s| s.seek(key))?;
        self.start_forward();
        Ok(())
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.each(|s| s.seek_to_first())?;
        self.start_forward();
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.backward {
            let r = self.turn(|_| Ok(()));
            self.check(r)?;
        }
        let current = self.current();
        let r = self.sources[current].next();
        self.check(r)?;
        self.moved();
        Ok(())
    }
}

impl<C: ReverseCursor> ReverseCursor for MergeCursor<C> {
    fn seek_to_last(&mut self) -> Result<()> {
        self.each(|s| s.seek_to_last())?;
        self.start_backward();
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.each(|s| s.seek_before(key))?;
        self.start_backward();
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if !self.backward {
            let r = self.turn(|s| if s.valid() { s.prev() } else { s.seek_to_last() });
            self.check(r)?;
        }
        let current = self.current();
        let r = self.sources[current].prev();
        self.check(r)?;
        self.moved();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
