//! What the writers of a life have done, and what of it must be there after a cut.

/// Writers at most.
pub const WRITERS: usize = 3;
/// Keys of each writer beside its count.
pub const KEYS: u64 = 12;

/// A write that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    pub writer: usize,
    /// Its number among the writer's own, from 1.
    pub n: u64,
    pub durable: bool,
    /// Operations of the disk by then.
    pub at: u64,
}

/// All writes of a life.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub acks: Vec<Ack>,
    /// Of each writer, for each of its writes: how many acknowledgements there were when it began.
    pub begun: [Vec<usize>; WRITERS],
}

impl Ledger {
    /// The newest write of each writer that was acknowledged.
    pub fn acknowledged(&self) -> [u64; WRITERS] {
        newest(&self.acks)
    }
}

fn newest<'a>(acks: impl IntoIterator<Item = &'a Ack>) -> [u64; WRITERS] {
    let mut of = [0; WRITERS];
    acks.into_iter().for_each(|a| of[a.writer] = a.n.max(of[a.writer]));
    of
}

/// What a cut may leave.
pub struct Survivors<'a> {
    ledger: &'a Ledger,
    /// The writes of each writer that must be there, and that may be.
    pub least: [u64; WRITERS],
    most: [u64; WRITERS],
    /// Whether damage may be found.
    pub liar: bool,
}

impl<'a> Survivors<'a> {
    /// After a cut in this operation of the disk, or at the end. When only the process died, all that was
    /// acknowledged is there.
    pub fn of(ledger: &'a Ledger, operation: Option<u64>, killed: bool) -> Survivors<'a> {
        let before = |a: &&Ack| operation.is_none_or(|o| a.at <= o);
        let least = newest(ledger.acks.iter().filter(before).filter(|a| a.durable || killed));
        let most = [0, 1, 2].map(|w| ledger.begun[w].len() as u64);
        Survivors { ledger, least, most, liar: false }
    }

    /// The device has claimed more than it did.
    pub fn of_a_liar(self) -> Survivors<'a> {
        Survivors { least: [0; WRITERS], liar: true, ..self }
    }

    /// Checks how many writes of each writer are there: enough, and none without those that were acknowledged before
    /// it began.
    pub fn check(&self, found: [u64; WRITERS]) -> Result<(), String> {
        for (w, n) in found.into_iter().enumerate() {
            if n < self.least[w] || n > self.most[w] {
                return Err(format!("{found:?} writes instead of {:?} to {:?}", self.least, self.most));
            }
            let Some(before) = n.checked_sub(1).map(|i| self.ledger.begun[w][i as usize]) else { continue };
            let needed = newest(&self.ledger.acks[..before]);
            if (0..WRITERS).any(|o| found[o] < needed[o]) {
                return Err(format!("{found:?}: write {n} of writer {w} began after {needed:?}"));
            }
        }
        Ok(())
    }
}
