//! The store that workloads run on, with what is known of its contents.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringdb::{Db, Durability, EncryptionKey, Options, ReadOptions, StaticKeys, WriteBatch, WriteOptions};

use super::args::BenchArgs;
use super::keys::{Keys, Values};
use super::presence::Presence;
use crate::error::{Result, failed};
use crate::out;
use crate::store::DurabilityArg;

/// What all workloads of a run share.
pub struct Setup {
    /// Keys.
    pub keys: Keys,
    /// Values.
    pub values: Values,
    /// Bytes of a value.
    pub value_size: usize,
    /// Keys in the key space.
    pub num: u64,
}

/// A store on one engine.
pub struct Target {
    /// The engine's URI as it was given.
    pub io: String,
    /// The store's directory.
    pub dir: PathBuf,
    /// The store.
    pub db: Db,
    /// What it holds.
    pub presence: Presence,
    /// The durability that it was opened with.
    pub durability: Durability,
}

fn options(args: &BenchArgs, io: &str, durability: Durability) -> Options {
    let mut o = Options::default()
        .with_io(io)
        .with_cache_bytes(args.cache_bytes)
        .with_direct_reads(args.direct_reads)
        .with_durability(durability)
        .with_background_threads(args.background_threads)
        .with_memtable_bytes(args.memtable_bytes.unwrap_or((64 << 20).min(args.cache_bytes / 4)));
    // What is not said here is as the store remembers it.
    if let Some(c) = args.compression {
        o = o.with_compression(c.into()).with_last_level_compression(c.into());
    }
    if let Some(n) = args.bloom_bits {
        o = o.with_filter_bits_per_key(n);
    }
    let o = o.over(args.settings.clone()).with_create_if_missing(true);
    let o = crate::store::told(args.verbose, o);
    if !args.encrypt {
        return o;
    }
    // No secret: this store is for its speed.
    let seed = args.seed.to_le_bytes();
    let key = EncryptionKey::new(std::array::from_fn(|i| seed[i % seed.len()]));
    match StaticKeys::new(1, key) {
        Ok(keys) => o.with_encryption(keys),
        Err(_) => o,
    }
}

/// The durability asked for, or the default.
pub fn durability(asked: Option<DurabilityArg>, default: Durability) -> Durability {
    asked.map_or(default, Durability::from)
}

impl Target {
    /// A fresh store in `dir`, which does not exist or is empty.
    pub fn fresh(args: &BenchArgs, io: &str, dir: &Path, durability: Durability) -> Result<Target> {
        let db = Db::open(dir, options(args, io, durability))?;
        let presence = Presence::new(args.num);
        Ok(Target { io: io.into(), dir: dir.into(), db, presence, durability })
    }

    /// An existing store, whose keys are walked over to know what it holds.
    pub fn existing(
        args: &BenchArgs,
        setup: &Setup,
        io: &str,
        dir: &Path,
        read_only: bool,
    ) -> Result<Target> {
        let durability = durability(args.durability, Durability::Process);
        let o = options(args, io, durability).with_create_if_missing(false);
        let db = if read_only { Db::open_read_only(dir, o)? } else { Db::open(dir, o)? };
        let presence = Presence::new(args.num);
        let bar = out::count_bar(None);
        bar.set_message("looking at what is there");
        for pair in db.range_with(.., &ReadOptions::default().fill_cache(false)) {
            let (key, value) = pair?;
            match setup.keys.number(&key) {
                Some(n) if setup.values.is_right(n, &value) => {
                    presence.found(n);
                    bar.inc(1);
                }
                _ => {
                    return failed(format!(
                        "{} holds a record that no bench with --key-size {} wrote (key {}): use a store that one filled",
                        dir.display(),
                        setup.keys.size,
                        key.escape_ascii()
                    ));
                }
            }
        }
        bar.finish_and_clear();
        Ok(Target { io: io.into(), dir: dir.into(), db, presence, durability })
    }

    /// How its tables are compressed, for the rows: one word if all levels are alike.
    pub fn compression(&self) -> String {
        let o = self.db.options();
        let name = |c| format!("{c:?}").to_lowercase();
        match o.compression == o.last_level_compression {
            true => name(o.compression),
            false => format!("{}, last level {}", name(o.compression), name(o.last_level_compression)),
        }
    }

    /// The same store with another durability.
    pub fn reopen(self, args: &BenchArgs, durability: Durability) -> Result<Target> {
        let Target { io, dir, db, presence, .. } = self;
        db.close()?;
        let db = Db::open(&dir, options(args, &io, durability))?;
        Ok(Target { io, dir, db, presence, durability })
    }

    /// Writes all keys in order, quickly.
    pub fn preload(&self, setup: &Setup) -> Result<()> {
        let bar = out::count_bar(Some(setup.num));
        bar.set_message("loading");
        let mut value = Vec::new();
        let mut batch = WriteBatch::new();
        let options = WriteOptions::default();
        for n in 0..setup.num {
            setup.values.write(n, setup.value_size, &mut value);
            batch.put(setup.keys.make(n), &value);
            if batch.len() == 1000 || batch.size_bytes() > 1 << 20 || n + 1 == setup.num {
                self.db.write(std::mem::take(&mut batch), &options)?;
                bar.set_position(n);
            }
            self.presence.set(n);
        }
        self.db.flush()?;
        bar.set_message("waiting for compactions");
        self.settle()?;
        bar.finish_and_clear();
        Ok(())
    }

    /// Waits until flushes and compactions have nothing more to do: nothing is waiting and nothing was written
    /// for a while.
    pub fn settle(&self) -> Result<()> {
        const QUIET: Duration = Duration::from_millis(300);
        const LONGEST: Duration = Duration::from_secs(600);
        let begun = Instant::now();
        let written = || {
            let s = self.db.io().stats();
            (s.writes().ops, s.reads().ops, self.db.stats().immutable_memtables)
        };
        let (mut seen, mut since) = (written(), Instant::now());
        while since.elapsed() < QUIET || seen.2 > 0 {
            std::thread::sleep(Duration::from_millis(20));
            let now = written();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            if begun.elapsed() > LONGEST {
                return failed("background work has not ended within ten minutes");
            }
        }
        Ok(())
    }
}
