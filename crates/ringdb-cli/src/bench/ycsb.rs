//! The six core workloads of YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB", 2010).

use rand::rngs::SmallRng;

use super::dist::{Chooser, Distribution};
use super::drive::Worker;
use super::keys::{below, unit};
use super::point::check;
use super::scan::read_from;
use super::target::{Setup, Target};
use super::workload::Workload;
use crate::error::Result;

/// Shares of reads, updates, inserts, scans and read-modify-writes, and the distribution of the keys.
pub fn mix_of(workload: Workload) -> ([f64; 5], Distribution) {
    use Distribution::{Latest, Zipfian};
    match workload {
        Workload::YcsbA => ([0.5, 0.5, 0.0, 0.0, 0.0], Zipfian),
        Workload::YcsbB => ([0.95, 0.05, 0.0, 0.0, 0.0], Zipfian),
        Workload::YcsbD => ([0.95, 0.0, 0.05, 0.0, 0.0], Latest),
        Workload::YcsbE => ([0.0, 0.0, 0.05, 0.95, 0.0], Zipfian),
        Workload::YcsbF => ([0.5, 0.0, 0.0, 0.0, 0.5], Zipfian),
        _ => ([1.0, 0.0, 0.0, 0.0, 0.0], Zipfian),
    }
}

/// Longest scan of ycsb-e; all lengths from 1 are alike likely.
const LONGEST_SCAN: u64 = 100;

/// One thread.
pub struct Client<'a> {
    /// Where.
    pub target: &'a Target,
    /// What.
    pub setup: &'a Setup,
    /// Shares of the kinds of access.
    pub shares: [f64; 5],
    /// Chooses keys.
    pub chooser: Chooser,
    /// Random numbers.
    pub rng: SmallRng,
    /// Whether any thread writes keys that were not there.
    pub may_come: bool,
    /// Keys found.
    pub found: u64,
    /// Buffers.
    pub key: Vec<u8>,
    /// Buffers.
    pub value: Vec<u8>,
}

impl Client<'_> {
    fn read(&mut self, n: u64) -> Result<()> {
        self.key.resize(self.setup.keys.size, 0);
        self.setup.keys.write(n, &mut self.key);
        let before = self.target.presence.has(n);
        let value = self.target.db.get(&self.key)?;
        self.found += check(self.target, self.setup, n, before, self.may_come, value.as_ref())?;
        Ok(())
    }

    fn write(&mut self, n: u64) -> Result<()> {
        self.key.resize(self.setup.keys.size, 0);
        self.setup.keys.write(n, &mut self.key);
        self.setup.values.write(n, self.setup.value_size, &mut self.value);
        self.target.db.put(&self.key, &self.value)?;
        if n < self.setup.num {
            self.target.presence.set(n);
        }
        Ok(())
    }
}

impl Worker for Client<'_> {
    fn step(&mut self, _most: u64) -> Result<u64> {
        let mut u = unit(&mut self.rng);
        let kind = self.shares.iter().position(|s| {
            u -= s;
            u < 0.0
        });
        if kind == Some(2) {
            let n = self.target.presence.hand_out();
            self.write(n)?;
            self.target.presence.inserted(n);
            return Ok(1);
        }
        let n = self.chooser.key(&mut self.rng, self.target.presence.limit());
        match kind {
            Some(1) => self.write(n)?,
            Some(3) => {
                let rows = 1 + below(&mut self.rng, LONGEST_SCAN);
                let (_, hit) = read_from(self.target, self.setup, n, rows, self.may_come)?;
                self.found += u64::from(hit);
            }
            Some(4) => {
                self.read(n)?;
                self.write(n)?;
            }
            _ => self.read(n)?,
        }
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        use Workload::*;
        for w in [YcsbA, YcsbB, YcsbC, YcsbD, YcsbE, YcsbF] {
            assert!((mix_of(w).0.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
        assert_eq!(mix_of(YcsbD).1, Distribution::Latest);
    }
}
