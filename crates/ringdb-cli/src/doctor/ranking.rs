//! Which of several engines is better, on a machine whose rounds differ more than the engines do.
//!
//! The engines are measured in turn, so what disturbs a round disturbs all of them: engines are compared
//! round by round. One is better when that is so in all rounds but the outermost, else there is no
//! difference.

use super::measure::Reads;

/// Rounds that are always measured where engines are compared.
pub const AT_LEAST: usize = 5;
/// Rounds after which the spread is what it is.
pub const AT_MOST: usize = 15;
/// Reads in flight at which engines are compared.
pub const DEPTH: u32 = 32;
/// Rates closer than this are the same, however surely they differ.
const SAME: f64 = 0.05;
/// CPU times within this factor are the same.
const CHEAP: f64 = 1.25;
/// From the one with the least that can be refused, by the kernel or a container, to the one with the most.
const SIMPLEST: [&str; 3] = ["posix", "libaio", "io_uring"];

/// The ratios of two series, round by round, without the lowest and the highest: from and to.
pub fn spread(a: &[f64], b: &[f64]) -> (f64, f64) {
    let mut ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).filter(|r| r.is_finite()).collect();
    ratios.sort_by(f64::total_cmp);
    let inner = if ratios.len() >= AT_LEAST { &ratios[1..ratios.len() - 1] } else { &ratios[..] };
    (inner.first().copied().unwrap_or(0.0), inner.last().copied().unwrap_or(f64::INFINITY))
}

fn compared(reads: &[Reads]) -> impl Iterator<Item = &Reads> {
    reads.iter().filter(|r| r.iodepth == DEPTH && !r.io.contains("sqpoll"))
}

fn fastest(reads: &[Reads]) -> Option<&Reads> {
    compared(reads).max_by(|a, b| a.rps.total_cmp(&b.rps))
}

/// Whether more rounds could still show what these do not: an engine whose spread reaches from "slower" to "the same".
pub fn is_open(reads: &[Reads]) -> bool {
    let Some(best) = fastest(reads) else { return false };
    compared(reads).filter(|r| r.io != best.io).any(|r| {
        let (from, to) = spread(&r.rps_rounds, &best.rps_rounds);
        let slower = to < 1.0 - SAME;
        let same = from > 1.0 - SAME && to < 1.0 + SAME;
        !slower && !same
    })
}

/// The engine to take, and those that are no worse.
pub struct Choice<'a> {
    /// This one.
    pub best: &'a Reads,
    /// As fast and as cheap, as far as can be seen.
    pub equals: Vec<&'a Reads>,
}

/// The fastest engine with many reads in flight; of those that are as fast the one that takes least CPU time;
/// of those that are equal in this too the simplest.
pub fn choose(reads: &[Reads]) -> Option<Choice<'_>> {
    let first = fastest(reads)?;
    let slower = |r: &Reads| spread(&r.rps_rounds, &first.rps_rounds).1 < 1.0 - SAME;
    let fast: Vec<&Reads> = compared(reads).filter(|r| !slower(r)).collect();
    let thrifty = fast.iter().min_by(|a, b| a.cpu_us_per_op.total_cmp(&b.cpu_us_per_op))?;
    let dearer = |r: &&Reads| spread(&r.cpu_us_rounds, &thrifty.cpu_us_rounds).0 > CHEAP;
    let mut equals: Vec<&Reads> = fast.iter().copied().filter(|r| !dearer(r)).collect();
    equals.sort_by_key(|r| SIMPLEST.iter().position(|s| r.io.starts_with(s)));
    let best = equals.remove(0);
    Some(Choice { best, equals })
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::fileperf::row::Latency;

    /// Rounds of engines with these rates and CPU times, disturbed all together by 30 % and each by `noise`.
    fn measured(engines: &[(&str, f64, f64)], noise: f64, rounds: usize, seed: u64) -> Vec<Reads> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut out: Vec<Reads> = engines
            .iter()
            .map(|(io, _, _)| Reads::of(io, DEPTH, vec![], vec![], Latency::default()))
            .collect();
        for _ in 0..rounds {
            let all = random.random_range(0.7..1.0);
            for (r, (_, rps, cpu)) in out.iter_mut().zip(engines) {
                r.rps_rounds.push(rps * all * random.random_range(1.0 - noise..1.0 + noise));
                r.cpu_us_rounds.push(cpu * random.random_range(1.0 - noise..1.0 + noise));
            }
        }
        out.into_iter()
            .map(|r| Reads::of(&r.io, DEPTH, r.rps_rounds, r.cpu_us_rounds, r.latency_us))
            .collect()
    }

    #[test]
    fn noise_decides_nothing() {
        let equal = [("posix", 1e5, 5.0), ("libaio", 1e5, 5.0), ("io_uring", 1e5, 5.0)];
        for seed in 0..200 {
            let reads = measured(&equal, 0.1, AT_MOST, seed);
            let choice = choose(&reads).unwrap();
            assert_eq!((choice.best.io.as_str(), choice.equals.len()), ("posix", 2), "seed {seed}");
        }
    }

    #[test]
    fn what_exceeds_the_noise_decides() {
        for (engines, best) in [
            ([("posix", 1e5, 5.0), ("libaio", 1.3e5, 5.0), ("io_uring", 1.9e5, 5.0)], "io_uring"),
            ([("posix", 1.9e5, 5.0), ("libaio", 1.3e5, 5.0), ("io_uring", 1e5, 1.0)], "posix"),
            ([("posix", 1e5, 9.0), ("libaio", 1e5, 4.0), ("io_uring", 1e5, 9.0)], "libaio"),
            ([("posix", 1e5, 9.0), ("libaio", 1e5, 4.0), ("io_uring", 1e5, 4.0)], "libaio"),
        ] {
            for seed in 0..50 {
                let reads = measured(&engines, 0.1, AT_MOST, seed);
                assert_eq!(choose(&reads).unwrap().best.io, best, "{engines:?}, seed {seed}");
            }
        }
    }

    #[test]
    fn it_goes_on_while_more_rounds_could_tell() {
        let quiet = |rate| measured(&[("posix", 1e5, 5.0), ("io_uring", rate, 5.0)], 0.005, AT_LEAST, 1);
        assert!(!is_open(&quiet(2e5)) && !is_open(&quiet(1e5)));
        let loud = measured(&[("posix", 1e5, 5.0), ("io_uring", 1.05e5, 5.0)], 0.2, AT_LEAST, 1);
        assert!(is_open(&loud));
        assert!(!is_open(&[]) && choose(&[]).is_none());
    }
}
