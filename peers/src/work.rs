//! Does one row of a scenario on an open store, and measures it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::scenario::{Figure, Row, Scenario, Work};
use crate::stores::{Key, Result, Store};

/// Of quick operations every so-manieth is timed: a clock costs a tenth of a cached get.
const TIMED: u64 = 16;

/// Key number `i`: 16 hexadecimal digits, random and each once (splitmix64 is a permutation).
pub fn key(i: u64) -> Key {
    let mut z = i.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    let mut key = [0; 16];
    for (i, digit) in key.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(z >> (60 - 4 * i)) as usize & 15];
    }
    key
}

/// Bytes that do not compress, to take values from.
fn bytes_for_values(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len + (1 << 20)];
    SmallRng::seed_from_u64(7).fill_bytes(&mut bytes);
    bytes
}

/// What the process has used.
#[derive(Clone, Copy, Default)]
struct Used {
    cpu: Duration,
    read: u64,
    written: u64,
}

impl Used {
    fn now() -> Result<Used> {
        // SAFETY: plain data, all zeroes are a value of it; the kernel fills it in.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        let io = std::fs::read_to_string("/proc/self/io")?;
        let field = |name: &str| -> u64 {
            io.lines().find_map(|l| l.strip_prefix(name)).and_then(|n| n.trim().parse().ok()).unwrap_or(0)
        };
        Ok(Used {
            cpu: time(usage.ru_utime) + time(usage.ru_stime),
            read: field("read_bytes:"),
            written: field("write_bytes:"),
        })
    }
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10
}

/// Blocks that the files below `dir` take.
fn disk(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|e| match e.metadata() {
            Ok(m) if m.is_dir() => disk(&e.path()),
            Ok(m) => m.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// Does `row` and measures it.
pub fn measure(
    store: &Arc<dyn Store>,
    s: &Scenario,
    row: &Row,
    ops: u64,
    dir: &Path,
    round: u32,
) -> Result<Figure> {
    let before = Used::now()?;
    let started = Instant::now();
    let (keys, mut times) = all_threads(store, s, row, ops, round)?;
    let took = started.elapsed();
    let after = Used::now()?;
    if times.is_empty() {
        times.record(took.as_nanos() as u64)?;
    }
    let us = |ns: u64| ns as f64 / 1000.0;
    let per_key = |n: f64| n / keys.max(1) as f64;
    Ok(Figure {
        row: row.name.into(),
        per_second: keys as f64 / took.as_secs_f64(),
        p50: us(times.value_at_quantile(0.5)),
        p99: us(times.value_at_quantile(0.99)),
        p999: us(times.value_at_quantile(0.999)),
        longest: us(times.max()),
        cpu: per_key((after.cpu - before.cpu).as_secs_f64() * 1e6),
        read: per_key((after.read - before.read) as f64),
        written: per_key((after.written - before.written) as f64),
        resident: resident(),
        disk: disk(dir),
    })
}

type Times = Histogram<u64>;

/// Keys, and the times of operations.
fn all_threads(
    store: &Arc<dyn Store>,
    s: &Scenario,
    row: &Row,
    ops: u64,
    round: u32,
) -> Result<(u64, Times)> {
    if row.work == Work::Settle {
        store.settle()?;
        return Ok((1, Histogram::new(3)?));
    }
    if let Work::Tasks(how) = row.work {
        return crate::tasks::gets(store, how, (s.pairs, s.value_bytes), ops, round);
    }
    let values = bytes_for_values(s.value_bytes);
    let next = AtomicU64::new(0);
    let start = Barrier::new(row.threads as usize);
    let done: Vec<Result<(u64, Times)>> = std::thread::scope(|scope| {
        let one = |t: u64| {
            let (values, next, start) = (&values, &next, &start);
            scope.spawn(move || {
                let seed = u64::from(round) << 32 | t;
                let mut thread = Thread { store: &**store, s, values, rng: SmallRng::seed_from_u64(seed) };
                start.wait();
                thread.run(row, ops, next)
            })
        };
        let threads: Vec<_> = (0..row.threads).map(one).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let (mut keys, mut times) = (0, Histogram::new(3)?);
    for thread in done {
        let (k, t) = thread?;
        keys += k;
        times.add(t)?;
    }
    Ok((keys, times))
}

struct Thread<'a> {
    store: &'a dyn Store,
    s: &'a Scenario,
    values: &'a [u8],
    rng: SmallRng,
}

impl Thread<'_> {
    fn run(&mut self, row: &Row, ops: u64, next: &AtomicU64) -> Result<(u64, Times)> {
        let mut times = Histogram::new(3)?;
        let mut keys = 0;
        let slow = matches!(row.work, Work::SyncPuts | Work::SyncBatches(_) | Work::Scan);
        // Threads take a few operations at a time, so that all end together.
        let portion = if row.threads == 1 || ops < 10_000 { 1 } else { 64 };
        loop {
            let from = next.fetch_add(portion, Relaxed);
            if from >= ops {
                return Ok((keys, times));
            }
            for i in from..(from + portion).min(ops) {
                let timed = (slow || i.is_multiple_of(TIMED)).then(Instant::now);
                keys += self.operation(row.work, i)?;
                if let Some(began) = timed {
                    times.record(began.elapsed().as_nanos() as u64)?;
                }
            }
        }
    }

    fn any(&mut self) -> Key {
        key(self.rng.random_range(0..self.s.pairs))
    }

    fn value(&mut self) -> usize {
        self.rng.random_range(0..1 << 20)
    }

    /// Returns how many keys or rows it was.
    fn operation(&mut self, work: Work, i: u64) -> Result<u64> {
        let at = self.value();
        let value = &self.values[at..at + self.s.value_bytes];
        match work {
            Work::Fill => self.store.put(&key(i), value, false)?,
            Work::Overwrite => self.store.put(&self.any(), value, false)?,
            Work::SyncPuts => self.store.put(&self.any(), value, true)?,
            Work::SyncBatches(n) => {
                let pairs: Vec<(Key, &[u8])> = (0..n).map(|_| (self.any(), value)).collect();
                self.store.put_all(&pairs, true)?;
                return Ok(n as u64);
            }
            Work::Get => {
                if self.store.get(&self.any())? != Some(self.s.value_bytes) {
                    return Err("a key that was put is not there".into());
                }
            }
            Work::GetMissing => {
                let missing = self.s.pairs + self.rng.random_range(0..self.s.pairs);
                if self.store.get(&key(missing))?.is_some() {
                    return Err("a key that was not put is there".into());
                }
            }
            Work::MultiGet(n) => {
                let keys: Vec<Key> = (0..n).map(|_| self.any()).collect();
                let found = self.store.multi_get(&keys)?;
                if found != n {
                    return Err(format!("{found} of {n} keys that were put").into());
                }
                return Ok(n as u64);
            }
            Work::Seek(n) => return Ok(self.store.scan(Some(&self.any()), n)? as u64),
            Work::Scan => {
                let rows = self.store.scan(None, usize::MAX)? as u64;
                if rows != self.s.pairs {
                    return Err(format!("a scan of {rows} rows of {}", self.s.pairs).into());
                }
                return Ok(rows);
            }
            Work::Settle | Work::Tasks(_) => unreachable!("done apart"),
        }
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn keys_are_hexadecimal_and_each_its_own() {
        let mut keys: Vec<_> = (0..100_000).map(key).collect();
        assert!(keys.iter().flatten().all(u8::is_ascii_hexdigit));
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 100_000);
    }
}
