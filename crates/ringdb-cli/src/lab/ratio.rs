//! Rounds beside rounds, and what they say of a claim.

use serde::Serialize;

/// How one side compares with another: the ratios of their rounds, taken in pairs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Of the rounds.
    pub median: f64,
    /// The smallest of a round.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Ratio {
    /// Of `a` to `b`, round by round.
    pub fn of(a: &[f64], b: &[f64]) -> Ratio {
        let mut each: Vec<f64> = a.iter().zip(b).filter(|(_, b)| **b > 0.0).map(|(a, b)| a / b).collect();
        each.sort_by(f64::total_cmp);
        let at = |i: usize| each.get(i).copied().unwrap_or(f64::NAN);
        let n = each.len();
        let median =
            if n.is_multiple_of(2) { (at((n / 2).saturating_sub(1)) + at(n / 2)) / 2.0 } else { at(n / 2) };
        Ratio { median, min: at(0), max: at(n.saturating_sub(1)) }
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2} to {:.2})", self.median, self.min, self.max)
    }
}

/// What a study claims of a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Claim {
    /// Above 1.
    More,
    /// Below 1.
    Less,
    /// No difference.
    Same,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every round agrees.
    Holds,
    /// No round agrees.
    DoesNotHoldHere,
    /// Rounds differ about it: the difference, if there is one, is inside of the spread.
    InsideTheSpread,
    /// It comes from what else was done, not from what it was laid to.
    Artefact,
    /// No round of both sides did anything.
    NothingMeasured,
}

impl Verdict {
    /// In words.
    pub fn words(&self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::DoesNotHoldHere => "does not hold here",
            Verdict::InsideTheSpread => "no difference outside of the spread",
            Verdict::Artefact => "was an artefact",
            Verdict::NothingMeasured => "nothing was measured",
        }
    }
}

/// Differences below this are none.
const NOISE: f64 = 0.03;

/// What the rounds say of a claim.
pub fn judge(ratio: &Ratio, claim: Claim) -> Verdict {
    let (above, below) = (ratio.min > 1.0, ratio.max < 1.0);
    let small = (ratio.median - 1.0).abs() < NOISE;
    match claim {
        _ if ratio.median.is_nan() => Verdict::NothingMeasured,
        Claim::More if above => Verdict::Holds,
        Claim::Less if below => Verdict::Holds,
        Claim::More if below && !small => Verdict::DoesNotHoldHere,
        Claim::Less if above && !small => Verdict::DoesNotHoldHere,
        Claim::Same if small || !above && !below => Verdict::Holds,
        Claim::Same => Verdict::DoesNotHoldHere,
        _ => Verdict::InsideTheSpread,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_compared_in_pairs() {
        let r = Ratio::of(&[2.0, 30.0, 4.0], &[1.0, 10.0, 4.0]);
        assert_eq!((r.min, r.median, r.max), (1.0, 2.0, 3.0));
        assert_eq!(Ratio::of(&[1.0, 2.0], &[1.0, 1.0]).median, 1.5);
        assert!(Ratio::of(&[], &[]).median.is_nan());
    }

    #[test]
    fn a_claim_holds_when_every_round_agrees() {
        let r = |min, median, max| Ratio { min, median, max };
        assert_eq!(judge(&r(1.1, 1.2, 1.3), Claim::More), Verdict::Holds);
        assert_eq!(judge(&r(1.1, 1.2, 1.3), Claim::Less), Verdict::DoesNotHoldHere);
        assert_eq!(judge(&r(1.1, 1.2, 1.3), Claim::Same), Verdict::DoesNotHoldHere);
        assert_eq!(judge(&r(0.9, 1.2, 1.3), Claim::More), Verdict::InsideTheSpread);
        assert_eq!(judge(&r(0.9, 1.2, 1.3), Claim::Same), Verdict::Holds);
        assert_eq!(judge(&r(1.001, 1.01, 1.02), Claim::Less), Verdict::InsideTheSpread);
        assert_eq!(judge(&r(0.5, 0.6, 0.7), Claim::Less), Verdict::Holds);
        // Nothing was measured.
        for claim in [Claim::More, Claim::Less, Claim::Same] {
            assert_eq!(judge(&Ratio::of(&[], &[]), claim), Verdict::NothingMeasured);
        }
    }
}
