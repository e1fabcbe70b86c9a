//! mixgraph: gets, puts and scans whose keys, value sizes and lengths follow the models that were fitted to a
//! social graph's traffic, as db_bench draws them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;

use super::args::MixArgs;
use super::dist::{Decider, KeyRanges, pareto, power};
use super::drive::Worker;
use super::keys::{below, mix, unit};
use super::point::check;
use super::scan::read_from;
use super::target::{Setup, Target};
use crate::error::Result;

/// What the threads of one run share.
pub struct Model {
    args: MixArgs,
    ranges: Option<KeyRanges>,
    kinds: Decider,
    start: Instant,
    read_limit: Limit,
    write_limit: Limit,
}

impl Model {
    /// For `num` keys.
    pub fn new(args: &MixArgs, num: u64) -> Model {
        let model = [args.keyrange_dist_a, args.keyrange_dist_b, args.keyrange_dist_c, args.keyrange_dist_d];
        let modelled = model.iter().any(|x| *x != 0.0);
        Model {
            ranges: modelled.then(|| KeyRanges::new(num, args.keyrange_num, model)),
            kinds: Decider::new(&[args.mix_get_ratio, args.mix_put_ratio, args.mix_seek_ratio]),
            start: Instant::now(),
            read_limit: Limit::default(),
            write_limit: Limit::default(),
            args: args.clone(),
        }
    }

    fn key(&self, r: u64, num: u64) -> u64 {
        let a = &self.args;
        if a.key_dist_a == 0.0 || a.key_dist_b == 0.0 {
            return r;
        }
        match &self.ranges {
            Some(ranges) => ranges.key(r, a.key_dist_a, a.key_dist_b),
            None => mix(power(r as f64 / num as f64, a.key_dist_a, a.key_dist_b) as u64) % num,
        }
    }

    fn value_size(&self, u: f64) -> usize {
        let most = self.args.mix_max_value_size as i64;
        let n = pareto(u, self.args.value_theta, self.args.value_k, self.args.value_sigma);
        // Too large a size wraps around rather than being cut, as in db_bench.
        (if n < 10 {
            10
        } else if n > most {
            n % most
        } else {
            n
        }) as usize
    }

    fn scan_length(&self, u: f64) -> u64 {
        let n = pareto(u, self.args.iter_theta, self.args.iter_k, self.args.iter_sigma);
        n.max(0) as u64 % self.args.mix_max_scan_len
    }

    /// The rate of the sine wave now.
    fn rate(&self, rng: &mut SmallRng) -> f64 {
        let a = &self.args;
        let t = self.start.elapsed().as_secs_f64();
        let rate = a.sine_a * (a.sine_b * t + a.sine_c).sin() + a.sine_d;
        let noise = (unit(rng) - 0.5) * a.sine_a * a.sine_mix_rate_noise;
        if rate + noise < 0.0 { rate } else { rate + noise }
    }
}

/// A limit on how many operations a second may be done.
#[derive(Default)]
struct Limit {
    /// Nanoseconds of one operation; 0 without a limit.
    gap: AtomicU64,
    /// When the next operation may start, in nanoseconds from the start.
    next: AtomicU64,
}

impl Limit {
    fn set(&self, rate: f64) {
        self.gap.store(if rate > 0.0 { (1e9 / rate) as u64 } else { 0 }, Relaxed);
    }

    /// Waits until `n` more operations may be done.
    fn request(&self, start: Instant, n: u64) {
        let gap = self.gap.load(Relaxed);
        if gap == 0 {
            return;
        }
        let now = start.elapsed().as_nanos() as u64;
        let mut at = self.next.load(Relaxed);
        loop {
            let begin = at.max(now);
            match self.next.compare_exchange_weak(at, begin + n * gap, Relaxed, Relaxed) {
                Ok(_) => return std::thread::sleep(Duration::from_nanos(begin - now)),
                Err(other) => at = other,
            }
        }
    }
}

/// One thread of mixgraph.
pub struct Mixer<'a> {
    target: &'a Target,
    setup: &'a Setup,
    model: &'a Model,
    rng: SmallRng,
    rate_set: Option<Instant>,
    reads: u64,
    writes: u64,
    key: Vec<u8>,
    value: Vec<u8>,
    may_come: bool,
    /// Gets and seeks that hit their key.
    pub found: u64,
}

impl<'a> Mixer<'a> {
    /// `alone`: no other thread writes.
    pub fn new(
        target: &'a Target,
        setup: &'a Setup,
        model: &'a Model,
        rng: SmallRng,
        alone: bool,
    ) -> Mixer<'a> {
        let (key, value) = (vec![0; setup.keys.size], Vec::new());
        let may_come = !alone;
        Mixer {
            target,
            setup,
            model,
            rng,
            rate_set: None,
            reads: 0,
            writes: 0,
            key,
            value,
            may_come,
            found: 0,
        }
    }

    fn set_rate(&mut self) {
        let a = &self.model.args;
        let interval = Duration::from_millis(a.sine_mix_rate_interval_milliseconds);
        if self.rate_set.is_some_and(|t| t.elapsed() <= interval) {
            return;
        }
        self.rate_set = Some(Instant::now());
        let rate = self.model.rate(&mut self.rng);
        let sum = a.mix_get_ratio + a.mix_put_ratio + a.mix_seek_ratio;
        self.model.read_limit.set(rate * (a.mix_get_ratio + a.mix_seek_ratio) / sum);
        self.model.write_limit.set(rate * a.mix_put_ratio / sum);
    }
}

impl Worker for Mixer<'_> {
    fn step(&mut self, _most: u64) -> Result<u64> {
        let num = self.setup.num;
        let r = below(&mut self.rng, num);
        // A Pareto value is infinite at 0: half a step keeps it finite.
        let u = (r as f64).max(0.5) / num as f64;
        let n = self.model.key(r, num);
        let kind = self.model.kinds.kind(r);
        if self.model.args.sine_mix_rate {
            self.set_rate();
        }
        match kind {
            1 => {
                self.setup.keys.write(n, &mut self.key);
                self.setup.values.write(n, self.model.value_size(u), &mut self.value);
                self.target.db.put(&self.key, &self.value)?;
                self.target.presence.set(n);
                self.writes += 1;
                if self.writes.is_multiple_of(100) {
                    self.model.write_limit.request(self.model.start, 100);
                }
                return Ok(1);
            }
            2 => {
                let length = self.model.scan_length(u);
                // A seek of no rows still positions: one row is read to see where.
                let (_, hit) = read_from(self.target, self.setup, n, length.max(1), self.may_come)?;
                self.found += u64::from(hit);
            }
            _ => {
                self.setup.keys.write(n, &mut self.key);
                let before = self.target.presence.has(n);
                let value = self.target.db.get(&self.key)?;
                self.found += check(self.target, self.setup, n, before, self.may_come, value.as_ref())?;
            }
        }
        self.reads += 1;
        if self.reads.is_multiple_of(100) {
            self.model.read_limit.request(self.model.start, 100);
        }
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds() {
        let l = Limit::default();
        let start = Instant::now();
        l.request(start, 1_000_000);
        l.set(10_000.0);
        (0..4).for_each(|_| l.request(start, 100));
        assert!(start.elapsed() >= Duration::from_millis(30));
    }
}
