//! Workloads of ranges: seeks, and walks over all rows in both directions.

use rand::rngs::SmallRng;
use ringdb::Iter;

use super::drive::Worker;
use super::keys::below;
use super::point::wrong;
use super::target::{Setup, Target};
use crate::error::Result;

/// Reads up to `rows` rows from the key of number `n` on and checks them: in order, right values, none missing
/// where that can be told. Gives the number of rows and whether the first was the key asked for.
pub fn read_from(target: &Target, setup: &Setup, n: u64, rows: u64, may_come: bool) -> Result<(u64, bool)> {
    let mut key = [0u8; 256];
    let long;
    let from: &[u8] = if setup.keys.size <= key.len() {
        setup.keys.write(n, &mut key[..setup.keys.size]);
        &key[..setup.keys.size]
    } else {
        long = setup.keys.make(n);
        &long
    };
    let certain = target.presence.has(n);
    let full = !may_come && target.presence.is_full() && target.presence.limit() == setup.num;
    let mut iter = target.db.range(from..);
    let mut last = None;
    let mut count = 0;
    let mut hit = false;
    while count < rows {
        let Some(pair) = iter.next() else { break };
        let (key, value) = pair?;
        let Some(number) = setup.keys.number(&key) else {
            return wrong(target, format!("a key that was never written: {}", key.escape_ascii()));
        };
        if number < n || last.is_some_and(|l| number <= l) {
            return wrong(
                target,
                format!("key number {number} after {last:?} in a scan from {n}: out of order"),
            );
        }
        if !setup.values.is_right(number, &value) {
            return wrong(target, format!("wrong value of key number {number} in a scan"));
        }
        if count == 0 {
            hit = number == n;
        }
        last = Some(number);
        count += 1;
    }
    if certain && rows > 0 && !hit {
        return wrong(target, format!("key number {n} was written but a scan from it begins with {last:?}"));
    }
    if full && count != rows.min(setup.num - n) {
        return wrong(target, format!("a scan of {rows} rows from key number {n} gave {count}"));
    }
    Ok((count, hit))
}

/// Seeks to keys at random and reads on.
pub struct Seeker<'a> {
    /// Where.
    pub target: &'a Target,
    /// What.
    pub setup: &'a Setup,
    /// Steps after the seek.
    pub nexts: u64,
    /// Random numbers.
    pub rng: SmallRng,
    /// Seeks that hit their key.
    pub found: u64,
}

impl Worker for Seeker<'_> {
    fn step(&mut self, _most: u64) -> Result<u64> {
        let n = below(&mut self.rng, self.setup.num);
        let (_, hit) = read_from(self.target, self.setup, n, self.nexts + 1, false)?;
        self.found += u64::from(hit);
        Ok(1)
    }
}

/// Rows that are timed together: a clock reading costs more than a row.
const ROWS: u64 = 64;

/// Walks over all rows.
pub struct Walker<'a> {
    target: &'a Target,
    setup: &'a Setup,
    iter: Iter,
    reverse: bool,
    last: Option<u64>,
    /// Rows read.
    pub found: u64,
}

impl<'a> Walker<'a> {
    /// Over the store as it is now.
    pub fn new(target: &'a Target, setup: &'a Setup, reverse: bool) -> Walker<'a> {
        Walker { target, setup, iter: target.db.iter(), reverse, last: None, found: 0 }
    }
}

impl Worker for Walker<'_> {
    fn shares_time(&self) -> bool {
        true
    }

    fn step(&mut self, most: u64) -> Result<u64> {
        let rows = most.min(ROWS);
        for i in 0..rows {
            let next = if self.reverse { self.iter.next_back() } else { self.iter.next() };
            let Some(pair) = next else {
                let expected = self.target.presence.len();
                if self.found != expected {
                    let got = self.found;
                    return wrong(self.target, format!("{got} rows in a store of {expected} keys"));
                }
                return Ok(i);
            };
            let (key, value) = pair?;
            let Some(n) = self.setup.keys.number(&key) else {
                return wrong(self.target, format!("a key that was never written: {}", key.escape_ascii()));
            };
            if self.last.is_some_and(|l| if self.reverse { n >= l } else { n <= l }) {
                return wrong(self.target, format!("key number {n} after {:?}: out of order", self.last));
            }
            if !self.setup.values.is_right(n, &value) {
                return wrong(self.target, format!("wrong value of key number {n}"));
            }
            self.last = Some(n);
            self.found += 1;
        }
        Ok(rows)
    }
}
