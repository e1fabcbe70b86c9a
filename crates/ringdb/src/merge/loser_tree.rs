//! A tree of losers: finds the smallest of k players again after one of them has changed, in log2(k) matches.
//!
//! Knuth, The Art of Computer Programming, volume 3, section 5.4.1. Node 0 holds the winner, nodes 1 to k-1 the
//! loser of the match played there; player i enters at the imaginary leaf k+i.

/// What stands for a source in a match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Player {
    /// Decides most matches; equal heads leave the decision to the caller's order.
    pub head: u64,
    /// Index of the source.
    pub source: u32,
    /// The source has ended: it loses to everyone.
    pub done: bool,
}

/// The tree; empty until built.
#[derive(Debug, Default)]
pub(super) struct LoserTree {
    nodes: Vec<Player>,
    scratch: Vec<Player>,
}

impl LoserTree {
    /// Plays all matches. `players[i].source` must be i.
    pub fn build(
        &mut self,
        players: impl ExactSizeIterator<Item = Player>,
        less: impl Fn(&Player, &Player) -> bool,
    ) {
        let k = players.len();
        self.nodes.clear();
        self.scratch.clear();
        let nobody = Player { head: u64::MAX, source: 0, done: true };
        self.nodes.resize(k, nobody);
        self.scratch.resize(k, nobody);
        self.scratch.extend(players);
        for i in (1..k).rev() {
            let (a, b) = (self.scratch[2 * i], self.scratch[2 * i + 1]);
            let (winner, loser) = if less(&b, &a) { (b, a) } else { (a, b) };
            self.scratch[i] = winner;
            self.nodes[i] = loser;
        }
        if let Some(first) = self.nodes.first_mut() {
            *first = self.scratch[1];
        }
    }

    /// The smallest player; `None` if there are no players at all.
    #[inline]
    pub fn winner(&self) -> Option<&Player> {
        self.nodes.first()
    }

    /// Replaces the winner without a match: the caller knows that it still wins.
    #[inline]
    pub fn keep_winner(&mut self, player: Player) {
        self.nodes[0] = player;
    }

    /// The winner's source has moved on: `player` plays its way up.
    #[inline]
    pub fn replay(&mut self, mut player: Player, less: impl Fn(&Player, &Player) -> bool) {
        let mut i = (self.nodes.len() + player.source as usize) / 2;
        while i >= 1 {
            if less(&self.nodes[i], &player) {
                std::mem::swap(&mut self.nodes[i], &mut player);
            }
            i /= 2;
        }
        self.nodes[0] = player;
    }

    /// The smallest player but the winner: one of those that lost to it.
    pub fn runner_up(&self, less: impl Fn(&Player, &Player) -> bool) -> Option<Player> {
        let mut i = (self.nodes.len() + self.nodes.first()?.source as usize) / 2;
        let mut best: Option<Player> = None;
        while i >= 1 {
            let node = self.nodes[i];
            if best.is_none_or(|b| less(&node, &b)) {
                best = Some(node);
            }
            i /= 2;
        }
        best
    }

    /// Forgets the players.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn less(a: &Player, b: &Player) -> bool {
        (a.done, a.head, a.source) < (b.done, b.head, b.source)
    }

    #[test]
    fn sorts_any_number_of_sources() {
        for k in 0..20u64 {
            let runs: Vec<Vec<u64>> = (0..k).map(|i| (0..i * 3 % 7).map(|j| j * j + i).collect()).collect();
            let mut at = vec![0; runs.len()];
            let player = |at: &[usize], i: usize| {
                let head = runs[i].get(at[i]).copied();
                Player { head: head.unwrap_or(u64::MAX), source: i as u32, done: head.is_none() }
            };
            let mut tree = LoserTree::default();
            tree.build((0..runs.len()).map(|i| player(&at, i)), less);
            let mut out = Vec::new();
            while let Some(w) = tree.winner().filter(|w| !w.done).copied() {
                if let Some(second) = tree.runner_up(less) {
                    let others = (0..runs.len()).filter(|&i| i != w.source as usize).map(|i| player(&at, i));
                    let mut others: Vec<Player> = others.collect();
                    others.sort_by(|a, b| {
                        if less(a, b) { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater }
                    });
                    assert_eq!((second.done, second.head), (others[0].done, others[0].head));
                }
                out.push(w.head);
                at[w.source as usize] += 1;
                tree.replay(player(&at, w.source as usize), less);
            }
            let mut expected: Vec<u64> = runs.concat();
            expected.sort();
            assert_eq!(out, expected);
        }
    }
}
