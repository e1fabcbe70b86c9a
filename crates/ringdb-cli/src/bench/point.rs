//! Workloads of single keys: fill, overwrite, delete, get, multi_get.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use ringdb::{Value, WriteBatch, WriteOptions};

use super::drive::Worker;
use super::keys::{below, mix};
use super::target::{Setup, Target};
use crate::error::{Result, failed};

/// The random numbers of one thread in one run.
pub fn rng(seed: u64, run: u64, thread: usize) -> SmallRng {
    SmallRng::seed_from_u64(mix(mix(seed) ^ mix(run).rotate_left(17) ^ mix(thread as u64).rotate_left(31)))
}

/// Whether a read of key `n` gave what it must. `before`: whether the key was certainly there before the call;
/// `may_come`: whether another thread may have written it since.
fn judge(
    setup: &Setup,
    n: u64,
    before: bool,
    may_come: bool,
    value: Option<&Value>,
) -> std::result::Result<bool, String> {
    match value {
        Some(v) if !setup.values.is_right(n, v) => Err(format!(
            "wrong value of key number {n}: {} bytes, {}",
            v.len(),
            v[..v.len().min(64)].escape_ascii()
        )),
        None if before => Err(format!("key number {n} was written but is not found")),
        Some(_) if !before && !may_come => {
            Err(format!("key number {n} is found but was not written, or was deleted"))
        }
        v => Ok(v.is_some()),
    }
}

/// Keys found by a read that [`judge`] finds right, or the error.
pub fn check(
    target: &Target,
    setup: &Setup,
    n: u64,
    before: bool,
    may_come: bool,
    value: Option<&Value>,
) -> Result<u64> {
    judge(setup, n, before, may_come, value).map(u64::from).or_else(|what| wrong(target, what))
}

/// Adds what was read wrong to the place it was read.
pub fn wrong<T>(target: &Target, what: String) -> Result<T> {
    failed(format!("{what} (store {} on {})", target.dir.display(), target.io))
}

/// The order in which keys are written.
pub enum Order {
    /// From a first number up to before an end.
    Sequence(std::ops::Range<u64>),
    /// At random, for ever.
    Random,
}

/// Writes keys.
pub struct Writer<'a> {
    /// Where.
    pub target: &'a Target,
    /// What.
    pub setup: &'a Setup,
    /// In which order.
    pub order: Order,
    /// Keys of one write.
    pub batch: u64,
    /// How durable, if not as the store.
    pub options: Option<WriteOptions>,
    /// Random numbers.
    pub rng: SmallRng,
    /// Buffers.
    pub key: Vec<u8>,
    /// Buffers.
    pub value: Vec<u8>,
}

impl Writer<'_> {
    /// The next key's number.
    pub fn number(&mut self) -> Option<u64> {
        match &mut self.order {
            Order::Sequence(range) => range.next(),
            Order::Random => Some(below(&mut self.rng, self.setup.num)),
        }
    }

    /// Makes a key and its value.
    pub fn make(&mut self, n: u64) {
        self.key.resize(self.setup.keys.size, 0);
        self.setup.keys.write(n, &mut self.key);
        self.setup.values.write(n, self.setup.value_size, &mut self.value);
    }
}

impl Worker for Writer<'_> {
    fn step(&mut self, most: u64) -> Result<u64> {
        if self.batch == 1 && self.options.is_none() {
            let Some(n) = self.number() else { return Ok(0) };
            self.make(n);
            self.target.db.put(&self.key, &self.value)?;
            self.target.presence.set(n);
            return Ok(1);
        }
        let mut batch = WriteBatch::new();
        let mut numbers = Vec::with_capacity(self.batch as usize);
        while (numbers.len() as u64) < self.batch.min(most) {
            let Some(n) = self.number() else { break };
            self.make(n);
            batch.put(&self.key, &self.value);
            numbers.push(n);
        }
        if !numbers.is_empty() {
            self.target.db.write(batch, &self.options.unwrap_or_default())?;
            numbers.iter().for_each(|n| self.target.presence.set(*n));
        }
        Ok(numbers.len() as u64)
    }
}

/// Deletes keys at random.
pub struct Deleter<'a> {
    /// Where.
    pub target: &'a Target,
    /// What.
    pub setup: &'a Setup,
    /// Keys of one deletion.
    pub batch: u64,
    /// Random numbers.
    pub rng: SmallRng,
}

impl Worker for Deleter<'_> {
    fn step(&mut self, most: u64) -> Result<u64> {
        let n = self.batch.min(most);
        let mut batch = WriteBatch::new();
        let mut key = vec![0; self.setup.keys.size];
        for _ in 0..n {
            let number = below(&mut self.rng, self.setup.num);
            self.setup.keys.write(number, &mut key);
            self.target.presence.clear(number);
            if n == 1 {
                self.target.db.delete(&key)?;
            } else {
                batch.delete(&key);
            }
        }
        if n > 1 {
            self.target.db.write(batch, &WriteOptions::default())?;
        }
        Ok(n)
    }
}

/// Gets keys at random, one by one or in batches.
pub struct Reader<'a> {
    /// Where.
    pub target: &'a Target,
    /// What.
    pub setup: &'a Setup,
    /// Keys of one call; 0 for `get`.
    pub batch: u64,
    /// Ask for keys that are longer by one byte, which are not there.
    pub missing: bool,
    /// Whether another thread writes meanwhile.
    pub may_come: bool,
    /// Random numbers.
    pub rng: SmallRng,
    /// Keys found.
    pub found: u64,
    /// Buffers.
    pub keys: Vec<u8>,
    /// Buffers.
    pub asked: Vec<(u64, bool)>,
}

impl Reader<'_> {
    /// Bytes of the keys asked for.
    pub fn key_bytes(&self) -> usize {
        self.setup.keys.size + usize::from(self.missing)
    }

    /// Whether a key is certainly there.
    #[inline]
    pub fn certain(&self, n: u64) -> bool {
        !self.missing && self.target.presence.has(n)
    }
}

impl Worker for Reader<'_> {
    fn step(&mut self, most: u64) -> Result<u64> {
        let bytes = self.key_bytes();
        if self.batch == 0 {
            self.keys.resize(bytes, 0);
            let n = below(&mut self.rng, self.setup.num);
            self.setup.keys.write(n, &mut self.keys);
            let before = self.certain(n);
            let value = self.target.db.get(&self.keys)?;
            self.found += check(self.target, self.setup, n, before, self.may_come, value.as_ref())?;
            return Ok(1);
        }
        let count = self.batch.min(most) as usize;
        self.keys.resize(bytes * count, 0);
        self.asked.clear();
        for i in 0..count {
            let n = below(&mut self.rng, self.setup.num);
            self.setup.keys.write(n, &mut self.keys[i * bytes..][..bytes]);
            self.asked.push((n, self.certain(n)));
        }
        let keys: Vec<&[u8]> = self.keys.chunks_exact(bytes).collect();
        let values = self.target.db.multi_get(&keys)?;
        if values.len() != count {
            return wrong(self.target, format!("multi_get of {count} keys gave {} values", values.len()));
        }
        for ((n, before), value) in self.asked.iter().zip(&values) {
            self.found += check(self.target, self.setup, *n, *before, self.may_come, value.as_ref())?;
        }
        Ok(count as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::keys::{Keys, Values};

    #[test]
    fn wrong_reads_are_noticed() {
        let setup = Setup { keys: Keys { size: 16 }, values: Values::new(100), value_size: 100, num: 10 };
        let mut bytes = Vec::new();
        setup.values.write(4, 100, &mut bytes);
        let right = Value::from(bytes);
        assert_eq!(judge(&setup, 4, true, false, Some(&right)), Ok(true));
        assert_eq!(judge(&setup, 4, false, true, Some(&right)), Ok(true));
        assert_eq!(judge(&setup, 4, false, false, None), Ok(false));
        assert!(judge(&setup, 5, true, true, Some(&right)).unwrap_err().contains("wrong value"));
        assert!(judge(&setup, 4, true, true, None).unwrap_err().contains("not found"));
        assert!(judge(&setup, 4, false, false, Some(&right)).unwrap_err().contains("not written"));
    }

    #[test]
    fn threads_and_runs_draw_different_numbers() {
        use rand::Rng;
        let firsts: std::collections::BTreeSet<u64> =
            [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0)].map(|(s, r, t)| rng(s, r, t).next_u64()).into();
        assert_eq!(firsts.len(), 4);
        assert_eq!(rng(3, 4, 5).next_u64(), rng(3, 4, 5).next_u64());
    }
}
