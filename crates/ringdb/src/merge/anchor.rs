//! [`Anchor`]: which eight bytes of the keys decide the matches of a merge.
//!
//! Keys of one neighbourhood agree in their first bytes (the keyspace, "user:", the zeros that lead a number),
//! so heads are taken after a common prefix, the anchor. The map from keys to heads is monotone whatever the
//! anchor, so a bad one costs full comparisons, never the order: keys before those with the prefix map to 0, those
//! after to the largest number. When ties come too often the anchor is taken anew from where the sources are.

use crate::coding::same_bytes;
use crate::cursor::key_head;

/// Full comparisons after which the anchor is looked at again.
const PATIENCE: u32 = 32;
/// Longest wait between looks.
const MOST_PATIENCE: u32 = 1 << 14;
/// An anchor that does not last for this many steps for each full comparison was too tight.
const LASTING: u64 = 8;

/// The common prefix after which heads are taken, and when to doubt it.
#[derive(Debug, Default)]
pub(super) struct Anchor {
    prefix: Vec<u8>,
    /// Full comparisons that make the next look due.
    patience: u32,
    /// Steps of the merge since the last look.
    steps: u64,
    /// Bytes to stay short of what the sources agree in: tight anchors are left behind soon.
    slack: usize,
}

impl Anchor {
    /// Eight bytes that order as the keys do.
    #[inline]
    pub fn head(&self, key: &[u8]) -> u64 {
        match key.split_at_checked(self.prefix.len()) {
            Some((start, rest)) if same_bytes(start, &self.prefix) => key_head(rest, 0),
            _ if key < self.prefix.as_slice() => 0,
            _ => u64::MAX,
        }
    }

    /// Counts a step; whether the anchor should be looked at again after so many full comparisons.
    #[inline]
    pub fn doubtful(&mut self, comparisons: u32) -> bool {
        self.steps += 1;
        comparisons >= self.patience
    }

    /// Takes the anchor from where the sources are after a seek.
    pub fn start<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) {
        self.slack = 0;
        self.patience = PATIENCE;
        self.choose(keys);
    }

    /// Takes the anchor anew on the way, a wider one if the last did not last.
    pub fn renew<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) {
        if self.steps < u64::from(self.patience) * LASTING {
            self.slack = (self.slack + 1).min(6);
            self.patience = (self.patience * 2).min(MOST_PATIENCE);
        }
        self.choose(keys);
    }

    /// At least half of the sources share the prefix with the first key, which is where the merge stands.
    fn choose<'a>(&mut self, mut keys: impl Iterator<Item = &'a [u8]>) {
        self.steps = 0;
        self.prefix.clear();
        let Some(first) = keys.next() else { return };
        let mut shared: Vec<usize> = keys.map(|k| common_prefix(first, k)).collect();
        if shared.is_empty() {
            // A source alone wins every match.
            return;
        }
        shared.sort_unstable_by(|a, b| b.cmp(a));
        let len =
            shared[(shared.len() - 1) / 2].min(first.len().saturating_sub(4)).saturating_sub(self.slack);
        self.prefix.extend_from_slice(&first[..len]);
    }
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_monotone_whatever_the_anchor() {
        let keys: [&[u8]; 9] = [b"", b"a", b"ab", b"ab\0", b"ab1", b"ab1234567890", b"abz", b"ac", b"b"];
        for prefix in keys {
            let anchor = Anchor { prefix: prefix.to_vec(), ..Anchor::default() };
            for pair in keys.windows(2) {
                assert!(anchor.head(pair[0]) <= anchor.head(pair[1]), "{prefix:?} {pair:?}");
            }
        }
    }

    #[test]
    fn most_sources_share_the_prefix_and_a_tight_one_is_widened() {
        let keys: [&[u8]; 4] = [b"user:0000012345", b"user:0000012399", b"user:0000012777", b"zzz"];
        let mut a = Anchor::default();
        a.start(keys.into_iter());
        assert_eq!(a.prefix, b"user:000001");
        a.start([keys[0], keys[3]].into_iter());
        assert_eq!(a.prefix, b"");
        a.start(keys[..3].iter().copied());
        assert_eq!(a.prefix, b"user:000001");
        a.renew(keys[..3].iter().copied());
        assert_eq!(a.prefix, b"user:00000");
    }
}
