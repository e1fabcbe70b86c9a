//! The distributions that the workloads draw from.
//!
//! Zipfian: Gray et al., "Quickly generating billion-record synthetic databases", as YCSB uses it, with YCSB's
//! scrambling. Key ranges, key hotness, value sizes and scan lengths of mixgraph: Cao et al., "Characterizing,
//! Modeling, and Benchmarking RocksDB Key-Value Workloads at Facebook" (FAST 2020), with db_bench's
//! discretisation.

use rand::rngs::SmallRng;

use super::keys::{below, mix, unit};

/// Ranks from 0 to `n - 1`, the first by far the likeliest.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: u64,
    theta: f64,
    alpha: f64,
    zetan: f64,
    eta: f64,
}

impl Zipf {
    /// YCSB's constant.
    pub const THETA: f64 = 0.99;

    /// Over `n` ranks.
    pub fn new(n: u64, theta: f64) -> Zipf {
        let n = n.max(1);
        let zetan = zeta(n, theta);
        let eta = (1.0 - (2.0 / n as f64).powf(1.0 - theta)) / (1.0 - zeta(2, theta) / zetan);
        Zipf { n, theta, alpha: 1.0 / (1.0 - theta), zetan, eta }
    }

    /// A rank.
    #[inline]
    pub fn rank(&self, rng: &mut SmallRng) -> u64 {
        let u = unit(rng);
        let uz = u * self.zetan;
        if uz < 1.0 || self.n == 1 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let r = (self.n as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64;
        r.min(self.n - 1)
    }

    /// A number below `n` whose popularity is that of a rank, the popular ones spread over all.
    #[inline]
    pub fn scrambled(&self, rng: &mut SmallRng) -> u64 {
        mix(self.rank(rng)) % self.n
    }
}

/// The generalized harmonic number; beyond ten million terms the rest is integrated.
fn zeta(n: u64, theta: f64) -> f64 {
    let exact = n.min(10_000_000);
    let sum: f64 = (1..=exact).map(|i| 1.0 / (i as f64).powf(theta)).sum();
    let power = |x: f64| x.powf(1.0 - theta) / (1.0 - theta);
    if n > exact { sum + power(n as f64 + 0.5) - power(exact as f64 + 0.5) } else { sum }
}

/// The inverse of the generalized Pareto distribution's cumulative function, rounded up.
pub fn pareto(u: f64, theta: f64, k: f64, sigma: f64) -> i64 {
    let x = if k == 0.0 { theta - sigma * u.ln() } else { theta + sigma * (u.powf(-k) - 1.0) / k };
    x.ceil() as i64
}

/// The inverse of a power distribution y = a * x^b, rounded up.
pub fn power(u: f64, a: f64, b: f64) -> i64 {
    (u / a).powf(1.0 / b).ceil() as i64
}

/// Which of several kinds an access is, by its random number, in thousandths.
#[derive(Clone, Debug)]
pub struct Decider {
    ends: Vec<u64>,
}

impl Decider {
    /// With these ratios (of any sum).
    pub fn new(ratios: &[f64]) -> Decider {
        let sum: f64 = ratios.iter().sum();
        let mut end = 0;
        let ends = ratios.iter().map(|r| {
            end += (1000.0 * (r / sum)).ceil() as u64;
            end
        });
        Decider { ends: ends.collect() }
    }

    /// The index of the ratio that `n` falls to.
    #[inline]
    pub fn kind(&self, n: u64) -> usize {
        let place = n % self.ends.last().copied().unwrap_or(1).max(1);
        self.ends.iter().position(|e| place < *e).unwrap_or(0)
    }
}

/// Key ranges whose hotness follows a two-term exponential, and within a range keys whose hotness follows a
/// power distribution.
#[derive(Clone, Debug)]
pub struct KeyRanges {
    /// First place of each range on the wheel of `places`.
    starts: Vec<u64>,
    places: u64,
    range_keys: u64,
}

impl KeyRanges {
    /// `num` keys in `ranges` ranges; the hotness of range x is a*exp(b*x) + c*exp(d*x).
    pub fn new(num: u64, ranges: u64, [a, b, c, d]: [f64; 4]) -> KeyRanges {
        let ranges = ranges.clamp(1, num.max(1));
        // From cold to hot: the coldest range with any hotness gets one place or a little more on the wheel.
        let mut amplify = 0.0;
        let mut places: Vec<u64> = Vec::new();
        for x in (1..=ranges).rev() {
            let x = x as f64;
            let p = a * (b * x).exp() + c * (d * x).exp();
            let p = if p < 1e-16 { 0.0 } else { p };
            if amplify == 0.0 && p > 0.0 {
                amplify = (1.0 / p).floor() + 1.0;
            }
            places.push((amplify * p).floor() as u64);
        }
        let total: u64 = places.iter().sum::<u64>().max(1);
        // Hot ranges must not lie side by side: shuffled, always alike for the same parameters.
        let mut state = total;
        for i in 0..places.len() {
            state = mix(state);
            let j = (state % ranges) as usize;
            places.swap(i, j);
        }
        let mut start = 0;
        let starts = places.iter().map(|n| {
            start += n;
            start - n
        });
        KeyRanges { starts: starts.collect(), places: total, range_keys: (num / ranges).max(1) }
    }

    /// The key that random number `r` accesses. Keys of a range are as hot as y = a * x^b says; with a or b 0,
    /// all alike.
    #[inline]
    pub fn key(&self, r: u64, key_a: f64, key_b: f64) -> u64 {
        let place = r % self.places;
        let range = self.starts.partition_point(|s| *s <= place).max(1) - 1;
        let offset = if key_a == 0.0 || key_b == 0.0 {
            r % self.range_keys
        } else {
            let u = (r % self.range_keys) as f64 / self.range_keys as f64;
            mix(power(u, key_a, key_b) as u64) % self.range_keys
        };
        self.range_keys * range as u64 + offset
    }
}

/// How YCSB chooses the key of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Distribution {
    /// A few keys, spread over all, get most accesses
    Zipfian,
    /// The keys inserted last get most accesses
    Latest,
    /// All keys alike
    Uniform,
}

/// Chooses keys.
#[derive(Clone, Debug)]
pub struct Chooser {
    distribution: Distribution,
    zipf: Zipf,
}

impl Chooser {
    /// Over about `num` keys.
    pub fn new(distribution: Distribution, num: u64) -> Chooser {
        let n = if distribution == Distribution::Uniform { 1 } else { num };
        Chooser { distribution, zipf: Zipf::new(n, Zipf::THETA) }
    }

    /// A key below `limit`; `limit` never shrinks below the number of keys given at the start.
    #[inline]
    pub fn key(&self, rng: &mut SmallRng, limit: u64) -> u64 {
        match self.distribution {
            Distribution::Zipfian => self.zipf.scrambled(rng),
            Distribution::Latest => limit.saturating_sub(1 + self.zipf.rank(rng)),
            Distribution::Uniform => below(rng, limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn zipf_ranks_have_their_shares() {
        let z = Zipf::new(1000, Zipf::THETA);
        let mut rng = SmallRng::seed_from_u64(1);
        let mut seen = vec![0u32; 1000];
        (0..200_000).for_each(|_| seen[z.rank(&mut rng) as usize] += 1);
        let share = |i: usize| f64::from(seen[i]) / 200_000.0;
        let expected = |i: f64| 1.0 / i.powf(Zipf::THETA) / zeta(1000, Zipf::THETA);
        assert!((share(0) - expected(1.0)).abs() < 0.01, "{}", share(0));
        assert!((share(1) - expected(2.0)).abs() < 0.01, "{}", share(1));
        assert!(seen[..10].iter().sum::<u32>() > seen[500..].iter().sum::<u32>());
        assert!(seen.iter().filter(|n| **n > 0).count() > 900);
        assert!(Zipf::new(1, Zipf::THETA).rank(&mut rng) == 0);
    }

    #[test]
    fn a_long_zeta_sum_is_integrated_closely() {
        let theta = Zipf::THETA;
        let split: f64 = (1..=20_000).map(|i| 1.0 / f64::from(i).powf(theta)).sum();
        let power = |x: f64| x.powf(1.0 - theta) / (1.0 - theta);
        let joined: f64 = (1..=10_000).map(|i| 1.0 / f64::from(i).powf(theta)).sum::<f64>() + power(20_000.5)
            - power(10_000.5);
        assert!((split - joined).abs() < 1e-6);
    }

    #[test]
    fn values_and_scans_have_the_means_of_the_paper() {
        // The mean of a generalized Pareto distribution with k < 1 is theta + sigma / (1 - k).
        let mean = (1..100_000).map(|i| pareto(f64::from(i) / 100_000.0, 0.0, 0.2615, 25.45)).sum::<i64>();
        let mean = mean as f64 / 99_999.0;
        assert!((mean - (25.45 / (1.0 - 0.2615) + 0.5)).abs() < 0.5, "{mean}");
        assert_eq!(pareto(1.0, 3.0, 0.5, 10.0), 3);
        assert_eq!(power(0.5, 0.5, 1.0), 1);
    }

    #[test]
    fn deciders_give_each_kind_its_share() {
        let d = Decider::new(&[0.83, 0.14, 0.03]);
        let mut n = [0; 3];
        (0..1000).for_each(|i| n[d.kind(i)] += 1);
        assert_eq!(n, [830, 140, 30]);
        let only = Decider::new(&[0.0, 1.0, 0.0]);
        assert!((0..5000).all(|i| only.kind(i) == 1));
    }

    #[test]
    fn key_ranges_are_as_hot_as_the_model_says() {
        let model = [14.18, -2.917, 0.0164, -0.08082];
        let k = KeyRanges::new(3000, 30, model);
        let mut seen = [0u32; 30];
        let mut rng = SmallRng::seed_from_u64(3);
        for _ in 0..100_000 {
            let key = k.key(below(&mut rng, 1 << 40), 0.0, 0.0);
            assert!(key < 3000);
            seen[(key / 100) as usize] += 1;
        }
        seen.sort_unstable_by(|a, b| b.cmp(a));
        let hotness = |x: f64| model[0] * (model[1] * x).exp() + model[2] * (model[3] * x).exp();
        let all: f64 = (1..=30).map(|x| hotness(f64::from(x))).sum();
        assert!((f64::from(seen[0]) / 100_000.0 - hotness(1.0) / all).abs() < 0.03);
        assert!(seen[29] > 0);
        // With a power distribution inside the range a few keys get most accesses.
        let mut keys = std::collections::HashMap::new();
        (0..100_000)
            .for_each(|_| *keys.entry(k.key(below(&mut rng, 1 << 40), 0.002312, 0.3467)).or_insert(0) += 1);
        assert!(keys.keys().all(|k| *k < 3000));
        assert_eq!(KeyRanges::new(3000, 30, model).starts, k.starts);
        // One range, and a flat model, are possible.
        assert!(KeyRanges::new(10, 1, [0.0; 4]).key(7, 0.0, 0.0) < 10);
    }

    #[test]
    fn choosers_stay_in_their_limits() {
        let mut rng = SmallRng::seed_from_u64(9);
        for d in [Distribution::Zipfian, Distribution::Latest, Distribution::Uniform] {
            let c = Chooser::new(d, 100);
            assert!((0..1000).all(|_| c.key(&mut rng, 100) < 100), "{d:?}");
        }
        let latest = Chooser::new(Distribution::Latest, 100);
        let newest = (0..1000).filter(|_| latest.key(&mut rng, 150) >= 140).count();
        assert!(newest > 400, "{newest}");
    }
}
