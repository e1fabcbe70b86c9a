//! A file of a simulated disk: what its readers see, what is certain to survive a power cut, and the changes in
//! between, in their order.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::content::{Content, PAGE, parts};
use super::crash::{How, Losses};
use crate::random::Random;

/// What changed.
#[derive(Clone)]
pub(crate) enum What {
    /// By a write.
    Write { offset: u64, data: Arc<[u8]> },
    /// Through a mapping.
    Store { offset: u64, data: Arc<[u8]> },
    /// A write of nothing but zeros.
    Zeros { offset: u64, len: u64 },
    /// The file ends here.
    SetLen(u64),
    /// The file is at least so long.
    Grow(u64),
}

impl What {
    fn end(&self) -> u64 {
        match self {
            What::Write { offset, data } | What::Store { offset, data } => offset + data.len() as u64,
            What::Zeros { offset, len } => offset + len,
            What::SetLen(len) | What::Grow(len) => *len,
        }
    }

    pub fn apply(&self, to: &mut Content) {
        match self {
            What::Write { offset, data } | What::Store { offset, data } => to.write(*offset, data),
            What::Zeros { offset, len } => to.zero(*offset, *len),
            What::SetLen(len) => to.set_len(*len),
            What::Grow(len) => to.set_len(to.len().max(*len)),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// The next sync makes it durable.
    Open,
    /// Its sync failed: no later one covers it.
    Given,
    /// It survives.
    Durable,
}

#[derive(Clone)]
struct Change {
    at: u64,
    what: What,
    fate: Fate,
}

/// A file.
#[derive(Clone, Default)]
pub(crate) struct Node {
    pub now: Content,
    durable: Content,
    pending: Vec<Change>,
    /// Where its last byte with room of its own ends.
    pub room: u64,
}

impl Node {
    /// A file that holds this, durably.
    pub fn holding(content: Content) -> Node {
        let room = content.len();
        Node { durable: content.clone(), now: content, pending: Vec::new(), room }
    }

    /// Makes a change that readers see and a power cut may lose. `at` is its place in the order of all changes of the
    /// disk.
    pub fn change(&mut self, at: u64, what: What) {
        what.apply(&mut self.now);
        self.room = match what {
            What::SetLen(len) => self.room.min(len),
            _ => self.room.max(what.end()),
        };
        self.pending.push(Change { at, what, fate: Fate::Open });
    }

    /// Makes all changes so far durable.
    pub fn sync(&mut self) {
        if self.pending.iter().all(|c| c.fate != Fate::Given) {
            self.durable = self.now.clone();
            self.pending.clear();
            return;
        }
        for c in self.pending.iter_mut().filter(|c| c.fate == Fate::Open) {
            c.fate = Fate::Durable;
        }
        self.settle();
    }

    /// A durable write has ended: this one change is durable.
    pub fn written(&mut self, at: u64) {
        if let Some(c) = self.pending.iter_mut().find(|c| c.at == at && c.fate == Fate::Open) {
            c.fate = Fate::Durable;
        }
        self.settle();
    }

    /// A sync has failed: what it would have covered is clean in memory from now on, whatever became of it.
    pub fn give_up(&mut self) {
        self.pending.iter_mut().filter(|c| c.fate == Fate::Open).for_each(|c| c.fate = Fate::Given);
    }

    fn settle(&mut self) {
        let n = self.pending.iter().take_while(|c| c.fate == Fate::Durable).count();
        for c in self.pending.drain(..n) {
            c.what.apply(&mut self.durable);
        }
    }

    /// Changes that a power cut may lose.
    pub fn uncertain(&self) -> usize {
        self.pending.iter().filter(|c| c.fate != Fate::Durable).count()
    }

    /// Flips bits of what is stored, as media do on their own.
    pub fn rot(&mut self, bits: u64, random: &mut Random) {
        if self.now.len() == 0 {
            return;
        }
        for _ in 0..bits {
            let bit = random.below(self.now.len() * 8);
            self.now.flip(bit);
            if bit / 8 < self.durable.len() {
                self.durable.flip(bit);
            }
        }
    }

    /// What a power cut leaves of it.
    pub fn after(&self, how: How, random: &mut Random, losses: &mut Losses) -> Content {
        if self.pending.is_empty() {
            return self.durable.clone();
        }
        let mut to = self.durable.clone();
        match how {
            How::Pages => return self.pages_after(random, losses),
            How::Nothing | How::Everything | How::Before(_) => {
                for c in &self.pending {
                    let keep = match how {
                        How::Everything => true,
                        How::Before(at) => c.at < at,
                        _ => false,
                    };
                    if keep || c.fate == Fate::Durable {
                        c.what.apply(&mut to);
                        losses.kept += u64::from(c.fate != Fate::Durable);
                    } else {
                        losses.lost += 1;
                    }
                }
            }
            How::Each => {
                for c in &self.pending {
                    match c.fate {
                        Fate::Durable => c.what.apply(&mut to),
                        _ => maybe(&c.what, &mut to, random, losses),
                    }
                }
            }
        }
        to
    }

    /// Each page, and of some pages each sector, as it was at some moment since it was last durable: what write-back
    /// in any order leaves. The length, too, is that of some moment.
    fn pages_after(&self, random: &mut Random, losses: &mut Losses) -> Content {
        // Which changes touch which page.
        let mut touched: BTreeMap<u64, Vec<&Change>> = BTreeMap::new();
        for c in &self.pending {
            match &c.what {
                What::Write { offset, data } | What::Store { offset, data } => {
                    for (page, ..) in parts(*offset, data.len() as u64) {
                        touched.entry(page).or_default().push(c);
                    }
                }
                What::Zeros { offset, len } => {
                    for (page, ..) in parts(*offset, *len) {
                        touched.entry(page).or_default().push(c);
                    }
                }
                What::SetLen(len) => {
                    let end = self.durable.len().max(self.now.len()).max(*len);
                    for (page, ..) in parts(*len, end.saturating_sub(*len)) {
                        touched.entry(page).or_default().push(c);
                    }
                }
                What::Grow(_) => {}
            }
        }
        let when = random.below(self.pending.len() as u64 + 1) as usize;
        let mut len = self.durable.len();
        for (i, c) in self.pending.iter().enumerate() {
            match c.what {
                _ if i >= when && c.fate != Fate::Durable => {}
                What::SetLen(n) => len = n,
                _ => len = len.max(c.what.end()),
            }
        }
        let mut to = self.durable.clone();
        to.set_len(to.len().max(len));
        for (page, changes) in touched {
            let mut bytes = *self.durable.page(page).unwrap_or(&[0; PAGE]);
            let sector = match random.below(6) {
                0 => 512,
                _ => PAGE,
            };
            for start in (0..PAGE).step_by(sector) {
                let until = random.below(changes.len() as u64 + 1) as usize;
                for (i, c) in changes.iter().enumerate() {
                    if i < until || c.fate == Fate::Durable {
                        // What was being stored when the sector was written may be half there.
                        let half = i + 1 == until && c.fate != Fate::Durable && random.one_in(8);
                        lay(&c.what, page, &mut bytes, start..start + sector, half.then_some(&mut *random));
                        losses.kept += 1;
                    } else {
                        losses.lost += 1;
                    }
                }
                losses.torn += u64::from(sector < PAGE);
            }
            to.put_page(page, &bytes);
        }
        to.set_len(len);
        to
    }
}

/// Does what a change does to a part of a page. With `half`, a store only up to some multiple of 8 bytes.
fn lay(
    what: &What,
    page: u64,
    bytes: &mut [u8; PAGE],
    range: std::ops::Range<usize>,
    half: Option<&mut Random>,
) {
    let base = page * PAGE as u64;
    let (from, to) = (base + range.start as u64, base + range.end as u64);
    match what {
        What::Write { offset, data } | What::Store { offset, data } => {
            let (start, end) = (from.max(*offset), to.min(offset + data.len() as u64));
            let mut n = end.saturating_sub(start);
            if let (What::Store { .. }, Some(random)) = (what, half) {
                n = random.below(n / 8 + 1) * 8;
            }
            if n > 0 {
                let (at, skip) = ((start - base) as usize, (start - offset) as usize);
                bytes[at..at + n as usize].copy_from_slice(&data[skip..skip + n as usize]);
            }
        }
        What::Zeros { offset, len } => {
            let (start, end) = (from.max(*offset), to.min(offset + len));
            if start < end {
                bytes[(start - base) as usize..(end - base) as usize].fill(0);
            }
        }
        What::SetLen(len) => {
            let start = from.max(*len);
            if start < to {
                bytes[(start - base) as usize..(to - base) as usize].fill(0);
            }
        }
        What::Grow(_) => {}
    }
}

/// A change after a power cut in the middle of it: whole, not at all, or some sectors of it.
fn maybe(what: &What, to: &mut Content, random: &mut Random, losses: &mut Losses) {
    match what {
        What::Write { offset, data } | What::Store { offset, data } if random.one_in(3) => {
            losses.torn += 1;
            let unit = if random.one_in(2) { 512 } else { 4096 };
            tear(*offset, data, unit, to, random);
            if random.one_in(2) {
                // The length came through, the bytes did not.
                to.set_len(to.len().max(offset + data.len() as u64));
            }
        }
        _ if random.one_in(2) => {
            losses.kept += 1;
            what.apply(to);
        }
        _ => losses.lost += 1,
    }
}

/// Writes some of the sectors.
pub(crate) fn tear(offset: u64, data: &[u8], unit: u64, to: &mut Content, random: &mut Random) {
    let mut at = 0;
    while at < data.len() as u64 {
        let end = (((offset + at) / unit + 1) * unit - offset).min(data.len() as u64);
        if random.one_in(2) {
            to.write(offset + at, &data[at as usize..end as usize]);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, data: &[u8]) -> What {
        What::Write { offset, data: data.into() }
    }

    /// All that cuts leave of `n`, by every way to decide.
    fn outcomes(n: &Node) -> Vec<Vec<u8>> {
        let hows = |seed: u64| [How::Nothing, How::Everything, How::Each, How::Pages, How::Before(seed % 9)];
        let all = (0..200).flat_map(|seed| hows(seed).map(|how| (seed, how)));
        all.map(|(seed, how)| n.after(how, &mut Random(seed), &mut Losses::default()).to_vec()).collect()
    }

    #[test]
    fn what_was_synced_survives_and_what_was_not_may_not() {
        let mut n = Node::default();
        n.change(1, write(0, &[1; 8192]));
        n.sync();
        n.change(2, write(4096, &[2; 8192]));
        let all = outcomes(&n);
        assert!(all.iter().all(|o| o[..4096] == [1; 4096] && o.len() >= 8192));
        let sector = |o: &[u8], at: usize| o[at..at + 512].iter().all(|b| *b == o[at]);
        assert!(all.iter().all(|o| (0..o.len()).step_by(512).all(|at| sector(o, at))));
        for (what, found) in [
            ("lost", all.iter().any(|o| o.len() == 8192 && o[4096] == 1)),
            ("kept", all.iter().any(|o| o.len() == 12288 && o[4096..] == [2; 8192])),
            ("torn", all.iter().any(|o| o.len() == 12288 && o[4096] != o[4096 + 512])),
            ("the length without the bytes", all.iter().any(|o| o.len() == 12288 && o[8192] == 0)),
            ("the second page only", all.iter().any(|o| o.len() == 12288 && o[4096] == 1 && o[8192] == 2)),
        ] {
            assert!(found, "no outcome has it {what}");
        }
        n.sync();
        assert!(outcomes(&n).iter().all(|o| *o == n.now.to_vec()));
    }

    #[test]
    fn a_durable_write_is_its_own_sync() {
        let mut n = Node::default();
        n.change(1, What::Grow(8192));
        n.sync();
        n.change(2, write(0, &[1; 4096]));
        n.change(3, write(0, &[2; 512]));
        n.written(3);
        let all = outcomes(&n);
        assert!(all.iter().all(|o| o[..512] == [2; 512]));
        assert!(all.iter().any(|o| o[512] == 0) && all.iter().any(|o| o[512] == 1));
    }

    #[test]
    fn what_a_failed_sync_gave_up_no_later_one_saves() {
        let mut n = Node::default();
        n.change(1, write(0, &[1; 512]));
        n.give_up();
        n.change(2, write(512, &[2; 512]));
        n.sync();
        let all = outcomes(&n);
        assert!(all.iter().all(|o| o[512..] == [2; 512]));
        assert!(all.iter().any(|o| o[..512] == [0; 512]) && all.iter().any(|o| o[..512] == [1; 512]));
        // Written again, it is covered.
        n.change(3, write(0, &[3; 512]));
        n.sync();
        assert!(outcomes(&n).iter().all(|o| o[..512] == [3; 512]));
    }

    #[test]
    fn stores_survive_by_sectors_each_of_its_own_moment() {
        let mut n = Node::default();
        n.change(1, What::Grow(8192));
        n.sync();
        for i in 1..=4u8 {
            n.change(1 + u64::from(i), What::Store { offset: 4000, data: [i; 200].into() });
        }
        let pages = |seed| n.after(How::Pages, &mut Random(seed), &mut Losses::default()).to_vec();
        let all: Vec<_> = (0..2000).map(pages).collect();
        // Any two moments, one on each side of the page's end.
        for a in 0..=4 {
            for b in 0..=4 {
                assert!(all.iter().any(|o| o[4000] == a && o[4199] == b), "{a} and {b}");
            }
        }
        // And a store that was half done.
        assert!(all.iter().any(|o| o[4000] != o[4000 + 88]));
        assert!(all.iter().all(|o| o[4000..4008].iter().all(|b| *b == o[4000])));
    }

    #[test]
    fn cut_files_keep_or_lose_their_tails() {
        let mut n = Node::default();
        n.change(1, write(0, &[7; 6000]));
        n.sync();
        n.change(2, What::SetLen(100));
        n.change(3, What::SetLen(5000));
        let all = outcomes(&n);
        assert!(all.iter().all(|o| o[..100] == [7; 100]));
        assert!(all.iter().any(|o| o.len() == 6000 && o[200] == 7));
        assert!(all.iter().any(|o| o.len() == 5000 && o[200] == 0));
        assert!(all.iter().any(|o| o.len() == 100));
    }
}
