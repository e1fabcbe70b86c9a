//! What a power cut leaves: which of the changes that were not durable survive.

use crate::random::Random;

/// How a power cut decides about what was not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashOutcome {
    /// All of it is lost.
    Nothing,
    /// All of it survives.
    Everything,
    /// Whatever comes of this seed: all, nothing, all up to some moment, or each write, page, sector and name for
    /// itself. The same seed leaves the same of the same disk.
    Random(u64),
}

impl From<u64> for CrashOutcome {
    fn from(seed: u64) -> CrashOutcome {
        CrashOutcome::Random(seed)
    }
}

/// What became of the changes that were not durable at a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Changes of files that survived (of those decided by pages, counted for each page).
    pub kept: u64,
    /// That were lost.
    pub lost: u64,
    /// Of which some sectors survived.
    pub torn: u64,
    /// Changes of directories that survived.
    pub names_kept: u64,
    /// That were lost.
    pub names_lost: u64,
}

/// The way in which the changes of one file, or those of all names, are decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum How {
    Nothing,
    Everything,
    /// What was changed before this change, and nothing after.
    Before(u64),
    /// Each change for itself.
    Each,
    /// Each page as it was at some moment.
    Pages,
}

/// Decides how to decide.
pub(crate) struct Decider {
    all: Option<How>,
    data: Option<How>,
}

impl Decider {
    /// `at` is the number of the next change.
    pub fn new(outcome: CrashOutcome, at: u64, random: &mut Random) -> Decider {
        let all = match outcome {
            CrashOutcome::Nothing => Some(How::Nothing),
            CrashOutcome::Everything => Some(How::Everything),
            CrashOutcome::Random(_) => match random.below(10) {
                0 => Some(How::Nothing),
                1 => Some(How::Everything),
                // Mostly of the last few, since what is older is mostly durable.
                2 => Some(How::Before(at - random.below(at.min(40) + 1))),
                3 => Some(How::Before(random.below(at + 1))),
                _ => None,
            },
        };
        let data = if random.one_in(2) { Some(Decider::draw(random)) } else { None };
        Decider { all, data }
    }

    fn draw(random: &mut Random) -> How {
        match random.below(8) {
            0 => How::Nothing,
            1 => How::Everything,
            2..=4 => How::Each,
            _ => How::Pages,
        }
    }

    pub fn names(&self, random: &mut Random) -> How {
        self.all.unwrap_or_else(|| match random.below(4) {
            0 => How::Nothing,
            1 => How::Everything,
            _ => How::Each,
        })
    }

    /// For the next file.
    pub fn file(&self, random: &mut Random) -> How {
        self.all.or(self.data).unwrap_or_else(|| Decider::draw(random))
    }
}
