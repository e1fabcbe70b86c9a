//! What the integration tests share: engines, seeds, a small random generator.
#![allow(dead_code)]

use std::time::{SystemTime, UNIX_EPOCH};

/// The engines that this machine has, out of all that there are. A test that leaves one out says so; CI fails
/// when an engine that the machine has does not open (see `every_engine_of_this_machine_opens`).
pub fn engines() -> Vec<&'static str> {
    ["posix", "libaio", "io_uring"]
        .into_iter()
        .filter(|uri| match ringdb::engineswap::Io::from_uri(uri) {
            Ok(_) => true,
            Err(e) => {
                println!("SKIPPED engine {uri}: {e}");
                false
            }
        })
        .collect()
}

/// A simulated disk whose direct transfers must be aligned to `align` bytes.
pub fn disk(seed: u64, align: u32) -> ringdb::engineswap::sim::Disk {
    let config = ringdb::engineswap::uri::SimConfig { seed, align, ..Default::default() };
    ringdb::engineswap::sim::Disk::from_config(&config).expect("a disk")
}

/// The seed of a random test: `RINGDB_SEED` if set, else from the clock. Always printed.
pub fn seed(test: &str) -> u64 {
    let seed = match std::env::var("RINGDB_SEED") {
        Ok(s) => s.parse().expect("RINGDB_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).expect("clock").as_nanos() as u64,
    };
    println!("{test}: RINGDB_SEED={seed}");
    seed
}

/// A number from the environment, or the default.
pub fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |s| s.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// splitmix64 (Steele, Lea, Flood 2014): small, and the same on every machine.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 to `n - 1`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// Keys that collide, share prefixes and end in zero bytes.
    pub fn key(&mut self) -> Vec<u8> {
        match self.below(20) {
            0 => vec![],
            1 => {
                let n = self.below(300) as usize;
                (0..n).map(|_| self.next() as u8).collect()
            }
            2..=5 => {
                let n = 1 + self.below(6) as usize;
                (0..n).map(|_| *self.pick(&[0u8, b'a', b'b', 255])).collect()
            }
            6..=9 => format!("https://example.org/path/{:04}/page", self.below(2000)).into_bytes(),
            _ => format!("user{:06}", self.below(3000)).into_bytes(),
        }
    }

    /// Mostly short values, some larger than a block.
    pub fn value(&mut self) -> Vec<u8> {
        let n = match self.below(50) {
            0 => 0,
            1 => self.below(40_000),
            2..=5 => self.below(3000),
            _ => self.below(150),
        };
        let byte = self.next() as u8;
        let mut v = vec![byte; n as usize];
        for b in v.iter_mut().step_by(7) {
            *b = self.next() as u8;
        }
        v
    }
}
