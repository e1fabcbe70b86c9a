//! What the writers of a life have done, and what of it must be there after a cut.

use std::fmt;

/// Writers at most.
pub const WRITERS: usize = 3;
/// Keys of each writer beside its count and its marks.
pub const KEYS: u64 = 12;

/// Some of a writer's writes, by their numbers from 1 to 63.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Numbers(u64);

impl Numbers {
    /// All up to a number.
    pub fn up_to(n: u64) -> Numbers {
        assert!(n < 64);
        Numbers((2 << n) - 2)
    }

    pub fn insert(&mut self, n: u64) {
        assert!((1..64).contains(&n));
        self.0 |= 1 << n;
    }

    pub fn contains(self, n: u64) -> bool {
        self.0 >> n & 1 == 1
    }

    /// The greatest; 0: there is none.
    pub fn newest(self) -> u64 {
        self.0.checked_ilog2().map_or(0, u64::from)
    }

    /// In ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = u64> {
        (1..64).filter(move |n| self.contains(*n))
    }

    pub fn and(self, other: Numbers) -> Numbers {
        Numbers(self.0 & other.0)
    }

    pub fn or(self, other: Numbers) -> Numbers {
        Numbers(self.0 | other.0)
    }

    pub fn without(self, other: Numbers) -> Numbers {
        Numbers(self.0 & !other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// As runs of numbers: `{1-7 9}`.
impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        let mut gap = "";
        for first in self.iter().filter(|n| !self.contains(n - 1)) {
            let last = (first..64).take_while(|n| self.contains(*n)).last().unwrap_or(first);
            write!(f, "{gap}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            gap = " ";
        }
        f.write_str("}")
    }
}

/// Writes of each writer.
pub type Found = [Numbers; WRITERS];

/// A write that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    pub writer: usize,
    /// Its number among the writer's own, from 1.
    pub n: u64,
    pub logged: bool,
    pub durable: bool,
    /// Operations of the disk by then.
    pub at: u64,
}

/// A sync that has succeeded.
#[derive(Clone, Copy, Debug)]
struct Synced {
    /// What it has made durable, of all that was acknowledged.
    covers: Found,
    /// Operations of the disk by its end.
    at: u64,
}

/// So many acknowledgements and syncs.
#[derive(Clone, Copy, Debug)]
struct Before {
    acks: usize,
    syncs: usize,
}

/// All writes of a life.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub acks: Vec<Ack>,
    syncs: Vec<Synced>,
    /// Of each writer, for each of its writes: what had succeeded when it began.
    begun: [Vec<Before>; WRITERS],
    /// What was refused, or never begun: it is nowhere.
    pub refused: Found,
}

impl Ledger {
    /// What was acknowledged.
    pub fn acknowledged(&self) -> Found {
        all(&self.acks)
    }

    /// Write `n` of a writer begins.
    pub fn begin(&mut self, writer: usize, n: u64) {
        assert_eq!(n, self.begun[writer].len() as u64 + 1);
        self.begun[writer].push(Before { acks: self.acks.len(), syncs: self.syncs.len() });
    }

    pub fn begun(&self) -> Found {
        [0, 1, 2].map(|w| Numbers::up_to(self.begun[w].len() as u64))
    }

    /// A sync that began when this had to be covered has succeeded.
    pub fn synced(&mut self, covers: Found, at: u64) {
        self.syncs.push(Synced { covers, at });
    }

    /// What must be there of a store that holds something that began after all this: logged writes keep their order;
    /// others are held only from the sync that followed them on.
    fn needed(&self, before: Before, liar: bool) -> Found {
        let mut needed = all(self.acks[..before.acks].iter().filter(|a| a.logged));
        let acknowledged = all(&self.acks);
        for s in self.syncs[..before.syncs].iter().filter(|_| !liar) {
            add(&mut needed, s.covers, acknowledged);
        }
        needed
    }
}

fn all<'a>(acks: impl IntoIterator<Item = &'a Ack>) -> Found {
    let mut of = Found::default();
    acks.into_iter().for_each(|a| of[a.writer].insert(a.n));
    of
}

/// Adds what of some writes was acknowledged.
fn add(to: &mut Found, some: Found, acknowledged: Found) {
    (0..WRITERS).for_each(|w| to[w] = to[w].or(some[w].and(acknowledged[w])));
}

/// What a cut may leave.
pub struct Survivors<'a> {
    ledger: &'a Ledger,
    /// The writes of each writer that must be there, and that may be.
    least: Found,
    most: Found,
    /// Whether damage may be found.
    pub liar: bool,
}

impl<'a> Survivors<'a> {
    /// After a cut in this operation of the disk, or at the end. When only the process died, all that was
    /// acknowledged is there, if it was logged.
    pub fn of(ledger: &'a Ledger, operation: Option<u64>, killed: bool) -> Survivors<'a> {
        let before = |at: u64| operation.is_none_or(|o| at <= o);
        let acks = ledger.acks.iter().filter(|a| before(a.at));
        let mut least = all(acks.filter(|a| a.durable || (killed && a.logged)));
        for s in ledger.syncs.iter().filter(|s| before(s.at)) {
            add(&mut least, s.covers, ledger.acknowledged());
        }
        let begun = ledger.begun();
        let most = [0, 1, 2].map(|w| begun[w].without(ledger.refused[w]));
        Survivors { ledger, least, most, liar: false }
    }

    /// The device has claimed more than it did.
    pub fn of_a_liar(self) -> Survivors<'a> {
        Survivors { least: Found::default(), liar: true, ..self }
    }

    /// Checks which writes of each writer are there: enough, and none without those that were acknowledged before it
    /// began, nor without the logged ones that its own writer began before it.
    pub fn check(&self, found: Found) -> Result<(), String> {
        let logged = all(self.ledger.acks.iter().filter(|a| a.logged));
        for w in 0..WRITERS {
            let (least, most) = (self.least[w], self.most[w]);
            if !least.without(found[w]).is_empty() || !found[w].without(most).is_empty() {
                return Err(format!("writes {found:?} instead of {:?} to {:?}", self.least, self.most));
            }
            for n in found[w].iter() {
                let mut needed = self.ledger.needed(self.ledger.begun[w][n as usize - 1], self.liar);
                needed[w] = needed[w].or(logged[w].and(Numbers::up_to(n - 1)));
                if (0..WRITERS).any(|o| !needed[o].without(found[o]).is_empty()) {
                    return Err(format!("{found:?}: write {n} of writer {w} came after {needed:?}"));
                }
            }
        }
        Ok(())
    }
}
